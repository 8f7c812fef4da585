"""Frames: axioms of rotations, hand-computed cases, and conversions that are their own inverse."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from temporeal.robots import frames

numbers = st.floats(-1, 1, allow_nan=False)
quats = st.tuples(numbers, numbers, numbers, numbers).filter(lambda q: np.linalg.norm(q) > 0.1).map(
    lambda q: np.array(q) / np.linalg.norm(q))
vectors = st.tuples(numbers, numbers, numbers).map(np.array)
QUARTER_Z = np.array([sqrt(0.5), 0, 0, sqrt(0.5)])  # 90 degrees about z


def same_rotation(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(abs(abs(float(a @ b)) - 1) < 1e-9)


def test_xyzw_and_wxyz_by_hand():
    assert frames.wxyz_from_xyzw(np.array([1, 2, 3, 4])).tolist() == [4, 1, 2, 3]
    assert frames.xyzw_from_wxyz(np.array([4, 1, 2, 3])).tolist() == [1, 2, 3, 4]


def test_rotation_by_hand():
    assert frames.rotate(QUARTER_Z, np.array([1.0, 0, 0])) == pytest.approx([0, 1, 0])
    assert frames.rotate_inverse(QUARTER_Z, np.array([1.0, 0, 0])) == pytest.approx([0, -1, 0])
    assert frames.matrix(QUARTER_Z) == pytest.approx(np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]), abs=1e-12)
    assert frames.from_rotation_vector(np.array([0, 0, pi / 2])) == pytest.approx(QUARTER_Z)
    assert frames.from_rotation_vector(np.zeros(3)) == pytest.approx(frames.IDENTITY)


@given(quats, quats, vectors)
def test_rotations_compose_and_keep_lengths(a, b, v):
    assert frames.rotate(frames.multiply(a, b), v) == pytest.approx(frames.rotate(a, frames.rotate(b, v)))
    assert np.linalg.norm(frames.rotate(a, v)) == pytest.approx(np.linalg.norm(v), abs=1e-12)
    assert frames.rotate_inverse(a, frames.rotate(a, v)) == pytest.approx(v, abs=1e-12)
    assert frames.matrix(a) @ v == pytest.approx(frames.rotate(a, v), abs=1e-12)


def test_leading_dimensions():
    q = np.stack([frames.IDENTITY, QUARTER_Z])
    v = np.array([[1.0, 0, 0], [1.0, 0, 0]])
    assert frames.rotate(q, v) == pytest.approx(np.array([[1, 0, 0], [0, 1, 0]]), abs=1e-12)
    assert frames.matrix(q).shape == (2, 3, 3)
    assert frames.tilt(q) == pytest.approx([0, 0])


def test_tilt_is_the_angle_from_upright():
    assert frames.tilt(frames.from_rotation_vector(np.array([0.3, 0.4, 0.0]))) == pytest.approx(0.5)


def test_world_and_body_axes_by_hand():
    east, north, up = np.eye(3)
    assert frames.ned_from_enu(east).tolist() == [0, 1, 0]
    assert frames.ned_from_enu(north).tolist() == [1, 0, 0]
    assert frames.ned_from_enu(up).tolist() == [0, 0, -1]
    assert frames.frd_from_flu(np.array([1, 2, 3])).tolist() == [1, -2, -3]


@given(quats, vectors)
def test_px4_attitude_rotates_the_same_vector(q, v):
    """What FLU-to-ENU does to a body vector, FRD-to-NED does to the same vector written in the other frames."""
    px4 = frames.ned_frd_from_enu_flu(q)
    expected = frames.ned_from_enu(frames.rotate(q, v))
    assert frames.rotate(px4, frames.frd_from_flu(v)) == pytest.approx(expected, abs=1e-9)
    assert frames.enu_flu_from_ned_frd(px4) == pytest.approx(q, abs=1e-9)


def test_px4_attitude_by_hand():
    """Facing north and level: yaw 90 degrees in ENU is yaw 0 in NED."""
    assert same_rotation(frames.ned_frd_from_enu_flu(QUARTER_Z), frames.IDENTITY)


def test_a_zero_quaternion_is_refused():
    with pytest.raises(ValueError, match="length above"):
        frames.normalized(np.zeros(4))
