"""Lift: a Franka arm picks a cube up and holds it at a place in the air (pick and place).

Actions move the tool and open or close the gripper (:class:`sim.arms.ToolAction`); the robot gets joint positions and
the opening, at 25 Hz. The floor of the world stands for the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from robots.franka.spec import HIGH, HOME, LOW, OPEN, SPEED
from robots.signals import SignalSpec
from robots.spec import load_robot
from sim.arms import ToolAction, axes, franka_chain, postures
from sim.judge import Judge
from sim.scene import Scene, box
from sim.stl.parse import parse
from sim.task import Constant, Draw, Task, task_schema, weights

FORMULA = """\
F[0,5] G[0,1] (norm(cube_pos_w - goal_pos_w) < reach)
& G[0,6] (grip_pos_w.z > floor)"""

CONSTANTS: dict[str, Any] = {"reach": 0.03, "floor": 0.005}  # m

HALF = 0.02  # m, of the cube's edges
MASS = 0.05  # kg: 780 kg/m^3, hard wood
GOAL = Constant(SignalSpec("goal_pos_w", (3,), "m", "w"))
SHARE_OF_SPEED = 0.6  # of the joints' speed limits: how fast targets move at most
TOOL_SPEED, TOOL_TURN = 0.5, 1.5  # m/s, rad/s at action 1
PLACE_LOW, PLACE_HIGH = (0.38, -0.18), (0.62, 0.18)  # m, where cubes start
GOAL_LOW, GOAL_HIGH = (0.40, -0.18, 0.12), (0.60, 0.18, 0.35)  # m
GRASPS = 512  # postures around cubes, for starts in the middle


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.0  # times 1 - tanh(5 |cube - tool| / m)
    above: float = 0.5  # times the share by which the tool points down
    grasped: float = 1.5  # while the cube is between the fingers and they are on it
    lifted: float = 2.0  # times the height of a grasped cube, up to 5 cm, in 5 cm
    carry: float = 3.0  # times 1 - tanh(5 |goal - cube| / m) of a lifted cube
    fine: float = 3.0  # times 1 - tanh(30 |goal - cube| / m) of a lifted cube
    inside: float = 3.0  # while the formula's region is held
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is on the table: the episode ends


class Observe(nn.Module):
    """Joints, servo errors, the tool's pose, the fingers, the cube and the way to the goal, the last action."""

    signals = ("joint_pos", "joint_vel", "finger_pos", "grip_pos_w", "grip_quat_w", "cube_pos_w", "cube_quat_w",
               "goal_pos_w")

    def __init__(self, act: ToolAction) -> None:
        super().__init__()
        self.follow, self.move = act.follow, act.move
        self.register_buffer("home", torch.tensor(HOME))
        self.home: Tensor
        self.memory = {**act.memory, "last_action": (act.action_dim,)}
        self.obs_dim = 7 + 7 + 7 + 2 + 3 + 6 + 3 + 6 + 3 + act.action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        opening = signals["finger_pos"].mean(-1, keepdim=True)
        after = self.follow(torch.cat([signals["joint_pos"], opening], -1), memory)
        obs = torch.cat([
            signals["joint_pos"] - self.home, 0.3 * signals["joint_vel"],
            10 * (after["target"][:, :7] - signals["joint_pos"]), 25 * signals["finger_pos"], signals["grip_pos_w"],
            axes(signals["grip_quat_w"]), 5 * (signals["cube_pos_w"] - signals["grip_pos_w"]),
            axes(signals["cube_quat_w"]), 5 * (signals["goal_pos_w"] - signals["cube_pos_w"]), memory["last_action"],
        ], -1)
        return obs, after

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}


