"""Reach: bring an arm's tool to a pose (position and attitude) and hold it there. Of any arm; a Franka by default.

Goals are poses of random postures, so that each can be reached. Actions move the tool
(:class:`temporeal.sim.task_parts.arms.actions.ToolAction`). Depending on ``drive`` the robot gets joint positions at
its ``control_hz`` (25 Hz), velocities of its joints or its tool at 25 Hz, or efforts at 250 Hz.

The task's numbers are those of an arm that reaches a metre; lengths and speeds are those of the robot's model
(:class:`temporeal.sim.task_parts.arms.arm.Arm`). An arm of less than six joints is asked for the tool's position only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import turn_between
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.arms.arm import Arm, arm, arm_action, control_period, physics_steps, window
from temporeal.sim.task_parts.arms.clear_postures import clear_postures
from temporeal.sim.task_parts.arms.observations import ArmObserve


def formula_of(tool: str, turns: bool, seconds: int) -> str:
    """The formula for an arm with the tool called ``tool``, which has ``seconds`` to come there."""
    attitude = f" & rotation_angle({tool}_quat_w, goal_quat_w) < turn" if turns else ""
    return (f"F[0,{seconds}] G[0,1] (norm({tool}_pos_w - goal_pos_w) < reach{attitude})\n"
            f"& G[0,{seconds + 1}] ({tool}_pos_w.z > floor)")


SECONDS = 3  # to come to a goal; more for an arm whose joints need more
FORMULA = formula_of("grip", True, SECONDS)  # of the Franka arm
CONSTANTS: dict[str, Any] = {"reach": 0.01, "turn": 0.1, "floor": 0.03}  # m, rad, m; the floor of a metre's reach
POSITIVE = ("reach", "turn")

GOAL_POS = SignalSpec("goal_pos_w", (3,), "m", "w")
GOAL_QUAT = SignalSpec("goal_quat_w", (4,), "wxyz", "w")
TOOL_SPEED, TOOL_TURN = 0.6, 2.0  # m/s, rad/s at action 1
DRIVES = {"position": ("joint_pos_cmd", None, 0.004), "velocity": ("joint_vel_cmd", 0.04, 0.004),
          "effort": ("joint_effort_cmd", 0.004, 0.002), "tool": ("tool_vel_cmd", 0.04, 0.004)}
"""Command; its period, s (None: the robot's own); the longest step of physics, s."""
NEAR, TOP, LOWEST = 0.25, 0.8, 0.15  # m: goals are in front of the base, at least so far, and between these heights
ASKED = 8  # postures drawn for a goal: the first whose tool is where it may be is taken
POSTURES, STEP = 512, 0.05  # of other arms: stored ones that touch nothing, and how far, rad, goals' postures are off


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


class Way:
    """Where the goal is from the tool."""

    def __init__(self, of: Arm) -> None:
        self.pos, self.quat, self.turns, self.scale = of.pos, of.quat, of.turns, of.scale
        self.size = 6 if of.turns else 3

    def __call__(self, signals: Mapping[str, Tensor]) -> Tensor:
        """What a policy sees of the task: the way [N, 3] and, where attitudes count, the turn [N, 3] to the goal."""
        way = 5 / self.scale * (signals["goal_pos_w"] - signals[self.pos])
        if not self.turns:
            return way
        return torch.cat([way, turn_between(signals[self.quat], signals["goal_quat_w"])[0]], -1)


class Objective(FormulaObjective):
    """Closer, aligned, still; the formula says when it is there."""

    privileged_dim = 3 + 1

    def __init__(self, tracker: FormulaTracker, reward: Reward, action_dim: int, of: Arm, episode_s: float) -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.episode_s = reward, episode_s
        self.pos, self.quat, self.vel, self.turns, self.scale = of.pos, of.quat, of.vel, of.turns, of.scale

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        way = (signals["goal_pos_w"] - signals[self.pos]).norm(dim=-1)
        distance = way / self.scale
        angle = turn_between(signals[self.quat], signals["goal_quat_w"])[1] if self.turns else torch.zeros_like(way)
        near = 1 - torch.tanh(distance / 0.1)
        terminated = tracked.safe <= 0
        reward = self.tracker.automaton.dt * (
            -w.far * distance + w.near * near + w.close * (1 - torch.tanh(way / 0.02)) - w.turned * angle
            + w.aligned * near * (1 - torch.tanh(angle / 0.2)) + w.inside * tracked.inside
            - w.speed * near * signals["joint_vel"].square().sum(-1) - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        reward = reward + w.hit * tracked.hits
        return reward, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocity of the tool and the time, for the critic."""
        return torch.cat([signals[self.vel], signals["mission_time"][:, None] / self.episode_s], -1)


class Start:
    """Joints near home, and the pose of a random posture for a goal.

    Args:
        spread: of the goals' postures around home, rad.
        lowest: m, of goals over the floor.
    """

    def __init__(self, of: Arm, spread: float, lowest: float) -> None:
        self.of, self.chain, self.angle, self.lowest = of, deepcopy(of.chain), spread, lowest
        self.home, self.start, self.around = torch.tensor(of.home), of.spread(0.15), of.spread(STEP)
        (tool,), _ = self.chain(self.home[None])
        away = tool[:2].norm().clamp(min=1e-6)
        self.ahead = (tool[:2] / away).tolist()
        self.near = min(NEAR * of.scale, 0.8 * float(away))
        self.bottom, self.top = min(LOWEST * of.scale, 0.7 * float(tool[2])), max(TOP * of.scale, 1.2 * float(tool[2]))
        self.postures: Tensor | None = None

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        u, v = draw("initial.joints", self.of.joints), draw("initial.goal", 1 + self.of.joints)
        if self.postures is None:
            self.postures = clear_postures(self.of, POSTURES, self.angle, self.in_front)
        place = u.device
        chosen = self.postures[(v[:, 0].cpu() * len(self.postures)).long()].to(place)
        pos, quat = self.chain.to(place)(chosen + self.around.to(place) * (2 * v[:, 1:] - 1))
        pos[:, 2] = pos[:, 2].clamp(min=self.lowest)
        start = self.home.to(place) + self.start.to(place) * (2 * u - 1)
        return {"joint_pos": start, "goal_pos_w": pos, **({"goal_quat_w": quat} if self.of.turns else {})}

    def in_front(self, joints: Tensor) -> Tensor:
        """Whether [K] the tool is in front of the base, neither low nor high, at ``joints`` [K, J]."""
        pos, _ = self.of.chain(joints)
        ahead = self.ahead[0] * pos[:, 0] + self.ahead[1] * pos[:, 1]
        return (pos[:, 2] > self.bottom) & (ahead > self.near) & (pos[:, 2] < self.top)


class OwnStart:
    """The same for the arm that the task was made for: postures around home do not touch themselves there."""

    def __init__(self, of: Arm, spread: float, lowest: float) -> None:
        self.of, self.chain, self.spread, self.lowest = of, deepcopy(of.chain), spread, lowest
        low, high = of.range
        self.low, self.high = low + 0.1, high - 0.1

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        joints = self.of.joints
        u = draw("initial.joints", joints)
        home = torch.tensor(self.of.home, device=u.device)
        start = home + 0.15 * (2 * u - 1)
        v = draw("initial.goal", joints * ASKED).reshape(-1, joints)
        posture = torch.maximum(torch.minimum(home + self.spread * (2 * v - 1), self.high.to(u.device)),
                                self.low.to(u.device))
        pos, quat = self.chain.to(u.device)(posture)
        good = ((pos[:, 2] > LOWEST) & (pos[:, 0] > NEAR) & (pos[:, 2] < TOP)).reshape(len(u), ASKED)
        first = good.float().argmax(-1)  # none good: the first one drawn, which can be reached all the same
        chosen = torch.arange(len(u), device=u.device) * ASKED + first
        pos, quat = pos[chosen], quat[chosen]
        pos[:, 2] = pos[:, 2].clamp(min=self.lowest)
        return {"joint_pos": start, "goal_pos_w": pos, "goal_quat_w": quat}


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    drive: str = "position", control_dt: float | None = None, substeps: int | None = None, spread: float = 0.7,
    reward: Mapping[str, float] | None = None, stiffness: float | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm: its name, or the path of its folder.
        formula: None: :func:`formula_of` the arm.
        drive: what the robot is commanded with: ``position``, ``velocity`` or ``effort`` of its joints, or the velocity
            of its ``tool`` (behind a Cartesian servo).
        control_dt: s. substeps: physics steps in it. None: as :data:`DRIVES` and the robot's ``control_hz`` have them.
        spread: of the goals' postures around home, rad; starts lie within 0.15 rad of home.
        stiffness: see :class:`temporeal.sim.task_parts.arms.actions.ToolAction`.
    """
    check_range("reach", "spread", spread, 0.0, pi, "rad")
    if drive not in DRIVES:
        raise ValueError(f"task reach: drive is {drive!r}; legal: {', '.join(DRIVES)}")
    of = arm("reach", robot)
    if not of.turns:
        warnings.warn(f"task reach: {of.robot.name} has {len(of.chain.columns)} joints, too few for any attitude: its "
                      "goals are positions", stacklevel=2)
    command, usual_dt, longest = DRIVES[drive]
    control_dt = control_dt or usual_dt or control_period(of.robot)
    seconds = window(of.seconds(spread), SECONDS)
    text = formula or formula_of(of.robot.tool, of.turns, seconds)
    constants = {**CONSTANTS, "floor": CONSTANTS["floor"] * of.scale, **dict(constants or {})}
    goal = Constant(GOAL_POS, *([GOAL_QUAT] if of.turns else []))
    parsed = parse(text, task_schema(of.robot, goal), constants)
    act = arm_action(of, command, control_dt, of.motion(TOOL_SPEED, TOOL_TURN, stiffness=stiffness))
    way, tracker = Way(of), FormulaTracker(parsed, control_dt)
    return Task(
        name="reach",
        scene=Scene(of.robot),
        command=command,
        control_dt=control_dt,
        substeps=substeps or physics_steps(control_dt, longest),
        episode_s=seconds + 1.0,
        formula=parsed,
        formula_text=text,
        constants=constants,
        observe=ArmObserve(of, act, tuple(goal.signals), way, way.size),
        act=act,
        objective=Objective(tracker, weights(Reward, reward), act.action_dim, of, seconds + 1.0),
        initial=(OwnStart if of.own else Start)(of, spread, float(constants["floor"]) + 0.05 * of.scale),
        extra=goal,
        stop="hold" if drive == "position" else "damp",
    )
