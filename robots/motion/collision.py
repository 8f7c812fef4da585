"""Distances between a robot's links from its joints and its model file. numpy only, for the robot side.

Contact shapes are enclosed in capsules (a segment and a radius), so distances never exceed the true ones. Pairs left
out: neighbours in the chain, pairs that the model excludes from contact, and pairs whose capsules are within ``margin``
of each other at home (housings that share a joint; a capsule is larger than the box inside it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from math import hypot, inf, nan, pi
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.frames import from_rotation_vector, matrix, normalized
from temporeal.robots.model_files import Mjcf, RobotFileError, label, mjcf_of, numbers, parse

Array = NDArray[np.float64]
ROTATIONS = ("axisangle", "xyaxes", "zaxis")
AXES = np.eye(3)


@dataclass(frozen=True)
class Link:
    """A body: its parent (-1: the world), its pose in the parent, and its joint ("": none) with unit axis, whether it
    slides along that axis, and the point it turns about."""

    name: str
    parent: int
    position: Array
    rotation: Array
    joint: str = ""
    slides: bool = False
    axis: Array = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    anchor: Array = field(default_factory=lambda: np.zeros(3))


class Capsules:
    """The capsules of a robot, and the pairs of them that must stay apart.

    Args:
        links: parents before children.
        of: [C] link of each capsule. ends: [C, 2, 3] m in the link's frame. radius: [C] m.
        joints: names, in the order of the angles passed to :meth:`distance`; other joints stay at 0.
        home: [J] angles. margin: m. excluded: pairs of links that may touch.
    """

    def __init__(
        self, links: Sequence[Link], of: Sequence[int], ends: Array, radius: Array, joints: Sequence[str], home: Any,
        margin: float, excluded: Set[frozenset[str]] = frozenset(),
    ) -> None:
        known = {link.joint for link in links if link.joint}
        missing = [name for name in joints if name not in known]
        if missing:
            raise RobotFileError(f"the model has no joints {missing}; it has: {', '.join(sorted(known))}")
        self.links, self.of, self.ends, self.radius = tuple(links), np.asarray(of), ends, radius
        self.count = len(joints)
        index = {name: i for i, name in enumerate(joints)}
        self.moved = [i for i, link in enumerate(self.links) if link.joint in index]
        self.by = np.array([index[self.links[i].joint] for i in self.moved], dtype=int)
        own = [self.links[i] for i in self.moved]
        self.slides = np.array([link.slides for link in own], dtype=bool)
        self.axis = np.array([link.axis for link in own]).reshape(-1, 3)
        self.anchor = np.array([link.anchor for link in own]).reshape(-1, 3)
        self.cross = np.array([crossing(link.axis) for link in own]).reshape(-1, 3, 3)
        self.positions = np.array([link.position for link in self.links])
        self.rotations = np.array([link.rotation for link in self.links])
        self.first, self.second = np.triu_indices(len(self.of), 1)
        self._keep(np.array([self._apart(i, j, excluded) for i, j in zip(self.of[self.first], self.of[self.second])],
                            dtype=bool))
        self._keep(self.clearances(home) > margin)
        self.reach = self._reach()

    def _keep(self, mask: Any) -> None:
        self.first, self.second = self.first[mask], self.second[mask]

    def _apart(self, i: int, j: int, excluded: Set[frozenset[str]]) -> bool:
        """Whether links ``i`` and ``j`` belong to different rigid parts, are not neighbours and not excluded."""
        own = frozenset((self.links[i].name, self.links[j].name))
        i, j = self._rigid(i), self._rigid(j)
        near = i == j or self._above(i) == j or self._above(j) == i
        names = frozenset((self.links[i].name, self.links[j].name))
        return not near and excluded.isdisjoint((own, names))

    def _rigid(self, link: int) -> int:
        """The first link of the rigid part of ``link``."""
        while not self.links[link].joint and self.links[link].parent >= 0:
            link = self.links[link].parent
        return link

    def _above(self, link: int) -> int:
        parent = self.links[link].parent
        return self._rigid(parent) if parent >= 0 else -1

    def _reach(self) -> Array:
        """Largest displacement of any capsule per joint [J], m per rad (1 for sliding joints), over all poses of the
        other joints. Infinite if a sliding joint lies further out: its travel is not bounded here."""
        ball = np.array([max((float(np.linalg.norm(self.ends[c], axis=1).max()) + self.radius[c]
                              for c in np.flatnonzero(self.of == i)), default=0.0) for i in range(len(self.links))])
        out = np.zeros(self.count)
        number = dict(zip(self.moved, self.by))
        for i in reversed(range(len(self.links))):  # children first; ball: around all capsules from here on
            link = self.links[i]
            arm = float(np.linalg.norm(link.anchor))
            if i in number:
                out[number[i]] = max(out[number[i]], 1.0 if link.slides else arm + ball[i])
            if link.parent >= 0:
                shift = np.inf if link.slides and i in number else 2.0 * arm
                ball[link.parent] = max(ball[link.parent], float(np.linalg.norm(link.position)) + shift + ball[i])
        return out

    def segments(self, angles: Any) -> Array:
        """Ends [C, 2, 3] m of the capsules' segments at joint ``angles`` [J] rad (m for sliding joints)."""
        q = np.asarray(angles, dtype=np.float64)
        if q.shape != (self.count,):
            raise RobotFileError(f"{self.count} joints are needed, got {q.shape}")
        angle = np.where(self.slides, 0.0, q[self.by])[:, None, None]
        spin = AXES + np.sin(angle) * self.cross + (1.0 - np.cos(angle)) * (self.cross @ self.cross)  # Rodrigues
        shift = np.where(self.slides, q[self.by], 0.0)[:, None] * self.axis
        shift = shift + self.anchor - np.einsum("jab,jb->ja", spin, self.anchor)
        places, turns = self.positions.copy(), self.rotations.copy()
        places[self.moved] += np.einsum("jab,jb->ja", turns[self.moved], shift)
        turns[self.moved] = turns[self.moved] @ spin
        for i, link in enumerate(self.links):
            if link.parent >= 0:
                turn = turns[link.parent]
                places[i], turns[i] = places[link.parent] + turn @ places[i], turn @ turns[i]
        out: Array = np.einsum("cij,cej->cei", turns[self.of], self.ends) + places[self.of][:, None]
        return out

    def clearances(self, angles: Any) -> Array:
        """Distance [P] m between the capsules of each pair; negative where they overlap."""
        if not len(self.first):
            return np.empty(0)
        ends = self.segments(angles)
        between = apart(ends[self.first], ends[self.second])
        out: Array = between - self.radius[self.first] - self.radius[self.second]
        return out

    def distance(self, angles: Any) -> tuple[float, str]:
        """The least clearance [m] and its two links; infinite without pairs."""
        found = self.clearances(angles)
        if not len(found):
            return np.inf, ""
        worst = int(np.argmin(found))
        names = (self.links[self.of[side[worst]]].name for side in (self.first, self.second))
        return float(found[worst]), " and ".join(names)


