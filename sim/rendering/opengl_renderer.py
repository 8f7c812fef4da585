"""RGB and depth by MuJoCo's OpenGL renderer, world after world, without a window.

For machines where MuJoCo Warp cannot be installed, and as a second opinion on it. No shadows, no reflections, no
multisampling (as the batch renderer: one sample per pixel, at its centre), no sites, joints or tendons. It runs on the
GPU of the OpenGL driver or, with Mesa, on CPU threads; the pictures come back through main memory.

``MUJOCO_GL`` chooses the platform: ``egl`` (taken if unset) or ``osmesa`` on Linux.
"""

from __future__ import annotations

import copy
import logging
import os
import platform
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.sim.rendering.cameras import Camera, Images
from temporeal.sim.rendering.projection import CameraPoses
from temporeal.sim.rendering.viewpoints import CAMERA_FIELDS, GROUPS, Views

OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_HAZE,
       mujoco.mjtRndFlag.mjRND_FOG)  # fmt: skip
log = logging.getLogger(__name__)
PLATFORMS = ("egl", "osmesa")
INSTALL = ("on Debian or Ubuntu: apt install libegl1 (or the EGL of your GPU's driver); for software rendering "
           "without EGL: apt install libosmesa6 and set MUJOCO_GL=osmesa")


class MissingRenderer(RuntimeError):
    """A renderer cannot run here; the message says what to install."""


