"""Samples of topics with times of their own, put on the grid of the control rate. numpy only; G grid points.

What lies between two samples is interpolated by the rule of its signal, which goes into the set's metadata:

- ``linear``: numbers that change continuously.
- ``slerp``: unit quaternions, the short way round.
- ``hold``: the newest sample at or before: switches, whole numbers, and all commands.
- ``nearest``: pictures.

Nothing is made up across a gap: a grid point is *lost* where the samples around it are further apart than the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.samples.times import HOLD_PERIODS, Times, held_by, hold_s

LINEAR, SLERP, HOLD, NEAREST = "linear", "slerp", "hold", "nearest"
RULES = (LINEAR, SLERP, HOLD, NEAREST)
SPLIT, REFUSE = "split", "refuse"
SLACK = 1e-6
"""Of a period: a sample that rounding puts so little behind its grid point counts as there."""


@dataclass(frozen=True)
class Alignment:
    """How samples get on the grid.

    Args:
        rate_hz: of the grid.
        rules: by signal, one of :data:`RULES`; others have :func:`rule_of`.
        gap_s: longest time between two samples that is bridged; None: three periods of the topic, and at least one of
            the grid and ``floor_s``.
        floor_s: what is bridged in any case, unless ``gap_s`` says otherwise: the age of a state at which the robot's
            guard stops.
        gaps: a longer one splits the episode, or refuses it.
        shortest_s: parts of an episode that are shorter are left out.
    """

    rate_hz: float
    rules: dict[str, str] = field(default_factory=dict)
    gap_s: float | None = None
    floor_s: float = 0.0
    gaps: str = SPLIT
    shortest_s: float = 0.5

    @property
    def period(self) -> float:
        """Of the grid [s]."""
        return 1.0 / self.rate_hz

    def limit(self, times: Times, latched: bool) -> float:
        """How far two samples of a topic may be apart [s]."""
        if latched:
            return np.inf
        return self.gap_s if self.gap_s is not None else max(hold_s(times), self.period, self.floor_s)

    def stated(self) -> str:
        """The limit in words."""
        return f"{self.gap_s:g} s" if self.gap_s is not None else (
            f"{HOLD_PERIODS:g} periods of the topic, at least {max(self.period, self.floor_s):g} s")


def rule_of(spec: SignalSpec, picture: bool) -> str:
    """The rule of a signal for which none is given."""
    if picture:
        return NEAREST
    if np.dtype(spec.dtype).kind != "f":
        return HOLD
    return SLERP if spec.unit in ("wxyz", "xyzw") else LINEAR


def check_rules(rules: dict[str, str], specs: dict[str, SignalSpec], pictures: set[str]) -> None:
    """Given rules are of signals that there are, and can be applied to them."""
    for name, rule in rules.items():
        if name not in specs:
            raise DataError(f"no signal {name!r} is imported; there are: {', '.join(specs)}")
        legal = (NEAREST, HOLD) if name in pictures else RULES if specs[name].shape == (4,) else (LINEAR, HOLD, NEAREST)
        if rule not in legal:
            raise DataError(f"signal {name}: interpolation {rule!r}; legal: {', '.join(legal)}")


@dataclass(frozen=True)
class Places:
    """Between which samples each grid point lies.

    Args:
        before, after: [G] numbers of samples; where a rule takes one sample, both are that.
        share: [G] how far the point is on the way from one to the other, 0 to 1.
        lost: [G] whether the samples are too far apart, or there is none.
    """

    before: np.ndarray
    after: np.ndarray
    share: np.ndarray
    lost: np.ndarray


def places(grid: Times, times: Times, rule: str, limit: float, slack: float) -> Places:
    """Where the points of ``grid`` [G] lie among samples at ``times`` [T], increasing; ``slack`` in seconds."""
    if not len(times):
        none = np.zeros(len(grid), int)
        return Places(none, none, np.zeros(len(grid)), np.ones(len(grid), bool))
    newest = held_by(grid, times, slack)
    before = np.maximum(newest, 0)
    after = np.minimum(newest + 1, len(times) - 1)
    span = times[after] - times[before]
    since = grid - times[before]
    if rule == HOLD:
        return Places(before, before, np.zeros(len(grid)), (newest < 0) | (since > limit + slack))
    share = np.clip(np.divide(since, span, out=np.zeros(len(grid)), where=span > 0), 0.0, 1.0)
    if rule == NEAREST:
        nearest = np.where(share > 0.5, after, before)
        return Places(nearest, nearest, np.zeros(len(grid)), np.abs(grid - times[nearest]) > limit + slack)
    exact = np.abs(since) <= slack
    outside = ((newest < 0) | (newest == len(times) - 1)) & ~exact
    return Places(before, np.where(exact, before, after), np.where(exact, 0.0, share),
                  outside | ((span > limit + slack) & ~exact))


def interpolated(before: np.ndarray, after: np.ndarray, share: np.ndarray, rule: str) -> np.ndarray:
    """[G, *shape] between samples ``before`` and ``after`` [G, *shape]."""
    if rule in (HOLD, NEAREST):
        return before
    weight = share.reshape(-1, *(1,) * (before.ndim - 1))
    if rule == LINEAR:
        return np.asarray(before + weight * (after - before))
    return slerp(before, after, share)


def slerp(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Spherical interpolation of unit quaternions [G, 4], the short way round (Shoemake 1985, eq. for Slerp)."""
    a, b = (q / np.linalg.norm(q, axis=-1, keepdims=True) for q in (a, b))
    cosine = np.sum(a * b, axis=-1)
    b = np.where(cosine[:, None] < 0, -b, b)
    angle = np.arccos(np.clip(np.abs(cosine), 0.0, 1.0))
    small = angle < 1e-4  # there a straight line is the arc to float32
    sine = np.where(small, 1.0, np.sin(angle))
    left = np.where(small, 1.0 - share, np.sin((1.0 - share) * angle) / sine)
    right = np.where(small, share, np.sin(share * angle) / sine)
    out = left[:, None] * a + right[:, None] * b
    return np.asarray(out / np.linalg.norm(out, axis=-1, keepdims=True))


def runs(lost: np.ndarray, without: np.ndarray) -> list[slice]:
    """The samples in a row of which none is ``lost`` [G] and each but the last has its command (``without`` [G]: it has
    none): two samples at least."""
    linked = ~(lost[:-1] | lost[1:] | without[:-1])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], linked.astype(np.int8), [0]])))
    return [slice(int(start), int(end) + 1) for start, end in zip(edges[::2], edges[1::2])]
