"""Rigs over worlds that are of one MuJoCo model or of several, such as those of another library's environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.rendering.cameras import Camera, Images
from temporeal.sim.rendering.projection import CameraPoses
from temporeal.sim.rendering.rig import Rig
from temporeal.sim.rendering.viewpoints import placed
from temporeal.sim.scene import View


class Poses(NamedTuple):
    """What K worlds of a model look like now."""

    qpos: Tensor  # [K, nq]
    mocap_pos: Tensor | None = None  # [K, nmocap, 3] m; None: where the model puts them
    mocap_quat: Tensor | None = None  # [K, nmocap, 4] wxyz
    moved: Mapping[str, Tensor] | None = None  # [K, ...] fields of the model that the simulator changes, by name


class Drawn(Protocol):
    """What can be drawn of the worlds of one model.

    Attributes:
        model: MuJoCo's.
        moved: its fields that differ between worlds.
        viewpoints: where cameras may be placed by name.
    """

    model: Any
    moved: tuple[str, ...]
    viewpoints: Mapping[str, View]

    def poses(self, ids: Tensor) -> Poses:
        """Of the worlds ``ids`` [K]."""


class Scenery(Protocol):
    """What can be drawn of N worlds.

    Attributes:
        parts: one for each model.
    """

    parts: Sequence[Drawn]

    def which(self) -> Tensor:
        """The part that each world is of now: int64 [N]."""


class Rigs:
    """A rig for each part of ``scenery``, whose cameras are of the same names and sizes; as :class:`Rig`."""

    def __init__(self, scenery: Scenery, num_worlds: int, cameras: Sequence[Camera], **how: Any) -> None:
        self.scenery, self.num_worlds = scenery, num_worlds
        self.rigs = [Rig(part.model, num_worlds, tuple(placed(part.model, camera, part.viewpoints)
                                                       for camera in cameras), moved=part.moved, **how)
                     for part in scenery.parts]
        self.first = self.rigs[0]
        self.cameras, self.signals, self.device = self.first.cameras, self.first.signals, self.first.device

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The visual parameters that can be set: those of one model; worlds of several have none."""
        return self.first.parameters if len(self.rigs) == 1 else {}

    def now(self, ids: Tensor | None) -> Images:
        """Pictures now of the worlds ``ids`` [K] (all if left out)."""
        ids = torch.arange(self.num_worlds, device=self.device) if ids is None else ids
        which, out = self.scenery.which()[ids], dict[str, Tensor]()
        for number, (part, rig) in enumerate(zip(self.scenery.parts, self.rigs)):
            rows = (which == number).nonzero()[:, 0]
            if not len(rows):
                continue
            poses = part.poses(ids[rows])
            for name, value in rig.render(*poses[:3], ids[rows], poses.moved).items():
                if name not in out:
                    out[name] = value.new_empty(len(ids), *value.shape[1:])
                out[name][rows] = value
        return out

    def poses(self) -> CameraPoses:
        """Where the cameras were in each world's latest pictures (:meth:`Rig.poses`)."""
        found = [torch.stack(values) for values in zip(*(rig.poses() for rig in self.rigs))]
        which, worlds = self.scenery.which(), torch.arange(self.num_worlds, device=self.device)
        return CameraPoses(*(values[which, worlds] for values in found))

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set visual parameters (:meth:`Rig.set_params`)."""
        self.first.set_params(ids, params)

    def state(self) -> dict[str, Tensor]:
        """The visual parameters that were set."""
        return self.first.state()

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        self.first.set_state(state)

    def close(self) -> None:
        """Give back what the renderers hold."""
        for rig in self.rigs:
            rig.close()
