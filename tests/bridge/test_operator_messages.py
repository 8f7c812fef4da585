"""An operator's words reach the topics that controller and guard listen to, and what comes of them is said; where
nobody listens, that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from temporeal.robots.spec import load_robot
from temporeal_bridge import operator_messages as operator_messages
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.mission import MissionStatus
from temporeal_bridge.operator_messages import (
    REQUESTS,
    TOPICS,
    Answers,
    Outcome,
    instructed,
    meant,
    request,
    started,
    stopped,
)
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recording.records import Event
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, TransportError


@pytest.mark.parametrize("word", REQUESTS)
def test_a_word_reaches_who_listens(word):
    bus, got = Bus(), []
    node, operator = MemoryTransport(bus, "guard_node", "/arm1"), MemoryTransport(bus, "operator", "/arm1")
    node.subscribe(TOPICS.get(word, f"mission/{word}"), REQUESTS[word], QOS["default"], got.append)
    request(operator, word, 7, "reach the red cube")
    node.wait(0.0)
    assert (len(got) > 1 if word == "stop" else len(got) == 1)  # which is said again: nobody has answered
    if word == "start":
        assert messages.decode(got[0].type, got[0].data).data == 7
    if word == "instruct":
        assert messages.decode(got[0].type, got[0].data).data == "reach the red cube"


@pytest.mark.parametrize(("published", "done", "text"), [
    (("policy/instruction", '{"instruction": "go left"}'), True, "told: go left"),
    (("policy/event", '{"mode": "active", "flight": -1, "code": "instruction", "reason": "busy"}'), False, "busy")])
def test_the_answer_to_an_instruction_is_the_controllers(published, done, text):
    bus, kind = Bus(), "std_msgs/msg/String"
    node, operator = MemoryTransport(bus, "policy_node", "/arm1"), MemoryTransport(bus, "operator", "/arm1")
    answers = Answers(operator)
    node.publish(node.advertise(published[0], kind, QOS["latched" if done else "default"]),
                 messages.encode(kind, messages.record(kind)(data=published[1])))
    operator.wait(0.0)
    assert instructed(answers, 0) == Outcome(done, text)


@pytest.mark.parametrize(("word", "what"), [("start", "left"), ("stop", "-1"), ("instruct", "")])
def test_a_request_takes_what_belongs_to_it(word, what):
    with pytest.raises(ValueError, match="takes the number|empty"):
        meant(word, what)


def test_nobody_listens():
    class Clock(MemoryTransport):
        def wait(self, timeout_s: float) -> int:
            self.bus.advance(timeout_s)
            return super().wait(0.0)

    with pytest.raises(TransportError, match="mission/stop"):
        request(Clock(Bus(), "operator", "/arm1"), "stop")


@pytest.mark.parametrize("number", [-1, 2**53 + 1])
def test_a_number_that_no_mission_has_is_refused(number):
    bus = Bus()
    with pytest.raises(ValueError, match=r"number of a mission is a whole number from 0 to 2\^53; got"):
        request(MemoryTransport(bus, "operator", "/arm1"), "start", number)


class Operator(MemoryTransport):
    """Who speaks to a robot's nodes: while he waits, they live."""

    def __init__(self, lockstep: Any) -> None:
        super().__init__(lockstep.bus, "operator", "/cf1")
        self.lockstep = lockstep

    def wait(self, timeout_s: float) -> int:
        self.lockstep.run(max(timeout_s, 1e-6))  # less may be too little to move a clock
        return super().wait(0.0)


class Field:
    """A robot that flies, its controller and its guard (None: there is none)."""

    def __init__(self, lockstep: Any, artifact: Path, states: bool = True, guarded: bool = True) -> None:
        from temporeal_bridge.robot_sim import RobotSim, SimOptions

        robot = load_robot("crazyflie")
        interface, line = load_interface(robot), InProcessGuard()
        line.guarded = guarded
        self.lockstep, self.operator = lockstep, Operator(lockstep)
        buses = {name: MemoryTransport(lockstep.bus, name, "/cf1")
                 for name in ("robot_sim", "policy_node", "guard_node")}
        self.robot = buses["robot_sim"], RobotSim(buses["robot_sim"], robot, interface, SimOptions(seed=0))
        loaded = load_artifact(artifact, robot, interface)
        self.policy = lockstep.add(buses["policy_node"], PolicyNode(
            buses["policy_node"], loaded, robot, interface, InProcessController(line)))
        if guarded:
            self.guard = lockstep.add(buses["guard_node"], GuardNode(
                buses["guard_node"], loaded.manifest, robot, interface, line))
        if states:
            lockstep.add(*self.robot)
        lockstep.run(0.5)

    def request(self, word: str, number: int = 0) -> Outcome:
        return request(self.operator, word, number)


@pytest.fixture
def field(lockstep, artifact) -> Field:
    pytest.importorskip("mujoco")
    return Field(lockstep, artifact)


@pytest.mark.slow
def test_what_comes_of_a_word_is_said(field):
    assert field.request("reset") == (True, "the guard is ready")
    assert field.request("start", 1) == (True, "mission 1: the guard is active") and field.guard.mode == "active"
    assert field.request("reset") == (False, "reset: no answer within 2.8 s, the guard is active")
    assert field.request("stop") == (True, "the guard is stopping: stopped by the operator")
    assert field.request("stop").done  # it does already
    field.lockstep.run(8.0, until=lambda: field.guard.mode == "stopped")
    assert field.request("stop") == (True, "the guard is stopped")
    done, why = field.request("reset")
    assert not done and why.startswith("not reset: a stop was heard 0.")
    field.lockstep.run(0.5)
    assert field.request("reset") == (True, "the guard is ready")


