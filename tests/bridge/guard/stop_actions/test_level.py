"""The stop `level` of a simulated quadrotor (MuJoCo, its firmware) whose state lies: it comes down upright."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.bridge.replay import test_replay
from tests.bridge.replay.test_replay import EMPTY, INTERFACE, NUMBER, Flown
from tests.examples import thinned

from temporeal.robots.frames import rotate
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.fallback_actions import OFF_S
from temporeal_bridge.guard.stop_actions import level
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link import datagrams
from temporeal_bridge.simulated_robot.drivers import Firmware

pytest.importorskip("mujoco")

GROUND_M = 0.0145  # where a Crazyflie stands
TILT_DEG = 20.0  # that it has by itself while it flies and is stopped, with much to spare
FAULTS: list[dict[str, Any]] = [
    {"name": "frozen"},
    *({"name": "delayed", "by_s": by} for by in (0.2, 0.3, 0.38, 0.6)),  # 0.1 s and it is stale, then it is fresh again
    *({"name": "jump", "signal": "base_pos_w", "by": by, "scale": 1.0} for by in (-1.2, -0.3)),
    *({"name": "jump", "signal": "base_vel_w", "by": by, "scale": 1.0} for by in (-3.0, 3.0)),
    *({"name": "jump", "signal": "base_ang_vel_b", "by": by, "scale": k} for by, k in ((0.0, 57.3), (3.0, 1.0))),
    {"name": "frozen", "topic": "gyro"}]


def tilt(attitude: np.ndarray) -> float:
    """Between the robot's axis and the vertical [deg]."""
    up = rotate(np.asarray(attitude, dtype=float), np.array([0.0, 0.0, 1.0]))
    return float(np.degrees(np.arccos(np.clip(up[2], -1.0, 1.0))))


FEW = (0, 3, 8, 9)  # a state that is frozen, one that is late, a velocity and rates that lie


@pytest.mark.parametrize("fault, at_s", thinned(
    [(fault, at_s) for fault in FAULTS for at_s in (0.4, 1.0)],
    keep=[(FAULTS[i], (0.4, 1.0)[i % 2]) for i in FEW]), ids=str)
def test_it_comes_down_upright(fault, at_s, artifact, lockstep_of, tmp_path):
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(at_s)
    assert flown.guard.mode == "active" and flown.robot.true()["height"] > 0.5
    flown.robot.set_fault(json.dumps(fault))
    tilts, speed = list[float](), 0.0
    while flown.robot.true()["height"] > 0.03 and len(tilts) < 120:
        flown.lockstep.run(0.05)
        true = flown.robot.true()
        tilts.append(tilt(true["base_quat_w"]))
        speed = true["base_vel_w"][2] if true["height"] > 0.05 else speed
    assert len(tilts) < 120 and max(tilts) < TILT_DEG and not flown.robot.crashed
    assert flown.guard.flight.action == "level" and speed > -1.6  # m/s; cut in the air at 0.8 m it is 3.9
    flown.close()


