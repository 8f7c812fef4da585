"""Flights along a record with residual dynamics and pushes; errors, intervals and baselines."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.identification import parameters, prediction, shooting
from temporeal.sim.identification.record import FlightRecord
from temporeal.sim.identification.shooting import Flown
from temporeal.sim.identification.synthetic import NOISE, Flights, flights
from temporeal.sim.identification.validation import flying, hovers, intervals, predictors
from temporeal.sim.identification.validation.stretches import Told, errors, sizes, stretches

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


@cache
def flight() -> Flights:
    """A simulated flight whose parameters are known."""
    return flights(ROBOT, 1, 8.0, 3)


def best(found: Flights) -> Flown:
    return parameters.flown(found.asked, found.truth[:1])


def test_who_goes_on_as_before_is_right_where_nothing_changes() -> None:
    made = record(200)
    made = replace(made, velocity=np.tile([1.0, -2.0, 0.5], (200, 1)),
                   position=0.01 * np.arange(200)[:, None] * [1.0, -2.0, 0.5])
    where = stretches(made, 0.5)
    found = errors(predictors.hold(where), where.measured()[:, 1:])
    assert set(found) == {"position", "velocity", "attitude", "rates"}
    assert all(np.abs(each).max() < 1e-9 for each in found.values())


def test_the_true_parameters_predict_a_flight_better_than_the_spec_does() -> None:
    found = flight()
    where = stretches(found.records[0], 0.5)
    size = {name: np.sqrt((sizes(errors(predictors.simulator(how, 3.8)(where), where.measured()[:, 1:])["position"])[
        :, -1] ** 2).mean()) for name, how in (("truth", best(found)), ("spec", prediction.datasheet(ROBOT)))}
    assert size["truth"] < 0.3 * size["spec"]


def test_a_linear_system_is_found_again() -> None:
    """Of a robot that does not turn, whose velocity follows the commands: x' = 0.9 x + 0.1 u."""
    rng = np.random.default_rng(0)
    command = np.repeat(rng.uniform(0.2, 0.8, (60, 4)), 10, 0)
    velocity = np.zeros((600, 3))
    for k in range(599):
        velocity[k + 1] = 0.9 * velocity[k] + 0.1 * command[k, :3]
    made = replace(record(600), command=command, velocity=velocity,
                   position=np.concatenate([np.zeros((1, 3)), 0.005 * np.cumsum(velocity[1:] + velocity[:-1], 0)]))
    where = stretches(made, 0.5)
    found = errors(predictors.linear([where])(where), where.measured()[:, 1:])
    still = errors(predictors.hold(where), where.measured()[:, 1:])
    assert np.abs(found["velocity"]).max() < 0.05 * np.abs(still["velocity"]).max()


def test_what_a_linear_model_is_told_of_the_battery_counts_and_later_motion_does_not() -> None:
    """Velocity follows command times voltage: x' = 0.9 x + 0.1 u v."""
    rng = np.random.default_rng(0)
    command, voltage = np.repeat(rng.uniform(0.2, 0.8, (60, 4)), 10, 0), np.repeat(rng.uniform(0.5, 1.5, 40), 15)
    velocity = np.zeros((600, 3))
    for k in range(599):
        velocity[k + 1] = 0.9 * velocity[k] + 0.1 * command[k, :3] * voltage[k]
    made = replace(record(600), command=command, velocity=velocity, voltage=voltage)
    where = stretches(made, 0.5)
    told, blind = (predictors.linear([where], Told(True, each)) for each in (True, False))
    off = {name: sizes(errors(each(where), where.measured()[:, 1:])["velocity"]).mean() for name, each in (
        ("told", told), ("blind", blind))}
    assert off["told"] < 0.1 * off["blind"]
    first = replace(where, begin=where.begin[:1])
    later = np.arange(600) > first.begin[0]
    for name in ("velocity", "rates", "quat", "force", "position"):
        values = getattr(made, name)
        unknown = replace(first, record=replace(made, **{name: np.where(later[:, None], np.nan, values)}))
        np.testing.assert_array_equal(told(unknown), told(first))
    with pytest.raises(ValueError, match="no voltage"):
        told(replace(first, record=replace(made, voltage=None)))


def test_intervals_of_the_truth_hold_about_nine_of_ten() -> None:
    found = flight()
    made, how = found.records[0], best(found)
    left = intervals.left_over(how, 3.8, [stretches(made, 0.5)])
    assert np.allclose(left.sensors[1], NOISE["velocity"], rtol=0.4)  # m/s
    assert intervals.of_names(left.named()).named() == left.named()
    many = Flown(*(np.repeat(getattr(how, name), 60, 0) for name in (
        "params", "delay", "exponent", "loss", "rate_bias", "share")))
    where = stretches(made, 0.5)
    draws = intervals.drawn(lambda count, rng: many, 3.8, where, left, np.random.default_rng(0), count=60)
    shares = {name: share.mean() for name, share in intervals.coverage(draws, where).items()}
    assert all(0.75 < share < 0.99 for share in shares.values()), shares
    narrow = replace(left, sensors=0.1 * left.sensors, turning=0.1 * left.turning, pushing=0.1 * left.pushing)
    draws = intervals.drawn(lambda count, rng: many, 3.8, where, narrow, np.random.default_rng(0), count=60)
    assert intervals.coverage(draws, where)["velocity"].mean() < 0.4


def test_manoeuvres_go_from_hover_to_hover_and_bridge_short_gaps() -> None:
    speed = np.concatenate([np.zeros(100), np.ones(200), np.zeros(100), np.ones(100), np.zeros(50)])
    usable = np.ones(550, bool)
    usable[150:158] = False
    made = replace(record(552), velocity=None)
    made = FlightRecord("made", "", 0.01, made.command[:550], None, np.zeros((550, 3)), None, usable,
                        made.quat[:550], np.stack([speed, 0 * speed, 0 * speed], 1), np.zeros((550, 3)))
    assert [(int(each.begin[0]), each.steps) for each in hovers.between(made)] == [(399, 101)]
    found = hovers.between(hovers.bridged(made))
    assert [(int(each.begin[0]), each.steps) for each in found] == [(99, 201), (399, 101)]
