"""Replays: a recorded flight comes out the same, command by command; what is changed shows; what is missing is said."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader
from tests.bridge.foreign_messages import FOREIGN, numbers, text
from tests.examples import thinned

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import mission_digest, to_json
from temporeal.robots.spec import load_robot
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import artifact_offer
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.mission import NOT_RESET, refusal
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import AFTER_HORIZON_S, Options, PolicyNode
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording import bags, flight_analysis, flight_log
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.replay.comparison import compare
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.replay.timing import delivery, made_at, uses
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT)
NUMBER, EMPTY = "std_msgs/msg/UInt64", "std_msgs/msg/Empty"


class Flown:
    """Robot, controller, guard, monitor and recorder on one memory bus."""

    def __init__(self, lockstep: Any, artifact: Path, bag: Path, after: str = "silence",
                 line: InProcessGuard | None = None, remaps: tuple[tuple[str, str], ...] = ()) -> None:
        self.lockstep, manifest = lockstep, load_manifest(artifact)
        self.log = bag.parent / f"{bag.name}-line" / "steps"
        self.line = line or InProcessGuard()
        self.bus = {name: MemoryTransport(lockstep.bus, name, "/cf1", remaps) for name in (
            "robot_sim", "policy_node", "guard_node", "monitor_node", "recorder", "peer", "successor")}
        self.robot = self.add("robot_sim", lambda bus: RobotSim(bus, ROBOT, INTERFACE, SimOptions(seed=0)))
        self.recorder = self.add("recorder", lambda bus: Recorder(bus, Bag(bag), robot_topics(INTERFACE, ["/cf1"])))
        loaded = load_artifact(artifact, ROBOT, INTERFACE)
        self.policy = self.add("policy_node", lambda bus: PolicyNode(
            bus, loaded, ROBOT, INTERFACE, InProcessController(self.line),
            Options(after=after, step_log=self.log)))
        self.guard = self.add("guard_node", lambda bus: GuardNode(
            bus, manifest, ROBOT, INTERFACE, self.line, GuardOptions(artifact)))
        self.monitor = self.add("monitor_node", lambda bus: MonitorNode(bus, manifest, ROBOT, INTERFACE))

    def add(self, name: str, make: Any) -> Any:
        return self.lockstep.add(self.bus[name], make(self.bus[name]))

    def send(self, topic: str, kind: str, qos: str = "default", **content: Any) -> None:
        peer = self.bus["peer"]
        data = messages.empty() if kind == EMPTY else messages.encode(kind, messages.record(kind)(**content))
        peer.publish(peer.advertise(topic, kind, QOS[qos]), data)

    def start(self, number: int) -> None:
        self.send("sim/reset", NUMBER, data=number)
        self.lockstep.run(0.2)
        self.send("mission/start", NUMBER, data=number)

    def fly(self, number: int) -> None:
        self.start(number)
        done = self.monitor.mission.results
        self.lockstep.run(8.0, until=lambda: bool(done) and done[-1]["flight"] == number)
        self.lockstep.run(0.3)

    def take_over(self, artifact: Path) -> PolicyNode:
        """Another artifact, flown on by a controller of its own."""
        return self.add("successor", lambda bus: PolicyNode(
            bus, load_artifact(artifact, ROBOT, INTERFACE), ROBOT, INTERFACE, InProcessController(self.line),
            Options(after="silence", step_log=self.log, offer=artifact_offer.offer(artifact))))

    def close(self) -> Path:
        self.recorder.close()
        return self.recorder.bag.path


NOTICED = {"text": "thrust per mass is 15 % less, <b>since</b> 1.0 s", "kind": "change", "ratio": 0.85, "low": 0.82,
           "high": 0.89, "since": 1.0, "t": 1.4}


@pytest.fixture(scope="module")
def bag(artifact, lockstep_of, tmp_path_factory) -> Path:
    """Two flights, the second one stopped by the operator and reset. In it a monitor noticed that the machine was no
    longer the same, twice in the bag, and one said so of a flight of another day."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path_factory.mktemp("replay") / "bag")
    flown.fly(3)
    flown.start(4)
    flown.lockstep.run(2.0)
    start = flown.guard.flight.start_ns
    for each in (NOTICED, NOTICED, NOTICED | {"text": "of another day"}):
        began = start - 10**11 * ("day" in each["text"])
        told = json.dumps({**each, "flight": flown.guard.flight.number, "start_ns": began})
        flown.send("monitor/drift", "std_msgs/msg/String", "latched", data=told)
    flown.send("mission/stop", EMPTY)
    flown.lockstep.run(9.0)
    flown.send("mission/reset", EMPTY)
    flown.lockstep.run(0.5)
    return flown.close()


def again(bag: Path, artifact: Path, **changes: Any) -> Any:
    namespace, told = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    return replay(recording, load_artifact(artifact, ROBOT, INTERFACE), ROBOT, INTERFACE, namespace, **changes)


