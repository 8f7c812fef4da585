"""What a judge learns from: the fates of legs; and its calibration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.policies.training.generalist.forecast import calibration_error, platt
from temporeal.policies.training.generalist.judge import outcomes
from temporeal.sim.stl.itineraries.planner import reading


def test_fates_go_back_to_where_their_legs_began() -> None:
    counts = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0], [0, 0]])  # world 0 hits a leg in step 1
    fates = torch.tensor([[2, 2], [2, 2], [2, 0], [0, 2], [2, -1]])  # and breaks something in step 3; world 1 in step 2
    hit, length = outcomes(counts, fates)
    assert hit[:, 0].tolist() == [1, 1, 0, 0, -1]
    assert hit[:, 1].tolist() == [0, 0, 0, -1, -1]
    assert length[:2, 0].tolist() == [2, 1]


def test_what_is_done_is_a_hit() -> None:
    hit, _ = outcomes(torch.tensor([[1], [1]]), torch.tensor([[2], [1]]))
    assert hit[:, 0].tolist() == [1, 1]


def test_platt_corrects_what_is_too_sure() -> None:
    rng = np.random.default_rng(0)
    true = rng.uniform(0.3, 0.95, 4000)
    odds = 2.0 * np.log(true / (1 - true)) + 0.5  # twice as sure as it should be
    chances, satisfied = 1 / (1 + np.exp(-odds)), rng.random(4000) < true
    found = platt(chances.tolist(), satisfied.tolist())
    assert found["slope"] == pytest.approx(0.5, abs=0.06) and found["offset"] == pytest.approx(-0.25, abs=0.1)
    read = [reading(chance, found) for chance in chances]
    assert calibration_error(read, satisfied) < 0.03 < 0.05 < calibration_error(chances, satisfied)


def test_platt_of_what_always_succeeds_stays_finite() -> None:
    found = platt([0.999] * 50, [True] * 50)
    assert all(map(np.isfinite, found.values())) and 0.9 < reading(0.999, found) < 1.0
