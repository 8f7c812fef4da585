"""The rule for times: one clock per topic, increasing times, and how long a sample holds."""

import numpy as np
import pytest

from temporeal.sim.stl.samples.missing import lost, matters
from temporeal.sim.stl.samples.times import TopicClock, are_set, clock_set, held_by, hold_s, late


@pytest.mark.parametrize(("stamps", "times"), [
    ([0, 20, 40], [900, 20, 40]), ([0, 0, 0], [900, 901, 902]), ([5, 0, 40], [5, 0, 40]), ([7, 8, 9], [7, 8, 9])])
def test_a_clock_is_the_headers_from_the_first_stamp_that_is_set(stamps, times):
    clock = TopicClock()
    sets = [clock.sets(stamp) for stamp in stamps if True]
    assert sum(sets) == any(stamps)
    clock = TopicClock()
    found = []
    for k, stamp in enumerate(stamps):
        clock.sets(stamp)
        found.append(clock.time(stamp, 900 + k))
    assert found == times
    assert are_set(np.array(stamps)) == any(stamps)


def test_late_is_what_is_not_after_the_newest_before():
    times = np.array([0.0, 1.0, 1.0, 0.5, 2.0, 1.5, 3.0])
    np.testing.assert_array_equal(late(times), [False, False, True, True, False, True, False])
    assert clock_set(times) is None
    assert clock_set(np.array([0.0, 5.0, 3.0])) == 2


def test_a_sample_holds_three_of_its_periods_or_as_told():
    times = np.array([0.0, 0.1, 0.2, 0.9])
    assert hold_s(times) == pytest.approx(0.3)
    assert (hold_s(times, 2.0), hold_s(times[:1]), hold_s(times[:1], 5.0)) == (2.0, 0.0, 5.0)
    np.testing.assert_array_equal(held_by(np.array([-0.1, 0.0, 0.15, 5.0]), times, 1e-9), [-1, 0, 1, 3])


def test_what_nobody_reads_refuses_nothing():
    assert matters("x", None)
    assert matters("x", ["x"])
    assert not matters("x", ["y"])
    np.testing.assert_array_equal(lost(np.array([[1.0, 2.0], [np.nan, 1.0], [np.inf, 0.0]])), [False, True, False])
