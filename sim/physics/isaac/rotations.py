"""Rotations by MuJoCo's functions, quaternions wxyz; and URDF's angles."""

from __future__ import annotations

import mujoco
import numpy as np

from temporeal.sim.physics.mujoco.model import Array


def turn(quat: Array, vec: Array) -> Array:
    """``vec`` [3] turned by ``quat``."""
    out = np.empty(3)
    mujoco.mju_rotVecQuat(out, np.asarray(vec, float), np.asarray(quat, float))
    return out


def times(a: Array, b: Array) -> Array:
    """The product of two quaternions."""
    out = np.empty(4)
    mujoco.mju_mulQuat(out, np.asarray(a, float), np.asarray(b, float))
    return out


def matrix(quat: Array) -> Array:
    """The rotation matrix [3, 3] of ``quat``."""
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.asarray(quat, float))
    return out.reshape(3, 3)


def roll_pitch_yaw(quat: Array) -> tuple[float, float, float]:
    """URDF's angles [rad]: turns about the fixed x, y and z axes, in this order."""
    m = matrix(quat)
    across = np.hypot(m[0, 0], m[1, 0])
    if across < 1e-9:  # pitch is a right angle: roll and yaw turn about one axis
        return float(np.arctan2(-m[1, 2], m[1, 1])), float(np.arctan2(-m[2, 0], across)), 0.0
    return tuple(float(x) for x in (np.arctan2(m[2, 1], m[2, 2]), np.arctan2(-m[2, 0], across),
                                    np.arctan2(m[1, 0], m[0, 0])))  # type: ignore[return-value]
