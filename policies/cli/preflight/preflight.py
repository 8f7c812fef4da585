"""``temporeal doctor --artifact``: what is wrong with this robot on this bus, before anything moves.

Pure functions over what was heard (:mod:`temporeal.policies.cli.preflight.listening`). Each yields findings of one
line; ``fail`` is what would stop a flight, or should; ``warn`` is what a person must look at.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.cli.preflight.listening import CommandHeard, Heard, StateHeard, listen
from temporeal.policies.cli.verbs.doctor import Check, guarded
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, Manifest, added_signals
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_bridge.codecs.codec import unstamped
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.checks.stop_button import BOOL, buttons
from temporeal_bridge.guard.safety.checked_values import SafetyError, is_rate
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.profile import Ages, Profile
from temporeal_bridge.interface.checks import check_reads
from temporeal_bridge.interface.interface import Interface, InterfaceError, PictureTopic, StateTopic
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.process.scheduling import AHEAD, FIFO_PRIORITY
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import Peer, QoS, TransportError, mismatch, qos_named

NODE = "temporeal_doctor"
FUTURE_S = 0.001  # clocks kept by NTP in one network agree to a millisecond; no message comes before it was sent
STEP_S = 0.02  # a clock that is steered moves by 0.5 ms a second at most (adjtime), so this is a step
SLOW, MISSING = 0.5, 0.9  # shares of the stated rate
FAST = 1.5
GAP_PERIODS = 3  # a single lost sample is what the controller is made for
REPEATED = 0.1  # share of messages whose stamp is the one before
ENOUGH = 10  # samples before "it never changes" means anything
DEGREES = 180.0 / np.pi
SLACK = 0.01  # share of a range by which a calibrated robot may read beyond its own limit
KEPT = 4  # items of a list that are shown
LARGEST = 64  # components of a signal that is compared one by one; larger ones are pictures

Propose = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""The artifact's first command for the signals of the robot, from the memory that a mission begins with."""


@dataclass(frozen=True)
class Plan:
    """What is going to run: the robot as it should be, and the artifact.

    Attributes:
        profile: what the guard will demand of the artifact's command.
        command: that command.
        golden: the artifact's recorded trace by signal name, [T, *shape]; it reads these signals.
        propose: its first command; None where it cannot be loaded.
    """

    robot: RobotSpec
    interface: Interface
    profile: Profile
    command: CommandSpec
    golden: Mapping[str, np.ndarray] = field(default_factory=dict)
    propose: Propose | None = None


# the graph


