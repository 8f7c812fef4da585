"""Whether a position, or an attitude, changes as its measured rate says."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, exp, hypot, inf

from temporeal_bridge.guard.safety.profile import GAP_S, Agree

STOOD_S = 1.0  # time constant with which the integrated rate of a bit-identical place is forgotten: a gyro's bias, less
# than 0.05 rad/s, is no rotation. Chosen
STILL_M_S, STILL_RAD_S, UPRIGHT = 0.05, 0.3, 0.996  # a robot on the ground is slower than these and more upright
# (cosine of 5 degrees). Chosen: two to ten times the errors of velocity and gyro


class RatePair:
    """A place [B], or an attitude, and its rate. Plain numbers, because it is fed with every state.

    Attributes:
        apart: recent change of the place minus the integrated rate, in the place's unit; of an attitude [3] in rad
            about the body's axes.
        stood: integrated rate since the place last changed in any bit; the same unit.
        differs, stands: whether ``apart`` is too large; whether ``stood`` is.
        disagreed: whether one of these was true in this mission.
    """

    def __init__(self, rule: Agree) -> None:
        self.rule = rule
        self.place, self.rate = list[float](), list[float]()
        self.placed_at = self.rated_at = self.until = -inf  # until: up to when the rate is integrated in ``way``
        self.way, self.apart, self.stood = list[float](), list[float](), list[float]()
        self.differs = self.stands = False
        self.disagreed = False

    @property
    def still(self) -> bool:
        """Whether it fits a robot that stands on the ground."""
        if not self.rule.turns:
            return bool(self.rate) and largest(self.rate) < STILL_M_S
        return bool(self.place) and largest(self.rate) < STILL_RAD_S and (
            1.0 - 2.0 * (self.place[1] ** 2 + self.place[2] ** 2) > UPRIGHT)

    def forget(self) -> None:
        """Begin anew, after a gap."""
        none = [0.0] * len(self.rate)
        self.way, self.apart, self.stood = none, none, none
        self.differs = self.stands = False

    def rated(self, rate: list[float], now: float) -> None:
        """A rate [B], or [3] about the body's axes. Between samples it changes linearly."""
        since = now - self.rated_at
        if not 0.0 <= since <= GAP_S:  # a gap, or a clock that was set back
            self.placed_at, self.way = -inf, [0.0] * len(rate)
        else:
            half, rest = 0.5 * since, now - self.until
            self.way = [w + half * (new - old) + rest * old for w, new, old in zip(self.way, rate, self.rate)]
        self.rate, self.rated_at, self.until = rate, now, now

    def placed(self, place: list[float], now: float) -> None:
        """A place [B], or a unit quaternion."""
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
        self.disagreed = self.disagreed or self.differs or self.stands

    def difference(self) -> str:
        """In words, how far place and rate are apart."""
        rule, worst = self.rule, largest(self.apart)
        index = [abs(x) for x in self.apart].index(worst)
        way = f" has turned about axis {index}" if rule.turns else f"[{index}] has moved"
        return (f"{rule.place}{way} by {worst:.3f} {rule.of} more or less than {rule.rate} says, "
                f"{rule.within:g} {rule.of} is allowed")

    def standstill(self) -> str:
        """In words, how far the place should have changed while it was bit-identical."""
        rule = self.rule
        return (f"{rule.place} did not change in any bit, though by {rule.rate} it went "
                f"{largest(self.stood):.3f} {rule.of}, {rule.stands:g} {rule.of} is allowed")


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
