"""Each kind of damage is named by episode and index; quarantine keeps the good episodes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, SEEING, assert_same, episode, written

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.quarantine import quarantine
from temporeal.policies.data.episodes.writer import DatasetWriter

ROW = 8  # of the file: sample 2 of episode 1, which begins at sample 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three episodes in one file, one in another."""
    folder = tmp_path_factory.mktemp("whole") / "set"
    written(folder, 3, SEEING)
    with DatasetWriter(folder, SEEING, append=True) as writer:
        writer.add(episode(3, SEEING))
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(whole, tmp_path / "set")


def rewritten(folder, change, file="file-000"):
    """Change the rows of a data file."""
    path = folder / f"data/chunk-000/{file}.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def at(column, value, row=ROW):
    def change(rows):
        if isinstance(value, tuple):
            rows[row][column][value[0]] = value[1]
        else:
            rows[row][column] = value
    return change


def later(rows):
    for row in rows[ROW:13]:
        row["timestamp"] += 1.0


def slower(rows):
    for row in rows[6:13]:
        row["timestamp"] *= 2.0


@pytest.mark.parametrize("change, index, said", [
    (at("observation.height", float("nan")), 2, "observation.height, component 0, is nan"),
    (at("action", (4, float("inf"))), 2, "action, component 4, is inf"),
    (at("timestamp", 0.0), 2, "time goes back, from 0.05 s to 0 s"),
    (later, 2, "a gap of 1.05 s"), (slower, None, "its samples come at 10 Hz, the set's at 20 Hz"),
    (at("observation.height", 0.25), None, "the checksum differs"), (at("episode_index", 5), 2, "episode_index is 5"),
    (at("observation.height", None), 2, "a value is missing"),
    (at("observation.grid", [[1, 2, 3]]), 2, "1 items in dimension 0"),
])
def test_damaged_values_are_named(folder, change, index, said):
    rewritten(folder, change)
    found = [one for one in check(folder) if said in one.what]
    assert [(one.episode, one.index) for one in found] == [(1, index)]
    assert {one.episode for one in check(folder)} == {1}
    assert f"{folder}, episode 1" in str(found[0])
    quarantine(folder, check(folder))
    assert check(folder) == [] and Dataset.open(folder).episodes == 3


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("file, damage, episodes, said", [
    ("data/chunk-000/file-000.parquet", cut, {0, 1, 2}, "is truncated: it has"),
    ("data/chunk-000/file-001.parquet", lambda path: path.unlink(), {3}, "is missing"),
    ("videos/observation.images.front/chunk-000/file-000.mp4", cut, {0, 1, 2}, ""),
    ("videos/observation.images.front/chunk-000/file-001.mp4", lambda path: path.unlink(), {3}, "is missing"),
])
def test_damaged_files_are_named_by_their_episodes(folder, file, damage, episodes, said):
    damage(folder / file)
    found = check(folder)
    assert {one.episode for one in found} == episodes and all(said in one.what for one in found)


def test_frames_that_are_missing_are_named(folder):
    meta = folder / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(meta)
    key = "videos/observation.images.front/"
    rows = table.to_pylist()
    rows[3] |= {f"{key}from_timestamp": 0.1, f"{key}sha256": ""}  # two frames fewer than samples
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), meta)
    [one] = check(folder)
    assert one.episode == 3 and "frame 9 is missing; 9 from 2 on are needed" in one.what


def test_quarantine_keeps_the_good_ones(folder, capsys):
    rewritten(folder, at("observation.height", float("nan")))
    (folder / "data/chunk-000/file-001.parquet").unlink()
    assert main(["data", "check", str(folder)]) == 1
    assert "episode 1, index 2: observation.height, component 0, is nan" in capsys.readouterr().out
    assert main(["data", "check", str(folder), "--quarantine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] == [1, 3] and told["quarantine"] == str(folder / "quarantine/000")
    data = Dataset.open(folder)
    for k, number in enumerate((0, 2)):
        assert_same(data.episode(k), episode(number, SEEING), near=4)
    np.testing.assert_array_equal(data.column("index"), np.arange(data.samples))
    assert main(["data", "check", str(folder)]) == 0
    report = json.loads((folder / "quarantine/000/report.json").read_text())
    assert [one["info"]["seed"] for one in report["episodes"]] == [1, 3]
    with DatasetWriter(folder, SEEING, append=True) as writer:
        writer.add(episode(9, SEEING))
    assert check(folder) == []


def test_an_empty_set_is_named(tmp_path):
    with DatasetWriter(tmp_path / "set", ARM):
        pass
    [one] = check(tmp_path / "set")
    assert one.kind == "empty" and str(one) == f"{tmp_path / 'set'}: there is no episode"


def test_info_says_what_is_there(folder, capsys):
    assert main(["data", "info", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["episodes"], told["robot"], told["digest"]) == (4, "arm", SEEING.digest())
    assert told["signals"]["front"]["column"] == "observation.images.front"
    assert main(["data", "info", str(folder)]) == 0
    assert "4 episodes" in capsys.readouterr().out
    assert main(["data", "infos", str(folder)]) == 2
    assert main(["data", "info", str(folder / "no")]) == 2
