"""``temporeal identify`` of joints: which logs are theirs, and what is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.policies.data.joint_logs.test_joint_logs import episode

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.data.joint_logs import records


def dataset(folder: Path, command: str = "joint_pos_cmd", robot: str = "franka", swap: bool = False) -> Path:
    """A Franka's four seconds as a dataset."""
    face, of = episode(command)
    if swap:
        of = replace(of, signals={name: value[:, [1, 0, 2, 3, 4, 5, 6]] for name, value in of.signals.items()})
    with DatasetWriter(folder, replace(face, robot=robot)) as writer:
        writer.add(of)
    return folder


@pytest.mark.parametrize(("given", "words", "said"), [
    ({"command": "joint_vel_cmd"}, (), "its commands are joint_vel_cmd"),
    ({"swap": True}, (), "joint_pos[fr3_joint1] follows the setpoint of fr3_joint2"),
    ({"robot": "leap_hand"}, (), "joint_pos_cmd has 7 numbers, robot 'leap_hand' takes 16"),
    ({}, (), "4 s in which every source is measured; 5 s at least are needed"),
    ({}, ("--align",), "--align: of quadrotors"),
    ({}, ("--randomization", "mine.yaml"), "--randomization: of quadrotors"),
    ({}, ("--episode", "3"), "3"),
    ({}, ("--episode", "-1"), "--episode -1: numbers from 0 on"),
    ({}, ("--reach", "-0.1"), "--reach -0.1: 0 (at once) to 10 s are legal"),
    ({}, ("--reach", "nan"), "--reach nan: 0 (at once)"),
    ({}, ("--known", "kp=1"), "NAME=VALUE,SD")])
def test_what_cannot_be_used_is_refused(given, words, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "PHYSICS_S", 0.005)
    assert main(["identify", str(dataset(tmp_path / "set", **given)), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "identified.yaml").exists()


def test_logs_of_two_robots_are_refused(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = dataset(tmp_path / "one"), dataset(tmp_path / "other", robot="leap_hand")
    assert main(["identify", str(one), str(other)]) == 2
    assert "of leap_hand, the first one of franka" in capsys.readouterr().err
