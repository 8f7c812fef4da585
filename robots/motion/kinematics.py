"""Forward kinematics of an arm's tool in numpy, for the robot side.

Poses are in the base frame. That is the world frame if the arm stands at its origin, as in the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import cos, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.frames import from_matrix
from temporeal.robots.registry import resolve
from temporeal.robots.spec import robot_names

Array = NDArray[np.float64]


class KinematicsError(ValueError):
    """The robot has no known kinematics, or the joints do not fit them."""


class Chain:
    """A serial arm by modified (Craig) Denavit-Hartenberg parameters.

    Args:
        rows: (a m, d m, alpha rad) of each joint, and of the flange, which does not turn.
        tool: (x, y, z, turn about z rad) of the tool centre point in the flange's frame.
    """

    def __init__(self, rows: Sequence[Sequence[float]], tool: Sequence[float]) -> None:
        # frame i - 1 to frame i at joint angle 0: a shift [3] m, and cosine and sine of a turn about x
        self.links = [(a, -sin(alpha) * d, cos(alpha) * d, cos(alpha), sin(alpha)) for a, d, alpha in rows]
        x, y, z, turn = tool
        self.end = np.array([[cos(turn), -sin(turn), 0.0], [sin(turn), cos(turn), 0.0], [0.0, 0.0, 1.0]])
        self.reach = np.array([x, y, z])
        self.joints = len(rows) - 1

    def __call__(self, angles: Any, speeds: Any = None) -> tuple[Array, Array, Array]:
        """Position [3] m, attitude [4] wxyz and velocity [3] m/s of the tool in the base frame, for joint ``angles``
        [J] rad and ``speeds`` [J] rad/s (None: at rest)."""
        v = np.zeros(self.joints) if speeds is None else np.asarray(speeds, dtype=np.float64)
        if v.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got speeds {v.shape}")
        tool, flange, axes, places = self._follow(angles)
        return tool, from_matrix(flange @ self.end), v @ np.cross(axes, tool - places)

    def position(self, angles: Any) -> Array:
        """The position [3] m alone, at half the cost."""
        return self._follow(angles)[0]

    def jacobians(self, angles: Any) -> Array:
        """Jacobians [N, 6, J] of the tool's velocity (m/s) and angular velocity (rad/s) in the base frame, at joint
        ``angles`` [N, J] rad."""
        q = np.asarray(angles, dtype=np.float64)
        if q.ndim != 2 or q.shape[1] != self.joints:
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape}")
        turn, place = np.broadcast_to(np.eye(3), (len(q), 3, 3)), np.zeros((len(q), 3))
        axes, places = [], []
        for i, (a, b, e, c, s) in enumerate(self.links):
            place = place + turn @ np.array([a, b, e])
            turn = turn @ np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
            if i < self.joints:
                u, v, zero, one = np.cos(q[:, i]), np.sin(q[:, i]), np.zeros(len(q)), np.ones(len(q))
                turn = turn @ np.stack([u, -v, zero, v, u, zero, zero, zero, one], axis=-1).reshape(-1, 3, 3)
                axes.append(turn[:, :, 2])
                places.append(place)
        tool = place + turn @ self.reach
        z, p = np.stack(axes, axis=1), np.stack(places, axis=1)
        return np.concatenate([np.cross(z, tool[:, None] - p), z], axis=-1).transpose(0, 2, 1)

    def _follow(self, angles: Any) -> tuple[Array, Array, Array, Array]:
        """The tool's position [3], the flange's rotation [3, 3], and the joints' axes and positions [J, 3]."""
        q = np.asarray(angles, dtype=np.float64)
        if q.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape}")
        # plain numbers: seven joints of them take a fifth of the time that arrays of three need
        x, y, z, place = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0)  # axes: columns
        axes, places = [], []
        for (a, b, e, c, s), angle in zip(self.links, (*q.tolist(), 0.0)):  # the flange does not turn
            place = (place[0] + a * x[0] + b * y[0] + e * z[0], place[1] + a * x[1] + b * y[1] + e * z[1],
                     place[2] + a * x[2] + b * y[2] + e * z[2])
            y, z = ((c * y[0] + s * z[0], c * y[1] + s * z[1], c * y[2] + s * z[2]),
                    (c * z[0] - s * y[0], c * z[1] - s * y[1], c * z[2] - s * y[2]))
            u, v = cos(angle), sin(angle)
            x, y = ((u * x[0] + v * y[0], u * x[1] + v * y[1], u * x[2] + v * y[2]),
                    (u * y[0] - v * x[0], u * y[1] - v * x[1], u * y[2] - v * x[2]))
            axes.append(z)
            places.append(place)
        flange = np.array((x, y, z)).T
        return np.array(place) + flange @ self.reach, flange, np.array(axes[:-1]), np.array(places[:-1])


@cache
def chain(robot: str) -> Chain:
    """The kinematics of ``robot``: ``DENAVIT_HARTENBERG`` and ``TOOL`` of its ``spec.py``."""
    if robot not in robot_names():
        raise KinematicsError(f"no robot {robot!r} to take the kinematics of; known: {', '.join(robot_names())}")
    spec = resolve(f"temporeal.robots.{robot}", "spec")
    if not hasattr(spec, "DENAVIT_HARTENBERG") or not hasattr(spec, "TOOL"):
        raise KinematicsError(f"robots/{robot}/spec.py has no DENAVIT_HARTENBERG and TOOL")
    return Chain(spec.DENAVIT_HARTENBERG, spec.TOOL)
