"""By command: a policy of a run is tuned, goes on where it stopped, needs the run no more, is judged and exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.policies.training.warm_starts.merging import TABLE
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.sim.task import load_task

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


def test_a_progress_model_of_another_interface_is_refused_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    task, words = load_task("joint_target"), ["task=joint_target", "algo=flow_sde", "algo.progress_model=runs/vlac"]
    joints, picture = task.schema["joint_pos"], SignalSpec("front_rgb", (8, 6, 3), "1", dtype="uint8")
    action, rate = ActionSpec("joint_pos_cmd", (0.0,), (1.0,)), 1.0 / task.control_dt

    def found(robot: str, rate_hz: float, *signals: SignalSpec, cameras: str = "") -> object:
        learned = Interface(robot, {spec.name: spec for spec in signals}, action, rate_hz)
        model = SimpleNamespace(interface=learned)
        monkeypatch.setattr(tuning, "load_progress", lambda run: model)
        return tuning.progress_of(compose([*words, *([cameras] if cameras else [])]), task) is model

    seen = "cameras.front={width: 6, height: 8, kinds: [rgb]}"
    assert found(task.robot.name, rate, joints, picture, cameras=seen)
    for refused, match in (((task.robot.name, rate, joints, picture), "signal front_rgb is missing"),
                           ((task.robot.name, rate, SignalSpec("joint_pos", (3,), "rad")), "signal joint_pos, shape"),
                           (("arm7", 7.0, joints), "robot: 'arm7' is needed, .*; rate_hz: 7.0 is needed")):
        with pytest.raises(BadInput, match=f"algo.progress_model=runs/vlac does not fit .*{match}"):
            found(*refused)


@pytest.mark.slow
def test_what_was_tuned_from_one_run_becomes_one_policy(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, one, two, merged = (tmp_path / name for name in ("start", "one", "two", "merged"))
    shutil.copytree(few, start)
    for run, share in ((one, "0.25"), (two, "0.5")):
        assert main(["train", "algo=flow_sde", *SHORT, f"algo.policy={start}", f"task.settings.share={share}",
                     f"out={run}"]) == 0
    merging = ["train", "algo=specialists", "algo.merge=true", f"algo.adapt={start}", "num_worlds=2", "threads=1"]
    chosen = ["algo.choices=[0.0,1.0]", "algo.episodes=2", f"out={merged}"]
    for words, said in (
            ([f"algo.specialists=[{one},{few}]"], f"{few}: it was not tuned from another run"),
            ([f"algo.specialists=[{one}]", "algo.merge=false"], "algo.merge=true averages those that were tuned from"),
            ([f"algo.specialists=[{one}]", "algo.execute=9"], "algo.execute is at most 8")):
        assert main([*merging, *chosen, *words]) == 2
        assert said in capsys.readouterr().err
    assert main([*merging, *chosen, f"algo.specialists=[{one},{two}]"]) == 0
    told = json.loads((merged / TABLE).read_text())
    assert set(told["success"]) == {str(start), str(one), str(two), "merged"}
    assert len(told["success"]["merged"]) == 2  # both tasks
    for run in (start, one, two):
        shutil.rmtree(run)
    assert main(["eval", str(merged), "--episodes", "2"]) == 0
    assert main(["export", str(merged), "--out", str(tmp_path / "artifact")]) == 0
    assert Artifact.load(tmp_path / "artifact").manifest.chunk is not None
    assert main(["train", "algo=flow_sde", *SHORT, f"algo.policy={merged}", f"out={tmp_path / 'on'}"]) == 0
