"""Checkpoints: whole or not at all, and never silently another one."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.training import checkpoint
from temporeal.policies.training.checkpoint import CheckpointError, file_of

STATE = {"weights": torch.arange(6.0).reshape(2, 3), "count": 3, "name": "x", "nested": [{"a": torch.tensor([True])}]}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.pt"
    checkpoint.save(path, STATE)
    got = checkpoint.load(path)
    assert torch.equal(got["weights"], STATE["weights"]) and got["count"] == 3
    assert torch.equal(got["nested"][0]["a"], torch.tensor([True]))
    assert [p.name for p in path.parent.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_names_the_one_before_it_and_is_not_replaced_by_it(tmp_path: Path, damage: str) -> None:
    good, bad = file_of(tmp_path, 7, 0, 1), file_of(tmp_path, 8, 0, 1)
    checkpoint.save(good, STATE)
    checkpoint.save(bad, STATE)
    raw = bytearray(bad.read_bytes())
    raw[len(raw) // 2] ^= 1
    bad.write_bytes({"cut": raw[: len(raw) // 2], "flipped": raw, "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=f"corrupt or cut short.*the one before it is {good}"):
        checkpoint.load(checkpoint.latest(tmp_path, 0, 1))


def test_a_damaged_only_file_says_that_there_is_no_other(tmp_path: Path) -> None:
    path = file_of(tmp_path, 1, 0, 1)
    path.write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match="there is no earlier one"):
        checkpoint.load(path)


def test_nothing_to_resume_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to resume"):
        checkpoint.latest(tmp_path, 0, 1)


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state\['env'\]\['rng'\] is a ndarray"):
        checkpoint.save(tmp_path / "a.pt", {"env": {"rng": np.zeros(3)}})


def test_a_full_disk_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        checkpoint.save(path, {"count": 4})
    assert checkpoint.load(path)["count"] == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_an_iteration_counts_when_all_processes_have_it(tmp_path: Path) -> None:
    for iteration, rank in ((5, 0), (5, 1), (6, 0)):
        checkpoint.save(file_of(tmp_path, iteration, rank, 2), STATE)
    assert checkpoint.latest(tmp_path, 1, 2) == file_of(tmp_path, 5, 1, 2)
    with pytest.raises(CheckpointError, match="written by \\[2\\] processes, this run has 1"):
        checkpoint.latest(tmp_path, 0, 1)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for iteration in range(1, 6):
        checkpoint.save(file_of(tmp_path, iteration, 0, 1), STATE)
    (tmp_path / f".{file_of(tmp_path, 3, 0, 1).name}.123").write_bytes(b"left by a kill")
    checkpoint.prune(tmp_path, 0, 1)
    assert sorted(tmp_path.iterdir()) == [file_of(tmp_path, 4, 0, 1), file_of(tmp_path, 5, 0, 1)]


def test_old_files_go_though_the_other_process_was_faster(tmp_path: Path) -> None:
    for iteration in range(1, 7):
        for rank in (0, 1):
            checkpoint.save(checkpoint.file_of(tmp_path, iteration, rank, 2), {"iteration": iteration})
        for rank in (0, 1):
            checkpoint.prune(tmp_path, rank, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        checkpoint.file_of(tmp_path, i, r, 2).name for i in (5, 6) for r in (0, 1))


def test_what_is_no_state_of_a_training_is_refused(tmp_path: Path) -> None:
    """Right to the last byte: the digest, which anybody can compute, is right too."""
    packed, other, listed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(dict(STATE), other)
    torch.save([1, 2], listed)
    with zipfile.ZipFile(other) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name) + bytes(1 << 20))
    for data, why in ((b"not an archive", "no ZIP archive"), (packed.getvalue(), "it is packed"),
                      (listed.getvalue(), "it holds a list")):
        file = tmp_path / "00000001.rank0of1.pt"
        file.write_bytes(data + hashlib.sha256(data).digest())
        with pytest.raises(CheckpointError, match=f"holds no state of a training: .*{why}.*What to do"):
            checkpoint.load(file)


def test_layers_that_the_weights_do_not_fill_are_refused_before_their_memory_is_taken() -> None:
    weights = {"a": torch.zeros(4, 8), "b": torch.zeros(8)}
    checkpoint.require_held("x", [4, 8], weights)
    for widths in ([4, 10**9], [40, 40], [0, 4], [4.0, 8]):
        with pytest.raises(CheckpointError, match="its 40 weights are not theirs"):
            checkpoint.require_held("x", widths, weights)  # type: ignore[arg-type]
