"""From demonstrations to a flight by command: chunks are trained, judged, exported, judged again, and flown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.artifact.runtime import Artifact


@pytest.mark.slow
def test_a_flow_policy_from_demonstrations_to_a_flight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    torch = pytest.importorskip("torch")
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.imitation import flow

    demos, run, artifact = tmp_path / "demos", tmp_path / "run", tmp_path / "artifact"
    assert main(["data", "generate", "task=joint_target", "quality=noisy", "episodes=40", f"out={demos}"]) == 0
    train = ["train", "algo=flow", f"dataset={demos}", f"out={run}", "algo.relative=joint_pos", "algo.horizon=8",
             "algo.hidden=[64,64]", "algo.context=64", "algo.updates=200"]
    assert main(train) == 0
    assert main(["eval", str(run), "--episodes", "8", "algo.execute=4"]) == 0
    own = ["data", "generate", "task=joint_target", f"expert={run}", "episodes=2", f"out={tmp_path / 'own'}"]
    assert main(own) == 0
    flown, policy = Dataset.open(tmp_path / "own").episode(0), flow.load_chunks(run)
    first = policy.rows({name: torch.tensor(flown.signals[name][:1]) for name in policy.signals})
    np.testing.assert_allclose(flown.action[:8], first[0].detach().numpy(), atol=1e-4)
    assert main(["export", str(run), "--out", str(artifact)]) == 0
    assert Artifact.load(artifact).manifest.chunk == ChunkSpec(8, 0.04)
    capsys.readouterr()
    assert main(["eval", str(artifact), "--episodes", "8", "--json", "algo.execute=4"]) == 0
    assert main(["eval", str(artifact), "--episodes", "8", "algo.execute=9", "algo.ensemble=0.1"]) == 0
    assert main(["deploy", str(artifact), "--sim", "--flights", "1", "--out", str(tmp_path / "flight")]) in (0, 1)
    (worker,) = (tmp_path / "flight").glob("*/worker.json")
    assert json.loads(worker.read_text())["chunks"] > 3 and json.loads(worker.read_text())["failed"] == 0
