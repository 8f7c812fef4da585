"""Pictures of a backend's worlds: a rig, fed with the simulator's positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Model
from temporeal.sim.physics.mujoco.resets import reset_rows
from temporeal.sim.rendering.cameras import Camera, Images
from temporeal.sim.rendering.rig import Rig
from temporeal.sim.rendering.viewpoints import VIEWPOINTS, Viewpoint, placed
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend

if TYPE_CHECKING:
    from temporeal.sim.rendering.augmentation import Augmentation


class Poses(NamedTuple):
    """What N worlds of a model look like now."""

    qpos: Tensor  # [N, nq]
    mocap_pos: Tensor | None = None  # [N, nmocap, 3] m; None: where the model puts them
    mocap_quat: Tensor | None = None  # [N, nmocap, 4] wxyz
    moved: Mapping[str, Tensor] | None = None  # [N, ...] fields of the model that the simulator changes, by name

    def of(self, ids: Tensor) -> Poses:
        """Those of the worlds ``ids`` [K]."""
        moved = None if self.moved is None else {name: value[ids] for name, value in self.moved.items()}
        return Poses(*(None if x is None else x[ids] for x in self[:3]), moved)


class Pictures:
    """RGB and depth of the worlds of ``backend``, whatever it simulates with: pictures are made of MuJoCo's model.

    Args:
        needs: visual parameters that will be set.
        augment: what is done to each picture (:func:`temporeal.sim.rendering.augmentation.parse_augment`), by its name;
        none if left out.
    """

    def __init__(
        self, backend: Backend, cameras: Sequence[Camera], *, renderer: str = "auto", needs: Sequence[str] = (),
        augment: Mapping[str, Any] | None = None,
    ) -> None:
        self.backend, self.own = backend, getattr(backend, "drawn", None)
        self.model = None if self.own else drawn(backend.scene)
        mj = self.own.model if self.own else self.model.mj
        views = self.own.viewpoints if self.own else viewpoints_of(backend.scene)
        self.rig = Rig(mj, backend.num_worlds, tuple(placed(mj, camera, views) for camera in cameras),
                       device=backend.device, renderer=renderer, needs=needs, moved=self.own.moved if self.own else ())
        self.augment = parsed(augment, tuple(self.rig.signals))

    def take(
        self, ids: Tensor | None = None, *, seed: int | None = None, episode: Tensor | None = None,
        step: Tensor | None = None,
    ) -> Images:
        """Pictures now of the worlds ``ids`` [K] (all if left out), as their cameras give them.

        Args:
            seed, episode, step: what an augmentation's draws are keyed by: the environment's seed, and int64 [N], for
                all worlds, the running episode and its control step. Not needed without an augmentation.
        """
        now = self.own.poses() if self.own else Poses(positions(self.backend, self.model))
        now = now if ids is None else now.of(ids)
        images = self.rig.render(now.qpos, now.mocap_pos, now.mocap_quat, ids, now.moved)
        if self.augment is None:
            return images
        if seed is None or episode is None or step is None:
            raise ValueError("an augmentation draws by seed, episode and step: give take() all three")
        worlds = torch.arange(self.rig.num_worlds, device=self.rig.device) if ids is None else ids
        return self.augment(images, seed, worlds, *(x if ids is None else x[ids] for x in (episode, step)))


def parsed(raw: Mapping[str, Any] | None, signals: tuple[str, ...]) -> Augmentation | None:
    """The augmentation that ``raw`` describes, None for none: OpenCV is needed only where there is one."""
    if not raw and (raw is None or isinstance(raw, Mapping)):
        return None
    from temporeal.sim.rendering.augmentation import parse_augment

    return parse_augment(raw, signals)


def viewpoints_of(scene: Scene) -> Mapping[str, Viewpoint]:
    """Where cameras may be placed by name in ``scene``."""
    return VIEWPOINTS.get(scene.robot.kind, {})


def drawn(scene: Scene) -> Model:
    """The scene's model, for positions and pictures."""
    model = mjcf.build(scene, None, 0.002)
    model.mj.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # of steps, which are not made here
    return model


def positions(backend: Any, model: Model) -> Tensor:
    """qpos [N, nq] in the layout of ``model``, float32: the backend's own, or put together from its signals."""
    if hasattr(backend, "views"):
        return backend.views()["qpos"].float()
    signals = backend.signals()
    if backend.robot.kind == "quadrotor":
        return torch.cat([signals["base_pos_w"], signals["base_quat_w"]], -1)
    known = {n: signals[n].detach().cpu().double().numpy() for n in model.writes if n in signals}
    qpos, _ = reset_rows(model, known, backend.num_worlds)
    return torch.from_numpy(qpos.astype(np.float32)).to(backend.device)
