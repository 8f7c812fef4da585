"""Action chunks: each step at its own time, no jump where chunks meet, nothing after the end, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from temporeal.robots.motion.action_chunks import (
    REFUSALS,
    ChunkError,
    Latency,
    Plan,
    Playing,
    begin_of,
    blended,
    chunk,
    command,
    due,
    joined,
    refusal,
    sample,
    slopes,
    weight,
)

DT = 0.02
RAMP = np.arange(10.0)[:, None] * [1.0, -2.0]  # [10, 2]
EPS = 1e-6


def slope(f, t: float, side: float) -> np.ndarray:
    """Numeric derivative from one side."""
    return (f(t + side * EPS) - f(t)) / (side * EPS)


# one chunk


def test_a_row_is_played_at_the_observations_time_plus_its_own():
    c = chunk(5.0, RAMP, DT)
    for k in range(10):
        assert sample(c, 5.0 + k * DT) == pytest.approx(RAMP[k], abs=1e-9)
    assert sample(c, 5.0 + 2.5 * DT) == pytest.approx([2.5, -5.0])  # a straight line stays one


def test_latency_is_skipped_and_not_counted():
    """A chunk that comes 130 ms after its observation begins with what it says of 130 ms."""
    plan = joined(None, chunk(1.0, RAMP, DT), 1.13, Playing())
    assert command(plan, 1.13) == pytest.approx([6.5, -13.0])


def test_there_is_no_command_from_the_end_on():
    plan = joined(None, chunk(0.0, RAMP, DT), 0.0, Playing())
    assert command(plan, 10 * DT - 1e-9) == pytest.approx(RAMP[-1])  # the last row lasts as long as each other
    assert command(plan, 10 * DT) is None and command(plan, 1e9) is None and command(None, 0.0) is None


def test_slopes_by_hand():
    rows = np.array([[0.0], [1.0], [4.0], [3.0], [3.0], [4.0]])  # differences 1, 3, -1, 0, 1
    assert slopes(rows, 0.5)[:, 0] == pytest.approx([2.0, 2.0 * 2.0 * 6.0 / 8.0, 0.0, 0.0, 0.0, 0.0])


def test_a_point_between_rows_by_hand():
    """Hermite's cubic in the middle: (p0 + p1) / 2 + dt (m0 - m1) / 8 = 2.5 + 0.5 (3 - 0) / 8."""
    c = chunk(0.0, [[0.0], [1.0], [4.0], [3.0]], 0.5)
    assert sample(c, 0.75) == pytest.approx(2.5 + 0.5 * 3.0 / 8.0)


def test_held_components_are_stairs():
    c = chunk(0.0, RAMP, DT, hold=[1])
    assert sample(c, 0.6 * DT) == pytest.approx([0.6, 0.0])
    for k in range(10):  # never one control step late because 3 * 0.02 is not 0.06
        assert sample(c, k * DT)[1] == RAMP[k, 1]


rows_strategy = st.lists(st.lists(st.floats(-3, 3), min_size=2, max_size=2), min_size=2, max_size=8)


@settings(deadline=None, max_examples=examples(100))
@given(rows=rows_strategy)
def test_between_rows_it_is_smooth_stays_in_their_range_and_is_at_most_twice_as_steep(rows):
    values = np.array(rows)
    c = chunk(0.0, values, DT)
    s = np.arange(0, len(values) - 1, 0.05)
    out = np.array([sample(c, t * DT) for t in s])
    for t, at in zip(s, out):
        pair = values[int(t + 1e-9) : int(t + 1e-9) + 2]
        assert (at >= pair.min(axis=0)).all() and (at <= pair.max(axis=0)).all()
    steepest = np.abs(np.diff(values, axis=0)).max()
    assert np.abs(np.diff(out, axis=0)).max() <= 0.05 * 2 * steepest + 1e-12
    for k in range(1, len(values)):
        left, right = (slope(lambda t: sample(c, t), k * DT, side) for side in (-1, 1))
        assert left == pytest.approx(right, abs=1e-2 * (1 + steepest / DT))


# chunks that meet


def test_the_weight_of_the_newer_chunk_by_hand():
    plan = joined(Plan(chunk(0.0, RAMP, DT), 0.0), chunk(0.04, RAMP, DT), 0.06, Playing(fade_s=0.1))
    assert [weight(plan, t) for t in (0.05, 0.06, 0.085, 0.11, 0.16, 0.2)] == pytest.approx(
        [0.0, 0.0, 0.15625, 0.5, 1.0, 1.0])


