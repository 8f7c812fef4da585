"""Arms and hands deploy: what their tasks add is simulated, chunked policies get a worker, Ctrl-C stops the robot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml

from temporeal.policies.cli.deployment import bus_settings
from temporeal.policies.cli.deployment import nodes as deployment_nodes
from temporeal.policies.cli.main import main
from temporeal.policies.cli.preflight.realtime import may_be_realtime
from temporeal.policies.cli.verbs import deploy
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import section
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.checks import check_reads
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.launching.flights import FlightPlan, fly
from temporeal_bridge.link.sockets import SocketGuard, default_path
from temporeal_bridge.monitor.held_samples import HeldSamples
from temporeal_bridge.process.scheduling import WAKING
from temporeal_bridge.recording import bags
from temporeal_bridge.replay.replay import needed, replay
from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import MemoryTransport
from temporeal_bridge.transports.transport import QOS

ROOT = Path(__file__).parents[3]
SETTINGS = {"transport": "dds", "domain": None, "namespace": "/arm1", "interface": None, "signals": None,
            "worker": None, "priority": "auto", "core": None, "awake": False, "loopback": True, "autostart": True,
            "record": True}


# ---------------------------------------------------------------- what a task adds


def world(task, **settings):
    pytest.importorskip("torch")
    from temporeal.sim.task import load_task
    from temporeal.sim.task_parts.numpy_world import of_task

    return of_task(task, load_task(task, **settings).robot, settings=settings)


@pytest.mark.parametrize(("task", "settings", "steady"), [
    ("reach", {}, True), ("cube_rotate", {}, False), ("cube_rotate", {"robot": "allegro_hand"}, False),
    ("lift", {}, True), ("cube_reorient", {}, False)])
def test_the_generated_file_carries_what_policy_and_formula_read(task, settings, steady, tmp_path):
    made = world(task, **settings)
    from temporeal.sim.stl.language.queries import signals_in

    reads = {*made.task.observe.signals, *signals_in(made.task.formula)} - {"mission_time"}
    path = tmp_path / "signals.yaml"
    path.write_text(yaml.safe_dump(task_topics.content(made, reads)))
    robot, interface = made.scene.robot, "with_fingers" if task == "lift" else None
    check_reads(load_interface(robot, interface, path), [made.task.schema[name] for name in reads])
    rates = [row["rate_hz"] for row in yaml.safe_load(path.read_text())["states"]]
    assert (0.0 in rates) == steady


def test_goals_are_drawn_for_each_flight_and_stay(lockstep):
    """By the task's own distribution, keyed by the seed; what comes over the bus is what is true and kept."""
    made, robot = world("reach"), load_robot("franka")
    interface = load_interface(robot, extra=task_topics.content(made, ("goal_pos_w", "goal_quat_w")))
    bus = MemoryTransport(lockstep.bus, "robot_sim", "/arm1")
    sim = lockstep.add(bus, RobotSim(bus, robot, interface, SimOptions(world=made)))
    peer = MemoryTransport(lockstep.bus, "peer", "/arm1")
    state = StateInput(peer, robot, interface, qos="deep")  # as the monitor: later than the goal was said
    goals = []
    for seed in (0, 1, 0):
        sim.reset(seed)
        lockstep.run(0.1)
        peer.wait(0.0)
        assert state.complete
        goals.append({name: state.newest()[name] for name in ("goal_pos_w", "goal_quat_w")})
        assert all(np.array_equal(goals[-1][name], sim.true()[name]) for name in goals[-1])
    assert np.array_equal(goals[0]["goal_pos_w"], goals[2]["goal_pos_w"])
    assert not np.array_equal(goals[0]["goal_pos_w"], goals[1]["goal_pos_w"])
    x, _, z = goals[0]["goal_pos_w"]
    assert x > 0.25 and 0.08 <= z < 0.8 and np.linalg.norm(goals[0]["goal_quat_w"]) == pytest.approx(1.0, abs=1e-5)


def test_signals_that_a_task_computes_run_with_the_flight(lockstep):
    """The cube's turning counts from the first command on, once in a control step."""
    made = world("cube_rotate")
    robot = made.scene.robot
    interface = load_interface(robot, extra=task_topics.content(made, ("cube_pos_w", "cube_quat_w", "turned")))
    calls, added = [], made.added
    made.added = lambda signals: calls.append(1) or added(signals)
    bus = MemoryTransport(lockstep.bus, "robot_sim", "/hand1")
    lockstep.add(bus, RobotSim(bus, robot, interface, SimOptions(world=made)))
    peer = MemoryTransport(lockstep.bus, "peer", "/hand1")
    said = []
    peer.subscribe("sim/turned", "std_msgs/msg/Float64MultiArray", QOS["deep"],
                   lambda r: said.append(messages.decode(r.type, r.data).data[0]))
    lockstep.run(1.0)
    assert len(calls) == 1  # held: only the start
    peer.wait(0.0)
    assert len(said) == pytest.approx(20, abs=1)
    topic = interface.command("joint_pos_cmd")
    command = peer.advertise(topic.topic, topic.type, QOS["command"])
    home = COMMAND_CODECS[topic.codec].encode(np.array(robot.home["joint_pos"]), topic.options)
    peer.publish(command, messages.encode(topic.type, home))
    lockstep.run(1.0)
    assert len(calls) == pytest.approx(21, abs=1)


