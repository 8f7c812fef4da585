"""Missions in words: wordings, refusals, round trips, and what the formula says by its exact robustness."""

import itertools
import random

import numpy as np
import pytest

from temporeal.sim.stl.instructions.missions.meaning import (
    ANY_ORDER,
    ENTER,
    LEAVE,
    OR,
    OVER,
    Ban,
    Guard,
    Leg,
    MissionError,
    Place,
    Recurrence,
    Response,
    Route,
    Visit,
    mission,
)
from temporeal.sim.stl.instructions.missions.places import places
from temporeal.sim.stl.instructions.missions.reading import read
from temporeal.sim.stl.instructions.missions.recognizing import mission_of
from temporeal.sim.stl.instructions.missions.telling import sentence
from temporeal.sim.stl.instructions.missions.words import MOST_CHARACTERS, PHRASES, reserved
from temporeal.sim.stl.instructions.missions.writing import formula_constants, formula_text
from temporeal.sim.stl.itineraries.planner import plan, ways_of
from temporeal.sim.stl.itineraries.search import straight
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.semantics.robustness import robustness

MAP = {"places": {
    "red": {"ball": [2, 0, 1], "radius": 0.4},
    "blue": {"pillar": [-2, 0], "radius": 0.4},
    "landing pad": {"box": [0, 2, 0.2], "half": [0.3, 0.3, 0.2]},
    "goal": {"ball": "goal_pos_w", "radius": 0.3},
    "table": {"box": [0, 0, 0.4], "half": [0.5, 0.5, 0.4]},
    "room": {"box": [0, 0], "half": [4, 4]}}}
WHERE = places(MAP, reserved())
GOAL = [0.0, -2.0, 1.0]
POINTS = {"red": [2, 0, 1], "blue": [-2, 0, 0.3], "landing_pad": [0, 2, 0.2], "goal": GOAL, "on table": [0, 0, 0.5],
          "over table": [0, 0, 2], "nowhere": [1, 1, 1], "outside": [5, 0, 1]}
"""Where a trace may be, each in the room but the last one."""
FORBIDDEN = {("table", ENTER): {"on table"}, ("table", OVER): {"on table", "over table"}, ("room", LEAVE): {"outside"}}
"""Points at which a ban of a place is broken; of other places: that of its name."""


def formula_of(said):
    return parse(formula_text(said, WHERE), WHERE.schema(), formula_constants(said, WHERE))


def back(said):
    return mission_of(formula_text(said, WHERE), formula_constants(said, WHERE), WHERE.schema())


# ---------------------------------------------------------------- wordings

