"""Training with cameras by command: what is refused, and the chain from a run to its artifact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs import training
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose

CAMERA = ["cameras.chase={width: 16, height: 16, kinds: [rgb]}", "renderer=gl"]
SMALL = ["num_worlds=4", "algo.total_steps=128", "algo.rollout_steps=8", "algo.threads=1"]


@pytest.mark.parametrize(("words", "said"), [
    (["algo=tgpo", *CAMERA], "algo=tgpo learns from the observation alone.*algo=ppo"),
    (["algo=ppo", "algo.hide=[base_pos_w]"], r"algo.hide=\['base_pos_w'\].*no camera"),
    (["algo=ppo", *CAMERA, "algo.hide=[base_pos]"], "no signal 'base_pos'; did you mean 'base_pos_w'"),
    (["algo=ppo", *CAMERA, *SMALL, "algo.memory=8"], "memory is 8, but a recurrent actor reads no pictures"),
])
def test_what_cannot_be_learned_from_pictures_is_named(words: list[str], said: str, tmp_path: Path) -> None:
    pytest.importorskip("mujoco.egl")
    with pytest.raises(BadInput, match=said):
        training.train(compose(["task=hover", *words, f"out={tmp_path / 'run'}"]), quiet=True)


LEARNERS = {
    "ppo": ["algo.rollout_steps=8"],
    "sac": ["algo.hidden=[8]", "algo.warmup=64", "algo.batch=8", "algo.report_steps=32", "algo.evaluate_steps=96",
            "algo.evaluate_episodes=2"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_with_a_camera_is_evaluated_resumed_and_exported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mujoco.egl")
    run, artifact = tmp_path / "run", tmp_path / "artifact"
    words = ["train", "task=hover", f"algo={name}", *CAMERA, "algo.hide=[base_pos_w]", f"out={run}",
             "num_worlds=4", "algo.threads=1", *LEARNERS[name]]
    assert main([*words, "algo.total_steps=96"]) == 0
    assert main([*words, "algo.total_steps=128", "resume=true"]) == 0
    assert main(["export", str(run), "--out", str(artifact)]) == 0
    manifest = json.loads((artifact / "manifest.json").read_text())
    read = [signal["name"] for signal in manifest["signals"]]
    assert "chase_rgb" in read and "base_pos_w" not in read
    found = []
    for folder in (run, artifact):
        capsys.readouterr()
        assert main(["eval", str(folder), "--episodes", "4", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    mean = [next(value for key, value in each.items() if isinstance(value, dict))["robustness"]["mean"]
            for each in found]
    assert mean[0] == pytest.approx(mean[1], abs=1e-4)
    assert main(["eval", str(run), "cameras.chase.width=24", "--episodes", "4"]) == 2
    assert "[16, 16, 3]" in capsys.readouterr().err
