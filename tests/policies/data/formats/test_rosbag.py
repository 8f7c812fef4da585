"""Bags of a robot become episodes on the grid of the control rate."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.policies.data.formats import recorded

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats import importing, rosbag
from temporeal.policies.data.formats.bags.alignment import Alignment
from temporeal.policies.data.formats.bags.topics import alike
from temporeal.policies.data.formats.found import strict
from temporeal.policies.data.formats.importing import File
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.transports import messages

LATE = 0.001  # s, from a stamp to the receipt of `recorded`; times of a bag count from its first receipt


def episodes(path, rate=25.0, **options):
    robot, topics = recorded.robot_and_topics()
    return list(strict(rosbag.read(path, rosbag.Source(robot, topics, Alignment(rate), **options)).episodes))


def test_states_are_interpolated_and_commands_paired_one_to_one(tmp_path):
    path = recorded.write(tmp_path / "bag", 2.0, {"states": 110.0, "commands": 25.0})
    (found,) = episodes(path)
    times = found.info["begin_s"] + LATE + np.arange(found.samples) / 25.0
    assert found.samples == found.steps + 1 and found.steps >= 48
    np.testing.assert_allclose(found.signals["joint_pos"], recorded.joints(times), atol=2e-5)
    np.testing.assert_allclose(found.signals["joint_vel"], 0.3 * np.cos(times[:, None] + np.arange(7)), atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(found.signals["grip_quat_w"], axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(found.action, recorded.joints(times[:-1] - LATE + 0.1), atol=1e-6)


def test_jitter_of_commands_does_not_shift_them_by_a_step(tmp_path):
    robot, topics = recorded.robot_and_topics()
    path, rng = recorded.write(tmp_path / "plain", 2.0, {"states": 100.0, "commands": 25.0}), np.random.default_rng(0)
    bag = Bag(tmp_path / "jitter")
    command = topics.commands["joint_pos_cmd"]
    bag.add(f"/{topics.states[0].topic}", topics.states[0].type)
    bag.add(f"/{command.topic}", command.type)
    rows = [(0.01 * k, f"/{topics.states[0].topic}", topics.states[0].type, recorded.joint_state(0.01 * k))
            for k in range(201)]
    rows += [(max(0.04 * k + rng.uniform(-0.012, 0.012) * (k > 0), 0.0), f"/{command.topic}", command.type,
              recorded.command(0.04 * k)) for k in range(51)]
    for at, topic, type, message in sorted(rows, key=lambda row: row[0]):
        bag.write(topic, type, recorded.START_NS + round(1e9 * (at + LATE)), messages.encode(type, message))
    bag.close()
    (plain,), (found,) = episodes(path), episodes(tmp_path / "jitter")
    steps = min(plain.steps, found.steps)
    np.testing.assert_allclose(found.action[:steps], plain.action[:steps], atol=1e-6)


def test_pictures_are_the_nearest_and_survive_as_video(tmp_path):
    path = recorded.write(tmp_path / "bag", 2.0, {"states": 100.0, "commands": 25.0, "pictures": 30.0})
    robot, topics = recorded.robot_and_topics()
    source = rosbag.Source(robot, topics, Alignment(25.0), cameras={"rgb": recorded.CAMERA}, signals=("joint_pos",),
                           size=(32, 48))
    result = importing.write(tmp_path / "out", [File(path, lambda: rosbag.read(path, source), False)],
                             importing.Options(language="push"))
    data = Dataset.open(tmp_path / "out")
    assert result.episodes == 1 and data.records[0].language == "push" and data.records[0].success is None
    found = data.episode(0)
    times = found.info["begin_s"] + LATE + np.arange(found.samples) / 25.0
    assert found.signals["rgb"].shape[1:] == (32, 48, 3)
    shown = found.signals["rgb"][:, 16, 24].astype(int).mean(axis=1)
    assert np.abs(shown - np.round(times * 30)).max() <= 4  # the grey value is the picture's number; coding is lossy
    told = data.interface.about["alignment"]
    assert told["signals"] == {"joint_pos": "linear", "rgb": "nearest"} and "middle of the step" in told["action"]


def test_two_drivers_on_one_topic_are_put_together(tmp_path):
    def without_the_last(k, t, message):
        keep = slice(0, 4) if k % 2 else slice(4, 7)
        for name in ("name", "position", "velocity", "effort"):
            setattr(message, name, getattr(message, name)[keep])
        return message

    path = recorded.write(tmp_path / "bag", 2.0, {"states": 200.0, "commands": 25.0}, {"states": without_the_last})
    (found,) = episodes(path, signals=("joint_pos",))
    times = found.info["begin_s"] + LATE + np.arange(found.samples) / 25.0
    np.testing.assert_allclose(found.signals["joint_pos"], recorded.joints(times), atol=4e-3)


def test_a_field_that_the_driver_leaves_empty_is_not_read_and_said(tmp_path):
    def without_effort(k, t, message):
        message.effort = np.zeros(0)
        return message

    path = recorded.write(tmp_path / "bag", 1.0, {"states": 100.0, "commands": 25.0}, {"states": without_effort})
    robot, topics = recorded.robot_and_topics()
    reading = rosbag.read(path, rosbag.Source(robot, topics, Alignment(25.0)))
    assert "joint_torque" not in reading.interface.signals and "joint_pos" in reading.interface.signals
    assert reading.notes == ("joint_torque is not read: JointState has 7 names and 0 values of effort",)
    with pytest.raises(DataError, match="signal joint_torque: JointState has 7 names and 0 values of effort; read can"):
        rosbag.read(path, rosbag.Source(robot, topics, Alignment(25.0), signals=("joint_torque",)))


def test_episodes_by_given_times_each_with_its_instruction(tmp_path):
    path = recorded.write(tmp_path / "bag", 3.0, {"states": 100.0, "commands": 25.0})
    times = tmp_path / "times.csv"
    times.write_text("begin,end,instruction\n0.5,1.5,open it\n2.0,2.9\n")
    first, second = episodes(path, episodes=str(times), language="push")
    assert (first.language, second.language) == ("open it", "push")
    assert 0.5 <= first.info["begin_s"] < 0.54 and first.steps == 24 and second.info["line"] == 3
    times.write_text("1.5,0.5\n")
    with pytest.raises(DataError, match="line 1: an episode from 1.5 to 0.5 s; 0 <= begin < end"):
        episodes(path, episodes=str(times))


def test_clocks_that_nothing_relates_are_refused_and_the_receipts_can_be_taken(tmp_path):
    def simulated(k, t, message):
        message.header.stamp.sec -= 1_600_000_000
        return message

    path = recorded.write(tmp_path / "bag", 2.0, {"states": 100.0, "commands": 25.0}, {"states": simulated})
    with pytest.raises(DataError, match="clocks that nothing relates.*--clock receipt"):
        episodes(path)
    (found,) = episodes(path, receipt=True)
    assert found.steps >= 48


def test_a_camera_whose_clock_differs_is_refused_as_a_state_is(tmp_path):
    def late(k, t, message):
        message.header.stamp.sec -= 4
        return message

    path = recorded.write(tmp_path / "bag", 6.0, {"states": 50.0, "commands": 25.0, "pictures": 10.0},
                          {"pictures": late})
    with pytest.raises(DataError, match="clocks that nothing relates.*camera.*4 s before it"):
        episodes(path, cameras={"rgb": recorded.CAMERA})


@pytest.mark.parametrize("encoding", ("rgb8", "bgr8"))
def test_a_raw_camera_keeps_every_bit_in_a_lossless_set(tmp_path, encoding):
    path = recorded.write(tmp_path / "bag", 1.0, {"states": 100.0, "commands": 25.0, "raw": 25.0},
                          options={"encoding": encoding})
    robot, topics = recorded.robot_and_topics()
    source = rosbag.Source(robot, topics, Alignment(25.0), cameras={"rgb": recorded.RAW}, signals=("joint_pos",))
    importing.write(tmp_path / "out", [File(path, lambda: rosbag.read(path, source), False)],
                    importing.Options(pictures="lossless"))
    found = Dataset.open(tmp_path / "out").episode(0).signals["rgb"]
    assert [picture.tolist() for picture in found[:, 0, 0]] == [[k, 100, 200] for k in range(len(found))]


def test_a_bag_in_sqlite_is_read_as_one_in_mcap(tmp_path):
    from rosbags.rosbag2 import Reader, StoragePlugin, Writer

    path = recorded.write(tmp_path / "bag", 1.0, {"states": 100.0, "commands": 25.0})
    with Reader(path) as reader, Writer(tmp_path / "tables", version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        known = {each.id: writer.add_connection(each.topic, each.msgtype, typestore=messages.store())
                 for each in reader.connections}
        for connection, at, data in reader.messages():
            writer.write(known[connection.id], at, data)
    (one,), (other,) = episodes(path), episodes(tmp_path / "tables")
    assert np.array_equal(one.signals["joint_pos"], other.signals["joint_pos"])
    assert np.array_equal(one.action, other.action)


def test_missions_of_the_guard_are_episodes_and_its_verdicts_their_success(tmp_path):
    """Active from 0.5 to 1.5 s, and from 2.0 s to the end; the first satisfied its formula."""
    _, topics = recorded.robot_and_topics()
    command, bag = topics.commands["joint_pos_cmd"], Bag(tmp_path / "bag")
    kinds = {f"/r/{topics.states[0].topic}": topics.states[0].type, f"/r/{command.topic}": command.type,
             "/r/mission": "std_msgs/msg/Header", "/r/monitor/verdict": "std_msgs/msg/String"}
    for topic, type in kinds.items():
        bag.add(topic, type)
    rows = [(0.01 * k, f"/r/{topics.states[0].topic}", recorded.joint_state(0.01 * k)) for k in range(301)]
    rows += [(0.04 * k, f"/r/{command.topic}", recorded.command(0.04 * k)) for k in range(76)]
    for at, mode in ((0.1, "ready 1"), (0.5, "active 1"), (1.5, "finished 1"), (2.0, "active 2")):
        rows.append((at, "/r/mission", messages.header(recorded.START_NS, mode)))
    rows.append((1.4, "/r/monitor/verdict", messages.record("std_msgs/msg/String")(
        data=json.dumps({"flight": 1, "verdict": "satisfied"}))))
    for at, topic, message in sorted(rows, key=lambda row: row[0]):
        data = messages.encode(kinds[topic], message)
        bag.write(topic, kinds[topic], recorded.START_NS + round(1e9 * (at + LATE)), data)
    bag.close()
    first, second = episodes(tmp_path / "bag", namespace="/r", episodes="mission")
    assert (first.info["mission"], first.success, second.info["mission"], second.success) == (1, True, 2, None)
    assert 0.5 <= first.info["begin_s"] < 0.54 and 23 <= first.steps <= 25 and second.info["begin_s"] >= 2.0


def test_messages_of_other_joints_differ_from_the_first_whatever_their_length():
    def state(names: list[str], at: int) -> bytes:
        kind = messages.record("sensor_msgs/msg/JointState")
        numbers = np.full(len(names), float(at))
        return messages.encode("sensor_msgs/msg/JointState", kind(
            header=messages.header(at, "w"), name=names, position=numbers, velocity=numbers, effort=numbers))

    found = [state(names, at) for at, names in enumerate((["a", "b"], ["a", "b"], ["b", "a"], ["a"], ["a", "b"]))]
    first = messages.decode("sensor_msgs/msg/JointState", found[0])
    assert alike(found, first).tolist() == [True, True, False, False, True]
