"""A mission as its canonical sentence, which :func:`reading.read` reads as the same mission."""

from __future__ import annotations

from collections.abc import Sequence

from temporeal.sim.stl.instructions.missions.meaning import (
    ANY_ORDER,
    LEAVE,
    OVER,
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
    words,
)
from temporeal.sim.stl.instructions.missions.places import seconds

VERBS = {OVER: "never go over", LEAVE: "never leave"}


def sentence(said: Mission) -> str:
    """The sentence of a mission: every time that it has is in it."""
    begins = [f"for {seconds(said.lasts)} s"] if said.lasts is not None else []
    return ", ".join([*begins, *(text for clause in said.clauses for text in _clauses(clause))])


def _clauses(clause: Clause) -> list[str]:
    match clause:
        case Route(legs):
            return [_route(legs)]
        case Guard(closed, key, high):
            until = f"until you visited {words(key)}" + (f" within {seconds(high)} s" if high is not None else "")
            return [f"{text} {until}" for text in _forbidden(closed)]
        case Response(trigger, answer, high):
            return [f"whenever you were at {words(trigger)}, {_visit(answer, True)} within {seconds(high)} s"]
        case Recurrence(place, every, end):
            return [f"be at {words(place)} every {seconds(every)} s" + (f" for {seconds(end)} s" if end else "")]
        case Ban(places, window):
            span = f" between {seconds(window[0])} s and {seconds(window[1])} s" if window else ""
            return [text + span for text in _forbidden(places)]
    raise TypeError(f"no clause: {clause!r}")


def _route(legs: Sequence[Leg]) -> str:
    told, seen = list[str](), set[str]()
    for leg in legs:
        first, *others = leg.visits
        back = first.place in seen and not first.stay
        begins = f"return to {words(first.place)}" if back else _visit(first, True)
        parts = [begins, *(_visit(visit, False) for visit in others)]
        joined = f"{', '.join(parts[:-1])} and {parts[-1]} in any order" if leg.how == ANY_ORDER else " or ".join(parts)
        told.append(f"{joined} {_window(leg.low, leg.high)}")
        seen |= {visit.place for visit in leg.visits}
    return ", then ".join(told)


def _window(low: float, high: float) -> str:
    return f"between {seconds(low)} s and {seconds(high)} s" if low else f"within {seconds(high)} s"


def _visit(visit: Visit, verb: bool) -> str:
    if visit.stay:
        return f"{'stay at ' if verb else ''}{words(visit.place)} for {seconds(visit.stay)} s"
    return f"{'visit ' if verb else ''}{words(visit.place)}"


def _forbidden(places: Sequence[Place]) -> list[str]:
    """A text for each thing that is forbidden, with all its places."""
    kinds = dict.fromkeys(place.what for place in places)
    return [f"{VERBS.get(kind, 'never enter')} " + " or ".join(words(p.name) for p in places if p.what == kind)
            for kind in kinds]

