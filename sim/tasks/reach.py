"""Reach: bring the gripper of a Franka arm to a pose (position and attitude) and hold it there.

Goals are poses of random postures, so that each can be reached. Actions move the tool
(:class:`temporeal.sim.task_parts.arm_actions.ToolAction`). Depending on ``drive`` the robot gets joint positions at
25 Hz, velocities of its joints or its tool at 25 Hz, or efforts at 250 Hz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.franka.spec import HIGH, HOME, LOW
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import turn_between
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.arm_actions import ToolMotion, franka_action
from temporeal.sim.task_parts.arm_kinematics import franka_chain
from temporeal.sim.task_parts.arm_observations import ArmObserve

FORMULA = """\
F[0,3] G[0,1] (norm(grip_pos_w - goal_pos_w) < reach & rotation_angle(grip_quat_w, goal_quat_w) < turn)
& G[0,4] (grip_pos_w.z > floor)"""

CONSTANTS: dict[str, Any] = {"reach": 0.01, "turn": 0.1, "floor": 0.03}  # m, rad, m
POSITIVE = ("reach", "turn")

GOAL = Constant(SignalSpec("goal_pos_w", (3,), "m", "w"), SignalSpec("goal_quat_w", (4,), "wxyz", "w"))
TOOL_SPEED, TOOL_TURN = 0.6, 2.0  # m/s, rad/s at action 1
DRIVES = {"position": ("joint_pos_cmd", 0.04, 10), "velocity": ("joint_vel_cmd", 0.04, 10),
          "effort": ("joint_effort_cmd", 0.004, 2), "tool": ("tool_vel_cmd", 0.04, 10)}  # command; s; physics steps
ASKED = 8  # postures drawn for a goal: the first whose tool is where it may be is taken


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    far: float = 2.0  # times the distance, m
    near: float = 1.0  # times 1 - tanh(distance / 0.1 m)
    close: float = 2.0  # times 1 - tanh(distance / 0.02 m)
    turned: float = 1.5  # times the angle, rad: with less of it one policy in three never turned
    aligned: float = 1.5  # times (1 - tanh(angle / 0.2 rad)) and of (1 - tanh(distance / 0.1 m))
    inside: float = 4.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    speed: float = 0.02  # times the squared joint velocity near the goal
    effort: float = 0.02  # times the squared action
    smooth: float = 0.05  # times the squared change of the action
    violated: float = 5.0  # once, when the gripper is below the floor: the episode ends


def way(signals: Mapping[str, Tensor]) -> Tensor:
    """What a policy sees of the task: the way [N, 3] and the turn [N, 3] to the goal."""
    turn, _ = turn_between(signals["grip_quat_w"], signals["goal_quat_w"])
    return torch.cat([5 * (signals["goal_pos_w"] - signals["grip_pos_w"]), turn], -1)


class Objective(FormulaObjective):
    """Closer, aligned, still; the formula says when it is there."""

    privileged_dim = 3 + 1

    def __init__(self, tracker: FormulaTracker, reward: Reward, action_dim: int) -> None:
        super().__init__(tracker, action_dim)
        self.weights = reward

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        distance = (signals["goal_pos_w"] - signals["grip_pos_w"]).norm(dim=-1)
        _, angle = turn_between(signals["grip_quat_w"], signals["goal_quat_w"])
        near = 1 - torch.tanh(distance / 0.1)
        terminated = tracked.safe <= 0
        reward = self.tracker.automaton.dt * (
            -w.far * distance + w.near * near + w.close * (1 - torch.tanh(distance / 0.02)) - w.turned * angle
            + w.aligned * near * (1 - torch.tanh(angle / 0.2)) + w.inside * tracked.inside
            - w.speed * near * signals["joint_vel"].square().sum(-1) - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        reward = reward + w.hit * tracked.hits
        return reward, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocity of the tool and the time, for the critic."""
        return torch.cat([signals["grip_vel_w"], signals["mission_time"][:, None] / 4], -1)


def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, drive: str = "position",
    control_dt: float | None = None, substeps: int | None = None, spread: float = 0.7,
    reward: Mapping[str, float] | None = None, stiffness: float | None = None,
) -> Task:
    """The task.

    Args:
        drive: what the robot is commanded with: ``position``, ``velocity`` or ``effort`` of its joints, or the velocity
            of its ``tool`` (behind a Cartesian servo).
        control_dt: s. substeps: physics steps in it. None: as :data:`DRIVES` has them.
        spread: of the goals' postures around home, rad; starts lie within 0.15 rad of home.
        stiffness: see :class:`temporeal.sim.task_parts.arm_actions.ToolAction`.
    """
    check_range("reach", "spread", spread, 0.0, pi, "rad")
    if drive not in DRIVES:
        raise ValueError(f"task reach: drive is {drive!r}; legal: {', '.join(DRIVES)}")
    command, usual_dt, usual_substeps = DRIVES[drive]
    control_dt, substeps = control_dt or usual_dt, substeps or usual_substeps
    constants = {**CONSTANTS, **dict(constants or {})}
    robot = load_robot("franka")
    parsed = parse(formula, task_schema(robot, GOAL), constants)
    home = torch.tensor(HOME)
    act = franka_action(robot, command, control_dt, ToolMotion(TOOL_SPEED, TOOL_TURN, stiffness=stiffness))
    kinematics = franka_chain()
    low, high = torch.tensor(LOW) + 0.1, torch.tensor(HIGH) - 0.1

    def initial(draw: Draw) -> dict[str, Tensor]:
        u = draw("initial.joints", 7)
        start = home.to(u.device) + 0.15 * (2 * u - 1)
        v = draw("initial.goal", 7 * ASKED).reshape(-1, 7)
        posture = torch.maximum(torch.minimum(home.to(u.device) + spread * (2 * v - 1), high.to(u.device)),
                                low.to(u.device))
        pos, quat = kinematics.to(u.device)(posture)
        good = ((pos[:, 2] > 0.15) & (pos[:, 0] > 0.25) & (pos[:, 2] < 0.8)).reshape(len(u), ASKED)
        first = good.float().argmax(-1)  # none good: the first one drawn, which can be reached all the same
        chosen = torch.arange(len(u), device=u.device) * ASKED + first
        pos, quat = pos[chosen], quat[chosen]
        pos[:, 2] = pos[:, 2].clamp(min=float(constants["floor"]) + 0.05)
        return {"joint_pos": start, "goal_pos_w": pos, "goal_quat_w": quat}

    return Task(
        name="reach",
        scene=Scene(robot),
        command=command,
        control_dt=control_dt,
        substeps=substeps,
        episode_s=4.0,
        formula=parsed,
        formula_text=formula,
        constants=constants,
        observe=ArmObserve(act, tuple(GOAL.signals), way, 6),
        act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), act.action_dim),
        initial=initial,
        extra=GOAL,
        stop="hold" if drive == "position" else "damp",
    )
