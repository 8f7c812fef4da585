"""Times under difference constraints, and what a trace is worth at them: against every assignment there is."""

import json
from fractions import Fraction
from itertools import accumulate, product
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples, thinned

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.constructors import always, eventually, until
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Signal, Truth
from temporeal.sim.stl.planning import grounding
from temporeal.sim.stl.planning.alternative import Alternative, Gap, Keep, Point, Reach, from_json, to_json
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.difference_constraints import closure, forest, needed, order, sampled
from temporeal.sim.stl.semantics.robustness import robustness

P, Q, R = (Signal(n) > 0 for n in "xyz")
DT, SAMPLES = 0.1, 6
SETTINGS = settings(max_examples=examples(80), deadline=None)


@st.composite
def systems(draw, most=3):
    """A number of variables and gaps between them and the start, which may contradict each other."""
    n = draw(st.integers(1, most))
    gaps = []
    for _ in range(draw(st.integers(0, 4))):
        before, after = draw(st.integers(0, n)), draw(st.integers(1, n))
        lo = draw(st.integers(-3, 4))
        if before != after:
            gaps.append(Gap(before, after, lo, lo + draw(st.integers(0, 3))))
    return n, tuple(gaps)


def every(n, gaps):
    """Every assignment [K, n] that satisfies the gaps, in order."""
    found = [t for t in product(range(SAMPLES), repeat=n)
             if all(g.lo <= (0, *t)[g.after] - (0, *t)[g.before] <= g.hi for g in gaps)]
    return np.array(found, dtype=int).reshape(-1, n)


def alternative(n, gaps, reaches=(), keeps=()):
    return Alternative(n, tuple(reaches), tuple(keeps), gaps, SAMPLES, DT)


@SETTINGS
@given(systems())
def test_feasible_times(system):
    n, gaps = system
    all_of_them, a = every(n, gaps), alternative(n, gaps)
    candidates = np.array(list(product(range(-1, SAMPLES + 1), repeat=n)))
    wanted = {tuple(t) for t in all_of_them.tolist()}
    assert grounding.feasible(a, candidates).tolist() == [tuple(t) in wanted for t in candidates.tolist()]
    if not len(all_of_them):
        with pytest.raises(FormulaError, match="no times satisfy the constraints"):
            _ = a.bounds
        return
    found = grounding.groundings(a)
    assert sorted(map(tuple, found.tolist())) == sorted(wanted)
    np.testing.assert_array_equal(grounding.windows(a), np.stack([all_of_them.min(0), all_of_them.max(0)], -1))
    drawn = grounding.sample(a, 50, np.random.default_rng(0))
    assert drawn.shape == (50, n) and {tuple(t) for t in drawn.tolist()} <= wanted
    with pytest.raises(FormulaError, match=f"more than {len(found) - 1} groundings"):
        grounding.groundings(a, limit=len(found) - 1)


@SETTINGS
@given(systems())
def test_closure_is_tight_and_its_needed_entries_are_the_fewest(system):
    n, gaps = system
    all_of_them = every(n, gaps)
    assume(len(all_of_them))
    d = alternative(n, gaps).bounds
    full = np.concatenate([np.zeros((len(all_of_them), 1), int), all_of_them], 1)
    np.testing.assert_array_equal(d, (full[:, None, :] - full[:, :, None]).max(0))
    assume(not ((d + d.T == 0) & ~np.eye(n + 1, dtype=bool)).any())
    edges = [(int(i), int(j), int(d[i, j])) for i, j in zip(*np.nonzero(needed(d)), strict=True)]
    np.testing.assert_array_equal(closure(n, edges), d)
    for drop in edges:
        assert not np.array_equal(closure(n, [e for e in edges if e != drop]), d)


@SETTINGS
@given(systems(most=4))
def test_order_follows_precedence(system):
    n, gaps = system
    all_of_them = every(n, gaps)
    assume(len(all_of_them))
    found = order(alternative(n, gaps).bounds)
    assert sorted(found) == list(range(1, n + 1))
    for place, j in enumerate(found):
        for i in found[place + 1:]:  # no later one is always before j
            behind = all_of_them[:, i - 1] - all_of_them[:, j - 1]
            assert (behind > 0).any() or ((behind == 0).all() and i > j)


def test_forest_has_parents_first_and_no_cycle():
    assert forest(4, [(1, 2), (3, 2)]) == [(1, 0), (2, 1), (3, 2), (4, 0)]
    assert forest(3, [(1, 2), (2, 3), (1, 3)]) is None


CHAIN = (Gap(0, 1, 0, 5), Gap(1, 2, 0, 3), Gap(2, 3, 1, 2))  # the last sample binds: late starts have fewer ways on
CYCLE = (Gap(1, 2, 0, 4), Gap(2, 3, 0, 4), Gap(1, 3, 2, 5))


