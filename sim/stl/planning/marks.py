"""What is to be kept from some time on, and not from now on, is worth a time variable of its own: be there by then.

`decompose` needs none for ``G[17,20] p``: it keeps ``p`` on [17, 20]. Who follows the plan must be on its way before;
a variable at 17 with ``p`` to reach says so, and is satisfied by the same traces.
"""

from __future__ import annotations

from dataclasses import replace

from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, Point, Reach, bounds
from temporeal.sim.stl.planning.times import order


def marked(alternative: Alternative) -> Alternative:
    """``alternative`` with a variable where it begins to keep something later than a time that it has a variable for.

    The same traces satisfy it. Variables are numbered anew, so that none is always before one with a lower number.
    """
    later = [keep for keep in alternative.keeps if _is_later(alternative, keep)]
    begins = tuple(dict.fromkeys(keep.start for keep in later))
    if not begins:
        return alternative
    count = alternative.variables
    marks = {begin: count + k for k, begin in enumerate(begins, 1)}
    gaps = [*alternative.gaps, *(Gap(b.variable, mark, b.offset, b.offset) for b, mark in marks.items())]
    number = {0: 0, **{v: k for k, v in enumerate(order(bounds(count + len(marks), gaps, alternative.samples)), 1)}}

    def moved(point: Point, to_mark: bool) -> Point:
        mark = marks.get(point) if to_mark else None
        return Point(number[point.variable], point.offset) if mark is None else Point(number[mark])

    reaches = [Reach(r.predicate, number[r.variable]) for r in alternative.reaches]
    reaches += [Reach(keep.predicate, number[marks[keep.start]]) for keep in later]
    return replace(
        alternative, variables=count + len(marks), reaches=tuple(dict.fromkeys(reaches)),
        keeps=tuple(Keep(keep.predicate, moved(keep.start, keep in later), moved(keep.end, keep in later))
                    for keep in alternative.keeps),
        gaps=tuple(Gap(number[g.before], number[g.after], g.lo, g.hi) for g in gaps))


def is_sure(alternative: Alternative, keep: Keep) -> bool:
    """Whether there is always a sample at which ``keep`` asks for something, whatever the times are."""
    start, end = keep.start, keep.end
    return bool(end.offset - start.offset >= alternative.bounds[end.variable][start.variable])


def _is_later(alternative: Alternative, keep: Keep) -> bool:
    """Whether ``keep`` surely begins within the trace, at no variable and not right behind the same at one."""
    start = keep.start
    asked = [r.predicate for r in alternative.reaches if r.variable == start.variable]
    asked += [k.predicate for k in alternative.keeps if k.start == Point(start.variable)]
    goes_on = start.offset == 1 and keep.predicate in asked
    within = alternative.bounds[0][start.variable] + start.offset < alternative.samples
    return bool(start.offset > 0 and not goes_on and within and is_sure(alternative, keep))
