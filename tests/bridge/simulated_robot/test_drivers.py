"""Drivers of simulated robots: what they take, what they refuse, what they command when nothing comes."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.frames import conjugate, from_rotation_vector, multiply
from temporeal.robots.motion.cartesian_servo import HARD, servo_of
from temporeal.robots.motion.kinematics import chain
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import CommandTopic, InterfaceError
from temporeal_bridge.simulated_robot.drivers import (
    ForwardCommandController,
    JointTrajectoryController,
    LeapNode,
    MoveItServo,
    Refused,
    driver_of,
)
from temporeal_bridge.transports import messages

FRANKA = load_robot("franka")
HOME = np.array(FRANKA.home["joint_pos"])
JOINTS = ["a", "b"]
FORWARD = CommandTopic("c/commands", "std_msgs/msg/Float64MultiArray", "forward_array", "command",
                       {"joints": JOINTS, "index": [1, 0]})
LEAP = CommandTopic("cmd_leap", "sensor_msgs/msg/JointState", "joint_state_command", "command",
                    {"joints": JOINTS, "index": [1, 0], "offset": 3.0})
TWIST = CommandTopic("servo_node/delta_twist_cmds", "geometry_msgs/msg/TwistStamped", "twist_command", "command",
                     {"frame": "fr3_link0"})
TRAJECTORY = CommandTopic("c/joint_trajectory", "trajectory_msgs/msg/JointTrajectory", "joint_trajectory", "command",
                          {"joints": JOINTS, "reach_s": 0.1})


def array(*values: float):
    layout = messages.record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return messages.record(FORWARD.type)(layout=layout, data=np.array(values, dtype=np.float64))


def trajectory(*points: tuple, names=("a", "b"), stamp_ns: int = 0):
    """Points are (time s, positions, velocities, accelerations, effort); the last three may be left out."""
    duration, point = (messages.record(name) for name in (
        "builtin_interfaces/msg/Duration", "trajectory_msgs/msg/JointTrajectoryPoint"))
    rows = []
    for time, *values in points:
        given = [np.array(v, dtype=np.float64) for v in values] + [np.zeros(0)] * (4 - len(values))
        ns = round(1e9 * time)
        rows.append(point(**dict(zip(("positions", "velocities", "accelerations", "effort"), given)),
                          time_from_start=duration(sec=ns // 10**9, nanosec=ns % 10**9)))
    return messages.record(TRAJECTORY.type)(header=messages.header(stamp_ns), joint_names=list(names), points=rows)


def controller(start=(0.0, 0.0), **options) -> JointTrajectoryController:
    return JointTrajectoryController(JOINTS, np.array(start), **options)


def give(driver, message, now: float, now_ns: int = 10**18) -> None:
    driver.receive(driver.read(message, now_ns), now)


# ---------------------------------------------------------------- forward_command_controller


def test_forward_holds_the_last_command_for_ever():
    driver = ForwardCommandController(FORWARD, 2)
    assert driver.output(0.0) is None
    give(driver, array(1.0, 2.0), 0.1)
    assert driver.output(0.1).tolist() == driver.output(1e6).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("bad", [(np.nan, 0.0), (0.0, np.inf), (np.nan, 0.0, 0.0), ()])
def test_forward_drops_what_is_not_finite_and_goes_on(bad):
    driver = ForwardCommandController(FORWARD, 2)
    give(driver, array(1.0, 2.0), 0.0)
    with pytest.raises(Refused, match="non-finite"):
        driver.read(array(*bad), 0)
    assert driver.output(1.0).tolist() == [2.0, 1.0] and not driver.failed
    give(driver, array(3.0, 4.0), 1.0)
    assert driver.output(1.0).tolist() == [4.0, 3.0]


@pytest.mark.parametrize("bad", [(1.0,), (1.0, 2.0, 3.0)])
def test_forward_is_deactivated_by_another_length_and_takes_nothing_more(bad):
    driver = ForwardCommandController(FORWARD, 2)
    give(driver, array(1.0, 2.0), 0.0)
    for message in (array(*bad), array(5.0, 6.0)):
        with pytest.raises(Refused, match=rf"deactivated: command size \({len(bad)}\) .* interfaces \(2\)"):
            driver.read(message, 0)
    assert driver.output(9.0).tolist() == [2.0, 1.0] and not driver.dead


# ---------------------------------------------------------------- LEAP


def command_of(*positions: float):
    return messages.record(LEAP.type)(header=messages.header(0), name=[], position=np.array(positions),
                                      velocity=np.zeros(0), effort=np.zeros(0))


def test_leap_reads_positions_by_place_and_holds_them():
    driver = LeapNode(LEAP, 2)
    assert driver.output(0.0) is None
    give(driver, command_of(3.5, 4.0), 0.0)
    assert driver.output(1e6).tolist() == [1.0, 0.5] and not driver.dead


@pytest.mark.parametrize("bad", [(3.5,), (3.5, 4.0, 4.0), (3.5, np.nan), ()])
def test_leap_node_dies_of_a_wrong_command(bad):
    driver = LeapNode(LEAP, 2)
    give(driver, command_of(3.5, 4.0), 0.0)
    for message in (command_of(*bad), command_of(3.5, 4.0)):
        with pytest.raises(Refused, match="the node ended"):
            driver.read(message, 0)
    assert driver.dead


# ---------------------------------------------------------------- joint_trajectory_controller


def test_positions_alone_are_joined_by_straight_lines():
    driver = controller((1.0, 0.0))
    assert driver.output(4.0) is None
    give(driver, trajectory((0.5, (2.0, 1.0)), (1.5, (2.0, 3.0))), 5.0)
    for now, wanted in ((5.0, (1, 0)), (5.25, (1.5, 0.5)), (5.5, (2, 1)), (6.0, (2, 2)), (6.5, (2, 3)), (99.0, (2, 3))):
        assert driver.output(now) == pytest.approx(wanted)


def test_names_say_which_joint_is_meant():
    driver = controller()
    give(driver, trajectory((1.0, (1.0, 2.0)), names=("b", "a")), 0.0)
    assert driver.output(1.0).tolist() == [2.0, 1.0]


def test_a_motor_of_two_joints_goes_to_the_sum_of_what_they_are_told():
    """Whatever the shares are: 0.9 and 0.1 rad for the joints are 1 rad for the motor."""
    driver = JointTrajectoryController(["a", ["b", "c"]], np.array([0.5, 0.4]))
    give(driver, trajectory((1.0, [0.5, 0.9, 0.1]), names=("a", "c", "b")), 0.0)
    assert driver.output(0.0) == pytest.approx([0.5, 0.4]) and driver.output(0.5) == pytest.approx([0.5, 0.7])
    assert driver.output(9.0) == pytest.approx([0.5, 1.0])
    with pytest.raises(Refused, match="don't match the controller joints"):
        driver.read(trajectory((1.0, [0.5, 0.9]), names=("a", "b")), 0)


def test_positions_and_velocities_make_the_cubic_spline():
    """From rest at 0 to 1 in 2 s: 3 s^2 - 2 s^3 of s = t / 2; then Hermite's polynomial with slope 1 at its start."""
    driver = controller()
    give(driver, trajectory((2.0, (1.0, 1.0), (0.0, 1.0)), (3.0, (1.0, 1.5), (0.0, 0.0))), 10.0)
    for t in (0.0, 0.3, 1.0, 1.9):
        s = t / 2
        assert driver.output(10 + t)[0] == pytest.approx(3 * s**2 - 2 * s**3)
        # to the second joint: the same, and s^3 - s^2 times the 2 s that it has at slope 1
        assert driver.output(10 + t)[1] == pytest.approx(3 * s**2 - 2 * s**3 + 2 * (s**3 - s**2))
    for u in (0.0, 0.5, 0.9):
        assert driver.output(12 + u) == pytest.approx(
            (1.0, 1.0 + (u**3 - 2 * u**2 + u) + 0.5 * (3 * u**2 - 2 * u**3)))
    assert driver.desired(11.0).velocity[0] == pytest.approx(0.75)  # 1.5 (1 - s) s at its middle, / 2 s


