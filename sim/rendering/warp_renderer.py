"""Batch RGB and depth by MuJoCo Warp's ray caster, on a CPU or an NVIDIA GPU.

All worlds are rendered by one kernel launch, from kinematics alone: body poses from ``qpos`` (no dynamics, contacts or
sensors), poses of cameras and lights, a refit of the bounding volumes, one ray per pixel. The kernel is specialized to
the scene (kinds of geoms, number of lights, head light, far plane): Warp compiles it at the first frame, for tens of
seconds on a CPU, and keeps it in its cache (``WARP_CACHE_PATH``).

No shadows, no reflections, every visible geom is opaque, sites and tendons are not drawn, and a cube texture is
sampled as if it were a flat one; there is no near plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.sim.rendering.cameras import Images
from temporeal.sim.rendering.projection import CameraPoses
from temporeal.sim.rendering.viewpoints import CAMERA_FIELDS, FACES, GROUPS, Views

try:
    import mujoco_warp as mjw
    import warp as wp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"renderer 'warp' needs {error.name}: pip install mujoco-warp (Python 3.11 or later)", name=error.name
    ) from error

from temporeal.sim.compiler import warp_graphs

TRANSPOSED = {"cam_mat0": (3, 3)}  # flat rows in MuJoCo, matrices here


class WarpRenderer:
    """Draws up to ``num_worlds`` worlds of ``model`` through ``views`` on ``device``.

    ``fields``: model fields (names of ``MjModel``) that will differ between worlds.
    """

    def __init__(
        self, model: mujoco.MjModel, views: Views, num_worlds: int, device: torch.device, fields: frozenset[str]
    ) -> None:
        self.views, self.num_worlds, self.device = views, num_worlds, device
        self.com = bool(views.needs_com)
        self.place = warp_graphs.place(device)
        sizes = dict.fromkeys(fields - CAMERA_FIELDS, num_worlds)
        with wp.ScopedDevice(self.place.device):
            self.model = mjw.put_model(model, batch_sizes=sizes)
            if "body_pos" in fields:  # the kinematics skip geoms that are fixed to the world: here these move, too
                self.model.body_weldid = wp.array(np.maximum(model.body_weldid, 1), dtype=int)
            self.data = mjw.make_data(model, nworld=num_worlds, nconmax=1, njmax=1)
            self._put_cameras(fields)
            self.context = mjw.create_render_context(
                model, num_worlds, cam_active=[], use_precomputed_rays=False, enabled_geom_groups=list(GROUPS),
                render_skybox=bool((model.tex_type == FACES).any()))
            self._put_frames()
        self._home = torch.tensor(model.qpos0, dtype=torch.float32, device=device)
        self._slots = {name: wp.to_torch(getattr(self.model, name)) for name in fields}
        self._state = {name: wp.to_torch(getattr(self.data, name)) for name in ("qpos", "mocap_pos", "mocap_quat")}

    def _put_cameras(self, fields: frozenset[str]) -> None:
        """The model on the device gets the cameras of ``views`` instead of its own."""
        worlds = self.num_worlds
        for name, value in self.views.fields.items():
            old = getattr(self.model, name)
            value = value.reshape(len(value), *TRANSPOSED.get(name, value.shape[1:]))
            if name in self.views.per_world:
                value = np.repeat(value[None], worlds if name in fields else 1, axis=0)
            setattr(self.model, name, _array(value, old.dtype, name in self.views.per_world))
        self.model.ncam = count = len(self.views.cameras)
        self.data.cam_xpos = _array(np.zeros((worlds, count, 3)), wp.vec3, True)
        self.data.cam_xmat = _array(np.zeros((worlds, count, 3, 3)), wp.mat33, True)

    def _put_frames(self) -> None:
        """Sizes and addresses of the pictures in the context's buffers: row after row of pixels, camera by camera."""
        rc, cameras = self.context, self.views.cameras
        pixels = np.array([c.width * c.height for c in cameras])
        rgb, depth = (np.array([kind in c.kinds for c in cameras]) for kind in ("rgb", "depth"))
        rc.nrender, rc.total_rays = len(cameras), int(pixels.sum())
        rc.cam_res = wp.array([(c.width, c.height) for c in cameras], dtype=wp.vec2i)
        rc.cam_id_map = wp.array(np.arange(len(cameras)), dtype=int)
        rc.render_rgb, rc.render_depth = wp.array(rgb, dtype=bool), wp.array(depth, dtype=bool)
        rc.render_seg = wp.zeros(len(cameras), dtype=bool)
        self._rgb_start, self._depth_start = (np.cumsum(pixels * on) - pixels * on for on in (rgb, depth))
        rc.rgb_adr, rc.depth_adr = (wp.array(x, dtype=int) for x in (self._rgb_start, self._depth_start))
        rc.seg_adr = wp.full(len(cameras), -1, dtype=int)
        rc.rgb_data = _array(np.zeros((self.num_worlds, int((pixels * rgb).sum()))), wp.uint32, True)
        rc.depth_data = _array(np.zeros((self.num_worlds, int((pixels * depth).sum()))), wp.float32, True)
        rc.has_orthographic_camera = bool(self.views.fields["cam_projection"].any())

    def render(self, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor, fields: Mapping[str, Tensor]) -> Images:
        """Pictures of K worlds; ``fields`` [K, ...] are model fields that differ from the model's.

        A world whose state is not finite is black and at the cameras' greatest depth.
        """
        k = len(qpos)
        state = torch.cat((qpos, mocap_pos.flatten(1), mocap_quat.flatten(1)), -1)
        good = torch.isfinite(state).all(-1)
        # what is not finite would spoil the bounding volumes of other worlds too
        qpos = torch.where(good[:, None], qpos, self._home)
        mocap_pos, mocap_quat = mocap_pos.nan_to_num(0, 0, 0), mocap_quat.nan_to_num(0, 0, 0)
        for name, value in fields.items():
            slots = self._slots[name]
            slots[:k].copy_(value.reshape(k, *slots.shape[1:]))
        for name, value in (("qpos", qpos), ("mocap_pos", mocap_pos), ("mocap_quat", mocap_quat)):
            self._state[name][:k].copy_(value)
        with self.place.scope():
            self.data.nworld = k  # launch for the first k slots only
            mjw.kinematics(self.model, self.data)
            if self.com:
                mjw.com_pos(self.model, self.data)
            mjw.camlight(self.model, self.data)
            mjw.refit_bvh(self.model, self.data, self.context)
            mjw.render(self.model, self.data, self.context)
            return dict(self._pictures(good))

    def poses(self, worlds: int) -> CameraPoses:
        """Of the cameras in the latest pictures, which were of so many worlds."""
        pos, mat, fovy = (wp.to_torch(value) for value in (self.data.cam_xpos, self.data.cam_xmat, self.model.cam_fovy))
        return CameraPoses(pos[:worlds], mat[:worlds], fovy[:worlds].expand(worlds, -1))

    def _pictures(self, good: Tensor) -> Iterator[tuple[str, Tensor]]:
        keep = wp.from_torch(good)
        for i, camera in enumerate(self.views.cameras):
            shape = (len(good), camera.height, camera.width)
            size = (len(good), camera.height * camera.width)
            if "rgb" in camera.kinds:
                rgb = torch.empty((*shape, 3), dtype=torch.uint8, device=self.device)
                out = wp.from_torch(rgb.view(*size, 3))
                wp.launch(_unpack, size, [self.context.rgb_data, int(self._rgb_start[i]), keep], [out])
                yield f"{camera.name}_rgb", rgb
            if "depth" in camera.kinds:
                depth = torch.empty(shape, dtype=torch.float32, device=self.device)
                out = wp.from_torch(depth.view(*size))
                start, far = int(self._depth_start[i]), self.views.far[camera.name]
                wp.launch(_measure, size, [self.context.depth_data, start, far, keep], [out])
                yield f"{camera.name}_depth", depth

    def close(self) -> None:
        """Nothing to give back by hand."""


