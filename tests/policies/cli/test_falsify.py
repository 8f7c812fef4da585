"""``temporeal falsify``: searches, saves, replays bit for bit, and its status is the verdict."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import falsify

HIGH = "task.settings.formula='G[0,0.2] (height > {})'"


@pytest.fixture(autouse=True)
def at_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and results lie below the working directory: a counterexample may name its policy there."""
    monkeypatch.chdir(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("falsify") / "run"
    assert main(["train", "experiment=smoke", "task=hover", "seed=3", "threads=1", "--json", "--out", str(folder)]) == 0
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    status = main(["falsify", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


SMALL = ("--budget", "40", "--worlds", "8")


@pytest.mark.slow
def test_violation_is_status_1_and_replays_bit_for_bit(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = told(capsys, str(run), *SMALL)
    assert (status, found["verdict"], found["passed"]) == (1, "violated", False)
    saved = Path(found["counterexample"])
    assert saved == run / "falsify" / "counterexample-quadrotor.npz"
    written = json.loads((run / "falsify" / "falsification-quadrotor.json").read_text())
    assert written["robustness"] == found["robustness"] < 0
    status, again = told(capsys, "--replay", str(saved))
    assert (status, again["violated"], again["identical"], again["same_policy"]) == (1, True, True, True)
    assert (again["robustness"], again["change"], again["tolerance"]) == (found["robustness"], 0.0, 0.0)


@pytest.mark.slow
def test_nothing_found_is_status_0_and_keeps_what_was_found_before(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(run), "--out", str(tmp_path), *SMALL]
    assert told(capsys, *words)[0] == 1
    before = (tmp_path / "counterexample-quadrotor.npz").read_bytes()
    report = (tmp_path / "falsification-quadrotor.json").read_bytes()
    status, found = told(capsys, *words, HIGH.format(-5))
    assert (status, found["verdict"], found["passed"], found["counterexample"]) == (0, "none found", True, None)
    assert (tmp_path / "counterexample-quadrotor.npz").read_bytes() == before
    assert (tmp_path / "falsification-quadrotor.json").read_bytes() == report
    assert found["report"] == str(tmp_path / "falsification-quadrotor-2.json")
    assert json.loads(Path(found["report"]).read_text())["verdict"] == "none found"
    assert told(capsys, *words)[1]["counterexample"] == str(tmp_path / "counterexample-quadrotor-3.npz")
    assert "proves nothing" in found["statement"]
    assert found["evaluations"] == 40
    assert found["sampled"]["samples"] == 4


@pytest.mark.slow
def test_space_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed space is read back; a narrower one is searched instead."""
    capsys.readouterr()
    assert main(["falsify", str(run), "--print-space"]) == 0
    path = tmp_path / "space.yaml"
    path.write_text(capsys.readouterr().out)
    words = [str(run), "--out", str(tmp_path), "--space", str(path), *SMALL, "--method", "random"]
    assert len(told(capsys, *words)[1]["space"]) > 10
    path.write_text("start.initial.guided: {low: [0], high: [0.05]}\nphysics.mass: {low: 0.03, high: 0.033}\n")
    found = told(capsys, *words)[1]
    assert set(found["parameters"]) == {"start.initial.guided", "physics.mass"}
    assert 0.03 <= found["parameters"]["physics.mass"] <= 0.033


@pytest.mark.slow
def test_each_clause_attacked_with_the_whole_budget(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(run), "--out", str(tmp_path), "--attack", "clauses", "--whole-budget", "--budget", "120"]
    found = told(capsys, *words, "--worlds", "40")[1]
    assert (found["stopped"], found["attack"], len(found["clauses"])) == ("budget", "clauses", 4)
    known = [c["robustness"] for c in found["clauses"] if c["robustness"] is not None]
    assert found["robustness"] == min(known)
    assert [c["violated"] for c in found["clauses"] if c["robustness"] is None] == [False] * (4 - len(known))


@pytest.mark.slow
def test_artifact_is_falsified_beside_itself(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = tmp_path / "artifact"
    assert main(["export", str(run), "--out", str(artifact), "--json"]) == 0
    status, found = told(capsys, str(artifact), "--budget", "16", "--worlds", "8")
    assert status == 1
    assert Path(found["counterexample"]).parent == tmp_path / "artifact-falsify"
    status, again = told(capsys, "--replay", found["counterexample"])
    assert (status, again["identical"], again["robustness"]) == (1, True, found["robustness"])
    status, of_run = told(capsys, str(run), "--replay", found["counterexample"])
    assert of_run["same_policy"] is False, "a run's weights are not an artifact's file"
    assert of_run["robustness"] == pytest.approx(found["robustness"], abs=0.05)


def test_replay_after_the_folder_has_moved_and_without_its_policy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "moved"
    shutil.copytree(run, copy)
    saved = Path(told(capsys, str(copy), *SMALL)[1]["counterexample"])
    copy.rename(tmp_path / "again")
    moved = tmp_path / "again" / "falsify" / saved.name
    assert told(capsys, "--replay", str(moved))[1]["identical"]
    lonely = tmp_path / "lonely.npz"
    shutil.copy(moved, lonely)
    assert main(["falsify", "--replay", str(lonely)]) == 2
    error = capsys.readouterr().err
    assert "is not a run" in error
    assert f"name it: temporeal falsify RUN --replay {lonely}" in error


def test_a_counterexample_names_no_policy_elsewhere(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was handed over could lead to any folder; whoever names the policy himself may name any."""
    saved = told(capsys, str(run), "--out", str(tmp_path / "out"), *SMALL)[1]["counterexample"]
    monkeypatch.chdir(tmp_path)
    assert main(["falsify", "--replay", saved]) == 2
    assert "names a policy elsewhere" in capsys.readouterr().err
    assert told(capsys, str(run), "--replay", saved)[1]["identical"]


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C is heeded: a shell lets its background jobs ignore it, and they hand that down."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_search_keeps_what_it_found(
    number: signal.Signals, status: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counter(label: str) -> Any:
        return lambda done, of: os.kill(os.getpid(), number) if done == 16 else None

    monkeypatch.setattr(falsify, "counter", counter)
    words = [str(run), "--out", str(tmp_path), "--method", "random", "--budget", "400", "--worlds", "8"]
    assert main(["falsify", *words, "--whole-budget"]) == status
    report = json.loads((tmp_path / "falsification-quadrotor.json").read_text())
    assert (report["interrupted"], report["stopped"], report["evaluations"]) == (True, "interrupted", 16)
    assert report["verdict"] == "violated"
    assert Path(report["counterexample"]).is_file()
    assert "interrupted after 16 of 400 flights" in capsys.readouterr().err


def test_spec_reads_a_counterexample(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(run), "--out", str(tmp_path), *SMALL, HIGH.format(3))[1]
    formula = tmp_path / "high.stl"
    formula.write_text("G[0,0.2] (height > 3)\n")
    assert main(["spec", "check", str(formula), found["counterexample"], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["robustness"] == pytest.approx(found["robustness"])


def test_replay_judges_the_saved_formula_and_refuses_another(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = told(capsys, str(run), "--out", str(tmp_path), *SMALL, HIGH.format(3))[1]["counterexample"]
    assert main(["falsify", "--replay", saved, HIGH.format(2)]) == 2
    error = capsys.readouterr().err
    assert "the overrides change the formula" in error
    assert "height > 3" in error
    assert "height > 2" in error
    assert main(["falsify", "--replay", saved, HIGH.format(3)]) == 1


def test_missing_optimizer_is_told_before_anything_flies(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cma", None)
    assert main(["falsify", str(run), "--out", str(tmp_path / "out"), *SMALL]) == 2
    error = capsys.readouterr().err
    assert "pip install cma" in error
    assert "--method random" in error
    assert not (tmp_path / "out").exists()


def test_people_read_it(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["falsify", str(run), "--out", str(tmp_path), *SMALL]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("violated: robustness -")
    assert "temporeal falsify --replay" in shown
    assert main(["falsify", "--replay", str(tmp_path / "counterexample-quadrotor.npz")]) == 1
    assert "the same, bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "told"), [
    ([], "name a policy"), (["nowhere"], "is not a run"), (["RUN", "--budget", "0"], "--budget is at least 1"),
    (["RUN", "--backend", "gazebo"], "known: "), (["RUN", "--method", "newton"], "cma"),
    (["RUN", "--space", "SPACE"], "unknown parameter 'physics.weight'; legal: start.initial"),
    (["RUN", "--space", "nowhere.yaml"], "cannot read the space"),
    (["--replay", "nowhere.npz"], "nowhere.npz"), (["--replay", "SPACE"], "is not a counterexample"),
    (["--replay", "SPACE"], "is no ZIP archive"), (["RUN", "--seed", "-1"], "--seed is a whole number from 0 to 2^63"),
    (["RUN", f"seed={2**70}"], "seed is a whole number from 0"), (["RUN", "--budget", "10.5"], "--budget"),
    (["RUN", "--attack", "scaled", "--budget", "20"], "at least 8"),
])  # fmt: skip
def test_bad_input_is_one_line_and_status_2(
    words: list[str], told: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("physics.weight: {low: 0, high: 1}\n")
    given = [str(run) if w == "RUN" else str(space) if w == "SPACE" else w for w in words]
    assert main(["falsify", *given, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
