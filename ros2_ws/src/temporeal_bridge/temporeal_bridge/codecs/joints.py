"""Codecs of arms and hands: joint states, poses, points and plain numbers in; setpoints out, for ros2_control, MoveIt
Servo and the LEAP Hand's node.

Options that several of them have:

- ``joints``: what the driver calls the joints, in the order of our signals and commands. States are read by these
  names, in any order and among others.
- ``index``: for each component of a command its place in the message; left out, the order is the same.
- ``offset``: rad, what the driver's angle is where ours is 0. ``sign``: 1 or -1. One number, or one per joint.
- ``frame``: the frame a message must be in (there is no tf here); null: not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from temporeal.robots.motion.kinematics import KinematicsError, chain
from temporeal.robots.motion.rate_limiter import MotionError
from temporeal.robots.motion.smooth_trajectory import Course, resting
from temporeal.robots.signals import all_finite, is_number, is_size
from temporeal_bridge.codecs.codecs import (
    COMMANDS,
    STATES,
    CodecError,
    CommandCodec,
    Options,
    Signals,
    StateCodec,
    attitude,
    number,
    orientation,
    unstamped,
    vector3,
    xyz,
)
from temporeal_bridge.transports import messages

Frames = tuple[str, str]
FIELDS = ("position", "velocity", "effort")
POINT = ("positions", "velocities", "accelerations")


def per_joint(options: Options, key: str, count: int, default: float) -> np.ndarray:
    """Option ``key`` as [count] numbers: one for all, or one each."""
    given = options.get(key, default)
    values = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(values) != count or not all(map(is_number, values)):
        raise CodecError(f"option {key} is {given!r}; a number or a list of {count} is needed")
    return np.array(values, dtype=np.float64)


def signs(options: Options, count: int) -> np.ndarray:
    """Option ``sign`` as [count] numbers."""
    value = per_joint(options, "sign", count, 1.0)
    if not (np.abs(value) == 1.0).all():
        raise CodecError(f"option sign is {options['sign']!r}; legal: 1, -1")
    return value


def names(options: Options) -> list[str]:
    """Option ``joints``: names, each once."""
    joints = options["joints"]
    listed = isinstance(joints, (list, tuple)) and all(isinstance(name, str) and name for name in joints)
    if not listed or not joints or len(set(joints)) != len(joints):
        raise CodecError(f"option joints is {joints!r}; different names are needed")
    return list(joints)


def places(options: Options, count: int) -> np.ndarray:
    """Option ``index`` as [count] places in the message."""
    index = list(options.get("index", range(count)))
    if sorted(index) != list(range(count)):
        raise CodecError(f"option index is {index}; each of 0 to {count - 1} once is needed")
    return np.asarray(index)


def finite(value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """``value`` as float64 of ``shape``, without NaN or infinity."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape:
        raise CodecError(f"{what} has shape {array.shape}, {shape} is needed")
    if not all_finite(array):
        raise CodecError(f"{what} is not finite: {array.tolist()}")
    return array


def frame_of(options: Options) -> str | None:
    """Option ``frame``."""
    frame = options["frame"]
    if frame is not None and not (isinstance(frame, str) and frame):
        raise CodecError(f"option frame is {frame!r}; the name of a frame is needed, or null")
    return frame


def in_frame(message: Any, options: Options, what: str) -> None:
    """The message is in the frame that the options name."""
    wanted, found = frame_of(options), message.header.frame_id
    if wanted is not None and found != wanted:
        raise CodecError(f"{what} is in frame {found!r}, {wanted!r} is needed")


@dataclass(frozen=True)
class Shares:
    """Which joints each component of a command drives: one, or several on one tendon, whose angles add up to it.

    Args:
        joints: [J] names, those of a component side by side.
        count: [U] how many joints a component has.
    """

    joints: tuple[str, ...]
    count: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """[..., J] of [..., U]: a component's joints get equal shares."""
        if len(self.count) == len(self.joints):
            return values
        return np.repeat(values / self.count, self.count, axis=-1)

    def gather(self, values: np.ndarray) -> np.ndarray:
        """[..., U] of [..., J]: the sum over a component's joints."""
        if len(self.count) == len(self.joints):
            return values
        return np.asarray(np.add.reduceat(values, np.cumsum(self.count) - self.count, axis=-1))


def shares(entries: Sequence[str | Sequence[str]]) -> Shares:
    """The shares of ``entries``: a joint's name for each component, or the list of those that it drives."""
    parts = [[entry] if isinstance(entry, str) else list(entry) for entry in entries]
    if not all(parts):
        raise CodecError(f"option joints is {list(entries)}; each component needs a joint or more")
    joints = names({"joints": [name for part in parts for name in part]})
    return Shares(tuple(joints), np.array([len(part) for part in parts]))


