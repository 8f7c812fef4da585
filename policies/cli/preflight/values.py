"""Checks of the received values: content, joints, limits, dead sensors, geofence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from temporeal.policies.cli.preflight.findings import Check
from temporeal.policies.cli.preflight.listening import Heard
from temporeal.policies.cli.preflight.plan import Plan
from temporeal.policies.cli.preflight.wording import shown, values_of
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import StateTopic

ENOUGH = 10  # samples before "it never changes" means anything
DEGREES = 180.0 / np.pi
SLACK = 0.01  # share of a range by which a calibrated robot may read beyond its own limit


def usable(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every message could be decoded as its signals."""
    for state in heard.states:
        if state.rejected:
            worst, count = max(state.rejected.items(), key=lambda item: item[1])
            refused = sum(state.rejected.values())
            yield Check(f"{state.topic.topic} content", "fail",
                        f"{refused} of {len(state.arrivals)} messages refused; {count} times: {worst}",
                        "the controller drops these; is this the robot, and the interface, that ros.yaml means?")


def joints(heard: Heard, plan: Plan) -> Iterator[Check]:
    """All joints that the signals need are named; more joints, and any order, are fine."""
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
    its signals."""
    given = row.options.get("joints")
    if given is not None:
        return tuple(given)
    carried = STATE_CODECS[row.codec].signals(row.options)
    found = [joint for signal in carried if signal in robot.sources and robot.sources[signal].what.startswith("joint")
             for joint in robot.sources[signal].names]
    return tuple(dict.fromkeys(found))


def limits(robot: RobotSpec) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Low and high of the signals with limits, [*shape] each: those of the setpoints of the same quantity
    (``joint_pos_cmd``), of the signal (``joint_vel``, ``height_m``), or of its joints (``fr3_joint1_vel``)."""
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
    """Every signal with limits stayed inside them; degrees mistaken for radians are recognized."""
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
    """Values change, above all those of ``safety.frozen``: on a real robot they never repeat bit by bit."""
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
    """A velocity or force of exactly zero is rest, or not measured: it does not show a dead sensor."""
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
