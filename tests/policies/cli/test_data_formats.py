"""`temporeal data import` and `export`: files in, sets out and back, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.policies.data.formats import recorded

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset


def data(*words) -> int:
    return main(["data", *map(str, words)])


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """Two seconds of an arm with a camera."""
    return recorded.write(tmp_path_factory.mktemp("bags") / "bag", 2.0,
                          {"states": 100.0, "commands": 25.0, "pictures": 30.0})


def test_a_bag_becomes_a_set_and_robomimics_file_and_a_set_again(bag, tmp_path, capsys):
    options = ("--robot", "franka", "--interface", "forward_position", "--rate", 25, "--camera",
               f"rgb={recorded.CAMERA}", "--only", "joint_pos,joint_vel,rgb", "--interpolate", "joint_vel=hold")
    assert data("import", bag, "--out", tmp_path / "set", *options, "--pictures", "lossless", "--json") == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1
    first = Dataset.open(tmp_path / "set")
    assert first.interface.about["alignment"]["signals"] == {
        "joint_pos": "linear", "joint_vel": "hold", "rgb": "nearest"}
    assert data("export", tmp_path / "set", tmp_path / "set.hdf5", "--format", "robomimic") == 0
    assert data("import", tmp_path / "set.hdf5", "--out", tmp_path / "again", "--pictures", "lossless") == 0
    again = Dataset.open(tmp_path / "again")
    assert again.interface.digest() == first.interface.digest()
    for name in ("joint_pos", "rgb"):
        assert np.array_equal(first.episode(0).signals[name], again.episode(0).signals[name])
    assert np.array_equal(first.episode(0).action, again.episode(0).action)


def test_a_set_is_appended_to_by_files_of_its_interface_alone(tmp_path, capsys):
    ends = np.arange(6) % 3 == 2
    for name, width in (("a", 2), ("b", 2), ("c", 3)):
        np.savez(tmp_path / f"{name}.npz", observations=np.ones((6, width)), actions=np.zeros((6, 1)), terminals=ends)
    assert data("import", tmp_path / "a.npz", "--out", tmp_path / "set", "--rate", 10, "--robot", "x") == 0
    assert data("import", tmp_path / "b.npz", tmp_path / "c.npz", "--out", tmp_path / "set", "--rate", 10, "--robot",
                "x", "--append") == 1
    assert "c.npz: the interfaces differ: signal observation, shape" in capsys.readouterr().err
    assert Dataset.open(tmp_path / "set").episodes == 4


FRANKA = ("BAG", "--robot", "franka", "--interface", "forward_position")
WRONG = (
    (("nothing.mcap",), "nothing.mcap is not there"),
    (("BAG",), "--robot NAME says whose it is"),
    (FRANKA, "--rate HZ says how many samples"),
    ((*FRANKA, "--rate", "-1"), "--rate -1: a positive number"),
    (("BAG", "--robot", "franka", "--rate", "25", "--command", "no"), "has no command 'no'; it has: joint_pos_cmd"),
    ((*FRANKA, "--rate", "25", "--camera", "rgb"),
     "--camera rgb: NAME=/TOPIC is needed"),
    ((*FRANKA, "--rate", "25", "--camera", "rgb=/no"),
     "no message on /no, which is camera 'rgb'"),
    ((*FRANKA, "--rate", "25", "--size", "9"), "--size 9: HxW"),
    ((*FRANKA, "--rate", "25", "--interpolate", "joint_pos=spline"),
     "interpolation 'spline'; legal: linear, hold, nearest"),
    ((*FRANKA, "--rate", "25", "--episodes", "mission"),
     "has no topic /mission: it was recorded without a guard"),
    (("BAG", "--format", "rlds"), "--format rlds: legal are rosbag2, robomimic"),
    ((*FRANKA, "--rate", "25", "--pictures", "gif"),
     "pictures='gif': legal are"),
)


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[says[:30] for _, says in WRONG])
def test_what_cannot_be_meant_is_refused_with_the_legal_choices(bag, tmp_path, capsys, words, says):
    assert data("import", *(bag if word == "BAG" else word for word in words), "--out", tmp_path / "set") == 2
    assert says in capsys.readouterr().err


def test_an_export_overwrites_nothing_and_names_its_formats(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", observations=np.ones((3, 2)), actions=np.zeros((3, 1)), terminals=[0, 0, 1])
    assert data("import", tmp_path / "a.npz", "--out", tmp_path / "set", "--rate", 10) == 0
    assert data("export", tmp_path / "set", tmp_path / "a.npz", "--format", "npz") == 2
    assert data("export", tmp_path / "set", tmp_path / "b", "--format", "rlds") == 2
    said = capsys.readouterr().err
    assert "a.npz is there already" in said and "legal are robomimic, minari, npz, lerobot-state" in said
