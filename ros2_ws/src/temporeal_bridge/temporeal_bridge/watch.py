"""What the guard sees of the robot: is the state fresh, is it alive, is it where it may be, does it follow?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import acos, exp, inf

import numpy as np

from robots import shield
from robots.signals import FEW
from temporeal_bridge.safety import Profile

Reason = tuple[str, str]
"""Code (see :data:`temporeal_bridge.safety.CODES`) and text; ("", ""): nothing is wrong."""
NOTHING: Reason = ("", "")
GAP_S = 0.1  # between samples that are farther apart a robot may go farther: as much more as the time is longer
LOST = 1.5  # periods between samples from which on one was lost
DRIFT = 1e-3  # s/s: clocks drift apart, and are slewed, by less. Chosen
REST_S = 0.05  # so long a robot must have rested before it is started
APART_RAD, APART_S = 0.1, 0.2  # so far may joints move beyond what their velocity says, forgotten in so long: 0.5 rad/s
# for ever is seen. Chosen: a velocity that is 20 ms late at 3 rad/s is 0.06 rad off
FINGERS_RAD = 0.2  # the same of servos whose efforts are limited: fingers reach 7 rad/s
RESTS = 0.2  # of what the first command may be off: it rests while it moves less


class Watch:
    """Fed with every state message; :meth:`reason` says what is wrong now.

    Args:
        profile: what is demanded, of each topic what :meth:`temporeal_bridge.safety.Profile.age` says.
        rates_hz: of the state topics; 0: one that brings something only when it changes, and is never old.
    """

    def __init__(self, profile: Profile, rates_hz: Sequence[float]) -> None:
        self.profile = profile
        self.at = [-inf] * len(rates_hz)
        self.rates_hz = tuple(rates_hz)
        self.periodic = [i for i, rate in enumerate(rates_hz) if rate > 0]
        read = [i for i in self.periodic if profile.age(i).read]
        self.stale_after, self.stale_read = (
            grouped((profile.age(i).stale_s, i) for i in topics) for topics in (self.periodic, read))
        self.stamps_within, self.stamps_read = (
            grouped((profile.age(i).stamps_s, i) for i in topics) for topics in (self.periodic, read))
        self.offset = [0.0] * len(rates_hz)  # arrival by the wall clock minus stamp, s
        self.beside = list(self.offset)  # the same by the monotonic clock
        # of late, by both: what clocks differ, and the least that messages take
        self.least = list(zip(self.offset, self.beside))
        self.values: dict[str, np.ndarray] = {}
        self.alive = profile.frozen.signals if profile.frozen else ()
        self.changed: dict[str, float] = {}  # when one of those last differed from before
        self.jumped: Reason = NOTHING
        self.upright = True  # whether the attitude did not jump in this mission
        self.behind_since = inf
        self.place: np.ndarray | None = None  # where a robot rests that has a rule for its start
        self.seen_since = self.rests_since = inf
        self.moved: tuple[float, np.ndarray, np.ndarray] | None = None  # when [s], position and velocity of the joints
        self.apart: np.ndarray | float = 0.0  # [B] rad, see APART_RAD
        self.lied = False  # whether they were farther apart than that in this mission
        self.moving, self.may_differ = profile.moving, APART_RAD if profile.effort is None else FINGERS_RAD

    def begin(self, now: float) -> None:
        """A mission begins: what was before it is forgiven."""
        self.jumped, self.behind_since, self.apart, self.lied = NOTHING, inf, 0.0, False
        self.upright = True
        self.least = list(zip(self.offset, self.beside))
        self.changed = dict.fromkeys(self.changed, now)

    def take(self, topic: int, stamp_ns: int, signals: Mapping[str, np.ndarray], now: float, wall_ns: int) -> None:
        """A message of state topic number ``topic`` (:class:`temporeal_bridge.state.StateInput` drops repetitions)."""
        for name, value in signals.items():
            before = self.values.get(name)
            if name in self.alive and (before is None or not same(before, value)):
                self.changed[name] = now
            limit = (self.profile.jump or {}).get(name)
            if limit is not None and before is not None:
                self._leap(name, before, value, limit, self._longer(name, topic, now - self.at[topic]))
            self.values[name] = value
            if self.profile.start is not None and name == self.profile.start.signal:
                self._rest(np.reshape(value, -1), now)
        position, velocity = self.moving
        if position in signals and velocity in self.values:
            self._move(self.values[position].reshape(-1), self.values[velocity].reshape(-1), now)
        gone = DRIFT * (now - self.at[topic]) if self.at[topic] > -inf else 0.0
        self.at[topic] = now
        self.offset[topic] = 1e-9 * (wall_ns - stamp_ns) if stamp_ns else 0.0
        self.beside[topic] = now - 1e-9 * stamp_ns if stamp_ns else 0.0
        wall, beside = self.least[topic]
        self.least[topic] = (min(wall + gone, self.offset[topic]), min(beside + gone, self.beside[topic]))

    def _longer(self, name: str, topic: int, gap: float) -> float:
        """How many times as far as from one sample to the next a signal may go over a ``gap`` [s]: a place farther
        after GAP_S only, a velocity with each sample that was lost, for it changes in milliseconds."""
        if name not in self.profile.velocities:
            return max(gap / GAP_S, 1.0)
        samples = gap * self.rates_hz[topic]
        return samples if samples > LOST else 1.0

    def _leap(self, name: str, before: np.ndarray, value: np.ndarray, limit: float, longer: float) -> None:
        """Is it farther from one sample to the next than the robot can go? After a gap that was so many times
        ``longer`` it may have gone farther. Not so an attitude: one that comes back turned may be that of other
        markers, and to be blind for no reason is less harm than to turn by it."""
        turns = name in self.profile.attitudes
        a, b = before.ravel().tolist(), value.ravel().tolist()
        change = angle(a, b) if turns else max(abs(x - y) for x, y in zip(a, b, strict=True))
        most, how = (limit, "turned") if turns else (limit * longer, "jumped")
        if change > most:
            self.jumped = ("jump", f"{name} {how} by {change:.3g}, {most:g} is the most from one sample to the next")
            self.upright = self.upright and not turns

    def _rest(self, value: np.ndarray, now: float) -> None:
        """Since when the robot is where it is."""
        assert self.profile.start is not None
        self.seen_since = min(self.seen_since, now)
        if self.place is None or any(abs(a - b) > RESTS * far for a, b, far in zip(
                value.tolist(), self.place.tolist(), self.profile.start.within, strict=True)):
            self.place, self.rests_since = value, now

    def _move(self, place: np.ndarray, speed: np.ndarray, now: float) -> None:
        """How much farther the joints [B] have gone of late than their velocity says. After a gap nobody knows."""
        if self.moved is not None and now - self.moved[0] <= GAP_S:
            since, before, then = self.moved
            step = now - since
            self.apart = exp(-step / APART_S) * self.apart + (place - before) - 0.5 * step * (speed + then)
        else:
            self.apart = 0.0
        self.moved = (now, place, speed)
        self.lied = self.lied or bool(np.max(np.abs(self.apart)) > self.may_differ)

    @property
    def complete(self) -> bool:
        """Whether every topic has brought something."""
        return min(self.at) > -inf

    def age(self, now: float) -> float:
        """Age [s] of the oldest part of the state; infinite while a part is missing."""
        return now - min(self.at[i] for i in self.periodic) if self.complete else inf

    def stale(self, now: float, read: bool = False) -> Reason:
        """A topic brings nothing, or nothing new; ``read``: one that the profile reads."""
        complete = self.complete
        for limit, topics in self.stale_read if read else self.stale_after:
            text = shield.stale(now - min(self.at[i] for i in topics) if complete else inf, limit)
            if text:
                return "stale", text
        return NOTHING

    def fresh(self, now: float) -> bool:
        """Whether every topic has brought something new of late."""
        return self.stale(now) == NOTHING

    def seen(self, now: float) -> bool:
        """Whether what the profile reads is. No other topic keeps a stop from braking by it."""
        return self.stale(now, read=True) == NOTHING

    def known(self, now: float) -> bool:
        """Whether it was seen for long enough to say that it rests, where a rule for its start asks that."""
        rule = self.profile.start
        return rule is None or not rule.signal or now - self.seen_since >= REST_S

    def reason(self, now: float, sent: np.ndarray | None) -> Reason:
        """What is wrong now, the first in the order of the checks. ``sent``: the last command [A] of this mission."""
        checks = (self.stale(now), self.stamps(), self.frozen(now), self.jumped, self.tracking(now, sent), self.fence(),
                  self.speeds())
        for found in checks:
            if found != NOTHING:
                return found
        return NOTHING

    def sound(self, now: float) -> bool:
        """Whether nothing speaks against what a fresh state says: it is alive, of now, and did not jump."""
        return self.stamps(read=True) == self.frozen(now) == self.jumped == NOTHING

    def sees_attitude(self, now: float) -> bool:
        """Whether a robot may be turned by the attitude that it says: alive, without a leap, and of now. By one that
        stands, or that comes late, it would be turned over."""
        late = any(max(self.late(i) for i in topics) >= limit for limit, topics in self.stale_read)
        return self.upright and not late and self.frozen(now) == NOTHING

    def late(self, topic: int) -> float:
        """By how much [s] later than others its last message came. By the clock of this computer that says less: one of
        them may have been set."""
        wall, beside = self.least[topic]
        return min(self.offset[topic] - wall, self.beside[topic] - beside)

    def seen_moving(self, now: float) -> bool:
        """Whether what is said of place and velocity may brake speeds and efforts, or say what servos may be asked for:
        alive, without a leap, and of one mind. A velocity that says for ever the same would push. What brakes must be
        of now, what servos are judged by not old. A servo's velocity that has lied may say what is right where the
        robot rests, and lead it away from there again."""
        servos = self.profile.effort is not None
        good = not (self.lied or self.old) if servos else self.stamps(read=True) == NOTHING
        return good and self.frozen(now) == self.jumped == self.speeds() == NOTHING

    @property
    def old(self) -> bool:
        """Whether a state was stamped too long before it arrived: it may be, and its values then are not of now."""
        return any(max(self.offset[i] for i in topics) > limit for limit, topics in self.stamps_read)

    def speeds(self) -> Reason:
        """A velocity, which efforts are made or judged by, or a collision is told by, that is not how the position
        changes."""
        position, velocity = self.moving
        if not velocity:
            return NOTHING
        worst = float(np.max(np.abs(self.apart)))
        if worst <= self.may_differ:
            return NOTHING
        return "speeds", (f"{position}[{int(np.argmax(np.abs(self.apart)))}] has moved by {worst:.3f} rad more or less "
                          f"than {velocity} says, {self.may_differ:g} rad is allowed")

    def stamps(self, read: bool = False) -> Reason:
        """Stamps against the wall clock of this machine; ``read``: of topics that the profile reads."""
        for limit, topics in self.stamps_read if read else self.stamps_within:
            off = max((self.offset[i] for i in topics), key=abs)
            if not abs(off) <= limit:
                way = "before" if off > 0 else "after"
                return "stamps", (f"a state was stamped {abs(off):.3f} s {way} it arrived, {limit:g} s is allowed: it "
                                  "is old, or the clocks differ")
        return NOTHING

    def frozen(self, now: float) -> Reason:
        """Signals that do not change any more, though messages come."""
        rule = self.profile.frozen
        if rule is None or any(now - self.changed.get(name, now) <= rule.after_s for name in rule.signals):
            return NOTHING
        return "frozen", f"{', '.join(rule.signals)} did not change in any bit for {rule.after_s:g} s"

    def tracking(self, now: float, sent: np.ndarray | None) -> Reason:
        """The robot is behind its command for too long."""
        rule = self.profile.tracking
        measured = self.values.get(rule.signal) if rule else None
        if rule is None or sent is None or measured is None:
            return NOTHING
        text = shield.behind(sent[: measured.size], measured.reshape(-1), rule.error)
        self.behind_since = min(self.behind_since, now) if text else inf
        return ("tracking", f"for {rule.after_s:g} s {text}") if now - self.behind_since > rule.after_s else NOTHING

    def fence(self) -> Reason:
        """A position outside its box."""
        rule = self.profile.geofence
        if rule is None or rule.signal not in self.values:
            return NOTHING
        text = shield.outside(self.values[rule.signal], rule.low, rule.high)
        return ("fence", text) if text else NOTHING

    def unrest(self) -> Reason:
        """Speeds and efforts begin where the robot rests: nobody measures where they are 0 but by that."""
        rule = self.profile.start
        if rule is None or not rule.rests:
            return NOTHING
        speed, below = np.abs(self.values[rule.rests].reshape(-1)), np.asarray(rule.below)
        i = int(np.argmax(speed - below))
        return NOTHING if speed[i] <= below[i] else (
            "start", f"{rule.rests}[{i}] is {speed[i]:.3f}, {below[i]:g} at most is allowed: the robot must rest first")

    def start(self, command: np.ndarray, now: float) -> Reason:
        """The first command [A] against where the robot is. It must rest there: an earlier guard may have left it in
        motion, and what begins at rest would be a jolt."""
        rule = self.profile.start
        if rule is None:
            return NOTHING
        measured = self.values[rule.signal].reshape(-1)
        if now - self.rests_since < REST_S:
            return "start", f"{rule.signal} is still moving: it must have rested for {REST_S:g} s"
        text = shield.behind(command[: measured.size], measured, rule.within)
        return ("start", f"the first command is too far from where the robot is: {text}") if text else NOTHING


def grouped(limits: Iterable[tuple[float | None, int]]) -> list[tuple[float, list[int]]]:
    """The topics of each limit; None: they have none."""
    out: dict[float, list[int]] = {}
    for limit, topic in limits:
        if limit is not None:
            out.setdefault(limit, []).append(topic)
    return list(out.items())


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the values are equal; 0 and -0 are."""
    return bool(a.tolist() == b.tolist() if a.size <= FEW else np.array_equal(a, b))


def angle(a: Sequence[float], b: Sequence[float]) -> float:
    """Between two attitudes (unit quaternions, of either sign) [rad]."""
    return 2.0 * acos(min(abs(sum(x * y for x, y in zip(a, b, strict=True))), 1.0))