STAR = (Gap(1, 2, 0, 3), Gap(1, 3, 1, 2))


@pytest.mark.parametrize("gaps, sweeps", [(CHAIN, 0), (STAR, 0), (CYCLE, 10)])
def test_samples_are_uniform(gaps, sweeps):
    """Every grounding as often as every other, up to five standard deviations of its count."""
    a, count = alternative(3, gaps), 40_000
    all_of_them = [tuple(t) for t in grounding.groundings(a).tolist()]
    drawn = [tuple(t) for t in grounding.sample(a, count, np.random.default_rng(1), sweeps).tolist()]
    share = 1 / len(all_of_them)
    assert len(all_of_them) > 15
    for t in all_of_them:
        assert abs(drawn.count(t) - count * share) < 5 * (count * share * (1 - share)) ** 0.5


def means_of_the_uniform(a):
    """(mean, standard deviation) of each time of a sequence, from whole numbers of ways to go on and to get there."""
    d, t = a.bounds, range(a.samples)
    steps = [(-int(d[v + 1, v]), int(d[v, v + 1])) for v in range(1, a.variables)]

    def moved(ways, lo, hi):
        sums = [0, *accumulate(ways)]
        return [sums[min(max(i - lo + 1, 0), len(ways))] - sums[min(max(i - hi, 0), len(ways))] for i in t]

    there = [[int(-d[1, 0] <= i <= d[0, 1]) for i in t]]
    for lo, hi in steps:
        there.append(moved(there[-1], lo, hi))
    last = a.variables
    on = [[int(-d[last, 0] <= i <= d[0, last]) for i in t]]
    for lo, hi in steps[::-1]:
        on.insert(0, moved(on[0], -hi, -lo))
    for before, after in zip(there, on, strict=True):
        ways = [b * c for b, c in zip(before, after, strict=True)]
        mean = Fraction(sum(i * w for i, w in enumerate(ways)), sum(ways))
        square = Fraction(sum(i * i * w for i, w in enumerate(ways)), sum(ways))
        yield float(mean), float(square - mean**2) ** 0.5


@pytest.mark.parametrize("gaps, samples", thinned([
    ([Gap(0, 1, 0, 9), *(Gap(v, v + 1, 0, 12) for v in range(1, 90)), Gap(0, 90, 900, 999)], 1000),
    ([Gap(v, v + 1, 0, 999) for v in range(1, 150)], 1000),
    ([Gap(v, v + 1, 0, 11) for v in range(1, 190)], 2000),
    ([Gap(v, v + 1, 0, 11) for v in range(190)] + [Gap(0, 190, 2050, 2089)], 2090),  # nearly every step is the longest
], keep=lambda case: case[1] == 1000))
def test_samples_of_long_sequences_are_uniform(gaps, samples):
    """Against whole numbers, where windows have 10^-300 of all the ways."""
    a = Alternative(max(g.after for g in gaps), (), (), tuple(gaps), samples, DT)
    drawn = grounding.sample(a, 4000, np.random.default_rng(3))
    assert grounding.feasible(a, drawn).all()
    for times, (mean, deviation) in zip(drawn.T, means_of_the_uniform(a), strict=True):
        assert abs(times.mean() - mean) <= 5 * deviation / 4000**0.5
        assert abs(times.std() - deviation) <= 0.1 * deviation


def test_draws_across_alternatives():
    found = decompose(eventually(0, 0.3, P & eventually(0, 0.2, Q)) | until(Q, 0, 0.2, R) | always(0, 0.2, P), DT)
    drawn = grounding.draw(found, 3000, np.random.default_rng(0))
    for k, a in enumerate(found.alternatives):
        times = np.array([t for index, t in drawn if index == k])
        assert abs(len(times) - 1000) < 5 * (3000 * 2 / 9) ** 0.5 and grounding.feasible(a, times).all()
        assert len(np.unique(times, axis=0)) == len(grounding.groundings(a))
    with pytest.raises(FormulaError, match="nothing to draw: nothing satisfies"):
        grounding.draw(decompose(eventually(0, 1, Truth(False)), DT), 3, np.random.default_rng(0))


@SETTINGS
@given(st.deferred(lambda: alternatives))
def test_json(a):
    assert from_json(json.loads(json.dumps(to_json(a)))) == a


def test_json_of_what_is_made():
    for a in decompose(eventually(0, 0.3, P & until(Q, 0, 0.2, R)) | always(0, 0.2, P | Q), DT):
        assert from_json(json.loads(json.dumps(to_json(a)))) == a


