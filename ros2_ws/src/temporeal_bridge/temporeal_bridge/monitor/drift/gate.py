"""Which intervals of a flight can be compared with a prediction. The others are left out, and the tests are silent.

Left out: before the mission and after it; near the ground (contact, ground effect); with motors near idle, where the
thrust curve is not known; where the guard sent something else than the policy asked for, or a command of its own; where
commands or states are missing; and until the rotors' speeds follow from commands that are known again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.thrust import GRAVITY, NOMINAL, Array

CLEAR_M = 0.15  # above the ground, m: the ground is felt up to some five radii of a propeller, 0.12 m of a Crazyflie's
LEAST_SHARE = 0.3  # of g: thrust over mass below which a rotor is near idle. Chosen
SETTLED = 3.0  # time constants after which a rotor's speed is known: 5 % of the error is left
MISSING = 3.0  # periods without a command after which nobody knows what the motors do
CHANGED = 0.02  # of a command's range: what the guard may change of it
LONGEST_S = 0.1  # of an interval between two states


def settling_s(spec: DriftSpec) -> float:
    """Time [s] after which the rotors' speeds follow from the commands alone."""
    return spec.delay[2] + SETTLED * max(spec.tau_up[2], spec.tau_down[2])


def flown(height: Array, thrust: Array, dt: float) -> np.ndarray:
    """Whether robots at ``height`` [N] m with integrals of thrust over mass [3, N] over ``dt`` fly, bool [N]."""
    return np.asarray((height >= CLEAR_M) & (thrust[NOMINAL] >= LEAST_SHARE * GRAVITY * dt))


class CommandGate:
    """Whether the commands of one robot say what its rotors do.

    Args:
        period: s, of commands.
        parts: components of the command of which thrust is made.
        span: range of each of these.
    """

    def __init__(self, spec: DriftSpec, period: float, parts: slice, span: Array) -> None:
        self.settling, self.period, self.parts, self.span = settling_s(spec), period, parts, span
        self.restart()

    def restart(self) -> None:
        """Nothing was sent yet."""
        self.last: float | None = None
        self.from_then = np.inf

    def take(self, at: float, step: int, sent: Sequence[float], proposed: Sequence[float]) -> None:
        """A command that departed ``at`` [s]; ``step`` -1: the guard's own."""
        ours = step >= 0 and bool((np.abs(
            np.asarray(sent, dtype=float)[self.parts] - np.asarray(proposed, dtype=float)[self.parts])
            <= CHANGED * self.span).all())
        late = self.last is None or at - self.last > MISSING * self.period
        if late or not ours:
            self.from_then = at + self.settling
        self.last = at

    def usable(self, begin: float, end: float) -> bool:
        """Whether the rotors' speeds are known from ``begin`` to ``end`` [s]."""
        return self.last is not None and begin >= self.from_then and end - self.last <= MISSING * self.period
