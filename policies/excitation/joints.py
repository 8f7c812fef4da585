"""The policy that excites joints: setpoints from a table, which begin where the joints are when it starts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.sim.identification.excitation.joints import COMMAND, GO, PLACE, START, JointPlan
from temporeal.sim.identification.excitation.waves import smooth

SIGNALS = (PLACE,)


class ExcitedJoints(nn.Module):
    """Signals [N, J] and memory to setpoints [N, J], and the memory after a control step.

    Memory: ``tick`` control steps since the start, ``origin`` [J] where the joints were then.
    """

    def __init__(self, plan: JointPlan) -> None:
        super().__init__()
        spec, self.steps = plan.robot.command(COMMAND), plan.steps
        settle = smooth(np.arange(plan.steps) / (GO * plan.settings.settle_s * plan.rate_hz))
        table = np.concatenate([plan.place, 1.0 - settle[:, None]], 1)
        for name, value in (("table", table), ("home", plan.home), ("low", spec.low), ("high", spec.high)):
            self.register_buffer(name, torch.tensor(np.asarray(value), dtype=torch.float32))
        self.table: Tensor
        self.home: Tensor
        self.low: Tensor
        self.high: Tensor

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """Of ``n`` robots at the start."""
        return {"tick": torch.zeros(n), "origin": torch.zeros(n, len(self.home))}

    def forward(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Commands and the next memory."""
        tick = memory["tick"]
        row = self.table[tick.clamp(max=self.steps - 1.0).round().long()]
        origin = torch.where(tick[:, None] < 0.5, signals[PLACE], memory["origin"])
        target = row[:, :-1] + row[:, -1:] * (origin - self.home)
        return {COMMAND: torch.minimum(torch.maximum(target, self.low), self.high)}, {"tick": tick + 1.0,
                                                                                      "origin": origin}


def start_of(plan: JointPlan, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """States [n, J] near home, as a simulated robot's start; every fourth is in a corner of what the formula allows."""
    off = START * (2 * torch.rand(n, len(plan.home), generator=generator) - 1)
    off[3::4] = 0.99 * START * off[3::4].sign()
    spec = plan.robot.command(COMMAND)
    place = torch.tensor(plan.home).float() + off
    return {PLACE: torch.minimum(torch.maximum(place, torch.tensor(spec.low)), torch.tensor(spec.high))}