def test_in_the_middle_of_a_fade_both_count_half_and_after_it_the_newer_alone():
    old, new = chunk(0.0, np.full((20, 1), 1.0), DT), chunk(0.1, np.full((20, 1), 2.0), DT)
    plan = joined(Plan(old, 0.0), new, 0.15, Playing(fade_s=0.1))
    assert [float(command(plan, t)[0]) for t in (0.15, 0.2, 0.25, 0.3)] == pytest.approx([1.0, 1.5, 2.0, 2.0])


def test_what_is_committed_is_not_touched():
    old, new = chunk(0.0, RAMP, DT), chunk(0.02, RAMP + 5.0, DT)
    plan = joined(Plan(old, 0.0), new, 0.04, Playing(fade_s=0.05, committed_s=0.06))
    for t in np.linspace(0.04, 0.1, 13):
        assert command(plan, t) == pytest.approx(sample(old, t))
    assert command(plan, 0.15) == pytest.approx(sample(new, 0.15))


def test_held_components_of_the_newer_chunk_count_at_once():
    old, new = chunk(0.0, RAMP, DT, hold=[1]), chunk(0.0, RAMP + 100.0, DT, hold=[1])
    plan = joined(Plan(old, 0.0), new, 0.04, Playing())
    assert command(plan, 0.04) == pytest.approx([2.0, 96.0])


def test_position_and_speed_are_continuous_where_a_fade_begins_and_ends():
    rng = np.random.default_rng(0)
    old, new = (chunk(at, rng.normal(size=(20, 3)), DT) for at in (0.0, 0.033))
    before = Plan(old, 0.0)
    plan = joined(before, new, 0.117, Playing(fade_s=0.1))
    assert command(plan, 0.117) == pytest.approx(command(before, 0.117))
    for t, left, right in ((0.117, before, plan), (0.217, plan, Plan(new, 0.0))):
        assert slope(lambda s, p=left: blended(p, s), t, -1) == pytest.approx(
            slope(lambda s, p=right: blended(p, s), t, 1), abs=0.05)


