"""Models of the drivers between a command's topic and a robot's actuators, also when commands stop or are wrong.

State machines without a clock: ``read`` checks a message on arrival, ``receive`` takes its content when it reaches the
driver, ``output`` is the current setpoint. Their behaviour follows the sources:

- ros2_controllers 6.9.0 (94e74de; jazzy, 4.42.1, ed360c9, is the same except where noted),
  ``forward_command_controller/src/forward_controllers_base.cpp`` and
  ``joint_trajectory_controller/src/{joint_trajectory_controller,trajectory}.cpp``
- ros2_control, ``controller_manager/src/controller_manager.cpp``, ``update``
- moveit2 (8fcb5d2), ``moveit_servo/src/servo_node.cpp``, and see :mod:`temporeal.robots.motion.cartesian_servo`
- LEAP_Hand_API (0c3a124), ``ros2_module/scripts/leaphand_node.py`` and ``leap_hand_utils/dynamixel_client.py``
- crazyflie-firmware (2a18fc2), ``supervisor.c``; see ``robots/crazyflie/ros.yaml``
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.motion.cartesian_servo import PERIOD, TIMEOUT, Servo, servo_of
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.grippers import ACTION as GRIPPER_ACTION
from temporeal_bridge.codecs.grippers import COMMAND as GRIPPER
from temporeal_bridge.codecs.joint_options import shares
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import CommandTopic, InterfaceError
from temporeal_bridge.transports import messages

Array = np.ndarray
FLYING_S = 2.0  # s of flight after the last thrust of a Crazyflie: IS_FLYING_HYSTERESIS_THRESHOLD, supervisor.c
# (other firmware: simulation.watchdog.flying_s)


class Refused(ValueError):
    """A command that the driver refuses; the message says why."""


class Driver(Protocol):
    """The driver of one command of an articulated robot.

    Attributes:
        failed: why it refuses all further commands; "" while it does not.
        dead: its process has ended: the motors are off, and the robot's state is not published.
    """

    failed: str
    dead: bool

    def read(self, message: Any, now_ns: int) -> Any:
        """The content, for :meth:`receive`, of a message that arrives at the ROS time ``now_ns``; or Refused."""

    def receive(self, content: Any, now: float) -> None:
        """Take the content of a message at ``now`` [s]."""

    def output(self, now: float) -> Array | None:
        """The setpoint [U] at ``now`` [s]; None before the first."""


class Firmware:
    """A quadrotor's firmware with its watchdog, as the Crazyflie's.

    Without a setpoint for ``off_after_s`` its motors are off; in flight, that is up to ``flying_s`` after the last
    thrust, it is then locked until it is restarted.
    """

    def __init__(self, command: str, watchdog: Mapping[str, float]) -> None:
        self.command, self.watchdog = command, watchdog
        self.last, self.at = np.zeros(4), -np.inf
        self.pushed_at = -np.inf  # when the last setpoint with a thrust arrived [s]
        self.locked = False

    def receive(self, command: Array, at: float) -> None:
        """Take a setpoint that arrives at ``at`` [s]."""
        self.hold(command, at)
        if (command[:1] if self.command == "ctbr_cmd" else command).any():
            self.pushed_at = at

    def hold(self, command: Array, at: float) -> None:
        """Set the command that holds the robot until its first setpoint; it does not count as flight."""
        self.last, self.at = command, at

    def output(self, now: float, quat_wxyz: Array) -> Array:
        """The current setpoint: the last one; without new ones a level attitude with its thrust; then zero."""
        age = now - self.at
        silent = age > self.watchdog["off_after_s"]
        self.locked = self.locked or (silent and self.at - self.pushed_at <= self.watchdog.get("flying_s", FLYING_S))
        if self.locked or silent:
            return np.zeros(4)
        if age <= self.watchdog["level_after_s"]:
            return self.last
        if self.command != "ctbr_cmd":
            return np.zeros(4)  # motor setpoints exist in simulation only: no firmware levels them
        rates = shield.level_rates(quat_wxyz, self.watchdog["gain"], self.watchdog["limit"])
        return np.concatenate([self.last[:1], rates])


class Held:
    """A driver that holds the last command for ever. ``size``: number of its components."""

    dead = False

    def __init__(self, topic: CommandTopic, size: int) -> None:
        self.codec, self.options, self.size = COMMAND_CODECS[topic.codec], topic.options, size
        self.last: Array | None = None
        self.failed = ""

    def receive(self, content: Array, now: float) -> None:
        """See :class:`Driver`."""
        self.last = content

    def output(self, now: float) -> Array | None:
        """See :class:`Driver`."""
        return self.last


class ForwardCommandController(Held):
    """ros2_control's forward_command_controller. It has no time-out.

    An empty message, or one with a non-finite value, is dropped. A message of another length makes ``update`` fail, and
    the controller manager deactivates the controller: the hardware holds the last command, and no other is taken until
    the controller is activated again.
    """

    def read(self, message: Any, now_ns: int) -> Array:
        """See :class:`Driver`."""
        if self.failed:
            raise Refused(self.failed)
        data = np.asarray(message.data, dtype=np.float64)
        if not data.size or not np.isfinite(data).all():
            raise Refused(f"non-finite value received, or none: {data.tolist()}")
        if data.size != self.size:
            self.failed = f"deactivated: command size ({data.size}) does not match number of interfaces ({self.size})"
            raise Refused(self.failed)
        return np.asarray(self.codec.decode(message, self.options), dtype=np.float64)


class GripperController(Held):
    """A gripper's controller by control_msgs/GripperCommand: it goes to the commanded position and holds it."""

    def read(self, message: Any, now_ns: int) -> Array:
        """See :class:`Driver`."""
        if not np.isfinite(message.position):
            raise Refused(f"the gripper's position is not finite: {message.position}")
        return np.asarray(self.codec.decode(message, self.options), dtype=np.float64)


