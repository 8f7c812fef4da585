"""Typed formulas on the memory bus: simulated quadrotor, controller, guard and monitor, with fake time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("mujoco")
pytest.importorskip("torch")

from tests.bridge.instruction.flown_formulas import PLACES, ROBOT, write

from temporeal.robots.artifact.runtime import Artifact
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.instruction.sentences import ASK, TEXT, TOLD, message
from temporeal_bridge.instruction.typed_formulas import canonical
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

POINT = "geometry_msgs/msg/PointStamped"
FIRST_A_THEN_B = "F[0,2] (norm(base_pos_w - a) < r & F[0,2] (norm(base_pos_w - b) < r))"
STAY_AT_B = "F[0,2] G[0,0.4] (norm(base_pos_w - b) < r)"
GOAL = {"definitions": {}, "signals": {"goal_pos_w": {"shape": [3], "unit": "m", "frame": "w"}}, "states": [
    {"topic": "goal", "type": "geometry_msgs/msg/PoseStamped", "codec": "pose", "rate_hz": 50, "qos": "sensor",
     "options": {"frame": "world", "position": "goal_pos_w"}}]}
NUMBER = "std_msgs/msg/UInt64"


def said(formula: str, **constants: Any) -> str:
    """A mission as its YAML file has it."""
    return yaml.safe_dump({"formula": formula, "constants": {**PLACES, **constants}})


class Chain:
    """The nodes of one quadrotor, and its operator."""

    def __init__(self, lockstep: Any, folder: Path, extra: Path | None = None, **options: Any) -> None:
        self.lockstep, self.interface = lockstep, load_interface(ROBOT, "crazyswarm2", extra)
        buses = {name: MemoryTransport(lockstep.bus, name, "/cf1")
                 for name in ("robot_sim", "policy_node", "guard_node", "monitor_node")}
        artifact, ends = Artifact.load(folder), linked()
        self.own = MemoryTransport(lockstep.bus, "peer", "/cf1")
        robot = RobotSim(buses["robot_sim"], ROBOT, load_interface(ROBOT, "crazyswarm2"), SimOptions(seed=0))
        self.robot = lockstep.add(buses["robot_sim"], robot)
        self.policy = lockstep.add(buses["policy_node"], PolicyNode(
            buses["policy_node"], artifact, ROBOT, self.interface, ends[0], Options("silence", **options)))
        self.guard = lockstep.add(buses["guard_node"], GuardNode(
            buses["guard_node"], artifact.manifest, ROBOT, self.interface, ends[1]))
        self.monitor = lockstep.add(buses["monitor_node"], MonitorNode(
            buses["monitor_node"], artifact.manifest, ROBOT, self.interface))
        self.heard: dict[str, list[dict[str, Any]]] = {TOLD: [], "policy/event": [], "policy/forecast": []}
        for topic, kept in self.heard.items():
            self.own.subscribe(topic, TEXT, QOS["default"], lambda r, kept=kept: kept.append(
                json.loads(messages.decode(TEXT, r.data).data)))
        self.ask = self.own.advertise(ASK, TEXT, QOS["default"])
        self.run(0.3)

    def run(self, seconds: float, until: Any = lambda: False) -> None:
        self.lockstep.run(seconds, until=until)
        self.own.wait(0.0)

    def say(self, text: str) -> None:
        self.own.publish(self.ask, message(text))
        self.run(0.1)

    def send(self, topic: str, number: int) -> None:
        self.own.publish(self.own.advertise(topic, NUMBER, QOS["default"]),
                         messages.encode(NUMBER, messages.record(NUMBER)(data=number)))
        self.run(0.2)

    def fly(self, number: int) -> dict[str, Any]:
        self.send("sim/reset", number)
        self.send("mission/start", number)
        results = self.monitor.mission.results
        self.run(12.0, until=lambda: bool(results) and results[-1]["flight"] == number)
        self.run(3.0, until=lambda: self.policy.mode == "ready" and self.guard.mode not in ("active", "stopping"))
        return results[-1]

    @property
    def why(self) -> str:
        """The reason of the last event."""
        return self.heard["policy/event"][-1]["reason"]


@pytest.fixture(scope="module")
def flies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("flies") / "artifact")


def test_formulas_are_typed_one_after_another_and_flown_by_one_process(lockstep, flies):
    chain = Chain(lockstep, flies)
    chain.send("mission/start", 1)
    assert chain.policy.mode == "waiting" and "mission/instruction, which brought nothing" in chain.why
    for number, formula in ((2, FIRST_A_THEN_B), (3, STAY_AT_B)):
        chain.say(said(formula))
        answer = chain.heard[TOLD][-1]
        assert answer["instruction"] == canonical(said(formula)) and 0 < answer["forecast"] < 1
        assert len(answer["itinerary"]) == (2 if number == 2 else 1)
        result = chain.fly(number)
        assert (result["verdict"], result["instruction"]) == ("satisfied", answer["instruction"])
        assert any("wall" in clause["text"] for clause in result["clauses"])  # the arena is judged, too
        assert result["time_s"] == pytest.approx(4.0 if number == 2 else 2.4)
    flight = chain.policy.flights[-1].summary()
    assert 0 < flight["forecast"] < 1 and flight["formula_to_command_ms"] > 0
    on_the_way = [each for each in chain.heard["policy/forecast"] if each["flight"] == 2]
    hits = [each["hits"] for each in on_the_way]
    assert hits == sorted(hits) and hits[0] == 0 and hits[-1] == 2 and len(hits) >= 6
