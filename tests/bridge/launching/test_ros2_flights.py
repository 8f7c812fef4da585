"""Flights inside a real ROS 2: the colcon workspace, `ros2 launch`, the lifecycle and the command line together.

Runs where a ROS 2 and colcon are sourced; skipped everywhere else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from temporeal.policies.cli.preflight.realtime import may_be_realtime
from temporeal_benchmarks.deployment.artifacts import reach

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("rclpy") is None, reason="needs a sourced ROS 2: rclpy cannot be imported"),
]
COLCON = pytest.mark.skipif(shutil.which("colcon") is None, reason="needs colcon")
WITHIN_S = 60.0  # eight processes start on a machine that may be busy


def test_flights_over_rclpy(artifact: Path, tmp_path: Path) -> None:
    """Two managed nodes each, on interfaces whose message packages are there."""
    from temporeal_bridge.launching.flights import FlightPlan, fly

    report = fly(
        artifact, FlightPlan("crazyflie", 2, seed=5, interface="odometry", transport="rclpy"), tmp_path)
    assert report.satisfied == 2
    assert [row["truth"]["verdict"] for row in report.flights] == ["satisfied", "satisfied"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a shell in which the workspace was built from the repository's files and sourced."""
    home = tmp_path_factory.mktemp("colcon")
    for folder in ("ros2_ws/src", "launch"):
        shutil.copytree(ROOT / folder, home / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    workspace = home / "ros2_ws"
    subprocess.run(["colcon", "build"], cwd=workspace, check=True, capture_output=True, timeout=600)
    listed = subprocess.run(
        ["bash", "-c", "source install/setup.bash && env -0"], cwd=workspace, check=True, capture_output=True).stdout
    environment = dict(row.split("=", 1) for row in listed.decode().split("\0") if "=" in row)
    environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), str(ROOT / "src")])
    return environment