class Parted:
    """Several drivers, each of some components of a command, on topics of their own.

    Args:
        parts: topic (which names the components) and driver of each. start: initial setpoint [U].
    """

    def __init__(self, parts: Sequence[tuple[CommandTopic, Driver]], start: Array) -> None:
        self.parts, self.last = parts, np.array(start, dtype=np.float64)

    @property
    def failed(self) -> str:
        """See :class:`Driver`."""
        return next((driver.failed for _, driver in self.parts if driver.failed), "")

    @property
    def dead(self) -> bool:
        """See :class:`Driver`."""
        return any(driver.dead for _, driver in self.parts)

    def read(self, message: Any, now_ns: int, number: int = 0) -> Any:
        """See :class:`Driver`; of topic ``number``."""
        return number, self.parts[number][1].read(message, now_ns)

    def receive(self, content: Any, now: float) -> None:
        """See :class:`Driver`."""
        number, own = content
        self.parts[number][1].receive(own, now)

    def output(self, now: float) -> Array | None:
        """See :class:`Driver`."""
        found = [(topic.components, driver.output(now)) for topic, driver in self.parts]
        for components, values in found:
            if values is not None:
                self.last[list(components)] = values
        return None if all(values is None for _, values in found) else self.last.copy()


class LeapNode(Held):
    """The LEAP hand's node: position targets of the motors in the order of their ids, held for ever.

    A wrong number of values (an assertion) or a non-finite one (``int(nan)``) raises in the callback: the node ends,
    and its exit handler switches the motors off.
    """

    def read(self, message: Any, now_ns: int) -> Array:
        """See :class:`Driver`."""
        if self.dead:
            raise Refused(self.failed)
        position = np.asarray(message.position, dtype=np.float64)
        if position.size != self.size or not np.isfinite(position).all():
            self.dead, self.failed = True, f"the node ended at a command with the positions {position.tolist()}"
            raise Refused(self.failed)
        return np.asarray(self.codec.decode(message, self.options), dtype=np.float64)


@dataclass(frozen=True)
class Point:
    """Positions, velocities and accelerations of joints [J]; None: not given."""

    position: Array
    velocity: Array | None = None
    acceleration: Array | None = None


@dataclass(frozen=True)
class Trajectory:
    """Points at ``times`` [P], s from the trajectory's start.

    It starts ``lead`` [s] after it reaches the controller; None (stamp 0): at once.
    """

    times: Array
    points: tuple[Point, ...]
    lead: float | None = None


