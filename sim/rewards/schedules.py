"""Schedules: which alternative of a formula is followed, and a sample for each of its time variables.

A schedule is a row [1 + V]: the number of the alternative, then the samples of its variables (0 where it has none).
They are drawn uniformly, and changed by proposals for Metropolis-Hastings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.rewards.schedule_automaton import width
from temporeal.sim.stl.planning.alternative import Alternative
from temporeal.sim.stl.planning.grounding import feasible, sample


def draw_schedules(
    alternatives: Sequence[Alternative], count: int, rng: np.random.Generator, sweeps: int = 10
) -> Tensor:
    """``count`` schedules [count, 1 + V]: the alternative uniformly, its times uniformly among those that are legal."""
    out = np.zeros((count, 1 + width(alternatives)), dtype=np.float32)
    out[:, 0] = rng.integers(0, len(alternatives), count)
    for number, alternative in enumerate(alternatives):
        rows = np.flatnonzero(out[:, 0] == number)
        if alternative.variables and len(rows):
            out[rows, 1 : 1 + alternative.variables] = sample(alternative, len(rows), rng, sweeps)
    return torch.from_numpy(out)


def moved(alternatives: Sequence[Alternative], schedules: Tensor, rng: np.random.Generator) -> Tensor:
    """A proposal for each of ``schedules`` [M, 1 + V], as likely to be made as to be taken back.

    One variable, with those at a fixed distance from it, is drawn anew, uniformly within what the others leave it (its
    windows and what must come before and behind it), or two variables change places where that is legal; sometimes
    nothing changes.
    """
    out = schedules.numpy().copy()
    for number, alternative in enumerate(alternatives):
        rows = np.flatnonzero(out[:, 0] == number)
        if alternative.variables and len(rows):
            swap = rng.random(len(rows)) < (0.3 if alternative.variables > 1 else 0.0)
            out[rows[swap], 1:] = _swapped(alternative, out[rows[swap], 1:], rng)
            out[rows[~swap], 1:] = _redrawn(alternative, out[rows[~swap], 1:], rng)
    return torch.from_numpy(out)


def _redrawn(alternative: Alternative, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``times`` [K, V] with one variable of each row, and those at a fixed distance from it, drawn anew."""
    out, groups = times.copy(), movable(alternative)
    if not groups:
        return out
    chosen = rng.integers(0, len(groups), len(times))
    for number, group in enumerate(groups):
        rows = np.flatnonzero(chosen == number)
        low, high = _room(alternative, times[rows], group)
        columns = np.ix_(rows, np.array(group) - 1)
        out[columns] += (low + np.floor(rng.random(len(rows)) * (high - low + 1)))[:, None]
    return out


def movable(alternative: Alternative) -> list[list[int]]:
    """The variables (from 1) in groups that only move together, without those whose time is given."""
    d, groups = alternative.bounds, list[list[int]]()
    for v in range(1, alternative.variables + 1):
        if d[0, v] == -d[v, 0]:
            continue
        same = next((g for g in groups if d[g[0], v] == -d[v, g[0]]), None)
        if same is None:
            groups.append([v])
        else:
            same.append(v)
    return groups


def _room(alternative: Alternative, times: np.ndarray, group: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """By how much [K] the variables of ``group`` may move, at least and at most, the others as they are."""
    n, d = alternative.variables, alternative.bounds
    full = np.concatenate([np.zeros((len(times), 1)), times[:, :n]], -1)
    others = [u for u in range(n + 1) if u not in group]
    gaps = full[:, group][:, :, None] - full[:, others][:, None]
    low = (-d[np.ix_(group, others)] - gaps).max((1, 2))
    high = (d[np.ix_(others, group)].T - gaps).min((1, 2))
    return low, high


def _swapped(alternative: Alternative, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """``times`` [K, V] with two variables of each row exchanged, where that satisfies all constraints."""
    n = alternative.variables
    if not len(times):
        return times
    out, rows = times.copy(), np.arange(len(times))
    first = rng.integers(0, n, len(times))
    second = (first + rng.integers(1, n, len(times))) % n
    out[rows, first], out[rows, second] = times[rows, second], times[rows, first]
    return np.where(feasible(alternative, out[:, :n].astype(np.int64))[:, None], out, times)
