"""PX4's messages: frames and signs by hand, the bytes of the wire, refusals, companions, time stamps."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import cos, nan, pi, radians, sin, sqrt

import numpy as np
import pytest
import yaml

from temporeal.robots.crazyflie.spec import PARAMETERS, ROTOR_SIGN_X, ROTOR_SIGN_Y
from temporeal.robots.frames import from_rotation_vector, matrix, multiply
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs import px4
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.encoding import encode_all
from temporeal_bridge.interface.interface import CommandTopic, InterfaceError
from temporeal_bridge.interface.loading import build, load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS, QoS

ROBOT = load_robot("crazyflie")
PX4, MAVROS = load_interface(ROBOT, "px4"), load_interface(ROBOT, "mavros")
ODOMETRY, RATES = px4.ODOMETRY, px4.RATES
NOW_NS = 1_700_000_000_123_456_789
HALF = sqrt(0.5)
UPRIGHT = {"base_pos_w": np.zeros(3), "base_quat_w": np.array([1.0, 0, 0, 0]), "base_vel_w": np.zeros(3),
           "base_ang_vel_b": np.zeros(3), "height": np.zeros(())}


def odometry(**changes):
    """A vehicle at the origin, level, facing north, as PX4 says it; ``changes``: fields."""
    message = STATE_CODECS["px4_odometry"].encode(UPRIGHT, NOW_NS, ("", ""), {})
    facing_north = {"q": np.array([1, 0, 0, 0], dtype=np.float32)}
    return replace(message, **{**facing_north, **{k: np.array(v, dtype=np.float32) if isinstance(v, list | tuple) else v
                                                 for k, v in changes.items()}})


def decoded(**changes):
    return STATE_CODECS["px4_odometry"].decode(odometry(**changes), {})


def axes(**changes):
    """The body's forward, left and up in the world (east, north, up)."""
    return matrix(decoded(**changes)["base_quat_w"].astype(float)).T


# frames


def test_facing_north():
    """1 m north, 2 m east, 3 m up: ENU (2, 1, 3); forward is north (+y), left is west (-x)."""
    got = decoded(position=[1, 2, -3])
    assert got["base_pos_w"].tolist() == [2, 1, 3] and got["height"] == 3
    forward, left, up = axes()
    assert forward == pytest.approx([0, 1, 0], abs=1e-6)
    assert left == pytest.approx([-1, 0, 0], abs=1e-6) and up == pytest.approx([0, 0, 1], abs=1e-6)


def test_facing_east_is_our_identity():
    """PX4's yaw runs from north to east: +90 degrees is our x axis."""
    quat = decoded(q=[HALF, 0, 0, HALF])["base_quat_w"]
    assert np.abs(quat) == pytest.approx([1, 0, 0, 0], abs=1e-6)


def ned_attitude(yaw: float, pitch: float, roll: float) -> list[float]:
    """FRD to NED, degrees: yaw to the right, pitch nose up, roll right side down (aerospace order)."""
    turns = [(0, 0, radians(yaw)), (0, radians(pitch), 0), (radians(roll), 0, 0)]
    yaw_q, pitch_q, roll_q = (from_rotation_vector(np.array(t)) for t in turns)
    return multiply(yaw_q, multiply(pitch_q, roll_q)).tolist()


def test_nose_down_facing_east():
    forward, left, _ = axes(q=ned_attitude(90, -30, 0))
    assert forward == pytest.approx([cos(pi / 6), 0, -sin(pi / 6)], abs=1e-6)
    assert left == pytest.approx([0, 1, 0], abs=1e-6)


def test_right_side_down_facing_north():
    """Then the left side (west) points up."""
    forward, left, _ = axes(q=ned_attitude(0, 0, 30))
    assert forward == pytest.approx([0, 1, 0], abs=1e-6)
    assert left == pytest.approx([-cos(pi / 6), 0, sin(pi / 6)], abs=1e-6)


def test_yaw_to_the_left_from_north_faces_west():
    assert axes(q=ned_attitude(-90, 0, 0))[0] == pytest.approx([-1, 0, 0], abs=1e-6)


def test_rates():
    """PX4's: right side down, nose up, to the right. Ours: right side down, nose down, to the left."""
    assert decoded(angular_velocity=[1, 2, 3])["base_ang_vel_b"].tolist() == [1, -2, -3]