@wp.kernel(enable_backward=False)
def _unpack(
    packed: wp.array2d[wp.uint32], start: int, good: wp.array[bool], out: wp.array3d[wp.uint8]
):  # fmt: skip
    """Words of alpha, red, green, blue (high byte first) to bytes of red, green, blue; black where not ``good``."""
    world, pixel = wp.tid()
    word = packed[world, start + pixel]
    if not good[world]:
        word = wp.uint32(0)
    for channel in range(3):
        out[world, pixel, channel] = wp.uint8((word >> wp.uint32(16 - 8 * channel)) & wp.uint32(255))


@wp.kernel(enable_backward=False)
def _measure(
    found: wp.array2d[float], start: int, far: float, good: wp.array[bool], out: wp.array2d[float]
):  # fmt: skip
    """Depths up to ``far``; the ray caster's 0, no hit, becomes ``far``."""
    world, pixel = wp.tid()
    depth = found[world, start + pixel]
    if depth == 0.0 or not good[world]:
        depth = far
    out[world, pixel] = wp.min(depth, far)


def _array(value: np.ndarray, dtype: type, batched: bool) -> wp.array:
    array = wp.array(value, dtype=dtype)
    if batched:
        array._is_batched = True  # what mujoco_warp marks its own arrays with
    return array
