"""What `temporeal actor --ros` refuses before it moves anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.robot_learning.ros_world_opening import resting
from temporeal.policies.runs.errors import BAD_INPUT, BadInput
from temporeal.sim.task import load_task


@pytest.mark.parametrize(("words", "told"), [
    ([], "which robot"), (["--sim", "--ros", "artifact"], "which robot"),
    (["--sim", "--correct", "0.2"], "are of a robot behind ROS 2"), (["--sim", "--put-back"], "behind ROS 2")])
def test_one_robot_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["actor", *words]) == BAD_INPUT
    assert told in capsys.readouterr().err


def test_a_base_does_not_act_on_what_a_second_policy_commands() -> None:
    from temporeal.policies.cli.verbs.robot_learning.actor import open_robot

    options = SimpleNamespace(ros=Path("artifact"), correct=0.2, put_back=False)
    with pytest.raises(BadInput, match="--correct with reset=outputs/back"):
        open_robot(options, SimpleNamespace(reset="outputs/back"))  # type: ignore[arg-type]


def test_actions_that_move_a_target_have_no_command_that_corrects_nothing() -> None:
    with pytest.raises(BadInput, match="its actions move a target"):
        resting(load_task("reach"))
