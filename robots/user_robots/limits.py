"""Limits of motion and the gripper of a user's robot."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from temporeal.robots.model_files import QPOS_SIZE, Content, Joint, frames
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import ASSUMED, BUILD_S, RAMP_S, Gripper, MotionLimits
from temporeal.robots.user_robots.entries import GRIPPER, LIMITS, check_keys, known, number

SPEEDS = {"hinge": 1.0, "slide": 0.1}
"""rad/s, m/s: of joints for which neither the model nor the YAML says how fast they are. Assumed, slow on purpose."""

SLOW = f"{SPEEDS['hinge']:g} rad/s or {SPEEDS['slide']:g} m/s: no source gives a speed"


def motion_limits(
    content: Content, joints: list[Joint], given: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]
) -> tuple[MotionLimits | None, dict[str, str]]:
    """The limits of ``joints``, and which of them are assumed: by name, what and why.

    What the YAML's ``limits`` give counts, then what the model says, then a cautious assumption. ``ranges`` are those
    of commands, for joints that turn without limits.
    """
    if not joints:
        return None, {}
    check_keys(f"{content.path}: {content.beside}: limits", given, LIMITS)
    stated = {key: by_joint(content, key, given.get(key, {}), joints) for key in LIMITS}
    assumed: dict[str, str] = {}

    def filled(key: str, defaults: list[float], why: str) -> tuple[float, ...]:
        lacking = [joint.name for joint in joints if joint.name not in stated[key]]
        if lacking and why:
            assumed[key] = why if len(lacking) == len(joints) else f"{', '.join(lacking)}: {why}"
        return tuple(stated[key].get(joint.name, value) for joint, value in zip(joints, defaults))

    stated["velocity"] = {**{j.name: j.speed for j in joints if isfinite(j.speed)}, **stated["velocity"]}
    stated["effort"] = {**{j.name: j.effort for j in joints if 0 < j.effort < inf}, **stated["effort"]}
    speed = filled("velocity", [SPEEDS[joint.kind] for joint in joints], SLOW)
    acceleration = filled("acceleration", [v / RAMP_S for v in speed], ASSUMED["acceleration"])
    jerk = filled("jerk", [a / BUILD_S for a in acceleration], ASSUMED["jerk"])
    effort = tuple(stated["effort"][j.name] for j in joints if j.name in stated["effort"])
    ends = [(j.low, j.high) if isfinite(j.low) else ranges.get(j.name, (-inf, inf)) for j in joints]
    low, high = zip(*ends)
    return MotionLimits(speed, acceleration, acceleration, low, high, jerk,
                        effort if len(effort) == len(joints) else ()), assumed


def by_joint(content: Content, key: str, given: Any, joints: list[Joint]) -> dict[str, float]:
    """A positive number for each joint that ``given`` names, or one for all."""
    values = dict(given) if isinstance(given, Mapping) else {joint.name: given for joint in joints}
    plain = [joint.name for joint in content.joints if QPOS_SIZE[joint.kind] == 1]
    known(content, f"limits.{key}", list(values), plain)
    for name, value in values.items():
        if number(content, f"limits.{key}, {name!r}", value, "a positive number") <= 0:
            raise content.fail(f"{content.beside}: limits.{key}, {name!r}", "a positive number is needed, got "
                               f"{value!r}")
    return {name: float(value) for name, value in values.items()}


def gripper_of(content: Content, given: Mapping[str, Any], commands: Mapping[str, CommandSpec]) -> Gripper | None:
    """The gripper that the YAML describes, if any."""
    if not given:
        return None
    where = f"{content.beside}: gripper"
    check_keys(f"{content.path}: {where}", given, GRIPPER)
    if missing := [key for key in GRIPPER if key not in given]:
        raise content.fail(where, f"{missing[0]} is needed; entries: {', '.join(GRIPPER)}")
    if given["command"] not in commands:
        raise content.fail(where, f"its command {given['command']!r} is not one of {', '.join(commands)}")
    spec = commands[given["command"]]
    ends = {key: number(content, f"gripper.{key}", given[key]) for key in ("open", "closed")}
    for key, value in ends.items():
        if not spec.low[-1] - 1e-6 <= value <= spec.high[-1] + 1e-6:
            raise content.fail(f"{where}.{key}", f"{value:g} is not within {spec.low[-1]:g} to {spec.high[-1]:g}, the "
                               f"last component of {spec.name}")
    plain = [joint.name for joint in content.joints if QPOS_SIZE[joint.kind] == 1]
    return Gripper(spec.name, tuple(known(content, "gripper.joints", given["joints"], plain)),
                   tuple(known(content, "gripper.bodies", given["bodies"], frames(content))), **ends)
