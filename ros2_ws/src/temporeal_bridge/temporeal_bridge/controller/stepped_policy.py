"""A policy as the controller steps it: an artifact in this process, or one that a worker runs in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from temporeal.robots.artifact.runtime import Artifact
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, ChunkRecorder
from temporeal_bridge.controller.figures import FlightFigures
from temporeal_bridge.controller.instructed import Instructed
from temporeal_bridge.mission import MISSION_TIME, ChunkRecord

Signals = dict[str, np.ndarray]


class SteppedPolicy:
    """The policy, and what it reads of the mission: its time, counted by steps, and the words it was ``told``.

    Attributes:
        name, size: of its command. chunks: records of the chunks that it uses; None: it gives single commands.
    """

    def __init__(self, artifact: Artifact | ChunkedPolicy, told: Instructed | None = None) -> None:
        commands = artifact.manifest.commands
        if len(commands) != 1:
            raise ValueError(f"one command is expected, the artifact gives {[command.name for command in commands]}")
        self.artifact, self.period, self.told = artifact, 1.0 / artifact.manifest.rate_hz, told
        self.name, self.size = commands[0].name, commands[0].size
        self.chunks = ChunkRecorder(artifact) if isinstance(artifact, ChunkedPolicy) else None

    def prepared(self, signals: Signals, marks: Sequence[int]) -> bool:
        """Whether there is a first command: a policy that a worker runs needs some time for it."""
        if self.chunks is None:
            return True
        prepared = self.chunks.policy.prepared(self._at(0, signals))
        self.chunks.note(0, marks)
        return prepared

    def infer(self, signals: Signals, flight: FlightFigures, steps: int) -> np.ndarray | None:
        """The command of step number ``steps`` - 1, after the missed ones before it; ``flight.steps`` goes on. A policy
        that gives chunks has no memory for missed steps."""
        if self.chunks is not None:
            flight.steps = steps - 1
        command = None
        while flight.steps < steps:
            command = self.artifact.act(self._at(flight.steps, signals))[self.name]
            flight.steps += 1
        return command

    def rehearse(self, signals: Signals, step: int) -> None:
        """The work of a step, without effect; errors are ignored."""
        if isinstance(self.artifact, Artifact):
            with suppress(Exception):
                self.artifact.rehearse(self._at(step, signals))

    def _at(self, step: int, signals: Signals) -> Signals:
        words = {} if self.told is None else self.told.reads(signals)
        return {**signals, **words, MISSION_TIME.name: np.asarray(step * self.period, dtype=np.float32)}

    def note(self, step: int, marks: Sequence[int]) -> None:
        """After a step: the messages that it was made of."""
        if self.chunks is not None:
            self.chunks.note(step, marks)

    def time_of(self, now: float) -> float:
        """The time that the last command was for: with chunks somewhat later than ``now``, when the step began."""
        return now if self.chunks is None else max(now, self.chunks.policy.now)

    def records(self, flight: int, first: float) -> Iterator[ChunkRecord]:
        """See :meth:`ChunkRecorder.records`."""
        return iter(()) if self.chunks is None else self.chunks.records(flight, first)

    def figures(self, flight: FlightFigures) -> dict[str, Any]:
        """Of its reflex, where it has one; of its chunks, where it gives some."""
        starved = {} if self.chunks is None else {"starved": flight.starved, "starved_why": flight.starved_why}
        return {**starved, **self.artifact.figures()}

    def close(self) -> None:
        """End the link to a worker."""
        if isinstance(self.artifact, ChunkedPolicy):
            self.artifact.close()
