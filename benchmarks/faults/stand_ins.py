"""Stand-ins in fake time for an artifact, the process of a slow policy, a link that is held up, a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.sockets import SocketController
from temporeal_bridge.transports.memory_bus import MemoryTransport

CHUNK_STEPS = 20


class Brain:
    """Stands for an artifact: ``wish`` of the mission's time, and what goes wrong with it.

    Attributes:
        broken: "", "nan", "shape", "huge", "exception", "slow", "hang".
        stall: called with the seconds that a slow step takes.
    """

    def __init__(self, manifest: Manifest, wish: Callable[[float], np.ndarray]) -> None:
        self.manifest, self.wish, self.broken = manifest, wish, ""
        self.name, self.period = manifest.commands[0].name, 1 / manifest.rate_hz
        self.stall: Callable[[float], None] = lambda seconds: None

    def reset(self) -> None:
        """A new mission."""

    def figures(self) -> dict[str, Any]:
        """It has no reflex."""
        return {}

    def act(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The command; see :class:`temporeal.robots.artifact.runtime.Artifact`."""
        command = self.wish(float(signals["mission_time"])).astype(np.float32)
        if self.broken == "nan":
            command = np.where(np.arange(command.size) == 1, np.nan, command)
        elif self.broken == "shape":
            command = command[:-1]
        elif self.broken == "huge":
            command = 1e6 * np.sign(command + 1e-3)
        elif self.broken == "exception":
            raise RuntimeError("the network is gone")
        elif self.broken in ("slow", "hang"):
            self.stall(10 * self.period if self.broken == "slow" else 1e9)
        return {self.name: command}


class Worker:
    """Stands for the process of a slow policy: answers ``latency`` [s] after it was asked."""

    def __init__(self, clock: Callable[[], float], wish: Callable[[float], np.ndarray], dt: float) -> None:
        self.clock, self.wish, self.dt, self.latency, self.alive = clock, wish, dt, 0.07, True
        self.since = 0.0
        self.waiting: list[tuple[float, Reply]] = []
        self.last: list[Reply] = []
        self.broken = ""

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """See :class:`temporeal_bridge.controller.mailbox.WorkerLink`."""
        t = float(signals["mission_time"])
        rows = np.stack([self.wish(t + self.dt * k) for k in range(CHUNK_STEPS)]).astype(np.float32)
        self.waiting.append((at + self.latency, Reply(at, self.latency, rows)))

    def take(self) -> list[Reply]:
        """See :class:`temporeal_bridge.controller.mailbox.WorkerLink`."""
        now = self.clock()
        due = [reply for at, reply in self.waiting if at <= now and self.alive]
        self.waiting = [pair for pair in self.waiting if pair[0] > now]
        old, self.last = self.last, (self.last + due)[-3:]
        if self.broken == "duplicate":
            return due + due + old
        if self.broken == "reordered":
            return due + old if due else []
        return due

    def close(self) -> None:
        """Nothing to end."""


class Later:
    """The controller's end of the line: what is sent while it computes leaves when that is done."""

    def __init__(self, end: SocketController) -> None:
        self.end, self.held, self.holding = end, list[Proposal](), False

    def send(self, proposal: Proposal) -> bool:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        if self.holding:
            self.held.append(proposal)
            return True
        return self.end.send(proposal)

    def release(self) -> None:
        """What was held back goes out."""
        self.holding = False
        for proposal in self.held:
            self.end.send(proposal)
        self.held.clear()

    def receive(self) -> list[datagrams.Answer]:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        return self.end.receive()

    def close(self) -> None:
        """See :class:`temporeal_bridge.link.ends.ControllerEnd`."""
        self.end.close()


@dataclass(eq=False)
class Actor:
    """A node that may be stopped until ``asleep`` [s]."""

    transport: MemoryTransport
    node: Any
    asleep: float = 0.0
    woken: Callable[[], None] = field(default=lambda: None)