class Bench:
    """A launched robot, and a ROS 2 node that talks to it."""

    def __init__(
        self, environment: dict[str, str], domain: int, artifact: Path, out: Path, *arguments: str,
        kind: str = "quadrotor", namespace: str = "/cf1",
    ) -> None:
        import rclpy
        from geometry_msgs.msg import Twist
        from lifecycle_msgs.srv import ChangeState, GetState
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from std_msgs.msg import Empty, Header, String, UInt64
        from trajectory_msgs.msg import JointTrajectory

        self.out, self.number = out, UInt64
        self.log = (out / "launch.log").open("w")
        self.launch = subprocess.Popen(
            ["ros2", "launch", "temporeal_bringup", f"{kind}.launch.py", f"artifact:={artifact}", f"out:={out}",
             "simulate:=true", *arguments],
            env=environment, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("tester", namespace=namespace, context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.verdicts: list[dict[str, Any]] = []
        self.commands: list[float] = []
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.node.create_subscription(
            String, "monitor/verdict", lambda m: self.verdicts.append(json.loads(m.data)), latched)
        for type, topic in ((Twist, "cmd_vel_legacy"), (JointTrajectory, "fr3_arm_controller/joint_trajectory")):
            self.node.create_subscription(type, topic, lambda _: self.commands.append(time.monotonic()), 10)
        self.modes: list[str] = []
        self.node.create_subscription(Header, "mission", lambda m: self.modes.append(m.frame_id.split()[0]), latched)
        self.start = self.node.create_publisher(UInt64, "mission/start", 10)
        self.stop = self.node.create_publisher(Empty, "mission/stop", 10)
        self.reset, self.empty = self.node.create_publisher(Empty, "mission/reset", 10), Empty
        self.change = self.node.create_client(ChangeState, "guard_node/change_state")
        self.state = self.node.create_client(GetState, "guard_node/get_state")

    def until(self, done: Callable[[], Any], within_s: float = WITHIN_S) -> None:
        end = time.monotonic() + within_s
        while not done():
            assert self.launch.poll() is None, (self.out / "launch.log").read_text()
            assert time.monotonic() < end, f"nothing within {within_s} s\n" + (self.out / "launch.log").read_text()
            self.executor.spin_once(timeout_sec=0.05)

    def listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.02)

    def call(self, client: Any, **request: Any) -> Any:
        """The answer of a service of the guard."""
        message = client.srv_type.Request()
        for name, value in request.items():
            setattr(message.transition, name, value)
        self.until(client.service_is_ready)
        future = client.call_async(message)
        self.until(future.done)
        return future.result()

    def verdict(self, flight: int) -> str:
        """The final verdict of ``flight``, or ""."""
        return next((v["verdict"] for v in self.verdicts if v["flight"] == flight and v["final"]), "")

    @property
    def ready(self) -> bool:
        """Whether the guard has state and controller, and no reason against a start."""
        return bool(self.modes) and self.modes[-1] in ("ready", "finished")

    def fly(self, flight: int) -> str:
        """A whole mission; the monitor's verdict."""
        self.begin(flight)
        self.until(lambda: self.verdict(flight) and self.modes[-1] in ("finished", "holding", "stopped"))
        return self.verdict(flight)

    def begin(self, flight: int) -> None:
        self.until(lambda: self.start.get_subscription_count() > 0 and self.verdicts and self.ready)
        self.start.publish(self.number(data=flight))

    def close(self, status: int = 0) -> str:
        """End the launch as Ctrl-C does, unless it has ended by itself; what it printed."""
        self.launch.send_signal(signal.SIGINT)
        ended = self.launch.wait(timeout=30)
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.shutdown()
        self.log.close()
        text = (self.out / "launch.log").read_text()
        assert ended == status, text
        return text


@pytest.fixture
def launched(
    built: dict[str, str], artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Bench]]:
    from temporeal_bridge.transports.dds import free_domain

    domain, opened = free_domain(), list[Bench]()
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    environment = {**built, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
                   "ROS_LOG_DIR": str(tmp_path / "log")}

    def start(*arguments: str, artifact: Path = artifact, **where: str) -> Bench:
        opened.append(Bench(environment, domain, artifact, tmp_path, *arguments, **where))
        return opened[-1]

    yield start
    for bench in opened:
        if bench.launch.poll() is None:
            bench.launch.send_signal(signal.SIGINT)
            bench.launch.wait(timeout=30)


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_launched_mission_ends_satisfied(launched: Callable[..., Bench], transport: str) -> None:
    bench = launched(f"transport:={transport}")
    assert bench.fly(4) == "satisfied"
    text = bench.close()
    assert len(re.findall("process has finished cleanly", text)) == 5 and "rror" not in text, text
    assert "type hash" not in text.lower()
    summary = json.loads((bench.out / "policy.json").read_text())
    assert [flight["reason"] for flight in summary["flights"]] == [""]
    assert (bench.out / "bag" / "metadata.yaml").exists()


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_launched_arm_reaches_its_posture(
    launched: Callable[..., Bench], arm_artifact: Path, transport: str
) -> None:
    bench = launched(f"transport:={transport}", artifact=arm_artifact, kind="arm", namespace="/arm1")
    assert bench.fly(2) == "satisfied" and len(bench.commands) > 50
    bench.close()
    guard = json.loads((bench.out / "guard.json").read_text())
    assert [(flight["flight"], flight["reason"]) for flight in guard["flights"]] == [(2, "")]


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_launched_hand_closes(launched: Callable[..., Bench], tmp_path: Path, transport: str) -> None:
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import JointState

    artifact = reach(tmp_path / "artifact", horizon_s=2.0)
    bench = launched(f"transport:={transport}", artifact=artifact, kind="hand", namespace="/hand1")
    places: list[np.ndarray] = []
    bench.node.create_subscription(
        JointState, "joint_states", lambda m: places.append(np.array(m.position)), qos_profile_sensor_data)
    bench.until(lambda: places)
    assert bench.fly(2) == "satisfied"
    assert np.median(places[-1] - places[0]) > 0.2  # by 0.4 rad, were it not for its weak servos
    bench.close()
    guard = json.loads((bench.out / "guard.json").read_text())
    assert [(flight["flight"], flight["reason"]) for flight in guard["flights"]] == [(2, "")]


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_robots_of_a_launched_swarm_fly_their_own_missions(
    launched: Callable[..., Bench], long_artifacts: tuple[Path, Path], transport: str
) -> None:
    """The first is stopped by its operator, which the second does not hear."""
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_msgs.msg import Header, String, UInt64

    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    bench = launched(f"transport:={transport}", "count:=2", artifact=long_artifacts[0], kind="swarm", namespace="/cf1")
    second: list[dict[str, Any]] = []
    modes: list[str] = []
    bench.node.create_subscription(
        String, "/cf2/monitor/verdict", lambda m: second.append(json.loads(m.data)), latched)
    bench.node.create_subscription(Header, "/cf2/mission", lambda m: modes.append(m.frame_id.split()[0]), latched)
    start = bench.node.create_publisher(UInt64, "/cf2/mission/start", 10)
    bench.begin(1)
    bench.until(lambda: start.get_subscription_count() and second and modes and modes[-1] == "ready")
    start.publish(UInt64(data=7))
    bench.until(lambda: modes[-1] == "active" and bench.modes[-1] == "active")
    bench.stop.publish(bench.empty())
    bench.until(lambda: bench.modes[-1] == "stopped" and any(v["final"] for v in second))
    assert [(v["flight"], v["verdict"]) for v in second if v["final"]] == [(7, "satisfied")]
    bench.until(lambda: modes[-1] == "finished")
    bench.close()
    guards = {path.parent.name: json.loads(path.read_text())["flights"] for path in bench.out.glob("cf*/guard.json")}
    assert {name: [(f["flight"], f["code"]) for f in flights] for name, flights in guards.items()} == {
        "cf1": [(1, "operator")], "cf2": [(7, "")]}


