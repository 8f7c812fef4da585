"""Codecs of arms and hands: by name, in any order, and nothing that is not as declared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.motion.kinematics import chain
from temporeal.robots.motion.smooth_trajectory import SmoothTrajectory
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.transports import messages

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "ros2_messages.json").read_text())["messages"]
GOLDEN = {row["type"]: row for row in GOLDEN}
ABC = {"joints": ["a", "b", "c"], "position": "q", "velocity": "v"}
FRAMES = ("world", "robot")


def joint_state(names, position, velocity=(), effort=()):
    return messages.record("sensor_msgs/msg/JointState")(
        header=messages.header(5), name=list(names), position=np.array(position, dtype=float),
        velocity=np.array(velocity, dtype=float), effort=np.array(effort, dtype=float))


def decode(message, options):
    return STATE_CODECS["joint_state"].decode(message, options)


# ---------------------------------------------------------------- states


def test_joints_are_found_by_name_in_any_order_and_among_others():
    plain = decode(joint_state("abc", [1, 2, 3], [4, 5, 6]), ABC)
    mixed = decode(joint_state(["x", "c", "a", "y", "b"], [9, 3, 1, np.nan, 2], [9, 6, 4, np.nan, 5]), ABC)
    assert plain["q"].tolist() == [1, 2, 3] and plain["v"].tolist() == [4, 5, 6]
    assert all((plain[name] == mixed[name]).all() for name in ("q", "v"))


@pytest.mark.parametrize(("message", "words"), [
    (joint_state("ab", [1, 2], [1, 2]), "no joint 'c'; it has: a, b"),
    (joint_state("", []), "no joint 'a'; it has: none"),
    (joint_state("abcb", [1, 2, 3, 4], [1, 2, 3, 4]), "joint 'b' more than once"),
    (joint_state("abc", [1, 2], [1, 2, 3]), "3 names and 2 values of position"),
    (joint_state("abc", [1, 2, 3]), "3 names and 0 values of velocity"),
    (joint_state("abc", [1, np.nan, 3], [1, 2, 3]), "position of joint 'b' is nan"),
    (joint_state("abc", [1, 2, 3], [1, 2, np.inf]), "velocity of joint 'c' is inf"),
])
def test_what_is_no_state_of_these_joints_is_refused_by_name(message, words):
    with pytest.raises(CodecError, match=words):
        decode(message, ABC)


def test_a_field_that_nobody_asks_for_may_be_anything():
    assert decode(joint_state("abc", [1, 2, 3], [], [np.nan]), {"joints": ["b"], "position": "q"})["q"].tolist() == [2]


def test_offset_sign_and_scale():
    """Driver: 180 degrees is our zero, the second motor turns the other way, currents in mA at 0.5 N m/A."""
    options = {"joints": ["a", "b"], "position": "q", "velocity": "v", "effort": "u", "offset": 3.0, "sign": [1, -1],
               "scale": {"effort": 0.0005}}
    out = decode(joint_state("ab", [3.5, 3.5], [1, 1], [100, 100]), options)
    assert out["q"] == pytest.approx([0.5, -0.5]) and out["v"] == pytest.approx([1, -1])
    assert out["u"] == pytest.approx([0.05, -0.05])
    again = STATE_CODECS["joint_state"].encode(out, 7, FRAMES, options)
    assert again.position == pytest.approx([3.5, 3.5]) and again.effort == pytest.approx([100, 100])


@pytest.mark.parametrize(("change", "words"), [
    ({"joints": ["a", "a", "b"]}, "different names"), ({"joints": ["a", ["b", "c"]]}, "different names"),
    ({"joints": []}, "different names"),
    ({"offset": [1.0, 2.0]}, "a list of 3"), ({"sign": 2}, "legal: 1, -1"), ({"offset": float("nan")}, "a number"),
    ({"scale": {"speed": 1.0}}, "legal: position, velocity, effort"),
    ({"tool": {"chain": "leap_hand", "position": "p"}}, "has no DENAVIT_HARTENBERG"),
    ({"tool": {"chain": "franka", "place": "p"}}, "legal: chain"),
    ({"driven": {"signal": "m", "joints": ["a", ["b", "d"]]}}, r"no joints \['d'\] are read; read: a, b, c"),
    ({"driven": {"signal": "m", "joints": ["a", ["b", "a"]]}}, "different names"),
    ({"driven": {"signal": "m", "joints": ["a", []]}}, "a joint or more"),
    ({"driven": {"joints": ["a"]}}, "signal and joints are needed"),
])
def test_wrong_options_of_a_joint_state(change, words):
    with pytest.raises(CodecError, match=words):
        decode(joint_state("abc", [1, 2, 3], [1, 2, 3]), {**ABC, **change})


def test_float32_signals_survive_bit_for_bit():
    rng = np.random.default_rng(0)
    signals = {"q": rng.normal(size=3).astype(np.float32), "v": rng.normal(size=3).astype(np.float32)}
    message = STATE_CODECS["joint_state"].encode(signals, 9, FRAMES, ABC)
    data = messages.encode("sensor_msgs/msg/JointState", message)
    again = decode(messages.decode("sensor_msgs/msg/JointState", data), ABC)
    assert all(again[name].tobytes() == signals[name].tobytes() for name in signals)


def test_the_tool_is_of_the_same_instant_as_the_joints():
    robot = load_robot("franka")
    (topic,) = load_interface(robot).states
    q, v = np.array(robot.home["joint_pos"]), np.linspace(-0.3, 0.3, 7)
    signals = {"joint_pos": q, "joint_vel": v, "joint_torque": np.zeros(7)}
    out = decode(STATE_CODECS["joint_state"].encode(signals, 0, FRAMES, topic.options), topic.options)
    position, attitude, velocity = chain("franka")(q, v)
    assert out["grip_pos_w"] == pytest.approx(position, abs=1e-6)
    assert out["grip_quat_w"] == pytest.approx(attitude, abs=1e-6)
    assert out["grip_vel_w"] == pytest.approx(velocity, abs=1e-6)


POSE = {"frame": "base", "position": "p", "attitude": "q"}


def test_a_pose_is_wxyz_here_and_xyzw_there():
    signals = {"p": np.array([1.0, -2.0, 3.5]), "q": np.array([0.9, 0.1, 0.2, 0.3]) / np.sqrt(0.95)}
    message = STATE_CODECS["pose"].encode(signals, 3, FRAMES, POSE)
    assert message.header.frame_id == "base" and message.pose.orientation.w == signals["q"][0]
    assert message.pose.orientation.x == signals["q"][1]
    out = STATE_CODECS["pose"].decode(message, POSE)
    assert out["p"].tolist() == [1.0, -2.0, 3.5] and out["q"] == pytest.approx(signals["q"], abs=1e-7)


def test_what_is_in_another_frame_is_refused():
    signals = {"p": np.zeros(3), "q": np.array([1.0, 0, 0, 0])}
    for name, options in (("pose", POSE), ("twist", {"frame": "base", "linear": "p"}),
                          ("point", {"frame": "base", "signal": "p"})):
        message = STATE_CODECS[name].encode(signals, 0, FRAMES, {**options, "frame": "camera"})
        with pytest.raises(CodecError, match="in frame 'camera', 'base' is needed"):
            STATE_CODECS[name].decode(message, options)
        STATE_CODECS[name].decode(message, {**options, "frame": None})


def test_points_and_velocities_that_are_not_finite_are_refused():
    signals = {"p": np.array([0.0, np.nan, 0.0]), "q": np.array([1.0, 0, 0, 0])}
    for name, options in (("pose", POSE), ("twist", {"frame": "base", "linear": "p"}),
                          ("point", {"frame": "base", "signal": "p"})):
        with pytest.raises(CodecError, match="not finite"):
            STATE_CODECS[name].decode(STATE_CODECS[name].encode(signals, 0, FRAMES, options), options)
    signals["q"] = np.zeros(4)
    with pytest.raises(CodecError, match="quaternion"):
        STATE_CODECS["pose"].decode(STATE_CODECS["pose"].encode({**signals, "p": np.zeros(3)}, 0, FRAMES, POSE), POSE)


@pytest.mark.parametrize("shape", [[], [3], [2, 2]])
def test_numbers_of_any_shape(shape):
    options = {"signal": "s", "shape": shape}
    value = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    message = STATE_CODECS["array"].encode({"s": value}, 0, FRAMES, options)
    out = STATE_CODECS["array"].decode(message, options)["s"]
    assert out.shape == tuple(shape) and (out == value).all() and STATE_CODECS["array"].stamp(message) == 0
    with pytest.raises(CodecError, match="has shape"):
        STATE_CODECS["array"].decode(message, {"signal": "s", "shape": [7]})


# ---------------------------------------------------------------- commands


def test_a_forward_command_is_in_the_controllers_order_and_exactly_as_long():
    options, codec = {"joints": ["a", "b", "c"], "index": [2, 0, 1]}, COMMAND_CODECS["forward_array"]
    message = codec.encode(np.array([0.1, 0.2, 0.3]), options)
    assert message.data.tolist() == [0.2, 0.3, 0.1]
    assert codec.decode(message, options).tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(CodecError, match=r"shape \(2,\), \(3,\) is needed"):
        codec.decode(type(message)(layout=message.layout, data=np.zeros(2)), options)
    with pytest.raises(CodecError, match="each of 0 to 2 once"):
        codec.encode(np.zeros(3), {**options, "index": [0, 0, 1]})


@pytest.mark.parametrize(("name", "options"), [
    ("forward_array", {"joints": ["a", "b"]}), ("joint_trajectory", {"joints": ["a", "b"], "reach_s": 0.1}),
    ("joint_state_command", {"joints": ["a", "b"]}), ("twist_command", {"frame": "base"})])
def test_no_command_of_another_length_or_that_is_not_finite_becomes_a_message(name, options):
    size = 6 if name == "twist_command" else 2
    for bad in (np.zeros(size + 1), np.zeros((1, size)), np.full(size, np.nan), np.r_[np.inf, np.zeros(size - 1)]):
        with pytest.raises(CodecError, match="the command"):
            COMMAND_CODECS[name].encode(bad, options)


def test_a_leap_command_is_in_the_order_of_motor_ids_and_half_a_turn_off():
    """Joint 0 of the hand is motor 1, joint 1 motor 0 (side to side first)."""
    topic = load_interface(load_robot("leap_hand")).command("joint_pos_cmd")
    message = COMMAND_CODECS[topic.codec].encode(np.arange(16) / 10, topic.options)
    assert message.position[:4] == pytest.approx(np.pi + np.array([0.1, 0.0, 0.2, 0.3]))
    assert message.name == [str(i) for i in range(16)] and not len(message.velocity) and not len(message.effort)


def test_an_allegro_command_begins_with_the_thumb():
    topic = load_interface(load_robot("allegro_hand")).command("joint_pos_cmd")
    data = COMMAND_CODECS[topic.codec].encode(np.arange(16.0), topic.options).data
    assert data.tolist() == [12, 13, 14, 15, *range(12)]


def test_a_servo_command_has_a_frame_and_the_time_it_was_sent():
    codec, options = COMMAND_CODECS["twist_command"], {"frame": "fr3_link0"}
    message = codec.encode(np.arange(6.0), options, 1_500_000_000)
    assert message.header.frame_id == "fr3_link0" and messages.nanoseconds(message.header.stamp) == 1_500_000_000
    assert (message.twist.linear.z, message.twist.angular.x) == (2.0, 3.0)
    assert codec.decode(message, options).tolist() == list(range(6))
    for frame in ("", None, 3):
        with pytest.raises(CodecError, match="name of a frame"):
            codec.encode(np.zeros(6), {"frame": frame})
    with pytest.raises(CodecError, match="in frame 'fr3_link0', 'tool' is needed"):
        codec.decode(message, {"frame": "tool"})


def test_a_motor_of_several_joints_is_read_as_their_sum():
    """In the motors' order, which is not the joints'; the driver's offset and sign are taken off before."""
    options = {"joints": ["a", "b", "c"], "position": "q", "offset": 1.0, "sign": [1, -1, 1],
               "driven": {"signal": "m", "joints": [["c", "b"], "a"]}}
    out = decode(joint_state("cab", [1.5, 1.1, 0.8]), options)
    assert out["q"] == pytest.approx([0.1, 0.2, 0.5]) and out["m"] == pytest.approx([0.7, 0.1])
    assert STATE_CODECS["joint_state"].signals(options) == ("q", "m")


