"""The file that `temporeal robot new` is given: URDF, xacro or MJCF, as one XML tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import RobotFileError, parse, unfold
from temporeal.robots.registry import guess_file

NAMES = {"robot": "model.urdf", "mujoco": "model.xml"}
"""The model's file in the robot's folder, by its root element."""


@dataclass(frozen=True)
class Source:
    """A model as it was given: its file and its tree, included files and macros unfolded."""

    path: Path
    root: ElementTree.Element

    @property
    def is_urdf(self) -> bool:
        """Whether it is a URDF, else an MJCF."""
        return self.root.tag == "robot"


def read_source(path: Path, arguments: Mapping[str, str]) -> Source:
    """The model in ``path``; ``arguments`` are a xacro's."""
    if not path.is_file():
        raise BadInput(f"there is no model file {path}; {guess_file(path)}a .urdf, .xacro or .xml (MJCF) file is "
                       "needed")
    root = expanded(path, arguments) if path.suffix.lower() == ".xacro" else parse(path)
    if root.tag not in NAMES:
        raise RobotFileError(f"{path}: <{root.tag}>: the root element is <mujoco> (MJCF) or <robot> (URDF)")
    if root.tag == "mujoco":
        unfold(path, root, [path])
    elif any(element.tag.startswith("{http://www.ros.org/wiki/xacro}") for element in root.iter()):
        raise BadInput(f"{path}: it has xacro macros: name the file .xacro")
    return Source(path, root)


def expanded(path: Path, arguments: Mapping[str, str]) -> ElementTree.Element:
    """The URDF that a xacro unfolds to. xacro evaluates the file's Python expressions: the user named this file."""
    try:
        import xacro
    except ImportError as error:
        raise BadInput(f"{path} is a xacro: `pip install xacro` reads it (it evaluates the Python expressions of the "
                       "file: read a file of somebody else's first)") from error
    try:
        document = xacro.process_file(str(path), mappings=dict(arguments))
    except Exception as error:  # whatever the file's expressions raise
        raise BadInput(f"{path}: xacro: {error}; its arguments are given with --xacro NAME=VALUE") from error
    return ElementTree.fromstring(document.toxml())