@pytest.mark.slow
def test_a_flight_in_which_the_artifact_was_exchanged_is_compared_up_to_there(
    artifact, other_artifact, lockstep_of, tmp_path
):
    """Flight 3: exchanged half way, after a successor that failed in its exchange. Flight 4 began with the new one."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(1.0)
    flown.take_over(other_artifact)
    flown.lockstep.run(0.2)
    flown.lockstep.pairs.pop()  # killed
    flown.lockstep.run(1.5)
    assert flown.policy.mode == "active" and flown.guard.swaps.swap is None
    new = flown.take_over(other_artifact)
    flown.lockstep.run(1.0)
    (step, _), = flown.guard.flight.swapped
    assert flown.policy.done and new.in_charge
    flown.lockstep.pairs = [pair for pair in flown.lockstep.pairs if pair[1] is not flown.policy]
    done = flown.monitor.mission.results
    flown.lockstep.run(8.0, until=lambda: bool(done))
    flown.lockstep.run(0.3)
    assert done[-1]["verdict"] == "satisfied" and flown.guard.mode == "finished"
    flown.start(4)
    flown.lockstep.run(1.0)
    bag = flown.close()
    found = again(bag, artifact)
    first, second = found.flights
    assert first.equal and first.swapped == step and first.proposed.count == step + 1
    assert first.steps == round((new.told.horizon_s + AFTER_HORIZON_S) / new.period) + 1
    assert 40 <= first.mixed <= 80 and first.sent.count == step + 1 - first.mixed
    assert first.flown_by.startswith("cascade") and second.swapped is None and not second.proposed.equal
    assert second.flown_by != first.flown_by
    assert again(bag, other_artifact).flights[1].proposed.differing == 0  # the one that it began with


def test_a_flight_comes_out_bit_for_bit(bag, artifact):
    found = again(bag, artifact, tolerance=0.0)
    assert found.equal and not found.cut and [flight.flight for flight in found.flights] == [3, 4]
    first, second = found.flights
    assert first.sent.count == first.proposed.count == 306 == first.steps and first.own.count == 0
    assert first.modes[1] == ("active", "finished") and first.sent.largest == (0.0,) * 4
    assert second.events == (("operator",),) * 2 and second.own.count > 50
    assert second.modes[1][:3] == ("active", "stopping", "stopped")
    assert all(flight.guessed == flight.lost == 0 for flight in found.flights)


@pytest.mark.parametrize("turns", thinned([1, 2], keep=[2]))
@pytest.mark.slow
def test_a_flight_that_ends_by_its_stop_action_comes_out_bit_for_bit(turns, artifact, lockstep_of, two_turns, tmp_path):
    """The default: after the last command the guard levels out and lands. Whether it heard of the end with that command
    or in the next turn of its loop, its own commands are those of the recorded times, and as many."""
    from temporeal_bridge.transports.memory_bus import Bus

    bus = Bus()
    flown = Flown(lockstep_of(bus), artifact, tmp_path / "bag", after="stop",
                  line=two_turns(bus) if turns == 2 else None)
    flown.fly(3)
    flown.lockstep.run(8.0, until=lambda: flown.guard.mode == "finished")
    flown.lockstep.run(0.1)
    bag = flown.close()
    told, = flight_log.flights(bags.read(bag, needed(INTERFACE, "/cf1")), "/cf1")[0]
    last, first = ([row.at for row in told.basis if (row.step < 0) == own] for own in (False, True))
    assert (first[0] > last[-1]) == (turns == 2)
    found, = again(bag, artifact, tolerance=0.0).flights
    assert found.own.count > 50 and found.own.equal and found.sent.count > 300
    assert found.modes == (("active", "stopping", "finished"),) * 2 and found.equal


@pytest.fixture(scope="module")
def ended(artifact, lockstep_of, tmp_path_factory) -> Path:
    """A flight in which the guard was told to end; the others went on for a while."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path_factory.mktemp("ended") / "bag")
    flown.start(5)
    flown.lockstep.run(2.0)
    assert not flown.guard.may_end()
    flown.lockstep.run(8.0, until=flown.guard.may_end)
    flown.lockstep.pairs = [pair for pair in flown.lockstep.pairs if pair[1] is not flown.guard]
    flown.lockstep.run(0.5)
    return flown.close()


@pytest.mark.slow
def test_a_flight_ended_by_ctrl_c_comes_out_bit_for_bit(ended, artifact):
    """The event says when the guard was told to end: it is told again, so that a real difference can be told."""
    found, = again(ended, artifact, tolerance=0.0).flights
    assert found.equal and found.own.count > 50 and found.events == (("operator",),) * 2 and not found.unasked
    assert found.modes == (("active", "stopping", "stopped"),) * 2


