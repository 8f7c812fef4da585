"""A mission as a formula.

| says | formula |
|---|---|
| visit a within 10 s, then b within 5 s | `F[0,10] (at_a & F[0,5] at_b)` |
| stay at a for 2 s, then ... within 5 s | `F[0,30] (G[0,2] at_a & F[2,7] ...)`: counted from the end of the stay |
| a and b in any order | `F[0,10] at_a & F[0,10] at_b` |
| a and b in any order, then c | `F[0,10] (at_b & O[0,10] at_a & F[0,5] at_c)`, or so with a last (`O`: once before) |
| a or b, then c | `F[0,10] (at_a & F[0,5] at_c)`, or `F[0,10] (at_b & F[0,5] at_c)` |
| never b before a | `!at_b W[0,end] at_a`; with a time for a: `!at_b U[0,10] at_a` |
| whenever at a, be at b within 5 s | `G[0,end-5] (at_a -> F[0,5] at_b)` |
| be at a every 10 s | `G[0,end-10] F[0,10] at_a` |
| never over a, never leave b | `G[0,end] (!over_a & at_b)` |
"""

from __future__ import annotations

from typing import Any

from temporeal.sim.stl.instructions.missions.meaning import (
    ANY_ORDER,
    OR,
    Ban,
    Clause,
    Guard,
    Leg,
    Mission,
    Place,
    Recurrence,
    Response,
    Route,
    Visit,
    answer_s,
    mission,
    total,
)
from temporeal.sim.stl.instructions.missions.places import (
    Places,
    constants,
    footprint,
    label,
    literal,
    predicate,
    seconds,
)


def formula_text(said: Mission, where: Places) -> str:
    """The formula of a mission over the signals of ``where``."""
    clauses = grounded(said, where).clauses
    names = dict.fromkeys(place for clause in clauses for place in _asked(clause))
    lines = [f"{label(place)} = {predicate(place, where)};" for place in names]
    return "\n".join([*lines, "\n& ".join(_clause(clause, said.end, alone=len(clauses) == 1) for clause in clauses)])


def formula_constants(said: Mission, where: Places) -> dict[str, Any]:
    """The numbers of the formula by name."""
    names = dict.fromkeys(place.name for clause in said.clauses for place in _asked(clause))
    return {key: value for name in names for key, value in constants(name, where.shapes[name]).items()}


def grounded(said: Mission, where: Places) -> Mission:
    """``said``, and to be over a place without an upper end is to be in it. Unknown places are refused."""
    where.require(place.name for clause in said.clauses for place in _asked(clause))

    def ground(places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple(dict.fromkeys(footprint(place, where.shapes[place.name]) for place in places))

    made: list[Clause] = []
    for clause in said.clauses:
        match clause:
            case Ban(places, window):
                made.append(Ban(ground(places), window))
            case Guard(closed, key, high):
                made.append(Guard(ground(closed), key, high))
            case _:
                made.append(clause)
    return mission(made, said.end)


def _asked(clause: Clause) -> list[Place]:
    """The places of a clause, as it asks for them."""
    match clause:
        case Route(legs):
            return [Place(visit.place) for leg in legs for visit in leg.visits]
        case Guard(closed, key):
            return [*(_label(place) for place in closed), Place(key)]
        case Response(trigger, answer):
            return [Place(trigger), Place(answer.place)]
        case Recurrence(place):
            return [Place(place)]
        case Ban(places):
            return [_label(place) for place in places]
    raise TypeError(f"no clause: {clause!r}")


def _label(place: Place) -> Place:
    """As its predicate: not to leave a place is to be in it."""
    return place if label(place).startswith("over") else Place(place.name)


def _clause(clause: Clause, end: float, alone: bool) -> str:
    match clause:
        case Route(legs):
            text = _legs(legs, 0.0)
            return text if alone or legs[0].how != OR and " | " not in _outer(text) else f"({text})"
        case Guard(closed, key, high):
            text = f"{_all([literal(place) for place in closed])} {'W' if high is None else 'U'}" \
                   f"[0,{seconds(end if high is None else high)}] {label(Place(key))}"
            return text if alone else f"({text})"
        case Response(trigger, answer, high):
            asked = f"{label(Place(trigger))} -> F[0,{seconds(high)}] {_visit(answer)}"
            return f"G[0,{seconds(total(end, -answer_s(clause)))}] ({asked})"
        case Recurrence(place, every, until):
            last = total(end if until is None else until, -every)
            return f"G[0,{seconds(last)}] F[0,{seconds(every)}] {label(Place(place))}"
        case Ban(places, window):
            low, high = window or (0.0, end)
            return f"G[{seconds(low)},{seconds(high)}] {_all([literal(place) for place in places])}"
    raise TypeError(f"no clause: {clause!r}")


def _outer(text: str) -> str:
    """``text`` without what is in brackets."""
    out, depth = "", 0
    for character in text:
        depth += (character == "(") - (character == ")")
        out += character if not depth else ""
    return out


def _all(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' & '.join(parts)})"


def _visit(visit: Visit) -> str:
    return f"G[0,{seconds(visit.stay)}] {label(Place(visit.place))}" if visit.stay else label(Place(visit.place))


def _legs(legs: tuple[Leg, ...], shift: float) -> str:
    """Legs as they are asked for ``shift`` s before the first one is counted from."""
    leg, rest = legs[0], legs[1:]
    window = f"F[{seconds(total(leg.low, shift))},{seconds(total(leg.high, shift))}]"
    if leg.how == ANY_ORDER and not rest:
        return " & ".join(f"{window} {_visit(visit)}" for visit in leg.visits)
    ways = []
    for visit in leg.visits:
        before = [f"O[{seconds(other.stay)},{seconds(leg.high)}] {_visit(other)}"
                  for other in leg.visits if other != visit] if leg.how == ANY_ORDER else []
        after = [_inner(rest, visit.stay)] if rest else []
        ways.append(f"{window} {_all([_visit(visit), *before, *after])}")
    return " | ".join(ways)


def _inner(legs: tuple[Leg, ...], shift: float) -> str:
    text = _legs(legs, shift)
    return f"({text})" if len(legs[0].visits) > 1 and " | " in _outer(text) else text
