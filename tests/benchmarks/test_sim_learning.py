"""The study of learning: trainings that are done are kept while the code is the same; rows are judged by the worst."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from temporeal.policies.evaluate.rollout import Rollout
from temporeal_benchmarks import results
from temporeal_benchmarks.measurements import sim_learning
from temporeal_benchmarks.processes import Run

REACH, LIFT, ROTATE = sim_learning.EXPERIMENTS


@pytest.fixture
def trained(monkeypatch):
    """Commands of trainings, none of which is made."""
    calls = []

    def run_module(module, arguments, quiet):
        calls.append(arguments)
        return Run(0.0, 250.0, 480.0, 1e9)

    monkeypatch.setattr(sim_learning, "run_module", run_module)
    monkeypatch.setattr(sim_learning, "judged", lambda folder, episodes: {
        "episodes": episodes, "p_satisfied": [0.98, 0.97, 0.99], "within_1cm": [0.995, 0.99, 1.0],
        "rate": [0.8, 0.5, 1.0]})
    monkeypatch.setattr(sim_learning, "curve", lambda folder: [{"seconds": 1.0, "success": 0.5}])
    return calls


def test_a_killed_study_goes_on_with_what_is_missing(trained, tmp_path, monkeypatch):
    first = sim_learning.trial(REACH, 1, tmp_path, 1000)
    assert trained == [["train", "experiment=reach", "seed=1", f"out={tmp_path / 'reach-1'}", "--overwrite"]]
    assert sim_learning.trial(REACH, 1, tmp_path, 1000) == first
    assert len(trained) == 1
    sim_learning.trial(REACH, 2, tmp_path, 1000)
    assert len(trained) == 2
    (tmp_path / "reach-2.json").write_text("{")  # cut off while it was written
    sim_learning.trial(REACH, 2, tmp_path, 1000)
    sim_learning.trial(REACH, 2, tmp_path, 2000)
    assert len(trained) == 4
    monkeypatch.setattr(sim_learning, "code_of", lambda experiment: "other")
    sim_learning.trial(REACH, 1, tmp_path, 1000)
    assert len(trained) == 5


def test_the_whole_study_has_rows_of_each_seed_and_a_file(trained, tmp_path):
    rows = {row.name: row for row in sim_learning.run(False, out=tmp_path)}
    assert len(trained) == 9
    assert rows["reach.within_1cm.least"].ok is True
    assert rows["lift.p_satisfied.least"].ok is True
    assert (rows["cube_rotate.rate.least"].value, rows["cube_rotate.rate.least"].ok) == (0.8, None)
    study = json.loads((tmp_path / "study.json").read_text())
    assert len(study["trials"]) == 9
    assert {row["name"] for row in study["rows"]} == rows.keys()
    assert all(study[field] for field in results.FIELDS) and study["revisions"]
    assert {"command", "revision", "code", "machine", "wall_s", "curve"} <= study["trials"][0].keys()


def found(seed, wall, share):
    return {"seed": seed, "wall_s": wall, "cpu_s": 1.0, "peak_memory_B": 1.0, "p_satisfied": [0.9, 0.8, 1.0],
            "within_1cm": [share, 0.8, 1.0]}


@pytest.mark.parametrize(("wall", "shares", "fast", "good"), [
    (299.0, (0.995, 0.992), True, True), (301.0, (0.995, 0.992), False, True), (10.0, (1.0, 0.98), True, False)])
def test_rows_are_judged_by_the_worst_seed(wall, shares, fast, good):
    rows = {r.name: r for r in sim_learning.rows_of(REACH, [found(1, wall, shares[0]), found(2, 1.0, shares[1])])}
    assert rows["reach.seed1.seconds"].ok is fast
    assert rows["reach.within_1cm.least"].value == min(shares)
    assert rows["reach.within_1cm.least"].ok is good


def episodes(signals, terminated):
    count = len(terminated)
    return Rollout(signals, np.zeros((2, count, 1)), np.full(count, 3), np.array(terminated), np.ones(count, bool), 0.5)


EVALUATION = SimpleNamespace(satisfied=SimpleNamespace(estimate=0.5, low=0.1, high=0.9), non_finite=0)


def test_within_a_centimetre_counts_ends_of_episodes_that_lasted():
    signals = {"grip_pos_w": np.zeros((3, 3, 3)), "goal_pos_w": np.zeros((3, 3, 3))}
    signals["goal_pos_w"][-1, :, 2] = [0.009, 0.011, 0.0]
    out = sim_learning.figures_of("reach", EVALUATION, episodes(signals, [False, False, True]))
    assert out["within_1cm"][0] == pytest.approx(1 / 3)
    low, high = out["within_1cm"][1:]
    assert low < 1 / 3 < high


def test_the_rate_is_what_a_cube_turned_over_the_time_it_was_held():
    spin = np.zeros((3, 2))
    spin[-1] = [2.0, 1.0]
    out = sim_learning.figures_of("cube_rotate", EVALUATION, episodes({"spin": spin}, [False, True]))
    assert out["rate"][0] == pytest.approx(1.5)
    assert out["dropped"][0] == 0.5


def test_a_policy_depends_on_its_task_and_its_learner_only() -> None:
    def depends(path: str) -> bool:
        return sim_learning.needed(path, "lift")

    assert all(map(depends, ["sim/env.py", "sim/tasks/lift.py", "configs/experiment/lift.yaml",
                             "policies/algos/ppo.py"]))
    assert not any(map(depends, ["sim/tasks/reach.py", "configs/experiment/reach.yaml", "policies/algos/tgpo.py",
                                 "configs/task/stl/linear_reach.yaml", "configs/algo/npc.yaml"]))
    assert sim_learning.code_of("lift") != sim_learning.code_of("reach")
