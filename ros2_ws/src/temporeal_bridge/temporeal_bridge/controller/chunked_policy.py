"""A slow policy that the controller flies like any other: an artifact that gives chunks, run in a process of its own.

:class:`ChunkedPolicy` has the interface that the controller uses of an
:class:`~temporeal.robots.artifact.runtime.Artifact`: ``manifest``, ``reset`` and ``act``. Each call of ``act`` takes in
the worker's chunks, requests the next one when it is time, and returns the command for now; it never waits. A worker
that is slow, stopped, killed or wrong has one effect: the chunk in force ends, and ``act`` raises :class:`NoAction`.
The controller then proposes nothing, and the guard treats it as silent.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.motion.action_chunks import (
    Array,
    Latency,
    Plan,
    Playing,
    begin_of,
    chunk,
    command,
    due,
    joined,
    refusal,
)
from temporeal.robots.signals import check_signals
from temporeal_bridge.controller.mailbox import Reply, WorkerLink
from temporeal_bridge.mission import ChunkRecord

REMEMBERED = 64  # observations that may still be answered


class NoAction(RuntimeError):
    """There is no command for now: no chunk has arrived yet, or the last one has ended. Nothing may be sent."""


@dataclass(frozen=True, eq=False)
class Used:
    """A chunk that was taken in ``at``, of what was ``observed``: times [s] of the policy's clock, rows [K, A]."""

    at: float
    observed: float
    rows: Array


class ChunkedPolicy:
    """The controller's side of a policy that gives chunks.

    Args:
        manifest: of an artifact with a chunk.
        link: to the worker.
        clock: monotonic time [s], the transport's.
        playing: how chunks are blended and when they are requested.

    Attributes:
        now: time [s] that the last command was for.
        used: the newest chunks taken in since this was last emptied.
    """

    def __init__(
        self, manifest: Manifest, link: WorkerLink, clock: Callable[[], float], playing: Playing | None = None
    ) -> None:
        if manifest.chunk is None:
            raise ArtifactError(f"{manifest.name} gives one command at a time: it needs no worker")
        self.manifest, self.link, self.clock, self.playing = manifest, link, clock, playing or Playing()
        self.spec, self.rows = manifest.commands[0], manifest.chunk
        self.schema = {spec.name: spec for spec in manifest.signals}
        self.length_s = self.rows.steps * self.rows.dt_s
        self.latency = Latency()
        self.counts: Counter[str] = Counter()
        self.reset()

    def reset(self) -> None:
        """A new mission: chunks of earlier observations are not used, and a worker forgets its first look."""
        self.link.take()
        self.plan: Plan | None = None
        self.since = self.link.since = self.clock()
        self.last_refusal = ""
        self.now = self.since
        self.asked: deque[float] = deque(maxlen=REMEMBERED)
        self.used: deque[Used] = deque(maxlen=REMEMBERED)

    def prepared(self, signals: Mapping[str, np.ndarray]) -> bool:
        """Whether there is a command for now; requests it. Call it until it is true before a mission begins: time zero
        is when row 0 of the first chunk is played. ``signals``: see :meth:`act`."""
        now = self.clock()
        self._go_on(now, signals)
        return command(self.plan, now) is not None

    def act(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The command for now, float32 [*shape] by name.

        ``signals`` count as observed now. Raises :class:`NoAction` without a chunk for now, and
        :class:`temporeal.robots.signals.SignalError` where a request has missing, misshapen or non-finite signals.
        """
        now = self.now = self.clock()
        self._go_on(now, signals)
        value = command(self.plan, now)
        if value is None:
            raise NoAction(self._why_none(now))
        return {self.spec.name: value.astype(np.float32).reshape(self.spec.shape)}

    def _go_on(self, now: float, signals: Mapping[str, np.ndarray]) -> None:
        """Take in arrived chunks, and request the next if it is time."""
        for reply in self.link.take():
            self._consider(reply, now)
        if self._due(now):
            self.link.put(now, check_signals(self.schema, signals))
            self.asked.append(now)
            self.counts["asked"] += 1

    def _consider(self, reply: Reply, now: float) -> None:
        why = refusal(reply.rows, reply.observed, now, steps=self.rows.steps, size=self.spec.size, dt=self.rows.dt_s,
                      newest=self._newest, asked=self.asked)
        # a duplicate has no latency of its own; that of an overtaken reply would delay the next request
        if reply.observed in self.asked and (why is None or why.code == "late"):
            self.latency.add(now - reply.observed)
        if why is not None:
            self.counts[why.code] += 1
            self.last_refusal = why.text
            return
        self.use(Used(now, reply.observed, np.asarray(reply.rows, dtype=np.float64)))

    def use(self, new: Used) -> None:
        """Play it from now on."""
        begin = begin_of(self.plan, new.observed, new.at)
        made = chunk(new.observed, new.rows, self.rows.dt_s, begin=begin, hold=self.rows.hold)
        self.plan = joined(self.plan, made, new.at, self.playing)
        self.used.append(new)
        self.counts["used"] += 1

    @property
    def _newest(self) -> float:
        return -inf if self.plan is None else self.plan.chunk.observed

    def _due(self, now: float) -> bool:
        return due(
            now, end=-inf if self.plan is None else self.plan.chunk.end, newest=self._newest,
            asked=self.asked[-1] if self.asked else -inf, latency=self.latency.most, length_s=self.length_s,
            playing=self.playing)

    def _why_none(self, now: float) -> str:
        last = f"; last refused: {self.last_refusal}" if self.last_refusal else ""
        if self.plan is None:
            return f"no chunk has come in {now - self.since:.3f} s{last}"
        return f"the last chunk ended {now - self.plan.chunk.end:.3f} s ago and no newer one has come{last}"

    def figures(self) -> dict[str, Any]:
        """For diagnostics: numbers of requested, used and refused chunks (by reason), and their latency."""
        seconds = {"p95": 1e3 * self.latency.p95, "max": 1e3 * self.latency.most}
        return {**{f"chunks_{code.replace(' ', '_')}": n for code, n in sorted(self.counts.items())},
                **{f"chunk_latency_{k}_ms": v for k, v in seconds.items()}, "chunk_refusal": self.last_refusal}

    def close(self) -> None:
        """End the link."""
        self.link.close()


class ChunkRecorder:
    """Makes records of the chunks that a policy uses, with the observation of each, so that they can be inferred
    again."""

    def __init__(self, policy: ChunkedPolicy) -> None:
        self.policy = policy
        self.basis: dict[float, tuple[int, Sequence[int]]] = {}  # by time of the observation: its step and marks
        self.mission, self.count = -1.0, 0  # time of the first step, and number of records

    def note(self, step: int, marks: Sequence[int]) -> None:
        """After the policy was given signals: ``step`` of the mission, ``marks`` of the state's messages."""
        asked = self.policy.asked
        if asked and asked[-1] not in self.basis:
            self.basis = {at: basis for at, basis in self.basis.items() if at >= asked[0]}
            self.basis[asked[-1]] = step, marks

    def records(self, flight: int, first: float) -> Iterator[ChunkRecord]:
        """Of the chunks taken in since the last call; ``first``: time of the first control step [s, its clock]."""
        if first != self.mission:
            self.mission, self.count = first, 0
        while self.policy.used:
            new = self.policy.used.popleft()
            step, marks = self.basis[new.observed]
            yield ChunkRecord(flight, self.count, new.at - first, new.observed - first, step, marks, new.rows)
            self.count += 1
