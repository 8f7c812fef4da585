"""Robots that are nobody's fly through the real nodes with fake time, from their folders alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.bridge import foreign_robots
from tests.bridge.conftest import write_arm_artifact, write_artifact

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.interface import armed_by
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions


class Chain:
    """Simulated robot, guard, controller and monitor of one robot."""

    def __init__(self, lockstep, robot: RobotSpec, artifact: Path, interface: str | None = None, after: str = "stop"):
        self.lockstep = lockstep
        found = load_interface(robot, interface)
        if found.autopilot is not None and found.autopilot.orders is not None:
            found = armed_by(found, "ask")
        manifest, ends = load_manifest(artifact), linked()
        bus = {name: MemoryTransport(lockstep.bus, name, "/r1")
               for name in ("robot_sim", "policy_node", "guard_node", "monitor_node")}
        self.robot = lockstep.add(bus["robot_sim"], RobotSim(bus["robot_sim"], robot, found, SimOptions(
            seed=1, command=manifest.commands[0].name)))
        loaded = load_artifact(artifact, robot, found)
        self.policy = lockstep.add(bus["policy_node"], PolicyNode(
            bus["policy_node"], loaded, robot, found, ends[0], Options(after=after)))
        self.guard = lockstep.add(bus["guard_node"], GuardNode(bus["guard_node"], manifest, robot, found, ends[1]))
        self.monitor = lockstep.add(bus["monitor_node"], MonitorNode(bus["monitor_node"], manifest, robot, found))
        self.peer = MemoryTransport(lockstep.bus, "peer", "/r1")
        self.modes: list[str] = []
        self.peer.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], lambda r: self.modes.append(
            messages.decode("std_msgs/msg/Header", r.data).frame_id))

    def fly(self, seconds: float) -> dict:
        kind = "std_msgs/msg/UInt64"
        self.lockstep.run(0.8)
        self.peer.publish(self.peer.advertise("mission/start", kind, QOS["default"]),
                          messages.encode(kind, messages.record(kind)(data=1)))
        results = self.monitor.mission.results
        self.lockstep.run(seconds, until=lambda: results)
        self.peer.wait(0.0)
        assert results, (self.modes, self.guard.summary())
        return results[-1]


@pytest.mark.parametrize("interface", ["joint_trajectory", pytest.param("forward_position", marks=pytest.mark.slow)])
def test_an_arm_from_a_urdf_satisfies_its_formula(lockstep, tmp_path, interface):
    robot = foreign_robots.arm(tmp_path / "arm")
    artifact = write_arm_artifact(tmp_path / "artifact", robot=robot)
    chain = Chain(lockstep, robot, artifact, interface)
    result = chain.fly(6.0)
    assert result["verdict"] == "satisfied" and result["lost"] == 0, (chain.modes, chain.guard.summary())
    error = chain.robot.plant.signals()["joint_pos"] - robot.home["joint_pos"] - 0.15
    assert np.abs(error).max() < 0.1


def test_a_quadrotor_of_two_kilograms_flies_over_px4(lockstep, tmp_path):
    robot = foreign_robots.flyer(tmp_path / "flyer")
    artifact = write_artifact(tmp_path / "artifact", mass=2.0, robot=robot)
    chain = Chain(lockstep, robot, artifact, after="silence")
    result = chain.fly(14.0)
    assert result["verdict"] == "satisfied" and result["lost"] == 0, (chain.modes, chain.guard.summary())
