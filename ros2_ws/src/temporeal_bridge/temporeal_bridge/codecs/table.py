"""All codecs by the name that ``ros.yaml`` calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from temporeal.robots.registry import guess
from temporeal_bridge.codecs.arrays import decode_array, decode_numbers, encode_array, encode_numbers
from temporeal_bridge.codecs.base_velocity import (
    decode_base,
    decode_base_stamped,
    encode_base,
    encode_base_stamped,
)
from temporeal_bridge.codecs.codec import CodecError, CommandCodec, StateCodec, one_signal, unstamped
from temporeal_bridge.codecs.crazyflie import (
    decode_legacy_rates,
    decode_log_values,
    encode_legacy_rates,
    encode_log_values,
)
from temporeal_bridge.codecs.geometry import (
    decode_point,
    decode_pose,
    decode_servo,
    decode_twist,
    encode_point,
    encode_pose,
    encode_servo,
    encode_twist,
    pose_signals,
    twist_signals,
)
from temporeal_bridge.codecs.grippers import ACTION, COMMAND, decode_gripper, encode_goal, encode_gripper
from temporeal_bridge.codecs.images import (
    check_picture,
    decode_compressed,
    decode_image,
    encode_compressed,
    encode_image,
)
from temporeal_bridge.codecs.joint_parts import JointParts
from temporeal_bridge.codecs.joint_state import (
    decode_joint_command,
    decode_joint_state,
    encode_joint_command,
    encode_joint_state,
    joint_state_signals,
)
from temporeal_bridge.codecs.odometry import decode_odometry, encode_odometry, odometry_signals
from temporeal_bridge.codecs.px4 import PX4_COMMANDS, PX4_STATES
from temporeal_bridge.codecs.ros2_control import (
    decode_forward,
    decode_trajectory,
    encode_forward,
    encode_smooth_trajectory,
    encode_trajectory,
)

STATE_CODECS: dict[str, StateCodec] = {
    "odometry": StateCodec("nav_msgs/msg/Odometry", odometry_signals, decode_odometry, encode_odometry),
    "log_values": StateCodec(
        "crazyflie_interfaces/msg/LogDataGeneric", one_signal, decode_log_values, encode_log_values),
    **PX4_STATES,
    "joint_state": StateCodec(
        "sensor_msgs/msg/JointState", joint_state_signals, decode_joint_state, encode_joint_state,
        parts=JointParts),
    "pose": StateCodec("geometry_msgs/msg/PoseStamped", pose_signals, decode_pose, encode_pose),
    "twist": StateCodec("geometry_msgs/msg/TwistStamped", twist_signals, decode_twist, encode_twist),
    "point": StateCodec("geometry_msgs/msg/PointStamped", one_signal, decode_point, encode_point),
    "array": StateCodec(
        "std_msgs/msg/Float64MultiArray", one_signal, decode_numbers, encode_numbers, stamp=unstamped),
    "image": StateCodec("sensor_msgs/msg/Image", one_signal, decode_image, encode_image, picture=check_picture),
    "compressed_image": StateCodec(
        "sensor_msgs/msg/CompressedImage", one_signal, decode_compressed, encode_compressed, picture=check_picture),
}
COMMAND_CODECS: dict[str, CommandCodec] = {
    "legacy_rates": CommandCodec("geometry_msgs/msg/Twist", encode_legacy_rates, decode_legacy_rates),
    "array": CommandCodec("std_msgs/msg/Float32MultiArray", encode_array, decode_array),
    **PX4_COMMANDS,
    "forward_array": CommandCodec("std_msgs/msg/Float64MultiArray", encode_forward, decode_forward),
    "joint_trajectory": CommandCodec(
        "trajectory_msgs/msg/JointTrajectory", encode_trajectory, decode_trajectory, encode_smooth_trajectory),
    "joint_state_command": CommandCodec("sensor_msgs/msg/JointState", encode_joint_command, decode_joint_command),
    "gripper_action": CommandCodec(ACTION, encode_goal, decode_gripper),
    "gripper_command": CommandCodec(COMMAND, encode_gripper, decode_gripper),
    "base_twist": CommandCodec("geometry_msgs/msg/Twist", encode_base, decode_base),
    "base_twist_stamped": CommandCodec("geometry_msgs/msg/TwistStamped", encode_base_stamped, decode_base_stamped),
    "twist_command": CommandCodec("geometry_msgs/msg/TwistStamped", encode_servo, decode_servo),
}

Codec = TypeVar("Codec", StateCodec, CommandCodec)


def named(table: Mapping[str, Codec], name: str) -> Codec:
    """Codec ``name`` of ``table``."""
    if name not in table:
        raise CodecError(f"unknown codec {name!r}; {guess(name, table)}known: {', '.join(table)}")
    return table[name]
