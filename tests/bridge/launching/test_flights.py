"""Flights: what becomes of one whose processes die or fall silent (fake processes, fake time), and real processes."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rosbags.highlevel import AnyReader

from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.interface import InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.launching import conductor, flights
from temporeal_bridge.launching.conductor import FAILED, conduct, join, refuse_taken
from temporeal_bridge.launching.flights import FlightPlan, fly
from temporeal_bridge.mission import NOT_RESET
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, TransportError

HORIZON_S = 2.0
NUMBER, HEADER, TEXT = "std_msgs/msg/UInt64", "std_msgs/msg/Header", "std_msgs/msg/String"


class Dummy:
    """A process that runs until it is told to stop or dies."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log, self.returncode = name, log, None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, _: int) -> None:
        self.returncode = 0

    def kill(self) -> None:
        self.returncode = -9


class Robot:
    """Robot, controller and monitor of one namespace: ready at once; a mission is satisfied after its horizon."""

    def __init__(self, world: World, namespace: str) -> None:
        self.world = world
        self.bus = MemoryTransport(world.bus, "robot", namespace)
        latched = QOS["latched"]
        self.episode = self.bus.advertise("sim/episode", NUMBER, latched)
        self.mission = self.bus.advertise("mission", HEADER, latched)
        self.verdict = self.bus.advertise("monitor/verdict", TEXT, latched)
        self.bus.subscribe("sim/reset", NUMBER, QOS["default"], self.on_reset)
        self.bus.subscribe("mission/start", NUMBER, QOS["default"], self.on_start)
        self.bus.subscribe("mission/reset", "std_msgs/msg/Empty", QOS["default"], self.on_release)
        self.event = self.bus.advertise("guard/event", TEXT, QOS["default"])
        self.ends_as, self.mode, self.refuses = "finished", "ready", 0
        self.flight, self.ends = -1, float("inf")
        self.say(self.episode, data=0)
        self.say(self.mission, stamp=messages.header(0, "").stamp, frame_id="ready -1")
        self.say(self.verdict, data='{"flight": -1, "verdict": "idle", "final": false}')

    def say(self, endpoint: Any, **content: Any) -> None:
        self.bus.publish(endpoint, messages.encode(endpoint.type, messages.record(endpoint.type)(**content)))

    def tell(self, mode: str) -> None:
        self.mode = mode
        self.say(self.mission, stamp=messages.header(7, "").stamp, frame_id=f"{mode} {self.flight}")

    def on_release(self, received: Any) -> None:
        if self.mode == "holding" and self.refuses:
            self.refuses -= 1
            self.say(self.event, data=json.dumps({"reason": f"{NOT_RESET}: a stop was heard 0.01 s ago"}))
        elif self.mode == "holding":
            self.tell("waiting")
            self.tell("ready")

    def on_reset(self, received: Any) -> None:
        assert self.mode != "holding", "the robot was moved while the guard held it"
        seed = int(messages.decode(NUMBER, received.data).data)
        if "reset" not in self.world.deaf.get(seed, ""):
            self.say(self.episode, data=seed)

    def on_start(self, received: Any) -> None:
        self.flight = int(messages.decode(NUMBER, received.data).data)
        self.ends = self.world.bus.seconds + HORIZON_S

    def step(self) -> None:
        self.bus.wait(0.0)
        if self.world.bus.seconds < self.ends or "verdict" in self.world.deaf.get(self.flight, ""):
            return
        self.ends = float("inf")
        self.tell(self.ends_as)
        result = {"flight": self.flight, "verdict": "satisfied", "final": True, "lower": 0.1}
        self.say(self.verdict, data=json.dumps(result))


