"""Users' own robots: a :class:`RobotSpec` from an MJCF or URDF file, read with the standard library and YAML only.

    robot = load_robot("models/arm.xml")     # signals joint_pos, joint_vel, base_*; command ctrl_cmd

What the file says is taken as it is: joints, their ranges, actuators and their control ranges, a key called ``home``.
What it cannot say stands beside it, in ``models/arm.robot.yaml`` (each entry is optional)::

    kind: arm                        # for people to read
    joints: [shoulder, elbow]        # what joint_pos and joint_vel hold, in this order; else every hinge and slide
    commands:
      ctrl_cmd: {actuators: [motor1, motor2], delay_steps: 20}       # actuators of the model
      joint_pos_cmd: {joints: [shoulder, elbow], kp: [100, 50], kd: 2, strength: 20}   # position servos, added here
    damping: {elbow: 0.5}            # of hinges and slides, N m s/rad; or one number for all of them
    armature: 0.01                   # kg m^2
    frictionloss: 0.1                # N m
    poses: {grip: tool0}             # signals grip_pos_w, grip_quat_w, grip_vel_w of a body, link or site
    base: hull                       # body of the signals base_*; none; else the first body with a free joint
    home: {shoulder: 0.3, elbow: -1} # rad or m; else the model's key "home", else as the model is drawn
                                     # (out of range there: the middle of the range)
    exclude: [[upper, tool0]]        # pairs of bodies that do not touch each other
    packages: {my_robot: ../my_robot}  # folders of package://my_robot/...; else a folder above with this name
    rate_hz: 500                     # of the signals
    license: MIT

A URDF has no actuators, so its commands are declared this way; ``strength`` (N m, N) is then the joint's effort unless
given. ``delay_steps`` is how many time steps of controls the simulator keeps: the room for ``command_delay``. Joints
that follow others (``mimic``, ``<equality><joint>``) get their home from their leader. Elements without a name get one:
joint i of the model is ``joint<i>``, an actuator is called like what it drives, the body of a free joint ``base``; a
name that is taken is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.model_files import QPOS_SIZE, Content, Joint, RobotFileError, frames, read_model
from temporeal.robots.search_path import SPEC
from temporeal.robots.signals import CommandSpec, SignalError, SignalSpec, schema
from temporeal.robots.spec import Changes, Parameter, RobotSpec, Source

DYNAMICS = ("damping", "armature", "frictionloss")
SIDECAR = ("model", "tool", "control_hz", "kind", "joints", "commands", *DYNAMICS, "poses", "base", "home", "exclude",
           "packages", "rate_hz", "license")
COMMAND = ("actuators", "joints", "kp", "kd", "strength", "low", "high", "unit", "delay_steps")
SERVO_ONLY = ("kp", "kd", "strength")


def user_robot(name: str, folder: Path | None = None) -> RobotSpec:
    """The spec of the robot in the file or folder ``name`` (or in ``folder``, where ``name`` is its name in the search
    path); the robot is called ``name``, so that it is found again.

    Raises:
        FileNotFoundError: there is no such file.
        RobotFileError: the model or the YAML beside it breaks a rule.
    """
    place = folder or Path(name)
    if (place / SPEC).is_file():
        beside = read_sidecar(place / SPEC)
        return describe(name, read_model(place / str(beside.get("model", "model.urdf"))), beside)
    content = read_model(place)
    return describe(name, content, read_sidecar(sidecar_path(content.path)))


def sidecar_path(path: Path) -> Path:
    """``models/arm.xml`` -> ``models/arm.robot.yaml``."""
    return path.with_suffix(".robot.yaml")


# ---------------------------------------------------------------- the YAML beside it


def read_sidecar(path: Path) -> dict[str, Any]:
    """The YAML file, its keys checked; empty if there is none."""
    if not path.exists():
        return {}
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise RobotFileError(f"{path}: not YAML: {error}") from error
    check_keys(str(path), given, SIDECAR)
    for key in ("commands", "poses"):
        for name in given.get(key, {}):
            if not (isinstance(name, str) and name.isidentifier()):
                raise RobotFileError(f"{path}: {key}: a name is an identifier (letters, digits, underscore), got "
                                     f"{name!r}")
    for name, entry in given.get("commands", {}).items():
        check_command(f"{path}: commands.{name}", entry)
    return dict(given)


def check_command(where: str, entry: Any) -> None:
    """Check one entry below ``commands``."""
    check_keys(where, entry, COMMAND)
    if ("actuators" in entry) == ("joints" in entry):
        raise RobotFileError(f"{where}: give either actuators (of the model) or joints (for position servos, with kp)")
    servo = [key for key in SERVO_ONLY if key in entry]
    if "actuators" in entry and servo:
        raise RobotFileError(f"{where}: {servo[0]} is for joints (position servos added here); the model's actuators "
                             "have their own")
    if not entry.get("actuators", entry.get("joints")):
        raise RobotFileError(f"{where}: it drives nothing: list one name at least")
    steps = entry.get("delay_steps", 0)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise RobotFileError(f"{where}: delay_steps is a whole number of time steps >= 0, got {steps!r}")


def check_keys(where: str, given: Any, legal: tuple[str, ...]) -> None:
    """Check that ``given`` is a mapping with ``legal`` keys."""
    if not isinstance(given, Mapping):
        raise RobotFileError(f"{where}: a mapping with {', '.join(legal)} is needed, got {given!r}")
    unknown = [key for key in given if key not in legal]
    if unknown:
        raise RobotFileError(f"{where}: no entry {unknown[0]!r}; legal: {', '.join(legal)}")
    for key in ("commands", "poses", "home", "packages"):
        if key in legal and not isinstance(given.get(key, {}), Mapping):
            raise RobotFileError(f"{where}: {key} is a mapping, got {given[key]!r}")


# ---------------------------------------------------------------- the spec


def describe(name: str, content: Content, beside: Mapping[str, Any]) -> RobotSpec:
    """The spec of a model and its sidecar file."""
    joints = chosen_joints(content, beside.get("joints"))
    rate = beside.get("rate_hz", 0.0)
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < inf:
        raise content.fail(f"{sidecar_path(content.path).name}: rate_hz", f"a rate is a number >= 0, got {rate!r}")
    signals, sources = joint_signals(joints, rate)
    for specs, places in (base_signals(content, beside.get("base", ""), rate),
                          pose_signals(content, beside.get("poses", {}), rate)):
        signals += specs
        sources |= places
    twice = [s.name for i, s in enumerate(signals) if s.name in {other.name for other in signals[:i]}]
    if twice:
        raise content.fail(f"{sidecar_path(content.path).name}: poses", f"two signals would be called {twice[0]!r}: "
                           "choose another name")
    commands, actuators, servos = all_commands(content, beside)
    positions = home_positions(content, joints, beside.get("home", {}))
    return RobotSpec(
        name=name, kind=str(beside.get("kind", "robot")), signals=schema(*signals), commands=commands,
        limits={f"{j.name}_vel": (-j.speed, j.speed) for j in joints if isfinite(j.speed)},
        home={"joint_pos": positions, "joint_vel": (0.0,) * len(joints)} if joints else {},
        parameters=servos, model=content.path, license=str(beside.get("license", "the user's own")), sources=sources,
        actuators=actuators, changes=changes(content, beside, actuators), tool=str(beside.get("tool", "")),
        control_hz=float(beside.get("control_hz", 0.0)))


def chosen_joints(content: Content, wanted: Any) -> list[Joint]:
    """The hinges and slides in the robot's joint signals."""
    plain = {joint.name: joint for joint in content.joints if QPOS_SIZE[joint.kind] == 1}
    if wanted is None:
        balls = [joint.name for joint in content.joints if joint.kind == "ball"]
        if balls:
            raise content.fail(f'<joint name="{balls[0]}">', "a ball joint has no single position: list the joints "
                               f"that count under joints: in {sidecar_path(content.path).name}")
        return list(plain.values())
    return [plain[joint] for joint in known(content, "joints", wanted, plain)]


