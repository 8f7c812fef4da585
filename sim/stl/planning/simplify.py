"""Fewer variables, subgoals, invariants and alternatives with the same value on every trace. numpy only.

Each step removes what can never decide: see "Simplification" in docs/explanation/stl-decomposition.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from temporeal.sim.stl.language.propositional import And, Formula
from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, Point, Reach, later
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED, Ints, closure, needed, order
from temporeal.sim.stl.rewriting.entailment import entails, options


@dataclass(frozen=True)
class System:
    """One combination: variables by their numbers in the tree, the closure [n+1, n+1] of their constraints, and keeps.

    The variables in ``keeps`` are positions in ``names``; 0 is the start of the trace.
    """

    names: tuple[int, ...]
    bounds: Ints
    keeps: tuple[Keep, ...]

    @cached_property
    def predicates(self) -> frozenset[Formula]:
        """All required states."""
        return frozenset(k.predicate for k in self.keeps)


Clashes = Mapping[Formula, Collection[Formula]]
"""For each state those that exclude it (`satisfiability.mutually_exclusive`)."""

PLACEMENTS = 200
"""Partial placements of one alternative's times on another's that are tried at most."""
ALL_PLACEMENTS = 1_000_000
"""The same for all pairs of alternatives together."""


def simplified(
    constraints: Sequence[Gap | Keep], variables: int, samples: int, clashes: Clashes = MappingProxyType({})
) -> System | None:
    """An equivalent system, as small as the rules make it.

    None if no times satisfy the constraints, or if two states that exclude each other (``clashes``) are always required
    at one sample.
    """
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
    """Replaces times at a fixed distance from another one by that one with an offset."""
    d = system.bounds
    fixed = d + d.T == 0
    root = fixed.argmax(1)  # the first of each class, itself for most
    to = {int(i): Point(int(root[i]), int(d[root[i], i])) for i in range(len(d))}

    def moved(point: Point) -> Point:
        return later(to[point.variable], point.offset)

    return replace(system, keeps=tuple(Keep(k.predicate, moved(k.start), moved(k.end)) for k in system.keeps))


def _present(system: System, samples: int) -> tuple[Keep, ...]:
    """Each keep once, none that is always empty or off the trace; those that always reach beyond it end with it."""
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
    """Whether two of ``keeps`` whose states exclude each other share a sample of the trace, whatever the times."""
    return any(two.predicate in clashes[one.predicate] and _meet(one, two, d, samples)
               for one in keeps if one.predicate in clashes for two in keeps)


def _meet(one: Keep, two: Keep, d: Ints, samples: int) -> bool:
    """Whether ``one`` and ``two`` always share a sample of the trace: no two of the three intervals can be apart."""
    starts, ends = (one.start, two.start, Point(0)), (one.end, two.end, Point(0, samples - 1))
    return all(_never_later(d, start, end) for start in starts for end in ends)


def _never_later(d: Ints, first: Point, second: Point) -> bool:
    """Whether ``first`` is never later than ``second``."""
    return bool(d[second.variable, first.variable] + first.offset - second.offset <= 0)


def _covers(d: Ints, more: Keep, less: Keep) -> bool:
    """Whether ``more`` requires at least what ``less`` does, over at least its interval."""
    return (_never_later(d, more.start, less.start) and _never_later(d, less.end, more.end)
            and entails(more.predicate, less.predicate))


def _uncovered(keeps: Sequence[Keep], d: Ints) -> tuple[Keep, ...]:
    """Removes those that another one covers; of two that cover each other the first stays."""
    left = list(keeps)
    for keep in keeps[::-1]:
        if any(other is not keep and _covers(d, other, keep) for other in left):
            left.remove(keep)
    return tuple(left)


def _merged(keeps: Sequence[Keep], d: Ints) -> tuple[Keep, ...]:
    """Joins intervals with the same predicate that always touch or overlap.

    Not where that would newly connect two variables: `grounding.best` relies on few connections.
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
    """Their union, if ``second`` never begins or ends before ``first`` and begins at most right after its end.

    The union goes from the beginning of the first to the end of the second, also if one of them is empty.
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
    """Removes subgoals that are also reached when another interval begins or ends, at a time that they may take."""
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
    """Whether time ``v``, at which only ``keep`` is required, can always be where ``other`` begins or ends."""
    if v in (other.start.variable, other.end.variable) or not entails(other.predicate, keep.predicate):
        return False
    if not _never_later(d, other.start, other.end):
        return False
    ends = other.start, other.end
    if all(d[0, x.variable] + x.offset > d[0, v] for x in ends):
        return False  # a cheap first check, which most fail
    others = np.arange(len(d)) != v
    return any(
        bool(((d[:, x.variable] + x.offset <= d[:, v]) & (d[x.variable] - x.offset <= d[v]))[others].all())
        for x in ends)


def _compact(system: System) -> System:
    """Removes variables at which nothing is required; what they imply for others is in the closure."""
    used = {p.variable for k in system.keeps for p in (k.start, k.end)}
    kept = [0, *sorted(used - {0})]
    place = {v: i for i, v in enumerate(kept)}
    return System(tuple(system.names[v] for v in kept), system.bounds[np.ix_(kept, kept)],
                   tuple(_renamed(k, place) for k in system.keeps))


def undominated(systems: Sequence[System]) -> list[System]:
    """Removes systems that require everything that another one does; of two that do so mutually the first stays.

    After :data:`ALL_PLACEMENTS` attempts the rest stays: what is left over never decides.
    """
    place, entailing = _entailing({p: None for system in systems for p in system.predicates})
    asked = [sum(1 << place[p] for p in system.predicates) for system in systems]
    wanted = [[entailing[place[p]] for p in system.predicates] for system in systems]
    # those that require least remove most
    left = sorted(range(len(systems)), key=lambda k: len(systems[k].names) + len(systems[k].keeps))
    left_to_try = ALL_PLACEMENTS
    for i in reversed(range(len(systems))):
        for j in left:
            if j == i or not all(one & asked[i] for one in wanted[j]):
                continue
            found, tried = _dominates(systems[j], systems[i], min(PLACEMENTS, left_to_try))
            left_to_try -= tried
            if found:
                left.remove(i)
                break
        if not left_to_try:
            break
    return [systems[i] for i in sorted(left)]


def _entailing(predicates: Iterable[Formula]) -> tuple[dict[Formula, int], list[int]]:
    """The index of each predicate, and for each, as bits, the indices of those that entail it."""
    place = {p: k for k, p in enumerate(predicates)}
    parts = [{option for part in (p.args if isinstance(p, And) else (p,)) for option in options(part)} for p in place]
    having: dict[Formula, set[int]] = {}
    for k, disjuncts in enumerate(parts):
        for option in disjuncts:
            having.setdefault(option, set()).add(k)
    known = list(place)
    return place, [
        sum(1 << k for k in set().union(*(having[option] for option in parts[at])) if entails(known[k], less))
        for less, at in place.items()]


def _dominates(weak: System, strong: System, limit: int) -> tuple[bool, int]:
    """Whether the times of ``weak`` can be placed on those of ``strong`` so that it requires nothing more there.

    Each grounding of ``strong`` is then worth no more than one of ``weak``. The search gives up after ``limit``
    attempts; their number is returned too.
    """
    d, attempts = strong.bounds, 0
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
        nonlocal attempts
        if attempts >= limit:
            return False
        attempts += 1
        if not fits(at):
            return False
        return len(at) == len(weak.names) or any(placed([*at, point]) for point in points)

    return placed([Point(0)]), attempts


def finished(system: System, samples: int, dt: float) -> Alternative:
    """The system as an alternative: subgoals and invariants apart, and the fewest constraints."""
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
    """Shifts a variable that only begins intervals, or has both ends of them, to the earliest beginning."""
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
    """The fewest constraints with the closure ``d``, given that times lie on the trace."""
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
