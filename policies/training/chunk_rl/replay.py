"""Decisions kept for off-policy learning: a ring of rows, each with what came after it. B rows of a batch.

Contexts are kept as one vector, of several tokens the mean: all of them would be a gigabyte with two cameras.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.policies.training.chunk_rl.rollouts import Rollout, Seen, successors


class Transitions(NamedTuple):
    """B decisions: seen, the action [B, D], the reward [B], what was seen next, and whether [B] that counts."""

    seen: Seen
    action: Tensor
    reward: Tensor
    after: Seen
    goes_on: Tensor


def transitions(rollout: Rollout, action: Tensor) -> Transitions:
    """The decisions of a rollout. After one that was cut comes what its world showed then."""
    following, now = successors(rollout), rollout.seen.flat()
    context, critic = (value[following.clamp(min=0)].clone() for value in now)
    if rollout.tail is not None:
        rows, seen = rollout.tail
        context[rows], critic[rows] = seen.flat()
    return Transitions(now, action, rollout.reward, Seen(context, critic), (following >= 0) | rollout.cut)


class Ring:
    """The last ``size`` decisions. ``memory``: tensors by name, which grow as they fill, and the row that is written
    next; for checkpoints."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory: dict[str, Tensor | int] = {"at": 0, "count": 0}

    def add(self, new: Transitions) -> None:
        """Write rows over the oldest."""
        columns = dict(zip(NAMES, (*new.seen, new.action, new.reward, *new.after, new.goes_on)))
        count, at = len(new.reward), int(self.memory["at"])
        rows = (at + torch.arange(count)) % self.size
        for name, value in columns.items():
            column = self.memory.get(name, value[:0])
            assert isinstance(column, Tensor)
            self.memory[name] = column = grown(column, min(at + count, self.size), self.size)
            column[rows] = value
        self.memory["at"], self.memory["count"] = (at + count) % self.size, min(
            int(self.memory["count"]) + count, self.size)

    def draw(self, batch: int, generator: torch.Generator) -> Transitions:
        """``batch`` rows, each as likely."""
        rows = torch.randint(int(self.memory["count"]), (batch,), generator=generator)
        context, critic, action, reward, next_context, next_critic, goes_on = (
            self.memory[name][rows] for name in NAMES)  # type: ignore[index]
        return Transitions(Seen(context, critic), action, reward, Seen(next_context, next_critic), goes_on)


def grown(column: Tensor, rows: int, most: int) -> Tensor:
    """``column`` with room for ``rows``: where it has none, twice as much as is needed, ``most`` rows at most."""
    if rows <= len(column):
        return column
    return torch.cat([column, column.new_zeros(min(2 * rows, most) - len(column), *column.shape[1:])])


NAMES = ("context", "critic", "action", "reward", "next_context", "next_critic", "goes_on")
