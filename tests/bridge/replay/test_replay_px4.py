"""Replays of flights under an autopilot: its status comes from the bag, so it is armed and obeys again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.bridge.guard.test_px4_flight import OFFBOARD, Field
from tests.examples import thinned

from temporeal.robots.spec import load_robot
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording import bags, flight_log
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.simulated_robot.px4_commander import POSCTL
from temporeal_bridge.transports.memory_bus import MemoryTransport

pytest.importorskip("mujoco")

ROBOT = load_robot("crazyflie")


class Recorded(Field):
    """The same with a recorder."""

    def __init__(self, lockstep: Any, artifact: Path, bag: Path, name: str = "px4", **changes: Any) -> None:
        self.name, self.node_of_bag = name, MemoryTransport(lockstep.bus, "recorder", "/cf1")
        self.recorder = lockstep.add(self.node_of_bag, Recorder(
            self.node_of_bag, Bag(bag), robot_topics(load_interface(ROBOT, name), ["/cf1"])))
        super().__init__(lockstep, artifact, name, **changes)

    def again(self, artifact: Path) -> tuple[flight_log.Flights, Any]:
        """What the bag tells, and what a replay makes of it."""
        self.recorder.close()
        interface = load_interface(ROBOT, self.name)  # as the command line has it: who armed is in the bag only
        recording = bags.read(self.recorder.bag.path, needed(interface, "/cf1"))
        return flight_log.flights(recording, "/cf1"), replay(
            recording, load_artifact(artifact, ROBOT, interface), ROBOT, interface, "/cf1", 0.0)


@pytest.mark.parametrize("name", thinned(["px4", "mavros"], keep=["px4"]))
@pytest.mark.slow
def test_a_flight_under_an_autopilot_is_one_flight_and_comes_out_bit_for_bit(name, lockstep, grounded, tmp_path):
    """Until it obeys the first start is void, with another time zero than the flight: both are made again."""
    field = Recorded(lockstep, grounded, tmp_path / "bag", name)
    field.fly(6.5)
    assert field.mode == "finished" and field.monitor.mission.results[-1]["verdict"] == "satisfied"
    told, found = field.again(grounded)
    (flight,), (same,) = told.found, found.flights
    assert [mode for _, mode in flight.modes] == ["arming", "active", "finished"] and flight.modes[0][0] < -1.0
    assert flight.start_ns == field.guard.flight.start_ns and len(flight.void) == 1 and not flight.refusal
    assert same.equal and same.modes == (("arming", "active", "finished"),) * 2
    assert same.sent.count == same.proposed.count == same.steps > 300 and same.sent.largest == (0.0,) * 4


@pytest.mark.slow
def test_a_pilot_who_takes_over_does_so_again_and_the_next_flight_too(lockstep, grounded, tmp_path):
    field = Recorded(lockstep, grounded, tmp_path / "bag")
    field.fly(2.0)
    field.px4.pilot(field.lockstep.bus.seconds, mode=POSCTL)
    field.run(0.5)
    assert field.guard.flight.code == "autopilot"
    field.tell("mission/reset")
    field.run(0.5)
    field.px4.pilot(field.lockstep.bus.seconds, arm=False)
    field.run(2.0)
    field.tell("sim/reset", 2)
    field.run(1.0)
    field.fly(1.0, number=1)  # the same number: it is another mission
    _, found = field.again(grounded)
    first, second = found.flights
    assert first.equal and first.events == (("autopilot",),) * 2 and first.sent.count > 90
    assert first.modes == (("arming", "active", "stopping", "stopped", "waiting"),) * 2
    assert second.equal and second.sent.count > 40


@pytest.mark.slow
def test_a_pilot_who_takes_over_while_the_guard_levels_ends_that_again(lockstep, grounded, tmp_path):
    field = Recorded(lockstep, grounded, tmp_path / "bag")
    field.fly(2.5)
    field.tell("mission/stop")
    field.run(0.25)
    field.px4.pilot(field.lockstep.bus.seconds, mode=POSCTL)
    field.run(0.5)
    _, found = field.again(grounded)
    flight, = found.flights
    assert flight.equal and flight.events == (("operator", "autopilot"),) * 2 and flight.own.count > 10


def test_an_autopilot_that_does_not_arm_does_not_again(lockstep, grounded, tmp_path):
    """That we asked it to is seen by the orders in the bag: who waits for a pilot waits for ever."""
    field = Recorded(lockstep, grounded, tmp_path / "bag")
    field.px4.checks = False
    field.tell("mission/start", 1)
    field.run(7.0)
    assert field.mode == "stopped"
    _, found = field.again(grounded)
    flight, = found.flights
    assert flight.equal and flight.events == (("autopilot",),) * 2
    assert flight.modes[1] == ("arming", "stopping", "stopped")


@pytest.mark.slow
def test_a_pilot_who_takes_his_time_is_waited_for_again(lockstep, grounded, tmp_path):
    field = Recorded(lockstep, grounded, tmp_path / "bag", arm="never")
    field.tell("mission/start", 1)
    field.run(8.0)
    assert field.mode == "arming"
    field.px4.pilot(field.lockstep.bus.seconds, mode=OFFBOARD, arm=True)
    field.run(1.0)
    assert field.mode == "active"
    _, found = field.again(grounded)
    flight, = found.flights
    assert flight.equal and flight.sent.count > 30 and flight.modes[1] == ("arming", "active")


def test_a_bag_without_the_autopilots_status_says_so(lockstep, grounded, tmp_path):
    field = Recorded(lockstep, grounded, tmp_path / "bag")
    field.fly(0.5)
    field.recorder.close()
    interface = load_interface(ROBOT, "px4")
    recording = bags.read(tmp_path / "bag", needed(load_interface(ROBOT), "/cf1"))
    with pytest.raises(bags.BagError, match="no message on /cf1/fmu/out/vehicle_status.*, the autopilot's status"):
        replay(recording, load_artifact(grounded, ROBOT, interface), ROBOT, interface, "/cf1")


@pytest.mark.slow
def test_the_report_of_such_a_flight_leaves_nothing_out(lockstep, artifact, tmp_path, capsys):
    from temporeal.policies.cli.main import main

    field = Recorded(lockstep, artifact, tmp_path / "bag", ground=False)
    field.fly(6.5)
    field.recorder.close()
    assert main(["report", str(tmp_path / "bag"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["notes"] == [] and len(said["flights"]) == 1
    assert said["flights"][0]["figures"]["steps"] == said["flights"][0]["figures"]["sent"] > 300
    assert main(["replay", str(tmp_path / "bag"), "--artifact", str(artifact), "--tolerance", "0"]) == 0
    assert "1 flights: the same" in capsys.readouterr().out
