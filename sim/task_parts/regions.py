"""The regions of a formula as spheres, cylinders and boxes to draw, from its predicates.

    norm(base_pos_w - a) < r                               a sphere (a disk in the plane); dist(base_pos_w, a) too
    hypot(base_pos_w.x - p.x, base_pos_w.y - p.y) > r      a pillar
    max(abs(base_pos_w.x - w.0) - w.2, abs(base_pos_w.y - w.1) - w.3) < 0     a box, with as many axes as it names
    max(abs(base_pos_w.x), abs(base_pos_w.y)) < fence      the arena

A region is a goal if the formula somewhere asks to be inside, and to be avoided if it only ever asks to be outside.
Predicates of other forms are not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from temporeal.sim.stl.language.propositional import (
    Apply,
    Component,
    Constant,
    Expr,
    Formula,
    Iff,
    Implies,
    Not,
    Predicate,
    Signal,
)
from temporeal.sim.stl.language.queries import children
from temporeal.sim.system import System

FLAT, WALL = 0.02, 0.3  # m: how tall disks and walls of robots in the plane are drawn
Shape = dict[str, Any]


def shapes_of(formula: Formula, system: System) -> tuple[Shape, ...]:
    """The regions of ``formula`` [m, world frame], each once, as :class:`temporeal.sim.task.Task` has them; then the
    arena."""
    room = [*zip(system.fence["low"], system.fence["high"])]
    room = room if len(room) == 3 else [*room, (0.0, WALL)]
    found: dict[str, Shape] = {}
    for predicate, wanted in polarities(formula, True):
        region = _region(predicate, room, planar=len(system.fence["low"]) == 2)
        if region is None:
            continue
        inside = wanted == (predicate.op in ("<", "<="))
        name, role = region["name"], region.get("role")
        first = found.setdefault(name, {**region, "role": role or "avoid"})
        if inside and role is None:
            first["role"] = "goal"
    low, high = ([ends[side] for ends in room] for side in (0, 1))
    arena = {"type": "box", "name": "fence", "role": "fence", "low": low, "high": high}
    return (*(shape for name, shape in found.items() if name != "fence"), found.get("fence", arena))


def polarities(formula: Formula, wanted: bool) -> Iterator[tuple[Predicate, bool]]:
    """The predicates of ``formula``, each with its polarity: whether its truth helps to satisfy the formula."""
    if isinstance(formula, Predicate):
        yield formula, wanted
    for i, child in enumerate(children(formula)):
        flips = isinstance(formula, Not) or (isinstance(formula, Implies) and i == 0)
        yield from polarities(child, wanted != flips)
        if isinstance(formula, Iff):
            yield from polarities(child, not wanted)


def _region(predicate: Predicate, room: list[tuple[float, float]], *, planar: bool) -> Shape | None:
    """The region that ``predicate`` compares with; None where it has no form that can be drawn."""
    size = _number(predicate.right)
    if predicate.op not in ("<", "<=", ">", ">=") or size is None or not isinstance(predicate.left, Apply):
        return None
    left = predicate.left
    if left.op in ("norm", "dist"):
        return _sphere(left, size, planar)
    if left.op == "hypot":
        axes = [_axis(arg) for arg in left.args]
        if any(axis is None for axis in axes) or [axis[0] for axis in axes if axis] != [0, 1]:
            return None
        center = [axis[1] for axis in axes if axis]
        return {"type": "cylinder", "name": _name(left, predicate), "center": [*center, 0.0], "radius": size,
                "height": FLAT if planar else room[2][1]}
    return _box(left, size, room, predicate) if left.op == "max" else None


def _sphere(left: Apply, radius: float, planar: bool) -> Shape | None:
    pair = left.args if left.op == "dist" else getattr(left.args[0], "args", ())
    difference = left.op == "dist" or getattr(left.args[0], "op", "") == "-"
    if not difference or len(pair) != 2 or not _is_place(pair[0]) or not isinstance(pair[1], Constant):
        return None
    center = list(pair[1].value) if isinstance(pair[1].value, tuple) else []
    if len(center) != 3:
        return None
    disk = {"type": "cylinder", "height": FLAT} if planar else {"type": "sphere"}
    return {**disk, "name": pair[1].name or str(pair[1]), "center": center, "radius": radius}


def _box(left: Apply, size: float, room: list[tuple[float, float]], predicate: Predicate) -> Shape | None:
    """The box of sides |x - center| - half < size, or |x| < size: then it is the arena."""
    spans, arena = list(room), True
    for arg in left.args:
        half = 0.0
        if isinstance(arg, Apply) and arg.op == "-":
            arg, given = arg.args[0], _number(arg.args[1])
            if given is None:
                return None
            half, arena = given, False
        axis = _axis(arg.args[0]) if isinstance(arg, Apply) and arg.op == "abs" else None
        if axis is None:
            return None
        spans[axis[0]] = (axis[1] - half - size, axis[1] + half + size)
    low, high = [a for a, _ in spans], [b for _, b in spans]
    shape: Shape = {"type": "box", "name": "fence" if arena else _name(left, predicate), "low": low, "high": high}
    return {**shape, "role": "fence"} if arena else shape


def _axis(part: Expr) -> tuple[int, float] | None:
    """Which coordinate ``part`` is the distance along, and from where: of ``place.x`` and of ``place.x - c``."""
    center: float | None = 0.0
    if isinstance(part, Apply) and part.op == "-":
        part, center = part.args[0], _number(part.args[1])
    if isinstance(part, Component) and _is_place(part.of) and center is not None:
        return part.index, center
    return None


def _is_place(part: Expr) -> bool:
    return isinstance(part, Signal) and part.name.endswith("_pos_w") and part.dims == (3,)


def _number(part: Expr) -> float | None:
    """The value of ``part``; None where it is no number."""
    if isinstance(part, Constant) and isinstance(part.value, float):
        return part.value
    if isinstance(part, Component) and isinstance(part.of, Constant) and isinstance(part.of.value, tuple):
        return part.of.value[part.index]
    return None


def _name(part: Expr, predicate: Predicate) -> str:
    """The name of the first constant of ``part`` that has one."""
    waiting: list[Expr] = [part]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Constant) and node.name:
            return node.name
        inner = node.args if isinstance(node, Apply) else (node.of,) if isinstance(node, Component) else ()
        waiting = [*inner, *waiting]
    return str(predicate)
