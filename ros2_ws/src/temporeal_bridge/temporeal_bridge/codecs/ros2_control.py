"""Commands for controllers of ros2_control: forward_command_controller and joint_trajectory_controller."""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.robots.motion.rate_limiter import MotionError
from temporeal.robots.motion.smooth_trajectory import SmoothTrajectory, resting
from temporeal_bridge.codecs.codec import CodecError, Options, finite, number
from temporeal_bridge.codecs.joint_options import drives_of, order_in_message
from temporeal_bridge.transports import messages

POINT = ("positions", "velocities", "accelerations")

# std_msgs/Float64MultiArray to a forward_command_controller. Options: joints, index. The controller fails on any other
# length, drops what is not finite, and holds the last command for ever (ros2_controllers 6.9.0,
# forward_controllers_base.cpp).


def encode_forward(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Positions, velocities or efforts, as the controller's `interface_name` says, in the controller's order."""
    order = order_in_message(options)
    data = np.empty(len(order))
    data[order] = finite(command, order.shape, "the command")
    return messages.array64(data)


def decode_forward(message: Any, options: Options) -> np.ndarray:
    """The command, in our order."""
    order = order_in_message(options)
    data: np.ndarray = finite(message.data, order.shape, "Float64MultiArray")[order]
    return data


# trajectory_msgs/JointTrajectory to a joint_trajectory_controller. Options: joints, reach_s. A list among the joints:
# those that one component drives (Shares). The stamp is 0: begin now (one in the past makes the controller catch up).
# The last point is at rest: the controller refuses another one, and an arm that gets nothing more stops there. With
# positions, velocities and accelerations it interpolates with polynomials of fifth degree (ros2_controllers 6.9.0,
# joint_trajectory_controller.cpp, trajectory.cpp).


def encode_trajectory(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """One point: be at rest at ``command`` in ``reach_s``."""
    reach = number(options, "reach_s", 0.0, 60.0)
    target = finite(command, (len(drives_of(options).count),), "the command")
    return encode_smooth_trajectory(resting(target, reach), options)


def encode_smooth_trajectory(trajectory: SmoothTrajectory, options: Options) -> Any:
    """All points of ``trajectory``."""
    drives = drives_of(options)
    if trajectory.positions.shape[1] != len(drives.count):
        raise CodecError(
            f"the trajectory has {trajectory.positions.shape[1]} components, option joints has {len(drives.count)}")
    duration = messages.record("builtin_interfaces/msg/Duration")
    point = messages.record("trajectory_msgs/msg/JointTrajectoryPoint")
    points = []
    rows = (drives.spread(values) for values in (trajectory.positions, trajectory.speeds, trajectory.accelerations))
    for time, position, speed, acceleration in zip(trajectory.times, *rows):
        ns = round(float(time) * 1e9)
        points.append(point(
            positions=position, velocities=speed, accelerations=acceleration, effort=np.zeros(0),
            time_from_start=duration(sec=ns // 10**9, nanosec=ns % 10**9)))
    return messages.record("trajectory_msgs/msg/JointTrajectory")(
        header=messages.header(0), joint_names=list(drives.joints), points=points)


def decode_smooth_trajectory(message: Any, options: Options) -> SmoothTrajectory:
    """The whole trajectory, in our order. Wrong names, lengths or times, or an end in motion, are errors."""
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
        return SmoothTrajectory(times, *rows)
    except MotionError as error:
        raise CodecError(f"JointTrajectory: {error}") from error


def decode_trajectory(message: Any, options: Options) -> np.ndarray:
    """The first point: the next one to be reached."""
    return np.asarray(decode_smooth_trajectory(message, options).positions[0])
