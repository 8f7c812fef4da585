"""Studies: trials go on where they were stopped, rows are judged by seeds, what is kept says where it comes from."""

import json

import pytest

from temporeal_benchmarks import runner
from temporeal_benchmarks.data import d3rlpy_study, offline_study, studies
from temporeal_benchmarks.measurements import data
from temporeal_benchmarks.parts import Parts
from temporeal_benchmarks.results import runs_of


def trials(gain, seeds=3):
    """Of the offline study: iql gains ``gain`` over cloning's 0.4 on medium reach."""
    found = {}
    for seed in range(1, seeds + 1):
        found |= {f"reach/medium/cloning/{seed}": {"success": 0.4}, f"reach/medium/iql/{seed}": {"success": 0.4 + gain}}
    return found


def rows(found):
    return {row.name: row for row in offline_study.judged(found)}


@pytest.mark.parametrize(("gain", "met"), [(0.25, True), (0.15, False)])
def test_a_gain_is_judged_over_all_seeds(gain, met):
    row = rows(trials(gain))["data.offline.reach.medium.gain"]
    assert row.value == pytest.approx(gain) and row.ok is met


def test_a_gain_of_fewer_seeds_is_not_measured():
    row = rows(trials(0.25, seeds=2))["data.offline.reach.medium.gain"]
    assert row.value is None and row.ok is False and "2 of 3 seeds" in row.peer


def test_a_study_has_each_trial_once(tmp_path, monkeypatch):
    asked = []

    def learned(out, cell, updates):
        asked.append(cell.name)
        return {"success": 0.5, "data": 0.5, "cpu_seconds": 1.0}

    monkeypatch.setattr(offline_study, "learned", learned)
    for _ in range(2):
        offline_study.study(tmp_path, ["reach"], ["cloning"], seeds=2)
    assert asked == [f"reach/{quality}/cloning/{seed}" for seed in (1, 2) for quality in ("medium", "mixed")]


def test_a_study_is_measured_where_it_is_named_and_kept_with_its_trials(tmp_path, monkeypatch):
    def study(out):
        for name, found in trials(0.3).items():
            studies.add(out, name, found)

    monkeypatch.setattr(offline_study, "study", study)
    options = {"parts": ["offline-study"]}
    runner.measure("data", False, tmp_path, options, "temporeal bench data --parts offline-study", quiet=True)
    (tmp_path / "results").mkdir()
    file = runner.keep("data", tmp_path, options, tmp_path / "results")
    assert file.name == "data-offline-study.json"
    (run,) = runs_of("data", tmp_path / "results")
    assert run.command == "temporeal bench data --parts offline-study"
    assert {row.name: row for row in run.rows}["data.offline.reach.medium.gain"].ok is True
    kept = json.loads(file.read_text())["trials"]
    assert len(kept) == 6 and all(trial["revision"] and trial["date"] for trial in kept)


def test_a_study_that_is_not_named_is_only_read(tmp_path, monkeypatch):
    monkeypatch.setattr(Parts, "names", ("offline-study",))
    monkeypatch.setattr(offline_study, "study", lambda out: pytest.fail("measured"))
    (row,) = [row for row in data.run(False, out=tmp_path) if row.name == "data.offline.reach.medium.gain"]
    assert row.ok is False and "temporeal bench data --parts offline-study" in row.peer
    assert data.STUDY({"parts": ["offline-study", "ope"]}) is None and data.STUDY({"parts": None}) is None


def test_returns_within_the_tolerance_are_not_worse():
    found = {f"reach/iql/{seed}": {"ours": 9.8, "d3rlpy": 10.0, "data": 5.0} for seed in (1, 2, 3)}
    assert d3rlpy_study.of_algorithm(found, "reach", "iql").ok is True
    found["reach/iql/1"] = {"ours": 8.0, "d3rlpy": 10.0, "data": 5.0}
    assert d3rlpy_study.of_algorithm(found, "reach", "iql").ok is False
