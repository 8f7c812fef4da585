"""nav_msgs/Odometry. Options: linear: world | body (frame of the linear velocity), angular: body | absent, height:
position | absent (whether z is the signal ``height``, too; left out: position)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.robots.frames import rotate, rotate_inverse
from temporeal_bridge.codecs.codec import Frames, Options, Signals, choice, is_wanted
from temporeal_bridge.codecs.geometry import attitude, orientation, vector3, xyz
from temporeal_bridge.transports import messages


def has_rates(options: Options) -> bool:
    """Whether the message's angular velocity is used."""
    return choice(options, "angular", ("body", "absent")) == "body"


def in_body_frame(options: Options) -> bool:
    """Whether the message's linear velocity is in the body frame."""
    return choice(options, "linear", ("world", "body")) == "body"


def has_height(options: Options) -> bool:
    """Whether the position's z is the signal ``height``."""
    return "height" not in options or choice(options, "height", ("position", "absent")) == "position"


def odometry_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals that an Odometry carries."""
    rates = ("base_ang_vel_b",) if has_rates(options) else ()
    height = ("height",) if has_height(options) else ()
    return ("base_pos_w", "base_quat_w", "base_vel_w", *rates, *height)


def decode_odometry(message: Any, options: Options) -> Signals:
    """Signals of an Odometry; a velocity in the body frame is rotated into the world frame."""
    pose, twist = message.pose.pose, message.twist.twist
    position = xyz(pose.position)
    out = {"base_pos_w": position, **({"height": position[2]} if has_height(options) else {})}
    turned = in_body_frame(options) and is_wanted(options, "base_vel_w")
    if turned or is_wanted(options, "base_quat_w"):
        quat = attitude(pose.orientation, "Odometry")
        out["base_quat_w"] = quat.astype(np.float32)
    if is_wanted(options, "base_vel_w"):
        velocity = np.array([twist.linear.x, twist.linear.y, twist.linear.z])
        out["base_vel_w"] = (rotate(quat, velocity) if turned else velocity).astype(np.float32)
    if has_rates(options):
        out["base_ang_vel_b"] = xyz(twist.angular)
    return out


def encode_odometry(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The Odometry that a robot in this state publishes."""
    make = messages.record
    quat, velocity = np.asarray(signals["base_quat_w"], dtype=float), np.asarray(signals["base_vel_w"], dtype=float)
    if in_body_frame(options):
        velocity = rotate_inverse(quat, velocity)
    rates = signals["base_ang_vel_b"] if has_rates(options) else np.zeros(3)
    pose = make("geometry_msgs/msg/Pose")(
        position=vector3(signals["base_pos_w"], "Point"), orientation=orientation(quat))
    twist = make("geometry_msgs/msg/Twist")(linear=vector3(velocity), angular=vector3(rates))
    return make("nav_msgs/msg/Odometry")(
        header=messages.header(stamp_ns, frames[0]), child_frame_id=frames[1],
        pose=make("geometry_msgs/msg/PoseWithCovariance")(pose=pose, covariance=np.zeros(36)),
        twist=make("geometry_msgs/msg/TwistWithCovariance")(twist=twist, covariance=np.zeros(36)))
