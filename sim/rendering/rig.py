"""A rig of cameras over N worlds of one MuJoCo model: RGB and depth pictures.

    rig = Rig(model, 64, (Camera("wrist", 64, 64),))
    images = rig.render(qpos)                       # qpos [64, nq]
    images["wrist_rgb"], images["wrist_depth"]      # uint8 [64, 64, 64, 3], float32 [64, 64, 64] m
    rig.set_params(ids, {"camera.wrist.pos": ..., "color.table": ...})      # [K, 3] each

A picture depends on its own world's ``qpos``, mocap poses and visual parameters and on nothing else: not on the number
of worlds, nor on which others are rendered with it. See docs/how-to/cameras.md for the two renderers and what each can
draw.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter
from temporeal.sim.rendering.appearance import Appearance
from temporeal.sim.rendering.cameras import KINDS, Camera, Images
from temporeal.sim.rendering.projection import CameraPoses
from temporeal.sim.rendering.viewpoints import find_views

RENDERERS = {"warp": ("temporeal.sim.rendering.warp_renderer", "WarpRenderer"),
             "gl": ("temporeal.sim.rendering.opengl_renderer", "GLRenderer")}
log = logging.getLogger(__name__)
_logged: set[str] = set()


class Rig:
    """Cameras over ``num_worlds`` worlds of ``model``.

    Args:
        model: it is not changed, and later changes of it are not seen.
        cameras: the model's, by name, or placed ones.
        device: where the pictures go. ``warp`` renders there; ``gl`` renders where OpenGL runs and copies.
        renderer: ``"warp"``, ``"gl"``, or ``"auto"``: warp if mujoco-warp is installed, else gl; the log says which.
        needs: visual parameters that will be set; an unknown name is refused here.
        moved: fields of the model that are handed over with each picture, such as ``body_pos`` where a simulator moves
            bodies in its model itself.

    Raises:
        UnknownName: a camera, body, renderer or parameter that there is not; lists those there are.
        ValueError: a device that is not there, or anything else that is no legal value.
        ModuleNotFoundError, temporeal.sim.rendering.opengl_renderer.MissingRenderer: the renderer cannot run here; says
        what to install.
    """

    def __init__(
        self, model: mujoco.MjModel, num_worlds: int, cameras: Sequence[Camera], *,
        device: torch.device | str = "cpu", renderer: str = "auto", needs: Sequence[str] = (),
        moved: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if isinstance(num_worlds, bool) or not isinstance(num_worlds, int) or num_worlds < 1:
            raise ValueError(f"num_worlds is a whole number from 1, got {num_worlds!r}")
        self.num_worlds, self.device = num_worlds, usable(device)
        self.views = find_views(model, tuple(cameras))
        self.cameras, self.far = self.views.cameras, self.views.far
        self.appearance = Appearance(model, self.views, num_worlds, self.device)
        for name in needs:
            self.appearance.find(name)
        self.nq, self.nmocap = model.nq, model.nmocap
        self._home = _home(model, self.device)
        self.renderer, make = _load(renderer)
        self.moved = {name: getattr(model, name).shape for name in moved}
        sizes = (num_worlds, len(self.cameras))
        self._poses = CameraPoses(*(torch.full((*sizes, *shape), torch.nan, device=self.device)
                                    for shape in ((3,), (3, 3), ())))
        self._renderer = make(model, self.views, num_worlds, self.device, self.appearance.all_fields() | set(moved))

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The visual parameters that can be set (:mod:`temporeal.sim.rendering.appearance`), with nominal values and
        ranges."""
        return self.appearance.parameters

    @property
    def signals(self) -> dict[str, tuple[int, ...]]:
        """Name of each picture -> its shape without the worlds."""
        return {f"{c.name}_{kind}": (c.height, c.width, 3) if kind == "rgb" else (c.height, c.width)
                for c in self.cameras for kind in KINDS if kind in c.kinds}

    @torch.no_grad()
    def render(
        self, qpos: Tensor, mocap_pos: Tensor | None = None, mocap_quat: Tensor | None = None,
        ids: Tensor | None = None, moved: Mapping[str, Tensor] | None = None,
    ) -> Images:  # fmt: skip
        """Pictures of the worlds ``ids`` [K] (of all N if left out), in memory of their own.

        Args:
            qpos: [K, nq].
            mocap_pos, mocap_quat: [K, nmocap, 3] m and [K, nmocap, 4] wxyz; where the model puts them if left out.
            ids: int64; whose visual parameters apply.
            moved: [K, ...] of each field that the rig was told would be handed over.

        Returns:
            ``<camera>_rgb`` uint8 [K, H, W, 3]; ``<camera>_depth`` float32 [K, H, W], m along the optical axis, at
            most ``far[camera]``, which is also the depth where nothing is. A world whose state is not finite is
            black and at ``far``.
        """
        ids = self._ids(ids)
        k, nm = len(ids), self.nmocap
        state = [self._state("qpos", qpos, (k, self.nq), None),
                 self._state("mocap_pos", mocap_pos, (k, nm, 3), self._home[0]),
                 self._state("mocap_quat", mocap_quat, (k, nm, 4), self._home[1])]
        everyone = k == self.num_worlds and self._in_order(ids)
        fields = {name: value if everyone else value[ids] for name, value in self.appearance.fields.items()}
        if set(moved or {}) != set(self.moved):
            raise ValueError(f"this rig is handed {', '.join(self.moved) or 'no fields'} with each picture, got "
                             f"{', '.join(moved or {}) or 'none'}")
        for name, value in (moved or {}).items():
            fields[name] = self._state(name, value, (k, *self.moved[name]), None)
        images = self._renderer.render(*state, fields)
        for kept, value in zip(self._poses, self._renderer.poses(k)):
            kept[ids] = value
        return images

    def poses(self) -> CameraPoses:
        """Where the cameras were in each world's latest pictures (copies)."""
        return CameraPoses(*(value.clone() for value in self._poses))

    def _in_order(self, ids: Tensor) -> bool:
        return bool((ids == torch.arange(len(ids), device=ids.device)).all())

    def _ids(self, ids: Tensor | None) -> Tensor:
        if ids is None:
            return torch.arange(self.num_worlds, device=self.device)
        ids = torch.as_tensor(ids, device=self.device)
        if ids.dim() != 1 or ids.dtype != torch.int64:
            raise ValueError(f"ids are int64 [K], got {ids.dtype} {list(ids.shape)}")
        if len(ids) > self.num_worlds:
            raise ValueError(f"at most {self.num_worlds} worlds at a time, got {len(ids)} ids")
        if len(ids) and not bool(((ids >= 0) & (ids < self.num_worlds)).all()):
            raise ValueError(f"ids lie in 0..{self.num_worlds - 1}, got {ids.min().item()}..{ids.max().item()}")
        return ids

    def _state(self, name: str, value: Any, shape: tuple[int, ...], default: Tensor | None) -> Tensor:
        if value is None and default is not None:
            return default.expand(shape)
        if not isinstance(value, (Tensor, np.ndarray)):
            raise ValueError(f"{name} is a tensor {list(shape)} (worlds first), got {value!r}")
        value = torch.as_tensor(value, device=self.device)
        if value.shape != shape:
            raise ValueError(f"{name} has shape {list(shape)} (worlds first), got {list(value.shape)}")
        return value.float()

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set visual parameters of the worlds ``ids`` [K], [K, count] each, by the names of :attr:`parameters`.

        Raises:
            UnknownName, ValueError: a name, shape or value that is not legal, or a world that is named twice; then
                nothing is set.
        """
        ids = self._ids(ids)
        if len(ids.unique()) < len(ids):
            raise ValueError(f"each world is named once, got ids {ids.tolist()}")
        self.appearance.set(ids, params)

    def params(self) -> dict[str, Tensor]:
        """All visual parameters now, [N, count] each (copies)."""
        return {name: self.appearance.values[name].clone() if name in self.appearance.values
                else self.appearance.nominal(name) for name in self.parameters}

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that is not the caller's: the visual parameters that were set."""
        return self.appearance.state()

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned: the next pictures are the same to the bit."""
        self.appearance.set_state(state)

    def close(self) -> None:
        """Give back what the renderer holds outside Python's memory."""
        self._renderer.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def usable(device: torch.device | str) -> torch.device:
    """``cpu``, or a GPU that torch sees."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device={device!r}: cpu, cuda or cuda:<index>") from error
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r}: cpu, cuda or cuda:<index>")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found.type == "cuda" and (found.index or 0) >= count:
        raise ValueError(f"device={str(device)!r}: torch {torch.__version__} sees {count or 'no'} NVIDIA GPU here; use "
                         "device='cpu', or ask `temporeal doctor`")
    return found


def _home(model: mujoco.MjModel, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the model puts its mocap bodies."""
    bodies = np.argsort(model.body_mocapid)[model.nbody - model.nmocap :]
    pos, quat = (torch.tensor(x[bodies], dtype=torch.float32, device=device)
                 for x in (model.body_pos, model.body_quat))
    return pos, quat


