"""Analysis of recorded flights: the monitor's verdict, latencies, counts, gaps.

The verdict is that of the monitor itself (:class:`~temporeal_bridge.monitor.mission_monitor.MissionMonitor`) on the
recorded bytes. Latencies are the nodes' own, each by its own clock: the controller's from the arrival of a state to the
proposal, the guard's from its first work on a proposal to the published command. The link between them is in neither.
The receipt by the recorder says only when that woke up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.mission import mission_status, percentiles
from temporeal_bridge.monitor.mission_monitor import LATE_S, MissionMonitor, Sample
from temporeal_bridge.recording.bags import Message, Recording, full_name
from temporeal_bridge.recording.flight_log import RecordedFlight
from temporeal_bridge.recording.topics import MISSION

BEFORE_NS = 2_000_000_000  # of state before a flight, which its first sample may be made of
GAP = 3.0  # nominal periods without a state that count as a gap
LATE = 1.5  # periods after the last command from which on the next one is late (as in the guard)
ENDLESS_S = 1e6  # length of a flight whose end the bag lacks: 1e9 times as much still fits 64 bits
STOP = 0.5  # periods before the recorder gets a stop: a command of the guard's own then is the stop's first one


@dataclass(frozen=True)
class Judged:
    """One flight by the monitor: its last result, and its samples (None: lost) by signal name."""

    result: Mapping[str, Any]
    samples: list[Sample]


def judge(
    found: Sequence[Message], flight: RecordedFlight, manifest: Manifest, robot: RobotSpec, interface: Interface,
    namespace: str,
) -> Judged | None:
    """A flight by the monitor; None for one that never began (the guard refused it).

    ``found``: its messages, of :func:`parts`.
    """
    samples: list[Sample] = []
    monitor = MissionMonitor(manifest, robot, interface, lambda result: None)
    monitor.on_sample = samples.append
    states: dict[tuple[str, str], list[int]] = {}  # rows of one topic: an arm's and a gripper's joint states
    for i, row in enumerate(interface.states):
        states.setdefault((full_name(row.topic, namespace), row.type), []).append(i)
    now = flight.start_ns - 2 * BEFORE_NS
    for message in found:
        key = message.topic, message.type
        if key in states:
            now = max(now, message.at)
            for i in states[key]:
                monitor.take(i, message.type, message.data, now)
        elif key == (full_name("mission", namespace), MISSION):
            now = max(now, message.at)
            monitor.on_status(mission_status(message), now)
        else:
            continue
        monitor.advance(now)
    if monitor.flight != flight.number:
        return None
    if monitor.running and monitor.end is not None:  # the state fell silent: lost samples follow, as in flight
        monitor.advance(now + round(1e9 * (manifest.horizon_s + 2 * LATE_S)))
    results = [row for row in monitor.flights if row["start_ns"] == monitor.start]  # of no mission before it
    return Judged(results[-1] if results else monitor.result(monitor.formula.reading), samples)


def parts(
    recording: Recording, flights: Sequence[RecordedFlight], interface: Interface, namespace: str
) -> list[list[Message]]:
    """The messages from just before each flight until the next one, after the last earlier message on each topic that
    is published on change (a goal): it still holds. ``flights``: those that the guard let begin."""
    steady = {full_name(row.topic, namespace) for row in interface.states if row.rate_hz == 0}
    ends, out = [flight.start_ns for flight in flights[1:]] + [recording.messages[-1].at + 1], []
    for flight, end in zip(flights, ends):
        begin = flight.start_ns - BEFORE_NS
        held = {m.topic: m for m in recording.messages if m.topic in steady and m.at < begin}
        out.append([*held.values(), *(m for m in recording.messages if begin <= m.at < end)])
    return out


def figures(flight: RecordedFlight, manifest: Manifest) -> dict[str, Any]:
    """Latencies [ms] and counts of one flight.

    ``steps`` of the controller; ``missed``: control periods without one; ``late``: commands more than 1.5 periods after
    the last; ``limited``: sent otherwise than proposed; ``bridged``: the guard's own while the controller was late;
    ``own``: all of the guard's own; ``dropped``: steps without a sent command.
    """
    end = flight.start_ns + round(1e9 * min(flight.over, ENDLESS_S))
    sent = {step: command for step, command in flight.sent if step >= 0}
    stop = end - round(1e9 * STOP / manifest.rate_hz)
    times = [row.at for row in flight.basis if flight.start_ns + round(1e9 * row.at) <= end]
    return {
        "steps": len(flight.steps), "missed": sum(row.missed for row in flight.steps), "sent": len(sent),
        "late": int(np.count_nonzero(np.diff(times) > LATE / manifest.rate_hz)),
        "limited": sum(not np.array_equal(command, flight.mixed.get(step, flight.proposed.get(step, command)))
                       for step, command in sent.items()),
        "bridged": sum(row.step < 0 and flight.start_ns + round(1e9 * row.at) < stop for row in flight.basis),
        "own": sum(step < 0 for step, _ in flight.sent),
        "dropped": sum(row.step not in sent for row in flight.steps), "unrecorded": flight.lost,
        "latency_ms": {"controller": percentiles(first_uses(flight)), "guard": percentiles([*flight.work.values()])}}


def first_uses(flight: RecordedFlight) -> list[float]:
    """Age [s] of the state behind each command, of states that were new then: the controller's own time."""
    marks = [0, *(row.marks[0] for row in flight.steps)]
    fresh = {row.step for before, row in zip(marks, flight.steps) if row.marks[0] != before}
    return [age for step, age in flight.age.items() if step in fresh]


def rates(
    found: Sequence[Message], flight: RecordedFlight, interface: Interface, namespace: str
) -> list[dict[str, Any]]:
    """Of each state or camera topic during the flight: messages, rate [Hz], the longest pause [s] and its beginning,
    gaps."""
    out = []
    end = flight.start_ns + round(1e9 * min(flight.over, ENDLESS_S))
    for row in interface.topics:
        name = full_name(row.topic, namespace)
        at = np.array([m.at for m in found if m.topic == name and flight.start_ns <= m.at <= end], dtype=np.int64)
        pauses = 1e-9 * np.diff(at)
        figures = {"topic": name, "nominal_hz": row.rate_hz, "messages": len(at), "rate_hz": None, "longest_s": None,
                   "longest_at_s": None, "gaps": None}
        if len(pauses):
            worst = int(pauses.argmax())
            figures |= {"rate_hz": float(len(pauses) / max(pauses.sum(), 1e-9)), "longest_s": float(pauses[worst]),
                        "longest_at_s": 1e-9 * float(at[worst] - flight.start_ns)}
            if row.rate_hz > 0:
                figures["gaps"] = int(np.count_nonzero(pauses > GAP / row.rate_hz))
        out.append(figures)
    return out
