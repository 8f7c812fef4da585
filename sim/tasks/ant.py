"""Ant: walk from goal to goal on the floor, each met in time, and never fall over.

Goals are places. The next goal, some metres away in any direction, is given as soon as one is met. What is learned is
to go to a commanded place, of which missions with regions and times consist. Torques at 20 Hz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.ant.spec import ANKLE, HEIGHT, LEAST, MOST
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.maps import AffineAction
from temporeal.sim.rewards.formula_tracker import FormulaTracker, lowest
from temporeal.sim.rotations import rotation
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.task import Carry, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.goals import Goals

FORMULA = """\
G[0,20] (goal_age < patience)
& G[0,20] (base_pos_w.z > low & base_quat_w.x * base_quat_w.x + base_quat_w.y * base_quat_w.y < tilt)"""

CONSTANTS: dict[str, Any] = {
    "reach": 0.5,  # m: a goal is met when the torso's centre is above this disk
    "patience": 5.0,  # s for each goal
    "low": 0.27,  # m: a torso that lies on the floor is 0.25 m up
    "tilt": 0.25,  # x^2 + y^2 of the attitude is (1 - cos) / 2 of the torso's tilt: 60 degrees
}
POSITIVE = ("reach", "patience", "tilt")

NEAR, FAR = 1.5, 5.0  # m from a goal to the next
ARENA = 8.0  # m: goals lie within this square around the origin, to each side
MIDDLE = tuple(q for down in ANKLE for q in (0.0, down * 0.5 * (LEAST + MOST)))  # rad
EPISODE = 20.0  # s


@dataclass(frozen=True)
class Reward:
    """Weights per second, unless noted as once."""

    closer: float = 2.0  # times the speed towards the goal, m/s
    fastest: float = 3.0  # m/s: no more is paid for
    met: float = 5.0  # once per goal
    hit: float = 5.0  # once per timed subgoal of the formula
    alive: float = 0.5
    late: float = 0.5  # while the formula's clauses on the goals are broken
    effort: float = 0.2  # times the squared action
    smooth: float = 0.05  # times the squared change of the action
    tilt: float = 0.5  # times 1 - cos of the torso's tilt
    violated: float = 5.0  # once, on a fall: the episode ends


def body_frame(quat_wxyz: Tensor, vector_w: Tensor) -> Tensor:
    """A world vector [N, 3] in the body's frame."""
    return (rotation(quat_wxyz).transpose(-1, -2) @ vector_w[..., None])[..., 0]


