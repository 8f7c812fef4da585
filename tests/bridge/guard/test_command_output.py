"""The only way to the robot: what is published, recorded and announced of a command."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.bridge.guard.parts import config, stream

from temporeal.robots.motion.rate_limiter import at_rest
from temporeal_bridge.guard.announcements import Announcements
from temporeal_bridge.guard.command_output import CommandOutput
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.link.datagrams import COMMAND, Proposal
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

ARRAY = "std_msgs/msg/Float64MultiArray"


class Wire:
    """An output, and what is heard of it."""

    def __init__(self, offboard: Any = None) -> None:
        self.bus, of = Bus(), config()
        self.home = np.asarray(of.robot.home["joint_pos"])
        transport, self.other = MemoryTransport(self.bus, "guard_node", "/r"), MemoryTransport(self.bus, "peer", "/r")
        self.announcements = Announcements(transport)
        self.output = CommandOutput(transport, stream(of), self.announcements, offboard, lambda: [17])
        self.output.stream.motion = at_rest(self.home)
        self.commands: list[Any] = []
        self.records: list[CommandRecord] = []
        self.other.subscribe(of.topic.topic, of.topic.type, QOS["deep"], self.commands.append)
        self.other.subscribe("guard/command", ARRAY, QOS["deep"], lambda r: self.records.append(
            CommandRecord.of(messages.decode(ARRAY, r.data).data)))

    def send(self, p: Proposal | None = None) -> None:
        self.bus.advance(2.5)
        self.output.send(self.home, 2.25, Flight(3, began=2.0), True, p)
        self.other.wait(0.0)


def test_a_command_is_published_and_recorded():
    wire = Wire()
    assert wire.output.heard()
    wire.send(Proposal(COMMAND, 3, 7, seen=2.0, at=2.1, values=wire.home + 0.1))
    assert len(wire.commands) == 1 and wire.output.stream.sent_at == 2.5
    (record,) = wire.records
    assert (record.flight, record.step, list(record.marks)) == (3, 7, [17])
    assert (record.age, record.since, record.left) == pytest.approx((0.1, 0.25, 0.5))
    assert np.allclose(record.sent, wire.home) and np.allclose(record.proposed, wire.home + 0.1)


def test_a_command_of_the_guards_own_has_no_step():
    wire = Wire()
    wire.send()
    (record,) = wire.records
    assert record.step == -1 and np.isnan(record.age) and np.isnan(record.proposed).all()


def test_nothing_is_sent_to_an_autopilot_that_refuses():
    class Refusing:
        def outputs(self, now: float, flying: bool, stamp: int) -> list[Any]:
            return []

        def refusal(self, now: float) -> str:
            return "a pilot flies it"

    wire = Wire(Refusing())
    wire.send()
    assert not wire.commands and not wire.records and wire.output.stream.sent_at == -np.inf


def test_what_cannot_be_announced_is_counted_and_the_command_is_sent(monkeypatch: pytest.MonkeyPatch):
    wire = Wire()
    publish = wire.announcements.transport.publish

    def broken(endpoint: Any, data: bytes) -> None:
        if endpoint.topic.startswith("/r/guard"):
            raise RuntimeError("no room")
        publish(endpoint, data)

    monkeypatch.setattr(wire.announcements.transport, "publish", broken)
    wire.send()
    assert len(wire.commands) == 1 and not wire.records and wire.announcements.unpublished == 1