def test_velocity_in_ned_and_in_the_body():
    """North 1, east 2, down 3. Facing south, forward 1 is south, right 2 is west, down 3."""
    assert decoded(velocity=[1, 2, 3])["base_vel_w"].tolist() == [2, 1, -3]
    body = decoded(velocity=[1, 2, 3], velocity_frame=3, q=ned_attitude(180, 0, 0))
    assert body["base_vel_w"] == pytest.approx([-2, -1, -3], abs=1e-6)


def test_the_constants_are_those_of_the_definition():
    kind, names = messages.record(ODOMETRY), px4.VELOCITY_FRAMES
    assert [kind.POSE_FRAME_UNKNOWN, kind.POSE_FRAME_NED, kind.POSE_FRAME_FRD] == list(px4.POSE_FRAMES)
    assert [kind.VELOCITY_FRAME_UNKNOWN, kind.VELOCITY_FRAME_NED, kind.VELOCITY_FRAME_FRD,
            kind.VELOCITY_FRAME_BODY_FRD] == list(names)
    assert kind.POSE_FRAME_NED == px4.NED and kind.VELOCITY_FRAME_BODY_FRD == px4.BODY_FRD
    assert messages.record(px4.TARGET).IGNORE_ATTITUDE == px4.IGNORE_ATTITUDE
    mode = messages.store().fielddefs[px4.MODE][1]
    assert [name for name, _ in mode] == ["timestamp", *px4.CONTROLS]


