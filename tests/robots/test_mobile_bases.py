"""A mobile base of one's own: speeds in spec.yaml become a command."""

from __future__ import annotations

import pytest
import yaml

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.spec import load_robot


def write(folder, **entries):
    (folder / "model.urdf").write_text('<robot name="cart"><link name="hull"/></robot>')
    (folder / "spec.yaml").write_text(yaml.safe_dump({"model": "model.urdf", "kind": "mobile_base",
                                                      "mobile_base": entries}))
    return folder


def test_a_cart_has_a_twist(tmp_path):
    robot = load_robot(write(tmp_path, forward=1.0, backward=0.2, turn=1.5))
    command = robot.command("twist_cmd")
    assert (command.low, command.high, command.unit) == ((-0.2, -1.5), (1.0, 1.5), "m/s,rad/s")
    assert robot.control_hz == 20.0 and set(robot.home) == set(robot.signals)


def test_a_base_that_moves_sideways_has_three_components(tmp_path):
    command = load_robot(write(tmp_path, forward=1.0, left=0.5, turn=1.5)).command("twist_cmd")
    assert (command.low, command.high) == ((-1.0, -0.5, -1.5), (1.0, 0.5, 1.5))


@pytest.mark.parametrize("entries, message", [
    ({"forward": 1.0}, "turn is needed; entries: forward, backward, left, turn"),
    ({"forward": 1.0, "turn": -1}, "mobile_base.turn: a positive number is needed, got -1"),
    ({"forward": "fast", "turn": 1}, "mobile_base.forward: a positive number is needed, got 'fast'"),
    ({"forward": 1.0, "turn": 1, "wheels": 2}, "no entry 'wheels'; legal: forward")])
def test_wrong_speeds_are_named(tmp_path, entries, message):
    with pytest.raises(RobotFileError, match=message):
        load_robot(write(tmp_path, **entries))
