"""Recorded episodes as demonstrations of a residual: what has to be added to the base's action for the recorded one.

S samples, N episodes, O / C observation of actor / critics, A action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.objective_rewards import StepRewards, by
from temporeal.policies.data.views import Padded, View
from temporeal.policies.training.residual.base import FrozenBase, corrected
from temporeal.sim.task import Carry, Objective
from temporeal.sim.types import Obs


@dataclass
class RelabelledView:
    """What ``view`` shows, as the worlds of a residual show it (:class:`temporeal.policies.data.views.View`): the
    base's action behind what the actor sees, and the residual's own action.

    The base acts in all episodes at once and begins with each of them: one that went on from the episode before would
    act otherwise than in deployment (residual-offpolicy-rl#5).

    Args:
        view: of the task's observations, which begin with the actor's O numbers.
        names: signals that are read, the base's among them.
        make: the base in so many worlds.
        scale: of the residual; a recorded action that is further from the base's is cut.
        condition: whether the residual sees the base's action.

    Attributes:
        executed: [S, N, A] of the last episodes: what the base and the residual do together.
    """

    view: View
    names: tuple[str, ...]
    make: Callable[[int], FrozenBase]
    scale: float
    obs_dim: int
    condition: bool = True
    executed: Tensor = field(default_factory=lambda: torch.zeros(0))

    def check(self, interface: Interface) -> None:
        """As of the view."""
        self.view.check(interface)

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """Unknown."""
        return ()

    @torch.no_grad()
    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Observations [S, N, C + A] and the residual's actions [S, N, A]."""
        obs, given = self.view(episodes, action)
        base, acts = self.make(obs.shape[1]), list[Tensor]()
        base.begin(torch.arange(obs.shape[1]))
        for k in range(len(obs)):
            signals = {name: values[k] for name, values in episodes.signals.items()}
            found = base.act(Obs(obs[k][:, : self.obs_dim], obs[k]), signals).action
            if found is None:
                raise DataError(f"{base.title} gives commands, and of recorded steps it is unknown which action each "
                                "stands for: leave dataset= out, or correct a base that gives actions")
            acts.append(found.clamp(-1.0, 1.0))
        based = torch.stack(acts)
        u = ((given - based) / self.scale).clamp(-1.0, 1.0) if self.scale else torch.zeros_like(given)
        self.executed = corrected(based, u, self.scale)
        if not self.condition:
            return obs, u
        return torch.cat([obs[..., : self.obs_dim], based, obs[..., self.obs_dim :]], -1), u

    def paid(self, rewards: StepRewards) -> StepRewards:
        """``rewards`` of what is executed instead of the residual's own actions."""
        return lambda signals, _: rewards(signals, self.executed)


def at_success(objective: Objective) -> StepRewards:
    """1 where an episode succeeds, which ends it: ``base.reward=sparse``."""
    inner = Success(objective)
    return by(inner)


class Success:
    """The objective ``inner``, paid and over when it succeeds."""

    def __init__(self, inner: Objective) -> None:
        self.inner, self.carry, self.privileged_dim = inner, inner.carry, inner.privileged_dim

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return self.inner.start(signals, carry)

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        _, ended, after = self.inner.step(signals, action, carry)
        won = self.inner.success(signals, {**carry, **after})
        return won.float(), ended | won, after

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """As of the inner one."""
        return self.inner.privileged(signals, carry)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """As of the inner one."""
        return self.inner.success(signals, carry)