class World(MemoryTransport):
    """The conductor's transport; while it waits, the robots that run act, and what is planned happens."""

    def __init__(self, folder: Path, namespaces: int = 1, there: bool = True, recorded_at: float = 0.0) -> None:
        super().__init__(Bus(), "flights")
        self.there = there
        self.folder, self.launches, self.robots = folder, 0, dict[str, Robot]()
        self.crew: dict[str, list[Dummy]] = {}
        self.deaf: dict[int, str] = {}  # what a flight's nodes do not react to
        self.plans: list[Callable[[], bool]] = []
        self.broken: set[int] = set()  # launches after which the controller refuses
        self.recorder = Dummy("recorder", folder / "recorder.log")
        self.pilots = [join(self, f"/cf{i + 1}") for i in range(namespaces)]
        self.plans.append(lambda: self.bus.seconds >= recorded_at and self.listen())
        for pilot in self.pilots:
            self.launch(pilot)

    def listen(self) -> bool:
        """The recorder has started."""
        for pilot in self.pilots:
            MemoryTransport(self.bus, "recorder").subscribe(
                f"{pilot.namespace}/mission/start", NUMBER, QOS["deep"], lambda received: None)
        return True

    def launch(self, pilot: Any) -> None:
        self.launches += 1
        pilot.out = self.folder / f"{pilot.namespace.strip('/')}-{self.launches}"
        pilot.processes = self.crew[pilot.namespace] = [
            Dummy(name, self.folder / f"{name}.log") for name in ("robot_sim", "policy_node", "monitor_node")]
        if pilot.namespace in self.robots:
            self.robots.pop(pilot.namespace).bus.close()
        if self.launches in self.broken:
            (self.folder / "policy_node.log").write_text("Traceback ...\npolicy_node: error: SHA-256 differs\n")
            pilot.processes[1].returncode = 2
        elif self.there:
            self.robots[pilot.namespace] = Robot(self, pilot.namespace)

    def wait(self, timeout_s: float) -> int:
        self.plans = [plan for plan in self.plans if not plan()]
        for name, robot in self.robots.items():
            if all(process.returncode is None for process in self.crew[name]):
                robot.step()
        return super().wait(timeout_s)

    def kill(self, node: int, seed: int, namespace: str = "/cf1") -> None:
        """Kill a process in the middle of flight ``seed``."""
        def plan() -> bool:
            robot = self.robots.get(namespace)
            if robot is None or robot.flight != seed or self.bus.seconds < robot.ends - 1.0:
                return False
            self.crew[namespace][node].kill()
            return True

        self.plans.append(plan)

    def fly(self, count: int) -> tuple[list[dict[str, Any]], str]:
        return conduct(self, self.pilots, self.recorder, range(count), HORIZON_S, self.launch, None)


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["verdict"] for row in rows]


def test_nothing_is_flown_before_the_recorder_listens(tmp_path: Path) -> None:
    """Else the bag lacks what the nodes knew of the robot before the flight."""
    world = World(tmp_path, recorded_at=3.0)
    rows, fault = world.fly(1)
    assert verdicts(rows) == ["satisfied"] and not fault and world.bus.seconds > 3.0 + HORIZON_S
    world = World(tmp_path / "never", recorded_at=float("inf"))
    rows, fault = world.fly(1)
    assert verdicts(rows) == [FAILED]
    assert "is still starting (guard: ready, monitor: idle, robot: there, recorder: silent)" in fault


@pytest.mark.parametrize(("node", "name"), [(0, "robot_sim"), (1, "policy_node"), (2, "monitor_node")])
def test_a_flight_whose_process_is_killed_fails_and_the_next_is_flown(tmp_path: Path, node: int, name: str) -> None:
    world = World(tmp_path)
    world.kill(node, seed=1)
    rows, fault = world.fly(4)
    assert verdicts(rows) == ["satisfied", FAILED, "satisfied", "satisfied"] and not fault
    assert rows[1]["reason"] == f"{name} was killed by SIGKILL (robot /cf1)"
    assert rows[1]["logs"] == str(tmp_path / "cf1-1") and rows[2]["logs"] == str(tmp_path / "cf1-2")
    assert rows[2]["start_ns"] == 7


@pytest.mark.parametrize(("deaf", "stage"), [("reset", "resetting"), ("verdict", "flying")])
def test_a_flight_that_falls_silent_fails_after_its_time(tmp_path: Path, deaf: str, stage: str) -> None:
    world = World(tmp_path)
    world.deaf[0] = deaf
    (tmp_path / "policy_node.log").write_text("warning: slow\n")
    rows, fault = world.fly(2)
    assert verdicts(rows) == [FAILED, "satisfied"] and not fault
    assert f"still {stage}" in rows[0]["reason"] and "policy_node: warning: slow" in rows[0]["reason"]
    assert world.bus.seconds < 30


