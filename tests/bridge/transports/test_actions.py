"""Goals of actions: a real server takes them over rclpy; over plain DDS nobody pretends to send them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from temporeal_bridge.codecs.grippers import ACTION, encode_goal
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, TransportError, is_action

FIELDS = "uint8[16] goal_id\nfloat64 position\nfloat64 max_effort"
OPTIONS = {"max_effort": 5.0, "min_change": 0.0}
TOPIC = "gripper_controller/gripper_cmd"


def test_a_type_says_whether_it_is_an_action():
    assert is_action(ACTION) and not is_action("control_msgs/msg/GripperCommand")


def test_plain_dds_refuses_actions():
    pytest.importorskip("cyclonedds")
    from temporeal_bridge.transports.dds import refuse_action

    refuse_action("joint_states", "sensor_msgs/msg/JointState")
    with pytest.raises(TransportError, match="gripper_cmd: .* is an action.*transport rclpy"):
        refuse_action(TOPIC, ACTION)


def test_a_ros_server_gets_the_goal_and_we_are_one():
    pytest.importorskip("rclpy")
    pytest.importorskip("control_msgs.action")
    from control_msgs.action import GripperCommand
    from rclpy.action import ActionServer
    from rclpy.executors import SingleThreadedExecutor

    from temporeal_bridge.transports.rclpy_transport import RclpyTransport

    messages.define({ACTION: FIELDS})
    ours, node, theirs = (RclpyTransport(name, f"/test_{name}", domain=91) for name in ("guard", "sim", "driver"))
    seen, taken = [], []

    def run(handle):
        seen.append((handle.request.command.position, handle.request.command.max_effort))
        handle.succeed()
        return GripperCommand.Result()

    server = ActionServer(theirs.ros, GripperCommand, f"/test_guard/{TOPIC}", run)
    executor = SingleThreadedExecutor(context=theirs.context)
    executor.add_node(theirs.ros)
    node.subscribe(TOPIC, ACTION, QOS["command"], lambda r: taken.append(messages.decode(r.type, r.data).position))
    ends = [ours.advertise(TOPIC, ACTION, QOS["command"]), ours.advertise(f"/test_sim/{TOPIC}", ACTION, QOS["command"])]
    until = time.monotonic() + 5.0
    while not all(map(ours.matched, ends)) and time.monotonic() < until:
        ours.wait(0.02)
    for end in ends:
        ours.publish(end, messages.encode(ACTION, encode_goal(np.array([0.03]), OPTIONS, ours.now())))
    while not (seen and taken) and time.monotonic() < until:
        executor.spin_once(timeout_sec=0.02)
        node.wait(0.02)
    server.destroy()
    for transport in (ours, node, theirs):
        transport.close()
    assert seen == [(0.03, 5.0)] and taken == [0.03]
