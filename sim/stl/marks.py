"""What is to be kept from some time on, and not from now on, is worth a time variable of its own: be there by then.

`decompose` needs none for ``G[17,20] p``: it keeps ``p`` on [17, 20]. Who follows the plan must be on its way before;
a variable at 17 with ``p`` to reach says so, and is satisfied by the same traces.
"""

from __future__ import annotations

from dataclasses import replace

from sim.stl.alternative import Alternative, Gap, Keep, Point, Reach


def marked(alternative: Alternative) -> Alternative:
    """``alternative`` with a variable where it begins to keep something later than a time that it has a variable for.

    The same traces satisfy it. Variables are numbered anew, so that none is always before one with a lower number.
    """
    begins = tuple(dict.fromkeys(keep.start for keep in alternative.keeps if _is_later(alternative, keep)))
    if not begins:
        return alternative
    order: list[int | Point] = list(range(1, alternative.variables + 1))
    for begin in begins:
        order.insert(_place(alternative, order, begin), begin)
    number: dict[int | Point, int] = {0: 0, **{what: k for k, what in enumerate(order, 1)}}

    def moved(point: Point) -> Point:
        return Point(number[point], 0) if point in begins else Point(number[point.variable], point.offset)

    reaches = [replace(r, variable=number[r.variable]) for r in alternative.reaches]
    reaches += [Reach(keep.predicate, number[keep.start]) for keep in alternative.keeps if keep.start in begins]
    gaps = [Gap(number[g.before], number[g.after], g.lo, g.hi) for g in alternative.gaps]
    gaps += [Gap(number[b.variable], number[b], b.offset, b.offset) for b in begins]
    keeps = (Keep(keep.predicate, moved(keep.start), keep.end if not keep.end.variable else moved(keep.end))
             for keep in alternative.keeps)
    return replace(alternative, variables=len(order), reaches=tuple(dict.fromkeys(reaches)), keeps=tuple(keeps),
                   gaps=tuple(gaps))


def _is_later(alternative: Alternative, keep: Keep) -> bool:
    """Whether ``keep`` surely begins within the trace, at no variable and not right behind the same at one."""
    d, start, end = alternative.bounds, keep.start, keep.end
    asked = [r.predicate for r in alternative.reaches if r.variable == start.variable]
    asked += [k.predicate for k in alternative.keeps if k.start == Point(start.variable)]
    goes_on = start.offset == 1 and keep.predicate in asked
    within = d[0][start.variable] + start.offset < alternative.samples
    lasts = end.offset - start.offset >= d[end.variable][start.variable]
    return bool(start.offset > 0 and not goes_on and within and lasts)


def _place(alternative: Alternative, order: list[int | Point], begin: Point) -> int:
    """Behind the last of ``order`` that is never after ``begin``."""
    def never_after(what: int | Point) -> bool:
        point = Point(what) if isinstance(what, int) else what
        return int(alternative.bounds[begin.variable][point.variable]) + point.offset <= begin.offset

    return max((k for k, what in enumerate(order, 1) if never_after(what)), default=0)
