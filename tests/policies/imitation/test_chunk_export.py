"""Chunk policies as ONNX files: equal to PyTorch, for any batch size, and fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.imitation.chunk_files import ROBOT, exported, interface_of, rows_of, shaken, shown

from temporeal.policies.imitation import act, consistency, diffusion, flow
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.robots.signals import SignalSpec, schema

H, SIZE = 8, 32
SEEN = schema(ROBOT.signals["joint_pos"], SignalSpec("cube_quat_w", (4,), "wxyz", "w"), SignalSpec("grip_open"),
              SignalSpec("front_rgb", (SIZE, SIZE, 3), "1", "", "uint8"))
INTERFACE = interface_of(SEEN)
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
    return shaken(policy)


@pytest.mark.parametrize("name", [
    "flow", "act", "unet", *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "diffusion", "transformer", "flow+distilled", "diffusion+distilled"))])
def test_the_file_gives_what_the_policy_gives(name: str, tmp_path: Path) -> None:
    policy, signals = policy_of(name), shown(SEEN, 6)
    rows = rows_of(policy, signals)
    assert rows.shape == (6, H, 8) and np.ptp(rows, axis=0).max() > 1e-3
    artifact = exported(policy, signals, rows, tmp_path / "artifact")
    found = artifact.act_batch(signals, {})[0]["arm_cmd"]
    assert np.abs(found - rows).max() < 1e-5
