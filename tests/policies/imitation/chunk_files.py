"""An arm's chunk policies and what they see, and their files: for tests that a file gives what its policy gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.instructed import instruction_spec
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot

ROBOT = load_robot("franka")
COMMAND = ROBOT.command("arm_cmd")


def interface_of(seen: dict[str, SignalSpec]) -> Interface:
    """The arm's, with the signals ``seen``."""
    return Interface("franka", seen, ActionSpec("arm_cmd", COMMAND.low, COMMAND.high), 25.0)


def shaken(policy: ChunkPolicy) -> ChunkPolicy:
    """With random weights, also where they are zero at first."""
    with torch.no_grad():
        for value in policy.parameters():
            value.add_(0.05 * torch.randn(value.shape))
    return policy.eval()


def shown(seen: dict[str, SignalSpec], count: int) -> dict[str, np.ndarray]:
    """Random values of the signals ``seen``, but for words."""
    rng = np.random.default_rng(1)
    found = {}
    for name, spec in seen.items():
        if spec.dtype == "uint8":
            found[name] = rng.integers(0, 256, (count, *spec.shape)).astype(np.uint8)
        elif spec.dtype == "float32":
            value = rng.normal(size=(count, *spec.shape))
            size = np.linalg.norm(value, axis=-1, keepdims=True) if spec.unit == "wxyz" else 1.0
            found[name] = (value / size).astype(np.float32)
    return found


def rows_of(policy: ChunkPolicy, signals: dict[str, np.ndarray]) -> np.ndarray:
    """What PyTorch gives."""
    with torch.no_grad():
        return policy.rows({name: torch.from_numpy(value) for name, value in signals.items()}).numpy()


def exported(
    policy: ChunkPolicy, signals: dict[str, np.ndarray], rows: np.ndarray, folder: Path,
    memory: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Artifact:
    """The policy's file; ``memory``: what it remembered before each of the inferences."""
    seen = policy.interface.signals
    spec = ArtifactSpec(
        robot=ROBOT, signals=policy.signals, command="arm_cmd", rate_hz=25.0, formula_text="", constants={},
        horizon_s=1.0, training={}, seed=0, stop="hold", git_revision="test", task_signals=seen,
        chunk=ChunkSpec(policy.horizon, 0.04), instruction=instruction_spec(seen.values(), policy.vocabulary))
    golden = {**{f"signals.{name}": value for name, value in signals.items()}, "commands.arm_cmd": rows, **memory}
    return export(policy, folder, spec, golden)
