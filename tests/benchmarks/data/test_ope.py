"""Off-policy evaluation on solved processes: the exact values are exact, and the gate's rows are counted."""

import numpy as np
import pytest

from temporeal_benchmarks.data import ope, ope_study


def test_exact_values_are_those_of_many_episodes() -> None:
    rng = np.random.default_rng(0)
    process = ope.random_process(rng)
    policy = ope.policy_near(np.full((ope.STATES, 2), 0.5), 0.5, rng)
    data = ope.recorded(process, policy, 20_000, rng)
    earned = (data.reward * ope.DISCOUNT ** np.arange(ope.HORIZON)).sum(1)
    assert process.value(policy) == pytest.approx(earned.mean(), abs=4 * earned.std() / np.sqrt(len(earned)))
    assert process.first @ (policy * process.q(policy)[0]).sum(1) == pytest.approx(process.value(policy))


def test_a_gate_that_knows_better_accepts_no_worse_update() -> None:
    found = ope.gated_updates(20, 0.999)
    assert not any(accepted and change < 0 for accepted, change in found)
    assert any(change > 0 for _, change in found)


def test_rows_of_the_study_are_of_tasks_with_all_policies() -> None:
    names = [cell.name for cell in ope_study.cells(["reach"])]
    assert len(names) == ope_study.POLICIES
    truths = {name: 0.1 * i for i, name in enumerate(names)}
    trials = {name: {"truth": t, "data": 0.4, "estimates": {"model": [t + 0.02, t - 0.1, t + 0.1, 99.0]},
                     "gated": {"model": [0.0, 0.0, t, t + 0.01, t + 0.02, t + 0.03]}}
              for name, t in truths.items()}
    rows = {row.name: row.value for row in ope_study.judged(trials)}
    assert rows["data.ope.reach.model.rank_correlation"] == pytest.approx(1.0)
    assert rows["data.ope.reach.model.coverage"] == 1.0
    assert rows["data.ope.reach.model.error"] == pytest.approx(0.02)
    assert rows["data.ope.reach.model.gate.accepted_and_worse"] == 0.0
    assert rows["data.ope.lift.model.rank_correlation"] is None
