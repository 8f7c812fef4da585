"""A run of ``algo=generalist`` goes through the judge as any method does."""

from __future__ import annotations

from pathlib import Path

import pytest

from temporeal.sim.stl.distribution.settings import world
from temporeal_benchmarks.any_formula import sets
from temporeal_benchmarks.any_formula.flights import fly
from temporeal_benchmarks.any_formula.policies import Alone, method_of


@pytest.mark.slow
def test_a_short_training_is_judged_together_and_one_by_one_alike(tmp_path: Path) -> None:
    """What a policy of seconds satisfies is not the question: it may be anything but nothing."""
    from temporeal.policies.cli.main import main

    run, of = tmp_path / "run", world("linear")
    words = ["task=any_formula/linear", "algo=generalist", "num_worlds=256", "task.settings.formulas=50", "threads=1",
             "algo.threads=1", "algo.max_seconds=15", "algo.clock=cpu", "algo.judged_steps=60", "algo.calibration=20"]
    assert main(["train", *words, "seed=1", f"out={run}"]) == 0
    method = method_of(run, of)
    formulas = sets.held_out("linear", "validation", 20, tmp_path)
    together, alone = fly(method, formulas, of), fly(Alone(method), formulas[:5], of)
    assert any(flight.satisfied for flight in together)
    assert all(flight.forecast is not None and 0 <= flight.forecast <= 1 for flight in together)
    assert [f.robustness for f in alone] == pytest.approx([f.robustness for f in together[:5]], abs=1e-3)
    assert all(flight.decision_s is not None and flight.slowest_s is not None for flight in alone)
