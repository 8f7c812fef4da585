"""A flight from the ground through PX4's messages: MuJoCo under the commander's double, the policy behind the offboard
state machine, on the memory bus. And the same policy through the nodes as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robots.spec import load_robot
from temporeal_bridge import codecs, messages, policy_node
from temporeal_bridge.interface import encode_all, load_interface
from temporeal_bridge.memory import MemoryTransport
from temporeal_bridge.px4 import Offboard
from temporeal_bridge.state import StateInput
from temporeal_bridge.transport import QOS, QoS, qos_named

pytest.importorskip("mujoco")

from sim.backends.mujoco_model import Robot
from temporeal_bridge.px4_sim import Px4Commander
from temporeal_bridge.robot_sim import RobotSim

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT, "px4")
INTERFACE = replace(INTERFACE, autopilot=replace(INTERFACE.autopilot, arm="ask"))
COMMAND = INTERFACE.command("ctbr_cmd")
HOVER = np.array([ROBOT.parameters["mass"].nominal[0] * 9.81, 0.0, 0.0, 0.0])
PUBLISHER, READER = QoS(reliable=False, latched=True), QoS(reliable=False)  # PX4's (utilities.hpp)
DT, ON_THE_GROUND = 0.002, {"base_pos_w": (0.0, 0.0, 0.0145)}


class Vehicle:
    """A Crazyflie under PX4, on its topics: odometry at 100 Hz, status, and what it is told."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport, self.body = transport, Robot(ROBOT, "ctbr_cmd", DT, 0)
        self.body.reset(ON_THE_GROUND)
        self.px4 = Px4Commander(INTERFACE.autopilot, COMMAND, HOVER)
        (state,) = INTERFACE.states
        self.state, self.odometry = state, transport.advertise(state.topic, state.type, PUBLISHER)
        self.status = transport.advertise(
            INTERFACE.autopilot.status.topic, INTERFACE.autopilot.status.type, PUBLISHER)
        for row in (*COMMAND.also, COMMAND, INTERFACE.autopilot.orders):
            transport.subscribe(row.topic, row.type, READER, self._take)
        self.next = transport.monotonic()
        self.path: list[np.ndarray] = []

    def _take(self, received) -> None:
        self.px4.receive(received.type, messages.decode(received.type, received.data), received.at)

    def deadline(self) -> float:
        return self.next

    def step(self) -> None:
        now = self.transport.monotonic()
        if now < self.next:
            return
        self.next += 0.01
        for _ in range(5):
            command = self.px4.output(now, self.body.signals())
            self.body.step(np.zeros(4) if command is None else command, 1)
        signals, stamp = self.body.signals(), self.transport.now()
        self.path.append(np.array(signals["base_pos_w"], dtype=float))
        message = codecs.STATES[self.state.codec].encode(signals, stamp, ("", ""), self.state.options)
        self.transport.publish(self.odometry, messages.encode(self.state.type, message))
        for _topic, type, status in self.px4.status(now, stamp):
            self.transport.publish(self.status, messages.encode(type, status))


class Controller:
    """The guard's part of a flight and the policy in one: 50 Hz, newest state in, command and companions out."""

    def __init__(self, transport: MemoryTransport, artifact) -> None:
        self.transport, self.artifact = transport, policy_node.load(artifact, ROBOT)
        self.state = StateInput(transport, ROBOT, INTERFACE)
        self.offboard = Offboard(INTERFACE.autopilot, COMMAND, (4,))
        status = INTERFACE.autopilot.status
        transport.subscribe(status.topic, status.type, qos_named(status.qos), lambda r: self.offboard.on_status(
            messages.decode(r.type, r.data), r.at))
        self.endpoints = {row.topic: transport.advertise(row.topic, row.type, qos_named(row.qos))
                          for row in (*COMMAND.also, COMMAND, INTERFACE.autopilot.orders)}
        self.next, self.ticks, self.began = transport.monotonic(), 0, -1.0

    def deadline(self) -> float:
        return self.next

    def step(self) -> None:
        now, stamp = self.transport.monotonic(), self.transport.now()
        if now < self.next:
            return
        self.next += 0.02
        flying = self.state.complete and not self.offboard.refusal(now)
        for topic, type, message in self.offboard.outputs(now, flying, stamp):
            self.transport.publish(self.endpoints[topic], messages.encode(type, message))
        if flying:
            self.began = now if self.began < 0 else self.began
            signals = {**self.state.newest(), "mission_time": np.float32(self.ticks * 0.02)}
            self.ticks += 1
            spec = ROBOT.command("ctbr_cmd")
            command = np.clip(self.artifact.act(signals)["ctbr_cmd"], spec.low, spec.high)
            for topic, data in encode_all(COMMAND, command, stamp):
                self.transport.publish(self.endpoints[topic], data)


