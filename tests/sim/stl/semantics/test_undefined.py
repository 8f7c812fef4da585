"""A division by zero has no value: what depends on it is undecided, in every engine, and holds neither way."""

import numpy as np
import pytest
import torch

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.analysis.explain import explain
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.monitoring.monitor import Monitor
from temporeal.sim.stl.semantics import robustness as engine
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

SCHEMA = {name: SignalSpec(name, (), "") for name in "xy"}
TRACE = {"x": np.array([1.0, 1.0, -1.0, 0.0]), "y": np.array([0.0, 2.0, 0.0, 0.0])}  # 1/0, 1/2, -1/0, 0/0
CASES = (
    ("x / y > 2", [np.nan, -1.5, np.nan, np.nan]), ("x / y < 2", [np.nan, 1.5, np.nan, np.nan]),
    ("x / 0 > 2", [np.nan] * 4), ("x / y != 2", [np.nan, 1.5, np.nan, np.nan]),
    ("x / 2 > 0", [0.5, 0.5, -0.5, 0.0]), ("2 / y > 0", [np.nan, 1.0, np.nan, np.nan]),
    ("pow(y, -1) > 0", [np.nan, 0.5, np.nan, np.nan]), ("pow(y, 2) > 0", [0.0, 4.0, 0.0, 0.0]),
    ("x / y > 0 | x > 0", [np.nan, 1.0, np.nan, np.nan]))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("text", "values"), CASES)
def test_robustness_has_no_value(
    text: str, values: list[float], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "COMPILED", compiled and engine.COMPILED)
    formula = parse(text, SCHEMA)
    for kind in (np.float64, np.float32):
        given = {name: array.astype(kind) for name, array in TRACE.items()}
        np.testing.assert_array_equal(robustness(formula, given, 1.0), values)
        tensors = {name: torch.from_numpy(array) for name, array in given.items()}
        np.testing.assert_array_equal(robustness(formula, tensors, 1.0).numpy(), values)
        for one in (formula, ~formula):  # neither it nor its negation holds where there is no value
            assert not (satisfied(one, given, 1.0) & np.isnan(values)).any() or "|" in text
            assert not (satisfied(one, tensors, 1.0).numpy() & np.isnan(values)).any() or "|" in text


@pytest.mark.parametrize(("text", "verdict"), [
    ("x / y > 2", "undecided"), ("G (x / y < 100)", "undecided"), ("F (x / y > 2)", "undecided"),
    ("F (x / y > 0.25)", "satisfied"), ("G (x / y > 2)", "violated"), ("x / y > 2 | x > 0", "satisfied"),
    ("2 / 0 > 1", "undecided"), ("!(x / y > 2)", "undecided")])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_verdict_waits_for_what_has_none(text: str, verdict: str, compiled: bool) -> None:
    formula = parse(text, SCHEMA)
    assert explain(formula, TRACE, 1.0).verdict == verdict
    monitor = Monitor(formula, 1.0, compiled=compiled)
    for k in range(4):
        reading = monitor.update({name: array[k] for name, array in TRACE.items()})
    assert (monitor.finish() if "G" in text or "F" in text else reading).verdict == verdict


@pytest.mark.parametrize("text", [
    "a", "out = a", "p = a; p", "const float a = 3.0 a", "float out const float a = 3.0 out = a", "out = 3", "3",
    "a = 3; G a"])
def test_a_named_number_scores_like_one_without_a_name(text: str) -> None:
    constants = {} if "a =" in text else {"a": 3.0}
    found = explain(parse(text, SCHEMA, constants), TRACE, 1.0)
    assert (found.robustness, found.verdict) == (3.0, "satisfied")
