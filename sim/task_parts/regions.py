"""The regions of a formula as spheres, cylinders and boxes to draw, from its predicates, which are read as planners do.

    norm(base_pos_w - a) < r                               a sphere (a disk in the plane); dist(base_pos_w, a) too
    hypot(base_pos_w.x - p.x, base_pos_w.y - p.y) > r      a pillar
    max(abs(base_pos_w.x - w.0) - w.2, abs(base_pos_w.y - w.1) - w.3) < 0     a box, with as many axes as it names
    max(abs(base_pos_w.x), abs(base_pos_w.y)) < fence      the arena

A region is a goal if the formula somewhere asks to be inside, and to be avoided if it only ever asks to be outside.
What are no regions (:func:`temporeal.sim.stl.itineraries.regions.compared`), half-spaces and places that move are not
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from temporeal.sim.stl.itineraries.regions import FAR, Region, compared, number
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
        region = compared(predicate)
        shape = None if region is None else _shape(region, predicate, room, planar=len(system.fence["low"]) == 2)
        if region is None or shape is None:
            continue
        name, role = shape["name"], shape.get("role")
        first = found.setdefault(name, {**shape, "role": role or "avoid"})
        if wanted == region.inside and role is None:
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


def _shape(region: Region, predicate: Predicate, room: list[tuple[float, float]], *, planar: bool) -> Shape | None:
    """What to draw of the ``region`` that ``predicate`` compares with; None where that is no ball, pillar or box around
    a place that is known."""
    if region.bound or not region.position.endswith("_pos_w"):
        return None
    place = predicate.left if number(predicate.left) is None else predicate.right
    radius, center, half = region.radius, region.center, region.half
    if half == (0.0, 0.0, 0.0):
        disk: Shape = {"type": "cylinder", "height": FLAT} if planar else {"type": "sphere"}
        return {**disk, "name": _name(place), "center": list(center), "radius": radius}
    if half == (0.0, 0.0, FAR):
        return {"type": "cylinder", "name": _name(place, predicate), "center": [*center[:2], 0.0], "radius": radius,
                "height": FLAT if planar else room[2][1]}
    if radius or half.count(FAR) > 1:  # a pillar that lies, a half-space
        return None
    spans = [ends if h == FAR else (c - h, c + h) for ends, c, h in zip(room, center, half)]
    shape: Shape = {"type": "box", "low": [low for low, _ in spans], "high": [high for _, high in spans]}
    # max(abs(place.x), abs(place.y)) < fence
    arena = isinstance(place, Apply) and all(isinstance(part, Apply) and part.op == "abs" for part in place.args)
    return {**shape, "name": "fence", "role": "fence"} if arena else {**shape, "name": _name(place, predicate)}


def _name(part: Expr, predicate: Predicate | None = None) -> str:
    """The name of the first constant of ``part`` that has one; else the text of ``predicate``, or of that constant."""
    waiting, text = [part], None if predicate is None else str(predicate)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Constant):
            if node.name:
                return node.name
            text = text or str(node)
        inner = node.args if isinstance(node, Apply) else (node.of,) if isinstance(node, Component) else ()
        waiting = [*inner, *waiting]
    return text or str(part)
