"""Checks against physics: what two sensors say of one motion must agree, and gravity must be where it is.

- At rest an accelerometer measures g upward in body axes: R^T (0, 0, g), |a| = g.
- The gyro is the derivative of orientation: w_b = 2 vec(q* dq/dt) (Sola, arXiv 1711.02508, eq. 199).
- In flight the accelerometer is R^T (dv/dt + g), and v is dp/dt.

A relation that does not hold is blamed on the sensor that the others contradict. Where nothing moves, nothing is told,
and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from temporeal.policies.data.flight_logs.axes import AXES, TOLD, Relation, related, unit_of
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    GOOD,
    GRAVITY,
    POSITION,
    RATES,
    UNKNOWN,
    VELOCITY,
    WRONG,
    Finding,
    Marks,
    Numbers,
)
from temporeal.policies.data.flight_logs.motion import Even, smooth
from temporeal.robots import frames

NEAR_G = 0.08
"""Of g: scale of consumer accelerometers, and what a mean over a flight leaves."""
TILTED = np.cos(np.radians(20.0))
SMOOTH_S = 0.05
"""Over which derivatives are taken: above the noise of motion capture, below the motion of a small robot."""
LEAST = 100  # samples in flight below which nothing is compared
CLEARLY = 0.3
"""Sum of correlations by which another order of the quaternion may explain the gyro less well than other axes do: a
wrong order looks like axes that nobody would choose."""
ORDERS = {"xyzw": (3, 0, 1, 2), "wxyz behind a reader of xyzw": (1, 2, 3, 0)}
"""What the four numbers are, and the places of w, x, y, z in what was read as wxyz."""


def check(even: Even) -> list[Finding]:
    """All of them. What one of them found wrong is no witness in the next."""
    turned = list(orientation(even))
    found = [*turned, *gravity(even, ATTITUDE not in wrong(turned))]
    return [*found, *translation(even, wrong(found))]


def wrong(found: list[Finding]) -> set[str]:
    """The subjects of findings that are wrong."""
    return {each.subject for each in found if each.status == WRONG}


# ---------------------------------------------------------------- gravity


def gravity(even: Even, oriented: bool) -> Iterator[Finding]:
    """The accelerometer at rest; without rest, its mean over the flight.

    Args:
        oriented: the orientation can be believed; else the robot is taken to stand upright.
    """
    if not even.has(ACCELERATION):
        return
    first = first_rest(even)
    still = first if first.any() else even.flying
    if not still.any():
        yield Finding("gravity", ACCELERATION, UNKNOWN, "the robot neither rests nor flies")
        return
    mean = even.values[ACCELERATION][still].mean(0)
    where = f"at rest ({still.sum() * even.step:.2g} s)" if first.any() else "in the mean of the flight"
    size = float(np.linalg.norm(mean))
    told = f"{where} it measures ({', '.join(f'{each:.3g}' for each in mean)}) m/s^2, {size:.4g} in length"
    figures = {"length": size, **dict(zip(AXES, map(float, mean)))}
    if (unit := length_of(size)) != "":
        yield Finding("gravity", ACCELERATION, WRONG, f"{told}: {unit}", "unit", figures)
        return
    upward = np.array([0.0, 0.0, 1.0])
    if oriented and even.has(ATTITUDE) and first.any():
        upward = frames.rotate_inverse(frames.normalized(even.values[ATTITUDE][still]), upward).mean(0)
    if mean @ upward / size > TILTED:
        yield Finding("gravity", ACCELERATION, GOOD, told, figures=figures)
        return
    yield Finding("gravity", ACCELERATION, WRONG, f"{told}: {direction(mean, upward)}", "axes", figures)


def first_rest(even: Even) -> Marks:
    """[G] the first rest: after a crash a robot may lie on its back."""
    at = np.flatnonzero(even.resting)
    if not len(at):
        return even.resting
    gap = np.flatnonzero(np.diff(at) > 1)
    end = at[gap[0]] if len(gap) else at[-1]
    out = np.zeros_like(even.resting)
    out[at[0] : end + 1] = True
    return out


def length_of(size: float) -> str:
    """What a wrong length of gravity says of the unit; "": it is right."""
    if abs(size / GRAVITY - 1) < NEAR_G:
        return ""
    for value, unit in ((1.0, "g, not m/s^2"), (GRAVITY**2, "g that were multiplied by 9.81 twice"),
                        (1000.0 * GRAVITY, "mm/s^2, not m/s^2"), (1000.0, "mg, not m/s^2")):
        if abs(size / value - 1) < NEAR_G:
            return f"it is in {unit}"
    return "gravity was taken out of it" if size < 0.1 * GRAVITY else f"gravity is {GRAVITY:.4g}: its scale is wrong"


def direction(mean: Numbers, upward: Numbers) -> str:
    """Where gravity is instead of ``upward``, in words."""
    axis = int(np.argmax(np.abs(mean)))
    sign = "-" if mean[axis] < 0 else ""
    expected = int(np.argmax(np.abs(upward)))
    if axis == expected and mean[axis] * upward[axis] < 0:
        return f"gravity is along {sign}{AXES[axis]}: {AXES[axis]} points down (FRD, NED), or its sign is turned"
    if axis != expected:
        return f"gravity is along {sign}{AXES[axis]}, not {AXES[expected]}: these axes have changed places"
    return "the orientation says that gravity is elsewhere by more than 20 degrees"


# ---------------------------------------------------------------- orientation


def orientation(even: Even) -> Iterator[Finding]:
    """The gyro against the derivative of orientation, in the order that is stated and in others."""
    if not even.has(RATES, ATTITUDE) or even.flying.sum() < LEAST:
        return
    quat, gyro = even.values[ATTITUDE], smoothed(even, even.values[RATES])[even.flying]
    found = related(rates_of(even, quat), gyro)
    others = {name: related(rates_of(even, quat[:, list(order)]), gyro) for name, order in ORDERS.items()}
    name = max(others, key=lambda each: sum(others[each].identity))
    as_well = sum(others[name].identity) > sum(found.correlation) - CLEARLY
    if as_well and not (found.straight and found.known) and others[name].straight and others[name].known:
        yield Finding("orientation", ATTITUDE, WRONG, f"its four numbers are {name}, not wxyz: so they explain the gyro"
                      f" (correlation {others[name].told()}; as stated {found.told()})", "quaternion order")
        return
    figures = {f"correlation_{axis}": c for axis, c in zip(AXES, found.identity)}
    if not found.known:
        yield Finding("orientation", f"{RATES}, {ATTITUDE}", UNKNOWN, "the robot turns too little, or the two have "
                      f"nothing in common (correlation {max(found.correlation):.2f})", figures=figures)
    elif found.mirrored:
        yield Finding("orientation", ATTITUDE, WRONG, "all rates are turned: the quaternion is the inverse, from world "
                      "to body", "quaternion inverse", figures)
    elif not found.straight:
        yield Finding("orientation", RATES, WRONG, f"the axes of the gyro are not those of the orientation: "
                      f"{found.said()}", "axes", figures)
    else:
        yield unit_finding("orientation", RATES, found, "the gyro is the derivative of the orientation")


def unit_finding(check: str, subject: str, found: Relation, right: str) -> Finding:
    """Whether the units agree, where the axes do."""
    figures = {"ratio": found.ratio, **{f"correlation_{a}": c for a, c in zip(AXES, found.identity)}}
    if unit := unit_of(found.ratio):
        return Finding(check, subject, WRONG, f"is not in its unit: {unit}", "unit", figures)
    return Finding(check, subject, GOOD, f"{right} (correlation {found.told()}; ratio {found.ratio:.2f})",
                   figures=figures)


def rates_of(even: Even, quat: Numbers) -> Numbers:
    """[F, 3] rad/s body rates in flight by the derivative of ``quat`` [G, 4] wxyz, of length 1 and continuous."""
    rate = 2 * frames.multiply(frames.conjugate(quat), derivative(even, quat))[:, 1:]
    return smoothed(even, rate)[even.flying]


def derivative(even: Even, values: Numbers) -> Numbers:
    """[G, F] per second."""
    return np.asarray(np.gradient(values, even.step, axis=0))


def smoothed(even: Even, values: Numbers) -> Numbers:
    """[G, F] the mean over :data:`SMOOTH_S`."""
    return smooth(values, max(int(round(SMOOTH_S / even.step)), 1))


# ---------------------------------------------------------------- translation


def translation(even: Even, doubted: set[str]) -> Iterator[Finding]:
    """Accelerometer, velocity and position against each other, but for what is ``doubted``."""
    if even.flying.sum() < LEAST:
        return
    source = VELOCITY if even.has(VELOCITY) else POSITION
    dynamic = None
    if even.has(ACCELERATION, ATTITUDE, source) and not doubted & {ACCELERATION, ATTITUDE}:
        yield (dynamic := acceleration(even, source))
    if not even.has(POSITION, VELOCITY):
        return
    found = velocity(even)
    if found.status == WRONG and dynamic is not None and dynamic.status == WRONG and dynamic.subject == VELOCITY:
        found = Finding("velocity", f"{POSITION}, {VELOCITY}", UNKNOWN, "the velocity is wrong itself and cannot judge "
                        "the position")
    yield found


def velocity(even: Even) -> Finding:
    """Velocity against the derivative of position; where they differ, the position is named: acceleration judges the
    velocity."""
    change = smoothed(even, derivative(even, even.values[POSITION]))[even.flying]
    found = related(smoothed(even, even.values[VELOCITY])[even.flying], change)
    if not found.known:
        return Finding("velocity", f"{POSITION}, {VELOCITY}", UNKNOWN, "the robot moves too little, or the two have "
                       f"nothing in common (correlation {max(found.correlation):.2f})")
    if not found.straight:
        return Finding("velocity", POSITION, WRONG, f"the axes of the position are not those of the velocity: "
                       f"{found.said()}", "axes")
    return unit_finding("velocity", POSITION, found, "the velocity is its derivative")


def acceleration(even: Even, source: str) -> Finding:
    """The accelerometer against the second derivative of motion, in body axes and in those of the world."""
    quat = frames.normalized(even.values[ATTITUDE])
    motion = even.values[VELOCITY] if source == VELOCITY else derivative(even, even.values[POSITION])
    change = derivative(even, smoothed(even, motion))
    measured = even.values[ACCELERATION]
    wide = max(int(round(3 * SMOOTH_S / even.step)), 1)

    def of(values: Numbers) -> Numbers:
        return smooth(values, wide)[even.flying]

    up = np.array([0.0, 0.0, GRAVITY])
    in_world = related(of(frames.rotate(quat, measured)), of(change))
    in_body = related(of(frames.rotate_inverse(quat, change + up)), of(measured))
    both = f"{ACCELERATION}, {source}"
    if in_world.known and unit_of(in_world.ratio) and in_world.straight:
        return unit_finding("acceleration", source, in_world, "")
    if not in_world.straight and sum(in_world.correlation) >= sum(in_body.correlation):
        return Finding("acceleration", source, WRONG, f"its axes are not those of the accelerometer: {in_world.said()}",
                       "axes")
    if not in_body.straight and in_body.known:
        return Finding("acceleration", ACCELERATION, WRONG, f"its axes are not those of the motion: {in_body.said()}",
                       "axes")
    if max(in_body.identity) < TOLD:
        return Finding("acceleration", both, UNKNOWN, "the two have nothing in common (correlation "
                       f"{max(in_body.correlation):.2f}): a clock, an orientation or a robot of another log?")
    return unit_finding("acceleration", ACCELERATION, in_body, "it is the second derivative of the motion, and gravity")