@pytest.mark.slow
@pytest.mark.parametrize("at_s", thinned([0.5, 3.2], keep=[0.5]))
def test_a_guard_that_is_deactivated_in_flight_lands_what_it_flew(at_s, artifact, lockstep_of, tmp_path):
    """It fell silent at once, and the firmware kept the last body rates for half a second: 5.1 m/s on the ground."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(at_s)
    assert flown.guard.mode == "active" and flown.robot.true()["height"] > 0.3
    flown.bus["guard_node"].active = False
    tilts, speed = list[float](), 0.0
    while flown.guard.mode != "stopped" and len(tilts) < 160:
        flown.lockstep.run(0.05)
        true = flown.robot.true()
        tilts.append(tilt(true["base_quat_w"]))
        speed = np.linalg.norm(true["base_vel_w"]) if true["height"] > 0.05 else speed
    assert (flown.guard.flight.code, flown.guard.flight.action) == ("inactive", "level")
    assert len(tilts) < 160 and max(tilts) < TILT_DEG and speed < 1.0 and flown.robot.true()["height"] < 0.1
    last = flown.guard.stream.sent_at
    flown.lockstep.run(1.0)
    assert flown.guard.stream.sent_at == last  # down, and silent
    flown.close()


BIASED, LIES = ({"name": "jump", "signal": "base_vel_w", "index": 2, "by": by, "scale": 1.0} for by in (-0.2, -3.0))
CLIMBS = {**LIES, "by": 3.0}


LIGHT, HEAVY, STRONG, WEAK = {"mass": 0.027}, {"mass": 0.034}, {"motor_gain": 1.15}, {"motor_gain": 0.85}


@pytest.mark.parametrize("changes, fault", thinned([
    (LIGHT, None), (LIGHT, BIASED), (LIGHT, LIES), (HEAVY, None), (HEAVY, CLIMBS), (STRONG, None), (STRONG, BIASED),
    (WEAK, BIASED), (WEAK, CLIMBS), ({**LIGHT, **STRONG}, None), ({**HEAVY, **WEAK}, LIES)],
    keep=[({**HEAVY, **WEAK}, LIES)]), ids=str)  # light ones take off in test_level_takeoff.py
def test_a_robot_of_any_published_mass_and_strength_is_brought_down(
        changes, fault, artifact, lockstep_of, tmp_path, monkeypatch):
    """Its motors carry it until it is down, whatever its velocity says: no cut by time, no climb, no fall."""
    from temporeal_bridge.transports.memory_bus import Bus

    simulate(monkeypatch, changes)
    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(1.3)
    begun = flown.robot.true()
    flown.robot.set_fault("" if fault is None else json.dumps(fault))
    flown.send("mission/stop", EMPTY)
    speed, highest = 0.0, begun["height"]
    while flown.robot.true()["height"] > 0.05 and flown.lockstep.bus.seconds < 60.0:
        flown.lockstep.run(0.05)
        true = flown.robot.true()
        assert flown.guard.mode == "stopping" or true["height"] < 0.2  # m: or its motors are cut in the air
        speed, highest = true["base_vel_w"][2] if true["height"] > 0.05 else speed, max(highest, true["height"])
    assert true["height"] <= 0.05 and speed > (-1.0 if fault is CLIMBS else -0.5)
    assert highest < begun["height"] + 0.4
    flown.close()


@pytest.mark.parametrize("at_s, stop_s", thinned(  # stop_s: the operator's, after the fault
    [(at_s, stop_s) for at_s in (1.0, 3.2) for stop_s in (0.02, 0.3, None)],
    keep=[(1.0, 0.3)]))
def test_an_attitude_that_stands_alone_turns_nobody_over(at_s, stop_s, artifact, lockstep_of, tmp_path, monkeypatch):
    """The place lives on: MAVROS joins it with the newest attitude, whose stream may have stopped."""
    from temporeal_bridge.transports.memory_bus import Bus

    stands, kept, codec = False, dict[str, np.ndarray](), STATE_CODECS["odometry"]

    def encode(signals: Any, *rest: Any) -> Any:
        return codec.encode({**signals, **(kept if stands else {})}, *rest)

    monkeypatch.setitem(STATE_CODECS, "odometry", replace(codec, encode=encode))
    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(at_s)
    assert flown.guard.mode == "active" and flown.robot.true()["height"] > 0.8
    kept["base_quat_w"], stands = flown.robot.true()["base_quat_w"], True
    flown.lockstep.run(stop_s or 0.01)
    if stop_s:
        flown.send("mission/stop", EMPTY)
    tilts, speed = list[float](), 0.0
    while flown.robot.true()["height"] > 0.03 and len(tilts) < 150:
        flown.lockstep.run(0.02)
        true = flown.robot.true()
        tilts.append(tilt(true["base_quat_w"]))
        speed = float(np.linalg.norm(true["base_vel_w"])) if true["height"] > 0.05 else speed
    assert len(tilts) < 150 and max(tilts) < TILT_DEG and speed < 2.5  # m/s; believed, it came to 150 degrees, 6.3 m/s
    flown.close()


def watched(*steps: tuple[float, float, float]) -> StateMonitor:
    """A monitor that has seen a state every 10 ms of each part: for so long [s], with the wall clock of this computer
    and the robot's so much ahead by its end [s]. Messages take 5 ms."""
    robot = load_robot("crazyflie")
    interface = load_interface(robot, "odometry")
    monitor = StateMonitor(profile_on(robot, interface, robot.command("ctbr_cmd"), 0.02), [100.0])
    rng, now = np.random.default_rng(0), 10.0
    for seconds, wall, theirs in steps:
        for _ in range(round(seconds / 0.01)):
            now += 0.01
            signals = {"base_pos_w": rng.normal(size=3), "base_quat_w": np.array([1.0, 0.0, 0.0, 1e-3 * rng.random()])}
            monitor.take(0, round(1e9 * (now - 0.005 + theirs)), signals, now, round(1e9 * (now + wall)))
    return monitor


