"""Parameters of single worlds in MuJoCo Warp, by way of the same model on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import warp as wp
from mujoco.batch import Batch
from torch import Tensor

from temporeal.sim.physics.mujoco.parameters import SET_CONST, WRENCH, write_params
from temporeal.sim.physics.warp.simulation import Simulation

DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0")
"""What MuJoCo derives from masses, inertias and armatures, and Warp keeps per world."""


class WorldParameters:
    """Values [N, count] of all parameters, in float64 on the host, and the model fields that follow from them.

    A batch of MuJoCo's own on the host derives the constants; what changed is copied to the device.
    """

    def __init__(self, simulation: Simulation, threads: int) -> None:
        self.simulation, self.model = simulation, simulation.model
        self._mirror = Batch(self.model.mj, simulation.num_worlds, nthread=threads)
        self._fields: dict[str, Tensor] = {}
        self.values = {name: np.tile(p.nominal, (simulation.num_worlds, 1))
                       for name, p in self.model.parameters.items()}
        self._tensors: dict[str, Tensor] = {}

    def copies(self) -> dict[str, Tensor]:
        """Copies of all values on the device, float32 [N, count], [N] where the count is 1."""
        for name, value in self.values.items():
            if name not in self._tensors:
                self._tensors[name] = self.simulation.tensor(value[:, 0] if value.shape[1] == 1 else value)
        return {name: value.clone() for name, value in self._tensors.items()}

    def set(self, worlds: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Set checked ``values`` [K, count] of the ``worlds`` [K]."""
        for name, value in values.items():
            self.values[name][worlds] = value
        self._write(worlds, values)

    def _write(self, worlds: np.ndarray, names: Iterable[str]) -> None:
        """Model fields of the worlds from their parameters ``names``, by way of the model on the host."""
        names = set(names)
        for name in names:
            self._tensors.pop(name, None)
        if not len(worlds) or not names:
            return
        worlds = np.sort(worlds)  # MuJoCo needs them sorted
        values = {name: value[worlds] for name, value in self.values.items()}
        written = write_params(self.model, self._mirror.expand, worlds, values, names)
        if written & SET_CONST:
            self._mirror.set_const(worlds)
            written |= {name for name in DERIVED if self._mirror.expanded(name) is not None}
        chosen = torch.from_numpy(worlds).to(self.simulation.device)
        for name in sorted(written):
            rows = self.simulation.tensor(np.asarray(self._mirror.expanded(name))[worlds])
            self._upload(name, chosen, rows)
        if any(name.endswith(tuple(WRENCH)) for name in names):
            self.apply_wrench(worlds)

    def _upload(self, name: str, chosen: Tensor, rows: Tensor) -> None:
        field = self._field(name)
        if field is not None:
            rows = self.simulation.shortened(rows) if name == "actuator_delay" else rows
            field[chosen] = rows.reshape(-1, *field.shape[1:])

    def _field(self, name: str) -> Tensor | None:
        """The model field ``name`` [N, ...]; what all worlds share is first repeated for each."""
        if name not in self._fields:
            holder, _, attribute = name.rpartition(".")
            owner = self.simulation.m.opt if holder == "opt" else self.simulation.m
            shared = getattr(owner, attribute, None)
            if not getattr(shared, "_is_batched", False):
                raise ValueError(f"backend mujoco_warp cannot set {name!r} per world: mujoco_warp has it for all alike")
            if not shared.size:
                return None
            self._fields[name] = own = wp.to_torch(shared)[:1].repeat(
                self.simulation.num_worlds, *[1] * (wp.to_torch(shared).dim() - 1))
            array: Any = wp.from_torch(own, dtype=shared.dtype)
            array._is_batched = True  # what mujoco_warp marks its own arrays with
            self.simulation.graphs.drop()
            setattr(owner, attribute, array)
        return self._fields[name]

    def apply_wrench(self, worlds: np.ndarray) -> None:
        chosen = torch.from_numpy(worlds).to(self.simulation.device)
        for root, wrench in self.wrenches(worlds):
            self.simulation.state["xfrc_applied"][chosen, root] = self.simulation.tensor(wrench)

    def wrenches(self, worlds: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Bodies on which forces and torques act, and these [K, 6]."""
        for g in self.model.groups:
            if g.root is not None:
                yield g.root, np.concatenate([self.values[g.prefix + n][worlds] for n in ("force_w", "torque_w")], 1)
