"""Commands from the wire, each with the times that the guard records for it."""

from __future__ import annotations

from collections import deque

import numpy as np

from temporeal_benchmarks.deployment.command_oracle import Oracle, Times
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages

WAITING = 100  # records without a command, after which a command that none of them is of is given up


class MatchedCommands:
    """Commands from the wire, matched with the guard's records of them (``guard/command``), for an oracle.

    The two topics have no order among each other, this process may receive both late, and messages may be lost. A
    command is read once its record is there: both hold the same numbers. Where one of the two is missing the robot's
    motion is unknown, and judged from the next pair on.

    Attributes:
        lost: messages without their partner.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.lost, self.flight = oracle, 0, -1
        oracle.set_mode("active")  # until the oracle is given the guard's modes, which come on a third topic
        self.commands: deque[tuple[float, bytes, np.ndarray | None]] = deque()
        self.records: deque[CommandRecord] = deque()

    def command(self, at: float, data: bytes) -> None:
        """A message on the command's topic, received at ``at`` [s]."""
        self.commands.append((at, data, self._numbers(data)))
        self._match()

    def record(self, data: bytes) -> CommandRecord:
        """A message on ``guard/command``, read."""
        found = CommandRecord.of(messages.decode("std_msgs/msg/Float64MultiArray", data).data)
        self.records.append(found)
        self._match()
        return found

    def end(self) -> None:
        """Nothing more comes."""
        while self.commands:
            self._without_record()
        self.lost += len(self.records)
        self.records.clear()
        self.oracle.settle()

    def _match(self) -> None:
        while self.commands and self.records:
            at, data, numbers = self.commands[0]
            partner = next((n for n, record in enumerate(self.records) if self._same(numbers, record)), None)
            if partner is not None:
                self._skip(partner)
                self.commands.popleft()
                self._read(at, data, self.records.popleft())
            elif len(self.records) >= WAITING or any(
                    self._same(other, self.records[0]) for *_, other in self.commands):
                self._without_record()
            else:
                return

    def _read(self, at: float, data: bytes, record: CommandRecord) -> None:
        if record.flight != self.flight:
            self.flight = record.flight
            self.oracle.forget()
        self.oracle.read(at, data, Times(record.since, record.left), record.marks)

    def _skip(self, count: int) -> None:
        """So many were recorded and not received."""
        for _ in range(count):
            self.records.popleft()
            self.lost += 1
            self.oracle.forget()

    def _without_record(self) -> None:
        """One was received and not recorded: what can be judged of it alone is judged."""
        at, data, _ = self.commands.popleft()
        self.lost += 1
        self.oracle.forget()
        self.oracle.read(at, data)
        self.oracle.forget()

    def _numbers(self, data: bytes) -> np.ndarray | None:
        topic = self.oracle.topic
        try:
            message = messages.decode(topic.type, data)
            return np.asarray(COMMAND_CODECS[topic.codec].decode(message, topic.options), dtype=float).reshape(-1)
        except (messages.MessageError, CodecError, ValueError):
            return None  # the oracle will say so

    def _same(self, command: np.ndarray | None, record: CommandRecord) -> bool:
        if command is None or command.size != len(record.sent):
            return False
        return bool((np.abs(command - record.sent) <= self.oracle.rounding).all())