def _load(renderer: str) -> tuple[str, Any]:
    """The name and class of a renderer that can be imported."""
    if renderer not in (*RENDERERS, "auto"):
        raise UnknownName(f"no renderer {renderer!r}; known: {', '.join(RENDERERS)}, auto")
    if renderer != "auto":
        module, name = RENDERERS[renderer]
        return renderer, getattr(importlib.import_module(module), name)
    try:
        chosen = _load("warp")
        _log_once(logging.INFO, "renderer auto: warp. It compiles for each new scene at the first picture (seconds to "
                                "a minute on a CPU), then finds it in its cache")
    except ModuleNotFoundError as error:
        chosen = _load("gl")
        _log_once(logging.WARNING, "renderer auto: gl, one world after the other, because %s", error)
    return chosen


def _log_once(level: int, message: str, *args: object) -> None:
    if message not in _logged:
        _logged.add(message)
        log.log(level, message, *args)


def measure(rig: Rig, qpos: Tensor, seconds: float = 1.0) -> dict[str, float]:
    """Milliseconds for one frame (one camera of one world), least of repeats over ``seconds``: CPU time and wall time.

    The first picture, which may compile, is not counted. On a GPU, wall time to the end of the work there.
    """
    images = rig.render(qpos)
    frames = len(qpos) * len(rig.cameras)
    cpu, wall, end = [], [], time.perf_counter() + seconds
    while time.perf_counter() < end or not wall:
        start = time.perf_counter(), time.process_time()
        images = rig.render(qpos)
        if rig.device.type == "cuda":
            torch.cuda.synchronize(rig.device)
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    del images
    return {"cpu_ms": 1e3 * min(cpu) / frames, "wall_ms": 1e3 * min(wall) / frames}
