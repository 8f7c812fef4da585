"""Schedules: which alternative of a formula is followed, and a sample for each of its time variables. Drawn, changed.

A schedule is a row [1 + V]: the number of the alternative, then the samples of its variables (0 where it has none).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sim.stl.alternative import Alternative
from sim.stl.grounding import feasible, sample
from sim.timed import width


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

    One variable is drawn anew, uniformly within what the others leave it (its windows and what must come before and
    behind it), or two variables change places where that is legal; sometimes nothing changes.
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
    """``times`` [K, V] with one variable of each row drawn anew."""
    low, high, chosen = _room(alternative, times, rng)
    out, rows = times.copy(), np.arange(len(times))
    out[rows, chosen] = low + np.floor(rng.random(len(times)) * (high - low + 1))
    return out


def _room(
    alternative: Alternative, times: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Earliest and latest sample [K] of one variable of each row, the others as they are, and which one [K]."""
    n, d = alternative.variables, alternative.bounds
    full = np.concatenate([np.zeros((len(times), 1)), times[:, :n]], -1)
    chosen = rng.integers(0, n, len(times))
    others = np.arange(n + 1)[None] != chosen[:, None] + 1
    low = np.where(others, full - d[chosen + 1, :], -np.inf).max(-1)
    high = np.where(others, full + d[:, chosen + 1].T, np.inf).min(-1)
    return low, high, chosen


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
