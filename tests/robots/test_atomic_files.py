"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from temporeal.robots.atomic_files import staged, write_whole


def test_parts_are_written_one_after_the_other(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a", b"one", memoryview(b"two"))
    assert (tmp_path / "new" / "a").read_bytes() == b"onetwo"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_was_there_is_kept_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, stop: BaseException
) -> None:
    (tmp_path / "a").write_text("old")

    def fail(*_: object) -> None:
        raise stop

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(stop)):
        write_whole(tmp_path / "a", b"new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_that_was_there_is_kept_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    (tmp_path / "robot").mkdir()
    (tmp_path / "robot" / "spec.yaml").write_text("mine")
    rename = Path.rename

    def fail(path: Path, to: Path) -> Path:
        if (path / "new").exists():
            raise stop
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(type(stop)), staged(tmp_path / "robot") as folder:
        (folder / "new").write_text("new")
    assert [p.name for p in tmp_path.iterdir()] == ["robot"]
    assert (tmp_path / "robot" / "spec.yaml").read_text() == "mine"


def test_a_folder_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with staged(tmp_path / "robot") as folder:
            (folder / content).write_text(content)
    assert [p.name for p in tmp_path.iterdir()] == ["robot"]
    assert [p.name for p in (tmp_path / "robot").iterdir()] == ["two"]
