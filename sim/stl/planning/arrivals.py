"""Arrival times: a time variable, with its subgoal, for the start of every invariant that begins later.

`decompose` needs none for ``G[17,20] p``: it keeps ``p`` on [17, 20]. But whoever follows the plan must set out before;
a variable at 17 s at which ``p`` is to be reached makes that explicit, and the same traces satisfy it.
"""

from __future__ import annotations

from dataclasses import replace

from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, Point, Reach, bounds
from temporeal.sim.stl.planning.difference_constraints import order


def with_arrivals(alternative: Alternative) -> Alternative:
    """``alternative`` with a new variable, and a ``Reach``, wherever a ``Keep`` begins after the variable it refers to.

    The same traces satisfy it. Variables are renumbered, so that none is always before one with a lower number.
    """
    later = [keep for keep in alternative.keeps if _is_later(alternative, keep)]
    begins = tuple(dict.fromkeys(keep.start for keep in later))
    if not begins:
        return alternative
    count = alternative.variables
    arrival = {begin: count + k for k, begin in enumerate(begins, 1)}
    gaps = [*alternative.gaps, *(Gap(b.variable, v, b.offset, b.offset) for b, v in arrival.items())]
    number = {0: 0, **{v: k for k, v in enumerate(order(bounds(count + len(arrival), gaps, alternative.samples)), 1)}}

    def moved(point: Point, to_arrival: bool) -> Point:
        v = arrival.get(point) if to_arrival else None
        return Point(number[point.variable], point.offset) if v is None else Point(number[v])

    reaches = [Reach(r.predicate, number[r.variable]) for r in alternative.reaches]
    reaches += [Reach(keep.predicate, number[arrival[keep.start]]) for keep in later]
    return replace(
        alternative, variables=count + len(arrival), reaches=tuple(dict.fromkeys(reaches)),
        keeps=tuple(Keep(keep.predicate, moved(keep.start, keep in later), moved(keep.end, keep in later))
                    for keep in alternative.keeps),
        gaps=tuple(Gap(number[g.before], number[g.after], g.lo, g.hi) for g in gaps))


def never_empty(alternative: Alternative, keep: Keep) -> bool:
    """Whether the interval of ``keep`` has a sample whatever the times are."""
    start, end = keep.start, keep.end
    return bool(end.offset - start.offset >= alternative.bounds[end.variable][start.variable])


def _is_later(alternative: Alternative, keep: Keep) -> bool:
    """Whether ``keep`` always begins in the trace, after a variable at which its predicate is not yet required."""
    start = keep.start
    asked = [r.predicate for r in alternative.reaches if r.variable == start.variable]
    asked += [k.predicate for k in alternative.keeps if k.start == Point(start.variable)]
    goes_on = start.offset == 1 and keep.predicate in asked
    within = alternative.bounds[0][start.variable] + start.offset < alternative.samples
    return bool(start.offset > 0 and not goes_on and within and never_empty(alternative, keep))
