"""The whole chain in one process with fake time: simulated robot, controller, monitor. Deterministic."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.monitoring.monitor import Monitor
from temporeal_bridge.controller.loading import load_artifact
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import MISSION_TIME
from temporeal_bridge.monitor.formula import judge_truth
from temporeal_bridge.monitor_node import MonitorNode
from temporeal_bridge.policy_node import Options, PolicyNode
from temporeal_bridge.simulated_robot.sensors import measured
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

pytest.importorskip("mujoco")

from temporeal_bridge.robot_sim import RobotSim, SimOptions
from temporeal_bridge.simulated_robot.drivers import Firmware
from temporeal_bridge.simulated_robot.plants import draw_parameters, draw_start

ROBOT = load_robot("crazyflie")


class Chain:
    """Robot, controller and monitor of one namespace."""

    def __init__(self, lockstep, artifact: Path, out: Path, interface: str = "crazyswarm2", seed: int = 0) -> None:
        self.lockstep, self.out, self.manifest = lockstep, out, load_manifest(artifact)
        buses = [MemoryTransport(lockstep.bus, name, "/cf1")
                 for name in ("robot_sim", "policy_node", "monitor_node", "guard_node")]
        robot_interface = load_interface(ROBOT, interface)
        self.robot = lockstep.add(buses[0], RobotSim(buses[0], ROBOT, robot_interface, SimOptions(seed=seed, out=out)))
        loaded = load_artifact(artifact, ROBOT, robot_interface)
        ends = linked()
        self.policy = lockstep.add(
            buses[1], PolicyNode(
                buses[1], loaded, ROBOT, robot_interface, ends[0], Options(after="silence")))
        self.guard = lockstep.add(buses[3], GuardNode(buses[3], self.manifest, ROBOT, robot_interface, ends[1]))
        self.monitor = lockstep.add(buses[2], MonitorNode(buses[2], self.manifest, ROBOT, robot_interface))
        self.peer = MemoryTransport(lockstep.bus, "peer", "/cf1")
        self.verdicts: list[dict] = []
        kind = "std_msgs/msg/String"
        self.peer.subscribe("monitor/verdict", kind, QOS["default"], lambda r: self.verdicts.append(
            json.loads(messages.decode(kind, r.data).data)))

    def send(self, topic: str, number: int) -> None:
        kind = "std_msgs/msg/UInt64"
        self.peer.publish(self.peer.advertise(topic, kind, QOS["default"]),
                          messages.encode(kind, messages.record(kind)(data=number)))

    def fly(self, seed: int) -> dict:
        self.send("sim/reset", seed)
        self.lockstep.run(0.2)
        self.send("mission/start", seed)
        results = self.monitor.mission.results
        self.lockstep.run(8.0, until=lambda: results and results[-1]["flight"] == seed)
        self.lockstep.run(0.3)
        self.peer.wait(0.0)
        self.robot.save()
        return self.monitor.mission.results[-1]


@pytest.fixture
def chain(lockstep, artifact, tmp_path):
    return Chain(lockstep, artifact, tmp_path)


def test_the_mission_is_flown_and_the_monitor_agrees_with_the_truth(chain):
    result = chain.fly(3)
    assert result["verdict"] == "satisfied" and result["samples"] == 301 and result["lost"] == 0
    interface, start_ns = load_interface(ROBOT), chain.policy.flight.start_ns
    truth = judge_truth(chain.manifest, ROBOT, interface, chain.out / "truth_3.npz", start_ns)
    assert truth.verdict == "satisfied"
    assert truth.lower == pytest.approx(result["lower"], abs=0.05)  # noise of 2 mm and 10 ms of latency lie between
    assert [c["verdict"] for c in result["clauses"]] == ["satisfied"] * 3
    assert chain.verdicts[-1]["final"] and chain.verdicts[-1]["verdict"] == "satisfied"


@pytest.mark.slow
def test_it_is_the_same_flight_every_time(artifact, tmp_path, lockstep):
    """Fake time leaves nothing to chance: two chains give the same bytes."""
    def flight(folder: Path, stepper) -> np.ndarray:
        chain = Chain(stepper, artifact, folder)
        chain.fly(5)
        with np.load(folder / "truth_5.npz") as file:
            return file["base_pos_w"]

    first = flight(tmp_path / "a", lockstep)
    second = flight(tmp_path / "b", type(lockstep)(Bus()))
    assert np.array_equal(first, second)


def test_a_full_disk_leaves_no_torn_trajectory(chain, monkeypatch):
    def full(path, **_: object) -> None:
        path.write_bytes(b"torn")
        raise OSError(28, "No space left on device")

    chain.fly(3)
    monkeypatch.setattr(np, "savez", full)
    before = (chain.out / "truth_3.npz").read_bytes()
    with pytest.raises(OSError, match="truth_3.npz"):
        chain.robot.save()
    assert [path.read_bytes() for path in chain.out.iterdir()] == [before]


def test_flights_differ_by_seed_and_repeat_by_seed(chain):
    starts = {}
    for seed in (1, 2, 1):
        chain.robot.reset(seed)
        starts.setdefault(seed, []).append(chain.robot.body.signals()["base_pos_w"])
    assert np.array_equal(*starts[1]) and not np.array_equal(starts[1][0], starts[2][0])


def test_the_robot_is_held_until_the_first_command(chain):
    """However long that takes, the state is then no older than the latency (the delay line starts anew)."""
    chain.lockstep.run(5.0)
    before = chain.robot.body.signals()["base_pos_w"]
    assert chain.robot.held and not chain.robot.truth.rows
    chain.send("mission/start", 1)
    chain.lockstep.run(1.0)
    seen, true = chain.policy.state.newest()["base_pos_w"], chain.robot.truth.rows[-2][1]["base_pos_w"]
    assert not chain.robot.held and np.linalg.norm(true - before) > 0.05
    assert seen == pytest.approx(true, abs=0.02)


def test_a_violation_is_told_at_once(lockstep, artifact, tmp_path):
    """The robot is dropped below the floor: violated long before the horizon, and the clause is named."""
    chain = Chain(lockstep, artifact, tmp_path)
    chain.lockstep.run(0.1)
    chain.send("mission/start", 1)
    chain.lockstep.run(0.5)
    chain.robot.body.reset({"base_pos_w": (0.0, 0.0, 0.1)})
    chain.lockstep.run(0.3)
    chain.peer.wait(0.0)
    last = chain.verdicts[-1]
    assert last["verdict"] == "violated" and not last["final"] and last["time_s"] < 1.0
    assert [c["verdict"] for c in last["clauses"] if "height" in c["text"]] == ["violated"]


def test_lost_states_leave_the_verdict_open(lockstep, artifact, tmp_path):
    """Samples older than the staleness limit count as lost; what depends on them stays undecided."""
    chain = Chain(lockstep, artifact, tmp_path)
    chain.lockstep.run(0.1)
    chain.send("mission/start", 1)
    chain.lockstep.run(1.0)
    chain.lockstep.pairs.pop(0)  # the robot is gone
    chain.lockstep.run(8.0)
    result = chain.monitor.mission.results[-1]
    assert result["lost"] > 200 and result["verdict"] == "undecided" and result["final"]


def test_the_monitor_node_equals_the_monitor_on_the_same_samples(chain, artifact):
    """Sample and hold on the grid: feeding the monitor by hand with what was measured gives the same bounds."""
    samples = []
    chain.monitor.mission.on_sample = samples.append
    result = chain.fly(4)
    schema = {**ROBOT.signals, "mission_time": MISSION_TIME}
    by_hand = Monitor(parse(chain.manifest.formula, schema, chain.manifest.constants), 0.02)
    for sample in samples:
        reading = by_hand.update(sample)
    assert (reading.lower, reading.upper) == (result["lower"], result["upper"])
    assert [float(s["mission_time"]) for s in samples[:3]] == [0.0, 0.02, 0.04]


WATCHDOG = {"level_after_s": 0.5, "off_after_s": 2.0, "gain": 5.0, "limit": 3.0}


def test_firmware_levels_then_stops_then_stays_locked():
    tilted = np.array([np.cos(0.1), np.sin(0.1), 0, 0])
    firmware = Firmware("ctbr_cmd", WATCHDOG)
    firmware.receive(np.array([0.3, 1.0, 1.0, 1.0]), 10.0)
    assert firmware.output(10.5, tilted).tolist() == [0.3, 1.0, 1.0, 1.0]
    assert firmware.output(10.51, tilted) == pytest.approx([0.3, -5 * np.sin(0.2), 0, 0])
    assert firmware.output(12.01, tilted).tolist() == [0, 0, 0, 0]
    firmware.receive(np.array([0.3, 0, 0, 0]), 12.02)
    assert firmware.output(12.03, tilted).tolist() == [0, 0, 0, 0]


def test_motor_commands_have_no_firmware_that_levels():
    firmware = Firmware("motor_cmd", WATCHDOG)
    firmware.receive(np.full(4, 0.7), 0.0)
    assert firmware.output(0.4, np.array([1.0, 0, 0, 0])).tolist() == [0.7] * 4
    assert firmware.output(0.6, np.array([1.0, 0, 0, 0])).tolist() == [0.0] * 4


def test_the_robot_falls_when_commands_stop(lockstep):
    transport = MemoryTransport(lockstep.bus, "robot_sim", "/cf1")
    robot = lockstep.add(transport, RobotSim(transport, ROBOT, load_interface(ROBOT), SimOptions(seed=0)))
    peer = MemoryTransport(lockstep.bus, "peer", "/cf1")
    topic = robot.interface.command("ctbr_cmd")
    from temporeal_bridge.codecs.crazyflie import encode_legacy_rates

    pub = peer.advertise(topic.topic, topic.type, QOS["command"])
    peer.publish(pub, messages.encode(topic.type, encode_legacy_rates(np.array([0.31, 0, 0, 0]), topic.options)))
    lockstep.run(1.9)
    assert robot.truth.rows[-1][1]["height"] > 0.3
    lockstep.run(2.0)
    assert robot.truth.rows[-1][1]["height"] < 0.1


def test_noise_of_the_measured_state(lockstep):
    """The standard deviations are the stated ones, and there is no bias."""
    transport = MemoryTransport(lockstep.bus, "robot_sim", "/cf1")
    robot = RobotSim(transport, ROBOT, load_interface(ROBOT), SimOptions(seed=0))
    true = robot.body.signals()
    drawn = np.stack([measured(ROBOT, true, robot.settings["noise"], robot.rng)["base_pos_w"] for _ in range(1500)])
    assert drawn.std(0) == pytest.approx(0.002, rel=0.15)
    assert drawn.mean(0) == pytest.approx(true["base_pos_w"], abs=2e-4)
    rates = np.stack([measured(ROBOT, true, robot.settings["noise"], robot.rng)["base_ang_vel_b"] for _ in range(1500)])
    assert rates.std(0) == pytest.approx(0.02, rel=0.15)


def test_starts_and_parameters_stay_in_their_ranges():
    rng = np.random.default_rng(0)
    start = {"position_m": 0.2, "tilt_rad": 0.17, "speed_m_s": 0.2, "rate_rad_s": 0.2}
    for _ in range(50):
        state, params = draw_start(ROBOT, rng, start), draw_parameters(ROBOT, rng, 0.5)
        assert np.abs(state["base_pos_w"] - (0, 0, 1)).max() <= 0.2
        assert 2 * np.arccos(min(1.0, state["base_quat_w"][0])) <= 0.17 + 1e-9
        for name, p in ROBOT.parameters.items():
            assert (np.atleast_1d(params[name]) >= np.array(p.low) - 1e-12).all()
            assert (np.atleast_1d(params[name]) <= np.array(p.high) + 1e-12).all()
    nominal = draw_parameters(ROBOT, rng, 0.0)
    assert nominal["mass"] == ROBOT.parameters["mass"].nominal[0]
    with pytest.raises(ValueError, match="from 0 to 1"):
        draw_parameters(ROBOT, rng, 1.5)
