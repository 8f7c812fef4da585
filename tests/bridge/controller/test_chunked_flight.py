"""A chunked policy through controller and guard on the memory bus: from the first chunk to the stop for want of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import CHUNK_VERSION, GOLDEN, POLICY, ArtifactError, ChunkSpec, Manifest, encode
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.controller import loading
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.controller.loading import connect_worker, load_artifact
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.policy_node import START_S, PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROBOT = load_robot("crazyflie")
SPEC = ROBOT.command("ctbr_cmd")
HOVER = ROBOT.parameters["mass"].nominal[0] * 9.81
STEPS, DT, PERIOD, LATENCY = 20, 0.02, 0.02, 0.07
MANIFEST = Manifest(
    name="slow", robot="crazyflie", signals=(ROBOT.signals["base_pos_w"], MISSION_TIME), commands=(SPEC,),
    rate_hz=1 / PERIOD, memory=(), formula="G[0,4] (height > 0)", constants={}, horizon_s=4.0, stop="level",
    training={}, versions={}, seed=0, git_revision="test", created="", files={POLICY: "", GOLDEN: ""},
    chunk=ChunkSpec(STEPS, DT), schema_version=CHUNK_VERSION)


def meant(mission_time: np.ndarray | float) -> np.ndarray:
    """The command [..., 4] at a mission time: a roll rate that grows steadily, so that a time can be read off it."""
    t = np.asarray(mission_time, dtype=float)
    return np.stack([np.full_like(t, HOVER), 0.2 * t, 0.0 * t, 0.0 * t], -1)


class Worker:
    """Answers LATENCY after it was asked, from the mission time that it was told; ``held_until``: not before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.alive, self.waiting, self.held_until = clock, True, list[tuple[float, Reply]](), 0.0

    def put(self, at: float, signals) -> None:
        rows = meant(float(signals["mission_time"]) + DT * np.arange(STEPS)).astype(np.float32)
        self.waiting.append((at + LATENCY, Reply(at, LATENCY, rows)))

    def take(self) -> list[Reply]:
        if self.clock() < self.held_until:
            return []
        due = [reply for at, reply in self.waiting if at <= self.clock() and self.alive]
        self.waiting = [pair for pair in self.waiting if pair[0] > self.clock()]
        return due

    def close(self) -> None:
        self.alive = False


