"""The bench verb: rows become a table, a file and an exit status."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import bench
from temporeal.policies.export.writer import revision
from temporeal.robots.registry import names, resolve
from temporeal_benchmarks.rows import Row


def fake(monkeypatch: pytest.MonkeyPatch, rows: list[Row]) -> None:
    monkeypatch.setattr(bench, "bench_names", lambda: ["fake"])
    module = SimpleNamespace(HELP="h", run=lambda quick: rows)
    monkeypatch.setattr("temporeal.robots.registry.resolve", lambda package, name: module)


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
    assert saved["command"] == f"temporeal bench fake --out {tmp_path}"


def test_missed_target_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, [Row("speed", 100.0, "M/s", 200.0, None, False)])
    assert main(["bench", "fake", "--out", str(tmp_path)]) == 1
    assert "missed: fake: speed" in capsys.readouterr().out


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
    monkeypatch.setattr(bench, "bench_names", lambda: ["one", "two"])
    module = SimpleNamespace(HELP="h", run=lambda quick: begun.append(quick) or [Row("speed", 1.0)])
    monkeypatch.setattr("temporeal.robots.registry.resolve", lambda package, name: module)
    assert main(["bench", "two", "--out", str(tmp_path)]) == 0
    assert main(["bench", "one", "two", "--quick", "--out", str(tmp_path)]) == 2
    assert begun == [False] and str(tmp_path / "two.json") in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "no-such"]])
def test_no_or_unknown_name_lists_the_known(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "known:" in capsys.readouterr().err


def test_every_benchmark_says_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {name.replace("_", "-") for name in names("temporeal_benchmarks.rows")}
    for name, text in told.items():
        assert len(text) > 20
        assert callable(resolve("temporeal_benchmarks.rows", name.replace("-", "_")).run)


def test_all_leaves_out_what_takes_days() -> None:
    assert [name for name in bench.bench_names() if bench.takes_days(name)] == ["stl-tasks"]


def test_an_option_of_two_meanings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "faults", "quadrotor", "--parts", "fuzz", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "--parts fuzz means another thing" in told and "run them one by one" in told
    bench.check_one_meaning("parts", "cpu", ["quadrotor", "stl"])
    bench.check_one_meaning("parts", None, ["faults", "quadrotor"])
