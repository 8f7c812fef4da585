"""The study of learned bases: the first base that half succeeds is corrected, and the worst seed is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.examples import thinned

from temporeal.policies.runs.settings.compose import compose
from temporeal_benchmarks.residual import learned_study as study
from temporeal_benchmarks.residual.learned_tasks import TASKS
from temporeal_benchmarks.vla import rl_study


def test_all_jobs_of_a_seed_are_before_the_next_and_a_base_before_what_corrects_it() -> None:
    names = [job.name for job in study.jobs(2)]
    assert len(names) == 2 * 3 * len(TASKS)
    assert names[:3] == ["push/base/1", "push/resip/1", "push/resfit/1"]
    assert all(name.endswith("/1") for name in names[: 3 * len(TASKS)])


@pytest.mark.parametrize("name", thinned(list(TASKS), keep=["push", "peg"]))
def test_words_are_settings_and_base_and_residual_are_of_one_world(name: str) -> None:
    world = TASKS[name]
    shown, seen = (compose([*world.words, *more]) for more in (world.shown, world.seen))
    told, tells = shown["task"]["settings"], seen["task"]["settings"]
    differs = {key for key in told if told[key] != tells[key]}
    assert shown["cameras"] == seen["cameras"] and len(shown["cameras"]) == 2 and differs <= {"see"}
    base = compose([*world.words, *world.shown, *world.cloned])
    assert {f"{camera}_rgb" for camera in base["cameras"]} <= set(base["algo"]["signals"])
    for learner, words in study.LEARNERS.items():
        settings = compose([*world.words, *world.seen, "base.policy=RUN", "base.reward=sparse", *words,
                            *world.trained[learner]])
        assert settings["base"]["pictures"] is False and settings["base"]["reward"] == "sparse"


def test_the_first_base_of_the_ladder_that_succeeds_often_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, enough, more = TASKS["pick-place"].ladder[:3]
    wins, judged = {few: 12, enough: 40, more: 90}, list[tuple[int, int]]()

    def shown(folder: Path, episodes: int, seed: int) -> dict[str, Any]:
        judged.append((int(folder.name), seed))
        return {"successes": wins[int(folder.name)], "trials": 100}

    monkeypatch.setattr(study, "cloned", lambda job, count, out, how: Path(str(count)))
    monkeypatch.setattr(study, "shown", shown)
    job = study.Job("pick-place", "base", 3)
    trial = study.done(job, tmp_path, study.Try())
    assert trial["demonstrations"] == enough and trial["shares"] == {str(few): 0.12, str(enough): 0.4}
    assert judged == [(few, study.ON_THE_WAY + 3), (enough, study.ON_THE_WAY + 3)]
    assert study.done(job, tmp_path, study.Try()) == trial and len(judged) == 2
    wins[more] = 30
    last = study.done(replace(job, seed=4), tmp_path, study.Try(ladder=(few, more)))
    assert last["demonstrations"] == more and last["shares"] == {str(few): 0.12, str(more): 0.3}


def test_seconds_of_a_training_that_was_stopped_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rl_study, "run", lambda words, out: out)
    monkeypatch.setattr(study, "done", lambda job, out, how: {"demonstrations": 3})
    monkeypatch.setattr(study, "cloned", lambda job, count, out, how: tmp_path / "base")
    monkeypatch.setattr(study, "shown", lambda folder, episodes, seed: {})
    monkeypatch.setattr("temporeal.policies.runs.run_folders.load_run", lambda folder: {"algo": {"total_steps": 5}})
    for task, known in (("peg", False), ("push", True)):  # Meta-World's begin anew
        job = study.Job(task, "resip", 1)
        checkpoints = tmp_path / "runs" / job.name / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "000001.pt").touch()
        assert (study.corrected(job, tmp_path, study.Try())["train_cpu_s"] is not None) == known
        assert study.corrected(job, tmp_path, study.Try())["train_cpu_s"] is None  # it is over, and only judged


def based(share: float) -> dict[str, Any]:
    return {"demonstrations": 40, "shares": {"20": 0.1, "40": share}, "train_cpu_s": 300.0}


def corrected(successes: int, steps: int, seconds: float) -> dict[str, Any]:
    return {"successes": successes, "trials": 512, "low": 0.9, "high": 1.0, "base": 256, "fixed": 240, "broken": 2,
            "steps": steps, "train_cpu_s": seconds}


def test_the_worst_seed_is_judged_for_each_target_and_missing_ones_are_said() -> None:
    trials: dict[str, Any] = {}
    for seed, share in ((1, 0.5), (2, 0.71), (3, 0.6)):
        trials[f"peg/base/{seed}"] = based(share)
        trials[f"peg/resip/{seed}"] = corrected(500 - 10 * seed, 300_000, 2399.0 + seed)
        trials[f"peg/resfit/{seed}"] = corrected(500, 60_000, 900.0)
    rows = {row.name.removeprefix("residual.learned."): row for row in study.judged(trials)}
    assert len(rows) == 7 * len(TASKS)
    peg = {name.removeprefix("peg."): (row.value, row.ok) for name, row in rows.items() if name.startswith("peg.")}
    assert peg == {"base": (0.5, False), "resip": (470 / 512, False), "resip.seconds": (2402.0, False),
                   "resfit": (500 / 512, True), "resfit.seconds": (900.0, True), "resfit.steps": (60_000, True),
                   "resfit.part": (0.2, True)}
    trials["peg/resfit/2"]["train_cpu_s"] = None
    (stopped,) = (row for row in study.judged(trials) if row.name == "residual.learned.peg.resfit.seconds")
    assert stopped.value is None and stopped.ok is False and "1 of 3 trainings were stopped" in str(stopped.peer)
    missing = [row for name, row in rows.items() if name.startswith("pick-place.")]
    assert all(row.value is None and row.ok is False for row in missing)
    assert all("0 of 3 seeds" in str(row.peer) and "learned-study" in str(row.peer) for row in missing)
