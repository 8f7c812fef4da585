"""The judge of methods on formulas: witnesses satisfy what they prove, in the real environment; who rests does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training.generalist.flights import judged
from temporeal.sim.stl.distribution.drawing import Drawn
from temporeal.sim.stl.distribution.settings import family, world
from temporeal.sim.task_parts.systems import system_of
from temporeal_benchmarks.any_formula import flights, sets
from temporeal_benchmarks.any_formula.flights import ACTIONS, COMMANDS, Mission, Pilot, Signals, fly
from temporeal_benchmarks.any_formula.planners import PLANNERS, planner
from temporeal_benchmarks.any_formula.trials import flights_of, measure

COUNT = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sets")


def drawn(robot: str, folder: Path) -> list[Drawn]:
    return sets.held_out(robot, "validation", COUNT, folder)


@dataclass
class Shown:
    """Follows the commands of the witnesses, or stays: a method that knows what none is told."""

    by: dict[int, np.ndarray]
    robot: str
    gives: str = COMMANDS
    at_once: int = 1000
    name: str = "shown"
    identity: dict[str, Any] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        self.begun.append(len(missions))
        assert all(len(value) == len(missions) for value in signals.values())
        act, longest = system_of(self.robot).act, max(m.steps for m in missions)
        rows = np.stack([np.pad(self.by[m.index], ((0, longest - m.steps), (0, 0))) for m in missions], 1)
        ahead = iter(torch.tensor(rows))

        def give(seen: Signals) -> torch.Tensor:
            command = next(ahead)
            return command if self.gives == COMMANDS else act.inverse(command, {})

        return Pilot(give, torch.linspace(0.0, 1.0, len(missions)))


def shown(found: Sequence[Drawn], robot: str, **more: Any) -> Shown:
    return Shown({one.index: one.commands for one in found}, robot, **more)


@pytest.mark.parametrize("robot", ["linear", "unicycle"])
def test_where_the_witness_is_the_motion_it_flies_as_robust_as_it_says(robot: str, folder: Path) -> None:
    found = drawn(robot, folder)
    for gives, at_once in ((COMMANDS, 1000), (ACTIONS, 1)) if robot == "linear" else ((ACTIONS, 1000),):
        method = shown(found, robot, gives=gives, at_once=at_once)
        flown = fly(method, found, world(robot))
        assert [flight.number for flight in flown] == list(range(COUNT))
        assert [flight.robustness for flight in flown] == pytest.approx([one.robustness for one in found], abs=1e-4)
        assert method.begun == ([1] * COUNT if at_once == 1 else [COUNT])
        assert all((flight.decision_s is None) == (at_once > 1) for flight in flown)


def test_a_method_is_judged_by_what_it_flew_and_not_by_what_it_forecasts(folder: Path) -> None:
    found = drawn("linear", folder)
    others = {one.index: np.zeros_like(one.commands) for one in found}
    flown = fly(Shown(others, "linear"), found, world("linear"))
    assert not any(flight.satisfied for flight in flown) and flown[-1].forecast == 1.0


def test_each_formula_is_flown_from_its_own_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, of = drawn("linear", folder), world("linear")
    env = flights.environment(found, of, 0)
    env.reset()
    flights.check_starts(env, found, of)
    moved = [replace(found[0], place=(0.0, 0.0, 0.0)), *found[1:]]
    with pytest.raises(RuntimeError, match="formula 0 of linear starts at"):
        flights.check_starts(env, moved, of)


def test_what_is_not_finite_is_not_satisfied_and_what_is_too_short_is_no_flight(folder: Path) -> None:
    found, of = drawn("linear", folder), world("linear")
    mission = flights.mission_of(found[0], of)
    still = np.zeros((mission.steps + 1, 3), np.float32)
    still[3] = np.nan
    assert judged(mission.formula, {"base_pos_w": still}, mission.steps, of.dt) == -inf
    with pytest.raises(ValueError, match="was not flown so far"):
        judged(mission.formula, {"base_pos_w": still[:-1]}, mission.steps, of.dt)


def test_a_start_that_is_drawn_in_part_is_that_of_its_row() -> None:
    """Of an ant the place is the formula's, its joints are drawn: each world has its own."""
    of, places = world("ant"), [(-1.0, 2.0, 0.0), (3.0, 0.5, 0.0)]
    found = [Drawn("train", "reach", 0, k, "", {}, place, 0.3, 2, np.zeros((2, 2)), 0.1)
             for k, place in enumerate(places)]
    env = flights.environment(found, of, 5)
    env.reset()
    flights.check_starts(env, found, of)
    joints = env.true_signals()["joint_pos"]
    assert not torch.equal(joints[0], joints[1])


def test_sets_are_read_again_and_others_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = drawn("linear", folder)
    again = drawn("linear", folder)
    assert sets.digest(first) == sets.digest(again) and sets.digest(first[:-1]) != sets.digest(first)
    path, of, missions = folder / f"linear-validation-{COUNT}.jsonl", world("linear"), family("validation")
    for wrong in ((of, family("unseen"), COUNT), (replace(of, gap=1.2), missions, COUNT), (of, missions, COUNT + 1)):
        with pytest.raises(BadInput, match="remove it"):
            sets.checked(path, *wrong)
    lines = path.read_text().replace('"robustness": 0.', '"robustness": 1.', 1)
    (other := folder / "other.jsonl").write_text(lines)
    with pytest.raises(BadInput, match="satisfies the formula by"):
        sets.checked(other, of, missions, COUNT)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_satisfy_a_simple_formula_in_the_real_environment(name: str) -> None:
    of = world("linear")
    text = "F[0,6] (norm(base_pos_w - a) < a_r) & G[0,6] (hypot(base_pos_w.x - o1.x, base_pos_w.y - o1.y) > o1_r)"
    constants = {"a": [2.0, 0.0, 0.0], "a_r": 0.5, "o1": [0.0, 0.2, 0.0], "o1_r": 0.7}
    found = Drawn("train", "reach", 0, 3, text, constants, (-2.0, 0.0, 0.0), 0.0, 30, np.zeros((30, 2)), 0.1)
    (flight,) = fly(planner(name, of), [found], of)
    assert flight.satisfied and flight.number == 3 and flight.decision_s > 0 and flight.forecast is None


def test_trials_go_on_where_they_were_and_another_method_begins_anew(folder: Path, tmp_path: Path) -> None:
    found, of = drawn("linear", folder), world("linear")
    method = shown(found, "linear")
    measure(tmp_path, "a/linear", method, found[:2], of, 1)
    assert method.begun == [1, 1]
    measure(tmp_path, "a/linear", method, found[:3], of, 1)
    assert method.begun == [1, 1, 1]
    from temporeal_benchmarks.data import studies

    flown = flights_of(studies.read(tmp_path), "a/linear")
    assert [flight.number for flight in flown] == [0, 1, 2] and all(flight.satisfied for flight in flown)
    other = shown(found, "linear", identity={"weights": "1"})
    measure(tmp_path, "a/linear", other, found[:1], of, 1)
    assert other.begun == [1] and len(flights_of(studies.read(tmp_path), "a/linear")) == 1
    assert flights_of(studies.read(tmp_path), "a/other") == []
