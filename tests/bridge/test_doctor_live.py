"""`temporeal doctor --artifact` with a simulated robot: over DDS in a process of its own, and on the memory bus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.odometry import encode_odometry
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS, require_peer

ROBOT = load_robot("crazyflie")
TWIST = "geometry_msgs/msg/Twist"


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status, and what is not ok, by name."""
    capsys.readouterr()
    status = main(["doctor", "--json", *words])
    report = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in report["checks"]}
    machine = ("clock", "CPU governor", "real-time")  # of whoever runs the tests
    assert set(machine) <= set(checks) and report["ok"] == (status == 0)
    assert {"artifact", "robot", "odom there", "odom rate", "gyro clock", "first command"} <= set(checks)
    return status, {k: c for k, c in checks.items() if c["status"] != "ok" and k not in machine}


class Lab(MemoryTransport):
    """The listener's transport on a bus with a fake clock: the robot moves on while it waits."""

    def __init__(self, interface: str = "crazyswarm2", **settings: Any) -> None:
        super().__init__(Bus(), "temporeal_doctor", "/cf1")
        self.other = MemoryTransport(self.bus, "robot_sim", "/cf1")
        self.robot = RobotSim(self.other, ROBOT, load_interface(ROBOT, interface), SimOptions(settings=settings))
        self.commands = 0
        self.spy = MemoryTransport(self.bus, "spy")
        self.spy.subscribe("/cf1/cmd_vel_legacy", TWIST, QOS["default"], self._count)

    def _count(self, _: object) -> None:
        self.commands += 1

    def wait(self, timeout_s: float) -> int:
        until, count = self.bus.seconds + timeout_s, 0
        while not count and self.bus.seconds < until:
            self.bus.advance(max(min(self.robot.deadline(), until) - self.bus.seconds, 1e-6))
            self.robot.step()
            self.spy.wait(0.0)
            count = super().wait(0.0)
        return count

    def close(self) -> None:
        """The test looks at it afterwards."""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()
    monkeypatch.setattr("temporeal.policies.cli.preflight.robot.open_transport", lambda *_, **__: made)
    return made


