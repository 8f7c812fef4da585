"""The way from a model's root to one of its bodies, links or sites: fixed transforms and the joints between them.

    moves, end = way_to(Path("models/arm.urdf"), "tool0")

Transforms are homogeneous matrices [4, 4], m. MuJoCo's rules for frames, Euler angles, classes and several joints of
one body; URDF's for origins. A test compares both with MuJoCo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.frames import matrix, normalized
from temporeal.robots.model_files import (
    URDF_KINDS,
    Mjcf,
    RobotFileError,
    joint_elements,
    label,
    mjcf_of,
    numbers,
    parse,
    read_model,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Move:
    """A joint on the way: ``before`` [4, 4] leads to its frame from the joint before (from the world for the first);
    ``axis`` [3] is a unit vector in its frame; ``rest`` is its position as the model is drawn, rad or m."""

    joint: str
    kind: str
    before: Array
    axis: Array
    rest: float = 0.0


Way = tuple[list[Move], Array]
"""The joints from the root on, and the transform [4, 4] from the last joint's frame to the end."""


def way_to(path: Path, end: str) -> Way:
    """The way from the world to the body, link or site called ``end``."""
    root = parse(path)
    return mjcf_way(path, root, end) if root.tag == "mujoco" else urdf_way(path, root, end)


def transform(rotation: Array | None = None, shift: Sequence[float] | Array | None = None) -> Array:
    """A homogeneous matrix [4, 4] of a ``rotation`` [3, 3] and a ``shift`` [3] m."""
    out = np.eye(4)
    if rotation is not None:
        out[:3, :3] = rotation
    if shift is not None:
        out[:3, 3] = shift
    return out


def turn_about(axis: Array, angle: float) -> Array:
    """Rotation [3, 3] by ``angle`` rad about the unit vector ``axis`` [3]."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + sin(angle) * cross + (1 - cos(angle)) * cross @ cross)


def unit(where: str, vector: tuple[float, ...]) -> Array:
    """``vector`` [3] at length 1."""
    length = float(np.linalg.norm(vector))
    if length < 1e-9:
        raise RobotFileError(f"{where}: a direction is needed, got {vector}")
    return np.array(vector) / length


# ---------------------------------------------------------------- MJCF


def mjcf_way(path: Path, root: ElementTree.Element, end: str) -> Way:
    """The way in an MJCF file."""
    mjcf, content = mjcf_of(path, root), read_model(path)
    parents = {child: parent for parent in root.iter() for child in parent}
    target = next((element for tag in ("site", "body") for element in root.iter(tag) if element.get("name") == end
                   and in_world(element, parents)), None)
    if target is None:
        raise RobotFileError(f"{path}: the model has no body or site {end!r}")
    joints = list(zip(joint_elements(mjcf, root), content.joints))
    moves: list[Move] = []
    at = np.eye(4)
    for element in lineage(target, parents):
        at = at @ pose(mjcf, element, inherited(element, parents))
        for (body, source, childclass), joint in joints:
            if body is not element or element is target and element.tag != "body":
                continue
            if joint.kind not in ("hinge", "slide"):
                raise RobotFileError(f"{path}: {label(source)}: {end!r} hangs on a {joint.kind} joint: only hinges and "
                                     "slides make a chain")
            given = mjcf.attributes(source, childclass, "joint")
            inside = frames_between(mjcf, source, body, parents)
            where = f"{path}: {label(source)}"
            anchor = inside @ np.array([*numbers(f"{where}: pos", given.get("pos", "0 0 0"), 3), 1.0])
            axis = inside[:3, :3] @ unit(f"{where}: axis", numbers(f"{where}: axis", given.get("axis", "0 0 1"), 3))
            moves.append(Move(joint.name, joint.kind, at @ transform(shift=anchor[:3]), axis, joint.rest))
            at = transform(shift=-anchor[:3])
    return moves, at


def in_world(element: ElementTree.Element, parents: Mapping[ElementTree.Element, ElementTree.Element]) -> bool:
    """Whether ``element`` stands below <worldbody>."""
    while element in parents:
        element = parents[element]
        if element.tag == "worldbody":
            return True
    return False


def lineage(
    element: ElementTree.Element, parents: Mapping[ElementTree.Element, ElementTree.Element]
) -> list[ElementTree.Element]:
    """The elements from below <worldbody> down to ``element``."""
    out = [element]
    while parents[out[0]].tag != "worldbody":
        out.insert(0, parents[out[0]])
    return out


def inherited(element: ElementTree.Element, parents: Mapping[ElementTree.Element, ElementTree.Element]) -> str:
    """The class that ``element`` takes if it names none."""
    while element in parents:
        element = parents[element]
        if name := element.get("childclass"):
            return name
    return "main"


def frames_between(
    mjcf: Mjcf, element: ElementTree.Element, body: ElementTree.Element,
    parents: Mapping[ElementTree.Element, ElementTree.Element],
) -> Array:
    """The transform [4, 4] of the <frame>s around ``element`` inside ``body``."""
    out = np.eye(4)
    while (element := parents[element]) is not body:
        out = pose(mjcf, element, "main") @ out
    return out


def pose(mjcf: Mjcf, element: ElementTree.Element, childclass: str) -> Array:
    """The transform [4, 4] of a <body>, <frame> or <site> from its parent's frame."""
    given = mjcf.attributes(element, childclass, "site") if element.tag == "site" else dict(element.attrib)
    where = f"{mjcf.path}: {label(element)}"
    if "fromto" in given:
        ends = np.array(numbers(f"{where}: fromto", given["fromto"], 6)).reshape(2, 3)
        return transform(turned_z(unit(where, tuple(ends[0] - ends[1]))), ends.mean(axis=0))
    return transform(attitude(mjcf, where, given), numbers(f"{where}: pos", given.get("pos", "0 0 0"), 3))