@pytest.mark.slow
def test_a_guard_that_was_started_again_flies_the_next_flight(artifact, lockstep_of, tmp_path):
    """Ctrl-C at the guard, and another one, while controller and recorder go on."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(5)
    flown.lockstep.run(2.0)
    assert not flown.guard.may_end()
    flown.lockstep.run(8.0, until=flown.guard.may_end)
    flown.lockstep.pairs = [pair for pair in flown.lockstep.pairs if pair[1] is not flown.guard]
    flown.bus["guard_node"].close()
    flown.lockstep.run(0.5)
    bus = MemoryTransport(flown.lockstep.bus, "guard_node", "/cf1")
    flown.guard = flown.lockstep.add(bus, GuardNode(
        bus, load_manifest(artifact), ROBOT, INTERFACE, flown.line, GuardOptions(artifact)))
    flown.lockstep.run(1.0)
    flown.fly(6)
    first, second = again(flown.close(), artifact, tolerance=0.0).flights
    assert first.equal and second.equal and second.sent.count > 300


@pytest.mark.slow
def test_a_start_that_the_guard_refused_is_left_out_and_said(artifact, lockstep_of, tmp_path, capsys):
    """For two stop buttons, which no topic of the bag shows: the guard of the replay would let it begin."""
    from temporeal.policies.cli.main import main
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    panels = [MemoryTransport(flown.lockstep.bus, name, "/cf1") for name in ("panel", "panel2")]
    for panel in panels:
        panel.advertise("estop", "std_msgs/msg/Bool", QOS["default"])
    flown.start(5)
    flown.lockstep.run(1.0)
    assert flown.guard.modes.flights == flown.guard.modes.flights.__class__()
    panels[1].close()
    flown.lockstep.run(1.0)
    flown.fly(5)
    bag = flown.close()
    found = again(bag, artifact, tolerance=0.0)
    flight, = found.flights
    assert flight.equal and flight.sent.count > 300 and not flight.unasked
    assert [reason[:36] for reason in found.refused] == ["mission 5 is refused: /cf1/panel, /c"]
    assert main(["replay", str(bag)]) == 0
    assert "left out: mission 5 is refused: /cf1/panel, /cf1/panel2 publish on estop" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 1])
def test_a_start_that_is_refused_while_the_guard_stops_does_not_cut_the_flight(
    number, artifact, lockstep_of, tmp_path, capsys
):
    """The guard speaks on of the flight that it stops, whatever number the start had that it refuses."""
    from temporeal.policies.cli.main import main
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(1)
    flown.lockstep.run(2.0)
    flown.send("mission/stop", EMPTY)
    flown.lockstep.run(0.7)
    assert flown.guard.mode == "stopping"
    for _ in range(2):
        flown.send("mission/start", NUMBER, data=number)
        flown.lockstep.run(0.3)
    flown.lockstep.run(8.0, until=lambda: flown.guard.mode == "stopped")
    flown.lockstep.run(0.3)
    bag = flown.close()
    own = sum(m.decode().data[1] < 0 for m in bags.read(bag).of("/cf1/guard/command"))
    found = again(bag, artifact, tolerance=0.0)
    flight, = found.flights
    assert flight.equal and flight.own.count == own > 50 and len(found.refused) == 2
    assert flight.modes == (("active", "stopping", "stopped"),) * 2 and flight.events == (("operator",),) * 2
    assert main(["report", str(bag), "--out", str(tmp_path / "out"), "--json"]) == 1
    row, = json.loads(capsys.readouterr().out)["flights"]
    assert row["figures"]["own"] == own and [mode for _, mode in row["modes"]] == ["active", "stopping", "stopped"]
    assert row["topics"][0]["gaps"] == 0 and row["stop"][1] == "operator"


@pytest.mark.slow
def test_topics_that_were_called_otherwise_are_found_in_the_bag(artifact, lockstep_of, tmp_path, capsys):
    """`ros2 launch ... remap:='odom:=/mocap/cf1/odom estop:=/estop'`: the guard says so, and a bag knows it by that."""
    from temporeal.policies.cli.main import main
    from temporeal_bridge.transports.memory_bus import Bus

    remaps = (("odom", "/mocap/cf1/odom"), ("/cf1/estop", "/estop"))
    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag", remaps=remaps)
    flown.send("estop", "std_msgs/msg/Bool", data=False)
    flown.start(5)
    flown.lockstep.run(0.4)
    flown.send("estop", "std_msgs/msg/Bool", data=True)
    flown.lockstep.run(3.0)
    bag = flown.close()
    other = [bags.Message(m.at - 1_000_000, "/cf1/odom", m.type, m.data)
             for m in bags.read(bag).of("/mocap/cf1/odom")[5:]]
    whole = sorted([*bags.read(bag).messages, *other], key=lambda m: m.at)
    bag = written(whole, tmp_path / "all")  # ros2 bag record -a
    assert {"/mocap/cf1/odom", "/estop", "/cf1/odom"} <= set(bags.read(bag).counts)
    _, told = bags.robot_of(bag)
    assert told["renamed"] == {"/cf1/odom": "/mocap/cf1/odom", "/cf1/estop": "/estop"}
    assert main(["replay", str(bag), "--tolerance", "0", "--json"]) == 0
    flight, = json.loads(capsys.readouterr().out)["flights"]
    assert flight["sent"]["compared"] > 10 and not flight["unasked"] and not flight["guessed"]
    assert flight["events"]["recorded"] == ["operator"]
    assert main(["report", str(bag), "--json"]) == 1
    flight, = json.loads(capsys.readouterr().out)["flights"]
    assert flight["topics"][0]["topic"] == "/cf1/odom" and flight["topics"][0]["messages"] > 20
    assert flight["stop"][1] == "operator"


def test_a_bag_of_a_refused_start_says_why_there_is_no_flight(artifact, lockstep_of, tmp_path, capsys):
    from temporeal.policies.cli.main import main
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.send("estop", "std_msgs/msg/Bool", data=True)
    flown.start(5)
    flown.lockstep.run(1.0)
    bag = flown.close()
    assert main(["replay", str(bag)]) == 2
    assert "has no flight of /cf1; mission 5 is refused: the guard is" in capsys.readouterr().err
    assert main(["report", str(bag)]) == 2
    assert "mission 5 is refused: the guard is" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("late_s", [0.0, 0.0005])
def test_a_guard_says_that_it_stops_after_its_first_command(late_s, ended, artifact):
    """Between processes an event is some 0.5 ms later than the command that it is about."""
    namespace, _ = bags.robot_of(ended)
    recording = bags.read(ended, needed(INTERFACE, namespace))
    for i, message in enumerate(recording.messages):
        if message.topic == "/cf1/guard/event":
            said = json.loads(message.decode().data)
            later = text("guard/event", {**said, "t": said["t"] + late_s})
            recording.messages[i] = bags.Message(message.at, message.topic, message.type, later.data)
    loaded = load_artifact(artifact, ROBOT, INTERFACE)
    assert replay(recording, loaded, ROBOT, INTERFACE, namespace, 0.0).equal


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["stopped by the operator", "the operator's stop is set"])
def test_a_stop_for_which_the_bag_has_no_message_is_repeated_and_said(reason, bag, artifact, tmp_path, capsys):
    """The recorder may miss a word that is said once; or the guard has stopped and nobody had asked for it."""
    from temporeal.policies.cli.main import main

    recording = bags.read(bag)
    said = [m for m in recording.messages if m.topic != "/cf1/mission/stop"]
    for i, message in enumerate(said):
        if message.topic == "/cf1/guard/event":
            event = {**json.loads(message.decode().data), "reason": reason}
            said[i] = bags.Message(message.at, message.topic, message.type, text("guard/event", event).data)
    unasked = written(said, tmp_path / "bag")
    first, second = again(unasked, artifact, tolerance=0.0).flights
    assert first.equal and (first.unasked, second.unasked) == (0, 1) and not second.equal
    assert second.sent.equal and second.own.equal and second.events[0] == second.events[1]  # nothing else differs
    assert main(["replay", str(unasked)]) == 1
    assert "the bag has no message that asked for this stop" in capsys.readouterr().out
    assert main(["replay", str(unasked), "--json"]) == 1
    assert [flight["unasked"] for flight in json.loads(capsys.readouterr().out)["flights"]] == [0, 1]


def test_the_first_command_of_a_stop_bridges_nothing(bag, artifact):
    """The recorder hears that the guard stops after the guard has begun to make the first command of that."""
    recording = bags.read(bag, needed(INTERFACE, "/cf1"))
    _, told = flight_log.flights(recording, "/cf1")[0]
    told.modes = [(at + 1e-3, mode) for at, mode in told.modes]

    def bridged() -> int:
        return flight_analysis.figures(told, load_manifest(artifact))["bridged"]

    assert bridged() == 0
    told.basis.append(flight_log.Row(-1, 0.5, ()))
    assert bridged() == 1


def test_the_guards_latency_is_by_its_own_clock(bag, artifact):
    """A recorder that wakes 20 ms late makes nothing slower."""
    recording = bags.read(bag, needed(INTERFACE, "/cf1"))
    for i, message in enumerate(recording.messages):
        if message.topic == "/cf1/guard/command":
            row = np.array(message.decode().data)
            row[4] = row[3] + 0.0004
            recording.messages[i] = bags.Message(message.at + 20_000_000, message.topic, message.type, messages.encode(
                message.type, messages.array64(row)))
    flight = flight_log.flights(recording, "/cf1").found[0]
    found = flight_analysis.figures(flight, load_manifest(artifact))["latency_ms"]["guard"]
    assert [found["p50"], found["max"]] == pytest.approx([0.4, 0.4])


@pytest.mark.slow
def test_another_network_shows_where_it_differs(bag, other_artifact):
    """Other weights: what is proposed differs, and what is sent with it, in the rates and not in the thrust."""
    found = again(bag, other_artifact)
    for kind in (found.flights[0].proposed, found.flights[0].sent):
        assert kind.differing > 250 and kind.first == 0 and kind.missing == kind.extra == 0
        assert kind.largest[0] == 0.0 and max(kind.largest[1:3]) > 0.01
    assert not found.equal and not found.flights[1].equal


def test_a_changed_byte_shows_at_its_step(bag, artifact, tmp_path):
    """What was sent in step 50 is falsified in the recording: that step differs, by as much, and no other."""
    namespace, _ = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    said = list(recording.messages)
    for i, message in enumerate(said):
        if message.topic == "/cf1/guard/command":
            data = np.array(message.decode().data)
            if data[0] == 3 and data[1] == 50:
                data[8] += 0.25
                said[i] = bags.Message(message.at, message.topic, message.type, messages.encode(
                    message.type, messages.array64(data)))
    loaded = load_artifact(artifact, ROBOT, INTERFACE)
    found = replay(bags.Recording(bag, said, {}, ""), loaded, ROBOT, INTERFACE, namespace).flights[0]
    assert (found.sent.differing, found.sent.first) == (1, 50) and found.proposed.equal
    assert found.sent.largest == pytest.approx((0, 0, 0.25, 0), abs=1e-12)


def test_a_bag_of_before_the_guard_said_when_a_command_had_gone_is_refused(bag):
    namespace, _ = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    before = [m if m.topic != "/cf1/guard/command" else bags.Message(m.at, m.topic, m.type, messages.encode(
        m.type, messages.array64(np.delete(m.decode().data, 4)))) for m in recording.messages]
    with pytest.raises(bags.BagError, match=r"1\d numbers are no record of a command; was the bag"):
        flight_log.flights(bags.Recording(bag, before, {}, ""), namespace)


@pytest.mark.parametrize("late_s", thinned([0.006, 0.012, 0.018], keep=[0.018]))
def test_a_stop_that_is_told_late_was_made_with_its_first_command(bag, artifact, late_s):
    """On a busy machine the guard may be held up between the first command of a stop and its event: states that came
    meanwhile had no part in that command."""
    recording = bags.read(bag, needed(INTERFACE, "/cf1"))
    said = list(recording.messages)
    for i, message in enumerate(said):
        if message.topic == "/cf1/guard/event":
            event = json.loads(message.decode().data)
            told = text("guard/event", event | {"t": event["t"] + late_s})
            said[i] = bags.Message(message.at, message.topic, message.type, told.data)
    found = replay(bags.Recording(bag, said, {}, ""), load_artifact(artifact, ROBOT, INTERFACE), ROBOT, INTERFACE,
                   "/cf1")
    assert [flight.own.count > 0 for flight in found.flights] == [False, True]
    assert all(flight.own.equal and flight.sent.equal for flight in found.flights), found.flights[1].own


def test_a_verdict_on_another_formula_is_not_the_flights(bag, artifact):
    recording = bags.read(bag)
    flight = flight_log.flights(recording, "/cf1").found[0]
    ours = mission_digest(to_json(load_manifest(artifact)))
    for mission, is_ours in (("another", False), (ours, True)):
        said = text("monitor/verdict", {"flight": flight.number, "start_ns": flight.start_ns, "verdict": "violated",
                                        "mission": mission})
        late = bags.Message(flight.start_ns + 3_000_000_000, f"/cf1/{said.topic}", said.type, said.data)
        read = bags.Recording(bag, sorted([*recording.messages, late], key=lambda m: m.at), {}, "")
        assert (flight_log.flights(read, "/cf1").found[0].verdict.get("mission") == mission) == is_ours


def with_foreign(recording: bags.Recording, folder: Path) -> Path:
    """A bag of the recording, and of a message on each of our topics that no node of ours has said: before the first
    one, and in the middle of a flight."""
    begin, middle = recording.messages[0].at - 1, recording.of("/cf1/policy/step")[150].at
    placed = [(said, at) for said, _ in FOREIGN for at in (begin, middle)]
    placed += [(numbers("policy/step", 3, 200, 0, *rest), middle) for rest in ((1e6, 7, 7), (4.0, 7))]
    placed.append((text("guard/artifact", {"name": "x"}), begin))
    added = [bags.Message(at, f"/cf1/{said.topic}", said.type, said.data) for said, at in placed]
    return written(sorted([*recording.messages, *added], key=lambda message: message.at), folder)


def written(said: list[bags.Message], folder: Path) -> Path:
    """A bag of these messages, in their order."""
    bag = Bag(folder)
    for topic, kind in sorted({(message.topic, message.type) for message in said}):
        bag.add(topic, kind)
    for message in said:
        bag.write(message.topic, message.type, message.at, message.data)
    bag.flush()
    bag.close()
    return folder


@pytest.mark.slow
def test_messages_of_others_on_our_topics_are_skipped_and_counted(bag, artifact, tmp_path, capsys):
    """They make no flight differ, and neither replay nor report of it fail; both say how many there were."""
    from temporeal.policies.cli.main import main

    foreign = with_foreign(bags.read(bag), tmp_path / "bag")
    found = again(foreign, artifact, tolerance=0.0)
    assert found.equal and [flight.flight for flight in found.flights] == [3, 4]
    assert {topic: each.count for topic, each in found.unread.items()} == {
        "guard/event": 24, "mission": 8, "policy/step": 14, "guard/command": 6, "policy/chunk": 2, "guard/swap": 6,
        "monitor/verdict": 8, "guard/artifact": 3}
    assert main(["replay", str(foreign)]) == 0
    assert "24 messages on guard/event could not be read (the first: Expecting value" in capsys.readouterr().out
    assert main(["report", str(bag), "--out", str(tmp_path / "clean"), "--json"]) == 1  # one flight was stopped
    clean = json.loads(capsys.readouterr().out)
    assert main(["report", str(foreign), "--out", str(tmp_path / "out"), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["evaluation"] == clean["evaluation"] and said["flights"] == clean["flights"]
    assert len(said["notes"]) == 9 and any(note.startswith("8 messages on mission could not") for note in said["notes"])
    assert any("on monitor/drift could not be read" in note for note in said["notes"])  # which a report reads, too


def stepped(bag: Path, seconds: float, folder: Path) -> Path:
    """The bag, by a clock that was stepped after step 50 of the last flight."""
    recording = bags.read(bag)
    last = [m.at for m in recording.of("/cf1/policy/step") if m.decode().data[0] == 4][50]
    return written([bags.Message(m.at + round(1e9 * seconds) * (m.at > last), m.topic, m.type, m.data)
                    for m in recording.messages], folder)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", thinned([61.0, 3600.0], keep=[61.0]))
def test_a_clock_that_is_stepped_in_flight_makes_no_step_foreign(seconds, bag, artifact, tmp_path):
    """A recorder that stood still does the same. The operator's stop comes after it, and is found."""
    before, found = again(bag, artifact, tolerance=0.0), again(stepped(bag, seconds, tmp_path / "b"), artifact)
    assert found.equal and not found.unread
    assert [(f.steps, f.sent.count, f.own.count, f.unread) for f in found.flights] == [
        (f.steps, f.sent.count, f.own.count, 0) for f in before.flights]


