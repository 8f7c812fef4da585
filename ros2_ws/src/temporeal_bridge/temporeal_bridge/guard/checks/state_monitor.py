"""What the guard sees of the robot: is the state fresh, is it alive, is it where it may be, does it follow?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import atan2, exp, hypot, inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.signals import FEW
from temporeal_bridge.guard.readings import STANDS, Lately, Readings
from temporeal_bridge.guard.safety import Agree, Profile

Reason = tuple[str, str]
"""Code (see :data:`temporeal_bridge.guard.safety.CODES`) and text; ("", ""): nothing is wrong."""
NOTHING: Reason = ("", "")
GAP_S = 0.1  # between samples that are farther apart a robot may go farther: as much more as the time is longer
CLOCK_SET_S = 1.0  # so much later than ever no state comes that is not old anyway: its clock was set. Chosen
LOST = 1.5  # periods between samples from which on one was lost
DRIFT = 1e-3  # s/s: clocks drift apart, and are slewed, by less. Chosen
REST_S = 0.05  # so long a robot must have rested before it is started
STOOD_S = 1.0  # so long it is remembered how far a place that stands in every bit went by its rate: what a gyro is off
# by, less than 0.05 rad/s, is no turn. Chosen
NOW_S, NOW_SAMPLES = 0.05, 3.0  # a hand's place is of now that is not older, in s or in periods of its topic. Chosen
STILL_M_S, STILL_RAD_S, UPRIGHT = 0.05, 0.3, 0.996  # who stands on the ground says that it is slower, and at least so
# upright (cosine of 5 degrees). Chosen: two to ten times what velocity and gyro are off by
RESTS = 0.2  # of what the first command may be off: it rests while it moves less


class Pair:
    """A place [B], or an attitude, and its rate. ``apart`` [B]: how much farther it has gone of late than the rate
    says; ``stood`` [B]: how far it went by the rate since it last changed in any bit; both in the place's unit, of an
    attitude [3] in rad about the body's axes. Plain numbers: it is fed with every state."""

    def __init__(self, rule: Agree) -> None:
        self.rule = rule
        self.place, self.rate = list[float](), list[float]()
        self.placed_at = self.rated_at = self.until = -inf  # until: up to when the rate is in ``way``
        self.way, self.apart, self.stood = list[float](), list[float](), list[float]()
        self.differs = self.stands = False  # whether it is too far apart; whether it stands, though it goes by its rate
        self.lied = False  # whether it did one of these in this mission

    @property
    def still(self) -> bool:
        """Whether what it says is said of a robot that stands on the ground."""
        if not self.rule.turns:
            return bool(self.rate) and largest(self.rate) < STILL_M_S
        return bool(self.place) and largest(self.rate) < STILL_RAD_S and (
            1.0 - 2.0 * (self.place[1] ** 2 + self.place[2] ** 2) > UPRIGHT)

    def forget(self) -> None:
        """After a gap nobody knows."""
        none = [0.0] * len(self.rate)
        self.way, self.apart, self.stood = none, none, none
        self.differs = self.stands = False

    def rated(self, rate: list[float], now: float) -> None:
        """How fast it is: [B] or, about the body's axes, [3]. Between two of these it changed evenly."""
        since = now - self.rated_at
        if not 0.0 <= since <= GAP_S:  # before the last: a clock was set
            self.placed_at, self.way = -inf, [0.0] * len(rate)
        else:
            half, rest = 0.5 * since, now - self.until
            self.way = [w + half * (new - old) + rest * old for w, new, old in zip(self.way, rate, self.rate)]
        self.rate, self.rated_at, self.until = rate, now, now

    def placed(self, place: list[float], now: float) -> None:
        """Where it is: [B], or a unit quaternion."""
        before, since = self.place, now - self.placed_at
        self.place, self.placed_at = place, now
        if not 0.0 <= since <= GAP_S or abs(now - self.rated_at) > GAP_S:
            return self.forget()
        rest, self.until = now - self.until, now
        way = [w + rest * r for w, r in zip(self.way, self.rate)]
        self.way = [0.0] * len(way)
        went = turn(before, place) if self.rule.turns else [b - a for a, b in zip(before, place)]
        kept = exp(-since / self.rule.forgotten_s)
        self.apart = [kept * a + x - w for a, x, w in zip(self.apart, went, way)]
        self.differs = largest(self.apart) > self.rule.within
        if place == before:
            kept = exp(-since / STOOD_S)
            self.stood = [kept * s + w for s, w in zip(self.stood, way)]
            self.stands = largest(self.stood) > self.rule.stands
        else:
            self.stood, self.stands = self.way, False
        self.lied = self.lied or self.differs or self.stands


