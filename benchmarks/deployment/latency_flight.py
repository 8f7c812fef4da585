"""A flight whose latency is measured: a robot at a fixed rate, its commands, and bare pings between them."""

from __future__ import annotations

import os
import struct
import sys
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.bus_peers import ARRAY, STATE
from temporeal_benchmarks.deployment.matched_commands import MatchedCommands
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.priority import load, ordinary
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.process.children import STARTED_BY, Process, how_ended
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received

STAMP = struct.Struct("<iI")
SLOPE, CORNER = 1e-5, 400  # rad a state, states from corner to corner: a triangle that names each state
ATTEMPTS = 8
REMEMBERED = 150  # states before a command among which its own is searched
BACKLOG_S = 20.0  # for messages that wait to be read after a round
READ_S = 0.0004  # to read a message


class Round(NamedTuple):
    """Latencies [s] of the same seconds: from states to commands [M], of bare pings [N], and what of it commands were
    in controller and guard [M, 2], from the state's arrival on and from the proposal's."""

    found: np.ndarray
    bare: np.ndarray
    parts: np.ndarray


class LatencyFlight:
    """A robot's state at ``rate_hz`` and its commands, bare pings between them, and nothing else in this process."""

    def __init__(
        self, artifact: Path, rate_hz: float, out: Path, own: Sequence[str], thinks: Sequence[str] = (),
    ) -> None:
        self.nodes = RobotProcesses(
            artifact, "franka", "forward_position", "joint_pos_cmd", rate_hz, out, self._on_command)
        self.own, self.thinks = own, thinks  # options of guard and controller, of the controller
        self.matched = MatchedCommands(self.nodes.oracle)  # by the guard's own times: this process may be late itself
        self.period = 1 / rate_hz
        row = self.nodes.facts.states[0]
        self.row, self.codec = row, STATE_CODECS[row.codec]
        bus = self.nodes.bus
        self.states = bus.advertise(row.topic, row.type, QOS["default"])
        self.ping = bus.advertise("bare/ping", STATE, QOS["default"])
        bus.subscribe("bare/pong", ARRAY, QOS["deep"], self._on_pong)
        bus.subscribe("guard/command", ARRAY, QOS["deep"], self._on_record)
        self.home = np.array(load_robot("franka").home["joint_pos"])
        self.count = 0
        self.named, self.states_cdr = self._states()
        self.sent_at, self.sent = list[float](), list[float]()  # s; last joint: since it was last forgotten
        # (s, message), to be read: commands, and what the guard records of them
        self.commands, self.records = deque[tuple[float, bytes]](), deque[tuple[float, bytes]]()
        self.arrivals, self.found = list[float](), list[float]()  # of commands; s from the state that each names to it
        self.parts = list[tuple[float, float]]()  # s in the controller and in the guard, by the guard's record
        self.since, self.until = 0.0, np.inf  # what came in between counts
        self.pinged, self.bare = 0.0, list[float]()
        self.began = time.monotonic()
        self.helpers: list[Process] = []
        self.pings = False

    def helper(self, role: str, *options: str) -> Process:
        """A process of :mod:`temporeal_benchmarks.deployment.bus_peers`, with the priority that is in ``options``."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), STARTED_BY: str(os.getpid())}
        module = "temporeal_benchmarks.deployment.bus_peers"
        made = Process([sys.executable, "-m", module, role, *self.nodes.shared(), *options], env=env,
                       start_new_session=True)
        ordinary(made.pid)  # it takes the priority of its options once it has loaded
        made.name = role
        self.helpers.append(made)
        return made

    def echo(self) -> Process:
        """The other end of the bare ping: where guard and controller are, at their priority, as awake as they are."""
        real = os.sched_getscheduler(0) == os.SCHED_FIFO
        return self.helper("echo", *self.own, *(["--priority", "realtime"] if real else []))

    def _on_command(self, received: Received) -> None:
        self.commands.append((received.at, received.data))

    def _on_record(self, received: Received) -> None:
        self.records.append((received.at, received.data))

    def _on_pong(self, received: Received) -> None:
        self.bare.append(received.at - self.pinged)

    def _states(self) -> tuple[list[float], list[bytearray]]:
        """What the last joint says in each state of a round of the triangle, and the messages: encoded beforehand."""
        rng, named, data = np.random.default_rng(0), [], []
        for k in range(2 * CORNER):
            named.append(float(np.float32(self.home[6] + SLOPE * (k if k < CORNER else 2 * CORNER - k))))
            signals = {"joint_pos": np.append(self.home[:6], named[-1]), "joint_vel": 1e-3 * rng.normal(size=7),
                       "joint_torque": rng.normal(size=7)}
            message = self.codec.encode(signals, 0, ("world", "r"), self.row.options)
            data.append(bytearray(messages.encode(STATE, message)))
        return named, data

    def state(self) -> bytes:
        """The next state, stamped now."""
        k = self.count % (2 * CORNER)
        self.count += 1
        STAMP.pack_into(self.states_cdr[k], 4, *divmod(time.time_ns(), 10**9))  # the header comes first
        self.sent_at.append(time.monotonic())
        self.sent.append(self.named[k])
        return bytes(self.states_cdr[k])

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Publish states on time, a ping half a period after each, and take in what comes. Messages are read while
        there is time: a robot that pauses to read is one that has failed."""
        bus = self.nodes.bus
        end, due, pinged = time.monotonic() + seconds, time.monotonic(), True
        while time.monotonic() < end and not until():
            now = time.monotonic()
            if now >= due:
                data = self.state()
                bus.publish(self.states, data)
                due, pinged = max(due + self.period, now), False
            half = due - 0.5 * self.period
            if self.pings and not pinged and now >= half:
                self.pinged, pinged = time.monotonic(), True
                bus.publish(self.ping, data)
            left = min(due, due if pinged or not self.pings else half) - time.monotonic()
            if (self.commands or self.records) and left > READ_S:
                self._read()
                left -= READ_S
            bus.wait(max(left, 0.0))

    def start(self) -> None:
        """Guard and controller, then a mission."""
        self.nodes.start_guarded(self.own, self.thinks)
        self.fly()

    def fly(self) -> None:
        """A mission, past its ramp. On a busy machine the guard may stop it: that counts, and another one begins."""
        for _ in range(ATTEMPTS):
            self.run(60.0, lambda: self.nodes.mode in ("ready", "holding"))
            if self.nodes.mode == "holding":
                self.nodes.publish("mission/reset")
                self.run(60.0, lambda: self.nodes.mode == "ready")
            self.run(0.5)
            self.nodes.number += 1
            self.nodes.publish("mission/start", self.nodes.number)
            self.run(1.5)
            if self.nodes.mode == "active":
                return
        raise RuntimeError(f"no mission lasts: {[event['reason'] for _, event in self.nodes.events]}; {load()}")

    def _read(self) -> None:
        """Read one of the messages that wait; there are as many records as commands."""
        if len(self.records) > len(self.commands):
            return self._read_record(*self.records.popleft())
        at, data = self.commands.popleft()
        self.matched.command(at, data)
        del self.nodes.oracle.trace[:-10]
        self._read_command(at, data)

    def _read_record(self, at: float, data: bytes) -> None:
        """What the guard records of a command."""
        record = self.matched.record(data)
        if self.since <= at <= self.until and record.step >= 0:  # a command of the controller's, not the guard's own
            self.parts.append((record.age, record.left - record.since))

    def _read_command(self, at: float, data: bytes) -> None:
        """How long after the state that it names did a command come?"""
        value = float(messages.decode(ARRAY, data).data[6])
        end = bisect_right(self.sent_at, at)
        near = next((self.sent_at[i] for i in range(end - 1, max(end - REMEMBERED, 0) - 1, -1)
                     if abs(self.sent[i] - value) < 0.3 * SLOPE), None)
        if self.since <= at <= self.until:
            self.arrivals.append(at)
            self.found += [] if near is None else [at - near]

    def judge(self) -> Any:
        """All that came, to the end: the oracle that has read it."""
        while self.commands or self.records:
            self._read()
        self.matched.end()
        return self.nodes.oracle

    def forget(self) -> None:
        """Begin to measure: what came before does not count."""
        del self.sent_at[:-REMEMBERED], self.sent[:-REMEMBERED]
        self.since, self.until = time.monotonic(), np.inf
        self.arrivals, self.found, self.bare, self.parts = [], [], [], []

    def round(self, seconds: float) -> Round:
        """Some seconds of flight with pings. Without one of its helpers it would measure something else."""
        if ended := [how_ended(helper) for helper in self.helpers if helper.poll() is not None]:
            raise RuntimeError("; ".join(ended))
        if self.nodes.mode != "active":
            self.fly()
        self.forget()
        self.pings = True
        self.run(seconds, lambda: self.nodes.mode != "active")
        self.pings = False
        self.run(0.05)
        self.settle()
        return Round(*map(np.array, (self.found, self.bare, self.parts)))

    def settle(self) -> float:
        """End to measure and read what waits, while the robot goes on; the time of the end [s]."""
        ended = self.until = time.monotonic()
        self.run(BACKLOG_S, lambda: len(self.commands) + len(self.records) < 4 or self.nodes.mode != "active")
        while self.commands or self.records:
            self._read()
        return ended

    def close(self) -> None:
        """End all."""
        for helper in self.helpers:
            helper.kill()
            helper.wait()
        self.nodes.close()
