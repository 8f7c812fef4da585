"""Pictures of a backend's worlds: a rig, fed with the simulator's positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Model
from temporeal.sim.physics.mujoco.resets import reset_rows
from temporeal.sim.rendering.cameras import Camera, Images
from temporeal.sim.rendering.rig import Rig
from temporeal.sim.rendering.several_models import Rigs
from temporeal.sim.rendering.viewpoints import VIEWPOINTS, placed
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend

if TYPE_CHECKING:
    from temporeal.sim.rendering.augmentation import Augmentation


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
        self.backend = backend
        how = {"device": backend.device, "renderer": renderer, "needs": needs}
        self.rig: Rig | Rigs
        if (scenery := getattr(backend, "scenery", None)) is not None:
            self.rig = Rigs(scenery, backend.num_worlds, cameras, **how)
        else:
            scene = backend.scene
            self.model, views = drawn(scene), {**VIEWPOINTS.get(scene.robot.kind, {}), **scene.views}
            at = tuple(placed(self.model.mj, camera, views) for camera in cameras)
            self.rig = Rig(self.model.mj, backend.num_worlds, at, **how)
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
        if isinstance(self.rig, Rigs):
            images = self.rig.now(ids)
        else:
            qpos = positions(self.backend, self.model)
            images = self.rig.render(qpos if ids is None else qpos[ids], ids=ids)
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
