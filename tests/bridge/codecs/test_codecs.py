"""Codecs of quadrotors: both ways for every interface, hand-computed signs, frames and units."""

from __future__ import annotations

from math import inf, nan, pi

import numpy as np
import pytest
import yaml

from temporeal.robots.frames import from_rotation_vector
from temporeal.robots.spec import load_robot, robot_names
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.crazyflie import decode_legacy_rates, encode_legacy_rates, encode_log_values
from temporeal_bridge.codecs.odometry import decode_odometry, encode_odometry
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.checks import NODE_TOPICS, check_reads
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import build, load_interface
from temporeal_bridge.interface.rows import read_yaml
from temporeal_bridge.recording.topics import RECORDED_TOPICS
from temporeal_bridge.transports import messages

ROBOT = load_robot("crazyflie")


def interfaces():
    found = []
    for name in robot_names():
        robot = load_robot(name)
        if robot.kind == "quadrotor" and robot.ros is not None and robot.ros.exists():
            for key in read_yaml(robot.ros)["interfaces"]:
                found.append(pytest.param(robot, load_interface(robot, key), id=f"{name}-{key}"))
    return found


def state(rng: np.random.Generator) -> dict[str, np.ndarray]:
    out = {"base_pos_w": rng.normal(size=3), "base_quat_w": from_rotation_vector(rng.normal(size=3)),
           "base_vel_w": rng.normal(size=3), "base_ang_vel_b": rng.normal(size=3)}
    return {**out, "height": out["base_pos_w"][2]}


@pytest.mark.parametrize(("robot", "interface"), interfaces())
def test_states_survive_the_wire(robot, interface):
    """Signals -> messages -> bytes -> messages -> signals, to float32."""
    for seed in range(5):
        signals, got = state(np.random.default_rng(seed)), {}
        for topic in interface.states:
            codec = STATE_CODECS[topic.codec]
            data = messages.encode(topic.type, codec.encode(signals, 7, ("world", "cf1"), topic.options))
            decoded = codec.decode(messages.decode(topic.type, data), topic.options)
            assert set(decoded) == set(codec.signals(topic.options))
            got.update(decoded)
        assert set(got) == set(robot.signals)
        for name, value in got.items():
            assert value == pytest.approx(signals[name], abs=1e-6), name


@pytest.mark.parametrize(("robot", "interface"), interfaces())
def test_commands_survive_the_wire(robot, interface):
    rng = np.random.default_rng(0)
    for name, topic in interface.commands.items():
        spec, codec = robot.command(name), COMMAND_CODECS[topic.codec]
        for _ in range(5):
            command = rng.uniform(np.array(spec.low), np.array(spec.high))
            if name == "ctbr_cmd":
                command[0] = rng.uniform(0.05, 0.43)  # what the setpoint's 1000 to 60000 can say
            data = messages.encode(topic.type, codec.encode(command, topic.options))
            again = codec.decode(messages.decode(topic.type, data), topic.options)
            assert again == pytest.approx(command, abs=1e-6)


def legacy(thrust: float, p: float, q: float, r: float):
    topic = load_interface(ROBOT).command("ctbr_cmd")
    return encode_legacy_rates(np.array([thrust, p, q, r]), topic.options), topic.options


def test_signs_of_the_legacy_setpoint():
    """+p (right side down) is +linear.y, +q (nose down) is +linear.x, +r (to the left) is -angular.z, in deg/s."""
    twist, _ = legacy(0.24, pi, 0.0, 0.0)
    assert (twist.linear.x, twist.linear.y, twist.angular.z) == pytest.approx((0, 180, 0))
    twist, _ = legacy(0.24, 0.0, pi, 0.0)
    assert (twist.linear.x, twist.linear.y, twist.angular.z) == pytest.approx((180, 0, 0))
    twist, _ = legacy(0.24, 0.0, 0.0, pi)
    assert (twist.linear.x, twist.linear.y, twist.angular.z) == pytest.approx((0, 0, -180))


def test_thrust_of_the_legacy_setpoint():
    """65535 is four times 0.12 N; below 1000 the firmware gives nothing; 60000 is its top."""
    assert legacy(0.24, 0, 0, 0)[0].linear.z == pytest.approx(65535 / 2)
    assert legacy(0.001, 0, 0, 0)[0].linear.z == 0
    assert legacy(0.48, 0, 0, 0)[0].linear.z == 60000
    twist, options = legacy(0.48, 0, 0, 0)
    assert decode_legacy_rates(twist, options)[0] == pytest.approx(0.48 * 60000 / 65535)


