"""Monitors a mission: the artifact's formula over the live state, with bounds and verdict as topics.

    python -m temporeal_bridge.monitor_node --artifact outputs/demo/artifact --namespace /cf1

Evaluation: :mod:`temporeal_bridge.monitor.mission_monitor`. Before it publishes "idle" the node chooses numpy where an
update is estimated at less than a quarter of the control period, else numba, compiled by then (without numba: a warning
on standard error).

Topics, in the robot's namespace:

- ``monitor/robustness`` (std_msgs/Float64MultiArray: lower bound, upper bound, mission time [s]), 10 Hz;
- ``monitor/drift`` (std_msgs/String, JSON: ``text``, a sentence; kind, ratio, low, high, since, t), where the artifact
  says what it was trained for (:mod:`temporeal_bridge.monitor.drift`): this is no longer that machine. The sentence is
  in the node's log, too. No node acts on it.
- ``monitor/verdict`` (std_msgs/String, latched): JSON with verdict, bounds and each clause, at every change.
  ``at_risk`` warns early: undecided, but whatever happens, robustness ends below ``--warn-below``.
  ``artifact`` is the digest of the manifest whose formula is judged, ``mission`` that of its robot, formula, constants,
  horizon and rate: the guard accepts only verdicts on its own mission.

Where the mission is said in words, the formula is that of the sentence that the controller answers for on
``policy/instruction`` (:mod:`temporeal_bridge.instruction.sentences`); the verdict then has it as ``instruction``, and
of a failed mission ``why``, a sentence. Of a policy that takes formulas it is the formula that was typed, and the
arena's.

Verdicts on a user's own formula (`temporeal monitor --formula`) are published under ``monitor/own/...``, which no node
reads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import Manifest, check_robot, identity, mission_digest, to_json
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.monitoring.monitor import real_time_monitor
from temporeal_bridge.instruction.sentences import (
    TEXT,
    TOLD,
    fixed_text,
    formula_is_of_words,
    is_told,
    lengths,
    meaning,
    mission_of,
    needs_words,
    watched,
)
from temporeal_bridge.interface.interface import Interface, carried_by
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import MissionStatus, mission_status, own_signals, task_signals
from temporeal_bridge.monitor.drift.watch import READS, VELOCITY, DriftWatch
from temporeal_bridge.monitor.failure import Trace
from temporeal_bridge.monitor.formula import formula_of, untold
from temporeal_bridge.monitor.mission_monitor import WARN_BELOW, MissionMonitor, Result
from temporeal_bridge.process.command_line import add_artifact, parser, robot_of
from temporeal_bridge.process.files import plain
from temporeal_bridge.process.node import run
from temporeal_bridge.recording import records
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Received, Transport, qos_named

PUBLISH_S = 0.1
STEP_S = 0.05  # longest evaluation per step: messages and signals are handled in between
TOPICS, OWN = "monitor", "monitor/own"  # where verdicts go: on an artifact's formula, on one of the user's own


def warn(text: str) -> None:
    """A line in the node's log."""
    print(f"monitor_node: warning: {text}", file=sys.stderr, flush=True)


def warm(position: str, dt: float) -> None:
    """Compile what judges nested formulas, which takes up to half a minute where nothing is cached: a mission that is
    typed must not wait for it."""
    near = f"norm({position}) < 1"
    text = f"F[0,{number_text(4 * dt)}] ({near} & F[0,{number_text(4 * dt)}] ({near}))"
    real_time_monitor(parse(text, schema(SignalSpec(position, (3,), "m"))), dt)


