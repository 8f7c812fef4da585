"""Policies that give action chunks: inference on one core, and the rate of a one-step head.

Networks are those of the default settings, of an arm's chunk (16 steps of 8 numbers), from state or from a 64x64
picture, through ONNX Runtime on one thread, as a robot's worker runs them. Weights are random: time does not depend on
them. Success: ``benchmarks/data/imitation_study.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.imitation import act, consistency, diffusion, flow
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.rows import Row, at_most, spread

LONGEST_MS, RATIO = 5.0, 8.0  # targets: of an inference, and of a one-step head
BLOCK = 50  # inferences in a row
WARM = 5  # inferences before those that count
ROBOT = load_robot("franka")
STATE = schema(ROBOT.signals["joint_pos"], SignalSpec("cube_pos_w", (3,), "m", "w"),
               SignalSpec("cube_quat_w", (4,), "wxyz", "w"), SignalSpec("goal_pos_w", (3,), "m", "w"))
PICTURES = schema(ROBOT.signals["joint_pos"], SignalSpec("goal_pos_w", (3,), "m", "w"),
                  SignalSpec("front_rgb", (64, 64, 3), "1", "", "uint8"))
KINDS: dict[str, tuple[Callable[[Any, int], Any], Any]] = {
    "flow": (flow.Flow, flow.FlowConfig()), "diffusion": (diffusion.Diffusion, diffusion.DiffusionConfig()),
    "act": (act.Act, act.ActConfig()),
    "flow_unet": (flow.Flow, flow.FlowConfig(network="unet", hidden=(64, 128))),
    "flow_transformer": (flow.Flow, flow.FlowConfig(network="transformer", hidden=(64, 64)))}


def rows(quick: bool, out: Path) -> list[Row]:
    """Inference times and their ratio, and what the study found."""
    count, found = (30 if quick else 500), list[Row]()
    for sees, signals in (("state", STATE), ("pictures", PICTURES)):
        for kind in KINDS if sees == "state" else ("flow", "diffusion"):
            artifact = exported(policy_of(kind, signals), out / f"{kind}-{sees}")
            clock, spent = np.median(times_ms([artifact], count), axis=(1, 2))
            found.append(at_most(f"data.imitation.{kind}.{sees}.inference", float(clock), "ms", LONGEST_MS,
                                 f"median of {count}, one thread; {spent:.3g} ms of the processor"))
    return found + one_step(out, count)


def one_step(out: Path, count: int) -> list[Row]:
    """How much faster one step is than the teacher's, measured in turn."""
    teacher = policy_of("diffusion", STATE)
    both = [exported(teacher, out / "teacher"), exported(consistency.student_of(teacher), out / "student")]
    slow, fast = np.median(times_ms(both, count)[0], axis=1)
    rates = [[rate(artifact, BLOCK) for artifact in both] for _ in range(max(3, count // BLOCK))]
    steps = f"against {diffusion.DiffusionConfig().denoise_steps} denoise steps of the same network"
    return [Row("data.imitation.one_step.inference", float(fast), "ms", peer=f"median of {count}, in turn, one thread"),
            *spread("data.imitation.one_step.rate_ratio", [many / few for few, many in rates], "1", RATIO,
                    f"{steps}: each {BLOCK} times in a row, by the clock, {len(rates)} rounds"),
            Row("data.imitation.one_step.rate_ratio_in_turn", float(slow / fast), "1",
                peer=f"{steps}: one of each in turn, so that neither finds its weights in the processor's cache")]


def rate(artifact: Artifact, count: int) -> float:
    """Inferences per second, one after the other."""
    seen = {name: artifact.golden[f"signals.{name}"][0] for name in artifact.schema}
    artifact.act(seen)
    begun = time.perf_counter()
    for _ in range(count):
        artifact.act(seen)
    return count / (time.perf_counter() - begun)


def policy_of(kind: str, signals: dict[str, SignalSpec]) -> ChunkPolicy:
    """A policy with random weights."""
    build, config = KINDS[kind]
    command = ROBOT.command("arm_cmd")
    interface = Interface("franka", signals, ActionSpec("arm_cmd", command.low, command.high), 25.0)
    torch.manual_seed(0)
    return learner.make_policy(interface, config, build).eval()


def times_ms(artifacts: list[Artifact], count: int) -> np.ndarray:
    """Times [2, artifacts, count] of inferences for one robot, the artifacts in turn: on the clock, and of this
    thread's processor."""
    seen = [{name: artifact.golden[f"signals.{name}"][0] for name in artifact.schema} for artifact in artifacts]
    found = np.zeros((2, len(artifacts), count + WARM))
    for k in range(count + WARM):
        for i, artifact in enumerate(artifacts):
            begun, spent = time.perf_counter(), time.thread_time()
            artifact.act(seen[i])
            found[:, i, k] = 1e3 * (time.perf_counter() - begun), 1e3 * (time.thread_time() - spent)
    return found[..., WARM:]


def shown(policy: ChunkPolicy, count: int) -> dict[str, np.ndarray]:
    """Signals to infer from."""
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 256, (count, *spec.shape)).astype(np.uint8) if spec.dtype == "uint8" else
            rng.normal(size=(count, *spec.shape)).astype(np.float32) for name, spec in policy.interface.signals.items()}


def exported(policy: ChunkPolicy, folder: Path) -> Artifact:
    """The policy as an artifact."""
    signals = shown(policy, 3)
    with torch.no_grad():
        chunks = policy.rows({name: torch.from_numpy(value) for name, value in signals.items()}).numpy()
    spec = ArtifactSpec(
        robot=ROBOT, signals=policy.signals, command="arm_cmd", rate_hz=25.0, formula_text="", constants={},
        horizon_s=1.0, training={}, seed=0, stop="hold", task_signals=dict(policy.interface.signals),
        chunk=ChunkSpec(policy.horizon, 0.04))
    folder.parent.mkdir(parents=True, exist_ok=True)
    golden = {**{f"signals.{name}": value for name, value in signals.items()}, "commands.arm_cmd": chunks}
    return export(policy, folder, spec, golden)
