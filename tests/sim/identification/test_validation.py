"""Flights along a record with residual dynamics and pushes; errors, intervals and baselines."""

from __future__ import annotations

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal.sim.identification import parameters, shooting
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.validation import flying

ROBOT = load_robot("crazyflie")
ASKED = parameters.quantities(ROBOT)


def record(count: int = 60, step: float = 0.01) -> FlightRecord:
    """A record with commands that change, from rest, and no gap."""
    rng = np.random.default_rng(0)
    command = np.repeat(rng.uniform(0.5, 0.8, (count // 4, 4)), 4, 0)
    still = np.zeros((count, 3))
    return FlightRecord("made", "", step, command, None, still, still, np.ones(count, bool),
                        np.tile([1.0, 0, 0, 0], (count, 1)), still, still)


def test_without_anything_beyond_it_is_the_physics() -> None:
    made, how = record(), parameters.flown(ASKED, np.array([[each.mean for each in ASKED]]))
    begin = np.array([0, 30])
    np.testing.assert_array_equal(flying.flown(how, made, begin, 3.8)[0], shooting.predicted(how, made, begin, 3.8))


def test_a_push_accelerates_as_it_says() -> None:
    made, how = record(), parameters.flown(ASKED, np.array([[each.mean for each in ASKED]]))
    push = np.zeros((1, 60, 6))
    push[..., 2], push[..., 5] = 2.0, 3.0
    with_it, without = (flying.flown(how, made, np.array([0]), 3.8, flying.Beyond(push=each))[0][0]
                        for each in (push, None))
    assert np.isclose(with_it[1, shooting.FORCE.start + 2] - without[1, shooting.FORCE.start + 2], 2.0, atol=0.05)
    assert np.isclose((with_it[5, 2] - without[5, 2]), 3.0 * 0.05, rtol=0.05)
