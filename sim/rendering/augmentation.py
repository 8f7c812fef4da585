"""Augmentation of RGB and depth: errors of real cameras, and changes that make a network robust to them.

    augment = parse_augment({"wrist_rgb": {"shift": {"high": 4}, "hue": {"high": 10, "per": "episode"}},
                             "wrist_depth": {"preset": "d435"}})
    seen = augment(images, seed, worlds, episode, step)        # images by name, [K, H, W, 3] uint8 and [K, H, W] m

Every draw is keyed by (seed, world, episode, step) through :mod:`temporeal.sim.compiler.keyed_random`: a picture
replays, whatever the number of worlds and their order. RGB goes through OpenCV picture by picture on the CPU, depth is
computed on its own device.

Operations on RGB, in the order in which they are applied, each with ``low`` and ``high`` of the uniform distribution
of its strength, a ``probability``, and ``per``: ``step`` (a draw for each picture) or ``episode`` (one for all of its):

==============  ==================================================================================================
``shift``       whole pixels along x and y, each number from low to high as likely as any other, the border repeated:
                the random crop of DrQ (arXiv:2004.13649, section 3.1)
``rotate``      degrees about the centre, the border repeated
``brightness``  factor
``contrast``    factor, about the picture's mean grey
``saturation``  factor, about each pixel's grey
``hue``         degrees
``grey``        share of the colour that is lost, 0 to 1; with high 1, low 1: all of it
``blur``        standard deviation of a Gaussian, pixels
``noise``       standard deviation of white noise, of 255
``cutout``      side of a black square, as a share of the shorter side (arXiv:1708.04552); ``count`` of them
``jpeg``        quality of compression, 1 to 100
==============  ==================================================================================================

``low`` is ``-high`` where it is left out of shift, rotate and hue, and 0 of noise and blur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.sim.compiler.keyed_random import normal, stream, uniform

try:
    import cv2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"image augmentation needs {error.name}: pip install opencv-python-headless", name=error.name
    ) from error

PER = ("step", "episode")


def _number(where: str, value: Any, finite: bool = True) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or (finite and not isfinite(value)):
        raise ValueError(f"{where} is a {'finite ' if finite else ''}number, got {value!r}")
    return float(value)


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{where} is a whole number, got {value!r}")
    return int(value)


def _three(noise: Any) -> None:
    """The (a, b, c) of an axial noise."""
    good = isinstance(noise, (list, tuple)) and len(noise) == 3 and not any(isinstance(x, bool) for x in noise)
    if not good or not all(isinstance(x, (int, float)) and 0 <= x and isfinite(x) for x in noise):
        raise ValueError("noise is three numbers a, b, c of a + b (z - c)^2 (m), finite and 0 or more: a and b because "
                         f"a standard deviation is, c because it is a depth, that of the least noise; got {noise!r}")


@dataclass(frozen=True)
class Rule:
    """Legal strengths of an operation; ``low``: the least where it is left out (None: it must be given).

    ``whole``: a whole number, both ends included.
    """

    least: float
    most: float
    low: str | float | None
    draws: int = 1
    whole: bool = False


RULES = {
    "shift": Rule(-256, 256, "-high", 2, whole=True), "rotate": Rule(-180, 180, "-high"),
    "brightness": Rule(0, 10, None), "contrast": Rule(0, 10, None), "saturation": Rule(0, 10, None),
    "hue": Rule(-180, 180, "-high"),
    "grey": Rule(0, 1, None), "blur": Rule(0, 20, 0.0), "noise": Rule(0, 255, 0.0), "cutout": Rule(0, 1, None),
    "jpeg": Rule(1, 100, None),
}  # fmt: skip


@dataclass(frozen=True)
class Op:
    """One operation: strength uniform in [``low``, ``high``], applied with ``probability``, drawn per step or episode.

    ``count``: of the squares of a cutout.
    """

    low: float
    high: float
    probability: float = 1.0
    per: str = "step"
    count: int = 1


@dataclass(frozen=True)
class DepthNoise:
    """Errors of a depth camera. 0 in the result means that the camera has no answer there. Lengths in m.

    Args:
        noise: (a, b, c) of the standard deviation a + b (z - c)^2 along the optical axis: c is the depth at which it is
            least.
        jitter: standard deviation, pixels, of where each pixel looks: ragged edges.
        quantum: step of the inverse depth, 1/m; 0: none.
        drop: share of pixels without an answer, at random.
        edge_drop: share of pixels without an answer where depth jumps by more than ``edge_jump`` times itself: what
            one of a stereo camera's two eyes does not see.
        holes, hole_size: how many squares without an answer (shiny or dark things), and the greatest side as a share
            of the picture's shorter side.
        min_range, max_range: nearer and farther there is no answer.
    """

    noise: tuple[float, float, float] = (0.0, 0.0, 0.0)
    jitter: float = 0.0
    quantum: float = 0.0
    drop: float = 0.0
    edge_jump: float = 0.05
    edge_drop: float = 0.0
    holes: int = 0
    hole_size: float = 0.1
    min_range: float = 0.0
    max_range: float = 1e6

    def __post_init__(self) -> None:
        _three(self.noise)
        for name in ("jitter", "quantum", "drop", "edge_jump", "edge_drop", "hole_size", "min_range", "max_range"):
            _number(name, getattr(self, name), finite=name != "max_range")
        _whole("holes", self.holes)
        for name in ("drop", "edge_drop", "hole_size"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, 0 to 1, got {getattr(self, name)!r}")
        for name in ("jitter", "quantum", "edge_jump", "holes", "min_range"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is 0 or more, got {getattr(self, name)!r}")
        if not self.min_range < self.max_range:
            raise ValueError(f"min_range is below max_range, got {self.min_range} and {self.max_range}")


PRESETS = {
    # Axial noise: Nguyen, Izadi, Lovell, "Modeling Kinect sensor noise for improved 3D reconstruction and tracking",
    # 3DIMPVT 2012. Half a pixel of jitter, and inverse depths quantized by 1 / 351.3 per m: Handa et al., "A benchmark
    # for RGB-D visual odometry, 3D reconstruction and SLAM", ICRA 2014 (after Barron and Malik 2013). Range: Khoshelham
    # and Elberink, Sensors 12 (2012). Shares of drop-outs and holes: our choice.
    "kinect": DepthNoise((0.0012, 0.0019, 0.4), 0.5, 1 / 351.3, 0.005, 0.05, 0.5, 1, 0.1, 0.5, 5.0),
    # z^2 s / (f B) with s = 0.08 pixel, f = 424 pixel (848 wide, 90 degrees) and B = 0.050 m, and the least range:
    # Intel, "Best-known methods for tuning RealSense D400 depth cameras", and the D435's datasheet. Rest as above.
    "d435": DepthNoise((0.0, 0.0038, 0.0), 0.5, 0.0, 0.005, 0.05, 0.5, 1, 0.1, 0.175, 10.0),
}

Plan = Mapping[str, "Op | DepthNoise"]


@dataclass(frozen=True)
class Augmentation:
    """What is done to each picture, by signal name; called with pictures it gives new ones of the same shapes."""

    rgb: Mapping[str, Mapping[str, Op]]
    depth: Mapping[str, DepthNoise]

    def __call__(
        self, images: Mapping[str, Tensor], seed: int, worlds: Tensor, episode: Tensor, step: int | Tensor
    ) -> dict[str, Tensor]:
        """Pictures [K, ...] of the worlds [K] in step ``step`` (int or int64 [K]) of their episodes [K].

        Pictures without a plan pass as they are. A plan for a picture that is not among them is an error.
        """
        for name in (*self.rgb, *self.depth):
            if name not in images:
                raise UnknownName(f"augment: there is no picture {name!r}; known: {', '.join(images) or 'none'}")
        steps = step if isinstance(step, Tensor) else torch.full_like(worlds, _whole("step", step))
        key = Key(seed, worlds.cpu(), episode.cpu(), steps.cpu())
        out = dict(images)
        for name, ops in self.rgb.items():
            out[name] = augment_rgb(images[name], ops, key, name)
        for name, noise in self.depth.items():
            out[name] = corrupt_depth(images[name], noise, key, name)
        return out


@dataclass(frozen=True)
class Key:
    """What draws depend on: the seed, and world, episode and step of each picture (int64 [K], on the CPU)."""

    seed: int
    worlds: Tensor
    episode: Tensor
    step: Tensor

    def __post_init__(self) -> None:
        _whole("seed", self.seed)
        for name in ("worlds", "episode", "step"):
            if (found := getattr(self, name)).dtype != torch.int64:
                raise ValueError(f"{name} is int64 [K], got {found.dtype} {list(found.shape)}")
        if not self.worlds.shape == self.episode.shape == self.step.shape or self.worlds.dim() != 1:
            raise ValueError(f"worlds, episode and step have one shape [K], got {list(self.worlds.shape)}, "
                             f"{list(self.episode.shape)}, {list(self.step.shape)}")

    def uniform(self, name: str, count: int, per: str = "step") -> Tensor:
        """[K, count] in [0, 1)."""
        step = self.step if per == "step" else torch.zeros_like(self.step)
        return uniform(self.seed, self.worlds, self.episode, stream(f"augment.{name}"), count, step)

    def normal(self, name: str, count: int) -> Tensor:
        """[K, count], standard normal."""
        return normal(self.seed, self.worlds, self.episode, stream(f"augment.{name}"), count, self.step)

    def one(self, i: int) -> Key:
        """Of the picture ``i`` alone."""
        return Key(self.seed, self.worlds[i : i + 1], self.episode[i : i + 1], self.step[i : i + 1])


# ---- configuration


def parse_augment(raw: Mapping[str, Any] | None, signals: tuple[str, ...] | None = None) -> Augmentation:
    """From configuration: by signal name (``..._rgb``, ``..._depth``) operations, or a depth camera's errors.

    ``signals``: the legal names, if known. Depth takes the fields of :class:`DepthNoise`, and ``preset``
    (``kinect``, ``d435``), which the other fields then change.
    """
    if raw is not None and not isinstance(raw, Mapping):
        raise ValueError(f"augment is a mapping from pictures to what is done to them, got {raw!r}")
    rgb: dict[str, Mapping[str, Op]] = {}
    depth: dict[str, DepthNoise] = {}
    for name, spec in (raw or {}).items():
        if not isinstance(name, str):
            raise ValueError(f"augment: a picture's name is a word such as wrist_rgb, got {name!r}")
        if signals is not None and name not in signals:
            raise UnknownName(f"augment: there is no picture {name!r}; known: {', '.join(signals) or 'none'}")
        if not isinstance(spec, Mapping):
            raise ValueError(f"augment.{name} is a mapping, got {spec!r}")
        if name.endswith("_rgb"):
            found = {op: _parse_op(f"augment.{name}.{op}", op, value) for op, value in spec.items()}
            rgb[name] = {op: found[op] for op in RULES if op in found}
        elif name.endswith("_depth"):
            depth[name] = _parse_depth(f"augment.{name}", spec)
        else:
            raise ValueError(f"augment.{name}: a picture's name ends in _rgb or _depth")
    return Augmentation(rgb, depth)


def _parse_op(where: str, name: str, raw: Any) -> Op:
    if name not in RULES:
        raise UnknownName(f"{where}: no such operation; known: {', '.join(RULES)}")
    legal = [f.name for f in fields(Op) if f.name != "count" or name == "cutout"]
    if not isinstance(raw, Mapping) or "high" not in raw:
        raise ValueError(f"{where} is a mapping with high (and {', '.join(k for k in legal if k != 'high')}), "
                         f"got {raw!r}")
    if unknown := set(raw) - set(legal):
        raise ValueError(f"{where}: unknown keys {sorted(map(str, unknown))}; legal: {', '.join(legal)}")
    rule = RULES[name]
    high = _number(f"{where}.high", raw["high"])
    if "low" not in raw and rule.low is None:
        raise ValueError(f"{where} needs low (high is {high})")
    low = _number(f"{where}.low", raw["low"]) if "low" in raw else -high if rule.low == "-high" else float(rule.low)
    if not rule.least <= low <= high <= rule.most:
        raise ValueError(f"{where}: {rule.least} <= low <= high <= {rule.most}, got low {low} and high {high}")
    if rule.whole and not (low.is_integer() and high.is_integer()):
        raise ValueError(f"{where}: low and high are whole numbers, got {low} and {high}")
    op = Op(low, high, _number(f"{where}.probability", raw.get("probability", 1.0)), raw.get("per", "step"),
            raw.get("count", 1))
    if not 0 <= op.probability <= 1:
        raise ValueError(f"{where}.probability is 0 to 1, got {op.probability}")
    if op.per not in PER:
        raise ValueError(f"{where}.per is one of {', '.join(PER)}; got {op.per!r}")
    if isinstance(op.count, bool) or not isinstance(op.count, int) or not 1 <= op.count <= 64:
        raise ValueError(f"{where}.count is a whole number, 1 to 64, got {op.count!r}")
    return op


def _parse_depth(where: str, raw: Mapping[str, Any]) -> DepthNoise:
    legal = [f.name for f in fields(DepthNoise)]
    if unknown := set(raw) - {"preset", *legal}:
        raise ValueError(f"{where}: unknown keys {sorted(map(str, unknown))}; legal: preset, {', '.join(legal)}")
    preset = raw.get("preset")
    if preset is not None and preset not in tuple(PRESETS):  # of a tuple it can be asked of a list, too
        raise UnknownName(f"{where}.preset: no {preset!r}; known: {', '.join(PRESETS)}")
    base = PRESETS[preset] if preset else DepthNoise()
    values: dict[str, Any] = {name: getattr(base, name) for name in legal}
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
               if name != "preset"}
    try:
        return DepthNoise(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


# ---- RGB


def augment_rgb(images: Tensor, ops: Mapping[str, Op], key: Key, name: str) -> Tensor:
    """``ops`` on each of the pictures, uint8 [K, H, W, 3]; ``name`` keeps the draws of cameras apart."""
    k = len(key.worlds)
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[0] != k or images.shape[3] != 3:
        raise ValueError(f"{name} is uint8 [{k}, H, W, 3], got {images.dtype} {list(images.shape)}")
    draws = {op: key.uniform(f"{name}.{op}", 1 + _draws(op, spec), spec.per).numpy() for op, spec in ops.items()}
    out = images.cpu().numpy().copy()
    for i in range(k):
        picture = out[i]
        for op, spec in ops.items():
            gate, *u = draws[op][i].tolist()
            if gate < spec.probability:
                strength = [_strength(op, spec, x) for x in u]
                picture = APPLY[op](picture, strength, u, key.one(i), f"{name}.{op}")
        out[i] = picture
    return torch.from_numpy(out).to(images.device)


def _strength(op: str, spec: Op, u: float) -> float:
    """The value that ``u`` in [0, 1) draws."""
    if RULES[op].whole:
        return spec.low + int(u * (spec.high - spec.low + 1))
    return spec.low + (spec.high - spec.low) * u


def _draws(op: str, spec: Op) -> int:
    return 3 * spec.count if op == "cutout" else RULES[op].draws


Apply = Callable[[np.ndarray, "list[float]", "list[float]", Key, str], np.ndarray]


def _warp(picture: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    size = (picture.shape[1], picture.shape[0])
    return cv2.warpAffine(picture, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def _shift(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    return _warp(picture, np.float32([[1, 0, s[0]], [0, 1, s[1]]]))


def _rotate(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    centre = ((picture.shape[1] - 1) / 2, (picture.shape[0] - 1) / 2)
    return _warp(picture, cv2.getRotationMatrix2D(centre, s[0], 1.0))


def _bytes(value: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(value), 0, 255).astype(np.uint8)


def _grey_of(picture: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)


def _brightness(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    return _bytes(picture * np.float32(s[0]))


def _contrast(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    mean = np.float32(_grey_of(picture).mean())
    return _bytes(mean + np.float32(s[0]) * (picture - mean))


def _saturation(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    grey = _grey_of(picture)[..., None]
    return _bytes(grey + np.float32(s[0]) * (picture - grey))


def _lose_colour(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    return _saturation(picture, [1 - s[0]])


def _hue(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    hsv = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0] + s[0]) % 360
    return _bytes(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * 255)


def _blur(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    if s[0] < 0.05:  # too narrow to reach the next pixel
        return picture
    side = 2 * int(np.ceil(3 * s[0])) + 1
    return cv2.GaussianBlur(picture, (side, side), s[0], borderType=cv2.BORDER_REPLICATE)


def _noise(picture: np.ndarray, s: list[float], _: list[float], key: Key, name: str) -> np.ndarray:
    white = key.normal(f"{name}.pixels", picture.size).numpy().reshape(picture.shape)
    return _bytes(picture + np.float32(s[0]) * white)


def _cutout(picture: np.ndarray, s: list[float], u: list[float], *_: Any) -> np.ndarray:
    picture = picture.copy()
    for i in range(0, len(s), 3):
        _fill(picture, s[i], u[i + 1], u[i + 2])
    return picture


def _fill(picture: np.ndarray, share: float, across: float, down: float) -> None:
    """A square of zeros about a point of the picture; what lies outside is cut off."""
    height, width = picture.shape[:2]
    side = round(share * min(height, width))
    left, top = int(across * width) - side // 2, int(down * height) - side // 2
    picture[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0


def _jpeg(picture: np.ndarray, s: list[float], *_: Any) -> np.ndarray:
    # OpenCV takes pictures to be blue, green, red
    ok, code = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, round(s[0])])
    if not ok:
        raise RuntimeError(f"OpenCV could not compress a picture of shape {picture.shape}")
    return cv2.imdecode(code, cv2.IMREAD_COLOR)[..., ::-1]


APPLY: dict[str, Apply] = {
    "shift": _shift, "rotate": _rotate, "brightness": _brightness, "contrast": _contrast, "saturation": _saturation,
    "hue": _hue, "grey": _lose_colour, "blur": _blur, "noise": _noise, "cutout": _cutout, "jpeg": _jpeg,
}  # fmt: skip


# ---- depth


def corrupt_depth(depth: Tensor, config: DepthNoise, key: Key, name: str) -> Tensor:
    """The reading of a depth camera with the errors ``config`` for the true ``depth`` [K, H, W], m; 0: no answer."""
    k = len(key.worlds)
    if not depth.is_floating_point() or depth.dim() != 3 or depth.shape[0] != k:
        raise ValueError(f"{name} is float [{k}, H, W], got {depth.dtype} {list(depth.shape)}")
    height, width = depth.shape[1:]

    def pixels(draw: Callable[[str, int], Tensor], what: str) -> Tensor:
        return draw(f"{name}.{what}", height * width).reshape(k, height, width).to(depth.device)

    seen = depth.float()
    if config.jitter:
        seen = _look_beside(seen, *(config.jitter * pixels(key.normal, axis) for axis in ("down", "across")))
    lost = (seen < config.min_range) | (seen > config.max_range) | ~seen.isfinite()
    if config.edge_drop:
        lost |= _jumps(seen, config.edge_jump) & (pixels(key.uniform, "edge") < config.edge_drop)
    if config.drop:
        lost |= pixels(key.uniform, "drop") < config.drop
    a, b, c = config.noise
    if a or b:
        seen = seen + (a + b * (seen - c) ** 2) * pixels(key.normal, "axial")
    if config.quantum:
        seen = 1 / ((1 / seen.clamp(min=1e-3) / config.quantum).round().clamp(min=1) * config.quantum)
    seen = torch.where(lost | (seen <= 0), 0.0, seen)
    if config.holes:
        _punch(seen, key.uniform(f"{name}.holes", 3 * config.holes), config.hole_size)
    return seen


def _look_beside(depth: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Each pixel gets the depth of the one that is ``down`` and ``across`` from it (pixels, rounded)."""
    k, height, width = depth.shape
    rows = (torch.arange(height, device=depth.device)[:, None] + down.round().long()).clamp(0, height - 1)
    columns = (torch.arange(width, device=depth.device) + across.round().long()).clamp(0, width - 1)
    return depth.flatten(1).gather(1, (rows * width + columns).flatten(1)).reshape(k, height, width)


def _jumps(depth: Tensor, share: float) -> Tensor:
    """Pixels next to which depth differs by more than ``share`` of it."""
    out = torch.zeros_like(depth, dtype=torch.bool)
    for dim in (1, 2):
        n = depth.shape[dim]
        first, second = depth.narrow(dim, 0, n - 1), depth.narrow(dim, 1, n - 1)
        jump = (first - second).abs() > share * torch.minimum(first, second)
        out.narrow(dim, 0, n - 1).logical_or_(jump)
        out.narrow(dim, 1, n - 1).logical_or_(jump)
    return out


def _punch(depth: Tensor, draws: Tensor, size: float) -> None:
    for i, row in enumerate(draws.tolist()):
        for j in range(0, len(row), 3):
            _fill(depth[i], size * row[j], row[j + 1], row[j + 2])
