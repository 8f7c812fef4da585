"""Batched rollouts of candidate parameters, and the judgement of their traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.parameter_space import Values
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import And, Formula, to_text
from temporeal.sim.stl.language.queries import horizon, signals_in
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.language.temporal import Always, Historically
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

Rollout = Callable[[Values, np.ndarray], Mapping[str, Any]]
"""From parameters name -> [B, *shape] and seeds int64 [B] to signals name -> [T, B, *shape]."""


def one_at_a_time(function: Callable[[Values, int], Mapping[str, Any]]) -> Rollout:
    """A batched rollout that calls ``function(parameters name -> [*shape], seed) -> signals name -> [T, *shape]``."""

    def rollout(parameters: Values, seeds: np.ndarray) -> dict[str, np.ndarray]:
        runs = [function({k: v[i] for k, v in parameters.items()}, int(s)) for i, s in enumerate(seeds)]
        lengths = {len(value) for run in runs for value in run.values()}
        if len(lengths) > 1:
            raise SignalError(f"the traces differ in length: {sorted(lengths)} samples; repeat the last sample")
        return {name: np.stack([to_numpy(run[name]) for run in runs], axis=1) for name in runs[0]}

    return rollout


class Judgement(NamedTuple):
    """The verdicts on B traces.

    Attributes:
        robustness: float64 [B] at time 0, NaN where it is unknown.
        violated: bool [B].
        undecided: bool [B], on traces that ended before the formula was decided; None: all are decided.
        decided_at_s: [B] when it was decided, inf where undecided; None: no times.
    """

    robustness: np.ndarray
    violated: np.ndarray
    undecided: np.ndarray | None = None
    decided_at_s: np.ndarray | None = None


Judge = Callable[[Formula, Mapping[str, np.ndarray]], Judgement]
"""From a formula and signals name -> [T, B, *shape] to the judgement."""


def judge_traces(dt: float, semantics: Semantics = RTAMT) -> Judge:
    """The default judge: exact robustness at time 0, in float64; at 0 the Boolean value decides: ``x <= 1`` holds at 1.

    A trace shorter than the formula's horizon is refused (:class:`SignalError`) unless ``semantics.end`` says what lies
    past its end: an ``F`` past the end of a clipped trace would be violated without any fault of the system.
    """

    def judge(formula: Formula, signals: Mapping[str, np.ndarray]) -> Judgement:
        check_signals(formula, signals)
        _check_length(formula, signals, dt, semantics)
        # one type for all signals, or a clause alone could differ from the clause in a conjunction
        exact = {k: np.asarray(v, np.float64) for k, v in signals.items() if k in signals_in(formula)}
        value = np.asarray(robustness(formula, exact, dt, semantics=semantics)[0])
        violated = value < 0
        zero = np.flatnonzero(value == 0)
        if len(zero):
            some = {k: v[:, zero] for k, v in exact.items()}
            known = np.all([np.isfinite(v).all(axis=(0, *range(2, v.ndim))) for v in some.values()], axis=0)
            some = {k: v[:, known] for k, v in some.items()}
            violated[zero[known]] = ~np.asarray(satisfied(formula, some, dt, semantics=semantics)[0])
        return Judgement(value, violated)

    return judge


def check_signals(formula: Formula, signals: Mapping[str, np.ndarray]) -> None:
    """Raise a :class:`SignalError` if the rollout lacks a signal that the formula reads."""
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


def judge_clauses(judge: Judge, parts: Sequence[Formula], signals: Mapping[str, np.ndarray], count: int) -> Judgement:
    """Judgement of each of the clauses ``parts`` on ``count`` traces, [C, B]; the least is the conjunction's.

    A time of decision that the judge does not give is NaN.
    """
    judged = [judge(part, signals) for part in parts]
    if any(j.robustness.shape != (count,) for j in judged):
        shapes = {name: np.shape(value) for name, value in signals.items()}
        raise SignalError(f"a rollout of {count} candidates gives signals [T, {count}, ...], this one gave {shapes}")
    nothing, unknown = np.zeros(count, bool), np.full(count, np.nan)
    return Judgement(np.stack([j.robustness for j in judged]), np.stack([j.violated for j in judged]),
                  np.stack([nothing if j.undecided is None else j.undecided for j in judged]),
                  np.stack([unknown if j.decided_at_s is None else j.decided_at_s for j in judged]))


def conjuncts(formula: Formula) -> list[Formula]:
    """Formulas whose conjunction is ``formula``, with ``G`` and ``H`` distributed; its robustness is their least."""
    match formula:
        case And(args):
            return [part for arg in args for part in conjuncts(arg)]
        case Always(arg, window):
            return [Always(part, window) for part in conjuncts(arg)]
        case Historically(arg, window):
            return [Historically(part, window) for part in conjuncts(arg)]
    return [formula]


def distinct_conjuncts(formula: Formula) -> list[Formula]:
    """:func:`conjuncts` without repetitions; the formula itself if one of them reads no signal."""
    parts = list(dict.fromkeys(conjuncts(formula)))
    return parts if all(signals_in(part) for part in parts) else [formula]


def error_text(error: Exception) -> str:
    """An error as one text, equal for equal errors."""
    return f"{type(error).__name__}: {error}"


def to_numpy(value: Any) -> np.ndarray:
    """A numpy array or a torch tensor as a numpy array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)
