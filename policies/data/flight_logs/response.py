"""Whose log is it: how a robot answers its motors, against what its spec says.

Thrust follows its command with a lag tau of first order; the accelerometer's z is the sum of thrusts by the mass, and
the change of body rates is the motors' torque by the inertia (rotors' places and turning directions: the Crazyflie's
spec; Foerster, ETH Zurich 2015, eq. 3.9-3.12). Both gains are compared with the range that the spec's sources span; the
order of motors and the axes of the gyro with which command turns which axis.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from temporeal.policies.data.flight_logs.axes import related
from temporeal.policies.data.flight_logs.clocks import quick
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    COMMAND,
    GOOD,
    RATES,
    UNKNOWN,
    WRONG,
    Finding,
    Numbers,
)
from temporeal.policies.data.flight_logs.motion import Even
from temporeal.policies.data.flight_logs.physics import LEAST, derivative, smoothed
from temporeal.robots.crazyflie.spec import ROTOR_SIGN_X, ROTOR_SIGN_Y, ROTOR_SIGN_YAW
from temporeal.robots.spec import RobotSpec

LAGS_S = (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.1, 0.125, 0.15, 0.2, 0.25)
USUAL_LAG_S = 0.06
"""Of a Crazyflie's motors, where the log does not tell it (public logs: 0.055 to 0.07 s)."""
FLIGHT_S = 3.0
EXPLAINED = 0.6
"""Correlation above which an answer is one to the commands."""
BEYOND = 1.6
"""Factor on the range of the spec's sources: batteries, payloads, and what noise takes from a gain."""
TUMBLING = 12.0  # rad/s, above which a robot is crashing
DEGREES = 180 / np.pi


def check(even: Even, robot: RobotSpec | None, doubted: set[str], rates_known: bool) -> Iterator[Finding]:
    """Thrust and torque.

    Args:
        robot: None: nobody says whose log it is. doubted: signals that are wrong or clipped, which judge nothing.
        rates_known: the gyro was found right by the orientation, so that the motors are to blame.
    """
    if not even.has(COMMAND, ACCELERATION) or not flown_long(even):
        return
    if even.values[COMMAND].shape[1] != len(ROTOR_SIGN_X):
        return
    tau, alike = USUAL_LAG_S, 0.0
    if ACCELERATION not in doubted:
        tau, alike, gain = thrust(even)
        yield of_thrust(robot, tau, alike, gain)
    if even.has(RATES) and RATES not in doubted:
        yield of_torque(even, robot, tau if alike > EXPLAINED else USUAL_LAG_S, rates_known)


def flown_long(even: Even) -> bool:
    """Whether there is enough flight to judge a gain by."""
    return int(even.flying.sum()) >= LEAST and float(even.flying.sum()) * even.step >= FLIGHT_S


def followed(even: Even, command: Numbers, tau: float) -> Numbers:
    """[G, 4] the commands, each held until the next, behind a lag of first order: what came before each time acts."""
    reach = int(min(8 * tau, 2.0) / even.step) + 1
    weight = np.exp(-even.step / tau * np.arange(reach))
    before = np.repeat(command[:1], reach, axis=0)
    padded = np.concatenate([before, command])
    return np.stack([np.convolve(column, weight / weight.sum())[reach - 1 : len(padded) - 1] for column in padded.T], 1)


def thrust(even: Even) -> tuple[float, float, float]:
    """The lag tau [s] that explains the accelerometer's z best, its correlation, and m/s^2 per unit of all commands."""
    measured = quick(even, even.values[ACCELERATION][:, 2:])[even.flying, 0]
    total = even.values[COMMAND].sum(1, keepdims=True)
    tried = []
    for tau in LAGS_S:
        given = quick(even, followed(even, total, tau))[even.flying, 0]
        alike = float(np.corrcoef(given, measured)[0, 1]) if given.std() > 0 and measured.std() > 0 else 0.0
        tried.append((tau, alike, alike * float(measured.std() / max(given.std(), 1e-12))))
    return max(tried, key=lambda each: each[1])


def of_thrust(robot: RobotSpec | None, tau: float, alike: float, gain: float) -> Finding:
    """Thrust by mass against the spec's."""
    subject, figures = f"{COMMAND}, {ACCELERATION}", {"tau_s": tau, "correlation": alike, "gain": gain}
    if alike < EXPLAINED:
        return Finding("robot", subject, UNKNOWN, f"commands explain the vertical acceleration with a correlation of "
                       f"{alike:.2f} only: too little excitation, or commands of another flight", figures=figures)
    told = f"lag {1e3 * tau:.0f} ms, {gain:.3g} m/s^2 for all motors' command (correlation {alike:.2f})"
    if robot is None:
        return Finding("robot", subject, UNKNOWN, f"{told}; no robot is named to compare with", figures=figures)
    low, high = thrust_range(robot)
    if low / BEYOND <= gain <= high * BEYOND:
        return Finding("robot", subject, GOOD, f"{told}: as a {robot.name}, {low:.3g} to {high:.3g}", figures=figures)
    return Finding("robot", subject, WRONG, f"{told}: no {robot.name}, of which {low:.3g} to {high:.3g} are expected",
                   "another robot", figures)


