"""The page of a dataset is one file, below 10 MB whatever the set, with every episode; pictures and rerun files."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.policies.data.curation.constructed import FLIGHT, climb, climbs

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.evaluate.report import dataset_page
from temporeal.policies.evaluate.report.dataset_page import MOST_BYTES, jpeg, small, spread, write_dataset_page
from temporeal.robots.signals import SignalSpec


def content(path):
    """What the page's script is given."""
    text = path.read_text()
    found = re.search(r'<script type="application/json" id="replay-data">(.*?)</script>', text, re.S)
    return text, json.loads(found[1])


def test_a_page_has_every_episode_with_figures_verdicts_and_signals(tmp_path, capsys):
    data = climbs(tmp_path / "set", language="</script><b>up")
    assert main(["data", "show", str(data.folder), "--formula", "F[0,2] (height > 0.8) & G[0,2] (height < 1.6)", "-o",
                 str(tmp_path / "p.html")]) == 0
    text, found = content(tmp_path / "p.html")
    assert "<b>up" not in text and not re.search(r'(src|href)="(?!#|data:)', text)
    rows = [episode["row"] for episode in found["episodes"]]
    assert [row["verdict"] for row in rows] == [-1, 1, 1, 1]
    assert [row["success"] for row in rows] == [False, True, True, True]
    assert rows[2]["clauses"] == [1, 1] and rows[3]["return"] == 2.0 and rows[1]["language"] == "</script><b>up"
    series = {one["name"]: one for one in found["episodes"][1]["series"]}
    assert set(series) == {*FLIGHT.signals, "ctbr_cmd"} and series["height"]["high"] == pytest.approx(1.0)
    assert found["episodes"][1]["end"] == pytest.approx(2.2)


def test_a_page_of_many_episodes_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_page, "SERIES_BYTES", 60_000)
    with DatasetWriter(tmp_path / "set", FLIGHT) as writer:
        writer.add_many(climb(1.0, 60) for _ in range(200))
    text, found = content(write_dataset_page(tmp_path / "p.html", Dataset.open(tmp_path / "set")))
    shown = [episode for episode in found["episodes"] if episode["series"]]
    assert len(found["episodes"]) == 200 and 10 < len(shown) < 60
    assert sum(len(json.dumps(episode["series"])) for episode in shown) < 70_000
    assert f"signals of {len(shown)} of 200 episodes" in text
    assert dataset_page.PICTURE_BYTES + 6_000_000 < MOST_BYTES


def test_pictures_are_thumbnails(tmp_path):
    face = replace(FLIGHT, signals={**FLIGHT.signals, "eye": SignalSpec("eye", (96, 128, 3), dtype="uint8")})
    frames = np.zeros((10, 96, 128, 3), np.uint8)
    frames[:, :, :, 0] = 200
    episode = climb(1.0, 10)
    with DatasetWriter(tmp_path / "set", face) as writer:
        writer.add(replace(episode, signals={**episode.signals, "eye": frames}))
    _, found = content(write_dataset_page(tmp_path / "p.html", Dataset.open(tmp_path / "set")))
    strip = found["episodes"][0]["strip"]
    assert len(strip) == 6 and all(one.startswith("data:image/jpeg;base64,/9j/") for one in strip)
    assert small(frames[0]).shape == (96, 128, 3) and small(np.zeros((721, 300, 3), np.uint8)).shape == (72, 30, 3)
    assert len(jpeg(small(frames[0]))) < 4000
    assert sorted(spread(11)) == list(range(11)) and spread(100)[:3] == [0, 10, 20]


def test_signals_are_drawn_and_recorded_for_rerun(tmp_path, capsys):
    folder = str(climbs(tmp_path / "set").folder)
    assert main(["data", "plot", folder, "--signals", "height,action", "-o", str(tmp_path / "p.png"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["panels"] == 5 and (tmp_path / "p.png").stat().st_size > 5000
    for words, told in ((["--signals", "sun"], "'sun' cannot be drawn"), (["--episodes", "9"], "numbers from 0 to 3")):
        assert main(["data", "plot", folder, *words, "-o", str(tmp_path / "q.png")]) == 2
        assert told in capsys.readouterr().err
    assert main(["data", "show", folder, "--episodes", "1"]) == 2
    pytest.importorskip("rerun")
    assert main(["data", "show", folder, "--rerun", str(tmp_path / "p.rrd"), "--episodes", "0,2"]) == 0
    assert (tmp_path / "p.rrd").stat().st_size > 1000
