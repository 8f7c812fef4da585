"""A gripper's joints: which they are, where they are open, and fingers that one command closes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isclose, isfinite, pi
from typing import Any
from xml.etree import ElementTree

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.copying import child
from temporeal.policies.cli.own_robot.sources import Source
from temporeal.policies.cli.own_robot.structure import Structure
from temporeal.robots.model_files import Content, Joint

KNUCKLE = re.compile(r"knuckle|robotiq|drive", re.IGNORECASE)
TURN = 2 * pi  # rad: commands of joints without a range end there
SMALL = 0.2  # m: of joints that slide without a range. Assumed


def gripper(structure: Structure, driven: list[str], answers: Answers) -> dict[str, Any] | None:
    """The gripper, if fingers are there and nobody says that it is none."""
    said = answers.given.get("gripper")
    name = leader(structure, driven, answers)
    if not name:
        return None
    closed, opened = opening(structure.plain[name])
    joints = [name, *(each for each in structure.content.followers if leads(structure.content, each) == name)]
    more = said if isinstance(said, Mapping) else {}
    if "open" not in more:
        answers.assumed.append(f"gripper: open where {name} is at {opened:g}, closed at {closed:g} (else gripper: "
                               "{open: ..., closed: ...} in a file of answers)")
    return {"command": "arm_cmd", "joints": joints, "bodies": list(more.get("bodies", structure.bodies_of(joints))),
            "open": float(more.get("open", opened)), "closed": float(more.get("closed", closed))}


def leader(structure: Structure, driven: list[str], answers: Answers) -> str:
    """The joint that opens the gripper, "" if there is none."""
    found = free_fingers(structure, driven)
    said = answers.given.get("gripper")
    if said is None and set(structure.leaders) <= set(driven):
        return ""  # no joint is left
    if said is None:
        question = "Which joint opens the gripper (none: leave it empty)"
        found = answers.get("gripper", question, found if len(found) == 1 else [], structure.leaders)
    elif isinstance(said, Mapping):
        found = list(said.get("joints", found))
    else:
        found = [] if said in (["none"], "none") else said if isinstance(said, list) else [said]
    answers.checked("gripper", found[:1], structure.leaders)
    return str(found[0]) if found else ""


def free_fingers(structure: Structure, driven: list[str]) -> list[str]:
    """The fingers' joints that follow none."""
    return [name for name in structure.fingers if name not in driven and name not in structure.content.followers]


def tie_fingers(source: Source, structure: Structure, answers: Answers) -> str:
    """Let the second of two like fingers follow the first in the tree of ``source``; what was changed, or ""."""
    said = answers.given.get("gripper")
    if said in (["none"], "none"):
        return ""
    named = said.get("joints") if isinstance(said, Mapping) else said
    pair = [name for name in named if name in structure.leaders] if isinstance(named, list) else free_fingers(
        structure, [])
    if len(pair) != 2:
        return ""
    first, second = (structure.plain[name] for name in pair)
    sign = likeness(first, second)
    one_hand = structure.parents.get(first.body) == structure.parents.get(second.body)
    if not sign or not one_hand or first.kind != second.kind:
        return ""
    if source.is_urdf:
        for joint in source.root.findall("joint"):
            if joint.get("name") == second.name:
                ElementTree.SubElement(joint, "mimic", joint=first.name, multiplier=f"{sign:g}", offset="0")
    else:
        ElementTree.SubElement(child(source.root, "equality"), "joint", joint1=second.name, joint2=first.name,
                               polycoef=f"0 {sign:g} 0 0 0")
        for part in source.root.findall("actuator"):
            for element in [each for each in part if each.get("joint") == second.name]:
                part.remove(element)
    return f"{second.name} follows {first.name} now: one command closes both fingers"


def likeness(first: Joint, second: Joint) -> int:
    """1 where two joints have one range, -1 where one's is the other's mirrored, 0 else."""
    for sign in (1, -1):
        mirrored = sorted((sign * second.low, sign * second.high))
        if isfinite(first.low) and all(isclose(a, b, abs_tol=1e-3) for a, b in zip((first.low, first.high), mirrored)):
            return sign
    return 0


def opening(joint: Joint) -> tuple[float, float]:
    """Where a gripper's joint is closed, and where it is open: fingers and jaws are closed near zero, a linkage with
    knuckles is open there."""
    near, far = sorted(ends(joint), key=abs)
    return (far, near) if KNUCKLE.search(f"{joint.name} {joint.body}") else (near, far)


def leads(content: Content, name: str) -> str:
    """The joint that ``name`` follows in the end."""
    while name in content.followers:
        name = content.followers[name].leader
    return name


def ends(joint: Joint) -> tuple[float, float]:
    """The range of a joint, or what its commands get where it has none."""
    most = TURN if joint.kind == "hinge" else SMALL
    return (joint.low, joint.high) if isfinite(joint.low) else (-most, most)
