"""Samples on a grid: what lies between two is what the rule says, and nothing lies in a gap."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats.bags.alignment import (
    HOLD,
    LINEAR,
    NEAREST,
    SLERP,
    Alignment,
    check_rules,
    interpolated,
    places,
    rule_of,
    runs,
    slerp,
)
from temporeal.robots.signals import SignalSpec

TIMES = np.array([0.0, 0.1, 0.2, 0.6, 0.7])


def test_between_two_samples_a_line_a_hold_or_the_nearest():
    grid, values = np.array([0.0, 0.04, 0.16, 0.2, 0.64]), TIMES[:, None] * 10
    for rule, wanted in ((LINEAR, [0, 0.4, 1.6, 2, 6.4]), (HOLD, [0, 0, 1, 2, 6]), (NEAREST, [0, 0, 2, 2, 6])):
        at = places(grid, TIMES, rule, 0.15, 1e-9)
        assert not at.lost.any()
        np.testing.assert_allclose(interpolated(values[at.before], values[at.after], at.share, rule)[:, 0], wanted)


@pytest.mark.parametrize(("rule", "lost"), (
    (LINEAR, [True, False, False, True, True, False, True]), (HOLD, [True, False, False, False, True, False, False]),
    (NEAREST, [False, False, False, False, True, False, False])))
def test_a_point_in_a_gap_or_outside_is_lost(rule, lost):
    grid = np.array([-0.05, 0.0, 0.1, 0.3, 0.4, 0.6, 0.75])
    assert places(grid, TIMES, rule, 0.15, 1e-9).lost.tolist() == lost


def test_without_a_sample_every_point_is_lost():
    assert places(np.arange(3.0), np.zeros(0), LINEAR, 1.0, 0.0).lost.all()


def test_slerp_turns_evenly_about_one_axis_the_short_way():
    angle = np.linspace(0.0, 1.0, 5)

    def about_z(turn):
        return np.stack([np.cos(turn / 2), 0 * turn, 0 * turn, np.sin(turn / 2)], -1)

    a, b = about_z(np.zeros(5)), -about_z(np.full(5, 1.2))  # the same rotation, with the other sign
    np.testing.assert_allclose(slerp(a, b, angle), about_z(1.2 * angle), atol=1e-12)
    np.testing.assert_allclose(slerp(a, a, angle), a, atol=1e-12)


def test_rules_by_kind_of_signal():
    assert rule_of(SignalSpec("q", (4,), "wxyz"), False) == SLERP
    assert rule_of(SignalSpec("on", (), dtype="bool"), False) == HOLD
    assert rule_of(SignalSpec("x", (3,), "m"), False) == LINEAR
    assert rule_of(SignalSpec("rgb", (4, 4, 3), dtype="uint8"), True) == NEAREST
    specs = {"x": SignalSpec("x", (3,), "m")}
    with pytest.raises(DataError, match="no signal 'y' is imported; there are: x"):
        check_rules({"y": LINEAR}, specs, set())
    with pytest.raises(DataError, match="signal x: interpolation 'slerp'; legal: linear, hold, nearest"):
        check_rules({"x": SLERP}, specs, set())


def test_the_limit_is_three_periods_unless_the_grid_or_the_user_says_more():
    fast = np.arange(0, 1, 0.001)
    assert Alignment(25.0).limit(fast, False) == pytest.approx(0.04)
    assert Alignment(25.0, floor_s=0.1).limit(fast, False) == pytest.approx(0.1)
    assert Alignment(25.0).limit(np.arange(0, 1, 0.05), False) == pytest.approx(0.15)
    assert Alignment(25.0, gap_s=0.5).limit(fast, False) == 0.5
    assert Alignment(25.0).limit(fast, True) == np.inf


def test_runs_are_samples_in_a_row_each_but_the_last_with_a_command():
    lost, without = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0], bool), np.array([0, 0, 0, 0, 0, 0, 1, 0, 1], bool)
    assert runs(lost, without) == [slice(1, 4), slice(5, 7), slice(7, 9)]
