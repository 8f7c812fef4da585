"""Users' own robots: a :class:`RobotSpec` from an MJCF or URDF file, read with the standard library and YAML only.

    robot = load_robot("models/arm.xml")     # signals joint_pos, joint_vel, base_*; command ctrl_cmd
    robot = load_robot("my_arm")             # a folder with spec.yaml, the model and ros.yaml: `temporeal robot new`

What the file says is taken as it is: joints, their ranges, actuators and their control ranges, a key called ``home``.
What it cannot say stands in the folder's ``spec.yaml``, or beside the file in ``models/arm.robot.yaml`` (each entry is
optional)::

    model: model.urdf                # of a folder only: a file in it
    kind: arm                        # arm, hand, quadrotor, mobile_base or legged: tasks and interfaces ask for it
    joints: [shoulder, elbow]        # what joint_pos and joint_vel hold, in this order; else every hinge and slide
    commands:
      ctrl_cmd: {actuators: [motor1, motor2], delay_steps: 20}       # actuators of the model
      joint_pos_cmd: {joints: [shoulder, elbow], kp: [100, 50], kd: 2, strength: 20}   # position servos, added here
      joint_vel_cmd: {joints: [shoulder, elbow], drives: velocity}   # or effort: of the servos above, limited by limits
    damping: {elbow: 0.5}            # of hinges and slides, N m s/rad; or one number for all of them
    armature: 0.01                   # kg m^2
    frictionloss: 0.1                # N m
    poses: {grip: tool0}             # signals grip_pos_w, grip_quat_w, grip_vel_w of a body, link or site
    tool: grip                       # which of the poses is the arm's tool
    gripper: {command: arm_cmd, joints: [finger], bodies: [left, right], open: 0.04, closed: 0}   # signal finger_pos
    limits: {velocity: {elbow: 2}, acceleration: 8, jerk: 100, effort: {elbow: 20}}   # by joint, or one for all
    defaults: {jerk: assumed}        # which limits are assumed, and why: for people to read
    control_hz: 25                   # how often tasks set a command
    base: hull                       # body of the signals base_*; none; else the first body with a free joint
    home: {shoulder: 0.3, elbow: -1} # rad or m; else the model's key "home", else as the model is drawn
                                     # (out of range there: the middle of the range)
    exclude: [[upper, tool0]]        # pairs of bodies that do not touch each other
    capsules: {links: {upper: [[0, 0, 0, 0, 0, 0.3, 0.05]]}, loose: [[upper, tool0]]}   # what the guard keeps apart
    packages: {my_robot: ../my_robot}  # folders of package://my_robot/...; else a folder above with this name
                                     # (of a folder: in it)
    rate_hz: 500                     # of the signals
    symmetry: {joint_pos: {sign: [-1, 1]}}   # its mirror image: robots/symmetry.py, robots/user_robots/symmetry.py
    license: MIT

A URDF has no actuators, so its commands are declared this way; ``strength`` (N m, N) is then the joint's effort unless
given. ``delay_steps`` is how many time steps of controls the simulator keeps: the room for ``command_delay``. Joints
that follow others (``mimic``, ``<equality><joint>``) get their home from their leader. Elements without a name get one:
joint i of the model is ``joint<i>``, an actuator is called like what it drives, the body of a free joint ``base``; a
name that is taken is skipped.
"""


from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from temporeal.robots.handed_over.files import inside
from temporeal.robots.model_files import Content, Joint, RobotFileError, read_model
from temporeal.robots.search_path import SPEC
from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import RobotSpec, Source
from temporeal.robots.user_robots.commands import all_commands, drive_commands
from temporeal.robots.user_robots.entries import FOLDER, SIDECAR, at_least_zero, read_entries, sidecar_path
from temporeal.robots.user_robots.limits import gripper_of, motion_limits
from temporeal.robots.user_robots.link_shapes import link_shapes
from temporeal.robots.user_robots.mobile_bases import mobile_base
from temporeal.robots.user_robots.model_changes import changes
from temporeal.robots.user_robots.own_files import check_files
from temporeal.robots.user_robots.quadrotors import quadrotor, ros_of
from temporeal.robots.user_robots.signals import (
    base_signals,
    chosen_joints,
    finger_signal,
    home_positions,
    joint_signals,
    pose_signals,
)
from temporeal.robots.user_robots.symmetry import with_symmetry

KINDS = ("arm", "hand", "quadrotor", "mobile_base", "legged")


def user_robot(name: str, folder: Path | None = None) -> RobotSpec:
    """The spec of the robot in the file or folder ``name`` (or in ``folder``, where ``name`` is its name in the search
    path); the robot is called ``name``, so that it is found again.

    Raises:
        FileNotFoundError: there is no such file.
        RobotFileError: the model or the YAML breaks a rule.
        Refused: the folder names a file outside itself.
    """
    place = folder or Path(name)
    if (place / SPEC).is_file():
        return in_folder(name, place)
    content = read_model(place)
    beside = read_entries(sidecar_path(content.path), SIDECAR)
    return with_symmetry(describe(name, content, beside), str(sidecar_path(content.path)), beside)


