"""Messages <-> signals and commands: pure functions, driven by the rows of ``ros.yaml``, and nothing else.

Each codec goes both ways: the controller decodes states and encodes commands, the simulated robot does the opposite.
Numbers are converted to the signals' units and frames (SI, ENU, FLU, wxyz) and back; there is no filtering and no
limit here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from typing import Any, Protocol

import numpy as np

from temporeal.robots.frames import normalized, rotate, rotate_inverse, wxyz_from_xyzw, xyzw_from_wxyz
from temporeal.robots.motion.smooth_trajectory import Course
from temporeal.robots.signals import SignalSpec, is_number
from temporeal_bridge.transports import messages

Signals = dict[str, np.ndarray]
Options = Mapping[str, Any]

DEG = 180.0 / pi
UNITS = {"rad/s": 1.0, "deg/s": pi / 180.0}


class CodecError(ValueError):
    """A message whose content cannot be what the codec expects."""


def header_stamp(message: Any) -> int:
    """Time [ns since the epoch] at which a message with a std_msgs/Header was measured."""
    return messages.nanoseconds(message.header.stamp)


def unstamped(message: Any) -> int:
    """0, not known: of a message whose type says no time."""
    return 0


@dataclass(frozen=True)
class StateCodec:
    """A message type that carries signals.

    Args:
        type: the message type.
        signals: ``signals(options)``: names of the signals it carries.
        decode: ``decode(message, options)`` -> signals.
        encode: ``encode(signals, stamp_ns, frames, options)`` -> message; ``frames``: world and body frame names.
        stamp: ``stamp(message)`` -> when it was measured, ns since the epoch; a codec error where that is not known.
        picture: of a camera's: ``picture(spec, options)`` is a codec error where that signal cannot be its picture.
    """

    type: str | None
    signals: Callable[[Options], tuple[str, ...]]
    decode: Callable[[Any, Options], Signals]
    encode: Callable[[Mapping[str, np.ndarray], int, tuple[str, str], Options], Any]
    stamp: Callable[[Any], int] = header_stamp
    picture: Callable[[SignalSpec, Options], None] | None = None


class Encode(Protocol):
    """Command -> message. ``stamp_ns``: when it is sent, ns since the epoch, for the messages that say so."""

    def __call__(self, command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any: ...


@dataclass(frozen=True)
class CommandCodec:
    """A message type that carries one command: ``encode(command, options, stamp_ns)``, ``decode(message, options)``.

    Where the message can say how to come to rest after the command, ``encode_course(course, options)`` writes that too.
    A *companion* goes out beside a command and carries none of it (a heartbeat): it has no ``decode``.
    """

    type: str
    encode: Encode
    decode: Callable[[Any, Options], np.ndarray] | None
    encode_course: Callable[[Course, Options], Any] | None = None


def named(table: Mapping[str, Any], name: str) -> Any:
    """Codec ``name`` of ``table``."""
    if name not in table:
        raise CodecError(f"unknown codec {name!r}; known: {', '.join(table)}")
    return table[name]


def check_type(codec: StateCodec | CommandCodec, name: str, type: str) -> None:
    """A codec reads one message type."""
    if codec.type is not None and codec.type != type:
        raise CodecError(f"codec {name!r} is for {codec.type}, not for {type}")


def choice(options: Options, key: str, legal: tuple[str, ...]) -> str:
    """An option that is one of a few words."""
    if options.get(key) not in legal:
        raise CodecError(f"option {key} is {options.get(key)!r}; legal: {', '.join(legal)}")
    return str(options[key])


def number(options: Options, key: str, low: float, high: float, or_low: bool = False) -> float:
    """An option that is a number above ``low`` (or from there on) and up to ``high``."""
    value = options[key]
    if not is_number(value) or not (low < value <= high or (or_low and value == low)):
        raise CodecError(f"option {key} is {value!r}; a number {'from' if or_low else 'above'} {low:g} and up to "
                         f"{high:g} is needed")
    return float(value)


def xyz(vector: Any) -> np.ndarray:
    """float32 [3] of a Vector3 or Point."""
    return np.array([vector.x, vector.y, vector.z], dtype=np.float32)


def vector3(value: Any, kind: str = "Vector3") -> Any:
    """Vector3 or Point of three numbers."""
    if np.shape(value) != (3,):
        raise CodecError(f"a {kind} has 3 numbers, got shape {np.shape(value)}")
    x, y, z = (float(v) for v in value)
    return messages.record(f"geometry_msgs/msg/{kind}")(x=x, y=y, z=z)


def attitude(orientation: Any, what: str) -> np.ndarray:
    """[4] wxyz of a Quaternion of message ``what``, made unit; one that is far from that is an error."""
    raw = np.array([orientation.x, orientation.y, orientation.z, orientation.w])
    length = float(np.linalg.norm(raw))
    if not 0.5 < length < 2.0:
        raise CodecError(f"{what}: the orientation (x, y, z, w) = {raw.tolist()} is not a quaternion of length 1")
    return normalized(wxyz_from_xyzw(raw))


def orientation(quat_wxyz: np.ndarray) -> Any:
    """Quaternion of [4] wxyz."""
    if np.shape(quat_wxyz) != (4,):
        raise CodecError(f"a Quaternion has 4 numbers, got shape {np.shape(quat_wxyz)}")
    x, y, z, w = (float(v) for v in xyzw_from_wxyz(np.asarray(quat_wxyz, dtype=float)))
    return messages.record("geometry_msgs/msg/Quaternion")(x=x, y=y, z=z, w=w)


# nav_msgs/Odometry. Options: linear: world | body (frame of the linear velocity), angular: body | absent.


def odometry_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals that an Odometry carries."""
    rates = ("base_ang_vel_b",) if choice(options, "angular", ("body", "absent")) == "body" else ()
    return ("base_pos_w", "base_quat_w", "base_vel_w", *rates, "height")


