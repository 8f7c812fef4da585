"""Results that are kept: each file says what it must, the newest figure counts, the page is what the files say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from temporeal_benchmarks import results, results_page
from temporeal_benchmarks.results import RESULTS, Run, as_json, current, is_stale, runs_of
from temporeal_benchmarks.results_page import page, target_of, unmarked
from temporeal_benchmarks.rows import Row


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    results.age.cache_clear()
    yield
    results.age.cache_clear()


@pytest.mark.parametrize("file", sorted(path.name for path in RESULTS.glob("*.json")))
def test_each_file_says_how_its_figures_were_taken(file: str) -> None:
    text = (RESULTS / file).read_text()
    assert "/tmp" not in text and ": NaN" not in text
    said = json.loads(text)
    for run in said.get("runs", [said]):
        run = {"bench": said["bench"], **run}
        assert all(run.get(field) for field in results.FIELDS), file
        assert run["command"].startswith(f"temporeal bench {run['bench']}")
        names = [row["name"] for row in run["rows"]]
        assert len(set(names)) == len(names)
        assert results.HASH.match(run["revision"]) and "cpu" in run["machine"]


def run(date: str, *rows: Row, revision: str = "abcdef0", **more: Any) -> Run:
    return Run(**{"bench": "fake", "command": "temporeal bench fake", "revisions": (revision,), "date": date,
                  "machine": "a machine", "rows": rows, "note": "", "file": "fake.json", **more})


def test_the_newest_figure_that_was_measured_counts(tmp_path: Path) -> None:
    old = run("2026-01-01", Row("a", 1.0), Row("b", 2.0), Row("c", 3.0))
    new = run("2026-01-02", Row("a", 4.0), Row("b", None))
    found = current([new, old])
    assert {name: (row.value, source is new) for name, (row, source) in found.items()} == {
        "a": (4.0, True), "b": (2.0, False), "c": (3.0, False)}


def test_several_runs_in_a_file_are_sorted_by_date(tmp_path: Path) -> None:
    one = {"command": "c", "revision": "abcdef0", "machine": {"cpu": "x", "cores": 2}, "rows": []}
    (tmp_path / "fake.json").write_text(json.dumps({"bench": "fake", "runs": [
        {**one, "date": "2026-01-01"}, {**one, "date": "2026-01-03"}]}))
    (tmp_path / "other.json").write_text(json.dumps({**one, "bench": "fake", "date": "2026-01-02"}))
    assert [run.date[-2:] for run in runs_of("fake", tmp_path)] == ["03", "02", "01"]


def with_git(monkeypatch: pytest.MonkeyPatch, counts: dict[str, str], shallow: str = "false") -> None:
    monkeypatch.setattr(results, "git", lambda *words: shallow if "rev-parse" in words else counts.get(
        words[-1].partition("..")[0], ""))


@pytest.mark.parametrize(("counts", "shallow", "stale"), [
    ({"abcdef0": "300"}, "false", False), ({"abcdef0": "301"}, "false", True), ({}, "false", None),
    ({"abcdef0": "301"}, "true", None), ({"abcdef0": "301"}, "", None)])
def test_a_figure_is_stale_after_300_commits_and_of_unknown_age_where_history_is_cut(
    counts: dict[str, str], shallow: str, stale: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_git(monkeypatch, counts, shallow)
    assert is_stale(run("2026-01-01", revision="abcdef0-dirty")) is stale


def test_a_study_is_as_old_as_its_oldest_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    with_git(monkeypatch, {"aaaaaaa": "10", "bbbbbbb": "400"})
    assert is_stale(run("d", revisions=("aaaaaaa", "bbbbbbb"))) is True
    assert is_stale(run("d", revisions=("aaaaaaa", "ccccccc"))) is None
    assert is_stale(run("d", revisions=("bbbbbbb", "ccccccc"))) is True


def test_a_page_tells_each_figure_and_what_other_runs_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_page, "about", lambda bench: "what it measures")
    with_git(monkeypatch, {"abcdef0": "1", "1234567": "301"})
    new = run("2026-01-02", Row("a", 2.0, "s", 3.0, "a | b", True), Row("c", 5.0))
    old = run("2026-01-01", Row("a", 4.0, "s", 3.0, None, False), Row("b", None, "", 0.9, "why", False),
              revision="1234567")
    text = page([new, old])
    assert "| `a` | 2 s | ≤ 3 | yes | a \\| b | abcdef0 |" in text
    assert "| `b` | – | 0.900 | **no** | why | 1234567 (stale) |" in text.replace("| 0.9 |", "| 0.900 |")
    assert "| `c` | 5 | – | abcdef0 |" in text
    assert "Missed then: `a` 4 (target ≤ 3)" in text
    with_git(monkeypatch, {"abcdef0": "301", "1234567": "500"})
    results.age.cache_clear()
    assert page([new, old]) != text and unmarked(page([new, old])) == unmarked(text)


@pytest.mark.parametrize(("row", "text"), [
    (Row("a", 2.0, target=1.0, ok=True), "≥ 1"), (Row("a", 2.0, target=1.0, ok=False), "≤ 1"),
    (Row("a", 0.5, target=1.0, ok=False), "≥ 1"), (Row("a", 0, target=0, ok=True), "0"),
    (Row("a", 3, target=0, ok=False), "0"), (Row("a", 0.1, target=0.0, ok=True), "≥ 0"),
    (Row("a", None, target=1.0, ok=False), "1"), (Row("a", 1.0, target="as theirs", ok=True), "as theirs"),
    (Row("a", 1.0), "–")])
def test_the_direction_of_a_target_is_told_by_the_figure(row: Row, text: str) -> None:
    assert target_of(row) == text


@pytest.mark.parametrize(("value", "text"), [
    (2.687e8, "269 M"), (9.41e9, "9.41 G"), (0.9742, "0.974"), (1071600, "1.07 M"), (43.21, "43.2"), (3, "3"),
    (12345.6, "12,346"), (None, "–")])
def test_figures_are_short(value: float | None, text: str) -> None:
    assert results_page.number(value) == text


def test_the_page_and_the_readme_are_what_the_files_say() -> None:
    assert results_page.different() == [], "`make results` writes them"


def test_a_document_is_whole_whatever_is_on_one_line() -> None:
    document = {"rows": [{"name": "<line 0>"}], "trials": [{"curve": [[1.0, 2], [3.0, 4]], "seed": 1}, {"curve": []}]}
    text = as_json(document)
    assert json.loads(text) == document and '"curve": [[1.0,2],[3.0,4]]' in text
