"""``temporeal bench sim-gpu``: without a GPU each figure says why it is missing."""

from __future__ import annotations

import pytest
import torch

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.machine import NO_GPU
from temporeal_benchmarks.measurements import sim_gpu


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_each_figure_says_why_it_is_missing():
    rows = [row for row in sim_gpu.run(quick=True) if row.name.startswith("sim_gpu.")]
    assert len(rows) == 3 * 6
    assert all(row.value is None and row.peer == f"not measured: {NO_GPU}" for row in rows)
    assert {row.ok for row in rows if row.target} == {False} and {row.ok for row in rows if not row.target} == {None}


def test_what_is_asked_for_is_measured():
    rows = sim_gpu.run(quick=False, robots=["hand"], worlds=["7", "8"], learn=["0"])
    assert {row.name.rsplit(".", 1)[0] for row in rows} == {"settings", "sim_gpu.hand.7", "sim_gpu.hand.8"}


@pytest.mark.parametrize("asked, told", [
    ({"robots": ["leg"]}, "--robots: there is no 'leg'; legal: arm, hand, quadruped"),
    ({"worlds": ["0"]}, "--worlds: whole numbers from 1, got '0'"),
    ({"learn": ["1", "2"]}, "--learn: one number from 0, got 1,2"),
    ({"learn": ["nan"]}, "--learn: one number from 0, got nan"),
])
def test_what_cannot_be_measured_is_refused(asked, told):
    with pytest.raises(BadInput, match=told):
        sim_gpu.run(quick=True, **asked)
