"""Cameras that look at worlds of one MuJoCo model: the model's own and cameras placed on its bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
from torch import Tensor

from temporeal.robots.registry import UnknownName

Images = dict[str, Tensor]
"""``<camera>_rgb`` uint8 [K, H, W, 3] and ``<camera>_depth`` float32 [K, H, W], m."""

KINDS = ("rgb", "depth")
GROUPS = (0, 1, 2)  # groups of geoms that are seen: MuJoCo's default; 3 and up are for collisions
FACES = mujoco.mjtTexture.mjTEXTURE_SKYBOX
FIXED, TRACK, TRACKCOM, TARGET, TARGETCOM = (int(m) for m in (
    mujoco.mjtCamLight.mjCAMLIGHT_FIXED, mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
    mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODY, mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODYCOM))  # fmt: skip

CAMERA_FIELDS = frozenset((
    "cam_mode", "cam_bodyid", "cam_targetbodyid", "cam_pos", "cam_quat", "cam_poscom0", "cam_pos0", "cam_mat0",
    "cam_projection", "cam_fovy", "cam_sensorsize", "cam_intrinsic"))  # fmt: skip


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


@dataclass(frozen=True)
class Views:
    """The cameras, and what a renderer knows of each, in the fields that ``MjModel`` has for its own cameras."""

    cameras: tuple[Camera, ...]
    ids: tuple[int, ...]
    """Index in the model, -1 for a placed camera."""
    fields: Mapping[str, np.ndarray]
    """Name in MjModel -> [number of cameras, ...]."""
    far: Mapping[str, float]
    """Camera -> the greatest depth it gives, m."""

    per_world = frozenset(("cam_pos", "cam_quat", "cam_poscom0", "cam_pos0", "cam_mat0", "cam_fovy", "cam_intrinsic"))

    @cached_property
    def needs_com(self) -> bool:
        """Whether a pose depends on a centre of mass."""
        return bool(np.isin(self.fields["cam_mode"], (TRACKCOM, TARGETCOM)).any())


def find_views(model: mujoco.MjModel, cameras: tuple[Camera, ...]) -> Views:
    """The cameras' places in ``model``.

    Raises:
        UnknownName: the model has no such camera or body.
        ValueError: no camera, two of one name, or a placed one with the name of one of the model's.
    """
    if not cameras:
        raise ValueError(f"a rig needs a camera; the model has: {', '.join(_names(model, 'camera')) or 'none'}")
    if len({c.name for c in cameras}) < len(cameras):
        raise ValueError(f"cameras share a name: {', '.join(c.name for c in cameras)}")
    rows = [_row(model, camera) for camera in cameras]
    table = {name: np.stack([np.asarray(row[name]) for _, row in rows]) for name in sorted(CAMERA_FIELDS)}
    plane = float(model.vis.map.zfar * model.stat.extent)
    far = {c.name: min(plane, c.max_depth or plane) for c in cameras}
    return Views(cameras, tuple(i for i, _ in rows), table, far)


def _row(model: mujoco.MjModel, camera: Camera) -> tuple[int, dict[str, Any]]:
    known = _names(model, "camera")
    if camera.pos is not None:
        if camera.name in known:
            raise ValueError(f"camera {camera.name!r} is the model's own: leave pos out, or choose another name")
        return -1, _placed(model, camera)
    if camera.name not in known:
        raise UnknownName(f"the model has no camera {camera.name!r}; known: {', '.join(known) or 'none'}; "
                          f"or place one with body, pos and quat")
    index = known.index(camera.name)
    row = {name: getattr(model, name)[index].copy() for name in CAMERA_FIELDS}
    if camera.fovy_deg is not None:
        if row["cam_projection"] != int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE):
            raise ValueError(f"camera {camera.name!r} is orthographic: it has no angle, leave fovy_deg out")
        row |= {"cam_fovy": camera.fovy_deg, "cam_sensorsize": np.zeros(2)}
    return index, row


def _placed(model: mujoco.MjModel, camera: Camera) -> dict[str, Any]:
    bodies = _names(model, "body")
    if camera.body not in bodies:
        raise UnknownName(f"camera {camera.name!r}: the model has no body {camera.body!r}; known: {', '.join(bodies)}")
    zeros = np.zeros(3)
    return {
        "cam_mode": FIXED, "cam_bodyid": bodies.index(camera.body), "cam_targetbodyid": -1, "cam_pos": camera.pos,
        "cam_quat": np.asarray(camera.quat) / np.linalg.norm(camera.quat), "cam_poscom0": zeros, "cam_pos0": zeros,
        "cam_mat0": np.eye(3).ravel(), "cam_projection": int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE),
        "cam_fovy": camera.fovy_deg or 45.0, "cam_sensorsize": np.zeros(2), "cam_intrinsic": np.zeros(4),
    }  # fmt: skip


def _names(model: mujoco.MjModel, kind: str) -> list[str]:
    """Names of the model's elements of one kind by index; ``""`` for one without."""
    count = {"camera": model.ncam, "body": model.nbody, "light": model.nlight, "geom": model.ngeom,
             "material": model.nmat, "texture": model.ntex}[kind]
    return [getattr(model, kind if kind != "texture" else "tex")(i).name for i in range(count)]


names_of = _names