events_strategy = st.lists(
    st.tuples(st.floats(0.001, 0.15), st.floats(0.0, 0.2), st.integers(0, 2**31)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=examples(80))
@given(events=events_strategy, fade=st.floats(0.02, 0.3))
def test_the_command_never_jumps_and_never_leaves_the_range_of_the_rows(events, fade):
    """Chunks at any times, of any age, fades within fades, gaps: each 5 ms step is within what rows and fades allow.

    A fade of depth n adds at most 1.5 D / fade for each of its n levels to twice the speed of the rows.
    """
    playing, h, plan, now, last = Playing(fade_s=fade), 0.005, None, 0.0, None
    lowest, highest, steepest = np.inf, -np.inf, 0.0
    for wait, age, seed in events:
        for t in now + h * np.arange(round(wait / h)):
            at = command(plan, t)
            if at is not None:
                assert lowest - 1e-12 <= at.min() and at.max() <= highest + 1e-12
            if at is not None and last is not None:
                allowed = 2 * steepest / DT + depth(plan) * 1.5 * (highest - lowest) / fade
                assert np.abs(at - last[1]).max() <= (t - last[0]) * allowed + 1e-9
            last = (t, at) if at is not None else last
        now += h * round(wait / h)
        rows = np.cumsum(np.random.default_rng(seed).normal(size=(12, 2)), axis=0)
        lowest, highest = min(lowest, rows.min()), max(highest, rows.max())
        steepest = max(steepest, np.abs(np.diff(rows, axis=0)).max())
        observed = now - age
        new = chunk(observed, rows, DT, begin=begin_of(plan, observed, now))
        if new.end <= now:
            continue
        old = None if plan is None else blended(plan, now)
        plan = joined(plan, new, now, playing)
        assert old is None or blended(plan, now) == pytest.approx(old, abs=1e-12)  # not even after a gap
        assert depth(plan) <= len(events)


def depth(plan: Plan | None) -> int:
    return 0 if plan is None or plan.before is None else 1 + depth(plan.before)


def test_what_has_been_taken_over_is_let_go():
    plan, playing = None, Playing(fade_s=0.1)
    for i in range(1000):
        plan = joined(plan, chunk(0.02 * i, RAMP, DT), 0.02 * i, playing)
        assert depth(plan) <= 6


# where a chunk begins


def test_the_first_chunk_begins_when_it_comes():
    """The robot has not moved since the observation: to enter the motion in its middle would be a jump."""
    assert begin_of(None, 1.0, 1.3) == 1.3


def test_what_was_observed_before_that_motion_began_begins_with_it():
    plan = joined(None, chunk(1.0, RAMP, DT, begin=1.3), 1.3, Playing())
    assert begin_of(plan, 1.2, 1.4) == 1.3 and begin_of(plan, 1.35, 1.4) == 1.35


def test_after_a_gap_it_begins_anew():
    plan = joined(None, chunk(0.0, RAMP, DT), 0.0, Playing())  # ends at 0.2
    assert begin_of(plan, 0.1, 0.3) == 0.1  # observed in motion: it knows of the motion
    assert begin_of(plan, 0.25, 0.3) == 0.3
    again = joined(plan, chunk(0.25, RAMP, DT, begin=0.3), 0.3, Playing())
    assert begin_of(again, 0.28, 0.35) == 0.3


# what is refused


def refuse(rows=RAMP, observed: float = 1.0, now: float = 1.1, newest: float = 0.9, asked=(0.9, 0.95, 1.0)):
    return refusal(rows, observed, now, steps=10, size=2, dt=DT, newest=newest, asked=asked)


def test_a_good_chunk_is_not_refused():
    assert refuse() is None


@pytest.mark.parametrize(("code", "told", "given"), [
    ("shape", r"\(9, 2\), needed are numbers \(10, 2\)", {"rows": RAMP[:9]}),
    ("shape", r"\(10, 3\)", {"rows": np.zeros((10, 3))}),
    ("shape", "int64", {"rows": RAMP.astype(np.int64)}),
    ("not finite", "nan in step 3, component 1", {"rows": np.where(RAMP == -6.0, np.nan, RAMP)}),
    ("not finite", "inf in step 3", {"rows": np.where(RAMP == -6.0, np.inf, RAMP)}),
    ("future", "0.400 s from now", {"observed": 1.5}),
    ("future", "nan", {"observed": np.nan}),
    ("duplicate", "in use already", {"newest": 1.0}),
    ("reordered", "0.050 s older", {"observed": 0.95, "newest": 1.0}),
    ("late", r"chunk of 0.2 s came 0.200 s after", {"now": 1.2}),
    ("unknown", "0.080 s ago that was not sent", {"observed": 1.02}),
])
def test_what_is_refused_is_told(code, told, given):
    found = refuse(**given)
    assert found is not None and found.code == code and code in REFUSALS
    assert re.search(told, found.text)


def test_every_kind_of_refusal_is_shown_above():
    assert {row[0] for row in test_what_is_refused_is_told.pytestmark[0].args[1]} == set(REFUSALS)


# when to ask


def asks(now: float, **changes) -> bool:
    given = {"end": 10.0, "newest": 9.0, "asked": 9.0, "latency": 0.2, "length_s": 1.0,
             "playing": Playing(margin_s=0.05, committed_s=0.01, fade_s=0.1, every_s=100.0), **changes}
    return due(now, **given)


def test_asked_in_time_for_latency_margin_and_fade():
    assert not asks(9.63) and asks(9.65)  # 10 - 0.2 - 0.05 - 0.01 - 0.1 = 9.64
    assert not asks(9.13, latency=0.7) and asks(9.15, latency=0.7)


def test_asked_when_half_of_a_chunk_is_used_or_as_often_as_wanted():
    half, often = Playing(), Playing(every_s=0.0)
    assert not asks(9.49, playing=half) and asks(9.51, playing=half)
    assert not asks(9.01, asked=9.005, playing=often) and asks(9.01, playing=often)


def test_an_open_question_is_repeated_when_the_answer_is_overdue():
    assert not asks(9.9, asked=9.8) and asks(10.1, asked=9.8)
    assert asks(0.0, end=-np.inf, newest=-np.inf, asked=-np.inf)
    assert not asks(0.24, end=-np.inf, newest=-np.inf, asked=0.0) and asks(0.26, end=-np.inf, newest=-np.inf, asked=0.0)


def test_latency_is_that_of_the_newest_chunks():
    latency = Latency(window=3)
    assert latency.most == latency.p95 == 0.0
    for seconds in (9.0, 0.1, 0.2, 0.3):
        latency.add(seconds)
    assert latency.most == 0.3 and latency.p95 == pytest.approx(0.29)


@pytest.mark.parametrize(("name", "value"), [
    ("fade_s", 0.0), ("fade_s", np.nan), ("margin_s", 0.0), ("committed_s", -0.1), ("every_s", -1.0),
    ("every_s", np.inf)])
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(ChunkError, match=name):
        Playing(**{name: value})
