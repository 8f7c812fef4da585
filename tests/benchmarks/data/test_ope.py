"""Off-policy evaluation on solved processes: the exact values are exact, and the gate's rows are counted."""

import json
from pathlib import Path

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


def test_rows_of_the_study_are_of_what_is_there(tmp_path: Path) -> None:
    assert len(list(ope_study.cells(ope_study.TASKS, ope_study.BUDGETS[-1]))) == 24
    truths = (0.2, 0.5, 0.9)
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps({
        "cell": f"reach/{i}", "truth": truth, "data": 0.4,
        "estimates": {name: [truth + 0.02, truth - 0.1, truth + 0.1, 9.0] for name in ope_study.ESTIMATORS},
    }) + "\n" for i, truth in enumerate(truths)))
    rows = {row.name: row.value for row in ope_study.rows_of(tmp_path)}
    assert rows["ope.reach.fqe.rank_correlation"] == pytest.approx(1.0)
    assert rows["ope.reach.wdr.coverage"] == 1.0
    assert rows["ope.reach.model.error"] == pytest.approx(0.02)
    assert not any(name.startswith("ope.lift") for name in rows)
