"""Lift: an arm picks a cube up and holds it at a place in the air (pick and place). A Franka by default.

Actions move the tool and open or close the gripper (:class:`temporeal.sim.task_parts.arms.actions.ToolAction`); the
robot gets joint positions and the opening, at 25 Hz. The floor of the world stands for the table. Places are those of
an arm that reaches a metre (:meth:`temporeal.sim.task_parts.arms.arm.Arm.in_front`). The tool's z points where it
reaches, its y from finger to finger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.draws import between, one_of
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import about_z, axes, pointing_down
from temporeal.sim.scene import Scene, box
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.arms.arm import Arm, arm_action, grasping_arm, width_of
from temporeal.sim.task_parts.arms.kinematics import postures
from temporeal.sim.task_parts.arms.observations import ArmObserve


def formula_of(tool: str) -> str:
    """The formula for an arm with the tool called ``tool``."""
    return f"F[0,5] G[0,1] (norm(cube_pos_w - goal_pos_w) < reach)\n& G[0,6] ({tool}_pos_w.z > floor)"


FORMULA = formula_of("grip")

CONSTANTS: dict[str, Any] = {"reach": 0.03, "floor": 0.005}  # m
POSITIVE = ("reach",)

HALF = 0.02  # m, of the cube's edges
MASS = 0.05  # kg: 780 kg/m^3, hard wood
GOAL = Constant(SignalSpec("goal_pos_w", (3,), "m", "w"))
TOOL_SPEED, TOOL_TURN = 0.5, 1.5  # m/s, rad/s at action 1
PLACE_LOW, PLACE_HIGH = (0.38, -0.18), (0.62, 0.18)  # m, where cubes start
GOAL_LOW, GOAL_HIGH = (0.40, -0.18, 0.12), (0.60, 0.18, 0.35)  # m
GRASPS = 1024  # postures around cubes and above, for starts in the middle
OVER = 0.12  # m: how far above a cube open fingers start at most
CLUTTER_AWAY = (0.09, 0.13)  # m, from the cube's centre to that of a cube around it: open fingers find room between
CLUTTER_COLOURS = ((0.2, 0.4, 0.8, 1), (0.2, 0.6, 0.3, 1), (0.8, 0.7, 0.2, 1), (0.6, 0.3, 0.7, 1))  # the cube is red


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.0  # times 1 - tanh(5 |cube - tool| / m)
    above: float = 0.5  # times the share by which the tool points down
    grasped: float = 1.5  # while the cube is between the fingers and they are on it
    lifted: float = 2.0  # times the height of a grasped cube, up to 5 cm, in 5 cm
    carry: float = 3.0  # times 1 - tanh(5 |goal - cube| / m) of a lifted cube
    fine: float = 3.0  # times 1 - tanh(30 |goal - cube| / m) of a lifted cube
    inside: float = 3.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is on the table: the episode ends


SEEN = ("cube_pos_w", "cube_quat_w", "goal_pos_w")


def seen(signals: Mapping[str, Tensor], tool: str = "grip") -> Tensor:
    """What a policy sees of the task [N, 12]: the way to the cube, how it lies, and its way to the goal."""
    return torch.cat([5 * (signals["cube_pos_w"] - signals[f"{tool}_pos_w"]), axes(signals["cube_quat_w"]),
                      5 * (signals["goal_pos_w"] - signals["cube_pos_w"])], -1)


class Objective(FormulaObjective):
    """Approach, grasp, lift, carry; the formula says when it is there."""

    privileged_dim = 3 + 3 + 3 + 1 + 1

    def __init__(self, tracker: FormulaTracker, reward: Reward, action_dim: int, tool: str = "grip") -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.tool = reward, tool

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        between = (signals["cube_pos_w"] - signals[f"{self.tool}_pos_w"]).norm(dim=-1)
        away = (signals["goal_pos_w"] - signals["cube_pos_w"]).norm(dim=-1)
        held = grasped(signals, self.tool)
        height = ((signals["cube_pos_w"][:, 2] - HALF) / 0.05).clamp(0.0, 1.0) * held
        x, y = signals[f"{self.tool}_quat_w"][:, 1], signals[f"{self.tool}_quat_w"][:, 2]
        down = (2 * (x * x + y * y) - 1).clamp(min=0.0)  # minus the z component of the tool's own z axis
        terminated = tracked.safe <= 0
        reward = self.tracker.automaton.dt * (
            w.approach * (1 - torch.tanh(5 * between)) + w.above * down + w.grasped * held + w.lifted * height
            + height * (w.carry * (1 - torch.tanh(5 * away)) + w.fine * (1 - torch.tanh(30 * away)))
            + w.inside * tracked.inside - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        reward = reward + w.hit * tracked.hits
        return reward, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocities of tool and cube, whether it is grasped, the time."""
        return torch.cat([
            signals[f"{self.tool}_vel_w"], signals["cube_vel_w"], 0.1 * signals["cube_ang_vel_w"],
            grasped(signals, self.tool)[:, None], signals["mission_time"][:, None] / 6], -1)


