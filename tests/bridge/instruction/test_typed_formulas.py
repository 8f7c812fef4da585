"""Typed formulas on the memory bus: simulated quadrotor, controller, guard and monitor, with fake time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("mujoco")
pytest.importorskip("torch")

from tests.bridge.instruction.flown_formulas import PLACES, RATE_HZ, ROBOT, write

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.itineraries.program import split
from temporeal_bridge import monitor_node
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.controller.formula_mission import NOMINAL
from temporeal_bridge.controller.instructed import Instructed
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.instruction.sentences import ASK, TEXT, TOLD, message
from temporeal_bridge.instruction.typed_formulas import canonical, content_of, typed
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

POSE = "geometry_msgs/msg/PoseStamped"
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
def fitting(flies: Path) -> Any:
    """Manifest, robot and interface."""
    return load_manifest(flies), ROBOT, load_interface(ROBOT, "crazyswarm2")


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
        assert NOMINAL in answer["notes"]  # its artifact does not say that it was calibrated under a randomization
        assert len(answer["itinerary"]) == (2 if number == 2 else 1)
        result = chain.fly(number)
        assert chain.policy.told.flown.done == (1 if number == 2 else 0)  # planned again where a place was left
        assert (result["verdict"], result["instruction"]) == ("satisfied", answer["instruction"])
        assert any("wall" in clause["text"] for clause in result["clauses"])  # the arena is judged, too
        assert result["time_s"] == pytest.approx(4.0 if number == 2 else 2.4)
    flight = chain.policy.flights[-1].summary()
    assert 0 < flight["forecast"] < 1 and flight["formula_to_command_ms"] > 0
    on_the_way = [each for each in chain.heard["policy/forecast"] if each["flight"] == 2]
    hits = [each["hits"] for each in on_the_way]
    assert hits == sorted(hits) and hits[0] == 0 and hits[-1] == 2 and len(hits) >= 6


REFUSED = {
    "F[0,4] (norm(base_pos_v - a) < r)": "base_pos_v",
    "F[0,4] (height > 0.5)": "height > 0.5 is no place",
    "F[0,4] (norm(base_vel_w - a) < r)": "base_vel_w is not where the robot is",
    "G[0,4] (F[0,2] (norm(base_pos_w - a) < r) -> G[0,1] (norm(base_pos_w - b) < r))": "not decomposable",
    "F[0,40] (norm(base_pos_w - a) < r)": "decided after 40 s; the policy 'flies' was trained for at most 30 s",
    "F (norm(base_pos_w - a) < r)": "window without an end",
    "F[0,4] (norm(base_pos_w - a) < 0.04)": "half width of 0.04 m; the policy counts as inside from 0.05 m on",
    "F[0,4] (norm(base_pos_w - [-1e300, 0, 1]) < r)": "has the number 1e+300; numbers up to 1e+06 are legal",
    " & ".join(f"(F[0,5] (norm(base_pos_w - [{k},0,1]) < r) | F[0,5] (norm(base_pos_w - [{k},1,1]) < r))"
               for k in range(9)): "512 ways to satisfy the formula; at most 64 are legal",
    "": "formula is empty"}


@pytest.mark.parametrize("formula", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_flown_is_refused_with_its_reason(fitting, formula):
    with pytest.raises(ValueError, match=re.escape(REFUSED[formula])):
        typed(*fitting, said(formula))


@pytest.mark.parametrize(("text", "why"), [
    ("formula: [1]", "has the key formula, a text"), ("{formula: x, start: 3}", "got start"),
    ("formula: F[0,1] (height > 0)\nconstants: {a: .inf}", "constant a is a number"),
    ("formula: F[0,1] (height > 0)\nconstants: {a: [1, x]}", "constant a is a number"),
    ("formula: F[0,1] (height > 0)\nconstants: {a: [1, -2.0e+6]}", "constant a is [1, -2000000.0]; numbers up to"),
    ("formula: &a [*a]", "refers to what it is in"), ("formula: !!python/object/apply:os.system [ls]", "YAML"),
    ("formula: F[0,1] (height > 0)\nconstants: {wall: 9}", "constants wall are the policy's own, wall = 2.4"),
    ("x" * 20_001, "at most 20000"),
    (";".join(["p0 = height > 0", *(f"p{k + 1} = p{k} & F[0,0.02] p{k}" for k in range(10)), "p10"]), "written out")])
def test_texts_that_are_no_mission_are_refused(fitting, text, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        typed(*fitting, text)


@pytest.mark.parametrize("small", ["0.00003", "3.0e-05", "3e-05", "3E-5"])
def test_small_numbers_are_the_same_in_the_one_form(fitting, small):
    """JSON writes 3e-05, which is a word in YAML 1.1, and a number here."""
    found = typed(*fitting, f"formula: F[0,4] (norm(base_pos_w - a) < 0.3)\nconstants: {{a: [{small}, 0, 1]}}")
    assert "3e-05" in found.text and found.mission.constants["a"] == [0.00003, 0.0, 1.0]
    assert canonical(found.text) == found.text and typed(*fitting, found.text).mission == found.mission
    assert content_of("{formula: 'F[0,1] (height > 0)', constants: {b: 2}}")[1] == {"b": 2.0}  # YAML with braces, too


@pytest.mark.parametrize(("keep", "why"), [
    ("base_pos_w.z > floor) | (base_pos_w.z < wall", "is no formula"), ("F[0,1] (base_pos_w.z > floor)", "of a state"),
    ("base_pos_w.z > ceiling", "is no formula"), ("prev (base_pos_w.z > floor)", "of a state")])
def test_an_arena_that_is_no_formula_of_a_state_by_itself_is_refused(fitting, keep, why):
    """What closes the brackets that it is put into would be another formula."""
    manifest, *others = fitting
    with pytest.raises(ArtifactError, match=f"keep, .* {why}"):
        typed(replace(manifest, formulas=replace(manifest.formulas, keep=keep)), *others, said(STAY_AT_B))


def test_a_formula_that_comes_before_the_state_is_refused_without_an_end_of_the_node(fitting, flies):
    why, state = list[str](), list[Any]([None])
    told = Instructed(MemoryTransport(Bus(), "policy_node", "/cf1"), Artifact.load(flies), *fitting[1:], "",
                      changeable=str, refuse=why.append, state=lambda: state[0])
    told.take(said("F[0,0.5] (norm(base_pos_w - a) < r)"))
    state[0] = {"base_pos_w": np.array([2.0, -2.0, 1.0])}
    told.look()
    assert "in time from here" in why[-1] and told.refused and told.missing == [ASK]
    state[0] = {"base_pos_w": np.array([1e300, 0.0, 1.0])}  # numbers that overflow
    for text in (said(STAY_AT_B), said("F[0,4] (norm(base_pos_w - [1e300, 0, 1]) < 0.3)")):
        with pytest.raises(InstructionError):
            told.take(text)
    state[0] = {"base_pos_w": np.array([0.0, 0.0, 1.0])}
    told.take(said(STAY_AT_B))
    state[0] = {"base_pos_w": np.array([1e300, 0.0, 1.0])}
    assert "no plan from" in told.begin() and not told.refused


def test_the_policys_arena_is_part_of_every_mission(fitting):
    found = typed(*fitting, said(STAY_AT_B))
    assert found.mission.formula.endswith("& G[0,2.4] (max(abs(base_pos_w.x), abs(base_pos_w.y)) < wall "
                                          "& base_pos_w.z > floor)")
    assert found.mission.horizon_s == 2.4 and found.mission.constants["wall"] == 2.4
    assert found.notes == () and typed(*fitting, found.text).mission == found.mission
    assert "places with a half width of 0.1 m; trained on 0.25 to 0.5 m" in typed(
        *fitting, "F[0,4] (max(abs(base_pos_w.x), abs(base_pos_w.y), abs(base_pos_w.z - 1)) < 0.1)").notes


def test_nested_formulas_are_compiled_before_the_node_is_ready(fitting, monkeypatch):
    """The first one that was typed kept its mission waiting for half a minute, where nothing was cached."""
    compiled = []
    monkeypatch.setattr(monitor_node, "real_time_monitor", lambda formula, dt: compiled.append((str(formula), dt)))
    MonitorNode(MemoryTransport(Bus(), "monitor", "/cf1"), *fitting)
    ((text, dt),) = compiled
    assert text.count("F[") == 2 and dt == pytest.approx(1.0 / RATE_HZ)


def test_what_is_refused_is_answered_and_nothing_moves(lockstep, flies):
    """No mission begins after it, until another formula is taken."""
    chain = Chain(lockstep, flies, require=0.2)
    for text, why in ((said("F[0,4] (height > 0.5)"), "is no place"),
                      ("F[0,5] (norm(base_pos_w - [1e300,0,1]) < 0.3)", "number 1e+300"),
                      (said(FIRST_A_THEN_B), "0.2 is required"),
                      (said("F[0,4] (norm(base_pos_w - a) < r) & G[0,4] (norm(base_pos_w - a) > r)"), "no order"),
                      (said("F[0,0.5] (norm(base_pos_w - far) < r)", far=[2.0, 2.0, 1.0]), "in time from here")):
        chain.say(text)
        assert chain.heard["policy/event"][-1]["code"] == "instruction" and why in chain.why
    chain.send("mission/start", 1)
    assert chain.policy.mode == "waiting" and not chain.heard[TOLD]
    chain.say(said(STAY_AT_B))
    assert chain.heard[TOLD][-1]["forecast"] > 0.2
    chain.say(said(FIRST_A_THEN_B))
    chain.send("mission/start", 2)
    assert chain.policy.mode == "ready" and "the last instruction was not taken" in chain.why
    chain.say(said(STAY_AT_B))
    chain.send("mission/start", 3)
    assert chain.policy.mode == "active"
    chain.say(said(STAY_AT_B, r=0.25))
    assert "an instruction is for a whole mission" in chain.why


def test_a_place_moves_with_its_signal(lockstep, flies, tmp_path):
    """The robot follows a goal that moves after the mission began; it is planned for where that was then."""
    topics = tmp_path / "goal.yaml"
    topics.write_text(yaml.safe_dump(GOAL))
    chain = Chain(lockstep, flies, topics)
    goal, out = np.array([0.3, 0.0, 1.0]), chain.own.advertise("goal", POSE, QOS["default"])

    def see(seconds: float, speed: tuple[float, float, float] = (0.0, 0.0, 0.0), until: Any = lambda: False) -> None:
        for _ in range(round(seconds / 0.02)):
            if until():
                return
            goal[:] += 0.02 * np.array(speed)
            content = STATE_CODECS["pose"].encode({"goal_pos_w": goal}, chain.own.now(), ("world", "goal"),
                                                  GOAL["states"][0]["options"])
            chain.own.publish(out, messages.encode(POSE, content))
            chain.run(0.02)

    see(0.2)
    chain.own.publish(chain.ask, message(said("F[1,1.8] G[0,0.2] (norm(base_pos_w - goal_pos_w) < r)")))
    see(0.2)
    assert "at goal_pos_w, now (0.3, 0, 1) after 1.0 s" in chain.heard[TOLD][-1]["itinerary"][0]
    chain.own.publish(chain.own.advertise("mission/start", NUMBER, QOS["default"]),
                      messages.encode(NUMBER, messages.record(NUMBER)(data=1)))
    see(1.0, (0.0, 0.6, 0.0))
    row = split(chain.policy.told.reads(chain.policy.state.newest())["mission"])["legs"][0]
    assert row[:3] == pytest.approx(goal, abs=0.02) and row[1] > 0.5
    see(1.5, until=lambda: bool(chain.monitor.mission.results))
    assert chain.monitor.mission.results[-1]["verdict"] == "satisfied"


def test_the_first_formula_of_the_command_line_is_planned_once_there_is_a_state(lockstep, flies):
    """One that is refused then ends the controller, as any bad argument does."""
    chain = Chain(lockstep, flies, instruction=said(STAY_AT_B))
    assert chain.policy.mode == "ready" and chain.heard[TOLD][-1]["forecast"] > 0
    other = type(lockstep)(Bus())
    with pytest.raises(InstructionError, match=re.escape("0.9 is required")):
        Chain(other, flies, instruction=said(STAY_AT_B), require=0.9)
