"""Requirements on one command, as checked values: motion, tracking, effort, ends of the range, start, collisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.collision import Capsules
from temporeal.robots.motion.link_shapes import watched
from temporeal.robots.motion.rate_limiter import Bounds, MotionError
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.checked_values import (
    EFFORTS,
    RATES,
    SafetyError,
    components,
    is_rate,
    known_signal,
    legal,
    measured,
    measured_speed,
    place_range,
    place_units,
    positive,
    sane,
    velocity_of,
)
from temporeal_bridge.guard.safety.profile import Effort, Ends, SelfCollision, Start, Tracking

MOTION = ("margin", "speed", "acceleration", "jerk")
BRAKED = ("velocity", "range", "brake", "late_s")  # keys of self_collision that say where measured joints come to rest


def motion_limits(where: str, row: Mapping[str, Any] | None, spec: CommandSpec, period: float) -> Bounds:
    """Limits of place (a margin inside the command's own), speed, acceleration and jerk."""
    row = {} if row is None else row
    legal(where, row, MOTION)
    margin = components(f"{where}.margin", row.get("margin", 0.0), spec.size, at_least=0.0)
    rates: dict[str, Any] = {
        name: sane(f"{where}.{name}", row[name], spec.size)
        for name in MOTION[1:] if row.get(name) is not None}
    try:
        return Bounds([lo + m for lo, m in zip(spec.low, margin)], [hi - m for hi, m in zip(spec.high, margin)],
                      period, **rates)
    except MotionError as error:
        raise SafetyError(f"{where}: {error}") from error


def tracking(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Tracking | None:
    """How far, and for how long, the robot may be behind its command."""
    if row is None:
        return None
    legal(where, row, ("signal", "error", "after_s"), ("signal", "error", "after_s"))
    size = measured(f"{where}.signal", robot, row["signal"], spec, spec.unit)
    return Tracking(row["signal"], components(f"{where}.error", row["error"], size),
                    positive(f"{where}.after_s", row["after_s"]))


def effort(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Effort | None:
    """The servo law and its limit."""
    if row is None:
        return None
    keys = ("position", "velocity", "kp", "kd", "limit")
    legal(where, row, keys, keys)
    if is_rate(spec):
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}; effort is the law of servos that are given places. "
                          "A speed or an effort is limited by ends")
    size = measured(f"{where}.position", robot, row["position"], spec, spec.unit)
    velocity_of(where, robot, row["velocity"], row["position"])
    kp, limit = (components(f"{where}.{key}", row[key], size) for key in ("kp", "limit"))
    return Effort(row["position"], row["velocity"], kp, components(f"{where}.kd", row["kd"], size, at_least=0.0), limit)


def ends(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec, period: float) -> Ends | None:
    """How fast joints may be near the ends of their range."""
    if row is None:
        return None
    if not is_rate(spec):
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}; ends hold commands in {' or '.join(RATES)}: "
                          "places have limits of their own")
    pushes = spec.unit in EFFORTS
    needed = ("position", "range", "brake", "speed", *(("velocity", "gain", "period_s") if pushes else ()))
    legal(where, row, (*needed, "margin", *(() if pushes else ("late_s",))), needed)
    if pushes:
        check_effort_period(where, row, period)
    size = measured(f"{where}.position", robot, row["position"], spec, place_units(spec))
    if pushes:
        velocity_of(where, robot, row["velocity"], row["position"])
    low, high = inner_range(where, robot, row, size)
    brake, speed = (sane(f"{where}.{key}", row[key], size) for key in ("brake", "speed"))
    if pushes:
        gain = components(f"{where}.gain", row["gain"], size)
        return Ends(row["position"], low, high, brake, speed, row["velocity"], gain)
    late = period + positive(f"{where}.late_s", row.get("late_s", 0.0), or_zero=True)
    return Ends(row["position"], low, high, brake, speed, late=late)


def check_effort_period(where: str, row: Mapping[str, Any], period: float) -> None:
    """Check that efforts are sent often enough to damp."""
    longest = positive(f"{where}.period_s", row["period_s"])
    if period > longest + 1e-9:
        raise SafetyError(f"{where}.period_s is {longest:g} s, but this artifact's commands come every {period:g} s: "
                          "efforts that damp by older velocities shake the robot instead")


