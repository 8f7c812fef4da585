"""Groups of episodes from one start: which starts are worth episodes, and advantages within a group.

A group teaches only where some of its episodes succeed and others fail: its advantages are differences. A start with
success probability p, given n episodes, is worth (after Knapsack RL, arXiv 2509.25849)

    value(n, p) = (1 - p^n - (1 - p)^n) * p (1 - p)^2

the probability that the group is mixed, times how much a step on it can gain. The episodes of an iteration go where the
sum of values is largest, a knapsack whose items are starts with their numbers of episodes, solved exactly.
S starts, G groups of W worlds, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def value(p: np.ndarray, most: int) -> np.ndarray:
    """[S, most + 1]: what a start with success probability ``p`` [S] is worth with 0, 1, ... ``most`` episodes."""
    n = np.arange(most + 1)
    mixed = 1.0 - p[:, None] ** n - (1.0 - p[:, None]) ** n
    mixed[:, :2] = 0.0  # one episode is compared with nothing
    return np.maximum(mixed, 0.0) * (p * (1.0 - p) ** 2)[:, None]


def knapsack(values: np.ndarray, budget: int) -> np.ndarray:
    """How many episodes [S] each start is given, ``budget`` at most in all, so that the sum of ``values`` [S, M + 1] is
    largest. Of equally good ways, the one that gives the later starts fewer."""
    most = values.shape[1] - 1
    best = np.zeros(budget + 1)
    given = np.zeros((len(values), budget + 1), dtype=np.int64)
    room = np.arange(budget + 1)
    rest = room[:, None] - np.arange(most + 1)  # what remains for the starts before
    for s, own in enumerate(values):
        total = np.where(rest >= 0, best[np.maximum(rest, 0)] + own, -np.inf)
        given[s], best = total.argmax(1), total.max(1)
    counts, left = np.zeros(len(values), dtype=np.int64), int(best.argmax())
    for s in reversed(range(len(values))):
        counts[s] = given[s, left]
        left -= counts[s]
    return counts


def filled(counts: np.ndarray, budget: int) -> np.ndarray:
    """``counts`` [S] with what the knapsack left over given in turn to those that have most: worlds cost the same
    whether or not they learn something."""
    counts = counts.copy()
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0] if counts.any() else order
    for k in range(budget - int(counts.sum())):
        counts[order[k % len(order)]] += 1
    return counts


def informative(success: Tensor, group: Tensor, low: float, high: float) -> Tensor:
    """Whether [G] the share of successes in each group lies between ``low`` and ``high``. ``group`` [W]: of each
    episode, ``success`` [W]."""
    mean = mean_of(success.float(), group)
    return (mean >= low) & (mean <= high)


def mean_of(values: Tensor, group: Tensor) -> Tensor:
    """Means [G] over groups."""
    count = torch.bincount(group)
    return torch.bincount(group, weights=values, minlength=len(count)).float() / count.clamp(min=1)


def group_advantages(outcome: Tensor, group: Tensor) -> Tensor:
    """(outcome - mean of the group) / (standard deviation of the group), [W] of ``outcome`` [W] (GRPO, arXiv
    2402.03300)."""
    mean = mean_of(outcome, group)
    apart = outcome - mean[group]
    spread = mean_of(apart.square(), group).sqrt()
    return apart / (spread[group] + 1e-6)


class Starts:
    """A pool of starts, each with what is known of it. ``memory`` holds plain lists: key, tries, successes, of each."""

    def __init__(self, size: int, tries: int) -> None:
        self.size, self.tries = size, tries
        self.memory: dict[str, list[int]] = {"key": [], "tried": [], "done": [], "next": [0]}

    def refresh(self, low: float, high: float) -> None:
        """Drop starts that were tried often enough, or that always or never succeed; fill up with new ones."""
        old = self.memory
        rows = [(k, n, s) for k, n, s in zip(old["key"], old["tried"], old["done"])
                if n == 0 or (n < self.tries and low <= s / n <= high)]
        first = old["next"][0]
        rows += [(first + i, 0, 0) for i in range(self.size - len(rows))]
        old["next"][0] = max(first, *(k + 1 for k, _, _ in rows))
        for name, values in zip(("key", "tried", "done"), zip(*rows)):
            old[name] = list(values)

    def chances(self, prior: float, weight: float = 2.0) -> np.ndarray:
        """Success probabilities [S]: as counted, drawn to ``prior`` as ``weight`` more episodes would."""
        tried, done = np.array(self.memory["tried"], float), np.array(self.memory["done"], float)
        return (done + weight * prior) / (tried + weight)

    def count(self, which: Sequence[int], success: Tensor, group: Tensor) -> None:
        """Enter the outcomes of the starts ``which`` [G]."""
        for g, start in enumerate(which):
            own = success[group == g]
            self.memory["tried"][start] += len(own)
            self.memory["done"][start] += int(own.sum())
