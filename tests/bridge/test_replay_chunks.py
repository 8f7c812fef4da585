"""A flight of a policy that gives chunks, flown again: its chunks are made again of what they were made of then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.export.runtime import Artifact
from robots.spec import load_robot
from temporeal_bridge import bags, messages
from temporeal_bridge.bags import BagError
from temporeal_bridge.chunked import ChunkedPolicy
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface import load_interface
from temporeal_bridge.link import line
from temporeal_bridge.mailbox import Reply
from temporeal_bridge.memory import Bus, MemoryTransport
from temporeal_bridge.mission import ToldChunk
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recorder import Bag, Recorder, robot_topics
from temporeal_bridge.replay import needed, replay, to_json
from temporeal_bridge.state import mark
from temporeal_bridge.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim

ROBOT = load_robot("franka")
INTERFACE = load_interface(ROBOT)
NUMBER = "std_msgs/msg/UInt64"


class Worker:
    """The artifact itself, slow: each answer comes after a time of its own, some too late, and one is lost."""

    def __init__(self, artifact: Artifact, clock: Any) -> None:
        self.artifact, self.clock, self.waiting, self.asked = artifact, clock, list[tuple[float, Reply]](), 0
        self.rng, self.rejected = np.random.default_rng(0), 0

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        self.asked += 1
        rows = self.artifact.act(dict(signals))["joint_pos_cmd"]
        if self.asked != 4:
            delay = 0.9 if self.asked == 6 else self.rng.uniform(0.05, 0.3)
            self.waiting.append((at + delay, Reply(at, delay, rows)))

    def take(self) -> list[Reply]:
        due = [reply for at, reply in self.waiting if at <= self.clock()]
        self.waiting = [pair for pair in self.waiting if pair[0] > self.clock()]
        return due

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def flown(chunked_arm_artifact, lockstep_of, tmp_path_factory) -> tuple[Path, PolicyNode]:
    """Two flights, and the controller that flew them."""
    lockstep, ends, artifact = lockstep_of(Bus()), line(), Artifact.load(chunked_arm_artifact, ROBOT)
    bus = {name: MemoryTransport(lockstep.bus, name, "/arm") for name in (
        "robot_sim", "policy_node", "guard_node", "recorder", "peer")}
    lockstep.add(bus["robot_sim"], RobotSim(bus["robot_sim"], ROBOT, INTERFACE, seed=0))
    path = tmp_path_factory.mktemp("chunks") / "bag"
    recorder = lockstep.add(bus["recorder"], Recorder(bus["recorder"], Bag(path), robot_topics(INTERFACE, ["/arm"])))
    clock = bus["policy_node"].monotonic
    policy = ChunkedPolicy(artifact.manifest, Worker(artifact, clock), clock)
    node = lockstep.add(bus["policy_node"], PolicyNode(bus["policy_node"], policy, ROBOT, INTERFACE, ends[0]))
    guard = lockstep.add(bus["guard_node"], GuardNode(
        bus["guard_node"], artifact.manifest, ROBOT, INTERFACE, ends[1], chunked_arm_artifact))
    lockstep.run(0.5)
    for number in (1, 2):
        data = messages.encode(NUMBER, messages.record(NUMBER)(data=number))
        bus["peer"].publish(bus["peer"].advertise("mission/start", NUMBER, QOS["default"]), data)
        lockstep.run(4.0)
        assert guard.mode == "holding" or guard.flight.sent > 20, guard.flight
        bus["peer"].publish(bus["peer"].advertise("mission/reset", "std_msgs/msg/Empty", QOS["default"]),
                            messages.empty())
        lockstep.run(0.5)
    recorder.close()
    return recorder.bag.path, node


def again(bag: Path, artifact: Path, drop: str = "") -> Any:
    namespace, _ = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    recording.said[:] = [message for message in recording.said if not drop or not message.topic.endswith(drop)]
    return replay(recording, Artifact.load(artifact, ROBOT), ROBOT, INTERFACE, namespace)


def test_a_flight_with_chunks_comes_out_the_same(flown, chunked_arm_artifact):
    bag, node = flown
    found = again(bag, chunked_arm_artifact)
    assert found.equal and len(found.flights) == 2
    for flight, original in zip(found.flights, node.flights):
        assert flight.steps > 40 and flight.proposed.count > 40 and max(flight.sent.largest) < 1e-12
        assert flight.chunks is not None and flight.chunks.count >= 5 * 20 and max(flight.chunks.largest) == 0.0
        assert flight.unmade == flight.guessed == 0 and len(flight.chunks.largest) == 7
        assert flight.steps == original.steps - original.missed
    assert to_json(found)["flights"][0]["chunks"]["equal"]


def test_another_network_shows_in_its_chunks_and_in_what_is_proposed(flown, slower_chunked_arm_artifact):
    found = again(flown[0], slower_chunked_arm_artifact)
    first = found.flights[0]
    assert not found.equal and first.chunks.differing > 0 and first.chunks.first == 0
    assert first.proposed.differing > 0 and max(first.chunks.largest) > 1e-3


def test_an_observation_that_the_bag_lacks_is_counted_and_its_chunk_played_as_recorded(flown, chunked_arm_artifact):
    bag, _ = flown
    namespace, _ = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    told = [ToldChunk.of(m.decode().data) for m in recording.of("/arm/policy/chunk")]
    lost = told[3].marks[0]
    recording.said[:] = [m for m in recording.said if mark(m.data) != lost]
    first = replay(recording, Artifact.load(chunked_arm_artifact, ROBOT), ROBOT, INTERFACE, namespace).flights[0]
    assert first.unmade == 1 and first.chunks.equal and first.proposed.equal


def test_a_bag_without_chunks_is_refused(flown, chunked_arm_artifact):
    with pytest.raises(BagError, match="flight 1 on policy/chunk"):
        again(flown[0], chunked_arm_artifact, drop="policy/chunk")


def test_a_record_of_a_chunk_says_what_it_was_told():
    told = ToldChunk(3, 1.25, 1.0, 25, [7, 9], np.arange(6.0).reshape(3, 2))
    back = ToldChunk.of(told.row())
    assert (back.flight, back.at, back.observed, back.step, back.marks) == (3, 1.25, 1.0, 25, [7, 9])
    assert np.array_equal(back.rows, told.rows)
    for wrong in ([], [1.0] * 6, told.row()[:-1], [1, 0, 0, 0, 0, 3, 1, 2, 3], np.full(12, np.nan)):
        with pytest.raises(ValueError, match="no record of a chunk"):
            ToldChunk.of(wrong)
