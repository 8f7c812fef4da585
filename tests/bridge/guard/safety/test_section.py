"""The ``safety`` section of ros.yaml: what is missing, unknown or impossible is named."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from temporeal.robots.motion.rate_limiter import at_rest, following, resting, stopping
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.fallback_actions import ACTIONS
from temporeal_bridge.guard.safety.profile import Ages, Profile
from temporeal_bridge.guard.safety.reasons import CODES, NOTHING
from temporeal_bridge.guard.safety.section import profile
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface

QUAD, ARM = load_robot("crazyflie"), load_robot("franka")
LEVEL = {"descend": 0.85, "gain": 5.0, "limit": 3.0, "landed_m": 0.06, "max_s": 6.0, "blind_s": 0.3}
FLYING: dict[str, Any] = {
    "stale_after_s": 0.1, "silent_after_s": 0.1, "level": LEVEL,
    "geofence": {"signal": "base_pos_w", "low": [-1, -1, 0], "high": [1, 1, 2]},
    "frozen": {"signals": ["base_pos_w"], "after_s": 0.2}, "jump": {"base_pos_w": 1.0}, "violated": "stop",
    "estop": {"required": True, "heartbeat_s": 0.3}, "unlock_below_m": 0.1,
    "commands": {"ctbr_cmd": {"stop": {"default": "level", "operator": "silence"}}}}
MOVING: dict[str, Any] = {
    "stale_after_s": 0.05, "silent_after_s": 0.1,
    "commands": {"joint_pos_cmd": {
        "stop": {"default": "ramp", "tracking": "hold"},
        "motion": {"margin": 0.02, "speed": 1.0, "acceleration": [5.0] * 7, "jerk": 1000.0},
        "tracking": {"signal": "joint_pos", "error": 0.2, "after_s": 0.2},
        "effort": {"position": "joint_pos", "velocity": "joint_vel", "kp": 1000.0, "kd": 50.0, "limit": [80.0] * 7},
        "start": {"signal": "joint_pos", "within": 0.3, "ramp_s": 2.0}}}}


def of(content: dict[str, Any], period: float = 0.02) -> Profile:
    robot = ARM if "joint_pos_cmd" in content.get("commands", {}) else QUAD
    name = "joint_pos_cmd" if robot is ARM else "ctbr_cmd"
    return profile(robot, content, robot.command(name), period)


def changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at ``a.b.c`` replaced, or taken away where it is ``...``."""
    out = deepcopy(content)
    *parents, last = path.split(".")
    row = out
    for key in parents:
        row = row[key]
    if value is ...:
        del row[last]
    else:
        row[last] = value
    return out


def test_what_is_written_is_what_holds():
    found = of(FLYING)
    assert found.action("operator") == "silence" and found.action("stale") == "level"
    assert found.geofence is not None and found.geofence.high == (1.0, 1.0, 2.0)
    assert (found.estop.required, found.estop.heartbeat_s, found.violated) == (True, 0.3, "stop")
    arm, spec = of(MOVING), ARM.command("joint_pos_cmd")
    assert arm.limits.low == pytest.approx(np.array(spec.low) + 0.02)
    assert arm.limits.high == pytest.approx(np.array(spec.high) - 0.02)
    assert arm.limits.speed.tolist() == [1.0] * 7 and arm.limits.jerk.tolist() == [1000.0] * 7
    assert arm.tracking is not None and arm.tracking.error == (0.2,) * 7


def test_a_robot_is_held_where_tracking_measures_it_or_else_its_start():
    assert of(MOVING).place == "joint_pos"
    for part in ("tracking", "start"):
        other = of(changed(MOVING, f"commands.joint_pos_cmd.{part}", None))
        assert other.place == "joint_pos" and other.action("tracking") == "hold"
    assert of(FLYING).place == ""


def test_without_level_a_fence_may_be_of_any_height():
    found = of({**FLYING, "level": None, "geofence": {"signal": "base_pos_w", "low": -400, "high": 400},
                "commands": {"ctbr_cmd": {"stop": {"default": "silence"}}}})
    assert found.geofence is not None and found.geofence.high == (400.0,) * 3


