"""A policy of TGPO as a base: its artifact, which keeps to its schedule, in another view of the formula."""

from pathlib import Path

import numpy as np
import pytest
from tests.policies.runs.test_residual import PPO, commands

from temporeal.policies.runs import run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.residual.fitting import check_worlds
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.training import train

TASK = ["task=stl/linear_reach"]
TGPO = ["algo=tgpo", *PPO[1:], "algo.schedule_buffer=16", "algo.candidates=4", "algo.starts=2", "algo.missions=4",
        "algo.places=4"]
VIEW = "task.settings.view=terminal_robustness"


def settings_of(out: Path, *words: str) -> dict:
    return {**compose([*TASK, *words, f"out={out}"]), "compiled": False}


def test_tgpo_corrects_no_base_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="which schedule to follow .* nobody flies. Train algo=tgpo alone, then correct"):
        train(settings_of(tmp_path / "run", *TGPO, "base.policy=nowhere"), quiet=True)


def test_worlds_whose_schedules_are_drawn_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="paid by a schedule that is drawn at random.*view=terminal_robustness"):
        train(settings_of(tmp_path / "run", *PPO, "base.policy=nowhere"), quiet=True)


def test_an_artifact_goes_in_another_view_of_the_same_formula_alone() -> None:
    here = compose([*TASK, VIEW])
    check_worlds(Path("base"), compose(TASK), here)
    with pytest.raises(BadInput, match="task.settings.formula"):
        check_worlds(Path("base"), compose(["task=stl/linear_stay"]), here)


@pytest.mark.parametrize("task", ["stl/linear_stay", "hover"])
@pytest.mark.parametrize("transfer", ["false", "true"])
def test_a_run_of_another_formula_is_refused_before_it_is_exported(tmp_path: Path, task: str, transfer: str) -> None:
    base = tmp_path / "base"
    run_folders.open_run(settings_of(base, *TGPO), base, overwrite=False)
    words = [f"task={task}", *PPO, *([VIEW] if task.startswith("stl") else []), f"base.policy={base}",
             f"base.transfer={transfer}", "base.reward=formula", f"out={tmp_path / 'run'}"]
    with pytest.raises(BadInput, match=f"{base} does not fit .*: (task.settings.formula|algo=tgpo, whose policy foll)"):
        train({**compose(words), "compiled": False}, quiet=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:at the end of the training each world flies")
def test_scale_0_is_the_policy_of_tgpo_bit_for_bit(tmp_path: Path) -> None:
    base, run = tmp_path / "base", tmp_path / "run"
    train(settings_of(base, *TGPO), quiet=True)
    export_run(base, tmp_path / "base_artifact")
    words = [*PPO, VIEW, f"base.policy={base}", "base.reward=formula"]
    train(settings_of(run, *words), quiet=True)
    alone = commands(run, "base.scale=0")
    np.testing.assert_array_equal(alone, commands(tmp_path / "base_artifact"))
    np.testing.assert_allclose(alone, commands(base), atol=1e-4)  # the run itself, in its own view
    assert not np.array_equal(commands(run), alone)
    train({**settings_of(run, *words, "algo.total_steps=128"), "resume": True}, quiet=True)
    export_run(run, tmp_path / "artifact")
    np.testing.assert_allclose(commands(tmp_path / "artifact")[:10], commands(run)[:10], atol=1e-4)
