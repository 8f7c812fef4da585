"""Which transport a node uses: ``rclpy`` in a sourced ROS 2, else ``dds``. Each is imported when it is chosen."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from temporeal_bridge.transports.transport import Transport, TransportError


def choose(kind: str) -> str:
    """``auto`` is ``rclpy`` where it can be imported, else ``dds``; anything else is itself, if it is known."""
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
        ros_args: what followed ``--ros-args`` on the command line.
    """
    if choose(kind) == "rclpy":
        from temporeal_bridge.transports.rclpy_transport import RclpyTransport

        return RclpyTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
    from temporeal_bridge.transports.dds import DdsTransport

    return DdsTransport(node, namespace, domain=domain, loopback=loopback, ros_args=ros_args)