def in_folder(name: str, folder: Path) -> RobotSpec:
    """The spec of the robot in a folder with ``spec.yaml``."""
    given = read_entries(folder / SPEC, FOLDER, within=folder)
    if not isinstance(given.get("model"), str):
        raise RobotFileError(f"{folder / SPEC}: model names the MJCF or URDF file in the folder, got "
                             f"{given.get('model')!r}")
    if given.get("kind") not in KINDS:
        raise RobotFileError(f"{folder / SPEC}: kind is one of {', '.join(KINDS)}; got {given.get('kind')!r}")
    model = inside(folder, folder / given["model"])
    check_files(folder, model, given.get("packages", {}))
    return with_symmetry(of_kind(name, folder, model, given), str(folder / SPEC), given)


def of_kind(name: str, folder: Path, model: Path, given: Mapping[str, Any]) -> RobotSpec:
    """The spec by the kind that the folder's ``spec.yaml`` names."""
    if given["kind"] == "quadrotor":
        return quadrotor(name, folder, model, given)
    if given["kind"] == "mobile_base" and "mobile_base" in given:
        return mobile_base(name, folder, model, given)
    content = replace(read_model(model), folder=folder)
    return replace(describe(name, content, given), ros=ros_of(folder))


def describe(name: str, content: Content, beside: Mapping[str, Any]) -> RobotSpec:
    """The spec of a model and its sidecar file."""
    joints = chosen_joints(content, beside.get("joints"))
    rate = at_least_zero(content, "rate_hz", beside.get("rate_hz", 0.0))
    commands, actuators, servos = all_commands(content, beside)
    gripper = gripper_of(content, beside.get("gripper", {}), commands)
    fingers = [joint for joint in content.joints if gripper is not None and joint.name in gripper.joints]
    signals, sources = all_signals(content, beside, joints, fingers, rate)
    motion, assumed = motion_limits(content, joints, beside.get("limits", {}), ranges(commands, actuators))
    moving, movers, drives = drive_commands(content, beside, motion, [joint.name for joint in joints], actuators)
    commands, actuators = {**commands, **moving}, {**actuators, **movers}
    speeds = {joint.name: joint.speed for joint in joints if isfinite(joint.speed)}
    return RobotSpec(
        name=name, kind=str(beside.get("kind", "robot")), signals=schema(*signals), commands=commands,
        limits={f"{joint}_vel": (-speed, speed) for joint, speed in speeds.items()},
        home=home_of(content, joints, fingers, beside.get("home", {})), parameters=servos, model=content.path,
        license=str(beside.get("license", "the user's own")), sources=sources, actuators=actuators,
        changes=changes(content, beside, actuators), drives=drives, tool=tool_of(content, beside),
        motion=motion, gripper=gripper,
        control_hz=at_least_zero(content, "control_hz", beside.get("control_hz", 0.0)),
        shapes=link_shapes(content, beside.get("capsules", {})),
        defaults={**content.notes, **assumed, **said_defaults(beside)})


def said_defaults(beside: Mapping[str, Any]) -> dict[str, str]:
    """What the YAML itself calls assumed."""
    return {str(key): str(why) for key, why in beside.get("defaults", {}).items()}


def all_signals(
    content: Content, beside: Mapping[str, Any], joints: list[Joint], fingers: list[Joint], rate: float
) -> tuple[list[SignalSpec], dict[str, Source]]:
    """The robot's signals, and where a simulator finds each."""
    signals, sources = joint_signals(joints, rate)
    for specs, places in (finger_signal(fingers, rate), base_signals(content, beside.get("base", ""), rate),
                          pose_signals(content, beside.get("poses", {}), rate)):
        signals += specs
        sources |= places
    twice = [s.name for i, s in enumerate(signals) if s.name in {other.name for other in signals[:i]}]
    if twice:
        raise content.fail(f"{content.beside}: poses", f"two signals would be called {twice[0]!r}: choose another name")
    return signals, sources


def tool_of(content: Content, beside: Mapping[str, Any]) -> str:
    """The pose that is the tool's."""
    tool, poses = beside.get("tool", ""), beside.get("poses", {})
    if tool and tool not in poses:
        raise content.fail(f"{content.beside}: tool", f"one of poses is needed ({', '.join(poses) or 'none given'}), "
                           f"got {tool!r}")
    return str(tool)


def home_of(
    content: Content, joints: list[Joint], fingers: list[Joint], given: Mapping[str, Any]
) -> dict[str, tuple[float, ...]]:
    """The state at home by signal."""
    more = [joint for joint in fingers if joint not in joints]
    positions = dict(zip((joint.name for joint in [*joints, *more]), home_positions(content, [*joints, *more], given)))
    home = {"joint_pos": tuple(positions[j.name] for j in joints), "joint_vel": (0.0,) * len(joints)} if joints else {}
    return {**home, "finger_pos": tuple(positions[j.name] for j in fingers)} if fingers else home


def ranges(
    commands: Mapping[str, CommandSpec], actuators: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[float, float]]:
    """The limits of positions that commands set, by actuator."""
    return {name: (low, high) for key, spec in commands.items() if "/s" not in spec.unit and spec.unit[:1] in ("r", "m")
            for name, low, high in zip(actuators[key], spec.low, spec.high)}
