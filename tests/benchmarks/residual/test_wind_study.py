"""The study of wind: a base of calm air, a residual of the wind, the worst seed judged for both airs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from temporeal.policies.runs.environments import make_task
from temporeal.policies.runs.settings.compose import compose
from temporeal_benchmarks.residual import wind_study as study


def test_the_base_never_saw_what_the_residual_flies_in_and_both_fly_one_mission() -> None:
    calm, blown = (compose([*study.WORLD, air]) for air in (study.CALM, study.BLOWING))
    drawn = calm["randomize"]["parameters"]
    assert drawn["wind_w"]["value"] == drawn["force_w"]["value"] == 0.0 and drawn["mass"]["kind"] == "sources"
    assert blown["randomize"]["parameters"] | {"wind_w": drawn["wind_w"]} == drawn
    assert blown["randomize"]["parameters"]["wind_w"]["high"] == [study.WIND, study.WIND, 0.0]
    assert calm["task"] == blown["task"]


def test_success_that_is_paid_waits_for_the_place_that_has_to_be_held() -> None:
    objective: Any = make_task(compose([*study.WORLD])).objective
    tick = torch.tensor([1.0, 351.0, 450.0, 451.0])  # samples seen: at 0, 7, 8.98 and 9 s; C is held until 9 s
    carry = {"tick": tick, "hit": torch.ones(4, 2), "broken": torch.zeros(4)}
    assert objective.success({}, carry).tolist() == [False, False, False, True]
    assert not objective.success({}, carry | {"broken": torch.ones(4)}).any()
    assert not objective.success({}, carry | {"hit": torch.tensor([[1.0, 0.0]] * 4)}).any()


def trial(wind: int, calm: int) -> dict[str, Any]:
    share = {"trials": 1000, "low": 0.9, "high": 1.0, "fixed": 0, "broken": 0}
    return {"wind": {**share, "successes": wind, "base": 700}, "calm": {**share, "successes": calm, "base": 980},
            "base_cpu_s": 100.0, "train_cpu_s": 200.0}


def test_the_worst_seed_counts_in_each_air() -> None:
    trials = {"task/1": trial(951, 985), "task/2": trial(950, 980), "task/3": trial(980, 969)}
    trials["sparse/1"] = trial(990, 985)
    rows = {row.name: row for row in study.judged(trials)}
    assert rows["residual.wind.task"].value == 0.95 and rows["residual.wind.task"].ok
    assert rows["residual.wind.task.lost"].value == pytest.approx(0.011) and not rows["residual.wind.task.lost"].ok
    trials["task/2"]["train_cpu_s"] = None
    (told,) = (row for row in study.judged(trials) if row.name == "residual.wind.task")
    assert "200 s of a core" in str(rows["residual.wind.task"].peer) and "seconds not measured" in str(told.peer)
    few = [rows["residual.wind.sparse"], rows["residual.wind.sparse.lost"]]
    assert len(rows) == 4 and all(row.value is None and row.ok is False for row in few)
    assert "1 of 3 seeds; temporeal bench residual --parts wind-study" in str(few[0].peer)


def test_a_trial_that_is_there_is_not_made_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def make(reward: str, seed: int, out: Any, how: Any) -> dict[str, Any]:
        made.append(f"{reward}/{seed}")
        return trial(951, 985)

    monkeypatch.setattr(study, "trial", make)
    study.study(tmp_path, 1)
    study.study(tmp_path, 2, only="task")
    study.study(tmp_path, 2)
    assert made == ["task/1", "sparse/1", "task/2", "sparse/2"]


@pytest.mark.parametrize("reward", study.REWARDS)
def test_words_are_settings(reward: str) -> None:
    settings = compose([*study.WORLD, study.BLOWING, "base.policy=RUN", *study.RESIDUAL, *study.PAID[reward]])
    assert settings["base"]["reward"] == reward and settings["algo"]["init_std"] == 0.5
