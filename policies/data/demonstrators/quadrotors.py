"""Controllers by hand for the quadrotor's tasks: position, then velocity, then attitude, on true signals.

The cascade is the usual one (Mellinger and Kumar, ICRA 2011, without its feedforward of jerk and snap): an acceleration
is wanted, thrust points along it, and the attitude turns towards that. Between a command and a turn are three
integrations with the rotors' lag tau in the last: angle' = rate, rate' = a, a' = (a_cmd - a) / tau. Feedback of all
three places its poles at one frequency, so that the lag costs no stability. What disturbs the robot is known here
(``force_w``), and what remains of it an integral removes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.demonstrators.arms import Controller
from temporeal.robots.crazyflie.spec import ROTOR_SIGN_X, ROTOR_SIGN_Y, ROTOR_SIGN_YAW
from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY
from temporeal.sim.rotations import rotation
from temporeal.sim.task import Task
from temporeal.sim.task_parts.quadrotors import mass


@dataclass(frozen=True)
class Gains:
    """Gains of the cascade.

    Args:
        place: 1/s, wanted speed per distance. speed: 1/s, wanted acceleration per lack of speed.
        rest: 1/s^2, the same of its integral. turn: rad/s, of the three poles of roll and pitch. yaw: the same of yaw.
        fastest: m/s. hardest: m/s^2, of accelerations.
    """

    place: float = 2.2
    speed: float = 5.0
    rest: float = 1.0
    turn: float = 20.0
    yaw: float = 4.0
    fastest: float = 1.6
    hardest: float = 5.0


Wanted = Callable[[Mapping[str, Tensor], Tensor], tuple[Tensor, Tensor]]
"""Signals and the pace [N] to the wanted velocity [N, 3] m/s and a known acceleration [N, 3] m/s^2 besides."""


class Cascade:
    """From a wanted velocity to collective thrust [N] N and angular accelerations to command [N, 3] rad/s^2.

    It remembers the integral of what speed lacked, and the rates of the sample before.
    """

    def __init__(self, task: Task, worlds: int, gains: Gains) -> None:
        self.mass, self.dt, self.gains = mass(task.robot), task.control_dt, gains
        self.lag = task.robot.parameters["tau_up"].nominal[0]
        self.lacked = torch.zeros(worlds, 3)
        self.before = torch.full((worlds, 3), torch.nan)  # none yet

    def __call__(self, s: Mapping[str, Tensor], velocity: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Thrust and angular accelerations."""
        g = self.gains
        lack = velocity - s["base_vel_w"]
        self.lacked = (self.lacked + self.dt * lack).clamp(-0.6, 0.6)
        wanted = known + g.speed * lack + g.rest * self.lacked
        wanted = wanted * (g.hardest / wanted.norm(dim=-1, keepdim=True).clamp(min=g.hardest))
        force = wanted + torch.tensor([0.0, 0.0, GRAVITY]) - s["force_w"] / self.mass
        frame = rotation(s["base_quat_w"])
        thrust = self.mass * (force * frame[:, :, 2]).sum(-1)
        return thrust, self.turned(s["base_ang_vel_b"], astray(frame, force / force.norm(dim=-1, keepdim=True)))

    def turned(self, rate: Tensor, error: Tensor) -> Tensor:
        """Angular accelerations [N, 3] to command, for a ``rate`` [N, 3] and an ``error`` [N, 3] rad of attitude."""
        now = torch.where(self.before.isnan(), 0.0, rate - self.before) / self.dt
        self.before = rate.clone()
        p = torch.tensor([self.gains.turn, self.gains.turn, self.gains.yaw])
        return now + self.lag * (p**3 * error - 3 * p**2 * rate - 3 * p * now)