def test_what_is_left_out_is_not_checked():
    found = of({"stale_after_s": 1, "silent_after_s": 1, "commands": {"ctbr_cmd": {"stop": {"default": "silence"}}}})
    assert found.geofence is found.frozen is found.jump is found.tracking is found.effort is found.start is None
    assert np.isinf(found.limits.speed).all() and found.violated == "warn" and not found.estop.required


@pytest.mark.parametrize(("content", "path", "value", "words"), [
    (FLYING, "stale_after_s", ..., "the key 'stale_after_s' is missing"),
    (FLYING, "stale_after_s", -1, "safety.stale_after_s is -1; a positive number"),
    (FLYING, "stale_after_s", True, "a positive number"),
    (FLYING, "stale_after_s", float("nan"), "a positive number"),
    (FLYING, "silent_after_s", 0.03, "at least two periods are needed"),
    (FLYING, "speed", 1.0, "there is no key 'speed'; legal: stale_after_s"),
    (FLYING, "commands.ctbr_cmd", ..., "has no section for 'ctbr_cmd'"),
    (FLYING, "commands.ctbr_cmd.stop", ..., "the key 'stop' is missing"),
    (FLYING, "commands.ctbr_cmd.stop.default", ..., "the key 'default' is missing"),
    (FLYING, "commands.ctbr_cmd.stop.default", "brake", f"is 'brake'; legal: {', '.join(ACTIONS)}"),
    (FLYING, "commands.ctbr_cmd.stop.fire", "hold", "there is no key 'fire'; legal: default, policy"),
    (FLYING, "level", None, "level needs a quadrotor's ctbr_cmd and the section safety.level"),
    (FLYING, "level.gain", ..., "safety.level: the key 'gain' is missing"),
    (FLYING, "level.descend", 1, "level.descend is 1; a number is needed from 0.5 and below 1: .* the robot climbs"),
    (FLYING, "level.descend", 1e-300, "descend is 1e-300; a number is needed from 0.5 and below 1"),
    (FLYING, "level.descend", "0.8", "descend is '0.8'; a number is needed from 0.5"),
    *((FLYING, f"level.{key}", value, f"level.{key} is .*; a number is needed from 0.5 to 20: with less it does not")
      for key in ("gain", "limit") for value in (0, 1e-9, 21, float("inf"))),
    (FLYING, "level.landed_m", 3, "level.landed_m is 3; a number is needed from 0 to 0.5 m: .* the robot falls"),
    (FLYING, "level.landed_m", -0.1, "landed_m is -0.1; a number is needed from 0 to 0.5 m"),
    *((FLYING, "level.max_s", value, "max_s is .*; a number is needed from 1 to 60 s") for value in (0, 1e-3, 61)),
    *((FLYING, "level.blind_s", value, "blind_s is .*; a number is needed from 0 to 2 s") for value in (None, 300)),
    *((FLYING, "level", {**LEVEL, "sink_gain": value}, "level.sink_gain is .*; a number is needed from 0.05 to 5 s/m")
      for value in (-1, 0, 1e300)),
    *((FLYING, "level", {**LEVEL, "sink_m_s": value}, "level.sink_m_s is .*; a number is needed from 0.15 to 1 m/s")
      for value in (0, 0.05, 3)),
    *((FLYING, path, value, f"safety.{path} is .* s; at most 5 s is legal") for path, value in (
        ("stale_after_s", 100), ("silent_after_s", 100), ("stamps_within_s", 500), ("frozen.after_s", 1e9),
        ("estop.heartbeat_s", 1e9))),
    (FLYING, "commands.ctbr_cmd.stamps_within_s", 500, "commands.ctbr_cmd.stamps_within_s is 500 s; at most 5 s is"),
    (FLYING, "geofence.high", [1, 1, 400], r"geofence.high is .*400.0.; with safety.level its z may be at most 7.26 m"),
    (FLYING, "geofence.low", -1, r"geofence.low is .*-1.0.; with safety.level its z must be at least -0.24 m, 0.3 m"),
    (FLYING, "unlock_below_m", 3, "unlock_below_m is 3; a number above 0 and up to 0.5 m is needed"),
    (FLYING, "unlock_below_m", 0, "unlock_below_m is 0; a number above 0"),
    (FLYING, "geofence.signal", "pos", "has no signal 'pos'; known: base_pos_w"),
    (FLYING, "geofence.signal", "base_quat_w", r"of shape \(4,\); a position \(3,\) is needed"),
    (FLYING, "geofence.signal", "base_vel_w", "is .base_vel_w. in m/s; a position .3,. in m is needed: base_pos_w$"),
    (FLYING, "geofence.low", [2, -1, 0], "low \\[2.0, -1.0, 0.0\\] must be below high"),
    (FLYING, "geofence.low", [0, 0], "3 numbers, or one for all"),
    (FLYING, "frozen.signals", ["x"], "has no signal 'x'"),
    (FLYING, "frozen.signals", 3, "frozen.signals is 3; a list of signals"),
    (FLYING, "frozen.after_s", 10**400, "frozen.after_s is 1000.*; a positive number"),
    (FLYING, "jump", [1], r"safety.jump is \[1\]; a mapping from signals"),
    (FLYING, "estop", 0, "safety.estop: a mapping with required, heartbeat_s is needed, got 0"),
    (FLYING, "geofence.low", True, "geofence.low is True; 3 numbers, or one for all"),
    (FLYING, "commands.ctbr_cmd.stop.default", ["hold"], r"is \['hold'\]; legal: hold"),
    (FLYING, "level", {None: 1, "x": 2}, "there is no key None; legal: descend"),
    (FLYING, "jump", {"base_pos_w": 0}, "safety.jump.base_pos_w is 0"),
    (FLYING, "violated", "explode", "legal: stop, warn"),
    (FLYING, "estop.required", "yes", "legal: true, false"),
    (FLYING, "estop.heartbeat_s", None, "its loss would not be"),
    (FLYING, "estop.heartbeat_s", 0.001, "the guard looks every 0.02 s: at least two periods are needed"),
    (MOVING, "commands.joint_pos_cmd.stop.default", "level", "level needs a quadrotor"),
    (MOVING, "commands.joint_pos_cmd", {"stop": {"default": "hold"}}, "hold needs the section tracking, or start"),
    (MOVING, "commands.joint_pos_cmd.stop.default", "damp",  # to joint angles of 0
     "damp needs a command in rad/s or m/s or N m or N; joint_pos_cmd is in rad"),
    # its thrust would be kept
    (FLYING, "commands.ctbr_cmd.stop.default", "ramp", "ramp needs a command in rad or m; ctbr_cmd is in"),
    (FLYING, "commands.ctbr_cmd.stop.operator", "hold", "hold needs a command in rad or m"),
    (MOVING, "commands.joint_pos_cmd.motion.margin", -0.1, "each must be at least 0"),
    (MOVING, "commands.joint_pos_cmd.motion.margin", 9.0, "must be below high"),
    (MOVING, "commands.joint_pos_cmd.motion.speed", [1.0] * 6, "7 numbers, or one for all"),
    (MOVING, "commands.joint_pos_cmd.motion.speed", "fast", "7 numbers, or one for all"),
    (MOVING, "commands.joint_pos_cmd.motion.acceleration", ..., "a limited jerk needs a limited acceleration"),
    *((MOVING, f"commands.joint_pos_cmd.motion.{key}", value, f"motion.{key} is .*; each must be from 1e-06 to 1e.06:")
      for key in ("speed", "acceleration", "jerk") for value in (1e308, 1.1e6, 1e-7, [1.0] * 6 + [1e7])),
    (MOVING, "commands.joint_pos_cmd.tracking.error", 0, "each must be positive"),
    (MOVING, "commands.joint_pos_cmd.tracking.signal", "joint", "has no signal 'joint'"),
    (MOVING, "commands.joint_pos_cmd.effort.kp", ..., "the key 'kp' is missing"),
    (MOVING, "commands.joint_pos_cmd.effort.velocity", "grip_pos_w", "differ in size"),
    (MOVING, "commands.joint_pos_cmd.effort.velocity", "joint_pos", "effort.velocity: joint_pos is in rad; a signal i"),
    (MOVING, "commands.joint_pos_cmd.effort.velocity", "joint_torque", "joint_torque is in N m; a signal in rad/s or"),
    (MOVING, "commands.joint_pos_cmd.effort.position", "joint_vel", "joint_vel is in rad/s; .* a signal in rad: joint"),
    (MOVING, "commands.joint_pos_cmd.tracking.signal", "joint_vel", "tracking.signal: joint_vel is in rad/s; joint_po"),
    (MOVING, "commands.joint_pos_cmd.start.signal", "joint_vel", "start.signal: joint_vel is in rad/s; joint_pos_cmd"),
    (MOVING, "commands.joint_pos_cmd.start.signal", "grip_pos_w", "is in m; joint_pos_cmd, which is in rad, needs a s"),
    (MOVING, "commands.joint_pos_cmd.start.within", -1, "each must be positive"),
    (MOVING, "commands.joint_pos_cmd.self_collision", {"signal": "joint_vel", "margin": 0.02}, "no model whose joints"),
    (MOVING, "commands.joint_pos_cmd.self_collision", {"signal": "joint_pos", "margin": 0}, "a positive number"),
    (MOVING, "commands", [], "has no section for|a mapping"),
])
def test_a_wrong_section_is_named(content, path, value, words):
    wrong = changed(content, path, value)
    robot, name = (ARM, "joint_pos_cmd") if content is MOVING else (QUAD, "ctbr_cmd")
    with pytest.raises(SafetyError, match=words):
        profile(robot, wrong, robot.command(name), 0.02)


