"""Flights through PX4's messages with the real nodes, on the memory bus: MuJoCo under the commander's double, the
guard, the controller and the monitor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.px4 import MODE, RATES
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard.px4 import MAVROS, ORDER, STATUS
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.interface import InterfaceError, armed_by
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.simulated_robot.px4_commander import AUTO_LAND, POSCTL
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions

ROBOT = load_robot("crazyflie")
ALTCTL, OFFBOARD = 1, 14
HEADER, TEXT, NUMBER, EMPTY = "std_msgs/msg/Header", "std_msgs/msg/String", "std_msgs/msg/UInt64", "std_msgs/msg/Empty"


class Field:
    """A quadrotor under PX4 with its guard, controller and monitor, and an operator."""

    def __init__(self, lockstep, artifact: Path, name: str = "px4", arm: str = "ask", after: str = "silence",
                 safety=None, ground: bool = True) -> None:
        self.lockstep = lockstep
        interface = load_interface(ROBOT, name)
        if interface.autopilot.orders is not None:
            interface = armed_by(interface, arm)
        self.interface = replace(interface, safety={**interface.safety, **(safety or {})})
        self.node = {}
        for node in ("robot_sim", "guard_node", "policy_node", "monitor_node"):
            self.node[node] = MemoryTransport(lockstep.bus, node, "/cf1")
        start = {**interface.simulation["start"], "ground_m": 0.0145} if ground else interface.simulation["start"]
        bus = self.node["robot_sim"]
        options = SimOptions(seed=3, settings={"start": start})
        self.robot = lockstep.add(bus, RobotSim(bus, ROBOT, self.interface, options))
        loaded = load_artifact(artifact, ROBOT, self.interface)
        ends = linked()
        bus = self.node["policy_node"]
        self.policy = lockstep.add(
            bus, PolicyNode(bus, loaded, ROBOT, self.interface, ends[0], Options(after=after)))
        bus = self.node["guard_node"]
        self.guard = lockstep.add(bus, GuardNode(bus, loaded.manifest, ROBOT, self.interface, ends[1]))
        bus = self.node["monitor_node"]
        self.monitor = lockstep.add(bus, MonitorNode(bus, loaded.manifest, ROBOT, self.interface))
        self.peer = MemoryTransport(lockstep.bus, "peer", "/cf1")
        self.modes: list[str] = []
        self.events: list[dict] = []
        self.sent: list[tuple[float, str]] = []  # what went to the autopilot: when, type
        self.peer.subscribe("mission", HEADER, QOS["latched"], lambda r: self.modes.append(
            messages.decode(HEADER, r.data).frame_id))
        self.peer.subscribe("guard/event", TEXT, QOS["deep"], lambda r: self.events.append(
            json.loads(messages.decode(TEXT, r.data).data)))
        for row in self.robot.plant.topics:
            self.peer.subscribe(row.topic, row.type, QOS["deep"], lambda r: self.sent.append((r.at, r.type)))
        self.wishes = {topic: self.peer.advertise(topic, type, QOS["default"]) for topic, type in (
            ("mission/start", NUMBER), ("sim/reset", NUMBER), ("mission/stop", EMPTY), ("mission/reset", EMPTY))}
        self.run(0.8)

    def tell(self, topic: str, number: int | None = None) -> None:
        data = messages.empty() if number is None else messages.encode(NUMBER, messages.record(NUMBER)(data=number))
        self.peer.publish(self.wishes[topic], data)

    def run(self, seconds: float, until=lambda: False) -> None:
        for _ in range(round(seconds / 0.05)):
            if until():
                return
            self.lockstep.run(0.05)
            self.peer.wait(0.0)

    def fly(self, seconds: float, number: int = 1) -> None:
        """The operator starts a mission and lets it go on for ``seconds`` from its time zero."""
        self.tell("mission/start", number)
        self.run(10.0, until=lambda: self.modes[-1] == f"active {number}")
        assert self.modes[-1] == f"active {number}", self.events
        self.run(seconds)

    def kill(self, node: str) -> None:
        """From now on it does nothing any more."""
        self.lockstep.pairs = [pair for pair in self.lockstep.pairs if pair[0] is not self.node[node]]

    @property
    def mode(self) -> str:
        return self.modes[-1].split()[0]

    @property
    def px4(self):
        return self.robot.plant.px4

    @property
    def height(self) -> float:
        return float(self.robot.plant.signals()["height"])

    def silent(self, seconds: float) -> bool:
        """Whether nothing goes to the autopilot while time passes."""
        count = len(self.sent)
        self.run(seconds)
        return len(self.sent) == count


@pytest.fixture
def field(lockstep, grounded):
    return Field(lockstep, grounded)


def test_from_the_ground_to_both_goals(field):
    """The start arms and switches; the mission's time zero is the first command's, not the operator's."""
    assert field.mode == "ready" and field.sent == []
    asked = field.lockstep.bus.seconds
    field.fly(0.0)
    assert field.modes[-2:] == ["arming 1", "active 1"] and field.height < 0.02
    began = 1e-9 * (field.guard.flight.start_ns - field.lockstep.bus.epoch_ns)
    assert asked + 1.2 < began < asked + 2.5
    first = {type: next(at for at, kind in field.sent if kind == type) for type in (MODE, ORDER, RATES)}
    assert first[MODE] + 1.2 <= first[ORDER] < first[RATES]  # heartbeats, then orders, then setpoints
    field.run(7.5, until=lambda: bool(field.monitor.mission.results))
    (result,) = field.monitor.mission.results
    assert result["verdict"] == "satisfied" and result["lost"] == 0
    assert field.px4.denials == [] and field.policy.flight.missed == 0 and len(field.guard.modes.flights) == 1
    assert len(field.policy.flights) == 1 and field.guard.flight.dropped == 0
    field.run(0.2)
    assert field.mode == "finished" and field.silent(1.5)
    assert field.px4.mode == AUTO_LAND  # nobody is there: PX4 does what its parameter says
    field.run(10.0, until=lambda: not field.px4.armed)
    assert field.height < 0.06


