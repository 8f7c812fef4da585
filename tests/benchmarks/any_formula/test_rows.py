"""The rows of policies for any formula, of trials that are written here."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from temporeal_benchmarks.any_formula import forecast, planning_study, policy_rows, sets, targets, tgpo_study
from temporeal_benchmarks.any_formula.flights import Flight
from temporeal_benchmarks.any_formula.targets import SEEDS, TARGETS
from temporeal_benchmarks.any_formula.trials import packed
from temporeal_benchmarks.rows import Row


def flown(good: int, count: int, said: float | None = None, **times: float) -> list[Flight]:
    """``count`` flights, of which the first ``good`` are satisfied."""
    return [Flight(k, 0.1 if k < good else -0.1, said, **times) for k in range(count)]


def trial(flights: list[Flight]) -> dict[str, Any]:
    each = [packed(flight._replace(number=k)) for k, flight in enumerate(flights)]
    return {"method": {}, "date": "2026-12-01", "set": "", "each": each}


def rows_of(trials: dict[str, Any]) -> dict[str, Row]:
    return {row.name: row for row in policy_rows.rows_of(trials)}


def of_seeds(robot: str, family: str, goods: tuple[int, ...], count: int, said: float | None = None) -> dict[str, Any]:
    return {f"policy/{robot}/{family}/{seed}/0000": trial(flown(good, count, said))
            for seed, good in zip(SEEDS, goods)}


def test_nothing_is_claimed_before_it_is_measured() -> None:
    rows = rows_of({})
    assert all(row.value is None for row in rows.values())
    assert {name for name, row in rows.items() if row.target is not None} >= {
        *(f"any_formula.{robot}.{what}" for robot in TARGETS for what in ("validation", "unseen", "below_tgpo")),
        *(f"any_formula.{robot}.training" for robot in TARGETS if robot != "ant"), "any_formula.decision_time",
        "any_formula.step_time", "any_formula.forecast.ece", "any_formula.forecast.refused",
        "any_formula.ros.satisfied"}
    assert all(row.ok is (None if row.target is None else False) for row in rows.values())


def test_the_worst_seed_is_judged_once_all_formulas_are_flown() -> None:
    trials = of_seeds("linear", "validation", (990, 969, 980), 1000)
    row = rows_of(trials)["any_formula.linear.validation"]
    assert row.value == pytest.approx(0.969) and row.ok is False
    assert "seed 2: 969 of 1000 [0.956, 0.979]" in str(row.peer)
    better = rows_of(of_seeds("linear", "validation", (990, 970, 980), 1000))["any_formula.linear.validation"]
    assert better.ok is True
    few = rows_of(of_seeds("linear", "validation", (99, 98, 99), 100))["any_formula.linear.validation"]
    assert few.value == 0.98 and few.ok is None
    two = rows_of(of_seeds("linear", "validation", (990, 990), 1000))["any_formula.linear.validation"]
    assert two.ok is None


def test_unseen_structures_are_held_against_the_same_seeds_held_out_draws() -> None:
    trials = of_seeds("unicycle", "validation", (980, 950, 960), 1000)
    trials |= of_seeds("unicycle", "unseen", (940, 905, 909), 1000)
    row = rows_of(trials)["any_formula.unicycle.unseen"]
    assert (row.value, row.target, row.ok) == (0.909, 0.91, False)
    trials |= of_seeds("unicycle", "unseen", (940, 905, 915), 1000)
    row = rows_of(trials)["any_formula.unicycle.unseen"]
    assert (row.value, row.target, row.ok) == (0.905, 0.90, True)


def test_tgpo_is_compared_on_the_formulas_that_it_was_trained_on() -> None:
    outcomes = [[family, k, True] for family in ("validation", "unseen") for k in range(10)]
    trials = {"tgpo/linear": {"outcomes": outcomes}}
    for family, good in (("validation", 10), ("unseen", 9)):
        trials |= of_seeds("linear", family, (good, 10, 10), 50)
    row = rows_of(trials)["any_formula.linear.below_tgpo"]
    assert row.value == pytest.approx(0.05) and row.ok is False
    assert "seed 1: TGPO 20, the policy 19 of 20, TGPO alone 1" in str(row.peer)
    for family in ("validation", "unseen"):
        trials |= of_seeds("linear", family, (10, 10, 10), 50)
    assert rows_of(trials)["any_formula.linear.below_tgpo"].ok is True
    trials["tgpo/linear"]["outcomes"] = outcomes[:10]
    assert rows_of(trials)["any_formula.linear.below_tgpo"].ok is None


def test_a_training_counts_by_the_processor_of_two_cores() -> None:
    trials = {f"training/linear/{seed}": {"cpu_s": 3600.0 - seed} for seed in SEEDS}
    row = rows_of(trials)["any_formula.linear.training"]
    assert row.value == pytest.approx(3599 / 120) and row.ok is True
    trials["training/linear/2"]["cpu_s"] = 3601.0
    assert rows_of(trials)["any_formula.linear.training"].ok is False
    trials["training/linear/2"]["cpu_s"] = None
    assert rows_of(trials)["any_formula.linear.training"].value is None


def test_the_slowest_robot_decides_on_times() -> None:
    quick = trial(flown(100, 100, decision_s=0.02, later_s=1.0, slowest_s=0.004))
    trials = {f"alone/{robot}/1/0000": quick for robot in TARGETS}
    rows = rows_of(trials)
    assert rows["any_formula.decision_time"].value == pytest.approx(20.0) and rows["any_formula.decision_time"].ok
    assert rows["any_formula.step_time"].value == pytest.approx(0.004 / 0.02) and rows["any_formula.step_time"].ok
    trials["alone/ant/1/0000"] = trial(flown(100, 100, decision_s=0.06, later_s=1.0, slowest_s=0.06))
    rows = rows_of(trials)
    assert rows["any_formula.decision_time"].ok is False and rows["any_formula.step_time"].ok is False
    del trials["alone/ant/1/0000"]
    assert rows_of(trials)["any_formula.decision_time"].ok is None


def test_a_calibration_error_by_hand() -> None:
    half = [*flown(5, 10, 0.5), *flown(8, 10, 0.95)]
    assert forecast.calibration(half).error == pytest.approx(0.5 * 0.0 + 0.5 * 0.15)
    found = forecast.calibration(flown(20, 20, 1.0))
    assert found == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="a forecast is a probability"):
        forecast.calibration(flown(1, 2, 1.2))


def test_what_is_refused_is_not_flown() -> None:
    mixed = [*flown(0, 50, 0.3), *flown(49, 50, 0.8)]
    share = forecast.flown(mixed, targets.REQUIRE)
    assert share is not None and (share.successes, share.trials) == (49, 50)
    assert forecast.flown(flown(5, 5, 0.79), targets.REQUIRE) is None
    trials = {f"policy/{robot}/{family}/{seed}/0000": trial([*flown(940, 950, 0.98), *flown(10, 50, 0.2)])
              for robot in TARGETS for seed in SEEDS for family in ("validation", "unseen")}
    rows = rows_of(trials)
    assert rows["any_formula.forecast.refused"].value == pytest.approx(940 / 950)
    assert rows["any_formula.forecast.refused"].ok and rows["any_formula.forecast.ece"].ok
    trials["policy/ant/validation/1/0000"] = trial(flown(900, 1000, 0.5))
    rows = rows_of(trials)
    assert rows["any_formula.forecast.ece"].value == pytest.approx(0.4) and not rows["any_formula.forecast.ece"].ok
    assert rows["any_formula.forecast.refused"].value is None and rows["any_formula.forecast.refused"].ok is False


def test_a_formula_that_tgpo_refuses_is_not_satisfied() -> None:
    made = {"linear/validation/0000": {"outcome": "satisfied", "flight": packed(Flight(0, 0.2)), "budget_s": 150.0},
            "linear/unseen/0000": {"outcome": "refused: no", "flight": None, "budget_s": 150.0}}
    assert tgpo_study.outcomes(made, "linear") == [["unseen", 0, False], ["validation", 0, True]]
    rows = {row.name: row for row in tgpo_study.judged(made)}
    assert rows["any_formula.linear.tgpo"].value == 0.5 and "1 refused" in str(rows["any_formula.linear.tgpo"].peer)
    assert rows["any_formula.ant.tgpo"].value is None


def test_rows_of_planners_say_share_and_time() -> None:
    flights = [Flight(0, -inf, None, 2.0, 1.0, 0.1), Flight(1, 0.1, None, 4.0, 1.0, 0.1)]
    made = {"cem/linear/unseen/0000": trial(flights)}
    rows = {row.name: row for row in planning_study.judged(made)}
    assert rows["any_formula.linear.unseen.cem"].value == 0.5
    assert rows["any_formula.linear.unseen.cem.plan"].value == 3.0
    assert rows["any_formula.linear.unseen.gradient"].value is None
    assert all(row.ok is None for row in rows.values())


def test_words_of_a_training_have_the_drawn_formula_and_its_start(tmp_path: Any) -> None:
    from temporeal.policies.runs.environments import make_task
    from temporeal.sim.stl.distribution.settings import world

    (found,) = sets.held_out("unicycle", "unseen", 1, tmp_path)
    settings = tgpo_study.settings_of(found, world("unicycle"), tmp_path / "run", 60.0)
    task = make_task(settings)
    assert task.formula_text == found.formula and task.steps == found.horizon and settings["algo"]["name"] == "tgpo"
    assert settings["algo"]["max_seconds"] == 60.0 and settings["algo"]["clock"] == "cpu"


def test_rows_have_names_of_their_own() -> None:
    from temporeal_benchmarks.any_formula import published

    names = [row.name for made in (policy_rows.rows_of({}), planning_study.judged({}), tgpo_study.judged({}),
                                   published.rows(True, sets.Path("."))) for row in made]
    assert len(set(names)) == len(names)
