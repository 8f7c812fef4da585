"""What learners refuse of a damaged set, by episode and index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.policies.data.test_views import episode, opened
from tests.policies.toy_demonstrations import forks

from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.learnable import require_sound, unusable
from temporeal.policies.data.views import flat_view, transitions
from temporeal.policies.training.chunks.windows import windows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two episodes of four samples."""
    return opened(tmp_path / "set", episode(4, 4, 0.0), episode(4, 4, 10.0)).folder


def spoilt(folder: Path, column: str, value: object, row: int = 2) -> Dataset:
    """The set with another ``value`` in a ``row`` of the last episode."""
    path = max(folder.glob("data/*/*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[row][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return Dataset.open(folder)


@pytest.mark.parametrize("column, value, said", [
    ("timestamp", 0.05, "index 2: time goes back"), ("timestamp", 0.23, "index 2: a gap"),
    ("episode_index", 0, "index 2: episode_index is 0; 1 is needed")])
def test_times_and_numbers_of_episodes_are_looked_at_before_learning(
    folder: Path, column: str, value: float, said: str
) -> None:
    require_sound(Dataset.open(folder))
    with pytest.raises(DataError, match=f"episode 1, {said}"):
        require_sound(spoilt(folder, column, value))


@pytest.mark.parametrize("column, value, said", [
    ("observation.height", float("nan"), "index 2: height, component 0, is nan"),
    ("observation.height", 1e30, "index 2: height, component 0, is 1e\\+30"),
    ("observation.joint_pos", [0.0, float("inf")], "index 2: joint_pos, component 1, is inf"),
    ("action", [float("nan"), 0.0], "index 2: action, component 0, is nan")])
def test_unusable_numbers_are_named_in_steps_and_in_windows(
    folder: Path, column: str, value: object, said: str
) -> None:
    data = spoilt(folder, column, value)
    with pytest.raises(DataError, match=f"episode 1, {said}"):
        transitions(data, flat_view(["joint_pos", "height"]))
    with pytest.raises(DataError, match="episode 1: command" if column == "action" else f"episode 1, {said}"):
        windows(data, (), 2)
    assert any((one.episode, one.index) == (1, 2) for one in check(folder))  # the advice is true


def test_bad_signals_of_windows_are_told_with_episode_and_index() -> None:
    data = forks(5)
    data.columns["place_w"][data.starts[3] + 2, 1] = 1e30
    with pytest.raises(DataError, match="episode 3, index 2: place_w, component 1, is 1e\\+30"):
        windows(data, (), 4)
    assert unusable(torch.tensor([[1.0, 2.0], [np.nan, 0.0]]), 1).tolist() == [False, True]


def test_a_set_that_lost_its_interface_is_found_and_not_learned_from(folder: Path) -> None:
    (folder / "meta/temporeal.json").unlink()
    [found] = [one for one in check(folder) if one.kind == "missing"]
    assert "meta/temporeal.json is missing" in found.what
    with pytest.raises(DataError, match="meta/temporeal.json is missing"):
        require_sound(Dataset.open(folder))


def test_two_rates_and_files_in_place_of_folders_are_refused(folder: Path) -> None:
    info = folder / "meta/info.json"
    info.write_text(info.read_text().replace('"fps": 10', '"fps": 50'))
    with pytest.raises(DataError, match="info.json says 50 samples per second, meta/temporeal.json says 10"):
        Dataset.open(folder)
    with pytest.raises(DataError, match="is a file; .*`temporeal data import` reads files"):
        Dataset.open(info)
