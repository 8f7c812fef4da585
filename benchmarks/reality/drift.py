"""Is a change of the machine noticed in flight? Simulated quadrotors that lose thrust or gain mass in mid-air.

Batches of quadrotors, each drawn from the default randomization (mass, lags, drag, gains, delays, disturbing force)
with its sensors' noise, bias and delay, hover or fly from point to point. The monitor's detector gets commands and
noisy states as on the robot. An hour of nominal flight is flown to count false alarms; then thrust falls to 85 % or
mass grows by 20 % in mid-flight, and what matters is when that is said. The controller is by hand: no policy was
trained for these flights. Gusts (vertical wind, 0.5 m/s, which no training had) are flown besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.policies.export.drift import drawn_drift
from temporeal.policies.runs.settings.compose import compose
from temporeal.robots import frames
from temporeal.robots.artifact.additions import DriftSpec
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.backends.quadrotor import Quadrotor, make
from temporeal.sim.randomization.distributions import draw_parameters, parse_randomization
from temporeal_benchmarks.rows import Row, at_least, at_most
from temporeal_bridge.monitor.drift.detector import Detector, Drift
from temporeal_bridge.monitor.drift.gate import CLEAR_M, flown, settling_s
from temporeal_bridge.monitor.drift.thrust import GRAVITY, PredictedThrust
from temporeal_bridge.monitor.drift.watch import up

DT, SUBSTEPS, SECONDS = 0.02, 4, 30.0  # of a control step; of a flight
WORLDS, SEEDS = 120, (1, 2, 3)  # 120 flights of half a minute are an hour
GUST_M_S, GUST_S = 0.5, 1.0  # vertical wind, an Ornstein-Uhlenbeck process
WITHIN_S = 2.0
FLIGHTS = ("hover", "waypoints")
FAULTS: Mapping[str, tuple[str, float]] = {"thrust-15": ("motor_gain", 0.85), "mass+20": ("mass", 1.2)}


@dataclass(frozen=True)
class Outcome:
    """What a batch gave: the changes' times [N] s (inf: none), every alarm as (world, what), and the least height [N] m
    in the two seconds after the change."""

    changed: np.ndarray
    alarms: list[tuple[int, Drift]]
    lowest: np.ndarray

    def first(self) -> np.ndarray:
        """Delay [N] s from the change to the first alarm after it; inf: none."""
        out = np.full(len(self.changed), np.inf)
        for world, found in self.alarms:
            if found.at > self.changed[world]:
                out[world] = min(out[world], found.at - self.changed[world])
        return out

    def false(self) -> int:
        """Flights with an alarm before any change."""
        return len({world for world, found in self.alarms if found.at <= self.changed[world]})


@dataclass(frozen=True)
class Training:
    """What the robots are drawn from, and what the artifact says of that."""

    robot: RobotSpec
    randomize: Mapping[str, object]
    sensors: Mapping[str, object]
    spec: DriftSpec


def training() -> Training:
    """The default randomization of quadrotors, and the drift that an artifact trained with it carries."""
    robot, settings = load_robot("crazyflie"), compose(["task=waypoints"])["randomize"]
    drawn = draws(robot, settings["parameters"], 0, 4000)
    many = {name: each.double().numpy() for name, each in drawn.items()}
    late, noise = settings["sensors"]["delay_steps"] * DT, settings["sensors"]["noise"]["base_vel_w"]
    return Training(robot, settings["parameters"], settings["sensors"],
                    drawn_drift(robot, many, late, noise))


def draws(robot: RobotSpec, randomize: Mapping[str, object], seed: int, count: int) -> dict[str, torch.Tensor]:
    """Parameters of ``count`` robots."""
    known = make(robot, 1, "ctbr_cmd", dt=DT / SUBSTEPS).parameters
    ids = torch.arange(count)
    return draw_parameters(known, parse_randomization(randomize, known), seed, ids, torch.zeros_like(ids))


class Pilot:
    """A cascaded controller for ``count`` robots: thrust and body rates [N, 4] from what is measured."""

    def __init__(self, flight: str, count: int, mass: float, rng: np.random.Generator) -> None:
        self.flight, self.mass, self.rng = flight, mass, rng
        self.goal = np.tile([0.0, 0.0, 1.0], (count, 1))
        self.sum = np.zeros(count)

    def command(self, step: int, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        """The next command."""
        if self.flight == "waypoints" and step % 150 == 0:  # a leg of up to 2.6 m every 3 s
            self.goal = self.rng.uniform([-0.9, -0.9, 0.6], [0.9, 0.9, 1.6], self.goal.shape)
        error = np.clip(self.goal - seen["base_pos_w"], -0.6, 0.6)
        self.sum = np.clip(self.sum + 4.0 * error[:, 2] * DT, -4.0, 4.0)
        wanted = error * [2.5, 2.5, 6.0] - seen["base_vel_w"] * [2.2, 2.2, 4.0]
        wanted[:, 2] += GRAVITY + self.sum
        quat = seen["base_quat_w"]
        body = frames.rotate_inverse(quat, wanted)
        tilt = body / np.linalg.norm(body, axis=-1, keepdims=True)
        thrust = np.clip(self.mass * body[:, 2], 0.0, 0.4395)
        return np.stack([thrust, -5 * tilt[:, 1], 5 * tilt[:, 0], -2.0 * quat[:, 0] * quat[:, 3]], -1)


class Sensors:
    """Noise, bias and delay as the training has them."""

    def __init__(self, config: Mapping[str, Any], count: int, rng: np.random.Generator) -> None:
        self.noise, self.rng = dict(config["noise"]), rng
        self.tilt = rng.normal(0.0, dict(config["bias"])["base_quat_w"], (count, 3))
        self.late = rng.integers(0, int(config["delay_steps"]) + 1, count) > 0
        self.before: dict[str, np.ndarray] = {}

    def seen(self, true: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What is measured of the ``true`` state."""
        out = {}
        for name in ("base_pos_w", "base_vel_w"):
            out[name] = true[name] + self.rng.normal(0.0, self.noise[name], true[name].shape)
        angle = self.tilt + self.rng.normal(0.0, self.noise["base_quat_w"], self.tilt.shape)
        out["base_quat_w"] = turned(true["base_quat_w"], angle)
        told = {name: np.where(self.late[:, None], self.before.get(name, value), value) for name, value in out.items()}
        self.before = out
        return told


