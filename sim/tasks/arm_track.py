"""Arm track: an arm's tool follows a figure-eight in front of it at constant pace. Any arm.

The reference is a function of the mission time, so that the formula, the reward and the policy's own clock read the
same line, across the way from the base to the tool (``side``) and up:

    reference(t) = center + (side.x a sin(w t), side.y a sin(w t), b sin(2 w t))    [m, world frame]

Lengths are those of an arm that reaches a metre; the centre is the tool's place at home. The tool's attitude is what
comes of it, or is kept by the policy: nothing asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.sim.maps import Memory
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.arms.actions import ToolAction
from temporeal.sim.task_parts.arms.arm import JOINTS, Arm, arm, arm_action, control_period, physics_steps
from temporeal.sim.task_parts.arms.kinematics import postures

SIZES = {"a": 0.15, "b": 0.075, "close": 0.03, "floor": 0.03}  # m
PERIOD = 6.0  # s, of one round
CONSTANTS: dict[str, Any] = {"center": (0.5, 0.0, 0.5), "side": (0.0, 1.0, 0.0), "pace": 2 * pi / PERIOD, **SIZES}
POSITIVE = ("close", "pace")
TOOL_SPEED, TOOL_TURN = 0.6, 2.0  # m/s, rad/s at action 1
PREVIEW_S = (0.0, 0.1, 0.2, 0.4)  # how far ahead the policy sees the reference
EPISODE_S = 8.0


def formula_of(tool: str) -> str:
    """The formula for an arm with the tool called ``tool``."""
    across = "a * sin(pace * mission_time)"
    return (f"G[2,8] (hypot(hypot({tool}_pos_w.x - (center.x + side.x * {across}),\n"
            f"                    {tool}_pos_w.y - (center.y + side.y * {across})),\n"
            f"              {tool}_pos_w.z - (center.z + b * sin(2 * pace * mission_time))) < close)\n"
            f"& G[0,8] ({tool}_pos_w.z > floor)")


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    far: float = 2.0  # times the distance, m
    near: float = 3.0  # times 1 - tanh(distance / 0.1 m)
    close: float = 3.0  # times 1 - tanh(distance / 0.02 m)
    effort: float = 0.01  # times the squared action
    smooth: float = 0.05  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is below the floor: the episode ends


class Reference(nn.Module):
    """The figure-eight."""

    def __init__(self, c: Mapping[str, Any]) -> None:
        super().__init__()
        for name, value in (("center", c["center"]), ("side", c["side"])):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.center: Tensor
        self.side: Tensor
        self.a, self.b, self.pace = float(c["a"]), float(c["b"]), float(c["pace"])

    def forward(self, time: Tensor) -> Tensor:
        """Position [N, 3], m, world frame, at mission time [N] s."""
        across = self.a * torch.sin(self.pace * time)
        up = self.b * torch.sin(2 * self.pace * time)
        return self.center + torch.stack([across * self.side[0], across * self.side[1], up], -1)


class Observe(nn.Module):
    """The joints, servo errors, the last step, the way to the reference now and ahead, the last action."""

    def __init__(self, of: Arm, act: ToolAction, reference: Reference, dt: float) -> None:
        super().__init__()
        self.reference, self.dt, self.pos, self.scale = reference, dt, of.pos, of.scale
        self.follow, self.move, self.joints = act.follow, act.move, act.joints
        self.signals = ("joint_pos", "joint_vel", of.pos)
        self.register_buffer("home", torch.tensor(of.home))
        self.register_buffer("longest", act.limiter.longest.clone())
        self.home: Tensor
        self.longest: Tensor
        self.memory = {**act.memory, "tick": (), "last_action": (act.action_dim,)}
        self.obs_dim = 4 * self.joints + 3 * len(PREVIEW_S) + act.action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        joints, time = signals["joint_pos"], memory["tick"] * self.dt
        after = self.follow(joints, memory, signals["joint_vel"])
        ahead = [5 / self.scale * (self.reference(time + s) - signals[self.pos]) for s in PREVIEW_S]
        obs = torch.cat([
            joints - self.home, 0.3 * signals["joint_vel"], 10 * (after["target"][:, : self.joints] - joints),
            after["step"] / self.longest, *ahead, memory["last_action"]], -1)
        return obs, {**after, "tick": memory["tick"] + 1.0}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}


class Objective:
    """Closeness to the reference; a tool below the floor ends the episode."""

    privileged_dim = 3 + 1

    def __init__(
        self, of: Arm, reference: Reference, c: Mapping[str, Any], reward: Reward, dt: float, size: int
    ) -> None:
        self.reference, self.weights, self.dt, self.pos, self.vel, self.scale = (
            reference, reward, dt, of.pos, of.vel, of.scale)
        self.close, self.floor = float(c["close"]), float(c["floor"])
        self.carry = {"previous": (size,), "lost": ()}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return carry

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, time = self.weights, signals["mission_time"]
        away = (signals[self.pos] - self.reference(time)).square().sum(-1).clamp(min=1e-12).sqrt()
        distance = away / self.scale
        terminated = signals[self.pos][:, 2] <= self.floor
        reward = self.dt * (
            -w.far * distance + w.near * (1 - torch.tanh(distance / 0.1)) + w.close * (1 - torch.tanh(distance / 0.02))
            - w.effort * action.square().sum(-1) - w.smooth * (action - carry["previous"]).square().sum(-1)
        ) - w.violated * terminated.float()
        lost = torch.maximum(carry["lost"], ((away >= self.close) & (time > 2 - 1e-6)).float())
        return reward, terminated, {"previous": action, "lost": torch.maximum(lost, terminated.float())}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocity of the tool and the time, for the critic."""
        return torch.cat([signals[self.vel], signals["mission_time"][:, None] / EPISODE_S], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Never further than ``close`` after 2 s."""
        return carry["lost"] == 0


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float | None = None, substeps: int | None = None, reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm: its name, or the path of its folder.
        formula: None: :func:`formula_of` the arm's tool.
        control_dt: s; None: the robot's own. substeps: None: physics steps of at most 4 ms.
    """
    of = arm("arm_track", robot)
    control_dt = control_dt or control_period(of.robot)
    given = {**place_of(of), **dict(constants or {})}
    text = formula or formula_of(of.robot.tool)
    reference = Reference(given)
    line = reference(torch.linspace(0.0, 2 * pi / float(given["pace"]), 100))
    check_reached(of, line)
    act = arm_action(of, JOINTS, control_dt, of.motion(TOOL_SPEED, TOOL_TURN))
    start = of.spread(0.1)

    def initial(draw: Draw) -> dict[str, Tensor]:
        u = draw("initial.joints", of.joints)
        return {"joint_pos": torch.tensor(of.home, device=u.device) + start.to(u.device) * (2 * u - 1)}

    return Task(
        name="arm_track", scene=Scene(of.robot), command=JOINTS, control_dt=control_dt,
        substeps=substeps or physics_steps(control_dt, 0.004), episode_s=EPISODE_S,
        formula=parse(text, task_schema(of.robot), given), formula_text=text, constants=given,
        observe=Observe(of, act, reference, control_dt), act=act,
        objective=Objective(of, reference, given, weights(Reward, reward), control_dt, act.action_dim), initial=initial,
        shapes=({"type": "path", "name": "reference", "points": line.tolist(), "role": "goal"},), stop="hold")


def place_of(of: Arm) -> dict[str, Any]:
    """The constants for an arm: around its tool at home, in its lengths."""
    (tool,), _ = of.chain(torch.tensor([of.home]))
    heading = of.heading
    return {**CONSTANTS, **{name: value * of.scale for name, value in SIZES.items()}, "center": tuple(tool.tolist()),
            "side": (-sin(heading), cos(heading), 0.0)}


def check_reached(of: Arm, line: Tensor) -> None:
    """A ValueError where the tool does not come to all places [K, 3] of the line."""
    _, good = postures(of.chain, line, None, of.home, of.range)
    if not bool(good.all()):
        far = line[~good][0].tolist()
        raise ValueError(f"task 'arm_track': robot {of.robot.name!r} does not come to ({far[0]:.3g}, {far[1]:.3g}, "
                         f"{far[2]:.3g}) of the figure-eight: make it smaller (constants a, b), or move center")
