"""The capsules of a robot whose own shapes cannot be read without a simulator: those that its YAML gives.

    capsules = watched(load_robot("my_arm"), "joint_pos", 0.02)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from temporeal.robots.model_files import URDF_KINDS, RobotFileError, label, mjcf_of, numbers, parse
from temporeal.robots.model_tree import inherited, origin, pose, unit
from temporeal.robots.motion.collision import Capsules, Link, capsules_of, joint_of
from temporeal.robots.spec import LinkShapes, RobotSpec


def watched(robot: RobotSpec, signal: str, margin: float) -> Capsules:
    """The capsules of ``robot`` that must stay ``margin`` [m] apart, moved by the joints of ``signal``: those of its
    YAML, else around the shapes in its model.

    Raises:
        RobotFileError: there is no model, or its shapes or frames are not read here.
    """
    if robot.model is None:
        raise RobotFileError(f"robot {robot.name!r} has no model")
    joints, home = robot.sources[signal].names, tuple(robot.home[signal])
    if robot.shapes is None:
        return capsules_of(robot.model, joints, home, margin)
    return around(robot.model, robot.shapes, robot.changes.exclude, joints, home, margin)


@lru_cache(maxsize=8)
def around(
    path: Path, shapes: LinkShapes, exclude: tuple[tuple[str, str], ...], joints: tuple[str, ...],
    home: tuple[float, ...], margin: float,
) -> Capsules:
    """The capsules ``shapes`` of the links in the model file ``path``; pairs in ``exclude`` may touch."""
    links = links_of(path)
    index = {link.name: i for i, link in enumerate(links)}
    rows = [(index[name], row) for name, capsules in shapes.capsules for row in capsules if name in index]
    numbered = np.array([row for _, row in rows], dtype=np.float64).reshape(-1, 7)
    apart = {frozenset(pair) for pair in (*exclude, *shapes.loose)}
    return Capsules(links, [i for i, _ in rows], numbered[:, :6].reshape(-1, 2, 3), numbered[:, 6], joints, home,
                    margin, apart)


def links_of(path: Path) -> list[Link]:
    """The links or bodies of a model file, parents first."""
    root = parse(path)
    return list(mjcf_links(path, root) if root.tag == "mujoco" else urdf_links(path, root))


def urdf_links(path: Path, root: ElementTree.Element) -> Iterator[Link]:
    """The links of a URDF, from its root link on."""
    below: dict[str, list[ElementTree.Element]] = {}
    for joint in root.findall("joint"):
        below.setdefault(linked(joint, "parent"), []).append(joint)
    children = {linked(joint, "child") for joint in root.findall("joint")}
    roots = [link.get("name", "") for link in root.findall("link") if link.get("name") not in children]
    done: list[tuple[str, int, ElementTree.Element | None]] = [(name, -1, None) for name in roots]
    for number, (name, _, _) in enumerate(done):  # it grows
        done += [(linked(each, "child"), number, each) for each in below.pop(name, [])]
    for name, parent, above in done:
        yield Link(name, parent, np.zeros(3), np.eye(3)) if above is None else urdf_link(path, name, parent, above)


def urdf_link(path: Path, name: str, parent: int, joint: ElementTree.Element) -> Link:
    """The link below a joint."""
    where, kind = f"{path}: {label(joint)}", joint.get("type", "")
    at = origin(where, joint)
    if kind == "fixed":
        return Link(name, parent, at[:3, 3], at[:3, :3])
    if URDF_KINDS.get(kind) not in ("hinge", "slide"):
        raise RobotFileError(f"{where}: shapes behind a {kind} joint are not read here")
    axis = joint.find("axis")
    text = "1 0 0" if axis is None else axis.get("xyz", "1 0 0")
    return Link(name, parent, at[:3, 3], at[:3, :3], joint.get("name", ""), URDF_KINDS[kind] == "slide",
                unit(f"{where}: <axis>", numbers(f"{where}: <axis>", text, 3)))


def linked(joint: ElementTree.Element, tag: str) -> str:
    """The link that a joint's <parent> or <child> names."""
    element = joint.find(tag)
    return "" if element is None else element.get("link", "")


def mjcf_links(path: Path, root: ElementTree.Element) -> Iterator[Link]:
    """The bodies of an MJCF."""
    mjcf = mjcf_of(path, root)
    parents = {child: parent for parent in root.iter() for child in parent}
    world = root.find("worldbody")
    if world is None or any(True for _ in world.iter("frame")):
        raise RobotFileError(f"{path}: links inside a <frame> are not read here")
    bodies = list(world.iter("body"))
    index = {id(body): i for i, body in enumerate(bodies)}
    for body in bodies:
        at, own = pose(mjcf, body, ""), [child for child in body if child.tag in ("joint", "freejoint")]
        if len(own) > 1 or any(child.tag == "freejoint" for child in own):
            raise RobotFileError(f"{path}: {label(body)}: one hinge or slide of a body is read here, no more")
        inside = body.get("childclass") or inherited(body, parents)
        moved = {} if not own else joint_of(mjcf, own[0], own[0].get("class", inside))
        yield Link(body.get("name", ""), index.get(id(parents[body]), -1), at[:3, 3], at[:3, :3], **moved)