class JointTrajectoryController:
    """ros2_control's joint_trajectory_controller on its topic, for position commands.

    It interpolates by cubic splines between points with velocities, by quintic ones if they also have accelerations,
    else linearly; it holds the last point for ever (``cmd_timeout`` is 0 by default). A new trajectory replaces the old
    one and begins at its current setpoint: ``interpolate_from_desired_state: true``, since 6 in motion by default. A
    message that breaks a rule is dropped, and the old trajectory goes on. Non-finite numbers are not checked.

    If a motor pulls several joints, the hardware adds up their positions, as in a Shadow hand (sr_core af2f341,
    ``srh_joint_position_controller.cpp``, ``update``).

    Args:
        joints: names; a list holds the joints of one motor.
        start: setpoint [U] of the motors before the first trajectory.
        moving_end: ``allow_nonzero_velocity_at_trajectory_end``.
    """

    failed, dead = "", False

    def __init__(self, joints: Sequence[str | Sequence[str]], start: Array, *, moving_end: bool = False) -> None:
        self.drives = shares(joints)
        self.joints, self.moving_end = list(self.drives.joints), moving_end
        self.before = (-np.inf, Point(self.drives.spread(np.array(start, dtype=np.float64))))
        self.begin = 0.0
        self.trajectory: Trajectory | None = None

    def read(self, message: Any, now_ns: int) -> Trajectory:
        """See :class:`Driver`; the rules of ``validate_trajectory_msg``."""
        names, points = list(message.joint_names), list(message.points)
        if sorted(names) != sorted(self.joints):
            raise Refused(f"joints on incoming trajectory {names} don't match the controller joints {self.joints}")
        if not points:
            raise Refused("empty trajectory received")
        order = [names.index(joint) for joint in self.joints]
        read = tuple(read_point(point, i, order) for i, point in enumerate(points))
        times = np.array([1e-9 * messages.nanoseconds(point.time_from_start) for point in points])
        if (np.diff(times) <= 0).any():
            raise Refused(f"time between points is not strictly increasing: {times.tolist()} s")
        last = read[-1].velocity
        if not self.moving_end and last is not None and (np.abs(last) > np.finfo(np.float32).eps).any():
            raise Refused(f"velocity of last trajectory point is not zero: {last.tolist()}")
        stamp = messages.nanoseconds(message.header.stamp)
        lead = 1e-9 * (stamp - now_ns) if stamp else None
        if lead is not None and lead + times[-1] < 0:
            raise Refused(f"trajectory ends in the past, {-lead - times[-1]:g} s ago")
        return Trajectory(times, read, lead)

    def receive(self, content: Trajectory, now: float) -> None:
        """See :class:`Driver`."""
        self.before = (now, self.desired(now))
        self.begin, self.trajectory = now + (content.lead or 0.0), content

    def output(self, now: float) -> Array | None:
        """See :class:`Driver`."""
        return None if self.trajectory is None else self.drives.gather(self.desired(now).position)

    def desired(self, now: float) -> Point:
        """The setpoint at ``now`` [s]."""
        if self.trajectory is None:
            return resting(self.before[1])
        times, points = self.begin + self.trajectory.times, self.trajectory.points
        i = int(np.searchsorted(times, now, side="right"))
        if i == len(points):
            return resting(points[-1])
        at, point = (times[i - 1], points[i - 1]) if i else self.before
        if not i:  # the segment to the first point is interpolated as the others are
            point = resting(point)
        return between(now - at, times[i] - at, point, points[i])


def read_point(point: Any, number: int, order: Sequence[int]) -> Point:
    """A point of a message with its joints in ``order``."""
    fields = {name: np.asarray(getattr(point, name), dtype=np.float64)
              for name in ("positions", "velocities", "accelerations", "effort")}
    for name, values in fields.items():
        if values.size != len(order) and (values.size or name == "positions"):
            raise Refused(f"mismatch between joint_names ({len(order)}) and {name} ({values.size}) at point {number}")
    if fields["effort"].size:
        raise Refused("trajectories with effort fields are only for controllers of the 'effort' command interface")
    if fields["accelerations"].size and not fields["velocities"].size:
        raise Refused(f"accelerations without velocities at point {number}: the controller would command zeros")
    position, velocity, acceleration = (
        fields[name][order] if fields[name].size else None for name in ("positions", "velocities", "accelerations"))
    assert position is not None  # its size was checked
    return Point(position, velocity, acceleration)


def resting(point: Point) -> Point:
    """The point with zeros for values that are not given."""
    zero = np.zeros_like(point.position)
    return Point(point.position, zero if point.velocity is None else point.velocity,
                 zero if point.acceleration is None else point.acceleration)


def between(t: float, duration: float, a: Point, b: Point) -> Point:
    """The point at ``t`` of ``duration`` [s] between ``a`` and ``b``: the polynomial of least degree through both
    positions and the velocities and accelerations that both have."""
    way = b.position - a.position
    if a.velocity is None or b.velocity is None:
        return Point(a.position + way * (t / duration), way / duration, np.zeros_like(way))
    if a.acceleration is None or b.acceleration is None:
        mean = way / duration
        c2 = (3 * mean - 2 * a.velocity - b.velocity) / duration
        c3 = (a.velocity + b.velocity - 2 * mean) / duration**2
        return polynomial(t, a.position, a.velocity, c2, c3)
    c2 = 0.5 * a.acceleration
    d = way - duration * (a.velocity + duration * c2)  # rest of the position at the end without the other terms
    v = duration * (b.velocity - a.velocity - 2 * duration * c2)
    w = 0.5 * duration**2 * (b.acceleration - a.acceleration)
    return polynomial(t, a.position, a.velocity, c2, (10 * d - 4 * v + w) / duration**3,
                      (-15 * d + 7 * v - 2 * w) / duration**4, (6 * d - 3 * v + w) / duration**5)


