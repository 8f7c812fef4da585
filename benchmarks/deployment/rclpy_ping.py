"""Two plain nodes of a sourced ROS 2, written as its tutorials write them, that play ping-pong: what rclpy takes.

    python -m temporeal_benchmarks.deployment.rclpy_ping echo
    python -m temporeal_benchmarks.deployment.rclpy_ping ping 5

The messages, the rate and the QoS are those of the bare ping of ``temporeal bench deploy``; the second prints its round
trips [s] as JSON. ``$ROS_DOMAIN_ID`` says where.
"""

from __future__ import annotations

import json
import sys
import time

import rclpy
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

PERIOD_S = 0.002
PATIENCE_S = 0.2  # for an answer; one that comes later is lost
JOINTS = [f"fr3_joint{i}" for i in range(1, 8)]


def echo() -> None:
    """Answer every state with a command."""
    node = Node("echo", namespace="/r")
    out = node.create_publisher(Float64MultiArray, "bare/pong", 1)
    answer = Float64MultiArray(data=[0.0] * len(JOINTS))
    node.create_subscription(JointState, "bare/ping", lambda _: out.publish(answer), qos_profile_sensor_data)
    rclpy.spin(node)


def ping(seconds: float) -> list[float]:
    """Round trips of states that are sent on time, or after the answer to the last one."""
    node, came, found = Node("ping", namespace="/r"), list[float](), list[float]()
    out = node.create_publisher(JointState, "bare/ping", 10)
    node.create_subscription(Float64MultiArray, "bare/pong", lambda _: came.append(time.monotonic()), 10)
    state = JointState(name=JOINTS, position=[0.0] * 7, velocity=[0.0] * 7, effort=[0.0] * 7)
    while not out.get_subscription_count() or not node.count_publishers("bare/pong"):
        rclpy.spin_once(node, timeout_sec=0.1)
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        came.clear()
        state.header.stamp = node.get_clock().now().to_msg()
        sent = time.monotonic()
        out.publish(state)
        while not came and time.monotonic() < sent + PATIENCE_S:
            rclpy.spin_once(node, timeout_sec=PATIENCE_S)
        found += [at - sent for at in came[:1]]
        time.sleep(max(now + PERIOD_S - time.monotonic(), 0.0))
    return found


if __name__ == "__main__":
    rclpy.init()
    if sys.argv[1] == "echo":
        echo()
    else:
        print(json.dumps(ping(float(sys.argv[2]))))
