"""An arm's policy without learning, for each thing that the arm may be commanded with."""

from __future__ import annotations

from pathlib import Path

import torch

from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.acting import graph_policy
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.task import load_task

INTERFACES = {"position": "franka_ros2", "velocity": "forward_velocity", "effort": "forward_effort",
              "tool": "moveit_servo"}
NEAR = 0.7  # action per 5 m of way, and per rad of turn


class Straight(torch.nn.Module):
    """A policy that goes straight to the goal, by what is observed of the way there."""

    def __init__(self, seen: int, actions: int) -> None:
        super().__init__()
        self.first, self.actions = seen - actions - 6, actions

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Mean action [N, A]; a last number beside the tool's six is left at 0."""
        return (NEAR * observation[:, self.first : self.first + 6]).clamp(-1.0, 1.0)


def write_drive_artifact(drive: str, folder: Path) -> Path:
    """The policy that commands with ``drive``, as an artifact in ``folder``."""
    task = load_task("reach", drive=drive)
    graph = PolicyGraph(task.observe, Normalizer(task.observe.obs_dim), Straight(
        task.observe.obs_dim, task.act.action_dim), task.act).eval()
    env = make_env(task, backend="mujoco", num_worlds=1, seed=5, compiled=False, threads=1)
    golden = record_golden(env, graph_policy(graph), steps=8)
    spec = ArtifactSpec(
        robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants, horizon_s=task.episode_s,
        training={"task": {"name": "reach", "settings": {"drive": drive}}}, seed=0, stop=task.stop,
        task_signals=dict(task.schema))
    export(graph, folder, spec, golden)
    return folder