RATES = load_interface(ARM).safety


@pytest.mark.parametrize(("path", "value", "words"), [
    ("joint_vel_cmd.ends.range", "joint_effort_cmd", "a command of 'franka' in rad or m is needed, with 7 compon"),
    ("joint_vel_cmd.ends.range", ..., "the key 'range' is missing"),
    # of another kind, though of that size
    ("joint_vel_cmd.tracking.signal", "joint_pos", "joint_pos is in rad; joint_vel_cmd, .* needs a signal in rad/s: j"),
    ("joint_vel_cmd.start.signal", "joint_pos", "start.signal: joint_pos is in rad; joint_vel_cmd, which is in rad/s,"),
    ("joint_vel_cmd.ends.position", "joint_vel", "joint_vel is in rad/s; joint_vel_cmd, .* needs a signal in rad: joi"),
    ("joint_effort_cmd.ends.position", "joint_torque", "joint_torque is in N m; .* in N m, needs a signal in rad: joi"),
    ("joint_effort_cmd.ends.velocity", "joint_pos", "ends.velocity: joint_pos is in rad; a signal in rad/s or m/s is"),
    ("joint_effort_cmd.ends.velocity", "joint_torque", "ends.velocity: joint_torque is in N m; a signal in rad/s or m"),
    ("tool_vel_cmd.tracking.signal", "grip_pos_w", "is in m; .* needs a signal in m/s or m/s,rad/s: grip_vel_w"),
    ("tool_vel_cmd.start.signal", "grip_pos_w", "start.signal: grip_pos_w is in m; tool_vel_cmd, which is in m/s,rad/"),
    ("arm_cmd.start.signal", "joint_vel", "joint_vel is in rad/s; .* needs a signal in rad or rad,m: joint_pos"),
    ("arm_cmd.tracking.signal", "finger_pos", "finger_pos is in m; arm_cmd, .* in rad or rad,m: joint_pos"),
    ("joint_vel_cmd.ends.brake", 1e308, r"ends.brake is 1e.308; each must be from 1e-06 to 1e\+06: no robot"),
    ("joint_vel_cmd.ends.speed", 1e308, r"ends.speed is 1e.308; each must be from 1e-06 to 1e\+06: no robot"),
    ("tool_vel_cmd.self_collision.brake", 1e308, r"brake is 1e.308; each must be from 1e-06 to 1e\+06: no robot"),
    ("joint_vel_cmd.ends.velocity", "joint_vel", "there is no key 'velocity'"),
    ("joint_effort_cmd.ends.velocity", ..., "the key 'velocity' is missing"),
    ("joint_effort_cmd.ends.velocity", "grip_pos_w", "differ in size"),
    ("joint_effort_cmd.ends.gain", -1.0, "each must be positive"),
    ("joint_vel_cmd.ends.margin", 3.0, "it leaves nothing of the range of joint_pos_cmd"),
    ("joint_vel_cmd.ends", None, "where the robot comes to rest is known by the section ends"),
    ("joint_vel_cmd.effort", {"position": "joint_pos", "velocity": "joint_vel", "kp": 1, "kd": 1, "limit": 1},
     "effort is the law of servos that are given places"),
    ("joint_vel_cmd.stop.default", "ramp", "ramp needs a command in rad or m; joint_vel_cmd is in rad/s"),
    ("joint_effort_cmd.start.ramp_s", ..., "the key 'ramp_s' is missing"),
    ("joint_effort_cmd.stale_after_s", 0.2, "longer than safety.stale_after_s, 0.1 s: it may only be shorter"),
    ("joint_effort_cmd.stale_after_s", 0, "a positive number is needed"),
    ("joint_effort_cmd.stamps_within_s", 0.6, "longer than safety.stamps_within_s, 0.5 s: it may only be shorter"),
    ("joint_effort_cmd.start.at_rest", {"signal": "joint_vel"}, "the key 'below' is missing"),
    ("joint_effort_cmd.start.at_rest.signal", "speed", "has no signal 'speed'"),
    ("joint_effort_cmd.start.at_rest.signal", "joint_pos", "joint_pos is in rad; a signal in rad/s or m/s is needed"),
    ("joint_vel_cmd.start.at_rest.below", 0, "each must be positive"),
    ("joint_vel_cmd.start.within", ..., "the key 'within' is missing"),
    ("tool_vel_cmd.self_collision.late_s", ..., "the key 'late_s' is missing"),
    ("tool_vel_cmd.self_collision.velocity", ..., "the key 'velocity' is missing"),
    ("tool_vel_cmd.self_collision.velocity", "grip_vel_w", "differ in size"),
    ("tool_vel_cmd.self_collision.velocity", "joint_torque", "joint_torque is in N m; a signal in rad/s or m/s is nee"),
    ("tool_vel_cmd.self_collision.velocity", ["joint_vel"], "has no signal \\['joint_vel'\\]"),
    ("tool_vel_cmd.self_collision.signal", {"a": 1}, "has no signal"),
    ("tool_vel_cmd.self_collision.range", "joint_vel_cmd", "a command of 'franka' in rad or m is needed, with 7 comp"),
    ("joint_vel_cmd.self_collision", {"signal": "joint_pos", "margin": 0.02, "velocity": "joint_vel", "brake": 4.0,
                                      "range": "joint_pos_cmd", "late_s": 0.1}, "are for commands without ends"),
    ("tool_vel_cmd.self_collision.brake", [1.0, 2.0], "7 numbers, or one for all"),
    ("tool_vel_cmd.self_collision", {"signal": "joint_pos", "margin": 0.02}, "or by velocity, range, brake, late_s"),
    ("joint_pos_cmd.self_collision.late_s", 0.1, "there is no key 'late_s'"),
    ("joint_pos_cmd.start.at_rest", {"signal": "joint_vel", "below": 1}, "there is no key 'at_rest'"),
    ("joint_pos_cmd.ends", {"position": "joint_pos"}, "ends hold commands in rad/s or m/s or N m or N"),
    ("joint_pos_cmd.start.signal", ..., "the key 'signal' is missing"),
])
def test_a_wrong_section_of_speeds_or_efforts_is_named(path, value, words):
    with pytest.raises(SafetyError, match=words):
        name = path.partition(".")[0]
        profile(ARM, changed(RATES, f"commands.{path}", value), ARM.command(name), 0.02)


