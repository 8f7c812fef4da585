"""Excitations keep what they promise: limits of amplitude, rate and acceleration, rest at both ends, refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.identification.excitation import joints, quadrotor, waves
from temporeal.sim.identification.excitation.joints import JointSettings
from temporeal.sim.identification.excitation.quadrotor import QuadrotorSettings
from temporeal.sim.identification.excitation.waves import CannotExcite, Limits

CRAZYFLIE, FRANKA = load_robot("crazyflie"), load_robot("franka")


def test_a_chirp_sweeps_its_band_and_begins_and_ends_at_zero():
    values = waves.chirp(2000, 0.01, 0.5, 5.0, np.ones_like)
    crossings = np.flatnonzero(np.diff(np.sign(values[1:-1])))
    assert values[0] == 0 and abs(values[-1]) < 1e-9 and np.abs(values).max() == pytest.approx(1.0, abs=0.01)
    periods = 2 * 0.01 * np.diff(crossings)
    assert periods[0] > 1.5 and periods[-1] == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("limits", [Limits(0.3), Limits(1.0, 0.5), Limits(1.0, 2.0, 3.0)])
def test_a_chirp_is_as_large_as_its_limits_allow_and_no_larger(limits):
    values = waves.shrunk(waves.chirp(2000, 0.01, 0.3, 3.0, limits.at), 0.01, limits)
    reached = np.array(waves.peaks(values, 0.01)) / [limits.amplitude, limits.rate, limits.acceleration]
    assert 0.9 < reached.max() <= 1 + 1e-9


def test_a_sine_of_the_allowed_amplitude_keeps_all_three_limits():
    hz = np.array([0.1, 1.0, 10.0])
    amplitude, omega = Limits(0.5, 1.0, 4.0).at(hz), 2 * np.pi * hz
    assert np.allclose([amplitude[0], amplitude[1] * omega[1] ** 2, amplitude[2] * omega[2] ** 2], [0.5, 4.0, 4.0])
    assert (amplitude * omega <= 1.0 + 1e-12).all()


def test_a_multisine_has_its_lines_and_a_low_peak():
    lines = np.arange(5, 45) / 20.0
    values = waves.multisine(4000, 0.005, lines, np.ones_like)
    power = np.abs(np.fft.rfft(values)) ** 2
    assert power[5:45].sum() > 0.9 * power.sum()
    assert np.abs(values).max() == 1.0 and values.std() > 0.35  # forty sines of equal phase have a deviation of 0.11


def test_a_sweep_is_at_its_speed_except_at_its_ends():
    values = waves.sweep(0.01, 0.5, 0.2, 1.0)
    speed = np.abs(np.diff(values)) / 0.01
    assert values[-1] == pytest.approx(0.0) and values.max() == pytest.approx(0.5) and values.min() == -values.max()
    assert speed.max() <= 0.2 + 1e-9 and (np.abs(speed - 0.2) < 1e-6).mean() > 0.8


def test_the_quadrotors_reference_keeps_reach_speed_and_lean():
    plan = quadrotor.plan(CRAZYFLIE, QuadrotorSettings(seconds=40.0))
    assert np.abs(plan.place[:4000]).max() <= 0.3 and np.linalg.norm(plan.velocity, axis=1).max() < 2.0
    assert np.abs(plan.acceleration).max() < 9.81 * np.tan(np.radians(35.0 / 2)) * 1.01
    quiet, landing = plan.segments[-2:]
    assert quiet.last == landing.first == 4000 and landing.last == plan.steps
    assert not plan.place[quiet.first : quiet.last].any() and not plan.turn[quiet.first :].any()
    excited = {part.name: max(float(np.abs(values[part.first : part.last]).max()) for values in (
        plan.place, plan.thrust, plan.turn)) for part in plan.segments}
    assert all((value > 0) == (name not in ("settle", "quiet")) for name, value in excited.items())


def test_rotor_commands_end_low_and_off_and_rates_at_the_center():
    """By motor_cmd the guard's stop, which ends every mission, is silence: a robot at 1 m would fall."""
    plan = quadrotor.plan(CRAZYFLIE, QuadrotorSettings(seconds=40.0))
    down = plan.place[4000:, 2]
    assert plan.center[2] + down[-1] == pytest.approx(0.1) and (np.diff(down) < 1e-12).all()
    assert np.abs(np.diff(down)).max() * plan.rate_hz <= 0.3 + 1e-9
    assert plan.power[-1] == 0 and (plan.power[:-31] == 1).all() and (down[-131:] < down[-1] + 1e-9).all()
    level = quadrotor.plan(CRAZYFLIE, QuadrotorSettings(seconds=40.0, command="ctbr_cmd"))
    assert level.steps == 4000 and (level.power == 1).all() and "landing" not in level.clauses