@COLCON
@pytest.mark.skipif((os.cpu_count() or 1) < 2 or not may_be_realtime(), reason="needs two cores, real-time priority")
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_launched_arm_keeps_its_core_awake(
    launched: Callable[..., Bench], arm_artifact: Path, transport: str
) -> None:
    """As long as the guard lives, and no longer."""
    core = max(os.sched_getaffinity(0))
    bench = launched(f"transport:={transport}", "awake:=true", f"core:={core}", "priority:=realtime",
                     artifact=arm_artifact, kind="arm", namespace="/arm1")
    assert bench.fly(2) == "satisfied" and idlers() == [core]
    bench.close()
    assert idlers() == []


def idlers() -> list[int]:
    """Cores of the Python processes that run only when nobody else does."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.sched_getscheduler(int(folder.name)) == os.SCHED_IDLE and b"-I" in (folder / "cmdline").read_bytes():
                found += os.sched_getaffinity(int(folder.name))
    return found


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_stop_button_of_best_effort_stops_a_launched_mission(launched: Callable[..., Bench], transport: str) -> None:
    """ROS connects no reliable subscription with it; the guard has one that takes what comes, too."""
    from rclpy.qos import qos_profile_sensor_data
    from std_msgs.msg import Bool

    bench = launched(f"transport:={transport}")
    button = bench.node.create_publisher(Bool, "estop", qos_profile_sensor_data)
    bench.until(lambda: button.get_subscription_count() > 0)
    bench.begin(1)
    bench.until(lambda: len(bench.commands) > 50)
    button.publish(Bool(data=True))
    bench.until(lambda: bench.modes[-1] == "stopped")
    bench.close()
    guard = json.loads((bench.out / "guard.json").read_text())
    assert [flight["code"] for flight in guard["flights"]] == ["operator"]


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_a_latched_stop_from_before_lets_no_launched_mission_begin(
    launched: Callable[..., Bench], transport: str
) -> None:
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_msgs.msg import Bool

    bench = launched(f"transport:={transport}")  # its nodes need a second: the button is first
    button = bench.node.create_publisher(Bool, "estop", QoSProfile(
        depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    button.publish(Bool(data=True))
    bench.until(lambda: "stopped" in bench.modes)
    assert not bench.commands or "active" not in bench.modes
    bench.close()


@COLCON
@pytest.mark.parametrize("drive", ["velocity", "effort", "tool"])
def test_a_launched_arm_is_told_speeds_or_efforts(
    launched: Callable[..., Bench], tmp_path: Path, drive: str
) -> None:
    from tests.bridge.launching.drive_artifacts import INTERFACES, write_drive_artifact

    bench = launched(f"interface:={INTERFACES[drive]}", artifact=write_drive_artifact(drive, tmp_path / "artifact"),
                     kind="arm", namespace="/arm1")
    assert bench.fly(2) in ("satisfied", "undecided")  # a monitor on a busy machine may miss a sample
    bench.close()
    guard = json.loads((bench.out / "guard.json").read_text())
    assert [(flight["flight"], flight["reason"]) for flight in guard["flights"]] == [(2, "")]


CAMERAS = """\
definitions: {}
signals: {wrist_rgb: {shape: [48, 64, 3], dtype: uint8, unit: "1"}}
states: []
pictures:
  - {topic: camera/color/image_raw, type: sensor_msgs/msg/Image, codec: image, rate_hz: 20, qos: sensor, max_age_s: 0.3,
     options: {signal: wrist_rgb, encoding: rgb8}}
