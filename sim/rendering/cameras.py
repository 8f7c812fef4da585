"""Cameras as configured, and what they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor

Images = dict[str, Tensor]
"""``<camera>_rgb`` uint8 [K, H, W, 3] and ``<camera>_depth`` float32 [K, H, W], m."""
KINDS = ("rgb", "depth")


@dataclass(frozen=True)
class Camera:
    """One camera: of the model where ``pos`` is left out, else placed.

    Args:
        name: of the camera, and the beginning of its signals' names.
        width, height: pixels.
        kinds: ``"rgb"``, ``"depth"`` or both.
        fovy_deg: vertical field of view, degrees; the model's if left out (a placed camera: 45, as in MuJoCo).
        max_depth: m; nearer of this and the model's far plane is the depth of everything farther and of nothing.
        body: what a placed camera is fixed to: a body of the model.
        pos: m, in the body's frame.
        quat: wxyz, camera to body; a camera looks along its -z, x to the right, y up.
    """

    name: str
    width: int
    height: int
    kinds: tuple[str, ...] = KINDS
    fovy_deg: float | None = None
    max_depth: float | None = None
    body: str = "world"
    pos: tuple[float, float, float] | None = None
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        where = f"camera {self.name!r}"
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"a camera's name begins its signals' names: letters, digits, _; got {self.name!r}")
        for key in ("width", "height"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 8192:
                raise ValueError(f"{where}: {key} is a whole number of pixels, 1 to 8192, got {value!r}")
        listed = isinstance(self.kinds, (tuple, list)) and all(k in KINDS for k in self.kinds)
        if not listed or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ValueError(f"{where}: kinds are some of {', '.join(KINDS)}, each once; got {self.kinds!r}")
        if self.fovy_deg is not None and not (_is_number(self.fovy_deg) and 0 < self.fovy_deg < 180):
            raise ValueError(f"{where}: fovy_deg is a number between 0 and 180, got {self.fovy_deg!r}")
        if self.max_depth is not None and not (_is_number(self.max_depth) and self.max_depth > 0):
            raise ValueError(f"{where}: max_depth is a positive number (m), got {self.max_depth!r}")
        if not isinstance(self.body, str):
            raise ValueError(f"{where}: body is the name of a body, got {self.body!r}")
        _numbers(where, "quat", self.quat, 4)
        if self.pos is None and (self.body != "world" or tuple(self.quat) != (1.0, 0.0, 0.0, 0.0)):
            raise ValueError(f"{where}: body and quat place a camera and need pos")
        if self.pos is not None:
            _numbers(where, "pos", self.pos, 3)
            if abs(np.linalg.norm(self.quat) - 1) > 1e-3:
                raise ValueError(f"{where}: quat has length 1, got {self.quat}")


def _numbers(where: str, key: str, value: Any, count: int) -> None:
    ok = isinstance(value, (tuple, list)) and len(value) == count
    if not ok or not all(_is_number(x) and np.isfinite(x) for x in value):
        raise ValueError(f"{where}: {key} is {count} finite numbers, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse_cameras(raw: Mapping[str, Any] | None) -> tuple[Camera, ...]:
    """Cameras from configuration, ``{name: {width: 64, height: 64, kinds: [rgb], ...}}``; every key is checked."""
    legal = [f.name for f in fields(Camera)][1:]
    out = []
    if raw is not None and not isinstance(raw, Mapping):
        raise ValueError(f"cameras is a mapping from names to width, height, ..., got {raw!r}")
    for name, spec in (raw or {}).items():
        if not isinstance(spec, Mapping) or not {"width", "height"} <= set(spec):
            raise ValueError(f"cameras.{name} is a mapping with width and height, got {spec!r}")
        unknown = set(spec) - set(legal)
        if unknown:
            raise ValueError(f"cameras.{name}: unknown keys {sorted(map(str, unknown))}; legal: {', '.join(legal)}")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
        if isinstance(values.get("kinds"), str):
            values["kinds"] = (values["kinds"],)
        out.append(Camera(str(name), **values))
    return tuple(out)