TRAJECTORY = {"joints": ["a", "b"], "reach_s": 0.04}


def test_a_motor_of_several_joints_is_commanded_in_equal_shares():
    codec, options = COMMAND_CODECS["joint_trajectory"], {"joints": ["a", ["b", "c"]], "reach_s": 0.04}
    message = codec.encode_smooth_trajectory(way(), options)
    assert message.joint_names == ["a", "b", "c"]
    assert message.points[0].positions.tolist() == [0.1, 0.1, 0.1]
    assert message.points[0].velocities.tolist() == [1.0, -0.5, -0.5]
    assert message.points[1].positions.tolist() == [0.3, 0.25, 0.25]
    assert codec.decode(message, options).tolist() == [0.1, 0.2]
    with pytest.raises(CodecError, match="the trajectory has 2 components, option joints has 3"):
        codec.encode_smooth_trajectory(way(), {**options, "joints": ["a", "b", "c"]})


def way() -> SmoothTrajectory:
    positions, speeds = np.array([[0.1, 0.2], [0.3, 0.5]]), np.array([[1.0, -1.0], [0.0, 0.0]])
    return SmoothTrajectory(np.array([0.04, 1.5]), positions, speeds, np.zeros((2, 2)))


def test_a_message_holds_the_whole_trajectory_from_now_on():
    codec = COMMAND_CODECS["joint_trajectory"]
    message = codec.encode_smooth_trajectory(way(), TRAJECTORY)
    assert messages.nanoseconds(message.header.stamp) == 0 and message.joint_names == ["a", "b"]
    last = message.points[-1]
    assert (last.time_from_start.sec, last.time_from_start.nanosec) == (1, 500_000_000)
    assert last.positions.tolist() == [0.3, 0.5] and not last.velocities.any() and not len(last.effort)
    assert message.points[0].velocities.tolist() == [1.0, -1.0]