def test_limits_of_motion_are_numbers_that_motion_can_be_reckoned_with():
    """At both ends of what is legal, and of periods, a command goes on and comes to rest."""
    for speed, acceleration, jerk, period in product((1e-6, 1e6), (1e-6, 1e6), (1e-6, 1e6, None), (0.001, 0.05)):
        row = {"speed": speed, "acceleration": acceleration, "jerk": jerk}
        limits = of(changed(MOVING, "commands.joint_pos_cmd.motion", row), period).limits
        motion = at_rest(0.5 * (limits.low + limits.high))
        for target in (limits.high, limits.low, limits.low, limits.high):
            motion, _ = following(limits, motion, target)
            found = motion.command, motion.speed, motion.acceleration, resting(limits, motion)
            assert np.isfinite(found).all() and np.isfinite(stopping(limits, motion).command).all()


def test_every_code_can_have_an_action_of_its_own():
    stop = {"default": "level", **dict.fromkeys(CODES, "silence")}
    found = of(changed(FLYING, "commands.ctbr_cmd.stop", stop))
    assert {found.action(code) for code in CODES} == {"silence"}


def hand_monitor(*told: tuple[float, float, float]) -> StateMonitor:
    """What the guard of an Allegro hand saw: times [s], speed of the first joint [rad/s], age of the stamp [s]."""
    robot = load_robot("allegro_hand")
    content = load_interface(robot).safety
    monitor = StateMonitor(profile(robot, content, robot.command("joint_pos_cmd"), 0.05), [100.0])
    place = np.zeros(16)
    for now, speed, age in told:
        velocity = np.concatenate([[speed], np.zeros(15)])
        monitor.take(0, 10**12 - round(1e9 * age), {"joint_pos": place, "joint_vel": velocity}, now, 10**12)
    return monitor


