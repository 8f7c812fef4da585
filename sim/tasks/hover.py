"""Hover: recover from a throw and stay at the home point.

The reward, start distribution and termination are those of *Learning to Fly in Seconds* (Eschmann et al., RA-L
2024, arXiv:2311.13081, and its public code): starts uniform within +-0.2 m of home, tilted by up to 90 degrees,
+-1 m/s and +-1 rad/s; a world ends outside +-0.6 m. Motor commands at 100 Hz with the action history as memory,
because the rotor speeds are not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import AffineAction
from temporeal.sim.rotations import rotation, tilted
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.quadrotors import physics_steps, quadrotor, weight

FORMULA = """\
F[0,2.5] G[0,2.5] (norm(base_pos_w - home) < hold)
& G[0,5] (abs(base_pos_w.x - home.x) < fence & abs(base_pos_w.y - home.y) < fence & abs(height - home.z) < fence)"""

CONSTANTS: dict[str, Any] = {"home": (0.0, 0.0, 1.0), "hold": 0.3, "fence": 0.6}
POSITIVE = ("hold", "fence")
MOST_HISTORY = 500  # actions: those of an episode at 100 Hz


@dataclass(frozen=True)
class Reward:
    """Weights of ``scale * (constant - cost)``; L2F's reward for evaluation has position 40, velocity 1, action 1."""

    scale: float = 0.5
    constant: float = 4.0
    position: float = 5.0  # per m^2
    orientation: float = 5.0  # times 1 - qw^2
    velocity: float = 0.01  # per (m/s)^2
    rate: float = 0.0  # per (rad/s)^2
    action: float = 0.01  # times the squared distance from the hover command, in action units


def hover_speed(robot: RobotSpec) -> float:
    """Normalized rotor speed at which the thrust of four rotors carries the nominal mass."""
    c0, c1, c2 = robot.parameters["thrust_curve"].nominal
    lift = weight(robot) / 4
    return (-c1 + (c1 * c1 + 4 * c2 * (lift - c0)) ** 0.5) / (2 * c2)


class Observe(nn.Module):
    """Position from home, rotation matrix, velocity, body rates and the last ``history`` actions (newest first)."""

    signals = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")

    def __init__(self, home: Tensor, history: int, action_dim: int) -> None:
        super().__init__()
        self.register_buffer("home", home)
        self.home: Tensor
        self.memory = {"actions": (history * action_dim,)}
        self.action_dim = action_dim
        self.obs_dim = 18 + history * action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the memory."""
        obs = torch.cat([signals["base_pos_w"] - self.home, rotation(signals["base_quat_w"]).flatten(1),
                         signals["base_vel_w"], signals["base_ang_vel_b"], memory["actions"]], -1)
        return obs, dict(memory)

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` pushed in front of the history."""
        return {**memory, "actions": torch.cat([action, memory["actions"][:, : -self.action_dim]], -1)}


class Objective:
    """The quadratic cost around home; leaving the box ends the episode."""

    privileged_dim = 18 + 4 + 6

    def __init__(self, home: Tensor, fence: float, hold: float, weights: Reward, settle: int) -> None:
        self.home, self.fence, self.hold, self.weights, self.settle = home, fence, hold, weights, settle
        self.carry: dict[str, tuple[int, ...]] = {"settled": ()}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return carry

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w = self.weights
        error = signals["base_pos_w"] - self.home
        cost = (
            w.position * error.square().sum(-1) + w.orientation * (1 - signals["base_quat_w"][:, 0].square())
            + w.velocity * signals["base_vel_w"].square().sum(-1) + w.rate * signals["base_ang_vel_b"].square().sum(-1)
            + w.action * action.square().sum(-1))
        terminated = error.abs().max(-1).values > self.fence
        reward = torch.where(terminated, torch.zeros_like(cost), w.scale * (w.constant - cost))
        inside = (error.norm(dim=-1) < self.hold).float()
        return reward, terminated, {"settled": (carry["settled"] + 1) * inside}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """True state, rotor speeds and disturbances for the critic."""
        return torch.cat([
            signals["base_pos_w"] - self.home, rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"],
            signals["base_ang_vel_b"], signals["rotor_speed"], 10 * signals["force_w"], 1e3 * signals["torque_b"]], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Inside the hold ball for the last 2.5 s."""
        return carry["settled"] >= self.settle


def make(
    *, robot: str = "crazyflie", formula: str = FORMULA, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.01, substeps: int | None = None,
    history: int = 32, reward: Mapping[str, float] | None = None,
) -> Task:
    """The task. ``robot``: a quadrotor; ``history``: actions remembered."""
    check_range("hover", "history", history, 1, MOST_HISTORY, "actions")
    constants = {**CONSTANTS, **dict(constants or {})}
    of = quadrotor("hover", robot)
    home = torch.tensor(constants["home"], dtype=torch.float32)
    hover = hover_speed(of)

    def initial(draw: Draw) -> dict[str, Tensor]:
        u = draw("initial", 12)
        start = (draw("initial.guided", 1) >= 0.1).to(u.dtype)
        turn = torch.cat([u[:, 3:4], start * u[:, 4:5], 0.5 + start * (u[:, 5:6] - 0.5)], -1)
        return {"base_pos_w": home.to(u.device) + 0.2 * start * (2 * u[:, :3] - 1),
                "base_quat_w": tilted(turn, 0.5 * pi),
                "base_vel_w": start * (2 * u[:, 6:9] - 1), "base_ang_vel_b": start * (2 * u[:, 9:12] - 1)}

    return Task(
        name="hover", scene=Scene(of), command="motor_cmd", control_dt=control_dt,
        substeps=substeps or physics_steps(of, control_dt, 1), episode_s=5.0,
        formula=parse(formula, task_schema(of), constants), formula_text=formula, constants=constants,
        observe=Observe(home, history, 4), act=AffineAction(of, "motor_cmd", (hover,) * 4, (0.5,) * 4),
        objective=Objective(home, float(constants["fence"]), float(constants["hold"]), weights(Reward, reward),
                            round(2.5 / control_dt)),
        initial=initial,
        shapes=({"type": "sphere", "name": "home", "role": "goal", "center": constants["home"],
                "radius": constants["hold"]},
               {"type": "box", "name": "fence", "role": "fence",
                "low": tuple(x - constants["fence"] for x in constants["home"]),
                "high": tuple(x + constants["fence"] for x in constants["home"])}))
