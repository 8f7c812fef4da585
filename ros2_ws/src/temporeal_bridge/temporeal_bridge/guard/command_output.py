"""The only way to the robot: a command as messages, published, recorded and announced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from temporeal.robots.motion.rate_limiter import Motion
from temporeal.robots.motion.smooth_trajectory import smooth_trajectory
from temporeal_bridge.guard.announcements import Announcements
from temporeal_bridge.guard.command_stream import CommandStream
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.px4 import Offboard, Output
from temporeal_bridge.interface.encoding import encode_all
from temporeal_bridge.interface.interface import CommandTopic, Topic, rows_of
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Transport, is_action, qos_named


class CommandOutput:
    """Publishes the commands of a stream.

    Args:
        marks: of the state messages in force, for the record of a command.
    """

    def __init__(
        self, transport: Transport, stream: CommandStream, announcements: Announcements, offboard: Offboard | None,
        marks: Callable[[], Sequence[int]],
    ) -> None:
        self.transport, self.stream, self.announcements, self.offboard = transport, stream, announcements, offboard
        self.marks, self.config = marks, stream.config
        self.nothing = np.full(self.config.spec.size, np.nan)
        autopilot = self.config.interface.autopilot
        orders = None if autopilot is None else autopilot.orders
        rows: list[CommandTopic | Topic] = [*rows_of(self.config.topic), *([] if orders is None else [orders])]
        self.goals = {row.topic: row for row in rows_of(self.config.topic) if is_action(row.type)}
        self.told: dict[str, np.ndarray] = {}  # by action, what its last goal of the flight said
        self.flight = -1
        self.endpoints = {row.topic: transport.advertise(row.topic, row.type, qos_named(row.qos)) for row in rows}

    def send(
        self, command: np.ndarray, made_at: float, flight: Flight, active: bool, p: Proposal | None = None
    ) -> None:
        """Send a command that was made for the time ``made_at`` [s, monotonic].

        Args:
            active: whether the mission is, so that the thrust shows how the robot hovers.
            p: the proposal behind it; None: a command of the guard's own.
        """
        stream, airborne, now, stamp = (
            self.stream, self.stream.airborne, self.transport.monotonic(), self.transport.now())
        if self.offboard is not None:
            self.offboard.outputs(now, True, stamp)
            if self.offboard.refusal(now):  # the next step stops for it
                return
        if airborne.levels:
            airborne.push(command.item(0), now)
        if flight.number != self.flight:  # others may have moved it since
            self.flight = flight.number
            self.told.clear()
        for topic, data in self.encoded(command, stamp, stream.motion):
            if not self._reached(topic, command):
                self.transport.publish(self.endpoints[topic], data)
        sent = np.reshape(command, -1)
        stream.departed(sent, made_at, self.transport.monotonic())
        if airborne.levels and active:
            airborne.hovers(float(command.item(0)), made_at)
        step, age, asked = (-1, np.nan, self.nothing) if p is None else (p.step, p.at - p.seen, p.values)
        self.announcements.command(CommandRecord(
            flight.number, step, age, made_at - flight.began, stream.sent_at - flight.began, sent, asked, self.marks()))

    def _reached(self, topic: str, command: np.ndarray) -> bool:
        """Whether the last goal of an action says the same but for ``min_change``: a goal is kept until the next."""
        row = self.goals.get(topic)
        if row is None:
            return False
        value, last = row.part(np.reshape(command, -1)), self.told.get(topic)
        if last is not None and (np.abs(value - last) <= row.options["min_change"]).all():
            return True
        self.told[topic] = value
        return False

    def encoded(self, command: np.ndarray, stamp: int, motion: Motion | None) -> list[tuple[str, bytes]]:
        """Topics and CDR bytes of a command, with the way to rest after it where the message can say that. ``motion``:
        where the command leaves the robot."""
        onward = smooth_trajectory(self.stream.limits, motion) if self.config.led and motion is not None else None
        return encode_all(self.config.topic, command, stamp, onward)

    def publish(self, outputs: Sequence[Output]) -> None:
        """Messages to the autopilot."""
        for topic, type, message in outputs:
            self.transport.publish(self.endpoints[topic], messages.encode(type, message))

    def heard(self) -> bool:
        """Whether anybody subscribes to the command."""
        return bool(self.transport.matched(self.endpoints[self.config.topic.topic]))