def thrust_range(robot: RobotSpec) -> tuple[float, float]:
    """m/s^2 of one motor's full command: that of its thrust curve, by the sources' gains and masses."""
    full = sum(robot.parameters["thrust_curve"].nominal)
    mass, gain = robot.parameters["mass"], robot.parameters["motor_gain"]
    return full * min(gain.low) / mass.high[0], full * max(gain.high) / mass.low[0]


def torque_range(robot: RobotSpec) -> tuple[float, float]:
    """rad/s^2 about x and y of one motor's full command at its arm."""
    full = sum(robot.parameters["thrust_curve"].nominal)
    arm, inertia, gain = (robot.parameters[name] for name in ("arm", "inertia", "motor_gain"))
    return (full * min(gain.low) * min(arm.low) / max(inertia.high[:2]),
            full * max(gain.high) * max(arm.high) / min(inertia.low[:2]))


def of_torque(even: Even, robot: RobotSpec | None, tau: float, rates_known: bool) -> Finding:
    """Which motor turns which axis, and how fast."""
    subject = f"{COMMAND}, {RATES}"
    given = followed(even, even.values[COMMAND], tau)
    sides = np.stack([np.array(ROTOR_SIGN_Y), -np.array(ROTOR_SIGN_X), np.array(ROTOR_SIGN_YAW)], 1)
    calm = even.flying & (np.abs(even.values[RATES]).max(1) < TUMBLING * factor(even))
    if calm.sum() < LEAST:
        return Finding("robot", subject, UNKNOWN, "the robot tumbles")
    turned = smoothed(even, derivative(even, smoothed(even, even.values[RATES])))[calm]
    # without what is slow: motors hold a centre of mass that is off, and differ from each other
    found = related(quick(even, smoothed(even, given @ sides))[calm], turned)
    figures = {"gain": found.ratio, **{f"correlation_{a}": c for a, c in zip("xyz", found.identity)}}
    if sum(c > EXPLAINED for c in found.correlation[:2]) < 2:
        return Finding("robot", subject, UNKNOWN, "commands explain the turning with correlations of "
                       f"{found.correlation[0]:.2f} and {found.correlation[1]:.2f} only: slow samples, or too little "
                       "excitation", figures=figures)
    if not found.straight or min(found.identity[:2]) < 0:
        what = "motors are in another order or turn otherwise" if rates_known else (
            "axes of the gyro have changed places or signs, or motors are in another order")
        return Finding("robot", subject, WRONG, f"{what}: about the torque's axes, {found.said()}",
                       "motors" if rates_known else "axes", figures)
    return of_turning(robot, found.ratio, subject, figures)


def factor(even: Even) -> float:
    """How much larger rates are than a robot's can be: 1, or 57.3 where they are in degrees."""
    usual = float(np.percentile(np.abs(even.values[RATES][even.flying]), 90))
    return DEGREES if usual > TUMBLING else 1.0


def of_turning(robot: RobotSpec | None, gain: float, subject: str, figures: dict[str, float]) -> Finding:
    """The gain of torque against the spec's."""
    told = f"{gain:.3g} rad/s^2 for a motor's command"
    if robot is None:
        return Finding("robot", subject, UNKNOWN, f"{told}; no robot is named to compare with", figures=figures)
    low, high = torque_range(robot)
    if low / BEYOND <= gain <= high * BEYOND:
        return Finding("robot", subject, GOOD, f"{told}: as a {robot.name}, {low:.3g} to {high:.3g}", figures=figures)
    for scale, unit in ((DEGREES, "deg/s, not rad/s"), (1 / DEGREES, "rad/s that were taken for deg/s")):
        if low / BEYOND <= gain / scale <= high * BEYOND:
            return Finding("robot", RATES, WRONG, f"{told}, where a {robot.name} has {low:.3g} to {high:.3g}: the gyro "
                           f"is in {unit}", "unit", figures)
    return Finding("robot", subject, WRONG, f"{told}: no {robot.name}, of which {low:.3g} to {high:.3g} are expected",
                   "another robot", figures)
