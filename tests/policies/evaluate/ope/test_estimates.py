"""Intervals, lower bounds, pairs, the gate, and rankings."""

import numpy as np
import pytest
from scipy import stats

from temporeal.policies.evaluate.ope.estimates import Estimate, Weighted, lower_bound, resampled
from temporeal.policies.evaluate.ope.gate import gate, share_of
from temporeal.policies.evaluate.ope.ranking import rank_correlation, regret_at_k, sharpe_ratio_at_k


def mean_of(values: np.ndarray, seed: int = 0) -> Estimate:
    return Weighted(values[:, None], np.ones((len(values), 1)), np.zeros(len(values))).estimate(seed=seed)


def test_bounds_of_a_mean_are_the_textbook_ones() -> None:
    values = np.random.default_rng(0).normal(1.0, 2.0, 30)
    found = mean_of(values)
    error = values.std(ddof=1) / np.sqrt(30)
    assert lower_bound(found, 0.95, "t") == pytest.approx(values.mean() - stats.t.ppf(0.95, 29) * error)
    low, high = found.interval(0.9)
    assert low == pytest.approx(values.mean() - 1.645 * error, abs=0.3 * error)
    assert high == pytest.approx(values.mean() + 1.645 * error, abs=0.3 * error)
    log = np.log(2 / 0.05)
    bernstein = values.mean() - values.std(ddof=1) * np.sqrt(2 * log / 30) - 7 * 10.0 * log / (3 * 29)
    assert lower_bound(found, 0.95, "bernstein", spread=10.0) == pytest.approx(bernstein)


def test_separate_fits_have_the_spread_of_one_fit() -> None:
    draws = np.array([1.0, 2.0, 3.0, 4.0])
    found = Estimate(2.5, np.zeros(5), draws, independent=True)
    half = stats.t.ppf(0.975, 3) * draws.std(ddof=1)
    assert found.interval() == pytest.approx((2.5 - half, 2.5 + half))
    assert lower_bound(found, 0.975) == pytest.approx(2.5 - half)


def test_pairs_cancel_what_both_share() -> None:
    luck = np.random.default_rng(1).normal(0.0, 10.0, 50)
    better, parent = mean_of(luck + 0.5 + 0.01 * luck**2 / 100), mean_of(luck)
    assert gate(better, parent).accepted
    assert not gate(parent, better).accepted
    assert not gate(parent, parent).accepted
    apart = better.interval()[0] - parent.interval()[1]
    assert apart < 0  # their own intervals overlap widely


def test_few_effective_episodes_pass_no_gate() -> None:
    weight = np.ones((40, 1))
    weight[0] = 1e6
    heavy = Weighted(np.full((40, 1), 5.0) + np.arange(40)[:, None] * 0.01, weight, np.zeros(40), True).estimate()
    said = gate(heavy, mean_of(np.zeros(40)))
    assert not said.accepted
    assert "effective episodes" in said.why


def test_confidence_is_shared_among_updates() -> None:
    assert share_of(0.95, 1) == pytest.approx(0.95)
    assert share_of(0.95, 200) == pytest.approx(0.99975)
    with pytest.raises(ValueError, match="at least 1"):
        share_of(0.95, 0)


@pytest.mark.parametrize(("rule", "message"), [("wald", "legal: t, bootstrap"), ("bernstein", "needs the spread")])
def test_unknown_rules_are_refused(rule: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lower_bound(mean_of(np.arange(9.0)), 0.9, rule)


def test_estimates_of_other_episodes_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        mean_of(np.arange(5.0)).minus(mean_of(np.arange(6.0)))


def test_resamples_have_all_episodes() -> None:
    counts = resampled(7, 100, 0)
    assert (counts.sum(1) == 7).all()
    assert (counts == resampled(7, 100, 0)).all()


def test_shares_of_normalized_sums_are_their_derivative() -> None:
    rng = np.random.default_rng(2)
    found = Weighted(rng.normal(size=(12, 3)), rng.uniform(0.2, 3.0, (12, 3)), rng.normal(size=12), normalized=True)
    at = found.of_counts(np.ones((1, 12)))[0]
    assert found.shares().mean() == pytest.approx(at)
    step = 1e-5
    for episode in range(12):
        counts = np.ones((1, 12))
        counts[0, episode] += step
        slope = (found.of_counts(counts)[0] - at) / step
        assert slope == pytest.approx((found.shares()[episode] - at) / 12, abs=1e-4)


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 5, 20).astype(float)
    b = a + rng.normal(size=20)
    assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert np.isnan(rank_correlation(np.ones(4), np.arange(4.0)))


def test_sharpe_ratio_by_hand() -> None:
    estimated, true = np.array([3.0, 2.0, 1.0, 0.0]), np.array([1.0, 4.0, 2.0, 9.0])
    assert sharpe_ratio_at_k(estimated, true, 2.0, 3) == pytest.approx((4 - 2) / np.std([1, 4, 2]))
    assert np.isnan(sharpe_ratio_at_k(estimated, true, 2.0, 1))
    assert sharpe_ratio_at_k(estimated, np.full(4, 2.0), 2.0, 2) == 0.0
    assert regret_at_k(estimated, true, 2) == 5.0
