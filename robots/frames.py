"""Quaternions and frames: the one place that converts xyzw <-> wxyz, ENU <-> NED and FLU <-> FRD. numpy only.

Inside this project: ``quat_wxyz`` (scalar first), rotating body coordinates into world coordinates; world ENU with z
up; body FLU (x forward, y left, z up). ROS messages store xyzw in the same frames (REP 103); PX4 uses NED and FRD.

Every function takes arrays with any leading dimensions and works on the last axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])

HALF = np.sqrt(0.5)
NED_FROM_ENU = np.array([0.0, HALF, HALF, 0.0])  # rotation by pi about (1, 1, 0): x and y change places, z turns over
FRD_FROM_FLU = np.array([0.0, 1.0, 0.0, 0.0])  # rotation by pi about x: forward stays, y and z turn over


def wxyz_from_xyzw(quat: Array) -> Array:
    """[..., 4] x, y, z, w (ROS messages) -> w, x, y, z."""
    return np.asarray(quat)[..., [3, 0, 1, 2]]


def xyzw_from_wxyz(quat: Array) -> Array:
    """[..., 4] w, x, y, z -> x, y, z, w (ROS messages)."""
    return np.asarray(quat)[..., [1, 2, 3, 0]]


def normalized(quat: Array) -> Array:
    """``quat`` [..., 4] scaled to length 1; a length below 1e-6 has no direction and is an error."""
    quat = np.asarray(quat)
    length = np.linalg.norm(quat, axis=-1, keepdims=True)
    if not (length > 1e-6).all():
        raise ValueError(f"a quaternion needs a length above 1e-6, got {quat}")
    return np.asarray(quat / length)


def conjugate(quat: Array) -> Array:
    """The inverse rotation of a unit quaternion [..., 4]."""
    return np.asarray(np.asarray(quat) * np.array([1.0, -1.0, -1.0, -1.0], dtype=np.asarray(quat).dtype))


def multiply(a: Array, b: Array) -> Array:
    """The rotation ``b`` followed by ``a``: Hamilton product [..., 4]."""
    aw, ax, ay, az = np.moveaxis(np.asarray(a), -1, 0)
    bw, bx, by, bz = np.moveaxis(np.asarray(b), -1, 0)
    return np.stack([
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ], -1)


def rotate(quat: Array, vector: Array) -> Array:
    """``vector`` [..., 3] in body coordinates -> world coordinates, with ``quat`` [..., 4] body to world."""
    quat, vector = np.asarray(quat), np.asarray(vector)
    w, axis = quat[..., :1], quat[..., 1:]
    twice = 2.0 * _cross(axis, vector)
    return np.asarray(vector + w * twice + _cross(axis, twice))


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def _cross(a: Array, b: Array) -> Array:
    """The cross product of [..., 3], equal to ``np.cross`` bit by bit at a tenth of its time: it runs for every state
    and command of a robot."""
    return np.asarray(a.take(_NEXT, -1) * b.take(_LAST, -1) - a.take(_LAST, -1) * b.take(_NEXT, -1))


def rotate_inverse(quat: Array, vector: Array) -> Array:
    """``vector`` [..., 3] in world coordinates -> body coordinates, with ``quat`` [..., 4] body to world."""
    return rotate(conjugate(quat), vector)


def matrix(quat: Array) -> Array:
    """Rotation matrix [..., 3, 3] of a unit quaternion [..., 4]: columns are the body axes in the world."""
    return np.stack([rotate(quat, np.broadcast_to(e, (*np.asarray(quat).shape[:-1], 3))) for e in np.eye(3)], -1)


def from_matrix(matrix: Array) -> Array:
    """Unit quaternion [4], scalar part not negative, of a rotation matrix [3, 3].

    Of four formulas, uses the one that divides by the largest number: J. Stuelpnagel, SIAM Review 6(4), 1964.
    """
    m = np.asarray(matrix, dtype=float)
    four = np.array([
        [1 + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
        [m[2, 1] - m[1, 2], 1 + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]],
        [m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], 1 - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]],
        [m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], 1 - m[0, 0] - m[1, 1] + m[2, 2]]])
    best = four[int(np.argmax(four.diagonal()))]
    return normalized(-best if best[0] < 0 else best)


def from_rotation_vector(vector: Array) -> Array:
    """Unit quaternion [..., 4] of a rotation by |vector| rad about ``vector`` [..., 3]."""
    vector = np.asarray(vector)
    angle = np.linalg.norm(vector, axis=-1, keepdims=True)
    return np.concatenate([np.cos(0.5 * angle), 0.5 * np.sinc(0.5 * angle / np.pi) * vector], -1)


def tilt(quat: Array) -> Array:
    """Angle [...] between the body's z axis and the world's, rad, 0 to pi."""
    up = rotate(quat, np.broadcast_to(np.array([0.0, 0.0, 1.0]), (*np.asarray(quat).shape[:-1], 3)))
    return np.asarray(np.arccos(np.clip(up[..., 2], -1.0, 1.0)))


def ned_from_enu(vector: Array) -> Array:
    """World vector [..., 3] east, north, up -> north, east, down. Its own inverse."""
    return np.asarray(np.asarray(vector)[..., [1, 0, 2]] * np.array([1.0, 1.0, -1.0]))


enu_from_ned = ned_from_enu


def frd_from_flu(vector: Array) -> Array:
    """Body vector [..., 3] forward, left, up -> forward, right, down. Its own inverse."""
    return np.asarray(np.asarray(vector) * np.array([1.0, -1.0, -1.0]))


flu_from_frd = frd_from_flu


def ned_frd_from_enu_flu(quat: Array) -> Array:
    """Attitude [..., 4] wxyz FLU to ENU -> FRD to NED (PX4's). The sign makes applying it twice the identity."""
    return -multiply(NED_FROM_ENU, multiply(np.asarray(quat), FRD_FROM_FLU))


enu_flu_from_ned_frd = ned_frd_from_enu_flu
