"""The part of ROS 2's command line that launch files use, for transports that have no ROS to read it.

``--ros-args -r old:=new -r __ns:=/cf1 -r __node:=name -p key:=value``; other options (log levels, parameter files)
are left to ROS itself and refused here, rather than silently ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml


@dataclass(frozen=True)
class RosArguments:
    """Node name and namespace (empty: not given), remappings in order, parameters by name."""

    node: str = ""
    namespace: str = ""
    remaps: tuple[tuple[str, str], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line as (the program's own, what stands between ``--ros-args`` and ``--`` or the end)."""
    own: list[str] = []
    ros: list[str] = []
    inside = False
    for argument in arguments:
        if argument == "--ros-args":
            inside = True
        elif inside and argument == "--":
            inside = False
        else:
            (ros if inside else own).append(argument)
    return own, ros


def parse(arguments: Sequence[str]) -> RosArguments:
    """The meaning of the arguments after ``--ros-args``."""
    node, namespace, remaps, parameters = "", "", [], {}
    it = iter(arguments)
    for option in it:
        if option not in ("-r", "--remap", "-p", "--param"):
            raise ValueError(f"--ros-args: {option!r} needs a real ROS 2 (transport rclpy); here: -r old:=new, -p key:=value")
        rule = next(it, "")
        left, found, right = rule.partition(":=")
        if not found or not left or not right:
            raise ValueError(f"--ros-args {option}: expected left:=right, got {rule!r}")
        left = left.rpartition(":")[2]  # "node_name:rule" names the node it is for; here there is one
        if option in ("-p", "--param"):
            parameters[left] = yaml.safe_load(right)
        elif left == "__ns":
            namespace = right
        elif left in ("__node", "__name"):
            node = right
        else:
            remaps.append((left, right))
    return RosArguments(node, namespace, tuple(remaps), parameters)
