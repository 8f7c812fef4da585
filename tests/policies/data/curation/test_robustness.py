"""A formula on many episodes at once says what it says of each alone."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.policies.data.curation.robustness import Table, blocks, judge, scaled, weights
from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.analysis.explain import explain
from temporeal.sim.stl.language.conventions import RTAMT
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.monitoring.monitor import Monitor

SIGNALS = schema(SignalSpec("x", (), "m"), SignalSpec("p", (3,), "m"))
SIGN = {"satisfied": 1, "violated": -1, "undecided": 0}
FORMULAS = ("F[0,3] (x > 1) & G[0,4] (norm(p) < 3.5)", "F[0,2] G[0,0.3] (x >= 0) & (x < 1) U[0,2] (p.y > 1)",
            "G[1,5] !(x > 2.0)", "F[0,1] (mission_time > 0.55 & x > 0)")


def table(count=12, lost=0, seed=0):
    """Random walks of random lengths; ``lost`` values are NaN."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(5, 60, count))])
    columns = {"x": rng.normal(size=starts[-1]).round(1), "p": rng.normal(size=(starts[-1], 3))}
    columns["x"][rng.integers(0, starts[-1], lost)] = np.nan
    return Table("set", SIGNALS, columns.__getitem__, starts, 0.1)


def episode(of, e):
    """The signals of one episode."""
    rows = slice(of.starts[e], of.starts[e + 1])
    signals = {name: of.column(name)[rows] for name in of.signals}
    return {**signals, "mission_time": 0.1 * np.arange(of.lengths[e])}


def parsed(text):
    return parse(text, {**SIGNALS, "mission_time": SignalSpec("mission_time", (), "s")})


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("partial", [False, True])
def test_all_at_once_is_each_alone_with_samples_lost_and_without(text, partial):
    formula = parsed(text)
    for lost in (0, 9):
        of = table(lost=lost)
        found = judge(formula, of, partial=partial, unknown=True)
        for e in range(len(of.lengths)):
            alone = explain(formula, episode(of, e), 0.1, RTAMT, partial)
            assert found.verdicts[e] == SIGN[alone.verdict], (text, e)
            np.testing.assert_allclose(found.robustness[e], alone.robustness, rtol=1e-9)


def test_the_time_of_a_verdict_is_the_monitors():
    formula, of = parsed(FORMULAS[0]), table(20)
    found = judge(formula, of, when=True)
    for e in range(20):
        monitor, signals, decided = Monitor(formula, 0.1, RTAMT, compiled=False), episode(of, e), None
        for k in range(of.lengths[e]):
            reading = monitor.update({name: values[k] for name, values in signals.items()})
            if reading.verdict != "undecided" and decided is None:
                decided = 0.1 * k
        end = 0.1 * (of.lengths[e] - 1)
        assert found.decided[e] == pytest.approx(end if decided is None else decided), e


def test_a_missing_number_is_refused_by_episode_and_sample():
    of = table(5)
    of.column("x")[of.starts[3] + 2] = np.nan
    with pytest.raises(DataError, match="set: episode 3, sample 2: x is NaN"):
        judge(parsed(FORMULAS[0]), of)
    judge(parsed("G[0,1] (norm(p) < 9)"), of)  # what the formula does not read may be missing


def test_a_set_without_episodes_or_signal_is_refused():
    of = table(3)
    with pytest.raises(DataError, match="it has no episode"):
        judge(parsed(FORMULAS[0]), Table("set", SIGNALS, of.column, np.zeros(1, dtype=np.int64), 0.1))
    with pytest.raises(DataError, match="no signal 'x'; signals: p"):
        judge(parsed(FORMULAS[0]), Table("set", {"p": SIGNALS["p"]}, of.column, of.starts, 0.1))


def test_blocks_are_all_episodes_once_and_pad_little():
    lengths = np.random.default_rng(0).integers(2, 2000, 500)
    groups = list(blocks(lengths))
    assert sorted(np.concatenate(groups)) == list(range(500))
    assert sum(lengths[g].max() * len(g) for g in groups) < 1.5 * lengths.sum()


def test_weights_rise_with_robustness_and_have_mean_one():
    found = weights(np.array([-1.0, 0.0, 1.0, np.inf, -np.inf, np.nan]), 2.0)
    assert found.mean() == pytest.approx(1.0)
    assert found[2] / found[1] == pytest.approx(np.exp(2.0))
    assert found[3] == found[2] and found[4] == found[5] == found[0]
    np.testing.assert_array_equal(weights(np.arange(4.0), 0.0), 1.0)
    with pytest.raises(DataError, match="alpha"):
        weights(np.arange(2.0), -1.0)


def test_values_are_scaled_from_the_least_to_the_largest_finite_one():
    np.testing.assert_array_equal(scaled(np.array([1.0, 2.0, 5.0, np.inf, -np.inf, np.nan])), [0, 0.25, 1, 1, 0, 0])
    np.testing.assert_array_equal(scaled(np.array([3.0, 3.0])), [0, 0])
    np.testing.assert_array_equal(scaled(np.array([np.nan, np.inf])), [0, 0])