@pytest.mark.parametrize(("wall", "theirs", "sees"), [
    (0.0, 0.0, True), (0.3, 0.0, True), (-0.3, 0.0, True),  # the clock of this computer is set
    (0.3, 0.3, True), (-0.3, -0.3, True),  # one clock for both: a robot that is simulated
    (0.0, 0.3, True),  # stamps from the future of a robot whose clock is set
    (0.0, -0.05, True), (0.0, -0.3, False)])  # a message that comes so late, or a robot's clock that is set back
def test_a_state_is_late_by_its_own_clock_and_not_because_one_was_set(wall, theirs, sees):
    monitor = watched((1.0, 0.0, 0.0), (0.5, wall, theirs))
    assert monitor.sees_attitude(11.5) == sees


@pytest.mark.slow
def test_clocks_that_drift_apart_make_no_state_late():
    parts = [(1.0, 0.0, -5e-4 * second) for second in range(600)]
    assert watched(*parts).sees_attitude(610.0)


WATCHDOG = {"level_after_s": 0.5, "off_after_s": 2.0, "gain": 5.0, "limit": 3.0}
THRUST, NONE, LEVEL = np.array([0.3, 0.0, 0.0, 0.0]), np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(("flies", "zeros_s", "locked"), [
    (False, 0.0, False), (True, 0.0, True), (True, 1.5, True), (True, OFF_S, False)])
def test_a_firmware_that_hears_no_more_locks_who_flew_just_now(flies, zeros_s, locked):
    """Not who has stood ready since its unlocking zero."""
    firmware, now = Firmware("ctbr_cmd", WATCHDOG), 10.0
    firmware.hold(THRUST, 9.99)  # of a simulation, before the first setpoint comes
    firmware.receive(NONE, now)
    if flies:
        firmware.receive(THRUST, now)
    for k in range(round(zeros_s / 0.02) + 1):
        now = 10.02 + 0.02 * k
        firmware.receive(NONE, now)
    assert firmware.output(now + 2.1, LEVEL).tolist() == [0.0] * 4
    firmware.receive(THRUST, now + 60.0)
    assert (firmware.output(now + 60.0, LEVEL)[0] == 0.0) == firmware.locked == locked


def simulate(monkeypatch: pytest.MonkeyPatch, changes: Any, ground_m: float | None = None) -> None:
    """Robots of these parameters from now on, which begin on the ground at ``ground_m`` [m], or in the air."""
    from temporeal_bridge.simulated_robot import plants

    drawn = plants.draw_parameters

    def draw(*args: Any) -> dict[str, np.ndarray]:
        return {name: np.full_like(value, changes.get(name, value)) for name, value in drawn(*args).items()}

    monkeypatch.setattr(plants, "draw_parameters", draw)
    if ground_m is not None:
        start = {**INTERFACE.simulation["start"], "ground_m": ground_m}
        monkeypatch.setattr(test_replay, "INTERFACE", replace(
            INTERFACE, simulation={**INTERFACE.simulation, "start": start}))


@pytest.fixture
def standing(grounded, lockstep_of, tmp_path, monkeypatch):
    """A robot that stands on the ground, on a floor that reads so much too high [m]; it has just lifted off."""
    from temporeal_bridge.transports.memory_bus import Bus

    made = list[Flown]()

    def make(floor_m: float) -> Flown:
        simulate(monkeypatch, {}, GROUND_M)
        codec = STATE_CODECS["odometry"]

        def encode(signals: Any, *rest: Any) -> Any:
            place = np.asarray(signals["base_pos_w"], dtype=float) + [0.0, 0.0, floor_m]
            return codec.encode({**signals, "base_pos_w": place, "height": place[2]}, *rest)

        monkeypatch.setitem(STATE_CODECS, "odometry", replace(codec, encode=encode))
        flown = Flown(lockstep_of(Bus()), grounded, tmp_path / "bag")
        made.append(flown)
        flown.send("sim/reset", NUMBER, data=3)
        flown.lockstep.run(0.3)
        flown.send("mission/start", NUMBER, data=3)
        flown.lockstep.run(2.0)
        assert flown.robot.true()["height"] > 0.5
        return flown

    yield make
    for flown in made:
        flown.close()


def running(flown: Flown, limit_s: float) -> float:
    """For how long [s] the motors of a robot that comes down still run once it stands, ``limit_s`` at most."""
    flown.lockstep.run(10.0, until=lambda: flown.robot.true()["height"] < 0.03)
    begun = flown.lockstep.bus.seconds
    flown.lockstep.run(limit_s, until=lambda: not flown.robot.plant.setpoint.any())
    return flown.lockstep.bus.seconds - begun


