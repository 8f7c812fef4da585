"""What is handed over, fuzzed: 60 cases here, 10,000 in ``temporeal bench own-robot``; and that the watch sees."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

from temporeal.policies.cli.main import main
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.own_robot import fuzz
from temporeal_benchmarks.own_robot.fuzzing import seeds, worker
from temporeal_benchmarks.own_robot.fuzzing.boundaries import KINDS
from temporeal_benchmarks.own_robot.fuzzing.mutations import SECRET, change_tree, reseal
from temporeal_benchmarks.own_robot.fuzzing.watch import Seen, watched

CASES = 60


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeds.build(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module")
def bench(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> worker.Bench:
    """In this process; without limits of memory, which is everybody's here."""
    made = worker.Bench(examples, tmp_path_factory.mktemp("fuzz"))
    worker.warm(made)
    return made


def faults(seen: Seen) -> list[str]:
    return [f"case {seen.number} ({seen.kind}): {text}" for text in seen.wrong if not text.startswith("memory")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fuzzed_case_runs_no_code_reads_nothing_outside_and_ends_in_words(kind: str, bench: worker.Bench) -> None:
    """Artifacts, runs, manifests, bags and YAML; within 2 s each."""
    first = list(KINDS).index(kind)
    found = list(worker.cases(bench, range(first, CASES, len(KINDS)), seed=0))
    assert sum((faults(seen) for seen in found), []) == []
    assert sum(seen.outcome.startswith("refused") for seen in found) >= len(found) // 4


def test_the_examples_themselves_are_read(bench: worker.Bench) -> None:
    """Otherwise a refusal would say nothing: :func:`worker.warm` reads each as it is."""
    assert {"run", "artifact", "bag", "tables"} <= {path.name for path in bench.examples.iterdir()}


def test_a_case_is_the_same_each_time(bench: worker.Bench) -> None:
    def digest() -> str:
        files = sorted(path for path in bench.case.rglob("*") if path.is_file() and path.suffix != ".mcap")
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    for number in (0, 1, 4):
        bench.run(number, 7)
        one = digest()
        bench.run(number, 7)
        assert digest() == one


@pytest.mark.parametrize(("read", "wrong"), [
    (lambda folder: (folder / "../outside/secret.txt").read_text(), "outside"),
    (lambda folder: Path("/etc/hostname").read_bytes(), "outside"),
    (lambda folder: subprocess.run(["true"], check=True), "code run"),
    (lambda folder: os.system("true"), "code run"),
    (lambda folder: {}["missing"], "traceback"),
    (lambda folder: np.zeros(3).reshape(2, 2), ""),  # the line is the project's, here this file's
    (lambda folder: BadInput(f"it says {os.environ[SECRET]}"), "")])
def test_the_watch_sees(read: Any, wrong: str, bench: worker.Bench) -> None:
    bench.case.mkdir(exist_ok=True)
    seen = watched(bench.watch, Seen("", 0), bench.case, bench.scratch, read)
    found = {text.partition(":")[0] for text in seen.wrong} - {"memory"}
    assert wrong in found or (not wrong and found <= {"traceback"})


def test_the_watch_sees_what_a_library_opens(bench: worker.Bench) -> None:
    """pyarrow and SQLite open files without Python's knowledge."""
    pyarrow = pytest.importorskip("pyarrow")
    bench.case.mkdir(exist_ok=True)
    secret = str(bench.outside / "secret.txt")
    seen = watched(bench.watch, Seen("", 0), bench.case, bench.scratch,
                   lambda folder: pyarrow.memory_map(secret).read())
    assert any(text.startswith("outside: a file in") for text in seen.wrong)


def test_the_watch_reads_no_secret_from_words(bench: worker.Bench) -> None:
    def read(folder: Path) -> None:
        raise BadInput(f"it says {os.environ[SECRET]}")

    seen = watched(bench.watch, Seen("", 0), bench.case, bench.scratch, read)
    assert "outside: a variable of the environment was read" in seen.wrong


def test_eval_of_a_strangers_artifact_starts_no_program(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``backend.python`` in its manifest is a program of the stranger's: ``eval`` and ``falsify`` started it once."""
    import json
    import shutil

    artifact, mark = tmp_path / "artifact", tmp_path / "was-run"
    shutil.copytree(examples / seeds.ARTIFACT, artifact)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    content = json.loads((artifact / "manifest.json").read_text())
    content["training"]["backend"] = {"name": "isaacgym", "python": str(program)}
    (artifact / "manifest.json").write_text(json.dumps(content))
    reseal(artifact)
    monkeypatch.delenv("TEMPOREAL_ISAACGYM_PYTHON", raising=False)
    for verb in ("eval", "falsify"):
        assert main([verb, str(artifact), "--out", str(tmp_path / "out")]) != 0
        told = capsys.readouterr().err
        assert "names a program and is left out" in told and not mark.exists()


def test_an_interrupted_fuzzing_goes_on(tmp_path: Path) -> None:
    """Cases that are known are not read again, a line that was cut counts for nothing."""
    file = tmp_path / "fuzz-0.jsonl"
    file.write_text('{"kind": "yaml", "number": 3, "outcome": "read"}\n{"kind": "ya')
    assert [seen["number"] for seen in fuzz.read(file)] == [3]


def test_a_tree_is_changed_somewhere() -> None:
    import random

    given = {"a": [1, 2, {"b": "c"}], "d": 5}
    found = [change_tree({"a": [1, 2, {"b": "c"}], "d": 5}, random.Random(k)) for k in range(50)]
    assert sum(repr(each) != repr(given) for each in found) > 40


@pytest.mark.slow
def test_300_cases_in_processes_of_their_own(tmp_path: Path) -> None:
    """With limits of memory; resumed, nothing is read twice."""
    rows = fuzz.rows(300, seed=1, out=tmp_path)
    assert [row.name for row in rows if row.ok is False] == []
    assert fuzz.rows(300, seed=1, out=tmp_path)[0].value == 300