ORDERS: dict[int, tuple[Options, np.ndarray]] = {}
"""As :data:`READINGS`, for commands that are rows of numbers."""


def order_in_message(options: Options) -> np.ndarray:
    """:func:`places` of the options ``joints`` and ``index``."""
    found = ORDERS.get(id(options))
    if found is None or found[0] is not options:
        found = ORDERS[id(options)] = options, places(options, len(names(options)))
    return found[1]


DRIVES: dict[int, tuple[Options, Shares]] = {}
"""As :data:`READINGS`, for commands."""


def drives_of(options: Options) -> Shares:
    """The shares of option ``joints``."""
    found = DRIVES.get(id(options))
    if found is None or found[0] is not options:
        found = DRIVES[id(options)] = options, shares(options["joints"])
    return found[1]


# sensor_msgs/JointState. Options: joints; position, velocity, effort: signals that take these fields; offset, sign;
# scale: {field: our unit per the driver's}; tool: {chain, position, attitude, velocity}: signals of the tool by forward
# kinematics of robot `chain`, exact and of the same instant as the joints; driven: {signal, joints}: a signal of what
# motors control that pull several joints each, the sum of their positions (a list among the joints). A field that
# nobody asks for may be empty.


@dataclass
class Reading:
    """What the options of a JointState say, checked once.

    Args:
        fields: offset and factor [J] by field.
        plain: those fields whose zero and unit are the driver's, too.
        driven: shares of the motors and the places [K] of their joints among ``joints``.
        order: where our joints stand among the ``names`` of the last message.
    """

    options: Options
    joints: tuple[str, ...]
    fields: Mapping[str, tuple[np.ndarray, np.ndarray]]
    plain: Collection[str]
    driven: tuple[Shares, list[int]] | None
    names: list[str] | None = None
    order: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))


READINGS: dict[int, Reading] = {}
"""By identity of the options, which each entry keeps alive: they are read for every message, and never change."""


def reading(options: Options) -> Reading:
    """See :class:`Reading`."""
    found = READINGS.get(id(options))
    if found is None or found.options is not options:
        joints = names(options)
        fields = conversions(options, len(joints))
        plain = [name for name, (offset, factor) in fields.items() if not offset.any() and (factor == 1.0).all()]
        found = READINGS[id(options)] = Reading(options, tuple(joints), fields, plain, driven(options, joints))
    return found


def driven(options: Options, joints: Sequence[str]) -> tuple[Shares, list[int]] | None:
    """Option ``driven``, see :class:`Reading`."""
    row = options.get("driven")
    if row is None:
        return None
    if set(row) != {"signal", "joints"} or "position" not in options:
        raise CodecError(f"option driven is {dict(row)}; signal and joints are needed, and the joints' position read")
    found = shares(row["joints"])
    if unknown := sorted(set(found.joints) - set(joints)):
        raise CodecError(f"option driven: no joints {unknown} are read; read: {', '.join(joints)}")
    return found, [list(joints).index(name) for name in found.joints]


def joint_state_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals that a JointState carries."""
    tool = options.get("tool", {})
    sums = (options["driven"]["signal"],) if "driven" in options else ()
    return tuple(options[f] for f in FIELDS if f in options) + sums + tuple(
        tool[f] for f in ("position", "attitude", "velocity") if f in tool)


def conversions(options: Options, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By field that is asked for: offset and factor [count], ours = factor * (the driver's - offset)."""
    scale, sign = options.get("scale", {}), signs(options, count)
    if set(scale) - set(FIELDS):
        raise CodecError(f"option scale has {sorted(scale)}; legal: {', '.join(FIELDS)}")
    zero, offset = np.zeros(count), per_joint(options, "offset", count, 0.0)
    return {field: (offset if field == "position" else zero, sign * per_joint(scale, field, count, 1.0))
            for field in FIELDS if field in options}


