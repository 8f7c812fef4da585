"""A robot that nobody may look at: drawn from the published ranges, logged once, flown by policies that never saw it.

Every parameter is uniform over the range that the Crazyflie's spec has from published sources (mass, inertia, arm,
torque per thrust, lags, drag, full thrust, gains of the inner rate loop); a battery's exponent from 0 to 1, a delay of
commands from 0 to 10 ms, biases of the sensors from their priors. Drawn anew are robots that nobody flies: that need
more than 0.9 of the rotors' speed to hover at the emptiest battery of a mission, or whose log ``temporeal log inspect``
calls wrong (the first of seed 3, whose rotors need 0.2 s to slow down, sways by 30 degrees). The seed is the date on
which this was written, and the trial's: it was chosen before any result, and there is one robot for each seed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.flight_logs import inspection, nanobench
from temporeal.policies.data.flight_logs.flight_log import FULL_PWM
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.identification.parameters import Quantity, by_name, quantities
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.synthetic import flown, hover
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

DATE, REFERENCE_V = 20261130, 3.8
SECONDS = 25.0  # of the log
MISSION_V = (3.6, 4.1)  # of the battery in missions: they last 9 s
MOST_HOVER = 0.9
LATEST_S = 0.01  # of a log at 100 Hz, whose commands are within one of its steps
HEAVIER, OTHERS, LATER_S = 1.05, 0.1, 0.005
"""In missions: a robot is up to so much heavier than in its log; lags, drag and inertia are off by up to so much; its
commands up to so much later."""


@dataclass(frozen=True)
class Hidden:
    """asked, theta: [Q] as identification fits it. rate_gain: [3] 1/s, which no log of motors shows."""

    asked: tuple[Quantity, ...]
    theta: Numbers
    rate_gain: Numbers

    @property
    def truth(self) -> dict[str, float]:
        """By name, in the quantities' units."""
        return {name: float(value[0]) for name, value in by_name(self.asked, self.theta[None]).items()}


@cache
def hidden(seed: int) -> Hidden:
    """The robot of a seed."""
    rng = np.random.default_rng([DATE, seed])
    with tempfile.TemporaryDirectory() as folder:
        while True:
            robot, flight = candidate(rng), Path(folder) / "flight.csv"
            log(robot, flight, seed)
            if not inspected(flight).of("wrong"):
                return robot


def inspected(flight: Path) -> inspection.Inspection:
    """What ``temporeal log inspect`` says of a log."""
    return inspection.inspect(nanobench.read_log(flight), load_robot("crazyflie"))


def candidate(rng: np.random.Generator) -> Hidden:
    """A robot that hovers on a mission."""
    robot = load_robot("crazyflie")
    asked = quantities(robot)
    while True:
        q, gain = drawn(robot, rng)
        q |= {each.name: rng.normal(each.mean, each.sd) for each in asked if "_bias_" in each.name}
        theta = np.array([np.log(q[each.name]) if each.log else q[each.name] for each in asked])
        lowest = hover(by_name(asked, theta[None]))[0] / (MISSION_V[0] / REFERENCE_V) ** q["voltage_exponent"]
        if lowest < MOST_HOVER:
            return Hidden(asked, theta, gain)


def drawn(robot: RobotSpec, rng: np.random.Generator) -> tuple[dict[str, float], Numbers]:
    """Quantities by name, and the gains of the rate loop, uniform over the spec's ranges."""
    def one(name: str, shared: bool = True) -> Numbers:
        p = robot.parameters[name]
        low, high = np.array(p.low), np.array(p.high)
        return np.asarray(low + (high - low) * rng.random(1 if shared else len(low)))

    mass, arm, reaction = (float(one(name)[0]) for name in ("mass", "arm", "torque_per_thrust"))
    curve = np.array(robot.parameters["thrust_curve"].nominal)
    full = float(one("motor_gain")[0] * curve.sum())
    levers = np.array([arm, arm, reaction])
    turn, drag = levers * full / one("inertia"), one("drag", shared=False) / mass
    q = {"mass": mass, "arm": arm, "torque_per_thrust": reaction, "thrust_to_mass": 4 * full / mass,
         "curve_linear": float(curve[1] / curve.sum()), "tau_up": float(one("tau_up")[0]),
         "tau_down": float(one("tau_down")[0]), "voltage_exponent": float(rng.random()),
         "delay": LATEST_S * float(rng.random()), "centre_x": 0.0, "centre_y": 0.0, "gain_roll": 0.0,
         "gain_pitch": 0.0, "gain_yaw": 0.0}
    q |= {f"torque_to_inertia_{a}": float(turn[k]) for k, a in enumerate("xyz")}
    q |= {f"drag_to_mass_{a}": float(drag[k]) for k, a in enumerate("xyz")}
    return q, one("rate_gain")