def test_a_command_without_a_trajectory_is_one_point_at_rest():
    codec = COMMAND_CODECS["joint_trajectory"]
    message = codec.encode(np.array([0.1, 0.2]), TRAJECTORY)
    assert len(message.points) == 1 and not message.points[0].velocities.any()
    assert message.points[0].time_from_start.nanosec == 40_000_000
    assert codec.decode(message, TRAJECTORY).tolist() == [0.1, 0.2]
    with pytest.raises(CodecError, match="reach_s"):
        codec.encode(np.zeros(2), {**TRAJECTORY, "reach_s": 0})


def test_a_trajectory_is_read_by_name():
    from temporeal_bridge.codecs.ros2_control import decode_smooth_trajectory

    kind = "trajectory_msgs/msg/JointTrajectory"
    data = messages.encode(kind, COMMAND_CODECS["joint_trajectory"].encode_smooth_trajectory(way(), TRAJECTORY))
    found = decode_smooth_trajectory(messages.decode(kind, data), {"joints": ["b", "a"]})
    assert (found.positions == way().positions[:, ::-1]).all() and (found.speeds == way().speeds[:, ::-1]).all()
    assert found.times == pytest.approx(way().times)


@pytest.mark.parametrize(("change", "words"), [
    (lambda m: m.joint_names.append("c"), "is for joints"),
    (lambda m: m.joint_names.__setitem__(0, "b"), "is for joints"),
    (lambda m: setattr(m.points[0], "positions", np.zeros(3)), "point 0 has 3 positions"),
    (lambda m: setattr(m.points[1], "velocities", np.zeros(0)), "point 1 has 0 velocities"),
    (lambda m: setattr(m.points[1], "velocities", np.ones(2)), "ends at rest"),
    (lambda m: setattr(m.points[1], "positions", np.full(2, np.nan)), "finite"),
    (lambda m: setattr(m.points[1].time_from_start, "sec", -5), "increase"),
    (lambda m: m.points.clear(), "trajectory"),
], ids=range(8))
def test_what_is_no_trajectory(change, words):
    message = COMMAND_CODECS["joint_trajectory"].encode_smooth_trajectory(way(), TRAJECTORY)
    change(message)
    with pytest.raises(CodecError, match=words):
        COMMAND_CODECS["joint_trajectory"].decode(message, TRAJECTORY)


