"""Logs of simulated flights whose parameters are known: what identification must find again.

Robots are drawn from the prior. The backend ``quadrotor`` flies them (float32, physics steps of 2 ms; a fit flies the
record's steps in float64) under a controller that tracks a curve in space, with small sines on every axis, while gusts
push and turn them and the battery empties. Sensors have white noise and a bias, and measure at the commands' rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from temporeal.robots import frames
from temporeal.robots.spec import RobotSpec
from temporeal.sim.backends.quadrotor import Quadrotor, make
from temporeal.sim.identification.parameters import (
    SIGN_X,
    SIGN_Y,
    SIGN_YAW,
    Quantity,
    by_name,
    quantities,
    simulator_parameters,
)
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

STEP_S, SUBSTEPS, DRAWN = 0.01, 5, 3
HOVER = (0.4, 0.75)
"""Commands within which a robot that is flown hovers; others are drawn anew."""
NOISE = {"rates": 0.02, "force": 0.1, "position": 0.001, "tilt": 0.002, "velocity": 0.01}
"""Standard deviations: rad/s, m/s^2, m, rad, m/s."""
GUST_S, GUST_ACCELERATION, GUST_TURN = 0.3, 0.15, 0.5
"""Correlation time; standard deviations, m/s^2 and rad/s^2 as the robot feels them."""
HIGH_M, LOWEST_M, LOST_M = 4.0, 0.5, 9.0
"""Where robots fly; and what is no flight any more."""
VOLTS = (4.1, 3.5)
"""Of the battery at the beginning and at the end."""


@dataclass(frozen=True)
class Flights:
    """asked: what is drawn. truth: [N, Q] of N robots. records: theirs."""

    asked: tuple[Quantity, ...]
    truth: Numbers
    records: tuple[FlightRecord, ...]


def drawn(asked: Sequence[Quantity], count: int, rng: np.random.Generator, reference_v: float) -> Numbers:
    """[N, Q] robots of the prior that can fly."""
    found, mean, sd = list[Numbers](), np.array([q.mean for q in asked]), np.array([q.sd for q in asked])
    while len(found) < count:
        theta = mean + sd * rng.standard_normal((1, len(asked)))
        q = by_name(asked, theta)
        lowest = float((hover(q) / (VOLTS[1] / reference_v) ** q["voltage_exponent"])[0])
        fits = all(q[f"drag_to_mass_{a}"][0] >= 0 for a in "xyz") and 0 <= q["delay"][0] < STEP_S
        slope = q["curve_linear"][0] + 2 * (1 - q["curve_linear"][0]) * hover(q)[0]
        if fits and HOVER[0] < lowest < HOVER[1] and hover(q)[0] > HOVER[0] and slope > 0.3:
            found.append(theta[0])
    return np.array(found)


def hover(q: Mapping[str, Numbers]) -> Numbers:
    """[P] rotor speed that carries the weight: the larger root of the thrust curve."""
    linear, share = q["curve_linear"], GRAVITY / q["thrust_to_mass"]
    return np.asarray((np.sqrt(linear**2 + 4 * (1 - linear) * share) - linear) / (2 * (1 - linear)))


def flights(robot: RobotSpec, count: int, seconds: float, seed: int, reference_v: float = 3.8) -> Flights:
    """Logs of ``count`` robots: of :data:`DRAWN` times as many, the first that stay in the air and near."""
    rng = np.random.default_rng(seed)
    asked = quantities(robot)
    truth = drawn(asked, DRAWN * count, rng, reference_v)
    records = flown(robot, asked, truth, seconds, rng, reference_v)
    good = [k for k, each in enumerate(records) if each.position is not None and each.position[:, 2].min() > LOWEST_M
            and np.abs(each.position).max() < LOST_M][:count]
    if len(good) < count:
        raise ValueError(f"{len(good)} of {DRAWN * count} robots fly to the end; {count} are needed")
    return Flights(asked, truth[good], tuple(records[k] for k in good))


def flown(robot: RobotSpec, asked: Sequence[Quantity], truth: Numbers, seconds: float, rng: np.random.Generator,
          reference_v: float) -> list[FlightRecord]:
    """The logs of robots ``truth`` [N, Q], however they end."""
    count = len(truth)
    values = simulator_parameters(asked, truth)
    backend = make(robot, count, "motor_cmd", dt=STEP_S / SUBSTEPS, threads=1)
    every = torch.arange(count)
    given = {name: torch.from_numpy(each.squeeze(-1) if each.shape[1] == 1 else each).float()
             for name, each in values.items()}
    backend.set_params(every, given)
    pilot = Pilot(by_name(asked, truth), values["motor_gain"], rng)
    volts = np.linspace(*VOLTS, int(seconds / STEP_S))
    factors = (volts[:, None] / reference_v) ** by_name(asked, truth)["voltage_exponent"]
    start = torch.from_numpy(np.repeat(hover(pilot.q)[:, None], 4, 1)).float()
    backend.reset(every, {"rotor_speed": start, "base_pos_w": torch.tensor([[0.0, 0.0, HIGH_M]]).expand(count, 3)})
    log = {name: list[Numbers]() for name in ("command", "pos", "quat", "vel", "rates", "force")}
    gust = Gust(values, count, rng)
    for step, factor in enumerate(factors):
        gust.blow(backend, every)
        seen = {name: each.double().numpy() for name, each in backend.signals().items()}
        command = pilot.command(step * STEP_S, seen, factor)
        for name, signal in (("pos", "base_pos_w"), ("quat", "base_quat_w"), ("vel", "base_vel_w"),
                             ("rates", "base_ang_vel_b")):
            log[name].append(seen[signal].copy())
        log["force"].append(felt(seen, values, gust.force))
        log["command"].append(command)
        backend.step(torch.from_numpy(command * factor[:, None]).float().clamp(0, 1), SUBSTEPS)
    backend.close()
    all_logs = {name: np.array(each) for name, each in log.items()}
    return [measured({name: each[:, k] for name, each in all_logs.items()}, {name: float(each[k]) for name, each
                     in pilot.q.items()}, volts, f"simulated {k}", rng) for k in range(count)]


def felt(seen: Mapping[str, Numbers], values: Mapping[str, Numbers], push: Numbers) -> Numbers:
    """[N, 3] m/s^2 specific force along body axes: thrust, drag and the gust's ``push`` [N, 3] N (world)."""
    speed, c = seen["rotor_speed"], values["thrust_curve"]
    thrust = (values["motor_gain"] * (c[:, :1] + speed * (c[:, 1:2] + speed * c[:, 2:]))).sum(1)
    quat = seen["base_quat_w"]
    out = frames.rotate_inverse(quat, push) - values["drag"] * frames.rotate_inverse(quat, seen["base_vel_w"])
    out[:, 2] += thrust
    return np.asarray(out / values["mass"])