def grasped(signals: Mapping[str, Tensor], tool: str = "grip") -> Tensor:
    """1 where the cube's centre is within 15 mm of the tool's and the fingers are as far apart as the cube is wide."""
    between = (signals["cube_pos_w"] - signals[f"{tool}_pos_w"]).norm(dim=-1)
    opening = width_of(signals["finger_pos"])
    on = (opening > 2 * HALF - 0.004) & (opening < 2 * 1.4143 * HALF + 0.002)
    return (on & (between < 0.015)).float()


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.04, substeps: int = 12, reward: Mapping[str, float] | None = None,
    stiffness: float | None = None, clutter: int = 0,
) -> Task:
    """The task. ``robot``: an arm with a gripper. ``formula``: None: :func:`formula_of` the arm's tool. ``stiffness``:
    see :class:`temporeal.sim.task_parts.arms.actions.ToolAction`. ``clutter``: cubes of other colours around the one to
    be lifted, alike in all else; pictures show them, the observation does not."""
    check_range("lift", "clutter", clutter, 0, len(CLUTTER_COLOURS), "")
    constants = {**CONSTANTS, **dict(constants or {})}
    of, gripper = grasping_arm("lift", robot)
    tool, text = of.robot.tool, formula or formula_of(of.robot.tool)
    middle = of.in_front(torch.tensor([[0.5, 0.0]]))[0].tolist()
    cubes = [box("cube", (HALF,) * 3, mass=MASS, pos=(*middle, HALF))]
    for i, rgba in enumerate(CLUTTER_COLOURS[:clutter]):
        cubes.append(box(f"clutter_{i}", (HALF,) * 3, mass=MASS, pos=(middle[0], middle[1] + 0.1 * (i + 1), HALF),
                         rgba=rgba))
    scene = Scene(of.robot, tuple(cubes))
    parsed = parse(text, task_schema(scene, GOAL), constants)
    act = arm_action(of, gripper.command, control_dt, of.motion(TOOL_SPEED, TOOL_TURN, stiffness=stiffness))
    tracker = FormulaTracker(parsed, control_dt)
    return Task(
        name="lift",
        scene=scene,
        command=gripper.command,
        control_dt=control_dt,
        substeps=substeps,
        episode_s=6.0,
        formula=parsed,
        formula_text=text,
        constants=constants,
        observe=ArmObserve(of, act, SEEN, partial(seen, tool=tool), 12),
        act=act,
        objective=Objective(tracker, weights(Reward, reward), act.action_dim, tool),
        initial=Start(of, clutter),
        mid_episode=MidEpisode(of, control_dt, clutter),
        extra=GOAL,
        stop="hold",
    )