class MonitorNode:
    """A :class:`MissionMonitor` on the bus.

    Args:
        wanted: signals that are needed, of those that are costly to compute (None: all).
        topics: beginning of the names of the published topics.
    """

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, *,
        warn_below: float = WARN_BELOW, wanted: Collection[str] | None = None, topics: str = TOPICS,
    ) -> None:
        self.transport, self.manifest, self.robot, self.interface = transport, manifest, robot, interface
        # a mission without an end is no artifact's: it is a user's own formula
        self.judges = {"artifact": identity(manifest), "mission": mission_digest(to_json(manifest))} if isfinite(
            manifest.horizon_s) else {"artifact": "", "mission": ""}
        self.status: MissionStatus | None = None  # the guard's last one, if no words were there to judge it by
        self.told = fixed_text(manifest)
        if manifest.formulas is not None:
            warm(manifest.formulas.position, 1.0 / manifest.rate_hz)
        first, trace, about = self._mission(self.told)
        self.mission = MissionMonitor(first, robot, interface, self._announce, warn=warn, warn_below=warn_below,
                                      wanted=wanted, trace=trace, about=about)
        self.endpoints = [  # deep: a monitor may be late, but it must get every sample, in the order of the stamps
            transport.subscribe(topic.topic, topic.type, qos_named("deep" if topic.rate_hz > 0 else topic.qos),
                                partial(self._on_state, i)) for i, topic in enumerate(interface.states)]
        transport.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], self._on_mission)
        if is_told(manifest):
            transport.subscribe(TOLD, TEXT, QOS["latched"], self._on_instruction)
        self.robustness = transport.advertise(
            f"{topics}/robustness", "std_msgs/msg/Float64MultiArray", QOS["default"])
        self.verdict = transport.advertise(f"{topics}/verdict", "std_msgs/msg/String", QOS["latched"])
        self.drift = self._watch_drift(topics) if topics == TOPICS else None
        self.next_publish = transport.monotonic()
        self._announce(self.mission.result(None, "idle"))

    def _on_state(self, topic: int, received: Received) -> None:
        self.mission.take(topic, received.type, received.data, self.transport.now())

    def _on_mission(self, received: Received) -> None:
        status = mission_status(received)
        if self.drift is not None:
            self.drift.on_status(status)
        if needs_words(self.manifest) and not self.told:  # the controller's answer is on its way
            self.status = status
        else:
            self.mission.on_status(status, self.transport.now())

    def _watch_drift(self, topics: str) -> DriftWatch | None:
        """The watch that the artifact asks for; None: it asks for none, or no topic carries what is needed."""
        rows = [row for row in self.interface.states if row.rate_hz > 0]
        carried = {name: self.interface.states.index(row) for row in rows for name in carried_by(row) if name in READS}
        if self.manifest.drift is None:
            return None
        if missing := [name for name in READS if name not in carried]:
            warn(f"drift is not watched: no topic of interface {self.interface.name!r} carries {', '.join(missing)}")
            return None
        endpoint = self.transport.advertise(f"{topics}/drift", TEXT, QOS["latched"])

        def announce(event: dict[str, Any]) -> None:
            warn(event["text"])
            message = messages.record(TEXT)(data=json.dumps(event | self.judges))
            self.transport.publish(endpoint, messages.encode(TEXT, message))

        watch = DriftWatch(self.manifest.drift, self.manifest.commands[0], self.manifest.rate_hz, announce,
                           carried[VELOCITY], tuple(carried.values()))
        self.mission.on_message = watch.on_state
        self.transport.subscribe("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"], self._on_command)
        return watch

    def _on_command(self, received: Received) -> None:
        """The guard has sent a command."""
        if self.drift is not None:
            with suppress(records.RecordError):  # nobody but a guard publishes there
                self.drift.on_command(records.read("guard/command", received))

    def _mission(self, text: str) -> tuple[Manifest, Trace | None, dict[str, Any]]:
        """What is judged once the policy was told ``text``: formula, trace, and what every verdict says besides."""
        if not text:
            return (untold(self.manifest) if needs_words(self.manifest) else self.manifest), None, {}
        asked = meaning(self.manifest, text)
        trace = None
        if asked is not None:
            trace = Trace(asked, self.robot.tool, 1.0 / self.manifest.rate_hz, lengths(self.manifest))
        return mission_of(self.manifest, self.robot, self.interface, text), trace, {"instruction": text}

    def _on_instruction(self, received: Received) -> None:
        """A sentence is in force. In a mission none is taken, by the controller and here."""
        try:
            text = records.read(TOLD, received)
            if text == self.told:
                return
            if self.mission.running:
                return warn(f"the instruction {text!r} came in a mission, which is judged by {self.told!r}")
            self.mission.watch(*self._mission(text))
        except ValueError as error:
            return warn(f"the instruction is not taken: {error}")
        self.told = text
        self._announce(self.mission.result(None, "idle") | {"flight": -1, "start_ns": 0})  # not of the mission before
        if self.status is not None:
            self.mission.on_status(self.status, self.transport.now())
            self.status = None

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.transport.monotonic() if self.mission.behind else self.next_publish

    def step(self) -> None:
        """Evaluate for at most ``STEP_S``; the next step continues."""
        until = self.transport.monotonic() + STEP_S
        if self.drift is not None:
            self.drift.advance(self.transport.now())
        self.mission.advance(self.transport.now(), lambda: self.transport.monotonic() >= until)
        if self.transport.monotonic() >= self.next_publish:
            self.next_publish = self.transport.monotonic() + PUBLISH_S
            if self.mission.running:
                self._publish_bounds()

    def _announce(self, result: Result) -> None:
        message = messages.record("std_msgs/msg/String")(data=json.dumps(plain(result | self.judges)))
        self.transport.publish(self.verdict, messages.encode("std_msgs/msg/String", message))

    def _publish_bounds(self) -> None:
        reading = self.mission.formula.reading
        message = messages.array64(np.array([reading.lower, reading.upper, reading.time_s]))
        self.transport.publish(self.robustness, messages.encode("std_msgs/msg/Float64MultiArray", message))

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "monitor_node", "formula": self.manifest.formula, "dt": self.mission.dt,
                "compiled": self.mission.formula.compiled, "state_rejected": self.mission.rejected,
                "flights": self.mission.flights, "drift": [] if self.drift is None else self.drift.events}


def make(args: argparse.Namespace, transport: Transport) -> MonitorNode:
    """The node from its command line."""
    robot = robot_of(args)
    manifest, interface = load_manifest(args.artifact, args.trust), load_interface(
        robot, args.interface, args.signals)
    check_robot(manifest, robot, {**task_signals(robot, interface), **own_signals(manifest)})
    reads = None if manifest.formulas is not None else watched(
        robot.tool, interface.state) if formula_is_of_words(manifest) else signals_in(
        formula_of(manifest, robot, interface))
    return MonitorNode(transport, manifest, robot, interface, warn_below=args.warn_below, wanted=reads)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("monitor_node", "Evaluate the artifact's formula on the live state.")
    add_artifact(options)
    options.add_argument("--warn-below", type=float, default=WARN_BELOW, metavar="ROBUSTNESS",
                         help="warn as soon as the formula's robustness must end below this (default: %(default)s)")
    return run(options, arguments, make, "monitor.json")


if __name__ == "__main__":
    sys.exit(main())
