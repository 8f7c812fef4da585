"""Episodes of the point in the plane, by a policy that goes part of the way with noise: what is learned of data alone.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from tests.policies.chunk_worlds import SIGNALS, STEPS, PointWorlds, interface
from torch import Tensor


class PointData:
    """A dataset of ``count`` episodes, each with its final state."""

    def __init__(self, count: int, seed: int = 0, most: float = 1.4) -> None:
        self.interface = interface()
        env, generator = PointWorlds(count, seed), torch.Generator().manual_seed(seed)
        env.reset()
        share = most * torch.rand(count, 1, generator=generator)  # how far each episode goes, of what is needed
        seen: dict[str, list[Tensor]] = {name: [] for name in SIGNALS}
        commands = []
        for k in range(STEPS):
            for name, value in env.true_signals().items():
                seen[name].append(value.clone())
            if k % 2 == 0:
                hold = share * (env.goal - env.pos) + 0.1 * torch.randn(count, 2, generator=generator)
            commands.append(hold.clamp(-1, 1))
            env.command_override = commands[-1]
            before = {name: value.clone() for name, value in env.true_signals().items()}
            step = env.step(commands[-1])
        final = {"pos": step.info["signals"]["pos"], "goal": before["goal"]}
        for name in SIGNALS:
            seen[name].append(final[name])
        commands.append(torch.zeros(count, 2))
        self.starts = np.arange(count + 1) * (STEPS + 1)
        has = torch.ones(count, STEPS + 1, dtype=torch.bool)
        has[:, -1] = False
        self.columns = {**{name: torch.stack(parts, 1).flatten(0, 1).numpy() for name, parts in seen.items()},
                        "action": torch.stack(commands, 1).flatten(0, 1).numpy(), "has_action": has.flatten().numpy()}
        self.records = [SimpleNamespace(success=bool(flag)) for flag in step.info["success"]]

    def column(self, name: str) -> np.ndarray:
        return self.columns[name]
