"""Wrong words for a residual are refused with what is right: the base, its task, its learner, its dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from temporeal.policies.algos import residual
from temporeal.policies.runs import environments, offline, training
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.fitting import check_fit
from temporeal.policies.runs.residual.opening import require_there
from temporeal.policies.runs.residual.training import check_learner
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.tuning_runs.bases import settings_of


@pytest.fixture(scope="module")
def hover() -> dict[str, Any]:
    return compose(["task=hover", "algo=resip", "base.expert=scripted"])


def test_a_missing_base_is_told_from_a_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/train/lift-flow-1").mkdir(parents=True)
    (tmp_path / "outputs/train/lift-flow-1/config.yaml").write_text("{}")
    with pytest.raises(BadInput, match=r"base.policy=outputs/train/lift-flow is not there: did you mean "
                                       r"'outputs/train/lift-flow-1'\? .*; runs here: outputs/train/lift-flow-1"):
        require_there(Path("outputs/train/lift-flow"), None)
    with pytest.raises(BadInput, match=r"base.policy=outputs is no run \(it has no config.yaml\) and no artifact: "):
        require_there(Path("outputs"), None)
    require_there(Path("outputs/train/lift-flow-1"), None)


def test_what_would_fit_is_named(hover: dict[str, Any]) -> None:
    other = {**hover, "task": compose(["task=waypoints"])["task"]}
    with pytest.raises(BadInput, match="does not fit hover: task waypoints, here hover; .*. Needed is a base of task "
                                       "hover on robot crazyflie at 100 Hz; this one was trained with task=waypoints$"):
        check_fit(Path("base"), other, hover, environments.make_task(hover), trained=False)


def test_the_word_for_the_base_of_another_learner_is_said(hover: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="algo.policy=RUN: algo=resip corrects what base.policy=RUN names: base"):
        settings_of(["task=lift", "algo=resip", "algo.policy=RUN"])
    given = {**hover, "algo": {"name": "residual", "policy": ""}}
    with pytest.raises(BadInput, match="base.expert=scripted: algo=residual corrects no base; .*: resip, resfit, ppo, "
                                       "sac, td3, rlpd. algo=residual goes on from the run that algo.policy=RUN names"):
        check_learner(given, residual)


def test_a_dataset_is_named_with_the_learners_that_take_it(hover: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dataset=nowhere: algo=resip learns in a simulation and reads no episodes; "
                                       "those that do: resfit, sac, td3, rlpd$"):
        training.checked({**hover, "dataset": "nowhere", "out": str(tmp_path / "run")})
    (tmp_path / "demos").mkdir()
    with pytest.raises(BadInput, match=r"dataset=.*/demo: there is no such folder; did you mean .*demos'\? `temp"):
        offline.named_dataset(str(tmp_path / "demo"))
