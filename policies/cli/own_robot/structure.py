"""What a model's structure says about the robot: its tool, its driven joints, its gripper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from temporeal.robots.model_files import QPOS_SIZE, Content, Joint, RobotFileError, frames, parse
from temporeal.robots.model_tree import way_to

TOOLS = ("tcp", "tool0", "tool", "grasp", "grip", "ee", "eef", "end_effector", "attachment_site", "hand", "flange")
"""Words in the names of tools, the likeliest first."""

FINGERS = re.compile(r"finger|jaw|knuckle|thumb", re.IGNORECASE)
"""Of joints that close a gripper, or of their bodies; a body called ``gripper`` may also be the last link of an arm."""

GRIPPERS = re.compile(r"finger|jaw|knuckle|thumb|gripper|grasp", re.IGNORECASE)
"""Of joints that close a gripper."""


@dataclass(frozen=True)
class Structure:
    """A model's joints and places."""

    content: Content

    @cached_property
    def plain(self) -> dict[str, Joint]:
        """Hinges and slides by name."""
        return {joint.name: joint for joint in self.content.joints if QPOS_SIZE[joint.kind] == 1}

    @cached_property
    def ways(self) -> dict[str, list[str]]:
        """The joints between the root and each body, link or site; places that hang on other joints are left out."""
        found = {}
        for place in frames(self.content):
            try:
                found[place] = [move.joint for move in way_to(self.content.path, place)[0]]
            except RobotFileError:
                continue
        return found

    @property
    def leaders(self) -> list[str]:
        """Hinges and slides that follow no other joint."""
        return [name for name in self.plain if name not in self.content.followers]

    @property
    def fingers(self) -> list[str]:
        """Joints that look like a gripper's, by their names and their bodies', and all that follow one of them."""
        named = {name for name, joint in self.plain.items() if GRIPPERS.search(name) or FINGERS.search(joint.body)}
        tied = {name for name, follow in self.content.followers.items() if follow.leader in named}
        return [name for name in self.plain if name in named | tied]

    def tool(self) -> str | None:
        """The likeliest tool: of a usual name, far out, and moved by no finger."""
        fingers = set(self.fingers)
        candidates = {place: way for place, way in self.ways.items() if way and not fingers.intersection(way)}
        if not candidates:
            return None
        longest = max(map(len, candidates.values()))
        far = [place for place, way in candidates.items() if len(way) == longest]
        return min(far, key=lambda place: (rank(place), -far.index(place)))

    def tips(self) -> list[str]:
        """The ends of a hand's fingers: places behind which nothing moves, one for each last joint."""
        last = {way[-1]: place for place, way in self.ways.items() if way}
        inner = {joint for way in self.ways.values() for joint in way[:-1]}
        return [place for joint, place in last.items() if joint not in inner]

    def bodies_of(self, joints: list[str]) -> list[str]:
        """The bodies that ``joints`` move; with a single joint also the body that it closes against."""
        bodies = list(dict.fromkeys(self.plain[joint].body for joint in joints))
        if len(bodies) == 1 and (parent := self.parents.get(bodies[0])):
            bodies.insert(0, parent)
        return [body for body in bodies if body]

    @cached_property
    def parents(self) -> dict[str, str]:
        """The body or link above each."""
        return parents_of(self.content.path)


def rank(place: str) -> int:
    """How little ``place`` is called like a tool."""
    words = re.split(r"[^a-z0-9]+", place.lower())
    whole = place.lower()
    return next((i for i, tool in enumerate(TOOLS) if tool in words or "_" in tool and tool in whole), len(TOOLS))


def parents_of(path: Path) -> dict[str, str]:
    """The link above each link of a URDF, or the body above each body of an MJCF."""
    root = parse(path)
    if root.tag == "robot":
        pairs = [(joint.find("child"), joint.find("parent")) for joint in root.findall("joint")]
        return {child.get("link", ""): parent.get("link", "") for child, parent in pairs
                if child is not None and parent is not None}
    return {child.get("name", ""): body.get("name", "") for body in root.iter("body") for child in body.findall("body")}
