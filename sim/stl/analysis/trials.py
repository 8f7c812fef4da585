"""Batched rollouts of candidate parameters, and how the traces that they give are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.space import Values
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import And, Formula, to_text
from temporeal.sim.stl.language.queries import horizon, signals_in
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.language.temporal import Always, Historically
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

Rollout = Callable[[Values, np.ndarray], Mapping[str, Any]]
"""Parameters name -> [B, *shape] and seeds int64 [B] to signals name -> [T, B, *shape]."""


def one_at_a_time(function: Callable[[Values, int], Mapping[str, Any]]) -> Rollout:
    """A batched rollout of ``function(parameters name -> [*shape], seed) -> signals name -> [T, *shape]``."""

    def rollout(parameters: Values, seeds: np.ndarray) -> dict[str, np.ndarray]:
        runs = [function({k: v[i] for k, v in parameters.items()}, int(s)) for i, s in enumerate(seeds)]
        lengths = {len(value) for run in runs for value in run.values()}
        if len(lengths) > 1:
            raise SignalError(f"the traces differ in length: {sorted(lengths)} samples; hold the last sample")
        return {name: np.stack([host(run[name]) for run in runs], axis=1) for name in runs[0]}

    return rollout


class Judged(NamedTuple):
    """Of B traces: robustness at time 0, float64 [B], NaN where it is unknown, and whether they violate, bool [B].

    A judge of traces that end early also says of which the formula is ``undecided``, bool [B], neither known to hold
    nor to fail, and when it was decided, ``decided_at_s`` [B] (inf: undecided). None: all are decided, no time.
    """

    robustness: np.ndarray
    violated: np.ndarray
    undecided: np.ndarray | None = None
    decided_at_s: np.ndarray | None = None


Judge = Callable[[Formula, Mapping[str, np.ndarray]], Judged]
"""A formula and signals name -> [T, B, *shape] to their judgement."""


def judge_traces(dt: float, semantics: Semantics = RTAMT) -> Judge:
    """The usual judge: exact robustness at time 0, computed in float64. At 0 the Boolean value decides: ``x <= 1``
    holds at x = 1.

    A trace that is shorter than the formula's horizon is refused (:class:`SignalError`) unless ``semantics.end`` says
    what lies past its end: an ``F`` past the end of a clipped trace would be violated for no reason of the system's.
    """

    def judge(formula: Formula, signals: Mapping[str, np.ndarray]) -> Judged:
        check_signals(formula, signals)
        _check_length(formula, signals, dt, semantics)
        # in one type: of float32 and float64 signals a clause alone would differ from the clause in a conjunction
        exact = {k: np.asarray(v, np.float64) for k, v in signals.items() if k in signals_in(formula)}
        value = np.asarray(robustness(formula, exact, dt, semantics=semantics)[0])
        violated = value < 0
        zero = np.flatnonzero(value == 0)
        if len(zero):
            some = {k: v[:, zero] for k, v in exact.items()}
            known = np.all([np.isfinite(v).all(axis=(0, *range(2, v.ndim))) for v in some.values()], axis=0)
            some = {k: v[:, known] for k, v in some.items()}
            violated[zero[known]] = ~np.asarray(satisfied(formula, some, dt, semantics=semantics)[0])
        return Judged(value, violated)

    return judge


def check_signals(formula: Formula, signals: Mapping[str, np.ndarray]) -> None:
    """A rollout gives every signal that the formula reads."""
    missing = [name for name in signals_in(formula) if name not in signals]
    if missing:
        raise SignalError(f"the rollout lacks {', '.join(map(repr, missing))}, which {to_text(formula)} reads; it has: "
                          f"{', '.join(signals) or 'no signal'}")


def _check_length(formula: Formula, signals: Mapping[str, np.ndarray], dt: float, semantics: Semantics) -> None:
    reach = horizon(formula, dt)
    samples = min((len(signals[name]) for name in signals_in(formula)), default=1)
    if semantics.end == "clip" and isfinite(reach) and samples < steps(reach, dt) + 1:
        raise SignalError(f"the traces have {samples} samples, one each {dt:g} s, and {to_text(formula)} looks "
                          f"{reach:g} s ahead: simulate {steps(reach, dt) + 1}, or choose Semantics(end='strong' or "
                          f"'weak')")


def judge_clauses(judge: Judge, parts: Sequence[Formula], signals: Mapping[str, np.ndarray], count: int) -> Judged:
    """Judgement of each of the clauses ``parts`` of ``count`` traces, [C, B]; the least is the conjunction's. A time of
    decision that the judge does not know is NaN.
    """
    judged = [judge(part, signals) for part in parts]
    if any(j.robustness.shape != (count,) for j in judged):
        shapes = {name: np.shape(value) for name, value in signals.items()}
        raise SignalError(f"a rollout of {count} candidates gives signals [T, {count}, ...], this one gave {shapes}")
    nothing, unknown = np.zeros(count, bool), np.full(count, np.nan)
    return Judged(np.stack([j.robustness for j in judged]), np.stack([j.violated for j in judged]),
                  np.stack([nothing if j.undecided is None else j.undecided for j in judged]),
                  np.stack([unknown if j.decided_at_s is None else j.decided_at_s for j in judged]))


def conjuncts(formula: Formula) -> list[Formula]:
    """Formulas whose conjunction is ``formula``, ``G`` and ``H`` distributed over it: their least robustness is its."""
    match formula:
        case And(args):
            return [part for arg in args for part in conjuncts(arg)]
        case Always(arg, window):
            return [Always(part, window) for part in conjuncts(arg)]
        case Historically(arg, window):
            return [Historically(part, window) for part in conjuncts(arg)]
    return [formula]


def distinct_conjuncts(formula: Formula) -> list[Formula]:
    """:func:`conjuncts` without repetitions; the formula itself where one of them reads no signal."""
    parts = list(dict.fromkeys(conjuncts(formula)))
    return parts if all(signals_in(part) for part in parts) else [formula]


def told(error: Exception) -> str:
    """An error as one text, the same for the same error."""
    return f"{type(error).__name__}: {error}"


def host(value: Any) -> np.ndarray:
    """A numpy array or a torch tensor as a numpy array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)
