"""What is wrong in a file is said with file, episode and index; the other episodes are imported."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, episode
from tests.policies.data.formats import recorded

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats import csv_folder, flat_npz, importing, kinds, minari, robomimic, robosuite, rosbag
from temporeal.policies.data.formats.bags.alignment import Alignment
from temporeal.policies.data.formats.importing import File
from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.loading import load_interface

h5py = pytest.importorskip("h5py")


class Case(NamedTuple):
    """A defect of the middle one of three episodes, and the words that say so."""

    format: str
    damage: object
    says: str


def replaced(name, change):
    """Change an array of an HDF5 group."""
    def damage(group):
        values = group[name][()]
        del group[name]
        group[name] = change(values)
    return damage


def at(index, value):
    """Put ``value`` at ``index``."""
    def change(values):
        values = values.copy()
        values[index] = value
        return values
    return change


def removed(name):
    def damage(group):
        del group[name]
    return damage


CASES = {
    "wrong shape": Case("robomimic", replaced("obs/joint_pos", lambda x: x[:, :5]), r"joint_pos has shape \(6, 5\)"),
    "missing samples": Case("robomimic", replaced("obs/height", lambda x: x[:-2]), r"height has shape"),
    "NaN": Case("robomimic", replaced("obs/joint_pos", at((3, 2), np.nan)), "index 3: joint_pos is nan"),
    "infinite command": Case("robomimic", replaced("actions", at((4, 0), np.inf)), "index 4: action is inf"),
    "command beyond its limits": Case("robomimic", replaced("actions", at((2, 1), 9.0)), "index 2: action joint_vel"),
    "policy's action": Case("robomimic", replaced("policy_actions", at((1, 0), -3.0)), "index 1: policy_action is -3"),
    "another robot": Case("robomimic", removed("obs/height"), "has no 'height'; it has: "),
    "no commands": Case("robomimic", removed("actions"), "has no 'actions'; it has: "),
    "an empty episode": Case("robomimic", replaced("actions", lambda x: x[:0]), "7 samples and 0 commands"),
    "texts": Case("robomimic", replaced("obs/height", lambda x: np.array([b"a"] * 6)), "numbers are needed"),
    "minari: wrong shape": Case("minari", replaced("observations/joint_pos", lambda x: x[:, :3]), "cannot reshape"),
    "minari: NaN": Case("minari", replaced("observations/height", at(2, np.nan)), "index 2: height is nan"),
    "minari: lost rows": Case("minari", replaced("actions", lambda x: x[:-2]), "samples and 4 commands"),
    "minari: no rewards": Case("minari", removed("rewards"), "has no 'rewards'"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_damaged_episode_is_named_and_the_others_are_kept(tmp_path, case):
    module = {"robomimic": robomimic, "minari": minari}[case.format]
    writer, reader = module.write, module.read
    path = tmp_path / ("set.hdf5" if case.format == "robomimic" else "set")
    writer(path, ARM, [episode(1 + 5 * k) for k in range(3)])
    file = path if path.is_file() else path / "data/main_data.hdf5"
    name = "data/demo_1" if case.format == "robomimic" else "episode_1"
    with h5py.File(file, "a") as opened:
        case.damage(opened[name])
    result = importing.write(tmp_path / "out", [File(path, partial(reader, path))], importing.Options())
    assert result.episodes == Dataset.open(tmp_path / "out").episodes == 2
    (rejected,) = result.rejected
    assert name.rpartition("/")[2] in rejected.where and str(file) in rejected.where
    assert re.search(case.says, rejected.why), rejected.why


TIMES = {"gap": (7, 0.3, "index 7: the time .* leaves a gap after"),
         "back": (7, -0.2, "index 7: the time .* goes back"), "early": (7, -0.03, "index 7: the time .* comes early"),
         "no number": (7, np.nan, "is not a number")}


@pytest.mark.parametrize(("index", "shift", "says"), TIMES.values(), ids=TIMES)
def test_times_of_robosuite_must_increase_evenly(tmp_path, index, shift, says):
    path = tmp_path / "demo.hdf5"
    path.write_bytes(Path(__file__).with_name("robosuite_lift.hdf5").read_bytes())
    with h5py.File(path, "a") as file:
        late = (np.arange(20) >= index)[:, None] & (np.arange(32) == 0)
        replaced("states", lambda x: x + np.where(late, shift, 0.0))(file["data/demo_3"])
    result = importing.write(tmp_path / "out", [File(path, lambda: robosuite.read(path))], importing.Options())
    assert result.episodes == 1
    assert "demo_3" in result.rejected[0].where and re.search(says, result.rejected[0].why)


def test_two_rates_and_another_robot_are_refused_by_name(tmp_path):
    files = []
    for k in range(2):
        files.append(tmp_path / f"{k}.hdf5")
        robomimic.write(files[-1], ARM, [episode(k)])
    for name, face in {"slow": replace(ARM, rate_hz=10.0), "other": replace(ARM, robot="leg")}.items():
        files.append(tmp_path / f"{name}.hdf5")
        robomimic.write(files[-1], face, [episode(3)])
    result = importing.write(
        tmp_path / "out", [File(path, partial(robomimic.read, path)) for path in files], importing.Options())
    assert result.episodes == 2
    assert [each.why.partition(": ")[2] for each in result.rejected] == [
        "rate_hz: 20.0 is needed, 10.0 is there", "robot: 'arm' is needed, 'leg' is there"]


def test_csv_files_of_other_columns_and_times_are_named(tmp_path):
    def table(times, head="t,pos,action"):
        return "\n".join([head, *(f"{t},1,0.5" for t in times)])

    good = [0.0, 0.1, 0.2, 0.3]
    for name, text in {"a": table(good), "b": table([0.0, 0.1, 0.3, 0.4]), "c": table(good, "t,pose,action"),
                       "d": table(good), "e": table(good) + "\n0.4,x,1"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    result = importing.write(tmp_path / "out", [File(tmp_path, lambda: csv_folder.read(tmp_path))], importing.Options())
    assert result.episodes == 2
    assert [(each.where[-5:], each.why[:40]) for each in result.rejected] == [
        ("b.csv", "index 2: the time 0.3 s leaves a gap aft"), ("c.csv", "its columns are not those of the other f"),
        ("e.csv", "its rows are no numbers in 3 columns: co")]


def test_csv_files_of_no_named_robot_become_one_set_and_a_step_back_is_the_row_that_is_named(tmp_path):
    files = []
    for name, times in {"a": [0.0, 0.05, 0.1], "b": [0.0, 0.05, 0.1], "c": [0.0, 0.05, 0.04]}.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["t,pos,action", *(f"{t},1,0.5" for t in times)]))
        files.append(File(path, partial(csv_folder.read, path)))
    result = importing.write(tmp_path / "out", files, importing.Options())
    assert result.episodes == 2
    assert [each.why[:51] for each in result.rejected] == ["index 2: the time 0.04 s goes back after 0.05 s; on"]


WHOLE = {
    "empty npz": ("a.npz", lambda p: np.savez(p, observations=np.zeros((0, 2)), actions=np.zeros((0, 1)),
                                             terminals=np.zeros(0)), "is empty: it has no row"),
    "npz without ends": ("a.npz", lambda p: np.savez(p, observations=np.zeros((3, 2)), actions=np.zeros((3, 1))),
                         "neither terminals nor timeouts"),
    "rows differ": ("a.npz", lambda p: np.savez(p, observations=np.zeros((3, 2)), actions=np.zeros((2, 1)),
                                                terminals=np.zeros(3)), "actions has shape"),
    "pickled": ("a.npz", lambda p: np.savez(p, observations=np.array([{}], object), actions=np.zeros((1, 1)),
                                            terminals=np.zeros(1)), "no plain array"),
    "empty hdf5": ("a.hdf5", lambda p: h5py.File(p, "w").create_group("data").file.close(), "it has no demonstration"),
    "no data": ("a.hdf5", lambda p: h5py.File(p, "w").close(), "has no 'data'; it has: nothing"),
    "no hdf5": ("a.hdf5", lambda p: p.write_bytes(b"text"), "no HDF5 file that can be read"),
    "empty folder": ("bag", lambda p: p.mkdir(), "is of no format that is read"),
    "not there": ("a.mcap", lambda p: None, "is not there"),
}


@pytest.mark.parametrize(("name", "make", "says"), WHOLE.values(), ids=WHOLE)
def test_a_file_of_which_nothing_can_be_read_says_why(tmp_path, name, make, says):
    path = tmp_path / name
    make(path)
    with pytest.raises((DataError, ValueError), match=says):
        kind = kinds.kind_of(path)
        list(kinds.READERS[kind](path, rate_hz=20.0).episodes)


def test_a_truncated_file_is_called_truncated(tmp_path):
    path = tmp_path / "a.hdf5"
    robomimic.write(path, ARM, [episode(k) for k in range(3)])
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match="truncated"):
        kinds.kind_of(path)
    np.savez(tmp_path / "a.npz", observations=np.zeros((3, 2)))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-60])
    with pytest.raises(DataError, match="is truncated"):
        kinds.kind_of(tmp_path / "a.npz")


def test_no_good_episode_is_an_error_and_leaves_no_set(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, observations=np.full((3, 2), np.nan), actions=np.zeros((3, 1)), terminals=np.array([0, 0, 1]))
    with pytest.raises(DataError, match="no episode is imported.*episode 0 .rows 0 to 2.: index 0: observation is nan"):
        importing.write(tmp_path / "out", [File(path, lambda: flat_npz.read(path, rate_hz=10.0))], importing.Options())
    assert not (tmp_path / "out").exists()


def bag_of(tmp_path, edits=None, **options):
    """The episodes of a bag of 3 s, and what was left out."""
    path = recorded.write(tmp_path / "bag", 3.0, {"states": 100.0, "commands": 25.0, "pictures": 30.0}, edits)
    robot, topics = recorded.robot_and_topics()
    align = Alignment(25.0, **options)
    source = rosbag.Source(robot, topics, align, cameras={"rgb": recorded.CAMERA}, signals=("joint_pos", "rgb"))
    return list(rosbag.read(path, source).episodes)


def lost(first, last):
    """Messages from ``first`` to ``last`` s are not there."""
    return lambda k, t, message: None if first < t < last else message


def spoiled(first, last):
    """A joint of theirs is NaN."""
    def edit(k, t, message):
        if first < t < last:
            message.position = np.full(7, np.nan)
        return message
    return edit


@pytest.mark.parametrize("kind", ("states", "commands", "pictures"))
def test_a_gap_splits_an_episode_and_nothing_is_made_up_across_it(tmp_path, kind):
    parts = bag_of(tmp_path, {kind: lost(1.0, 1.5)})
    assert [each.info["part"] for each in parts] == [0, 1]
    assert all(0.9 < each.steps / 25.0 < 1.6 for each in parts)
    begin = parts[1].info["begin_s"]
    assert 1.39 < begin < 1.56
    np.testing.assert_allclose(parts[1].signals["joint_pos"][0], recorded.joints(begin + 0.001), atol=2e-4)


@pytest.mark.parametrize(("edits", "says"), (
    ({"states": lost(1.0, 1.5)}, r"/franka/joint_states, index \d+: no sample near 1\.0\d* s"),
    ({"states": spoiled(1.0, 1.5)}, "message 1.*: JointState: position of joint 'fr3_joint1' is nan"),
    ({"pictures": lost(1.0, 1.5)}, r"/camera/image_raw/compressed, index 2\d: no sample near"),
), ids=("states", "NaN", "missing frames"))
def test_a_gap_refuses_an_episode_if_that_is_asked_for(tmp_path, edits, says):
    (found,) = bag_of(tmp_path, edits, gaps="refuse")
    assert re.search(says, found.why) and "the whole bag" in found.where


def test_times_that_go_back_are_late_and_a_clock_that_was_set_is_refused(tmp_path):
    def swapped(by):
        def edit(k, t, message):
            if 1.0 < t < 1.02:
                message.header.stamp.sec -= by
                message.header.stamp.nanosec = 0 if not by else message.header.stamp.nanosec
            return message
        return edit

    (found,) = bag_of(tmp_path, {"states": swapped(0)})
    assert found.info["left_out"] == {"/franka/joint_states": {"late": 1, "refused": 0}}
    robot, topics = recorded.robot_and_topics()
    path = recorded.write(tmp_path / "set", 3.0, {"states": 100.0, "commands": 25.0}, {"states": swapped(5)})
    with pytest.raises(DataError, match=r"joint_states, message 101: its time goes back by 4.99 s: a clock was set"):
        rosbag.read(path, rosbag.Source(robot, topics, Alignment(25.0)))


def test_a_picture_that_cannot_be_decoded_leaves_its_episode_out(tmp_path):
    def cut(k, t, message):
        if k == 40:
            message.data = message.data[:20]
        return message

    path = recorded.write(tmp_path / "bag", 3.0, {"states": 100.0, "commands": 25.0, "pictures": 25.0},
                          {"pictures": cut})
    windows = tmp_path / "times.csv"
    windows.write_text("begin,end\n0,1\n1.2,2.8,push it\n")
    robot, topics = recorded.robot_and_topics()
    source = rosbag.Source(robot, topics, Alignment(25.0), cameras={"rgb": recorded.CAMERA}, episodes=str(windows))
    result = importing.write(tmp_path / "out", [File(path, lambda: rosbag.read(path, source), False)],
                             importing.Options())
    assert result.episodes == 1 and "message 40: CompressedImage: its 20 bytes" in result.rejected[0].why


def test_a_bag_of_another_robot_says_what_it_has(tmp_path):
    path = recorded.write(tmp_path / "bag", 1.0, {"states": 100.0, "commands": 25.0})
    robot = load_robot("crazyflie")
    with pytest.raises(DataError, match="no message on .*; its topics: .*/franka/joint_states"):
        rosbag.read(path, rosbag.Source(robot, load_interface(robot), Alignment(25.0)))


def test_a_bag_that_was_cut_is_read_up_to_there(tmp_path):
    path = recorded.write(tmp_path / "bag", 3.0, {"states": 100.0, "commands": 25.0})
    file = next(path.glob("*.mcap"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    robot, topics = recorded.robot_and_topics()
    try:
        reading = rosbag.read(file, rosbag.Source(robot, topics, Alignment(25.0)))
    except DataError as error:  # of a bag of one chunk nothing is left
        assert "cannot be read" in str(error) or "no message" in str(error)
    else:
        assert "is incomplete" in reading.notes[0]


def test_json_in_a_file_is_bounded(tmp_path):
    path = tmp_path / "a.hdf5"
    robomimic.write(path, ARM, [episode(0)])
    with h5py.File(path, "a") as file:
        file["data"].attrs["env_args"] = '{"a":' * 40 + "1" + "}" * 40
        del file["data"].attrs["temporeal"]
    with pytest.raises(ValueError, match="nested too deeply"):
        robomimic.read(path)
    with h5py.File(path, "a") as file:
        file["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 1e9}})
    with pytest.raises(DataError, match="give --rate HZ"):
        robomimic.read(path)
