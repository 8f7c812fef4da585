"""Which stop action answers which reason, and the parameters of stop actions, as checked values.

What the actions send is :mod:`temporeal_bridge.guard.stop_actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from temporeal.robots.signals import CommandSpec, is_number
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.checked_values import PLACES, RATES, SafetyError, legal
from temporeal_bridge.guard.safety.profile import Fingers
from temporeal_bridge.guard.safety.reasons import CODES

ACTIONS = {
    "hold": "go to the measured position and keep it", "ramp": "come to rest within the limits and keep it",
    "damp": "zero velocity or effort", "level": "level out and sink (quadrotors)", "silence": "send nothing more"}
ONLY = {"autopilot": "silence"}  # anything else returns PX4 to offboard, against its pilot or its failsafe
NEEDS = {"hold": PLACES, "ramp": PLACES, "damp": RATES}  # units: place 0 is no rest, nor is a speed that is kept
KEEPS = ("hold", "ramp", "damp")  # actions that go on sending commands until somebody resets

LOW_M = 0.5  # below it motors may be cut. Chosen: a fall from there ends at 3 m/s; large quadrotors stand that high
BELOW_M = 0.3  # how far below landed_m the measured floor may be. Chosen: no robot flies lower
FLIES_S = 1.5  # how long after the last command a Crazyflie still flies: its firmware levels and keeps the thrust for 2
# s (supervisor.c). Chosen: 0.5 s less, for radio losses and the next command
OFF_S = 2.5  # for so long zeros are sent after landing. A Crazyflie that hears nothing sooner than
# IS_FLYING_HYSTERESIS (2 s, supervisor.c) after its last thrust counts as falling, and stays locked until a restart
LONGEST = 4.0  # times max_s: a quadrotor that reports a sink for so long has landed, or its state is wrong
LEVEL: dict[str, tuple[str, Callable[[float], bool]]] = {  # by parameter: its rule, in words and as a check
    "descend": ("from 0.5 and below 1: a share of the hover thrust, from 1 on the robot climbs, with less it falls",
                lambda v: 0.5 <= v < 1),
    **dict.fromkeys(("gain", "limit"), ("from 0.5 to 20: with less it does not level", lambda v: 0.5 <= v <= 20)),
    "landed_m": (f"from 0 to {LOW_M:g} m: below it the motors are cut, and the robot falls", lambda v: 0 <= v <= LOW_M),
    "max_s": ("from 1 to 60 s: after it a robot that does not sink is let down", lambda v: 1 <= v <= 60),
    "blind_s": ("from 0 to 2 s: without an attitude nobody knows where it goes", lambda v: 0 <= v <= 2),
    "sink_m_s": ("from 0.15 to 1 m/s: slower is not seen in the height, faster is a crash", lambda v: 0.15 <= v <= 1),
    "sink_gain": ("from 0.05 to 5 s/m: with less it is not brought to sink_m_s, with more it shakes",
                  lambda v: 0.05 <= v <= 5),
    "flies_s": ("from 0 to 5 s: for so long its firmware flies on without commands", lambda v: 0 <= v <= 5),
    "off_s": ("from 0 to 10 s: for so long zeros are sent after landing", lambda v: 0 <= v <= 10)}
LEFT_OUT = {"sink_m_s": 0.3, "sink_gain": 0.5, "flies_s": FLIES_S, "off_s": OFF_S}
"""Parameters of level that may be left out. Sinking is chosen: 0.3 m/s is a drop from 5 mm; with 0.5 s/m an error
decays with a time constant of 0.2 s, more than the delay of state, command and motors (0.05 to 0.1 s). The firmware is
a Crazyflie's."""


def stop_actions(where: str, own: Mapping[str, Any], spec: CommandSpec, robot: RobotSpec, level: Any) -> dict[str, str]:
    """Stop action by code of the reason, with ``default`` for the others. ``own``: the command's section."""
    row = own["stop"]
    legal(where, row, ("default", *CODES), ("default",))
    measured = own.get("tracking") is not None or own.get("start") is not None
    for code, action in row.items():
        check_action(f"{where}.{code}", code, action, spec)
        if action == "level" and (robot.kind != "quadrotor" or spec.name != "ctbr_cmd" or level is None):
            raise SafetyError(f"{where}.{code}: level needs a quadrotor's ctbr_cmd and the section safety.level")
        if action == "hold" and not measured:
            raise SafetyError(f"{where}.{code}: hold needs the section tracking, or start: they say where the robot is "
                              "measured")
    return {**row, **ONLY}


def check_action(where: str, code: str, action: Any, spec: CommandSpec) -> None:
    """Check that the action is a known one, fits the reason's code, and fits the command's unit."""
    if not isinstance(action, str) or action not in ACTIONS:
        raise SafetyError(f"{where} is {action!r}; legal: {', '.join(ACTIONS)}")
    if action != ONLY.get(code, action):
        raise SafetyError(f"{where} is {action!r}; legal: {ONLY[code]} only, which is the default")
    if action in NEEDS and not set(spec.unit.split(",")) <= set(NEEDS[action]):
        raise SafetyError(f"{where}: {action} needs a command in {' or '.join(NEEDS[action])}; {spec.name} "
                          f"is in {spec.unit}")


def level_parameters(row: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Parameters of ``level``."""
    if row is None:
        return None
    legal("safety.level", row, list(LEVEL), [name for name in LEVEL if name not in LEFT_OUT])
    return {name: level_parameter(name, value) for name, value in {**LEFT_OUT, **row}.items()}


def level_parameter(name: str, value: Any) -> float:
    """One parameter of ``level``."""
    rule, good = LEVEL[name]
    if not is_number(value) or not good(value):
        raise SafetyError(f"safety.level.{name} is {value!r}; a number is needed {rule}")
    return float(value)


def unlock_height(value: Any) -> float | None:
    """The height [m] below which a robot stands on the ground, so that a zero setpoint may be sent to it."""
    if value is not None and not (is_number(value) and 0 < value <= LOW_M):
        raise SafetyError(f"safety.unlock_below_m is {value!r}; a number above 0 and up to {LOW_M:g} m is needed: in "
                          "the air a zero setpoint cuts the motors")
    return None if value is None else float(value)


def fingers(
    where: str, robot: RobotSpec, own: Mapping[str, Any], spec: CommandSpec, content: Mapping[str, Any]
) -> Fingers | None:
    """What closes a hand, and which signals show that its joints' places are current. ``own``: the command's section,
    ``content``: the whole one."""
    signs = own.get("closes")
    if signs is None:
        return None
    good = isinstance(signs, list) and len(signs) == spec.size and all(is_number(s) and s in (-1, 0, 1) for s in signs)
    if not good:
        raise SafetyError(f"{where}.closes is {signs!r}; {spec.size} numbers are needed, one for each component of "
                          f"{spec.name}: 1 where a greater value closes the hand, -1 where a smaller one does, 0 "
                          "where neither does")
    measured = own.get("tracking") or own.get("start") or {}
    if "hold" not in own["stop"].values() or not measured.get("signal"):
        raise SafetyError(f"{where}.closes is for the stop hold, and needs a section tracking or start: that says "
                          "where the hand is measured")
    place = robot.signals[measured["signal"]]
    alive = (content.get("frozen") or {}).get("signals") or ()
    signals = {place.name, *(name for name in alive if robot.signals[name].shape == place.shape)}
    return Fingers(tuple(float(s) for s in signs), frozenset(signals), tuple((i,) for i in range(place.size)))
