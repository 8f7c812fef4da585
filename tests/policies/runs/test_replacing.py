"""What a verb may replace: nothing at a place that the user names, unless he says so."""

from pathlib import Path

import pytest

from temporeal.policies.cli.main import load_verb, main
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.replacing import REPORT, refuse_to_replace


def test_nothing_at_a_named_place_is_replaced_unless_somebody_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    refuse_to_replace(file, False)
    refuse_to_replace(None, False)
    file.write_text("mine")
    refuse_to_replace(file, True)
    with pytest.raises(BadInput, match=r"a\.png is there: --overwrite replaces it, another --png writes elsewhere"):
        refuse_to_replace(file, False, "--png")
    with pytest.raises(BadInput, match="is there"):
        refuse_to_replace(tmp_path, False)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="link is there"):
        refuse_to_replace(link, False)


def test_other_files_of_a_folder_are_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refuse_to_replace(tmp_path, False, files=REPORT)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(BadInput, match=r"report\.json is there"):
        refuse_to_replace(tmp_path, False, files=REPORT)


@pytest.mark.parametrize("words", [
    ["eval", "run", "--out"], ["report", "bag", "--out"], ["view", "task=hover", "--png"],
    ["robot", "view", "ant", "--png"],
    ["view", "task=hover", "--video"], ["demo", "--out"], ["spec", "plot", "x > 0", "f.csv", "-o"]], ids=str)
def test_every_verb_keeps_the_rule(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    there = Path("there.webm" if "--video" in words else "there.png" if words[-1] in ("--png", "-o") else "there")
    if there.suffix:
        there.write_text("mine")
    else:
        there.mkdir()
        (there / "report.html").write_text("mine")
    assert main([*words, str(there)]) == 2
    said = capsys.readouterr().err
    assert "is there: --overwrite replaces it" in said
    assert (there if there.suffix else there / "report.html").read_text() == "mine"


def test_a_demo_whose_settings_are_wrong_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    old = Path("outputs/demo/report.html")
    old.parent.mkdir(parents=True)
    old.write_text("mine")
    assert main(["demo", "algo.max_secnds=3"]) == 2
    assert "did you mean 'max_seconds'" in capsys.readouterr().err
    assert old.read_text() == "mine"


def test_every_verb_that_writes_where_it_is_told_has_the_option() -> None:
    for verb in ("train", "eval", "export", "report", "view", "demo", "spec"):
        assert "--overwrite" in load_verb(verb).parser().format_help(), verb
