"""What ``temporeal bench deploy`` has on the bus beside the robot's nodes, each a process with the options of a node.

    python -m temporeal_benchmarks.deployment.bus_peers echo --core 1 --priority realtime --awake
    python -m temporeal_benchmarks.deployment.bus_peers camera --signals robots/franka/realsense.yaml
    python -m temporeal_benchmarks.deployment.bus_peers reader --signals robots/franka/realsense.yaml --out FOLDER
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.camera_sim import PUBLISHED
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.process.command_line import add_awake, parser
from temporeal_bridge.process.node import Node, run
from temporeal_bridge.process.rehearsal import Rehearsal
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport

PERIOD = 0.002  # s, of 500 Hz
STATE, ARRAY = "sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray"
BEHIND = -1  # below the controller's priority: the echo is never in its way, and nothing else is in between
ON, OFF = signal.SIGUSR1, signal.SIGUSR2  # to the camera, which begins with pictures
FIRST, READ = "first", "reader.json"  # files of the reader: there is a first picture; when each came, at its end


class Echo:
    """Answers each ping with a command's bytes: what the bus alone takes, there and back. ``awake``: it polls for the
    next ping without sleep around its time, as the controller does for the next state."""

    def __init__(self, transport: Transport, awake: bool) -> None:
        self.transport, self.rehearsal, self.answered = transport, Rehearsal(PERIOD, awake), 0
        self.answer = messages.encode(ARRAY, messages.array64(np.zeros(7)))
        self.out = transport.advertise("bare/pong", ARRAY, QOS["command"])
        transport.subscribe("bare/ping", STATE, QOS["sensor"], self._on_ping)

    def _on_ping(self, received: Received) -> None:
        self.transport.publish(self.out, self.answer)
        self.answered += 1
        self.rehearsal.plan(received.at, self.transport.monotonic() - received.at)

    def wait(self, seconds: float) -> None:
        """See :func:`temporeal_bridge.process.node.spin`."""
        self.rehearsal.wait(self.transport, seconds)

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.rehearsal.at

    def step(self) -> None:
        """There is nothing to rehearse; from its time on the ping is looked for."""
        self.rehearsal.due(self.transport.monotonic())

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "echo", "answered": self.answered}


class Camera:
    """Publishes pictures as ``interface`` says of its first one; what it is late for it drops."""

    def __init__(self, transport: Transport, interface: Interface) -> None:
        row = interface.pictures[0]
        self.transport, self.period, self.sent = transport, 1 / row.rate_hz, 0
        name, = STATE_CODECS[row.codec].signals(row.options)
        noise = np.random.default_rng(0).integers(0, 256, interface.carried[name].shape, dtype=np.uint8)
        self.picture = messages.encode(row.type, STATE_CODECS[row.codec].encode(
            {name: noise}, transport.now(), ("world", "camera"), row.options))
        self.out = transport.advertise(row.topic, row.type, PUBLISHED)
        self.due = transport.monotonic()
        for number, at in ((ON, 0.0), (OFF, inf)):
            signal.signal(number, lambda *_, at=at: setattr(self, "due", at))

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.due

    def step(self) -> None:
        """The picture that is due."""
        due, now = self.due, self.transport.monotonic()
        if now < due:
            return
        self.transport.publish(self.out, self.picture)
        self.sent += 1
        if self.due == due:  # not switched off meanwhile
            self.due = max(due + self.period, now)

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "camera", "sent": self.sent}


class PictureReader:
    """Receives and decodes the camera's pictures, as a detector does first; ``folder``: where it announces the first
    one."""

    def __init__(self, transport: Transport, interface: Interface, folder: Path) -> None:
        self.row, self.folder, self.at = interface.pictures[0], folder, list[float]()
        self.name, = STATE_CODECS[self.row.codec].signals(self.row.options)
        self.shape = interface.carried[self.name].shape
        transport.subscribe(self.row.topic, self.row.type, QOS[self.row.qos], self._on_picture)

    def _on_picture(self, received: Received) -> None:
        message = messages.decode(received.type, received.data)
        picture = STATE_CODECS[self.row.codec].decode(message, self.row.options)[self.name]
        if picture.shape != self.shape:
            return
        self.at.append(received.at)
        if len(self.at) == 1:
            (self.folder / FIRST).touch()

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return inf

    def step(self) -> None:
        """See :class:`temporeal_bridge.process.node.Node`."""

    def summary(self) -> dict[str, Any]:
        """Monotonic times [s] at which whole pictures came."""
        return {"node": "reader", "at": self.at}


def seen(args: argparse.Namespace) -> Interface:
    """The arm's topics with those of the file that declares cameras."""
    return load_interface(load_robot("franka"), args.interface, args.signals)


ROLES: dict[str, Callable[[argparse.Namespace, Transport], Node]] = {
    "echo": lambda args, transport: Echo(transport, args.awake),
    "camera": lambda args, transport: Camera(transport, seen(args)),
    "reader": lambda args, transport: PictureReader(transport, seen(args), args.out),
}


def main(role: str, arguments: list[str]) -> int:
    """Entry point."""
    options = parser(role, f"The {role} of `temporeal bench deploy`.")
    add_awake(options, "poll for the next ping without sleep")
    return run(options, arguments, ROLES[role], f"{role}.json", BEHIND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
