"""What an excitation of a quadrotor will tell ``temporeal identify``: its own parameters, stretches and simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.excitation.information import Asked, Information, gathered, whitening
from temporeal.sim.identification.excitation.waves import Numbers
from temporeal.sim.identification.parameters import SIDE_90, Quantity, quantities
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.residuals import ACCELEROMETER, Problem, problem_of, residuals
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

STRETCH_S, REFERENCE_V = 0.25, 3.8
NUDGE = 0.01
"""Of a prior's standard deviation: for differences."""
SENSORS = {"gyro": 0.02, "accelerometer": 0.2, "velocity": 0.02, "attitude": 0.005}
"""Standard deviations that are assumed, SI: those of the simulated Crazyflie (its ``ros.yaml``); of the accelerometer
what propellers leave in one (0.13 to 0.17 m/s^2 in NanoBench's flights)."""
BLOCK = 8
"""Stretches whose residuals are held at once."""


def information(robot: RobotSpec, record: FlightRecord, seconds: float, *, fast: bool = True,
                flown: Mapping[str, float] | None = None) -> Information:
    """Of a flight. ``seconds``: of the whole excitation, with what is not used of it. ``fast``: commands are in the
    record as fast as they were made. ``flown``: values of parameters that are no robot's, with which it was simulated.
    """
    asked = quantities(robot, fast, record.voltage is not None)
    problem = problem_of(asked, [record], STRETCH_S, REFERENCE_V)
    theta = nominal(robot, asked, flown or {})
    _, prior = problem.prior
    step = NUDGE * prior
    around = np.concatenate([theta + np.diag(step), theta - np.diag(step)])
    whiten, each = [whitening(problem.times, terms(name)) for name in problem.channels], []
    for first in range(0, len(problem.begins[0]), BLOCK):
        part = Problem(problem.asked, problem.records, problem.length, (problem.begins[0][first : first + BLOCK],),
                       problem.reference_v)
        found = residuals(within(part), around)
        slope = (found[: len(theta)] - found[len(theta) :]) / (2 * step)[:, None, None, None]
        each.append(gathered(slope, whiten))
    ends = np.asarray((problem.begins[0] + problem.length) * record.step, dtype=np.float64)
    return Information(tuple(stated(one, value) for one, value in zip(asked, theta)), np.concatenate(each), ends,
                       seconds)


WARM_S = 1.0
"""Of commands that are flown before a block's first stretch, so that the rotors turn as they did."""


OVER_TIME = ("command", "voltage", "rates", "force", "usable", "quat", "velocity", "position")


class Cut(FlightRecord):
    """A part of a flight, of which ``begin`` may lie before the part's own samples, so be negative."""

    @property
    def first(self) -> int:
        """Sample at which the whole flight began, since when its battery has been emptying."""
        return self.begin


def within(problem: Problem) -> Problem:
    """The same stretches of a record that ends and begins with them: the simulator flies a whole record. The battery's
    loss goes on from the flight's own begin."""
    record, begin = problem.records[0], problem.begins[0]
    first = max(0, int(begin[0] - WARM_S / record.step))
    some = slice(first, int(begin[-1]) + problem.length + 1)
    whole = {each.name: getattr(record, each.name) for each in fields(record)}
    cut = {name: None if whole[name] is None else whole[name][some] for name in OVER_TIME}
    short = Cut(**{**whole, **cut, "begin": record.first - first})
    return Problem(problem.asked, (short,), problem.length, (begin - first,), problem.reference_v)


def terms(channel: str) -> tuple[float, float, float]:
    """white, start and ramp of a channel's noise (:func:`whitening`)."""
    sensor = channel.rpartition("_")[0]
    white = SENSORS[sensor]
    if channel in ACCELEROMETER:
        return white, 0.0, 0.0
    ramp = {"gyro": 0.0, "velocity": GRAVITY * SENSORS["attitude"], "attitude": SENSORS["gyro"]}[sensor]
    return white, white, ramp


def stated(one: Quantity, value: float) -> Asked:
    """A quantity of identification as the report has it."""
    return Asked(one.name, one.unit, float(one.value(value)), one.log, one.sd, 1.0 if one.log else 2 * SIDE_90 * one.sd)


def nominal(robot: RobotSpec, asked: tuple[Quantity, ...], flown: Mapping[str, float]) -> Numbers:
    """[Q] of the spec's nominal robot; where the spec has no such parameter as ``flown``, else the prior's middle."""
    p = {name: parameter.nominal for name, parameter in robot.parameters.items()}
    full, mass = sum(p["thrust_curve"]), p["mass"][0]
    levers = (p["arm"][1], p["arm"][0], p["torque_per_thrust"][0])
    known = {"mass": mass, "arm": p["arm"][0], "torque_per_thrust": levers[2], "thrust_to_mass": 4 * full / mass,
             "curve_linear": p["thrust_curve"][1] / full, "tau_up": p["tau_up"][0], "tau_down": p["tau_down"][0],
             **{f"torque_to_inertia_{a}": full * levers[k] / p["inertia"][k] for k, a in enumerate("xyz")},
             **{f"drag_to_mass_{a}": p["drag"][k] / mass for k, a in enumerate("xyz")}, **flown}
    return np.array([one.mean if one.name not in known else np.log(known[one.name]) if one.log else known[one.name]
                     for one in asked])