def test_a_velocity_may_change_with_every_sample_that_was_lost() -> None:
    """A finger turns round within some milliseconds: what is a leap from one sample to the next is none after three."""
    assert hand_monitor((1.0, 5.0, 0.0), (1.01, -5.0, 0.0)).jump[0] == "jump"
    assert hand_monitor((1.0, 5.0, 0.0), (1.014, -5.0, 0.0)).jump[0] == "jump"  # late, but none was lost
    assert hand_monitor((1.0, 5.0, 0.0), (1.03, -5.0, 0.0)).jump == NOTHING
    assert hand_monitor((1.0, 15.0, 0.0), (1.03, -15.0, 0.0)).jump[0] == "jump"


def test_servos_are_judged_by_no_old_state_in_a_stop_and_by_one_of_another_clock() -> None:
    assert hand_monitor((1.0, 0.0, 0.0)).sees_motion(1.0)
    assert not hand_monitor((1.0, 0.0, 0.6)).sees_motion(1.0)
    assert hand_monitor((1.0, 0.0, -2.0)).sees_motion(1.0)  # of the future: clocks differ, the state is of now


# where the profile meets the topics


def on(robot: RobotSpec, interface: str, command: str, path: str, value: Any) -> Profile:
    """The profile on an interface, with the value at ``a.b.c`` of the section replaced."""
    found = load_interface(robot, interface)
    safety = changed(dict(found.safety), path, value)
    return profile_on(robot, replace(found, safety=safety), robot.command(command), 0.02)


