"""Commands of a user's robot: of the model's actuators, or of position servos that a simulator adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from temporeal.robots.model_files import QPOS_SIZE, Content
from temporeal.robots.signals import CommandSpec, SignalError
from temporeal.robots.spec import MotionLimits, Parameter
from temporeal.robots.user_robots.entries import known
from temporeal.robots.user_robots.signals import refuse_follower, units

Commands = dict[str, CommandSpec]


def all_commands(
    content: Content, beside: Mapping[str, Any]
) -> tuple[Commands, dict[str, tuple[str, ...]], dict[str, Parameter]]:
    """Commands, the actuators of each, and the gains of the servos that a simulator adds (in order of appearance)."""
    given = beside.get("commands")
    if given is None:
        names = [actuator.name for actuator in content.actuators]
        given = {"ctrl_cmd": {"actuators": names}} if names else {}
    commands: Commands = {}
    actuators: dict[str, tuple[str, ...]] = {}
    gains: dict[str, tuple[float, float, float]] = {}
    for name, entry in given.items():
        if "drives" in entry:
            continue
        if "joints" in entry:
            commands[name] = servo_command(content, name, entry, gains)
            actuators[name] = tuple(entry["joints"])
        else:
            commands[name] = model_command(content, name, entry)
            actuators[name] = tuple(entry["actuators"])
    return commands, actuators, servo_parameters(gains)


def drive_commands(
    content: Content, beside: Mapping[str, Any], motion: MotionLimits | None, names: Sequence[str],
    actuators: Mapping[str, tuple[str, ...]],
) -> tuple[Commands, dict[str, tuple[str, ...]], dict[str, str]]:
    """Commands of speeds or efforts of joints that have position servos: the commands, their actuators, and what each
    drives. ``names`` are the joints that ``motion`` limits; ``actuators`` are those of the other commands."""
    driven = [actuator for each in actuators.values() for actuator in each]
    servo = {actuator.target: actuator.name for actuator in content.actuators if actuator.name in driven}
    servo |= {joint.name: joint.name for joint in content.joints if joint.name in driven}
    named = {joint.name: joint for joint in content.joints}
    out: tuple[Commands, dict[str, tuple[str, ...]], dict[str, str]] = ({}, {}, {})
    for name, entry in (beside.get("commands") or {}).items():
        if "drives" not in entry:
            continue
        joints = known(content, f"commands.{name}.joints", entry["joints"], [each for each in names if each in servo])
        speeds = entry["drives"] == "velocity"
        most = () if motion is None else motion.speed if speeds else motion.effort
        if not most:
            raise content.fail(f"{content.beside}: commands.{name}", f"limits of {entry['drives']} are needed "
                               "(limits:)")
        values = [dict(zip(names, most))[joint] for joint in joints]
        unit = units([named[joint] for joint in joints], *(("rad/s", "m/s") if speeds else ("N m", "N")))
        out[0][name] = command(content, name, unit, [-value for value in values], values)
        out[1][name] = tuple(servo[joint] for joint in joints)
        out[2][name] = entry["drives"]
    return out


def model_command(content: Content, name: str, entry: Mapping[str, Any]) -> CommandSpec:
    """A command of actuators in the model."""
    mine = {actuator.name: actuator for actuator in content.actuators}
    chosen = [mine[word] for word in known(content, f"commands.{name}.actuators", entry["actuators"], mine)]
    low = per_item(content, name, entry, "low", len(chosen), [a.low for a in chosen])
    high = per_item(content, name, entry, "high", len(chosen), [a.high for a in chosen])
    for actuator, lowest, highest in zip(chosen, low, high):
        if not (isfinite(lowest) and isfinite(highest)):
            raise content.fail(f'<{actuator.tag} name="{actuator.name}">', "a command needs limits: give the actuator "
                               f"a ctrlrange, or low and high under commands.{name} in "
                               f"{content.beside}")
    for actuator, lowest, highest in zip(chosen, low, high):
        if lowest < actuator.low - 1e-9 or highest > actuator.high + 1e-9:
            raise content.fail(f'commands.{name}: <{actuator.tag} name="{actuator.name}">', f"low {lowest:g} to high "
                               f"{highest:g} is wider than its control range {actuator.low:g} to {actuator.high:g}")
    joints = {joint.name: joint for joint in content.joints}
    driven = [joints.get(actuator.target) for actuator in chosen]
    servos = [j for a, j in zip(chosen, driven) if a.tag == "position" and j is not None and QPOS_SIZE[j.kind] == 1]
    unit = units(servos, "rad", "m") if servos and len(servos) == len(chosen) else "1"
    return command(content, name, str(entry.get("unit", unit)), low, high)


def servo_command(
    content: Content, name: str, entry: Mapping[str, Any], gains: dict[str, tuple[float, float, float]]
) -> CommandSpec:
    """A command of added position servos on joints; their kp, kd and strength go into ``gains``."""
    joints = {joint.name: joint for joint in content.joints if QPOS_SIZE[joint.kind] == 1}
    chosen = [joints[word] for word in known(content, f"commands.{name}.joints", entry["joints"], joints)]
    if "kp" not in entry:
        raise content.fail(f"commands.{name}", "position servos need kp (N m/rad or N/m)")
    count = len(chosen)
    kp = per_item(content, name, entry, "kp", count, [])
    kd = per_item(content, name, entry, "kd", count, [0.0] * count)
    strength = per_item(content, name, entry, "strength", count, [joint.effort for joint in chosen])
    low = per_item(content, name, entry, "low", count, [joint.low for joint in chosen])
    high = per_item(content, name, entry, "high", count, [joint.high for joint in chosen])
    taken = {actuator.name for actuator in content.actuators}
    for joint, *values, lowest, highest in zip(chosen, kp, kd, strength, low, high):
        element = f'commands.{name}: <joint name="{joint.name}">'
        refuse_follower(content, f"commands.{name}", joint.name, [joint.name])
        if joint.name in taken:
            raise content.fail(element, "the model has an actuator of this name: list it under actuators")
        if "strength" not in entry and values[2] in (0.0, inf):
            detail = "no effort is known" if values[2] else "its effort in the URDF is 0"
            raise content.fail(element, f"{detail}: give strength (N m or N), the most that its servo exerts")
        if not (values[0] > 0 and values[1] >= 0 and values[2] > 0 and isfinite(values[2])):
            raise content.fail(element, "kp and strength (in a URDF the joint's effort) must be positive, kd not "
                               f"negative; got kp {values[0]:g}, kd {values[1]:g}, strength {values[2]:g}")
        if not (isfinite(lowest) and isfinite(highest)):
            raise content.fail(element, "it turns without limits: give low and high")
        if gains.setdefault(joint.name, (values[0], values[1], values[2])) != tuple(values):
            raise content.fail(element, "another command gives this joint's servo other gains")
    return command(content, name, str(entry.get("unit", units(chosen, "rad", "m"))), low, high)


def command(content: Content, name: str, unit: str, low: list[float], high: list[float]) -> CommandSpec:
    """The command's spec."""
    try:
        return CommandSpec(name, (len(low),), unit, low=tuple(low), high=tuple(high))
    except SignalError as error:
        raise content.fail(f"commands.{name}", str(error)) from error


def per_item(
    content: Content, name: str, entry: Mapping[str, Any], key: str, count: int, default: list[float]
) -> list[float]:
    """``entry[key]`` as ``count`` numbers: one for all, or a list."""
    value = entry.get(key, default)
    values = value if isinstance(value, list) else [value] * count
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in values)
    if len(values) != count or not numbers or (key in entry and not all(map(isfinite, values))):
        raise content.fail(f"commands.{name}.{key}", f"one number or a list of {count} is needed, got {value!r}")
    return [float(x) for x in values]


def servo_parameters(gains: Mapping[str, tuple[float, float, float]]) -> dict[str, Parameter]:
    """``kp``, ``kd`` and ``strength`` of the added servos, in the order of ``gains``."""
    if not gains:
        return {}
    columns = zip(("kp", "kd", "strength"), zip(*gains.values()), ("N m/rad", "N m s/rad", "N m"))
    return {key: Parameter(values, values, values, unit, "the robot's YAML") for key, values, unit in columns}