def known(content: Content, key: str, wanted: Any, names: Iterable[str]) -> list[str]:
    """``wanted`` as a list of distinct names out of ``names``."""
    where, legal = f"{sidecar_path(content.path).name}: {key}", list(names)
    if not isinstance(wanted, list) or len({str(word) for word in wanted}) != len(wanted):
        raise content.fail(where, f"a list of different names is needed, got {wanted!r}")
    for word in wanted:
        if word not in legal:
            raise content.fail(where, f"the model has no {word!r}; known: {', '.join(legal)}")
    return [str(word) for word in wanted]


def units(joints: Iterable[Joint], hinge: str, slide: str) -> str:
    """The unit of values of ``joints``, both if they differ."""
    kinds = dict.fromkeys(joint.kind for joint in joints)
    return ",".join(hinge if kind == "hinge" else slide for kind in kinds)


def joint_signals(joints: list[Joint], rate: float) -> tuple[list[SignalSpec], dict[str, Source]]:
    """``joint_pos`` and ``joint_vel``."""
    if not joints:
        return [], {}
    shape, names = (len(joints),), tuple(joint.name for joint in joints)
    specs = [SignalSpec("joint_pos", shape, units(joints, "rad", "m"), rate_hz=rate),
             SignalSpec("joint_vel", shape, units(joints, "rad/s", "m/s"), rate_hz=rate)]
    return specs, {spec.name: Source(spec.name, names) for spec in specs}