# ---------------------------------------------------------------- bytes of a real ROS 2


def golden(kind: str, message) -> None:
    assert messages.encode(kind, message).hex() == GOLDEN[kind]["cdr_hex"]


def test_golden_joint_state():
    fields = GOLDEN["sensor_msgs/msg/JointState"]["fields"]
    options = {"joints": fields["name"], "position": "q", "velocity": "v"}
    stamp = fields["header"]["stamp"][0] * 10**9 + fields["header"]["stamp"][1]
    message = STATE_CODECS["joint_state"].encode(
        {"q": np.array(fields["position"]), "v": np.array(fields["velocity"])}, stamp, FRAMES, options)
    message.header.frame_id = fields["header"]["frame_id"]
    golden("sensor_msgs/msg/JointState", message)
    assert STATE_CODECS["joint_state"].stamp(message) == stamp


def test_golden_pose_and_twist():
    fields = GOLDEN["geometry_msgs/msg/PoseStamped"]["fields"]
    x, y, z, w = fields["orientation_xyzw"]
    signals = {"p": np.array(fields["position"]), "q": np.array([w, x, y, z])}
    golden("geometry_msgs/msg/PoseStamped",
           STATE_CODECS["pose"].encode(signals, 5_000_000_007, FRAMES, {**POSE, "frame": "map"}))
    golden("geometry_msgs/msg/TwistStamped", COMMAND_CODECS["twist_command"].encode(
        np.array([1.0, 0, 0, 0, 0, -1.0]), {"frame": "b"}, 2_000_000_003))