class Objective:
    """Approach, grasp, lift, carry; the formula says when it is there."""

    privileged_dim = 3 + 3 + 3 + 1 + 1

    def __init__(self, judge: Judge, reward: Reward, action_dim: int) -> None:
        self.judge, self.weights = judge, reward
        self.memory = {**judge.memory, "previous": (action_dim,)}

    def start(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """Memory after the sample at time 0."""
        return {**memory, **self.judge(signals, memory).memory}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, memory: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [N], terminated [N], next memory."""
        w, verdict = self.weights, self.judge(signals, memory)
        between = (signals["cube_pos_w"] - signals["grip_pos_w"]).norm(dim=-1)
        away = (signals["goal_pos_w"] - signals["cube_pos_w"]).norm(dim=-1)
        held = grasped(signals)
        height = ((signals["cube_pos_w"][:, 2] - HALF) / 0.05).clamp(0.0, 1.0) * held
        x, y = signals["grip_quat_w"][:, 1], signals["grip_quat_w"][:, 2]
        down = (2 * (x * x + y * y) - 1).clamp(min=0.0)  # minus the z component of the tool's own z axis
        terminated = verdict.safe <= 0
        inside = (verdict.progress.margin[:, 0] > 0).float()
        reward = self.judge.mission.dt * (
            w.approach * (1 - torch.tanh(5 * between)) + w.above * down + w.grasped * held + w.lifted * height
            + height * (w.carry * (1 - torch.tanh(5 * away)) + w.fine * (1 - torch.tanh(30 * away)))
            + w.inside * inside - w.effort * action.square().sum(-1)
            - w.smooth * (action - memory["previous"]).square().sum(-1)) - w.violated * terminated.float()
        return reward, terminated, {**verdict.memory, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """Velocities of tool and cube, whether it is grasped, the time."""
        return torch.cat([
            signals["grip_vel_w"], signals["cube_vel_w"], 0.1 * signals["cube_ang_vel_w"],
            grasped(signals)[:, None], signals["mission_time"][:, None] / 6], -1)

    def success(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.judge.success(memory)


def grasped(signals: Mapping[str, Tensor]) -> Tensor:
    """1 where the cube's centre is within 15 mm of the tool's and the fingers are as far apart as the cube is wide."""
    between = (signals["cube_pos_w"] - signals["grip_pos_w"]).norm(dim=-1)
    opening = signals["finger_pos"].sum(-1)
    on = (opening > 2 * HALF - 0.004) & (opening < 2 * 1.4143 * HALF + 0.002)
    return (on & (between < 0.015)).float()


def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, control_dt: float = 0.04, substeps: int = 12,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task."""
    constants = {**CONSTANTS, **dict(constants or {})}
    robot = load_robot("franka")
    scene = Scene(robot, (box("cube", (HALF,) * 3, mass=MASS, pos=(0.5, 0.0, HALF)),))
    parsed = parse(formula, task_schema(scene, GOAL), constants)
    act = ToolAction(robot, "arm_cmd", franka_chain(), HOME, reach=TOOL_SPEED * control_dt,
                     turn=TOOL_TURN * control_dt, step=[SHARE_OF_SPEED * control_dt * v for v in SPEED])
    return Task(
        name="lift", scene=scene, command="arm_cmd", control_dt=control_dt, substeps=substeps, episode_s=6.0,
        formula=parsed, formula_text=formula, constants=constants, observe=Observe(act), act=act,
        objective=Objective(Judge(parsed, control_dt), weights(Reward, reward), act.action_dim), initial=initial,
        explore=Explore(), extra=GOAL, stop="hold")


def initial(draw: Draw) -> dict[str, Tensor]:
    """Joints within 0.1 rad of home, the gripper open, the cube somewhere on the table, the goal above it."""
    u, v, w = draw("initial.joints", 7), draw("initial.cube", 3), draw("initial.goal", 3)
    return {
        "joint_pos": torch.tensor(HOME, device=u.device) + 0.1 * (2 * u - 1),
        "finger_pos": torch.full_like(u[:, :2], OPEN), **cube_at(between(PLACE_LOW, PLACE_HIGH, v[:, :2]), v[:, 2]),
        "goal_pos_w": between(GOAL_LOW, GOAL_HIGH, w)}


def cube_at(place: Tensor, turn: Tensor) -> dict[str, Tensor]:
    """Pose of a cube that lies at ``place`` [K, 2], turned about z by ``turn`` [K] quarter turns."""
    half, zero = 0.25 * pi * (turn - 0.5), torch.zeros_like(turn)
    return {"cube_pos_w": torch.cat([place, torch.full_like(turn, HALF)[:, None]], -1),
            "cube_quat_w": torch.stack([half.cos(), zero, zero, half.sin()], -1)}


def between(low: tuple[float, ...], high: tuple[float, ...], u: Tensor) -> Tensor:
    """``u`` in [0, 1) as a place in a box."""
    a, b = torch.tensor(low, device=u.device), torch.tensor(high, device=u.device)
    return a + (b - a) * u


class Explore:
    """Starts with the cube between the fingers, on the table or in the air."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        place = torch.rand(GRASPS, 3, generator=generator)
        low, high = (*PLACE_LOW, HALF), (*PLACE_HIGH, 0.25)
        place[:, 2] = place[:, 2] * (torch.rand(GRASPS, generator=generator) < 0.5)  # half of them on the table
        self.places = between(low, high, place)
        turn = 0.5 * pi * (torch.rand(GRASPS, generator=generator) - 0.5)
        half = 0.5 * turn
        zero = torch.zeros_like(half)
        quat = torch.stack([zero, half.cos(), half.sin(), zero], -1)  # pointing down, fingers along y, turned about z
        self.joints, good = postures(franka_chain(), self.places, quat, HOME, (LOW, HIGH))
        self.joints, self.places, self.turn = self.joints[good], self.places[good], turn[good]

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds."""
        u, w = draw("explore.grasp", 2), draw("initial.goal", 3)
        pick = (u[:, 0] * len(self.joints)).long().clamp(max=len(self.joints) - 1)
        place, half = self.places.to(u.device)[pick], 0.5 * self.turn.to(u.device)[pick]
        zero = torch.zeros_like(half)
        state = {"joint_pos": self.joints.to(u.device)[pick], "finger_pos": torch.full_like(u, HALF + 0.0005),
                 "cube_pos_w": place, "cube_quat_w": torch.stack([half.cos(), zero, zero, half.sin()], -1),
                 "goal_pos_w": between(GOAL_LOW, GOAL_HIGH, w)}
        tick = torch.round(25.0 * 2.0 * u[:, 1])
        return state, {"tick": tick}