def test_accelerations_too_make_the_quintic_spline():
    """The polynomial of degree 5 is found again from what it is and does at both ends."""
    rng = np.random.default_rng(0)
    polynomials = [np.polynomial.Polynomial(rng.normal(size=6)) for _ in JOINTS]
    ends = [[[p.deriv(k)(t) if k else p(t) for p in polynomials] for k in range(3)] for t in (0.0, 1.3)]
    driver = controller(moving_end=True)
    give(driver, trajectory((0.2, *ends[0]), (1.5, *ends[1])), 0.0)
    for t in (0.0, 0.4, 1.29):
        found = driver.desired(0.2 + t)
        for k, row in enumerate((found.position, found.velocity, found.acceleration)):
            assert row == pytest.approx([p.deriv(k)(t) if k else p(t) for p in polynomials], abs=1e-9)


def test_a_new_trajectory_begins_where_the_old_one_is_and_as_fast():
    driver = controller()
    give(driver, trajectory((1.0, (1.0, 2.0), (0.0, 0.0))), 0.0)
    before = driver.desired(0.4)
    give(driver, trajectory((0.5, (0.0, 0.0), (0.0, 0.0))), 0.4)
    after = driver.desired(0.4)
    assert after.position == pytest.approx(before.position) and after.velocity == pytest.approx(before.velocity)
    h = 1e-4  # no step in position or speed
    seen = np.array([driver.output(0.4 + k * h) for k in range(3)])
    assert (seen[1] - seen[0]) / h == pytest.approx(before.velocity, abs=0.02)
    assert driver.output(0.9) == pytest.approx((0.0, 0.0))