@pytest.mark.slow
def test_steps_that_a_clock_set_back_puts_before_their_flight_are_said(bag, artifact, tmp_path, capsys):
    """A bag is read by time of receipt: what came after it is at the wrong place."""
    from temporeal.policies.cli.main import main

    back = stepped(bag, -61.0, tmp_path / "b")
    found = again(back, artifact)
    assert not found.equal and found.flights[0].equal and found.flights[1].unread > 40
    assert main(["replay", str(back)]) == 1
    assert "steps after the last one that was replayed could not be read as this flight's" in capsys.readouterr().out


def test_commands_of_no_time_of_their_flight_are_counted(bag):
    recording = bags.read(bag, needed(INTERFACE, "/cf1"))
    for i, message in enumerate(recording.messages):
        if message.topic == "/cf1/guard/command" and message.decode().data[1] == 50:
            row = np.array(message.decode().data)
            row[[3, 4]] += 100.0
            recording.messages[i] = bags.Message(message.at, message.topic, message.type, messages.encode(
                message.type, messages.array64(row)))
    told = flight_log.flights(recording, "/cf1")
    assert told.unread["guard/command"].count == 2 and "of an earlier one" in told.unread["guard/command"].why
    assert all(50 not in flight.proposed for flight in told.found)


def test_a_bag_of_which_no_word_on_the_artifact_can_be_read_says_why(bag, tmp_path):
    recording = bags.read(bag)
    recording.messages[:] = [m for m in recording.messages if not m.topic.endswith("guard/artifact")]
    with pytest.raises(bags.BagError, match=r"no message on /cf1/guard/artifact can be read \(a JSON list is no obj"):
        bags.robot_of(with_foreign(recording, tmp_path / "bag"))


