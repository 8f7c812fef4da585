"""Plans: decompositions that one pass over the samples can follow, a sequence or a tree of timed subgoals.

A plan is a single alternative. The window of each subgoal counts from the start or from the hit of one earlier subgoal;
an invariant begins and ends at fixed times after one hit, or ends right before another.
"""

from __future__ import annotations

from dataclasses import dataclass

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, seconds
from temporeal.sim.stl.planning.decompose import Decomposition
from temporeal.sim.stl.rewriting.normal import all_of


class NotSequential(FormulaError):
    """The formula requires more than a sequence or tree of timed subgoals; the message names the constraint."""


@dataclass(frozen=True)
class Subgoal:
    """Hit at a time inside ``window``: ``predicate`` from then on for ``hold`` seconds.

    Args:
        index: position in the plan.
        predicate: a formula without temporal operators.
        window: (earliest, latest) hit time, s, closed; counted from the hit of subgoal ``after``, from 0 if None.
        after: an index below ``index``.
        hold: s.
    """

    index: int
    predicate: Formula
    window: tuple[float, float]
    after: int | None = None
    hold: float = 0.0


@dataclass(frozen=True)
class Invariant:
    """Keep ``predicate`` in [lo, hi] seconds (closed), counted from the hit of subgoal ``after``, from 0 if None.

    With ``until`` it ends one sample before the hit of that subgoal, whose latest time ``hi`` + one sample is.
    """

    predicate: Formula
    lo: float
    hi: float
    after: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class Plan:
    """Subgoals, each after the one that its window counts from, and invariants."""

    subgoals: tuple[Subgoal, ...] = ()
    invariants: tuple[Invariant, ...] = ()


def plan(decomposition: Decomposition) -> Plan:
    """The only alternative of ``decomposition`` as a plan, in seconds; a FormulaError if there is none such."""
    alternative = decomposition.single()
    holds: dict[int, Keep] = {}
    for keep in alternative.keeps:
        v = keep.start.variable
        if v and not keep.start.offset and keep.end.variable == v and not _reached(alternative, v):
            holds.setdefault(v, keep)
    subgoals = tuple(_subgoal(alternative, v, holds.get(v)) for v in range(1, alternative.variables + 1))
    kept = [k for k in alternative.keeps if k not in holds.values()]
    return Plan(subgoals, tuple(_invariant(alternative, k) for k in kept))


def _reached(alternative: Alternative, v: int) -> list[Formula]:
    return [r.predicate for r in alternative.reaches if r.variable == v]


def _subgoal(alternative: Alternative, v: int, hold: Keep | None) -> Subgoal:
    reached = _reached(alternative, v)
    if not reached and hold is None:
        raise NotSequential(f"t{v} is a time at which nothing must hold:\n{alternative}")
    predicate = all_of(reached) if hold is None else hold.predicate
    gap = _only_gap(alternative, v)
    dt = alternative.dt
    return Subgoal(v - 1, predicate, (seconds(gap.lo, dt), seconds(gap.hi, dt)), _index(gap.before),
                   0.0 if hold is None else seconds(hold.end.offset, dt))


def _only_gap(alternative: Alternative, v: int) -> Gap:
    """The constraint between ``v`` and the time that it counts from."""
    found = [g for g in alternative.gaps if v == max(g.before, g.after)]
    if not found:
        return Gap(0, v, 0, alternative.samples - 1)
    if len(found) > 1 or found[0].after != v or found[0].lo < 0:
        raise NotSequential(f"the time of t{v} is not a window after a single earlier time:\n{alternative}")
    return found[0]


def _index(variable: int) -> int | None:
    return variable - 1 if variable else None


def _invariant(alternative: Alternative, keep: Keep) -> Invariant:
    start, end, dt = keep.start, keep.end, alternative.dt
    lo, after = seconds(start.offset, dt), _index(start.variable)
    if end.variable == start.variable:
        return Invariant(keep.predicate, lo, seconds(end.offset, dt), after)
    if end.variable > start.variable and end.offset == -1:
        latest = int(alternative.bounds[start.variable, end.variable]) - 1
        return Invariant(keep.predicate, lo, seconds(latest, dt), after, _index(end.variable))
    raise NotSequential("an invariant ends neither a fixed time after it begins nor right before a hit: "
                        f"{keep.predicate} in\n{alternative}")
