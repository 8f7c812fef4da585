"""The fault bench's short form: every fault once in fake time; and the oracle itself sees what it must see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.cli.benches import _fault_world as world
from policies.cli.benches._fault_oracle import Oracle
from robots.course import resting
from robots.spec import load_robot
from temporeal_bridge import codecs, messages
from temporeal_bridge.interface import load_interface

ROUND = 5  # another seed than the bench begins with


@pytest.mark.parametrize("case", world.CASES)
def test_every_fault_has_its_reaction_in_time_and_no_command_leaves_the_limits(case: str, tmp_path: Path) -> None:
    kinds = world.CASES[case].kinds
    result = world.trial(kinds[len(case) % len(kinds)], case, ROUND, tmp_path)
    assert result.wrong == () and result.outside == 0
    assert (result.reaction is None) == (world.CASES[case].code in (world.GOES_ON, world.ANY))
    assert result.commands > 3 or world.CASES[case].before


def test_a_trial_follows_from_its_seed(tmp_path: Path) -> None:
    assert world.trial("leap_hand", "unit jump", 3, tmp_path) == world.trial("leap_hand", "unit jump", 3, tmp_path)


def test_a_required_time_that_is_missed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(world.CASES["state stopped"], within=lambda w: 0.05)
    monkeypatch.setitem(world.CASES, "state stopped", strict)
    wrong = world.trial("crazyflie", "state stopped", 0, tmp_path).wrong
    assert len(wrong) == 1 and wrong[0].startswith("stopped after 0.") and "0.0500 s is allowed" in wrong[0]


# the oracle

FRANKA = load_robot("franka")
HOME = np.array(FRANKA.home["joint_pos"])


def read(
    *commands: np.ndarray, period: float = 0.02, interface: str = "forward_position", apart: float = 1.0
) -> Oracle:
    """An oracle that has read these commands, ``apart`` periods from each other."""
    oracle = Oracle(FRANKA, load_interface(FRANKA, interface), "joint_pos_cmd", period)
    oracle.says("active")
    for k, command in enumerate(commands):
        codec = codecs.COMMANDS[oracle.topic.codec]
        message = (codec.encode(command, oracle.topic.options) if interface == "forward_position" else
                   codec.encode_course(resting(command, 0.04), oracle.topic.options))
        oracle.read(k * period * apart, messages.encode(oracle.topic.type, message))
    return oracle


def test_the_oracle_passes_what_rests_and_what_moves_slowly() -> None:
    assert read(HOME, HOME, HOME).wrong == []
    steps = [HOME + 0.5 * 6.0 * (0.02 * k) ** 2 for k in range(10)]  # at 6 rad/s^2 all the time
    assert read(*steps).wrong == []


@pytest.mark.parametrize("leap, told", [
    (0.02 * 1.6, "speed of component 0 is 1.6, 1.572"), (0.02 * 0.2, "acceleration of component 0 is 10, 6")])
def test_the_oracle_sees_a_leap(leap: float, told: str) -> None:
    wrong = read(HOME, HOME, HOME, HOME + leap * np.eye(7)[0]).wrong
    assert any(told in text for text in wrong), wrong


def test_the_oracle_sees_a_jerk() -> None:
    """From 5 rad/s^2 to -5 rad/s^2 in a millisecond: 10000 rad/s^3, 5000 are allowed."""
    dt = 0.001
    speed = np.cumsum([0.0, 0.0, 5.0, 5.0, 5.0, -5.0]) * dt
    wrong = read(*(HOME + x * np.eye(7)[0] for x in np.cumsum(speed) * dt), period=dt).wrong
    assert len(wrong) == 1 and "jerk of component 0 is 1" in wrong[0]


def test_the_oracle_sees_a_place_outside_and_commands_in_a_heap() -> None:
    limits = Oracle(FRANKA, load_interface(FRANKA), "joint_pos_cmd", 0.04)
    outside = limits.high + np.array([1e-3, 0, 0, 0, 0, 0, 0])
    assert any("command place of component 0" in text for text in read(outside).wrong)
    assert any("two commands within" in text for text in read(HOME, HOME, apart=0.3).wrong)
    assert any("point place of component 0" in text for text in read(outside, interface="franka_ros2").wrong)


def test_the_oracle_sees_commands_when_there_is_no_mission_and_what_is_no_command() -> None:
    oracle = Oracle(FRANKA, load_interface(FRANKA), "joint_pos_cmd", 0.04)
    oracle.says("ready")
    oracle.read(0.0, b"nonsense")
    assert [text.split(":")[0] for text in oracle.wrong] == ["a command in mode 'ready'", "not a command"]
