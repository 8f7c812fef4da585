"""The shield: what it lets through, what it changes, what it refuses, and that stopping turns the robot upright."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from temporeal.robots import frames
from temporeal.robots.motion import shield
from temporeal.robots.motion.rate_limiter import Bounds, at_rest
from temporeal.robots.signals import CommandSpec

SPEC = CommandSpec("u", (2,), "1", low=(-1.0, 0.0), high=(1.0, 2.0))
anything = arrays(np.float64, 2, elements=st.floats(allow_nan=True, allow_infinity=True, width=32))


FAST = Bounds(SPEC.low, SPEC.high, 0.02)
SLOW = Bounds(SPEC.low, SPEC.high, 0.02, speed=5.0)


@given(anything, st.none() | arrays(np.float64, 2, elements=st.floats(0, 1)))
def test_what_passes_is_always_inside_the_limits(command, previous):
    verdict, after = shield.guard(SPEC, command, SLOW, None if previous is None else at_rest(previous))
    if np.isfinite(command).all():
        assert (verdict.command >= SPEC.low).all() and (verdict.command <= SPEC.high).all()
        assert np.array_equal(after.command, verdict.command)
        if previous is not None:
            assert (np.abs(verdict.command - previous) <= 0.1 + 1e-12).all()
    else:
        assert verdict.command is None and "not finite" in verdict.reason


def test_a_command_inside_is_untouched():
    for before in (None, at_rest([0.0, 2.0])):
        verdict, _ = shield.guard(SPEC, np.array([0.5, 0.5]), FAST, before)
        assert verdict.command.tolist() == [0.5, 0.5] and verdict.reason == ""


def test_what_is_too_fast_is_slowed_and_told():
    verdict, after = shield.guard(SPEC, np.array([0.05, 3.0]), SLOW, at_rest([0.0, 0.0]))
    assert verdict.command.tolist() == pytest.approx([0.05, 0.1])
    assert "clamped to its limits, component [1]" in verdict.reason
    assert "moves faster than allowed, component [1]" in verdict.reason
    assert shield.guard(SPEC, np.array([0.05, 0.15]), SLOW, after)[0].reason == ""
    refused, still = shield.guard(SPEC, np.array([np.nan, 0.0]), SLOW, after)
    assert refused.command is None and still is after


def test_the_reason_names_the_component():
    assert "[1]" in shield.clamp(SPEC, np.array([0.0, 3.0])).reason


def test_rounding_over_a_limit_is_no_event():
    verdict = shield.clamp(SPEC, np.array([1.0000001, 1.0]))
    assert verdict.command.tolist() == [1.0, 1.0] and verdict.reason == ""


def test_the_servos_window_has_the_last_word_and_is_told():
    """Faster than allowed, but never beyond the limits of place."""
    window = (np.array([0.5]), np.array([0.6]))
    verdict, after = shield.guard(SPEC, np.array([0.0, 1.0]), SLOW, at_rest([0.0, 1.0]), window)
    assert verdict.command.tolist() == after.command.tolist() == [0.5, 1.0] and not after.speed.any()
    assert verdict.reason == "its effort is limited, component [0]"
    assert shield.guard(SPEC, np.array([0.55, 1.0]), SLOW, after, window)[0].reason == ""
    beyond = (np.array([1.5]), np.array([1.6]))
    assert shield.guard(SPEC, np.array([0.0, 1.0]), SLOW, None, beyond)[0].command.tolist() == [1.0, 1.0]


def test_wrong_shape_is_refused():
    assert "shape" in shield.guard(SPEC, np.zeros(3), FAST, None)[0].reason


@pytest.mark.parametrize(
    ("age", "word"), [(0.05, ""), (0.2, "old"), (-0.2, "future"), (float("nan"), "old"), (float("inf"), "old")])
def test_staleness(age, word):
    reason = shield.stale(age, 0.1)
    assert (word in reason) and bool(reason) == bool(word)


def test_geofence():
    low, high = (-1, -1, 0), (1, 1, 2)
    assert shield.outside(np.array([0, 0, 1]), low, high) == ""
    assert "z = 3.00" in shield.outside(np.array([0, 0, 3]), low, high)
    assert shield.outside(np.array([np.nan, 0, 1]), low, high) != ""


@given(arrays(np.float64, 3, elements=st.floats(-1.2, 1.2)))
def test_level_rates_reduce_the_tilt(turn):
    """A small turn by the commanded rates brings the body's z axis closer to the world's."""
    quat = frames.from_rotation_vector(turn)
    before = frames.tilt(quat)
    rates = shield.level_rates(quat, 5.0, 3.0)
    after = frames.tilt(frames.multiply(quat, frames.from_rotation_vector(0.01 * rates)))
    assert rates[2] == 0 and (np.abs(rates) <= 3.0).all()
    assert after <= before + 1e-6 and (before < 0.05 or after < before)


def test_level_rates_by_hand():
    """Rolled right side down by 0.1 rad: roll back."""
    assert shield.level_rates(frames.from_rotation_vector(np.array([0.1, 0, 0])), 5.0, 3.0) == pytest.approx(
        [-5 * np.sin(0.1), 0, 0])


def test_stopping_blind_does_not_turn():
    command = shield.level_and_descend(None, 0.3, {"descend": 0.8, "gain": 5.0, "limit": 3.0})
    assert command == pytest.approx([0.24, 0, 0, 0])


def test_a_sink_is_brought_to_its_speed_by_hand():
    """0.2 m/s too fast with 0.5 s/m: a tenth more than it weighs, and more where it is tilted."""
    config = {"descend": 0.85, "gain": 5.0, "limit": 3.0, "sink_m_s": 0.3, "sink_gain": 0.5}
    def share(sink, degrees=0.0):
        quat = frames.from_rotation_vector(np.array([np.deg2rad(degrees), 0.0, 0.0]))
        return shield.level_and_descend(quat, 1.0, config, sink)[0]

    assert share(0.5) == pytest.approx(1.1) and share(0.3) == pytest.approx(1.0)
    assert share(0.3, 30.0) == pytest.approx(1.0 / np.cos(np.deg2rad(30.0)))
    assert share(0.1, 80.0) == pytest.approx(0.9 / 0.7) and share(0.4, 80.0) == 1.3
    assert share(9.0) == 1.3 and share(-9.0) == share(9.0, 120.0) == 0.85
    assert share(None) == shield.level_and_descend(None, 1.0, config, 9.0)[0] == 0.85


def test_upside_down_it_turns_with_full_effort():
    """Near 180 degrees the sine is small, and the way is long."""
    for degrees, rate in ((30.0, 5.0 * 0.5), (90.0, 5.0), (170.0, 5.0)):
        half = np.deg2rad(degrees) / 2
        rates = shield.level_rates(np.array([np.cos(half), np.sin(half), 0.0, 0.0]), 5.0, 9.0)  # rolled to the right
        np.testing.assert_allclose(rates, [-rate, 0.0, 0.0], atol=1e-12)


def test_the_window_of_commands_by_the_servos_law():
    """100 (command - 0.5) - 2 * 3 within +-20: from 0.5 - 0.14 to 0.5 + 0.26."""
    low, high = shield.effort_window(*(np.array([x]) for x in (0.5, 3.0, 100.0, 2.0, 20.0)))
    assert low == pytest.approx([0.36]) and high == pytest.approx([0.76])


@pytest.mark.parametrize(("measured", "told"), [
    ([0.0, 1.0], ""), ([0.1, 0.8], ""), ([0.11, 1.0], "component 0 is 0.11 from its command, 0.1 is allowed"),
    ([0.15, 1.9], "component 1 is 0.9 from its command, 0.2 is allowed"), ([np.nan, 1.0], "component 0 is nan"),
    ([0.0, np.inf], "component 1 is inf"),
])
def test_who_is_behind_is_told_by_the_worst_component(measured, told):
    for error in ((0.1, 0.2), np.array([0.1, 0.2])):
        found = shield.behind(np.array([0.0, 1.0]), np.array(measured, dtype=np.float64), error)
        assert found.startswith(told) and bool(found) == bool(told)
    with pytest.raises(ValueError, match="zip"):
        shield.behind(np.zeros(2), np.zeros(3), (0.1, 0.1))