def present(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every state topic is there, of the stated type, from one publisher, with a QoS that connects."""
    for state in heard.states:
        row, peers = state.topic, state.publishers
        if not peers:
            yield Check(f"{row.topic} there", "fail", f"nobody publishes {state.name}",
                        "is the driver running, on this DDS domain, in this namespace (deploy.domain=, "
                        "deploy.namespace=)? `ros2 topic list` shows what is there")
            continue
        yield one_publisher(state)
        yield from types(row.topic, row.type, peers)
        unexplained = state.unconnected if all(peer.type == row.type for peer in peers) else ""
        why = "; ".join(refusals(peers, row.type, qos_named(row.qos), publishes=False)) or unexplained
        if why:
            yield Check(f"{row.topic} QoS", "fail", why,
                        f"let the driver offer what ros.yaml asks for (qos: {row.qos}), or change it there")
        elif not len(state.arrivals):
            yield Check(f"{row.topic} silent", "fail", f"{told(peers)} publishes {state.name}, and nothing came",
                        "a driver that waits for its robot; a firewall that lets discovery through and data not")


def one_publisher(state: StateHeard) -> Check:
    """Two sources of one state take turns: the controller would see a robot that jumps."""
    name, peers = f"{state.topic.topic} there", state.publishers
    if len(peers) == 1:
        return Check(name, "ok", f"{state.name} from {told(peers)}")
    return Check(name, "fail", f"{len(peers)} publishers on {state.name}: {told(peers)}",
                 "end all but one: two states of one robot take turns, and the policy sees it jump")


def types(name: str, type: str, peers: Sequence[Peer]) -> Iterator[Check]:
    """The type by name and, where it is announced, by hash."""
    others = [peer for peer in peers if peer.type != type]
    ours = messages.type_hash(type)
    hashed = [peer for peer in peers if peer.type == type and peer.hash and peer.hash != ours]
    if others:
        found = ", ".join(sorted({peer.type for peer in others}))
        yield Check(f"{name} type", "fail", f"{told(others)}: {found}, not {type}",
                    "another interface of the robot (deploy.interface=), or another program on this topic")
    elif hashed:
        yield Check(f"{name} type", "fail",
                    f"{told(hashed)} has another definition of {type}: {hashed[0].hash[:15]}, here {ours[:15]}",
                    "the same version of the message package on both sides; ROS_DISTRO names the one used here")
    else:
        known = "same definition" if all(peer.hash for peer in peers) else "no hash announced"
        yield Check(f"{name} type", "ok", f"{type}, {known}")


def refusals(peers: Sequence[Peer], type: str, own: QoS, *, publishes: bool) -> list[str]:
    """Who of ``peers`` does not connect with our QoS ``own``, and for which policy."""
    found = []
    for peer in peers:
        why = mismatch(own, peer.qos) if publishes else mismatch(peer.qos, own)
        if peer.type == type and why:
            found.append(f"{told([peer])}: {why}")
    return found


def alone(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Nobody but this robot's guard, if it is up, commands the robot, and somebody listens to commands."""
    for command in heard.commands:
        row = command.topic
        strangers = [peer for peer in command.publishers if not own_guard(heard, peer)]
        if command.publishers and not strangers:
            yield Check(f"{row.topic} alone", "ok",
                        f"this robot's guard is up, and nobody else commands {command.name}")
        elif strangers:
            yield Check(f"{row.topic} alone", "fail", f"{told(strangers)} publishes on {command.name}",
                        "end it: two who command one robot fight; is another `temporeal deploy`, a teleoperation or a "
                        "demo running?")
        else:
            yield Check(f"{row.topic} alone", "ok", f"nobody commands {command.name}")
        yield listener(command)
    for name, peers in heard.rivals.items():
        if peers:
            yield Check(f"{name} alone", "fail", f"{told(peers)} publishes on {name}, which commands the robot, too",
                        "end it, though it may say nothing yet: the guard does not fly beside it")
    if heard.rivals and not any(heard.rivals.values()):
        yield Check("other commands", "ok", f"nobody publishes on {shown(list(heard.rivals))}")


def own_guard(heard: Heard, peer: Peer) -> bool:
    """Whether this publisher of commands is the one guard of this robot: a node of its name and in its place, which in
    the same process says what it sends. Where two do, none is."""
    name = f"{heard.namespace.rstrip('/')}/guard_node"
    return peer.node == name and [(one.node, one.participant) for one in heard.guards] == [(name, peer.participant)]


def listener(command: CommandHeard) -> Check:
    """Whether a command would reach anybody."""
    row, name = command.topic, f"{command.topic.topic} heard"
    right = [peer for peer in command.subscribers if peer.type == row.type]
    refused = refusals(right, row.type, qos_named(row.qos), publishes=True)
    other = [peer for peer in right if peer.hash and peer.hash != messages.type_hash(row.type)]
    if not right:
        wrong = sorted({peer.type for peer in command.subscribers})
        found = f"subscribed as {', '.join(wrong)}, not {row.type}" if wrong else f"nobody subscribes to {command.name}"
        return Check(name, "fail", found, "is the driver running, with the controller that takes this command? "
                                          "another interface: deploy.interface=")
    if len(refused) == len(right):
        return Check(name, "fail", "; ".join(refused), f"ros.yaml publishes commands with qos: {row.qos}")
    if other:
        return Check(name, "fail", f"{told(other)} has another definition of {row.type}",
                     "the same version of the message package on both sides")
    if refused:
        return Check(name, "warn", "; ".join(refused), "it does not hear commands: is that the robot?")
    return Check(name, "ok", f"{told(right)} listens to {command.name}")


def button(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The operator's stop: there if it must be, one, of the right type, heard, and not set."""
    rule, peers, able = plan.profile.estop, heard.buttons, buttons(heard.buttons)
    who = f"{shown(able)} publishes on estop"
    others = [peer for peer in peers if peer.type != BOOL]
    if not peers and rule.required:
        yield Check("estop", "fail", "nobody publishes on estop, and safety.estop.required is true",
                    f"start the node of the operator's stop ({BOOL})")
    elif len(able) > 1:
        yield Check("estop", "fail", f"{shown(able)} publish on estop", "one that falls silent, or is pressed while "
                    "another says no, would not be seen: let one of them say what all do")
    elif others:
        yield Check("estop", "fail", f"{told(others)} publishes on estop: {others[0].type}",
                    f"it must be {BOOL}: the guard does not hear another type")
    elif heard.pressed:
        yield Check("estop", "fail", f"{who}: it is set, or cannot be read", "release it")
    elif peers and heard.pressed is None:
        often = "" if rule.heartbeat_s is None else f" every {rule.heartbeat_s:g} s"
        yield Check("estop", "fail" if rule.required else "warn", f"{who}, and nothing came: whether it is set is not "
                    "known", f"let it say its state{often}, or latch it")
    elif peers:
        yield Check("estop", "ok", f"{who}: it is not set")


def names(heard: Heard, plan: Plan) -> Iterator[Check]:
    """No two nodes bear one name, and nobody but the robot is in its namespace."""
    visible = [name for name in heard.nodes if not name.rpartition("/")[2].startswith("_")]
    twice = sorted(name for name, count in Counter(visible).items() if count > 1)
    if twice:
        yield Check("node names", "fail", f"two nodes are called {', '.join(twice)}",
                    "is a program running twice? ROS cannot tell them apart; end one or rename it (-r __node:=...)")
    else:
        yield Check("node names", "ok", f"{len(set(visible) - {heard.node})} other nodes, each with a name of its own")
    robot = {peer.node for state in heard.states for peer in state.publishers}
    robot |= {peer.node for command in heard.commands for peer in command.subscribers}
    below = heard.namespace.rstrip("/") + "/"
    others = sorted({name for name in visible if name.startswith(below)} - robot - {heard.node})
    where = f"namespace {heard.namespace}"
    if others and heard.namespace != "/":
        yield Check("namespace", "warn", f"in {where}, beside the robot: {shown(others)}",
                    "if these are of an earlier deployment, end them first")
    elif heard.namespace == "/":
        yield Check("namespace", "ok", "topics are in the namespace /, where every robot is")
    else:
        yield Check("namespace", "ok", f"nobody but the robot in {where}")


# time


def rates(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every state topic comes as often as ros.yaml says, without gaps in which the guard would stop."""
    for state in heard.states:
        times, row = state.arrivals, state.topic
        if not len(times) or not row.rate_hz:
            continue
        rate, gap, missing = rhythm(times, heard.end, state.stamps)
        name = f"{row.topic} rate"
        found = (f"{rate:.1f} Hz of {row.rate_hz:g}, {missing} of {len(times) + missing} missing, "
                 f"gaps up to {1e3 * gap:.0f} ms")
        (stale, _, _), who = oldest(row, plan)
        if gap >= stale:
            yield Check(name, "fail", found, f"the {who} stops after {1e3 * stale:.0f} ms without one: is the driver's "
                                             "machine busy, the radio or the network weak?")
        elif rate < SLOW * row.rate_hz:
            yield Check(name, "fail", found, "set the driver to the rate that ros.yaml states")
        elif rate < MISSING * row.rate_hz or gap > GAP_PERIODS / row.rate_hz:
            yield Check(name, "warn", found, "the policy acts on older states than it was trained with")
        elif rate > FAST * row.rate_hz:
            yield Check(name, "warn", found, "faster than ros.yaml states: is that the right topic? correct rate_hz")
        else:
            yield Check(name, "ok", found)


def oldest(row: StateTopic, plan: Plan) -> tuple[Ages, str]:
    """How old what the topic brings may be, and who stops the robot else."""
    if isinstance(row, PictureTopic):
        return Ages(row.max_age_s, row.max_age_s), "controller"
    return plan.profile.age([state.topic for state in plan.interface.states].index(row.topic)), "guard"


def rhythm(arrivals: np.ndarray, end: float, stamps: np.ndarray) -> tuple[float, float, int]:
    """Rate [Hz], longest time without a message [s], until ``end``, and number of missing messages.

    Missing is what is not there between two stamps (arrivals where there are none) that lie several median periods
    apart.
    """
    steps = np.diff(arrivals)
    span = float(arrivals[-1] - arrivals[0])
    rate = len(steps) / span if span > 0 else 0.0
    gap = float(max(steps.max(initial=0.0), end - arrivals[-1]))
    between = np.diff(stamps) / 1e9 if len(stamps) == len(arrivals) and stamps.all() else steps
    between = between[between > 0]
    period = float(np.median(between)) if len(between) else 0.0
    missing = int(np.maximum(np.rint(between / period) - 1, 0).sum()) if period > 0 else 0
    return rate, gap, missing


def clocks(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The robot's clock and this machine's agree, and neither was set while they were watched."""
    if abs(heard.clock_step_s) > STEP_S:
        yield Check("clock here", "fail", f"set by {1e3 * heard.clock_step_s:+.0f} ms while listening",
                    "wait until NTP or chrony has settled (`timedatectl`, `chronyc tracking`)")
    else:
        yield Check("clock here", "ok", f"steady within {1e3 * abs(heard.clock_step_s):.1f} ms")
    for state in heard.states:
        if len(state.stamps) and state.topic.rate_hz:
            yield stamped(state, plan)


def stamped(state: StateHeard, plan: Plan) -> Check:
    """A topic's stamps against this machine's clock."""
    name, stamps = f"{state.topic.topic} clock", state.stamps
    if STATE_CODECS[state.topic.codec].stamp is unstamped:
        return Check(name, "warn", f"{state.topic.type} has no stamp: only when it came is known, not of when it is",
                     "its publisher must run beside what it measures, and send at once")
    if not stamps.any():
        return Check(name, "fail", "messages have no stamp (0)", "the driver must stamp what it measures")
    delay = (state.walls - stamps) / 1e9
    middle, late, least = (float(v) for v in (np.median(delay), np.percentile(delay, 99), delay.min()))
    (stale, allowed, _), who = oldest(state.topic, plan)
    within = np.inf if allowed is None else allowed
    half = len(delay) // 2
    step = float(np.median(delay[half:]) - np.median(delay[:half])) if half >= ENOUGH // 2 else 0.0
    found = f"{1e3 * middle:.1f} ms old on arrival (median), {1e3 * late:.1f} (p99), {1e3 * least:.1f} (least)"
    same_time = "let both machines take the time from one server (chrony); the age is that of path and clocks together"
    if (np.diff(stamps) < 0).any():
        return Check(name, "fail", f"stamps go back, {int((np.diff(stamps) < 0).sum())} times; {found}",
                     "two sources on one topic, or a clock that was set")
    if abs(step) > STEP_S:
        return Check(name, "fail", f"the robot's clock moved by {-1e3 * step:+.0f} ms; {found}",
                     "wait until its NTP or chrony has settled")
    if max(-least, late) > within:
        return Check(name, "fail", f"farther from our clock than the {who} allows ({within:g} s): {found}", same_time)
    if least < -FUTURE_S:
        return Check(name, "warn", f"stamps from the future; {found}", same_time)
    if (np.diff(stamps) == 0).mean() > REPEATED if len(stamps) > 1 else False:
        return Check(name, "warn", f"the same stamp on messages that follow each other; {found}",
                     "a driver that sends its last reading again: its rate is not what it measures")
    if late - middle > 1.0 / state.topic.rate_hz or middle > 0.5 * stale:
        return Check(name, "warn", found, "older or more uneven than a period: see the driver's machine, or its radio")
    return Check(name, "ok", found)


# values


def usable(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every message could be read as the signals that it should carry."""
    for state in heard.states:
        if state.rejected:
            worst, count = max(state.rejected.items(), key=lambda item: item[1])
            refused = sum(state.rejected.values())
            yield Check(f"{state.topic.topic} content", "fail",
                        f"{refused} of {len(state.arrivals)} messages refused; {count} times: {worst}",
                        "the controller drops these; is this the robot, and the interface, that ros.yaml means?")


def joints(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The joints by name: all that the signals need; more of them, and any order, do no harm."""
    for state in heard.states:
        if state.joints is None:
            continue
        wanted, name = expected_joints(state.topic, plan.robot), f"{state.topic.topic} joints"
        missing = [joint for joint in wanted if joint not in state.joints]
        extra = [joint for joint in state.joints if joint not in wanted]
        twice = sorted(joint for joint, count in Counter(state.joints).items() if count > 1)
        if missing:
            yield Check(name, "fail", f"missing {shown(missing)}; there are {shown(state.joints)}",
                        "another robot, a prefix in its URDF, or a joint that its driver leaves out")
        elif twice:
            yield Check(name, "fail", f"twice in one message: {shown(twice)}", "the driver's configuration is wrong")
        else:
            more = f", {len(extra)} more that are not used: {shown(extra)}" if extra else ""
            yield Check(name, "ok", f"all {len(wanted)} by name{more}")


def expected_joints(row: StateTopic, robot: RobotSpec) -> tuple[str, ...]:
    """Joints that a topic must name: its option ``joints`` (names, or a mapping from them), else the model's joints of
    the signals that it carries."""
    given = row.options.get("joints")
    if given is not None:
        return tuple(given)
    carried = STATE_CODECS[row.codec].signals(row.options)
    found = [joint for signal in carried if signal in robot.sources and robot.sources[signal].what.startswith("joint")
             for joint in robot.sources[signal].names]
    return tuple(dict.fromkeys(found))


def limits(robot: RobotSpec) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Low and high of the signals that have limits, [*shape] each, wherever the robot states them: those of the
    setpoints of the same quantity (``joint_pos_cmd``); of the signal (``joint_vel``, ``height_m``); of its joints
    (``fr3_joint1_vel``)."""
    out = {}
    for name, spec in robot.signals.items():
        setpoint = robot.commands.get(f"{name}_cmd")
        joints = [f"{joint}_{name.rpartition('_')[2]}" for joint in robot.sources[name].names] if (
            name in robot.sources) else []
        named = next((key for key in (name, f"{name}_{spec.unit.replace('/', '_')}") if key in robot.limits), None)
        if setpoint is not None and (setpoint.shape, setpoint.unit) == (spec.shape, spec.unit):
            pair = np.array(setpoint.low), np.array(setpoint.high)
        elif named is not None:
            pair = np.full(spec.size, robot.limits[named][0]), np.full(spec.size, robot.limits[named][1])
        elif joints and len(joints) == spec.size and all(joint in robot.limits for joint in joints):
            both = np.array([robot.limits[joint] for joint in joints])
            pair = both[:, 0], both[:, 1]
        else:
            continue
        out[name] = pair[0].reshape(spec.shape), pair[1].reshape(spec.shape)
    return out


def within(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every signal that has limits stayed inside them; degrees taken for radians are told apart."""
    known = limits(plan.robot)
    seen = {name: values for state in heard.states for name, values in state.signals.items()}
    for name in [name for name in known if name in seen]:
        (low, high), values, unit = known[name], seen[name], plan.robot.signals[name].unit
        slack = SLACK * (high - low)
        over = np.maximum(low - values, values - high)  # [K, *shape], positive outside
        worst = np.atleast_1d(over.max(axis=0))
        where = np.flatnonzero(worst > 0).tolist()
        median = np.median(values, axis=0)
        if not where:
            margin = float(np.abs(worst).min())
            yield Check(f"{name} limits", "ok", f"inside, {margin:.3g} {unit} from the nearest")
        elif (worst <= np.atleast_1d(slack)).all():
            yield Check(f"{name} limits", "warn", f"up to {worst.max():.3g} {unit} outside, components {where}",
                        "on its limit: move it inside before the start")
        elif unit.startswith("rad") and inside(median / DEGREES, low, high) and np.abs(median).max() > DEGREES * SLACK:
            yield Check(f"{name} limits", "fail", f"{values_of(median)}: outside, and inside if read as degrees",
                        f"{name} is in {unit}: the driver, or the codec's options, give degrees")
        else:
            yield Check(f"{name} limits", "fail",
                        f"outside by up to {worst.max():.3g} {unit}, components {where}: {values_of(median)}",
                        "move the robot inside its limits; if it is, its zero or units are wrong")


def inside(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
    """Whether every component lies in its limits."""
    return bool(((value >= low) & (value <= high)).all())


def frozen(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Values change, those of ``safety.frozen`` above all: on the robot they never repeat in every bit."""
    rule = plan.profile.frozen
    each = () if rule is None else rule.each
    restless = () if rule is None else (*rule.signals, *each)
    for state in heard.states:
        still = [name for name, values in state.signals.items()
                 if len(values) >= ENOUGH and (values == values[0]).all()
                 and (name in each or not padding(name, values))]
        dead = [name for name in still if name in restless]
        name = f"{state.topic.topic} alive"
        if dead:
            yield Check(name, "fail", f"not one bit of {shown(dead)} changed", "the driver repeats an old reading: "
                                                                           "restart it, look at the sensor's cable")
        elif still:
            yield Check(name, "warn", f"not one bit of {shown(still)} changed",
                        "move the robot by hand and run this again: coarse encoders of a robot at rest do this, and so "
                        "does a driver that repeats an old reading")
        elif state.signals:
            yield Check(name, "ok", "values change")


def padding(name: str, values: np.ndarray) -> bool:
    """A velocity or force of exactly zero is rest, or not measured: it says nothing about a dead sensor."""
    return not values.any() and any(word in name for word in ("vel", "torque", "effort", "force"))


def fence(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The robot is inside the geofence."""
    box, newest = plan.profile.geofence, heard.newest()
    if box is None or box.signal not in newest:
        return
    name, at, low, high = box.signal, newest[box.signal], np.array(box.low), np.array(box.high)
    margin = float(np.minimum(at - low, high - at).min())
    if margin < 0:
        yield Check("geofence", "fail",
                    f"{name} {values_of(at)} is {-margin:.2f} m outside {values_of(low)} to {values_of(high)}",
                    "the guard would stop at once: check the origin of the position, then the fence in ros.yaml")
    else:
        yield Check("geofence", "ok", f"{name} {values_of(at)}, {margin:.2f} m inside")


def start(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The artifact's first command for this state: inside the limits, and near the measured pose where it is one."""
    newest = heard.newest()
    if plan.propose is None or set(plan.golden) - {MISSION_TIME.name} - set(newest):
        return
    spec, command = plan.command, np.ravel(plan.propose(newest))
    low, high = np.array(spec.low), np.array(spec.high)
    beyond = np.flatnonzero((command < low - SLACK * (high - low)) | (command > high + SLACK * (high - low))).tolist()
    name, rule = "first command", plan.profile.start
    if not np.isfinite(command).all():
        yield Check(name, "fail", f"{spec.name} is not finite: {values_of(command)}", "do not run this artifact here")
        return
    if rule and rule.signal:
        pose = np.ravel(newest[rule.signal])
        share = np.abs(command[:len(pose)] - pose) / np.array(rule.within)
        worst = int(share.argmax())
        if share[worst] > 1.0:
            yield Check(name, "fail", f"{spec.name} is {share[worst] * rule.within[worst]:.3g} from {rule.signal}, "
                        f"component {worst}; {rule.within[worst]:g} is allowed",
                        "missions begin at rest: does this one?" if is_rate(spec) else
                        f"move the robot nearer to {values_of(command[:len(pose)])} before the start")
            return
    if beyond:
        yield Check(name, "warn", f"{spec.name} {values_of(command)} is beyond its limits, components {beyond}",
                    "the guard would clamp it: is this a state that the policy knows?")
    else:
        yield Check(name, "ok", f"{spec.name} {values_of(command)}")


def familiar(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The state is like those of the artifact's recorded trace: inside its range, widened by that range."""
    newest, strange = heard.newest(), []
    known = [name for name in plan.golden if name in newest and newest[name].size <= LARGEST]
    for name in known:
        trace, at = plan.golden[name], newest[name]
        low, high = trace.min(axis=0), trace.max(axis=0)
        outside = np.atleast_1d(np.maximum(low - at, at - high) > np.maximum(high - low, SLACK))
        if outside.any():
            strange.append(f"{name} {values_of(at)}, recorded {values_of(trace[0])} at its start (components "
                           f"{np.flatnonzero(outside).tolist()})")
    if strange:
        yield Check("start state", "warn", f"unlike the artifact's recorded trace: {'; '.join(strange)}",
                    "is the robot where missions begin? units, signs and origins as in training?")
    elif known:
        yield Check("start state", "ok", "like the artifact's recorded trace")


# the artifact and this machine


def live(
    folder: Path, manifest: Manifest, deploy: Mapping[str, Any], seconds: float, standing: str | None
) -> Iterator[Check]:
    """Everything: the artifact, then what is heard on the bus of the settings ``deploy``.

    ``standing``: name of the robot that is there, as a person says; None: not said.
    """
    robot = load_robot(manifest.robot)
    interface = load_interface(robot, deploy["interface"], deploy["signals"])
    loaded, check = examined(folder, robot)
    yield check
    yield same_robot(manifest, standing)
    yield carried(manifest, interface)
    command = manifest.commands[0]
    try:
        demanded = profile_on(robot, interface, command, 1.0 / manifest.rate_hz)
        transport = open_transport(deploy["transport"], NODE, deploy["namespace"], domain=deploy["domain"],
                                   loopback=deploy["loopback"])
    except (InterfaceError, SafetyError, TransportError) as error:
        raise BadInput(str(error)) from error
    try:
        heard = listen(transport, interface, command.name, seconds)
    finally:
        transport.close()
    golden, propose = (recorded(loaded), first(loaded)) if loaded else ({}, None)
    plan = Plan(robot, interface, demanded, command, golden, propose)
    for examine in CHECKS:
        yield from guarded(examine, heard, plan)


def examined(folder: Path, robot: RobotSpec) -> tuple[Artifact | None, Check]:
    """The artifact as the nodes load it: complete, unchanged, this robot's, and it gives its recorded commands.

    Whether topics bring what its task adds to the robot is asked of the interface: :func:`carried`.
    """
    try:
        artifact = Artifact.load(folder, robot, task_signals=added_signals(load_manifest(folder), robot))
        test = artifact.self_test()
    except ArtifactError as error:
        return None, Check("artifact", "fail", str(error), "export it again; its files must stay as they were written")
    return artifact, Check("artifact", "ok", f"{artifact.manifest.name}: its {test.steps} recorded commands within "
                                             f"{test.max_error:.1g} of their range")


def same_robot(manifest: Manifest, standing: str | None) -> Check:
    """Whether the artifact is for the robot that is there."""
    if standing in (None, manifest.robot):
        return Check("robot", "ok", f"the artifact is for {manifest.robot}{'' if standing else ' (--robot compares)'}")
    return Check("robot", "fail", f"the artifact is for {manifest.robot}, the robot is {standing}",
                 "take the artifact of this robot")


def carried(manifest: Manifest, interface: Interface) -> Check:
    """Whether topics bring all that the policy reads."""
    try:
        check_reads(interface, manifest.signals)
    except InterfaceError as error:
        return Check("signals", "fail", str(error), "another interface (deploy.interface=), or one that reads less")
    return Check("signals", "ok", f"interface {interface.name} carries all that the policy reads")


def first(artifact: Artifact) -> Propose:
    """The artifact's first command of a mission, for signals by name; of a chunk the first row."""
    def propose(signals: Mapping[str, np.ndarray]) -> np.ndarray:
        given = {**signals, MISSION_TIME.name: np.zeros((), dtype=np.float32)}
        batch = {name: np.asarray(given[name])[None] for name in artifact.schema}
        commands, _ = artifact.act_batch(batch, artifact.initial_memory(1))
        command = np.asarray(commands[artifact.manifest.commands[0].name][0])
        return command if artifact.manifest.chunk is None else np.asarray(command[0])

    return propose


def recorded(artifact: Artifact) -> dict[str, np.ndarray]:
    """The golden trace's signals [T, *shape] by name."""
    return {name: artifact.golden[f"signals.{name}"] for name in artifact.schema}


def realtime(allowed: bool) -> Check:
    """Whether nodes may run ahead of ordinary processes."""
    if allowed:
        return Check("real-time", "ok", "SCHED_FIFO is permitted: the nodes' --priority auto takes it")
    return Check("real-time", "warn", "SCHED_FIFO is not permitted: other programs can delay the control loop",
                 "a line `<user> - rtprio 50` in /etc/security/limits.conf, then log in again")


def governor(found: Mapping[str, int]) -> Check:
    """CPU frequency governors, how many cores have each; empty where the machine does not say."""
    told = ", ".join(f"{name} on {count} cores" for name, count in found.items()) or "not readable (a virtual machine?)"
    if set(found) <= {"performance"}:
        return Check("CPU governor", "ok", told)
    return Check("CPU governor", "warn", told, "cores that sleep wake late: sudo cpupower frequency-set -g performance")


def machine() -> Iterator[Check]:
    """This machine: may it run in real time, and does it?"""
    yield realtime(may_be_realtime())
    files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    yield governor(Counter(file.read_text().strip() for file in files))


def may_be_realtime() -> bool:
    """Tried, and taken back."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY + AHEAD))  # the guard's
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


CHECKS: tuple[Callable[[Heard, Plan], Iterator[Check]], ...] = (
    present, usable, rates, clocks, joints, within, frozen, fence, alone, button, names, start, familiar)


# words


def told(peers: Sequence[Peer]) -> str:
    """Who they are."""
    return shown([peer.node or "a node without a name" for peer in peers])


def shown(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    return ", ".join(items[:KEPT]) + (f" and {len(items) - KEPT} more" if len(items) > KEPT else "")


def values_of(value: np.ndarray) -> str:
    """Numbers, short."""
    return "[" + ", ".join(f"{x:.3g}" for x in np.ravel(value)) + "]"
