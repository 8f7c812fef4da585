"""Mirror images of what a robot measures and is told: reflection in the plane y = 0 of the world and of its base.

Under a reflection a point (x, y, z) becomes (x, -y, z); so do velocities, accelerations and forces. What turns is a
pseudo-vector: (x, y, z) becomes (-x, y, -z). An attitude R becomes S R S with S = diag(1, -1, 1): the quaternion
(w, x, y, z) becomes (w, -x, y, -z). How joints and motors change is the robot's own: :class:`Symmetry`. numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class Mirror:
    """Component i of the mirror image is ``sign[i] * x[order[i]] + offset[i]``; ``()``: in order, and no offset."""

    sign: tuple[float, ...]
    order: tuple[int, ...] = ()
    offset: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if any(abs(sign) != 1 for sign in self.sign):
            raise ValueError(f"a mirror's signs are 1 and -1, got {self.sign}")
        if self.order and sorted(self.order) != list(range(len(self.sign))):
            raise ValueError(f"a mirror's order has each of 0 to {len(self.sign) - 1} once, got {self.order}")
        if self.offset and len(self.offset) != len(self.sign):
            raise ValueError(f"a mirror has {len(self.sign)} components, got offsets {self.offset}")

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The mirror image of ``values`` [..., C], of the same type."""
        taken = values[..., list(self.order)] if self.order else values
        return np.asarray(taken * np.array(self.sign) + np.array(self.offset or 0.0), dtype=values.dtype)


VECTOR, PSEUDO_VECTOR, QUATERNION = Mirror((1, -1, 1)), Mirror((-1, 1, -1)), Mirror((1, -1, 1, -1))
SAME = Mirror((1,))
TURNING = ("rad", "rad/s", "rad/s^2", "N m")
MOVING = ("m", "m/s", "m/s^2", "N", "N s", "kg m/s", "T")


@dataclass(frozen=True)
class Symmetry:
    """How a robot's mirror image moves: it is the robot itself, up to what its two sides differ in.

    Args:
        signals: of signals and commands by name, those whose unit and frame do not tell (:func:`by_kind`).
        note: what is not quite symmetric, for people to read.
    """

    signals: Mapping[str, Mirror] = field(default_factory=dict)
    note: str = ""


def by_kind(spec: SignalSpec) -> Mirror | None:
    """The mirror of a signal whose unit, frame and shape tell what it is; None: they do not.

    A vector in the world's or the body's frame (``w``, ``b``) is [3], of a unit of :data:`MOVING` or :data:`TURNING`.
    """
    if spec.unit == "wxyz" and spec.shape == (4,):
        return QUATERNION
    if spec.shape == (3,) and spec.frame in ("w", "b"):
        return VECTOR if spec.unit in MOVING else PSEUDO_VECTOR if spec.unit in TURNING else None
    return SAME if spec.shape == () and spec.unit == "s" else None


def mirror_of(spec: SignalSpec, symmetry: Symmetry) -> Mirror | None:
    """The mirror of a signal or command: the declared one, else by its kind; None: neither says."""
    return symmetry.signals.get(spec.name) or by_kind(spec)