def turned(quat: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Attitudes [N, 4] turned by small rotations [N, 3] of the body, rad."""
    w, v = quat[:, :1], quat[:, 1:]
    half = angle / 2
    made = np.concatenate([w - np.sum(v * half, -1, keepdims=True), v + w * half + np.cross(v, half)], -1)
    return np.asarray(made / np.linalg.norm(made, axis=-1, keepdims=True))


def fly(trained: Training, flight: str, fault: str, seed: int, worlds: int, gusts: bool = False) -> Outcome:
    """Half a minute of ``worlds`` robots; ``fault``: what changes in mid-flight ("": nothing)."""
    rng = np.random.default_rng([seed, len(flight), len(fault)])
    backend = make(trained.robot, worlds, "ctbr_cmd", dt=DT / SUBSTEPS, threads=1)
    ids, drawn = torch.arange(worlds), draws(trained.robot, trained.randomize, seed, worlds)
    backend.set_params(ids, drawn)
    backend.reset(ids, {})
    changed = np.round(rng.uniform(8.0, 20.0, worlds) / DT) * DT if fault else np.full(worlds, np.inf)
    pilot, sensors = Pilot(flight, worlds, trained.spec.mass, rng), Sensors(trained.sensors, worlds, rng)
    thrust, detector = PredictedThrust(trained.spec, "ctbr_cmd", worlds), Detector(trained.spec, worlds)
    begin, alarms, wind = settling_s(trained.spec), list[tuple[int, Drift]](), np.zeros(worlds)
    before, lowest = sensors.seen(state(backend)), np.full(worlds, np.inf)
    for step in range(round(SECONDS / DT)):
        time = step * DT
        if gusts:
            keep = np.exp(-DT / GUST_S)
            wind = keep * wind + GUST_M_S * np.sqrt(1 - keep * keep) * rng.normal(size=worlds)
            backend.set_params(ids, {"wind_w": torch.tensor(np.outer(wind, [0.0, 0.0, 1.0]), dtype=torch.float32)})
        change(backend, drawn, fault, np.flatnonzero(np.abs(changed - time) < DT / 2))
        command = pilot.command(step, before)
        thrust.tell(time, command)
        backend.step(torch.tensor(command, dtype=torch.float32), SUBSTEPS)
        seen, force = sensors.seen(state(backend)), thrust.advance(time + DT)
        usable = flown(seen["base_pos_w"][:, 2], force, DT) & (time >= begin)
        alarms += detector.take(time + DT, DT, force, (before["base_vel_w"], seen["base_vel_w"]),
                                (up(before["base_quat_w"]), up(seen["base_quat_w"])), usable)
        before, watched = seen, (time >= changed) & (time <= changed + WITHIN_S)
        lowest = np.where(watched, np.minimum(lowest, seen["base_pos_w"][:, 2]), lowest)
    return Outcome(changed, alarms, lowest)


def state(backend: Quadrotor) -> dict[str, np.ndarray]:
    """The true state, [N, ...] float64."""
    return {name: each.double().numpy() for name, each in backend.signals().items()}


def change(backend: Quadrotor, drawn: Mapping[str, torch.Tensor], fault: str, which: np.ndarray) -> None:
    """Let ``fault`` happen to the worlds ``which``."""
    if fault and len(which):
        (name, factor), ids = FAULTS[fault], torch.from_numpy(which)
        backend.set_params(ids, {name: factor * drawn[name][ids]})


def rows(quick: bool, out: Path) -> list[Row]:
    """False alarms in an hour, and delays."""
    trained, worlds, seeds = training(), 12 if quick else WORLDS, SEEDS[:1] if quick else SEEDS
    found = list[Row]()
    for flight in FLIGHTS:
        for gusts in (False, True):
            nominal_flights = [fly(trained, flight, "", seed, worlds, gusts) for seed in seeds]
            worst = max(each.false() for each in nominal_flights)
            hours = worlds * SECONDS / 3600
            name = f"reality.drift.{flight}.false_alarms" + (".gusts" if gusts else "")
            what = f"in {hours:.2g} h of {worlds} robots, the most of {len(seeds)} seeds"
            found.append(Row(name, worst, "1", peer=f"{what}; gusts that no training had") if gusts else
                         at_most(name, worst, "1", 1, what))
        for fault in FAULTS:
            found += judged(flight, fault, [fly(trained, flight, fault, seed, worlds) for seed in seeds])
    return found


def judged(flight: str, fault: str, outcomes: list[Outcome]) -> list[Row]:
    """Delays of one fault."""
    delay, lowest = (np.concatenate(each) for each in zip(*((each.first(), each.lowest) for each in outcomes)))
    grounded = lowest < CLEAR_M  # too weak to fly on: near the ground nothing is said
    name, of = f"reality.drift.{flight}.{fault}", f"of {len(delay)} flights"
    truth = FAULTS[fault][1] if fault == "thrust-15" else 1 / FAULTS[fault][1]
    told = [drift for each in outcomes for world, drift in each.alarms
            if drift.kind == "change" and drift.at > each.changed[world]]
    inside = float(np.mean([each.low <= truth <= each.high for each in told])) if told else 0.0
    return [at_least(f"{name}.within_2_s", float(np.mean(delay <= WITHIN_S)), "1", 0.95, of),
            Row(f"{name}.within_2_s.airborne", float(np.mean(delay[~grounded] <= WITHIN_S)), "1",
                peer=f"of {int(np.sum(~grounded))} that did not come to the ground within 2 s"),
            Row(f"{name}.grounded", float(np.sum(grounded)), "1", peer=of),
            Row(f"{name}.grounded.missed", float(np.sum(grounded & (delay > WITHIN_S))), "1", peer="not within 2 s"),
            Row(f"{name}.delay.median", float(np.median(delay)), "s", peer=of),
            Row(f"{name}.delay.95", float(np.quantile(delay, 0.95, method="higher")), "s", peer=of),
            Row(f"{name}.missed", float(np.sum(np.isinf(delay))), "1", peer=of),
            Row(f"{name}.interval", inside, "1", peer=f"share of {len(told)} intervals of 90 % that hold the truth")]