def test_states_that_the_bag_lacks_are_counted(bag, artifact):
    namespace, _ = bags.robot_of(bag)
    recording = bags.read(bag, needed(INTERFACE, namespace))
    odom = [m for m in recording.messages if m.topic == "/cf1/odom"]
    gone = {id(m) for m in odom[100:104]}
    said = [m for m in recording.messages if id(m) not in gone]
    loaded = load_artifact(artifact, ROBOT, INTERFACE)
    found = replay(bags.Recording(bag, said, {}, ""), loaded, ROBOT, INTERFACE, namespace).flights[0]
    assert found.guessed == 2 == found.proposed.differing and found.lost == 0  # 100 Hz of state, 50 Hz of steps
    assert found.proposed.count == 306 and not found.equal


def test_a_bag_that_breaks_off_is_replayed_as_far_as_it_goes(bag, artifact, tmp_path):
    """Half a file without index and metadata, as a killed recorder leaves it: all that is there comes out the same."""
    cut = tmp_path / "bag"
    shutil.copytree(bag, cut)
    (cut / "metadata.yaml").unlink()
    file = cut / "bag.mcap"
    file.write_bytes(file.read_bytes()[: int(0.6 * file.stat().st_size)])
    before = file.read_bytes()
    found = again(cut, artifact, tolerance=0.0)
    assert found.equal and "killed" in found.cut and found.flights[0].sent.count > 100
    assert file.read_bytes() == before