@pytest.mark.parametrize(("changes", "told"), [
    ({"reach_m": 0.6}, "reach_m=0.6: at most 0.45"), ({"z": 0.4}, "at most 0.075, the center's height 0.4 m"),
    ({"fast_high_hz": 50.0}, "fast_high_hz=50: commands at 100 Hz make frequencies below half of that, 50 Hz"),
    ({"seconds": 20.0}, "seconds=20: with these frequencies 33.7 s at least"),
    ({"turn": 0.5}, "turn=0.5: at most 0.25"),
    ({"low_hz": 3.0}, "0 < low <= high"), ({"command": "joint_pos_cmd"}, "is excited by motor_cmd, ctbr_cmd"),
    ({"rate_hz": 1e9}, "rate_hz=1e+09: 5 to 1000"), ({"rate_hz": -5.0}, "rate_hz=-5: 5 to 1000"),
    ({"seconds": 1e7}, "seconds=1e+07: 100 commands a second are at most 60000 commands"),
    ({"land_m": 1.5}, "land_m=1.5: at most 1, the center's height"),
    ({"thrust": -0.1}, "thrust=-0.1: a number above 0"), ({"tilt_deg": 70.0}, "tilt_deg=70: at most 60")])
def test_what_a_quadrotor_must_not_fly_is_refused(changes, told):
    with pytest.raises(CannotExcite, match=re.escape(told)):
        quadrotor.plan(CRAZYFLIE, replace(QuadrotorSettings(), **changes))


def test_an_arms_setpoints_keep_place_speed_and_acceleration_with_margins():
    settings = JointSettings(seconds=60.0)
    plan, motion = joints.plan(FRANKA, settings), FRANKA.motion
    assert np.allclose(plan.place[[0, -1]], FRANKA.home["joint_pos"], atol=1e-3)
    assert (plan.place > np.array(motion.low) + 0.05).all() and (plan.place < np.array(motion.high) - 0.05).all()
    assert (plan.most_speed <= 0.3 * np.array(motion.speed) * 1.01).all()
    hard = np.abs(np.diff(plan.place, 2, axis=0)).max(0) * plan.rate_hz**2
    assert (hard <= 0.3 * np.array(motion.acceleration) * 1.2).all()


def test_the_shortest_time_in_which_joints_go_home_keeps_speed_and_acceleration():
    """From the farthest start that the formula allows, sampled as the policy does it."""
    settings, far = JointSettings(settle_s=0.5), np.full(7, joints.START)
    with pytest.raises(CannotExcite, match="settle_s=0.01") as refused:
        joints.check_start(FRANKA, replace(settings, settle_s=0.01), far)
    least = float(re.search(r"at least ([\d.]+) s", str(refused.value))[1])
    joints.check_start(FRANKA, replace(settings, settle_s=least), far)
    with pytest.raises(CannotExcite):
        joints.check_start(FRANKA, replace(settings, settle_s=0.95 * least), far)
    way = joints.START * waves.smooth(np.arange(2000) * 0.001 / (0.8 * least))
    speed, acceleration = (0.3 * values.min() for values in joints.limits(FRANKA))
    fast, hard = np.diff(way).max() * 1e3, np.abs(np.diff(way, 2)).max() * 1e6
    assert fast <= speed * 1.001 and hard <= acceleration * 1.001
    assert max(fast / speed, hard / acceleration) > 0.9


def test_a_start_farther_from_home_than_was_rehearsed_is_no_run_of_this_excitation():
    plan = joints.plan(FRANKA, JointSettings())
    assert plan.constants["start"] == joints.START and plan.clauses["start"].count("< start") == 7


def test_links_are_looked_at_on_the_way_home(monkeypatch):
    class Near:
        def distance(self, at):
            off = np.abs(at - np.array(FRANKA.home["joint_pos"])).max()
            return (0.01, "a and b") if 0.149 < off < 0.151 else (1.0, "")

    monkeypatch.setattr(joints, "watched", lambda *given: Near())
    with pytest.raises(CannotExcite, match="from 0.15 beside it"):
        joints.check_way_home(FRANKA, np.zeros(7))


def test_each_joint_has_frequencies_of_its_own():
    settings, seen = JointSettings(), list[float]()
    for joint in range(7):
        lines = joints.lines(settings, 30.0, joint, 7)
        assert len(lines) >= 5 and settings.low_hz <= lines.min() and lines.max() <= settings.high_hz
        seen += np.round(lines * 30.0).astype(int).tolist()
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(("robot", "changes", "told"), [
    ("franka", {"reach": 1.9}, "reach=1.9: joint fr3_joint2 has 1.58"),
    ("franka", {"share": 0.9}, "share=0.9: 0.02 to 0.6 are legal"),
    ("franka", {"settle_s": 0.3, "seconds": 50.0}, "settle_s=0.3: joint .* may begin 0.15 from home"),
    ("franka", {"high_hz": 12.5}, "high_hz=12.5: commands at 25 Hz"), ("franka", {"seconds": 30.0}, "seconds=48"),
    ("franka", {"reach": 0.8, "seconds": 200.0, "settle_s": 8.0, "quiet_s": 8.0}, "come .* m near each other"),
    ("shadow_hand", {}, "needs the command joint_pos_cmd"), ("franka", {"sweeps": 2.5}, "a whole number")])
def test_what_joints_must_not_do_is_refused(robot, changes, told):
    with pytest.raises(CannotExcite, match=told):
        joints.plan(load_robot(robot), replace(JointSettings(), **changes))
