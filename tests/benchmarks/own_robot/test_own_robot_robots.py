"""The robots of others in the benchmark: their answers are legal, and one that needs no file is built."""

from __future__ import annotations

import pytest

from temporeal.policies.cli.own_robot.answers import LEGAL
from temporeal.policies.runs.settings.folders import groups
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.own_robot.robots import ROBOTS, build, commands, interval


@pytest.mark.parametrize("robot", ROBOTS.values(), ids=ROBOTS)
def test_answers_and_settings_are_legal(robot):
    assert set(robot.answers) <= set(LEGAL)
    assert {word.partition("=")[2] for word in robot.words} <= set(groups()["experiment"])


def test_the_quadrotor_is_built_by_the_command(tmp_path):
    build(ROBOTS["x500"], tmp_path / "robots", tmp_path, commands(tmp_path / "robots"))
    robot = load_robot(tmp_path / "robots" / "x500")
    assert robot.kind == "quadrotor" and robot.parameters["mass"].nominal == (2.064,)
    assert (robot.ros.read_text()).splitlines()[4:5] == ["default: px4"]


def test_a_command_that_fails_says_which(tmp_path):
    with pytest.raises(RuntimeError, match="temporeal train task=nothing: exit status 2"):
        commands(tmp_path)("train", "task=nothing")


def test_an_interval_in_words():
    assert interval({"p_satisfied": 1.0, "interval": [0.9, 1.0]}) == "95 % interval 0.900 to 1.000"
