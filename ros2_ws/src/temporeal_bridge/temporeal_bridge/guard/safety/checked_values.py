"""Checks of single values of the ``safety`` section: numbers, keys, and signals of the robot with their units.

``where`` is the place of the value in ``ros.yaml``, for the message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from temporeal.robots.signals import CommandSpec, is_number
from temporeal.robots.spec import RobotSpec

PLACES, SPEEDS, EFFORTS = ("rad", "m"), ("rad/s", "m/s"), ("N m", "N")  # units of commands
RATES = (*SPEEDS, *EFFORTS)
MOVED = {"rad/s": "rad", "m/s": "m", "N m": "rad", "N": "m"}  # unit of the place that a speed or an effort changes
AT_MOST_S = 5.0  # of times after which something counts as wrong. Chosen: a later stop helps nobody
SANE = (1e-6, 1e6)  # limits of motion, SI. Chosen: no robot exceeds them, and extreme numbers overflow


class SafetyError(ValueError):
    """The ``safety`` section is wrong; the message says where, and what is legal."""


# ---------------------------------------------------------------- numbers and keys


def legal(where: str, row: Any, keys: Sequence[str], needed: Sequence[str] = ()) -> None:
    """Check that ``row`` is a mapping that has the ``needed`` keys and only ``keys``."""
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where}: a mapping with {', '.join(keys)} is needed, got {row!r}")
    unknown, missing = sorted(set(row) - set(keys), key=str), sorted(set(needed) - set(row))
    if unknown or missing:
        problem = f"there is no key {unknown[0]!r}" if unknown else f"the key {missing[0]!r} is missing"
        raise SafetyError(f"{where}: {problem}; legal: {', '.join(keys)}")


def components(where: str, value: Any, size: int, at_least: float | None = None) -> tuple[float, ...]:
    """``size`` finite numbers, or one for all; positive, unless ``at_least`` gives another lower limit."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) not in (1, size) or not all(map(is_number, values)):
        raise SafetyError(f"{where} is {value!r}; {size} numbers, or one for all, are needed, each finite")
    array = np.broadcast_to(np.array(values, dtype=float), (size,))
    good = (array > 0) if at_least is None else (array >= at_least)
    if not good.all():
        rule = "positive" if at_least is None else "finite" if at_least == -np.inf else f"at least {at_least:g}"
        raise SafetyError(f"{where} is {value!r}; each must be {rule}")
    return tuple(float(x) for x in array)


def sane(where: str, value: Any, size: int) -> tuple[float, ...]:
    """Limits of motion: ``size`` numbers, or one for all."""
    out = components(where, value, size)
    least, most = SANE
    if not all(least <= limit <= most for limit in out):
        raise SafetyError(f"{where} is {value!r}; each must be from {least:g} to {most:g}: no robot has others, and "
                          "they cannot be computed with")
    return out


def positive(where: str, value: Any, or_zero: bool = False) -> float:
    """A positive number."""
    if not is_number(value) or not (value > 0 or (or_zero and value == 0)):
        raise SafetyError(f"{where} is {value!r}; a {'number from 0' if or_zero else 'positive number'} is needed")
    return float(value)


def seconds(where: str, value: Any) -> float:
    """A positive time [s] after which something counts as wrong."""
    if (found := positive(where, value)) > AT_MOST_S:
        raise SafetyError(f"{where} is {found:g} s; at most {AT_MOST_S:g} s is legal: a later stop helps nobody")
    return found


# ---------------------------------------------------------------- commands and signals


def is_rate(spec: CommandSpec) -> bool:
    """Whether the command is a speed or an effort: 0 is its rest, wherever the robot is."""
    return set(spec.unit.split(",")) <= set(RATES)


def place_units(spec: CommandSpec) -> str:
    """Units of the places that the command sets, or that its speeds or efforts change."""
    return ",".join(MOVED.get(unit, unit) for unit in spec.unit.split(","))


def of_unit(robot: RobotSpec, names: Collection[str], *units: str) -> frozenset[str]:
    """The signals among ``names`` that have one of these units."""
    return frozenset(name for name in names if robot.signals[name].unit in units)


