"""Chooses a transport: ``rclpy`` in a sourced ROS 2, else ``dds``. A transport is imported when it is chosen."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from temporeal_bridge.transports.transport import Transport, TransportError


def choose(kind: str) -> str:
    """The transport of ``kind``; ``auto`` is ``rclpy`` if it can be imported, else ``dds``."""
    legal = ("auto", "dds", "rclpy")
    if kind not in legal:
        raise TransportError(f"unknown transport {kind!r}; legal: {', '.join(legal)}")
    if kind != "auto":
        return kind
    return "rclpy" if importlib.util.find_spec("rclpy") else "dds"


def open_transport(
    kind: str, node: str, namespace: str = "/", *, domain: int | str | None = None, loopback: bool = False,
    ros_args: Sequence[str] = (),
) -> Transport:
    """Join the bus as ``node``.

    Args:
        kind: ``"dds"``, ``"rclpy"`` or ``"auto"``.
        domain: DDS domain 0..232; None: ``$ROS_DOMAIN_ID``, or 0.
        loopback: talk to this machine only.
        ros_args: the arguments after ``--ros-args``.
    """
    if choose(kind) == "rclpy":
        from temporeal_bridge.transports.rclpy_transport import RclpyTransport

        return RclpyTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
    from temporeal_bridge.transports.dds import DdsTransport

    return DdsTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