@pytest.mark.parametrize(("robot", "interface", "command", "path", "period"), [
    (QUAD, "odometry", "ctbr_cmd", "stale_after_s", 0.01), (QUAD, "odometry", "ctbr_cmd", "frozen.after_s", 0.01),
    (QUAD, "mavros", "ctbr_cmd", "stale_after_s", 0.02), (ARM, "with_fingers", "arm_cmd", "stale_after_s", 1 / 30),
    (ARM, "forward_effort", "joint_effort_cmd", "commands.joint_effort_cmd.stale_after_s", 0.001)])
def test_a_time_in_which_no_message_need_come_is_refused(robot, interface, command, path, period):
    assert on(robot, interface, command, path, 1.01 * period).ages
    for value in (period, 0.5 * period):
        words = f"safety.{path} is {value:g} s, but topic '.*' comes every {period:.4g} s"
        with pytest.raises(SafetyError, match=words):
            on(robot, interface, command, path, value)


@pytest.mark.parametrize(("index", "rule", "signal"), [(0, "geofence", "base_pos_w"), (1, "frozen", "base_ang_vel_b")])
def test_no_rule_reads_what_is_sent_when_it_changes(index, rule, signal):
    """A source of it that died would never be seen."""
    found = load_interface(QUAD, "crazyswarm2")
    states = list(found.states)
    states[index] = replace(states[index], rate_hz=0)
    alive = {"signals": ["base_pos_w", "base_ang_vel_b"], "after_s": 0.2}
    still = replace(found, states=tuple(states), safety={**found.safety, "frozen": alive})
    words = f"the safety profile's {rule} reads {signal}, but topic '.*' is sent only when it changes"
    with pytest.raises(SafetyError, match=words):
        profile_on(QUAD, still, QUAD.command("ctbr_cmd"), 0.02)


