"""The rows of the study of the gap, of trials that are written here; its mission as a task; its base as an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.runtime import Artifact
from temporeal_benchmarks.residual import gap_robot, gap_study


def trial(successes: int, trials: int, **more: Any) -> dict[str, Any]:
    return {"successes": successes, "trials": trials, "low": 0.0, "high": 1.0, "late": 3, "cycles": 1000, "outside": 0,
            "sent": 900, "learning": {"outside": 0, "sent": 50_000}, **more}


def rows_of(**trials: Any) -> dict[str, Any]:
    return {row.name: row for row in gap_study.judged({name.replace("_", "-"): each for name, each in trials.items()})}


def test_nothing_is_claimed_before_it_is_measured() -> None:
    rows = rows_of()
    assert set(rows) == set(gap_study.ROWS) and all(row.value is None for row in rows.values())
    assert not any(row.ok for row in rows.values())


def test_what_the_base_loses_is_the_difference_of_two_shares() -> None:
    rows = rows_of(nominal=trial(40, 40), zero_shot=trial(80, 100))
    assert rows["residual.gap.loss"].value == pytest.approx(0.2) and rows["residual.gap.loss"].ok
    assert rows_of(nominal=trial(40, 40), zero_shot=trial(90, 100))["residual.gap.loss"].ok is False
    assert rows["residual.gap.learned"].value is None


def test_the_worst_seed_counts_and_so_does_every_command() -> None:
    learned = {f"learned_{seed}": trial(count, 100) for seed, count in zip(gap_study.SEEDS, (99, 94, 100))}
    rows = rows_of(nominal=trial(40, 40), zero_shot=trial(0, 100), **learned)
    assert rows["residual.gap.learned"].value == pytest.approx(0.94) and rows["residual.gap.learned"].ok is False
    assert rows["residual.gap.outside"].ok
    learned["learned_2"]["learning"]["outside"] = 1
    assert rows_of(nominal=trial(40, 40), zero_shot=trial(0, 100), **learned)["residual.gap.outside"].ok is False


def test_a_learning_that_was_stopped_counts_all_its_commands(tmp_path: Path) -> None:
    parts = tmp_path / "learning-1.jsonl"
    for outside in (0, 2):
        gap_study.note(parts, {"sent": 10, "outside": outside, "clock_s": 1.5, "late_share": 0.1})
    found = gap_study.summed(parts)
    assert (found["sent"], found["outside"], found["clock_s"]) == (20, 2, 3.0) and "late_share" not in found


def test_the_mission_of_the_base_is_the_task_that_is_learned(tmp_path: Path) -> None:
    from temporeal.policies.robot_learning.ros_world_opening import require_mission, resting
    from temporeal.policies.runs.errors import BadInput

    base = Artifact.load(gap_robot.base(tmp_path / "base"))
    base.self_test()
    task = gap_study.task_of()
    require_mission(base.manifest, task)
    rest = resting(task)
    level = {"base_pos_w": np.array(gap_robot.CONSTANTS["a"], np.float32), "base_vel_w": np.zeros(3, np.float32),
             "base_quat_w": np.array([1.0, 0.0, 0.0, 0.0], np.float32)}
    assert base.act(level)[gap_robot.COMMAND] == pytest.approx(rest, abs=1e-5)  # at A, level and at rest: it hovers
    other = gap_study.task_of(["task.settings.constants.reach=0.3"])
    with pytest.raises(BadInput, match="would judge another mission"):
        require_mission(base.manifest, other)