@pytest.mark.parametrize("good", [0, 500])
def test_whatever_a_damaged_bag_makes_its_parser_raise_the_bag_is_named(good, bag, monkeypatch):
    """A flipped bit of a length was an OverflowError of rosbags. What is before the damage stands."""
    def damaged(self, *args):
        yield from islice(messages_of(self, *args), good)
        raise OverflowError("cannot fit 'int' into an index-sized integer")

    messages_of = Reader.messages
    monkeypatch.setattr(Reader, "messages", damaged)
    if good:
        found = bags.read(bag)
        assert len(found.messages) == good and found.cut == (
            f"damaged after {good} messages: cannot fit 'int' into an index-sized integer")
    else:
        with pytest.raises(bags.BagError, match=f"{re.escape(str(bag))} cannot be read: cannot fit 'int'"):
            bags.read(bag)


def test_a_proposal_that_was_too_early_is_too_early_again():
    """The guard's zero is 0.15 ms after the controller's here, a proposal takes 0.05 ms or more. Step 2 was dropped: it
    is made at the soonest that it can have come; steps are in order, and not after their command."""
    steps = [flight_log.Row(k, at, ()) for k, at in enumerate((0.0, 0.0209, 0.0301, 0.0501))]
    basis = [flight_log.Row(k, at, ()) for k, at in ((0, 0.0001), (1, 0.0208), (3, 0.0503))]
    told = flight_log.RecordedFlight(1, 0, steps, basis)
    assert made_at(told) == pytest.approx([0.0, 0.0208, 0.0300, 0.0501], abs=1e-9)
    told.basis.clear()
    assert made_at(told) == [row.at for row in steps]


def test_messages_are_given_as_the_records_say():
    """Ten messages a second, two records: what a record was made of comes before it, what it had not seen after it."""
    at = [100, 200, 300, 400]
    used, missing = uses(at, [7, 8, 7, 9], [8, 9, 5], [150, 390, 500])
    assert used == [1, 3, 3] and missing == 1  # the mark 5 is of no message
    assert delivery(at, [1, 3], [150, 390]) == [(100, 0), (150, 0), (300, 0), (390, 0)]
    assert delivery(at, [0, 0], [150, 390]) == [(100, 0), (390, 2), (390, 2), (400, 0)]


def test_commands_are_compared_component_by_component():
    one = {0: np.array([1.0, 2.0]), 1: np.array([np.nan, 0.0]), 2: np.zeros(2), 4: np.zeros(2)}
    two = {0: np.array([1.0, 2.0 + 1e-6]), 1: np.array([np.nan, 0.0]), 2: np.array([np.nan, 0.0]), 3: np.zeros(2)}
    found = compare(one, two, 1e-5)
    assert (found.count, found.differing, found.first, found.missing, found.extra) == (3, 1, 2, 1, 1)
    assert found.largest == (np.inf, pytest.approx(1e-6)) and compare(one, one, 0.0).equal
    assert compare(one, {**one, 5: np.zeros(2)}, 0.0, open_end=True).equal
    assert compare({0: np.zeros(2)}, {0: np.zeros(3)}, 1.0).differing == 1


