"""What was written is what is read, however it was written; columns are mapped, and never of another set."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, SEEING, assert_same, episode, written

from temporeal.policies.data.episodes import column_cache
from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> Dataset:
    """Six episodes in one file, one streamed, one with an action for each sample."""
    folder = tmp_path_factory.mktemp("arm") / "set"
    written(folder)
    with DatasetWriter(folder, ARM, append=True) as writer:
        stream(writer, episode(6))
        writer.add(episode(7, final=False))
    return Dataset.open(folder)


def stream(writer: DatasetWriter, one: Episode) -> None:
    writer.begin(one.language, one.info)
    for k in range(one.steps):
        writer.step({name: values[k] for name, values in one.signals.items()}, one.action[k],
                    one.policy_action[k] if one.policy_action is not None else None, one.reward[k])
    writer.end({name: values[-1] for name, values in one.signals.items()}, one.terminated, one.success)


def test_every_way_of_writing_gives_back_the_episode(arm):
    assert (arm.episodes, arm.samples) == (8, sum(record.length for record in arm.records))
    for k in range(7):
        assert_same(arm.episode(k), episode(k))
    assert_same(arm.episode(7), episode(7, final=False))
    assert arm.interface == ARM and arm.interface.digest() == ARM.digest()


def test_columns_are_the_episodes_one_after_the_other(arm):
    wanted = np.concatenate([episode(k, final=k != 7).signals["joint_pos"] for k in range(8)])
    np.testing.assert_array_equal(arm.column("joint_pos"), wanted)
    np.testing.assert_array_equal(arm.column("observation.joint_pos"), wanted)
    np.testing.assert_array_equal(arm.column("episode_index"), np.repeat(range(8), np.diff(arm.starts)))
    np.testing.assert_array_equal(arm.column("index"), np.arange(arm.samples))
    np.testing.assert_allclose(arm.column("timestamp"), arm.column("frame_index") / 20.0, rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(~arm.column("has_action")), arm.starts[1:8] - 1)
    assert not arm.column("joint_pos").flags.writeable
    with pytest.raises(DataError, match="no column 'joint_posn'; signals: joint_pos, height"):
        arm.column("joint_posn")


def test_statistics_are_those_of_all_samples(arm):
    told = json.loads((arm.folder / "meta/stats.json").read_text())["observation.joint_pos"]  # of two writers
    values = arm.column("joint_pos").astype(float)
    for name, of in (("mean", values.mean(0)), ("std", values.std(0)), ("min", values.min(0)), ("max", values.max(0))):
        np.testing.assert_allclose(told[name], of, rtol=1e-6, atol=1e-9)
    assert told["count"] == [arm.samples]


def test_a_reader_sees_what_is_appended_and_keeps_what_it_has(tmp_path):
    early = written(tmp_path / "set", 2)
    before = early.column("joint_pos")
    kept = before.copy()
    with DatasetWriter(tmp_path / "set", ARM, append=True) as writer:
        for k in (2, 3):
            writer.add(episode(k))
            assert early.refresh() == k + 1
            assert_same(early.episode(k), episode(k))
    np.testing.assert_array_equal(before, kept)
    np.testing.assert_array_equal(early.column("joint_pos")[: len(kept)], kept)
    assert len(list((tmp_path / "set/cache").glob("observation.joint_pos*.raw"))) == 1  # it grew


def test_the_cache_may_be_removed_at_any_time(tmp_path, monkeypatch):
    data = written(tmp_path / "set", 2)
    before = data.column("height").copy()
    shutil.rmtree(tmp_path / "set/cache")
    write_whole, removed = column_cache.write_whole, []

    def remove_once(path, content):
        if not removed:
            removed.append(shutil.rmtree(tmp_path / "set/cache"))
        write_whole(path, content)

    monkeypatch.setattr(column_cache, "write_whole", remove_once)
    np.testing.assert_array_equal(Dataset.open(tmp_path / "set").column("height"), before)
    assert removed


def test_a_changed_set_gives_no_old_columns(tmp_path):
    written(tmp_path / "a", 3).column("height")
    other = tmp_path / "b"
    with DatasetWriter(other, ARM) as writer:
        writer.add_many(episode(k) for k in (5, 6, 7))
    wanted = Dataset.open(other).column("height").copy()
    for part in ("data", "meta"):  # the cache of the old set stays
        shutil.rmtree(tmp_path / "a" / part)
        shutil.copytree(other / part, tmp_path / "a" / part)
    np.testing.assert_array_equal(Dataset.open(tmp_path / "a").column("height"), wanted)


def test_a_cache_that_was_handed_over_is_not_believed(tmp_path):
    right = written(tmp_path / "a", 3).column("height").copy()
    raw = next((tmp_path / "a/cache").glob("observation.height*.raw"))
    forged = bytes(len(raw.read_bytes()))
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copy2)
    (tmp_path / "b/cache" / raw.name).write_bytes(forged)
    np.testing.assert_array_equal(Dataset.open(tmp_path / "b").column("height"), right)


@pytest.mark.parametrize("pictures, near", [("h264", 4), ("lossless", 0), ("raw", 0)])
def test_pictures_by_every_way_of_keeping_them(tmp_path, pictures, near):
    data = written(tmp_path / "set", 3, SEEING, pictures=pictures)
    with DatasetWriter(tmp_path / "set", SEEING, append=True) as writer:
        stream(writer, episode(3, SEEING))
    data.refresh()
    for k in range(4):
        assert_same(data.episode(k), episode(k, SEEING), near)
    order = [20, 0, 5, 5, 1, data.samples - 1]  # of the first file two that are apart
    np.testing.assert_array_equal(data.frames("front", order), data.column("front")[order])
    assert data.column("front").shape == (data.samples, 32, 48, 3)


@pytest.mark.parametrize("pictures, rate", [("h264", 100 / 3), ("lossless", 29.97)])
def test_pictures_of_odd_sides_at_any_rate(tmp_path, pictures, rate):
    face = replace(SEEING, rate_hz=rate, signals={"eye": SignalSpec("eye", (17, 33, 3), dtype="uint8")})
    one = replace(episode(0), policy_action=None, signals={
        "eye": np.tile(np.arange(6, dtype=np.uint8)[:, None, None, None] * 40, (1, 17, 33, 3))})
    with DatasetWriter(tmp_path / "set", face, pictures=pictures) as writer:
        writer.add_many([one] * 40)
    data = Dataset.open(tmp_path / "set")
    assert check(data.folder) == []
    off = data.frames("eye", [237, 3]).astype(int) - one.signals["eye"][[3, 3]]
    assert np.abs(off).max() <= (2 if pictures == "h264" else 0)


def test_an_interface_that_differs_is_refused_by_name(tmp_path):
    written(tmp_path / "set", 1)
    other = replace(ARM, rate_hz=50.0, action=ActionSpec("joint_vel", (-2.0,) * 7, (2.0,) * 7, "rad/s"),
                    signals={**ARM.signals, "height": SignalSpec("height", (), "mm", "w")})
    with pytest.raises(DataError, match=r"rate_hz: 50.0 is needed, 20.0 is there; action low: .*; signal height, unit: "
                                        "'mm' is needed, 'm' is there"):
        DatasetWriter(tmp_path / "set", other, append=True)
    with DatasetWriter(tmp_path / "set", replace(ARM, simulator="mujoco 5"), append=True) as writer:
        assert writer.episodes == 1


def test_an_empty_set_can_be_read(tmp_path):
    with DatasetWriter(tmp_path / "set", ARM):
        data = Dataset.open(tmp_path / "set")
    assert (data.episodes, data.samples, data.column("joint_pos").shape) == (0, 0, (0, 7))
    with pytest.raises(DataError, match="no episode 0; it has 0"):
        data.episode(0)


def test_a_changed_interface_file_is_refused(tmp_path):
    written(tmp_path / "set", 1)
    path = tmp_path / "set/meta/temporeal.json"
    path.write_text(path.read_text().replace('"rad/s"', '"deg/s"'))
    with pytest.raises(DataError, match="the interface was changed after it was written"):
        Dataset.open(tmp_path / "set")


@pytest.mark.parametrize("key, template, said", [
    ("data_path", "../../secret.parquet", r"without '\.\.'"), ("data_path", "/etc/passwd", "inside the folder"),
    ("data_path", "data/{chunk_index.__class__}", "its fields may be"), ("data_path", 7, "a path's template")])
def test_templates_that_lead_elsewhere_are_refused(tmp_path, key, template, said):
    written(tmp_path / "set", 1)
    path = tmp_path / "set/meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: template}))
    with pytest.raises((DataError, ValueError), match=said):
        Dataset.open(tmp_path / "set").column("height")


def test_a_link_that_leads_elsewhere_is_refused(tmp_path):
    written(tmp_path / "set", 1)
    data = tmp_path / "set/data"
    data.rename(tmp_path / "outside")
    data.symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="leads out of"):
        Dataset.open(tmp_path / "set").column("height")


def test_many_small_episodes_are_few_files(tmp_path, monkeypatch):
    monkeypatch.setattr("temporeal.policies.data.episodes.writer.BATCH", 50)
    data = written(tmp_path / "set", 110)
    assert len(list((tmp_path / "set/data").rglob("*.parquet"))) == 3
    assert_same(data.episode(109), episode(109))
    assert pq.read_metadata(tmp_path / "set/data/chunk-000/file-000.parquet").num_rows == int(data.starts[50])