def decode_joint_state(message: Any, options: Options) -> Signals:
    """Signals of the named joints, wherever they stand in the message."""
    known = reading(options)
    if known.names != message.name:
        known.order = np.array(order_of(known.joints, list(message.name)), dtype=int)
        known.names = list(message.name)
    joints, order, values = known.joints, known.order, {}
    for part, (offset, factor) in known.fields.items():
        raw = np.asarray(getattr(message, part), dtype=np.float64)
        if len(raw) != len(message.name):
            raise CodecError(f"JointState has {len(message.name)} names and {len(raw)} values of {part}")
        value = raw[order]
        if not all_finite(value):
            bad = int(np.flatnonzero(~np.isfinite(value))[0])
            raise CodecError(f"JointState: {part} of joint {joints[bad]!r} is {value[bad]}")
        values[part] = value if part in known.plain else factor * (value - offset)
    out = {options[part]: value.astype(np.float32) for part, value in values.items()}
    if known.driven is not None:
        motors, places_of = known.driven
        out[options["driven"]["signal"]] = motors.gather(values["position"][places_of]).astype(np.float32)
    return {**out, **tool_signals(values, options["tool"])} if "tool" in options else out


def order_of(joints: Sequence[str], found: list[str]) -> list[int]:
    """Where each of our joints stands among those of a message."""
    place = {name: i for i, name in enumerate(found)}
    missing = [name for name in joints if name not in place]
    if missing:
        raise CodecError(f"JointState has no joint {missing[0]!r}; it has: {', '.join(found) or 'none'}")
    twice = [name for name in joints if found.count(name) > 1] if len(place) < len(found) else []
    if twice:
        raise CodecError(f"JointState has joint {twice[0]!r} more than once")
    return [place[name] for name in joints]


def tool_signals(values: Mapping[str, np.ndarray], tool: Mapping[str, str]) -> Signals:
    """Pose and velocity of the tool from the joints' ``position`` and ``velocity`` [J]."""
    legal = ("chain", "position", "attitude", "velocity")
    if set(tool) - set(legal) or "position" not in values or ("velocity" in tool and "velocity" not in values):
        raise CodecError(f"option tool is {dict(tool)}; legal: {', '.join(legal)}, and the joints' position (for a "
                         f"velocity also their velocity) must be read")
    try:
        if set(tool) == {"chain", "position"}:
            return {tool["position"]: chain(tool["chain"]).position(values["position"]).astype(np.float32)}
        found = chain(tool["chain"])(values["position"], values.get("velocity"))
    except KinematicsError as error:
        raise CodecError(f"option tool: {error}") from error
    return {tool[key]: value.astype(np.float32) for key, value in zip(legal[1:], found) if key in tool}


