"""Missions in words on the memory bus: controller, guard, monitor and a simulated arm, with fake time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.bridge.instruction.instructed import CUBE, HOME, ROBOT, write

from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.instruction.sentences import ASK, TEXT, TOLD, message
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS, Received

POSE, PERIOD = "geometry_msgs/msg/PoseStamped", 0.02


class Worker:
    """Answers at the next look, with the artifact's own network."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.replies = artifact, list[Reply]()

    def put(self, at: float, signals: Any) -> None:
        self.replies.append(Reply(at, 0.0, self.artifact.act(signals)["joint_pos_cmd"]))

    def take(self) -> list[Reply]:
        out, self.replies = self.replies, []
        return out

    def close(self) -> None:
        pass


class Arm:
    """Joints that follow the last command at 1 rad/s at most, without physics, and say so at 50 Hz."""

    def __init__(self, own: MemoryTransport, interface: Interface) -> None:
        self.own, self.row, self.command = own, interface.states[0], interface.command("joint_pos_cmd")
        self.joint_pos, self.target, self.rng = HOME.astype(float), HOME.astype(float), np.random.default_rng(0)
        self.out = own.advertise(self.row.topic, self.row.type, QOS["default"])
        own.subscribe(self.command.topic, self.command.type, QOS["command"], self._take)

    def _take(self, received: Received) -> None:
        self.target = COMMAND_CODECS[self.command.codec].decode(
            messages.decode(received.type, received.data), self.command.options)

    def move(self) -> None:
        speed = np.clip((self.target - self.joint_pos) / PERIOD, -1, 1)
        self.joint_pos = self.joint_pos + PERIOD * speed
        noise = 1e-4 * self.rng.normal(size=(2, 7))  # the guard takes a state without any for a frozen one
        seen = {"joint_pos": self.joint_pos, "joint_vel": speed + noise[0], "joint_torque": noise[1]}
        message = STATE_CODECS[self.row.codec].encode(seen, self.own.now(), ("world", "arm1"), self.row.options)
        self.own.publish(self.out, messages.encode(self.row.type, message))


class Chain:
    """The nodes of one arm; ``extra``: file of topics."""

    def __init__(self, lockstep: Any, folder: Path, extra: Path | None = None, instruction: str = "") -> None:
        self.lockstep, interface = lockstep, load_interface(ROBOT, "forward_position", extra)
        buses = {name: MemoryTransport(lockstep.bus, name, "/arm1")
                 for name in ("policy_node", "guard_node", "monitor_node", "peer")}
        self.interface = interface
        artifact, ends, self.own = Artifact.load(folder), linked(), buses["peer"]
        manifest = artifact.manifest
        self.arm = Arm(self.own, interface)
        policy = ChunkedPolicy(manifest, Worker(artifact), buses["policy_node"].monotonic)
        self.policy = PolicyNode(buses["policy_node"], policy, ROBOT, interface, ends[0],
                                 Options("silence", instruction=instruction))
        self.guard = GuardNode(buses["guard_node"], manifest, ROBOT, interface, ends[1])
        self.monitor = MonitorNode(buses["monitor_node"], manifest, ROBOT, interface)
        for name, node in (("policy_node", self.policy), ("guard_node", self.guard), ("monitor_node", self.monitor)):
            lockstep.add(buses[name], node)
        self.told, self.events = list[str](), list[dict[str, Any]]()
        self.own.subscribe(TOLD, TEXT, QOS["latched"], lambda r: self.told.append(
            json.loads(messages.decode(TEXT, r.data).data)["instruction"]))
        self.own.subscribe("policy/event", TEXT, QOS["default"], lambda r: self.events.append(
            json.loads(messages.decode(TEXT, r.data).data)))
        self.verdicts = list[dict[str, Any]]()
        self.own.subscribe("monitor/verdict", TEXT, QOS["default"], lambda r: self.verdicts.append(
            json.loads(messages.decode(TEXT, r.data).data)))
        self.ask = self.own.advertise(ASK, TEXT, QOS["default"])
        self.starts = self.own.advertise("mission/start", "std_msgs/msg/UInt64", QOS["default"])
        self.cube = self.own.advertise("red_cube", POSE, QOS["default"])
        self.cube_at: np.ndarray | None = None
        self.run(0.3)

    def say(self, text: str) -> None:
        self.own.publish(self.ask, message(text))
        self.run(0.05)

    def start(self, number: int) -> None:
        kind = "std_msgs/msg/UInt64"
        self.own.publish(self.starts, messages.encode(kind, messages.record(kind)(data=number)))
        self.run(0.1)

    def run(self, seconds: float, until: Any = lambda: False) -> None:
        """Let time pass, with the cube's pose at 50 Hz where there is a cube."""
        for _ in range(round(seconds / PERIOD)):
            self.arm.move()
            if self.cube_at is not None:
                record = messages.record(POSE)
                pose = messages.record("geometry_msgs/msg/Pose")(
                    position=messages.record("geometry_msgs/msg/Point")(
                        **dict(zip("xyz", map(float, self.cube_at)))),
                    orientation=messages.record("geometry_msgs/msg/Quaternion")(x=0.0, y=0.0, z=0.0, w=1.0))
                self.own.publish(self.cube, messages.encode(POSE, record(
                    header=messages.header(self.own.now(), "world"), pose=pose)))
            self.lockstep.run(PERIOD)
            self.own.wait(0.0)
            if until():
                return

    def fly(self, number: int) -> dict[str, Any]:
        self.start(number)
        results = self.monitor.mission.results
        self.run(7.0, until=lambda: bool(results) and results[-1]["flight"] == number)
        self.run(5.0, until=lambda: self.policy.mode == "ready")
        return results[-1]


