"""Backends whose robot is commanded by the velocity of its tool: what a Cartesian servo makes of it goes to the joints.

The servo is :mod:`temporeal.robots.motion.cartesian_servo`, at its own period within a control step; the joints get
where it ends, once for each control step, as they do from tasks that command places.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.motion.cartesian_servo import PERIOD, servo_of
from temporeal.sim.types import Backend, Signals

KEPT = "servo.joints"  # in a state: [N, J] rad, where the servo has sent the joints


def commanded(backend: Backend) -> Backend:
    """``backend``, or, where its command is a velocity of the tool, it behind a servo."""
    return ServoBackend(backend) if backend.robot.drives.get(backend.command) == "tool" else backend  # type: ignore[return-value]


class ServoBackend:
    """A backend that takes twists [N, 6]; everything else is that of the one behind
    (:class:`temporeal.sim.types.Backend`)."""

    def __init__(self, inner: Backend) -> None:
        if inner.device.type != "cpu":
            raise ValueError(f"command {inner.command!r} goes through a servo, which runs on the CPU: take device=cpu")
        self.inner, self.servo = inner, servo_of(inner.robot)
        self.joints = inner.signals()["joint_pos"].double().cpu().numpy().copy()
        self._before = self.joints.copy()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def reset(self, ids: Tensor, state: Signals) -> None:
        """See :class:`temporeal.sim.types.Backend`."""
        self.inner.reset(ids, state)
        rows = torch.as_tensor(ids).cpu()
        self.joints[rows.numpy()] = self.inner.signals()["joint_pos"][rows].double().numpy()

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance by ``substeps * dt`` under the twists ``ctrl`` [N, 6]; one that is not finite spoils its world."""
        span = self.inner.dt * substeps
        rounds, twist = max(ceil(span / PERIOD - 1e-9), 1), ctrl.double().cpu().numpy()
        self._before = self.joints.copy()
        sound = np.isfinite(twist).all(axis=1)
        for _ in range(rounds):
            self.joints[sound] = self.servo.step(self.joints[sound], twist[sound], span / rounds)
        sent = torch.from_numpy(self.joints).float()
        self.inner.step(torch.where(torch.from_numpy(sound)[:, None], sent, torch.full_like(sent, torch.nan)), substeps)

    def state(self) -> dict[str, Tensor]:
        """See :class:`temporeal.sim.types.Backend`."""
        return {**self.inner.state(), KEPT: torch.from_numpy(self.joints.copy())}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """See :class:`temporeal.sim.types.Backend`."""
        if KEPT not in state:
            raise ValueError(f"set_state: {KEPT} is missing: the state is of a backend without a servo")
        self.inner.set_state({name: value for name, value in state.items() if name != KEPT})
        self.joints[:] = state[KEPT].cpu().numpy()

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """See :class:`temporeal.sim.types.Backend`."""
        joints = self._before if before else self.joints
        found = self.inner.extract(world, before=before)
        return {**found, KEPT: torch.from_numpy(joints[world : world + 1].copy())}