def measured(true: Mapping[str, Numbers], q: Mapping[str, float], volts: Numbers, name: str, rng: np.random.Generator
             ) -> FlightRecord:
    """What sensors say of a flight's signals [T, ...]."""
    count = len(volts)

    def noisy(values: Numbers, size: float) -> Numbers:
        return np.asarray(values + size * rng.standard_normal(values.shape))

    bias = {sensor: np.array([q[f"{sensor}_bias_{a}"] for a in "xyz"]) for sensor in ("gyro", "accelerometer")}
    turn = frames.from_rotation_vector(NOISE["tilt"] * rng.standard_normal((count, 3)))
    return FlightRecord(
        name, "", STEP_S, true["command"], noisy(volts, 0.005), noisy(true["rates"] + bias["gyro"], NOISE["rates"]),
        noisy(true["force"] + bias["accelerometer"], NOISE["force"]), np.ones(count, bool),
        frames.multiply(true["quat"], turn), noisy(true["vel"], NOISE["velocity"]),
        noisy(true["pos"], NOISE["position"]))


class Gust:
    """Forces and torques that come and go (Ornstein-Uhlenbeck)."""

    def __init__(self, values: Mapping[str, Numbers], count: int, rng: np.random.Generator) -> None:
        self.size_f, self.size_t = GUST_ACCELERATION * values["mass"], GUST_TURN * values["inertia"]
        self.rng, self.state = rng, rng.standard_normal((count, 6))
        self.force = self.size_f * self.state[:, :3]

    def blow(self, backend: Quadrotor, every: torch.Tensor) -> None:
        """Push for the next step."""
        keep = np.exp(-STEP_S / GUST_S)
        self.state = keep * self.state + np.sqrt(1 - keep**2) * self.rng.standard_normal(self.state.shape)
        self.force = self.size_f * self.state[:, :3]
        backend.set_params(every, {"force_w": torch.from_numpy(self.force).float(),
                                   "torque_b": torch.from_numpy(self.size_t * self.state[:, 3:]).float()})


