"""`temporeal spec say` and `tell`: missions in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from temporeal.policies.cli.main import main

MAP = """
places:
  red: {ball: [1.0, 2.0, 1.0], radius: 0.4}
  goal: {ball: goal_pos_w, radius: 0.3}
  table: {box: [0, 0, 0.4], half: [0.6, 0.4, 0.4]}
"""
SENTENCE = "visit red, then goal within ten seconds, never over the table"
TOLD = "visit red within 30 s, then visit goal within 10 s, never go over table"


@pytest.fixture
def places(tmp_path: Path) -> Path:
    file = tmp_path / "places.yaml"
    file.write_text(MAP)
    return file


def test_a_mission_is_said_checked_and_told(places: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "say", "--places", str(places), SENTENCE]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"# {TOLD}\n# no time is said for red: within 30 s is assumed\n")
    mission = yaml.safe_load(printed)
    assert set(mission) == {"formula", "constants"} and mission["constants"]["table_half"] == [0.6, 0.4, 0.4]
    file = tmp_path / "mission.yaml"
    words = ["spec", "say", "--places", str(places), SENTENCE, "-o", str(file)]
    assert main([*words, "--json"]) == 0 and yaml.safe_load(file.read_text()) == mission
    said = json.loads(capsys.readouterr().out)
    assert said["sentence"] == TOLD and said["horizon_s"] == 40 and said["formula"] == mission["formula"].strip()
    assert main(words) == 2 and "--overwrite" in capsys.readouterr().err
    assert main(["spec", "tell", str(file)]) == 0 and capsys.readouterr().out == TOLD + "\n"
    assert main(["spec", "check", str(file)]) == 0 and "looks ahead  40 s" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    (["say", "--places", "PLACES", "visit rde"], "did you mean red"),
    (["say", "--places", "nowhere.yaml", "visit red"], "is not there"),
    (["say", "--places", "PLACES", "visit red", "-o", "mission.txt"], "a mission is .yaml"),
    (["tell", "F[0,5] (base_pos_w.z > 1)"], "no mission in words has this part"),
    (["tell", "F[0,5"], "too early"), (["tel", "x"], "did you mean 'tell'")])
def test_what_is_wrong_is_named(
    places: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spec", *(str(places) if word == "PLACES" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_a_broken_map_is_named_with_its_file(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places.write_text("places: {red: {ball: [0, 0, 1]}}")
    assert main(["spec", "say", "--places", str(places), "visit red"]) == 2
    assert f"{places}: place 'red': a place is" in capsys.readouterr().err
