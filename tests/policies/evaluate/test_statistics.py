"""Statistics of episodes: counts, and quantiles of what is finite."""

from __future__ import annotations

import numpy as np

from temporeal.policies.evaluate.statistics import proportion, summarize


def test_proportion_counts() -> None:
    found = proportion(np.array([True, True, False, True]))
    assert (found.successes, found.trials, found.estimate) == (3, 4, 0.75)


def test_summary_ignores_what_is_not_finite() -> None:
    found = summarize(np.array([0.0, 1.0, 2.0, 3.0, 4.0, np.nan, np.inf]))
    assert found.count == 5 and found.mean == 2.0 and found.median == 2.0
    assert found.quantiles[0.25] == 1.0 and found.quantiles[1.0] == 4.0
    assert summarize(np.array([np.nan])).count == 0 and np.isnan(summarize(np.array([])).median)
