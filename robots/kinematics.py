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
        # frame i - 1 to frame i at joint angle 0: its place in frame i - 1, and cos, sin of its tilt about x
        self.steps = [(a, -sin(alpha) * d, cos(alpha) * d, cos(alpha), sin(alpha)) for a, d, alpha in rows]
        x, y, z, turn = tool
        self.end, self.reach = (cos(turn), sin(turn)), (x, y, z)
        self.joints = len(rows) - 1

    def __call__(self, angles: Any, speeds: Any = None) -> tuple[Array, Array, Array]:
        """Position [3] m, attitude [4] wxyz and velocity [3] m/s of the tool at joint ``angles`` [J] rad and their
        ``speeds`` [J] rad/s (None: at rest), in the base frame.

        Written in plain numbers: arrays of three would take ten times as long, and this is done for every state.
        """
        q = np.asarray(angles, dtype=np.float64)
        v = np.zeros(self.joints) if speeds is None else np.asarray(speeds, dtype=np.float64)
        if q.shape != (self.joints,) or v.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape} and speeds {v.shape}")
        px = py = pz = 0.0
        xx, xy, xz, yx, yy, yz, zx, zy, zz = 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0  # axes x, y, z of the frame
        axes = []
        for (a, b, h, c, s), angle in zip(self.steps, (*q.tolist(), 0.0)):
            px, py, pz = px + a * xx + b * yx + h * zx, py + a * xy + b * yy + h * zy, pz + a * xz + b * yz + h * zz
            yx, yy, yz, zx, zy, zz = (
                c * yx + s * zx, c * yy + s * zy, c * yz + s * zz, c * zx - s * yx, c * zy - s * yy, c * zz - s * yz)
            c, s = cos(angle), sin(angle)
            xx, xy, xz, yx, yy, yz = (
                c * xx + s * yx, c * xy + s * yy, c * xz + s * yz, c * yx - s * xx, c * yy - s * xy, c * yz - s * xz)
            axes.append((zx, zy, zz, px, py, pz))
        (x, y, z), (c, s) = self.reach, self.end
        tx, ty, tz = px + x * xx + y * yx + z * zx, py + x * xy + y * yy + z * zy, pz + x * xz + y * yz + z * zz
        vx = vy = vz = 0.0
        for (ax, ay, az, px, py, pz), w in zip(axes, v.tolist()):  # w times axis x lever; the flange does not turn
            rx, ry, rz = tx - px, ty - py, tz - pz
            vx, vy, vz = vx + w * (ay * rz - az * ry), vy + w * (az * rx - ax * rz), vz + w * (ax * ry - ay * rx)
        attitude = from_matrix(np.array([
            [c * xx + s * yx, c * yx - s * xx, zx], [c * xy + s * yy, c * yy - s * xy, zy],
            [c * xz + s * yz, c * yz - s * xz, zz]]))
        return np.array([tx, ty, tz]), attitude, np.array([vx, vy, vz])


@cache
def chain(robot: str) -> Chain:
    """The kinematics of robot ``robot``: ``DENAVIT_HARTENBERG`` and ``TOOL`` of its ``spec.py``."""
    spec = resolve(f"robots.{robot}", "spec")
    if not hasattr(spec, "DENAVIT_HARTENBERG") or not hasattr(spec, "TOOL"):
        raise KinematicsError(f"robots/{robot}/spec.py has no DENAVIT_HARTENBERG and TOOL")
    return Chain(spec.DENAVIT_HARTENBERG, spec.TOOL)
