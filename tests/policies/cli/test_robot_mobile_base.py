"""`temporeal robot new` for a base that rolls: its speeds, and an interface that takes a twist."""

from __future__ import annotations

from pathlib import Path

import pytest

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.making import make
from temporeal.policies.runs.errors import BadInput
from temporeal_bridge.interface.loading import load_interface


def urdf(folder: Path) -> Path:
    path = folder / "cart.urdf"
    path.write_text('<robot name="c"><link name="hull"/></robot>')
    return path


def test_speeds_that_are_said_are_the_commands(tmp_path):
    answers = Answers({"kind": "mobile_base", "mobile_base": {"forward": 1.5, "left": 0.5, "turn": 2.0},
                       "interface": "twist_stamped"})
    robot, notes = make(urdf(tmp_path), tmp_path / "cart", answers)
    assert robot.command("twist_cmd").high == (1.5, 0.5, 2.0) and notes == []
    assert load_interface(robot).command("twist_cmd").type == "geometry_msgs/msg/TwistStamped"


def test_speeds_that_nobody_says_are_slow_and_say_so(tmp_path):
    robot, notes = make(urdf(tmp_path), tmp_path / "cart", Answers({"kind": "mobile_base"}))
    assert robot.command("twist_cmd").high == (0.5, 1.0)
    assert set(robot.defaults) == {"forward", "turn"} and any("take the driver's" in note for note in notes)


def test_an_unknown_speed_is_named(tmp_path):
    with pytest.raises(BadInput, match="mobile_base: no entry 'sideways'; legal: forward, backward, left, turn"):
        make(urdf(tmp_path), tmp_path / "cart", Answers({"kind": "mobile_base", "mobile_base": {"sideways": 1}}))
