"""Option-aware temporally abstracted value learning, OTA (Ahn et al., NeurIPS 2025, arXiv 2505.12737).

In hierarchical implicit Q-learning the high policy errs on far goals, because the differences of a value at long
distance have wrong signs. OTA gives it a value of its own, learned on options: n environment steps count as one, so
that a goal is n times nearer. The low policy keeps the value of single steps.

B rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.goals import GoalMix, GoalSpace
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.offline import hiql
from temporeal.policies.offline.hiql import HIQL, GoalValue, HIQLConfig, implicit_value_loss
from temporeal.policies.training.errors import require
from temporeal.policies.training.offline import goal_batches, reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.goal_batches import GoalBatch
from temporeal.policies.training.offline_learner import Result


@dataclass(frozen=True)
class OTAConfig(HIQLConfig):
    """Settings.

    Args:
        abstraction: n, environment steps of an option.
        option_gamma: discount per option of the high policy's value.
        option_expectile: its optimism.
    """

    abstraction: int = 5
    option_gamma: float = 0.99
    option_expectile: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, abstraction="[1, inf)", option_gamma="[0, 1)", option_expectile="(0, 1)")


class OTA(HIQL):
    """One gradient step of both values and both policies."""

    figures = (*HIQL.figures, "far_loss", "far_value")

    def __init__(self, sizes: Mapping[str, int], config: OTAConfig, space: GoalSpace) -> None:
        super().__init__(sizes, config, space)
        self.options = config
        state = hiql.state_of(sizes["obs_dim"], space.goal)
        self.far, self.far_target = (GoalValue(sizes["obs_dim"], state, config) for _ in range(2))
        self.far_adam = Adam(self.far, rate=config.learning_rate)
        self.far_average = Average(self.far, self.far_target)
        self.modules |= {"far": self.far, "far_target": self.far_target}
        self.optimizers |= {"far": self.far_adam}

    def update(self, batch: GoalBatch) -> Tensor:
        """As hierarchical implicit Q-learning, and the value of options."""
        config = self.options
        loss, value, _ = implicit_value_loss(self.far, self.far_target, batch, config.option_gamma,
                                             config.option_expectile, config.abstraction)
        descend(loss, self.far_adam)
        self.far_average.move(config.target_rate)
        return torch.cat((super().update(batch), torch.stack((loss, value)).detach()))

    @property
    def value_of_goals(self) -> nn.Module:
        """The value of options judges sub-goals."""
        return self.far


def train(data: Transitions, config: OTAConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    goals = GoalMix(0.0, config.policy_future).draw
    return goal_batches.learn(data, config, OTA, out=out, seed=seed, policy_goals=goals, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, OTAConfig]:
    """The policies in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, OTAConfig, hiql.make_actor, device)