def test_a_robot_that_is_held_is_let_go_before_it_is_reset(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.robots["/cf1"].ends_as = "holding"
    assert verdicts(world.fly(3)[0]) == ["satisfied"] * 3


def test_a_reset_that_is_refused_soon_after_a_stop_is_said_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.robots["/cf1"].ends_as, world.robots["/cf1"].refuses = "holding", 2
    assert verdicts(world.fly(2)[0]) == ["satisfied"] * 2 and world.robots["/cf1"].refuses == 0


def test_a_machine_that_stands_still_makes_nobody_late(tmp_path: Path) -> None:
    world = World(tmp_path)

    def plan() -> bool:
        robot = world.robots["/cf1"]
        if robot.flight == 0:
            world.bus.advance(100.0)
            robot.ends += 100.0
        return robot.flight == 0

    world.plans.append(plan)
    assert verdicts(world.fly(1)[0]) == ["satisfied"] and world.bus.seconds > 100


def test_the_other_robot_flies_on(tmp_path: Path) -> None:
    """One robot cannot start: the other flies all missions."""
    world = World(tmp_path, namespaces=2)
    world.crew["/cf1"][1].kill()
    rows, fault = world.fly(3)
    assert verdicts(rows) == ["satisfied"] * 3 and not fault
    assert {row["robot"] for row in rows} == {"/cf2"} and world.launches == 2


def test_when_no_robot_starts_all_ends_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, namespaces=2)
    for crew in world.crew.values():
        (tmp_path / "policy_node.log").write_text("Traceback ...\npolicy_node: error: SHA-256 differs\n")
        crew[1].returncode = 2
    rows, fault = world.fly(10)
    assert "policy_node ended with status 2: policy_node: error: SHA-256 differs (robot /cf1)" in fault
    assert verdicts(rows) == [FAILED] * 10 and {row["reason"] for row in rows} == {f"not flown: {fault}"}
    assert world.bus.seconds < 1


def test_nothing_on_the_bus_is_one_time_out(tmp_path: Path) -> None:
    world = World(tmp_path, namespaces=2, there=False)
    rows, fault = world.fly(10)
    assert "robot /cf1 is still starting (guard: silent, monitor: silent, robot: silent, recorder: silent)" in fault
    assert verdicts(rows) == [FAILED] * 10
    assert world.bus.seconds < conductor.READY_S + 1