def test_a_topic_that_says_something_once_is_known_for_ever():
    held, steady = HeldSamples(), HeldSamples(steady=True)
    for each in (held, steady):
        each.add(1_000, lambda: {"goal": np.ones(3)})
    assert held.at(10**9, 1e8) is None and steady.at(10**12, 1e8) is not None
    assert not held.passed(2_000) and steady.passed(2_000)
    assert steady.at(999, 1e8) is None  # not yet said


# ---------------------------------------------------------------- what deploy tells the nodes


def test_the_guard_ends_first_and_chunks_bring_a_worker(arm_artifact, chunked_arm_artifact, tmp_path):
    nodes = deployment_nodes.node_arguments(SETTINGS, "franka", arm_artifact, tmp_path, tmp_path / "bag", None)
    assert list(nodes) == ["guard_node", "policy_node", "monitor_node", "recorder"]
    folder = deployment_nodes.worker_folder(chunked_arm_artifact, None)
    try:
        nodes = deployment_nodes.node_arguments(
            SETTINGS, "franka", chunked_arm_artifact, tmp_path, tmp_path / "bag", folder
        )
        assert next(iter(nodes)) == "guard_node"
        assert nodes["worker_node"][nodes["worker_node"].index("--folder") + 1] == str(folder)
        assert nodes["policy_node"][nodes["policy_node"].index("--worker") + 1] == str(folder)
    finally:
        folder.rmdir()
    there = Path("/dev/shm/theirs")
    settings = {**SETTINGS, "worker": str(there)}
    nodes = deployment_nodes.node_arguments(settings, "franka", chunked_arm_artifact, tmp_path, tmp_path / "bag", there)
    assert "worker_node" not in nodes and "/dev/shm/theirs" in nodes["policy_node"]


def test_a_worker_for_a_policy_without_chunks_is_refused(arm_artifact):
    assert deployment_nodes.worker_folder(arm_artifact, None) is None
    settings = section("deploy", ["deploy.worker=/dev/shm/theirs", "deploy=dds"])
    with pytest.raises(BadInput, match="worker /dev/shm/theirs: the policy .* gives one command at a time"):
        bus_settings.check_bus(settings, "franka", arm_artifact)


def test_what_no_topic_brings_is_refused_before_anything_starts(arm_artifact, tmp_path, capsys):
    assert main(["deploy", str(arm_artifact), f"deploy.signals={tmp_path}/none.yaml"]) == 2
    assert "none.yaml cannot be read" in capsys.readouterr().err


def test_a_robot_that_a_guard_has_already_is_left_alone(arm_artifact, tmp_path, monkeypatch, capsys):
    """Nothing of ours is loaded beside a robot that flies, to be refused when it has."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(deploy, "run_nodes", lambda *_: pytest.fail("nodes were started"))
    guard = SocketGuard(default_path(7, "/arm1"))
    words = ["deploy", str(arm_artifact), "deploy.domain=7", "deploy.namespace=/arm1", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "another guard has" in capsys.readouterr().err and not (tmp_path / "out").exists()
    guard.close()
    monkeypatch.setattr(deploy, "run_nodes", lambda *_: None)
    assert main(words) == 0


# ---------------------------------------------------------------- real processes


@pytest.mark.slow
def test_an_arm_is_deployed_and_satisfied(arm_artifact, tmp_path):
    pytest.importorskip("mujoco")
    report = fly(arm_artifact, FlightPlan("franka", 2, seed=3), tmp_path)
    assert [(row["robot"], row["verdict"], row["reason"]) for row in report.flights] == [
        ("/arm1", "satisfied", "")] * 2
    for row in report.flights:
        assert row["truth"]["verdict"] == "satisfied"


@pytest.mark.slow
def test_a_chunked_policy_is_deployed_with_its_worker(chunked_arm_artifact, tmp_path):
    pytest.importorskip("mujoco")
    before = mailboxes()
    report = fly(chunked_arm_artifact, FlightPlan("franka", seed=3), tmp_path)
    assert report.satisfied == 1 and report.flights[0]["reason"] == ""
    assert json.loads((tmp_path / "arm1" / "worker.json").read_text())["chunks"] > 3
    assert mailboxes() <= before
    namespace, _ = bags.robot_of(tmp_path / "bag")
    robot = load_robot("franka")
    recording = bags.read(tmp_path / "bag", needed(load_interface(robot), namespace))
    (again,) = replay(recording, Artifact.load(chunked_arm_artifact, robot), robot, load_interface(robot),
                      namespace).flights
    assert again.chunks is not None and again.chunks.count > 60 and again.unmade == 0
    assert again.equal, again


def mailboxes() -> set[Path]:
    """Folders of mailboxes in memory; the one that is named by the user holds the tapes of controllers."""
    return set(Path("/dev/shm").glob("temporeal-*")) - {Path(f"/dev/shm/temporeal-{os.getuid()}")}


def keepers() -> set[int]:
    """Processes that keep a core from sleeping (Linux)."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found |= {int(path.parent.name)} if WAKING.encode() in path.read_bytes() else set()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("awake", [False, pytest.param(True, marks=pytest.mark.skipif(
    not (hasattr(os, "SCHED_IDLE") and may_be_realtime()), reason="no SCHED_IDLE or no real-time priority here"))])
