"""The formula of a mission, evaluated online: state samples and the guard's modes in, verdicts out. Without a bus and
without a clock: the caller passes the time.

The state is sampled and held on the formula's grid (the artifact's control period) from mission time zero. A sample
older than the staleness limit counts as lost. Which samples count: :mod:`temporeal.sim.stl.samples`; only topics and
fields that the formula reads can lose one. Where the guard says that the mission is over, windows without an end are
decided; bounded ones are watched to their horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.monitoring.monitor import Reading, real_time_monitor
from temporeal.sim.stl.samples.times import TopicClock
from temporeal.sim.stl.semantics.verdicts import VIOLATED
from temporeal_bridge.interface.interface import Interface, carried_by
from temporeal_bridge.interface.state_input import StateReader
from temporeal_bridge.mission import MISSION_TIME, MissionStatus
from temporeal_bridge.monitor.failure import Trace
from temporeal_bridge.monitor.formula import formula_of
from temporeal_bridge.monitor.held_samples import HeldSamples, Signals

WARN_BELOW = 0.05  # in the formula's own unit: 5 cm where its predicates are distances
OVER = ("stopping", "finished", "holding", "stopped")  # modes of the guard in which the mission is over
AHEAD_NS = 1_000_000_000  # a sample with a stamp so far ahead of the last is decoded at once: it would hide others
BEHIND_S = 1.0  # warned about once per mission
LATE_S = 2.0  # grid points this far in the past are sampled from what has arrived. Less, and a busy machine looks like
# a lost state

Sample = Mapping[str, Any] | None
Result = dict[str, Any]


class MissionMonitor:
    """The verdicts of one mission after another.

    Args:
        announce: gets each change of the verdict, as :meth:`result`.
        warn: gets lines for the log.
        warn_below: a mission is at risk once its robustness must end below this.
        wanted: signals that are needed, of those that are costly to compute (None: all).
        trace: explains failures in a sentence; None: nobody does.

    Attributes:
        about: what :meth:`result` says besides, of every mission with this formula.
        why: why this mission failed; empty: it did not, or it is not known.
        on_sample: gets every sample of the grid; None: lost. For whoever wants to keep them.
        on_message: gets the topic, the time [ns] and the reader of every message. For whoever needs them all.
        formula: the online monitor of :mod:`temporeal.sim.stl`.
        flight, start: number and time zero [ns] of the mission. end: when it was over [ns]; None: not yet.
        results: of the missions that are over.
        behind: whether grid points remain that could be evaluated now.
        rejected: messages that could not be right.
        late: messages whose stamp repeated or went back in the mission; they are left out.
    """

    def __init__(
        self, manifest: Manifest, robot: RobotSpec, interface: Interface, announce: Callable[[Result], None], *,
        warn: Callable[[str], None] = lambda text: None, warn_below: float = WARN_BELOW,
        wanted: Collection[str] | None = None, trace: Trace | None = None, about: Mapping[str, Any] | None = None,
    ) -> None:
        self.announce, self.warn, self.warn_below = announce, warn, warn_below
        self.robot, self.interface, self.wanted = robot, interface, wanted
        self.on_sample: Callable[[Sample], None] = lambda sample: None
        self.on_message: Callable[[int, int, Callable[[], Signals | None]], None] = lambda topic, stamp, read: None
        self.hold_ns = 1e9 * interface.safety["stale_after_s"]
        self.dt = 1.0 / manifest.rate_hz
        self.held = [HeldSamples(steady=topic.rate_hz == 0) for topic in interface.states]
        self.clocks = [TopicClock() for _ in interface.states]
        self.names = [topic.topic for topic in interface.states]
        self.watch(manifest, trace, about)
        self.flight, self.start, self.samples, self.lost, self.rejected = -1, 0, 0, 0, 0
        self.announced = ("", False)  # verdict, at risk
        self.late_before, self.told_late = 0, False
        self.running = self.behind = self.warned = False
        self.end: int | None = None
        self.results: list[Result] = []

    def watch(
        self, manifest: Manifest, trace: Trace | None = None, about: Mapping[str, Any] | None = None
    ) -> None:
        """Judge missions by the formula of ``manifest`` from the next one on. Not in a mission."""
        formula = formula_of(manifest, self.robot, self.interface)
        reads, states = set(signals_in(formula)), self.interface.states
        self.formula, slow = real_time_monitor(formula, self.dt)  # compiled here
        if slow:
            self.warn(slow)
        self.blank, self.trace, self.about, self.why = self.formula.state(), trace, dict(about or {}), ""
        # of everything, or where that is wrong of what the formula reads
        self.readers = [tuple(StateReader(topic, self.interface.carried, names)
                              for names in ((None, reads) if self.wanted is None else (self.wanted,)))
                        for topic in states]
        # topics that the formula reads, and those whose samples say that time has passed
        self.read_by = [k for k, topic in enumerate(states) if reads & set(carried_by(topic))]
        moving = [k for k in self.read_by if not self.held[k].steady]
        self.paced_by = moving or [*range(len(self.held))]

    @property
    def complete(self) -> bool:
        """Whether every state topic has delivered a message."""
        return all(held.last > -inf for held in self.held)

    def take(self, topic: int, type: str, data: bytes, now: int) -> None:
        """A message of state topic number ``topic`` that arrives ``now`` [ns]."""
        complete = self._first_of(topic, lambda reader: reader.message(type, data, 1e-9 * now))
        if complete is None:  # wrong, or a part: others are needed
            return
        message, stamp = complete
        held, clock = self.held[topic], self.clocks[topic]
        if clock.sets(stamp):
            held.restart(0)
        stamp = clock.time(stamp, held.since(now))
        read = partial(self._read, topic, message)
        self.on_message(topic, stamp, read)
        if held.steady or stamp > held.last + AHEAD_NS:  # the first one, too: whether it is right matters at once
            signals = read()
            if signals is not None:
                held.add(stamp, lambda: signals)
        else:
            held.add(stamp, read)
        if self.running and not self.told_late and self.late:
            self.told_late = True
            self.warn(f"a message of {self.names[topic]} repeats a stamp or goes back; such messages are left out")

    def _read(self, topic: int, message: Any) -> Signals | None:
        """The signals of a message; None: they are wrong, and the sample before it holds."""
        return self._first_of(topic, lambda reader: reader.signals(message))

    def _first_of(self, topic: int, of: Callable[[StateReader], Any]) -> Any:
        """What the first reader gives that takes the message; None, and it is counted, if none does."""
        for reader in self.readers[topic]:
            with suppress(Exception):  # whatever bytes from anywhere make a codec raise
                return of(reader)
        self.rejected += 1
        return None

    @property
    def late(self) -> int:
        """See the attributes."""
        return sum(held.late for held in self.held) - self.late_before

    def on_status(self, status: MissionStatus | None, now: int) -> None:
        """The guard's mode, published ``now`` [ns]; None: no guard can have published it."""
        if status is None:
            self.rejected += 1
            return
        same = (status.number, status.start_ns) == (self.flight, self.start)
        if status.mode == "active" and not same:  # a number may be used again: the time zero is new
            self.begin(status.number, status.start_ns)
        elif status.mode in OVER and same and self.end is None:
            self.end = now

    def begin(self, flight: int, start_ns: int) -> None:
        """Judge mission ``flight``, whose time zero is the stamp ``start_ns``.

        A mission that is still undecided is kept as undecided in :attr:`results`: the operator began another one.
        """
        if self.running:
            self.results.append(self.result(self.formula.reading))
        self.flight, self.start = flight, start_ns
        self.formula.set_state(self.blank)
        self.samples, self.lost, self.running = 0, 0, True
        self.late_before, self.told_late = self.late_before + self.late, False
        self.behind, self.warned, self.end, self.why = False, False, None, ""
        if self.trace is not None:
            self.trace.restart()
        self._announce("undecided")

    def advance(self, now: int, out_of_time: Callable[[], bool] = lambda: False) -> None:
        """Evaluate the grid points whose samples are final at ``now`` [ns]. It stops when ``out_of_time()``, sets
        :attr:`behind`, and continues in the next call."""
        self.behind = False
        while self.running and not self.behind:
            at = self.start + round(self.samples * self.dt * 1e9)
            if self.end is not None and at > self.end and self.formula.horizon_steps is None:
                self._conclude()
                break
            final = all(self.held[k].passed(at) for k in self.paced_by)
            if not final and now - at < LATE_S * 1e9:
                break
            self._sample(at)
            self.behind = out_of_time()
            if self.behind:
                self._warn_behind((now - at) / 1e9 - (0 if final else LATE_S))
        if not self.running:  # between missions only the last samples matter: the next one starts with them
            for held in self.held:
                held.forget(now - round(LATE_S * 1e9))  # time zero is past when the guard publishes it

    def _warn_behind(self, seconds: float) -> None:
        if seconds > BEHIND_S and not self.warned:
            self.warned = True
            kind = "numba" if self.formula.compiled else "numpy"
            self.warn(f"{seconds:.1f} s behind at mission time {self.samples * self.dt:.1f} s: updates ({kind}) take "
                      f"longer than the sample period, {1e3 * self.dt:g} ms, or the mission was joined late; no sample "
                      "is left out")

    def _conclude(self) -> None:
        """The mission is over: windows without an end are decided."""
        self.running = False
        if self.samples:
            reading = self.formula.finish()
            self._announce(reading.verdict, reading)
            self.results.append(self.result(reading))

    def _sample(self, at: int) -> None:
        """One grid point: the newest sample of every topic before it, or where the formula reads it a lost one."""
        parts = [held.at(at, self.hold_ns) for held in self.held]
        sample: dict[str, Any] | None = None
        if all(parts[k] is not None for k in self.read_by):
            sample = {name: value for part in parts if part for name, value in part.items()}
            sample[MISSION_TIME.name] = np.float64(self.samples * self.dt)
        self.lost += sample is None
        self.samples += 1
        self.on_sample(sample)
        if self.trace is not None:
            self.trace.take(sample)
        reading = self.formula.update(sample)
        if reading.final and reading.verdict == VIOLATED and self.trace is not None:
            self.why = self.trace.why()
        if reading.final or (reading.verdict, self.at_risk(reading)) != self.announced:
            self._announce(reading.verdict, reading)
        if reading.final:
            self.running = False
            self.results.append(self.result(reading))

    def at_risk(self, reading: Reading) -> bool:
        """Undecided, but no continuation has a robustness of ``warn_below``."""
        return reading.verdict == "undecided" and reading.upper < self.warn_below

    def result(self, reading: Reading | None, verdict: str = "") -> Result:
        """What is known of the mission. ``verdict``: where there is no reading yet."""
        out: Result = {"flight": self.flight, "start_ns": self.start,
                       "verdict": reading.verdict if reading else verdict, "final": bool(reading and reading.final)}
        out |= self.about | ({"why": self.why} if self.why else {})
        if reading is not None:
            out |= {"at_risk": self.at_risk(reading), "lower": reading.lower, "upper": reading.upper,
                    "time_s": reading.time_s, "lost": self.lost, "late": self.late, "samples": reading.samples,
                    "clauses": [{"text": c.text, "lower": c.lower, "upper": c.upper, "verdict": c.verdict}
                                for c in reading.clauses]}
        return out

    def _announce(self, verdict: str, reading: Reading | None = None) -> None:
        self.announced = verdict, reading is not None and self.at_risk(reading)
        self.announce(self.result(reading, verdict))

    @property
    def flights(self) -> list[Result]:
        """Results of all missions, the present one included."""
        return [*self.results, *([self.result(self.formula.reading)] if self.running else [])]
