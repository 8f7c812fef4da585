"""How old the state is, by arrival and by stamp; hand-computed cases."""

from __future__ import annotations

from math import inf

import pytest

from temporeal_bridge.guard.checks.freshness import CLOCK_SET_S, NOW_S, RECENT_S, Freshness, RecentMinimum, grouped
from temporeal_bridge.guard.safety.profile import Ages
from temporeal_bridge.guard.safety.reasons import NOTHING


class Rules:
    """Largest ages of topics: joints, which rules read; a camera's pose; a goal, which is sent on change."""

    def age(self, topic: int) -> Ages:
        return (Ages(0.1, 0.5), Ages(0.3, None, read=False), Ages(inf, None, read=False))[topic]


@pytest.fixture
def freshness() -> Freshness:
    return Freshness(Rules(), [100.0, 20.0, 0.0])  # type: ignore[arg-type]


def ns(seconds: float) -> int:
    return round(1e9 * seconds)


def test_a_state_is_as_old_as_its_oldest_periodic_part(freshness):
    freshness.take(0, 0, 1.0, 0)
    freshness.take(1, 0, 1.2, 0)
    assert not freshness.complete and freshness.age(1.3) == inf and freshness.stale(1.3)[0] == "stale"
    freshness.take(2, 0, 0.1, 0)
    assert freshness.complete and freshness.age(1.3) == pytest.approx(0.3)
    assert freshness.stale(1.05) == NOTHING and freshness.seen(1.05)


def test_each_topic_has_an_age_of_its_own(freshness):
    for topic in range(3):
        freshness.take(topic, 0, 1.0, 0)
    freshness.take(0, 0, 1.35, 0)
    assert not freshness.fresh(1.4) and freshness.seen(1.4)  # the pose is too old, and read by nobody
    freshness.take(1, 0, 1.5, 0)
    assert not freshness.seen(1.5)
    assert freshness.silence(1.6) == pytest.approx(0.25)


def test_stamps_are_compared_with_the_wall_clock(freshness):
    for topic in range(3):
        freshness.take(topic, ns(99.6), 1.0, ns(100.0))
    assert freshness.stamps() == NOTHING and not freshness.old
    freshness.take(0, ns(99.4), 1.1, ns(100.0))
    assert freshness.old and "0.600 s before it arrived" in freshness.stamps()[1]
    freshness.take(0, ns(100.6), 1.2, ns(100.0))
    assert not freshness.old and "0.600 s after it arrived" in freshness.stamps()[1]


def test_a_delay_that_grows_is_overdue_and_a_clock_that_is_set_is_not(freshness):
    """The clocks differ by 99 s; then one message waits for 0.2 s, and later the wall clock is set by 5 s."""
    freshness.take(0, ns(100.0), 1.0, ns(100.0))
    freshness.begin()
    freshness.take(0, ns(100.1), 1.1, ns(100.1))
    assert freshness.overdue(read=True) == NOTHING and freshness.late(0) == pytest.approx(0.0, abs=1e-3)
    freshness.take(0, ns(100.2), 1.4, ns(100.4))
    assert freshness.late(0) == pytest.approx(0.2, abs=1e-3) and freshness.overdue(read=True)[0] == "stale"
    freshness.take(0, ns(100.5), 1.5, ns(105.5))  # our wall clock was set: the monotonic clock says what is so
    assert freshness.late(0) == pytest.approx(0.0, abs=1e-3)


def test_samples_of_a_heap_are_dated_by_their_stamps(freshness):
    """Five messages every 10 ms arrive together."""
    assert freshness.take(0, ns(50.0), 1.0, 0) == pytest.approx(1.0)
    dated = [freshness.take(0, ns(50.0 + 0.01 * k), 1.05, 0) for k in range(1, 6)]
    assert dated == pytest.approx([1.01, 1.02, 1.03, 1.04, 1.05])


def test_a_current_place_is_no_older_than_a_few_samples(freshness):
    assert freshness.now_s == NOW_S
    freshness.take(0, ns(50.0), 1.0, ns(50.0))
    assert freshness.too_old(1.0 + 0.9 * NOW_S) is None
    assert freshness.too_old(1.0 + 1.1 * NOW_S) == pytest.approx(1.1 * NOW_S)
    freshness.take(0, ns(50.0), 1.0 + 2 * NOW_S, ns(50.0 + 2 * NOW_S))  # it arrived now, and is as old by its stamp
    assert freshness.too_old(1.0 + 2 * NOW_S) == pytest.approx(2 * NOW_S, rel=1e-2)
    freshness.take(0, ns(40.0), 1.2, ns(50.2))  # its clock was set back by more than any delay: a new beginning
    assert freshness.mono_offset[0] - freshness.earliest[0] < CLOCK_SET_S


def test_a_recent_minimum_forgets():
    recent = RecentMinimum()
    assert recent.least(3.0, 0.0) == 3.0 and recent.least(5.0, 1.0) == 3.0
    assert recent.least(5.0, 1.5 * RECENT_S) == 3.0  # of the last RECENT_S to twice that
    assert recent.least(5.0, 2.5 * RECENT_S) == 5.0


def test_topics_are_grouped_by_limit():
    assert grouped([(0.1, 0), (None, 1), (0.3, 2), (0.1, 3)]) == [(0.1, [0, 3]), (0.3, [2])]
