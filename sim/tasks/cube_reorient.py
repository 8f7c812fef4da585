"""Cube reorient: a hand, palm up, turns a cube to one attitude after another, without dropping it.

After OpenAI et al., "Learning Dexterous In-Hand Manipulation" (2018), DeXtreme (2023) and MuJoCo Playground's
LeapCubeReorient: a goal is met within 0.4 rad and the next one follows at once; a dropped cube, or more than 8 s for
one goal, ends the episode. Joint targets move by small steps at 20 Hz. The cube's pose comes from a tracker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import StepAction
from temporeal.sim.rewards.formula_tracker import FormulaTracker, lowest
from temporeal.sim.rotations import inverse, product, turn_between
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.task import Carry, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts import hands
from temporeal.sim.task_parts.goals import Goals
from temporeal.sim.task_parts.hands import (
    COMMAND,
    JOINTS,
    PALMS,
    JointHistory,
    cube_motion,
    cube_place,
    held,
    symmetric_attitude,
)

FORMULA = """\
G[0,24] (norm(cube_pos_w - palm) < away)
& G[0,24] (goal_age < patience)"""

CONSTANTS: dict[str, Any] = {
    "away": 0.09,  # m from where the cube lies on the palm (``palm``, by robot)
    "patience": 8.0,  # s for each goal
    "reach": 0.4,  # rad: a goal is met
}
POSITIVE = ("away", "patience", "reach")

GOALS = ("any", "yaw")  # any attitude; or the cube turned about the vertical, the same face up
LEAST = 0.6  # rad from a goal to the next, of goals about the vertical
STEP = 0.1  # rad by which a target moves at most in a control step: 2 rad/s
EPISODE = 24.0  # s


@dataclass(frozen=True)
class Reward:
    """Weights. The first three are paid once, for progress; the others per second, unless they end the episode."""

    closer: float = 4.0  # times the angle to the goal by which the step came nearer, rad
    met: float = 5.0  # per goal
    hit: float = 5.0  # per timed subgoal of the formula
    near: float = 1.0  # times 0.4 rad / (0.4 rad + the angle to the goal)
    slide: float = 1.0  # times the cube's speed, m/s, sum over axes
    centred: float = 10.0  # times the cube's horizontal distance from the palm's centre, m
    pose: float = 0.05  # times the squared distance of the joints from home, rad^2
    torque: float = 1.0  # times the sum of squared torques, (N m)^2
    work: float = 0.2  # times the sum of the magnitudes of the joints' powers, W
    smooth: float = 0.01  # times the squared change of the action
    dropped: float = 20.0  # once, when the cube leaves the hand: the episode ends
    late: float = 5.0  # once, when a goal was not met in time: the episode ends


class Observe(nn.Module):
    """Recent joints, the last action, the cube's position and attitude, the rotation to the goal.

    Faces look alike (:func:`temporeal.sim.task_parts.hands.symmetric_attitude`); only the rotation tells them apart.
    """

    signals = ("joint_pos", "cube_pos_w", "cube_quat_w", "goal_quat_w")

    def __init__(self, act: StepAction, robot: RobotSpec) -> None:
        super().__init__()
        self.joints, self.move = JointHistory(act), act.move
        self.register_buffer("palm", torch.tensor(PALMS[robot.name]))
        self.palm: Tensor
        self.memory = {**self.joints.memory, "last_action": (JOINTS,)}
        self.obs_dim = self.joints.size + JOINTS + 3 + 9 + 3

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        joints, after = self.joints(signals["joint_pos"], memory)
        turn, _ = turn_between(signals["cube_quat_w"], signals["goal_quat_w"])
        obs = torch.cat([joints, memory["last_action"], cube_place(signals, self.palm),
                         symmetric_attitude(signals["cube_quat_w"]), turn], -1)
        return obs, {**after, "last_action": memory["last_action"]}

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}


class Objective:
    """Nearer to each goal; a dropped cube or a goal not met in time ends the episode."""

    def __init__(self, tracker: FormulaTracker, reward: Reward, robot: RobotSpec) -> None:
        self.tracker, self.weights = tracker, reward
        timed = [not {"goal_age", "goals_met"}.isdisjoint(signals_in(inv.predicate))
                 for inv in tracker.automaton.invariants]
        self.timely, self.guarded = ([i for i, x in enumerate(timed) if x is kind] for kind in (True, False))
        self.palm, self.home = torch.tensor(PALMS[robot.name]), torch.tensor(robot.home["joint_pos"])
        self.carry = {**tracker.carry, "previous": (JOINTS,), "angle": (), "count": (), "fresh": ()}
        self.privileged_dim = 6 + JOINTS + 3

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        _, angle = turn_between(signals["cube_quat_w"], signals["goal_quat_w"])
        met = signals["goals_met"]
        return {**carry, **self.tracker(signals, carry).carry, "angle": angle, "count": met, "fresh": met}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry. ``fresh``: the goal was met at the sample before, so it is new."""
        w, tracked, dt = self.weights, self.tracker(signals, carry), self.tracker.automaton.dt
        _, angle = turn_between(signals["cube_quat_w"], signals["goal_quat_w"])
        closer = (carry["angle"] - angle) * (1 - carry["fresh"])
        met = signals["goals_met"] - carry["count"]
        keep = tracked.progress.keep
        dropped = (held(signals, self.palm) < 0.5) | (lowest(keep[:, self.guarded], angle) <= 0)
        late = (lowest(keep[:, self.timely], angle) <= 0) & ~dropped
        torque, speed = signals["joint_torque"], signals["joint_vel"]
        place = (signals["cube_pos_w"] - self.palm.to(angle.device))[:, :2]
        off = signals["joint_pos"] - self.home.to(angle.device)
        reward = w.closer * closer + w.met * met + w.hit * tracked.hits + dt * (
            w.near * 0.4 / (0.4 + angle) - w.slide * signals["cube_vel_w"].abs().sum(-1)
            - w.centred * place.square().sum(-1).sqrt() - w.pose * off.square().sum(-1)
            - w.torque * torque.square().sum(-1) - w.work * (torque * speed).abs().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)
        ) - w.dropped * dropped.float() - w.late * late.float()
        after = {**tracked.carry, "previous": action, "angle": angle, "count": signals["goals_met"], "fresh": met}
        return reward, dropped | late, after

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The cube's velocities, the joints' speeds, the angle to the goal, its age, the time."""
        _, angle = turn_between(signals["cube_quat_w"], signals["goal_quat_w"])
        times = torch.stack([angle, signals["goal_age"] / 8, signals["mission_time"] / EPISODE], -1)
        return torch.cat([cube_motion(signals), 0.3 * signals["joint_vel"], times], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.tracker.success(carry)


def miss(signals: Mapping[str, Tensor], goal: Tensor) -> Tensor:
    """Angle [N] between the cube and ``goal`` [N, 4], rad."""
    return turn_between(signals["cube_quat_w"], goal)[1]


def any_attitude(chance: Tensor, goal: Tensor) -> Tensor:
    """A uniformly random attitude [N, 4] (K. Shoemake, Graphics Gems III, 1992); the goal before does not matter."""
    a, b, c = chance[:, 0], 2 * pi * chance[:, 1], 2 * pi * chance[:, 2]
    r, s = (1 - a).sqrt(), a.sqrt()
    return torch.stack([r * b.sin(), r * b.cos(), s * c.sin(), s * c.cos()], -1)


def turned(chance: Tensor, goal: Tensor) -> Tensor:
    """``goal`` [N, 4] turned about the vertical by :data:`LEAST` rad to half a turn, to either side."""
    half = 0.5 * (LEAST + (pi - LEAST) * (2 * chance[:, 0] - 1).abs())
    half = torch.where(chance[:, 0] < 0.5, -half, half)
    zero = torch.zeros_like(half)
    return product(torch.stack([half.cos(), zero, zero, half.sin()], -1), goal)


def about_vertical(quat: Tensor) -> Tensor:
    """The part [K, 4] of attitudes ``quat`` [K, 4] that turns about the vertical: what is left without a tilt."""
    twist = quat * torch.tensor([1.0, 0.0, 0.0, 1.0], device=quat.device)
    return twist / twist.norm(dim=-1, keepdim=True)


def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, robot: str = "leap_hand",
    goals: str = "any", step: float = STEP, control_dt: float = 0.05, substeps: int = 6,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task for the hand ``robot``. ``goals``: "any" or "yaw". ``step``: of joint targets, rad."""
    spec = hands.hand(robot)
    if goals not in GOALS:
        raise ValueError(f"goals is {goals!r}; legal: {', '.join(GOALS)}")
    check_range("cube_reorient", "step", step, 0.0, pi, "rad", above=True)
    constants = {**CONSTANTS, "palm": PALMS[robot], **dict(constants or {})}
    scene = hands.hand_scene(spec)
    following = any_attitude if goals == "any" else turned
    extra = Goals(SignalSpec("goal_quat_w", (4,), "wxyz", "w"), control_dt, constants["reach"], miss, following, 3)
    parsed = parse(formula, task_schema(scene, extra), constants)
    act = StepAction(spec, COMMAND, step=(step,) * JOINTS)

    def initial(draw: Draw) -> dict[str, Tensor]:
        state, front = hands.start(robot, draw), hands.faces(draw)
        level = product(about_vertical(product(state["cube_quat_w"], inverse(front))), front)
        return {**state, "goal_quat_w": following(draw("initial.goal", 3), level)}

    return Task(
        name="cube_reorient",
        scene=scene,
        command=COMMAND,
        control_dt=control_dt,
        substeps=substeps,
        episode_s=EPISODE,
        formula=parsed,
        formula_text=formula,
        constants=constants,
        observe=Observe(act, spec),
        act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), spec),
        initial=initial,
        extra=extra,
        stop="hold",
    )