def fingertip(chain: Chain) -> np.ndarray:
    """Where the tool is at home, by the arm's own kinematics."""
    return np.array(chain.guard.monitor.values["grip_pos_w"])


@pytest.fixture(scope="module")
def own_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("own") / "artifact")


@pytest.fixture(scope="module")
def suite_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("suite") / "artifact", SUITE, "reach the red cube")


@pytest.fixture
def cube_topic(tmp_path: Path) -> Path:
    path = tmp_path / "signals.yaml"
    path.write_text(yaml.safe_dump(CUBE))
    return path


def test_an_arm_goes_where_it_is_told_and_elsewhere_when_it_is_told_anew(lockstep, own_words):
    chain = Chain(lockstep, own_words)
    chain.start(1)
    assert chain.policy.mode == "waiting" and "mission/instruction, which brought nothing" in chain.events[-1]["reason"]
    where = {}
    for number, text in ((2, "Go left!"), (3, "go right")):
        chain.say(text)
        result = chain.fly(number)
        assert (result["verdict"], result["instruction"]) == ("satisfied", text.lower().strip("!"))
        where[text] = float(chain.arm.joint_pos[0])
    assert where["Go left!"] > 0.1 and where["go right"] < -0.1
    assert chain.told == ["go left", "go right"]
    idle = [verdict for verdict in chain.verdicts if verdict["verdict"] == "idle" and "instruction" in verdict]
    assert [(verdict["instruction"], verdict["flight"]) for verdict in idle] == [("go left", -1), ("go right", -1)]
    assert [flight.instruction for flight in chain.policy.flights] == chain.told


def test_what_is_no_instruction_is_refused_with_its_reason_and_changes_nothing(lockstep, own_words):
    chain = Chain(lockstep, own_words, instruction="go left")
    for text, why in (("", "empty"), ("go up", "unknown word: 'up'"), ("go left go left go", "5 words; at most 4 fit"),
                      ("go " * 2000, "characters")):
        chain.say(text)
        assert chain.events[-1]["code"] == "instruction" and why in chain.events[-1]["reason"]
    chain.own.publish(chain.ask, b"\x00")
    chain.run(0.05)
    assert len(chain.events) == 5 and chain.told == ["go left"]


def test_no_mission_begins_after_a_sentence_that_was_refused(lockstep, own_words):
    """Whoever typed it does not mean the sentence before."""
    chain = Chain(lockstep, own_words, instruction="go left")
    chain.say("go up")
    chain.start(1)
    assert chain.policy.mode == "ready" and "the last instruction was not taken" in chain.events[-1]["reason"]
    chain.say("go left")
    chain.start(2)
    assert chain.policy.mode != "ready" and chain.policy.flight.number == 2
    chain.say("go left")
    assert "an instruction is for a whole mission" in chain.events[-1]["reason"] and not chain.policy.told.refused
    chain.say("go right")
    assert "an instruction is for a whole mission" in chain.events[-1]["reason"] and set(chain.told) == {"go left"}
    chain.run(12.0, until=lambda: chain.policy.mode == "ready")
    chain.start(3)
    assert chain.policy.mode == "ready" and "the last instruction was not taken" in chain.events[-1]["reason"]


def test_the_monitor_watches_the_sentences_own_formula_and_says_why_it_failed(lockstep, suite_words, cube_topic):
    chain = Chain(lockstep, suite_words, cube_topic)
    grip = fingertip(chain)
    chain.cube_at = grip + np.array([0.0, 0.0, 0.02])
    chain.say("reach the blue ball")
    assert "the scene has no blue ball; it has: red cube" in chain.events[-1]["reason"]
    chain.say("move to the red cube")
    result = chain.fly(1)
    assert result["verdict"] == "satisfied" and "why" not in result
    assert "norm(grip_pos_w - red_cube_pos_w)" in result["clauses"][0]["text"]
    chain.cube_at = chain.cube_at + np.array([0.2, 0.0, 0.0])
    result = chain.fly(2)
    assert result["verdict"] == "violated"
    assert result["why"].startswith("the tool never stayed within 5.5 cm of the red cube for 0.5 s")


def test_a_monitor_that_joins_late_judges_by_the_words_in_force(lockstep, suite_words, cube_topic):
    """The guard's status may come before the controller's answer."""
    chain = Chain(lockstep, suite_words, cube_topic)
    late = MemoryTransport(lockstep.bus, "late", "/arm1")
    node = MonitorNode(late, chain.monitor.manifest, ROBOT, chain.interface)
    late.wait(0.0)
    node._on_mission(type("Seen", (), {"type": "std_msgs/msg/Header", "data": messages.encode(
        "std_msgs/msg/Header", messages.header(5, "active 7"))})())
    assert not node.mission.running
    chain.say("reach the red cube")
    late.wait(0.0)
    assert node.mission.running and node.mission.flight == 7 and node.told == "reach the red cube"
