"""Track: follow a figure-eight at constant pace. The reference is a function of the mission time, so that the
formula, the reward and the policy's own clock all read the same line:

    reference(t) = center + (ax sin(w t), ay sin(2 w t), 0)    [m, world frame]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.sim.rotations import rotation, tilted
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.quadrotors import physics_steps, quadrotor, rates_action

# the size and period of the public figure-eight of Learning to Fly in Seconds: 2 m x 1 m in 5.5 s
CONSTANTS: dict[str, Any] = {
    "center": (0.0, 0.0, 1.0), "ax": 1.0, "ay": 0.5, "pace": 2 * pi / 5.5, "close": 0.3, "fence": 1.8,
    "floor": 0.2, "ceiling": 2.0,
}
POSITIVE = ("close", "fence", "ceiling")

FORMULA = """\
G[2,11] (hypot(base_pos_w.x - (center.x + ax * sin(pace * mission_time)),
               base_pos_w.y - (center.y + ay * sin(2 * pace * mission_time))) < close
         & abs(base_pos_w.z - center.z) < close)
& G[0,11] (abs(base_pos_w.x) < fence & abs(base_pos_w.y) < fence & height > floor & height < ceiling)"""

PREVIEW_S = (0.0, 0.1, 0.2, 0.4)  # how far ahead the policy sees the reference


@dataclass(frozen=True)
class Reward:
    """Weights per second of flight."""

    near: float = 4.0  # times exp(-(distance / 0.25 m)^2)
    far: float = 1.0  # per metre of distance
    violated: float = 15.0  # once, outside the fence: the episode ends
    effort: float = 0.02  # times the squared action
    smooth: float = 0.1  # times the squared change of the action
    spin: float = 0.02  # times the squared body rate


class Reference(nn.Module):
    """The figure-eight."""

    def __init__(self, c: Mapping[str, Any]) -> None:
        super().__init__()
        self.center: Tensor
        self.register_buffer("center", torch.tensor(c["center"], dtype=torch.float32))
        self.ax, self.ay, self.pace = float(c["ax"]), float(c["ay"]), float(c["pace"])

    def forward(self, time: Tensor) -> Tensor:
        """Position [N, 3], m, world frame, at mission time [N] s."""
        offset = torch.stack([self.ax * torch.sin(self.pace * time), self.ay * torch.sin(2 * self.pace * time),
                              torch.zeros_like(time)], -1)
        return self.center + offset


class Observe(nn.Module):
    """State, vectors to the reference now and ahead, the last action."""

    signals = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")

    def __init__(self, reference: Reference, dt: float, action_dim: int) -> None:
        super().__init__()
        self.reference, self.dt = reference, dt
        self.memory = {"tick": (), "last_action": (action_dim,)}
        self.obs_dim = 18 + 3 * len(PREVIEW_S) + action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        time, position = memory["tick"] * self.dt, signals["base_pos_w"]
        ahead = [self.reference(time + s) - position for s in PREVIEW_S]
        obs = torch.cat([position, rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"],
                         signals["base_ang_vel_b"], *ahead, memory["last_action"]], -1)
        return obs, {**memory, "tick": memory["tick"] + 1.0}

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` as the last one."""
        return {**memory, "last_action": action}


class Objective:
    """Closeness to the reference; leaving the fence ends the episode."""

    privileged_dim = 18 + 4 + 6 + 3

    def __init__(self, reference: Reference, c: Mapping[str, Any], weights: Reward, dt: float, action_dim: int) -> None:
        self.reference, self.c, self.weights, self.dt = reference, c, weights, dt
        self.carry = {"last_action": (action_dim,), "lost": ()}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return carry

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, c, position, time = self.weights, self.c, signals["base_pos_w"], signals["mission_time"]
        error = position - self.reference(time)
        distance = error.norm(dim=-1)
        outside = (position[:, :2].abs().max(-1).values >= c["fence"])
        terminated = outside | (signals["height"] <= c["floor"]) | (signals["height"] >= c["ceiling"])
        reward = self.dt * (
            w.near * torch.exp(-(distance / 0.25).square()) - w.far * distance - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["last_action"]).square().sum(-1)
            - w.spin * signals["base_ang_vel_b"].square().sum(-1)) - w.violated * terminated.float()
        away = (error[:, :2].norm(dim=-1) >= c["close"]) | (error[:, 2].abs() >= c["close"])
        lost = torch.maximum(carry["lost"], (away & (time > 2 - 1e-6)).float())
        return reward, terminated, {"last_action": action, "lost": lost}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """True state, rotor speeds, disturbances and error for the critic."""
        return torch.cat([
            signals["base_pos_w"], rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"],
            signals["base_ang_vel_b"], signals["rotor_speed"], 10 * signals["force_w"], 1e3 * signals["torque_b"],
            self.reference(signals["mission_time"]) - signals["base_pos_w"]], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Never further than ``close`` after 2 s."""
        return carry["lost"] == 0


def make(
    *, robot: str = "crazyflie", formula: str = FORMULA, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.02, substeps: int | None = None,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task. ``robot``: a quadrotor."""
    constants = {**CONSTANTS, **dict(constants or {})}
    of = quadrotor("track", robot)
    reference = Reference(constants)

    def initial(draw: Draw) -> dict[str, Tensor]:
        u = draw("initial", 12)
        return {"base_pos_w": reference.center.to(u.device) + 0.4 * u[:, :3] - 0.2,
                "base_quat_w": tilted(u[:, 3:6], 0.2),
                "base_vel_w": 0.4 * u[:, 6:9] - 0.2, "base_ang_vel_b": 0.4 * u[:, 9:12] - 0.2}

    points = reference(torch.linspace(0.0, 5.5, 100)).tolist()
    return Task(
        name="track", scene=Scene(of), command="ctbr_cmd", control_dt=control_dt,
        substeps=substeps or physics_steps(of, control_dt, 4), episode_s=11.0,
        formula=parse(formula, task_schema(of), constants), formula_text=formula, constants=constants,
        observe=Observe(reference, control_dt, 4),
        act=rates_action(of),
        objective=Objective(reference, constants, weights(Reward, reward), control_dt, 4), initial=initial,
        shapes=({"type": "path", "name": "reference", "points": points, "role": "goal"},
               {"type": "box", "name": "fence", "role": "fence",
                "low": (-constants["fence"], -constants["fence"], constants["floor"]),
                "high": (constants["fence"], constants["fence"], constants["ceiling"])}))
