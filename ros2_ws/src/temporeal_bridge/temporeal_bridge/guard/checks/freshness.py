"""How fresh the state is: when the messages of each topic arrived, and how old they were by their stamps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from temporeal.robots.motion import shield
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason

CLOCK_SET_S = 1.0  # a message that is later than the earliest by so much shows that a clock was set. Chosen: so late a
# state is stale anyway
DRIFT = 1e-3  # s/s: clocks drift apart, or are slewed, more slowly. Chosen
NOW_S, NOW_SAMPLES = 0.05, 3.0  # largest age of a hand's current place: s, or periods of its topic. Chosen
RECENT_S = 2.0  # how long the earliest arrivals are remembered to estimate when samples were taken. Chosen: after a
# clock was set, comparisons are wrong for no longer


class RecentMinimum:
    """The minimum of the values of the last RECENT_S to twice that."""

    def __init__(self) -> None:
        self.before, self.now, self.until = inf, inf, -inf

    def least(self, value: float, now: float) -> float:
        """The minimum, with ``value`` added."""
        if now >= self.until:
            self.before, self.now, self.until = self.now, inf, now + RECENT_S
        self.now = min(self.now, value)
        return min(self.before, self.now)


class Freshness:
    """Arrival times and delays of state topics, which are numbered. Times are in s, monotonic.

    Args:
        profile: gives the largest ages by topic (:meth:`temporeal_bridge.guard.safety.profile.Profile.age`).
        rates_hz: of the topics; 0: sent on change, and never stale.

    Attributes:
        at: when the last message of each topic arrived; -inf: none has.
        offset, mono_offset: its arrival by the wall clock, by the monotonic clock, minus its stamp.
        now_s: the largest age of a current place, of all topics that the profile reads.
    """

    def __init__(self, profile: Profile, rates_hz: Sequence[float]) -> None:
        self.at = [-inf] * len(rates_hz)
        self.periodic = [i for i, rate in enumerate(rates_hz) if rate > 0]
        ages = [profile.age(i) for i in range(len(rates_hz))]
        read = [i for i in self.periodic if ages[i].read]
        self.stale_after, self.stale_read = (
            grouped((ages[i].stale_s, i) for i in topics) for topics in (self.periodic, read))
        self.stamps_within, self.stamps_read = (
            grouped((ages[i].stamps_s, i) for i in topics) for topics in (self.periodic, read))
        self.offset = [0.0] * len(rates_hz)
        self.mono_offset = list(self.offset)
        self.least = list(zip(self.offset, self.mono_offset))  # in this mission: clock difference plus shortest delay
        self.earliest = [inf] * len(rates_hz)  # least mono_offset of all missions
        self.recent = [RecentMinimum() for _ in rates_hz]  # least mono_offset of the last seconds
        self.longest = {i: max(NOW_S, NOW_SAMPLES / rates_hz[i]) for _, topics in self.stale_read for i in topics}
        self.now_s = max(self.longest.values(), default=NOW_S)

    def begin(self) -> None:
        """A mission begins: the delays of the last messages are the normal ones."""
        self.least = list(zip(self.offset, self.mono_offset))

    def take(self, topic: int, stamp_ns: int, now: float, wall_ns: int) -> float:
        """A message arrived; the time at which it was sampled."""
        drift = DRIFT * (now - self.at[topic]) if self.at[topic] > -inf else 0.0
        self.at[topic] = now
        offset = self.offset[topic] = 1e-9 * (wall_ns - stamp_ns) if stamp_ns else 0.0
        mono = self.mono_offset[topic] = now - 1e-9 * stamp_ns if stamp_ns else 0.0
        least, least_mono = self.least[topic]
        self.least[topic] = (min(least + drift, offset), min(least_mono + drift, mono))
        earliest = min(self.earliest[topic] + drift, mono)
        self.earliest[topic] = earliest if mono - earliest < CLOCK_SET_S else mono
        return now - (mono - self.recent[topic].least(mono, now))

    @property
    def complete(self) -> bool:
        """Whether every topic has brought a message."""
        return min(self.at) > -inf

    def age(self, now: float) -> float:
        """Age [s] of the oldest part of the state; infinite while a part is missing."""
        return now - min(self.at[i] for i in self.periodic) if self.complete else inf

    def stale(self, now: float, read: bool = False) -> Reason:
        """A topic brings nothing. ``read``: one that the profile reads."""
        complete = self.complete
        for limit, topics in self.stale_read if read else self.stale_after:
            text = shield.stale(now - min(self.at[i] for i in topics) if complete else inf, limit)
            if text:
                return "stale", text
        return NOTHING

    def fresh(self, now: float) -> bool:
        """Whether every topic is fresh."""
        return self.stale(now) == NOTHING

    def seen(self, now: float) -> bool:
        """Whether every topic that the profile reads is fresh. The others keep no stop action from braking."""
        return self.stale(now, read=True) == NOTHING

    def silence(self, now: float) -> float:
        """Time [s] since the last message of any topic that the profile reads."""
        read = [i for _, topics in self.stale_read or self.stale_after for i in topics]
        return now - max((self.at[i] for i in read), default=now)

    def overdue(self, read: bool = False) -> Reason:
        """A topic's delay grew by more than the age that is allowed. ``read``: of one that the profile reads."""
        for limit, topics in self.stale_read if read else self.stale_after:
            late = max(self.late(i) for i in topics)
            if late >= limit:
                return "stale", (f"a state arrived {late:.3f} s later after its stamp than those before it, less than "
                                 f"{limit:g} s is allowed: it was delayed, or its clock is being set")
        return NOTHING

    def late(self, topic: int) -> float:
        """By how much [s] longer than the shortest delay the last message took; by the clock of this computer that says
        less, because the wall clock may have been set."""
        least, least_mono = self.least[topic]
        return min(self.offset[topic] - least, self.mono_offset[topic] - least_mono)

    def stamps(self, read: bool = False) -> Reason:
        """Stamps disagree with the wall clock of this machine. ``read``: of topics that the profile reads."""
        for limit, topics in self.stamps_read if read else self.stamps_within:
            off = max((self.offset[i] for i in topics), key=abs)
            if not abs(off) <= limit:
                way = "before" if off > 0 else "after"
                return "stamps", (f"a state was stamped {abs(off):.3f} s {way} it arrived, {limit:g} s is allowed: it "
                                  "is old, or the clocks differ")
        return NOTHING

    @property
    def old(self) -> bool:
        """Whether a state was stamped too long before it arrived: its values may be old."""
        return any(max(self.offset[i] for i in topics) > limit for limit, topics in self.stamps_read)

    def too_old(self, now: float) -> float | None:
        """Age [s] of the part that exceeds the largest age of a current place most, by arrival and by the longest delay
        that any clock shows; None: none exceeds it."""
        old = {i: now - self.at[i] + max(self.offset[i], self.late(i), self.mono_offset[i] - self.earliest[i])
               for i in self.longest}
        oldest = max(old, key=lambda i: old[i] / self.longest[i], default=None)
        return old[oldest] if oldest is not None and old[oldest] > self.longest[oldest] else None


def grouped(limits: Iterable[tuple[float | None, int]]) -> list[tuple[float, list[int]]]:
    """Topics by limit; those without one (None) are left out."""
    out: dict[float, list[int]] = {}
    for limit, topic in limits:
        if limit is not None:
            out.setdefault(limit, []).append(topic)
    return list(out.items())
