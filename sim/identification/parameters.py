"""What of a quadrotor is identified, from what prior, and which parameters of the simulator it makes.

A log of motion without scales cannot tell a heavy robot with strong motors from a light one with weak motors: only
ratios act. So the vector holds what acts (thrust per mass, torque per inertia, drag per mass) and, apart, what only
fixes the scale (mass, arm, torque per thrust), for which the log has nothing to say and whose prior stays. What the
simulator takes (mass, inertia, thrust curve ...) is computed of both, so that a posterior over this vector is a
correlated one over the simulator's parameters.

Priors are of the robot's spec: its range over published sources is the central 90 % of a normal distribution, of the
logarithm where a parameter is positive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.registry import UnknownName, guess
from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.shooting import Flown
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import identified
from temporeal.sim.physics.quadrotor.layout import PARAMETERS, RECIPROCAL

SIDE_90 = 1.6448536269514722
"""Standard deviations from the middle of a normal distribution to the ends of its central 90 %."""
NEEDED = ("mass", "inertia", "thrust_curve", "torque_per_thrust", "tau_up", "tau_down", "arm", "drag", "motor_gain")
"""Parameters that a robot's spec must have."""
SIGN_X, SIGN_Y, SIGN_YAW = identified.SIGN_X, identified.SIGN_Y, identified.SIGN_YAW
SCALES = ("mass", "arm", "torque_per_thrust")
"""What motion alone cannot tell: it only fixes the scale of others."""


@dataclass(frozen=True)
class Quantity:
    """One parameter that is identified.

    Args:
        log: its logarithm is what is fitted. mean, sd: the prior's, of the logarithm where there is one.
        meaning: in words. given: by the user, with its uncertainty, rather than by the spec.
    """

    name: str
    unit: str
    mean: float
    sd: float
    meaning: str
    log: bool = False
    given: bool = False

    def value(self, x: Numbers | float) -> Numbers:
        """In its unit."""
        return np.asarray(np.exp(x) if self.log else x, dtype=float)

    def interval(self, mean: float, sd: float, sides: float = SIDE_90) -> tuple[float, float]:
        """In its unit, ``sides`` standard deviations to each side."""
        return float(self.value(mean - sides * sd)), float(self.value(mean + sides * sd))


def between(name: str, unit: str, low: float, high: float, meaning: str) -> Quantity:
    """One whose central 90 % are ``low`` to ``high``."""
    return Quantity(name, unit, 0.5 * (low + high), 0.5 * (high - low) / SIDE_90, meaning)


def ratio(name: str, unit: str, low: float, high: float, meaning: str) -> Quantity:
    """A positive one whose central 90 % are ``low`` to ``high``."""
    return replace(between(name, unit, np.log(low), np.log(high), meaning), log=True)


def check_robot(robot: RobotSpec) -> None:
    """Refuse a robot that is no quadrotor, or whose spec says too little."""
    if robot.kind != "quadrotor":
        raise ValueError(f"robot {robot.name!r} is of kind {robot.kind!r}: identification is for quadrotors so far")
    if missing := [name for name in NEEDED if name not in robot.parameters]:
        raise ValueError(f"robot {robot.name!r}: its spec lacks {', '.join(missing)}, of which priors are made")