def encode_joint_state(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The JointState that a driver publishes: these joints in this order, fields that nobody reads empty."""
    known, fields = reading(options), dict.fromkeys(FIELDS, np.zeros(0))
    joints = list(known.joints)
    for part, (offset, factor) in known.fields.items():
        value = np.asarray(signals[options[part]], dtype=np.float64)
        if value.shape != (len(joints),):
            raise CodecError(f"signal {options[part]!r} has shape {value.shape}, there are {len(joints)} joints")
        fields[part] = value / factor + offset
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(stamp_ns), name=joints, **fields)


# geometry_msgs/PoseStamped. Options: frame; position, attitude: the signals (either may be left out).


def pose_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals of a pose."""
    return tuple(options[key] for key in ("position", "attitude") if key in options)


def decode_pose(message: Any, options: Options) -> Signals:
    """Position [3] m and attitude [4] wxyz of a pose."""
    in_frame(message, options, "PoseStamped")
    out = {}
    if "position" in options:
        position = finite(xyz(message.pose.position), (3,), "PoseStamped: the position")
        out[options["position"]] = position.astype(np.float32)
    if "attitude" in options:
        out[options["attitude"]] = attitude(message.pose.orientation, "PoseStamped").astype(np.float32)
    return out


def encode_pose(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The pose; what it has no signal of is zero, or no rotation."""
    position = signals[options["position"]] if "position" in options else np.zeros(3)
    quat = signals[options["attitude"]] if "attitude" in options else np.array([1.0, 0.0, 0.0, 0.0])
    pose = messages.record("geometry_msgs/msg/Pose")(position=vector3(position, "Point"), orientation=orientation(quat))
    return messages.record("geometry_msgs/msg/PoseStamped")(
        header=messages.header(stamp_ns, frame_of(options) or frames[0]), pose=pose)


# geometry_msgs/TwistStamped. Options: frame; linear, angular: the signals (either may be left out).


def twist_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals of a twist."""
    return tuple(options[key] for key in ("linear", "angular") if key in options)


def decode_twist(message: Any, options: Options) -> Signals:
    """Linear velocity [3] m/s and angular velocity [3] rad/s."""
    in_frame(message, options, "TwistStamped")
    return {options[key]: finite(xyz(getattr(message.twist, key)), (3,), f"TwistStamped: {key}").astype(np.float32)
            for key in ("linear", "angular") if key in options}


def encode_twist(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The twist; what it has no signal of is zero."""
    parts = {key: vector3(signals[options[key]] if key in options else np.zeros(3)) for key in ("linear", "angular")}
    return messages.record("geometry_msgs/msg/TwistStamped")(
        header=messages.header(stamp_ns, frame_of(options) or frames[0]),
        twist=messages.record("geometry_msgs/msg/Twist")(**parts))


# geometry_msgs/PointStamped. Options: frame, signal.


def decode_point(message: Any, options: Options) -> Signals:
    """A point [3] m."""
    in_frame(message, options, "PointStamped")
    return {options["signal"]: finite(xyz(message.point), (3,), "PointStamped: the point").astype(np.float32)}


def encode_point(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The point."""
    return messages.record("geometry_msgs/msg/PointStamped")(
        header=messages.header(stamp_ns, frame_of(options) or frames[0]),
        point=vector3(signals[options["signal"]], "Point"))


# std_msgs/Float64MultiArray. Options: signal, shape (a list; [] for one number). It has no stamp.


def decode_numbers(message: Any, options: Options) -> Signals:
    """A signal of any shape from a row of numbers."""
    shape = tuple(options["shape"]) if isinstance(options["shape"], (list, tuple)) else (-1,)
    if not all(map(is_size, shape)):
        raise CodecError(f"option shape is {options['shape']!r}; a list of whole numbers is needed, [] for one number")
    data = finite(message.data, (prod(shape),), f"Float64MultiArray for {options['signal']!r}")
    return {options["signal"]: data.astype(np.float32).reshape(shape)}


def encode_numbers(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The signal's numbers in one row."""
    return numbers(np.asarray(signals[options["signal"]], dtype=np.float64).ravel())


def numbers(data: np.ndarray) -> Any:
    """Float64MultiArray of numbers in one row."""
    layout = messages.record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return messages.record("std_msgs/msg/Float64MultiArray")(layout=layout, data=data)


# std_msgs/Float64MultiArray to a forward_command_controller of ros2_control. Options: joints, index. The controller
# fails on any other length, drops what is not finite, and holds the last command for ever (ros2_controllers 6.9.0,
# forward_controllers_base.cpp).


def encode_forward(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Positions, velocities or efforts, as the controller's `interface_name` says, in the controller's order."""
    order = order_in_message(options)
    data = np.empty(len(order))
    data[order] = finite(command, order.shape, "the command")
    return numbers(data)


def decode_forward(message: Any, options: Options) -> np.ndarray:
    """The command, in our order."""
    order = order_in_message(options)
    data: np.ndarray = finite(message.data, order.shape, "Float64MultiArray")[order]
    return data


# trajectory_msgs/JointTrajectory to a joint_trajectory_controller. Options: joints, reach_s. A list among the joints is
# of those that one component drives (:class:`Shares`). The stamp is 0: begin now
# (one in the past makes the controller catch up). The last point is at rest: the controller refuses another one, and
# an arm that hears nothing more stops there. With positions, velocities and accelerations it interpolates with
# polynomials of fifth degree (ros2_controllers 6.9.0, joint_trajectory_controller.cpp, trajectory.cpp).


def encode_trajectory(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """One point: be at rest at ``command`` in ``reach_s``."""
    reach = number(options, "reach_s", 0.0, 60.0)
    return encode_course(resting(finite(command, (len(drives_of(options).count),), "the command"), reach), options)


def encode_course(course: Course, options: Options) -> Any:
    """All points of ``course``."""
    drives = drives_of(options)
    if course.positions.shape[1] != len(drives.count):
        raise CodecError(
            f"the course has {course.positions.shape[1]} components, option joints has {len(drives.count)}")
    duration = messages.record("builtin_interfaces/msg/Duration")
    point = messages.record("trajectory_msgs/msg/JointTrajectoryPoint")
    points = []
    rows = (drives.spread(values) for values in (course.positions, course.speeds, course.accelerations))
    for time, position, speed, acceleration in zip(course.times, *rows):
        ns = round(float(time) * 1e9)
        points.append(point(
            positions=position, velocities=speed, accelerations=acceleration, effort=np.zeros(0),
            time_from_start=duration(sec=ns // 10**9, nanosec=ns % 10**9)))
    return messages.record("trajectory_msgs/msg/JointTrajectory")(
        header=messages.header(0), joint_names=list(drives.joints), points=points)


def decode_course(message: Any, options: Options) -> Course:
    """The whole trajectory, in our order. Wrong names, lengths or times, or an end that moves, are errors."""
    drives = drives_of(options)
    joints = list(drives.joints)
    if sorted(message.joint_names) != sorted(joints):
        raise CodecError(f"JointTrajectory is for joints {list(message.joint_names)}, {joints} are needed")
    order = [list(message.joint_names).index(name) for name in joints]
    for place, point in enumerate(message.points):
        for part in POINT:
            if len(getattr(point, part)) != len(joints):
                raise CodecError(f"JointTrajectory: point {place} has {len(getattr(point, part))} {part} of "
                                 f"{len(joints)} joints")
    rows = (drives.gather(np.array([getattr(p, part) for p in message.points], dtype=np.float64)
                          .reshape(-1, len(joints))[:, order]) for part in POINT)
    times = np.array([p.time_from_start.sec + 1e-9 * p.time_from_start.nanosec for p in message.points])
    try:
        return Course(times, *rows)
    except MotionError as error:
        raise CodecError(f"JointTrajectory: {error}") from error


def decode_trajectory(message: Any, options: Options) -> np.ndarray:
    """The first point: what is to be reached next."""
    return np.asarray(decode_course(message, options).positions[0])


# sensor_msgs/JointState as a command: positions only, by place. Options: joints, index, offset, sign.


def encode_joint_command(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The driver's angles in the driver's order; names are for those who read along."""
    joints = names(options)
    count = len(joints)
    place, position = places(options, count), np.empty(count)
    position[place] = (
        signs(options, count) * finite(command, (count,), "the command") + per_joint(options, "offset", count, 0.0))
    called = [joints[i] for i in np.argsort(place)]
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(stamp_ns), name=called, position=position, velocity=np.zeros(0), effort=np.zeros(0))


def decode_joint_command(message: Any, options: Options) -> np.ndarray:
    """The command that these angles mean, read by place, as the driver does."""
    count = len(names(options))
    raw = finite(message.position, (count,), "JointState: position")[places(options, count)]
    return np.asarray(signs(options, count) * (raw - per_joint(options, "offset", count, 0.0)))


# geometry_msgs/TwistStamped as a command, for MoveIt Servo's delta_twist_cmds with `command_in_type: speed_units`.
# Option: frame, never empty. Servo stops when the stamp is older than incoming_command_timeout (moveit2 8fcb5d2,
# servo_node.cpp), so the stamp is when it is sent.


def servo_frame(options: Options) -> str:
    """Option ``frame``, which a command must have."""
    if not isinstance(options["frame"], str) or not options["frame"]:
        raise CodecError(f"option frame is {options['frame']!r}; the name of a frame is needed")
    return str(options["frame"])


def encode_servo(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Velocity [3] m/s and angular velocity [3] rad/s of the tool, in ``frame``."""
    value = finite(command, (6,), "the command")
    return messages.record("geometry_msgs/msg/TwistStamped")(
        header=messages.header(stamp_ns, servo_frame(options)),
        twist=messages.record("geometry_msgs/msg/Twist")(linear=vector3(value[:3]), angular=vector3(value[3:])))


def decode_servo(message: Any, options: Options) -> np.ndarray:
    """The command [6]."""
    in_frame(message, {"frame": servo_frame(options)}, "TwistStamped")
    twist: Sequence[Any] = (message.twist.linear, message.twist.angular)
    return finite([getattr(part, axis) for part in twist for axis in "xyz"], (6,), "TwistStamped")


def one_signal(options: Options) -> tuple[str, ...]:
    """The name of the one signal."""
    return (options["signal"],)


STATES.update({
    "joint_state": StateCodec(
        "sensor_msgs/msg/JointState", joint_state_signals, decode_joint_state, encode_joint_state),
    "pose": StateCodec("geometry_msgs/msg/PoseStamped", pose_signals, decode_pose, encode_pose),
    "twist": StateCodec("geometry_msgs/msg/TwistStamped", twist_signals, decode_twist, encode_twist),
    "point": StateCodec("geometry_msgs/msg/PointStamped", one_signal, decode_point, encode_point),
    "array": StateCodec(
        "std_msgs/msg/Float64MultiArray", one_signal, decode_numbers, encode_numbers, stamp=unstamped),
})
COMMANDS.update({
    "forward_array": CommandCodec("std_msgs/msg/Float64MultiArray", encode_forward, decode_forward),
    "joint_trajectory": CommandCodec(
        "trajectory_msgs/msg/JointTrajectory", encode_trajectory, decode_trajectory, encode_course),
    "joint_state_command": CommandCodec("sensor_msgs/msg/JointState", encode_joint_command, decode_joint_command),
    "twist_command": CommandCodec("geometry_msgs/msg/TwistStamped", encode_servo, decode_servo),
})
