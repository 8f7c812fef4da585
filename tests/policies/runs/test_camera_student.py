"""The whole road of docs/how-to/residual.md at a tiny size: base, residual, episodes of both under looks drawn at
random, a student that sees, its evaluation, its artifact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.runs.settings.compose import compose
from temporeal.robots.artifact.runtime import Artifact

CAMERA = ["cameras.front={width: 16, height: 16, kinds: [rgb]}", "renderer=gl"]
FLOW = ["algo=flow", "algo.updates=2", "algo.batch=4", "algo.horizon=4", "algo.execute=4", "algo.hidden=[8]",
        "algo.context=8", "algo.evaluate_updates=0"]
RESIDUAL = ["algo=resip", "base.reward=sparse", "num_worlds=2", "threads=1", "algo.threads=1", "algo.rollout_steps=8",
            "algo.total_steps=32", "algo.minibatches=2", "algo.actor_hidden=[8]", "algo.critic_hidden=[8]"]


def test_the_looks_of_a_student_are_those_of_look_and_more() -> None:
    look, student = (compose(["task=drawer", f"randomize={name}"])["randomize"]["appearance"]
                     for name in ("look", "look_student"))
    assert {**student, **look} == student and {"light.sun.pos", "color.floor"} <= set(student) - set(look)


@pytest.mark.slow
def test_base_residual_student_and_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco.egl")
    demos, base, run, seen, student, artifact = (
        str(tmp_path / name) for name in ("demos", "base", "run", "seen", "student", "artifact"))
    task = "task=drawer"
    assert main(["data", "generate", task, "episodes=2", f"out={demos}"]) == 0
    assert main(["train", *FLOW, f"dataset={demos}", f"out={base}"]) == 0
    assert main(["train", task, *RESIDUAL, f"base.policy={base}", f"out={run}"]) == 0
    assert main(["data", "generate", task, f"expert={run}", "episodes=2", "pictures=raw", "randomize=look_student",
                 *CAMERA, f"out={seen}"]) == 0
    data = Dataset.open(Path(seen))
    first = data.frames("front_rgb", [0, len(data.episode(0).signals["joint_pos"])])  # of both episodes
    assert first[0].shape == (16, 16, 3)
    assert np.abs(first[0].astype(float) - first[1].astype(float)).mean() > 5.0  # the same scene in other looks
    reads = "algo.signals=[joint_pos,finger_pos,grip_pos_w,grip_quat_w,front_rgb]"
    assert main(["train", *FLOW, reads, "algo.auxiliary=[handle_pos_w]", f"dataset={seen}", f"out={student}"]) == 0
    assert main(["export", student, "--out", artifact]) == 0
    named = {each.name for each in Artifact.load(Path(artifact)).manifest.signals}
    assert "front_rgb" in named and not {"handle_pos_w", "cabinet_place"} & named
    told = []
    for folder in (student, artifact):
        capsys.readouterr()
        assert main(["eval", folder, "--episodes", "2", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        told.append(next(each for each in found.values() if isinstance(each, dict))["robustness"]["mean"])
    assert told[0] == pytest.approx(told[1], abs=1e-2)
