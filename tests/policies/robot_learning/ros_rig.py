"""A robot behind ROS 2 in fake time: simulated robot, guard and monitor on a memory bus, and the world of an actor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.bridge.conftest import Lockstep

from temporeal.policies.robot_learning.ros_world import Episodes, RosWorld
from temporeal.policies.robot_learning.ros_world_resets import Simulated
from temporeal.policies.robot_learning.world import Sample
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import load_robot
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport

TURN_S, LEAST_S = 0.002, 1e-6  # of fake time: a shorter run would be none


class Driven(MemoryTransport):
    """While its node waits, the others run."""

    lockstep: Lockstep

    def wait(self, timeout_s: float) -> int:
        """See :class:`MemoryTransport`."""
        count = self._deliver()
        if count or timeout_s <= 0:
            return count
        spent = min(max(timeout_s, LEAST_S), TURN_S)
        self.lockstep.run(spent, until=lambda: any(reader.queue for reader in self.readers))
        return self._deliver()


class Rig:
    """The nodes around one robot, and the world: all of ``artifact``, the robot with the ``hidden`` settings."""

    def __init__(
        self, artifact: Path, hidden: Mapping[str, Any] | None = None, reset: Any = Simulated, first: int = 0
    ) -> None:
        self.lockstep, self.manifest = Lockstep(Bus()), load_manifest(artifact)
        self.base = Artifact.load(artifact)
        robot, ends = load_robot(self.manifest.robot), linked()
        interface = load_interface(robot)
        buses = {name: MemoryTransport(self.lockstep.bus, name, "/cf1") for name in ("robot", "guard", "monitor")}
        self.robot = self.lockstep.add(buses["robot"], RobotSim(
            buses["robot"], robot, interface, SimOptions(settings=hidden or {})))
        self.guard = self.lockstep.add(buses["guard"], GuardNode(
            buses["guard"], self.manifest, robot, interface, ends[1]))
        self.monitor = self.lockstep.add(buses["monitor"], MonitorNode(
            buses["monitor"], self.manifest, robot, interface))
        bus = Driven(self.lockstep.bus, "actor", "/cf1")
        bus.lockstep = self.lockstep
        self.world = RosWorld(bus, self.manifest, robot, interface, ends[0], reset, Episodes(first, "silence"))

    def act(self, sample: Sample) -> np.ndarray:
        """The base's command."""
        return self.base.act(sample.signals)[self.manifest.commands[0].name]

    def episode(self, add: np.ndarray | float = 0.0) -> list[Sample]:
        """All samples of an episode of the base, with ``add`` to each command."""
        self.base.reset()
        samples = [self.world.reset()]
        while not samples[-1].failed and len(samples) <= self.world.horizon and not self.world.judged():
            samples.append(self.world.step(self.act(samples[-1]) + add))
        return samples
