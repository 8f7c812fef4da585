"""By command: RL-100's pipeline from a dataset to a policy of one step, stopped after each of its stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.interrupts import Interrupted
from temporeal.policies.runs.pipelines.rl100 import Stages
from temporeal.robots.artifact.runtime import Artifact

TINY = ["algo=rl100", "algo.episodes=4", "algo.record=4", "algo.execute=4", "num_worlds=2", "threads=1",
        "algo.stages.imitation={updates: 20, horizon: 8, hidden: [16], context: 16, relative: joint_pos}",
        "algo.stages.offline={updates: 12, critic_updates: 8, gate_rounds: 4, fqe_updates: 20, hidden: [16], "
        "states: 64}",
        "algo.stages.online={total_steps: 400, evaluate_steps: 200, evaluate_episodes: 2}",
        "algo.stages.one_step={updates: 10}"]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mujoco")
    folder = tmp_path_factory.mktemp("demos") / "set"
    assert main(["data", "generate", "task=joint_target", "quality=noisy", "episodes=6", f"out={folder}"]) == 0
    return folder


def stages_of(run: Path) -> list[dict]:
    done = json.loads((run / "stages.json").read_text())["done"]
    return [{key: value for key, value in stage.items() if key != "seconds"} for stage in done]


@pytest.mark.slow
def test_it_goes_from_a_dataset_to_one_step_and_on_from_where_it_was_stopped(
    demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, parts = (["train", *TINY, f"dataset={demos}", f"out={tmp_path / name}"] for name in ("whole", "parts"))
    assert main(whole) == 0
    assert [stage["name"] for stage in stages_of(tmp_path / "whole")] == [
        "imitation", "offline-1", "collect-1", "offline-2", "online", "one_step"]
    judged = Stages.judged

    def stopped(stages: Stages, run: Path) -> dict:
        """Once in each stage: it has learned, and is not entered as done."""
        if not (run / "stopped").exists():
            (run / "stopped").touch()
            raise Interrupted(2)
        return judged(stages, run)

    monkeypatch.setattr(Stages, "judged", stopped)
    for _ in range(5):
        assert main(parts) == 130
        parts = [*parts[:-1], parts[-1], "resume=true"] if "resume=true" not in parts else parts
    assert main(parts) == 0
    assert stages_of(tmp_path / "parts") == stages_of(tmp_path / "whole")
    assert main([*parts, "algo.iterations=3"]) == 2  # another pipeline
    assert main(["eval", str(tmp_path / "parts"), "--episodes", "2"]) == 0
    assert main(["export", str(tmp_path / "parts"), "--out", str(tmp_path / "artifact")]) == 0
    assert Artifact.load(tmp_path / "artifact").manifest.chunk is not None


def test_settings_of_a_late_stage_are_refused_before_the_first(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["train", "algo=rl100", "task=joint_target", "dataset=none", f"out={tmp_path / 'run'}"]
    assert main([*words, "algo.stages.one_step.levles=2"]) == 2
    assert "algo.stages.one_step: algo=consistency has no setting 'levles'; legal: " in capsys.readouterr().err
    assert main([*words, "algo.stages.online.clip=0"]) == 2
    assert "algo.stages.online: algo.clip must be positive, got 0" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
