"""`temporeal data progress`: a model of progress is trained, judged by the episodes that it held out, and filters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.policies.toy_progress import walks

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.writer import DatasetWriter


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A set of walks on disk, and the run of a model that learned from it."""
    path, toy = tmp_path_factory.mktemp("progress"), walks()
    with DatasetWriter(path / "set", toy.interface) as writer:
        for e, (first, last) in enumerate(zip(toy.starts[:-1], toy.starts[1:])):
            writer.add(Episode({"place_w": toy.columns["place_w"][first:last]}, toy.columns["action"][first : last - 1],
                               success=toy.records[e].success))
    words = ["updates=200", "report_updates=200", "context=32", "batch=32", "stride=5", "learning_rate=0.003",
             "average=0.9"]
    assert main(["train", "algo=vlac", "task=hover", f"dataset={path / 'set'}", f"out={path / 'run'}",
                 *(f"algo.{word}" for word in words)]) == 0
    return str(path / "run"), str(path / "set")


def test_held_out_episodes_judge(folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "progress", *folders, "--json", "--out", str(tmp_path / "values.png")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["episode"] for one in found["episodes"]] == list(range(4, 40, 5))  # each fifth
    assert found["voc"] > 0.8 and found["auc"] > 0.9 and found["agreement"] is None and found["failures"] == 4
    assert (tmp_path / "values.png").stat().st_size > 1000
    assert main(["data", "progress", *folders, "--all", "--formula", "F[0,3] (hypot(place_w.x, place_w.y) < 0.1)"]) == 0
    text = capsys.readouterr().out
    assert "over 20 successes" in text and "against 20 failures" in text


def test_a_model_filters(folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, data = folders
    assert main(["data", "filter", data, "--model", run, "--final", ">=0.6", "--voc", ">=0.5", "--out",
                 str(tmp_path / "good"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == pytest.approx(20, abs=3)


def test_what_is_no_model_of_progress_is_refused(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    for words, said in ((["eval", run], "algo=vlac learned a model of progress, and no policy"),
                        (["data", "progress", data, data], "is not a run"),
                        (["data", "filter", data, "--voc", ">=1", "--out", "new"], "give the model"),
                        (["data", "filter", data, "--model", run, "--out", "new"], "give the model"),
                        (["data", "progress", run, data, "--out", "values.txt"], "a picture is .png"),
                        (["data", "progress", run, data, "--formula", "F[0,1] (nothing > 1)"], "nothing")):
        assert main(words) == 2, words
        assert said in capsys.readouterr().err
