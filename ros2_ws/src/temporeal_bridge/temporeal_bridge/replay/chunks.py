"""Chunks in a replay: inferred again from the recorded observations, and taken in when the recorded ones were."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, Used
from temporeal_bridge.instruction.sentences import asked_for, tokens_of
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.state_input import StateReader, mark
from temporeal_bridge.mission import MISSION_TIME, ChunkRecord
from temporeal_bridge.recording.bags import Message, Recording, full_name
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.replay.comparison import Compared, compare

Made = Sequence[np.ndarray | None]
"""The rows [K, A] of each used chunk of a flight, inferred again; None: the bag lacks a message of its observation."""


class Found(NamedTuple):
    """A recorded message, and the state and stamp [ns] that it completes where states come in parts."""

    message: Message
    state: tuple[Any, int] | None


def put_together(reader: StateReader, message: Message) -> tuple[Any, int] | None:
    """The state that ``message`` completes, where states may come in several messages of one topic."""
    with suppress(Exception):  # bytes from anywhere: the controller counted them
        return None if reader.parts is None else reader.message(message.type, message.data, 1e-9 * message.at)
    return None


def inferred_again(
    recording: Recording, artifact: Artifact, interface: Interface, namespace: str, flights: Sequence[RecordedFlight]
) -> list[Made]:
    """The chunks of each flight."""
    manifest, period = artifact.manifest, 1.0 / artifact.manifest.rate_hz
    words = asked_for(manifest)
    wanted = [signal.name for signal in manifest.signals]
    readers, by_mark = [], list[dict[int, list[Found]]]()
    for row in interface.topics:
        readers.append(StateReader(row, interface.carried, wanted))
        by_mark.append({})
        for message in recording.of(full_name(row.topic, namespace)):
            by_mark[-1].setdefault(mark(message.data), []).append(Found(message, put_together(readers[-1], message)))

    def observation(flight: RecordedFlight, record: ChunkRecord) -> dict[str, np.ndarray] | None:
        at, signals = flight.start_ns + 1e9 * record.observed, dict[str, np.ndarray]()
        for target, found, reader in zip(record.marks, by_mark, readers):
            if target:  # 0: that topic had delivered nothing yet
                near = min(found.get(target, ()), key=lambda each: abs(each.message.at - at), default=None)
                state = None if near is None else near.state or reader.message(near.message.type, near.message.data)
                if state is None:
                    return None
                signals |= reader.signals(state[0])
        told = {} if words is None else {words.signal: tokens_of(words, flight.verdict.get("instruction", ""))}
        return {**signals, **told, MISSION_TIME.name: np.asarray(record.step * period, dtype=np.float32)}

    def rows(signals: dict[str, np.ndarray] | None) -> np.ndarray | None:
        given = None if signals is None else artifact.act(signals)[manifest.commands[0].name]
        return None if given is None else given.reshape(len(given), -1).astype(float)

    def made(flight: RecordedFlight) -> Made:
        artifact.reset()  # the first look is that of the first chunk that was used
        return [rows(observation(flight, record)) for record in flight.chunks]

    return [made(flight) for flight in flights]


def compared_chunks(recorded: Sequence[ChunkRecord], made: Made, tolerance: float) -> Compared:
    """The rows of all chunks, recorded against inferred again."""
    longest = max(len(rows) for rows in (*(chunk.rows for chunk in recorded), *(m for m in made if m is not None)))
    before, after = dict[int, np.ndarray](), dict[int, np.ndarray]()
    for n, (chunk, rows) in enumerate(zip(recorded, made)):
        if rows is not None:
            before |= {n * longest + k: row for k, row in enumerate(chunk.rows)}
            after |= {n * longest + k: row for k, row in enumerate(rows)}
    found = compare(before, after, tolerance)
    return found if found.first is None else replace(found, first=found.first // longest)


class NoWorker:
    """The line to a worker that does not exist."""

    since = 0.0

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        """Nobody reads it."""

    def take(self) -> list[Any]:
        """Nothing arrives."""
        return []

    def close(self) -> None:
        """Nothing is open."""


class RecordedChunks(ChunkedPolicy):
    """A policy whose chunks exist already and arrive when the recorded ones did.

    Attributes:
        zero: time of the mission's first step [s, the stage's clock].
        passed: from there to the time that the present step is for [s].
    """

    def __init__(self, manifest: Manifest) -> None:
        self.zero = self.passed = 0.0
        self.coming = deque[Used]()
        super().__init__(manifest, NoWorker(), lambda: self.zero + self.passed)

    def load(self, recorded: Sequence[ChunkRecord], made: Made) -> None:
        """The chunks of the next mission, as ``made``, else as recorded."""
        self.coming = deque(Used(chunk.at, chunk.observed, chunk.rows if rows is None else rows)
                            for chunk, rows in zip(recorded, made))

    def _go_on(self, now: float, signals: Mapping[str, np.ndarray]) -> None:
        while self.coming and self.coming[0].at <= self.passed:
            new = self.coming.popleft()
            self.use(Used(self.zero + new.at, self.zero + new.observed, new.rows))
        self.used.clear()  # they are not published again