def known_signal(where: str, robot: RobotSpec, name: str) -> None:
    """Check that the robot has the signal."""
    if not isinstance(name, str) or name not in robot.signals:
        raise SafetyError(f"{where}: robot {robot.name!r} has no signal {name!r}; known: {', '.join(robot.signals)}")


def measured(where: str, robot: RobotSpec, name: str, spec: CommandSpec, units: str) -> int:
    """Size of a signal that measures, in ``units``, the first components of the command or of what it moves."""
    known_signal(where, robot, name)
    size = robot.signals[name].size
    if size > spec.size:
        raise SafetyError(f"{where}: {name} has {size} components, {spec.name} only {spec.size}")
    in_units(where, robot, name, units, spec)
    return size


def in_units(where: str, robot: RobotSpec, name: str, units: str, spec: CommandSpec) -> None:
    """Check that the signal has the first of the ``units``, or all of them."""
    parts = units.split(",")
    good = [",".join(parts[: k + 1]) for k in range(len(parts))]
    if robot.signals[name].unit not in good:
        others = [each for each, other in robot.signals.items() if other.unit in good and other.size <= spec.size]
        raise SafetyError(
            f"{where}: {name} is in {robot.signals[name].unit}; {spec.name}, which is in {spec.unit}, needs a signal "
            f"in {' or '.join(good)}: {', '.join(others) or 'there is none'}")


def measured_speed(where: str, robot: RobotSpec, name: str) -> None:
    """Check that the robot has the signal and that it is a speed."""
    known_signal(where, robot, name)
    speeds = [each for each, other in robot.signals.items() if set(other.unit.split(",")) <= set(SPEEDS)]
    if name not in speeds:
        raise SafetyError(f"{where}: {name} is in {robot.signals[name].unit}; a signal in {' or '.join(SPEEDS)} is "
                          f"needed: {', '.join(speeds) or 'there is none'}")


def velocity_of(where: str, robot: RobotSpec, name: str, position: str, key: str = "velocity") -> None:
    """Check that the robot has the signal and that it is the rate of change of the ``position``."""
    known_signal(f"{where}.{key}", robot, name)
    signals = robot.signals
    if signals[name].size != signals[position].size:
        raise SafetyError(f"{where}: {position} and {name} differ in size")
    measured_speed(f"{where}.{key}", robot, name)
    units = ",".join(f"{unit}/s" for unit in signals[position].unit.split(","))
    if signals[name].unit != units:
        raise SafetyError(f"{where}.{key}: {name} is in {signals[name].unit}; {position} is in "
                          f"{signals[position].unit}, so a signal in {units} is needed")


def body_rates_of(where: str, robot: RobotSpec, name: str, attitude: str) -> None:
    """Check that the robot has the signal and that it is the angular velocity of the ``attitude`` about the body's
    axes."""
    known_signal(where, robot, name)
    spec = robot.signals[name]
    if (spec.shape, spec.unit, spec.frame) != ((3,), "rad/s", "b"):
        rates = [each for each, other in robot.signals.items()
                 if (other.shape, other.unit, other.frame) == ((3,), "rad/s", "b")]
        raise SafetyError(f"{where}: {name} of shape {spec.shape} is in {spec.unit}, frame {spec.frame!r}; {attitude} "
                          "is an attitude, so body rates (3,) in rad/s, frame 'b', are needed: "
                          f"{', '.join(rates) or 'there are none'}")


def place_range(
    where: str, robot: RobotSpec, name: Any, size: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the range of ``size`` measured joints: the limits of a command, or, for the signal ``joint_pos``, those
    of the joints' motion."""
    limits = robot.motion
    if name == "joint_pos" and limits is not None and len(limits.low) >= size:
        return limits.low[:size], limits.high[:size]
    known = [each for each, other in robot.commands.items() if set(other.unit.split(",")) <= set(PLACES)]
    if name not in known or robot.commands[name].size < size:
        raise SafetyError(f"{where} is {name!r}; a command of {robot.name!r} in {' or '.join(PLACES)} is needed, with "
                          f"{size} components or more: {', '.join(known) or 'there is none'}"
                          f"{', or joint_pos' if limits is not None else ''}")
    spec = robot.commands[name]
    return spec.low[:size], spec.high[:size]
