"""Where an arm's tool is, from its joints: forward kinematics in numpy, for the robot side.

The base frame is the world's: what this gives is in the world if the arm stands at its origin, as in the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import cos, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robots.frames import from_matrix
from robots.registry import resolve

Array = NDArray[np.float64]


class KinematicsError(ValueError):
    """No kinematics are known for a robot, or joints do not fit them."""


class Chain:
    """A serial arm by modified (Craig) Denavit-Hartenberg parameters.

    Args:
        rows: (a m, d m, alpha rad) of each joint, and of the flange, which does not turn.
        tool: (x, y, z, turn about z rad) of the tool centre point in the flange's frame.
    """

    def __init__(self, rows: Sequence[Sequence[float]], tool: Sequence[float]) -> None:
        self.turns, self.shifts = [], []  # frame i - 1 to frame i at joint angle 0
        for a, d, alpha in rows:
            c, s = cos(alpha), sin(alpha)
            self.turns.append(np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]]))
            self.shifts.append(np.array([a, -s * d, c * d]))
        x, y, z, turn = tool
        self.end = np.array([[cos(turn), -sin(turn), 0.0], [sin(turn), cos(turn), 0.0], [0.0, 0.0, 1.0]])
        self.reach = np.array([x, y, z])
        self.joints = len(rows) - 1

    def __call__(self, angles: Any, speeds: Any = None) -> tuple[Array, Array, Array]:
        """Position [3] m, attitude [4] wxyz and velocity [3] m/s of the tool at joint ``angles`` [J] rad and their
        ``speeds`` [J] rad/s (None: at rest), in the base frame."""
        q = np.asarray(angles, dtype=np.float64)
        v = np.zeros(self.joints) if speeds is None else np.asarray(speeds, dtype=np.float64)
        if q.shape != (self.joints,) or v.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape} and speeds {v.shape}")
        rotation, place = np.eye(3), np.zeros(3)
        axes, places = np.empty((self.joints, 3)), np.empty((self.joints, 3))
        for i in range(self.joints):
            place = place + rotation @ self.shifts[i]
            rotation = rotation @ self.turns[i]
            c, s = cos(q[i]), sin(q[i])
            x, y = rotation[:, 0].copy(), rotation[:, 1].copy()
            rotation[:, 0], rotation[:, 1] = c * x + s * y, c * y - s * x
            axes[i], places[i] = rotation[:, 2], place
        flange = rotation @ self.turns[-1]
        tool = place + rotation @ self.shifts[-1] + flange @ self.reach
        return tool, from_matrix(flange @ self.end), v @ np.cross(axes, tool - places)


@cache
def chain(robot: str) -> Chain:
    """The kinematics of robot ``robot``: ``DENAVIT_HARTENBERG`` and ``TOOL`` of its ``spec.py``."""
    spec = resolve(f"robots.{robot}", "spec")
    if not hasattr(spec, "DENAVIT_HARTENBERG") or not hasattr(spec, "TOOL"):
        raise KinematicsError(f"robots/{robot}/spec.py has no DENAVIT_HARTENBERG and TOOL")
    return Chain(spec.DENAVIT_HARTENBERG, spec.TOOL)
