"""Replays: a recorded flight comes out the same, command by command; what is changed shows; what is missing is said."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.export.manifest import load_manifest
from robots.spec import load_robot
from temporeal_bridge import bags, logbook, messages, policy_node
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface import load_interface
from temporeal_bridge.link import line
from temporeal_bridge.memory import MemoryTransport
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recorder import Bag, Recorder, robot_topics
from temporeal_bridge.replay import compare, delivery, needed, replay, uses
from temporeal_bridge.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT)
NUMBER, EMPTY = "std_msgs/msg/UInt64", "std_msgs/msg/Empty"


class Flown:
    """Robot, controller, guard, monitor and recorder on one memory bus."""

    def __init__(self, lockstep: Any, artifact: Path, bag: Path) -> None:
        self.lockstep, manifest = lockstep, load_manifest(artifact)
        ends = line()
        self.bus = {name: MemoryTransport(lockstep.bus, name, "/cf1")
                    for name in ("robot_sim", "policy_node", "guard_node", "monitor_node", "recorder", "peer")}
        self.robot = self.add("robot_sim", lambda bus: RobotSim(bus, ROBOT, INTERFACE, seed=0))
        self.recorder = self.add("recorder", lambda bus: Recorder(bus, Bag(bag), robot_topics(INTERFACE, ["/cf1"])))
        loaded = policy_node.load(artifact, ROBOT, INTERFACE)
        self.policy = self.add("policy_node", lambda bus: PolicyNode(
            bus, loaded, ROBOT, INTERFACE, ends[0], after="silence"))
        self.guard = self.add("guard_node", lambda bus: GuardNode(
            bus, manifest, ROBOT, INTERFACE, ends[1], artifact))
        self.monitor = self.add("monitor_node", lambda bus: MonitorNode(bus, manifest, ROBOT, INTERFACE))

    def add(self, name: str, make: Any) -> Any:
        return self.lockstep.add(self.bus[name], make(self.bus[name]))

    def send(self, topic: str, kind: str, **content: Any) -> None:
        peer = self.bus["peer"]
        data = messages.empty() if kind == EMPTY else messages.encode(kind, messages.record(kind)(**content))
        peer.publish(peer.advertise(topic, kind, QOS["default"]), data)

    def start(self, number: int) -> None:
        self.send("sim/reset", NUMBER, data=number)
        self.lockstep.run(0.2)
        self.send("mission/start", NUMBER, data=number)

    def fly(self, number: int) -> None:
        self.start(number)
        done = self.monitor.results
        self.lockstep.run(8.0, until=lambda: bool(done) and done[-1]["flight"] == number)
        self.lockstep.run(0.3)

    def close(self) -> Path:
        self.recorder.close()
        return self.recorder.bag.path


@pytest.fixture(scope="module")
def bag(artifact, lockstep_of, tmp_path_factory) -> Path:
    """Two flights, the second one stopped by the operator and reset."""
    from temporeal_bridge.memory import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path_factory.mktemp("replay") / "bag")
    flown.fly(3)
    flown.start(4)
    flown.lockstep.run(2.0)
    flown.send("mission/stop", EMPTY)
    flown.lockstep.run(7.0)
    flown.send("mission/reset", EMPTY)
    flown.lockstep.run(0.5)
    return flown.close()


def again(bag: Path, artifact: Path, **changes: Any) -> Any:
    namespace, told = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    return replay(recording, policy_node.load(artifact, ROBOT, INTERFACE), ROBOT, INTERFACE, namespace, **changes)


def test_a_flight_comes_out_bit_for_bit(bag, artifact):
    found = again(bag, artifact, tolerance=0.0)
    assert found.equal and not found.cut and [flight.flight for flight in found.flights] == [3, 4]
    first, second = found.flights
    assert first.sent.count == first.proposed.count == 306 == first.steps and first.own.count == 0
    assert first.modes[1] == ("active", "finished") and first.sent.largest == (0.0,) * 4
    assert second.events == (("operator",),) * 2 and second.own.count > 100
    assert second.modes[1][:3] == ("active", "stopping", "stopped")
    assert all(flight.guessed == flight.lost == 0 for flight in found.flights)
