"""Batches of steps with goals from the data, and what learners of goals share. M steps, N samples, B rows, G goal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.goals import GoalMix, GoalSpace, goal_space, samples_of
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline.trajectory_weights import weighted
from temporeal.policies.training.offline.transition_batches import chances
from temporeal.policies.training.offline_learner import Algorithm, Result


@dataclass(frozen=True)
class GoalConfig(OfflineRLConfig):
    """Settings of all learners that are asked for goals.

    Args:
        goal: names of the numbers of the observation that ask for a goal, or their indices.
        achieved: names of the same quantities as they are, one for each.
        relative: the observation holds goal minus achieved.
        current, future: shares of value goals that are the state itself, and from later in its episode; the rest comes
            from the whole data (OGBench: 0.2, 0.5).
    """

    goal: tuple[str | int, ...] = ()
    achieved: tuple[str | int, ...] = ()
    relative: bool = False
    current: float = 0.2
    future: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0.0 <= self.current and 0.0 <= self.future and self.current + self.future <= 1.0):
            raise SettingsError(f"algo.current and algo.future are shares, got {self.current} and {self.future}")


@dataclass
class GoalBatch:
    """B steps, the sample [B] each begins in, and goals as samples [B].

    Args:
        now: the sample of the step; ``now + 1`` is what it led to.
        end: the last sample of its episode.
        value_goal, policy_goal: samples whose state is the goal.
    """

    source: GoalBatches = field(repr=False)
    now: Tensor
    end: Tensor
    action: Tensor
    value_goal: Tensor
    policy_goal: Tensor

    def view(self, sample: Tensor, goal: Tensor) -> Tensor:
        """Normalized observation [B, O] in samples [B] that asks for the state of samples ``goal`` [B]."""
        return self.source.view(sample, goal)

    def ahead(self, steps: int, goal: Tensor | None = None) -> Tensor:
        """Samples [B] so many steps later in the episode, and no later than ``goal`` if that lies ahead in it."""
        last = self.end if goal is None else torch.where((goal >= self.now) & (goal <= self.end), goal, self.end)
        return torch.minimum(self.now + steps, last)

    def arrived(self, goal: Tensor, steps: int = 1) -> Tensor:
        """Whether [B] the goal is one of the next ``steps`` samples' states."""
        return (goal > self.now) & (goal <= self.ahead(steps))


class GoalBatches:
    """Batches of ``data`` with goals of its own."""

    def __init__(self, data: Transitions, config: GoalConfig, policy_goals: Relabel | None = None) -> None:
        self.space = space_of(data, config)
        self.batch, self.samples, self.action = config.batch, samples_of(data), data.action
        self.values = GoalMix(config.current, config.future, 1.0 / (1.0 - config.gamma))
        self.policy_goals = policy_goals or GoalMix(0.0, 1.0).draw
        self.chance = None if data.weight is None else chances(data)
        self.normalizer = Normalizer(data.obs.shape[1])
        self._reached = self.space.reached(self.samples.obs)
        if config.normalize_observations:
            self.normalizer.update(moments(self._with_goals()))
        self.sizes = {"obs_dim": data.obs.shape[1], "action_dim": data.action.shape[1],
                      "goal_dim": len(self.space.goal)}

    def _with_goals(self) -> Tensor:
        """Every state with a goal of the data, so that goals are normalized as they will be asked for."""
        order = torch.randperm(len(self.samples.obs), generator=torch.Generator().manual_seed(0))
        return self.space.towards(self.samples.obs, self._reached[order])

    def view(self, sample: Tensor, goal: Tensor) -> Tensor:
        """See :meth:`GoalBatch.view`."""
        return self.normalizer(self.space.towards(self.samples.obs[sample], self._reached[goal]))

    def fingerprint(self) -> str:
        """SHA-256 of all samples and actions."""
        return hashlib.sha256(self.samples.obs.numpy().tobytes() + self.action.numpy().tobytes()).hexdigest()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[GoalBatch]:
        """``count`` batches."""
        for _ in range(count):
            steps = self._steps(generator)
            yield GoalBatch(
                self, self.samples.of_step[steps], self.samples.end[steps], self.action[steps],
                self.values.draw(self.samples, steps, generator),
                self.policy_goals(self.samples, steps, generator))

    def _steps(self, generator: torch.Generator) -> Tensor:
        if self.chance is None:
            return torch.randint(len(self.action), (self.batch,), generator=generator)
        drawn = torch.rand(self.batch, generator=generator, dtype=torch.float64) * self.chance[-1]
        return torch.searchsorted(self.chance, drawn, right=True).clamp(max=len(self.action) - 1)


def space_of(data: Transitions, config: GoalConfig) -> GoalSpace:
    """The goals that the settings name; a :class:`SettingsError` if the data have no such numbers."""
    try:
        return goal_space(data, config.goal, config.achieved, config.relative)
    except DataError as error:
        raise SettingsError(str(error)) from error


Relabel = Callable[[Any, Tensor, torch.Generator], Tensor]
"""``relabel(samples, steps [B], generator)``: samples [B] that are the policy's goals."""


def learn(
    data: Transitions, config: Any, build: Callable[[Mapping[str, int], Any, GoalSpace], Algorithm], *, out: Path,
    seed: int = 0, policy_goals: Relabel | None = None, **watched: Any,
) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = GoalBatches(weighted(data, config.weighting, config.weighting_temperature), config, policy_goals)
    return offline_learner.learn(build(batches.sizes, config, batches.space), batches, config, out=out, seed=seed,
                                 generator=generator, **watched)
