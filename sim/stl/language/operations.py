"""The operations of arithmetic over signals, and the shapes that they take and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from temporeal.sim.stl.language.errors import FormulaError

Shape = tuple[int, ...]
# function or operator -> number of arguments, (least, most)
OPERATIONS: Mapping[str, tuple[int, int]] = {
    "+": (2, 2), "-": (2, 2), "*": (2, 2), "/": (2, 2), "neg": (1, 1),
    "abs": (1, 1), "sqrt": (1, 1), "exp": (1, 1), "sin": (1, 1), "cos": (1, 1), "norm": (1, 1),
    "wrap": (1, 1),
    "pow": (2, 2), "dist": (2, 2), "angle": (2, 2), "rotation_angle": (2, 2),
    "hypot": (2, 2), "atan2": (2, 2), "min": (2, 16), "max": (2, 16),
}
FUNCTIONS = tuple(name for name in OPERATIONS if name.isidentifier() and name != "neg")
OF_VECTORS = ("norm", "dist", "angle", "rotation_angle")
"""Functions that make a scalar of one or two vectors; ``rotation_angle`` is that of two quaternions of length 4."""


def operation_shape(op: str, shapes: Sequence[Shape]) -> Shape:
    """Shape of ``op`` over arguments of ``shapes``; a :class:`FormulaError` where they do not fit."""
    if op in OF_VECTORS:
        if any(len(s) != 1 for s in shapes) or len(set(shapes)) != 1 or (op == "rotation_angle" and shapes[0] != (4,)):
            wanted = {"norm": "a vector", "rotation_angle": "two quaternions"}.get(op, "two vectors of one length")
            raise FormulaError(f"{op} takes {wanted}, got {' and '.join(map(shape_text, shapes))}")
        return ()
    distinct = set(shapes)
    if len(distinct) == 1:
        return shapes[0]
    if op == "*" and () in distinct:
        return max(shapes, key=len)
    if op == "/" and shapes[1] == ():
        return shapes[0]
    raise FormulaError(f"{op} of {' and '.join(map(shape_text, shapes))}: the shapes must be equal")


def shape_text(shape: Shape) -> str:
    """A shape in words."""
    return "a scalar" if not shape else f"a vector [{shape[0]}]" if len(shape) == 1 else f"an array {list(shape)}"