@pytest.fixture
def pair(lockstep, artifact):
    transports = [MemoryTransport(lockstep.bus, name) for name in ("px4", "guard")]
    vehicle = lockstep.add(transports[0], Vehicle(transports[0]))
    controller = lockstep.add(transports[1], Controller(transports[1], artifact))
    return vehicle, controller


def test_from_the_ground_to_both_goals(lockstep, pair):
    vehicle, controller = pair
    lockstep.run(1.0)
    assert len(vehicle.path) == 100 and vehicle.path[-1][2] < 0.02
    assert controller.offboard.ask(lockstep.bus.seconds) == ""
    lockstep.run(5.0, until=lambda: controller.began > 0)
    assert vehicle.path[-1][2] < 0.02  # armed, with no thrust, until the policy begins
    start = len(vehicle.path)
    lockstep.run(6.0)
    path = np.stack(vehicle.path[start:])
    assert np.linalg.norm(path[:300] - (0.5, 0.3, 1.2), axis=-1).min() < 0.25
    assert np.linalg.norm(path[500:] - (-0.3, 0.4, 0.8), axis=-1).max() < 0.25
    assert controller.offboard.failed == "" and vehicle.px4.denials == [] and vehicle.px4.mode == 14


def test_a_controller_that_hangs_is_landed_by_px4(lockstep, pair):
    """Heartbeats come from its steps only, so they end with it: not the last setpoint for ever."""
    vehicle, controller = pair
    lockstep.run(0.5)
    controller.offboard.ask(lockstep.bus.seconds)
    lockstep.run(5.0)
    assert vehicle.path[-1][2] > 0.5
    lockstep.pairs.pop()
    lockstep.run(1.1)
    assert vehicle.px4.failsafe and vehicle.px4.mode == 18
    lockstep.run(15.0, until=lambda: not vehicle.px4.armed)
    assert vehicle.path[-1][2] < 0.06 and not vehicle.px4.armed


@pytest.mark.parametrize("name", ["px4", "mavros"])
def test_the_nodes_speak_it(lockstep, artifact, name):
    """robot_sim and policy_node on these topics, without an autopilot between: frames and signs close the loop."""
    interface = load_interface(ROBOT, name)
    buses = [MemoryTransport(lockstep.bus, node, "/cf1") for node in ("robot_sim", "policy_node")]
    robot = lockstep.add(buses[0], RobotSim(buses[0], ROBOT, interface, seed=3))
    node = lockstep.add(buses[1], policy_node.PolicyNode(
        buses[1], policy_node.load(artifact, ROBOT), ROBOT, interface, after="silence"))
    lockstep.run(0.3)
    peer = MemoryTransport(lockstep.bus, "peer", "/cf1")
    kind = "std_msgs/msg/UInt64"
    peer.publish(peer.advertise("mission/start", kind, QOS["default"]),
                 messages.encode(kind, messages.record(kind)(data=1)))
    lockstep.run(8.0, until=lambda: node.mode == "finished")
    path = np.stack([row[1]["base_pos_w"] for row in robot.truth])
    assert node.mode == "finished" and node.flight.reason == "" and node.state.rejected == 0
    assert np.linalg.norm(path[-20:] - (-0.3, 0.4, 0.8), axis=-1).max() < 0.25