class Pilot:
    """A cascaded controller for each of N robots, tuned to it, along a curve, with sines on every axis."""

    def __init__(self, q: Mapping[str, Numbers], gains: Numbers, rng: np.random.Generator) -> None:
        self.q, count = q, len(q["mass"])
        self.speed = hover(q)
        slope = q["curve_linear"] + 2 * (1 - q["curve_linear"]) * self.speed
        self.per_turn = 1 / (4 * slope[:, None] * np.stack([q[f"torque_to_inertia_{a}"] for a in "xyz"], 1))
        self.trim = (1 - gains) * (GRAVITY / q["thrust_to_mass"] / slope)[:, None]
        self.per_lift = 1 / (slope * q["thrust_to_mass"])
        self.phase, self.curve = (rng.uniform(0, 2 * np.pi, (count, *size)) for size in ((4, 3), (3,)))
        self.rate = rng.uniform([0.7, 2.0, 4.0], [1.5, 3.5, 6.0], (count, 4, 3))  # Hz
        self.sum = np.zeros((count, 3))

    def command(self, time: float, seen: Mapping[str, Numbers], factor: Numbers) -> Numbers:
        """[N, 4] the next commands, at rotor speeds of ``factor`` [N] times them."""
        rate, grown = 2 * np.pi * np.array([0.25, 0.3, 0.2]), min(time / 3.0, 1.0)
        at = 0.8 * grown * np.sin(rate * time + self.curve) * [1, 1, 0.6] + [0, 0, HIGH_M]
        quat, omega = seen["base_quat_w"], seen["base_ang_vel_b"]
        wanted = np.clip(1.5 * (at - seen["base_pos_w"]) - 1.6 * seen["base_vel_w"], -5, 5) + [0, 0, GRAVITY]
        body = frames.rotate_inverse(quat, wanted)
        tilt = body / np.linalg.norm(body, axis=1, keepdims=True)
        sines = np.sin(2 * np.pi * self.rate * time + self.phase).sum(-1)  # [N, 4]
        heading = 2 * quat[:, 3] * np.sign(quat[:, 0])
        error = np.stack([-2.5 * tilt[:, 1], 2.5 * tilt[:, 0], -heading], 1) - omega
        self.sum = np.clip(self.sum + 5 * error * STEP_S, -30, 30)
        turn = ([7, 7, 4] * error + self.sum + [6, 6, 2] * sines[:, :3]) * self.per_turn
        lift = self.speed + self.per_lift * (np.clip(body[:, 2], 3, 20) - GRAVITY + 0.8 * sines[:, 3])
        speed = lift[:, None] + self.trim + (turn[:, :1] * SIGN_Y - turn[:, 1:2] * SIGN_X + turn[:, 2:] * SIGN_YAW)
        return np.asarray(np.clip(speed / factor[:, None], 0.05, 1.0))
