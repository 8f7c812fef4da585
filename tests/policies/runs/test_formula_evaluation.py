"""A policy for any formula: trained for seconds, judged on formulas, refused where it is asked for what it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.any_formula.evaluation import FormulaEvaluation, check_asked, check_words, name_of, same
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, BadInput
from temporeal.policies.training.ppo_checkpoint import read_last

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


def test_under_which_conditions_it_was_flown_and_calibrated_is_said():
    def said(*conditions: object) -> str:
        found = FormulaEvaluation("unseen", 1, 2, 0.0, 1.0, {"reach": (1, 2)}, 0.1, (1, 1), *conditions)
        return "\n".join(found.lines())

    assert "flown without noise, latency and randomization; the forecast was calibrated without" in said()
    assert "flown with randomize=lab; the forecast was calibrated with randomize=lab" in said("lab", "lab")
    assert "other conditions" in said("lab", "", False) and "other conditions" not in said("lab", "lab")


@pytest.mark.parametrize("word", ["num_worlds=3", "task=hover", "backend=mujoco", "randomized=none", "seed=1"])
def test_settings_other_than_the_randomization_are_refused(word: str):
    with pytest.raises(BadInput, match=f"{word}: .* legal is randomize=NAME"):
        check_words(["randomize=none", word])
    check_words(["randomize=none", "randomize.sensors.delay_steps=2", "+randomize.sensors.noise.base_pos_w=0.1"])


def test_conditions_are_named_by_what_changed_them():
    drawn = {"name": "default", "parameters": {}, "sensors": {"delay_steps": 1}}
    assert name_of({"name": "none", "parameters": {}, "sensors": {}}) == ""
    assert name_of(drawn, ["randomize=default", "randomize.sensors.delay_steps=1"]) == (
        "default randomize.sensors.delay_steps=1")
    assert same({"sensors": None, "randomize": {}}, {"sensors": {}}) and not same({"sensors": {"a": 1}}, {})


@pytest.mark.slow
def test_a_policy_of_seconds_is_judged_on_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = ["task=any_formula/linear", "algo=generalist", "num_worlds=512", "processes=1", "algo.threads=1",
             "task.settings.formulas=100", "algo.max_seconds=30", "algo.clock=cpu", "algo.judged_steps=100",
             "algo.calibration=40", "algo.curriculum=0.5", "seed=1"]
    assert main(["train", *words, f"out={run}"]) == 0
    assert read_last(run)["companion"]["curriculum"]["scores"].isfinite().float().mean() > 0.9  # nearly all were flown
    capsys.readouterr()
    assert main(["eval", str(run), "--family", "train", "--episodes", "60", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 60 and found["satisfied"] >= 10  # half a minute of one core: some of the simple ones
    assert sum(flown for _, flown in found["kinds"].values()) == 60
    assert main(["eval", str(run), "--episodes", "10", "--require-lower", "1.0", "--seed", "5"]) == FAILED
    capsys.readouterr()
    noisy = ["randomize.sensors.delay_steps=3", "randomize.sensors.noise.base_pos_w=0.5"]
    assert main(["eval", str(run), "--family", "train", "--episodes", "60", *noisy]) == 0
    worse = capsys.readouterr().out
    assert f"flown with randomize=none {' '.join(noisy)}" in worse and "under other conditions" in worse
    assert int(worse.split("satisfied ")[1].split()[0]) < found["satisfied"]
    assert main(["eval", str(run), "--family", "nope"]) == BAD_INPUT
    assert "legal are train, validation" in capsys.readouterr().err
    assert main(["eval", str(run), "--episodes", "1", "--seed", "-1"]) == BAD_INPUT
    assert main(["eval", str(run), "--backend", "mujoco"]) == BAD_INPUT
