"""By command: a run's policy goes on with adapters, is a specialist beside it, and both become one network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.training.warm_starts.merging import TABLE
from temporeal.robots.artifact.runtime import Artifact

SMALL = ["num_worlds=8", "threads=1", "algo.threads=1"]
PPO = [*SMALL, "algo.total_steps=2000", "algo.rollout_steps=25"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mujoco")
    run = tmp_path_factory.mktemp("warm") / "base"
    assert main(["train", "task=joint_target", "algo=ppo", *PPO, f"out={run}"]) == 0
    return run


@pytest.mark.slow
def test_what_cannot_go_on_is_refused_by_name(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for words, said in ((["task=reach"], "its actions are other commands: numbers of an action 7 there, 6 here"),
                        (["task=joint_target", "algo.actor_hidden=[8]"], r"algo.actor_hidden=[8] here, [64, 64] there"),
                        (["task=hover"], "its actions are other commands: command ")):
        assert main(["train", *words, "algo=ppo", *SMALL, f"algo.adapt={base}", f"out={tmp_path / 'run'}"]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_adapters_and_specialists_are_policies_like_any_other(base: Path, tmp_path: Path) -> None:
    adapted, both, one, merged = (tmp_path / name for name in ("adapted", "both", "one", "merged"))
    changed = ["task=joint_target", "task.settings.share=0.25"]
    words = ["train", *changed, "algo=ppo", *PPO, f"algo.adapt={base}", "algo.adapters=2", f"out={adapted}"]
    assert main(words) == 0
    assert main([*words, "algo.total_steps=4000", "resume=true"]) == 0
    assert main(["train", *changed, "algo=specialists", *SMALL, f"algo.adapt={base}",
                 f"algo.specialists=[{adapted}]", "algo.updates=20", "algo.round_updates=10", f"out={both}"]) == 0
    assert main(["train", *changed, "algo=specialists", *SMALL, "algo.merge=true", f"algo.adapt={base}",
                 f"algo.specialists=[{adapted}]", "algo.choices=[0.0,1.0]", "algo.episodes=2", f"out={merged}"]) == 0
    told = json.loads((merged / TABLE).read_text())
    assert set(told["success"]) == {str(base), str(adapted), "merged"} and set(told["weights"]) == {str(adapted)}
    assert main(["train", *changed, "algo=specialists", *SMALL, "algo.merge=true", f"algo.adapt={adapted}",
                 f"algo.specialists=[{base}]", f"out={tmp_path / 'wrong'}"]) == 2
    assert not (tmp_path / "wrong").exists()
    for run in (adapted, both, merged):
        assert main(["eval", str(run), "--episodes", "2"]) == 0
        assert main(["export", str(run), "--out", f"{run}-artifact"]) == 0
        assert Artifact.load(Path(f"{run}-artifact")).manifest.chunk is None
    assert main(["train", *changed, "algo=dagger", *SMALL, f"algo.expert={both}", "algo.updates=20",
                 "algo.round_updates=20", f"out={one}"]) == 0
