"""A slow policy that the controller flies as any other: an artifact that gives chunks, run in a process of its own.

:class:`ChunkedPolicy` has what the controller uses of an :class:`~temporeal.robots.artifact.runtime.Artifact`:
``manifest``,
``reset`` and ``act``. Each call of ``act`` takes in what the worker has sent, asks for the next chunk when it is time,
and gives the command for now from the chunks it has: it never waits. A worker that is slow, stopped, killed or wrong
shows itself in one way only: the chunk in force ends, and ``act`` raises :class:`NoAction`. The controller proposes
nothing then, and the guard does what it does about a silent controller.
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
from temporeal_bridge.controller.mailbox import Reply, WorkerLine
from temporeal_bridge.mission import ChunkRecord

REMEMBERED = 64  # observations that may still be answered


class NoAction(RuntimeError):
    """There is no command for now: no chunk has come yet, or the last one has ended. Nothing may be sent."""


@dataclass(frozen=True, eq=False)
class Used:
    """A chunk that was taken in ``at``, of what was ``observed``: times [s] of the policy's clock, rows [K, A]."""

    at: float
    observed: float
    rows: Array


class ChunkedPolicy:
    """The controller's side of a policy that gives chunks.

    Attributes:
        now: time [s] that the last command was for.
        used: the chunks taken in since this was emptied last, the newest ones.

    Args:
        manifest: of an artifact with a chunk.
        line: to the worker.
        clock: monotonic time [s], the transport's.
        playing: how chunks are blended and when they are asked for.
    """

    def __init__(
        self, manifest: Manifest, line: WorkerLine, clock: Callable[[], float], playing: Playing | None = None
    ) -> None:
        if manifest.chunk is None:
            raise ArtifactError(f"{manifest.name} gives one command at a time: it needs no worker")
        self.manifest, self.line, self.clock, self.playing = manifest, line, clock, playing or Playing()
        self.spec, self.rows = manifest.commands[0], manifest.chunk
        self.schema = {spec.name: spec for spec in manifest.signals}
        self.length_s = self.rows.steps * self.rows.dt_s
        self.latency = Latency()
        self.counts: Counter[str] = Counter()
        self.reset()

    def reset(self) -> None:
        """A new mission: no chunk of an observation before it will be used."""
        self.line.take()
        self.plan: Plan | None = None
        self.since, self.last_refusal = self.clock(), ""
        self.now = self.since
        self.asked: deque[float] = deque(maxlen=REMEMBERED)
        self.used: deque[Used] = deque(maxlen=REMEMBERED)

    def prepared(self, signals: Mapping[str, np.ndarray]) -> bool:
        """Whether there is a command for now; asks for it. To be called until it is true before a mission begins: its
        time zero is when row 0 of the first chunk is played. ``signals``: see :meth:`act`."""
        now = self.clock()
        self._go_on(now, signals)
        return command(self.plan, now) is not None

    def act(self, signals: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The command for now, float32 [*shape] by name.

        ``signals`` are taken as observed now. Raises :class:`NoAction` without a chunk for now, and
        :class:`temporeal.robots.signals.SignalError` when the worker would be asked with signals that are missing,
        misshapen or not finite.
        """
        now = self.now = self.clock()
        self._go_on(now, signals)
        value = command(self.plan, now)
        if value is None:
            raise NoAction(self._why_none(now))
        return {self.spec.name: value.astype(np.float32).reshape(self.spec.shape)}

    def _go_on(self, now: float, signals: Mapping[str, np.ndarray]) -> None:
        """Take in what has come, and ask if it is time."""
        for reply in self.line.take():
            self._consider(reply, now)
        if self._due(now):
            self.line.put(now, check_signals(self.schema, signals))
            self.asked.append(now)
            self.counts["asked"] += 1

    def _consider(self, reply: Reply, now: float) -> None:
        why = refusal(reply.rows, reply.observed, now, steps=self.rows.steps, size=self.spec.size, dt=self.rows.dt_s,
                      newest=self._newest, asked=self.asked)
        # a duplicate has no latency of its own, and that of one which was overtaken would put off the next question
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
        """For diagnostics: how many chunks were asked for, used and refused (by reason), and their latency."""
        seconds = {"p95": 1e3 * self.latency.p95, "max": 1e3 * self.latency.most}
        return {**{f"chunks_{code.replace(' ', '_')}": n for code, n in sorted(self.counts.items())},
                **{f"chunk_latency_{k}_ms": v for k, v in seconds.items()}, "chunk_refusal": self.last_refusal}

    def close(self) -> None:
        """End the line."""
        self.line.close()


class ChunkBook:
    """What a controller tells of the chunks that it uses, so that they can be made again: of which observation each is.

    Args:
        policy: whose chunks these are.
    """

    def __init__(self, policy: ChunkedPolicy) -> None:
        self.policy = policy
        self.basis: dict[float, tuple[int, Sequence[int]]] = {}  # by time of the observation: its step and marks
        self.mission, self.count = -1.0, 0  # when its first step was, and how many were told of it

    def note(self, step: int, marks: Sequence[int]) -> None:
        """After the policy was given signals: ``step`` of the mission, ``marks`` of the state's messages."""
        asked = self.policy.asked
        if asked and asked[-1] not in self.basis:
            self.basis = {at: said for at, said in self.basis.items() if at >= asked[0]}
            self.basis[asked[-1]] = step, marks

    def told(self, flight: int, first: float) -> Iterator[ChunkRecord]:
        """Of the chunks taken in since the last call; ``first``: when the first control step was [s, its clock]."""
        if first != self.mission:
            self.mission, self.count = first, 0
        while self.policy.used:
            new = self.policy.used.popleft()
            step, marks = self.basis[new.observed]
            yield ChunkRecord(flight, self.count, new.at - first, new.observed - first, step, marks, new.rows)
            self.count += 1