WORDINGS = {
    "visit red within 30 s, then visit blue within 10 s, never go over table": [
        "visit red, then blue within ten seconds, never over the table",
        "Go to the red and then fly to blue in 10s without flying over the table!",
        "the robot should reach red; after that reach blue within 10 sec. Do not cross the table."],
    "visit red within 90 s": [
        "visit red within 1 minute 30 seconds", "be at red in ninety seconds", "red within 1.5 min"],
    "visit red within 0.5 s": ["reach the red within half a second", "enter red in at most 0.5 s"],
    "visit red within 120 s": ["visit red within two minutes", "please get to red in a hundred and twenty s"],
    "visit red, blue and landing pad in any order within 20 s": [
        "visit red, blue and the landing pad in any order within 20 s",
        "reach red and blue and landing_pad, in whichever order, in twenty seconds",
        "visit red within 20 s, visit blue within 20 s, go to the landing-pad within 20 s"],
    "visit red or blue within 12 s, then visit goal within 5 s": [
        "visit red or blue within 12 s, then goal within 5 s",
        "go to either red or go to blue in twelve s, followed by the goal within five s"],
    "stay at red for 3 s within 10 s, then visit blue within 5 s": [
        "stay at red for 3 s within 10 s, then blue within 5 s",
        "visit red and stay there for three seconds within 10 s, then go to blue within 5 s",
        "wait in red for 3 s within 10 s, next blue in 5 s"],
    "visit blue within 20 s, never enter blue until you visited red": [
        "do not enter blue before red, visit blue within 20 s",
        "be at blue in 20 s, never visit blue until you reach red",
        "visit blue within 20 s without going into blue before you were at red",
        "visit blue within 20 s and keep out of blue until red"],
    "never enter blue or goal until you visited red within 9 s": [
        "never enter blue or goal until you visited red within 9 s",
        "don't go into blue or goal before visiting red in 9 s",
        "avoid blue and the goal until you were at red within nine seconds"],
    "for 40 s, never enter table or blue": [
        "for 40 s, keep out of the table and blue", "avoid the table, avoid blue, for forty seconds in all",
        "never be in table or enter blue; the mission lasts 40 s",
        "never enter the table or blue for 40 s"],
    "visit red within 9 s, never enter table, never leave room": [
        "never leave the room, visit red within 9 s and never enter the table",
        "visit red within 9 s, stay in the room throughout, keep clear of the table at all times"],
    "visit red within 9 s, never enter blue between 2 s and 5 s": [
        "visit red within 9 s, avoid blue between 2 and 5 s"],
    "visit red within 9 s, whenever you were at red, visit blue within 5 s": [
        "visit red within 9 s, whenever you were at red, be at blue within 5 s",
        "each time you visit red go to blue within 5 s, and visit red within 9 s",
        "visit red in 9 s; after every visit to red, within 5 s reach blue"],
    "for 60 s, be at red every 20 s, be at blue every 20 s": [
        "for 60 s, be at red and blue every 20 s",
        "patrol red and blue at least every twenty seconds, for a minute in all",
        "be at red every 20 s for 60 s, and be at blue once every 20 s"],
    "visit red within 9 s, then visit blue within 9 s, then return to red within 8 s": [
        "visit red within 9 s, then blue within 9 s, then return to red within 8 s",
        "visit red within 9 s, then blue within 9 s, come back to red in 8 s"],
    "visit red between 5 s and 10 s": ["visit red between 5 and 10 s", "be at red from 5 s to ten s"],
    "visit red and blue in any order within 9 s, then visit landing pad within 4 s": [
        "visit red and blue in any order within 9 s, land on the landing pad last within 4 s",
        "visit red and blue within 9 s, finally be at the landing pad within 4 s",
        "visit red and blue within 9 s, then return to landing pad within 4 s last"],
    "visit red within 9 s, visit blue within 7 s, visit landing pad between 9 s and 13 s": [
        "visit red within 9 s, visit blue within 7 s, land on the landing pad last within 4 s"],
    "visit landing pad between 40 s and 44 s, be at red every 9 s for 40 s": [
        "be at red every 9 s for 40 s, and finally land on the landing pad within 4 s"],
    "visit red within 10 s, then visit blue within 10 s, then visit goal within 10 s, never enter table": [
        "for 30 s: visit red, then blue, then goal, and avoid the table"],
}


@pytest.mark.parametrize("canonical", WORDINGS)
def test_all_wordings_of_a_mission_are_told_as_one_sentence(canonical):
    for text in [canonical, *WORDINGS[canonical]]:
        assert sentence(read(text, WHERE).mission) == canonical, text


FRAMES = {
    "VISIT": "{} red within 5 s",
    "RETURN": "visit red within 5 s, {} blue within 5 s",
    "STAY": "{} red for 2 s within 5 s",
    "LAND": "visit red within 5 s, {} blue within 5 s",
    "NEVER": "visit red within 5 s, {} enter blue",
    "AVOID": "visit red within 5 s, {} blue",
    "OVER": "visit red within 5 s, never {} table",
    "LEAVE": "visit red within 5 s, never {} room",
    "UNTIL": "visit red within 5 s, never enter blue {} you were at red",
    "THEN": "visit red within 5 s {} blue within 5 s",
    "FINALLY": "visit red within 5 s, {} visit blue within 5 s",
    "LAST": "visit red within 5 s, visit blue {} within 5 s",
    "OR": "visit red {} blue within 5 s",
    "ANY_ORDER": "visit red and blue {} within 5 s",
    "WITHIN": "visit red {} 5 s",
    "BETWEEN": "visit red {} 5 s and 8 s",
    "TO": "visit red between 5 s {} 8 s",
    "FOR": "visit red {} 2 s within 5 s",
    "EVERY": "be at red {} 5 s for 30 s",
    "WHENEVER": "visit red within 5 s, {} you were at red, visit blue within 5 s",
    "WHOLE": "visit red within 5 s, avoid table {}",
    "LASTS": "avoid red, {} 30 s",
    "IN_ALL": "avoid red, for 30 s {}",
    "FILLER": "visit {} red within 5 s",
}
"""A sentence for every kind of phrase."""


