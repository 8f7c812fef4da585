"""A flight of a policy that gives chunks, flown again: its chunks are made again of what they were made of then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples import thinned

from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import load_robot
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import mark
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.mission import MISSION_TIME, ChunkRecord
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording import bags, flight_log
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.bags import BagError
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.replay.comparison import to_json
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions

ROBOT = load_robot("franka")
INTERFACE = load_interface(ROBOT)
KNOWN = {MISSION_TIME.name: MISSION_TIME}
NUMBER, EMPTY = "std_msgs/msg/UInt64", "std_msgs/msg/Empty"
STEPS, RATE_HZ = 20, 25.0
GOAL = np.asarray(ROBOT.home["joint_pos"], dtype=np.float32) + 0.15


def write(path: Path, speed: float = 0.25) -> Path:
    """Joint targets on the way to GOAL at ``speed`` [rad/s], which sway with the mission's time: an artifact."""
    import torch
    from torch import nn

    class Swaying(nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            ahead = (torch.arange(STEPS) / RATE_HZ)[None, :, None]
            way = (torch.tensor(GOAL) - signals["joint_pos"])[:, None]
            sway = 0.02 * torch.sin(2.0 * (signals["mission_time"][:, None, None] + ahead))
            rows = signals["joint_pos"][:, None] + way.clamp(-speed * ahead, speed * ahead) + sway
            return {"joint_pos_cmd": rows}, {}

    policy, rng = Swaying(), np.random.default_rng(0)
    signals = {"joint_pos": (GOAL + 0.1 * rng.normal(size=(8, 7))).astype(np.float32),
               "mission_time": np.arange(8, dtype=np.float32)}
    rows = policy({name: torch.from_numpy(value) for name, value in signals.items()}, {})[0]["joint_pos_cmd"].numpy()
    spec = ArtifactSpec(
        robot=ROBOT, signals=tuple(signals), command="joint_pos_cmd", rate_hz=RATE_HZ,
        formula_text="G[0,3] (norm(joint_pos) < 100)", constants={}, horizon_s=3.0, training={"by": "hand"}, seed=0,
        stop="hold", name="swaying", git_revision="test", chunk=ChunkSpec(STEPS, 1 / RATE_HZ), task_signals=KNOWN)
    export(policy, path, spec,
           {**{f"signals.{name}": value for name, value in signals.items()}, "commands.joint_pos_cmd": rows})
    return path


@pytest.fixture(scope="module")
def swaying(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("swaying") / "artifact")


class Worker:
    """The artifact itself, slow: each answer comes after a time of its own, some too late, and one is lost."""

    def __init__(self, artifact: Artifact, clock: Any) -> None:
        self.artifact, self.clock, self.waiting, self.asked = artifact, clock, list[tuple[float, Reply]](), 0
        self.rng, self.rejected, self.alive = np.random.default_rng(0), 0, True

    def put(self, at: float, signals: Mapping[str, np.ndarray]) -> None:
        self.asked += 1
        rows = self.artifact.act(dict(signals))["joint_pos_cmd"]
        if self.asked != 4 and self.alive:
            delay = 0.9 if self.asked == 6 else self.rng.uniform(0.05, 0.3)
            self.waiting.append((at + delay, Reply(at, delay, rows)))

    def take(self) -> list[Reply]:
        due = [reply for at, reply in self.waiting if at <= self.clock()]
        self.waiting = [pair for pair in self.waiting if pair[0] > self.clock()]
        return due

    def close(self) -> None:
        """Nothing is open."""


class Field:
    """An arm, its controller, guard and recorder on one memory bus."""

    def __init__(self, lockstep: Any, artifact: Path, bag: Path, line: InProcessGuard | None = None) -> None:
        self.lockstep, loaded = lockstep, Artifact.load(artifact, ROBOT, task_signals=KNOWN)
        line = line or InProcessGuard()
        self.bus = {name: MemoryTransport(lockstep.bus, name, "/arm") for name in (
            "robot_sim", "policy_node", "guard_node", "recorder", "peer")}
        lockstep.add(self.bus["robot_sim"], RobotSim(self.bus["robot_sim"], ROBOT, INTERFACE, SimOptions(seed=0)))
        self.recorder = lockstep.add(self.bus["recorder"], Recorder(
            self.bus["recorder"], Bag(bag), robot_topics(INTERFACE, ["/arm"])))
        clock = self.bus["policy_node"].monotonic
        self.worker = Worker(loaded, clock)
        self.node = lockstep.add(self.bus["policy_node"], PolicyNode(
            self.bus["policy_node"], ChunkedPolicy(loaded.manifest, self.worker, clock), ROBOT, INTERFACE,
            InProcessController(line)))
        self.guard = lockstep.add(self.bus["guard_node"], GuardNode(
            self.bus["guard_node"], loaded.manifest, ROBOT, INTERFACE, line, GuardOptions(artifact)))
        lockstep.run(0.5)

    def say(self, topic: str, kind: str, data: bytes) -> None:
        peer = self.bus["peer"]
        peer.publish(peer.advertise(topic, kind, QOS["default"]), data)

    def start(self, number: int, seconds: float) -> None:
        self.say("mission/start", NUMBER, messages.encode(NUMBER, messages.record(NUMBER)(data=number)))
        self.lockstep.run(seconds)
        assert self.guard.mode == "active" and self.guard.flight.number == number

    def reset(self) -> None:
        """Once the arm is kept."""
        self.lockstep.run(2.0, until=lambda: self.guard.mode == "holding")
        self.lockstep.run(0.5)
        assert self.guard.mode == "holding"
        self.say("mission/reset", EMPTY, messages.empty())
        self.lockstep.run(0.4)

    def stall(self, seconds: float) -> None:
        """The controller does not run."""
        pairs = self.lockstep.pairs
        self.lockstep.pairs = [pair for pair in pairs if pair[1] is not self.node]
        self.lockstep.run(seconds)
        self.lockstep.pairs = pairs


@pytest.fixture(scope="module")
def flown(swaying, lockstep_of, tmp_path_factory) -> tuple[Path, PolicyNode]:
    """Three flights: stopped by the operator, ended for want of chunks, and one to its end in which the controller
    stood still; and the controller that flew them."""
    field = Field(lockstep_of(Bus()), swaying, tmp_path_factory.mktemp("chunks") / "bag")
    field.start(1, 1.0)
    field.say("mission/stop", EMPTY, messages.empty())
    field.reset()
    field.start(2, 0.9)
    field.worker.alive = False
    field.lockstep.run(1.0)
    field.reset()
    field.worker.alive = True
    field.start(3, 1.0)
    field.stall(2.4 / RATE_HZ)
    field.lockstep.run(4.0, until=lambda: field.guard.mode == "finished")
    assert [flight.code for flight in field.guard.modes.flights] == ["operator", "silent", ""]
    assert field.guard.mode == "finished" and field.node.flight.missed >= 1
    field.lockstep.run(0.2)
    field.recorder.close()
    return field.recorder.bag.path, field.node


def recorded(bag: Path) -> bags.Recording:
    return bags.read(bag, needed(INTERFACE, bags.robot_of(bag)[0]))


def again(recording: bags.Recording, artifact: Path) -> Any:
    return replay(recording, Artifact.load(artifact, ROBOT, task_signals=KNOWN), ROBOT, INTERFACE, "/arm")


@pytest.mark.slow
def test_a_bag_that_begins_just_before_a_flight(flown, swaying):
    """The guard demands that the robot has rested for 0.05 s: the bag has 0.03 s of it."""
    whole = recorded(flown[0])
    first = flight_log.flights(whole, "/arm")[0][0]
    said = [m for m in whole.messages if m.at >= first.start_ns - 30_000_000]
    found = again(bags.Recording(whole.path, said, {}, ""), swaying)
    assert found.flights[0].equal and found.flights[0].proposed.count > 20 and found.flights[2].equal


@pytest.mark.slow
def test_flights_with_chunks_come_out_the_same(flown, swaying):
    bag, node = flown
    found = again(recorded(bag), swaying)
    assert [flight.equal for flight in found.flights] == [True] * 3, found.flights
    for flight, original in zip(found.flights, node.flights):
        assert flight.proposed.count > 20 and max(flight.sent.largest) < 1e-12
        assert flight.chunks is not None and flight.chunks.count >= 2 * STEPS and max(flight.chunks.largest) == 0.0
        assert flight.unmade == flight.unrecorded == flight.guessed == 0 and len(flight.chunks.largest) == 7
        assert flight.steps == original.steps - original.missed
    assert to_json(found)["flights"][0]["chunks"]["equal"]


@pytest.mark.parametrize("stopped", thinned([True, False], keep=[False]))
def test_a_guard_that_was_told_to_end_while_it_held_the_arm_ends_again(stopped, swaying, lockstep_of, tmp_path):
    """Told in flight it says so. Told when it holds the arm for another reason it says nothing more."""
    field = Field(lockstep_of(Bus()), swaying, tmp_path / "bag")
    field.start(1, 1.0)
    if stopped:
        field.say("mission/stop", EMPTY, messages.empty())
        field.lockstep.run(2.0, until=lambda: field.guard.mode == "holding")
        field.lockstep.run(0.5)
    field.lockstep.run(2.0, until=field.guard.may_end)
    assert field.guard.mode == "holding"
    field.lockstep.pairs = [pair for pair in field.lockstep.pairs if pair[1] is not field.guard]
    field.lockstep.run(0.5)
    field.recorder.close()
    found, = again(recorded(field.recorder.bag.path), swaying).flights
    assert found.equal and found.own.count > 1 and found.events == (("operator",),) * 2


@pytest.mark.slow
def test_a_first_command_that_the_guard_heard_after_the_beginning(swaying, lockstep_of, two_turns, tmp_path):
    """It fades commands in from when the mission began: how much later it made the first one is on record."""
    bus = Bus()
    field = Field(lockstep_of(bus), swaying, tmp_path / "bag", two_turns(bus))
    field.start(1, 1.0)
    field.lockstep.run(4.0, until=lambda: field.guard.mode == "finished")
    field.lockstep.run(0.2)
    field.recorder.close()
    recording = recorded(field.recorder.bag.path)
    told, = flight_log.flights(recording, "/arm").found
    found, = again(recording, swaying).flights
    assert told.basis[0].at > 3e-4 and told.basis[0].step == 0
    assert found.equal and max(found.sent.largest) < 1e-12 and found.modes[0][-1] == "finished"


@pytest.mark.slow
def test_another_network_shows_in_its_chunks_and_in_what_is_proposed(flown, tmp_path):
    found = again(recorded(flown[0]), write(tmp_path / "slower", 0.2))
    first = found.flights[0]
    assert not found.equal and first.chunks.differing > 0 and first.chunks.first == 0
    assert first.proposed.differing > 0 and max(first.chunks.largest) > 1e-3


@pytest.mark.slow
def test_the_time_of_the_observation_matters(flown, swaying):
    recording = recorded(flown[0])
    for i, message in enumerate(recording.messages):
        if message.topic.endswith("policy/chunk"):
            told = ChunkRecord.of(message.decode().data)
            data = messages.encode(message.type, messages.array64(dataclasses.replace(told, step=told.step + 7).row()))
            recording.messages[i] = dataclasses.replace(message, data=data)
    assert again(recording, swaying).flights[0].chunks.differing > 0


@pytest.mark.slow
def test_an_observation_that_the_bag_lacks_is_counted_and_its_chunk_played_as_recorded(flown, swaying):
    recording = recorded(flown[0])
    told = [ChunkRecord.of(m.decode().data) for m in recording.of("/arm/policy/chunk")]
    recording.messages[:] = [m for m in recording.messages if mark(m.data) != told[1].marks[0]]
    first = again(recording, swaying).flights[0]
    assert first.unmade == 1 and first.chunks.equal and first.proposed.equal


@pytest.mark.slow
def test_a_chunk_that_the_bag_lacks_is_told_and_without_its_first_one_a_flight_is_partial(flown, swaying):
    recording, lost = recorded(flown[0]), []
    for message in recording.of("/arm/policy/chunk"):
        told = ChunkRecord.of(message.decode().data)
        if (told.flight, told.number) in ((3, 1), (2, 0)):
            lost.append(message)
    recording.messages[:] = [message for message in recording.messages if message not in lost]
    found = again(recording, swaying)
    assert [(flight.flight, flight.unrecorded) for flight in found.flights] == [(1, 0), (3, 1)] and found.partial == 1
    assert found.flights[0].equal and to_json(found)["flights"][1]["unrecorded_chunks"] == 1
    assert not found.flights[1].equal


@pytest.mark.slow
def test_a_bag_without_chunks_is_refused(flown, swaying):
    recording = recorded(flown[0])
    recording.messages[:] = [message for message in recording.messages if not message.topic.endswith("policy/chunk")]
    with pytest.raises(BagError, match="no flight of /arm with its first one on policy/chunk"):
        again(recording, swaying)


def test_a_record_of_a_chunk_says_what_it_was_told():
    told = ChunkRecord(3, 4, 1.25, 1.0, 25, [7, 9], np.arange(6.0).reshape(3, 2))
    back = ChunkRecord.of(told.row())
    assert (back.flight, back.number, back.at, back.observed, back.step, back.marks) == (3, 4, 1.25, 1.0, 25, [7, 9])
    assert np.array_equal(back.rows, told.rows)
    infinite = np.where(np.arange(len(told.row())) == 7, np.inf, told.row())
    for wrong in ([], [1.0] * 7, told.row()[:-1], [1, 0, 0, 0, 0, 0, 3, 1, 2, 3], np.full(12, np.nan), infinite):
        with pytest.raises(ValueError, match="no record of a chunk"):
            ChunkRecord.of(wrong)
