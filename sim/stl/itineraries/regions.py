"""Predicates as regions: where they hold is inside or outside of a ball, a pillar or a box.

    norm(base_pos_w - a) < r                                                  inside a ball; dist(base_pos_w, a) too
    hypot(base_pos_w.x - p.x, base_pos_w.y - p.y) > r                         outside of a pillar
    max(abs(base_pos_w.x - w.0) - w.2, abs(base_pos_w.y - w.1) - w.3) < 0     inside a box, of the axes it names
    base_pos_w.z > floor                                                      a half-space: inside a box without ends

All are *rounded boxes*: points nearer than ``radius`` to a box of ``half`` sides around ``center``. The signed distance

    norm(max(|p - center| - half, 0)) + min(max(|p - center| - half), 0) - radius

is negative inside, and has the sign of the predicate's margin everywhere. A centre may be a signal of three numbers, a
goal that moves or an obstacle that is seen. numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Apply, Component, Constant, Expr, Formula, Predicate, Signal

FAR = 1000.0
"""m: half sides of what has no end along an axis."""
FARTHEST = 1e4
"""m: of a middle, a half side and a radius."""
FORMS = """\
Places are norm(P - a) < r, hypot(P.x - a.x, P.y - a.y) < r, max(abs(P.x - a.x) - w, abs(P.y - a.y) - h) < 0, with > to
keep out of them, and P.z > c: P is the robot's position, a a constant or a signal of three numbers."""
Numbers = tuple[float, float, float]


class NotARegion(FormulaError):
    """A predicate that is no region of the robot's position; the message names it and the legal forms."""


@dataclass(frozen=True)
class Region:
    """A rounded box, m.

    Args:
        position: the signal that is inside or outside of it. ``inside``: which of both is asked for.
        bound: the signal that its centre follows, ``center`` being where that is 0; "": none.
    """

    position: str
    center: Numbers
    half: Numbers
    radius: float
    inside: bool
    bound: str = ""

    def place(self) -> Region:
        """The same region, asked to be inside: equal for one that is to be reached and one that is to be avoided."""
        return replace(self, inside=True)


def regions(state: Formula) -> Iterator[Region]:
    """The regions of a conjunction of predicates; a :class:`NotARegion` for anything else."""
    if isinstance(state, And):
        for arg in state.args:
            yield from regions(arg)
    elif isinstance(state, Predicate):
        yield region(state)
    else:
        raise NotARegion(f"{state} is no place and no conjunction of places. {FORMS}")


def region(predicate: Predicate) -> Region:
    """The region of one predicate; a :class:`NotARegion` where it is none that can be gone to or kept out of."""
    found = compared(predicate)
    if found is None:
        raise NotARegion(f"{predicate} is no place. {FORMS}")
    if max(map(abs, (*found.center, *found.half, found.radius))) > FARTHEST:
        raise NotARegion(f"{predicate} is farther than {FARTHEST:g} m from the origin, or larger. {FORMS}")
    return found


def compared(predicate: Predicate) -> Region | None:
    """The region that one predicate compares with, however far or large; None where it has another form."""
    op, left, right = predicate.op, predicate.left, predicate.right
    if number(right) is None:  # r > norm(P - a)
        op, left, right = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op), right, left
    size = number(right)
    if op not in ("<", "<=", ">", ">=") or size is None:
        return None
    inside = op in ("<", "<=")
    return _round(left, size, inside) or _box(left, size, inside) or _half_space(left, size, inside)