class Bench:
    """Controller, guard and worker; a robot that hovers in place and says so at 100 Hz."""

    def __init__(self, lockstep) -> None:
        self.lockstep, interface = lockstep, load_interface(ROBOT, "odometry")
        self.own = MemoryTransport(lockstep.bus, "peer", "/cf1")
        transport = MemoryTransport(lockstep.bus, "policy_node", "/cf1")
        self.worker, ends = Worker(transport.monotonic), linked()
        policy = ChunkedPolicy(MANIFEST, self.worker, transport.monotonic)
        self.node = lockstep.add(transport, PolicyNode(transport, policy, ROBOT, interface, ends[0]))
        transport = MemoryTransport(lockstep.bus, "guard_node", "/cf1")
        self.guard = lockstep.add(transport, GuardNode(transport, MANIFEST, ROBOT, interface, ends[1]))
        self.safety, self.commands, self.modes = interface.safety, list[tuple[float, np.ndarray]](), list[str]()
        topic = interface.command("ctbr_cmd")
        self.own.subscribe(topic.topic, topic.type, QOS["command"], lambda r: self.commands.append((
            r.at, COMMAND_CODECS[topic.codec].decode(messages.decode(r.type, r.data), topic.options))))
        self.own.subscribe("mission", "std_msgs/msg/Header", QOS["latched"], lambda r: self.modes.append(
            messages.decode(r.type, r.data).frame_id))
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS["default"])) for s in interface.states]
        self.start_topic = self.own.advertise("mission/start", "std_msgs/msg/UInt64", QOS["default"])
        self.rng = np.random.default_rng(0)
        self.fly(0.3)

    def fly(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            position = np.array([0.0, 0.0, 1.0]) + 1e-3 * self.rng.normal(size=3)
            quat = np.array([1.0, *(1e-3 * self.rng.normal(size=3))])
            signals = {"base_pos_w": position, "base_quat_w": quat / np.linalg.norm(quat), "base_vel_w": np.zeros(3),
                       "base_ang_vel_b": 1e-3 * self.rng.normal(size=3), "height": position[2]}
            for topic, endpoint in reversed(self.states):
                message = STATE_CODECS[topic.codec].encode(signals, self.own.now(), ("world", "cf1"), topic.options)
                self.own.publish(endpoint, messages.encode(topic.type, message))
            self.lockstep.run(0.01)
            self.own.wait(0.0)

    def begin(self, number: int) -> None:
        kind = "std_msgs/msg/UInt64"
        self.own.publish(self.start_topic, messages.encode(kind, messages.record(kind)(data=number)))


@pytest.fixture
def bench(lockstep) -> Bench:
    return Bench(lockstep)


def test_the_mission_begins_with_the_first_chunk_and_follows_it_on_mission_time(bench):
    bench.begin(1)
    asked = bench.own.monotonic()
    bench.fly(3.0)
    assert bench.modes[-1] == "active 1" and bench.node.flight.starved == 0
    first = bench.commands[0][0]
    assert LATENCY <= first - asked <= LATENCY + 0.03
    for at, command in bench.commands:
        # the state that paces the steps comes every 10 ms; a float32 that rounds is no event
        assert command == pytest.approx(meant(at - first), abs=0.2 * 0.011)
    assert np.diff([at for at, _ in bench.commands]) == pytest.approx(PERIOD, abs=1e-3)


def test_a_worker_that_dies_ends_the_mission_when_its_last_chunk_has_been_flown(bench):
    bench.begin(2)
    bench.fly(1.5)
    bench.worker.alive = False
    bench.fly(1.0)
    end = bench.node.policy.artifact.plan.chunk.end
    assert 1.5 < end - 0.3 < 2.1  # what was there is flown
    followed = [at for at, command in bench.commands if command[0] == pytest.approx(HOVER, rel=1e-3)]
    assert followed[-1] < end and followed[-1] == pytest.approx(end, abs=1.5 * PERIOD)
    stops = [at for at, command in bench.commands if at > followed[-1]]
    assert stops[0] - followed[-1] <= bench.safety["silent_after_s"] + 0.02
    assert "stopping 2" in bench.modes
    assert re.search("proposed nothing", bench.node.flight.reason) and bench.node.flight.starved >= 3
    assert "the last chunk ended" in bench.node.summary()["starved_why"]


def test_a_short_want_of_chunks_is_bridged_by_silence(bench):
    """Shorter than what the guard lets a controller be silent for: the robot keeps its last command, then goes on."""
    bench.begin(3)
    bench.fly(1.0)
    bench.worker.held_until = bench.node.policy.artifact.plan.chunk.end + 1.5 * PERIOD
    bench.fly(1.0)
    assert bench.modes[-1] == "active 3" and 0 < bench.node.flight.starved * PERIOD < bench.safety["silent_after_s"]
    first = bench.commands[0][0]
    at, command = bench.commands[-1]
    assert command == pytest.approx(meant(at - first), abs=0.2 * 0.011)  # mission time went on


def test_without_any_chunk_the_mission_never_begins_and_it_is_said(bench):
    bench.worker.alive = False
    bench.begin(4)
    bench.fly(START_S + 0.5)
    assert bench.commands == [] and bench.modes[-1].startswith("ready")
    assert bench.node.flight.reason == "no chunk of the policy came within 2 s of the start"


def test_diagnostics_tell_of_chunks(bench):
    got, kind = [], "diagnostic_msgs/msg/DiagnosticArray"
    bench.own.subscribe("/diagnostics", kind, QOS["default"], lambda r: got.append(messages.decode(kind, r.data)))
    bench.begin(5)
    bench.fly(2.0)
    values = {v.key: v.value for d in got for s in d.status if "slow" in s.name for v in s.values}
    assert int(values["chunks_used"]) > 3 and float(values["chunk_latency_max_ms"]) >= 1e3 * LATENCY


def test_a_chunked_artifact_is_met_where_its_worker_is(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "manifest.json").write_bytes(encode(MANIFEST))
    policy = connect_worker(tmp_path, ROBOT, load_interface(ROBOT, "odometry"), tmp_path, lambda: 0.0)
    assert policy.manifest == MANIFEST
    policy.close()
    with pytest.raises(ArtifactError, match="for robot 'crazyflie'"):
        connect_worker(tmp_path, load_robot("franka"), load_interface(load_robot("franka")), tmp_path, lambda: 0.0)


def test_a_chunked_artifact_without_a_worker_is_refused(monkeypatch, tmp_path):
    class Loaded:
        manifest = MANIFEST

        @staticmethod
        def load(*_, **__):
            return Loaded()

    monkeypatch.setattr(loading, "Artifact", Loaded)
    monkeypatch.setattr(loading, "load_manifest", lambda *_: MANIFEST)
    with pytest.raises(ArtifactError, match="--worker FOLDER"):
        load_artifact(tmp_path, ROBOT, load_interface(ROBOT, "odometry"))


def test_an_artifact_with_single_commands_needs_no_worker():
    with pytest.raises(ArtifactError, match="one command at a time"):
        ChunkedPolicy(replace(MANIFEST, chunk=None, schema_version=1), Worker(lambda: 0.0), lambda: 0.0)
