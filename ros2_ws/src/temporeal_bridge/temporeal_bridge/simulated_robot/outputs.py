"""The topics that a simulated robot publishes its state on, each at its rate, and those of its task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface, StateTopic, carried_by
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.fault_injection import Fault, Sample
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Transport

if TYPE_CHECKING:
    from temporeal.sim.scene import Scene

Signals = Mapping[str, np.ndarray]
Due = Callable[[int], bool]
"""``due(every)``: whether an output with so many publishing periods between two messages is due."""


class Outputs:
    """The robot's own state topics, and topics of its task.

    Args:
        known: the signals that its scene and task add.

    Attributes:
        fastest: rate of the fastest state topic [Hz]: its period is the publishing period.
    """

    def __init__(
        self, transport: Transport, robot: RobotSpec, interface: Interface, scene: Scene | None, known: Collection[str]
    ) -> None:
        self.transport, self.frames = transport, ("world", transport.namespace.strip("/") or robot.name)
        states = [s for s in interface.states if set(carried_by(s)) <= set(robot.signals)]
        self.fastest = max(s.rate_hz for s in states)
        self.states = [(s, transport.advertise(s.topic, s.type, QOS["default"]), round(self.fastest / s.rate_hz))
                       for s in states]
        self.tasks = [(row, transport.advertise(row.topic, row.type, QOS["default" if row.rate_hz else "latched"]),
                       max(round(self.fastest / row.rate_hz), 1) if row.rate_hz else 0)
                      for row in task_rows(interface, robot, scene, known)]

    def publish(self, sample: Sample, fault: Fault | None, due: Due) -> None:
        """The state topics that are due, changed by the fault. The one that paces the controller comes last, so that
        the others are there when it arrives."""
        if fault is not None:
            fault.remember(sample)
        for topic, endpoint, every in reversed(self.states):
            shown = None if not due(every) else sample if fault is None else fault.sample(topic.topic)
            if shown is None:
                continue
            message = self.message(topic, shown.signals, shown.stamp)
            if fault is not None:
                message = fault.message(topic.topic, message)
            self.transport.publish(endpoint, messages.encode(topic.type, message))

    def publish_task(self, true: Signals, stamp: int, due: Due) -> None:
        """The task's topics that are due: true, without latency."""
        for row, endpoint, every in self.tasks:
            if every > 0 and due(every):
                self.transport.publish(endpoint, messages.encode(row.type, self.message(row, true, stamp)))

    def publish_goals(self, true: Signals, stamp: int) -> None:
        """The task's topics that are published once per flight."""
        for row, endpoint, every in self.tasks:
            if every == 0:
                self.transport.publish(endpoint, messages.encode(row.type, self.message(row, true, stamp)))

    def message(self, topic: StateTopic, signals: Signals, stamp: int) -> Any:
        """The message of a state topic."""
        return STATE_CODECS[topic.codec].encode(signals, stamp, self.frames, topic.options)

    def messages(self, signals: Signals) -> dict[str, tuple[str, Any]]:
        """Type and message of every state topic of the robot's own."""
        return {topic.topic: (topic.type, self.message(topic, signals, 0)) for topic, _, _ in self.states}


def task_rows(
    interface: Interface, robot: RobotSpec, scene: Scene | None, known: Collection[str]
) -> list[StateTopic]:
    """The interface's topics of ``known`` signals that the robot does not have, and of each object's pose."""
    own = [row for row in interface.states
           if (carried := set(carried_by(row))) <= set(known) and not carried & set(robot.signals)]
    poses = [task_topics.pose_row(scene, o.name, o.signals) for o in scene.objects] if scene is not None else []
    there = {row.topic for row in own}
    return own + [StateTopic(**row) for row in poses if row and row["topic"] not in there]
