"""An episode that is refused leaves nothing behind; a writer that is killed loses the open one only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, SEEING, assert_same, episode, written

from temporeal.policies.data.episodes import metadata
from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.writer import DatasetWriter


def spoilt(name: str, row: int, value: float):
    good = episode(1)
    values = np.array(good.signals[name], dtype=float)
    values[row] = value
    return replace(good, signals={**good.signals, name: values.astype(np.float32)})


@pytest.mark.parametrize("bad, said", [
    (lambda: spoilt("height", 3, np.nan), "episode 1, index 3: height is nan; finite"),
    (lambda: spoilt("joint_pos", 2, np.inf), "episode 1, index 2: joint_pos is inf"),
    (lambda: replace(episode(1), action=episode(1).action * 3), r"episode 1, index \d: action joint_vel, component \d"),
    (lambda: replace(episode(1), action=episode(1).action[:-1]), "episode 1 has 7 samples and 5 actions"),
    (lambda: replace(episode(1), policy_action=episode(1).action), r"policy_action has shape \(6, 7\); \(6, 3\)"),
    (lambda: replace(episode(1), signals={}), "episode 1: signal 'joint_pos' is missing"),
    (lambda: replace(episode(1), signals={**episode(1).signals, "odd": np.zeros(7)}), "'odd' is not in the interface"),
    (lambda: replace(episode(1), signals={**episode(1).signals, "grid": np.full((7, 2, 3), 2**40)}), "grid has values"),
    (lambda: replace(episode(1), signals={**episode(1).signals, "touch": np.zeros((7, 2))}), "touch has type float64"),
    (lambda: replace(episode(1), info={"what": object()}), "plain figures and words"),
])
def test_what_is_refused_is_named_and_not_written(tmp_path, bad, said):
    with DatasetWriter(tmp_path / "set", ARM) as writer:
        with pytest.raises(DataError, match=said):
            writer.add_many([episode(0), bad()])
        assert writer.episodes == 1
    assert check(tmp_path / "set") == []


def test_a_step_that_is_refused_leaves_the_episode_open(tmp_path):
    one = episode(0)
    with DatasetWriter(tmp_path / "set", ARM) as writer:
        writer.begin("go")
        for k in range(3):
            signals = {name: values[k] for name, values in one.signals.items()}
            with pytest.raises(DataError, match=f"episode 0, index {k}: height is nan"):
                writer.step({**signals, "height": np.nan}, one.action[k], one.policy_action[k])
            writer.step(signals, one.action[k], one.policy_action[k])
        with pytest.raises(DataError, match="given in every step or in none"):
            writer.step(signals, one.action[3])
        with pytest.raises(DataError, match="is open already"):
            writer.begin()
        writer.end(success=True)
        with pytest.raises(DataError, match="no episode is open"):
            writer.end()
    found = Dataset.open(tmp_path / "set").episode(0)
    assert (found.steps, found.samples, found.reward, found.success, found.language) == (3, 3, None, True, "go")


def test_an_episode_that_is_not_ended_is_dropped_and_said(tmp_path):
    with pytest.warns(UserWarning, match="episode 1 was not ended; its 1 steps are dropped"), DatasetWriter(
            tmp_path / "set", SEEING) as writer:
        writer.add(episode(0, SEEING))
        writer.begin()
        writer.step({name: values[0] for name, values in episode(1, SEEING).signals.items()}, episode(1).action[0])
    assert Dataset.open(tmp_path / "set").episodes == 1
    assert not list((tmp_path / "set").rglob(".file*"))


def test_one_writer_at_a_time(tmp_path):
    with DatasetWriter(tmp_path / "set", ARM) as writer:
        with pytest.raises(DataError, match="is being written by another process"):
            DatasetWriter(tmp_path / "set", ARM, append=True)
        writer.add(episode(0))
    with pytest.raises(DataError, match="is not empty"):
        DatasetWriter(tmp_path / "set", ARM)


def test_what_a_killed_writer_left_is_not_read_and_then_removed(tmp_path):
    data = written(tmp_path / "set", 2, SEEING)
    chunk = tmp_path / "set/data/chunk-000"
    (chunk / "file-001.parquet").write_bytes((chunk / "file-000.parquet").read_bytes())
    (tmp_path / "set/videos/observation.images.front/chunk-000/.file-001.mp4.77").write_bytes(b"cut")
    assert (data.refresh(), check(tmp_path / "set")) == (2, [])
    with pytest.warns(UserWarning, match="removed what a writer that was killed left .*file-001"):
        writer = DatasetWriter(tmp_path / "set", SEEING, append=True)
    with writer:
        writer.add(episode(2, SEEING))
    assert data.refresh() == 3
    assert_same(data.episode(2), episode(2, SEEING), near=4)
    assert check(tmp_path / "set") == []


def test_instructions_keep_their_numbers(tmp_path):
    written(tmp_path / "set", 3)
    with DatasetWriter(tmp_path / "set", ARM, append=True) as writer:
        writer.add(replace(episode(3), language="another"))
        writer.add(episode(4))
    data = Dataset.open(tmp_path / "set")
    np.testing.assert_array_equal(data.column("task_index")[data.starts[:-1]], [0, 1, 0, 2, 0])


def test_a_full_disk_loses_its_episode_and_no_other(tmp_path, monkeypatch):
    real, full = metadata.write_whole, []

    def write(path, content):
        if full and "episodes" in path.parts:
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(metadata, "write_whole", write)
    with DatasetWriter(tmp_path / "set", ARM) as writer:
        writer.add(episode(0))
        full.append(True)
        with pytest.raises(OSError, match="No space left"):
            writer.add_many([episode(1), episode(2)])
        full.clear()
        writer.add(episode(3))
    data = Dataset.open(tmp_path / "set")
    assert data.episodes == 2 and check(data.folder) == []
    assert_same(data.episode(1), episode(3))
