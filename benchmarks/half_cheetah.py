"""HalfCheetah as a task: the model file of the user's own Gymnasium, read at run time; Gymnasium's terms (v5).

Observation: positions but that along the track, velocities, 17 numbers. Reward: the speed forward less 0.1 times the
squared action. Episodes of 1000 steps of 5 physics steps of 10 ms, never ended early.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import pi
from pathlib import Path

import torch
from torch import Tensor, nn

from temporeal.robots.user_robots.description import user_robot
from temporeal.sim.env import Env, make_env
from temporeal.sim.maps import AffineAction
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Draw, Task, task_schema

CONTROL_DT, SUBSTEPS, STEPS = 0.05, 5, 1000
NOISE = 0.1  # rad, m and per second: half width of starting positions, standard deviation of velocities
CTRL_COST = 0.1
FORMULA = "F[0,50] (joint_pos[0] > 250)"  # m: 5 m/s on average


def model_file() -> Path:
    """Gymnasium's ``half_cheetah.xml``."""
    import gymnasium

    return Path(gymnasium.__file__).parent / "envs/mujoco/assets/half_cheetah.xml"


class Observe(nn.Module):
    """Positions without the first (along the track), velocities."""

    signals = ("joint_pos", "joint_vel")
    memory: Mapping[str, tuple[int, ...]] = {}
    obs_dim = 17

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, 17]."""
        return torch.cat([signals["joint_pos"][:, 1:], signals["joint_vel"]], -1), dict(memory)

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """Nothing is remembered."""
        return memory


class Objective:
    """Speed forward, less the cost of the action."""

    carry: Mapping[str, tuple[int, ...]] = {"x": ()}
    privileged_dim = 0

    def start(self, signals: Mapping[str, Tensor], carry: dict[str, Tensor]) -> dict[str, Tensor]:
        """Where the run begins."""
        return {"x": signals["joint_pos"][:, 0]}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [N], terminated [N] (never), the place along the track."""
        x = signals["joint_pos"][:, 0]
        reward = (x - carry["x"]) / CONTROL_DT - CTRL_COST * action.square().sum(-1)
        return reward, torch.zeros_like(x) > 1, {"x": x}

    def privileged(self, signals: Mapping[str, Tensor], carry: dict[str, Tensor]) -> Tensor:
        """Nothing more for the critic: [N, 0]."""
        return signals["joint_pos"][:, :0]

    def success(self, signals: Mapping[str, Tensor], carry: dict[str, Tensor]) -> Tensor:
        """250 m and more."""
        return carry["x"] > 250.0


def initial(draw: Draw) -> dict[str, Tensor]:
    """Gymnasium's starts: uniform positions, normal velocities (Box-Muller)."""
    u = draw("initial.cheetah", 27)
    velocity = torch.sqrt(-2 * torch.log(1 - u[:, 9:18])) * torch.cos(2 * pi * u[:, 18:])
    return {"joint_pos": NOISE * (2 * u[:, :9] - 1), "joint_vel": NOISE * velocity}


def make() -> Task:
    """The task."""
    scene = Scene(user_robot(str(model_file())))
    return Task(
        name="cheetah", scene=scene, command="ctrl_cmd", control_dt=CONTROL_DT, substeps=SUBSTEPS,
        episode_s=CONTROL_DT * STEPS, formula=parse(FORMULA, task_schema(scene), {}), formula_text=FORMULA,
        constants={}, observe=Observe(), act=AffineAction(scene.robot, "ctrl_cmd", (0.0,) * 6, (1.0,) * 6),
        objective=Objective(), initial=initial)


def environment(worlds: int, seed: int) -> Env:
    """The environment on MuJoCo, one thread."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "compiler attribute 'settotalmass'")  # the file is not ours to change
        return make_env(make(), backend="mujoco", num_worlds=worlds, seed=seed, threads=1)