def every_profile() -> list[Any]:
    """Robot, interface and command of each that a robot's ros.yaml has."""
    robots = [load_robot(name) for name in ("allegro_hand", "crazyflie", "franka", "leap_hand", "shadow_hand")]
    found = [(robot, load_interface(robot, name)) for robot in robots for name in {
        each for names in load_interface(robot).offers.values() for each in names}]
    return [pytest.param(robot, how, command, id=f"{robot.name}-{how.name}-{command}")
            for robot, how in found for command in how.commands]


@pytest.mark.parametrize(("robot", "interface", "command"), sorted(every_profile(), key=lambda row: str(row.id)))
def test_every_command_has_a_profile_on_each_of_its_interfaces(robot: RobotSpec, interface: Interface, command: str):
    found = profile_on(robot, interface, robot.command(command), 0.02)
    own = Ages(found.stale_after_s, found.stamps_within_s)
    others = Ages(0.1, interface.safety["stamps_within_s"], False)
    assert [age in (own, others) for age in found.ages] == [True] * len(interface.states)
    assert found.age(0) == own and found.oldest_s == max(age.stale_s for age in found.ages)


def test_of_each_topic_the_watch_asks_its_own_ages():
    """30 ms and 15 ms of the joints, 100 ms and 500 ms of what no rule reads; a topic of changes is never old."""
    content = load_interface(ARM).safety
    ages = [Ages(0.03, 0.015), Ages(0.1, 0.5, False), Ages(np.inf, None, False)]
    found = replace(profile(ARM, content, ARM.command("joint_effort_cmd"), 0.02), ages=ages)
    monitor = StateMonitor(found, [1000.0, 20.0, 0.0])

    def told(joints: float, cube: float, goal: float) -> tuple[str, str]:
        """How long ago each came."""
        monitor.freshness.at = [10.0 - joints, 10.0 - cube, 10.0 - goal]
        return monitor.freshness.stale(10.0)

    assert monitor.freshness.stale(10.0) == ("stale", "the newest state is inf s old, 0.030 s is allowed")
    assert told(0.025, 0.095, 9.0) == NOTHING and monitor.freshness.fresh(10.0)
    assert told(0.035, 0.0, 0.0) == ("stale", "the newest state is 0.035 s old, 0.030 s is allowed")
    assert told(0.0, 0.105, 0.0) == ("stale", "the newest state is 0.105 s old, 0.100 s is allowed")
    assert monitor.freshness.seen(10.0) and not monitor.freshness.fresh(10.0)
    for offset, who, text in (((0.014, 0.49, 9.0), "", ""), ((0.02, 0.0, 0.0), "stamps", "0.015 s is allowed"),
                              ((-0.02, 0.49, 0.0), "stamps", "0.020 s after it arrived, 0.015 s is allowed"),
                              ((0.0, 0.51, 0.0), "stamps", "0.510 s before it arrived, 0.5 s is allowed")):
        monitor.freshness.offset = list(offset)
        code, said = monitor.freshness.stamps()
        assert code == who and text in said
        assert monitor.freshness.old == (offset[0] > 0.015)  # of the joints, which rules read
        assert (monitor.freshness.stamps(read=True) == NOTHING) == (abs(offset[0]) <= 0.015)
    for late, seen in (((0.02, 0.09, 9.0), True), ((0.03, 0.0, 0.0), False), ((0.0, 0.1, 0.0), True)):
        monitor.freshness.offset, monitor.freshness.mono_offset = list(late), list(late)
        assert monitor.sees_attitude(10.0) == seen
