"""Command-line options that nodes share, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.spec import RobotSpec, load_robot, robot_names
from temporeal_bridge.link.sockets import default_path
from temporeal_bridge.process.scheduling import PRIORITIES
from temporeal_bridge.transports.transport import Transport


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that all nodes have. Arguments after ``--ros-args`` are ROS's own."""
    out = argparse.ArgumentParser(prog=name, description=description)
    out.add_argument("--robot", default=None, help="folder name below robots/ (default: the artifact's robot)")
    out.add_argument("--interface", default=None, help="interface of the robot's ros.yaml (default: the one it names)")
    out.add_argument("--signals", type=Path, default=None, metavar="YAML",
                     help="topics of signals that the robot does not have: a goal, an object's pose, a camera")
    out.add_argument("--namespace", default="/", help="ROS namespace, for example /cf1")
    out.add_argument("--transport", default="auto", help="dds, rclpy, or auto: rclpy in a sourced ROS 2 (default)")
    out.add_argument("--domain", default=None, help="DDS domain 0..232 (default: $ROS_DOMAIN_ID, else 0)")
    out.add_argument("--loopback", action="store_true", help="keep all traffic on this machine")
    out.add_argument("--priority", default="normal", choices=PRIORITIES,
                     help="realtime: ahead of ordinary processes; auto: where permitted (default: %(default)s)")
    out.add_argument("--core", type=int, default=None, metavar="N",
                     help="run on this core only: one reserved for guard and controller (isolcpus)")
    out.add_argument("--link", type=Path, default=None, metavar="SOCKET",
                     help="socket between controller and guard (default: one per user, domain and namespace)")
    out.add_argument("--out", type=Path, default=None, help="folder for the summary and the node's other files")
    return out


def add_awake(options: argparse.ArgumentParser, what: str) -> None:
    """Option ``--awake`` of controller and guard; ``what`` it does in this node."""
    options.add_argument("--awake", action=argparse.BooleanOptionalAction, default=False,
                         help=f"{what}: lower latency, a busy core's power (needs --core and real-time priority)")


def add_artifact(options: argparse.ArgumentParser) -> None:
    """The options of a node that needs an artifact."""
    options.add_argument("--artifact", type=Path, required=True, help="folder written by `temporeal export`")
    options.add_argument("--trust", type=Path, default=None, metavar="PUB.pem",
                         help="public key: refuse an artifact that its owner did not sign")


def robot_of(args: argparse.Namespace) -> RobotSpec:
    """The robot of ``--robot``, else the artifact's."""
    artifact = getattr(args, "artifact", None)
    if args.robot is None and artifact is None:
        raise ValueError(f"--robot is needed, for no artifact names one; legal: {', '.join(robot_names())}")
    if args.robot is not None:
        return load_robot(args.robot)
    return named_robot(load_manifest(artifact, getattr(args, "trust", None)).robot)


def link_path(args: argparse.Namespace, transport: Transport) -> Path:
    """The socket between controller and guard of this robot."""
    return Path(args.link) if args.link else default_path(args.domain, transport.namespace)
