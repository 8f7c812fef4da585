"""Excitations through the real nodes, in one process with fake time: the guard never intervenes, the formula is kept,
and the recording has what identification reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.spec import load_robot
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode, GuardOptions
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions

pytestmark = pytest.mark.slow
BRIEF_ARM = ("seconds=16", "sweeps=1", "low_hz=0.4")
BRIEF = ("seconds=16", "low_hz=1", "fast_low_hz=1")  # one after the other, each part has a second


def flown(lockstep: Any, artifact: Path, bag: Path) -> tuple[dict[str, Any], dict[str, Any], list[np.ndarray]]:
    """What monitor and guard say of a flight of ``artifact``, which is recorded to ``bag``, and where the robot is when
    the mission is decided and 8 s later: what ends it is what ends it on a real robot, the guard's stop."""
    manifest = load_manifest(artifact)
    robot = load_robot(manifest.robot)
    interface, ends = load_interface(robot), linked()
    names = ("robot_sim", "policy_node", "monitor_node", "guard_node", "recorder", "peer")
    bus = {name: MemoryTransport(lockstep.bus, name, "/r1") for name in names}
    options = SimOptions(seed=1, command=manifest.commands[0].name)
    nodes = {"robot_sim": RobotSim(bus["robot_sim"], robot, interface, options),
             "policy_node": PolicyNode(bus["policy_node"], load_artifact(artifact, robot, interface), robot, interface,
                                       ends[0], Options()),
             "guard_node": GuardNode(bus["guard_node"], manifest, robot, interface, ends[1], GuardOptions(artifact)),
             "monitor_node": MonitorNode(bus["monitor_node"], manifest, robot, interface),
             "recorder": Recorder(bus["recorder"], Bag(bag), robot_topics(interface, ["/r1"]))}
    for name, node in nodes.items():
        lockstep.add(bus[name], node)
    lockstep.run(0.2)
    kind, results = "std_msgs/msg/UInt64", nodes["monitor_node"].mission.results
    bus["peer"].publish(bus["peer"].advertise("mission/start", kind, QOS["default"]),
                        messages.encode(kind, messages.record(kind)(data=1)))
    lockstep.run(manifest.horizon_s + 2.0, until=lambda: bool(results))
    lockstep.run(0.05)  # of AFTER_HORIZON_S: the policy still commands
    body = nodes["robot_sim"].body
    places = [np.array(body.signals()["base_pos_w"])] if robot.kind == "quadrotor" else []
    lockstep.run(8.0)
    places += [np.array(body.signals()["base_pos_w"])] if places else []
    nodes["recorder"].close()
    return results[-1], nodes["guard_node"].summary()["flights"][-1], places


@pytest.mark.parametrize(("robot", "words", "signals", "action", "moves"), [
    ("crazyflie", BRIEF, ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b"), "motor_cmd", 0.01),
    ("crazyflie", (*BRIEF, "command=ctbr_cmd"), ("base_pos_w", "base_ang_vel_b"), "ctbr_cmd", 0.01),
    ("franka", BRIEF_ARM, ("joint_pos", "joint_vel", "joint_torque"), "joint_pos_cmd", 0.005)])
def test_the_guard_never_intervenes_and_the_recording_is_a_log(
    robot: str, words: tuple[str, ...], signals: tuple[str, ...], action: str, moves: float, lockstep: Any,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    from temporeal.policies.cli.main import main
    from temporeal.policies.data.episodes.dataset import Dataset

    artifact, bag, log = tmp_path / "excite", tmp_path / "bag", tmp_path / "log"
    assert main(["excite", f"robot={robot}", f"out={artifact}", *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    verdict, guard, places = flown(lockstep, artifact, bag)
    assert verdict["verdict"] == "satisfied" and verdict["lost"] == 0
    assert (guard["limited"], guard["dropped"], guard["code"], guard["reason"]) == (0, 0, "", "")
    if places:  # by motor_cmd it has landed before the guard is silent, by ctbr_cmd the guard lands it
        before, after = (float(place[2]) for place in places)
        assert after < 0.06 and (before < 0.12 if action == "motor_cmd" else 0.8 < before < 1.2)
    if action == "motor_cmd":
        assert main(["excite", f"robot={robot}", "--information", "--log", str(bag), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["expected"]["parameters"]["thrust_to_mass"]["told"]
    assert main(["data", "import", str(bag), "--out", str(log)]) == 0
    episode, interface = Dataset.open(log).episode(0), Dataset.open(log).interface
    assert set(signals) <= set(interface.signals) and interface.action.name == action
    assert episode.samples / interface.rate_hz > said["seconds"] - 1.0
    share = np.asarray(episode.action, float).std(0) / np.subtract(interface.action.high, interface.action.low)
    assert (share > moves).all()  # of the command's range; a joint's is 3 to 6 rad, of which 0.4 are used
