"""Records topics to an MCAP bag that ``ros2 bag`` and Foxglove read: incoming bytes as they are, definitions inside.

    python -m temporeal_bridge.recorder --namespace /cf1 --bag outputs/flight

Messages are on disk after a second. When the recorder is stopped together with all other nodes (Ctrl-C at ``ros2
launch``), it records until the guards have brought their robots to rest. A full disk ends the recording with a clear
error, and the bag is complete up to the last flush.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import MOVING, mission_status
from temporeal_bridge.process.children import LINGER_S, lives
from temporeal_bridge.process.command_line import parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import MISSION, STARTS, robot_topics
from temporeal_bridge.transports.transport import QoS, Received, Transport

FLUSH_S = 1.0
COMMANDED = "/guard/command"
QUIET_S = 2.0  # without a command: in motion a guard sends them at 25 Hz at least, but not for up to 1.5 s while it is
# blind and waits to see its quadrotor again (level's flies_s)


class Recorder:
    """Subscribes to topics and writes messages as they arrive. ``guard``: process id of the only guard to wait for."""

    def __init__(
        self, transport: Transport, bag: Bag, topics: Sequence[tuple[str, str, QoS]], guard: int | None = None
    ) -> None:
        self.transport, self.bag, self.guard = transport, bag, guard
        self.counts: dict[str, int] = {}
        # starts last: once that subscription is seen, all other topics are recorded
        for topic, kind, qos in sorted(topics, key=lambda row: row[0].endswith(STARTS)):
            endpoint = transport.subscribe(topic, kind, qos, self._take)
            bag.add(endpoint.topic, kind, qos.latched)
            self.counts[endpoint.topic] = 0
        self.next_flush = transport.monotonic() + FLUSH_S
        self.modes: dict[str, str] = {}  # of the guards, by namespace
        self.commanded: dict[str, float] = {}  # time of each guard's last command
        self.asked = inf  # when this node was asked to end

    def _take(self, received: Received) -> None:
        self.bag.write(received.topic, received.type, self.transport.now(), received.data)
        self.counts[received.topic] += 1
        if received.topic.endswith(COMMANDED):
            self.commanded[received.topic.removesuffix(COMMANDED)] = self.transport.monotonic()
        elif received.type == MISSION and received.topic.endswith("/mission"):
            status = mission_status(received)
            if status is not None:  # unreadable messages are recorded all the same
                self.modes[received.topic.removesuffix("/mission")] = status.mode

    def may_end(self) -> bool:
        """Whether all guards, which were asked to end as well, are at rest or silent.

        A guard that was killed in flight is silent, whatever the guards of other robots do. Once its own guard has
        ended, further motion is somebody else's flight.
        """
        now = self.transport.monotonic()
        self.asked = min(self.asked, now)
        moving = any(mode in MOVING and now - self.commanded.get(robot, -inf) <= QUIET_S
                     for robot, mode in self.modes.items())
        longest = LINGER_S if self.guard is None or lives(self.guard) else QUIET_S
        return not moving or now - self.asked > longest

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.next_flush

    def step(self) -> None:
        """Flush once a second."""
        now = self.transport.monotonic()
        if now >= self.next_flush:
            self.next_flush = now + FLUSH_S
            self.bag.flush()

    def close(self) -> None:
        """Finish the bag."""
        if not self.bag.closed:
            self.bag.flush()
            self.bag.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "recorder", "bag": self.bag.path, "messages": self.counts}


def make(args: argparse.Namespace, transport: Transport) -> Recorder:
    """The node from its command line."""
    interface = load_interface(robot_of(args), args.interface, args.signals)
    return Recorder(transport, Bag(args.bag), robot_topics(interface, args.of or [transport.namespace]), args.guard)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("recorder", "Record the topics of one or several robots to an MCAP bag.")
    options.add_argument("--bag", type=Path, required=True, help="folder of the new bag")
    options.add_argument("--of", action="append", metavar="NAMESPACE",
                         help="namespace to record (repeatable; default: the own one)")
    options.add_argument("--guard", type=int, metavar="PID",
                         help="process id of the only guard to wait for at the end (default: every guard)")
    return run(options, arguments, make, "recorder.json")


if __name__ == "__main__":
    sys.exit(main())
