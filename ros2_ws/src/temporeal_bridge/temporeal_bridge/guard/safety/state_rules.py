"""Requirements on the state, as checked values: age, geofence, frozen signals, jumps, positions and their rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.checked_values import (
    SafetyError,
    body_rates_of,
    components,
    known_signal,
    legal,
    of_unit,
    positive,
    seconds,
    velocity_of,
)
from temporeal_bridge.guard.safety.fallback_actions import BELOW_M, LONGEST
from temporeal_bridge.guard.safety.profile import APART_S, Agree, Fence, Frozen

TURNED_S = 1.0  # time constant with which the deviation of an attitude from its rate is forgotten: the attitude is
# integrated from that rate. Chosen
WENT_S = 0.45  # the same for a body's position: a steady error of 0.67 m/s reaches 0.3 m. Chosen: a velocity that is
# 0.1 s late at 6 m/s^2, or 15 % too small at 3 m/s, stays below (tests of `agree`)
STANDS = 0.05  # rad or m of integrated rate over which a bit-identical place is frozen. Chosen: far above the
# resolution of drivers (Crazyswarm2: 1 mm, 1.4 mrad), and a tilt that does no harm


def shorter(where: str, name: str, own: Mapping[str, Any], content: Mapping[str, Any]) -> float | None:
    """A time for all commands, or this command's ``own``, which may only be shorter."""
    common, value = (None if row.get(name) is None else seconds(f"{place}.{name}", row[name])
                     for place, row in (("safety", content), (where, own)))
    if value is not None and common is not None and value > common:
        raise SafetyError(f"{where}.{name} is {value:g} s, longer than safety.{name}, {common:g} s: it may only be "
                          "shorter")
    return common if value is None else value


def fence(robot: RobotSpec, row: Mapping[str, Any] | None, level: Mapping[str, float] | None = None) -> Fence | None:
    """The geofence. With ``level`` the robot must be able to come down from everywhere in it, and must not count as
    landed anywhere in it."""
    if row is None:
        return None
    legal("safety.geofence", row, ("signal", "low", "high"), ("signal", "low", "high"))
    check_position(robot, row["signal"])
    low, high = (components(f"safety.geofence.{end}", row[end], 3, at_least=-np.inf) for end in ("low", "high"))
    if any(lo >= hi for lo, hi in zip(low, high)):
        raise SafetyError(f"safety.geofence: low {list(low)} must be below high {list(high)}")
    if level is not None:
        check_heights(low, high, level)
    return Fence(row["signal"], low, high)


def check_position(robot: RobotSpec, name: str) -> None:
    """Check that the geofence's signal is a position."""
    known_signal("safety.geofence.signal", robot, name)
    spec = robot.signals[name]
    if spec.shape != (3,):
        raise SafetyError(f"safety.geofence.signal is {name!r} of shape {spec.shape}; a position (3,) is needed")
    if spec.unit != "m":
        places = [each for each, other in robot.signals.items() if (other.shape, other.unit) == ((3,), "m")]
        raise SafetyError(f"safety.geofence.signal is {name!r} in {spec.unit}; a position (3,) in m is needed: "
                          f"{', '.join(places) or 'there is none'}")


def check_heights(low: tuple[float, ...], high: tuple[float, ...], level: Mapping[str, float]) -> None:
    """Check the geofence's heights against the stop action level."""
    lowest, sunk = level["landed_m"] - BELOW_M, LONGEST * level["max_s"] * level["sink_m_s"]
    highest = level["landed_m"] + sunk
    if low[2] < lowest:
        raise SafetyError(f"safety.geofence.low is {list(low)}; with safety.level its z must be at least "
                          f"{lowest:g} m, {BELOW_M:g} m below landed_m: below that height the motors are cut")
    if high[2] > highest:
        raise SafetyError(f"safety.geofence.high is {list(high)}; with safety.level its z may be at most "
                          f"{highest:g} m, from which level comes down in time: {LONGEST:g} max_s sink_m_s, "
                          f"{sunk:g} m, above landed_m")


def frozen(robot: RobotSpec, row: Mapping[str, Any] | None) -> Frozen | None:
    """Signals that must change."""
    if row is None:
        return None
    legal("safety.frozen", row, ("signals", "each", "after_s"), ("signals", "after_s"))
    lists = {key: row[key] for key in ("signals", "each") if key in row}
    for key, names in lists.items():
        if not isinstance(names, (list, tuple)) or not names:
            raise SafetyError(f"safety.frozen.{key} is {names!r}; a list of signals is needed")
        for name in names:
            known_signal(f"safety.frozen.{key}", robot, name)
    after = seconds("safety.frozen.after_s", row["after_s"])
    return Frozen(tuple(lists["signals"]), after, tuple(lists.get("each", ())))


def jump(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> Mapping[str, float] | None:
    """The largest change of each signal from one message to the next."""
    if row is None:
        return None
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where} is {row!r}; a mapping from signals to their largest changes is needed")
    for name in row:
        known_signal(where, robot, name)
    out = {name: positive(f"{where}.{name}", value) for name, value in row.items()}
    for name in of_unit(robot, out, "wxyz"):
        check_angle(f"{where}.{name}", out[name])
    return out


def check_angle(where: str, value: float) -> None:
    """Check that an angle between two attitudes can be exceeded."""
    if value >= np.pi:
        raise SafetyError(f"{where} is {value:g}; an angle below pi rad is needed: none is greater")


def agree(where: str, robot: RobotSpec, row: Mapping[str, Any] | None) -> dict[str, Agree]:
    """By name, each place that must change as its rate says."""
    if row is None:
        return {}
    if not isinstance(row, Mapping):
        raise SafetyError(f"{where} is {row!r}; a mapping from places to rate and within is needed")
    for name in row:
        known_signal(where, robot, name)
    return {name: agreement(f"{where}.{name}", robot, name, own) for name, own in row.items()}


def agreement(where: str, robot: RobotSpec, place: str, row: Mapping[str, Any]) -> Agree:
    """One place and its rate."""
    legal(where, row, ("rate", "within"), ("rate", "within"))
    unit = robot.signals[place].unit
    if unit == "wxyz":
        body_rates_of(f"{where}.rate", robot, row["rate"], place)
    else:
        velocity_of(where, robot, row["rate"], place, "rate")
    within = positive(f"{where}.within", row["within"])
    if unit == "wxyz":
        check_angle(f"{where}.within", within)
    forgotten = {"wxyz": TURNED_S, "m": WENT_S}.get(unit, APART_S)
    return Agree(place, row["rate"], within, unit, forgotten, STANDS)
