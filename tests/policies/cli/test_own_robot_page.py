"""The page "from a URDF to a deployment": its commands, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.settings.compose import compose

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "start" / "own-robot.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^temporeal .*", PAGE, re.MULTILINE)]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with the example's file, as a clone has it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_is_one_screen_of_at_most_eight_commands() -> None:
    assert len(COMMANDS) <= 8 and len(PAGE.splitlines()) <= 50
    assert [words[0] for words in COMMANDS] == [
        "robot", "robot", "train", "eval", "export", "deploy", "report", "doctor"]


def test_the_robot_is_written_checked_and_taken_by_the_task(here, capsys) -> None:
    assert main(COMMANDS[0]) == 0 and main(COMMANDS[1]) == 0
    assert capsys.readouterr().out.rstrip().endswith("ready")
    settings = compose([word for word in COMMANDS[2] if re.match(r"[\w.]+=", word)])
    assert settings["robot"]["name"] == "my_arm" and (here / "my_arm" / "ros.yaml").is_file()


@pytest.mark.slow
def test_the_page_as_it_stands(here, capfd) -> None:
    *steps, doctor = COMMANDS
    for words in steps:
        assert main(words) == 0, words
    assert "satisfied" in capfd.readouterr().out
    assert main(doctor) == 1  # no robot is there
