"""What a trace with missing samples says about a formula: bounds on its robustness, verdicts, and when they fell.

An episode that ended early, or a flight that is still going on, has samples that nobody knows. Every sub-formula
then has a pair of values: the least and the greatest that any completion of the trace could give (as in online
monitoring of STL). The same recursion over other leaf values gives the *time of decision*: with ``-t`` for a leaf
that is true at time t and ``-inf`` otherwise, minimum and maximum select the time at which the truth was known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import inf, isfinite
from typing import Any

import numpy as np

from sim.stl.robustness import robustness, satisfied
from sim.stl.syntax import (
    Always,
    And,
    Eventually,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Truth,
    Until,
    horizon,
)
from sim.stl.windows import NUMPY_MARGINS, sliding, steps, until, window_steps

Pair = tuple[np.ndarray, np.ndarray]
"""Least and greatest value, [T, E] each."""


@dataclass(frozen=True)
class Leaves:
    """Values of what has no parts: predicates [R, E], and the pair of ``true`` (``false`` has its complement)."""

    predicate: Callable[[Predicate], Pair]
    true: tuple[float, float]
    shape: tuple[int, int]



@dataclass(frozen=True)
class Verdict:
    """Per trace, at time 0: whether the formula is known to hold, known to fail, and the time of decision in s.

    Where neither is known ``decided_at_s`` is infinite.
    """

    satisfied: np.ndarray  # [E] bool
    violated: np.ndarray  # [E] bool
    decided_at_s: np.ndarray  # [E]


def verdict(formula: Formula, signals: Mapping[str, np.ndarray], dt: float, lengths: np.ndarray) -> Verdict:
    """Verdicts of E traces [T, E, ...] of which the first ``lengths`` [E] samples are known."""
    known, rows = known_samples(formula, signals, dt, lengths)
    time = dt * np.arange(rows)[:, None]

    def leaf(predicate: Predicate) -> Pair:
        true = extended(satisfied(predicate, signals, dt), rows, False)
        return np.where(known & true, -time, -inf), np.where(known & ~true, time, inf)

    # what is always true is known at time 0 and never known to be false
    low, high = evaluate_pair(formula, Leaves(leaf, (0.0, inf), known.shape), dt)
    sure, failed = np.isfinite(low[0]), np.isfinite(high[0])
    return Verdict(sure, failed, np.where(sure, -low[0], high[0]))


def bounds(formula: Formula, signals: Mapping[str, np.ndarray], dt: float, lengths: np.ndarray) -> Pair:
    """Least and greatest robustness at time 0, [E] each, that any continuation of the known samples could give."""
    known, rows = known_samples(formula, signals, dt, lengths)

    def leaf(predicate: Predicate) -> Pair:
        value = extended(robustness(predicate, signals, dt).astype(np.float64), rows, 0.0)
        return np.where(known, value, -inf), np.where(known, value, inf)

    low, high = evaluate_pair(formula, Leaves(leaf, (inf, inf), known.shape), dt)
    return low[0], high[0]


def known_samples(
    formula: Formula, signals: Mapping[str, np.ndarray], dt: float, lengths: np.ndarray
) -> tuple[Any, int]:
    """Mask [R, E] of known samples and R: the trace's samples, or the formula's horizon where that is longer.

    Without the longer R a window that lies wholly past the end would be empty, and true or false for no reason.
    """
    samples = len(next(iter(signals.values())))
    reach = horizon(formula)
    rows = max(samples, steps(reach, dt) + 1) if isfinite(reach) else samples
    return np.arange(rows)[:, None] < np.minimum(lengths, samples)[None], rows


def extended(value: np.ndarray, rows: int, fill: float | bool) -> np.ndarray:
    """``value`` [T, E] with rows of ``fill`` up to ``rows``."""
    return np.concatenate([value, np.full((rows - len(value), *value.shape[1:]), fill, dtype=value.dtype)])


def evaluate_pair(formula: Formula, leaves: Leaves, dt: float) -> Pair:
    """Least and greatest value of ``formula`` at every sample, from those of its predicates."""
    def of(part: Formula) -> Pair:
        return evaluate_pair(part, leaves, dt)

    match formula:
        case Predicate():
            return leaves.predicate(formula)
        case Truth(value):
            true = np.full(leaves.shape, leaves.true[0]), np.full(leaves.shape, leaves.true[1])
            return true if value else complement(true)
        case Not(arg):
            return complement(of(arg))
        case And(args):
            return both(np.minimum, [of(a) for a in args])
        case Or(args):
            return both(np.maximum, [of(a) for a in args])
        case Implies(left, right):
            return both(np.maximum, [complement(of(left)), of(right)])
        case Iff(left, right):
            a, b = of(left), of(right)
            return both(np.minimum, [both(np.maximum, [complement(a), b]), both(np.maximum, [a, complement(b)])])
        case Always(arg, window):
            lo, hi = window_steps(window, dt)
            low, high = of(arg)
            return (sliding(low, lo, hi, np.minimum, inf, NUMPY_MARGINS),
                    sliding(high, lo, hi, np.minimum, inf, NUMPY_MARGINS))
        case Eventually(arg, window):
            lo, hi = window_steps(window, dt)
            low, high = of(arg)
            return (sliding(low, lo, hi, np.maximum, -inf, NUMPY_MARGINS),
                    sliding(high, lo, hi, np.maximum, -inf, NUMPY_MARGINS))
        case Until(left, right, window):
            lo, hi = window_steps(window, dt)
            (low_l, high_l), (low_r, high_r) = of(left), of(right)
            return until(low_l, low_r, lo, hi, NUMPY_MARGINS), until(high_l, high_r, lo, hi, NUMPY_MARGINS)
    raise TypeError(f"no bounds for {type(formula).__name__}: {formula}")


def complement(pair: Pair) -> Pair:
    """Bounds of the negation."""
    return -pair[1], -pair[0]


def both(combine: Callable[[np.ndarray, np.ndarray], np.ndarray], pairs: list[Pair]) -> Pair:
    """``combine`` over the least and over the greatest values."""
    return reduce(combine, [p[0] for p in pairs]), reduce(combine, [p[1] for p in pairs])
