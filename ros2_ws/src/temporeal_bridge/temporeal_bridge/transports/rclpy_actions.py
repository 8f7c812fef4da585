"""Goals of actions over rclpy: the service ``<action>/_action/send_goal``, with its request as the message.

Goals are sent and forgotten: a control loop waits for nobody, and the robot's state says what came of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.serialization import deserialize_message, serialize_message

from temporeal_bridge.transports.transport import Endpoint, QoS, TransportError


def goal_service(name: str) -> Any:
    """The service class that this ROS generated for the goals of ``control_msgs/action/GripperCommand``."""
    package, _, kind = name.partition("/action/")
    try:
        return getattr(importlib.import_module(f"{package}.action"), kind).Impl.SendGoalService
    except (ImportError, AttributeError, ValueError) as error:
        raise TransportError(f"the sourced ROS 2 has no action type {name!r} ({error}): build and source "
                             f"{package or 'its package'}, or choose another interface of the robot") from error


def client(node: Node, action: str, type: str, qos: QoS) -> Endpoint:
    """Who sends goals of ``action``."""
    made = node.create_client(goal_service(type), f"{action}/_action/send_goal")
    return Endpoint(node.resolve_topic_name(action), type, qos, made)


def send(made: Any, data: bytes) -> None:
    """Send a goal in CDR bytes; nobody waits for the answer."""
    if made.service_is_ready():
        made.remove_pending_request(made.call_async(deserialize_message(bytes(data), made.srv_type.Request)))


def server(node: Node, action: str, type: str, qos: QoS, deliver: Callable[[bytes], None]) -> Endpoint:
    """Who takes goals of ``action``, and accepts all: a simulated gripper."""

    def accept(request: Any, response: Any) -> Any:
        deliver(serialize_message(request))
        response.accepted = True
        return response

    made = node.create_service(goal_service(type), f"{action}/_action/send_goal", accept)
    return Endpoint(node.resolve_topic_name(action), type, qos, made)
