"""Logs of joints: what a controller makes of setpoints, and what is wrong with a log, named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.joint_logs import checks, records
from temporeal.robots.spec import load_robot
from temporeal.sim.identification.joints.record import JointRecord, starts, stretches

FRANKA = load_robot("franka")
NAMES = FRANKA.sources["joint_pos"].names
RATE = 50.0
AT = Path("log")


def episode(command: str = "joint_pos_cmd", joints: int = 7) -> tuple[Interface, Episode]:
    """Four seconds in which each joint follows its setpoint, 20 ms late."""
    t = np.arange(201) / RATE
    home = np.array(FRANKA.home["joint_pos"])[:joints]
    told = home + 0.1 * np.sin(2 * np.pi * (0.5 + 0.13 * np.arange(joints)) * t[:, None])
    went = np.concatenate([told[:1], told[:-1]])
    spec, wide = FRANKA.commands[command], FRANKA.commands[command].size
    action = np.zeros((200, wide))
    action[:, :joints] = told[:200]
    signals = {"joint_pos": went, "joint_vel": np.gradient(went, 1 / RATE, axis=0)}
    face = Interface("franka", {name: FRANKA.signals[name] for name in signals},
                     ActionSpec(command, spec.low, spec.high, spec.unit), RATE)
    return face, Episode(signals, action)


def record(**changes: np.ndarray) -> JointRecord:
    face, of = episode()
    return replace(records.of_dataset(AT, FRANKA, face, of, 0.0, "log"), **changes)


def said(found: JointRecord) -> list[str]:
    return [f"{each.subject} {each.said}" for each in checks.findings(found, NAMES)]


def test_commands_hold_between_samples_and_a_good_log_is_good() -> None:
    found = record()
    assert found.each == 20 and found.dt == pytest.approx(0.001) and len(found.command) == 4000
    assert (found.command[20:40] == found.command[20]).all() and (found.command[39] != found.command[40]).all()
    assert said(found) == []


def test_a_trajectory_controller_goes_to_each_setpoint_evenly() -> None:
    """To 1 within 4 steps; a new setpoint after two of them begins where it is then."""
    held = np.array([0, 0, 1, 1, 1, 1, 1, 1], float)[:, None]
    np.testing.assert_allclose(records.reached(held, 0.004, 0.001)[:, 0], [0, 0, 0, 0.25, 0.5, 0.75, 1, 1])
    turned = np.array([0, 1, 1, -1, -1, -1, -1, -1], float)[:, None]
    np.testing.assert_allclose(records.reached(turned, 0.004, 0.001)[:, 0], [0, 0, 0.25, 0.5, 0.125, -0.25, -0.625, -1])
    assert records.reached(held, 0.0, 0.001) is held


def test_another_command_of_the_same_servos_is_taken() -> None:
    face, of = episode("arm_cmd")
    np.testing.assert_allclose(records.setpoints(AT, FRANKA, face, of), of.action[:, :7])


@pytest.mark.parametrize(("command", "joints", "told"), [
    ("joint_vel_cmd", 7, "its commands are joint_vel_cmd"),
    ("joint_effort_cmd", 7, "its commands are joint_effort_cmd"),
    ("joint_pos_cmd", 6, r"robot 'franka' has 7 joints: fr3_joint1")])
def test_logs_of_something_else_are_refused(command: str, joints: int, told: str) -> None:
    face, of = episode(command, joints)
    with pytest.raises(DataError, match=told):
        records.of_dataset(AT, FRANKA, face, of, 0.0, "log")


def test_a_log_without_places_is_refused() -> None:
    face, of = episode()
    blind = replace(face, signals={"joint_vel": face.signals["joint_vel"]})
    with pytest.raises(DataError, match="has no joint_pos"):
        records.of_dataset(AT, FRANKA, blind, replace(of, signals={"joint_vel": of.signals["joint_vel"]}), 0.0, "log")


def test_what_is_wrong_is_named() -> None:
    good = record()
    swapped = good.place[:, [1, 0, 2, 3, 4, 5, 6]]
    assert any("joint_pos[fr3_joint1] follows the setpoint of fr3_joint2" in each for each in said(replace(
        good, place=swapped, speed=None)))
    assert len(said(replace(good, place=np.rad2deg(good.place), speed=None))) == 7
    assert "another unit" in said(replace(good, place=np.rad2deg(good.place), speed=None))[0]
    dead = good.place.copy()
    dead[:, 3] = dead[0, 3]
    assert said(replace(good, place=dead, speed=None))[0].startswith("joint_pos[fr3_joint4] is -2.356 all the time")
    assert good.speed is not None
    assert "joint_vel[fr3_joint1] is 57.1 times what joint_pos shows" in said(replace(
        good, speed=np.rad2deg(good.speed)))[0]


def test_channels_that_measure_nothing_are_left_out() -> None:
    quiet = replace(record(), speed=np.zeros((200, 7)), effort=np.zeros((200, 7)))
    found = list(checks.findings(quiet, NAMES))
    assert [(each.subject, each.wrong) for each in found] == [("joint_vel", False), ("joint_torque", False)]
    left = checks.without_dead(quiet, found)
    assert left.speed is None and left.effort is None


def test_gaps_and_ends_are_not_used() -> None:
    """A simulated joint begins anew behind a gap, and its first half second is of where it began."""
    face, of = episode()
    place = of.signals["joint_pos"].copy()
    place[60, 2] = np.nan
    place[100, 5] = FRANKA.motion.high[5] if FRANKA.motion else 0.0
    found = records.of_dataset(AT, FRANKA, face, replace(of, signals={**of.signals, "joint_pos": place}), 0.0,
                               "log")
    assert np.flatnonzero(~found.usable).tolist() == [60, 100]
    assert np.flatnonzero(starts(found)).tolist() == [0, 61, 101]
    assert stretches(found, 10).tolist() == [25, 35, 45, 86, *range(126, 187, 10)]


def at_its_end(tail: int, low: bool = False) -> Episode:
    """A Franka whose last joint lies at the end of its range but for its last ``tail`` samples, ``low``: at the other
    end there."""
    _, of = episode()
    place, told = of.signals["joint_pos"].copy(), of.action.copy()
    assert FRANKA.motion is not None
    place[: len(place) - tail, 6] = told[:, 6] = FRANKA.motion.high[6]
    if low:
        place[len(place) - tail :, 6] = FRANKA.motion.low[6]
    return replace(of, signals={"joint_pos": place}, action=told)


def test_a_joint_that_rests_at_its_end_does_not_spoil_the_others() -> None:
    face, of = episode()[0], at_its_end(0)
    blind = replace(face, signals={"joint_pos": face.signals["joint_pos"]})
    found = records.of_dataset(AT, FRANKA, blind, of, 0.0, "log")
    assert found.usable.all() and said(found) == []
    assert not found.moved()[6]


@pytest.mark.parametrize(("low", "shortest", "told"), [
    (True, 5.0, "log: no sample can be used: fr3_joint7 moves, but lies against an end of its range in 100 %"),
    (False, 2.0, r"log: 0.78 s can be used, 2 at least are needed: fr3_joint7 moves, but .* in 80 %")])
def test_a_joint_that_moves_and_is_mostly_at_its_end_is_named(low, shortest, told, monkeypatch) -> None:
    monkeypatch.setattr(records, "SHORTEST_S", shortest)
    face, of = episode()[0], at_its_end(40, low)
    blind = replace(face, signals={"joint_pos": face.signals["joint_pos"]})
    with pytest.raises(DataError, match=told):
        records.of_dataset(AT, FRANKA, blind, of, 0.0, "log")