def attitude(mjcf: Mjcf, where: str, given: Mapping[str, str]) -> Array:
    """The rotation [3, 3] that an element's attributes say, in one of MuJoCo's ways."""
    scale = pi / 180 if mjcf.degrees else 1.0
    if "quat" in given:
        return np.asarray(matrix(normalized(np.array(numbers(f"{where}: quat", given["quat"], 4)))))
    if "axisangle" in given:
        *axis, angle = numbers(f"{where}: axisangle", given["axisangle"], 4)
        return turn_about(unit(where, tuple(axis)), angle * scale)
    if "euler" in given:
        return euler(mjcf.euler, [angle * scale for angle in numbers(f"{where}: euler", given["euler"], 3)])
    if "xyaxes" in given:
        both = numbers(f"{where}: xyaxes", given["xyaxes"], 6)
        x, y = unit(where, both[:3]), np.array(both[3:])
        y = unit(where, tuple(y - x * (x @ y)))
        return np.stack([x, y, np.cross(x, y)], axis=1)
    if "zaxis" in given:
        return turned_z(unit(where, numbers(f"{where}: zaxis", given["zaxis"], 3)))
    return np.eye(3)


def euler(sequence: str, angles: list[float]) -> Array:
    """The rotation [3, 3] of three ``angles``, rad; a capital letter turns about the parent's axis."""
    out = np.eye(3)
    for letter, angle in zip(sequence, angles):
        step = turn_about(np.eye(3)["xyz".index(letter.lower())], angle)
        out = out @ step if letter.islower() else step @ out
    return out


def turned_z(direction: Array) -> Array:
    """The smallest rotation [3, 3] that brings z to ``direction`` [3]."""
    axis = np.cross([0.0, 0.0, 1.0], direction)
    length = float(np.linalg.norm(axis))
    if length < 1e-10:
        return np.eye(3) if direction[2] > 0 else np.diag([1.0, -1.0, -1.0])
    return turn_about(axis / length, float(np.arctan2(length, direction[2])))


# ---------------------------------------------------------------- URDF


def urdf_way(path: Path, root: ElementTree.Element, end: str) -> Way:
    """The way in a URDF file, from its root link, which stands at the world's origin."""
    above = {child.get("link", ""): joint for joint in root.findall("joint")
             for child in joint.findall("child")}
    if end not in {link.get("name") for link in root.findall("link")}:
        raise RobotFileError(f"{path}: the model has no link {end!r}")
    chain: list[ElementTree.Element] = []
    while end in above:
        joint = above[end]
        if joint in chain:
            raise RobotFileError(f"{path}: {label(joint)}: its links are above each other")
        chain.insert(0, joint)
        parent = joint.find("parent")
        end = "" if parent is None else parent.get("link", "")
    moves: list[Move] = []
    at = np.eye(4)
    for joint in chain:
        where, kind = f"{path}: {label(joint)}", joint.get("type", "")
        at = at @ origin(where, joint)
        if kind == "fixed":
            continue
        if URDF_KINDS.get(kind) not in ("hinge", "slide"):
            raise RobotFileError(f"{where}: {end!r} hangs on a {kind} joint: only hinges and slides make a chain")
        axis = joint.find("axis")
        text = "1 0 0" if axis is None else axis.get("xyz", "1 0 0")
        moves.append(Move(joint.get("name", ""), URDF_KINDS[kind], at, unit(f"{where}: <axis>", numbers(
            f"{where}: <axis>", text, 3))))
        at = np.eye(4)
    return moves, at


def origin(where: str, joint: ElementTree.Element) -> Array:
    """The transform [4, 4] of a joint's <origin>: fixed angles roll, pitch, yaw about x, y, z."""
    element = joint.find("origin")
    given = {} if element is None else element.attrib
    angles = numbers(f"{where}: <origin>: rpy", given.get("rpy", "0 0 0"), 3)
    return transform(euler("XYZ", list(angles)), numbers(f"{where}: <origin>: xyz", given.get("xyz", "0 0 0"), 3))