@pytest.mark.slow
def test_every_setpoint_has_its_heartbeat_just_before_it(field):
    field.fly(0.5)
    bus, order = field.node["guard_node"], []
    publish = bus.publish
    bus.publish = lambda endpoint, data: (order.append(endpoint.type), publish(endpoint, data))
    field.run(1.0)
    told = [type for type in order if type in (MODE, RATES)]
    assert told == [MODE, RATES] * (len(told) // 2) and len(told) in (98, 100, 102)


@pytest.mark.slow
def test_a_second_flight(field):
    for number in (1, 2):
        field.fly(6.5, number)
        assert field.mode == "finished" and field.monitor.mission.results[-1]["verdict"] == "satisfied"
        field.run(12.0, until=lambda: not field.px4.armed)
        field.tell("sim/reset", number)
        field.run(1.0)
    assert [f.number for f in field.guard.modes.flights] == [1, 2] and field.guard.offboard.failed == ""


@pytest.mark.slow
def test_a_mission_that_begins_in_the_air_begins_where_it_should(lockstep, artifact):
    """As behind every other interface: the start that the seed draws, until the motors push."""
    field = Field(lockstep, artifact, ground=False)
    field.fly(6.5)
    assert field.monitor.mission.results[-1]["verdict"] == "satisfied" and field.height > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["px4", "mavros"])
def test_never_waits_for_a_pilot_who_arms_and_switches(lockstep, grounded, name):
    field = Field(lockstep, grounded, name, arm="never")
    field.robot.plant.pilot = False  # ours does it
    field.tell("mission/start", 1)
    field.run(8.0)
    assert field.mode == "arming" and ORDER not in {type for _, type in field.sent} and field.height < 0.02
    field.px4.pilot(field.lockstep.bus.seconds, mode=OFFBOARD, arm=True)
    field.run(0.3)
    assert field.mode == "active"
    field.run(6.5)
    assert field.monitor.mission.results[-1]["verdict"] == "satisfied" and field.px4.denials == []


@pytest.mark.slow
def test_mavros_has_a_simulated_pilot(lockstep, grounded):
    field = Field(lockstep, grounded, "mavros")
    field.fly(6.5)
    assert field.monitor.mission.results[-1]["verdict"] == "satisfied"


def test_while_it_waits_for_a_pilot_the_operator_can_end_it(lockstep, grounded):
    field = Field(lockstep, grounded, arm="never")
    field.tell("mission/start", 1)
    field.run(3.0)
    assert field.mode == "arming"
    field.tell("mission/stop")
    field.run(0.2)
    assert field.mode == "stopped" and field.guard.flight.code == "operator" and field.silent(1.0)
    assert field.policy.mode == "ready" and field.policy.flight.reason == "stopped by the operator"


@pytest.mark.slow
def test_a_controller_that_is_killed_is_levelled_then_landed_by_px4(field):
    field.fly(2.5)
    assert field.height > 0.5
    field.kill("policy_node")
    field.run(0.3)
    assert field.guard.flight.code == "silent" and field.mode == "stopping" and field.px4.mode == OFFBOARD
    field.run(10.0, until=lambda: field.mode == "stopped")
    assert field.silent(3.0) and not field.px4.armed and field.height < 0.06


@pytest.mark.slow
def test_silence_hands_a_killed_controllers_robot_to_px4_at_once(lockstep, grounded):
    field = Field(lockstep, grounded, safety={"commands": {"ctbr_cmd": {"stop": {"default": "silence"}}}})
    field.fly(2.5)
    field.kill("policy_node")
    field.run(0.3)
    assert field.mode == "stopped" and field.silent(1.2) and field.px4.failsafe and field.px4.mode == AUTO_LAND
    field.run(15.0, until=lambda: not field.px4.armed)
    assert not field.px4.armed and field.height < 0.06


@pytest.mark.slow
def test_a_guard_that_is_killed_leaves_the_robot_to_px4(field):
    field.fly(2.5)
    field.kill("guard_node")
    field.run(1.3)
    assert field.px4.failsafe and field.px4.mode == AUTO_LAND
    field.run(15.0, until=lambda: not field.px4.armed)
    assert field.height < 0.06


