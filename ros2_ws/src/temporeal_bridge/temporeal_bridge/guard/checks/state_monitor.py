"""Checks the robot's state: is it fresh, changing and consistent, inside the fence, and following commands?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot, inf

import numpy as np

from temporeal.robots.motion import shield
from temporeal.robots.signals import FEW
from temporeal_bridge.guard.checks.finger_readings import FingerReadings
from temporeal_bridge.guard.checks.freshness import Freshness
from temporeal_bridge.guard.checks.rate_pairs import RatePair, largest, turn
from temporeal_bridge.guard.checks.rest import RestMonitor
from temporeal_bridge.guard.safety.profile import GAP_S, Profile
from temporeal_bridge.guard.safety.reasons import NOTHING, Reason

LOST = 1.5  # periods between samples from which on one was lost


class StateMonitor:
    """Takes every state message; :meth:`reason` names the first violated check. Times are in s, monotonic.

    Args:
        profile: the requirements.
        rates_hz: of the state topics; 0: sent on change.

    Attributes:
        freshness, rest, pairs, readings: parts for arrival times, for rest before the start, for each place and its
            rate, and for the joints of a hand (None: it is none).
        values: the newest signals by name.
        jump, jumped: in this mission, why a signal's change was too large, and the signals concerned.
        grounded: whether no command of this mission has lifted the robot; position and attitude may then be constant.
        attitude_sound: whether the attitude neither jumped nor disagreed with its rate in this mission.
    """

    def __init__(self, profile: Profile, rates_hz: Sequence[float]) -> None:
        self.profile, self.rates_hz = profile, tuple(rates_hz)
        self.freshness = Freshness(profile, rates_hz)
        self.rest = RestMonitor(profile.start)
        self.values: dict[str, np.ndarray] = {}
        self.pairs = [RatePair(rule) for rule in profile.moving]
        self.rate_of = {rule.place: rule.rate for rule in profile.moving if not rule.turns}
        self.together, self.each = (profile.frozen.signals, profile.frozen.each) if profile.frozen else ((), ())
        self.rates = frozenset(pair.rule.rate for pair in self.pairs)
        self.attitudes = tuple(pair.rule.place for pair in self.pairs if pair.rule.turns)
        self.must_change = {*self.together, *self.each, *self.attitudes}
        joints = profile.fingers
        self.readings = None if joints is None else FingerReadings(joints.signals, joints.parts)
        # of a hand's signals that have just jumped: when, from which value, and which pairs disagreed before
        self.before_jump: dict[str, tuple[float, np.ndarray, list[bool]]] = {}
        self.changed: dict[str, float] = {}  # when each of must_change last changed
        self.jump: Reason = NOTHING
        self.jumped: set[str] = set()
        self.grounded = False
        self.attitude_sound = True
        self.behind_since = inf

    def begin(self, now: float) -> None:
        """A mission begins: what was wrong before is forgotten."""
        self.jump, self.behind_since, self.attitude_sound = NOTHING, inf, True
        self.jumped.clear()
        self.before_jump.clear()
        for pair in self.pairs:
            pair.forget()
            pair.disagreed = False
        self.freshness.begin()
        self.changed = dict.fromkeys(self.changed, now)

    def lift(self, now: float) -> None:
        """What was sent has lifted the robot: from now on place and attitude must change."""
        self.grounded = False
        self.changed.update((name, now) for name in self.together if name in self.changed)

    # ---- the state arrives

    def take(self, topic: int, stamp_ns: int, signals: Mapping[str, np.ndarray], now: float, wall_ns: int) -> None:
        """A message of state topic number ``topic`` (:class:`temporeal_bridge.interface.state_input.StateInput` drops
        repetitions)."""
        for name, value in signals.items():
            before = self.values.get(name)
            if name in self.must_change and (before is None or not same(before, value)):
                self.changed[name] = now
            limit = (self.profile.jump or {}).get(name)
            if limit is not None and before is not None:
                self._check_jump(name, before, value, self._farthest(name, limit, topic, now), now)
            if self.readings is not None and before is not None and name in self.readings.names:
                self.readings.seen(before, value, now)
            self.values[name] = value
            if name == self.rest.signal:
                self.rest.take(np.reshape(value, -1), now)
        sampled = self.freshness.take(topic, stamp_ns, now, wall_ns)
        for pair in self.pairs:
            self._compare(pair, signals, sampled)

    def _farthest(self, name: str, limit: float, topic: int, now: float) -> float:
        """The largest change of a signal since its last message, if ``limit`` is the one between two samples.

        A position may also change by its rate times the gap, and by more after GAP_S. A velocity, which changes in
        milliseconds, may change by the limit for each lost sample. An attitude may not: after a gap it may be that of
        other markers, and a false alarm does less harm than a turn to a wrong attitude.
        """
        if name in self.profile.attitudes:
            return limit
        gap = now - self.freshness.at[topic]
        if name in self.profile.velocities:
            samples = gap * self.rates_hz[topic]
            return limit * (samples if samples > LOST else 1.0)
        rate = self.values.get(self.rate_of.get(name, ""))
        return limit * max(gap / GAP_S, 1.0) + (0.0 if rate is None else gap * largest(rate.ravel().tolist()))

    def _check_jump(self, name: str, before: np.ndarray, value: np.ndarray, most: float, now: float) -> None:
        """Record a change by more than ``most``. A hand's signal that soon returns had one wrong sample and stays
        credible."""
        turns = name in self.profile.attitudes
        a, b = before.ravel().tolist(), value.ravel().tolist()
        change = hypot(*turn(a, b)) if turns else max(abs(x - y) for x, y in zip(a, b, strict=True))
        if change > most:
            if self.readings is not None and name not in self.jumped:
                self.before_jump[name] = now, before, [pair.disagreed for pair in self.pairs]
            how = "turned" if turns else "jumped"
            self.jump = ("jump", f"{name} {how} by {change:.3g}, {most:g} is the most from one sample to the next")
            self.jumped.add(name)
            self.attitude_sound = self.attitude_sound and not turns
        if self.before_jump and name in self.before_jump and now > self.before_jump[name][0]:
            self._forgive(name, value, most, now)

    def _forgive(self, name: str, value: np.ndarray, most: float, now: float) -> None:
        """Check whether a hand's signal that jumped has returned."""
        since, place, disagreed = self.before_jump[name]
        back = largest((value - place).ravel().tolist()) <= most
        if back or now - since > GAP_S:
            del self.before_jump[name]
        if back and now - since <= GAP_S:
            self.jumped.discard(name)
            for pair, earlier in zip(self.pairs, disagreed):
                if pair.rule.place == name:
                    pair.disagreed, pair.placed_at = earlier, -inf  # the wrong sample is not compared either

    def _compare(self, pair: RatePair, signals: Mapping[str, np.ndarray], sampled: float) -> None:
        """Compare a position with its rate; of one message the rate comes first.

        ``sampled`` [s, monotonic]: when both were measured; delayed messages arrive together.
        """
        rule = pair.rule
        if rule.rate in signals:
            pair.rated(signals[rule.rate].ravel().tolist(), sampled)
        if rule.place in signals:
            pair.placed(signals[rule.place].ravel().tolist(), sampled)
            self.attitude_sound = self.attitude_sound and not (rule.turns and pair.disagreed)

    # ---- reasons to stop

    def reason(self, now: float, sent: np.ndarray | None) -> Reason:
        """The first violated check, in their order. ``sent``: the last command [A] of this mission."""
        freshness = self.freshness
        checks = (freshness.stale(now), freshness.stamps(), freshness.overdue(), self.frozen(now), self.jump,
                  self.tracking(now, sent), self.fence(), self.speeds())
        for found in checks:
            if found != NOTHING:
                return found
        return NOTHING

    def frozen(self, now: float) -> Reason:
        """Signals no longer change, though messages come, or though their rates say that they change. Before the robot
        was lifted, place and attitude may stand where their rates are 0."""
        for names in (() if self.grounded else self.together, *((name,) for name in self.each)):
            if self._unchanged(names, now):
                assert self.profile.frozen is not None
                return "frozen", f"{', '.join(names)} did not change in any bit for {self.profile.frozen.after_s:g} s"
        for pair in self.pairs:
            if pair.stands:
                return "frozen", pair.standstill()
        return NOTHING

    def _unchanged(self, names: Sequence[str], now: float) -> bool:
        """Whether there are signals, and none has changed for as long as they may stand."""
        rule = self.profile.frozen
        return rule is not None and bool(names) and all(
            now - self.changed.get(name, now) > rule.after_s for name in names)

    def tracking(self, now: float, sent: np.ndarray | None) -> Reason:
        """The robot has been behind its command for too long."""
        rule = self.profile.tracking
        measured = self.values.get(rule.signal) if rule else None
        if rule is None or sent is None or measured is None:
            return NOTHING
        text = shield.behind(sent[: measured.size], measured.reshape(-1), rule.error)
        self.behind_since = min(self.behind_since, now) if text else inf
        return ("tracking", f"for {rule.after_s:g} s {text}") if now - self.behind_since > rule.after_s else NOTHING

    def fence(self) -> Reason:
        """A position is outside its box."""
        rule = self.profile.geofence
        if rule is None or rule.signal not in self.values:
            return NOTHING
        text = shield.outside(self.values[rule.signal], rule.low, rule.high)
        return ("fence", text) if text else NOTHING

    def speeds(self) -> Reason:
        """A place does not change as its rate says."""
        for pair in self.pairs:
            if pair.differs:
                return "speeds", pair.difference()
        return NOTHING

    def far_start(self, command: np.ndarray, now: float) -> Reason:
        """The first command [A] is too far from the robot, which must rest there."""
        doubted = [i for i, doubt in enumerate(self._stood(now)) if doubt]
        return self.rest.distance(command, self.values, now, doubted)

    # ---- what may be believed

    @property
    def disagreed(self) -> bool:
        """Whether a place disagreed with its rate in this mission."""
        return any(pair.disagreed for pair in self.pairs)

    @property
    def credible(self) -> Mapping[str, np.ndarray]:
        """The newest signals without velocities that jumped in this mission."""
        return {name: value for name, value in self.values.items() if name not in self.jumped} if (
            self.jumped & self.profile.velocities) else self.values

    def sound(self, now: float, stands: bool = False) -> bool:
        """Whether the positions of a fresh state are credible: they change, have valid stamps, did not jump, and agree
        with their rates. Not required: a velocity without jumps (:attr:`credible` leaves it out), an attitude that
        agrees with its rate, and, with ``stands``, a change of positions."""
        return self.freshness.stamps(read=True) == NOTHING and self.jumped <= self.profile.velocities and (
            stands or not self._unchanged(self.together, now)) and not any(
            pair.disagreed for pair in self.pairs if not (pair.rule.turns or pair.rule.rate in self.jumped))

    def doubts(self, now: float) -> tuple[list[bool] | None, str]:
        """By joint, whether its measured position may be old, and why; None if the robot must not be sent there at all.
        Empty for robots other than hands. See :mod:`temporeal_bridge.guard.stop_actions.hold`."""
        readings = self.readings
        if not self.sound(now, stands=readings is not None):
            return None, self._unsound(now)
        if readings is None:
            return [], ""
        age = self.freshness.too_old(now)
        if age is not None:
            return [True] * readings.components, f"its measured place may be {age:.2f} s old"
        return self._stood(now), "it stood while its command moved"

    def _stood(self, now: float) -> list[bool]:
        """By joint of a hand, whether its position may be old because it was constant."""
        if self.readings is None:
            return []
        place = self.values[self.profile.place].ravel().tolist() if self.profile.place else []
        return self.readings.stood(now, self.freshness.now_s, place)

    def _unsound(self, now: float) -> str:
        """Why the robot must not be sent to its measured position."""
        stale, stamps = self.freshness.stale(now, read=True), self.freshness.stamps(read=True)
        return next((reason for _, reason in (stale, stamps, self.jump, self.frozen(now), self.speeds()) if reason),
                    "its measured place is not credible")

    def sees_attitude(self, now: float) -> bool:
        """Whether the measured attitude may be used to level the robot: it changes, did not jump, agrees with its rate,
        and is current. A frozen or late attitude would turn the robot over. If its rate is constant, it must change.
        On the ground it may be constant like the position (:meth:`on_ground`): if the robot is airborne after all, the
        rate shows the first rotation, and the attitude disagrees."""
        if not self.attitude_sound or self.freshness.overdue(read=True) != NOTHING or (
                self._unchanged(self.together, now) and not self.on_ground(now)):
            return False
        dead = any(self._unchanged((name,), now) for name in self.each)
        return not dead or (bool(self.attitudes) and not self._unchanged(self.attitudes, now))

    def on_ground(self, now: float) -> bool:
        """Whether the state, with velocity and attitude, is that of a robot at rest on the ground: no speed, upright,
        and no rotation by rates that change."""
        return {pair.rule.turns for pair in self.pairs} == {False, True} and self.jumped.isdisjoint(self.rates) and (
            all(pair.still for pair in self.pairs) and not any(self._unchanged((name,), now) for name in self.each))

    def sees_motion(self, now: float) -> bool:
        """Whether position and velocity may be used to brake speeds and efforts, or to limit the servos' effort: they
        change, did not jump, and agree. A frozen velocity would push the robot. For braking they must be current, for
        limiting servos not old. A servo's velocity that disagreed once is not used again: it may be right at rest and
        wrong in motion."""
        servos = self.profile.effort is not None
        good = not (self.disagreed or self.freshness.old) if servos else self.freshness.stamps(read=True) == NOTHING
        return good and self.frozen(now) == self.jump == self.speeds() == NOTHING


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the values are equal; 0 and -0 are."""
    return bool(a.tolist() == b.tolist() if a.size <= FEW else np.array_equal(a, b))