@pytest.mark.parametrize("change, message", [
    ({"variables": 1}, "there are variables 0 to 1, got"), ({"samples": 0}, "at least 1 is expected, got 0"),
    ({"gaps": [[0, 1, 2]]}, "not enough values"), ({"dt": None}, "float"), ({"keeps": 3}, "not iterable"),
    ({"reaches": [{"predicate": 1, "variable": 1}]}, "a node is an object"),
])
def test_bad_json_is_named(change, message):
    data = to_json(alternative(2, (Gap(1, 2, 0, 2),), [Reach(P, 1)]))
    with pytest.raises(FormulaError, match=f"not the JSON of an alternative: .*{message}"):
        from_json({**data, **change})
    with pytest.raises(FormulaError, match="not the JSON of an alternative"):
        from_json([1])


def test_without_sweeps_a_cycle_is_not_drawn_uniformly():
    a = alternative(3, CYCLE)
    drawn = sampled(a.bounds, None, 40_000, np.random.default_rng(1), 0)[:, 1:].tolist()
    share = 1 / len(grounding.groundings(a))
    counts = [drawn.count(t) for t in grounding.groundings(a).tolist()]
    assert max(counts) > 2 * 40_000 * share


# ---------------------------------------------------------------- what a trace is worth


def worth(a, trace, times):
    """Straight from the definition; ``trace`` [T] by signal name."""
    full = (0, *times)
    values = [trace[r.predicate.left.name][full[r.variable]] for r in a.reaches]
    for k in a.keeps:
        first, last = full[k.start.variable] + k.start.offset, full[k.end.variable] + k.end.offset
        values += trace[k.predicate.left.name][max(first, 0) : max(last + 1, 0)].tolist()
    return min(values, default=inf)


points = st.builds(Point, st.integers(0, 2), st.integers(-2, 7))
predicates = st.sampled_from([P, Q, R])
alternatives = st.builds(
    lambda gaps, reaches, keeps: alternative(2, gaps, reaches, keeps),
    st.sampled_from([(), (Gap(1, 2, 0, 2),), (Gap(0, 1, 1, 3), Gap(1, 2, -1, 2))]),
    st.lists(st.builds(Reach, predicates, st.integers(1, 2)), max_size=2).map(tuple),
    st.lists(st.builds(Keep, predicates, points, points), max_size=3).map(tuple))


def noise(seed, *shape):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name in "xyz"}


@SETTINGS
@given(alternatives, st.integers(0, 1000))
def test_margins_of_one_trace_and_of_one_each(a, seed):
    times = grounding.groundings(a)
    one = noise(seed, SAMPLES + 2)
    cut = {k: v[:SAMPLES] for k, v in one.items()}
    assert grounding.margins(a, one, times).tolist() == [worth(a, cut, t) for t in times]
    each = noise(seed, SAMPLES, len(times))
    expected = [worth(a, {k: v[:, i] for k, v in each.items()}, t) for i, t in enumerate(times)]
    assert grounding.margins(a, each, times).tolist() == expected


@SETTINGS
@given(alternatives, st.integers(0, 1000))
def test_best_grounding(a, seed):
    signals = noise(seed, SAMPLES, 3)
    times = grounding.groundings(a)
    values, chosen = grounding.best(a, signals)
    for n in range(3):
        trace = {k: v[:, n] for k, v in signals.items()}
        assert values[n] == max(worth(a, trace, t) for t in times) == worth(a, trace, chosen[n])
    assert grounding.feasible(a, chosen).all()


def test_best_grounding_is_one_even_where_none_is_worth_anything():
    a = alternative(2, (Gap(0, 1, 1, 3), Gap(1, 2, 1, 2)), [Reach(P, 1), Reach(P, 2)])
    values, chosen = grounding.best(a, {"x": np.full((SAMPLES, 2), -inf)})
    assert values.tolist() == [-inf, -inf] and grounding.feasible(a, chosen).all()


def test_best_grounding_where_the_constraints_form_a_cycle():
    a = alternative(3, CYCLE, [Reach(P, 1), Reach(Q, 2), Reach(R, 3)], [Keep(P, Point(2, 1), Point(3, -1))])
    signals = noise(5, SAMPLES, 4)
    values, chosen = grounding.best(a, signals)
    for n in range(4):
        trace = {k: v[:, n] for k, v in signals.items()}
        assert values[n] == max(worth(a, trace, t) for t in every(3, CYCLE)) == worth(a, trace, chosen[n])
    with pytest.raises(FormulaError, match="more than 3 groundings"):
        grounding.best(a, signals, limit=3)


