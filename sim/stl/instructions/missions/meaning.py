"""What a mission in words says: clauses over named places, each with its times. Standard library only.

    Route((Leg((Visit("red"),), 0, 30), Leg((Visit("blue"),), 0, 10)))      visit red within 30 s, then blue within 10 s
    Ban((Place("table", OVER),))                                            never over the table

One mission has one form (:func:`mission`): clauses in the order of :data:`ORDER`, what can be said together together.
So a mission that was told as a sentence, or as a formula, and read again is equal.

**How long it takes.** Bans, guards without a time, responses and recurrences hold for the whole mission. It lasts as
long as its clauses with times may take, and as long as all responses take on top, so that a chain of visits and answers
is finished; or as long as it says: "for 60 seconds". A visit in the last seconds of a mission asks for no answer where
there is no time for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

LONGEST_S = 3600.0
MOST_CLAUSES, MOST_WAYS, MOST_VISITS, MOST_IN_ALL = 40, 64, 250, 1000
"""Of a mission: clauses; ways through its choices (as ``alternatives`` of a family of drawn formulas); visits that one
way plans for, and all ways together. Beyond, the decomposition takes seconds, or minutes."""
ENTER, OVER, LEAVE = "enter", "over", "leave"
"""What a ban forbids: to be inside, to be at any height where the place is, to be outside."""
ANY_ORDER, OR = "any order", "or"


class MissionError(ValueError):
    """A sentence, a formula or a map of places that makes no mission; the message says what would."""


@dataclass(frozen=True)
class Visit:
    """Be at ``place``, for ``stay`` s from then on."""

    place: str
    stay: float = 0.0


@dataclass(frozen=True)
class Leg:
    """Visits in any order, or one of them (``how``), ``low`` to ``high`` s after the leg before is over: after its
    arrival and its stay. Of the first leg: after the start."""

    visits: tuple[Visit, ...]
    low: float
    high: float
    how: str = ""


@dataclass(frozen=True)
class Route:
    """Legs, one after the other. A leg in any order is the first one (from the start on) or the last one."""

    legs: tuple[Leg, ...]


@dataclass(frozen=True)
class Place:
    """A place, and what is forbidden there."""

    name: str
    what: str = ENTER


@dataclass(frozen=True)
class Guard:
    """Nothing of ``closed`` before ``key`` is visited: within ``high`` s, or never at all where it is None."""

    closed: tuple[Place, ...]
    key: str
    high: float | None = None


@dataclass(frozen=True)
class Response:
    """Whenever at ``trigger``, arrive at the answer within ``high`` s."""

    trigger: str
    answer: Visit
    high: float


@dataclass(frozen=True)
class Recurrence:
    """At ``place`` in every stretch of ``every`` s, until ``end`` s; None: for the whole mission."""

    place: str
    every: float
    end: float | None = None


@dataclass(frozen=True)
class Ban:
    """Nothing of ``places`` from ``window[0]`` to ``window[1]`` s; None: for the whole mission."""

    places: tuple[Place, ...]
    window: tuple[float, float] | None = None


Clause = Route | Guard | Response | Recurrence | Ban
ORDER: tuple[type, ...] = (Route, Guard, Response, Recurrence, Ban)


@dataclass(frozen=True)
class Mission:
    """Clauses in one form, made by :func:`mission`; ``lasts`` s, or None: as long as they take."""

    clauses: tuple[Clause, ...]
    lasts: float | None = None

    @property
    def end(self) -> float:
        """How long the mission takes at most, s."""
        return duration(self.clauses) if self.lasts is None else self.lasts


def total(*seconds: float) -> float:
    """A sum of times, without what floating point adds below a nanosecond."""
    return round(sum(seconds), 9)


def mission(clauses: Iterable[Clause], lasts: float | None = None) -> Mission:
    """The mission of ``clauses`` in its one form; a :class:`MissionError` where it has no end or is too long."""
    found = tuple(sorted(_together(clauses), key=lambda clause: ORDER.index(type(clause))))
    if not found:
        raise MissionError("the mission asks for nothing: say where to go, as 'visit red within 10 s'")
    if len(found) > MOST_CLAUSES:
        raise MissionError(f"the mission has {len(found)} clauses; at most {MOST_CLAUSES} are legal")
    for each in found:
        _check(each)
    _check_together(found)
    end = _checked_end(found, lasts)
    if not any(map(_open, found)):  # then it is over when its times are
        lasts, end = None, duration(found)
    _check_size(found, end)
    found = tuple(dict.fromkeys(_joined(_whole(each, end) for each in found)))
    return Mission(found, end if any(map(_open, found)) and duration(found) != end else None)


def duration(clauses: Iterable[Clause]) -> float:
    """How long ``clauses`` may take by their own times, s; 0: none has any."""
    found = list(clauses)
    timed = max(map(length, found), default=0.0)
    return total(timed, *map(answer_s, found)) if timed else 0.0


def answer_s(clause: Clause) -> float:
    """How long an answer takes."""
    return total(clause.high, clause.answer.stay) if isinstance(clause, Response) else 0.0


def length(clause: Clause) -> float:
    """How long a clause with times of its own may take, s; 0 of one that holds for the whole mission."""
    match clause:
        case Route(legs):
            return total(*(leg.high for leg in legs), *(max(v.stay for v in leg.visits) for leg in legs))
        case Guard(high=high) | Recurrence(end=high):
            return high or 0.0
        case Ban(window=window):
            return window[1] if window else 0.0
    return 0.0


def _open(clause: Clause) -> bool:
    """Whether it holds for the whole mission."""
    return isinstance(clause, Response) or length(clause) == 0


def _whole(clause: Clause, end: float) -> Clause:
    """``clause`` for the whole mission where its own times are those of all of it."""
    if isinstance(clause, Ban) and clause.window == (0.0, end):
        return replace(clause, window=None)
    if isinstance(clause, Recurrence) and clause.end == end:
        return replace(clause, end=None)
    return clause


def _checked_end(clauses: tuple[Clause, ...], lasts: float | None) -> float:
    """How long the mission takes, s."""
    timed, own = max(map(length, clauses)), duration(clauses)
    if lasts is None and not own:
        raise MissionError("the mission has no end: add how long it lasts, as 'for 60 s', or a visit with a time, as "
                           "'visit red within 20 s'")
    end = own if lasts is None else lasts
    if end < timed:
        raise MissionError(f"the mission lasts {end:g} s, and its clauses may take {timed:g} s: shorten their times, "
                           f"or let it last {timed:g} s at least")
    if not 0 < end <= LONGEST_S:
        raise MissionError(f"the mission takes {end:g} s; up to {LONGEST_S:g} s are legal")
    for each in clauses:
        needed = each.every if isinstance(each, Recurrence) else answer_s(each)
        if needed and not needed < ((each.end or end) if isinstance(each, Recurrence) else end):
            raise MissionError(f"{needed:g} s {'between visits' if isinstance(each, Recurrence) else 'for an answer'} "
                               f"are as long as the mission of {end:g} s: let it last longer, as "
                               f"'for {3 * needed:g} s'")
    return end


def _together(clauses: Iterable[Clause]) -> Iterator[Clause]:
    """``clauses``, those that say one thing as one: visits of one window in any order."""
    routes: dict[tuple[float, float], Leg] = {}
    rest: list[Clause] = []
    for clause in clauses:
        match clause:
            case Route((Leg(visits, low, high, how),)) if how != OR:
                before = routes.get((low, high))
                every = tuple(dict.fromkeys((*(before.visits if before else ()), *visits)))
                routes[low, high] = Leg(every, low, high, ANY_ORDER if len(every) > 1 else "")
            case Route(legs):
                rest.append(Route(tuple(map(_leg, legs))))
            case _:
                rest.append(clause)
    yield from (Route((leg,)) for leg in routes.values())
    yield from dict.fromkeys(rest)


def _leg(leg: Leg) -> Leg:
    """``leg`` without visits that it asks for twice."""
    every = tuple(dict.fromkeys(leg.visits))
    return Leg(every, leg.low, leg.high, leg.how if len(every) > 1 else "")


def _joined(clauses: Iterable[Clause]) -> Iterator[Clause]:
    """``clauses``, bans at one time as one, and guards with one key and time."""
    found = list(clauses)
    guards = [clause for clause in found if isinstance(clause, Guard)]
    bans = [clause for clause in found if isinstance(clause, Ban)]
    for clause in found:
        match clause:
            case Guard(_, key, high):
                alike = (guard.closed for guard in guards if (guard.key, guard.high) == (key, high))
                yield Guard(_grouped(alike), key, high)
            case Ban(_, window):
                yield Ban(_grouped(ban.places for ban in bans if ban.window == window), window)
            case _:
                yield clause


def _grouped(rows: Iterable[tuple[Place, ...]]) -> tuple[Place, ...]:
    """The places of ``rows``, each once, in the order of what is forbidden."""
    each = dict.fromkeys(place for row in rows for place in row)
    return tuple(sorted(each, key=lambda place: (ENTER, OVER, LEAVE).index(place.what)))


def ways(clause: Clause) -> int:
    """Ways through the choices of a clause: a place that asks for an answer, or that a guard waits for, may be never
    visited."""
    if isinstance(clause, Route):
        return prod(len(leg.visits) for k, leg in enumerate(clause.legs)
                    if leg.how == OR or (leg.how == ANY_ORDER and k + 1 < len(clause.legs)))
    return 2 if isinstance(clause, Response) or (isinstance(clause, Guard) and clause.high is None) else 1


def visits(clause: Clause, end: float) -> int:
    """Visits that one way through a clause plans for, about."""
    match clause:
        case Route(legs):
            return sum(1 if leg.how == OR else len(leg.visits) for leg in legs)
        case Response(high=high):
            return 1 + ceil(2 * end / high)
        case Recurrence(every=every, end=until):
            return 1 + ceil(2 * (until or end) / every)
    return 1 if isinstance(clause, Guard) else 0


def _check_size(clauses: tuple[Clause, ...], end: float) -> None:
    """A :class:`MissionError` where a robot could not think through the mission in time."""
    many, planned = prod(map(ways, clauses)), sum(visits(clause, end) for clause in clauses)
    if many > MOST_WAYS:
        raise MissionError(f"the choices of the mission have {many} ways; at most {MOST_WAYS} are legal: choices of "
                           "places multiply, and so do responses and places that are closed until another is visited")
    if planned > MOST_VISITS or many * planned > MOST_IN_ALL:
        raise MissionError(f"the mission plans for about {planned} visits in each of {many} way(s); at most "
                           f"{MOST_VISITS} are legal, and {MOST_IN_ALL} in all: let it be shorter, with fewer "
                           "responses, or with more time between visits")


def _check(clause: Clause) -> None:
    """A :class:`MissionError` where a clause has times that are none, or an order that no formula says."""
    for low, high in _windows(clause):
        if not 0 <= low < high <= LONGEST_S:
            raise MissionError(f"{low:g} to {high:g} s is no window: it begins before it ends, and ends after at most "
                               f"{LONGEST_S:g} s")
    match clause:
        case Route(legs):
            for k, leg in enumerate(legs[:-1]):
                if leg.how == ANY_ORDER and (k or leg.low or any(v.stay >= leg.high for v in leg.visits)):
                    raise MissionError("in any order is for the first places of a sequence, without a time before "
                                       "which they do not count, or for the last ones: give the others an order, as "
                                       "'red within 10 s, then blue within 10 s'")
        case Guard(closed, key):
            if any(place.name == key for place in closed):
                raise MissionError(f"{words(key)} cannot be closed until it is visited itself")
        case Ban(places, window) if window and window[0] and any(place.what == LEAVE for place in places):
            raise MissionError("what is not to be left is not left from the start on: say 'for 10 s', or how long to "
                               "stay there, as 'stay at red for 3 s within 20 s'")
        case Response(trigger, answer) if trigger == answer.place and not answer.stay:
            raise MissionError(f"whoever is at {words(trigger)} is there: name another place as the answer")


def _check_together(clauses: tuple[Clause, ...]) -> None:
    """A :class:`MissionError` where a place is visited that is never to be entered."""
    shut = {place.name for each in clauses if isinstance(each, Ban) and each.window is None
            for place in each.places if place.what != LEAVE}
    asked = [visit.place for each in clauses if isinstance(each, Route) for leg in each.legs if leg.how != OR
             for visit in leg.visits]
    both = [name for name in asked if name in shut]
    if both:
        raise MissionError(f"{words(both[0])} is visited, and kept out of for the whole mission: say until when, as "
                           f"'never enter {words(both[0])} for 10 s', or leave one of them out")


def _windows(clause: Clause) -> Iterator[tuple[float, float]]:
    match clause:
        case Route(legs):
            yield from ((leg.low, leg.high) for leg in legs)
            yield from ((0.0, visit.stay) for leg in legs for visit in leg.visits if visit.stay)
        case Guard(high=high) | Recurrence(end=high):
            yield from [(0.0, high)] if high is not None else []
        case Response(answer=answer, high=high):
            yield from ((0.0, high), *([(0.0, answer.stay)] if answer.stay else []))
        case Ban(window=window):
            yield from [window] if window else []
    if isinstance(clause, Recurrence):
        yield 0.0, clause.every


def words(name: str) -> str:
    """A place's name as it is said: ``landing_pad`` is landing pad."""
    return name.replace("_", " ")