@pytest.mark.slow
def test_a_guard_that_is_deactivated_leaves_the_robot_to_px4(field):
    """It would level a Crazyflie: PX4 lands by itself, and heartbeats would keep it from that."""
    field.fly(2.5)
    field.guard.transport.active = False
    field.run(0.1)
    assert field.mode == "stopped" and field.guard.flight.code == "inactive" and field.silent(1.2)
    field.run(15.0, until=lambda: not field.px4.armed)
    assert field.height < 0.06


@pytest.mark.parametrize("switch", [{"mode": POSCTL}, pytest.param({"arm": False}, marks=pytest.mark.slow)])
def test_the_pilot_takes_over_and_is_not_fought(field, switch):
    field.fly(2.0)
    field.px4.pilot(field.lockstep.bus.seconds, **switch)
    field.run(0.1)
    assert field.mode == "stopped" and field.guard.flight.code == "autopilot"
    assert field.guard.flight.action == "silence" and field.silent(3.0)
    field.tell("mission/start", 2)  # not even by a new start, before somebody has reset the reason
    assert field.silent(2.0) and "mission/reset clears it" in field.events[-1]["reason"]


@pytest.mark.slow
def test_a_pilot_who_takes_over_while_the_guard_levels_ends_that_too(field):
    field.fly(2.5)
    field.tell("mission/stop")
    field.run(0.2)
    assert field.mode == "stopping"
    field.px4.pilot(field.lockstep.bus.seconds, mode=ALTCTL)
    field.run(0.1)
    assert field.mode == "stopped" and field.silent(3.0) and field.px4.mode == ALTCTL
    assert field.guard.flight.reason == "stopped by the operator"  # the first reason is why it ended


@pytest.mark.slow
def test_after_a_failsafe_nothing_goes_out_and_a_reset_alone_changes_nothing(field):
    field.fly(2.5)
    field.px4.heartbeat -= 1.0  # as if heartbeats had been lost for a second
    field.run(0.1)
    assert field.mode == "stopped" and field.guard.flight.code == "autopilot"
    assert "failsafe" in field.guard.flight.reason
    assert field.silent(2.0) and field.px4.mode == AUTO_LAND
    field.tell("mission/reset")
    assert field.silent(1.0) and field.mode == "ready"
    field.run(15.0, until=lambda: not field.px4.armed)
    field.tell("sim/reset", 4)
    field.run(1.0)
    field.fly(6.5, 2)
    assert field.monitor.mission.results[-1]["verdict"] == "satisfied"


@pytest.mark.slow
def test_a_status_that_stops_is_an_autopilot_that_does_not_obey(field):
    field.fly(2.0)
    field.robot.plant.says = lambda time, stamp: []
    field.run(2.0)
    assert field.guard.flight.code == "autopilot" and "s old, 1.50 s is allowed" in field.guard.flight.reason
    assert field.silent(1.0)


@pytest.mark.slow
def test_checks_that_fail_refuse_the_mission(field):
    field.px4.checks = False
    field.tell("mission/start", 1)
    field.run(7.0)
    assert field.mode == "stopped" and "pre-flight checks fail" in field.guard.flight.reason
    assert field.policy.mode == "ready" and field.policy.flight.reason == field.guard.flight.reason
    assert not field.px4.armed and field.silent(1.0)


def test_without_an_autopilot_on_the_bus_nothing_starts(lockstep, grounded):
    field = Field(lockstep, grounded)
    field.guard.offboard.status = None
    field.robot.plant.says = lambda time, stamp: []
    field.tell("mission/start", 1)
    field.run(0.3)
    assert field.mode == "ready" and "no status of the autopilot" in field.events[-1]["reason"] and field.sent == []
    assert field.policy.mode == "ready"


def test_a_controller_that_dies_while_arming_ends_it(field):
    field.tell("mission/start", 1)
    field.run(0.5)
    assert field.mode == "arming"
    field.kill("policy_node")
    field.run(3.0)
    assert field.mode == "stopped" and field.height < 0.02 and field.silent(1.0)
    assert field.guard.flight.code in ("silent", "autopilot")


def test_a_guard_that_fails_is_silent_at_once(field):
    field.fly(2.5)
    field.guard.rescue(RuntimeError("by zero"))
    field.kill("guard_node")
    assert field.guard.mode == "stopping" or field.guard.mode == "stopped"
    field.run(15.0, until=lambda: not field.px4.armed)
    assert field.height < 0.06


def test_arming_is_chosen_where_it_can_be():
    px4, mavros, other = (load_interface(ROBOT, name) for name in ("px4", "mavros", "odometry"))
    assert armed_by(px4, "ask").autopilot.arm == "ask" and px4.autopilot.status.type == STATUS
    assert armed_by(mavros, "never").autopilot.status.type == MAVROS
    for interface, words in ((mavros, "takes no orders"), (other, "no autopilot")):
        with pytest.raises(InterfaceError, match=words):
            armed_by(interface, "ask")
    with pytest.raises(InterfaceError, match="legal: never, ask"):
        armed_by(px4, "always")
