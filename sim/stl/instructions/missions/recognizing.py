"""A formula as the mission whose formula it is.

The formula's text names its places, as :mod:`writing` does: ``at_red = norm(base_pos_w - red) < red_r;``. Order of
conjuncts and spaces are free; any other difference is a formula that no sentence makes, and the part is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.missions.meaning import (
    ANY_ORDER,
    LEAVE,
    OR,
    OVER,
    Ban,
    Clause,
    Guard,
    Leg,
    Mission,
    MissionError,
    Place,
    Recurrence,
    Response,
    Route,
    Visit,
    answer_s,
    mission,
    total,
)
from temporeal.sim.stl.itineraries.regions import region
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse_specification
from temporeal.sim.stl.language.propositional import And, Formula, Implies, Not, Or, Predicate, to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.temporal import Always, Eventually, Once, Until, WeakUntil, Window, WindowedUnary

LONGEST = 200
PREFIXES = {"at_": "enter", "over_": OVER}


def mission_of(text: str, constants: Mapping[str, Any], schema: Mapping[str, SignalSpec]) -> Mission:
    """The mission whose formula ``text`` is; a :class:`MissionError` names the part that no sentence says."""
    try:
        named = parse_specification(text, schema, constants)
        *names, last = named
        found = _Recognized({formula: _place(name, formula) for name, formula in
                             ((name, named[name]) for name in names)}, total(horizon(named[last])))
    except FormulaError as error:
        raise MissionError(str(error)) from error
    return found.mission(named[last])


def _place(name: str, formula: Formula) -> Place:
    """The place that a named predicate is inside of."""
    prefix = next((p for p in PREFIXES if name.startswith(p) and len(name) > len(p)), None)
    if prefix is None or not isinstance(formula, Predicate) or not region(formula).inside:
        raise MissionError(f"{name} = {_shown(formula)}: a name is that of a place, as at_red = norm(base_pos_w - "
                           "red) < red_r, or over_table")
    return Place(name.removeprefix(prefix), PREFIXES[prefix])


def _shown(formula: Formula) -> str:
    text = to_text(formula)
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _not_said(formula: Formula, why: str = "") -> MissionError:
    return MissionError(f"no mission in words has this part: {_shown(formula)}{f' ({why})' if why else ''}")


def _parts(formula: Formula) -> tuple[Formula, ...]:
    return formula.args if isinstance(formula, And) else (formula,)


@dataclass(frozen=True)
class _Way:
    """``F[low,high]`` of a visit, of others before it, and of the legs after it."""

    low: float
    high: float
    visit: Visit
    before: tuple[Visit, ...]
    after: tuple[Leg, ...]


class _Recognized:
    """``places`` by their predicates; ``end``: the formula's horizon, s."""

    def __init__(self, places: Mapping[Formula, Place], end: float) -> None:
        self.places, self.end = places, end

    def mission(self, formula: Formula) -> Mission:
        return mission([self.clause(part) for part in _parts(formula)], self.end)

    def clause(self, f: Formula) -> Clause:
        match f:
            case Always(Implies(left, right), window):
                return self.response(f, left, right, window)
            case Always(Eventually(arg, inner), window) if window.lo == inner.lo == 0:
                return Recurrence(self.visited(arg), inner.hi, total(window.hi, inner.hi))
            case Always(arg, window):
                return Ban(self.banned(arg), (window.lo, window.hi))
            case Until(left, right, window) if window.lo == 0:
                return Guard(self.banned(left), self.visited(right), window.hi)
            case WeakUntil(left, right, window) if window == Window(0.0, self.end):
                return Guard(self.banned(left), self.visited(right))
            case Eventually() | Or():
                return Route(self.legs([f], 0.0, f))
        raise _not_said(f)

    def response(self, f: Formula, left: Formula, right: Formula, window: Window) -> Clause:
        if isinstance(right, Eventually) and right.window.lo == window.lo == 0:
            found = Response(self.visited(left), self.visit(right.arg), right.window.hi)
            if total(window.hi, answer_s(found)) == self.end:
                return found
        raise _not_said(f, f"an answer is asked for until the end of the mission, {self.end:g} s")

    # ------------------------------------------------ places

    def place(self, f: Formula) -> Place:
        if f not in self.places:
            raise _not_said(f, "no place with a name")
        return self.places[f]

    def visited(self, f: Formula) -> str:
        found = self.place(f)
        if found.what == OVER:
            raise _not_said(f, "to be over a place is forbidden only, and never asked for")
        return found.name

    def banned(self, f: Formula) -> tuple[Place, ...]:
        return tuple(self.place(part.arg) if isinstance(part, Not) else Place(self.visited(part), LEAVE)
                     for part in _parts(f))

    def visit(self, f: Formula) -> Visit:
        if isinstance(f, Always) and f.window.lo == 0 and f.window.hi > 0:
            return Visit(self.visited(f.arg), f.window.hi)
        return Visit(self.visited(f))

    # ------------------------------------------------ sequences

    def legs(self, parts: Sequence[Formula], shift: float, f: Formula) -> tuple[Leg, ...]:
        """The legs of ``parts``, counted from ``shift`` s on: one sequence, the last one in any order, or a choice."""
        if len(parts) == 1 and isinstance(parts[0], Or):
            return self.choice([self.way(each, shift) for each in parts[0].args], f)
        ways = [self.way(each, shift) for each in parts]
        if len(ways) == 1:
            (way,) = ways
            if way.before:
                raise _not_said(f)
            return (Leg((way.visit,), way.low, way.high), *way.after)
        first = ways[0]
        if any(way.after or way.before or (way.low, way.high) != (first.low, first.high) for way in ways):
            raise _not_said(f, "places in any order have one time, and nothing after one of them alone")
        return (Leg(tuple(way.visit for way in ways), first.low, first.high, ANY_ORDER),)

    def choice(self, ways: Sequence[_Way], f: Formula) -> tuple[Leg, ...]:
        """A leg of one of several places, or of all of them with whichever is the last."""
        first = ways[0]
        if any((way.low, way.high, way.after) != (first.low, first.high, first.after) for way in ways):
            raise _not_said(f, "places to choose from have one time, and the same after each of them")
        visits = tuple(way.visit for way in ways)
        how = ANY_ORDER if first.before else OR
        others = [tuple(other for other in visits if other != way.visit) if how == ANY_ORDER else () for way in ways]
        if len(set(visits)) != len(visits) or any(set(way.before) != set(rest) or len(way.before) != len(rest)
                                                  for way, rest in zip(ways, others, strict=True)):
            raise _not_said(f)
        return (Leg(visits, first.low, first.high, how), *first.after)

    def way(self, f: Formula, shift: float) -> _Way:
        if not isinstance(f, Eventually):
            raise _not_said(f)
        low, high = total(f.window.lo, -shift), total(f.window.hi, -shift)
        if low < 0:
            raise _not_said(f, f"it is counted from the end of a stay of {shift:g} s")
        parts = _parts(f.arg)
        before = [part for part in parts if isinstance(part, Once)]
        later = [part for part in parts if isinstance(part, (Eventually, Or))]
        now = [part for part in parts if part not in before and part not in later]
        if len(now) != 1:
            raise _not_said(f, "a robot goes to one place at a time")
        visit = self.visit(now[0])
        after = self.legs(later, visit.stay, f) if later else ()
        return _Way(low, high, visit, tuple(self.earlier(part, high) for part in before), after)

    def earlier(self, f: WindowedUnary, high: float) -> Visit:
        found = self.visit(f.arg)
        if (f.window.lo, f.window.hi) != (found.stay, high):
            raise _not_said(f)
        return found
