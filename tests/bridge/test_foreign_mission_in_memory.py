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
from temporeal_bridge.interface.encoding import encode_all
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

    def start(self) -> None:
        kind = "std_msgs/msg/UInt64"
        self.lockstep.run(0.8)
        self.peer.publish(self.peer.advertise("mission/start", kind, QOS["default"]),
                          messages.encode(kind, messages.record(kind)(data=1)))

    def say(self, topic: str) -> None:
        self.peer.publish(self.peer.advertise(topic, "std_msgs/msg/Empty", QOS["default"]), messages.empty())

    def fly(self, seconds: float) -> dict:
        self.start()
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


class Grip(Chain):
    """The arm with a gripper of its own controller, told by hand."""

    def __init__(self, lockstep, robot: RobotSpec) -> None:
        self.lockstep, found = lockstep, load_interface(robot)
        self.bus = MemoryTransport(lockstep.bus, "robot_sim", "/r1")
        self.robot = lockstep.add(self.bus, RobotSim(self.bus, robot, found, SimOptions(seed=1, command="arm_cmd")))
        self.peer, self.topic = MemoryTransport(lockstep.bus, "peer", "/r1"), found.command("arm_cmd")
        self.endpoints = {row.topic: self.peer.advertise(row.topic, row.type, QOS["default"])
                          for row in self.topic.parts}

    def tell(self, command: np.ndarray, only: str = "") -> None:
        for topic, data in encode_all(self.topic, command, 0):
            if only in ("", topic):
                self.peer.publish(self.endpoints[topic], data)
        self.lockstep.run(1.5)


@pytest.mark.parametrize("gripper, topic", [("controller", "joint_trajectory"), ("command", "command"),
                                            ("action", "gripper_cmd")])
def test_arm_and_gripper_have_drivers_of_their_own(lockstep, tmp_path, gripper, topic):
    robot = foreign_robots.arm(tmp_path / "arm", gripper=gripper)
    world, home = Grip(lockstep, robot), np.array(robot.home["joint_pos"])
    world.tell(np.append(home, 0.03))
    assert world.robot.plant.signals()["finger_pos"] == pytest.approx([0.03, 0.03], abs=3e-3)
    world.tell(np.append(home + 0.1, 0.01), f"gripper_controller/{topic}")
    seen = world.robot.plant.signals()
    assert seen["finger_pos"] == pytest.approx([0.01, 0.01], abs=3e-3)
    assert seen["joint_pos"] == pytest.approx(home, abs=0.03) and world.robot.rejected == 0


def test_a_base_rolls_as_its_twist_says_and_stops_without(lockstep, tmp_path):
    robot = foreign_robots.base(tmp_path / "base")
    found, bus = load_interface(robot), MemoryTransport(lockstep.bus, "robot_sim", "/r1")
    sim = lockstep.add(bus, RobotSim(bus, robot, found, SimOptions(seed=1, settings={"start": {"position_m": 0.0}})))
    peer, topic = MemoryTransport(lockstep.bus, "peer", "/r1"), found.command("twist_cmd")
    endpoint = peer.advertise(topic.topic, topic.type, QOS["default"])
    for _ in range(20):
        peer.publish(endpoint, encode_all(topic, np.array([1.0, 0.5]), 0)[0][1])
        lockstep.run(0.1)
    seen = sim.plant.signals()
    assert np.linalg.norm(seen["base_vel_w"]) == pytest.approx(1.0, abs=0.01)
    radius = np.hypot(seen["base_pos_w"][0], seen["base_pos_w"][1] - 2.0)  # of the circle that 1 m/s and 0.5 rad/s give
    assert radius == pytest.approx(2.0, abs=0.1) and seen["base_pos_w"][1] > 0.5
    lockstep.run(1.5)  # cmd_vel_timeout, and it brakes
    assert np.linalg.norm(sim.plant.signals()["base_vel_w"]) < 1e-3


@pytest.mark.slow
def test_a_quadrotor_of_two_kilograms_flies_over_px4(lockstep, tmp_path):
    robot = foreign_robots.flyer(tmp_path / "flyer")
    artifact = write_artifact(tmp_path / "artifact", mass=2.0, robot=robot)
    chain = Chain(lockstep, robot, artifact, after="silence")
    result = chain.fly(14.0)
    assert result["verdict"] == "satisfied" and result["lost"] == 0, (chain.modes, chain.guard.summary())


@pytest.mark.slow
def test_a_heavy_quadrotor_without_an_autopilot_comes_down_by_its_own_mass(lockstep, tmp_path):
    """The stop action levels out and sinks: the thrust that carries is the spec's, and what the flight has shown."""
    robot = foreign_robots.flyer(tmp_path / "flyer", "odometry")
    chain = Chain(lockstep, robot, write_artifact(tmp_path / "artifact", mass=2.0, robot=robot), after="silence")
    chain.start()
    lockstep.run(2.0)
    chain.say("mission/stop")
    fastest = 0.0
    for _ in range(100):
        lockstep.run(0.1)
        seen = chain.robot.plant.signals()
        fastest = max(fastest, -float(seen["base_vel_w"][2]))
    assert seen["height"] < 0.06 and fastest < 0.6, (chain.modes, fastest)
    assert abs(seen["base_quat_w"][0]) > 0.99 and chain.robot.plant.setpoint[0] == 0.0
