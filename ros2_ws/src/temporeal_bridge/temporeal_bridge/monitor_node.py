"""Watches the mission: the artifact's formula over the live state, bounds and verdict as topics.

    python -m temporeal_bridge.monitor_node --artifact outputs/demo/artifact --namespace /cf1

The state is sampled and held on the formula's grid (the artifact's control period) from mission time zero, which the
guard publishes on ``mission``. Of a state topic's messages only those that are in force at a grid point are read beyond
their stamp: an arm says a thousand a second. A sample older than the staleness limit counts as lost. Where the guard
says that the mission is over, windows without an end are decided; bounded ones are watched to their horizon.

Before it says "idle" the node decides how to evaluate: with numpy where an update is estimated at less than a quarter
of the control period, else with numba, compiled by then (without numba: a warning on standard error).

Topics, in the robot's namespace:

- ``monitor/robustness`` (std_msgs/Float64MultiArray: lower bound, upper bound, mission time [s]), 10 Hz;
- ``monitor/verdict`` (std_msgs/String, latched): JSON with verdict, bounds and each clause, at every change.
  ``at_risk`` warns early: nothing is decided, but whatever happens now, robustness ends below ``--warn-below``.
  ``artifact`` is the digest of the manifest whose formula is judged, ``mission`` that of its robot, formula, constants,
  horizon and rate: the guard heeds only a verdict on the mission that it flies.

A formula that is no artifact's (`temporeal monitor --formula`) is told on ``monitor/own/...``, which no node reads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import floor, inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, check_robot, identity, load_manifest, mission_digest, to_json
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.monitoring.monitor import Reading, keeping_pace
from temporeal_bridge.interface.interface import Interface, InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateReader
from temporeal_bridge.mission import MISSION_TIME, mission_status, task_signals
from temporeal_bridge.process.command_line import add_artifact, parser, robot_of
from temporeal_bridge.process.files import plain
from temporeal_bridge.process.node import run
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, qos_named

PUBLISH_S = 0.1
WARN_BELOW = 0.05  # in the formula's own unit: 5 cm where its predicates are distances
OVER = ("stopping", "finished", "holding", "stopped")  # modes of the guard in which the mission is not flown any more
AHEAD_NS = 1_000_000_000  # a state whose stamp is so far ahead of the last one is read at once: it would hide others
STEP_S = 0.05  # the longest that one step evaluates: messages and signals are seen in between
BEHIND_S = 1.0  # said once per mission
TOPICS, OWN = "monitor", "monitor/own"  # where a formula is told: an artifact's, one of the user's own
EVER = 1  # ns, as a stamp: before everything
LATE_S = 2.0  # a grid point this far in the past takes what has come; less, and a busy machine looks like a lost state


def formula_of(manifest: Manifest, robot: RobotSpec, interface: Interface) -> Formula:
    """The artifact's formula over the signals that topics carry, but no pictures, and the mission time."""
    formula = parse(manifest.formula, {**robot.signals, **task_signals(robot, interface)}, manifest.constants)
    known = {**interface.state, MISSION_TIME.name: MISSION_TIME}
    unseen = sorted(set(signals_in(formula)) - set(known))
    if unseen:
        raise InterfaceError(f"the formula reads {unseen}, which no topic of interface {interface.name!r} carries; "
                             f"carried: {', '.join(interface.state)}")
    return formula


def warn(text: str) -> None:
    """A line in the node's log."""
    print(f"monitor_node: warning: {text}", file=sys.stderr, flush=True)


Signals = dict[str, np.ndarray]