def quantities(robot: RobotSpec, fast: bool = True, voltage: bool = True) -> tuple[Quantity, ...]:
    """All that is identified, with the priors of the robot's spec.

    Args:
        fast: commands were logged as fast as the robot's attitude loop makes them. Of slower ones each sample stands
            for several that differ (the loop answers the gyro's noise), so that what motors differ in is in part not
            what acted: an error in the input, which takes from a gain (errors in variables; Soederstrom, Automatica
            43(6), 2007). A share of its own then stands beside torque to inertia, and a log cannot tell the two apart.
        voltage: the battery's voltage was logged.
    """
    check_robot(robot)
    p = robot.parameters
    full = sum(p["thrust_curve"].nominal)
    low, high = full * min(p["motor_gain"].low), full * max(p["motor_gain"].high)
    mass, arm, inertia, reaction = p["mass"], p["arm"], p["inertia"], p["torque_per_thrust"]
    levers = (arm, arm, reaction)
    apart = 0.25 * (max(p["motor_gain"].high) - min(p["motor_gain"].low))  # of four rotors' differences, half a rotor's
    return (
        ratio("mass", "kg", mass.low[0], mass.high[0], "mass with battery and whatever it carries"),
        ratio("arm", "m", arm.low[0], arm.high[0], "distance of the rotors from the axes x and y"),
        ratio("torque_per_thrust", "m", reaction.low[0], reaction.high[0], "reaction torque of a rotor per thrust"),
        ratio("thrust_to_mass", "m/s^2", WIDER[0] * 4 * low / mass.high[0], WIDER[1] * 4 * high / mass.low[0],
              "full thrust of all rotors, at the reference voltage, per mass"),
        between("curve_linear", "1", -0.3, 0.7, "share of the thrust curve that is linear in rotor speed; the rest is "
                "quadratic"),
        ratio("tau_up", "s", p["tau_up"].low[0], p["tau_up"].high[0], "time constant of rotors that speed up"),
        ratio("tau_down", "s", p["tau_down"].low[0], p["tau_down"].high[0], "time constant of rotors that slow down"),
        between("voltage_exponent", "1", 0.0, 1.0, "power of the battery's voltage in rotor speed; 0: compensated")
        if voltage else
        between("speed_loss", "1/s", 0.0, 0.01, "of rotors at one command, as the battery empties"),
        between("delay", "s", -0.005, 0.02, "of commands behind the grid on which they are logged"),
        *(ratio(f"torque_to_inertia_{axis}", "rad/s^2", WIDER[0] * low * min(lever.low) / inertia.high[k],
                WIDER[1] * high * max(lever.high) / inertia.low[k], f"about {axis}, of one rotor's full thrust")
          for k, (axis, lever) in enumerate(zip("xyz", levers))),
        *(between(f"drag_to_mass_{axis}", "1/s", 0.0, 2 * p["drag"].high[k] / mass.low[0], f"linear drag along body "
                  f"{axis} per mass") for k, axis in enumerate("xyz")),
        *(between(f"centre_{axis}", "m", -0.002, 0.002, f"centre of mass along {axis}, from the middle of the rotors")
          for axis in "xy"),
        *(between(f"gain_{axis}", "1", -apart, apart, f"difference of the rotors' gains that turns about {axis}")
          for axis in ("roll", "pitch", "yaw")),
        *(between(f"gyro_bias_{axis}", "rad/s", -0.02, 0.02, f"of the gyro about {axis}") for axis in "xyz"),
        *(between(f"accelerometer_bias_{axis}", "m/s^2", -0.3, 0.3, f"of the accelerometer along {axis}")
          for axis in "xyz"),
        *(() if fast else (ratio(f"command_share_{axis}", "1", 0.01, 1.0, "of the logged differences between motors, "
                                 f"about {axis}") for axis in "xyz")),
    )


WIDER = (0.7, 1.4)
"""Factors on the ends of ranges that a duty cycle's meaning and a battery widen: a spec's curve is over rotor speed."""


FARTHEST = 5.0
"""Standard deviations of a prior: a value that is given and lies farther off is one in another unit."""


def weighed(asked: Sequence[Quantity], name: str, value: float, sd: float) -> tuple[Quantity, ...]:
    """``asked`` with the prior of ``name`` replaced by what the user measured, in its unit."""
    names = [each.name for each in asked]
    if name not in names:
        raise UnknownName(f"--known {name}: no such parameter; {guess(name, names)}known: {', '.join(names)}")
    if not (np.isfinite([value, sd]).all() and sd > 0):
        raise ValueError(f"--known {name}: a number and its standard deviation above 0 are needed, got {value:g} and "
                         f"{sd:g}")
    one = asked[names.index(name)]
    if one.log and value <= 0:
        raise ValueError(f"--known {name}: {value:g}; a number above 0 is needed")
    mean = float(np.log(value)) if one.log else value
    if far := far_off(one, mean):
        raise ValueError(f"--known {name}: {far}: is it in {one.unit}, and is it this robot?")
    new = replace(one, mean=mean, sd=sd / value if one.log else sd, given=True)
    return tuple(new if each.name == name else each for each in asked)


