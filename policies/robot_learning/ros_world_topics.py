"""What an actor hears of the nodes around a robot: the guard's mode, the commands that it sent, the monitor's verdict.

The commands are those of the guard's own records (``guard/command``), its stop actions included, so that what was
executed is never what was only proposed, and all of it is compared with the command's limits.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.robots.signals import CommandSpec
from temporeal_bridge.mission import CommandRecord, MissionStatus, mission_status
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, QoS, Received, Transport

RECORDS = QoS(reliable=True, depth=1000)
TOLERANCE = 1e-6  # of a command's range: commands travel as float32 in some messages
DECIDED = ("satisfied", "violated")  # final or not: what still comes can only change by how much
REMEMBERED = 64  # commands of the controller that the guard has answered; older ones nobody asks for


@dataclass
class Audit:
    """All commands that the guard sent since the world was opened.

    Args:
        sent: number of them; stops: of those that were the guard's own. limited: that were not what was proposed.
        outside: sent outside the command's limits. asked_outside: proposed outside of them.
    """

    sent: int = 0
    stops: int = 0
    limited: int = 0
    outside: int = 0
    asked_outside: int = 0


class Heard:
    """The last words of guard and monitor. What cannot be read is ignored, and counted (``unreadable``)."""

    def __init__(self, transport: Transport, spec: CommandSpec) -> None:
        self.low, self.high = np.array(spec.low), np.array(spec.high)
        self.slack = TOLERANCE * (self.high - self.low)
        self.status, self.event, self.verdict = MissionStatus("", -1, 0), "", dict[str, Any]()
        self.audit, self.unreadable = Audit(), 0
        self.answered = OrderedDict[tuple[int, int], CommandRecord]()
        self.last: CommandRecord | None = None
        text = "std_msgs/msg/String"
        transport.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], self._on_mission)
        transport.subscribe("guard/event", text, QOS["default"], self._on_event)
        transport.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", RECORDS, self._on_command)
        transport.subscribe("monitor/verdict", text, QOS["latched"], self._on_verdict)

    def _on_mission(self, received: Received) -> None:
        self.status = mission_status(received) or self.status

    def _on_event(self, received: Received) -> None:
        self.event = str(self._content(received).get("reason", ""))

    def _on_verdict(self, received: Received) -> None:
        self.verdict = self._content(received) or self.verdict

    def _content(self, received: Received) -> dict[str, Any]:
        """The object in a JSON text; empty where it is none, which is counted."""
        try:
            found = json.loads(messages.decode(received.type, received.data).data)
        except (messages.MessageError, ValueError, RecursionError):
            found = None
        self.unreadable += not isinstance(found, dict)
        return found if isinstance(found, dict) else {}

    def _on_command(self, received: Received) -> None:
        try:
            record = CommandRecord.of(messages.decode(received.type, received.data).data)
        except (messages.MessageError, ValueError):
            self.unreadable += 1
            return
        if len(record.sent) != len(self.low):  # another command's: not of this guard's artifact
            self.unreadable += 1
            return
        sent, asked, audit = np.asarray(record.sent), np.asarray(record.proposed), self.audit
        self.last = record
        audit.sent += 1
        audit.outside += self._outside(sent)
        if record.step < 0:
            audit.stops += 1
            return
        audit.asked_outside += self._outside(asked)
        audit.limited += bool((np.abs(sent - asked) > self.slack).any())
        self.answered[record.flight, record.step] = record
        while len(self.answered) > REMEMBERED:
            self.answered.popitem(last=False)

    def _outside(self, command: np.ndarray) -> bool:
        return bool(((command < self.low - self.slack) | (command > self.high + self.slack)).any())

    def changed(self, record: CommandRecord) -> str:
        """Why what was sent is not what was proposed; "": it is."""
        off = np.abs(np.asarray(record.sent) - np.asarray(record.proposed))
        if not (off > self.slack).any():
            return ""
        return f"the guard changed the command by up to {off.max():.3g} (its limits, or its fade-in)"

    def judged(self, flight: int, start_ns: int) -> str:
        """The monitor's verdict on mission ``flight``, which began at ``start_ns``, once nothing can change it;
        else ""."""
        ours = (self.verdict.get("flight"), self.verdict.get("start_ns")) == (flight, start_ns)
        verdict = str(self.verdict["verdict"]) if ours else ""
        return verdict if verdict in DECIDED or (ours and self.verdict.get("final")) else ""
