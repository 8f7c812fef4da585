"""The bench verb: rows become a table, a file and an exit status; what is kept is shown without running anything."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.examples import thinned

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import bench
from temporeal.policies.export.provenance import revision
from temporeal.robots.registry import names, resolve
from temporeal_benchmarks import results, runner
from temporeal_benchmarks.rows import Row

FIELDS = {"name", "value", "unit", "target", "peer", "ok"}


def fake(monkeypatch: pytest.MonkeyPatch, rows: list[Row], known: tuple[str, ...] = ("fake",), **more: Any) -> None:
    monkeypatch.setattr(bench, "bench_names", lambda: list(known))
    module = SimpleNamespace(**{"HELP": "h", "run": lambda quick, *, out, **options: rows, **more})
    monkeypatch.setattr(runner, "benchmark", lambda name: module)


def test_result_is_written_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [Row("speed", 219.4, "M/s", 200.0, 8.1, True), Row("note", 1.0)])
    assert main(["bench", "fake", "--out", str(tmp_path)]) == 0
    assert "219.4" in capsys.readouterr().out
    saved = json.loads((tmp_path / "fake.json").read_text())
    assert saved["rows"][0] == {
        "name": "speed", "value": 219.4, "unit": "M/s", "target": 200.0, "peer": 8.1, "ok": True}
    assert saved["machine"]["cores"] >= 1 and saved["revision"] == revision()
    assert saved["command"] == "temporeal bench fake"  # where the figures go changes none of them


def test_a_result_names_the_command_that_measures_it_alone() -> None:
    words = ["stl", "sim", "--parts", "cpu", "--keep", "--out", "here", "--json", "--out=there"]
    assert bench.command_of("stl", words) == "temporeal bench stl --parts cpu"
    assert bench.command_of("sim", ["--all", "--quick"]) == "temporeal bench sim --quick"


@pytest.mark.parametrize("row", [
    Row("speed", 100.0, "M/s", 200.0, None, False), Row("speed", None, "", 1.0, "no peer", False)])
def test_missed_target_is_status_1(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [row])
    assert main(["bench", "fake", "--out", str(tmp_path)]) == 1
    assert "missed: fake: speed" in capsys.readouterr().out


def test_json_is_rows_and_nothing_else_is_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(quick: bool, *, out: Path) -> list[Row]:
        print("a benchmark prints")
        os.write(1, b"and its processes do\n")
        return [Row("speed", 1.0)]

    fake(monkeypatch, [], ("one", "two"), run=run)
    assert main(["bench", "one", "--json", "--out", str(tmp_path)]) == 0
    given, progress = capfd.readouterr()
    row, = json.loads(given)["rows"]
    assert set(row) == FIELDS and row["name"] == "speed"
    assert "a benchmark prints" in progress and "and its processes do" in progress
    assert main(["bench", "one", "two", "--json", "--out", str(tmp_path)]) == 0
    assert [row["name"] for row in json.loads(capfd.readouterr()[0])["rows"]] == ["one/speed", "two/speed"]


@pytest.mark.parametrize("before", [None, "quick", "whole", "{}", "no JSON"])
def test_a_quick_run_does_not_overwrite_the_figures_of_a_whole_one(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [Row("speed", 1.0)])
    run, file = ["bench", "fake", "--out", str(tmp_path)], tmp_path / "fake.json"
    if before in ("quick", "whole"):
        assert main([*run, "--quick"] if before == "quick" else run) == 0
    elif before is not None:
        file.write_text(before)
    kept = file.read_text() if before else None
    assert main([*run, "--quick"]) == (2 if before == "whole" else 0)
    assert before != "whole" or file.read_text() == kept
    assert json.loads(file.read_text())["quick"] is (before != "whole")
    assert ("figures of whole runs" in capsys.readouterr().err) is (before == "whole")
    assert main(run) == 0


def test_of_several_quick_runs_none_begins_where_one_would_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def run(quick: bool, *, out: Path) -> list[Row]:
        begun.append(quick)
        return [Row("speed", 1.0)]

    fake(monkeypatch, [], ("one", "two"), run=run)
    assert main(["bench", "two", "--out", str(tmp_path)]) == 0
    assert main(["bench", "one", "two", "--quick", "--out", str(tmp_path)]) == 2
    assert begun == [False] and str(tmp_path / "two.json") in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "no-such"], ["bench", "--kept"]])
def test_no_or_unknown_name_lists_the_known(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "known: any-formula, data, deploy, faults" in capsys.readouterr().err


def test_every_benchmark_says_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json"]) == 0
    texts = json.loads(capsys.readouterr().out)
    assert set(texts) == {name.replace("_", "-") for name in names(runner.PACKAGE)}
    for name, text in texts.items():
        module = resolve(runner.PACKAGE, name.replace("-", "_"))
        assert len(text) > 20 and callable(module.run)
        assert set(getattr(module, "NARROWING", ())) <= set(getattr(module, "OPTIONS", {}))
        taken = {"names", "list", "all", "quick", "kept", "keep", "out", "json"}
        assert not taken & set(getattr(module, "OPTIONS", {}))


def test_all_leaves_out_what_takes_days() -> None:
    assert [name for name in bench.bench_names() if runner.takes_days(name)] == ["stl-tasks"]


def test_an_option_of_two_meanings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "faults", "quadrotor", "--parts", "fuzz", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "--parts fuzz means another thing" in told and "run them one by one" in told
    runner.check_one_meaning("parts", "cpu", ["quadrotor", "stl"])
    runner.check_one_meaning("parts", None, ["faults", "quadrotor"])


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize("name", thinned(bench.bench_names(), keep=["quadrotor", "sim-gpu", "stl-tasks"]))
def test_what_is_kept_of_a_benchmark_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = [run for run in results.runs_of(name) if run.rows]
    assert main(["bench", name, "--kept", "--json"]) == (0 if kept else 2)
    given, told = capsys.readouterr()
    if not kept:
        assert f"temporeal bench {name} --keep" in told and not given
        return
    rows = json.loads(given)["rows"]
    assert rows and all(set(row) == FIELDS for row in rows) and len({row["name"] for row in rows}) == len(rows)


def test_what_is_not_kept_is_named_beside_what_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = results.runs_of
    monkeypatch.setattr(results, "runs_of", lambda name: [] if name == "stl" else real(name))
    assert main(["bench", "planar", "stl", "--kept", "--json"]) == 0
    given, told = capsys.readouterr()
    assert json.loads(given)["rows"] and "temporeal bench stl --keep" in told


@pytest.mark.parametrize("arguments", [
    ["sim", "--kept", "--keep"], ["sim", "--kept", "--quick"], ["stl", "--kept", "--parts", "cpu"], ["sim", "--all"]])
def test_words_that_contradict_each_other_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert "leave out" in capsys.readouterr().err


def test_kept_figures_are_shown_with_what_they_were_taken_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sim", "--kept"]) == 0
    run = results.runs_of("sim")[0]
    shown = capsys.readouterr().out
    assert run.command in shown and run.revisions[0] in shown and run.date in shown and run.machine in shown


def test_a_run_is_kept_under_what_it_was_narrowed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, [Row("speed", 1.0)], OPTIONS={"parts": "p", "more": "m"}, NARROWING=("parts",))
    assert runner.measure("fake", False, tmp_path, {}, "temporeal bench fake")["rows"][0]["value"] == 1.0
    folder = tmp_path / "kept"
    folder.mkdir()
    assert runner.keep("fake", tmp_path, {"more": ["1"]}, folder).name == "fake.json"
    assert runner.keep("fake", tmp_path, {"parts": ["Clean", "fuzz"]}, folder).name == "fake-clean-fuzz.json"
    assert [run.rows for run in results.runs_of("fake", folder)] == [(Row("speed", 1.0),)] * 2


def test_a_study_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, [], STUDY="study.json")
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "study.json").write_text("{}")
    assert runner.keep("fake", tmp_path, {}, tmp_path).read_text() == "{}"


def test_a_quick_run_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, [Row("speed", 1.0)])
    assert main(["bench", "fake", "--quick", "--keep", "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize("arguments", [
    ["bench", "--list"], ["bench", "sim"], ["bench", "sim", "--kept"], ["bench", "stl", "--parts", "cpu"]])
def test_an_installed_package_says_where_benchmarks_run(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "benchmarks" in name else real(name))
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert bench.bench_names() == []
    assert "clone" in told and "make install" in told and len(told.splitlines()) == 1