def test_times_that_break_a_rule_are_worth_less_than_any():
    a = alternative(2, (Gap(1, 2, 0, 2),), [Reach(P, 1)])
    times = np.array([[0, 0], [4, 2], [2, 5], [3, 6], [-1, 0], [100, 100], [3, 5]])
    x = {"x": np.arange(SAMPLES, dtype=float)}
    assert grounding.margins(a, x, times).tolist() == [0, -inf, -inf, -inf, -inf, -inf, 3]
    nothing = alternative(1, (Gap(0, 1, 0, 2),))
    assert grounding.margins(nothing, {}, np.array([[2], [3]])).tolist() == [inf, -inf]


@pytest.mark.parametrize("formula", [
    eventually(0, 0.3, P), always(0, 0.3, P), eventually(0, 0.1, P & eventually(0.1, 0.2, P)) | always(0, 0.3, Q),
    eventually(0, 0.1, P & eventually(0, 0.2, Q)) | eventually(0, 0.3, P)])
def test_a_nan_is_worth_nan(formula):
    signals = noise(3, 4, 5)
    for t in range(4):
        signals["x"][t, t + 1] = np.nan  # trace 0 has none
    expected = robustness(formula, signals, DT)[0]
    assert np.isnan(expected).tolist() == [False, True, True, True, True]
    np.testing.assert_array_equal(grounding.value(decompose(formula, DT), signals), expected)


def test_a_nan_is_found_by_trying_every_grounding_too():
    a = alternative(3, CYCLE, [Reach(P, 1), Reach(Q, 2), Reach(R, 3)])
    signals = noise(5, SAMPLES, 2)
    signals["x"][1, 1] = np.nan
    values, chosen = grounding.best(a, signals)
    assert np.isnan(values).tolist() == [False, True] and grounding.feasible(a, chosen).all()


@pytest.mark.parametrize("formula", [
    eventually(0, 0.3, P) | until(Q, 0, 0.2, R), Truth(True) | P, always(0, 0.1, Truth(False)) & P])
def test_one_trace_needs_no_batch(formula):
    found, signals = decompose(formula, DT), noise(2, 4, 1)
    one = {k: v[:, 0] for k, v in signals.items()}
    worth_it = grounding.value(found, one)
    assert np.shape(worth_it) == () and worth_it == grounding.value(found, signals)
    for a in found.alternatives:
        assert [x.tolist() for x in grounding.best(a, one)] == [x[0].tolist() for x in grounding.best(a, signals)]


def test_tensors_are_read_without_their_gradients():
    torch = pytest.importorskip("torch")
    formula, signals = eventually(0, 0.3, P) | until(Q, 0, 0.2, R), noise(2, 4, 3)
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in signals.items()}
    found = decompose(formula, DT)
    np.testing.assert_array_equal(grounding.value(found, tensors), grounding.value(found, signals))


def test_value_is_the_best_of_all_alternatives():
    formula = eventually(0, 0.3, P) | until(Q, 0, 0.2, R)
    signals = noise(7, 4, 5)
    first = signals["x"].max(0)
    second = np.max([signals["z"][0], np.minimum(signals["z"][1], signals["y"][0]),
                     np.min([signals["z"][2], signals["y"][0], signals["y"][1]], 0)], 0)
    np.testing.assert_array_equal(grounding.value(decompose(formula, DT), signals), np.maximum(first, second))


def test_bad_input_is_named():
    a = decompose(eventually(0, 0.5, P) & always(0, 0.5, Q), DT).single()
    with pytest.raises(FormulaError, match=r"times are integers \[K, 1\], got float64 \[2, 1\]"):
        grounding.margins(a, noise(0, 6), np.zeros((2, 1)))
    with pytest.raises(FormulaError, match=r"times are integers \[K, 1\], got int64 \[2, 3\]"):
        grounding.feasible(a, np.zeros((2, 3), dtype=int))
    with pytest.raises(SignalError, match="the trace has 5 samples; the decomposition needs 6"):
        grounding.margins(a, noise(0, 5), np.zeros((1, 1), dtype=int))
    with pytest.raises(SignalError, match=r"3 rows of times need one trace or as many, got traces of shape \[2\]"):
        grounding.margins(a, noise(0, 6, 2), np.zeros((3, 1), dtype=int))
    with pytest.raises(SignalError, match=r"\['y'\], which are missing"):
        grounding.margins(a, {"x": np.zeros(6)}, np.zeros((1, 1), dtype=int))
    with pytest.raises(SignalError, match=r"traces are \[T, \*shape\] or \[T, N, \*shape\], all alike; got"):
        grounding.best(a, {"x": np.zeros((6, 2)), "y": np.zeros(6)})
    with pytest.raises(SignalError, match="there are no signals"):
        grounding.value(decompose(Truth(True), DT), {})
    for samples in (2.5, True, "3"):
        with pytest.raises(FormulaError, match="a whole number of samples, at least 1 sample, got samples = "):
            decompose(P, DT, samples=samples)