def decode_odometry(message: Any, options: Options) -> Signals:
    """Signals of an Odometry; velocities in the stated frame are turned into the world frame."""
    pose, twist = message.pose.pose, message.twist.twist
    quat = attitude(pose.orientation, "Odometry")
    velocity = np.array([twist.linear.x, twist.linear.y, twist.linear.z])
    if choice(options, "linear", ("world", "body")) == "body":
        velocity = rotate(quat, velocity)
    position = xyz(pose.position)
    out = {"base_pos_w": position, "base_quat_w": quat.astype(np.float32), "base_vel_w": velocity.astype(np.float32),
           "height": position[2]}
    if choice(options, "angular", ("body", "absent")) == "body":
        out["base_ang_vel_b"] = xyz(twist.angular)
    return out


def encode_odometry(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: tuple[str, str], options: Options) -> Any:
    """The Odometry that a robot in this state publishes."""
    make = messages.record
    quat, velocity = np.asarray(signals["base_quat_w"], dtype=float), np.asarray(signals["base_vel_w"], dtype=float)
    if choice(options, "linear", ("world", "body")) == "body":
        velocity = rotate_inverse(quat, velocity)
    rates = signals["base_ang_vel_b"] if choice(options, "angular", ("body", "absent")) == "body" else np.zeros(3)
    pose = make("geometry_msgs/msg/Pose")(
        position=vector3(signals["base_pos_w"], "Point"), orientation=orientation(quat))
    twist = make("geometry_msgs/msg/Twist")(linear=vector3(velocity), angular=vector3(rates))
    return make("nav_msgs/msg/Odometry")(
        header=messages.header(stamp_ns, frames[0]), child_frame_id=frames[1],
        pose=make("geometry_msgs/msg/PoseWithCovariance")(pose=pose, covariance=np.zeros(36)),
        twist=make("geometry_msgs/msg/TwistWithCovariance")(twist=twist, covariance=np.zeros(36)))