@pytest.mark.slow
def test_the_command_line(bag, artifact, other_artifact, tmp_path, capsys):
    from temporeal.policies.cli.main import main

    assert main(["replay", str(bag)]) == 0  # the bag says which artifact
    assert "the same within 1e-05" in capsys.readouterr().out
    assert main(["replay", str(bag), "--artifact", str(other_artifact), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["flights"][0]["proposed"]["first"] == 0 and said["artifact"]["identity"] != said["recorded_artifact"][
        "identity"]
    for words, told in (([str(tmp_path / "nothing")], "is not there"),
                        ([str(bag), "--namespace", "/x"], "it has: /cf1"),
                        ([str(bag), "--robot", "franka"], "is of robot 'crazyflie'"), ([str(artifact)], "no bag")):
        assert main(["replay", *words]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_robot_a_flight_is_replayed_and_a_report_says_what_it_needs(bag, tmp_path):
    """Without what only the extra `train` has."""
    hook = ("import sys\n"
            "class Robot:\n"
            "    def find_spec(self, name, *args):\n"
            "        if name.partition('.')[0] in ('torch', 'mujoco', 'scipy', 'numba', 'onnx'):\n"
            "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
            "sys.meta_path.insert(0, Robot())\n"
            "from temporeal.policies.cli.main import main\n"
            "sys.exit(main(sys.argv[1:]))")
    for words, status, told in (
            (["replay", str(bag)], 0, "2 flights: the same within 1e-05"),
            (["report", str(bag), "--out", str(tmp_path / "out")], 2,
             "temporeal: report needs torch, mujoco, scipy, not installed here: pip install -c constr"),
            (["demo", "--out", str(tmp_path / "demo")], 2, "temporeal: demo needs torch, mujoco, scipy, not inst")):
        done = subprocess.run([sys.executable, "-c", hook, *words], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == status and told in done.stdout + done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_all_that_a_node_says_or_hears_is_recorded(lockstep, artifact, tmp_path):
    """What a node advertises or subscribes to is a topic of the bag, but what only the simulator has."""
    flown = Flown(lockstep, artifact, tmp_path / "bag")
    used = {endpoint.topic for name, bus in flown.bus.items() for endpoint in bus.endpoints if name != "recorder"}
    assert {topic for topic in used if not topic.startswith("/cf1/sim/")} <= set(flown.recorder.counts)
    assert len(used) > 15
    flown.close()


def test_a_bag_without_a_guard_is_refused(tmp_path, capsys):
    from temporeal.policies.cli.main import main

    made = Bag(tmp_path / "bag")
    made.close()
    assert main(["replay", str(tmp_path / "bag")]) == 2
    assert "does not say what was flown" in capsys.readouterr().err


def test_the_report_of_a_recorded_run(bag, tmp_path, capsys):
    """The monitor says the same of the recording as in flight, the evaluation too; the page needs nothing else."""
    from temporeal.policies.cli.main import main

    assert main(["report", str(bag), "--out", str(tmp_path / "out"), "--json"]) == 1  # the second flight was stopped
    said = json.loads(capsys.readouterr().out)
    first, second = said["flights"]
    assert first["verdict"] == "satisfied" == first["recorded"]["verdict"] and first["agrees"] is True
    assert second["verdict"] == "violated" and second["agrees"] is True and second["events"][0][1] == "operator"
    assert said["evaluation"]["satisfied"] == 1 and said["evaluation"]["episodes"] == 2
    assert said["evaluation"]["terminated"] == 1 and second["stop"][0] < 3.0
    assert said["evaluation"]["robustness"]["quantiles"]["1"] == pytest.approx(first["lower"], abs=1e-5)
    assert [c["first_to_fail"] for c in said["evaluation"]["clauses"]].count(1) == 1
    counted = first["figures"]
    assert (counted["steps"], counted["sent"], counted["missed"], counted["own"]) == (306, 306, 0, 0)
    assert second["figures"]["own"] > 50 and second["figures"]["bridged"] == 0
    assert set(counted["latency_ms"]) == {"controller", "guard"}  # by the nodes' clocks: in fake time no work takes any
    assert counted["latency_ms"]["guard"] == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    assert counted["latency_ms"]["controller"]["max"] >= counted["latency_ms"]["controller"]["p50"] > 0
    assert [t["messages"] > 600 and t["gaps"] == 0 for t in first["topics"]] == [True, True]
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"Ended early at {second['stop'][0]:.2f} s." in page
    assert "stopped by the operator" in page and "src=" not in page and "https://" not in page
    assert first["drift"] == [] and [each["text"] for each in second["drift"]] == [NOTICED["text"]]
    assert "15 % less, &lt;b&gt;since" in page and "of another day" not in page
    assert "Simulated flights of /cf1" in page and not re.search(r"\breal (run|flight)", page, re.I)
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert said["simulated"] is written["simulated"] is True and written["evaluation"]["episodes"] == 2


@pytest.mark.parametrize(("counts", "simulated"), [
    ({"/cf1/sim/episode": 2}, True), ({"/cf1/sim/episode": 0}, False), ({"/cf2/sim/episode": 2}, None), ({}, None)])
def test_a_bag_says_whether_its_robot_was_simulated(counts: dict[str, int], simulated: bool | None) -> None:
    from temporeal.policies.cli.verbs.report import Origin

    assert bags.simulated(bags.Recording(Path("bag"), [], counts, ""), "/cf1") is simulated
    assert ("imulated" in Origin.of(simulated).run) == bool(simulated) and "eal" not in Origin.of(simulated).run


FLIES_ON = ("at_risk", "violated", "swap", "swap_refused", "swapped")  # codes of what the guard says and flies on


def judged(flown: Flown, **said: Any) -> None:
    """A word of a monitor on the flight that is under way."""
    flight = flown.guard.flight
    told = {"flight": flight.number, "start_ns": flight.start_ns, "verdict": "unknown", "lower": None, "upper": 0.05}
    flown.send("monitor/verdict", "std_msgs/msg/String", data=json.dumps(told | said))
    flown.lockstep.run(0.1)


@pytest.fixture(scope="module")
def ends(artifact, lockstep_of, tmp_path_factory) -> Path:
    """Flight 3 is warned of, by a profile that only warns where the formula is violated, too, and flies to its end; the
    guard is stopped after that, and refuses a start. Flight 4 is warned of and stopped by the guard; one reset is
    refused, the next is not, and the guard is stopped once more. Flight 5 is stopped for its formula."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path_factory.mktemp("ends") / "bag")
    config = flown.guard.config
    flown.guard.config = replace(config, profile=replace(config.profile, violated="warn"))
    flown.start(3)
    flown.lockstep.run(1.0)
    judged(flown, at_risk=True)
    judged(flown, verdict="violated")
    for code in FLIES_ON[2:]:
        flown.guard.modes.announce(code, "of a successor")
    flown.lockstep.run(8.0, until=lambda: flown.guard.mode == "finished")
    flown.lockstep.run(5.0)
    flown.send("mission/stop", EMPTY)
    flown.lockstep.run(0.5)
    flown.guard.modes.announce("operator", f"{refusal(3)}: the operator's stop is set")
    flown.send("mission/reset", EMPTY)
    flown.lockstep.run(0.5)
    flown.guard.config = config
    flown.start(4)
    flown.lockstep.run(1.0)
    judged(flown, at_risk=True)
    flown.guard.modes.stop("tracking", "the robot is behind")
    flown.lockstep.run(7.0, until=lambda: flown.guard.mode not in ("stopping", "active"))
    flown.guard.modes.announce("operator", f"{NOT_RESET}: the operator's stop is still set")
    for word in ("reset", "stop", "reset"):
        flown.send(f"mission/{word}", EMPTY)
        flown.lockstep.run(0.5)
    flown.start(5)
    flown.lockstep.run(1.0)
    judged(flown, verdict="violated")
    flown.lockstep.run(7.0, until=lambda: flown.guard.mode != "stopping")
    flown.lockstep.run(0.3)
    return flown.close()


@pytest.mark.slow
def test_a_report_tells_what_a_flight_was_stopped_by_and_nothing_else(ends, tmp_path, capsys):
    from temporeal.policies.cli.main import main

    assert main(["report", str(ends), "--out", str(tmp_path / "out"), "--json"]) == 1
    finished, behind, violated = json.loads(capsys.readouterr().out)["flights"]
    codes = [code for _, code, _ in finished["events"]]
    assert codes == [*FLIES_ON, "operator", "operator"] and finished["stop"] is None
    assert re.fullmatch(r"finished at 6\.1\d s", finished["end"])
    assert [code for _, code, _ in behind["events"]] == ["at_risk", "tracking", "operator", "operator"]
    assert re.fullmatch(r"stopped at \d\.\d\d s, tracking: the robot is behind", behind["end"])
    assert re.match(r"stopped at \d\.\d\d s, violated: the formula is violated: ", violated["end"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert [f'"bad">{code}<' in page for code in (*FLIES_ON, "operator", "tracking")] == [
        False, True, False, False, False, False, True]


@pytest.mark.parametrize("modes, stops, end", [
    ([(0.0, "active")], [], "not in the recording"),
    ([(-0.02, "arming"), (0.0, "active"), (6.0, "finished")], [], "finished at 6.00 s"),
    ([(0.0, "active"), (6.0, "stopping")], [], "stopping at 6.00 s"),  # the bag ends
    ([(0.0, "active"), (6.0, "stopping"), (6.5, "finished"), (60.0, "stopping"), (60.0, "stopped")],
     [(60.0, "operator", "stopped")], "finished at 6.00 s"),
    ([(0.0, "active"), (6.0, "stopping"), (6.5, "holding")],  # while it came to rest at the end of its mission
     [(6.3, "operator", "stopped")], "stopped at 6.30 s, operator: stopped"),
    ([(0.0, "active"), (3.0, "stopping"), (3.5, "holding"), (9.0, "waiting"), (9.1, "ready"), (20.0, "stopped")],
     [(20.0, "operator", "stopped")], "holding at 3.00 s")])  # what it was stopped by was not recorded
def test_how_a_flight_ended_is_told_by_its_modes_and_its_own_stop(modes, stops, end):
    from temporeal.policies.cli.verbs.report import ending

    assert ending(flight_log.RecordedFlight(1, 0, modes=modes, events=stops, stops=stops)) == end


BY_CLOCK = {"silent", "stale", "guard"}  # codes of stops of a machine that stood still


@pytest.mark.slow
def test_real_flights_come_out_the_same(artifact, tmp_path, capsys):
    """Processes over DDS, in real time: what each step was made of is recorded, so that nothing differs. Of a flight
    that a pause of this machine stopped what was proposed and sent is the same; what the guard does then it does by its
    clock (docs/how-to/recording.md)."""
    from temporeal.policies.cli.main import main
    from temporeal_bridge.launching.flights import FlightPlan, fly

    report = fly(artifact, FlightPlan("crazyflie", 2, seed=7), tmp_path)
    assert report.flown == 2
    capsys.readouterr()
    status = main(["replay", str(report.bag), "--json"])
    flights = json.loads(capsys.readouterr().out)["flights"]
    assert len(flights) == 2 and status == (0 if all(flight["equal"] for flight in flights) else 1)
    for flight in flights:
        assert flight["proposed"]["equal"] and flight["sent"]["equal"] and flight["proposed"]["compared"] > 0
        assert flight["equal"] or BY_CLOCK & set(flight["events"]["recorded"]), flight
    assert main(["report", str(report.bag)]) == 0 or any(flight["events"]["recorded"] for flight in flights)