def test_a_stamp_says_when_the_trajectory_begins():
    now = 10**18
    late, soon = (controller() for _ in range(2))
    message = trajectory((1.0, (1.0, 1.0)), (2.0, (3.0, 3.0)), stamp_ns=now - 1_500_000_000)
    give(late, message, 7.0, now)
    assert late.output(7.0) == pytest.approx((2.0, 2.0))  # no way to the first point: it catches up at once
    give(soon, trajectory((1.0, (1.0, 1.0)), stamp_ns=now + 1_000_000_000), 7.0, now)
    assert soon.output(8.0) == pytest.approx((0.5, 0.5)) and soon.output(9.0) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(("message", "told"), [
    (trajectory((1.0, (1.0,)), names=("a",)), "don't match the controller joints"),
    (trajectory((1.0, (1.0, 2.0)), names=("a", "c")), "don't match the controller joints"),
    (trajectory((1.0, (1.0, 2.0)), names=("a", "a")), "don't match the controller joints"),
    (trajectory(), "empty trajectory"),
    (trajectory((1.0, (1.0, 2.0)), (1.0, (1.0, 2.0))), "not strictly increasing"),
    (trajectory((1.0, (1.0, 2.0)), (0.5, (1.0, 2.0))), "not strictly increasing"),
    (trajectory((1.0, (1.0,))), "positions \\(1\\) at point 0"),
    (trajectory((1.0, ())), "positions \\(0\\) at point 0"),
    (trajectory((1.0, (1.0, 2.0), (1.0,))), "velocities \\(1\\) at point 0"),
    (trajectory((1.0, (1.0, 2.0), (0.0, 0.1))), "velocity of last trajectory point is not zero"),
    (trajectory((1.0, (1.0, 2.0), (0.0, 0.0), (0.0, 0.0), (1.0, 1.0))), "effort"),
    (trajectory((1.0, (1.0, 2.0), (), (0.0, 0.0))), "accelerations without velocities"),
    (trajectory((1.0, (1.0, 2.0)), stamp_ns=10**18 - 2 * 10**9), "ends in the past, 1 s ago"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_what_breaks_a_rule_is_dropped_and_the_old_trajectory_goes_on(message, told):
    driver = controller()
    give(driver, trajectory((2.0, (2.0, 4.0))), 0.0)
    with pytest.raises(Refused, match=told):
        driver.read(message, 10**18)
    assert driver.output(1.0) == pytest.approx((1.0, 2.0)) and not driver.failed


def test_a_moving_end_is_held_still_where_it_is_allowed():
    driver = controller(moving_end=True)
    give(driver, trajectory((1.0, (1.0, 2.0), (1.0, 1.0))), 0.0)
    assert driver.output(1.0).tolist() == driver.output(5.0).tolist() == [1.0, 2.0]


def test_nothing_looks_for_numbers_that_are_not_finite():
    driver = controller()
    give(driver, trajectory((1.0, (np.nan, 1.0))), 0.0)
    assert np.isnan(driver.output(0.5)[0])


def test_what_our_codec_sends_is_taken():
    driver = driver_of(TRAJECTORY, np.zeros(2), robot=FRANKA)
    give(driver, COMMAND_CODECS[TRAJECTORY.codec].encode(np.array([1.0, 2.0]), TRAJECTORY.options), 0.0)
    assert driver.output(0.1).tolist() == [1.0, 2.0]


def test_the_message_type_chooses_the_driver():
    assert isinstance(driver_of(FORWARD, np.zeros(2), robot=FRANKA), ForwardCommandController)
    assert isinstance(driver_of(LEAP, np.zeros(2), robot=FRANKA), LeapNode)
    assert isinstance(driver_of(TWIST, HOME, robot=FRANKA), MoveItServo)
    pose = CommandTopic("servo", "geometry_msgs/msg/PoseStamped", "pose", "command", {})
    with pytest.raises(InterfaceError, match=r"PoseStamped \(servo\); legal: .*JointTrajectory"):
        driver_of(pose, np.zeros(2), robot=FRANKA)


# ---------------------------------------------------------------- MoveIt Servo


def twist(values, stamp_ns=0, frame="fr3_link0"):
    return COMMAND_CODECS["twist_command"].encode(np.asarray(values, dtype=float), {"frame": frame}, stamp_ns)


def servoed(until, lag_s=0.0, told=(0.2, 0, 0, 0, 0, 0.5), every=0.04, last=np.inf):
    """Joints [T, 7] each 10 ms, of an arm that is told a twist as long as ``last`` [s]."""
    driver, out = MoveItServo(TWIST, servo_of(FRANKA), HOME, lag_s), []
    for k in range(round(until / 0.01)):
        now = 0.01 * k
        if now < last and k % round(every / 0.01) == 0:
            driver.receive(driver.read(twist(told, round(1e9 * now)), round(1e9 * now)), now)
        out.append(driver.output(now))
    return np.array(out)


def test_a_servo_moves_the_tool_as_it_is_told():
    found, (pos, quat, _) = servoed(1.0), chain("franka")(HOME)
    there, turned, _ = chain("franka")(found[-1])
    assert there - pos == pytest.approx([0.2, 0, 0], abs=3e-3)
    turn = multiply(turned, conjugate(quat))
    assert abs(turn @ from_rotation_vector(np.array([0, 0, 0.5]))) == pytest.approx(1.0, abs=1e-5)


def test_a_servo_halts_when_nobody_speaks_and_lags_as_it_is_set():
    found = servoed(1.0, last=0.5)
    moved = np.abs(np.diff(found, axis=0)).max(axis=1) > 1e-9
    assert moved[:55].all() and not moved[60:].any()  # the last message is of 0.48 s
    late = servoed(1.0, lag_s=0.1, last=0.5)
    assert late[40] == pytest.approx(found[30], abs=1e-9)


def test_a_servo_refuses_another_frame_and_numbers_that_are_none():
    driver = MoveItServo(TWIST, servo_of(FRANKA), HOME, 0.0)
    assert driver.output(1.0) is None
    with pytest.raises(Refused, match="frame 'tool0', 'fr3_link0' is needed"):
        driver.read(twist(np.zeros(6), frame="tool0"), 0)
    wrong = twist(np.zeros(6))
    wrong.twist.linear.x = float("nan")
    with pytest.raises(Refused, match="not finite"):
        driver.read(wrong, 0)
    old = driver.read(twist(np.ones(6), stamp_ns=10**9), 2 * 10**9)
    driver.receive(old, 5.0)
    assert driver.output(5.0) == pytest.approx(HOME) and driver.output(6.0) == pytest.approx(HOME)


def test_a_servo_slows_down_near_a_singularity_and_stops_at_an_end():
    servo, arm = servo_of(FRANKA), chain("franka")
    stretched, still, condition = HOME.copy()[None], None, []
    for _ in range(400):  # out along x: the arm stretches
        before = stretched
        stretched = servo.step(stretched, np.array([[0.3, 0, 0.3, 0, 0, 0]]), 0.01)
        condition.append(np.linalg.cond(arm.jacobians(stretched)[0]))
        still = np.abs(stretched - before).max()
    assert max(condition) < HARD + 0.5 and still < 1e-3
    back = servo.step(stretched, np.array([[-0.3, 0, -0.3, 0, 0, 0]]), 0.01)
    assert np.abs(back - stretched).max() > 0.0 or max(condition) >= HARD
    turning = HOME.copy()[None]
    for _ in range(600):
        turning = servo.step(turning, np.array([[0, 0, 0, 0, 0, 1.0]]), 0.01)
    assert (turning >= servo.low + 0.09).all() and (turning <= servo.high - 0.09).all()
    assert servo.step(turning, np.array([[0, 0, 0, 0, 0, -1.0]]), 0.01) != pytest.approx(turning, abs=1e-5)


def test_many_arms_are_each_served_as_one():
    servo, rng = servo_of(FRANKA), np.random.default_rng(0)
    joints, twists = HOME + 0.4 * rng.normal(size=(6, 7)), rng.normal(size=(6, 6))
    together = servo.step(joints, twists, 0.01)
    for i in range(6):
        assert servo.step(joints[i : i + 1], twists[i : i + 1], 0.01)[0] == pytest.approx(together[i], abs=1e-12)
    assert (np.abs(together - joints) <= 0.01 * servo.speed + 1e-12).all()
