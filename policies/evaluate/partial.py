"""Formulas on traces with missing samples: bounds on the robustness, verdicts, and times of decision.

An episode that ended early, or a flight that is still going on, has unknown samples. The least and the greatest
robustness of any completion are the strong and the weak view of the known samples
(`temporeal.sim.stl.rewriting.lower.Semantics`). The same minima and maxima over other numbers give the *time of
decision*: with ``-t`` for a predicate that holds at time t, and ``-inf`` where it is not known to, they select the time
at which the truth became known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.rewriting.lower import Leaf, lower
from temporeal.sim.stl.semantics.robustness import evaluate_leaves, robustness, satisfied

Pair = tuple[np.ndarray, np.ndarray]
"""Least and greatest value, [E] each."""

STRONG, WEAK = Semantics(end="strong"), Semantics(end="weak")


@dataclass(frozen=True)
class Verdict:
    """Per trace, at time 0: whether the formula is known to hold, known to fail, and the time of decision in s.

    ``decided_at_s`` is infinite where neither is known.
    """

    satisfied: np.ndarray  # [E] bool
    violated: np.ndarray  # [E] bool
    decided_at_s: np.ndarray  # [E]


def verdict(formula: Formula, signals: Mapping[str, np.ndarray], dt: float, lengths: np.ndarray) -> Verdict:
    """Verdicts of E traces [T, E, ...] of which the first ``lengths`` [E] samples are known."""
    given, known = _known(signals, lengths)
    time = dt * np.arange(len(known))[:, None]

    def holds(leaf: Leaf) -> np.ndarray:
        truth: np.ndarray = satisfied(leaf.predicate, given, dt)
        return truth != leaf.negated

    def sure(leaf: Leaf) -> np.ndarray:
        return np.where(known & holds(leaf), -time, -inf)

    def failed(leaf: Leaf) -> np.ndarray:
        return np.where(known & ~holds(leaf), time, inf)

    # what needs no sample is known at time 0
    low = np.minimum(evaluate_leaves(lower(formula, dt, STRONG), sure, known.shape)[0], 0.0)
    high = np.maximum(evaluate_leaves(lower(formula, dt, WEAK), failed, known.shape)[0], 0.0)
    holding, failing = np.isfinite(low), np.isfinite(high)
    return Verdict(holding, failing, np.where(holding, -low, high))


def bounds(formula: Formula, signals: Mapping[str, np.ndarray], dt: float, lengths: np.ndarray) -> Pair:
    """Least and greatest robustness at time 0, [E] each, that any continuation of the known samples could give."""
    given, known = _known(signals, lengths)

    def under(view: Semantics, unknown: float) -> np.ndarray:
        def leaf(node: Leaf) -> np.ndarray:
            margin = robustness(node.predicate, given, dt).astype(np.float64)
            return np.where(known, -margin if node.negated else margin, unknown)

        return evaluate_leaves(lower(formula, dt, view), leaf, known.shape)[0]

    return under(STRONG, -inf), under(WEAK, inf)


def _known(signals: Mapping[str, np.ndarray], lengths: np.ndarray) -> tuple[dict[str, np.ndarray], Any]:
    """The signals with the last known sample held, and the mask [T, E] of samples that are known."""
    samples = len(next(iter(signals.values())))
    counts = np.minimum(lengths, samples)
    known = np.arange(samples)[:, None] < counts[None]
    at = np.clip(np.arange(samples)[:, None], 0, np.maximum(counts[None] - 1, 0))
    worlds = np.arange(len(counts))[None]
    return {name: value[at, worlds] for name, value in signals.items()}, known
