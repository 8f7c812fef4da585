"""By command: a policy of a run is tuned, goes on where it stopped, needs the run no more, is judged and exported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.robots.artifact.runtime import Artifact

SHORT = ["num_worlds=2", "algo.total_steps=400", "algo.evaluate_steps=200", "algo.evaluate_episodes=2", "threads=1",
         "algo.execute=4"]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mujoco")
    folder = tmp_path_factory.mktemp("few")
    assert main(["data", "generate", "task=joint_target", "quality=noisy", "episodes=2",
                 f"out={folder / 'demos'}"]) == 0
    assert main(["train", "algo=flow", f"dataset={folder / 'demos'}", f"out={folder / 'run'}", "algo.updates=10",
                 "algo.relative=joint_pos", "algo.horizon=8", "algo.execute=4", "algo.hidden=[16]", "algo.context=16",
                 "algo.evaluate_updates=0"]) == 0
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ["algo=flow_sde", "algo.reward=formula"], ["algo=dsrl", "algo.warmup=8", "algo.batch=8"],
    ["algo=residual"],
    ["algo=flow_grpo", "algo.group=2", "algo.reward=task"], ["algo=flow_sde", "algo.overlap=true"]])
def test_a_tuned_policy_is_a_policy(words: list[str], few: Path, tmp_path: Path) -> None:
    base, run = tmp_path / "base", tmp_path / "run"
    shutil.copytree(few, base)
    train = ["train", *words, *SHORT, f"algo.policy={base}", f"out={run}"]
    assert main(train) == 0
    assert main([*train, "algo.total_steps=800", "resume=true"]) == 0
    shutil.rmtree(base)
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert main(["export", str(run), "--out", str(tmp_path / "artifact")]) == 0
    assert Artifact.load(tmp_path / "artifact").manifest.chunk is not None


@pytest.mark.slow
def test_the_run_says_which_task_it_is_about(few: Path) -> None:
    settings = tuning.settings_of(["algo=flow_sde", f"algo.policy={few}", "task.settings.share=0.25"])
    assert settings["task"]["name"] == "joint_target" and settings["task"]["settings"]["share"] == 0.25
    assert settings["num_worlds"] == tuning.WORLDS
    assert main(["train", "algo=flow_sde", f"algo.policy={few}", "task=reach"]) == 2
