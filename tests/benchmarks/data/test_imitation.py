"""The study of imitation: its jobs, what each is told, and how its results are judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temporeal_benchmarks.data import imitation, imitation_study
from temporeal_benchmarks.data.imitation_study import Job


def test_teachers_come_before_their_students() -> None:
    found = [job.name for job in imitation_study.jobs(2)]
    assert len(found) == len(set(found)) == 16
    for name in found:
        if "/consistency/" in name:
            assert found.index(name.replace("consistency", "diffusion")) < found.index(name)


def test_a_job_says_what_it_reads(tmp_path: Path) -> None:
    words = imitation_study.words_of(Job("lift", "pictures", "flow", 2), tmp_path)
    assert f"dataset={tmp_path / 'sets' / 'lift-pictures-2'}" in words
    assert "seed=2" in words and "algo.auxiliary=[cube_pos_w]" in words
    (signals,) = (word for word in words if word.startswith("algo.signals="))
    assert "front_rgb,wrist_rgb" in signals and "cube" not in signals


def test_results_are_pooled_over_seeds_and_few_are_not_judged() -> None:
    def share(successes: int, trials: int = 200) -> dict[str, int]:
        return {"successes": successes, "trials": trials}

    trials = {"push/pictures/flow/1": share(100)}
    for seed, (teacher, student) in enumerate([(190, 186), (182, 178), (186, 182)], 1):
        trials |= {f"lift/state/diffusion/{seed}": share(teacher), f"lift/state/consistency/{seed}": share(student)}
    rows = {row.name: row for row in imitation_study.judged(trials)}
    assert rows["data.imitation.lift.state.diffusion.success"].value == pytest.approx(0.93)
    assert rows["data.imitation.lift.state.diffusion.success"].ok is True
    loss = rows["data.imitation.lift.state.consistency.loss"]
    assert loss.value == pytest.approx(0.02) and loss.ok is True
    assert rows["data.imitation.push.pictures.flow.success"].ok is None
    missing = rows["data.imitation.push.state.flow.success"]
    assert missing.ok is False and "--parts imitation-study" in str(missing.peer)


def test_inferences_are_timed_in_turn(tmp_path: Path) -> None:
    artifact = imitation.exported(imitation.policy_of("act", imitation.STATE), tmp_path / "act")
    times = imitation.times_ms([artifact, artifact], 3)
    assert times.shape == (2, 2, 3) and np.all(times > 0)