def astray(frame: Tensor, up: Tensor) -> Tensor:
    """Rotation vector [N, 3] rad, body frame, that turns body z to ``up`` [N, 3] and body x ahead, for the attitude
    ``frame`` [N, 3, 3]."""
    axis = torch.linalg.cross(frame[:, :, 2], up)
    sine, cosine = axis.norm(dim=-1, keepdim=True), (frame[:, :, 2] * up).sum(-1, keepdim=True)
    axis = axis * (torch.atan2(sine, cosine) / sine.clamp(min=1e-6))
    seen = (frame.transpose(-1, -2) @ axis[:, :, None])[:, :, 0]
    heading = torch.atan2(frame[:, 1, 0], frame[:, 0, 0])
    return torch.stack([seen[:, 0], seen[:, 1], -heading], -1)


def by_rates(task: Task, worlds: int, wanted: Wanted, gains: Gains) -> Controller:
    """The controller whose actions are thrust and rates: a rate that is ``a / rate_gain`` more than now makes ``a``."""
    act: Any = task.act
    cascade = Cascade(task, worlds, gains)
    inner = torch.tensor(task.robot.parameters["rate_gain"].nominal)

    def controller(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        thrust, acceleration = cascade(s, *wanted(s, pace))
        rates = s["base_ang_vel_b"] + acceleration / inner
        return act.inverse(torch.cat([thrust[:, None], rates], -1)).clamp(-1.0, 1.0)

    return controller


# ---------------------------------------------------------------- track


def track(task: Task, worlds: int) -> Controller:
    """On the reference, a little ahead of the clock."""
    observe: Any = task.observe
    gains, reference, h = Gains(fastest=3.0, hardest=7.0), observe.reference, 0.02

    def wanted(s: Mapping[str, Tensor], pace: Tensor) -> tuple[Tensor, Tensor]:
        time = s["mission_time"] + 0.06
        before, now, after = (reference(time + k * h) for k in (-1, 0, 1))
        velocity = (after - before) / (2 * h) + gains.place * (reference(s["mission_time"]) - s["base_pos_w"])
        return pace[:, None] * velocity, (after - 2 * now + before) / h**2

    return by_rates(task, worlds, wanted, gains)


# ---------------------------------------------------------------- waypoints

NEAR = 0.6  # of the distance at which a stage is done: so far inside, the controller flies on
ROOM = 0.25  # m kept from a pillar's surface
RING = 16  # places around each pillar that a way may lead over
DEAR = 20.0  # m of way that are worth less than passing a pillar by 1 m less than ROOM


def waypoints(task: Task, worlds: int) -> Controller:
    """From point to point of the formula's stages, around the pillars."""
    objective: Any = task.objective
    points, stage = objective.points, torch.zeros(worlds, dtype=torch.long)
    goals = len(objective.automaton.subgoals)
    pillars, gains = pillars_of(task), Gains()
    close = NEAR * float(task.constants.get("reach", 0.2))

    def wanted(s: Mapping[str, Tensor], pace: Tensor) -> tuple[Tensor, Tensor]:
        position = s["base_pos_w"]
        there = (points[stage] - position).norm(dim=-1) < close
        stage.copy_(torch.where(there & (stage < goals), stage + 1, stage).clamp(max=len(points) - 1))
        way, aim = points[stage] - position, next_place(position, points[stage], pillars) - position
        speed = torch.minimum(gains.place * way.norm(dim=-1, keepdim=True), gains.fastest * pace[:, None])
        return speed * aim / aim.norm(dim=-1, keepdim=True).clamp(min=1e-3), torch.zeros_like(way)

    return by_rates(task, worlds, wanted, gains)


def pillars_of(task: Task) -> Tensor:
    """x, y and radius [P, 3] m of the upright cylinders to avoid."""
    return torch.tensor([(*shape["center"][:2], shape["radius"]) for shape in task.shapes
                         if shape["type"] == "cylinder" and shape.get("role") == "avoid"]).reshape(-1, 3)


def next_place(position: Tensor, goal: Tensor, pillars: Tensor) -> Tensor:
    """Where to fly next [N, 3] on a short way from ``position`` to ``goal``, [N, 3] each, clear of the pillars: the
    goal itself, or a place beside a pillar (at the height of the way)."""
    if not len(pillars):
        return goal
    angle = torch.linspace(0.0, 2 * pi, RING + 1)[:-1]
    ring = pillars[:, None, :2] + (pillars[:, None, 2:] + 1.3 * ROOM) * torch.stack([angle.cos(), angle.sin()], -1)
    over = torch.cat([goal[:, None, :2], ring.reshape(1, -1, 2).expand(len(goal), -1, -1)], 1)
    here, there = position[:, None, :2].expand_as(over), goal[:, None, :2].expand_as(over)
    cost = cost_of(here, over, pillars) + cost_of(over, there, pillars)
    chosen = over[torch.arange(len(goal)), cost.argmin(-1)]
    share = (chosen - position[:, :2]).norm(dim=-1) / (goal[:, :2] - position[:, :2]).norm(dim=-1).clamp(min=1e-3)
    height = position[:, 2] + share.clamp(max=1.0) * (goal[:, 2] - position[:, 2])
    return torch.cat([chosen, height[:, None]], -1)


def cost_of(start: Tensor, end: Tensor, pillars: Tensor) -> Tensor:
    """Length of the straight ways [N, V] from ``start`` to ``end``, [N, V, 2] each, and what pillars that they pass too
    closely add."""
    way = end - start
    off = pillars[:, :2] - start[:, :, None]
    share = (off * way[:, :, None]).sum(-1) / way.square().sum(-1).clamp(min=1e-6)[:, :, None]
    gap = (off - share.clamp(0.0, 1.0)[..., None] * way[:, :, None]).norm(dim=-1) - pillars[:, 2]
    return way.norm(dim=-1) + DEAR * (ROOM - gap).clamp(min=0.0).sum(-1)


def slowed(velocity: Tensor, fastest: float) -> Tensor:
    """``velocity`` [N, 3] of at most ``fastest`` m/s."""
    return velocity * (fastest / velocity.norm(dim=-1, keepdim=True).clamp(min=fastest))


# ---------------------------------------------------------------- hover


def hover(task: Task, worlds: int) -> Controller:
    """The same cascade, down to the motors."""
    observe: Any = task.observe
    act: Any = task.act
    gains = Gains(place=2.2, speed=5.0, turn=20.0, fastest=1.0, hardest=9.0)
    cascade, motors = Cascade(task, worlds, gains), Motors(task.robot)

    def controller(s: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        velocity = pace[:, None] * slowed(gains.place * (observe.home - s["base_pos_w"]), gains.fastest)
        thrust, acceleration = cascade(s, velocity, torch.zeros_like(velocity))
        return act.inverse(motors(thrust, acceleration, s["torque_b"])).clamp(-1.0, 1.0)

    return controller


class Motors:
    """Rotor speeds [N, 4] in [0, 1] for a thrust [N] N and angular accelerations [N, 3] rad/s^2."""

    def __init__(self, robot: RobotSpec) -> None:
        p = {name: parameter.nominal for name, parameter in robot.parameters.items()}
        self.curve, self.inertia = p["thrust_curve"], torch.tensor(p["inertia"])
        rows = [np.ones(4), p["arm"][1] * np.array(ROTOR_SIGN_Y), -p["arm"][0] * np.array(ROTOR_SIGN_X),
                p["torque_per_thrust"][0] * np.array(ROTOR_SIGN_YAW)]
        self.shares = torch.tensor(np.linalg.inv(np.stack(rows)), dtype=torch.float32)

    def __call__(self, thrust: Tensor, acceleration: Tensor, disturbed: Tensor) -> Tensor:
        """Speeds. ``disturbed`` [N, 3] N m: the torque that acts besides."""
        torque = self.inertia * acceleration - disturbed
        wrench = torch.cat([thrust[:, None].clamp(min=0.0), torque], -1)
        forces = (self.shares @ wrench[:, :, None])[:, :, 0]
        c0, c1, c2 = self.curve
        return ((-c1 + (c1 * c1 + 4 * c2 * (forces - c0).clamp(min=0.0)).sqrt()) / (2 * c2)).clamp(0.0, 1.0)