cameras: {wrist: {latency_s: 0.02}}
"""


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_pictures_of_a_launched_arm_are_images_of_ros(
    launched: Callable[..., Bench], arm_artifact: Path, tmp_path: Path, transport: str
) -> None:
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image

    (tmp_path / "cameras.yaml").write_text(CAMERAS)
    bench = launched(f"transport:={transport}", f"signals:={tmp_path / 'cameras.yaml'}", artifact=arm_artifact,
                     kind="arm", namespace="/arm1")
    seen: list[Image] = []
    bench.node.create_subscription(Image, "camera/color/image_raw", seen.append, qos_profile_sensor_data)
    bench.until(lambda: seen)  # a policy that reads none does not wait for them
    assert bench.fly(2) == "satisfied"
    assert {(image.height, image.width, image.encoding, image.step) for image in seen} == {(48, 64, "rgb8", 192)}
    assert len({bytes(image.data) for image in seen}) > 3  # it moved
    bench.close()


@COLCON
@pytest.mark.parametrize("transport", ["rclpy", "dds"])
def test_the_stop_of_an_interrupted_launch_is_in_the_bag(launched: Callable[..., Bench], transport: str) -> None:
    """The recorder is told to end at the same moment as the guard, which then has yet to land."""
    bench = launched(f"transport:={transport}")
    bench.begin(1)
    bench.until(lambda: len(bench.commands) > 100)
    bench.close()
    with AnyReader([bench.out / "bag"]) as reader:
        told = [(row[0].topic, reader.deserialize(row[2], row[0].msgtype)) for row in reader.messages(
            [c for c in reader.connections if c.topic in ("/cf1/mission", "/cf1/guard/event")])]
    modes = [message.frame_id.split()[0] for topic, message in told if topic == "/cf1/mission"]
    events = [message.data for topic, message in told if topic == "/cf1/guard/event"]
    assert modes[modes.index("active") :] == ["active", "stopping", "stopped"]
    assert any("the guard was told to end" in event for event in events)


@COLCON
def test_a_deactivated_guard_lands_the_robot_and_is_silent(launched: Callable[..., Bench]) -> None:
    """The reason is latched: activation alone permits nothing."""
    from lifecycle_msgs.msg import State, Transition

    bench = launched("record:=false")
    bench.begin(1)
    bench.until(lambda: len(bench.commands) > 50)
    assert bench.call(bench.state).current_state.id == State.PRIMARY_STATE_ACTIVE
    assert bench.call(bench.change, id=Transition.TRANSITION_DEACTIVATE).success
    bench.until(lambda: bench.modes[-1] == "stopped")  # it levels and sinks first, though it is inactive
    bench.listen(0.2)  # what was on its way
    silent_from = time.monotonic()
    bench.listen(1.0)
    assert bench.call(bench.change, id=Transition.TRANSITION_ACTIVATE).success
    bench.start.publish(bench.number(data=2))
    bench.listen(1.0)
    assert not [at for at in bench.commands if at > silent_from]
    bench.reset.publish(bench.empty())
    bench.until(lambda: bench.ready)
    bench.start.publish(bench.number(data=3))
    bench.until(lambda: bench.commands[-1] > silent_from)
    bench.close()
    guard = json.loads((bench.out / "guard.json").read_text())["flights"]
    assert [flight["flight"] for flight in guard] == [1, 3]
    assert (guard[0]["code"], guard[0]["reason"]) == ("inactive", "deactivated")
    controller = json.loads((bench.out / "policy.json").read_text())["flights"]
    assert "mission/reset clears it" in controller[1]["reason"]


@COLCON
def test_a_controller_that_dies_ends_the_launch_with_a_failure(launched: Callable[..., Bench]) -> None:
    """Whoever watches over launch sees it; the guard stops the robot."""
    bench = launched("record:=false")
    bench.begin(1)
    bench.until(lambda: len(bench.commands) > 20)
    found = re.search(r"policy_node-\d+\]: process started with pid \[(\d+)\]", (bench.out / "launch.log").read_text())
    assert found
    os.kill(int(found[1]), signal.SIGKILL)
    bench.launch.wait(timeout=30)
    assert "policy_node ended with status -9" in bench.close(status=1)
    (flight,) = json.loads((bench.out / "guard.json").read_text())["flights"]
    assert flight["reason"] and flight["action"] == "level"


@COLCON
def test_a_guard_that_was_never_activated_starts_nothing(launched: Callable[..., Bench]) -> None:
    from lifecycle_msgs.msg import State, Transition

    bench = launched("record:=false", "managed:=true")
    bench.begin(1)
    bench.listen(1.5)
    assert not bench.commands
    assert bench.call(bench.state).current_state.id == State.PRIMARY_STATE_UNCONFIGURED
    assert bench.call(bench.change, id=Transition.TRANSITION_CONFIGURE).success
    assert bench.call(bench.change, id=Transition.TRANSITION_ACTIVATE).success
    bench.start.publish(bench.number(data=2))
    bench.until(lambda: len(bench.commands) > 10)
    bench.close()
    controller = json.loads((bench.out / "policy.json").read_text())["flights"]
    assert "not active" in controller[0]["reason"] and "ros2 lifecycle set" in controller[0]["reason"]
