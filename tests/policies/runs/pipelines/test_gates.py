"""The gate of an offline iteration: what leaves the data is refused, unless its parent leaves it as much."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.policies.chunk_worlds import half_way
from tests.policies.denoising_rl.point_data import PointData

from temporeal.policies.denoising_rl.decisions import decisions
from temporeal.policies.denoising_rl.improvement import OfflineRL100Config
from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.gate import Verdict
from temporeal.policies.runs.pipelines import gates
from temporeal.policies.runs.pipelines.gates import FittedGate, within

CONFIG = OfflineRL100Config(execute=4, fqe_updates=30)


def test_a_share_outside_is_measured_by_the_parents() -> None:
    verdict = Verdict(True, 0.1, 0.05, 0.95, "better")
    assert within(verdict, 0.04, 0.0) is verdict and within(verdict, 0.105, 0.10) is verdict
    assert not within(verdict, 0.12, 0.10).accepted
    refused = within(verdict, 0.10, 0.02)
    assert not refused.accepted and "leave the data in 10.0% of the states, and 5%" in refused.why
    assert not within(replace(verdict, accepted=False), 0.0, 0.0).accepted


def test_small_losses_do_not_add_up() -> None:
    values = iter([0.80, 0.76, 0.72, 0.76])  # of the policy at first, then of candidates, each known well

    def estimate() -> Estimate:
        value, noise = next(values), np.linspace(-1e-3, 1e-3, 64)
        return Estimate(value, value + noise, value + noise, 64.0, outside=0.0)

    evaluator = SimpleNamespace(fit=lambda policy: SimpleNamespace(estimate=estimate), outside=lambda policy: 0.0)
    gate, policy = FittedGate(CONFIG, 0, cast("Any", evaluator)), cast("Any", None)
    verdicts = [gate(policy, policy, policy) for _ in range(3)]
    assert CONFIG.margin == 0.05 and [each.accepted for each in verdicts] == [True, False, True]
    assert verdicts[1].why.startswith("since the stage began:")


def test_a_policy_far_from_the_data_is_refused_and_the_parent_itself_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = gates.evaluator_of

    def quick(data, config, seed):
        found = made(data, config, seed)
        found.config = replace(found.config, behaviour=replace(found.config.behaviour, updates=60))
        return found

    monkeypatch.setattr(gates, "evaluator_of", quick)
    grid = decisions(PointData(64), half_way(), 4, "success").as_deployed(4)
    gate = FittedGate(CONFIG, 0)

    def near(obs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*obs.shape[:-1], 8)

    same, far = gate(grid, near, near), gate(grid, lambda obs: near(obs) + 0.99, near)
    assert same.accepted and same.difference == 0.0
    assert not far.accepted and "leave the data" in far.why
    assert gate.verdicts == [same, far]