def base_signals(content: Content, wanted: Any, rate: float) -> tuple[list[SignalSpec], dict[str, Source]]:
    """Pose and velocities of the robot's base: the body ``wanted``, else the first freely moving body, if any."""
    free = next((joint.body for joint in content.joints if joint.kind == "free"), None)
    if wanted in ("none", None) or (wanted == "" and free is None):
        return [], {}
    body = str(wanted or free)
    if wanted != "":
        known(content, "base", [wanted], frames(content))
    specs = [SignalSpec("base_pos_w", (3,), "m", "w", rate_hz=rate),
             SignalSpec("base_quat_w", (4,), "wxyz", "w", rate_hz=rate),
             SignalSpec("base_vel_w", (3,), "m/s", "w", rate_hz=rate),
             SignalSpec("base_ang_vel_b", (3,), "rad/s", "b", rate_hz=rate)]
    kinds = ("pos", "quat", "lin_vel", "ang_vel_b")
    return specs, {spec.name: Source(kind, (body,)) for spec, kind in zip(specs, kinds)}


def pose_signals(
    content: Content, poses: Mapping[str, Any], rate: float
) -> tuple[list[SignalSpec], dict[str, Source]]:
    """``<name>_pos_w``, ``<name>_quat_w`` and ``<name>_vel_w`` of bodies, links or sites."""
    legal = frames(content)
    specs: list[SignalSpec] = []
    sources: dict[str, Source] = {}
    for name, place in poses.items():
        known(content, f"poses.{name}", [place], legal)
        for kind, suffix, size, unit in (("pos", "pos_w", 3, "m"), ("quat", "quat_w", 4, "wxyz"),
                                         ("lin_vel", "vel_w", 3, "m/s")):
            specs.append(SignalSpec(f"{name}_{suffix}", (size,), unit, "w", rate_hz=rate))
            sources[specs[-1].name] = Source(kind, (str(place),))
    return specs, sources


def home_positions(content: Content, joints: list[Joint], given: Mapping[str, Any]) -> tuple[float, ...]:
    """Position of each joint at home; followers are placed by their leaders."""
    known(content, "home", list(given), [joint.name for joint in joints])
    plain = {joint.name: joint for joint in content.joints if QPOS_SIZE[joint.kind] == 1}
    found: dict[str, float] = {}

    def position(joint: Joint) -> float:
        if joint.name not in found:
            follow = content.followers.get(joint.name)
            if follow is None:
                found[joint.name] = own_home(content, joint, given)
            else:
                refuse_follower(content, "home", joint.name, given)
                leader = plain.get(follow.leader)
                way = 0.0 if leader is None else position(leader) - leader.rest
                found[joint.name] = follow.position(joint.rest, way)
        return found[joint.name]

    for joint in joints:
        value, follow = position(joint), content.followers.get(joint.name)
        if not joint.low - 1e-6 <= value <= joint.high + 1e-6:
            rule = f"{value:.6g} is not within the range {joint.low:g} to {joint.high:g}"
            if follow is not None:
                rule += f": {led(follow.leader)}; give {follow.leader or joint.name} another home in " \
                        f"{sidecar_path(content.path).name}"
            raise content.fail(f'home of <joint name="{joint.name}">', rule)
    return tuple(found[joint.name] for joint in joints)