def _round(left: Expr, radius: float, inside: bool) -> Region | None:
    """A ball or a pillar."""
    if not isinstance(left, Apply):
        return None
    if left.op == "hypot":
        found = [_axis(arg) for arg in left.args]
        return _from_axes([axis for axis in found if axis], len(found), [0.0] * len(found), radius, inside)
    if left.op == "dist":
        pair = left.args
    elif left.op == "norm" and isinstance(left.args[0], Apply) and left.args[0].op == "-":
        pair = left.args[0].args
    else:
        return None
    one, other = pair
    if isinstance(one, Constant) or (isinstance(other, Signal) and not isinstance(one, Signal)):
        one, other = other, one
    if not (isinstance(one, Signal) and one.dims == (3,)):
        return None
    if isinstance(other, Constant) and isinstance(other.value, tuple) and len(other.value) == 3:
        x, y, z = other.value
        return Region(one.name, (x, y, z), (0.0, 0.0, 0.0), radius, inside)
    if isinstance(other, Signal) and other.dims == (3,):
        return Region(one.name, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), radius, inside, other.name)
    return None


def _box(left: Expr, size: float, inside: bool) -> Region | None:
    """``max(abs(P.x - c) - half, ...) < size``, or one ``abs`` alone."""
    parts = left.args if isinstance(left, Apply) and left.op == "max" else (left,)
    axes, halves = [], []
    for part in parts:
        half = 0.0
        if isinstance(part, Apply) and part.op == "-":
            given = number(part.args[1])
            if given is None:
                return None
            part, half = part.args[0], given
        axis = _axis(part.args[0]) if isinstance(part, Apply) and part.op == "abs" else None
        if axis is None:
            return None
        axes.append(axis)
        halves.append(half + size)
    return _from_axes(axes, len(parts), halves, 0.0, inside)


def _half_space(left: Expr, size: float, inside: bool) -> Region | None:
    """``P.z > c`` and ``P.z < c``: inside a box that ends at c."""
    axis = _axis(left)
    if axis is None or axis[3]:
        return None
    name, index, offset, _ = axis
    end = size + offset
    center = end + (-FAR if inside else FAR)
    return _from_axes([(name, index, center, "")], 1, [FAR], 0.0, True)


Axis = tuple[str, int, float, str]  # of which signal, which axis, from where, and which signal that is


def _from_axes(axes: list[Axis], count: int, halves: list[float], radius: float, inside: bool) -> Region | None:
    names, bounds = {axis[0] for axis in axes}, {axis[3] for axis in axes}
    if len(axes) != count or len(names) != 1 or len(bounds) != 1 or len({axis[1] for axis in axes}) != count:
        return None
    center, half = [0.0] * 3, [FAR] * 3
    for (_, index, at, _), side in zip(axes, halves):
        center[index], half[index] = at, side
    return Region(names.pop(), (center[0], center[1], center[2]), (half[0], half[1], half[2]), radius, inside,
                  bounds.pop())


def _axis(part: Expr) -> Axis | None:
    """``P.x``, ``P.x - c`` and ``P.x - S.x`` of signals P and S of three numbers."""
    if isinstance(part, Apply) and part.op == "-":
        first, second = part.args
        axis, at = _axis(first), number(second)
        if axis is None or axis[2] or axis[3]:
            return None
        if at is not None:
            return axis[0], axis[1], at, ""
        other = _axis(second)
        return (axis[0], axis[1], 0.0, other[0]) if other and not other[2] and other[1] == axis[1] else None
    if isinstance(part, Component) and isinstance(part.of, Signal) and part.of.dims == (3,):
        return part.of.name, part.index, 0.0, ""
    return None


def number(part: Expr) -> float | None:
    """The value of ``part``; None where it is no number."""
    if isinstance(part, Constant) and isinstance(part.value, float):
        return part.value
    if isinstance(part, Component) and isinstance(part.of, Constant) and isinstance(part.of.value, tuple):
        return part.of.value[part.index]
    if isinstance(part, Apply) and part.op == "neg":
        inner = number(part.args[0])
        return None if inner is None else -inner
    return None


def distance(point: Numbers, region: Region) -> float:
    """The signed distance, m: negative inside, whatever is asked for."""
    q = [abs(p - c) - h for p, c, h in zip(point, region.center, region.half)]
    return float(sum(max(x, 0.0) ** 2 for x in q) ** 0.5 + min(max(q), 0.0) - region.radius)