class Nearness:
    """Whether a robot's links stay ``margin`` [m] apart, for many queries in a row.

    A known clearance bounds those nearby: no pair comes closer by more than the sum of ``reach`` times the change of
    each joint.
    """

    def __init__(self, capsules: Capsules, margin: float) -> None:
        self.capsules, self.margin = capsules, margin
        self.place, self.room = [nan] * capsules.count, -inf  # m: clearance there beyond the margin
        self.reach = capsules.reach.tolist()

    def clear(self, angles: Any) -> bool:
        """True if every pair certainly keeps the margin at joint ``angles`` [J]; False means unknown."""
        rows = zip(np.asarray(angles, dtype=np.float64).tolist(), self.place, self.reach, strict=True)
        moved: float = sum(abs(a - b) * reach for a, b, reach in rows)
        return moved <= self.room  # NaN, of a place that nobody knows, is not

    def distance(self, angles: Any) -> tuple[float, str]:
        """As :meth:`Capsules.distance`; the result is kept for :meth:`clear`."""
        found = self.capsules.distance(angles)
        self.place, self.room = np.asarray(angles, dtype=np.float64).tolist(), found[0] - self.margin
        return found


def crossing(axis: Array) -> Array:
    """The matrix [3, 3] of the cross product: ``crossing(axis) @ v`` is axis x v."""
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def apart(a: Array, b: Array) -> Array:
    """Distances [P] m between the segments ``a`` and ``b`` [P, 2, 3] (C. Ericson, *Real-Time Collision Detection*,
    2005, 5.1.9, for many pairs at once)."""
    d, e, r = a[:, 1] - a[:, 0], b[:, 1] - b[:, 0], a[:, 0] - b[:, 0]
    dd, ee, de = (np.einsum("pi,pi->p", x, y) for x, y in ((d, d), (e, e), (d, e)))
    dr, er = np.einsum("pi,pi->p", d, r), np.einsum("pi,pi->p", e, r)
    tiny = 1e-12
    denominator = dd * ee - de * de
    parallel = denominator <= tiny * dd * ee + tiny**2
    s = np.clip(np.where(parallel, 0.0, (de * er - dr * ee) / np.where(parallel, 1.0, denominator)), 0.0, 1.0)
    t = np.where(ee > tiny, (de * s + er) / np.where(ee > tiny, ee, 1.0), 0.0)
    inside = np.clip(t, 0.0, 1.0)
    again = np.clip((de * inside - dr) / np.where(dd > tiny, dd, 1.0), 0.0, 1.0)
    s = np.where((t != inside) | (ee <= tiny), np.where(dd > tiny, again, 0.0), s)
    gap = r + s[:, None] * d - inside[:, None] * e
    out: Array = np.sqrt(np.einsum("pi,pi->p", gap, gap))
    return out


# from the model file