REFUSED = [
    ({"pose_frame": 0}, r"pose_frame is 0 \(unknown\); legal: 1 \(NED\)"),
    ({"pose_frame": 2}, r"pose_frame is 2 \(FRD, of arbitrary heading\)"),
    ({"velocity_frame": 0}, r"velocity_frame is 0 \(unknown\); legal: 1 \(NED\), 3 \(body FRD\)"),
    ({"velocity_frame": 2}, "velocity_frame is 2"),
    ({"velocity_frame": 9}, "no such frame"),
    ({"position": [0, nan, 0]}, r"position is \[0.0, nan, 0.0\]"),
    ({"velocity": [nan, 0, 0]}, "velocity is .*unknown"),
    ({"angular_velocity": [0, 0, nan]}, "angular_velocity is"),
    ({"q": [nan, 0, 0, 0]}, "q is .*nan"),
    ({"q": [0, 0, 0, 0]}, "not a quaternion of length 1"),
    ({"position": [0, np.inf, 0]}, "position is"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_odometry_that_cannot_be_used_is_refused(changes, words):
    with pytest.raises(CodecError, match=words):
        decoded(**changes)


# commands


def command(interface, name: str) -> CommandTopic:
    return interface.command(name)


def encoded(topic: CommandTopic, *values: float, **options):
    return COMMAND_CODECS[topic.codec].encode(np.array(values), {**topic.options, **options}, NOW_NS)


def test_rates_setpoint():
    """Half the thrust is -0.5 along down; right side down keeps its sign, nose down and to the left change theirs."""
    message = encoded(command(PX4, "ctbr_cmd"), 0.24, 1.0, 2.0, 3.0)
    assert (message.roll, message.pitch, message.yaw) == (1.0, -2.0, -3.0)
    assert message.thrust_body.tolist() == [0.0, 0.0, -0.5]
    assert message.timestamp == NOW_NS // 1000 and message.reset_integral is False


@pytest.mark.parametrize(("thrust", "u"), [(-1.0, 0.0), (0.0, 0.0), (0.48, 1.0), (5.0, 1.0)])
def test_thrust_stays_between_nothing_and_full(thrust, u):
    assert encoded(command(PX4, "ctbr_cmd"), thrust, 0, 0, 0).thrust_body[2] == -u


def test_thrust_curve_that_px4_does_not_know_of():
    """0.3 u^2 + 0.7 u = 0.5 has u = (-0.7 + sqrt(0.49 + 0.6)) / 0.6."""
    u = (-0.7 + sqrt(1.09)) / 0.6
    assert px4.throttle(0.24, {"max_thrust_n": 0.48, "curve": 0.3}) == pytest.approx(u)
    assert px4.newtons(u, {"max_thrust_n": 0.48, "curve": 0.3}) == pytest.approx(0.24)
    assert px4.throttle(0.12, {"max_thrust_n": 0.48, "curve": 1}) == pytest.approx(0.5)  # a square


def test_attitude_target_keeps_our_frames():
    message = encoded(command(MAVROS, "ctbr_cmd"), 0.24, 1.0, 2.0, 3.0)
    rate = message.body_rate
    assert (rate.x, rate.y, rate.z, message.thrust, message.type_mask) == (1.0, 2.0, 3.0, 0.5, 128)
    assert messages.nanoseconds(message.header.stamp) == NOW_NS


def test_motors_in_px4s_order():
    """PX4's X: 1 front right, 2 rear left, 3 front left, 4 rear right. Each of ours drives the one at its place."""
    topic = command(PX4, "motor_cmd")
    places = {1: (1, -1), 2: (-1, 1), 3: (1, 1), 4: (-1, -1)}
    for i in range(4):
        control = encoded(topic, *np.eye(4)[i]).control
        assert places[int(np.nanargmax(control)) + 1] == (ROTOR_SIGN_X[i], ROTOR_SIGN_Y[i])
        assert np.nanmax(control) == 1.0 and np.nansum(control) == 1.0
        assert np.isnan(control[4:]).all() and not np.isnan(control[:4]).any()


def test_motors_take_thrust_not_speed():
    """At 0.8 of the speed: (-0.01249 * 0.8 + 0.13248 * 0.64) / 0.12 of the thrust."""
    c0, c1, c2 = PARAMETERS["thrust_curve"].nominal
    assert command(PX4, "motor_cmd").options["thrust_curve"] == pytest.approx([c0, c1, c2])
    control = encoded(command(PX4, "motor_cmd"), 0.8, 0.8, 0.8, 0.8).control
    assert control[:4] == pytest.approx([(c1 * 0.8 + c2 * 0.64) / (c1 + c2)] * 4)


def test_the_heartbeat_says_what_is_commanded():
    for name, field in (("ctbr_cmd", "body_rate"), ("motor_cmd", "direct_actuator")):
        (row,) = command(PX4, name).also
        message = COMMAND_CODECS[row.codec].encode(np.zeros(4), row.options, NOW_NS)
        assert [f for f in px4.CONTROLS if getattr(message, f)] == [field]
        assert message.timestamp == NOW_NS // 1000


@pytest.mark.parametrize("interface", [PX4, MAVROS], ids=["px4", "mavros"])
def test_a_command_that_is_no_number_is_never_encoded(interface):
    for name, topic in interface.commands.items():
        with pytest.raises(CodecError, match=f"{name} is"):
            encoded(topic, 0.1, nan, 0.1, 0.1)


def test_setpoints_that_mean_something_else_are_refused():
    rates, target, motors = (COMMAND_CODECS[n].decode for n in ("px4_rates", "mavros_rates", "px4_motors"))
    topic = command(PX4, "ctbr_cmd")
    good = encoded(topic, 0.24, 0, 0, 0)
    for changes, words in (({"roll": nan}, "roll"), ({"thrust_body": np.array([0, 0, 0.5])}, "thrust_body"),
                           ({"thrust_body": np.array([0.1, 0, -0.5])}, "thrust_body"),
                           ({"thrust_body": np.array([0, 0, nan])}, "thrust_body")):
        with pytest.raises(CodecError, match=words):
            rates(replace(good, **changes), topic.options)
    asked = encoded(command(MAVROS, "ctbr_cmd"), 0.24, 0, 0, 0)
    for changes, words in (({"type_mask": 0}, "type_mask is 0"), ({"thrust": 1.5}, "thrust is 1.5"),
                           ({"thrust": nan}, "thrust is")):
        with pytest.raises(CodecError, match=words):
            target(replace(asked, **changes), topic.options)
    topic = command(PX4, "motor_cmd")
    control = np.full(12, -0.5)
    with pytest.raises(CodecError, match="control is"):
        motors(replace(encoded(topic, 0, 0, 0, 0), control=control), topic.options)
    stopped = motors(replace(encoded(topic, 1, 1, 1, 1), control=np.full(12, nan)), topic.options)
    assert stopped.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("options", "words"), [
    ({"max_thrust_n": 0}, "max_thrust_n is 0"), ({"max_thrust_n": "0.48"}, "max_thrust_n is '0.48'"),
    ({"max_thrust_n": nan}, "max_thrust_n is nan"), ({"curve": 1.1}, "curve is 1.1"),
    ({"curve": -0.1}, "curve is -0.1"), ({"curve": nan}, "curve is nan")])
def test_wrong_thrust_options(options, words):
    with pytest.raises(CodecError, match=words):
        encoded(command(PX4, "ctbr_cmd"), 0.24, 0, 0, 0, **options)


@pytest.mark.parametrize(("options", "words"), [
    ({"order": [1, 1, 2, 3]}, "different motor numbers"), ({"order": [0, 1, 2, 3]}, "different motor numbers"),
    ({"order": "1423"}, "different motor numbers"), ({"thrust_curve": [0.0, 1.0, 0.0]}, "thrust_curve"),
    ({"thrust_curve": [0.0, 1.0]}, "thrust_curve")])
def test_wrong_motor_options(options, words):
    with pytest.raises(CodecError, match=words):
        encoded(command(PX4, "motor_cmd"), 0, 0, 0, 0, **options)


# the wire


def test_bytes_of_the_messages():
    """Little-endian CDR as PX4's client lays it out: fields in order, each at a multiple of its size."""
    head = b"\x00\x01\x00\x00"
    topic = command(PX4, "ctbr_cmd")
    sent = encode_all(topic, np.array([0.24, 1.0, 2.0, 3.0]), 5_000)
    assert [name for name, _ in sent] == ["fmu/in/offboard_control_mode", "fmu/in/vehicle_rates_setpoint"]
    assert sent[0][1] == head + struct.pack("<Q7?", 5, False, False, False, False, True, False, False)
    assert sent[1][1] == head + struct.pack("<Q3f3f?", 5, 1.0, -2.0, -3.0, 0.0, 0.0, -0.5, False)
    message = odometry(position=[1, 2, -3], velocity=[4, 5, 6], angular_velocity=[7, 8, 9])
    us, variances = NOW_NS // 1000, [0.0] * 9
    assert messages.encode(ODOMETRY, message) == head + struct.pack(
        "<QQB3x3f4fB3x3f3f9fBb", us, us, 1, 1, 2, -3, 1, 0, 0, 0, 1, 4, 5, 6, 7, 8, 9, *variances, 0, 0)


def test_a_command_without_companions_is_alone():
    topic = load_interface(ROBOT).command("ctbr_cmd")
    ((name, data),) = encode_all(topic, np.array([0.24, 0, 0, 0]), NOW_NS)
    message = messages.decode(topic.type, data)
    assert name == "cmd_vel_legacy" and message.linear.z == pytest.approx(65535 / 2)


def state_input(lockstep, qos: QoS):
    """A reader of the state, and a function that publishes odometry as PX4 does."""
    own, peer = MemoryTransport(lockstep.bus, "node"), MemoryTransport(lockstep.bus, "px4")
    state = StateInput(own, ROBOT, PX4)
    endpoint = peer.advertise("fmu/out/vehicle_odometry", ODOMETRY, qos)

    def publish(message) -> None:
        peer.publish(endpoint, messages.encode(ODOMETRY, message))
        own.wait(0.0)

    return state, publish


PUBLISHER = QoS(reliable=False, depth=1, latched=True)  # utilities.hpp: best effort, transient local


def test_a_state_with_its_time_and_without_a_header(lockstep):
    state, publish = state_input(lockstep, PUBLISHER)
    publish(odometry(position=[1, 2, -3]))
    assert state.complete and state.paced.stamp == NOW_NS // 1000 * 1000
    assert state.newest()["base_pos_w"].tolist() == [2, 1, 3]


def test_the_sample_is_as_old_as_its_sample_stamp():
    message = odometry(timestamp=NOW_NS // 1000 + 9_000)
    assert STATE_CODECS["px4_odometry"].stamp(message) == NOW_NS // 1000 * 1000


@pytest.mark.parametrize("microseconds", [0, 123_456_789, 10**15 - 1])
def test_time_since_boot_is_refused_and_says_what_to_set(lockstep, microseconds):
    state, publish = state_input(lockstep, PUBLISHER)
    publish(odometry(timestamp_sample=microseconds))
    assert not state.complete and state.rejected == 1
    assert "since boot" in state.last_rejection and "UXRCE_DDS_SYNCT" in state.last_rejection


def test_a_nan_is_dropped_and_counted(lockstep):
    state, publish = state_input(lockstep, PUBLISHER)
    publish(odometry(velocity=[nan, 0, 0]))
    assert not state.complete and "VehicleOdometry: velocity" in state.last_rejection


def test_only_a_best_effort_reader_hears_px4(lockstep):
    """And PX4's readers, best effort and volatile, hear what we publish."""
    own, peer = MemoryTransport(lockstep.bus, "node"), MemoryTransport(lockstep.bus, "px4")
    peer.advertise("fmu/out/vehicle_odometry", ODOMETRY, PUBLISHER)
    matched = {name: own.matched(own.subscribe("fmu/out/vehicle_odometry", ODOMETRY, qos, lambda _: None))
               for name, qos in QOS.items()}
    assert matched["default"] == 0 and matched["latched"] == 0
    assert all(matched[row.qos] == 1 for row in PX4.states) and matched[PX4.autopilot.status.qos] == 1
    for topic in (PX4.command("ctbr_cmd"), *PX4.command("ctbr_cmd").also):
        reader = peer.subscribe(topic.topic, topic.type, QoS(reliable=False), lambda _: None)
        own.advertise(topic.topic, topic.type, QOS[topic.qos])
        assert peer.matched(reader) == 1


# ros.yaml


def ctbr(content):
    return content["interfaces"]["px4"]["commands"]["ctbr_cmd"]


CHANGES = [
    (lambda c: ctbr(c)["also"][0].update(codec="px4_rates", type=RATES), "carries a command; `also` is for companions"),
    (lambda c: ctbr(c).update(codec="px4_mode", type=px4.MODE), "it goes under `also`"),
    (lambda c: ctbr(c)["also"][0].update(codec="px4_node"), "unknown codec 'px4_node'"),
    (lambda c: ctbr(c)["also"][0].update(type=RATES), "is for px4_msgs/msg/OffboardControlMode"),
    (lambda c: ctbr(c)["also"][0].update(qos="fast"), "unknown QoS 'fast'"),
    (lambda c: ctbr(c)["also"][0].pop("qos"), r"px4.commands.ctbr_cmd.also: keys are"),
    (lambda c: ctbr(c)["also"][0]["options"].update(control="rates"), "control is 'rates'; legal: position"),
    (lambda c: ctbr(c).update(also={"topic": "x"}), "a list of topics is needed"),
    (lambda c: ctbr(c).update(and_also=[]), r"and perhaps \['also', "),
    (lambda c: c["interfaces"]["px4"]["autopilot"].update(arm="yes"), "arm is 'yes'; legal: never, ask"),
    (lambda c: c["interfaces"]["px4"]["autopilot"].update(arm="ask", orders=None), "no topic for orders"),
    (lambda c: c["interfaces"]["px4"]["autopilot"].update(status=None), "status: a topic is needed"),
    (lambda c: c["interfaces"]["px4"]["autopilot"].update(start_s=0), "start_s is 0; a number of seconds"),
    (lambda c: c["interfaces"]["px4"]["autopilot"]["status"].update(qos="any"), "unknown QoS 'any'"),
    (lambda c: c["interfaces"]["px4"]["autopilot"].pop("answer_s"), "autopilot: keys are"),
    (lambda c: c["interfaces"]["px4"]["definitions"].update({RATES: "uint64 timestamp\n"}), "other fields than before"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_a_wrong_interface_is_an_error_that_names_it(change, words):
    content = yaml.safe_load(ROBOT.ros.read_text())
    change(content)
    with pytest.raises((InterfaceError, CodecError, messages.MessageError), match=words):
        build(ROBOT, content, "px4")


def test_interfaces_without_an_autopilot_have_none():
    assert load_interface(ROBOT).autopilot is None and load_interface(ROBOT).command("ctbr_cmd").also == ()
    assert PX4.autopilot.arm == MAVROS.autopilot.arm == "never"
