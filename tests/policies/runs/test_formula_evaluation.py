"""A policy for any formula: trained for seconds, judged on formulas, refused where it is asked for what it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.any_formula.evaluation import FormulaEvaluation, check_asked
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, BadInput

OWN = {"task": {"name": "any_formula", "settings": {"system": "linear"}}}
OTHER = {"task": {"name": "any_formula", "settings": {"system": "linear", "family": "unseen", "seed": 4}}}


@pytest.mark.parametrize(("settings", "family", "episodes", "seed", "why"), [
    (OWN, "validation", 10, -1, "seed.*-1"), (OWN, "validation", 10, 2**63, "seed"), (OWN, "nope", 10, None, "legal"),
    (OWN, "validation", 0, None, "at least 1"), (OWN, "train", 10, 0, "was trained on"),
    (OTHER, "unseen", 10, 4, "was trained on"), (OWN, "validation", 10, 1_000_003, "calibrated on")])
def test_formulas_that_there_are_not_or_that_were_seen_are_refused(settings, family, episodes, seed, why):
    with pytest.raises(BadInput, match=why):
        check_asked(settings, family, episodes, seed)
    for legal in ((OWN, "train", 10, None), (OWN, "train", 10, 1), (OTHER, "train", 10, 0)):
        check_asked(*legal)


def test_what_was_flown_is_said_to_be_nominal():
    assert "without noise, latency and randomization" in FormulaEvaluation(
        "unseen", 1, 2, 0.0, 1.0, {"reach": (1, 2)}, 0.1, (1, 1)).lines()[-1]


@pytest.mark.slow
def test_a_policy_of_seconds_is_judged_on_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = ["task=any_formula/linear", "algo=generalist", "num_worlds=512", "processes=1", "algo.threads=1",
             "task.settings.formulas=100", "algo.max_seconds=30", "algo.clock=cpu", "algo.judged_steps=100",
             "algo.calibration=40", "algo.curriculum=0.5", "seed=1"]
    assert main(["train", *words, f"out={run}"]) == 0
    capsys.readouterr()
    assert main(["eval", str(run), "--family", "train", "--episodes", "60", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 60 and found["satisfied"] >= 10  # half a minute of one core: some of the simple ones
    assert sum(flown for _, flown in found["kinds"].values()) == 60
    assert main(["eval", str(run), "--episodes", "10", "--require-lower", "1.0", "--seed", "5"]) == FAILED
    assert main(["eval", str(run), "--family", "nope"]) == BAD_INPUT
    assert "legal are train, validation" in capsys.readouterr().err
    assert main(["eval", str(run), "--episodes", "1", "--seed", "-1"]) == BAD_INPUT
    assert main(["eval", str(run), "--backend", "mujoco"]) == BAD_INPUT