class GLRenderer:
    """Draws worlds of ``model`` through ``views``, pictures on ``device``, in one OpenGL context.

    The context is current only while it is worked in, so that any thread may render or close, one after the other; what
    was current before is so again afterwards.

    ``fields``: model fields (names of ``MjModel``) that will differ between worlds.
    """

    def __init__(
        self, model: mujoco.MjModel, views: Views, num_worlds: int, device: torch.device, fields: frozenset[str]
    ) -> None:
        self.views, self.device = views, device
        self.model = copy.copy(model)
        self._set_up()
        self.data = mujoco.MjData(self.model)
        self._lock = threading.RLock()
        self.context = _open_context(self.model.vis.global_.offwidth, self.model.vis.global_.offheight)
        with self._working():
            self.buffers = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
            self.buffers.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.buffers)
        self.scene = mujoco.MjvScene(self.model, maxgeom=model.ngeom + 16 * model.nlight + 100)
        for flag in OFF:
            self.scene.flags[flag] = 0
        self.options = _options()
        self._open = True

    @contextmanager
    def _working(self) -> Iterator[None]:
        """The context, current in this thread and in no other."""
        with self._lock, self.context.as_current():
            yield

    def _set_up(self) -> None:
        vis = self.model.vis
        vis.global_.offwidth = max(c.width for c in self.views.cameras)
        vis.global_.offheight = max(c.height for c in self.views.cameras)
        vis.quality.offsamples = 0
        for i, index in enumerate(self.views.ids):
            if index >= 0:  # a camera's own angle
                self.model.cam_fovy[index] = self.views.fields["cam_fovy"][i]
                self.model.cam_sensorsize[index] = self.views.fields["cam_sensorsize"][i]

    def render(self, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor, fields: Mapping[str, Tensor]) -> Images:
        """Pictures of K worlds; ``fields`` [K, ...] are model fields that differ from the model's.

        A world whose state is not finite is black and at the cameras' greatest depth.
        """
        k = len(qpos)
        out, count = self._empty(k), len(self.views.cameras)
        self._seen = [np.full((k, count, *shape), np.nan, dtype=np.float32) for shape in ((3,), (3, 3), ())]
        rows = {name: value.cpu().numpy() for name, value in fields.items()}
        states = [x.cpu().double().numpy() for x in (qpos, mocap_pos, mocap_quat)]
        with self._lock:
            if not self._open:
                raise ValueError("this rig is closed")
            with self._working():
                for world in range(k):
                    if all(np.isfinite(x[world]).all() for x in states):
                        self._pose(*(x[world] for x in states), {name: value[world] for name, value in rows.items()})
                        self._shoot(world, out)
        return {name: torch.from_numpy(image).to(self.device) for name, image in out.items()}

    def poses(self, worlds: int) -> CameraPoses:
        """Of the cameras in the latest pictures, which were of so many worlds."""
        return CameraPoses(*(torch.from_numpy(value).to(self.device) for value in self._seen))

    def _empty(self, k: int) -> dict[str, np.ndarray]:
        out: dict[str, np.ndarray] = {}
        for camera in self.views.cameras:
            shape = (k, camera.height, camera.width)
            if "rgb" in camera.kinds:
                out[f"{camera.name}_rgb"] = np.zeros((*shape, 3), dtype=np.uint8)
            if "depth" in camera.kinds:
                out[f"{camera.name}_depth"] = np.full(shape, self.views.far[camera.name], dtype=np.float32)
        return out

    def _pose(self, qpos: np.ndarray, pos: np.ndarray, quat: np.ndarray, row: Mapping[str, np.ndarray]) -> None:
        """Move bodies, cameras and lights of the one world that OpenGL draws next."""
        self.row = {**self.views.fields, **{n: v for n, v in row.items() if n in CAMERA_FIELDS}}
        for name, value in row.items():
            if name in CAMERA_FIELDS:
                for i, index in enumerate(self.views.ids):
                    if index >= 0:
                        getattr(self.model, name)[index] = value[i]
            else:
                getattr(self.model, name)[:] = value
            if name == "mat_texid":
                known = np.asarray(value, dtype=np.int32).ravel()
                self.buffers.mat_texid.ravel()[: known.size] = known
        self.data.qpos[:], self.data.mocap_pos[:], self.data.mocap_quat[:] = qpos, pos, quat
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def _shoot(self, world: int, out: Mapping[str, np.ndarray]) -> None:
        for i, camera in enumerate(self.views.cameras):
            self._look(i, camera)
            for seen, value in zip(self._seen, (*self._eye(), self.row["cam_fovy"][i])):
                seen[world, i] = value
            area = mujoco.MjrRect(0, 0, camera.width, camera.height)
            mujoco.mjr_render(area, self.scene, self.buffers)
            rgb, depth = (out.get(f"{camera.name}_{kind}") for kind in ("rgb", "depth"))
            image = None if rgb is None else np.empty(rgb.shape[1:], dtype=np.uint8)
            z = None if depth is None else np.empty(depth.shape[1:], dtype=np.float32)
            mujoco.mjr_readPixels(image, z, area, self.buffers)
            if rgb is not None:
                rgb[world] = image[::-1]  # OpenGL counts rows from below
            if depth is not None:
                depth[world] = np.minimum(_metres(z[::-1], self.scene.camera[0]), self.views.far[camera.name])

    def _look(self, i: int, camera: Camera) -> None:
        """Fill the scene as seen by camera ``i``."""
        view = mujoco.MjvCamera()
        if self.views.ids[i] >= 0:
            view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, self.views.ids[i]
        mujoco.mjv_updateScene(
            self.model, self.data, self.options, None, view, mujoco.mjtCatBit.mjCAT_ALL.value, self.scene)
        if self.views.ids[i] < 0:
            self._place(i)

    def _place(self, i: int) -> None:
        """The scene's eyes to a camera that the model does not have."""
        body = int(self.row["cam_bodyid"][i])
        pos, quat, mat = np.zeros(3), np.zeros(4), np.zeros(9)
        mujoco.mju_mulMatVec3(pos, self.data.xmat[body], np.asarray(self.row["cam_pos"][i], dtype=float))
        mujoco.mju_mulQuat(quat, self.data.xquat[body], np.asarray(self.row["cam_quat"][i], dtype=float))
        mujoco.mju_quat2Mat(mat, quat)
        x_axis, y_axis, z_axis = mat.reshape(3, 3).T
        near, far = (v * self.model.stat.extent for v in (self.model.vis.map.znear, self.model.vis.map.zfar))
        top = near * np.tan(np.radians(float(self.row["cam_fovy"][i])) / 2)
        for eye in self.scene.camera:
            eye.pos, eye.forward, eye.up = pos + self.data.xpos[body], -z_axis, y_axis
            eye.frustum_near, eye.frustum_far, eye.frustum_top, eye.frustum_bottom = near, far, top, -top
            eye.frustum_center, eye.frustum_width, eye.orthographic = 0.0, 0.0, 0
        for light in self.scene.lights[: self.scene.nlight]:
            if light.headlight:
                light.pos, light.dir = pos + self.data.xpos[body], -z_axis

    def _eye(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and axes (columns: right, up, backwards) of the camera as which the scene is seen."""
        left, right = self.scene.camera  # a headset's; of a picture the middle
        ahead, up = np.array(left.forward), np.array(left.up)
        return 0.5 * (np.array(left.pos) + np.array(right.pos)), np.stack((np.cross(ahead, up), up, -ahead), -1)

    def close(self) -> None:
        """Free the OpenGL context and what it holds. A driver's objections go to the log."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            try:
                with self._working():  # OpenGL frees what belongs to the current context, whosever it is
                    self.buffers.free()
                self.context.free()
            except Exception as error:  # PyOpenGL's errors have no common base; a close must not hide another error
                log.warning("an OpenGL context could not be given back: %s", error)

    def __del__(self) -> None:
        if getattr(self, "_open", False) and not sys.is_finalizing():
            self.close()


def _options() -> mujoco.MjvOption:
    options = mujoco.MjvOption()
    options.geomgroup[:] = [i in GROUPS for i in range(len(options.geomgroup))]
    for group in (options.sitegroup, options.tendongroup, options.jointgroup, options.actuatorgroup):
        group[:] = 0
    return options


def _metres(z: np.ndarray, eye: Any) -> np.ndarray:
    """Distance along the optical axis, m, of the depth buffer's ``z``: 1 at the near plane, 0 at the far plane."""
    near, far = float(eye.frustum_near), float(eye.frustum_far)
    z = z.astype(np.float64)
    if eye.orthographic:
        depth = far - z * (far - near)
    else:
        depth = near * far / (near + z * (far - near))
    return np.where(z <= 0, np.inf, depth).astype(np.float32)


def _open_context(width: int, height: int) -> Any:
    """An OpenGL context without a window.

    Raises:
        MissingRenderer: there is none on this machine; says what to install.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip() or "egl"
    try:
        if platform.system() != "Linux" or chosen not in PLATFORMS:
            context = mujoco.GLContext(width, height)
        elif chosen == "egl":
            from mujoco.egl import GLContext

            context = GLContext(width, height)
        else:
            from mujoco.osmesa import GLContext

            context = GLContext(width, height)
    except Exception as error:  # whatever the platform's binding raises: ImportError, AttributeError, RuntimeError, ...
        raise MissingRenderer(
            f"renderer 'gl' finds no OpenGL by {chosen} ({type(error).__name__}: {error}); {INSTALL}") from error
    return context