class Held:
    """The samples of one topic that are still needed: what was known at a time is the newest one before it.

    ``steady``: what it brings holds until it brings something else.

    Attributes:
        last: stamp of the newest sample [ns]; -inf: none yet.
    """

    def __init__(self, steady: bool = False) -> None:
        self.steady, self.last = steady, -inf
        self.samples: deque[tuple[int, Callable[[], Signals | None]]] = deque()  # not read yet
        self.known: tuple[int, Signals] | None = None  # the newest of those that were

    def add(self, stamp: int, read: Callable[[], Signals | None]) -> None:
        """A sample that ``read`` gives when it is needed, None if it cannot be right; one that is not newer than the
        last is of no use."""
        if stamp > self.last:
            self.last = stamp
            self.samples.append((stamp, read))

    def since(self, now: int) -> int:
        """The stamp [ns] of a sample without one that has come ``now``. The first one of a steady topic was latched:
        nobody heard when it was said, and discovery may take until after a mission's beginning."""
        return EVER if self.steady and self.last == -inf else now

    def passed(self, time: int) -> bool:
        """Whether a sample later than ``time`` [ns] has come: then what was known at ``time`` cannot change."""
        return self.last > (-inf if self.steady else time)

    def forget(self, time: int) -> None:
        """What is older than the newest sample at or before ``time`` is not needed any more."""
        while len(self.samples) > 1 and self.samples[1][0] <= time:
            self.samples.popleft()

    def at(self, time: int, hold_ns: float) -> Signals | None:
        """The newest sample at or before ``time``, not older than ``hold_ns`` [ns] unless it is steady, else None.

        Older ones are forgotten.
        """
        due = []
        while self.samples and self.samples[0][0] <= time:
            due.append(self.samples.popleft())
        while due:
            stamp, read = due.pop()
            signals = read()
            if signals is not None:
                self.known = stamp, signals
                break
        if self.known is None or not 0 <= time - self.known[0] <= (inf if self.steady else hold_ns):
            return None
        return self.known[1]


