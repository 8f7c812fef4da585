"""Replays and reports of arms: stops that hold one where it was measured when the stop was found, a period before the
first command of that; and topics of signals that the robot does not have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.bridge.conftest import write_arm_artifact
from tests.examples import thinned

from temporeal.policies.cli.main import main
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import InProcessController, InProcessGuard
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording import bags, flight_log
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions

ROBOT, NUMBER, EMPTY = load_robot("franka"), "std_msgs/msg/UInt64", "std_msgs/msg/Empty"


GOAL = {"definitions": {}, "signals": {"goal_pos_w": {"shape": [3], "unit": "m", "frame": "w"}}, "states": [
    {"topic": "goal", "type": "geometry_msgs/msg/PointStamped", "codec": "point", "rate_hz": 0, "qos": "latched",
     "options": {"signal": "goal_pos_w", "frame": "fr3_link0"}}]}


def strict(after_s: float, extra: Any = None) -> Any:
    """An arm that is stopped for following late, as it always does in motion: it moves when it is stopped."""
    found = load_interface(ROBOT, extra=extra)
    rule = {"signal": "joint_pos", "error": 0.006, "after_s": after_s}
    own = {**found.safety["commands"]["joint_pos_cmd"], "tracking": rule}
    return replace(found, safety={**found.safety, "commands": {"joint_pos_cmd": own}})


class Held:
    """A flight of the arm that its guard stops and holds; ``guard`` is the real one. With ``blocked`` joints it is the
    operator who stops it."""

    def __init__(
        self, lockstep: Any, artifact: Path, interface: Any, bag: Path, blocked: Sequence[str] = ()
    ) -> None:
        self.lockstep, self.interface, line = lockstep, interface, InProcessGuard()
        names = ("robot_sim", "policy_node", "guard_node", "recorder", "peer")
        bus = {name: MemoryTransport(lockstep.bus, name, "/arm") for name in names}
        made = {"robot_sim": RobotSim(bus["robot_sim"], ROBOT, interface, SimOptions(seed=0)),
                "recorder": Recorder(bus["recorder"], Bag(bag), robot_topics(interface, ["/arm"])),
                "policy_node": PolicyNode(bus["policy_node"], load_artifact(artifact, ROBOT, interface), ROBOT,
                                          interface, InProcessController(line)),
                "guard_node": GuardNode(
                    bus["guard_node"], load_manifest(artifact), ROBOT, interface, line, GuardOptions(artifact))}
        for name, node in made.items():
            lockstep.add(bus[name], node)
        self.guard, self.recorder = made["guard_node"], made["recorder"]
        if "goal_pos_w" in interface.carried:  # once, and long before
            row = interface.states[-1]
            point = STATE_CODECS[row.codec].encode({"goal_pos_w": np.ones(3)}, 0, ("world", "arm"), row.options)
            bus["peer"].publish(bus["peer"].advertise(row.topic, row.type, QOS["latched"]),
                                messages.encode(row.type, point))
            lockstep.run(3.0)
        lockstep.run(0.5)
        bus["peer"].publish(bus["peer"].advertise("mission/start", NUMBER, QOS["default"]),
                            messages.encode(NUMBER, messages.record(NUMBER)(data=1)))
        if blocked:
            lockstep.run(0.6)
            made["robot_sim"].set_fault(json.dumps({"name": "blocked", "joints": list(blocked)}))
            lockstep.run(0.6)
            bus["peer"].publish(bus["peer"].advertise("mission/stop", EMPTY, QOS["default"]), messages.empty())
        lockstep.run(4.0, until=lambda: self.guard.mode == "holding")
        lockstep.run(0.3)
        assert self.guard.mode == "holding" and self.guard.flight.code == ("operator" if blocked else "tracking")

    def end(self) -> None:
        """The guard is told to end, as by Ctrl-C."""
        self.lockstep.run(3.0, until=self.guard.may_end)
        self.lockstep.pairs = [pair for pair in self.lockstep.pairs if pair[1] is not self.guard]
        self.lockstep.run(0.3)

    def recording(self) -> bags.Recording:
        self.recorder.close()
        return bags.read(self.recorder.bag.path, needed(self.interface, "/arm"))


@pytest.mark.parametrize("after_s, ends", thinned([(0.61, False), (0.643, True)], keep=[(0.643, True)]))
def test_an_arm_is_held_where_it_was_when_the_stop_was_found(after_s, ends, arm_artifact, lockstep_of, tmp_path):
    """By 0.01 rad elsewhere than at the first command of that."""
    field = Held(lockstep_of(Bus()), arm_artifact, strict(after_s), tmp_path / "bag")
    if ends:
        field.end()
        assert field.guard.flight.action == "ramp"  # what the stop at its end is
    row = field.guard.summary()["flights"][0]
    assert (row["code"], row["action"]) == ("tracking", "hold")  # what the stop was for that reason
    recording = field.recording()
    told, = flight_log.flights(recording, "/arm").found
    (found, code, _), *_ = told.stops
    first = next(row.at for row in told.basis if row.step < 0)
    assert code == "tracking" and 0.01 < first - found < 0.04
    flight, = replay(
        recording, load_artifact(arm_artifact, ROBOT, field.interface), ROBOT, field.interface, "/arm").flights
    assert flight.equal and flight.own.count > 5 and max(flight.own.largest) < 1e-9, flight
    assert flight.events[0] == (("tracking", "operator") if ends else ("tracking",))


@pytest.mark.slow
def test_a_ramp_that_became_a_hold_comes_out_bit_for_bit(arm_artifact, lockstep_of, tmp_path):
    """How long a blocked arm pressed counts whole periods, and where it is held the state of that command says."""
    field = Held(lockstep_of(Bus()), arm_artifact, load_interface(ROBOT), tmp_path / "bag", blocked=["fr3_joint1"])
    assert field.guard.flight.action == "ramp" and field.guard.active_stop.under_way.action == "hold"
    flight, = replay(field.recording(), load_artifact(arm_artifact, ROBOT, field.interface), ROBOT, field.interface,
                     "/arm").flights
    assert flight.equal and flight.own.count > 10 and max(flight.own.largest) == 0.0, flight
    assert flight.events[0] == ("operator", "held")


@pytest.mark.slow
def test_without_a_command_that_came_to_rest_the_recorders_time_says_where(arm_artifact, lockstep_of, tmp_path):
    """The bag breaks off on the way there: the message is the last one received by then, so it may be another."""
    field = Held(lockstep_of(Bus()), arm_artifact, strict(0.61), tmp_path / "bag")
    recording = field.recording()
    told, = flight_log.flights(recording, "/arm").found
    cut = told.start_ns + round(1e9 * (told.stops[0][0] + 0.1))
    part = bags.Recording(recording.path, [m for m in recording.messages if m.at < cut], {}, "cut")
    flight, = replay(
        part, load_artifact(arm_artifact, ROBOT, field.interface), ROBOT, field.interface, "/arm").flights
    assert flight.own.count >= 2 and 0.0 < np.max(flight.own.largest) < 0.003 and flight.events[0] == flight.events[1]


@pytest.fixture(scope="module")
def with_goal(lockstep_of, tmp_path_factory) -> Path:
    """The bag of a flight whose formula reads a goal, as `temporeal deploy --sim` leaves it: its topics beside it."""
    folder = tmp_path_factory.mktemp("goal")
    goal = {"goal_pos_w": SignalSpec("goal_pos_w", (3,), "m", "w")}
    artifact = write_arm_artifact(folder / "artifact", formula_text="G[0,1] (goal_pos_w.z > 0.1)", constants={},
                                  horizon_s=1.0, task_signals=goal)
    field = Held(lockstep_of(Bus()), artifact, strict(0.61, GOAL), folder / "bag")
    field.recorder.close()
    (folder / "signals.yaml").write_text(yaml.safe_dump(GOAL))
    return folder / "bag"


@pytest.mark.slow
def test_the_topics_beside_the_bag_are_taken_and_it_is_said(with_goal, tmp_path, capsys):
    """For replay, the rule of this test's arm is not that of ros.yaml: it is flown on where that one was stopped."""
    assert main(["report", str(with_goal), "--out", str(tmp_path / "out"), "--json"]) == 0
    out, err = capsys.readouterr()
    flight, = json.loads(out)["flights"]
    assert flight["verdict"] == "satisfied" and flight["lower"] == pytest.approx(0.9)  # the goal was said before
    assert f"{with_goal.parent / 'signals.yaml'}, beside the bag" in err
    assert main(["replay", str(with_goal / "bag.mcap"), "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["flights"][0]["proposed"]["differing"] == 0 and "beside the bag" in err


def test_without_them_the_option_is_named(with_goal, tmp_path, capsys):
    bag = tmp_path / "elsewhere" / "bag"
    shutil.copytree(with_goal, bag)
    for verb in ("replay", "report"):
        assert main([verb, str(bag)]) == 2
        err = capsys.readouterr().err
        assert "'goal_pos_w'" in err and "as --signals" in err
    given = with_goal.parent / "signals.yaml"
    assert main(["report", str(bag), "--signals", str(given), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert "beside" not in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"definitions": {}, "signals": {}, "states": []}))
    assert main(["report", str(bag), "--signals", str(other)]) == 2
    assert f"and neither does {other}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bag_that_needs_no_more_topics_takes_none(arm_artifact, lockstep_of, tmp_path, capsys):
    """An earlier flight into the same folder may have left a file that is not of this one."""
    field = Held(lockstep_of(Bus()), arm_artifact, strict(0.61), tmp_path / "bag")
    field.recorder.close()
    (tmp_path / "signals.yaml").write_text("[]")
    assert main(["report", str(tmp_path / "bag"), "--json"]) == 1
    assert "signals.yaml" not in capsys.readouterr().err
