"""What the guard publishes about itself: modes, events, commands that it sent, its artifact, diagnostics.

A message that cannot be published must not stop the guard: it is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, to_json
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Transport, resolve_name

ARRAY, TEXT = "std_msgs/msg/Float64MultiArray", "std_msgs/msg/String"
HEARD = ("mission/start", "mission/stop", "mission/reset", "estop", "monitor/verdict")  # what others publish


class Announcements:
    """The guard's own topics; their content is described in :mod:`temporeal_bridge.guard_node`.

    Attributes:
        unpublished: messages that could not be published.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport, self.unpublished = transport, 0
        self.of_mission = transport.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
        self.of_health = transport.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
        self.of_event = transport.advertise("guard/event", TEXT, QOS["default"])
        self.of_command = transport.advertise("guard/command", ARRAY, QOS["default"])
        self.of_swap = transport.advertise("guard/swap", ARRAY, QOS["default"])
        self.of_artifact = transport.advertise("guard/artifact", TEXT, QOS["latched"])

    def _publish(self, endpoint: Endpoint, message: Any) -> None:
        try:
            self.transport.publish(endpoint, messages.encode(endpoint.type, message))
        except Exception:  # whatever a middleware raises
            self.unpublished += 1

    def _publish_json(self, endpoint: Endpoint, content: Mapping[str, Any]) -> None:
        self._publish(endpoint, messages.record(TEXT)(data=json.dumps(content)))

    def mode(self, mode: str, flight: int, start_ns: int) -> None:
        """The guard's mode, and its mission."""
        self._publish(self.of_mission, messages.header(start_ns, f"{mode} {flight}"))

    def event(self, mode: str, flight: int, since: float | None, code: str, reason: str) -> None:
        """An event, ``since`` [s] the mission began; None: there was none yet."""
        self._publish_json(self.of_event, {"mode": mode, "flight": flight, "t": since, "code": code, "reason": reason})

    def command(self, record: CommandRecord) -> None:
        """A command that was sent."""
        self._publish(self.of_command, messages.array64(record.row()))

    def mix(self, flight: int, step: int, weight: float, asked: np.ndarray, other: np.ndarray) -> None:
        """What was asked for during an artifact swap."""
        self._publish(self.of_swap, messages.array64(np.concatenate([[flight, step, weight], asked, other])))

    def artifact(self, manifest: Manifest, identity: str, config: GuardConfig, folder: Path | None) -> None:
        """The artifact in charge, with its digest, which takes too long to compute in flight."""
        self._publish_json(self.of_artifact, {
            "name": manifest.name, "identity": identity, "robot": manifest.robot, "command": config.spec.name,
            "interface": config.interface.name, "rate_hz": manifest.rate_hz,
            "folder": folder and str(folder.absolute()), "renamed": self._renamed(config),
            "manifest": to_json(manifest)})

    def _renamed(self, config: GuardConfig) -> dict[str, str]:
        """Topics that are remapped, by the full name that they would have: a bag knows them by these."""
        names = [*HEARD, *(row.topic for row in config.interface.topics)]
        both = {resolve_name(name, self.transport.namespace): self.transport.resolve(name) for name in names}
        return {plain: called for plain, called in both.items() if plain != called}

    def diagnostics(self, name: str, hardware: str, level: int, message: str, values: dict[str, Any]) -> None:
        """The guard's health."""
        self._publish(self.of_health, messages.diagnostics(
            self.transport.now(), f"{self.transport.node}: {name}", hardware, level, message, values))