def test_the_thrust_scale_is_the_robots():
    from temporeal.robots.crazyflie.spec import MAX_THRUST

    for key in ("crazyswarm2", "odometry", "px4", "mavros"):
        assert load_interface(ROBOT, key).command("ctbr_cmd").options["max_thrust_n"] == MAX_THRUST


def odometry(**twist) -> object:
    signals = state(np.random.default_rng(3))
    signals["base_quat_w"] = from_rotation_vector(np.array([0, 0, pi / 2]))
    signals["base_vel_w"] = np.array([1.0, 0.0, 0.0])
    return encode_odometry(signals, 0, ("world", "cf1"), twist)


def test_velocity_in_the_stated_frame():
    """Turned to the left by 90 degrees and moving along world x: in the body that is to the right, -y."""
    body, world = odometry(linear="body", angular="body"), odometry(linear="world", angular="absent")
    v = body.twist.twist.linear
    assert (v.x, v.y, v.z) == pytest.approx((0, -1, 0), abs=1e-9)
    assert world.twist.twist.linear.x == 1.0 and world.twist.twist.angular.x == 0.0
    decoded = decode_odometry(body, {"linear": "body", "angular": "body"})
    assert decoded["base_vel_w"] == pytest.approx([1, 0, 0], abs=1e-6)
    assert "base_ang_vel_b" not in decode_odometry(world, {"linear": "world", "angular": "absent"})


def test_log_values_are_in_degrees():
    message = encode_log_values({"base_ang_vel_b": np.array([pi, 0, 0])}, 0, ("world", "cf1"),
                                       {"signal": "base_ang_vel_b", "unit": "deg/s"})
    assert message.values.tolist() == pytest.approx([180, 0, 0])


def test_a_quaternion_that_is_none_is_refused():
    message = odometry(linear="world", angular="absent")
    message.pose.pose.orientation.x = message.pose.pose.orientation.z = 0.0
    message.pose.pose.orientation.w = 0.0
    with pytest.raises(CodecError, match="quaternion"):
        decode_odometry(message, {"linear": "world", "angular": "absent"})


