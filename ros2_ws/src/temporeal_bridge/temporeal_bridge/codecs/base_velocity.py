"""Velocities of a mobile base as a command: geometry_msgs/Twist or TwistStamped, as diff_drive_controller takes them.

Option ``axes``: what each component of the command sets, out of ``x`` (forward, m/s), ``y`` (to the left, m/s) and
``yaw`` (rad/s). Option ``frame`` of the stamped one: the frame that the header names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal_bridge.codecs.codec import CodecError, Options, finite
from temporeal_bridge.codecs.geometry import servo_frame, vector3
from temporeal_bridge.transports import messages

AXES = {"x": 0, "y": 1, "yaw": 5}
"""Place of each axis among linear x, y, z and angular x, y, z."""


def places(options: Options) -> list[int]:
    """Option ``axes`` as places in a twist."""
    axes = options["axes"]
    listed = isinstance(axes, (list, tuple)) and axes and all(axis in AXES for axis in axes)
    if not listed or len(set(axes)) != len(axes):
        raise CodecError(f"option axes is {axes!r}; different ones of {', '.join(AXES)} are needed")
    return [AXES[axis] for axis in axes]


def encode_base(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The Twist of a command."""
    found, value = places(options), np.zeros(6)
    value[found] = finite(command, (len(found),), "the command")
    return messages.record("geometry_msgs/msg/Twist")(linear=vector3(value[:3]), angular=vector3(value[3:]))


def decode_base(message: Any, options: Options) -> np.ndarray:
    """The command of a Twist; speeds that it cannot have are not looked at, as drivers do."""
    found = places(options)
    parts = [getattr(part, axis) for part in (message.linear, message.angular) for axis in "xyz"]
    return finite([parts[i] for i in found], (len(found),), "Twist")


def encode_base_stamped(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The TwistStamped of a command."""
    return messages.record("geometry_msgs/msg/TwistStamped")(
        header=messages.header(stamp_ns, servo_frame(options)), twist=encode_base(command, options))


def decode_base_stamped(message: Any, options: Options) -> np.ndarray:
    """The command of a TwistStamped. Its frame is for human readers: drivers do not look at it."""
    servo_frame(options)
    return decode_base(message.twist, options)
