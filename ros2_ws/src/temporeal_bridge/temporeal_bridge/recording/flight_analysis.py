"""What a recording says of its flights afterwards: the formula by the monitor itself, latencies, counts, gaps.

The verdict is that of the real :class:`~temporeal_bridge.monitor_node.MonitorNode`, in fake time, on the recorded
bytes.
Latencies are the nodes' own, each by its own clock: the controller's from the arrival of a state to the proposal, the
guard's from when it begins with a proposal until the command has gone. The way between them is in neither. When a
message reached the recorder says only when that woke up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.mission import percentiles
from temporeal_bridge.monitor_node import LATE_S, MonitorNode
from temporeal_bridge.recording.bags import Recording, Said
from temporeal_bridge.recording.flight_log import Flight
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

BEFORE_NS = 2_000_000_000  # of the state before a flight, which its first sample may be made of
GAP = 3.0  # nominal periods without a state that count as a gap
LATE = 1.5  # periods after the last command in which the next one is not late (as the guard has it)
ENDLESS_S = 1e6  # of a flight whose end is not in the bag: what 1e9 times as much is still a time of 64 bits
STOP = 0.5  # periods before the recorder hears that a stop begins: a command of the guard's own then is its first one


@dataclass(frozen=True)
class Judged:
    """One flight by the monitor: its last word, and the samples that it was made of (None: lost) by signal name."""

    result: Mapping[str, Any]
    samples: list[Mapping[str, Any] | None]


class Watching:
    """The monitor's formula, with every sample kept."""

    def __init__(self, monitor: Any) -> None:
        self.monitor = monitor
        self.samples: list[Mapping[str, Any] | None] = []

    def update(self, sample: Mapping[str, Any] | None) -> Any:
        """One grid point."""
        self.samples.append(sample)
        return self.monitor.update(sample)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.monitor, name)


def full(topic: str, namespace: str) -> str:
    """The full name of a robot's topic."""
    return topic if topic.startswith("/") else f"{namespace.rstrip('/')}/{topic}"


def judge(
    said: Sequence[Said], flight: Flight, manifest: Manifest, robot: RobotSpec, interface: Interface, namespace: str
) -> Judged | None:
    """A flight as the monitor sees it; None for one that was never begun (the guard refused it).

    ``said``: of :func:`parts`.
    """
    bus = Bus(flight.start_ns - 2 * BEFORE_NS)
    own, player = MemoryTransport(bus, "monitor_node", namespace), MemoryTransport(bus, "player", namespace)
    node = MonitorNode(own, manifest, robot, interface)
    node.monitor = watching = Watching(node.monitor)  # type: ignore[assignment]
    topics = {full(row.topic, namespace) for row in interface.states} | {full("mission", namespace)}
    endpoints: dict[str, Any] = {}

    def step() -> None:
        own.wait(0.0)
        node.step()
        while node.behind:
            node.step()

    for message in said:
        if message.topic not in topics:
            continue
        bus.seconds = max(bus.seconds, 1e-9 * (message.at - bus.epoch_ns))
        if message.topic not in endpoints:
            endpoints[message.topic] = player.advertise(message.topic, message.type, QOS["latched"])
        player.publish(endpoints[message.topic], message.data)
        step()
    if node.flight != flight.number:
        return None
    if node.running and node.end is not None:  # the state fell silent: what was known stands, as after LATE_S in flight
        bus.advance(manifest.horizon_s + 2 * LATE_S)
        step()
    told = [row for row in node.summary()["flights"] if row["start_ns"] == node.start]  # of no mission before it
    result = told[-1] if told else node.result(node.monitor.reading.verdict, node.monitor.reading)
    return Judged(result, watching.samples)


def parts(
    recording: Recording, flights: Sequence[Flight], interface: Interface, namespace: str
) -> list[list[Said]]:
    """What was said from just before each flight until the next one; ``flights``: those that the guard let begin. First
    what topics said last before that which speak only when something changes (a goal): it still holds."""
    steady = {full(row.topic, namespace) for row in interface.states if row.rate_hz == 0}
    ends, out = [flight.start_ns for flight in flights[1:]] + [recording.said[-1].at + 1], []
    for flight, end in zip(flights, ends):
        begin = flight.start_ns - BEFORE_NS
        held = {m.topic: m for m in recording.said if m.topic in steady and m.at < begin}
        out.append([*held.values(), *(m for m in recording.said if begin <= m.at < end)])
    return out


def figures(flight: Flight, manifest: Manifest) -> dict[str, Any]:
    """Latencies [ms] and counts of one flight.

    ``steps`` of the controller; ``missed``: control periods without one; ``late``: commands that came more than 1.5
    periods after the last; ``limited``: sent otherwise than proposed; ``bridged``: the guard's own while the controller
    was late; ``own``: all of the guard's own; ``dropped``: steps of which no command was sent.
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


def first_uses(flight: Flight) -> list[float]:
    """Age [s] of the state behind each command, of states that were new then: what the controller took for it."""
    marks = [0, *(row.marks[0] for row in flight.steps)]
    fresh = {row.step for before, row in zip(marks, flight.steps) if row.marks[0] != before}
    return [age for step, age in flight.age.items() if step in fresh]


def rates(said: Sequence[Said], flight: Flight, interface: Interface, namespace: str) -> list[dict[str, Any]]:
    """Of each topic of state or camera during the flight: messages, rate [Hz], the longest pause [s] and when it began,
    gaps."""
    out = []
    end = flight.start_ns + round(1e9 * min(flight.over, ENDLESS_S))
    for row in interface.topics:
        name = full(row.topic, namespace)
        at = np.array([m.at for m in said if m.topic == name and flight.start_ns <= m.at <= end], dtype=np.int64)
        pauses = 1e-9 * np.diff(at)
        found = {"topic": name, "nominal_hz": row.rate_hz, "messages": len(at), "rate_hz": None, "longest_s": None,
                 "longest_at_s": None, "gaps": None}
        if len(pauses):
            worst = int(pauses.argmax())
            found |= {"rate_hz": float(len(pauses) / max(pauses.sum(), 1e-9)), "longest_s": float(pauses[worst]),
                      "longest_at_s": 1e-9 * float(at[worst] - flight.start_ns)}
            if row.rate_hz > 0:
                found["gaps"] = int(np.count_nonzero(pauses > GAP / row.rate_hz))
        out.append(found)
    return out
