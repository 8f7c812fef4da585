"""Vectors, orientations and poses of geometry_msgs, as signals and as a velocity command.

Option ``frame`` of the stamped ones: the frame that a message must be in (there is no tf here); null: not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from temporeal.robots.frames import normalized, wxyz_from_xyzw, xyzw_from_wxyz
from temporeal_bridge.codecs.codec import CodecError, Frames, Options, Signals, finite, is_wanted
from temporeal_bridge.transports import messages


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
    """Unit [4] wxyz of a Quaternion in message ``what``; a length outside 0.5 to 2 is an error."""
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


def frame_of(options: Options) -> str | None:
    """Option ``frame``."""
    frame = options["frame"]
    if frame is not None and not (isinstance(frame, str) and frame):
        raise CodecError(f"option frame is {frame!r}; the name of a frame is needed, or null")
    return frame


def check_frame(message: Any, options: Options, what: str) -> None:
    """The message is in the frame that the options name."""
    wanted, found = frame_of(options), message.header.frame_id
    if wanted is not None and found != wanted:
        raise CodecError(f"{what} is in frame {found!r}, {wanted!r} is needed")


# geometry_msgs/PoseStamped. Options: frame; position, attitude: the signals (either may be left out).


def pose_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals of a pose."""
    return tuple(options[key] for key in ("position", "attitude") if key in options)


def decode_pose(message: Any, options: Options) -> Signals:
    """Position [3] m and attitude [4] wxyz of a pose."""
    check_frame(message, options, "PoseStamped")
    out = {}
    if "position" in options and is_wanted(options, options["position"]):
        position = finite(xyz(message.pose.position), (3,), "PoseStamped: the position")
        out[options["position"]] = position.astype(np.float32)
    if "attitude" in options and is_wanted(options, options["attitude"]):
        out[options["attitude"]] = attitude(message.pose.orientation, "PoseStamped").astype(np.float32)
    return out


def encode_pose(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The pose. A part without a signal is zero, or the identity rotation."""
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
    check_frame(message, options, "TwistStamped")
    return {options[key]: finite(xyz(getattr(message.twist, key)), (3,), f"TwistStamped: {key}").astype(np.float32)
            for key in ("linear", "angular") if key in options and is_wanted(options, options[key])}


def encode_twist(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The twist. A part without a signal is zero."""
    parts = {key: vector3(signals[options[key]] if key in options else np.zeros(3)) for key in ("linear", "angular")}
    return messages.record("geometry_msgs/msg/TwistStamped")(
        header=messages.header(stamp_ns, frame_of(options) or frames[0]),
        twist=messages.record("geometry_msgs/msg/Twist")(**parts))


# geometry_msgs/PointStamped. Options: frame, signal.


def decode_point(message: Any, options: Options) -> Signals:
    """A point [3] m."""
    check_frame(message, options, "PointStamped")
    return {options["signal"]: finite(xyz(message.point), (3,), "PointStamped: the point").astype(np.float32)}


def encode_point(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The point."""
    return messages.record("geometry_msgs/msg/PointStamped")(
        header=messages.header(stamp_ns, frame_of(options) or frames[0]),
        point=vector3(signals[options["signal"]], "Point"))


# geometry_msgs/TwistStamped as a command, for MoveIt Servo's delta_twist_cmds with `command_in_type: speed_units`.
# Option: frame, never empty. Servo stops when the stamp is older than incoming_command_timeout (moveit2 8fcb5d2,
# servo_node.cpp), so the stamp is the sending time.


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
    check_frame(message, {"frame": servo_frame(options)}, "TwistStamped")
    twist: Sequence[Any] = (message.twist.linear, message.twist.angular)
    return finite([getattr(part, axis) for part in twist for axis in "xyz"], (6,), "TwistStamped")
