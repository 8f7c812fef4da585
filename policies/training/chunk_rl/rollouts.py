"""Decisions that worlds made, and their advantages.

Worlds decide when their chunk is played or a new episode begins, so decisions come in *rounds* of some worlds each. All
decisions of a rollout lie in one table, R rows in the order of time. N worlds, K worlds of a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Seen(NamedTuple):
    """What K worlds show where they decide: the policy's context [K, ...] and the critic's own signals [K, P]."""

    context: Tensor
    critic: Tensor

    def rows(self, which: Tensor) -> Seen:
        """Some of them."""
        return Seen(self.context[which], self.critic[which])

    def flat(self) -> Seen:
        """The context as one vector [K, C]: of several tokens the mean."""
        return Seen(flat(self.context), self.critic)


def flat(context: Tensor) -> Tensor:
    """[K, C] of contexts; of several tokens the mean."""
    return context if context.dim() == 2 else context.flatten(1, -2).mean(1)


class Drawn(NamedTuple):
    """K chunks [K, H, U] with the log-probability of each, and what is needed to compute it anew, [K, ...] by name.

    ``log_prob``: [K], or [K, T] where each of T tokens has its own.
    """

    chunk: Tensor
    log_prob: Tensor
    kept: Mapping[str, Tensor]


@dataclass
class Rollout:
    """All decisions of a rollout, R rows.

    Args:
        worlds: int64 [R], who decided. ``rounds``: the first row of each round, and R.
        seen: [R, ...], ``drawn``: [R, ...] (without the chunks).
        reward: [R], summed over the chunk. ``length``: control steps that were played of it.
        ended: bool [R], the episode ended in this chunk; ``cut``: it goes on in principle, or the rollout ended.
        tail: rows of the ``cut`` decisions, with what their worlds showed then: the value there counts.
        episodes: figures of the episodes that ended, [E] by name.
    """

    worlds: Tensor
    rounds: Sequence[int]
    seen: Seen
    drawn: Drawn
    reward: Tensor
    length: Tensor
    ended: Tensor
    cut: Tensor
    tail: tuple[Tensor, Seen] | None
    episodes: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """R."""
        return len(self.worlds)

    @property
    def steps(self) -> int:
        """Control steps of all worlds."""
        return int(self.length.sum())

    def figures(self) -> dict[str, float]:
        """Means over the episodes that ended."""
        return {name: float(value.float().mean()) for name, value in self.episodes.items()
                if len(value) and name != "world"}


def advantages(
    rollout: Rollout, value: Tensor, tail_value: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """Generalized advantage estimates [R] over decisions (Schulman et al. 2016): chunks are the actions.

    Args:
        value: [R], of what was seen at each decision.
        tail_value: of ``rollout.tail``'s rows, in their order.
    """
    ahead = torch.zeros(int(rollout.worlds.max()) + 1 if rollout.rows else 0)  # by world: value of the next decision
    last = torch.zeros_like(ahead)  # and its advantage
    after = torch.zeros_like(value)
    if rollout.tail is not None:
        after[rollout.tail[0]] = tail_value
    stops = rollout.ended | rollout.cut
    found = torch.empty_like(value)
    for first, end in reversed(list(zip(rollout.rounds[:-1], rollout.rounds[1:]))):
        world, stop = rollout.worlds[first:end], stops[first:end]
        following = torch.where(stop, after[first:end], ahead[world])
        delta = rollout.reward[first:end] + gamma * following - value[first:end]
        found[first:end] = delta + gamma * gae_lambda * torch.where(stop, 0.0, last[world])
        last[world], ahead[world] = found[first:end], value[first:end]
    return found


def successors(rollout: Rollout) -> Tensor:
    """The row [R] at which the same world decided next; -1 where its episode ended or the rollout was cut."""
    ahead = torch.full((int(rollout.worlds.max()) + 1 if rollout.rows else 0,), -1)
    found = torch.full_like(rollout.worlds, -1)
    stops = rollout.ended | rollout.cut
    for first, end in reversed(list(zip(rollout.rounds[:-1], rollout.rounds[1:]))):
        world = rollout.worlds[first:end]
        found[first:end] = torch.where(stops[first:end], -1, ahead[world])
        ahead[world] = torch.arange(first, end)
    return found


def standardized(values: Tensor) -> Tensor:
    """Mean 0, standard deviation 1."""
    return (values - values.mean()) / (values.std(correction=0) + 1e-8)


def joined(parts: Sequence[Rollout]) -> Rollout:
    """Several rollouts as one. Worlds of each keep to themselves: they get numbers of their own."""
    if len(parts) == 1:
        return parts[0]
    rows = torch.tensor([0, *(part.rows for part in parts)]).cumsum(0).tolist()
    apart = torch.tensor([0, *(int(part.worlds.max()) + 1 for part in parts)]).cumsum(0).tolist()
    tails = [(part.tail[0] + first, part.tail[1]) for part, first in zip(parts, rows) if part.tail is not None]
    tail = None
    if tails:
        tail = torch.cat([rows for rows, _ in tails]), seen_together([seen for _, seen in tails])
    reward, length, ended, cut = (torch.cat([getattr(part, name) for part in parts])
                                  for name in ("reward", "length", "ended", "cut"))
    return Rollout(
        torch.cat([part.worlds + first for part, first in zip(parts, apart)]),
        [0, *(first + end for part, first in zip(parts, rows) for end in part.rounds[1:])],
        seen_together([part.seen for part in parts]), drawn_together([part.drawn for part in parts]), reward, length,
        ended, cut, tail, {name: torch.cat([part.episodes[name] for part in parts]) for name in parts[0].episodes})


def seen_together(parts: Sequence[Seen]) -> Seen:
    """All rows."""
    return Seen(torch.cat([part.context for part in parts]), torch.cat([part.critic for part in parts]))


def drawn_together(parts: Sequence[Drawn]) -> Drawn:
    """All rows; the chunks are left out, they are played."""
    return Drawn(torch.empty(0), torch.cat([part.log_prob for part in parts]),
                 {name: torch.cat([part.kept[name] for part in parts]) for name in parts[0].kept})


def chosen(rollout: Rollout, rows: Tensor) -> tuple[Seen, Tensor, dict[str, Tensor]]:
    """What an update needs of some rows: seen, the log-probability then, what is kept of the draw."""
    return (rollout.seen.rows(rows), rollout.drawn.log_prob[rows],
            {name: value[rows] for name, value in rollout.drawn.kept.items()})