def towards(signals: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Unit vector [N, 2] from the torso to the goal, world frame, and the distance [N], m."""
    way = signals["goal_pos_w"] - signals["base_pos_w"][:, :2]
    distance = way.square().sum(-1).clamp(min=1e-8).sqrt()
    return way / distance[:, None], distance


class Observe(nn.Module):
    """Height, up and velocities in the body's frame, joints, the last action, and the way to the goal.

    ``base_*`` come from a tracker or a state estimator.
    """

    signals = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "joint_pos", "joint_vel", "goal_pos_w")

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("middle", torch.tensor(MIDDLE))
        self.middle: Tensor
        self.memory = {"last_action": (8,)}
        self.obs_dim = 1 + 3 + 3 + 3 + 8 + 8 + 8 + 2 + 1

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        quat = signals["base_quat_w"]
        way, distance = towards(signals)
        there = body_frame(quat, torch.cat([way, torch.zeros_like(way[:, :1])], -1))[:, :2]
        obs = torch.cat([
            4 * (signals["base_pos_w"][:, 2:] - HEIGHT), rotation(quat)[:, 2],
            body_frame(quat, signals["base_vel_w"]), 0.5 * signals["base_ang_vel_b"],
            2 * (signals["joint_pos"] - self.middle), 0.2 * signals["joint_vel"], memory["last_action"],
            there, torch.tanh(0.5 * distance)[:, None]], -1)
        return obs, memory

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` entered."""
        return {**memory, "last_action": action}


class Objective:
    """Towards the goal, upright; a fall ends the episode, a goal met too late does not."""

    privileged_dim = 2

    def __init__(self, tracker: FormulaTracker, reward: Reward) -> None:
        self.tracker, self.weights = tracker, reward
        late = ["goal_age" in signals_in(inv.predicate) or "goals_met" in signals_in(inv.predicate)
                for inv in tracker.automaton.invariants]
        self.timely, self.posture = ([i for i, x in enumerate(late) if x is kind] for kind in (True, False))
        self.carry = {**tracker.carry, "previous": (8,), "count": ()}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return {**carry, **self.tracker(signals, carry).carry, "count": signals["goals_met"]}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        way, _ = towards(signals)
        speed = (way * signals["base_vel_w"][:, :2]).sum(-1).clamp(max=w.fastest)
        upright = rotation(signals["base_quat_w"])[:, 2, 2]
        keep = tracked.progress.keep
        fallen = lowest(keep[:, self.posture], speed) <= 0
        late = lowest(keep[:, self.timely], speed) <= 0
        reward = self.tracker.automaton.dt * (
            w.closer * speed + w.alive - w.late * late.float() - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1) - w.tilt * (1 - upright)
        ) + w.met * (signals["goals_met"] - carry["count"]) + w.hit * tracked.hits - w.violated * fallen.float()
        return reward, fallen, {**tracked.carry, "previous": action, "count": signals["goals_met"]}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The goal's age and the time."""
        return torch.stack([signals["goal_age"] / 5, signals["mission_time"] / EPISODE], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.tracker.success(carry)


def away(signals: Mapping[str, Tensor], goal: Tensor) -> Tensor:
    """Distance [N] on the floor from the torso to ``goal`` [N, 2], m."""
    return (goal - signals["base_pos_w"][:, :2]).norm(dim=-1)


def further(chance: Tensor, goal: Tensor) -> Tensor:
    """A place :data:`NEAR` to :data:`FAR` metres from ``goal`` [N, 2], in any direction, mirrored into the arena."""
    distance, angle = NEAR + (FAR - NEAR) * chance[:, :1], 2 * pi * chance[:, 1:2]
    place = goal + distance * torch.cat([angle.cos(), angle.sin()], -1)
    return torch.where(place.abs() > ARENA, 2 * ARENA * place.sign() - place, place)


def initial(draw: Draw) -> dict[str, Tensor]:
    """At home over the origin, turned anywhere, joints off by up to 0.1 rad; the first goal as from the origin."""
    u, v = draw("initial.ant", 9), draw("initial.goal", 2)
    half, zero = pi * u[:, 8], torch.zeros_like(u[:, 8])
    joints = torch.tensor([q for down in ANKLE for q in (0.0, down)], device=u.device)
    pos = torch.stack([zero, zero, torch.full_like(zero, HEIGHT)], -1)
    return {"base_pos_w": pos, "base_quat_w": torch.stack([half.cos(), zero, zero, half.sin()], -1),
            "joint_pos": joints + 0.1 * (2 * u[:, :8] - 1), "goal_pos_w": further(v, torch.zeros_like(v))}


def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, control_dt: float = 0.05, substeps: int = 5,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task."""
    constants = {**CONSTANTS, **dict(constants or {})}
    robot = load_robot("ant")
    goals = Goals(SignalSpec("goal_pos_w", (2,), "m", "w"), control_dt, constants["reach"], away, further, 2)
    parsed = parse(formula, task_schema(robot, goals), constants)
    act = AffineAction(robot, "torque_cmd", center=(0.0,) * 8, scale=(1.0,) * 8)
    return Task(
        name="ant", scene=Scene(robot), command="torque_cmd", control_dt=control_dt, substeps=substeps,
        episode_s=EPISODE, formula=parsed, formula_text=formula, constants=constants, observe=Observe(), act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward)), initial=initial, extra=goals,
        stop="hold")