def log(robot: Hidden, path: Path, seed: int) -> None:
    """Fly it for :data:`SECONDS` with sines on every axis (``sim/identification/synthetic.py``: a pilot who is tuned to
    the robot's true parameters, gusts, an emptying battery, noise), and write what its sensors said as NanoBench's CSV,
    at 100 Hz."""
    rng = np.random.default_rng([DATE, seed, 1])
    record = flown(load_robot("crazyflie"), robot.asked, robot.theta[None], SECONDS, rng, REFERENCE_V)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = columns_of(record)
    table = np.stack(list(columns.values()), 1)
    np.savetxt(path, table, fmt="%.7g", delimiter=",", header=",".join(columns), comments="")


def columns_of(record: FlightRecord) -> dict[str, Numbers]:
    """Columns by name, in the file's units."""
    assert record.position is not None and record.quat is not None and record.velocity is not None
    assert record.force is not None and record.voltage is not None
    groups: Mapping[str, tuple[tuple[str, ...], Any]] = {
        "position": (("px", "py", "pz"), record.position), "attitude": (("qw", "qx", "qy", "qz"), record.quat),
        "velocity": (("vx", "vy", "vz"), record.velocity),
        "imu_acc": (tuple(f"imu_acc_{a}" for a in "xyz"), record.force / GRAVITY),
        "imu_gyro": (tuple(f"imu_gyro_{a}" for a in "xyz"), record.rates),
        "motors": (tuple(f"motor_motor_m{k}" for k in (1, 2, 3, 4)), np.round(FULL_PWM * record.command))}
    times = record.step * np.arange(len(record.command))
    return {"t": times, **{name: values[:, k] for names, values in groups.values() for k, name in enumerate(names)},
            "pwr_pm_vbat": record.voltage}


def missions(robot: Hidden) -> dict[str, Any]:
    """``randomize.parameters`` of the robot on its missions: about its truth, as :data:`HEAVIER` and others say."""
    q = robot.truth
    full, mass = q["mass"] * q["thrust_to_mass"] / 4, q["mass"]
    levers = [q["arm"], q["arm"], q["torque_per_thrust"]]
    inertia = [lever * full / q[f"torque_to_inertia_{a}"] for a, lever in zip("xyz", levers)]
    gain = [(volts / REFERENCE_V) ** (2 * q["voltage_exponent"]) for volts in MISSION_V]

    def about(values: list[float]) -> dict[str, Any]:
        return {"kind": "uniform", "low": [(1 - OTHERS) * each for each in values],
                "high": [(1 + OTHERS) * each for each in values]}

    return {
        "mass": {"kind": "uniform", "low": mass, "high": HEAVIER * mass}, "inertia": {**about(inertia), "shared": True},
        "arm": {"kind": "constant", "value": q["arm"]},
        "torque_per_thrust": {"kind": "constant", "value": q["torque_per_thrust"]},
        "thrust_curve": {"kind": "constant", "value": [0.0, full * q["curve_linear"], full * (1 - q["curve_linear"])]},
        "motor_gain": {"kind": "uniform", "low": gain[0], "high": gain[1], "shared": True},
        "tau_up": about([q["tau_up"]]), "tau_down": about([q["tau_down"]]),
        "drag": about([q[f"drag_to_mass_{a}"] * mass for a in "xyz"]),
        "command_delay": {"kind": "uniform", "low": q["delay"], "high": q["delay"] + LATER_S},
        "rate_gain": {"kind": "constant", "value": robot.rate_gain.tolist()}}