def test_a_robot_that_cannot_start_again_ends_the_flights(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kill(1, seed=1)
    world.broken.add(2)
    rows, fault = world.fly(4)
    assert verdicts(rows) == ["satisfied", FAILED, FAILED, FAILED]
    assert "SHA-256 differs" in fault and rows[3]["reason"] == f"not flown: {fault}"
    assert rows[1]["reason"].startswith("policy_node was killed")


def test_several_failures_in_a_row_end_the_flights(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.deaf = dict.fromkeys(range(1, 10), "verdict")
    rows, fault = world.fly(10)
    assert verdicts(rows) == ["satisfied"] + [FAILED] * 9
    assert fault.startswith("3 flights in a row failed, the last one: robot /cf1 is still flying")
    assert world.launches == 3 and rows[4]["reason"].startswith("not flown") and rows[4]["robot"] is None


def test_without_the_recorder_no_flight_counts(tmp_path: Path) -> None:
    """What is not recorded cannot be looked into: the flights end, those before it stand."""
    world = World(tmp_path)

    def plan() -> bool:
        if world.robots["/cf1"].flight == 1:
            world.recorder.kill()
        return bool(world.recorder.returncode)

    world.plans.append(plan)
    rows, fault = world.fly(3)
    assert fault == "recorder was killed by SIGKILL"
    assert verdicts(rows) == ["satisfied", FAILED, FAILED]
    assert rows[1]["reason"] == fault and rows[2]["reason"] == f"not flown: {fault}"


def test_a_namespace_that_is_taken_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, recorded_at=float("inf"))
    with pytest.raises(TransportError, match="another robot is already in namespace /cf1 on DDS domain 7"):
        refuse_taken(world, world.pilots, 7)
    world.robots.pop("/cf1").bus.close()
    world.pilots[0].mode, world.pilots[0].episode = "", -1
    refuse_taken(world, world.pilots, 7)


def test_the_report_does_with_what_is_there(artifact: Path, tmp_path: Path) -> None:
    """A killed controller leaves no summary, a killed robot no truth."""
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface

    rows = [{"seed": 0, "robot": "/cf1", "logs": str(tmp_path), "verdict": "satisfied", "lower": 0.1, "start_ns": 5},
            conductor.failed(1, None, "the recorder ended")]
    robot = load_robot("crazyflie")
    report = flights.report(
        rows, "the recorder ended", load_manifest(artifact), robot, load_interface(robot), tmp_path)
    assert (report.satisfied, report.flown, len(report.flights)) == (1, 1, 2)
    assert report.latency_ms == {"p50": None, "p99": None, "max": None} and report.worst_lag_ms is None
    assert report.flights[0]["missed"] is None and "truth" not in report.flights[0]
    assert report.flights[1]["reason"] == "not flown: the recorder ended"


def test_only_the_simulated_robot_is_told_how_it_differs(artifact: Path, tmp_path: Path, monkeypatch: Any) -> None:
    started: dict[str, list[str]] = {}
    monkeypatch.setattr(flights, "start", lambda name, words, log: started.update({name: words}))
    pilot, interface = join(MemoryTransport(Bus(), "flights"), "/cf1"), load_interface(load_robot("crazyflie"))
    gap = tmp_path / "gap.yaml"
    flights.robot_processes(pilot, artifact, [], FlightPlan("crazyflie", hidden=gap), interface)
    assert [name for name, words in started.items() if str(gap) in words] == ["robot_sim"]
    assert "--spread" not in started["robot_sim"]  # the file's own
    flights.robot_processes(pilot, artifact, [], FlightPlan("crazyflie"), interface)
    assert not any("--hidden" in words for words in started.values()) and "--spread" in started["robot_sim"]


def test_a_wrong_file_of_a_robot_is_refused_before_anything_starts(artifact: Path, tmp_path: Path) -> None:
    gap = tmp_path / "gap.yaml"
    gap.write_text("mass: 2", encoding="utf-8")
    with pytest.raises(InterfaceError, match=r"has the keys \['mass'\]; legal: parameters"):
        fly(artifact, FlightPlan("crazyflie", hidden=gap), tmp_path / "out")


def test_at_least_one_flight(artifact, tmp_path):
    with pytest.raises(ValueError, match="at least 1, got 0 and 2"):
        FlightPlan("crazyflie", 0, 2)


def test_a_folder_without_an_artifact(tmp_path):
    with pytest.raises(ArtifactError, match="is not an artifact"):
        fly(tmp_path, FlightPlan("crazyflie"), tmp_path / "out")


@pytest.mark.slow
def test_a_process_that_ends_is_quoted(artifact, tmp_path):
    """The network was changed after export: the controller refuses it, and the report of the flights says so once."""
    broken: Path = tmp_path / "broken"
    shutil.copytree(artifact, broken)
    with (broken / "policy.onnx").open("ab") as file:
        file.write(b"x")
    report = fly(broken, FlightPlan("crazyflie", 5), tmp_path / "out")
    assert "policy_node ended with status 2" in report.fault and "SHA-256" in report.fault
    assert report.flown == 0 and len(report.flights) == 5


@pytest.mark.skipif(importlib.util.find_spec("rclpy") is not None, reason="a ROS 2 is sourced")
def test_rclpy_without_ros_is_told_what_to_source(artifact, tmp_path, capsys):
    from temporeal.policies.cli.main import main

    assert main(["deploy", str(artifact), "--sim", "deploy=rclpy", "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "source /opt/ros" in message and "transport dds" in message and "Traceback" not in message


@pytest.mark.slow
@pytest.mark.parametrize("interface", ["crazyswarm2", "odometry"])
def test_flights_in_real_time(artifact, tmp_path, interface):
    """Two robots beside each other: satisfied by the monitor and in truth, recorded, with figures of the controller."""
    pytest.importorskip("mujoco")
    rows = []
    report = fly(artifact, FlightPlan("crazyflie", 3, 2, 7, interface), tmp_path, rows.append)
    assert [row["seed"] for row in report.flights] == [7, 8, 9] and len(rows) == 3
    assert report.satisfied == 3 and {row["robot"] for row in report.flights} == {"/cf1", "/cf2"}
    for row in report.flights:
        assert row["truth"]["verdict"] == "satisfied" and row["reason"] == "" and len(row["clauses"]) == 3
        assert abs(row["truth"]["robustness"] - row["robustness_lower"]) < 0.1
    assert 0 < report.latency_ms["p50"] <= report.latency_ms["p99"]
    with AnyReader([report.bag]) as reader:
        counts = {c.topic: c.msgcount for c in reader.connections}
    assert counts["/cf1/odom"] > 500 and counts["/cf1/cmd_vel_legacy"] > 250
