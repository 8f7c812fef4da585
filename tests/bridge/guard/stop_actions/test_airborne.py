"""Whether a stop that levels may start motors: what the guard's own commands say of the ground."""

from __future__ import annotations

import pytest
from tests.bridge.guard.parts import PERIOD, config, monitor

from temporeal_bridge.guard.safety.fallback_actions import FLIES_S
from temporeal_bridge.guard.stop_actions.airborne import Airborne


@pytest.fixture
def quadrotor():
    of = config("crazyflie", "crazyswarm2")
    return Airborne(of, monitor(of))


def stood(quadrotor, height: float) -> None:
    """A mission begins at ``height`` [m]."""
    quadrotor.monitor.values["height"] = quadrotor.monitor.values["height"] * 0.0 + height
    quadrotor.begin(0.0)


def pushed(quadrotor, share: float, seconds: float) -> float:
    """It is sent this share of its nominal thrust; the time after it."""
    periods = round(seconds / PERIOD)
    for k in range(periods):
        quadrotor.push(share * quadrotor.nominal, k * PERIOD)
    return periods * PERIOD


def grounded(quadrotor, sent: bool = True, sees: bool = True) -> bool:
    return quadrotor.grounded(0.0, sent, lambda: sees)


def test_nothing_lifts_a_robot_that_was_sent_nothing(quadrotor):
    stood(quadrotor, 1.0)
    assert grounded(quadrotor, sent=False)


def test_a_robot_on_the_floor_with_too_little_thrust_stands(quadrotor):
    stood(quadrotor, 0.0)
    pushed(quadrotor, 0.5, 2.0)
    assert grounded(quadrotor)


def test_a_robot_that_may_be_in_the_air_does_not(quadrotor):
    """With the same thrust, high above the floor: it falls."""
    stood(quadrotor, 1.0)
    pushed(quadrotor, 0.5, 0.2)
    assert not grounded(quadrotor)


def test_enough_thrust_lifts_it_and_then_place_and_attitude_must_change(quadrotor):
    stood(quadrotor, 0.0)
    pushed(quadrotor, 1.2, 0.1)
    assert quadrotor.monitor.grounded  # not yet: motors are late
    pushed(quadrotor, 1.2, 2.0)
    assert not quadrotor.monitor.grounded and not grounded(quadrotor)


def test_a_robot_that_flew_a_moment_ago_begins_in_the_air(quadrotor):
    stood(quadrotor, 1.0)
    now = pushed(quadrotor, 1.0, 1.0)
    quadrotor.begin(now + 0.9 * FLIES_S)
    assert not quadrotor.monitor.grounded
    quadrotor.begin(now + 1.1 * FLIES_S)
    assert quadrotor.monitor.grounded


def test_a_thrust_that_barely_lifts_leaves_it_on_the_floor_where_nobody_sees_it(quadrotor):
    stood(quadrotor, 0.0)
    pushed(quadrotor, 0.75, 0.1)
    assert not grounded(quadrotor) and grounded(quadrotor, sees=False)
