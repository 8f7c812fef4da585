"""The interval of a binomial proportion against closed forms and against its own promise (coverage)."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from temporeal.sim.stl.analysis.binomial import clopper_pearson


def upper_tail(k: int, n: int, p: float) -> float:
    """P(X >= k) of a binomial."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("k", "n"), [(1, 10), (5, 10), (9, 10), (47, 50), (1, 200)])
def test_bounds_solve_the_defining_equations(k: int, n: int) -> None:
    low, high = clopper_pearson(k, n, 0.95)
    assert upper_tail(k, n, low) == pytest.approx(0.025, rel=1e-6)
    assert 1 - upper_tail(k + 1, n, high) == pytest.approx(0.025, rel=1e-6)


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_all_or_none_has_the_closed_form(n: int) -> None:
    assert clopper_pearson(n, n, 0.95) == (pytest.approx(0.025 ** (1 / n)), 1.0)
    assert clopper_pearson(0, n, 0.95) == (0.0, pytest.approx(1 - 0.025 ** (1 / n)))


@pytest.mark.parametrize("p", [0.02, 0.5, 0.97])
def test_interval_covers_the_truth_at_least_as_often_as_it_says(p: float) -> None:
    n = 40
    covered = sum(
        comb(n, k) * p**k * (1 - p) ** (n - k)
        for k in range(n + 1) if clopper_pearson(k, n, 0.9)[0] <= p <= clopper_pearson(k, n, 0.9)[1])
    assert covered >= 0.9


@given(st.integers(1, 500), st.data())
def test_interval_holds_the_estimate_and_mirrors(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = clopper_pearson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    mirrored = clopper_pearson(n - k, n)
    assert mirrored == (pytest.approx(1 - high, abs=1e-9), pytest.approx(1 - low, abs=1e-9))


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(1, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0), (1, 5, 0.0)])
def test_senseless_counts_are_errors(k: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="needed|between"):
        clopper_pearson(k, n, confidence)