@lru_cache(maxsize=8)
def capsules_of(path: Path, joints: tuple[str, ...], home: tuple[float, ...], margin: float) -> Capsules:
    """The capsules of the MJCF file ``path``; see :class:`Capsules`.

    Raises:
        RobotFileError: the file has frames or shapes that are not supported here (the extent of meshes is unknown).
    """
    root = parse(path)
    mjcf = mjcf_of(path, root)
    if any(row.get("eulerseq", "xyz") != "xyz" for row in root.iter("compiler")):
        raise RobotFileError(f"{path}: eulerseq is not read here; the default, xyz, is")
    links: list[Link] = []
    of: list[int] = []
    ends: list[Array] = []
    radius: list[float] = []

    def visit(body: ElementTree.Element, parent: int, childclass: str) -> None:
        inside = body.get("childclass", childclass)
        own = [joint_of(mjcf, child, inside) for child in body if child.tag == "joint"]
        if len(own) > 1:
            raise RobotFileError(f"{path}: {label(body)}: {len(own)} joints on one body are not read here")
        links.append(Link(body.get("name", ""), parent, *placed(mjcf, body), **(own[0] if own else {})))
        number = len(links) - 1
        for geom in body.findall("geom"):
            found = capsule_of(mjcf, geom, inside)
            if found is not None:
                of.append(number)
                ends.append(found[0])
                radius.append(found[1])
        for child in body.findall("body"):
            visit(child, number, inside)

    for body in (child for world in root.findall("worldbody") for child in world.findall("body")):
        visit(body, -1, "main")
    excluded = {frozenset((row.get("body1", ""), row.get("body2", ""))) for part in root.findall("contact")
                for row in part.findall("exclude")}
    return Capsules(links, of, np.array(ends).reshape(-1, 2, 3), np.array(radius), joints, home, margin, excluded)


def placed(mjcf: Mjcf, element: ElementTree.Element, given: Mapping[str, str] | None = None) -> tuple[Array, Array]:
    """Position [3] and rotation [3, 3] of an element in its parent."""
    row, where = element.attrib if given is None else given, f"{mjcf.path}: {label(element)}"
    other = [name for name in ROTATIONS if name in row]
    if other:
        raise RobotFileError(f"{where}: {other[0]} is not read here; write the attitude as quat or euler")
    if "euler" in row:  # eulerseq xyz, MuJoCo's default: about the axes that turn along
        unit = pi / 180 if mjcf.degrees else 1.0
        turns = [matrix(from_rotation_vector(unit * value * axis))
                 for axis, value in zip(AXES, numbers(where, row["euler"], 3))]
        return np.array(numbers(where, row.get("pos", "0 0 0"), 3)), turns[0] @ turns[1] @ turns[2]
    quat = np.array(numbers(where, row.get("quat", "1 0 0 0"), 4))
    return np.array(numbers(where, row.get("pos", "0 0 0"), 3)), matrix(normalized(quat))


def joint_of(mjcf: Mjcf, element: ElementTree.Element, childclass: str) -> dict[str, Any]:
    """The joint fields of a :class:`Link`."""
    row, where = mjcf.attributes(element, childclass, "joint"), f"{mjcf.path}: {label(element)}"
    kind = row.get("type", "hinge")
    if kind not in ("hinge", "slide") or float(row.get("ref", "0")) != 0.0:
        raise RobotFileError(f"{where}: only hinges and slides with ref 0 are read here")
    axis = np.array(numbers(where, row.get("axis", "0 0 1"), 3))
    anchor = np.array(numbers(where, row.get("pos", "0 0 0"), 3))
    return {"joint": row.get("name", ""), "slides": kind == "slide", "axis": axis / np.linalg.norm(axis),
            "anchor": anchor}


def capsule_of(mjcf: Mjcf, element: ElementTree.Element, childclass: str) -> tuple[Array, float] | None:
    """Ends [2, 3] and radius of the capsule around a contact shape; None for a shape without contact."""
    row, where = mjcf.attributes(element, childclass, "geom"), f"{mjcf.path}: {label(element)}"
    if row.get("contype", "1") == "0" and row.get("conaffinity", "1") == "0":
        return None
    kind = row.get("type", "sphere")
    sizes = {"sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3}
    if kind not in sizes:
        raise RobotFileError(f"{where}: shape {kind!r} is not read here; legal: {', '.join(sizes)}")
    if "fromto" in row:
        points = np.array(numbers(where, row["fromto"], 6)).reshape(2, 3)
        if kind not in ("capsule", "cylinder"):
            raise RobotFileError(f"{where}: fromto of a {kind} is not read here")
        return points, float(row["size"].split()[0])
    size = numbers(where, row["size"], sizes[kind])
    along, radius = np.zeros(3), size[0]
    if kind in ("capsule", "cylinder"):
        along[2] = size[1]
    elif kind in ("box", "ellipsoid"):
        longest = int(np.argmax(size))
        along[longest], sides = size[longest], [s for i, s in enumerate(size) if i != longest]
        # a box reaches its edges at its ends; an ellipsoid is inside the cylinder around its two shorter axes
        radius = hypot(*sides) if kind == "box" else max(sides)
    position, rotation = placed(mjcf, element, row)
    return np.stack([position - rotation @ along, position + rotation @ along]), radius