@pytest.mark.slow
def test_a_robot_that_landed_is_told_zeros_until_it_counts_as_standing(standing):
    """It heard one, and its firmware took the silence after it for a fall: it was locked when it was to fly again."""
    flown = standing(0.0)
    flown.send("mission/stop", EMPTY)
    assert running(flown, 5.0) < 0.5
    flown.lockstep.run(2.4)
    assert flown.guard.mode == "stopping" and flown.guard.stream.sent_at > flown.lockstep.bus.seconds - 0.05
    flown.lockstep.run(4.0)
    assert flown.guard.mode == "stopped" and flown.guard.stream.sent_at < flown.lockstep.bus.seconds - 3.0
    assert not flown.robot.plant.firmware.locked
    flown.send("mission/reset", EMPTY)
    flown.lockstep.run(0.5)
    flown.send("mission/start", NUMBER, data=4)
    flown.lockstep.run(1.5)
    assert flown.guard.mode == "active" and flown.robot.true()["height"] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("fault", thinned([None, *(
    {"name": "jump", "signal": signal, "by": by, "scale": 1.0}
    for signal, by in (("base_vel_w", 3.0), ("base_pos_w", 0.3), ("base_pos_w", -0.3)))],
    keep=[None]), ids=str)
def test_who_stands_is_let_down_though_no_height_says_that_it_has_landed(fault, standing):
    """On a floor that reads 6 cm high, or with a place that leapt: 15 to 20 s."""
    flown = standing(0.06)
    flown.robot.set_fault("" if fault is None else json.dumps(fault))
    flown.send("mission/stop", EMPTY)
    assert running(flown, 20.0) < 5.0


def press(flown: Flown, topic: str) -> None:
    """The operator's word: a stop, or a button that is let go of and pressed."""
    if topic == "mission/stop":
        return flown.send(topic, EMPTY)
    flown.send(topic, "std_msgs/msg/Bool", data=False)
    flown.lockstep.run(0.05)
    flown.send(topic, "std_msgs/msg/Bool", data=True)


@pytest.mark.parametrize("topic", thinned(["mission/stop", "estop"], keep=["estop"]))
def test_the_operators_second_word_lets_down_what_levels(topic, standing, monkeypatch):
    """Whatever else is known."""
    monkeypatch.setattr(level, "STANDS_S", np.inf)
    flown = standing(0.06)
    press(flown, topic)
    flown.lockstep.run(10.0, until=lambda: flown.robot.true()["height"] < 0.03)
    press(flown, topic)
    assert running(flown, 20.0) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("again", [
    ("mission/stop", EMPTY, {}), ("estop", "std_msgs/msg/Bool", {"data": True})], ids=lambda again: again[0])
def test_a_word_that_is_repeated_is_one_word(again, standing, monkeypatch):
    """`ros2 topic pub` says it every second, a button that is set ten times: it would fall while it still sinks."""
    monkeypatch.setattr(level, "STANDS_S", np.inf)
    flown, (topic, kind, content) = standing(0.06), again
    for _ in range(6):
        flown.send(topic, kind, **content)
        flown.lockstep.run(1.0 if topic == "mission/stop" else 0.1)
    flown.lockstep.run(2.5 if topic == "estop" else 0.1)
    flown.send(topic, kind, **content)
    flown.lockstep.run(0.1)
    assert flown.guard.active_stop.under_way.action == "level" and flown.guard.active_stop.under_way.told is None


@pytest.mark.slow
def test_what_was_held_as_it_flew_does_not_climb_away_when_it_comes_free(artifact, lockstep_of, tmp_path):
    """Its thrust was 1.31 of its weight, and hovered: it rose from 0.92 to 1.89 m."""
    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(1.0)
    plant, receive = flown.robot.plant, flown.guard.link.receive
    plant.body.reset({"base_pos_w": flown.robot.true()["base_pos_w"]})
    step, plant.step = plant.step, lambda time: None
    pushed = np.array([0.6, 0.0, 0.0, 0.0])
    flown.guard.link.receive = lambda: [
        p._replace(values=pushed) if p.kind == datagrams.COMMAND else p for p in receive()]
    flown.lockstep.run(1.5)
    flown.send("mission/stop", EMPTY)
    flown.lockstep.run(0.3)
    plant.step = step
    begun = highest = flown.robot.true()["height"]
    speed = 0.0
    while flown.robot.true()["height"] > 0.05 and flown.lockstep.bus.seconds < 20.0:
        flown.lockstep.run(0.05)
        true = flown.robot.true()
        highest = max(highest, true["height"])
        speed = true["base_vel_w"][2] if true["height"] > 0.05 else speed
    assert true["height"] <= 0.05 and highest < begun + 0.3 and speed > -0.9
    flown.close()