def inner_range(
    where: str, robot: RobotSpec, row: Mapping[str, Any], size: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the joints' range, a margin inside it."""
    ends = place_range(f"{where}.range", robot, row["range"], size)
    margin = components(f"{where}.margin", row.get("margin", 0.0), size, at_least=0.0)
    low, high = (tuple(end + sign * m for end, m in zip(each, margin))
                 for each, sign in zip(ends, (1.0, -1.0)))
    if any(lo >= hi for lo, hi in zip(low, high)):
        raise SafetyError(f"{where}.margin is {row['margin']!r}: it leaves nothing of the range of {row['range']}")
    return low, high


def start(where: str, robot: RobotSpec, row: Mapping[str, Any] | None, spec: CommandSpec) -> Start | None:
    """Where and how commands begin."""
    if row is None:
        return None
    rate, near = is_rate(spec), ("signal", "within")
    needed = ("ramp_s",) if rate and isinstance(row, Mapping) and not set(near) & set(row) else (*near, "ramp_s")
    legal(where, row, (*near, "ramp_s", *(("at_rest",) if rate else ())), needed)
    ramp = positive(f"{where}.ramp_s", row["ramp_s"], or_zero=True)
    still = at_rest(f"{where}.at_rest", robot, row.get("at_rest"))
    if "signal" not in needed:
        return Start("", (), ramp, *still)
    size = measured(f"{where}.signal", robot, row["signal"], spec, spec.unit)
    return Start(row["signal"], components(f"{where}.within", row["within"], size), ramp, *still)


def at_rest(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> tuple[str, tuple[float, ...]]:
    """Which signal must be below which limits before speeds or efforts begin."""
    if row is None:
        return "", ()
    legal(where, row, ("signal", "below"), ("signal", "below"))
    measured_speed(f"{where}.signal", robot, row["signal"])
    return row["signal"], components(f"{where}.below", row["below"], robot.signals[row["signal"]].size)


def self_collision(where: str, robot: RobotSpec, own: Mapping[str, Any], spec: CommandSpec) -> SelfCollision | None:
    """The robot's shapes, from its model; the joints are those of the signal. ``own``: the command's section."""
    row = own.get("self_collision")
    if row is None:
        return None
    braked = isinstance(row, Mapping) and is_rate(spec) and bool(set(BRAKED) & set(row))
    needed = ("signal", "margin", *(BRAKED if braked else ()))
    legal(where, row, needed, needed)
    check_rest_known(where, row, own.get("ends"), spec, braked)
    known_signal(f"{where}.signal", robot, row["signal"])
    margin = positive(f"{where}.margin", row["margin"])
    capsules = joint_capsules(where, robot, row["signal"], margin, None if braked else spec)
    if not braked:
        return SelfCollision(capsules, margin)
    size = robot.signals[row["signal"]].size
    velocity_of(where, robot, row["velocity"], row["signal"])
    low, high = place_range(f"{where}.range", robot, row["range"], size)
    brake = sane(f"{where}.brake", row["brake"], size)
    return SelfCollision(capsules, margin, row["signal"], row["velocity"], low, high, brake,
                         positive(f"{where}.late_s", row["late_s"], or_zero=True))


def check_rest_known(
    where: str, row: Mapping[str, Any], ends: Mapping[str, Any] | None, spec: CommandSpec, braked: bool
) -> None:
    """Check that exactly one section says where a robot that is sent speeds or efforts comes to rest."""
    if braked and ends is not None:
        raise SafetyError(f"{where}: {', '.join(BRAKED)} are for commands without ends, which say where a robot rests")
    if is_rate(spec) and not braked and (ends or {}).get("position") != row["signal"]:
        raise SafetyError(f"{where}: {spec.name} is in {spec.unit}: where the robot comes to rest is known by the "
                          f"section ends of the same position, {row['signal']!r}, or by {', '.join(BRAKED)} here")


def joint_capsules(where: str, robot: RobotSpec, signal: str, margin: float, spec: CommandSpec | None) -> Capsules:
    """The shapes of links that the joints of the signal move. ``spec``: the command that must move them, too."""
    source = robot.sources.get(signal)
    if robot.model is None or source is None or source.what != "joint_pos":
        raise SafetyError(f"{where}: robot {robot.name!r} has no model whose joints are {signal!r}")
    if spec is not None:
        measured(f"{where}.signal", robot, signal, spec, place_units(spec))
    try:
        return watched(robot, signal, margin)
    except RobotFileError as error:
        raise SafetyError(f"{where}: {error}") from error
