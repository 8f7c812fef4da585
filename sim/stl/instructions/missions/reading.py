"""A sentence as a mission.

    found = read("visit red, then blue within ten seconds, never over the table", where)
    found.mission, found.assumed        # what it says, and the times that it did not say

Time of a visit that says none: that of the map of places (``within``), or, where the mission lasts for a time that it
says, an equal share of what the other legs of its sequence leave of it. Such a time is part of the mission, of the
sentence that it is told as, and of ``assumed``. A visit that comes last is the last leg of the sequence, or, beside
several sequences, in the last seconds of the mission.

Lark reads one token ahead (LALR), so that time grows with the length of the sentence, which is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from temporeal.sim.stl.instructions.missions.meaning import (
    ANY_ORDER,
    ENTER,
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
    length,
    mission,
    total,
    words,
)
from temporeal.sim.stl.instructions.missions.places import Places, footprint, seconds
from temporeal.sim.stl.instructions.missions.words import Mark, marks, understood

EXAMPLES = {
    "VISIT": "visit", "RETURN": "return to", "STAY": "stay at", "LAND": "land at", "NEVER": "never", "AVOID": "avoid",
    "OVER": "over", "LEAVE": "leave", "UNTIL": "until", "THEN": "then", "FINALLY": "finally", "LAST": "last",
    "OR": "or", "ANY_ORDER": "in any order", "WITHIN": "within 10 s", "BETWEEN": "between 5 s and 10 s", "TO": "and",
    "FOR": "for 2 s", "EVERY": "every 10 s", "WHENEVER": "whenever you were at", "WHOLE": "throughout",
    "LASTS": "the mission lasts 60 s", "PLACE": "a place", "DURATION": "a time, as 10 s", "JOIN": "and",
    "BREAK": "a comma", "$END": "the end"}
"""What an error says may come."""


@dataclass(frozen=True)
class Read:
    """A mission, and sentences that say which times were assumed."""

    mission: Mission
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class _Open:
    """A route whose legs may lack their times (``high`` None).

    ``last``: its last leg comes after all else, by the word "last" or by "land"; "": neither. ``goes_on``: it goes on
    with the route before.
    """

    legs: tuple[_Leg, ...]
    last: str
    goes_on: bool


@dataclass(frozen=True)
class _Leg:
    visits: tuple[Visit, ...]
    how: str
    low: float = 0.0
    high: float | None = None


class _Marks(Lexer):
    """Marks are tokens already."""

    def __init__(self, conf: Any) -> None:
        """Nothing is configured."""

    def lex(self, data: Any) -> Iterator[Token]:  # type: ignore[override]
        """The marks as Lark's tokens."""
        for mark in data:
            yield Token(mark.kind, mark, mark.start, end_pos=mark.end)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = (Path(__file__).parent / "missions.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_Marks, maybe_placeholders=False)


def read(text: str, where: Places) -> Read:
    """The mission that ``text`` says; a :class:`MissionError` names what cannot be read, and what was read so far."""
    row = marks(text, where)
    try:
        tree = _parser().parse(row)
    except UnexpectedToken as error:
        raise MissionError(_unexpected(error, text)) from None
    return _Meaning(where).mission(tree)


def _unexpected(error: UnexpectedToken, text: str) -> str:
    at = error.token.start_pos or 0
    legal = sorted({EXAMPLES[name] for name in error.accepts if name in EXAMPLES})
    if error.token.type == "$END":
        return f"the mission ends too early{understood(text)}; next may come: {', '.join(legal)}"
    mark: Mark = error.token.value
    shown = text[mark.start: mark.end] or text[mark.start: mark.start + 20]
    return f"{shown[:40]!r} cannot come here{understood(text[:at])}; next may come: {', '.join(legal)}"


class _Meaning:
    """From a tree to clauses."""

    def __init__(self, where: Places) -> None:
        self.where = where
        self.assumed: list[str] = []

    def mission(self, tree: Tree[Token]) -> Read:
        routes, clauses, lasts = list[_Open](), list[Clause](), None
        for child in tree.children:
            if isinstance(child, Token):
                continue
            for found in self.clause(child):
                if isinstance(found, _Open):
                    routes = _added(routes, found)
                elif isinstance(found, float):
                    if lasts not in (None, found):
                        raise MissionError(f"the mission lasts {lasts:g} s, or {found:g} s? Say one of them")
                    lasts = found
                else:
                    clauses.append(found)
        tails = _tails(routes, clauses, lasts)
        made = [*(Route(self.timed(each, lasts)) for each in routes if each not in tails), *clauses]
        if tails:
            made, lasts = self.at_the_end(made, tails, lasts)
        return Read(mission(made, lasts), tuple(self.assumed))

    def at_the_end(
        self, made: Sequence[Clause], tails: Sequence[_Open], lasts: float | None
    ) -> tuple[list[Clause], float]:
        """``made`` with one visit in the last seconds of the mission."""
        if len(tails) > 1 or len(tails[0].legs) > 1:
            raise MissionError("one place comes last: say the others in their order, with 'then'")
        (leg,) = self.timed(tails[0], None)
        took = total(leg.high, max(visit.stay for visit in leg.visits))
        before = total(max(map(length, made), default=0.0), *map(answer_s, made))
        end = total(before, took) if lasts is None else lasts
        if end < took:
            raise MissionError(f"the mission lasts {end:g} s, and its last visit may take {took:g} s")
        shift = total(end, -took)
        last = Leg(leg.visits, total(leg.low, shift), total(leg.high, shift), leg.how)
        return [*made, Route((last,))], end

    def timed(self, route: _Open, lasts: float | None) -> tuple[Leg, ...]:
        """The legs with the times that they lack."""
        missing = [leg for leg in route.legs if leg.high is None]
        share = self.where.within
        if missing and lasts is not None:
            used = total(*(leg.high or 0.0 for leg in route.legs),
                         *(max(visit.stay for visit in leg.visits) for leg in route.legs))
            left = total(lasts, -used) / len(missing)
            if left <= 0:
                raise MissionError(f"the mission lasts {lasts:g} s, and leaves no time for "
                                   f"{words(missing[0].visits[0].place)}: its sequence takes {used:g} s without it")
            share = min(share, float(int(left)) if left >= 1 else int(total(10 * left)) / 10 or left)
        for leg in missing:
            names = " and ".join(words(visit.place) for visit in leg.visits)
            self.assumed.append(f"no time is said for {names}: within {seconds(share)} s is assumed")
        return tuple(Leg(leg.visits, leg.low, share if leg.high is None else leg.high, leg.how) for leg in route.legs)

    # ------------------------------------------------ clauses

    def clause(self, tree: Tree[Token]) -> Iterator[Clause | _Open | float]:
        """What a clause says: clauses, a route whose times may be missing, or how long the mission lasts."""
        children: list[Any] = tree.children
        match tree.data:
            case "route":
                yield from self.route([c for c in children if isinstance(c, Tree)])
            case "lasts":
                yield children[1].value.value
            case "ban":
                yield Ban(self.forbidden(children[0]), self.window(children[-1]) if len(children) > 1 else None)
            case "guard":
                high = self.window(children[-1])[1] if isinstance(children[-1], Tree) else None
                key = next(c.value.text for c in reversed(children) if isinstance(c, Token) and c.type == "PLACE")
                yield Guard(self.forbidden(children[0]), key, high)
            case "response":
                yield self.response(children)
            case _:
                raise TypeError(f"no clause: {tree.data}")

    def response(self, children: list[Any]) -> Response:
        trigger = next(c.value.text for c in children if isinstance(c, Token) and c.type == "PLACE")
        times = [self.window(c)[1] for c in children if isinstance(c, Tree) and c.data == "within"]
        answer = self.visit(next(c for c in children if isinstance(c, Tree) and c.data == "visit"))
        if len(times) > 1:
            raise MissionError(f"an answer has one time: within {times[0]:g} s, or within {times[1]:g} s?")
        if not times:
            times = [self.where.within]
            self.assumed.append(f"no time is said for {words(answer.place)} after {words(trigger)}: within "
                                f"{seconds(times[0])} s is assumed")
        return Response(trigger, answer, times[0])

    def route(self, legs: list[Tree[Token]]) -> Iterator[Clause | _Open]:
        """A sequence; or a recurrence, or places that are not to be left."""
        found = [self.leg(leg) for leg in legs]
        special = [(leg, tail) for leg, tail, _ in found if tail is not None]
        if special and len(found) > 1:
            raise MissionError(f"{words(special[0][0].visits[0].place)} {special[0][1].data} ... is for the whole "
                               "mission, and no part of a sequence: say it by itself, after a comma")
        if special:
            yield from self.whole(*special[0])
            return
        if any("last" in kinds for _, _, kinds in found[:-1]):
            raise MissionError("what comes last has nothing after it: leave out 'then ...', or 'last'")
        last = "last" if "last" in found[-1][2] else "land" if "land" in found[-1][2] else ""
        yield _Open(tuple(leg for leg, _, _ in found), last, "return" in found[0][2] and not last)

    def whole(self, leg: _Leg, tail: Tree[Token]) -> Iterator[Clause]:
        children: list[Any] = tail.children
        if leg.how == OR or any(visit.stay for visit in leg.visits):
            raise MissionError(f"{tail.data} ... is said of one place, or of several with 'and', without a stay")
        if tail.data == "whole":
            yield Ban(tuple(Place(visit.place, LEAVE) for visit in leg.visits))
            return
        for visit in leg.visits:
            yield Recurrence(visit.place, children[1].value.value, children[3].value.value if children[3:] else None)

    def leg(self, tree: Tree[Token]) -> tuple[_Leg, Tree[Token] | None, set[str]]:
        """A leg, its tail where that is for the whole mission, and what it is: last, land, return."""
        kinds = {"last"} if isinstance(tree.children[0], Token) else set()
        goal = next(c for c in tree.children if isinstance(c, Tree) and c.data != "tail")
        inner = [goal] if goal.data == "visit" else [c for c in goal.children if isinstance(c, Tree)]
        verbs = [{t.type for t in each.children if isinstance(t, Token)} for each in inner]
        kinds |= {"land"} if any("LAND" in own for own in verbs) else set()
        kinds |= {"return"} if "RETURN" in verbs[0] else set()
        visits = tuple(map(self.visit, inner))
        how = {"all_of": ANY_ORDER, "one_of": OR}.get(goal.data, "")
        joints = [t.value.text for t in goal.children if isinstance(t, Token) and t.type in ("JOIN", "ANY_ORDER")]
        out, special = _Leg(visits, how), None
        for tail in tree.find_data("tail"):
            for part in tail.children:
                if isinstance(part, Token):
                    kinds.add("last")
                elif part.data in ("within", "between"):
                    low, high = self.window(part)
                    out = replace(out, low=low, high=high)
                else:
                    special = part
        if how == ANY_ORDER and special is None and set(joints) <= set(",;.:!"):
            names = [words(visit.place) for visit in visits]
            raise MissionError(f"in which order? Say '{' and '.join(names)} in any order', or "
                               f"'{', then '.join(names)}'")
        return out, special, kinds

    def visit(self, tree: Tree[Token]) -> Visit:
        tokens: list[Any] = [*tree.children]
        place = next(t.value.text for t in tokens if t.type == "PLACE")
        stay = next((t.value.value for t in tokens if t.type == "DURATION"), 0.0)
        if tokens[0].type == "STAY" and not stay and len(tokens) == 2:
            return Visit(place)
        if stay == 0 and len(tokens) > 2:
            raise MissionError(f"to stay at {words(place)} for 0 s is to visit it")
        return Visit(place, stay)

    def window(self, tree: Any) -> Any:
        """Seconds of a window; None for the whole mission."""
        if isinstance(tree, Token):
            return None
        times = [t.value.value for t in tree.scan_values(lambda t: t.type == "DURATION")]
        return (0.0, times[0]) if len(times) == 1 else (times[0], times[1])

    def forbidden(self, tree: Tree[Token]) -> tuple[Place, ...]:
        found, what = list[Place](), ENTER
        for token in tree.children:
            if isinstance(token, Token) and token.type == "PLACE":
                found.append(Place(token.value.text, what))
            elif isinstance(token, Token):
                what = {"OVER": OVER, "LEAVE": LEAVE, "VISIT": ENTER}.get(token.type, what)
        return tuple(footprint(place, self.where.shapes[place.name]) for place in found)


def _added(routes: list[_Open], found: _Open) -> list[_Open]:
    """``routes`` and another one: a return, and what is last after a single sequence, go on with that before."""
    if routes and not routes[-1].last and (found.goes_on or (found.last and len(routes) == 1)):
        before = routes[-1]
        return [*routes[:-1], _Open((*before.legs, *found.legs), found.last, before.goes_on)]
    return [*routes, found]


def _tails(routes: Sequence[_Open], clauses: Sequence[Clause], lasts: float | None) -> list[_Open]:
    """Routes that are in the last seconds of the mission: what is last beside other sequences, or beside clauses that
    take their time. To land is last where it is said after other things."""
    beside = len(routes) > 1 or any(isinstance(c, (Recurrence, Response)) or length(c) for c in clauses)
    return [each for each in routes if each.last and (beside or (each.last == "last" and lasts is not None))
            and (len(each.legs) == 1 or (each.last == "last" and len(routes) > 1))]