def test_a_stop_is_said_until_the_guard_hears_it(field):
    """Somebody else listens already, a recorder; the guard's subscription is found 0.3 s later."""
    assert field.request("start", 1).done
    begins, hears = field.operator.monotonic() + 0.3, field.guard._on_stop
    reader = next(each.handle for each in field.guard.transport.endpoints if each.topic == "/cf1/mission/stop")
    reader.callback = lambda received: field.operator.monotonic() < begins or hears(received)
    assert field.request("stop") == (True, "the guard is stopping: stopped by the operator")
    assert begins <= field.operator.monotonic() < begins + 1.0


def heard(before: MissionStatus | None, status: MissionStatus | None, *events: tuple[str, Event]) -> Answers:
    """Who has heard that, since something was said."""
    answers = Answers(MemoryTransport(Bus(), "operator", "/cf1"))
    answers.before, answers.status, answers.events = before, status, list(events)
    return answers


def test_a_guard_that_stops_because_its_mission_is_over_was_not_stopped():
    active, stopping = MissionStatus("active", 1, 5), MissionStatus("stopping", 1, 5)
    told = ("guard/event", Event(1, 2.0, "operator", "stopped by the operator"))
    assert stopped(heard(active, stopping), 0) is None
    assert stopped(heard(active, stopping, ("guard/event", Event(1, 2.0, "stale", "old"))), 0) is None
    assert stopped(heard(active, stopping, told), 0) == (True, "the guard is stopping: stopped by the operator")
    assert stopped(heard(active, active, told), 0) is None  # its mode follows
    for mode in ("holding", "stopped"):
        assert stopped(heard(active, MissionStatus(mode, 1, 5)), 0) == (True, f"the guard is {mode}")


def test_a_mode_that_is_latched_and_comes_late_is_no_answer_to_a_start():
    for mode in ("finished", "stopped", "ready"):
        assert started(heard(None, MissionStatus(mode, 0, 5)), 0) is None
    assert started(heard(None, MissionStatus("active", 0, 5)), 0) == (True, "mission 0: the guard is active")
    assert started(heard(MissionStatus("ready", 0, 1), MissionStatus("finished", 0, 5)), 0).done  # a short one


def test_a_start_that_the_guard_refuses_is_said_in_its_words(field):
    assert field.request("stop").done and field.guard.mode == "stopped"
    before = field.operator.monotonic()
    assert field.request("start", 1) == (
        False, "mission 1 is refused: the guard is stopped: stopped by the operator; mission/reset clears it")
    assert field.operator.monotonic() - before < 1.0  # an outcome is not waited for longer than it takes
    assert field.request("reset").done and field.request("start", 1).done


def test_a_reset_while_the_stop_button_is_set_is_refused(field):
    button, bool_type = field.operator.advertise("estop", "std_msgs/msg/Bool", QOS["default"]), "std_msgs/msg/Bool"
    field.operator.publish(button, messages.encode(bool_type, messages.record(bool_type)(data=True)))
    assert field.request("reset") == (False, "not reset: the operator's stop is still set")


def test_a_start_that_the_controller_drops_is_said_in_its_words(lockstep, artifact):
    """Before its state is there; while it flies another mission."""
    pytest.importorskip("mujoco")
    field = Field(lockstep, artifact, states=False)
    topics = ", ".join(row.topic for row in field.policy.interface.states)
    assert field.request("start", 1) == (
        False, f"mission 1 is not started: the controller is waiting for {topics}, which brought nothing yet")
    lockstep.add(*field.robot)
    lockstep.run(0.5)
    assert field.request("start", 2).done
    assert field.request("start", 3) == (False, "mission 3 is not started: the controller is active, in mission 2")
    assert field.policy.flight.number == 2 and field.policy.mode == "active"


def test_a_start_without_a_state_or_without_a_guard_is_said(lockstep_of, artifact):
    pytest.importorskip("mujoco")
    field = Field(lockstep_of(Bus()), artifact)
    field.lockstep.pairs.pop()  # the robot falls silent
    found = field.request("start", 1)
    assert found == (False, "mission 1 is over: no state came within 2 s of the start") and field.policy.mode == "ready"
    alone = Field(lockstep_of(Bus()), artifact, guarded=False)
    assert alone.request("start", 1).text.startswith("mission 1 is over: no guard takes the proposals")


@pytest.mark.parametrize("found, status", [(Outcome(True, "the guard is ready"), 0), (Outcome(False, "no"), 1)])
def test_the_exit_status_is_the_outcome(found, status, monkeypatch, capsys):
    bus = MemoryTransport(Bus(), "operator", "/cf1")
    monkeypatch.setattr(operator_messages, "open_transport", lambda *_, **__: bus)
    monkeypatch.setattr(operator_messages, "request", lambda *_: found)
    assert operator_messages.main(["reset", "--namespace", "/cf1"]) == status
    said = capsys.readouterr()
    error = f"operator_messages: {found.text}\n"
    assert (said.out, said.err) == ((f"{found.text}\n", "") if found.done else ("", error))
