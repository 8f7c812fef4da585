"""Where the cameras of a rig are in one MuJoCo model: its own cameras, and cameras placed on its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.scene import View

GROUPS = (0, 1, 2)  # groups of geoms that are seen: MuJoCo's default; 3 and up are for collisions
FACES = mujoco.mjtTexture.mjTEXTURE_SKYBOX
FIXED, TRACK, TRACKCOM, TARGET, TARGETCOM = (int(m) for m in (
    mujoco.mjtCamLight.mjCAMLIGHT_FIXED, mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
    mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODY, mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODYCOM))  # fmt: skip
CAMERA_FIELDS = frozenset((
    "cam_mode", "cam_bodyid", "cam_targetbodyid", "cam_pos", "cam_quat", "cam_poscom0", "cam_pos0", "cam_mat0",
    "cam_projection", "cam_fovy", "cam_sensorsize", "cam_intrinsic"))  # fmt: skip


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


def placed(model: mujoco.MjModel, camera: Camera, views: Mapping[str, View]) -> Camera:
    """``camera`` at the view of its name; as it is where it has a place, or the model a camera of that name."""
    if camera.pos is not None or camera.name in names_of(model, "camera") or camera.name not in views:
        return camera
    view = views[camera.name]
    if view.frame in names_of(model, "site"):
        view = on_body(model.site(view.frame), view, names_of(model, "body"))
    return replace(camera, body=view.frame, pos=view.pos, quat=view.quat, fovy_deg=camera.fovy_deg or view.fovy_deg)


def on_body(site: Any, view: View, bodies: Sequence[str]) -> View:
    """``view`` of a ``site``, in the frame of the site's body."""
    pos, quat = np.zeros(3), np.zeros(4)
    mujoco.mju_mulPose(pos, quat, site.pos, site.quat, np.asarray(view.pos), np.asarray(view.quat))
    (x, y, z), (w, i, j, k) = pos.tolist(), quat.tolist()
    return View((x, y, z), (w, i, j, k), view.fovy_deg, bodies[int(site.bodyid[0])])


def looking(
    pos: Sequence[float] | np.ndarray, target: Sequence[float] | np.ndarray
) -> tuple[float, float, float, float]:
    """Attitude (wxyz, camera to world) of an upright camera at ``pos`` that looks at ``target``."""
    back = np.subtract(pos, target) / np.linalg.norm(np.subtract(pos, target))
    right = np.cross((0.0, 0.0, 1.0), back)
    if np.linalg.norm(right) < 1e-6:  # straight down or up: north is x
        right = np.array([0.0, -1.0, 0.0])
    right = right / np.linalg.norm(right)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.stack([right, np.cross(back, right), back], -1).ravel())
    w, x, y, z = quat.tolist()
    return w, x, y, z


def upright(
    pos: tuple[float, float, float], target: tuple[float, float, float], fovy_deg: float = 45.0
) -> View:
    """A view from ``pos`` that looks at ``target``, m in the world."""
    return View(pos, looking(pos, target), fovy_deg)


VIEWPOINTS: Mapping[str, Mapping[str, View]] = {"arm": {
    "front": upright((1.3, 0.0, 0.8), (0.45, 0.0, 0.25)), "side": upright((0.45, -1.1, 0.7), (0.45, 0.0, 0.25))}}
"""By kind of robot. Of arms that reach about 0.85 m, whatever the reach of this one is."""


def find_views(model: mujoco.MjModel, cameras: tuple[Camera, ...]) -> Views:
    """The cameras' places in ``model``.

    Raises:
        UnknownName: the model has no such camera or body.
        ValueError: no camera, two of one name, or a placed one with the name of one of the model's.
    """
    if not cameras:
        raise ValueError(f"a rig needs a camera; the model has: {', '.join(names_of(model, 'camera')) or 'none'}")
    if len({c.name for c in cameras}) < len(cameras):
        raise ValueError(f"cameras share a name: {', '.join(c.name for c in cameras)}")
    rows = [_row(model, camera) for camera in cameras]
    table = {name: np.stack([np.asarray(row[name]) for _, row in rows]) for name in sorted(CAMERA_FIELDS)}
    plane = float(model.vis.map.zfar * model.stat.extent)
    far = {c.name: min(plane, c.max_depth or plane) for c in cameras}
    return Views(cameras, tuple(i for i, _ in rows), table, far)


def _row(model: mujoco.MjModel, camera: Camera) -> tuple[int, dict[str, Any]]:
    known = names_of(model, "camera")
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
    bodies = names_of(model, "body")
    if camera.body not in bodies:
        raise UnknownName(f"camera {camera.name!r}: the model has no body {camera.body!r}; known: {', '.join(bodies)}")
    zeros = np.zeros(3)
    return {
        "cam_mode": FIXED, "cam_bodyid": bodies.index(camera.body), "cam_targetbodyid": -1, "cam_pos": camera.pos,
        "cam_quat": np.asarray(camera.quat) / np.linalg.norm(camera.quat), "cam_poscom0": zeros, "cam_pos0": zeros,
        "cam_mat0": np.eye(3).ravel(), "cam_projection": int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE),
        "cam_fovy": camera.fovy_deg or 45.0, "cam_sensorsize": np.zeros(2), "cam_intrinsic": np.zeros(4),
    }  # fmt: skip


def names_of(model: mujoco.MjModel, kind: str) -> list[str]:
    """Names of the model's elements of one kind by index; ``""`` for one without."""
    count = {"camera": model.ncam, "body": model.nbody, "light": model.nlight, "geom": model.ngeom,
             "material": model.nmat, "texture": model.ntex, "site": model.nsite}[kind]
    return [getattr(model, kind if kind != "texture" else "tex")(i).name for i in range(count)]