def test_golden_trajectory():
    """The golden one ends moving, which we never send: its end is replaced on both sides."""
    kind = "trajectory_msgs/msg/JointTrajectory"
    message = messages.decode(kind, bytes.fromhex(GOLDEN[kind]["cdr_hex"]))
    for point in message.points:
        point.accelerations = np.zeros(3)
    message.points[-1].velocities = np.zeros(3)
    rows = [np.array([getattr(p, field) for p in message.points]) for field in ("positions", "velocities")]
    ours = COMMAND_CODECS["joint_trajectory"].encode_smooth_trajectory(
        SmoothTrajectory(np.array([0.5, 1.5]), *rows, np.zeros((2, 3))), {"joints": ["a", "bb", "ccc"]})
    assert messages.encode(kind, ours) == messages.encode(kind, message)


def test_golden_array():
    kind = "std_msgs/msg/Float64MultiArray"
    message = messages.decode(kind, bytes.fromhex(GOLDEN[kind]["cdr_hex"]))
    ours = COMMAND_CODECS["forward_array"].encode(np.array([0.25, -1.5, 3e-9, 0.0]), {"joints": list("abcd")})
    message.data = np.array([*message.data[:3], 0.0])
    ours.layout = message.layout
    assert messages.encode(kind, ours) == messages.encode(kind, message)
