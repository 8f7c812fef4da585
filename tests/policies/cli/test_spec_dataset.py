"""`temporeal spec` over a dataset: shares, clauses, times, one episode, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.policies.data.curation.constructed import FLIGHT, climb, climbs

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec

FORMULA = "F[0,1.2] (height > 0.9) & G[0,2] (height < 1.6)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Climbs to 0.5, 1.0, 1.9 and 2.2 m within 2.0, 2.2, 2.4 and 2.6 s."""
    path = tmp_path_factory.mktemp("spec") / "set"
    climbs(path, (0.5, 1.0, 1.9, 2.2))
    return str(path)


def test_check_says_which_episode_satisfies_which_clause(folder, capsys):
    assert main(["spec", "check", FORMULA, folder, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["clauses"][0]["verdicts"] == ["violated", "violated", "satisfied", "satisfied"]
    assert found["clauses"][1]["verdicts"] == ["satisfied", "satisfied", "satisfied", "violated"]
    assert found["verdicts"] == ["violated", "violated", "satisfied", "violated"]
    assert found["share"] == 0.25 and found["low"] == pytest.approx(0.0063, abs=1e-4)  # Clopper-Pearson, 1 of 4
    assert found["robustness"][0] == pytest.approx(0.5 * 1.2 / 2.0 - 0.9, abs=1e-6)
    assert found["decided_s"] is None
    assert main(["spec", "check", "G[0,1] (height >= 0)", folder]) == 0


def test_monitor_says_from_when(folder, capsys):
    assert main(["spec", "monitor", FORMULA, folder, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    # 1.9 m in 2.4 s: above 0.9 m after 1.137 s; 2.2 m in 2.6 s: above 1.6 m after 1.89 s
    assert found["clauses"][0]["decided_s"] == pytest.approx([1.2, 1.2, 1.2, 1.1])
    assert found["clauses"][1]["decided_s"] == pytest.approx([2.0, 2.0, 2.0, 1.9])
    assert found["decided_s"] == pytest.approx([1.2, 1.2, 2.0, 1.9])
    assert main(["spec", "monitor", FORMULA, folder]) == 1
    told = capsys.readouterr().out
    assert "4 episodes, satisfied by 1 of 4: 25.0 % [0.6, 80.6]" in told and "violated by episodes 0, 1, 3" in told


def test_an_episode_that_is_too_short_is_undecided_with_partial(folder, capsys):
    assert main(["spec", "check", "G[0,2.3] (height < 9)", folder]) == 0
    assert "2 episodes end before the formula's horizon" in capsys.readouterr().out
    assert main(["spec", "check", "G[0,2.3] (height < 9)", folder, "--partial"]) == 2
    assert "undecided in episodes 0, 1" in capsys.readouterr().out


def test_one_episode_is_a_trace(folder, capsys, tmp_path):
    assert main(["spec", "explain", FORMULA, folder, "--episode", "3"]) == 1
    assert "height < 1.6" in capsys.readouterr().out
    assert main(["spec", "plot", FORMULA, folder, "--episode", "2", "-o", str(tmp_path / "p.svg")]) == 0
    assert (tmp_path / "p.svg").stat().st_size > 1000
    assert main(["spec", "monitor", "G[0,2] (mission_time < 9)", folder, "--episode", "0", "--json"]) == 0


def test_truth_judges_by_what_was_true(tmp_path, capsys):
    face = replace(FLIGHT, signals={**FLIGHT.signals, "true_height": SignalSpec("true_height", (), "m", "w")})
    episode = climb(1.0)
    wrong = {**episode.signals, "true_height": episode.signals["height"], "height": episode.signals["height"] + 5}
    with DatasetWriter(tmp_path / "set", face) as writer:
        writer.add(replace(episode, signals=wrong))
    assert main(["spec", "check", "G[0,2] (height < 2)", str(tmp_path / "set")]) == 1
    assert main(["spec", "check", "G[0,2] (height < 2)", str(tmp_path / "set"), "--truth"]) == 0
    assert main(["spec", "check", "G[0,2] (height < 2)", "--truth"]) == 2
    assert "--truth is for a dataset" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (["explain", FORMULA], "one episode by --episode N"), (["check", FORMULA, "--dt", "0.1"], "--dt is for a trace"),
    (["check", FORMULA, "--episode", "9"], "there is no episode 9; it has 4"),
    (["check", "G[0,1] (speed < 1)"], "unknown signal 'speed'"),
    (["check", "G[0,0.05] (height < 1)"], "a sample each 0.1 s"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(folder, words, told, capsys):
    assert main(["spec", words[0], words[1], folder, *words[2:]]) == 2
    assert told in capsys.readouterr().err


def test_episode_is_for_a_dataset(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("t,x\n0,1\n1,2\n")
    assert main(["spec", "check", "x > 0", str(tmp_path / "a.csv"), "--episode", "0"]) == 2
    assert "--episode is for a dataset" in capsys.readouterr().err