def own_home(content: Content, joint: Joint, given: Mapping[str, Any]) -> float:
    """The home of a joint that follows none."""
    rest = joint.rest if joint.low <= joint.rest <= joint.high else (joint.low + joint.high) / 2
    value = given.get(joint.name, content.home.get(joint.name, rest))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise content.fail(f'home of <joint name="{joint.name}">', f"a number (rad or m) is needed, got {value!r}")
    return float(value)


def led(leader: str) -> str:
    """Reason for a follower's position, for messages."""
    return f"it follows {leader!r}" if leader else "an equality holds it"


def refuse_follower(content: Content, key: str, name: str, given: Iterable[str]) -> None:
    """Refuse a value for a joint whose position is decided by another."""
    if name in content.followers and name in given:
        follow = content.followers[name]
        advice = f"give {follow.leader!r} instead" if follow.leader else "leave it out"
        raise content.fail(f"{sidecar_path(content.path).name}: {key}: {name!r}",
                           f"{led(follow.leader)} ({follow.where}): {advice}")


# ---------------------------------------------------------------- what a simulator changes in the model


def changes(content: Content, beside: Mapping[str, Any], actuators: Mapping[str, tuple[str, ...]]) -> Changes:
    """Joint dynamics, lengths of control histories, excluded contacts, folders of packages."""
    history: dict[str, int] = {}
    for command_name, entry in (beside.get("commands") or {}).items():
        for name in actuators[command_name]:
            history[name] = max(history.get(name, 0), entry.get("delay_steps", 0))
    return Changes(
        joints={key: joint_values(content, key, beside[key]) for key in DYNAMICS if key in beside},
        history={name: steps for name, steps in history.items() if steps},
        exclude=excluded(content, beside.get("exclude", [])), packages=packages(content, beside.get("packages", {})))


def joint_values(content: Content, key: str, given: Any) -> dict[str, float]:
    """A number >= 0 for each hinge and slide, or for the named ones."""
    plain = [joint.name for joint in content.joints if QPOS_SIZE[joint.kind] == 1]
    values = dict(given) if isinstance(given, Mapping) else dict.fromkeys(plain, given)
    known(content, key, list(values), plain)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < inf:
            raise content.fail(f"{sidecar_path(content.path).name}: {key}", "a number >= 0, or one for each joint "
                               f"named, is needed, got {value!r} for {name!r}")
    return {name: float(value) for name, value in values.items()}


def excluded(content: Content, given: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of bodies that do not touch each other."""
    where = f"{sidecar_path(content.path).name}: exclude"
    if not isinstance(given, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        raise content.fail(where, f"a list of pairs of bodies, [[a, b], ...], is needed, got {given!r}")
    legal = frames(content)
    return tuple((str(a), str(b)) for a, b in (known(content, "exclude", pair, legal) for pair in given))


def packages(content: Content, given: Mapping[str, Any]) -> dict[str, Path]:
    """Folders of ROS packages; relative ones start at the model's folder."""
    found = {}
    for name, folder in given.items():
        found[str(name)] = place = content.path.parent / str(folder)
        if not place.is_dir():
            raise content.fail(f"{sidecar_path(content.path).name}: packages.{name}", f"there is no folder {place}")
    return found


# ---------------------------------------------------------------- commands

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
        if "joints" in entry:
            commands[name] = servo_command(content, name, entry, gains)
            actuators[name] = tuple(entry["joints"])
        else:
            commands[name] = model_command(content, name, entry)
            actuators[name] = tuple(entry["actuators"])
    return commands, actuators, servo_parameters(gains)


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
                               f"{sidecar_path(content.path).name}")
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
