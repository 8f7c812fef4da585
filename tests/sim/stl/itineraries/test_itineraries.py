"""Formulas as itineraries: regions, orders, windows, programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.distribution.drawing import draw
from temporeal.sim.stl.distribution.motions import loaded
from temporeal.sim.stl.distribution.settings import family, world
from temporeal.sim.stl.itineraries.guide import Guide
from temporeal.sim.stl.itineraries.planner import plan, reading, ways_of
from temporeal.sim.stl.itineraries.program import LEGS, SIZE, program, split
from temporeal.sim.stl.itineraries.regions import NotARegion, Region, distance, region
from temporeal.sim.stl.itineraries.search import search, straight
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Predicate
from temporeal.sim.stl.semantics.robustness import margin

SIGNALS = {**load_robot("linear").signals, "ball_pos_w": SignalSpec("ball_pos_w", (3,), "m")}
PLACES: dict[str, Any] = {"a": [2.0, 0.0, 0.0], "b": [-2.0, 1.0, 0.0], "c": [0.0, 3.0, 0.0], "r": 0.5}
AT = "at_a = norm(base_pos_w - a) < r; at_b = norm(base_pos_w - b) < r; at_c = norm(base_pos_w - c) < r;"
TRAVEL = straight(1.0, 0.2)


def asked_of(text: str, signals: Any = SIGNALS) -> Any:
    return ways_of(parse(AT + text, signals, PLACES), 0.2, "base_pos_w")


@pytest.mark.parametrize("text", [
    "norm(base_pos_w - a) < r", "dist(base_pos_w, a) < r", "r > norm(a - base_pos_w)",
    "hypot(base_pos_w.x - a.x, base_pos_w.y - a.y) > r", "max(abs(base_pos_w.x), abs(base_pos_w.y)) < 4",
    "max(abs(base_pos_w.x - a.x) - r, abs(base_pos_w.y - a.y) - 1) > 0", "base_pos_w.z > 0.2", "base_pos_w.y < 1"])
def test_a_region_has_the_sign_of_its_predicate(text: str) -> None:
    predicate = parse(text, SIGNALS, PLACES)
    assert isinstance(predicate, Predicate)
    found, points = region(predicate), np.random.default_rng(0).uniform(-5, 5, (4000, 3))
    margins = margin(predicate, {"base_pos_w": points[:, None]})[:, 0]
    away = np.array([distance((x, y, z), found) for x, y, z in points.tolist()])
    assert ((margins > 0) == ((away < 0) == found.inside)).all()
    assert 0 < (margins > 0).sum() < 4000


@pytest.mark.parametrize("text", ["base_vel_w.x < 1", "norm(base_pos_w) * 2 < 1", "base_pos_w.x + base_pos_w.y > 0",
                                  "norm(base_pos_w - a) < norm(base_pos_w - b)"])
def test_what_is_no_region_is_named_with_the_legal_forms(text: str) -> None:
    with pytest.raises(NotARegion, match=r"Places are norm"):
        asked_of(f"F[0,5] ({text})")


def test_places_to_choose_from_are_alternatives() -> None:
    best = plan(asked_of("F[0,9] (at_a | at_c) & G[0,9] !at_b"), (0.0, 2.0, 0.0), TRAVEL)
    assert best is not None and best.itinerary.legs[0].region is not None
    assert best.itinerary.legs[0].region.center == (0.0, 3.0, 0.0)
    assert len(asked_of("F[0,9] (at_a | at_c) & F[0,9] (at_b | at_c)")) == 4
    with pytest.raises(NotARegion, match="make 81 ways; at most 64"):
        asked_of(" & ".join(f"F[{k},{k + 1}] (at_a | at_b | at_c)" for k in (0, 2, 4, 6)))


def test_two_places_at_one_time_are_refused() -> None:
    with pytest.raises(NotARegion, match="one place at a time"):
        asked_of("F[0,5] (at_a & at_b)")


def test_a_center_may_be_a_signal() -> None:
    found = region(parse("norm(base_pos_w - ball_pos_w) < 0.3", SIGNALS, {}))  # type: ignore[arg-type]
    assert found == Region("base_pos_w", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.3, True, "ball_pos_w")
    best = plan(asked_of("F[0,9] norm(base_pos_w - ball_pos_w) < 0.3"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is not None
    moved = split(program(best.itinerary, {"ball_pos_w": (1.0, 2.0, 3.0)}))["legs"][0, :3]
    assert moved.tolist() == [1.0, 2.0, 3.0]


def test_an_order_meets_the_windows() -> None:
    best = plan(asked_of("F[0,12] at_a & F[0,3] at_b"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is not None and best.itinerary.slack > 0
    first, second = best.itinerary.legs
    assert first.region is not None and first.region.center == (-2.0, 1.0, 0.0)  # b, which is more urgent
    assert (first.low, first.high, second.high) == (0, 15, 60)


def test_windows_count_from_the_leg_before() -> None:
    best = plan(asked_of("F[0,4] (G[0,1] at_a & F[2,6] at_b)"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is not None
    first, second = best.itinerary.legs
    assert (first.hold, first.high, second.since) == (5, 20, ((10, 30),))


def test_a_closed_door_is_not_entered_before_its_key() -> None:
    best = plan(asked_of("(!at_b U[0,20] at_a) & F[0,20] at_b"), (-1.0, 1.0, 0.0), TRAVEL)
    assert best is not None
    legs = best.itinerary.legs
    assert [leg.region.center[0] for leg in legs if leg.region] == [2.0, -2.0]
    (door,) = [kept for kept in best.itinerary.kept if not kept.region.inside]
    assert door.end == (0, -1)  # until right before the key is hit


def test_a_request_is_answered_in_time() -> None:
    best = plan(asked_of("F[0,5] at_a & G[0,8] (at_a -> F[0,6] at_b)"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is not None and best.itinerary.slack >= 0
    legs = best.itinerary.legs
    centers = [leg.region.center[0] for leg in legs if leg.region]
    answer = centers.index(-2.0)
    assert centers[0] == 2.0 and legs[answer].since[0][1] <= 30  # b at most 6 s after a


def test_two_requests_whose_chains_fill_a_narrow_beam_are_planned() -> None:
    where = world("linear")
    found = draw(where, family("train"), 11, 917)  # drawn as it is: none was found before the search looked ahead
    formula = parse(found.formula, loaded(where.robot).signals, found.constants)
    ranked = search(ways_of(formula, where.dt, where.signal), (*found.place[:2], 0.0), straight(1.0, where.dt, True))
    assert ranked and ranked[0].slack >= 0


def test_nothing_in_time_has_negative_slack() -> None:
    best = plan(asked_of("F[0,0.4] at_a & F[0,0.4] at_b"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is None or best.itinerary.slack < 0


def test_the_judge_decides_between_branches() -> None:
    def judge(programs: Any, points: Any, ticks: Any, hits: Any) -> Any:
        toward_c = split(programs)["legs"][:, 0, 1] == 3.0
        return np.where(toward_c, 0.9, 0.5).astype(np.float32), np.full(len(programs), 4.0, np.float32)

    best = plan(asked_of("F[0,9] at_a | F[0,9] at_c"), (1.0, 0.0, 0.0), TRAVEL, judge)
    assert best is not None and best.itinerary.legs[0].region is not None
    assert best.itinerary.legs[0].region.center == (0.0, 3.0, 0.0)
    assert best.chance == pytest.approx(0.81, abs=1e-6) and len(best.chances) == 2


def test_a_program_is_a_row_of_the_declared_size() -> None:
    best = plan(asked_of("F[0,9] at_a & G[0,9] !at_b"), (0.0, 0.0, 0.0), TRAVEL)
    assert best is not None and best.program.shape == (SIZE,) and best.program.dtype == np.float32
    parts = split(best.program)
    assert parts["legs"][:, 10].sum() == 1 and parts["kept"][0, 7:9].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("name", ["linear", "quadrotor"])
@pytest.mark.parametrize("kinds", ["train", "unseen", "crowded"])
def test_every_drawn_formula_has_an_itinerary(name: str, kinds: str) -> None:
    where = world(name)
    for index in range(3):
        found = draw(where, family(kinds), 5, index)
        formula = parse(found.formula, loaded(where.robot).signals, found.constants)
        x, y, z = (*found.place, 0.0)[:3]
        ranked = search(ways_of(formula, where.dt, where.signal), (x, y, z), straight(1.2, where.dt))
        assert ranked and len(ranked[0].legs) <= LEGS and np.isfinite(program(ranked[0])).all()


def test_a_formula_that_nothing_satisfies_is_refused() -> None:
    with pytest.raises(FormulaError):
        asked_of("G[0,5] at_a & F[0,5] !at_a")


def test_a_reading_is_monotone() -> None:
    found = [reading(chance, {"slope": 0.7, "offset": -0.4}) for chance in (0.0, 0.2, 0.8, 1.0)]
    assert found == sorted(found) and found[0] == 0.0 < found[1] and found[-1] < 1.0


def test_what_has_no_chance_has_none_by_a_flat_calibration_either() -> None:
    flat = {"slope": 0.184, "offset": 3.55}  # of a policy that nearly always succeeds
    assert reading(0.0, flat) == 0.0 and 0.7 < reading(1e-9, flat) < 0.8


def test_the_rest_is_planned_from_the_hits() -> None:
    guide = Guide(asked_of("F[0,4] (at_a & F[0,6] (at_b & F[0,5] at_c))"), TRAVEL, None, 0.2)
    first = guide.begin((0.0, 0.0, 0.0))
    assert first is not None and len(first.itinerary.legs) == 3
    hits = np.zeros(LEGS)
    assert guide.step((0.0, 0.0, 0.0), 5, hits, 0.0) is None  # nothing was hit yet
    hits[0] = 1 + 12  # a at sample 12
    found = guide.step((1.6, 0.0, 0.0), 13, hits, 0.0)
    assert found is not None and guide.begun is not None and guide.begun.times == (12,)
    second, third = found.itinerary.legs
    assert second.region is not None and second.region.center == (-2.0, 1.0, 0.0)
    assert (second.low, second.high) == (12, 12 + 30) and third.since == ((0, 25),)
    assert split(found.program)["legs"][:, 10].sum() == 2
    hits[:] = 0.0
    hits[0] = 1 + 40
    last = guide.step((-1.6, 1.0, 0.0), 41, hits, 0.0)
    assert last is not None and guide.begun.times == (12, 40)
    assert [leg.high for leg in last.itinerary.legs] == [65]


def test_what_was_kept_until_a_hit_is_over_behind_it() -> None:
    guide = Guide(asked_of("(!at_b U[0,20] at_a) & F[0,20] at_b"), TRAVEL, None, 0.2)
    assert guide.begin((-1.0, 1.0, 0.0)) is not None
    hits = np.zeros(LEGS)
    hits[0] = 1 + 17
    found = guide.step((1.6, 0.0, 0.0), 18, hits, 0.0)
    assert found is not None
    (door,) = [kept for kept in found.itinerary.kept if not kept.region.inside]
    assert door.end == (-1, 16)  # a sample before the key was hit, counted from the start


def test_an_answer_is_due_from_the_request_that_was_flown() -> None:
    guide = Guide(asked_of("F[0,5] at_a & G[0,8] (at_a -> F[0,6] at_b)"), TRAVEL, None, 0.2)
    assert guide.begin((0.0, 0.0, 0.0)) is not None
    hits = np.zeros(LEGS)
    hits[0] = 1 + 20
    found = guide.step((1.6, 0.0, 0.0), 21, hits, 0.0)
    assert found is not None
    answer = next(leg for leg in found.itinerary.legs if leg.region and leg.region.center[0] == -2.0)
    assert answer.high <= 20 + 30


@pytest.mark.parametrize(("better", "changes"), [(0.02, False), (0.4, True)])
def test_another_order_is_taken_only_if_it_is_better_by_enough(better: float, changes: bool) -> None:
    asked = asked_of("F[0,60] at_a & F[0,60] at_b & F[0,60] at_c")
    prefers = {"y": 1.0}  # b first

    def judge(programs: Any, points: Any, ticks: Any, hits: Any) -> Any:
        liked = split(programs)["legs"][:, 0, 1] == prefers["y"]
        chance = np.where(liked & (hits.sum(1) == 0), 0.5 + better, 0.5)
        return chance.astype(np.float32), np.full(len(programs), 9.0, np.float32)

    guide = Guide(asked, TRAVEL, judge, 0.2)
    first = guide.begin((1.6, 0.0, 0.0))
    assert first is not None and first.itinerary.legs[0].region is not None
    assert first.itinerary.legs[0].region.center[1] == 1.0
    second = first.itinerary.legs[1].region
    assert second is not None
    prefers["y"] = ({0.0, 3.0} - {second.center[1]}).pop()  # now the one that was to come last
    hits = np.zeros(LEGS)
    hits[0] = 1 + 18
    found = guide.step((-1.6, 1.0, 0.0), 19, hits, 0.0)
    assert found is not None and found.itinerary.legs[0].region is not None
    assert (found.itinerary.legs[0].region.center[1] == prefers["y"]) == changes


@pytest.mark.parametrize(("text", "told"), [
    ("F[0,5] (base_pos_w.x > 3)", "half-space, to be reached"),
    ("F[0,5] (norm(base_pos_w - [1e300, 0, 1]) < 0.3)", "farther than 10000 m"),
    (" & ".join(f"(F[{k},{k + 1}] at_a | F[{k},{k + 1}] at_b)" for k in range(0, 14, 2)),
     "128 ways to satisfy the formula; at most 64"),
    (" & ".join([*(f"(F[{k},{k + 1}] at_a | F[{k},{k + 1}] at_b)" for k in range(0, 12, 2)),
                 *(f"F[{k},{k + 1}] at_c" for k in range(12, 30, 2))]), "960 times at which to be somewhere"),
])
def test_what_cannot_be_planned_is_refused(text: str, told: str) -> None:
    with pytest.raises(FormulaError, match=told):
        asked_of(text)


@pytest.mark.parametrize("text", [
    "F[0,9] at_a & G[0,9] (max(abs(base_pos_w.x), abs(base_pos_w.y)) < 1.4)",  # a place outside of the arena
    "F[0,9] at_b & G[0,9] (norm(base_pos_w - a) < 2.2)",
    "F[0,9] at_b & G[0,9] (norm(base_pos_w - b) > 1.2)",  # a place within what is kept out of
    "F[0,9] at_b & G[0,9] (base_pos_w.x > 0.5)",  # broken where the robot is
])
def test_the_impossible_has_no_chance_whatever_the_judge_says(text: str) -> None:
    def judge(programs: Any, points: Any, ticks: Any, hits: Any) -> Any:
        return np.ones(len(programs), np.float32), np.full(len(programs), 4.0, np.float32)

    best = plan(asked_of(text), (0.0, 0.0, 0.0), TRAVEL, judge)
    assert best is None or best.chance == 0.0
    fine = plan(asked_of("F[0,9] at_b & G[0,9] (norm(base_pos_w - a) > 1.5) & G[0,9] (base_pos_w.x < 2)"),
                (0.0, 0.0, 0.0), TRAVEL, judge)
    assert fine is not None and fine.chance == 1.0
