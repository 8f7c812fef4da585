"""What the cameras of an environment see: a rig over its worlds, fed with the simulator's positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from sim.backends import mjcf
from sim.cameras import Camera, Images, Rig
from sim.scene import Scene
from sim.types import Backend


class Pictures:
    """RGB and depth of the worlds of ``backend``, whatever it simulates with: pictures are made of MuJoCo's model.

    Args:
        needs: visual parameters that will be set.
    """

    def __init__(
        self, backend: Backend, cameras: Sequence[Camera], *, renderer: str = "auto", needs: Sequence[str] = ()
    ) -> None:
        self.backend, self.model = backend, drawn(backend.scene)
        self.rig = Rig(self.model.mj, backend.num_worlds, cameras, device=backend.device, renderer=renderer,
                       needs=needs)

    def take(self, ids: Tensor | None = None) -> Images:
        """Pictures now of the worlds ``ids`` [K] (all if left out)."""
        qpos = positions(self.backend, self.model)
        return self.rig.render(qpos if ids is None else qpos[ids], ids=ids)


def drawn(scene: Scene) -> mjcf.Model:
    """The scene's model, for positions and pictures."""
    model = mjcf.build(scene, None, 0.002)
    model.mj.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # of steps, which are not made here
    return model


def positions(backend: Any, model: mjcf.Model) -> Tensor:
    """qpos [N, nq] in the layout of ``model``, float32: the backend's own, or put together from its signals."""
    if hasattr(backend, "views"):
        return backend.views()["qpos"].float()
    signals = backend.signals()
    if backend.robot.kind == "quadrotor":
        return torch.cat([signals["base_pos_w"], signals["base_quat_w"]], -1)
    known = {n: signals[n].detach().cpu().double().numpy() for n in model.writes if n in signals}
    qpos, _ = mjcf.reset_rows(model, known, backend.num_worlds)
    return torch.from_numpy(qpos.astype(np.float32)).to(backend.device)