class MonitorNode:
    """The formula, online."""

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, *,
        warn_below: float = WARN_BELOW, wanted: Collection[str] | None = None, topics: str = TOPICS,
    ) -> None:
        """``wanted``: signals without which samples may be (None: all are given), for what costs much to compute.
        ``topics``: what the names of those that it publishes begin with."""
        self.warn_below = warn_below
        self.transport, self.manifest, self.robot = transport, manifest, robot
        self.hold_ns = 1e9 * interface.safety["stale_after_s"]
        self.dt = 1.0 / manifest.rate_hz
        self.monitor, slow = keeping_pace(formula_of(manifest, robot, interface), self.dt)  # compiled now, if at all
        if slow:
            warn(slow)
        self.blank = self.monitor.state()
        self.held = [Held(steady=topic.rate_hz == 0) for topic in interface.states]
        self.readers = [StateReader(topic, interface.carried, wanted) for topic in interface.states]
        self.rejected = 0  # messages that cannot be right, of those that were read
        self.endpoints = [  # deep: a monitor may be late, but it must see every sample, in the order of the stamps
            transport.subscribe(topic.topic, topic.type, qos_named("deep" if topic.rate_hz > 0 else topic.qos),
                                partial(self._on_state, i)) for i, topic in enumerate(interface.states)]
        transport.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], self._on_mission)
        self.robustness = transport.advertise(
            f"{topics}/robustness", "std_msgs/msg/Float64MultiArray", QOS["default"])
        self.verdict = transport.advertise(f"{topics}/verdict", "std_msgs/msg/String", QOS["latched"])
        # a mission without an end is no artifact's: it is a formula of whoever watches
        self.judges = {"artifact": identity(manifest), "mission": mission_digest(to_json(manifest))} if isfinite(
            manifest.horizon_s) else {"artifact": "", "mission": ""}
        self.flight, self.start, self.samples, self.lost, self.said = -1, 0, 0, 0, ("", False)
        self.running = self.behind = self.warned = False
        self.end: int | None = None
        self.results: list[dict[str, Any]] = []
        self.next_publish = transport.monotonic()
        self._say("idle")

    @property
    def complete(self) -> bool:
        """Whether every state topic has brought something."""
        return all(held.last > -inf for held in self.held)

    def _on_state(self, topic: int, received: Received) -> None:
        try:
            message, stamp = self.readers[topic].message(received.type, received.data)
        except Exception:  # what bytes from anywhere make a codec raise
            self.rejected += 1
            return
        held = self.held[topic]
        stamp = stamp or held.since(self.transport.now())  # 0: a type without a stamp
        read = partial(self._read, topic, message)
        if held.steady or stamp > held.last + AHEAD_NS:  # the first one, too: whether it can be right matters at once
            signals = read()
            if signals is not None:
                held.add(stamp, lambda: signals)
        else:
            held.add(stamp, read)

    def _read(self, topic: int, message: Any) -> Signals | None:
        try:
            return self.readers[topic].signals(message)
        except Exception:  # ... or messages from anywhere: the one before it holds
            self.rejected += 1
            return None

    def _on_mission(self, received: Received) -> None:
        said = mission_status(received)
        if said is None:
            self.rejected += 1
        elif said.mode == "active" and (said.number, said.start_ns) != (self.flight, self.start):
            self.begin(said.number, said.start_ns)  # a number may come again: it is the time zero that is new
        elif said.mode in OVER and (said.number, said.start_ns) == (self.flight, self.start) and self.end is None:
            self.end = self.transport.now()

    def begin(self, flight: int, start_ns: int) -> None:
        """Judge the mission ``flight``, whose time zero is the stamp ``start_ns`` (`temporeal monitor` uses it too).

        One that is not decided yet stays so, in :attr:`results`: the operator stopped it, and began another.
        """
        if self.running:
            self.results.append(self.result(self.monitor.reading.verdict, self.monitor.reading))
        self.flight, self.start = flight, start_ns
        self.monitor.set_state(self.blank)
        self.samples, self.lost, self.running = 0, 0, True
        self.behind, self.warned, self.end = False, False, None
        self._say("undecided")

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.transport.monotonic() if self.behind else self.next_publish

    def step(self) -> None:
        """Feed the grid points whose sample is known by now, for ``STEP_S`` at most: the next step goes on."""
        now, until = self.transport.now(), self.transport.monotonic() + STEP_S
        self.behind = False
        while self.running and not self.behind:
            at = self.start + round(self.samples * self.dt * 1e9)
            if self.end is not None and at > self.end and self.monitor.horizon_steps is None:
                self._conclude()
                break
            known = all(held.passed(at) for held in self.held)
            if not known and now - at < LATE_S * 1e9:
                break
            self._sample(at)
            self.behind = self.transport.monotonic() >= until
            if self.behind:
                self._behind((now - at) / 1e9 - (0 if known else LATE_S))
        if not self.running:  # between missions only the last samples matter: the next one starts with them
            for held in self.held:
                held.forget(now - round(LATE_S * 1e9))  # time zero is past when the guard says it
        if self.transport.monotonic() >= self.next_publish:
            self.next_publish = self.transport.monotonic() + PUBLISH_S
            if self.running:
                self._publish_bounds()

    def _behind(self, seconds: float) -> None:
        if seconds > BEHIND_S and not self.warned:
            self.warned = True
            kind = "numba" if self.monitor.compiled else "numpy"
            warn(f"{seconds:.1f} s behind at mission time {self.samples * self.dt:.1f} s: updates ({kind}) take longer "
                 f"than the sample period, {1e3 * self.dt:g} ms, or the mission was joined late; no sample is left out")

    def _conclude(self) -> None:
        """The mission has ended: windows without an end are decided."""
        self.running = False
        if self.samples:
            reading = self.monitor.finish()
            self._say(reading.verdict, reading)
            self.results.append(self.result(reading.verdict, reading))

    def _sample(self, at: int) -> None:
        """One grid point: the newest sample of every topic before it, or a lost one."""
        parts = [held.at(at, self.hold_ns) for held in self.held]
        sample: dict[str, Any] | None = None
        if all(part is not None for part in parts):
            sample = {name: value for part in parts if part for name, value in part.items()}
            sample[MISSION_TIME.name] = np.float64(self.samples * self.dt)
        self.lost += sample is None
        self.samples += 1
        reading = self.monitor.update(sample)
        if reading.final or (reading.verdict, self.at_risk(reading)) != self.said:
            self._say(reading.verdict, reading)
        if reading.final:
            self.running = False
            self.results.append(self.result(reading.verdict, reading))

    def at_risk(self, reading: Reading) -> bool:
        """Not decided yet, but no continuation has a robustness of ``warn_below``."""
        return reading.verdict == "undecided" and reading.upper < self.warn_below

    def result(self, verdict: str, reading: Reading | None) -> dict[str, Any]:
        """What is known of the flight."""
        out: dict[str, Any] = {"flight": self.flight, "start_ns": self.start, "verdict": verdict,
                               "final": bool(reading and reading.final)}
        if reading is not None:
            out |= {"at_risk": self.at_risk(reading), "lower": reading.lower, "upper": reading.upper,
                    "time_s": reading.time_s, "lost": self.lost, "samples": reading.samples,
                    "clauses": [{"text": c.text, "lower": c.lower, "upper": c.upper, "verdict": c.verdict}
                                for c in reading.clauses]}
        return out

    def _say(self, verdict: str, reading: Reading | None = None) -> None:
        self.said = verdict, reading is not None and self.at_risk(reading)
        text = json.dumps(plain(self.result(verdict, reading) | self.judges))
        message = messages.record("std_msgs/msg/String")(data=text)
        self.transport.publish(self.verdict, messages.encode("std_msgs/msg/String", message))

    def _publish_bounds(self) -> None:
        reading = self.monitor.reading
        message = messages.array64(np.array([reading.lower, reading.upper, reading.time_s]))
        self.transport.publish(self.robustness, messages.encode("std_msgs/msg/Float64MultiArray", message))

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        now = [self.result(self.monitor.reading.verdict, self.monitor.reading)] if self.running else []
        return {"node": "monitor_node", "formula": self.manifest.formula, "dt": self.dt,
                "compiled": self.monitor.compiled, "state_rejected": self.rejected,
                "flights": [*self.results, *now]}


