"""The stop `level` of a simulated quadrotor (MuJoCo, its firmware) whose state lies: it comes down upright."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robots.frames import rotate
from robots.spec import load_robot
from temporeal_bridge import codecs
from temporeal_bridge.fitting import profile_on
from temporeal_bridge.interface import load_interface
from temporeal_bridge.watch import Watch
from tests.bridge.test_replay import EMPTY, Flown

pytest.importorskip("mujoco")

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


@pytest.mark.parametrize("at_s", [0.4, 1.0])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "-".join(map(str, fault.values())))
def test_it_comes_down_upright(fault, at_s, artifact, lockstep_of, tmp_path):
    from temporeal_bridge.memory import Bus

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


@pytest.mark.parametrize("at_s", [0.5, 3.2])
def test_a_guard_that_is_deactivated_in_flight_lands_what_it_flew(at_s, artifact, lockstep_of, tmp_path):
    """It fell silent at once, and the firmware kept the last body rates for half a second: 5.1 m/s on the ground."""
    from temporeal_bridge.memory import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(at_s)
    assert flown.guard.mode == "active" and flown.robot.true()["height"] > 0.3
    flown.bus["guard_node"].active = False
    tilts, speed = list[float](), 0.0
    while flown.guard.mode != "stopped" and len(tilts) < 120:
        flown.lockstep.run(0.05)
        true = flown.robot.true()
        tilts.append(tilt(true["base_quat_w"]))
        speed = np.linalg.norm(true["base_vel_w"]) if true["height"] > 0.05 else speed
    assert (flown.guard.flight.code, flown.guard.flight.action) == ("inactive", "level")
    assert len(tilts) < 120 and max(tilts) < TILT_DEG and speed < 1.0 and flown.robot.true()["height"] < 0.1
    last = flown.guard.sent_at
    flown.lockstep.run(1.0)
    assert flown.guard.sent_at == last  # down, and silent
    flown.close()


BIASED, LIES = ({"name": "jump", "signal": "base_vel_w", "index": 2, "by": by, "scale": 1.0} for by in (-0.2, -3.0))
CLIMBS = {**LIES, "by": 3.0}


LIGHT, HEAVY, STRONG, WEAK = {"mass": 0.027}, {"mass": 0.034}, {"motor_gain": 1.15}, {"motor_gain": 0.85}


@pytest.mark.parametrize("changes, fault", [
    (LIGHT, None), (LIGHT, BIASED), (LIGHT, LIES), (HEAVY, None), (HEAVY, CLIMBS), (STRONG, None), (STRONG, BIASED),
    (WEAK, BIASED), (WEAK, CLIMBS), ({**LIGHT, **STRONG}, None), ({**HEAVY, **WEAK}, LIES)], ids=str)
def test_a_robot_of_any_published_mass_and_strength_is_brought_down(
        changes, fault, artifact, lockstep_of, tmp_path, monkeypatch):
    """Its motors carry it until it is down, whatever its velocity says: no cut by time, no climb, no fall."""
    from temporeal_bridge import plants
    from temporeal_bridge.memory import Bus

    drawn = plants.draw_parameters

    def draw(*args: Any) -> dict[str, np.ndarray]:
        return {name: np.full_like(value, changes.get(name, value)) for name, value in drawn(*args).items()}

    monkeypatch.setattr(plants, "draw_parameters", draw)
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


@pytest.mark.parametrize("stop_s", [0.02, 0.3, None])  # the operator's, after the fault
@pytest.mark.parametrize("at_s", [1.0, 3.2])
def test_an_attitude_that_stands_alone_turns_nobody_over(at_s, stop_s, artifact, lockstep_of, tmp_path, monkeypatch):
    """The place lives on: MAVROS joins it with the newest attitude, whose stream may have stopped."""
    from temporeal_bridge.memory import Bus

    stands, kept, codec = False, dict[str, np.ndarray](), codecs.STATES["odometry"]

    def encode(signals: Any, *rest: Any) -> Any:
        return codec.encode({**signals, **(kept if stands else {})}, *rest)

    monkeypatch.setitem(codecs.STATES, "odometry", replace(codec, encode=encode))
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


def watched(*steps: tuple[float, float, float]) -> Watch:
    """A watch that has seen a state every 10 ms of each part: for so long [s], with the wall clock of this computer and
    the robot's so much ahead by its end [s]. Messages take 5 ms."""
    robot = load_robot("crazyflie")
    interface = load_interface(robot, "odometry")
    watch = Watch(profile_on(robot, interface, robot.command("ctbr_cmd"), 0.02), [100.0])
    rng, now = np.random.default_rng(0), 10.0
    for seconds, wall, theirs in steps:
        for _ in range(round(seconds / 0.01)):
            now += 0.01
            signals = {"base_pos_w": rng.normal(size=3), "base_quat_w": np.array([1.0, 0.0, 0.0, 1e-3 * rng.random()])}
            watch.take(0, round(1e9 * (now - 0.005 + theirs)), signals, now, round(1e9 * (now + wall)))
    return watch


@pytest.mark.parametrize(("wall", "theirs", "sees"), [
    (0.0, 0.0, True), (0.3, 0.0, True), (-0.3, 0.0, True),  # the clock of this computer is set
    (0.3, 0.3, True), (-0.3, -0.3, True),  # one clock for both: a robot that is simulated
    (0.0, 0.3, True),  # stamps from the future of a robot whose clock is set
    (0.0, -0.05, True), (0.0, -0.3, False)])  # a message that comes so late, or a robot's clock that is set back
def test_a_state_is_late_by_its_own_clock_and_not_because_one_was_set(wall, theirs, sees):
    watch = watched((1.0, 0.0, 0.0), (0.5, wall, theirs))
    assert watch.sees_attitude(11.5) == sees


def test_clocks_that_drift_apart_make_no_state_late():
    parts = [(1.0, 0.0, -5e-4 * second) for second in range(600)]
    assert watched(*parts).sees_attitude(610.0)