def polynomial(t: float, *coefficients: Array) -> Point:
    """Value and two derivatives at ``t`` of the polynomial with ``coefficients`` [J] each, lowest degree first."""
    rows = np.stack(coefficients)
    n = np.arange(len(rows))
    powers = t**n
    first = n[1:] * powers[:-1]
    second = n[2:] * n[1:-1] * powers[:-2]
    return Point(powers @ rows, first @ rows[1:], second @ rows[2:])


class MoveItServo:
    """MoveIt Servo in front of a position controller: a velocity of the tool moves the joints by
    :mod:`temporeal.robots.motion.cartesian_servo`.

    The joints stop at a velocity that is older than TIMEOUT, or that is in another frame or not finite
    (``isValidCommand``; here it is refused on arrival). Servo plans ``max_expected_latency`` ahead, so the controller
    lags by that.

    Args:
        joints: [J] rad, at the start. lag_s: ``max_expected_latency``.
    """

    failed, dead = "", False

    def __init__(self, topic: CommandTopic, servo: Servo, joints: Array, lag_s: float) -> None:
        self.codec, self.options, self.servo, self.lag_s = COMMAND_CODECS[topic.codec], topic.options, servo, lag_s
        self.twist, self.stamped, self.told = np.zeros(6), -np.inf, False
        self.rows = deque([(-np.inf, np.array(joints, dtype=np.float64))])  # (when, where) [s], [J]

    def read(self, message: Any, now_ns: int) -> tuple[Array, float]:
        """See :class:`Driver`: the twist, and its age [s]."""
        age = 1e-9 * (now_ns - messages.nanoseconds(message.header.stamp))
        try:
            return np.asarray(self.codec.decode(message, self.options), dtype=np.float64), age
        except CodecError as error:
            raise Refused(str(error)) from error

    def receive(self, content: tuple[Array, float], now: float) -> None:
        """See :class:`Driver`."""
        (self.twist, age), self.told = content, True
        self.stamped = now - age

    def output(self, now: float) -> Array | None:
        """See :class:`Driver`: where the joints of so long ago were sent."""
        if not self.told:
            return None
        last, joints = self.rows[-1]
        if last == -np.inf:
            last = now - PERIOD
            self.rows[-1] = (last, joints)
        while now - last >= PERIOD - 1e-9:
            last += PERIOD
            if last - self.stamped < TIMEOUT:
                joints = self.servo.step(joints[None], self.twist[None], PERIOD)[0]
            self.rows.append((last, joints))
        then = now - self.lag_s
        while len(self.rows) > 2 and self.rows[1][0] <= then:
            self.rows.popleft()
        (a, before), (b, after) = self.rows[0], self.rows[min(1, len(self.rows) - 1)]
        share = float(np.clip((then - a) / (b - a), 0.0, 1.0)) if b > a else 1.0
        return np.asarray(before + share * (after - before))


def driver_of(
    topic: CommandTopic, start: Array, *, robot: RobotSpec, moving_end: bool = False, servo_lag_s: float = 0.1
) -> Driver:
    """The driver that reads ``topic`` of the articulated ``robot``, whose joints are held at ``start`` [U]."""
    if topic.type == "trajectory_msgs/msg/JointTrajectory":
        return JointTrajectoryController(topic.options["joints"], start, moving_end=moving_end)
    if topic.type == "geometry_msgs/msg/TwistStamped":
        return MoveItServo(topic, servo_of(robot), start, servo_lag_s)
    if topic.type == "std_msgs/msg/Float64MultiArray":
        return ForwardCommandController(topic, len(start))
    if topic.type == "sensor_msgs/msg/JointState":
        return LeapNode(topic, len(start))
    if topic.type in (GRIPPER, GRIPPER_ACTION):
        return GripperController(topic, len(start))
    raise InterfaceError(
        f"no simulated driver takes {topic.type} ({topic.topic}); legal: trajectory_msgs/msg/JointTrajectory, "
        f"std_msgs/msg/Float64MultiArray, geometry_msgs/msg/TwistStamped, sensor_msgs/msg/JointState, {GRIPPER}")