class Start:
    """Joints within 0.1 rad of home, the gripper open, the cube somewhere on the table, the goal above it."""

    def __init__(self, of: Arm, clutter: int) -> None:
        self.of, self.clutter = of, clutter

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        of = self.of
        u, v, w = draw("initial.joints", of.joints), draw("initial.cube", 3), draw("initial.goal", 3)
        place = of.in_front(between(PLACE_LOW, PLACE_HIGH, v[:, :2]))
        return {"joint_pos": torch.tensor(of.home, device=u.device) + 0.1 * (2 * u - 1), "finger_pos": of.opened(u),
                **cube_at(place, v[:, 2]), "goal_pos_w": of.in_front(between(GOAL_LOW, GOAL_HIGH, w)),
                **around(place, self.clutter, draw)}


def cube_at(place: Tensor, turn: Tensor) -> dict[str, Tensor]:
    """Pose of a cube that lies at ``place`` [K, 2], turned about z by ``turn`` [K] quarter turns."""
    return {"cube_pos_w": torch.cat([place, torch.full_like(turn, HALF)[:, None]], -1),
            "cube_quat_w": about_z(0.5 * pi * (turn - 0.5))}


def around(place: Tensor, clutter: int, draw: Draw) -> dict[str, Tensor]:
    """Poses of ``clutter`` cubes on the table around ``place`` [K, 2], each in the middle half of a sector of its own:
    so the nearest two of four are 69 mm apart, more than a cube's diagonal."""
    found = dict[str, Tensor]()
    if clutter:
        u = draw("initial.clutter", 1 + 3 * clutter)
    for i in range(clutter):
        angle = 2 * pi * (u[:, 0] + (i + 0.25 + 0.5 * u[:, 1 + 3 * i]) / clutter)
        away = between(CLUTTER_AWAY[:1], CLUTTER_AWAY[1:], u[:, 2 + 3 * i : 3 + 3 * i])
        at = cube_at(place + away * torch.stack([angle.cos(), angle.sin()], -1), u[:, 3 + 3 * i])
        found |= {f"clutter_{i}_{name.removeprefix('cube_')}": value for name, value in at.items()}
    return found


@cache
def mid_episode_states(of: Arm) -> dict[str, Tensor]:
    """Stored states: the cube between the fingers, on the table or in the air; or on the table below open fingers."""
    generator = torch.Generator().manual_seed(0)
    place = torch.rand(GRASPS, 3, generator=generator)
    kind = torch.rand(GRASPS, generator=generator)
    held, air = kind < 0.5, kind < 0.25
    low, high = (*PLACE_LOW, HALF), (*PLACE_HIGH, 0.25)
    place[:, 2] = place[:, 2] * air
    place = between(low, high, place)
    place = torch.cat([of.in_front(place[:, :2]), place[:, 2:]], -1)
    turn = 0.5 * pi * (torch.rand(GRASPS, generator=generator) - 0.5)
    over = OVER * torch.rand(GRASPS, generator=generator) * ~held
    tool = place + torch.stack([torch.zeros_like(over), torch.zeros_like(over), over], -1)
    joints, good = postures(of.chain, tool, pointing_down(turn), of.home, of.range)
    fingers = torch.where(held[:, None], of.opened(tool, HALF + 0.0005), of.opened(tool))
    state = {"joint_pos": joints, "finger_pos": fingers, "cube_pos_w": place, "cube_quat_w": about_z(turn)}
    return {name: value[good] for name, value in state.items()}


class MidEpisode:
    """Starts with the cube between the fingers, or right below them."""

    def __init__(self, of: Arm, control_dt: float, clutter: int) -> None:
        self.of, self.control_dt, self.clutter = of, control_dt, clutter

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds."""
        u, w = draw("explore.grasp", 2), draw("initial.goal", 3)
        goal = self.of.in_front(between(GOAL_LOW, GOAL_HIGH, w))
        state = one_of(mid_episode_states(self.of), u[:, 0])
        return ({**state, "goal_pos_w": goal, **around(state["cube_pos_w"][:, :2], self.clutter, draw)},
                {"tick": torch.round(2.0 / self.control_dt * u[:, 1])})
