"""`temporeal spec draw` and `check` of what it wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from temporeal.policies.cli.main import main


def test_what_is_drawn_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "set.jsonl"
    words = ["spec", "draw", "--robot", "linear", "--family", "unseen", "--count", "3", "--seed", "1", "-o", str(file)]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["formulas"] == 3 and sum(n["certified"] for n in said["counts"].values()) == 3
    assert main(["spec", "check", str(file)]) == 0
    assert "3 of 3 proofs hold" in capsys.readouterr().out
    assert main(words) == 2 and "--overwrite" in capsys.readouterr().err
    first = file.read_text()
    assert main([*words, "--overwrite"]) == 0 and file.read_text() == first
    assert "of family unseen for linear" in capsys.readouterr().out
    file.write_text(first.replace('"robustness": 0.', '"robustness": 1.'))
    assert main(["spec", "check", str(file), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert len(said["faults"]) == 3 and "is said" in said["faults"][0]["fault"] and said["own_settings"] == []
    file.write_text("".join(first.splitlines(keepends=True)[:3]))
    assert main(["spec", "check", str(file)]) == 1
    assert "the header counts 3 formulas, and 2 are there" in capsys.readouterr().out


def test_one_bad_formula_does_not_hide_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "set.jsonl"
    assert main(["spec", "draw", "--count", "2", "-o", str(file)]) == 0
    header, one, two = map(json.loads, file.read_text().splitlines())
    header["world"]["gap"] = 1.06
    one["formula"], two["robustness"] = "true", 9.0
    file.write_text("\n".join(map(json.dumps, (header, one, two))))
    capsys.readouterr()
    assert main(["spec", "check", str(file)]) == 1
    said = capsys.readouterr().out
    assert "index 0, " in said and "and 9 is said" in said and "0 of 2 proofs hold" in said
    assert "world: settings of the file's own" in said


def test_a_world_of_ones_own_is_held_against_its_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "configs/formulas/ant.yaml").read_text()
    for change, status, message in ((("dt: 0.05", "dt: 0.1"), 2, "own.yaml: dt is 0.1 s, and system 'ant' acts each"),
                                    (("speed: 0.6", "speed: 0.5"), 0, "glides below 0.5 m/s and 0.6 m/s^2")):
        Path("own.yaml").write_text(text.replace(*change))
        assert main(["spec", "draw", "--robot", "own.yaml", "--count", "1", "--out", "x.jsonl"]) == status
        told = capsys.readouterr()
        assert message in told.out + told.err
    assert main(["spec", "check", "x.jsonl"]) == 0 and message in capsys.readouterr().out


def test_a_set_goes_on_where_another_ended(tmp_path: Path) -> None:
    for name, first, count in (("whole", 0, 3), ("rest", 1, 2)):
        assert main(["spec", "draw", "--count", str(count), "--first", str(first), "--out",
                     str(tmp_path / f"{name}.jsonl")]) == 0
    whole, rest = ((tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("whole", "rest"))
    assert whole[2:] == rest[1:]


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["spec", "draw", "--robot", "unicycle", "--count", "2", "--out", "formulas.jsonl"]) == 0
    page = (Path(__file__).parents[3] / "docs/how-to/drawing-formulas.md").read_text()
    block, = re.findall(r"```python\n(.*?)```", page, re.S)
    scope: dict[str, Any] = {}
    exec(block, scope)
    assert scope["found"].index == 1
    assert scope["witness"]["base_pos_w"].shape == (scope["found"].horizon + 1, 3)
    assert scope["task"].episode_s == pytest.approx(scope["found"].horizon * 0.2)


@pytest.mark.parametrize("words, message", [
    (["--robot", "liner"], "did you mean 'linear'"), (["--family", "trian"], "did you mean 'train'"),
    (["--count", "0"], "--count is 0"), (["--seed", "-1"], "seed is -1"),
    (["--out", "x.json"], "a file of formulas is"), (["--out", "."], "a file of formulas is"),
    (["--families", "none.yaml"], "none.yaml"), (["--colour", "red"], "unrecognized"),
])
def test_bad_input_is_named(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["spec", "draw", "--out", "x.jsonl", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_set_is_checked_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(tmp_path / "none.jsonl")]) == 2
    assert "is not there" in capsys.readouterr().err
    assert main(["spec", "explain", "set.jsonl"]) == 2
    assert "temporeal spec check set.jsonl" in capsys.readouterr().err
    assert main(["spec", "check", "set.jsonl", "--dt", "0.1"]) == 2
    assert "no other option" in capsys.readouterr().err


def test_a_formula_that_is_in_two_sets_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for name, words in {"train": ["--first", "0"], "more": ["--first", "1"], "validation": ["--family", "validation"],
                        "seed": ["--seed", "1"]}.items():
        files[name] = str(tmp_path / f"{name}.jsonl")
        assert main(["spec", "draw", "--count", "2", *words, "--out", files[name]]) == 0
    assert main(["spec", "check", files["train"], files["validation"], files["seed"]]) == 0
    capsys.readouterr()
    assert main(["spec", "check", files["train"], files["more"], "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["files"]
    assert first["faults"] == [] and [wrong["index"] for wrong in second["faults"]] == [1]
    assert f"{files['train']}, index 1, too" in second["faults"][0]["fault"]
