"""What the templates write is an interface: codecs that go both ways, and a profile for every command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml
from tests.bridge import foreign_robots

from temporeal.robots.motion.rate_limiter import at_rest
from temporeal.robots.motion.smooth_trajectory import smooth_trajectory
from temporeal.robots.ros_interface.joints import GRIPPERS, Driver
from temporeal.robots.ros_templates import TEMPLATES, interfaces, ros_yaml
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.interface.encoding import encode_all
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import interface_names, load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """With commands of all kinds."""
    robot = foreign_robots.arm(tmp_path_factory.mktemp("arm"))
    most = robot.motion.speed, robot.motion.effort
    more = {name: CommandSpec(name, (6,), unit, low=tuple(-v for v in limit), high=limit)
            for name, unit, limit in zip(("joint_vel_cmd", "joint_effort_cmd"), ("rad/s", "N m"), most)}
    joints = dict.fromkeys(more, foreign_robots.JOINTS)
    robot = replace(robot, commands={**robot.commands, **more}, actuators={**robot.actuators, **joints},
                    drives={"joint_vel_cmd": "velocity", "joint_effort_cmd": "effort"})
    robot.ros.write_text(ros_yaml(robot))
    return robot


def check_all(robot, interface, periods):
    """The interface loads (which passes home and the ends of every command through its codecs), and the guard has a
    profile for each of its commands."""
    found = load_interface(robot, interface)
    for name, topic in found.commands.items():
        spec = robot.commands[name]
        profile = profile_on(robot, found, spec, periods.get(name, 0.02))
        assert profile.limits.size == spec.size
        command = np.array(spec.low) + 0.3 * (np.array(spec.high) - np.array(spec.low))
        sent = dict(encode_all(topic, command, 10**9))
        for row in topic.parts:
            back = COMMAND_CODECS[row.codec].decode(messages.decode(row.type, sent[row.topic]), row.options)
            assert back == pytest.approx(row.part(command), rel=1e-5, abs=1e-6)
    return found


@pytest.mark.parametrize("gripper", GRIPPERS)
def test_a_gripper_is_told_by_its_own_topic(arm, tmp_path, gripper):
    robot = replace(arm, ros=tmp_path / "ros.yaml")
    robot.ros.write_text(ros_yaml(robot, driver=Driver(gripper=gripper)))
    topic = check_all(robot, None, {"joint_pos_cmd": 0.04, "arm_cmd": 0.04}).command("arm_cmd")
    limits = profile_on(robot, load_interface(robot), robot.commands["arm_cmd"], 0.04).limits
    onward = smooth_trajectory(limits, at_rest(np.array([0.1] * 6 + [0.02])))
    sent = dict(encode_all(topic, np.array([0.1] * 6 + [0.02]), 0, onward))
    arms = messages.decode(topic.type, sent[topic.topic])
    assert arms.joint_names == list(foreign_robots.JOINTS) + ["backe"] * (gripper == "joined")
    if gripper == "command":
        assert messages.decode("control_msgs/msg/GripperCommand", sent["gripper_controller/command"]).position == 0.02


@pytest.mark.parametrize("change, message", [
    ({"components": [0, 1, 2, 3, 4]}, "each of 0 to 6 is needed once"), ({"components": [0, 0]}, "different places"),
    ({"components": [0, 1, 2, 3, 4, 7]}, "each of 0 to 6 is needed once"), ({"components": "all"}, "different places")])
def test_each_component_is_on_one_topic(arm, tmp_path, change, message):
    robot = replace(arm, ros=tmp_path / "ros.yaml")
    content = yaml.safe_load(arm.ros.read_text())
    content["interfaces"]["forward_position"]["commands"]["arm_cmd"] |= change
    robot.ros.write_text(yaml.safe_dump(content))
    with pytest.raises(InterfaceError, match=message):
        load_interface(robot, "forward_position")


@pytest.mark.parametrize("interface", TEMPLATES["arm"])
def test_an_arms_interfaces(arm, interface):
    check_all(arm, interface, {"joint_pos_cmd": 0.04, "arm_cmd": 0.04})


@pytest.mark.parametrize("interface", TEMPLATES["quadrotor"])
def test_a_quadrotors_interfaces(tmp_path, interface):
    robot = foreign_robots.flyer(tmp_path, interface)
    found = check_all(robot, None, {})
    assert interface_names(robot) == (interface,) and "base_ang_vel_b" in found.carried


@pytest.mark.parametrize("interface", TEMPLATES["mobile_base"])
@pytest.mark.parametrize("sideways", [False, True])
def test_a_bases_interfaces(tmp_path, interface, sideways):
    check_all(foreign_robots.base(tmp_path, sideways), interface, {"twist_cmd": 0.05})


@pytest.mark.parametrize("name", ["franka", "leap_hand", "shadow_hand", "allegro_hand"])
def test_shipped_robots_would_do_with_a_template(tmp_path, name):
    robot = replace(load_robot(name), ros=tmp_path / "ros.yaml")
    if name == "shadow_hand":  # its motors pull several joints each
        with pytest.raises(ValueError, match="'FFJ0' is no joint.*by hand"):
            ros_yaml(robot)
        return
    robot.ros.write_text(ros_yaml(robot))
    for interface in interfaces(robot):
        check_all(robot, interface, {})


def test_limits_of_the_guard_are_those_of_the_spec(arm):
    limits = replace(arm.motion, speed=(1.0, 2.0, 1.0, 1.0, 1.0, 1.0), low=(-2.0,) * 6, high=(2.0,) * 6)
    slow = replace(arm, motion=limits)
    arm.ros.with_name("slow.yaml").write_text(ros_yaml(slow))
    slow = replace(slow, ros=arm.ros.with_name("slow.yaml"))
    found = load_interface(slow)
    profile = profile_on(slow, found, slow.commands["joint_pos_cmd"], 0.04)
    assert profile.limits.speed.tolist() == [0.6, 1.2, 0.6, 0.6, 0.6, 0.6]
    assert profile.limits.low == pytest.approx([-2.0] * 6) and profile.limits.high == pytest.approx([2.0] * 6)
    rates = profile_on(slow, load_interface(slow, "forward_velocity"), slow.commands["joint_vel_cmd"], 0.04)
    assert rates.ends.low == (-1.98,) * 6 and rates.ends.speed == pytest.approx((0.6, 1.2, 0.6, 0.6, 0.6, 0.6))


def test_arm_and_gripper_share_a_topic_in_messages_of_their_own(arm):
    """Two drivers on joint_states, one of which leaves out the finger that follows the other."""
    found, bus = load_interface(arm), Bus()
    state = StateInput(MemoryTransport(bus, "node", "/a"), arm, found)
    peer, kind = MemoryTransport(bus, "peer", "/a"), "sensor_msgs/msg/JointState"
    endpoint = peer.advertise("joint_states", kind, QOS["default"])

    def tell(names, position, stamp):
        peer.publish(endpoint, messages.encode(kind, messages.record(kind)(
            header=messages.header(stamp), name=list(names), position=np.array(position),
            velocity=np.zeros(len(position)), effort=np.zeros(0))))
        state.transport.wait(0.0)

    home = dict(zip(foreign_robots.JOINTS, arm.home["joint_pos"]))
    tell(foreign_robots.JOINTS[:0:-1], [home[name] for name in foreign_robots.JOINTS[:0:-1]], 10**9)
    tell(["backe"], [0.03], 10**9 + 3)
    assert not state.complete and state.missing == ["joint_states"]
    tell(["rad_links", foreign_robots.JOINTS[0]], [7.0, home[foreign_robots.JOINTS[0]]], 10**9 + 5)
    assert state.complete and state.rejected == 0
    assert state.newest()["joint_pos"] == pytest.approx(arm.home["joint_pos"])
    assert state.newest()["finger_pos"] == pytest.approx([0.03, 0.03])


def test_the_tools_pose_is_of_the_robots_own_kinematics(arm):
    from temporeal.robots.motion.kinematics import serial_chain

    row = load_interface(arm).states[0]
    home = np.array(arm.home["joint_pos"])
    message = STATE_CODECS[row.codec].encode(
        {"joint_pos": home, "joint_vel": np.zeros(6)}, 0, ("world", "arm"), row.options)
    pose = serial_chain(arm).forward(home)
    found = STATE_CODECS[row.codec].decode(message, row.options)
    assert found["spitze_pos_w"] == pytest.approx(pose[:3, 3], abs=1e-6)


def test_a_robot_without_a_file_is_told_how_to_get_one(arm, tmp_path):
    lonely = replace(arm, ros=None)
    with pytest.raises(InterfaceError, match=r"nothing says how to speak to robot .*ros\.yaml.*`temporeal robot new`"):
        load_interface(lonely)
    with pytest.raises(InterfaceError, match="exists in simulation only"):
        load_interface(load_robot("linear"))
