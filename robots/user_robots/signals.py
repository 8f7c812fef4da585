"""Signals of a user's robot, where a simulator finds them, and its home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from temporeal.robots.model_files import QPOS_SIZE, Content, Joint, frames
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import Source
from temporeal.robots.user_robots.entries import known, number


def chosen_joints(content: Content, wanted: Any) -> list[Joint]:
    """The hinges and slides in the robot's joint signals."""
    plain = {joint.name: joint for joint in content.joints if QPOS_SIZE[joint.kind] == 1}
    if wanted is None:
        balls = [joint.name for joint in content.joints if joint.kind == "ball"]
        if balls:
            raise content.fail(f'<joint name="{balls[0]}">', "a ball joint has no single position: list the joints "
                               f"that count under joints: in {content.beside}")
        return list(plain.values())
    return [plain[joint] for joint in known(content, "joints", wanted, plain)]


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


def finger_signal(fingers: list[Joint], rate: float) -> tuple[list[SignalSpec], dict[str, Source]]:
    """``finger_pos`` of a gripper's joints."""
    if not fingers:
        return [], {}
    spec = SignalSpec("finger_pos", (len(fingers),), units(fingers, "rad", "m"), rate_hz=rate)
    return [spec], {spec.name: Source("joint_pos", tuple(joint.name for joint in fingers))}


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
            rule = f"{value:.6g} is not within the range {joint.low:g} to {joint.high:g} {units([joint], 'rad', 'm')}"
            if follow is not None:
                rule += f": {led(follow.leader)}; give {follow.leader or joint.name} another home in " \
                        f"{content.beside}"
            raise content.fail(f'home of <joint name="{joint.name}">', rule)
    return tuple(found[joint.name] for joint in joints)


def own_home(content: Content, joint: Joint, given: Mapping[str, Any]) -> float:
    """The home of a joint that follows none."""
    rest = joint.rest if joint.low <= joint.rest <= joint.high else (joint.low + joint.high) / 2
    return number(content, f'home of <joint name="{joint.name}">', given.get(joint.name, content.home.get(
        joint.name, rest)), "a number (rad or m)")


def led(leader: str) -> str:
    """Reason for a follower's position, for messages."""
    return f"it follows {leader!r}" if leader else "an equality holds it"


def refuse_follower(content: Content, key: str, name: str, given: Iterable[str]) -> None:
    """Refuse a value for a joint whose position is decided by another."""
    if name in content.followers and name in given:
        follow = content.followers[name]
        advice = f"give {follow.leader!r} instead" if follow.leader else "leave it out"
        raise content.fail(f"{content.beside}: {key}: {name!r}",
                           f"{led(follow.leader)} ({follow.where}): {advice}")
