"""Goals taken from the data itself: any state that was reached is a goal, and all before it shows how it is reached.

M steps, E episodes of S samples each (its steps and the final state), N = M + E samples, B rows, G numbers of a goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.transitions import Transitions


@dataclass(frozen=True)
class GoalSpace:
    """Which numbers of an observation are the goal that is asked for, and which say what is achieved.

    Args:
        goal: [G] indices of the goal in the observation: what the user of the policy sets.
        achieved: [G] indices of the same quantities as they are.
        relative: the observation holds goal minus achieved.
    """

    goal: Tensor
    achieved: Tensor
    relative: bool = False

    def reached(self, obs: Tensor) -> Tensor:
        """The goal [..., G] that ``obs`` [..., O] has reached."""
        return obs[..., self.achieved]

    def asked(self, obs: Tensor) -> Tensor:
        """The goal [..., G] that ``obs`` [..., O] asks for."""
        shown = obs[..., self.goal]
        return shown + self.reached(obs) if self.relative else shown

    def towards(self, obs: Tensor, goal: Tensor) -> Tensor:
        """``obs`` [B, O] that asks for ``goal`` [B, G]."""
        shown = goal - self.reached(obs) if self.relative else goal
        return obs.index_copy(-1, self.goal, shown)


def goal_space(
    data: Transitions, goal: Sequence[str | int], achieved: Sequence[str | int], relative: bool = False
) -> GoalSpace:
    """The goal space of ``data`` by names of its observation's numbers (``obs_names``), or by their indices.

    A name may be the beginning of several names: ``goal`` means ``goal.0, goal.1, goal.2``.
    """
    if not goal or not achieved:
        raise DataError("a learner of goals must know which numbers of the observation ask for the goal, and which "
                        "say what is achieved: algo.goal=[goal] algo.achieved=[position], names or indices; the "
                        f"observation has {', '.join(data.obs_names) or f'{data.obs.shape[1]} numbers without names'}")
    asked, is_there = _indices(data, goal, "goal"), _indices(data, achieved, "achieved")
    if len(asked) != len(is_there):
        raise DataError(f"a goal of {len(asked)} numbers ({', '.join(map(str, goal))}) cannot be compared with "
                        f"{len(is_there)} that are achieved ({', '.join(map(str, achieved))}): name as many of each; "
                        f"the observation has {', '.join(data.obs_names) or data.obs.shape[1]}")
    if both := set(asked) & set(is_there):
        raise DataError(f"number {min(both)} of the observation is both the goal and what is achieved")
    return GoalSpace(torch.tensor(asked), torch.tensor(is_there), relative)


def _indices(data: Transitions, names: Sequence[str | int], what: str) -> list[int]:
    out: list[int] = []
    for name in names:
        found = [int(name)] if str(name).isdigit() else [
            i for i, known in enumerate(data.obs_names) if known == name or known.startswith((f"{name}.", f"{name}["))]
        if not found or max(found) >= data.obs.shape[1]:
            raise DataError(f"{what}: the observation has no number {name!r}; it has "
                            f"{', '.join(data.obs_names) or f'{data.obs.shape[1]} numbers without names'}")
        out += found
    return out


@dataclass(frozen=True)
class Samples:
    """Every state of the data, the final ones too.

    Args:
        obs: [N, O].
        of_step: [M], the sample in which each step begins; the next sample is the one that it led to.
        end: [M], the last sample of the step's episode.
    """

    obs: Tensor
    of_step: Tensor
    end: Tensor


def samples_of(data: Transitions) -> Samples:
    """The samples of ``data``."""
    of_step = torch.arange(data.steps, device=data.obs.device) + data.episode
    obs = data.obs.new_empty(data.steps + len(data.starts) - 1, data.obs.shape[1])
    obs[of_step] = data.obs
    last = data.starts[1:] - 1
    obs[of_step[last] + 1] = data.next_obs[last]
    return Samples(obs, of_step, (of_step[last] + 1)[data.episode])


@dataclass(frozen=True)
class GoalMix:
    """How goals are chosen for a step (OGBench, Park et al. 2025, table 8: 0.2, 0.5, 0.3 for values; 0, 1, 0 for the
    policy).

    Args:
        current: share of goals that are the step's own state.
        future: share of goals from later in the same episode.
        geometric: how far in the future: geometric with this mean number of steps (1 / (1 - gamma)); 0: uniform.
        The rest are states of the whole data set.
    """

    current: float = 0.2
    future: float = 0.5
    geometric: float = 0.0

    def draw(self, samples: Samples, steps: Tensor, generator: torch.Generator) -> Tensor:
        """Samples [B] that are goals for ``steps`` [B]."""
        now, end = samples.of_step[steps], samples.end[steps]
        kind, far = torch.rand(2, len(steps), generator=generator)
        anywhere = torch.randint(len(samples.obs), now.shape, generator=generator)
        later = torch.minimum(now + self._ahead(far, end - now), end)
        return torch.where(kind < self.current, now, torch.where(kind < self.current + self.future, later, anywhere))

    def _ahead(self, far: Tensor, room: Tensor) -> Tensor:
        """Steps ahead [B], at least 1, of uniform ``far`` [B] with ``room`` [B] steps to the episode's end."""
        if self.geometric:
            stay = torch.log1p(torch.tensor(-1.0 / self.geometric))
            return 1 + (torch.log1p(-far) / stay).long()
        return 1 + (far * room).long()