def judge_truth(
    manifest: Manifest, robot: RobotSpec, interface: Interface, path: Path, start_ns: int
) -> Reading:
    """The formula over the true trajectory that :mod:`robot_sim` wrote, sampled and held on the same grid."""
    formula, dt = formula_of(manifest, robot, interface), 1.0 / manifest.rate_hz
    reads = [name for name in signals_in(formula) if name != MISSION_TIME.name]
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in (*reads, "stamp_ns")}
    monitor, _ = keeping_pace(formula, dt)
    reading = monitor.reading
    for k in range(floor(manifest.horizon_s / dt + 1e-6) + 1):
        row = int(np.searchsorted(arrays["stamp_ns"], start_ns + round(k * dt * 1e9), side="right")) - 1
        sample = {name: arrays[name][max(row, 0)] for name in reads} if row < len(arrays["stamp_ns"]) else None
        reading = monitor.update(sample and {**sample, MISSION_TIME.name: k * dt})
    return reading


def make(args: argparse.Namespace, transport: Transport) -> MonitorNode:
    """The node from its command line."""
    robot = robot_of(args)
    manifest, interface = load_manifest(args.artifact, args.trust), load_interface(
        robot, args.interface, args.signals)
    check_robot(manifest, robot, task_signals(robot, interface))
    reads = signals_in(formula_of(manifest, robot, interface))
    return MonitorNode(transport, manifest, robot, interface, warn_below=args.warn_below, wanted=reads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("monitor_node", "Watch the artifact's formula on the live state.")
    add_artifact(options)
    options.add_argument("--warn-below", type=float, default=WARN_BELOW, metavar="ROBUSTNESS",
                         help="warn as soon as the formula's robustness must end below this (default: %(default)s)")
    return run(options, arguments, make, "monitor.json")


if __name__ == "__main__":
    sys.exit(main())
