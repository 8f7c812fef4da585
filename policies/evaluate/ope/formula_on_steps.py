"""A formula as imagined episodes are judged by it: the margins of its predicates, and the robustness of their traces.

L predicates, M steps, N traces, T samples. Margins are squashed to (-1, 1), ``m / (|m| + unit)``: which side of zero
they lie on decides, and far from zero they need not be known well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.curation.robustness import TIME, Table, require
from temporeal.policies.data.transitions import Transitions
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Formula, Predicate
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.language.values import numpy_arrays, predicate_margin
from temporeal.sim.stl.rewriting.lower import Leaf, Lowered, lower
from temporeal.sim.stl.semantics.robustness import evaluate_leaves


@dataclass(frozen=True)
class FormulaOnSteps:
    """A formula on a dataset's steps.

    Args:
        margins: [M, L], squashed, at the observation of each step.
        robustness: squashed margins [T, N, L] of traces to their robustness [N]: satisfied where it exceeds zero.
    """

    margins: Tensor
    robustness: Callable[[np.ndarray], np.ndarray]


def on_steps(formula: Formula, semantics: Semantics, table: Table, data: Transitions) -> FormulaOnSteps:
    """``formula`` on ``data``, whose episodes are those of ``table``, which may hold a last sample without command."""
    names = signals_in(formula)
    require(table, names)
    tree = lower(formula, table.dt, semantics)
    starts = data.starts.numpy()
    passed = np.arange(data.steps) - starts[data.episode.numpy()]
    rows = passed + table.starts[data.episode.numpy()]
    signals = {name: passed * table.dt if name == TIME.name and name not in table.signals
               else np.asarray(table.column(name)[rows], dtype=np.float64) for name in names}
    arrays = numpy_arrays(np.dtype(np.float64))
    predicates = predicates_of(tree)
    raw = [np.broadcast_to(predicate_margin(p, {n: v[None] for n, v in signals.items()}, arrays), (1, len(rows)))[0]
           for p in predicates]
    squashed = np.stack([margin / (np.abs(margin) + unit_of(margin)) for margin in raw], 1)

    def robustness(traces: np.ndarray) -> np.ndarray:
        samples, count = traces.shape[:2]

        def margins(leaf: Leaf) -> np.ndarray:
            found = traces[..., predicates.index(leaf.predicate)].astype(np.float64)
            return -found if leaf.negated else found

        return np.asarray(evaluate_leaves(tree, margins, (samples, count), np.full(count, samples))[0])

    return FormulaOnSteps(torch.from_numpy(squashed).float(), robustness)


def unit_of(margin: np.ndarray) -> float:
    """The median size of a predicate's margin where it has the rarer sign: the scale on which its verdict changes."""
    positive = margin > 0
    rarer = margin[positive if positive.mean() < 0.5 else ~positive]
    return max(float(np.median(np.abs(rarer if len(rarer) else margin))), 1e-9)


def predicates_of(tree: Lowered) -> list[Predicate]:
    """The different predicates of a lowered formula, in order."""
    found: list[Predicate] = []

    def margins(leaf: Leaf) -> np.ndarray:
        found.append(leaf.predicate)
        return np.zeros((1, 1))

    evaluate_leaves(tree, margins, (1, 1), np.ones(1, dtype=np.int64))
    return list(dict.fromkeys(found))
