"""Push: an arm pushes a cube over the table to a goal, with closed fingers. A Franka by default.

Actions move the tool (:class:`temporeal.sim.task_parts.arms.actions.ToolAction`), whose gripper stays closed; the robot
gets joint positions and the opening, at 25 Hz. The floor of the world stands for the table. The cube, the places and
the robot's limits are those of :mod:`temporeal.sim.tasks.lift`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.draws import between
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import about_z, axes
from temporeal.sim.scene import Scene, box
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.arms.arm import Arm, arm_action, grasping_arm
from temporeal.sim.task_parts.arms.observations import ArmObserve


def formula_of(tool: str) -> str:
    """The formula for an arm with the tool called ``tool``."""
    return (f"F[0,7] G[0,1] (hypot(cube_pos_w.x - goal_pos_w.x, cube_pos_w.y - goal_pos_w.y) < reach)\n"
            f"& G[0,8] ({tool}_pos_w.z > floor)")


FORMULA = formula_of("grip")
CONSTANTS: dict[str, Any] = {"reach": 0.03, "floor": 0.005}  # m
POSITIVE = ("reach",)

HALF = 0.025  # m, of the cube's edges
MASS = 0.1  # kg: 800 kg/m^3, hard wood
FRICTION = (0.5, 0.005, 0.0001)  # wood on wood
GOAL = Constant(SignalSpec("goal_pos_w", (3,), "m", "w"))
TOOL_SPEED, TOOL_TURN = 0.4, 1.5  # m/s, rad/s at action 1
PLACE_LOW, PLACE_HIGH = (0.42, -0.15), (0.58, 0.15)  # m, where cubes start
WAY = (0.10, 0.20)  # m, how far goals are from the cube
GOAL_LOW, GOAL_HIGH = (0.36, -0.22), (0.64, 0.22)  # m, where goals are


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.0  # times 1 - tanh(5 |push - tool| / m): the place from which the cube is pushed to the goal
    above: float = 0.5  # times the share by which the tool points down
    near: float = 3.0  # times 1 - tanh(5 |goal - cube| / m)
    fine: float = 3.0  # times 1 - tanh(30 |goal - cube| / m)
    inside: float = 3.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is on the table: the episode ends


SEEN = ("cube_pos_w", "cube_quat_w", "goal_pos_w")
BEHIND = HALF + 0.02  # m from the cube's centre to the tool's where closed fingers touch it


def push_place(cube: Tensor, goal: Tensor) -> Tensor:
    """Where the tool pushes the cube [N, 3] from: behind it, as seen from the goal, at its middle's height."""
    way = goal[:, :2] - cube[:, :2]
    back = way / way.square().sum(-1).clamp(min=1e-6).sqrt()[:, None]
    return torch.cat([cube[:, :2] - BEHIND * back, cube[:, 2:]], -1)


def seen(signals: Mapping[str, Tensor], tool: str = "grip") -> Tensor:
    """What a policy sees of the task [N, 15]: the ways to the cube and behind it, how it lies, its way to the goal."""
    cube, goal, place = signals["cube_pos_w"], signals["goal_pos_w"], signals[f"{tool}_pos_w"]
    return torch.cat([5 * (cube - place), 5 * (push_place(cube, goal) - place), axes(signals["cube_quat_w"]),
                      5 * (goal - cube)], -1)


class Objective(FormulaObjective):
    """Behind the cube, then to the goal with it; the formula says when it is there."""

    privileged_dim = 3 + 3 + 3 + 1

    def __init__(self, tracker: FormulaTracker, reward: Reward, action_dim: int, tool: str = "grip") -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.tool = reward, tool

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        cube, goal = signals["cube_pos_w"], signals["goal_pos_w"]
        lacking = (push_place(cube, goal) - signals[f"{self.tool}_pos_w"]).square().sum(-1).clamp(min=1e-12).sqrt()
        away = (goal - cube)[:, :2].square().sum(-1).clamp(min=1e-12).sqrt()
        x, y = signals[f"{self.tool}_quat_w"][:, 1], signals[f"{self.tool}_quat_w"][:, 2]
        down = (2 * (x * x + y * y) - 1).clamp(min=0.0)  # minus the z component of the tool's own z axis
        terminated = tracked.safe <= 0
        reward = self.tracker.automaton.dt * (
            w.approach * (1 - torch.tanh(5 * lacking)) + w.above * down + w.near * (1 - torch.tanh(5 * away))
            + w.fine * (1 - torch.tanh(30 * away)) + w.inside * tracked.inside - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        return reward + w.hit * tracked.hits, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocities of tool and cube, the time."""
        return torch.cat([signals[f"{self.tool}_vel_w"], signals["cube_vel_w"], 0.1 * signals["cube_ang_vel_w"],
                          signals["mission_time"][:, None] / 8], -1)


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.04, substeps: int = 12, reward: Mapping[str, float] | None = None,
    stiffness: float | None = None,
) -> Task:
    """The task. ``robot``: an arm with a gripper. ``formula``: None: :func:`formula_of` the arm's tool. ``stiffness``:
    see :class:`temporeal.sim.task_parts.arms.actions.ToolAction`."""
    constants = {**CONSTANTS, **dict(constants or {})}
    of, gripper = grasping_arm("push", robot)
    tool, text = of.robot.tool, formula or formula_of(of.robot.tool)
    middle = of.in_front(torch.tensor([[0.5, 0.0]]))[0].tolist()
    scene = Scene(of.robot, (box("cube", (HALF,) * 3, mass=MASS, pos=(*middle, HALF), friction=FRICTION),))
    parsed = parse(text, task_schema(scene, GOAL), constants)
    motion = of.motion(TOOL_SPEED, TOOL_TURN, grip=gripper.closed, stiffness=stiffness)
    act = arm_action(of, gripper.command, control_dt, motion)
    return Task(
        name="push", scene=scene, command=gripper.command, control_dt=control_dt, substeps=substeps, episode_s=8.0,
        formula=parsed, formula_text=text, constants=constants,
        observe=ArmObserve(of, act, SEEN, partial(seen, tool=tool), 15), act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), act.action_dim, tool),
        initial=Start(of), extra=GOAL, stop="hold")


class Start:
    """Joints within 0.1 rad of home, the gripper closed, the cube on the table, the goal 10 to 20 cm from it."""

    def __init__(self, of: Arm) -> None:
        self.of = of

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        of, gripper = self.of, self.of.robot.gripper
        u, v, w = draw("initial.joints", of.joints), draw("initial.cube", 3), draw("initial.goal", 2)
        place = between(PLACE_LOW, PLACE_HIGH, v[:, :2])
        far, angle = WAY[0] + (WAY[1] - WAY[0]) * w[:, 0], 2 * pi * w[:, 1]
        goal = place + far[:, None] * torch.stack([angle.cos(), angle.sin()], -1)
        low, high = (torch.tensor(x, device=u.device) for x in (GOAL_LOW, GOAL_HIGH))
        goal = torch.where((goal < low) | (goal > high), 2 * place - goal, goal)  # on the cube's other side
        goal = of.in_front(torch.minimum(torch.maximum(goal, low), high))
        on = torch.full_like(u[:, :1], HALF)
        return {"joint_pos": torch.tensor(of.home, device=u.device) + 0.1 * (2 * u - 1),
                "finger_pos": of.opened(u, gripper.closed if gripper is not None else None),
                "cube_pos_w": torch.cat([of.in_front(place), on], -1),
                "cube_quat_w": about_z(0.5 * pi * (v[:, 2] - 0.5)), "goal_pos_w": torch.cat([goal, on], -1)}
