"""What the controller publishes: steps, chunks, events, diagnostics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from temporeal_bridge.mission import ChunkRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Transport

NUMBERS, TEXT, HEALTH = (
    "std_msgs/msg/Float64MultiArray", "std_msgs/msg/String", "diagnostic_msgs/msg/DiagnosticArray")


class Announcements:
    """The controller's topics. ``chunks``: whether its policy gives some; ``forecasts``: whether it takes formulas."""

    def __init__(self, transport: Transport, chunks: bool, forecasts: bool = False) -> None:
        self.transport = transport
        self.health = transport.advertise("/diagnostics", HEALTH, QOS["default"])
        self.steps = transport.advertise("policy/step", NUMBERS, QOS["default"])
        self.events = transport.advertise("policy/event", TEXT, QOS["default"])
        self.chunks = transport.advertise("policy/chunk", NUMBERS, QOS["default"]) if chunks else None
        self.forecasts = transport.advertise("policy/forecast", TEXT, QOS["default"]) if forecasts else None

    def forecast(self, content: Mapping[str, Any]) -> None:
        """How likely the mission is by now."""
        if self.forecasts is not None:
            self._publish(self.forecasts, messages.record(TEXT)(data=json.dumps(dict(content))))

    def event(self, mode: str, flight: int, code: str, reason: str) -> None:
        """Mission ``flight`` does not begin, or does not go on."""
        content = {"mode": mode, "flight": flight, "code": code, "reason": reason}
        self._publish(self.events, messages.record(TEXT)(data=json.dumps(content)))

    def step(self, flight: int, step: int, missed: int, at: float, marks: Sequence[int]) -> None:
        """A control step, ``at`` [s since the first one], and the messages that it was made of."""
        self._publish(self.steps, messages.array64(np.array([flight, step, missed, at, *marks])))

    def chunk(self, record: ChunkRecord) -> None:
        """A chunk that is used."""
        if self.chunks is not None:
            self._publish(self.chunks, messages.array64(record.row()))

    def diagnostics(self, name: str, hardware: str, level: int, text: str, values: Mapping[str, Any]) -> None:
        """The controller's health."""
        self._publish(self.health, messages.diagnostics(
            self.transport.now(), f"{self.transport.node}: {name}", hardware, level, text, dict(values)))

    def _publish(self, endpoint: Endpoint, message: Any) -> None:
        self.transport.publish(endpoint, messages.encode(endpoint.type, message))
