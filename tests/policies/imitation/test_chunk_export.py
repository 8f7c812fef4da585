"""Chunk policies as ONNX files: equal to PyTorch, for any batch size, and fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.imitation import act, consistency, diffusion, flow
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot

ROBOT = load_robot("franka")
H, SIZE = 8, 32
SEEN = schema(ROBOT.signals["joint_pos"], SignalSpec("cube_quat_w", (4,), "wxyz", "w"), SignalSpec("grip_open"),
              SignalSpec("front_rgb", (SIZE, SIZE, 3), "1", "", "uint8"))
COMMAND = ROBOT.command("arm_cmd")
INTERFACE = Interface("franka", SEEN, ActionSpec("arm_cmd", COMMAND.low, COMMAND.high), 25.0)
SHARED: dict[str, Any] = {"horizon": H, "context": 32, "keypoints": 4, "relative": "joint_pos", "execute": 4}
CASES = {
    "flow": (flow.Flow, flow.FlowConfig(hidden=(32, 32), denoise_steps=3, **SHARED)),
    "diffusion": (diffusion.Diffusion, diffusion.DiffusionConfig(hidden=(32, 32), denoise_steps=3, **SHARED)),
    "unet": (flow.Flow, flow.FlowConfig(network="unet", hidden=(16, 32), denoise_steps=2, **SHARED)),
    "transformer": (flow.Flow, flow.FlowConfig(network="transformer", hidden=(16, 16), denoise_steps=2, **SHARED)),
    "act": (act.Act, act.ActConfig(width=16, latent=8, **SHARED))}


def policy_of(name: str) -> ChunkPolicy:
    """With random weights, also where they are zero at first."""
    torch.manual_seed(0)
    build, config = CASES[name.partition("+")[0]]
    policy = learner.make_policy(INTERFACE, config, build)
    if name.endswith("+distilled"):
        policy = consistency.student_of(policy)
    with torch.no_grad():
        for value in policy.parameters():
            value.add_(0.05 * torch.randn(value.shape))
    return policy.eval()


def shown(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    quat = rng.normal(size=(count, 4))
    return {"joint_pos": rng.normal(size=(count, 7)).astype(np.float32),
            "cube_quat_w": (quat / np.linalg.norm(quat, axis=1, keepdims=True)).astype(np.float32),
            "grip_open": rng.random(count).astype(np.float32),
            "front_rgb": rng.integers(0, 256, (count, SIZE, SIZE, 3)).astype(np.uint8)}


@pytest.mark.parametrize("name", [
    "flow", "act", "unet", *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "diffusion", "transformer", "flow+distilled", "diffusion+distilled"))])
def test_the_file_gives_what_the_policy_gives(name: str, tmp_path: Path) -> None:
    policy, signals = policy_of(name), shown(6)
    with torch.no_grad():
        rows = policy.rows({key: torch.from_numpy(value) for key, value in signals.items()}).numpy()
    assert rows.shape == (6, H, 8) and np.ptp(rows, axis=0).max() > 1e-3
    spec = ArtifactSpec(
        robot=ROBOT, signals=policy.signals, command="arm_cmd", rate_hz=25.0, formula_text="", constants={},
        horizon_s=1.0, training={}, seed=0, stop="hold", git_revision="test", task_signals=SEEN,
        chunk=ChunkSpec(H, 0.04))
    golden = {**{f"signals.{key}": value for key, value in signals.items()}, "commands.arm_cmd": rows}
    artifact = export(policy, tmp_path / "artifact", spec, golden)
    found = artifact.act_batch(signals, {})[0]["arm_cmd"]
    assert np.abs(found - rows).max() < 1e-5