@pytest.mark.parametrize("kind", PHRASES)
def test_all_phrases_of_a_kind_say_the_same(kind):
    said = {phrase: sentence(read(FRAMES[kind].format(phrase.strip()), WHERE).mission)
            for phrase in PHRASES[kind].split("|")}
    assert len(set(said.values())) == 1, said


def test_times_that_are_not_said_are_assumed_aloud():
    found = read("visit red, then blue within 10 s", WHERE)
    assert found.assumed == ("no time is said for red: within 30 s is assumed",)
    assert read(sentence(found.mission), WHERE).assumed == ()
    own = read("visit red", places({**MAP, "within": 12}, reserved()))
    assert sentence(own.mission) == "visit red within 12 s"
    assert read("for 20 s, visit red, then blue within 12 s", WHERE).assumed == (
        "no time is said for red: within 8 s is assumed",)


# ---------------------------------------------------------------- refusals

REFUSED = {
    "": "empty", " \n": "empty", "x" * (MOST_CHARACTERS + 1): f"at most {MOST_CHARACTERS}",
    "vizit red": "did you mean visit", "visit rde within 3 s": "did you mean red",
    "visit purple": "places are red, blue, landing pad",
    "visit red; rm -rf": "unknown word 'rm'.*read so far: 'visit red'",
    "visit red within 10": "A time has a unit", "visit red within s": "has no number",
    "visit red within 0 s": "no window",
    "visit red within 2 hours": "unknown word 'hours'", "visit red within 61 minutes": "too long",
    "visit red within 9999999999999 s": "too large", "visit red between 9 s and 5 s": "no window",
    "visit red within 5 s blue": "read so far: 'visit red within 5 s'; next may come: .*then",
    "visit red then": "ends too early.*next may come: a place", "keep blue": "keep out of",
    "visit red and blue or goal within 5 s": "'or' cannot come here", "visit \u00e4": "is no word",
    "never over the table": "no end", "whenever you were at red, be at blue within 5 s": "no end",
    "be at red every 10 s": "no end",
    "for 10 s, be at red every 10 s": "as long as the mission",
    "for 10 s, visit red within 20 s, avoid blue": "lasts 10 s, and its clauses may take 20 s",
    "visit red within 30 s, for 10 s in all": "lasts 10 s, and its clauses may take 30 s",
    "for 10 s in all, avoid red, for 20 s in all": "lasts 10 s, or 20 s",
    "visit red within 5 s, never enter red": "visited, and kept out of",
    "never enter red before red": "until it is visited itself",
    "visit red within 5 s, whenever you were at blue, visit blue within 5 s": "another place as the answer",
    "visit red within 5 s, then blue and goal in any order within 5 s, then red within 5 s": "give the others an order",
    "for 300 s, be at red every 1 s": "plans for about 601 visits",
    "whenever you were at red, be at blue within 3 s, whenever you were at blue, be at goal within 3 s, "
    "whenever you were at goal, be at red within 3 s, for 100 s in all": "about 204 visits in each of 8 way",
    "visit red within 9 s, never leave room between 2 s and 4 s": "from the start on",
    "visit red, blue, goal within 9 s": "in which order",
    "do not visit red again": "'again' is read only in", "never return to red": "cannot come here",
    "visit red last, then blue within 9 s": "nothing after it",
    "visit red, then be at blue every 9 s": "no part of a sequence",
    "visit red or blue within 1 s" + ", then red or blue" * 6 + " within 1 s": "ways",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_would_be(text):
    with pytest.raises(MissionError, match=REFUSED[text]):
        read(text, WHERE)


@pytest.mark.parametrize(("value", "message"), [
    ({}, "key places"), ({"places": {}}, "key places"), ({"places": {"red": {"ball": [0, 0, 1]}}}, "a place is"),
    ({"places": {"red": {"ball": [0, 0], "radius": 1}}}, "3 number"), ({"speed": 1, **MAP}, "unknown key speed"),
    ({"places": {"red": {"ball": [0, 0, float("nan")], "radius": 1}}}, "between"),
    ({"places": {"red": {"pillar": [0, 0], "radius": -1}}}, "between 0"), ({**MAP, "within": 0}, "within is"),
    ({**MAP, "position": "a b"}, "position is"),
    ({"places": {"Red!": {"pillar": [0, 0], "radius": 1}}}, "small letters"),
    ({"places": {"then": {"pillar": [0, 0], "radius": 1}}}, "word of the language"),
    ({"places": {"min": {"pillar": [0, 0], "radius": 1}}}, "word of the language"),
    ({"places": {"norm": {"pillar": [0, 0], "radius": 1}}}, "two things 'norm'"),
    ({"places": {"a": {"pillar": [0, 0], "radius": 1}, "b": {"pillar": [0, 0], "radius": 1}}}, "same region"),
    ({"places": {"a1": {"pillar": [0, 0], "radius": 1}, "a 1": {"pillar": [0, 1], "radius": 1}}}, "sound alike"),
])
def test_maps_of_places_are_checked(value, message):
    with pytest.raises(MissionError, match=message):
        places(value, reserved())


@pytest.mark.parametrize(("text", "message"), [
    ("at_a = norm(base_pos_w - a) < r; F[0,5] at_a & base_pos_w.z > 1 ", "no mission in words has this part"),
    ("at_a = norm(base_pos_w - a) > r; F[0,5] at_a", "a name is that of a place"),
    ("at_a = base_pos_w.x * base_pos_w.y < r; F[0,5] at_a", "no place"),
    ("near = norm(base_pos_w - a) < r; F[0,5] near", "a name is that of a place"),
    ("at_a = norm(base_pos_w - a) < r; F[0,5] at_a & G[0,1] (at_a -> F[0,2] at_a)", "until the end"),
    ("at_a = norm(base_pos_w - a) < r; over_b = norm(base_pos_w - b) < r; F[0,5] over_b & F[0,3] at_a", "over a place"),
    ("at_a = norm(base_pos_w - a) < r; F[0,5] (at_a & at_a)", "one place at a time"),
    ("at_a = norm(base_pos_w - a) < r; F[0,inf] at_a", "."), ("G[0,", "too early")])
def test_formulas_that_no_sentence_makes_are_refused(text, message):
    with pytest.raises(MissionError, match=message):
        mission_of(text, {"a": [0, 0, 1], "b": [2, 0, 1], "r": 0.4}, WHERE.schema())


def test_conjuncts_may_come_in_any_order_and_brackets_are_free():
    text = ("at_b = norm(base_pos_w - b) < r; at_a = norm(base_pos_w - a) < r;"
            "G[0,9] (!at_b) & (F[0,4] (at_a & F[0,5] (at_a)))")
    found = mission_of(text, {"a": [0, 0, 1], "b": [2, 0, 1], "r": 0.4}, WHERE.schema())
    assert sentence(found) == "visit a within 4 s, then return to a within 5 s, never enter b"


# ---------------------------------------------------------------- drawn missions

GOALS = ("red", "blue", "landing_pad", "goal")


def drawn(rng):
    """A mission of one to four clauses; times are whole seconds, so that traces of one sample a second judge it."""
    made = [CLAUSES[kind](rng) for kind in rng.sample(sorted(CLAUSES), rng.choice((1, 1, 2, 2, 3)))]
    lasts = rng.choice((None, 30.0)) if any(isinstance(c, Route) for c in made) else 30.0
    try:
        return mission(made, lasts)
    except MissionError:
        return drawn(rng)


def visit(rng, name):
    return Visit(name, float(rng.choice((0, 0, 0, 1, 2))))


def leg(rng, how=""):
    names = rng.sample(GOALS, rng.choice((2, 3)) if how else 1)
    low = float(rng.choice((0, 0, 0, 2))) if how != ANY_ORDER else 0.0
    return Leg(tuple(visit(rng, name) for name in names), low, low + rng.choice((3, 5, 7)), how)


def route(rng):
    legs = [leg(rng, rng.choice(("", "", OR, ANY_ORDER)))]
    legs += [leg(rng, rng.choice(("", OR))) for _ in range(rng.choice((0, 1, 1, 2)))]
    return Route((*legs, *([leg(rng, ANY_ORDER)] if rng.random() < 0.2 and len(legs) < 3 else [])))


def guard(rng):
    key, *closed = rng.sample(GOALS, rng.choice((2, 3)))
    over = [Place("table", OVER)] if rng.random() < 0.3 else []
    return Guard((*map(Place, closed), *over), key, rng.choice((None, 5.0, 9.0)))


def response(rng):
    trigger, answer = rng.sample(GOALS, 2)
    return Response(trigger, visit(rng, answer), float(rng.choice((4, 8))))


def ban(rng):
    kinds = rng.sample([Place("table"), Place("table", OVER), Place("room", LEAVE)], rng.choice((1, 2)))
    later = [] if any(place.what == LEAVE for place in kinds) else [(2.0, 6.0)]
    return Ban(tuple(kinds), rng.choice([None, (0.0, 4.0), *later]))


CLAUSES = {"route": route, "another": route, "guard": guard, "response": response, "ban": ban,
           "recurrence": lambda rng: Recurrence(rng.choice(GOALS), float(rng.choice((6, 8))), rng.choice((None, 15.0)))}


def holds(said, where):
    """What a mission says of a trace, where[t] being the key of POINTS at second t; without any formula."""
    return all(CHECKS[type(clause)](clause, said.end, where) for clause in said.clauses)


def stays(v, t, where):
    return all(x == v.place for x in where[int(t): int(t + v.stay) + 1])


def times(low, high):
    return range(int(low), int(high) + 1)


def goes(legs, now, where):
    if not legs:
        return True
    first, rest = legs[0], legs[1:]
    window = times(now + first.low, now + first.high)
    if first.how != ANY_ORDER:
        return any(stays(v, t, where) and goes(rest, t + v.stay, where) for v in first.visits for t in window)
    arrivals = [[t for t in window if stays(v, t, where)] for v in first.visits]
    if not rest:
        return all(arrivals)
    for hits in itertools.product(*arrivals):
        for k, last in enumerate(hits):
            others = [h + v.stay for j, (h, v) in enumerate(zip(hits, first.visits, strict=True)) if j != k]
            if all(over <= last for over in others) and goes(rest, last + first.visits[k].stay, where):
                return True
    return False


def broken_at(place, at):
    return at in FORBIDDEN.get((place.name, place.what), {place.name})


def guarded(c, end, where):
    high = int(end if c.high is None else c.high)
    closed = [any(broken_at(p, x) for p in c.closed) for x in where]
    opened = any(where[t] == c.key and not any(closed[:t]) for t in range(high + 1))
    return opened or (c.high is None and not any(closed[: high + 1]))


CHECKS = {
    Route: lambda c, end, where: goes(c.legs, 0, where),
    Guard: guarded,
    Response: lambda c, end, where: all(
        any(stays(c.answer, s, where) for s in times(t, t + c.high))
        for t in times(0, end - c.high - c.answer.stay) if where[t] == c.trigger),
    Recurrence: lambda c, end, where: all(
        c.place in where[t: t + int(c.every) + 1] for t in times(0, (c.end or end) - c.every)),
    Ban: lambda c, end, where: not any(
        broken_at(p, where[t]) for p in c.places for t in times(*(c.window or (0, end)))),
}


def traces(rng, count, length):
    """Random walks over POINTS with stays of one to four samples, all in step with nothing."""
    rows = []
    for _ in range(count):
        row, weights = [], [5, 5, 5, 5, *[rng.choice((0, 0, 1))] * 4]
        while len(row) < length:
            row += rng.choices(list(POINTS), weights) * rng.randint(1, 4)
        rows.append(row[:length])
    return rows


def test_drawn_missions_go_round_and_their_formulas_say_what_they_say():
    rng, met, broken = random.Random(51), 0, 0
    for _ in range(60):
        said = drawn(rng)
        again = read(sentence(said), WHERE)
        assert again.mission == said and not again.assumed, sentence(said)
        assert back(said) == said, formula_text(said, WHERE)
        asked = formula_of(said)
        assert horizon(asked) == pytest.approx(max(said.end, 0))
        assert ways_of(asked, 1.0), sentence(said)
        rows = traces(rng, 12, int(said.end) + 1)
        signals = {"base_pos_w": np.array([[POINTS[x] for x in row] for row in rows], float).swapaxes(0, 1)}
        signals["goal_pos_w"] = np.broadcast_to(GOAL, signals["base_pos_w"].shape)
        values = robustness(asked, signals, 1.0)[0]
        for row, value in zip(rows, values, strict=True):
            true = holds(said, row)
            assert true == (value > 0), (sentence(said), row, value)
            met, broken = met + true, broken + (not true)
    assert min(met, broken) > 50


def test_what_is_kept_out_of_from_a_later_time_on_is_no_leg():
    (way,) = ways_of(formula_of(read("visit red within 9 s, avoid blue between 2 and 5 s", WHERE).mission), 0.2)
    assert way.variables == 1 and [(keep.start, keep.end) for keep in way.keeps] == [((0, 10), (0, 25))]
    assert not way.keeps[0].region.inside


def test_a_planner_lands_last_whatever_the_order_before():
    said = read("visit red and blue in any order within 20 s, land on the landing pad last within 5 s", WHERE).mission
    found = plan(ways_of(formula_of(said), 0.2), (1.0, 1.0, 1.0), straight(1.0, 0.2))
    assert found is not None and found.itinerary.slack > 0
    red, pad = found.itinerary.legs[0].region, found.itinerary.legs[-1].region
    assert len(found.itinerary.legs) == 3 and red.center == (2, 0, 1) and pad.center == (0, 2, 0.2)


def test_over_a_place_is_at_any_height_and_a_pillar_has_no_top():
    assert sentence(read("for 9 s, never over blue or over red", WHERE).mission) == (
        "for 9 s, never enter blue, never go over red")
    asked = formula_of(read("for 9 s, never over red", WHERE).mission)
    above = {"base_pos_w": np.array([[2.1, 0, 2.5]] * 10, float)}
    assert robustness(asked, above, 1.0)[0] == pytest.approx(-0.3)
    inside = formula_of(read("for 9 s, never enter red", WHERE).mission)
    assert robustness(inside, above, 1.0)[0] > 1


def test_the_first_sentence_of_the_page_by_hand():
    asked = formula_of(read("visit red within 4 s, then blue within 3 s, never over the table", WHERE).mission)

    def value(*walk):
        return robustness(asked, {"base_pos_w": np.array([POINTS[at] for at in walk], float)}, 1.0)[0]

    away = "nowhere"
    assert value(away, away, away, "red", away, away, "blue", away) == pytest.approx(0.4)
    assert value(away, away, away, "red", away, away, away, "blue") < 0  # blue 4 s after red
    assert value("blue", away, away, away, "red", away, away, away) < 0  # the other order
    assert value(away, away, "red", "over table", "blue", away, away, away) == pytest.approx(-0.5)