class Watch:
    """Fed with every state message; :meth:`reason` says what is wrong now.

    Args:
        profile: what is demanded, of each topic what :meth:`temporeal_bridge.guard.safety.Profile.age` says.
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
        self.soonest = [inf] * len(rates_hz)  # the least of late by the monotonic clock, of earlier missions, too
        self.lately = [Lately() for _ in rates_hz]  # the same, of the last seconds
        self.values: dict[str, np.ndarray] = {}
        self.pairs = [Pair(rule) for rule in profile.moving]
        self.rate_of = {rule.place: rule.rate for rule in profile.moving if not rule.turns}
        self.alive, self.each = (profile.frozen.signals, profile.frozen.each) if profile.frozen else ((), ())
        self.rates = frozenset(pair.rule.rate for pair in self.pairs)
        self.attitudes = tuple(pair.rule.place for pair in self.pairs if pair.rule.turns)
        self.restless = {*self.alive, *self.each, *self.attitudes}
        joints = profile.fingers
        self.readings = None if joints is None else Readings(joints.said, joints.parts)
        # by topic that is read, how old a place of now is at most, and the longest of that [s]
        self.longest = {i: max(NOW_S, NOW_SAMPLES / self.rates_hz[i]) for _, topics in self.stale_read for i in topics}
        self.now_s = max(self.longest.values(), default=NOW_S)
        # of a hand: what leapt a moment ago, when, from where, and which pairs had lied before
        self.was: dict[str, tuple[float, np.ndarray, list[bool]]] = {}
        self.changed: dict[str, float] = {}  # when one of those last differed from before
        self.jumped: Reason = NOTHING
        self.leapt: set[str] = set()  # signals that jumped in this mission
        self.grounded = False  # whether what was sent in this mission has not lifted it: place and attitude may stand
        self.upright = True  # whether the attitude neither jumped nor lied in this mission
        self.behind_since = inf
        self.place: np.ndarray | None = None  # where a robot rests that has a rule for its start
        self.seen_since = self.rests_since = inf

    def begin(self, now: float) -> None:
        """A mission begins: what was before it is forgiven."""
        self.jumped, self.behind_since, self.upright = NOTHING, inf, True
        self.leapt.clear()
        self.was.clear()
        for pair in self.pairs:
            pair.forget()
            pair.lied = False
        self.least = list(zip(self.offset, self.beside))
        self.changed = dict.fromkeys(self.changed, now)

    def lift(self, now: float) -> None:
        """It was sent what has lifted it: from now on place and attitude must change."""
        self.grounded = False
        self.changed.update((name, now) for name in self.alive if name in self.changed)

    def take(self, topic: int, stamp_ns: int, signals: Mapping[str, np.ndarray], now: float, wall_ns: int) -> None:
        """A message of state topic number ``topic`` (repetitions are dropped by
        :class:`~temporeal_bridge.interface.state_input.StateInput`)."""
        for name, value in signals.items():
            before = self.values.get(name)
            if name in self.restless and (before is None or not same(before, value)):
                self.changed[name] = now
            limit = (self.profile.jump or {}).get(name)
            if limit is not None and before is not None:
                self._leap(name, before, value, self._farthest(name, limit, topic, now - self.at[topic]), now)
            if self.readings is not None and before is not None and name in self.readings.names:
                self.readings.seen(before, value, now)
            self.values[name] = value
            if self.profile.start is not None and name == self.profile.start.signal:
                self._rest(np.reshape(value, -1), now)
        gone = DRIFT * (now - self.at[topic]) if self.at[topic] > -inf else 0.0
        self.at[topic] = now
        self.offset[topic] = 1e-9 * (wall_ns - stamp_ns) if stamp_ns else 0.0
        self.beside[topic] = now - 1e-9 * stamp_ns if stamp_ns else 0.0
        wall, beside = self.least[topic]
        self.least[topic] = (min(wall + gone, self.offset[topic]), min(beside + gone, self.beside[topic]))
        soonest = min(self.soonest[topic] + gone, self.beside[topic])
        self.soonest[topic] = soonest if self.beside[topic] - soonest < CLOCK_SET_S else self.beside[topic]
        sampled = now - (self.beside[topic] - self.lately[topic].least(self.beside[topic], now))
        for pair in self.pairs:
            self._compare(pair, signals, sampled)

    def _farthest(self, name: str, limit: float, topic: int, gap: float) -> float:
        """How far a signal may go over a ``gap`` [s], if ``limit`` is the most from one sample to the next: a place as
        much more as its rate says, and after GAP_S farther still, a velocity with each sample that was lost, for it
        changes in milliseconds. Not so an attitude: one that comes back turned may be that of other markers, and to be
        blind for no reason is less harm than to turn by it."""
        if name in self.profile.attitudes:
            return limit
        if name in self.profile.velocities:
            samples = gap * self.rates_hz[topic]
            return limit * (samples if samples > LOST else 1.0)
        rate = self.values.get(self.rate_of.get(name, ""))
        return limit * max(gap / GAP_S, 1.0) + (0.0 if rate is None else gap * largest(rate.ravel().tolist()))

    def _leap(self, name: str, before: np.ndarray, value: np.ndarray, most: float, now: float) -> None:
        """Is it farther from one sample to the next than ``most``, which the robot can go? What a hand
        says that is soon back was one sample that was garbled: it says where its fingers are."""
        turns = name in self.profile.attitudes
        a, b = before.ravel().tolist(), value.ravel().tolist()
        change = hypot(*turn(a, b)) if turns else max(abs(x - y) for x, y in zip(a, b, strict=True))
        if change > most:
            if self.readings is not None and name not in self.leapt:
                self.was[name] = now, before, [pair.lied for pair in self.pairs]
            how = "turned" if turns else "jumped"
            self.jumped = ("jump", f"{name} {how} by {change:.3g}, {most:g} is the most from one sample to the next")
            self.leapt.add(name)
            self.upright = self.upright and not turns
        if self.was and name in self.was and now > self.was[name][0]:
            since, place, lied = self.was[name]
            back = largest((value - place).ravel().tolist()) <= most
            if back or now - since > GAP_S:
                del self.was[name]
            if back and now - since <= GAP_S:
                self.leapt.discard(name)
                for pair, before_it in zip(self.pairs, lied):
                    if pair.rule.place == name:
                        pair.lied, pair.placed_at = before_it, -inf  # nor is it compared with the garbled one

    def _rest(self, value: np.ndarray, now: float) -> None:
        """Since when the robot is where it is."""
        assert self.profile.start is not None
        self.seen_since = min(self.seen_since, now)
        if self.place is None or any(abs(a - b) > RESTS * far for a, b, far in zip(
                value.tolist(), self.place.tolist(), self.profile.start.within, strict=True)):
            self.place, self.rests_since = value, now

    def _compare(self, pair: Pair, signals: Mapping[str, np.ndarray], sampled: float) -> None:
        """Does a place change as its rate says? The rate of the same message comes first. ``sampled`` [s, monotonic]:
        when both were, for what waited on the way comes in a heap."""
        rule = pair.rule
        if rule.rate in signals:
            pair.rated(signals[rule.rate].ravel().tolist(), sampled)
        if rule.place in signals:
            pair.placed(signals[rule.place].ravel().tolist(), sampled)
            self.upright = self.upright and not (rule.turns and pair.lied)

    @property
    def lied(self) -> bool:
        """Whether a place was not how its rate says, in this mission."""
        return any(pair.lied for pair in self.pairs)

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
        checks = (self.stale(now), self.stamps(), self.overdue(), self.frozen(now), self.jumped,
                  self.tracking(now, sent), self.fence(), self.speeds())
        for found in checks:
            if found != NOTHING:
                return found
        return NOTHING

    @property
    def believed(self) -> Mapping[str, np.ndarray]:
        """The newest signals, without velocities that jumped in this mission."""
        return {name: value for name, value in self.values.items() if name not in self.leapt} if (
            self.leapt & self.profile.velocities) else self.values

    def sound(self, now: float, stands: bool = False) -> bool:
        """Whether nothing speaks against what a fresh state says of places: they are alive, of now, did not jump, and
        are of one mind with their rates. A velocity that jumped is no reason to distrust them (:attr:`believed` has it
        no more). What only an attitude's rate does is not asked; with ``stands``, nor whether they are alive."""
        return self.stamps(read=True) == NOTHING and self.leapt <= self.profile.velocities and (
            stands or not self._stand(self.alive, now)) and not any(
            pair.lied for pair in self.pairs if not (pair.rule.turns or pair.rule.rate in self.leapt))

    def whereabouts(self, now: float) -> tuple[list[bool] | None, str]:
        """By joint, whether its measured place may be an old one, or None where the robot may not be led to it at all;
        and why. Of what is no hand a place that is sound is none. See :mod:`temporeal_bridge.guard.hold`."""
        readings = self.readings
        if not self.sound(now, stands=readings is not None):
            return None, self._unsound(now)
        if readings is None:
            return [], ""
        longest = self.longest
        topics = list(longest)
        old = {i: now - self.at[i] + max(self.offset[i], self.late(i), self.beside[i] - self.soonest[i])
               for i in topics}
        oldest = max(topics, key=lambda i: old[i] / longest[i], default=None)
        if oldest is not None and old[oldest] > longest[oldest]:
            return [True] * readings.components, f"what is said of it may be {old[oldest]:.2f} s old"
        return self._stood(now), "it stood while it was told to move"

    def _stood(self, now: float) -> list[bool]:
        """By joint of a hand, whether its place may be an old one, for it stood."""
        if self.readings is None:
            return []
        place = self.values[self.profile.place].ravel().tolist() if self.profile.place else []
        return self.readings.stood(now, self.now_s, place)

    def _unsound(self, now: float) -> str:
        """Why nobody may be led to the measured place."""
        stale, stamps = self.stale(now, read=True), self.stamps(read=True)
        return next((reason for _, reason in (stale, stamps, self.jumped, self.frozen(now), self.speeds()) if reason),
                    "what is said of it is not to be believed")

    def silent(self, now: float) -> float:
        """For how long [s] the robot has said nothing of what the profile reads."""
        read = [i for _, topics in self.stale_read or self.stale_after for i in topics]
        return now - max((self.at[i] for i in read), default=now)

    def sees_attitude(self, now: float) -> bool:
        """Whether a robot may be turned by the attitude that it says: alive, without a leap, as its rate says, and of
        now. By one that stands, or that comes late, it would be turned over. Where its rate stands, it must change.
        On the ground it may stand with the place (:meth:`rests`): should that be in the air after all, its rate shows
        the first turn that is made by it, and it has lied."""
        if not self.upright or self.overdue(read=True) != NOTHING or (
                self._stand(self.alive, now) and not self.rests(now)):
            return False
        dead = any(self._stand((name,), now) for name in self.each)
        return not dead or (bool(self.attitudes) and not self._stand(self.attitudes, now))

    def rests(self, now: float) -> bool:
        """Whether everything says of a robot that has a velocity and an attitude that it stands on the ground: no
        speed, upright, and no turn by rates that are alive."""
        return {pair.rule.turns for pair in self.pairs} == {False, True} and self.leapt.isdisjoint(self.rates) and (
            all(pair.still for pair in self.pairs) and not any(self._stand((name,), now) for name in self.each))

    def overdue(self, read: bool = False) -> Reason:
        """A topic comes as much later than before as its state may be old; ``read``: one that the profile reads."""
        for limit, topics in self.stale_read if read else self.stale_after:
            late = max(self.late(i) for i in topics)
            if late >= limit:
                return "stale", (f"a state came {late:.3f} s later after its stamp than those before it, less than "
                                 f"{limit:g} s is allowed: it waited on the way, or its clock is being set")
        return NOTHING

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
        """A rate that is not how its place changes."""
        for pair in self.pairs:
            if pair.differs:
                rule, worst = pair.rule, largest(pair.apart)
                index = [abs(x) for x in pair.apart].index(worst)
                way = f" has turned about axis {index}" if rule.turns else f"[{index}] has moved"
                return "speeds", (f"{rule.place}{way} by {worst:.3f} {rule.of} more or less than {rule.rate} says, "
                                  f"{rule.within:g} {rule.of} is allowed")
        return NOTHING

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
        """Signals that do not change any more, though messages come, or though they say how fast they change. Before
        it was lifted, place and attitude may stand, where their rates say that they do not change."""
        for names in (() if self.grounded else self.alive, *((name,) for name in self.each)):
            if self._stand(names, now):
                assert self.profile.frozen is not None
                return "frozen", f"{', '.join(names)} did not change in any bit for {self.profile.frozen.after_s:g} s"
        for pair in self.pairs:
            if pair.stands:
                rule = pair.rule
                return "frozen", (f"{rule.place} did not change in any bit, though by {rule.rate} it went "
                                  f"{largest(pair.stood):.3f} {rule.of}, {rule.stands:g} {rule.of} is allowed")
        return NOTHING

    def _stand(self, names: Sequence[str], now: float) -> bool:
        """Whether none of the signals, of which there are some, has changed for as long as they may stand."""
        rule = self.profile.frozen
        return rule is not None and bool(names) and all(
            now - self.changed.get(name, now) > rule.after_s for name in names)

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
        doubted = np.flatnonzero(self._stood(now)).tolist()
        if doubted:
            return "start", (f"{rule.signal}{doubted} stood while the command moved by more than {STANDS:g}: it may be "
                             "an old place, and to begin there a leap; a finger that rests on something: mission/stop "
                             "lets go, then mission/reset; else see to that motor")
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


def largest(values: Sequence[float]) -> float:
    """The largest absolute value; of none 0."""
    return max(max(values), -min(values)) if values else 0.0


def turn(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """From one attitude to another (unit quaternions wxyz, of either sign): rotation vector [3] rad, body frame."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a, b
    w = aw * bw + ax * bx + ay * by + az * bz
    x = aw * bx - ax * bw - ay * bz + az * by
    y = aw * by + ax * bz - ay * bw - az * bx
    z = aw * bz - ax * by + ay * bx - az * bw
    sine = hypot(x, y, z)
    scale = 2.0 * atan2(sine, abs(w)) / sine if sine else 0.0
    scale = scale if w >= 0 else -scale
    return [scale * x, scale * y, scale * z]
