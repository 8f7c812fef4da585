"""``temporeal ope``: words, mistakes, output and exit status."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from temporeal.policies.cli.verbs import ope
from temporeal.policies.data.curation import robustness
from temporeal.policies.evaluate.ope import evaluator
from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.runs import off_policy, offline
from temporeal.policies.runs.errors import FAILED, OK, BadInput


def of(value: float) -> Estimate:
    shares = value + 0.1 * np.sin(np.arange(40.0))
    return Estimate(value, shares, value + 0.01 * np.arange(-5, 6.0), 40.0)


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> list[off_policy.Asked]:
    """What is asked for, with estimates that need no dataset."""
    asked: list[off_policy.Asked] = []

    def evaluate(folders, dataset, what, config):
        asked.append(what)
        runs = {str(f): {name: of(0.4 + 0.2 * i) for name in what.estimators} for i, f in enumerate(folders)}
        return off_policy.Estimated(of(0.5), runs, {name: of(0.5) for name in what.estimators} if what.parent else {})

    monkeypatch.setattr(off_policy, "evaluate", evaluate)
    monkeypatch.setattr(offline, "open_dataset", lambda folder: folder)
    monkeypatch.setattr(robustness, "table_of", lambda data: None)
    return asked


def test_estimators_are_those_that_there_are() -> None:
    assert ope.ESTIMATORS == evaluator.ESTIMATORS


@pytest.mark.parametrize(("words", "message"), [
    ("run", "name one dataset"), ("dataset=logs", "name the runs"), ("run dataset=a dataset=b", "name one dataset"),
    ("run dataset=logs --confidence 1.5", "between 0 and 1"), ("run dataset=logs --discount 0.9", "is of --return"),
    ("run dataset=logs --estimators fqe,oracle", "unknown: oracle; legal: fqe"),
    ("run dataset=logs --std 0", "positive"), ("run dataset=logs --updates 0", "at least 1"),
    ("run dataset=/nowhere", "/nowhere"),
])
def test_mistakes_are_named(words: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ope.run(words.split())


def test_worse_policies_fail_the_gate(estimated: list[off_policy.Asked], capsys: pytest.CaptureFixture[str]) -> None:
    assert ope.run(["a", "b", "dataset=logs", "--gate", "data", "--json"]) == FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    assert [found["gate"][run]["fqe"]["accepted"] for run in "ab"] == [False, True]
    assert found["runs"]["b"]["wdr"]["value"] == pytest.approx(0.6)
    assert estimated[0].parent == "data"


def test_without_a_gate_estimates_are_enough(estimated: list[off_policy.Asked], tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert ope.run(["a", "dataset=logs", "--return", "--discount", "0.9", "--estimators", "fqe"]) == OK
    assert "fqe    0.400, 95% interval" in capsys.readouterr().out
    assert estimated[0].returns
    assert estimated[0].estimators == ("fqe",)


def test_chunks_and_memory_are_not_judged_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = off_policy.Asked(("fqe",))
    monkeypatch.setattr(off_policy, "load_run", lambda folder: {"algo": {"name": "act"}})
    with pytest.raises(BadInput, match="algo=act gives chunks"):
        off_policy.evaluate([Path("run")], None, asked, evaluator.OPEConfig())
    recurrent = SimpleNamespace(carried={"hidden": (4,)})
    with pytest.raises(BadInput, match=r"has memory \(hidden\)"):
        off_policy.policy_of(recurrent, Path("run"))