def test_a_good_robot_is_ready_and_nothing_was_sent(
    lab: Lab, artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = doctor(capsys, "--artifact", str(artifact), "deploy.namespace=/cf1", "--seconds", "1")
    assert (status, found) == (0, {})
    assert lab.publishers("cmd_vel_legacy") == [] and lab.commands == 0 and lab.robot.held
    topics = [endpoint.topic for endpoint in lab.endpoints]
    assert topics == ["/cf1/odom", "/cf1/gyro", "/cf1/estop"]  # subscriptions, nothing else
    assert 1.0 <= lab.bus.seconds < 1.5


def test_what_is_wrong_is_found(lab: Lab, artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab.robot.settings["noise"] = {"base_pos_w": 0.0, "base_quat_w": 0.005, "base_vel_w": 0.02, "base_ang_vel_b": 0.02}
    lab.robot.body.reset({"base_pos_w": np.array([0.0, 0.0, 11.0]), "base_quat_w": np.array([1.0, 0, 0, 0]),
                          "base_vel_w": np.zeros(3), "base_ang_vel_b": np.zeros(3)})
    rival = MemoryTransport(lab.bus, "rival", "/cf1")
    rival.advertise("cmd_vel_legacy", TWIST, QOS["default"])
    rival.advertise("cmd_hover", TWIST, QOS["default"])
    status, found = doctor(capsys, "--artifact", str(artifact), "deploy.namespace=/cf1", "--robot", "franka")
    assert status == 1
    assert {name: check["status"] for name, check in found.items()} == {
        "robot": "fail", "height limits": "fail", "odom alive": "fail", "geofence": "fail",
        "cmd_vel_legacy alone": "fail", "/cf1/cmd_hover alone": "fail", "namespace": "warn", "start state": "warn"}
    assert "/cf1/rival" in found["cmd_vel_legacy alone"]["found"]


def test_a_topic_that_is_not_there(lab: Lab, artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The robot speaks one interface, the nodes would speak another: without the gyro nothing can be flown."""
    lab.__init__(interface="odometry")  # type: ignore[misc]
    assert main(["doctor", "--artifact", str(artifact), "deploy.namespace=/cf1"]) == 1
    told = capsys.readouterr().out
    assert "fail  gyro there        nobody publishes /cf1/gyro" in told
    assert "not ready: gyro there" in told and "first command" not in told


@pytest.mark.parametrize(("words", "told"), [
    (["--seconds", "3"], "--seconds needs --artifact"), (["deploy.namespace=/cf1"], "overrides needs --artifact"),
    (["--artifact", "/nowhere"], "/nowhere is not an artifact"),
    (["--artifact", "ARTIFACT", "--seconds", "0"], "--seconds is from 0.5 to 600, got 0"),
    (["--artifact", "ARTIFACT", "deploy.domain=300"], "0 to 232"),
    (["--artifact", "ARTIFACT", "deploy.interface=px9"], "no interface 'px9'")])
def test_bad_input_is_one_line_and_status_2(
    words: list[str], told: str, artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *(str(artifact) if word == "ARTIFACT" else word for word in words)]) == 2
    assert told in capsys.readouterr().err


def test_an_artifact_that_was_changed_is_a_finding(
    lab: Lab, artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in artifact.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "policy.onnx").write_bytes((artifact / "policy.onnx").read_bytes() + b"\x00")
    assert main(["doctor", "--artifact", str(tmp_path), "deploy.namespace=/cf1", "--seconds", "0.5"]) == 1
    told = capsys.readouterr().out
    assert "fail  artifact" in told and "was changed after export" in told and "ok    odom rate" in told


# over DDS


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A transport on a domain of its own, beside a simulated robot in its own process."""
    from temporeal_bridge.process.children import end, last_words, start
    from temporeal_bridge.transports.dds import DdsTransport, free_domain

    domain = free_domain()
    log = tmp_path_factory.mktemp("robot") / "log"
    words = ["--robot", "crazyflie", "--namespace", "/cf1", "--transport", "dds", "--domain", str(domain), "--loopback"]
    robot = start("robot_sim", words, log)
    transport = DdsTransport("lab", domain=domain, loopback=True)
    try:
        require_peer(transport, transport.subscribe(
            "/cf1/gyro", "crazyflie_interfaces/msg/LogDataGeneric", QOS["sensor"], lambda _: None), 30.0)
        yield transport
        assert robot.poll() is None, last_words(robot)
    finally:
        transport.close()
        end([robot])


def over_dds(bus: Any, artifact: Path) -> list[str]:
    return ["--artifact", str(artifact), "deploy=dds", "deploy.namespace=/cf1", "deploy.loopback=true",
            f"deploy.domain={bus.domain}", "--seconds", "1"]


TIMING = ("odom rate", "gyro rate", "odom clock", "gyro clock")  # warnings of a busy machine


@pytest.mark.slow
def test_over_dds_a_good_robot_is_ready(bus: Any, artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = doctor(capsys, *over_dds(bus, artifact))
    assert {name for name, check in found.items() if check["status"] == "fail"} <= set(TIMING), found
    assert set(found) <= set(TIMING), found
    assert status == (0 if all(check["status"] == "warn" for check in found.values()) else 1)


@pytest.mark.slow
def test_over_dds_a_second_commander_a_twin_and_a_listener_that_cannot_hear_are_found(
    bus: Any, artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from temporeal_bridge.transports.dds import DdsTransport

    others = [DdsTransport("teleop", "/cf1", domain=bus.domain, loopback=True) for _ in range(2)]
    others[0].advertise("cmd_vel_legacy", TWIST, QOS["default"])
    others[1].subscribe("cmd_vel_legacy", TWIST, QOS["latched"], lambda _: None)
    second = others[1].advertise("odom", "nav_msgs/msg/Odometry", QOS["default"])
    signals = {"base_pos_w": [0, 0, 1], "base_quat_w": [1, 0, 0, 0], "base_vel_w": [0, 0, 0]}
    options = load_interface(ROBOT).states[0].options
    others[1].publish(second, messages.encode(
        second.type, encode_odometry(signals, 0, ("world", "cf1"), options)))
    try:
        status, found = doctor(capsys, *over_dds(bus, artifact))
    finally:
        for transport in others:
            transport.close()
    assert status == 1
    assert found["cmd_vel_legacy alone"]["found"] == "/cf1/teleop publishes on /cf1/cmd_vel_legacy"
    assert found["cmd_vel_legacy heard"]["status"] == "warn" and "durability" in found["cmd_vel_legacy heard"]["found"]
    assert found["node names"]["found"] == "two nodes are called /cf1/teleop"
    assert found["odom there"]["status"] == "fail" and "2 publishers on /cf1/odom" in found["odom there"]["found"]
