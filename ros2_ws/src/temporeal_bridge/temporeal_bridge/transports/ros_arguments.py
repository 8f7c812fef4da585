"""The part of ROS 2's command line that launch files use, the same for all transports.

``--ros-args -r old:=new -r __ns:=/cf1 -r __node:=name -p key:=value --params-file f.yaml``. A parameter
with the name of an option of the program sets that option. ``rclpy`` gets the same arguments and reads them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_yaml


@dataclass(frozen=True)
class RosArguments:
    """Node name and namespace (empty: not given), remappings in order, parameters by name, unknown arguments."""

    node: str = ""
    namespace: str = ""
    remaps: tuple[tuple[str, str], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line split into the program's own arguments and those between ``--ros-args`` and ``--`` or the end."""
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
    node, namespace, remaps, parameters, unknown = "", "", [], {}, []
    it = iter(arguments)
    for option in it:
        if option == "--params-file":
            parameters.update(read_parameters(Path(next(it, ""))))
            continue
        if option not in ("-r", "--remap", "-p", "--param"):
            unknown.append(option)
            continue
        rule = next(it, "")
        left, found, right = rule.partition(":=")
        if not found or not left or not right:
            raise ValueError(f"--ros-args {option}: expected left:=right, got {rule!r}")
        left = left.rpartition(":")[2]  # "node_name:rule" is for one node; this process has one
        if option in ("-p", "--param"):
            try:
                parameters[left] = from_yaml(right, "it")
            except (Refused, yaml.YAMLError) as error:
                raise ValueError(f"--ros-args {option} {rule}: {error}") from error
        elif left == "__ns":
            namespace = right
        elif left in ("__node", "__name"):
            node = right
        else:
            remaps.append((left, right))
    return RosArguments(node, namespace, tuple(remaps), parameters, tuple(unknown))


def read_parameters(path: Path) -> dict[str, Any]:
    """The parameters of all sections of a ROS parameter file: a process has one node, so all are its own."""
    try:
        content = from_yaml(path.read_text(), "it") or {}
    except (OSError, UnicodeDecodeError, Refused, yaml.YAMLError) as error:
        raise ValueError(f"--params-file {path}: {error}") from error
    out: dict[str, Any] = {}
    for section in content.values() if isinstance(content, dict) else [content]:
        whole = isinstance(section, dict) and set(section) == {"ros__parameters"}
        given = section["ros__parameters"] if whole else None
        if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
            raise ValueError(f"--params-file {path}: expected <node>: ros__parameters: {{...}}, got {section!r}")
        out.update(given)
    return out


ALIKE = 0.75  # similarity (difflib) from which a name counts as a misspelling; trsut and trust have 0.8


def meant(given: Iterable[str], known: Iterable[str], alike: float = ALIKE) -> Iterator[tuple[str, str]]:
    """Names of ``given`` that are misspellings of ``known`` ones: (as given, as known)."""
    for name in sorted(set(given) - set(known)):
        yield from ((name, other) for other in get_close_matches(name, list(known), 1, alike))


def misspelt(parameters: Iterable[str], legal: Sequence[str]) -> None:
    """Raise a ValueError for a parameter that is a misspelt option, which ROS would ignore silently.

    Other unknown parameters are legal: one file can hold the parameters of several nodes.
    """
    known = [option.removeprefix("--").replace("-", "_") for option in legal]
    for name, other in meant(parameters, known):
        raise ValueError(f"--ros-args -p {name}:=: this node has no such parameter; did you mean {other}:=?")


def as_options(parameters: dict[str, Any], legal: Sequence[str]) -> list[str]:
    """Parameters that are options of the program (``peer_timeout`` is ``--peer-timeout``), as a command line."""
    out = []
    for name, value in parameters.items():
        option = f"--{name.replace('_', '-')}"
        if option not in legal or value is False or value == "":
            continue
        out.append(option if value is True else f"{option}={value}")
    return out
