"""Steps that are remembered: flat tensors, allocated once, a ring over time. T times, N worlds, M rows drawn.

A row is what was seen [S], the action [A], and what was seen next [S], before a new episode began; n-step returns are
made when rows are drawn (Sutton and Barto 2018, section 7.1), so that one memory serves any n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.training.off_policy.pictures import Pictures

REWARD, TERMINATED, ENDED = range(3)


class Drawn(NamedTuple):
    """M steps: the state and the action, side by side [M, S + A]; the sum of the discounted rewards [M] of up to n
    steps, the state after them [M, S], what its value counts [M]: 0 where the task ended, else gamma^steps; and which
    steps these are [M], with the chance [M] of each to be drawn, times the number of all steps, and the last of the
    steps summed [M]."""

    pair: Tensor
    reward: Tensor
    after: Tensor
    discount: Tensor
    chosen: Tensor
    chance: Tensor
    last: Tensor


class Replay:
    """The last T steps of N worlds.

    Args:
        state: S, numbers of what is seen.
        pictures: shapes (H, W, 3) of what is seen beside, by name.
    """

    def __init__(
        self, times: int, worlds: int, state: int, action: int, pictures: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self.pair = torch.empty(times, worlds, state + action)
        self.after = torch.empty(times, worlds, state)
        self.told = torch.empty(times, worlds, 3)
        self.error = torch.empty(times, worlds)
        self.greatest = 1.0  # error so far: what nobody has learned from counts as much
        self.bonus = 0.0  # that each step's error counts more
        self.at = self.count = 0
        self.pictures = Pictures(times, worlds, pictures) if pictures else None

    @property
    def times(self) -> int:
        """T."""
        return len(self.pair)

    @property
    def steps(self) -> int:
        """That are remembered."""
        return self.count * self.pair.shape[1]

    def add(
        self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor, terminated: Tensor, ended: Tensor
    ) -> None:
        """A step of all worlds, over the oldest: [N, S], [N, A], [N], [N, S], whether the task ended there [N], and
        whether the episode did [N]: time may have cut it, or the world diverged."""
        torch.cat([state, action], -1, out=self.pair[self.at])
        self.after[self.at] = after
        told = self.told[self.at]
        told[:, REWARD], told[:, TERMINATED], told[:, ENDED] = reward, terminated, ended
        self.error[self.at] = self.greatest
        self.at, self.count = (self.at + 1) % self.times, min(self.count + 1, self.times)

    def draw(
        self, rows: int, n_step: int, gamma: float, generator: torch.Generator, priority: float = 0.0
    ) -> Drawn:
        """``rows`` steps, each as likely as its last error to the power of ``priority``."""
        if not priority:
            return self.take(torch.randint(self.steps, (rows,), generator=generator), n_step, gamma)
        chosen, chance = by_chance(self.priorities(priority), rows, generator)
        return self.take(chosen, n_step, gamma)._replace(chance=chance)

    def priorities(self, priority: float) -> Tensor:
        """What each step counts where steps are drawn [steps], the oldest first."""
        first = (self.at - self.count) % self.times
        error = torch.cat([self.error[first : self.count], self.error[:first]]).flatten().double()
        return (error + self.bonus).pow(priority)

    def note(self, chosen: Tensor, error: Tensor) -> None:
        """The last errors [M] of the steps ``chosen`` [M]."""
        worlds = self.pair.shape[1]
        place = (chosen // worlds + self.at - self.count) % self.times * worlds + chosen % worlds
        self.error.flatten()[place] = error + SMALLEST
        self.greatest = max(self.greatest, float(error.max()))

    def take(self, chosen: Tensor, n_step: int, gamma: float) -> Drawn:
        """The steps ``chosen`` [M]: numbers below :attr:`steps`, ``N t + i`` of the t-th oldest time and world i."""
        worlds = self.pair.shape[1]
        age, world = chosen // worlds, chosen % worlds
        first = (self.at - self.count) % self.times

        def place(ages: Tensor) -> Tensor:
            return (ages + first) % self.times * worlds + world

        told = self.told.flatten(0, 1)
        row = told[place(age)]
        reward, factor, last = row[:, REWARD].clone(), torch.full_like(row[:, 0], gamma), age
        for _ in range(n_step - 1):
            goes_on = (row[:, ENDED] == 0.0) & (last + 1 < self.count)  # the newest have fewer steps after them
            last = last + goes_on
            row = torch.where(goes_on[:, None], told[place(last)], row)
            reward += torch.where(goes_on, factor * row[:, REWARD], 0.0)
            factor = torch.where(goes_on, factor * gamma, factor)
        return Drawn(self.pair.flatten(0, 1)[place(age)], reward, self.after.flatten(0, 1)[place(last)],
                     torch.where(row[:, TERMINATED] == 0.0, factor, 0.0), chosen, torch.ones_like(reward),
                     last * worlds + world)

    def seen(self, chosen: Tensor, last: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Pictures before the steps ``chosen`` [M] and after the steps ``last`` [M], by name [M, H, W, 3]."""
        if self.pictures is None:
            return {}, {}
        worlds = self.pair.shape[1]
        return (self.pictures.before(self.count - chosen // worlds, chosen % worlds),
                self.pictures.after(self.count - last // worlds, last % worlds))

    def state_dict(self) -> dict[str, Any]:
        """What is remembered, the oldest first, without the room for more."""
        order = (torch.arange(self.count) + self.at - self.count) % self.times
        pictures = {} if self.pictures is None else {"pictures": self.pictures.state_dict(self.count)}
        return {"greatest": self.greatest, **{name: getattr(self, name)[order] for name in TABLES}, **pictures}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, the newest of it where there is less room."""
        self.greatest = state["greatest"]
        for name in TABLES:
            held = state[name][-self.times :]
            getattr(self, name)[: len(held)] = held
            self.count = len(held)
        self.at = self.count % self.times
        if self.pictures is not None:
            self.pictures.load_state_dict(state["pictures"], self.count)


def by_chance(each: Tensor, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``rows`` numbers, each as often as ``each`` [M] says, and their chances times M."""
    until = each.cumsum(0)
    drawn = torch.rand(rows, generator=generator, dtype=torch.float64) * until[-1]
    chosen = torch.searchsorted(until, drawn, right=True).clamp(max=len(each) - 1)
    return chosen, (each[chosen] / until[-1] * len(each)).float()


TABLES = ("pair", "after", "told", "error")
COPIES = 3  # at once while a checkpoint is written: what is remembered, in order, and the file's bytes
SMALLEST = 1e-6  # error, so that no step is forgotten


def bytes_of_step(state: int, action: int, pictures: int = 0) -> int:
    """What a step of one world takes: its row of all tables, and the bytes of its ``pictures``."""
    return 4 * (2 * state + action + 3 + 1) + pictures


def remembered(data: Transitions, state: Tensor, after: Tensor) -> Replay:
    """Steps of a dataset as a memory of one world. ``state``, ``after``: [M, S], what was seen before and after."""
    shapes = {name: pictures.shape[1:] for name, pictures in data.pictures.items()}
    found = Replay(data.steps, 1, state.shape[1], data.action.shape[1], shapes)
    found.pair[:, 0] = torch.cat([state, data.action], -1)
    found.after[:, 0] = after
    found.told[:, 0, REWARD], found.told[:, 0, TERMINATED] = data.reward, 1.0 - data.mask
    found.told[:, 0, ENDED] = 0.0
    found.told[(data.starts[1:] - 1)[data.starts[1:] > data.starts[:-1]], 0, ENDED] = 1.0
    found.error.fill_(found.greatest)
    found.count = data.steps
    if found.pictures is not None:
        assert data.sample is not None
        found.pictures.fill(data.pictures, data.sample, (found.told[:, 0, ENDED] > 0) & (data.mask > 0))
    return found
