"""What the guard says to others: modes, events, commands that it has sent, its artifact, diagnostics.

That something cannot be said must not keep the guard from its work: it is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, to_json
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Transport

ARRAY, TEXT = "std_msgs/msg/Float64MultiArray", "std_msgs/msg/String"


class Voice:
    """The guard's topics of its own; what stands on them: :mod:`temporeal_bridge.guard_node`.

    Attributes:
        unsaid: what could not be published.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport, self.unsaid = transport, 0
        self.of_mission = transport.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
        self.of_health = transport.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
        self.of_event = transport.advertise("guard/event", TEXT, QOS["default"])
        self.of_command = transport.advertise("guard/command", ARRAY, QOS["default"])
        self.of_swap = transport.advertise("guard/swap", ARRAY, QOS["default"])
        self.of_artifact = transport.advertise("guard/artifact", TEXT, QOS["latched"])

    def _say(self, endpoint: Endpoint, message: Any) -> None:
        try:
            self.transport.publish(endpoint, messages.encode(endpoint.type, message))
        except Exception:  # whatever a middleware raises
            self.unsaid += 1

    def _say_json(self, endpoint: Endpoint, content: Mapping[str, Any]) -> None:
        self._say(endpoint, messages.record(TEXT)(data=json.dumps(content)))

    def mode(self, mode: str, flight: int, start_ns: int) -> None:
        """The guard's mode, and its mission."""
        self._say(self.of_mission, messages.header(start_ns, f"{mode} {flight}"))

    def event(self, mode: str, flight: int, since: float | None, code: str, reason: str) -> None:
        """Something that happened ``since`` [s] the mission began; None: none was flown yet."""
        self._say_json(self.of_event, {"mode": mode, "flight": flight, "t": since, "code": code, "reason": reason})

    def command(self, told: CommandRecord) -> None:
        """A command that was sent."""
        self._say(self.of_command, messages.array64(told.row()))

    def mix(self, flight: int, step: int, weight: float, asked: np.ndarray, other: np.ndarray) -> None:
        """What was asked for while an artifact is exchanged."""
        self._say(self.of_swap, messages.array64(np.concatenate([[flight, step, weight], asked, other])))

    def artifact(
        self, manifest: Manifest, identity: str, command: str, interface: str, folder: Path | None,
        renamed: Mapping[str, str],
    ) -> None:
        """Which artifact the guard was given, with its digest (in flight there is no time for another), and which
        topics are ``renamed``: by full name, how they are called."""
        self._say_json(self.of_artifact, {
            "name": manifest.name, "identity": identity, "robot": manifest.robot, "command": command,
            "interface": interface, "rate_hz": manifest.rate_hz, "folder": folder and str(folder.absolute()),
            "renamed": dict(renamed), "manifest": to_json(manifest)})

    def diagnostics(self, name: str, hardware: str, level: int, message: str, values: Mapping[str, Any]) -> None:
        """How the guard is."""
        self._say(self.of_health, messages.diagnostics(
            self.transport.now(), f"{self.transport.node}: {name}", hardware, level, message, values))