def far_off(one: Quantity, mean: float, farthest: float = FARTHEST) -> str:
    """In words that ``mean``, as fitted, is no value of this robot's; "" if it may be one."""
    if abs(mean - one.mean) <= farthest * one.sd:
        return ""
    low, high = one.interval(one.mean, one.sd)
    with np.errstate(over="ignore"):
        value = float(one.value(mean))
    return (f"{value:.4g} {one.unit} is more than {farthest:g} standard deviations from the range of the robot's spec, "
            f"{low:.3g} to {high:.3g} {one.unit}")


NONSENSE = 10.0
"""The same of what flights left open. Real ones do end beyond :data:`FARTHEST` of a spec's prior (NanoBench's excerpt,
at a lag of 9 ms, 5.6 away); masses in grams are 99 away, lags in milliseconds 15 and 23."""


def strange(robot: RobotSpec, order: Sequence[str], mean: Sequence[float], sd: Sequence[float]) -> list[str]:
    """In words which means and standard deviations, as fitted, flights of this robot do not leave open."""
    known, out = {each.name: each for each in quantities(robot)}, []
    for name, m, s in zip(order, mean, sd):
        if far := far_off(known[name], m, NONSENSE):
            out.append(f"mean of {name}: {far}")
        elif s > NONSENSE * known[name].sd:
            out.append(f"{name} has {s / known[name].sd:.3g} times the standard deviation of the robot's spec")
    return out


DRIFT = 0.003
"""rad/s (0.17 deg/s) by which a gyro's bias changes as it warms up in flight: a rest tells it no better than this."""


def rested(asked: Sequence[Quantity], rests: Sequence[Numbers]) -> tuple[Quantity, ...]:
    """``asked`` with priors of the gyro's bias by what it said at rest: ``rests`` [R, 3] rad/s, one of each log that
    has one. What the user gave stays."""
    if not rests:
        return tuple(asked)
    means = np.array([each.mean(0) for each in rests])
    scatter = np.mean([each.var(0) / len(each) for each in rests], 0)
    sd = np.sqrt(DRIFT**2 + means.var(0) + scatter)
    at = {f"gyro_bias_{axis}": k for k, axis in enumerate("xyz")}
    return tuple(replace(each, mean=float(means.mean(0)[at[each.name]]), sd=float(sd[at[each.name]]))
                 if each.name in at and not each.given else each for each in asked)


def by_name(asked: Sequence[Quantity], theta: Numbers) -> dict[str, Numbers]:
    """The quantities in their units, [P] each, of vectors theta [P, Q]."""
    return {each.name: each.value(theta[:, k]) for k, each in enumerate(asked)}


def simulator_parameters(asked: Sequence[Quantity], theta: Numbers) -> dict[str, Numbers]:
    """The parameters of the backend ``quadrotor`` by name, [P, size] each, of vectors theta [P, Q]
    (:func:`temporeal.sim.physics.quadrotor.identified.simulator_parameters`)."""
    return identified.simulator_parameters(by_name(asked, theta))


def packed(values: Mapping[str, NDArray[np.float64]]) -> Numbers:
    """Parameters by name, [P, size] each, as the physics takes them: [P, PARAM_SIZE] float64."""
    out = np.zeros((len(values["mass"]), physics.PARAM_SIZE))
    for name, found in values.items():
        first, size = PARAMETERS[name]
        out[:, first : first + size] = found
    for field in RECIPROCAL.values():
        out[:, field] = 1.0 / out[:, field]
    out[:, physics.INV_JX : physics.INV_JZ + 1] = 1.0 / values["inertia"]
    return out


def flown(asked: Sequence[Quantity], theta: Numbers) -> Flown:
    """What vectors theta [P, Q] are to the simulator and the sensors."""
    q, none = by_name(asked, theta), np.zeros(len(theta))
    return Flown(packed(simulator_parameters(asked, theta)), q["delay"], q.get("voltage_exponent", none),
                 q.get("speed_loss", none), np.stack([q[f"gyro_bias_{a}"] for a in "xyz"], 1),
                 np.stack([q.get(f"command_share_{a}", np.ones(len(theta))) for a in "xyz"], 1))