def test_ctrl_c_in_flight_stops_the_robot_first(awake, arm_artifact, tmp_path):
    """SIGINT to `temporeal deploy`: on the wire a stop action to rest, commanded by the guard, before all end. Who
    keeps a core awake ends with them."""
    pytest.importorskip("mujoco")
    from temporeal_bridge.transports.dds import DdsTransport, free_domain

    domain = free_domain()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    bus = DdsTransport("watcher", "/arm1", domain=domain, loopback=True)
    robot = load_robot("franka")
    topic = load_interface(robot).command("joint_pos_cmd")
    modes, events, sent = [], [], []
    bus.subscribe("mission", "std_msgs/msg/Header", QOS["latched"],
                  lambda r: modes.append(messages.decode(r.type, r.data).frame_id))
    bus.subscribe("guard/event", "std_msgs/msg/String", QOS["default"],
                  lambda r: events.append(json.loads(messages.decode(r.type, r.data).data)))
    bus.subscribe(topic.topic, topic.type, QOS["deep"], lambda r: sent.append((
        len(modes), messages.decode(r.type, r.data))))
    common, before = [sys.executable, "-m"], keepers()
    own = [f"deploy.core={max(os.sched_getaffinity(0))}", "deploy.awake=true"] if awake else []
    simulated = subprocess.Popen(
        [*common, "temporeal_bridge.robot_sim", "--artifact", str(arm_artifact), "--robot", "franka", "--namespace",
         "/arm1", "--transport", "dds", "--domain", str(domain), "--loopback", "--priority", "auto"],
        env=environment, cwd=ROOT)
    deployed = subprocess.Popen(
        [
            *common,
            "temporeal.policies.cli.main",
            "deploy",
            str(arm_artifact),
            f"deploy.domain={domain}",
            "deploy.loopback=true",
            "deploy.namespace=/arm1",
            "deploy.autostart=true",
            *own,
            "--out",
            str(tmp_path),
        ],
        env=environment,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # tests in the background may have it ignored
    try:
        until = time.monotonic() + 60
        while len(sent) < 15 and time.monotonic() < until:
            assert deployed.poll() is None and simulated.poll() is None
            bus.wait(0.05)
        assert modes[-1] == "active 0", events
        assert len(keepers() - before) == awake
        deployed.send_signal(signal.SIGINT)
        until = time.monotonic() + 30
        while deployed.poll() is None and time.monotonic() < until:
            bus.wait(0.05)
        bus.wait(0.2)
    finally:
        for process in (deployed, simulated):
            process.terminate()
            process.wait(timeout=30)
        bus.close()
    assert keepers() <= before
    assert modes[modes.index("active 0") + 1 :] == ["stopping 0", "holding 0"]
    assert (events[-1]["code"], events[-1]["reason"]) == ("operator", "the guard was told to end")
    stop = [message for heard, message in sent if heard > modes.index("active 0") + 1]
    assert stop, "nothing was sent to the robot after the stop began"
    assert np.abs(stop[-1].points[-1].velocities).max() == 0.0
    ends = [np.asarray(message.points[-1].positions) for message in stop]
    assert np.abs(ends[-1] - ends[0]).max() < 0.1  # a stop, not the way to the goal
    bag = list((tmp_path / "bag").glob("*.mcap"))
    assert bag and (tmp_path / "bag" / "metadata.yaml").exists()