CHANGES = [
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(codec="where"), "unknown codec 'where'; known"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(type="std_msgs/msg/String"), "is for nav_msgs"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(qos="best"), "unknown QoS 'best'; legal"),
    (lambda c: c["interfaces"]["odometry"]["states"].append(c["interfaces"]["odometry"]["states"][0]), "another topic"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(rate_hz=0), "paces the controller"),
    (lambda c: c["interfaces"]["odometry"]["states"][0]["options"].update(linear="ned"), "legal: world, body"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].pop("rate_hz"), "expected exactly"),
    (lambda c: c["interfaces"]["odometry"]["commands"]["ctbr_cmd"]["options"].pop("full"), "option 'full' is missing"),
    (lambda c: c["interfaces"]["odometry"]["commands"].update(
        go={**c["interfaces"]["odometry"]["commands"]["motor_cmd"]}), "has no 'go'"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(topic=None), "odometry.states.topic: text is needed"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(topic="a b"), "'/a b' is not a topic name"),
    (lambda c: c["interfaces"]["odometry"]["states"][0].update(rate_hz="10"), "a number of Hz, .* got '10'"),
    (lambda c: c["interfaces"]["odometry"].update(definitions={"a": "1"}), "odometry.definitions: the definition"),
    (lambda c: c["interfaces"]["odometry"].update(commands=[]), "odometry.commands: a mapping from names"),
    (lambda c: c["interfaces"].update(odometry=3), "odometry: keys are 3"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_a_wrong_interface_is_an_error_that_names_it(change, words):
    content = yaml.safe_load(ROBOT.ros.read_text())
    change(content)
    with pytest.raises((InterfaceError, CodecError), match=words):
        build(ROBOT, content, "odometry")


LEGACY = [
    ({"max_thrust_n": nan}, "max_thrust_n is nan; a number above 0"), ({"max_thrust_n": -1}, "max_thrust_n is -1"),
    ({"max_thrust_n": "0.48"}, "max_thrust_n is '0.48'"), ({"full": inf}, "full is inf; .* up to 65535"),
    ({"full": True}, "full is True"), ({"low": -1}, "low is -1; a number from 0 and up to 60000"),
    ({"low": nan}, "low is nan"), ({"high": nan}, "high is nan"), ({"high": -5}, "high is -5"),
    ({"high": 65536}, "high is 65536; a number above 0 and up to 65535"), ({"low": 60001}, "low is 60001"),
    ({"max_thrust_n": 0.0001}, "0.21973 of component 0 would arrive as 9.15541e-05"),
    ({"max_thrust_n": 0.4}, "0.43946 of component 0 would arrive as 0.366217: .* from 0 to 0.43946"),
    ({"low": 59999}, "0.21973 of component 0 would arrive as 0:"),
    ({"high": 30000}, "0.43946 of component 0 would arrive as 0.21973")]


@pytest.mark.parametrize(("options", "words"), LEGACY, ids=[str(options) for options, _ in LEGACY])
def test_a_thrust_that_is_not_the_robots_is_refused(options, words):
    """0.48 N is 65535 of 16 bits; the robot's most, 0.43946 N, is 60000: no other options say 0 to that."""
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["odometry"]["commands"]["ctbr_cmd"]["options"].update(options)
    with pytest.raises(InterfaceError, match=f"commands.ctbr_cmd: .*{words}"):
        build(ROBOT, content, "odometry")


def test_so_it_is_with_every_codec():
    """PX4's normalized thrust ends at 1, and the robot's at 0.43946 N."""
    content = yaml.safe_load(ROBOT.ros.read_text())
    options = content["interfaces"]["px4"]["commands"]["ctbr_cmd"]["options"]
    options.update(max_thrust_n=0.44)
    build(ROBOT, content, "px4")
    options.update(max_thrust_n=0.43)
    with pytest.raises(InterfaceError, match="commands.ctbr_cmd: 0.43946 of component 0 would arrive as 0.43:"):
        build(ROBOT, content, "px4")


def option_rows():
    """Every topic of every robot that has options: robot, interface, place among them."""
    found = []
    for name in robot_names():
        robot = load_robot(name)
        if robot.ros is not None and robot.ros.exists():
            content = read_yaml(robot.ros)
            for key in content["interfaces"]:
                rows = range(len(rows_of(content, key)))
                found += [pytest.param(robot, key, i, id=f"{name}-{key}-{i}") for i in rows]
    return found


def rows_of(content: dict, interface: str) -> list[dict]:
    """Its states, commands and their companions."""
    part = content["interfaces"][interface]
    commands = part["commands"].values()
    return [*part["states"], *commands, *(other for row in commands for other in row.get("also", ()))]


@pytest.mark.parametrize(("robot", "interface", "place"), option_rows())
def test_an_option_that_no_codec_reads_is_refused(robot, interface, place):
    """A misspelt one would leave the default in force, unseen."""
    content = read_yaml(robot.ros)
    row = rows_of(content, interface)[place]
    row["options"] = {**row["options"], "offs": 0.1}
    with pytest.raises(InterfaceError, match=f"{row['topic']}: codec '{row['codec']}' has no option 'offs'; legal: "):
        build(robot, content, interface)


def test_the_legal_options_are_named():
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["odometry"]["commands"]["ctbr_cmd"]["options"]["trim"] = 3
    with pytest.raises(InterfaceError, match="has no option 'trim'; legal: full, high, low, max_thrust_n$"):
        build(ROBOT, content, "odometry")


TOPICS = [
    (("commands", "ctbr_cmd"), "fmu/out/vehicle_odometry", "'fmu/out/vehicle_odometry' carries the robot's state"),
    (("commands", "ctbr_cmd"), "/fmu/out/vehicle_odometry", "'/fmu/out/vehicle_odometry' carries the robot's state"),
    (("commands", "ctbr_cmd"), "fmu/out/vehicle_status_v1", "carries the robot's state; commands need a"),
    (("commands", "ctbr_cmd"), "guard/command", "commands.ctbr_cmd: topic 'guard/command' is one of the nodes' own;"),
    (("commands", "ctbr_cmd"), "/mission", "topic '/mission' is one of the nodes' own; .* than mission, mission/start"),
    (("commands", "motor_cmd"), "/diagnostics", "commands.motor_cmd: topic '/diagnostics' is one of the nodes' own"),
    (("commands", "ctbr_cmd", "also", 0), "policy/step", "commands.ctbr_cmd: topic 'policy/step' is one of the nodes'"),
    (("commands", "ctbr_cmd", "also", 0), "fmu/out/vehicle_odometry", "carries the robot's state"),
    (("commands", "ctbr_cmd", "also", 0), "fmu/in/vehicle_rates_setpoint", "rates_setpoint' is listed twice"),
    (("commands", "ctbr_cmd"), "fmu/in/vehicle_command", "topic 'fmu/in/vehicle_command' is listed twice"),
    (("autopilot", "orders"), "mission/stop", "topic 'mission/stop' is one of the nodes' own"),
    (("autopilot", "orders"), "fmu/out/vehicle_odometry", "carries the robot's state")]


@pytest.mark.parametrize(("place", "topic", "words"), TOPICS, ids=[f"{row[0][-1]}-{row[1]}" for row in TOPICS])
def test_commands_have_topics_of_their_own(place, topic, words):
    """On guard/command they would be read as what the guard says of them; on a state's they would be the state."""
    content = yaml.safe_load(ROBOT.ros.read_text())
    row = content["interfaces"]["px4"]
    for key in place:
        row = row[key]
    row["topic"] = topic
    with pytest.raises(InterfaceError, match=words):
        build(ROBOT, content, "px4")


@pytest.mark.parametrize(("rivals", "words"), [
    ("fmu/in/goto_setpoint", "px4.rivals: a list of topics is needed, got 'fmu/in/goto_setpoint'"),
    ([3], "px4.rivals: got 3; names of topics are needed"),
    (["goto setpoint"], "px4.rivals: '/goto setpoint' is not a topic name"),
    (["a", "/a"], "px4.rivals: topic '/a' is listed twice"),
    (["fmu/in/vehicle_rates_setpoint"], "is one of the interface's, or of the nodes' own; needed are others"),
    (["fmu/in/offboard_control_mode"], "is one of the interface's"),
    (["fmu/in/actuator_motors"], "is one of the interface"), (["fmu/in/vehicle_command"], "is one of the interface's"),
    (["fmu/out/vehicle_odometry"], "is one of the interface's"),
    (["/mission/stop"], "topic '/mission/stop' is one of the interface's, or of the nodes' own")])
def test_rivals_are_topics_of_others(rivals, words):
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["px4"]["rivals"] = rivals
    with pytest.raises(InterfaceError, match=words):
        build(ROBOT, content, "px4")


def test_the_topics_of_commands_that_are_not_flown_are_rivals_too():
    """Their companions as well, but not those that the flown one has itself."""
    px4 = load_interface(ROBOT, "px4")
    assert px4.rivals_of("ctbr_cmd") == (*px4.rivals, "fmu/in/actuator_motors")
    assert px4.rivals_of("motor_cmd") == (*px4.rivals, "fmu/in/vehicle_rates_setpoint")
    assert load_interface(ROBOT, "crazyswarm2").rivals_of("ctbr_cmd")[-2:] == ("cmd_hover", "motor_cmd")
    assert load_interface(load_robot("franka")).rivals_of("joint_pos_cmd") == ()


@pytest.mark.parametrize("topic", ["odom", "/odom"])
def test_a_topic_stands_once_among_the_states(topic):
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["crazyswarm2"]["states"][1]["topic"] = topic
    with pytest.raises(InterfaceError, match=f"states: topic '{topic}' is listed twice; one row"):
        build(ROBOT, content, "crazyswarm2")


def test_the_nodes_own_topics_are_those_that_they_have():
    """What is recorded of the nodes, and what the simulated robot says and hears besides."""
    sim = {"sim/episode", "sim/instruction", "sim/reset", "sim/fault", "sim/fault_active"}
    assert set(NODE_TOPICS) == {name for name, *_ in RECORDED_TOPICS} | sim | {"/diagnostics"}


@pytest.mark.parametrize("rate", [nan, inf, True, 1e-300, 1e300, -1, "100", None, [100]])
@pytest.mark.parametrize("place", [0, 1])
def test_a_rate_is_a_number_that_messages_may_come_at(rate, place):
    """NaN is neither 0 nor above it: such a topic would never be stale."""
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["crazyswarm2"]["states"][place]["rate_hz"] = rate
    with pytest.raises(InterfaceError, match="crazyswarm2.states.rate_hz: a number of Hz, 0 or from 0.01 to 100000"):
        build(ROBOT, content, "crazyswarm2")


def test_an_unknown_interface_lists_the_known():
    with pytest.raises(InterfaceError, match="known: crazyswarm2, odometry, px4, mavros"):
        load_interface(ROBOT, "ardupilot")


@pytest.mark.parametrize(("robot", "interface"), interfaces())
def test_all_signals_of_a_quadrotor_are_carried(robot, interface):
    assert dict(interface.carried) == dict(robot.signals)
    check_reads(interface, robot.signals.values())


def test_a_signal_that_nobody_carries_is_refused_by_name():
    content = yaml.safe_load(ROBOT.ros.read_text())
    content["interfaces"]["odometry"]["states"][0]["options"]["angular"] = "absent"
    interface = build(ROBOT, content, "odometry")
    with pytest.raises(InterfaceError, match="reads 'base_ang_vel_b', which no topic .* carries; carried: base_pos_w"):
        check_reads(interface, ROBOT.signals.values())