# A message with header and float32[] values (crazyflie_interfaces/LogDataGeneric). Options: signal, unit.


def decode_log_values(message: Any, options: Options) -> Signals:
    """The one signal that a log block carries."""
    scale = UNITS[choice(options, "unit", tuple(UNITS))]
    return {options["signal"]: (np.asarray(message.values, dtype=np.float64) * scale).astype(np.float32)}


def encode_log_values(
    signals: Mapping[str, np.ndarray], stamp_ns: int, frames: tuple[str, str], options: Options
) -> Any:
    """The log block of a signal."""
    scale = UNITS[choice(options, "unit", tuple(UNITS))]
    values = np.atleast_1d(np.asarray(signals[options["signal"]], dtype=np.float64) / scale).astype(np.float32)
    return messages.record("crazyflie_interfaces/msg/LogDataGeneric")(
        header=messages.header(stamp_ns, frames[0]), timestamp=stamp_ns // 1_000_000 % 2**32, values=values)


# Commands


# The Crazyflie's legacy setpoint. Options: max_thrust_n, and of the setpoint's 16 bits: full, which gives that thrust;
# low, below which the firmware gives none; high, its top.

MAX_SETPOINT = 65535.0  # 16 bits


def thrust_curve(options: Options) -> tuple[float, float, float, float]:
    """The options max_thrust_n [N], full, low and high."""
    full = number(options, "full", 0.0, MAX_SETPOINT)
    high = number(options, "high", 0.0, full)
    return number(options, "max_thrust_n", 0.0, 1e6), full, number(options, "low", 0.0, high, or_low=True), high


def encode_legacy_rates(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Collective thrust [N] and body rates [rad/s, FLU] -> the Crazyflie's legacy setpoint in rate mode.

    Signs and thrust curve: see ``robots/crazyflie/ros.yaml``, where the sources are named.
    """
    thrust, p, q, r = (float(v) for v in command)
    most, full, low, high = thrust_curve(options)
    wanted = thrust / most * full
    setpoint = 0.0 if wanted < low else min(wanted, high)
    return messages.record("geometry_msgs/msg/Twist")(
        linear=vector3((DEG * q, DEG * p, setpoint)), angular=vector3((0.0, 0.0, -DEG * r)))


def decode_legacy_rates(message: Any, options: Options) -> np.ndarray:
    """What the firmware makes of a legacy setpoint in rate mode: [4] thrust N, body rates rad/s."""
    most, full, low, high = thrust_curve(options)
    raw = min(max(float(message.linear.z), 0.0), high)
    thrust = 0.0 if raw < low else raw / full * most
    return np.array([thrust, message.linear.y / DEG, message.linear.x / DEG, -message.angular.z / DEG])


def encode_array(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """A command as std_msgs/Float32MultiArray, in the command's own order and units."""
    layout = messages.record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return messages.record("std_msgs/msg/Float32MultiArray")(
        layout=layout, data=np.asarray(command, dtype=np.float32).ravel())


def decode_array(message: Any, options: Options) -> np.ndarray:
    """The numbers of a Float32MultiArray."""
    return np.asarray(message.data, dtype=np.float64)


STATES: dict[str, StateCodec] = {
    "odometry": StateCodec("nav_msgs/msg/Odometry", odometry_signals, decode_odometry, encode_odometry),
    "log_values": StateCodec(
        "crazyflie_interfaces/msg/LogDataGeneric", lambda options: (options["signal"],), decode_log_values,
        encode_log_values),
}
COMMANDS: dict[str, CommandCodec] = {
    "legacy_rates": CommandCodec("geometry_msgs/msg/Twist", encode_legacy_rates, decode_legacy_rates),
    "array": CommandCodec("std_msgs/msg/Float32MultiArray", encode_array, decode_array),
}

# last: these modules build on what stands above and add their codecs to the two tables
from temporeal_bridge.codecs import cameras, joints, px4  # noqa: E402, F401
