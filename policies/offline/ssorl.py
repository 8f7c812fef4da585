"""Semi-supervised offline learning, SS-ORL (Zheng et al., ICML 2023, arXiv 2210.06518): episodes without actions.

An inverse model learns from the episodes that have actions which action leads from a state to the next, looking at a
few states before, too; it labels the others, and implicit Q-learning learns from all.

M steps, O observation, A action, K states of the past.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.offline import iql
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.reinforcement import bounded_actor
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class SSORLConfig(iql.IQLConfig):
    """Settings.

    Args:
        labelled: share of the episodes, the first ones, whose actions are used; the actions of the others are never
            read. The paper has 0.1.
        past: K, states before the present one that the inverse model sees (the paper has 1).
        inverse_updates: of the inverse model, before the policy is learned.
    """

    labelled: float = 0.1
    past: int = 1
    inverse_updates: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, labelled="(0, 1]", past="[0, inf)", inverse_updates="[1, inf)")


class Inverse(nn.Module):
    """Normalized states [B, (K + 2) O], the past, the present and the next one, to the action [B, A] in [-1, 1]."""

    def __init__(self, inputs: int, action_dim: int, config: SSORLConfig) -> None:
        super().__init__()
        self.net = mlp(inputs, config.hidden, action_dim, config.activation, 0.01)

    def forward(self, states: Tensor) -> Tensor:
        """Actions [B, A]."""
        return torch.tanh(self.net(states))


def windows(data: Transitions, past: int) -> Tensor:
    """What the inverse model sees of each step [M, (K + 2) O]: before an episode's start stands its first state."""
    steps = torch.arange(data.steps)
    first = data.starts[data.episode]
    before = [data.obs[torch.maximum(steps - k, first)] for k in range(past, -1, -1)]
    return torch.cat((*before, data.next_obs), 1)


def labelled(data: Transitions, config: SSORLConfig, seed: int) -> Transitions:
    """``data`` whose actions, but for those of the first episodes, are the inverse model's."""
    known = int(config.labelled * (len(data.starts) - 1) + 0.5)
    if known < 1:
        raise SettingsError(f"algo.labelled={config.labelled} of {len(data.starts) - 1} episodes is none")
    seen, steps = windows(data, config.past), int(data.starts[known])
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    normalizer = Normalizer(seen.shape[1])
    normalizer.update(moments(seen))
    seen = normalizer(seen)
    model = Inverse(seen.shape[1], data.action.shape[1], config)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    for _ in range(config.inverse_updates):
        rows = torch.randint(steps, (config.batch,), generator=generator)
        loss = (model(seen[rows]) - data.action[rows]).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        proxy = model(seen)
    return replace(data, action=torch.cat((data.action[:steps], proxy[steps:])))


def train(data: Transitions, config: SSORLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    return reinforcement.learn(labelled(data, config, seed), config, iql.IQL, out=out, seed=seed, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, SSORLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, SSORLConfig, bounded_actor, device)
