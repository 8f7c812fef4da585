"""Sets that LeRobot 0.4.4 wrote (``tests/data/lerobot``) are read, not written; what their files do not say is said."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes import column_cache
from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.quarantine import quarantine
from temporeal.policies.data.episodes.writer import DatasetWriter

FIXTURES = Path(__file__).parents[3] / "data" / "lerobot"


@pytest.fixture(scope="module")
def given():
    with np.load(FIXTURES / "values.npz", allow_pickle=False) as values:
        return {key: values[key] for key in values.files}


@pytest.fixture(params=["image", "video"])
def folder(request, tmp_path):
    return shutil.copytree(FIXTURES / request.param, tmp_path / request.param)


def test_its_values_are_read(folder, given):
    data = Dataset.open(folder)
    assert (data.foreign, data.episodes, data.samples) == (True, 2, len(given["state"]))
    np.testing.assert_array_equal(data.column("state"), given["state"])
    np.testing.assert_array_equal(data.column("episode_index"), given["episode"])
    second = data.episode(1)
    np.testing.assert_array_equal(second.action, given["action"][given["episode"] == 1])
    assert (second.language, second.success, second.reward, second.steps) == ("task 1", None, None, second.samples)
    pictures = given["picture"][given["episode"] == 1]
    off = np.abs(second.signals["top"].astype(int) - pictures)
    assert off.max() == 0 if folder.name == "image" else off.mean() < 25  # its video is of quality 30
    np.testing.assert_array_equal(data.frames("top", [9, 1]), data.column("top")[[9, 1]])
    assert check(folder) == []


def test_what_cannot_be_known_is_said(folder, capsys):
    face = Dataset.open(folder).interface
    assert (face.robot, face.rate_hz, face.action.components[:1]) == ("so101", 10.0, ("joint_0",))
    assert face.signals["state"].unit == "?" and face.action.high == (math.inf,) * 6
    assert main(["data", "info", str(folder)]) == 0
    assert "unknown: units, frames and limits" in capsys.readouterr().out


def test_it_is_only_read(folder):
    face = Dataset.open(folder).interface
    with pytest.raises(DataError, match="written by another program .*only read"):
        DatasetWriter(folder, face, append=True)
    found = check(folder)
    with pytest.raises(DataError, match="only read"):
        quarantine(folder, found)


def test_a_set_that_may_not_be_written_keeps_its_columns_elsewhere(folder, tmp_path, monkeypatch, given):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(column_cache.os, "access", lambda path, mode: False)
    np.testing.assert_array_equal(Dataset.open(folder).column("action"), given["action"])
    assert not (folder / "cache").exists() and list((tmp_path / "home").rglob("action*.raw"))


@pytest.mark.parametrize("change, said", [
    ({"codebase_version": "v2.1"}, "says codebase_version 'v2.1'; v3.0 is read"), ({"fps": 0}, "says fps 0"),
    ({"features": {}}, "no feature 'action'"), ({"features": 3}, "has no features"),
    ({"features": {"action": {"dtype": "object", "shape": [6]}}}, "feature 'action' of info.json"),
    ({"features": {"action": {"dtype": "float32", "shape": [6]}}}, "needs a signal"),
])
def test_what_is_no_set_is_named(tmp_path, change, said):
    folder = shutil.copytree(FIXTURES / "image", tmp_path / "set")
    info = json.loads((folder / "meta/info.json").read_text())
    (folder / "meta/info.json").write_text(json.dumps({**info, **change}))
    with pytest.raises(DataError, match=said):
        Dataset.open(folder)


def test_pictures_of_another_size_are_refused_before_they_are_decoded(folder):
    info = json.loads((folder / "meta/info.json").read_text())
    info["features"]["observation.images.top"]["shape"] = [8, 16, 3]
    (folder / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match="16 x 16.*; 8 x 16 (is|are) needed"):
        Dataset.open(folder).column("top")


def test_records_that_do_not_fit_are_named(tmp_path):
    folder = shutil.copytree(FIXTURES / "image", tmp_path / "set")
    data = Dataset.open(folder)
    path = folder / "data/chunk-000/file-000.parquet"
    data.records = (data.records[0], replace(data.records[1], length=99))
    with pytest.raises(DataError, match=rf"episodes 0 to 1: {path} has 13 rows; 105 are needed"):
        data.column("state")
