"""Fewer variables, subgoals, invariants and alternatives that are worth the same on every trace. numpy only.

Each step removes what cannot decide: see "Simplification" in docs/explanation/stl-decomposition.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from temporeal.sim.stl.language.propositional import And, Formula, Or
from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, Point, Reach, later
from temporeal.sim.stl.planning.times import UNBOUNDED, Ints, closure, needed, order


@dataclass(frozen=True)
class System:
    """Variables by their numbers in the tree, the closure [n+1, n+1] of their constraints, and what is asked for.

    The points of ``keeps`` count in positions of ``names`` (0: the start of the trace).
    """

    names: tuple[int, ...]
    bounds: Ints
    keeps: tuple[Keep, ...]

    @cached_property
    def predicates(self) -> frozenset[Formula]:
        """Everything that is asked for somewhere."""
        return frozenset(k.predicate for k in self.keeps)


Clashes = Mapping[Formula, Collection[Formula]]
"""For each state those that exclude it: never do both hold by more than 0 at one sample."""

PLACEMENTS = 200
"""How many partial placements of one alternative's times on another's are tried."""
ALL_PLACEMENTS = 1_000_000
"""How many are tried for all pairs of alternatives together."""


def simplified(
    constraints: Sequence[Gap | Keep], variables: int, samples: int, clashes: Clashes = MappingProxyType({})
) -> System | None:
    """Equal for every trace and as small as the rules make it; None where no times satisfy the constraints, or where
    at any times two states that exclude each other (``clashes``) are asked for at one sample."""
    gaps = [c for c in constraints if isinstance(c, Gap)]
    keeps = [c for c in constraints if isinstance(c, Keep)]
    used = {v for g in gaps for v in (g.before, g.after)} | {p.variable for k in keeps for p in (k.start, k.end)}
    names = (0, *sorted(used - {0}))
    place = {name: i for i, name in enumerate(names)}
    edges = [(place[g.before], place[g.after], g.hi) for g in gaps if g.hi < UNBOUNDED]
    edges += [(place[g.after], place[g.before], -g.lo) for g in gaps if g.lo > -UNBOUNDED]
    edges += [e for v in range(1, len(names)) for e in ((0, v, samples - 1), (v, 0, 0))]
    bounds = closure(len(names) - 1, edges)
    if bounds is None:
        return None
    system = _without_fixed(System(names, bounds, tuple(_renamed(k, place) for k in keeps)))
    present = _present(system, samples)
    if _clash(present, system.bounds, samples, clashes):
        return None
    system = replace(system, keeps=_merged(_uncovered(present, system.bounds), system.bounds))
    return _compact(_without_repeated(system))


def _renamed(keep: Keep, place: dict[int, int]) -> Keep:
    start, end = keep.start, keep.end
    return Keep(keep.predicate, Point(place[start.variable], start.offset), Point(place[end.variable], end.offset))


def _without_fixed(system: System) -> System:
    """Times at a fixed distance from another one are written as that one with an offset."""
    d = system.bounds
    fixed = d + d.T == 0
    root = fixed.argmax(1)  # the first of each class, itself for most
    to = {int(i): Point(int(root[i]), int(d[root[i], i])) for i in range(len(d))}

    def moved(point: Point) -> Point:
        return later(to[point.variable], point.offset)

    return replace(system, keeps=tuple(Keep(k.predicate, moved(k.start), moved(k.end)) for k in system.keeps))


def _present(system: System, samples: int) -> tuple[Keep, ...]:
    """Each once, without those that are always empty or off the trace; what always reaches beyond it ends with it."""
    d, out = system.bounds, dict[Keep, None]()
    for keep in system.keeps:
        start, end = keep.start, keep.end
        if d[0, start.variable] + start.offset <= 0:
            start = Point(0)
        if end.offset - d[end.variable, 0] >= samples - 1:
            end = Point(0, samples - 1)
        empty = d[start.variable, end.variable] + end.offset - start.offset < 0
        off = start.offset - d[start.variable, 0] >= samples or d[0, end.variable] + end.offset < 0
        if not empty and not off:
            out[Keep(keep.predicate, start, end)] = None
    return tuple(out)


def _clash(keeps: Sequence[Keep], d: Ints, samples: int, clashes: Clashes) -> bool:
    """Whether two of ``keeps`` whose states exclude each other share a sample of the trace, whatever the times are."""
    return any(two.predicate in clashes[one.predicate] and _meet(one, two, d, samples)
               for one in keeps if one.predicate in clashes for two in keeps)


def _meet(one: Keep, two: Keep, d: Ints, samples: int) -> bool:
    """Whether ``one`` and ``two`` always share a sample of the trace: none of them, nor it, ends before one begins."""
    starts, ends = (one.start, two.start, Point(0)), (one.end, two.end, Point(0, samples - 1))
    return all(_never_later(d, start, end) for start in starts for end in ends)


def entails(more: Formula, less: Formula) -> bool:
    """Whether the margin of ``more`` is never above that of ``less``: each part of ``less`` is one of ``more``, or a
    disjunction in which there is nothing missing of one of its parts."""
    if more == less:
        return True
    have = [_options(part) for part in (more.args if isinstance(more, And) else (more,))]
    return all(any(options <= wanted for options in have)
               for wanted in map(_options, less.args if isinstance(less, And) else (less,)))


def _options(part: Formula) -> frozenset[Formula]:
    return frozenset(part.args if isinstance(part, Or) else (part,))


def _never_later(d: Ints, first: Point, second: Point) -> bool:
    """Whether ``first`` is never later than ``second``."""
    return bool(d[second.variable, first.variable] + first.offset - second.offset <= 0)


def _covers(d: Ints, more: Keep, less: Keep) -> bool:
    """Whether ``more`` keeps at least what ``less`` does, over at least its interval."""
    return (_never_later(d, more.start, less.start) and _never_later(d, less.end, more.end)
            and entails(more.predicate, less.predicate))


def _uncovered(keeps: Sequence[Keep], d: Ints) -> tuple[Keep, ...]:
    """Without those that another one covers; of two that cover each other the first stays."""
    left = list(keeps)
    for keep in keeps[::-1]:
        if any(other is not keep and _covers(d, other, keep) for other in left):
            left.remove(keep)
    return tuple(left)


def _merged(keeps: Sequence[Keep], d: Ints) -> tuple[Keep, ...]:
    """Intervals that always touch or overlap, with the same predicate, as one.

    Only where that connects no two variables that none of them does: `grounding.best` relies on few connections.
    """
    out: list[Keep] = []
    for keep in keeps:
        place = 0
        while place < len(out):
            one = _union(out[place], keep, d) or _union(keep, out[place], d)
            if one is None:
                place += 1
            else:
                del out[place]
                keep, place = one, 0
        out.append(keep)
    return tuple(out)


def _union(first: Keep, second: Keep, d: Ints) -> Keep | None:
    """Both as one, if ``second`` always begins and ends no earlier, and no later than right behind ``first``.

    Then the union is from the beginning of the first to the end of the second, also where one of them is empty.
    """
    if first.predicate != second.predicate or not (
            _never_later(d, first.start, second.start) and _never_later(d, first.end, second.end)
            and _never_later(d, second.start, later(first.end, 1))):
        return None
    ends = {first.start.variable, second.end.variable} - {0}
    if len(ends) == 2 and ends not in ({k.start.variable, k.end.variable} for k in (first, second)):
        return None
    return Keep(first.predicate, first.start, second.end)


def _without_repeated(system: System) -> System:
    """Without subgoals that are also reached when another interval begins or ends, at a time that they may take."""
    d, keeps = system.bounds, list(system.keeps)
    uses: dict[int, int] = {}
    for keep in keeps:
        for variable in {keep.start.variable, keep.end.variable}:
            uses[variable] = uses.get(variable, 0) + 1
    for keep in keeps[::-1]:
        v = keep.start.variable
        if keep.start != keep.end or not v or keep.start.offset or uses[v] > 1:
            continue
        if any(_replaces(d, other, keep, v) for other in keeps if other is not keep):
            keeps.remove(keep)
    return replace(system, keeps=tuple(keeps))


def _replaces(d: Ints, other: Keep, keep: Keep, v: int) -> bool:
    """Whether time ``v``, where ``keep`` is all that is asked for, could always be where ``other`` begins or ends."""
    if v in (other.start.variable, other.end.variable) or not entails(other.predicate, keep.predicate):
        return False
    if not _never_later(d, other.start, other.end):
        return False
    ends = other.start, other.end
    if all(d[0, x.variable] + x.offset > d[0, v] for x in ends):
        return False  # the check of one row, as most fail it
    others = np.arange(len(d)) != v
    return any(
        bool(((d[:, x.variable] + x.offset <= d[:, v]) & (d[x.variable] - x.offset <= d[v]))[others].all())
        for x in ends)


def _compact(system: System) -> System:
    """Without the variables that nothing is asked for at; what they imply for the others is in the closure."""
    used = {p.variable for k in system.keeps for p in (k.start, k.end)}
    kept = [0, *sorted(used - {0})]
    place = {v: i for i, v in enumerate(kept)}
    return System(tuple(system.names[v] for v in kept), system.bounds[np.ix_(kept, kept)],
                   tuple(_renamed(k, place) for k in system.keeps))


def undominated(systems: Sequence[System]) -> list[System]:
    """Without those that ask for everything that another one does; of two that do so mutually the first stays.

    After :data:`ALL_PLACEMENTS` trials the rest stays as it is: that only leaves alternatives that decide nothing.
    """
    place, entailing = _entailing({p: None for system in systems for p in system.predicates})
    asked = [sum(1 << place[p] for p in system.predicates) for system in systems]
    wanted = [[entailing[place[p]] for p in system.predicates] for system in systems]
    # those that ask for least remove most
    left = sorted(range(len(systems)), key=lambda k: len(systems[k].names) + len(systems[k].keeps))
    trials = ALL_PLACEMENTS
    for i in reversed(range(len(systems))):
        for j in left:
            if j == i or not all(one & asked[i] for one in wanted[j]):
                continue
            found, tried = _dominates(systems[j], systems[i], min(PLACEMENTS, trials))
            trials -= tried
            if found:
                left.remove(i)
                break
        if not trials:
            break
    return [systems[i] for i in sorted(left)]


def _entailing(predicates: Iterable[Formula]) -> tuple[dict[Formula, int], list[int]]:
    """The place of each predicate, and in order the set, as bits, of the places of those that entail it."""
    place = {p: k for k, p in enumerate(predicates)}
    parts = [{option for part in (p.args if isinstance(p, And) else (p,)) for option in _options(part)} for p in place]
    having: dict[Formula, set[int]] = {}
    for k, options in enumerate(parts):
        for option in options:
            having.setdefault(option, set()).add(k)
    known = list(place)
    return place, [
        sum(1 << k for k in set().union(*(having[option] for option in parts[at])) if entails(known[k], less))
        for less, at in place.items()]


def _dominates(weak: System, strong: System, limit: int) -> tuple[bool, int]:
    """Whether the times of ``weak`` can be put on those of ``strong`` so that it asks for nothing more there.

    Each grounding of ``strong`` is then worth no more than one of ``weak``. The search gives up after ``limit`` trials.
    Also how many were made.
    """
    d, trials = strong.bounds, 0
    points = dict.fromkeys([*(Point(v) for v in range(1, len(strong.names))),
                            *(point for k in strong.keeps for point in (k.start, k.end))])

    def apart(i: Point, j: Point) -> int:
        return int(d[i.variable, j.variable]) + j.offset - i.offset

    def fits(at: list[Point]) -> bool:
        v = len(at) - 1
        if any(apart(at[i], at[v]) > weak.bounds[i, v] or apart(at[v], at[i]) > weak.bounds[v, i] for i in range(v)):
            return False
        moved = [Keep(k.predicate, later(at[k.start.variable], k.start.offset), later(at[k.end.variable], k.end.offset))
                 for k in weak.keeps if max(k.start.variable, k.end.variable) == v]
        return all(any(_covers(d, have, k) for have in strong.keeps) for k in moved)

    def placed(at: list[Point]) -> bool:
        nonlocal trials
        if trials >= limit:
            return False
        trials += 1
        if not fits(at):
            return False
        return len(at) == len(weak.names) or any(placed([*at, point]) for point in points)

    return placed([Point(0)]), trials


def finished(system: System, samples: int, dt: float) -> Alternative:
    """The system with subgoals apart from invariants, and the fewest constraints."""
    system = _ordered(_begun(system, samples))
    reaches = [Reach(k.predicate, k.start.variable) for k in system.keeps if _is_reach(k)]
    return Alternative(
        len(system.names) - 1, tuple(sorted(reaches, key=lambda r: r.variable)),
        tuple(k for k in system.keeps if not _is_reach(k)), _gaps(system.bounds, samples), samples, dt)


def _ordered(system: System) -> System:
    """Numbered so that no time is always before one with a lower number."""
    new = [0, *order(system.bounds)]
    place = {v: i for i, v in enumerate(new)}
    return System(tuple(system.names[v] for v in new), system.bounds[np.ix_(new, new)],
                  tuple(_renamed(k, place) for k in system.keeps))


def _is_reach(keep: Keep) -> bool:
    return keep.start == keep.end and keep.start.variable > 0 and keep.start.offset == 0


def _begun(system: System, samples: int) -> System:
    """A variable that only begins intervals, or holds both ends, counts from the earliest beginning."""
    d, shift = system.bounds.copy(), {}
    for v in range(1, len(d)):
        begins = [k.start.offset for k in system.keeps if k.start.variable == v]
        ends_only = any(k.end.variable == v != k.start.variable for k in system.keeps)
        by = min(begins, default=0)
        if not ends_only and -d[v, 0] + by >= 0 and d[0, v] + by < samples:
            shift[v] = by
    for v, by in shift.items():
        d[v, :] -= by
        d[:, v] += by
        d[v, v] = 0

    def moved(point: Point) -> Point:
        return later(point, -shift.get(point.variable, 0))

    return replace(system, bounds=d, keeps=tuple(
        Keep(k.predicate, moved(k.start), moved(k.end)) for k in system.keeps))


def _gaps(d: Ints, samples: int) -> tuple[Gap, ...]:
    """The fewest constraints that have the closure ``d``, where times lie on the trace anyway."""
    need = needed(d)
    need[0, d[0] >= samples - 1] = False
    need[d[:, 0] >= 0, 0] = False
    out = []
    for after in range(1, len(d)):
        for before in range(after):
            if need[before, after] or need[after, before]:
                lo, hi = -int(d[after, before]), int(d[before, after])
                out.append(Gap(after, before, -hi, -lo) if before and hi <= 0 else Gap(before, after, lo, hi))
    return tuple(out)
