"""Compares what is flown with what was predicted, while it is flown: states, commands and modes in, events out.

Without a bus and without a clock: the caller passes the time. An interval between two states is taken up
:data:`WAIT_S` after its end, when the commands behind it have arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.artifact.additions import DriftSpec
from temporeal.robots.signals import CommandSpec
from temporeal_bridge.mission import CommandRecord, MissionStatus
from temporeal_bridge.monitor.drift import report
from temporeal_bridge.monitor.drift.detector import Detector, Drift
from temporeal_bridge.monitor.drift.gate import LONGEST_S, CommandGate, flown
from temporeal_bridge.monitor.drift.thrust import MOTORS, Array, PredictedThrust

WAIT_S = 0.1
SHORTEST_S = 0.008  # states that come faster are left out: their noise is all that they add
VELOCITY, ATTITUDE, POSITION = "base_vel_w", "base_quat_w", "base_pos_w"
READS = (VELOCITY, ATTITUDE, POSITION)

Read = Callable[[], Mapping[str, np.ndarray] | None]


def up(quat: Array) -> Array:
    """The body's z axis in the world of attitudes [..., 4] wxyz."""
    w, x, y, z = np.moveaxis(np.asarray(quat, dtype=float), -1, 0)
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], -1)


class DriftWatch:
    """The watch of one robot.

    Args:
        announce: gets each event, as :func:`temporeal_bridge.monitor.drift.report.content`.
        rate_hz: of commands.
        paced_by: the state topic whose messages have the velocity; ``carried``: all that have something that is read.
    """

    def __init__(
        self, spec: DriftSpec, command: CommandSpec, rate_hz: float, announce: Callable[[dict[str, Any]], None],
        paced_by: int = 0, carried: tuple[int, ...] = (0,),
    ) -> None:
        self.spec, self.announce, self.paced_by, self.carried = spec, announce, paced_by, carried
        parts = slice(0, 4) if command.name == MOTORS else slice(0, 1)
        span = np.subtract(command.high, command.low)[parts]
        self.thrust, self.gate = PredictedThrust(spec, command.name), CommandGate(spec, 1 / rate_hz, parts, span)
        self.flight, self.start, self.running = -1, 0, False
        self.events: list[dict[str, Any]] = []
        self._restart()

    def _restart(self) -> None:
        self.thrust.restart()
        self.gate.restart()
        self.detector = Detector(self.spec)
        self.commands: deque[CommandRecord] = deque()
        self.states: deque[tuple[float, Mapping[str, np.ndarray]]] = deque()
        self.newest: dict[str, np.ndarray] = {}
        self.before: tuple[float, Mapping[str, np.ndarray]] | None = None
        self.seen = -inf  # the stamp of the newest state, s of the mission

    def on_status(self, status: MissionStatus | None) -> None:
        """The guard's mode: a mission that begins is a flight of its own; one that is over is watched no longer."""
        if status is None:
            return
        same = (status.number, status.start_ns) == (self.flight, self.start)
        if status.mode == "active" and not (same and self.running):
            self.flight, self.start, self.running = status.number, status.start_ns, True
            self._restart()
        elif status.mode != "active":
            self.running = False

    def on_command(self, record: CommandRecord) -> None:
        """A command that the guard has sent."""
        if self.running and record.flight == self.flight:
            self.commands.append(record)

    def on_state(self, topic: int, stamp: int, read: Read) -> None:
        """A message of state topic ``topic`` with its time [ns]."""
        if not self.running or topic not in self.carried:
            return
        at = 1e-9 * (stamp - self.start)
        if topic == self.paced_by and not at >= self.seen + SHORTEST_S:
            return
        signals = read()
        if signals is None:
            return
        self.newest |= {name: signals[name] for name in READS if name in signals}
        if topic == self.paced_by and all(name in self.newest for name in READS):
            self.seen = at
            self.states.append((at, dict(self.newest)))

    def advance(self, now: int) -> None:
        """Take up the intervals that ended :data:`WAIT_S` before ``now`` [ns]."""
        ready = 1e-9 * (now - self.start) - WAIT_S
        while self.running and self.states and self.states[0][0] <= ready:
            at, signals = self.states.popleft()
            for found in self._interval(at, signals):
                event = report.content(found, self.spec, self.flight, self.start)
                self.events.append(event)
                self.announce(event)

    def _interval(self, at: float, signals: Mapping[str, np.ndarray]) -> list[Drift]:
        """From the state before to this one."""
        while self.commands and self.commands[0].left <= at:
            record = self.commands.popleft()
            self.gate.take(record.left, record.step, record.sent, record.proposed)
            self.thrust.tell(record.left, np.asarray(record.sent, dtype=float)[None])
        before, self.before = self.before, (at, signals)
        thrust = self.thrust.advance(at)
        if before is None:
            return []
        begin, last = before
        dt = at - begin
        usable = flown(np.reshape(signals[POSITION], -1)[2:3], thrust, dt)
        usable = usable & (dt <= LONGEST_S) & self.gate.usable(begin, at)
        pairs = [(np.reshape(last[name], (1, -1)), np.reshape(signals[name], (1, -1))) for name in (VELOCITY, ATTITUDE)]
        (velocity, quat) = pairs
        return [found for _, found in self.detector.take(
            at, dt, thrust, velocity, (up(quat[0]), up(quat[1])), usable)]
