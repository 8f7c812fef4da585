"""What thrust the rotors should give, from the commands that the guard has sent. numpy only, for N robots at once.

A rotor's normalized speed n follows its setpoint with a first-order lag, and gives c0 + c1 n + c2 n^2, as in the
simulator (:mod:`temporeal.sim.physics.quadrotor.dynamics`). A commanded collective thrust becomes four equal setpoints:
what the rate loop adds to one pair of rotors and takes from the other is left out.

Three rotors are computed side by side: with the lag and delay that are taken to be true, and with the shortest and the
longest that may be. How far the last two are apart says how little is known in a manoeuvre.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.artifact.additions import DriftSpec

Array = NDArray[np.float64]
GRAVITY = 9.81  # m/s^2

NOMINAL, QUICK, SLOW = 0, 1, 2
TRACKS = (1, 0, 2)  # places in a triple of the artifact, of the three above
MOTORS, COLLECTIVE = "motor_cmd", "ctbr_cmd"
COMMANDS = (MOTORS, COLLECTIVE)


class PredictedThrust:
    """Thrust over mass of N robots, on three tracks.

    Args:
        command: which of :data:`COMMANDS` they are sent.
        count: N.
    """

    def __init__(self, spec: DriftSpec, command: str, count: int = 1) -> None:
        if command not in COMMANDS:
            raise ValueError(f"thrust follows from {' or '.join(COMMANDS)}, got {command!r}")
        self.spec, self.command, self.count = spec, command, count
        self.rotors = 4 if command == MOTORS else 1
        self.up, self.down, self.delay = (
            [triple[k] for k in TRACKS] for triple in (spec.tau_up, spec.tau_down, spec.delay))
        self.per_mass = (4 / self.rotors) / spec.mass
        self.restart()

    def restart(self) -> None:
        """Nothing is known of the rotors until the next command."""
        self.time: float | None = None
        self.waiting: list[deque[tuple[float, Array]]] = [deque() for _ in TRACKS]

    def setpoints(self, command: Array) -> Array:
        """Speeds [N, R] that the rotors are told by ``command`` [N, A]."""
        if self.command == MOTORS:
            return np.clip(command[:, :4], 0.0, 1.0)
        c0, c1, c2 = self.spec.believed_curve
        root = np.sqrt(np.maximum(c1 * c1 + 4 * c2 * (command[:, :1] / 4 - c0), 0.0))
        return np.clip((root - c1) / (2 * c2), 0.0, 1.0)

    def tell(self, at: float, command: Array) -> None:
        """``command`` [N, A] departed ``at`` [s]. With the first one the rotors are taken to turn as it says."""
        told = self.setpoints(np.atleast_2d(np.asarray(command, dtype=float)))
        if self.time is None:
            self.time = at
            self.speed, self.told = ([told.copy() for _ in TRACKS] for _ in range(2))
            return
        for waiting, delay in zip(self.waiting, self.delay):
            waiting.append((at + delay, told))

    def advance(self, until: float) -> Array:
        """Integral of thrust over mass [3, N] from the last call (or the first command) to ``until``, m/s."""
        out = np.zeros((len(TRACKS), self.count))
        if self.time is None or until <= self.time:
            return out
        for k, waiting in enumerate(self.waiting):
            time = self.time
            while waiting and waiting[0][0] <= until:
                at, told = waiting.popleft()
                out[k] += self._turn(k, max(at - time, 0.0))
                time, self.told[k] = max(at, time), told
            out[k] += self._turn(k, until - time)
        self.time = until
        return out

    def _turn(self, k: int, seconds: float) -> Array:
        """Track ``k`` under its setpoints for ``seconds``: exact speeds, thrust integrated by Simpson's rule, [N]."""
        begin, told = self.speed[k], self.told[k]
        rate = np.where(told > begin, 1.0 / self.up[k], 1.0 / self.down[k])
        middle, end = (told + (begin - told) * np.exp(-rate * share * seconds) for share in (0.5, 1.0))
        self.speed[k] = end
        total: Array = seconds / 6 * (self._thrust(begin) + 4 * self._thrust(middle) + self._thrust(end))
        return total

    def _thrust(self, speed: Array) -> Array:
        """Thrust over mass [N] of rotors at ``speed`` [N, R], m/s^2."""
        c0, c1, c2 = self.spec.thrust_curve
        return self.per_mass * np.asarray((c0 + speed * (c1 + speed * c2)).sum(axis=-1))
