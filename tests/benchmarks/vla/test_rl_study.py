"""The study of tuning: what a training that was stopped took is not known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from temporeal.policies.runs import evaluating, trained
from temporeal_benchmarks.vla import rl_study
from temporeal_benchmarks.vla.rl_study import Job, done, judged


@pytest.mark.parametrize("arm, folder", [("base", "push/pictures/cloned-1/1"), ("more", "push/pictures/cloned-4/1"),
                                         ("recap", "push/pictures/recap/1"),
                                         ("residual+task", "push/pictures/residual+task/1")])
def test_seconds_are_those_of_a_whole_training(
    arm: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = SimpleNamespace(successes=3, trials=4, low=0.3, high=0.95)
    monkeypatch.setattr(rl_study, "tuned", lambda job, out: rl_study.folder_of(job, out))
    settings, judged_by = {"backend": {"name": "mujoco"}, "algo": {"execute": 8, "horizon": 16}}, []
    monkeypatch.setattr(trained, "load_trained", lambda run: SimpleNamespace(settings=settings))
    monkeypatch.setattr(evaluating, "evaluate_on", lambda found, given, *_: judged_by.append(given) or SimpleNamespace(
        evaluation=SimpleNamespace(satisfied=share)))
    job = Job("push", "pictures", arm, 1)
    whole = done(job, tmp_path, 4)
    assert whole["train_cpu_s"] >= 0.0
    assert judged_by[0]["algo"] == {"execute": 4, "horizon": 16} and settings["algo"]["execute"] == 8
    (tmp_path / "runs" / folder / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / folder / "checkpoints" / "00000010.rank0of1.pt").touch()
    part = done(job, tmp_path, 4)
    assert part["train_cpu_s"] is None and part["successes"] == 3
    rows = {row.name: row.peer for row in judged({job.name: part})}
    assert "seconds not measured" in rows[f"vla.rl.push.pictures.{arm}"]
