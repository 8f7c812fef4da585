"""Decomposition: worth exactly the robustness, on every formula that has one; what has none; what it looks like."""

import re
from itertools import combinations, pairwise, product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples, thinned
from tests.sim.stl.definition import DT, Definition, formulas, samples, split, traces

from temporeal.sim.stl.language.constructors import always, equal, eventually, release, until
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, Signal, Truth
from temporeal.sim.stl.language.queries import children, horizon
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Release,
    Since,
    Until,
    WeakUntil,
    Window,
)
from temporeal.sim.stl.planning import simplify
from temporeal.sim.stl.planning.alternative import All, Gap, Keep, Point, Reach
from temporeal.sim.stl.planning.decompose import Decomposition, decompose
from temporeal.sim.stl.planning.difference_constraints import enumerated
from temporeal.sim.stl.planning.grounding import value
from temporeal.sim.stl.planning.plan import Invariant, Subgoal, plan
from temporeal.sim.stl.planning.rules import links, most_runs
from temporeal.sim.stl.rewriting.normal import NotDecomposable, positive

P, Q, R = (Signal(n) > 0 for n in "xyz")


# ---------------------------------------------------------------- exactness


def brute(decomposition, trace):
    """The largest value over all alternatives and groundings of the smallest margin, straight from the data."""
    means = Definition(trace, 0)
    return max((worth(a, times, means, len(trace)) for a in decomposition.alternatives for times in assignments(a)),
               default=-inf)


def assignments(a, times=(0,)):
    """Every assignment (tau_0 = 0, tau_1, ...) that satisfies the gaps, variable by variable."""
    v = len(times)
    if v > a.variables:
        yield times
        return
    for tau in range(a.samples):
        new = (*times, tau)
        gaps = [g for g in a.gaps if max(g.before, g.after) == v]
        if all(g.lo <= new[g.after] - new[g.before] <= g.hi for g in gaps):
            yield from assignments(a, new)


def worth(a, times, means, length):
    values = [means.at(r.predicate, times[r.variable]) for r in a.reaches]
    for k in a.keeps:
        first, last = (times[p.variable] + p.offset for p in (k.start, k.end))
        values += [means.at(k.predicate, t) for t in range(max(first, 0), min(last, length - 1) + 1)]
    return min(values, default=inf)


def exact(formula, signals, length=None, semantics=None, limit=20_000):
    """The robustness at time 0 is that of the decomposition; what has none says why. True if that was compared."""
    given = {} if semantics is None else {"semantics": semantics}
    try:
        found = decompose(formula, DT, length, **given)
    except NotDecomposable as error:
        assert "its own choice between its parts" in error.reason
        return False
    if found.count > 64:
        return False
    traces_ = [samples(signals, n) for n in range(signals["x"].shape[1])]
    expected = [Definition(trace, 0, **given).at(formula, 0) for trace in traces_]
    listed = [enumerated(a.bounds, 500) for a in found.alternatives]
    if all(times is not None for times in listed) and sum(map(len, listed)) <= 500:
        assert [brute(found, trace) for trace in traces_[:3]] == expected[:3]
    try:
        values = value(found, signals, limit=limit)
    except FormulaError as error:
        assert f"more than {limit} groundings" in str(error)
        return False
    assert values.tolist() == expected
    return True


def noise(length, seed, batch=2):
    return split(np.random.default_rng(seed).integers(-4, 5, (length, batch, 5)) / 2)


MANY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=examples(200), **MANY)
@given(formulas(max_leaves=5), seeds, st.integers(0, 3))
def test_exact_on_traces_that_reach_the_horizon(formula, seed, more):
    exact(formula, noise(steps(horizon(formula, DT), DT) + 1 + more, seed))


@settings(max_examples=examples(200), **MANY)
@given(formulas(max_leaves=5, unbounded=True), traces(most=9))
def test_exact_on_traces_of_any_length_if_that_is_given(formula, signals):
    exact(formula, signals, len(signals["x"]))


@settings(max_examples=examples(60), **MANY)
@given(formulas(max_leaves=4), traces(most=8))
def test_exact_where_until_is_closed_on_the_left(formula, signals):
    exact(formula, signals, len(signals["x"]), Semantics(until="closed"))


def operators(a, b):
    """Every operator over ``a``, with ``b`` as the other side where there is one."""
    w, one = Window(0.1, 0.3), Window(0.2, 0.2)
    return {
        "G": Always(a, w), "F": Eventually(a, w), "G1": Always(a, one), "X": Next(a), "sX": Next(a, True),
        "lU": Until(a, b, w), "rU": Until(b, a, w), "lR": Release(a, b, w), "rR": Release(b, a, w),
        "U0": Until(a, b, Window(0, 0.2)), "R0": Release(a, b, Window(0, 0.2)), "lW": WeakUntil(a, b, w),
        "rW": WeakUntil(b, a, w), "and": And((a, b)), "or": Or((a, b)), "implies": Implies(a, b), "not": Not(a),
        "iff": Iff(a, b), "S0": Since(a, b, Window(0, 0.2)),
        "H": Historically(a, w), "O": Once(a, w), "lS": Since(a, b, w), "rS": Since(b, a, w),
        "Y": Previous(a), "sY": Previous(a, True)}


X1, Y1, Z1 = Signal("x", (), "m") > 0, Signal("y", (), "m") > 0, Signal("p", (3,), "m")[0] > 0
NAMES = list(operators(X1, Y1))
PAST = ("H", "O", "lS", "rS", "S0", "Y", "sY")


@pytest.mark.parametrize("outer", thinned(NAMES, keep=lambda name: name not in ("rU", "rR", "rW", "R0")))
@pytest.mark.slow
def test_exact_for_every_pair_of_operators_and_its_negation(outer):
    for seed, inner in enumerate(NAMES):
        formula = operators(operators(X1, Y1)[inner], Z1)[outer]
        for wanted in (formula, Not(formula)):
            assert exact(wanted, noise(steps(horizon(wanted, DT), DT) + 1, seed, batch=3))
            assert exact(wanted, noise(3, seed, batch=3), 3)


@pytest.mark.parametrize("inner", NAMES)
def test_exact_for_what_triggers_under_always(inner):
    triggered = Always(Implies(Z1, operators(X1, Y1)[inner]), Window(0, 0.4))
    until_like = inner[-1] in "URWS" or inner in ("U0", "R0", "S0")
    assert exact(triggered, noise(steps(horizon(triggered, DT), DT) + 1, 0, batch=50)) != until_like
    assert exact(triggered, noise(4, 0, batch=50), 4) != until_like


@pytest.mark.parametrize("outer", [*PAST[:2], *(pytest.param(outer, marks=pytest.mark.slow) for outer in PAST[2:])])
def test_exact_where_the_past_has_begun(outer):
    compared = 0
    for seed, inner in enumerate(("G", "F", "lU", "rR", "X", *PAST)):
        for negate in (False, True):
            f = operators(operators(X1, Y1)[inner], Z1)[outer]
            f = Not(f) if negate else f
            for wanted in (Always(f, Window(0.2, 0.4)), Eventually(f, Window(0.2, 0.5))):
                compared += exact(wanted, noise(steps(horizon(wanted, DT), DT) + 1, seed, batch=8))
                compared += exact(wanted, noise(4, seed, batch=8), 4)
    assert compared > 80


SOON = Eventually(X1, Window(0, 0.1))


@pytest.mark.parametrize("formula", [
    Always(Z1 | Next(X1)), Always(Z1 | Next(X1, True)), Always(Z1 | Next(SOON)), Always(Z1 | Next(SOON, True)),
    Always(Z1 | Next(Always(X1, Window(0, 0.1)), True)), Always(Next(Y1) | Next(X1)), Always(Next(Y1) | SOON),
    Always(Z1 | Next(Next(X1)), Window(0, 0.2)), Always(SOON | Eventually(Y1, Window(0, 0.1))),
    Always(Z1 | Always(Next(SOON, True), Window(0.1, 0.1))),
    Always(Truth(False), Window(0.3, 0.5)), Eventually(Always(Truth(False), Window(0.2, 0.3)), Window(0, 0.2)),
    Eventually(Historically(Truth(False), Window(0.2, 0.3)), Window(0, 0.2)), Until(Truth(False), X1, Window(0, 0.2)),
    Eventually(Truth(True), Window(0.3, 0.4)), Always(Eventually(Truth(True), Window(0.1, 0.2)), Window(0, 0.2)),
])
def test_exact_at_the_end_of_the_trace(formula):
    for length in range(1, 7):
        assert exact(formula, noise(length, length, batch=12), length, limit=100_000)


def test_a_chain_has_the_fewest_links_that_are_always_enough():
    """Against every set of hits: one per window asks for at most so many of them, and some set for as many."""
    for count in range(1, 8):
        for width in range(1, 5):
            places = range(count + width - 1)
            sets = [h for n in range(1, len(places) + 1) for h in combinations(places, n)
                    if all(any(t <= x < t + width for x in h) for t in range(count))]
            assert max(fewest(h, count, width) for h in sets) == links(count, width)


def fewest(hits, count, width):
    """Fewest of ``hits`` that have one in each window."""
    return next(n for n in range(1, len(hits) + 1) for some in combinations(hits, n)
                if some[0] < width and some[-1] >= count - 1 and all(b - a <= width for a, b in pairwise(some)))


def test_there_are_no_more_runs_than_counted():
    """Against every set of samples at which the predicate holds."""
    for count in range(1, 8):
        for width in range(1, 4):
            found = []
            for holds in product([False, True], repeat=count + width - 1):
                good = [all(holds[t : t + width]) for t in range(count)]
                found.append(sum(now and not before for before, now in pairwise([False, *good])))
            assert max(found) == most_runs(count, width)


def test_normal_form_has_no_negation_and_the_same_worth():
    @settings(max_examples=examples(100), **MANY)
    @given(formulas(max_leaves=5, unbounded=True), traces(most=7, batch=1))
    def holds(formula, signals):
        wanted = positive(formula)
        assert not any(isinstance(f, (Not, Implies, Iff)) and not isinstance(children(f)[0], Since)
                       for f in within(wanted))
        trace = samples(signals)
        for kind in (0, 1):
            assert Definition(trace, kind).at(wanted, 0) == Definition(trace, kind).at(formula, 0)

    holds()


def within(formula: Formula):
    yield formula
    for child in children(formula):
        yield from within(child)


# ---------------------------------------------------------------- what it looks like


def text(formula, **given):
    return str(decompose(formula, 0.1, **given))


@pytest.mark.parametrize("formula, expected", [
    (eventually(0, 3, P & eventually(1, 2, Q)), "t1 in [0, 3]: reach x > 0\nt2 in [t1 + 1, t1 + 2]: reach y > 0"),
    (eventually(1, 2, always(0.5, 2, P)), "t1 in [1.5, 2.5]\nkeep x > 0 on [t1, t1 + 1.5]"),
    (until(P, 0, 2, Q), "t1 in [0, 2]: reach y > 0\nkeep x > 0 on [0, t1)"),
    (eventually(0, 1, eventually(0, 1, P) & eventually(0, 1, Q)),
     "t1 in [0, 2]: reach x > 0\nt2 in [t1 - 1, t1 + 1]: reach y > 0"),
    (until(eventually(0, 0.1, P), 0, 0.2, Q),
     "t1 in [0, 0.1]: reach x > 0\nt2 in [t1, t1 + 0.2]: reach x > 0\n"
     "t3 in [0.1, 0.2] and [t2, t2 + 0.1]: reach y > 0\nor\nkeep y > 0 at 0"),
    (always(0, 0.2, eventually(0, 0.1, P)),
     "t1 in [0, 0.1]: reach x > 0\nt2 in [0.2, 0.3] and [t1 + 0.1, t1 + 0.2]: reach x > 0"),
    (release(P, 0, 2, Q), "keep y > 0 on [0, 2]\nor\nt1 in [0, 1.9]: reach x > 0\nkeep y > 0 on [0, t1]"),
    (Next(P), "keep x > 0 at 0.1"),
    (Iff(P, eventually(0, 1, Q)),
     "t1 in [0, 1]: reach y > 0\nkeep x > 0 at 0\nor\nkeep x <= 0 at 0\nkeep y <= 0 on [0, 1]"),
    (always(0, 0.2, P >> eventually(0, 0.3, Q)),
     "keep x <= 0 on [0, 0.2]\nor\n"
     "t1 in [0, 0.5]: reach y > 0\nt2 in [t1, t1 + 0.5]: reach y > 0\n"
     "keep x <= 0 on [0, t1 - 0.4]\nkeep x <= 0 on (t1, t2 - 0.4]\nkeep x <= 0 on (t2, 0.2]"),
    (Truth(True), "nothing to do"),
    (eventually(0, 1, Truth(False)), "nothing satisfies it"),
])
def test_text(formula, expected):
    assert text(formula) == expected


def test_data():
    found = decompose(until(P, 0.5, 2, Q & eventually(0, 1, R)), 0.1).single()
    assert (found.variables, found.samples, found.dt) == (2, 31, 0.1)
    assert found.reaches == (Reach(Q, 1), Reach(R, 2))
    assert found.keeps == (Keep(P, Point(0), Point(1, -1)),)
    assert found.gaps == (Gap(0, 1, 5, 20), Gap(1, 2, 0, 10))


def test_windows_without_an_end_go_to_the_last_sample():
    assert text(Always(P, Window(0.2)), samples=8) == "keep x > 0 on [0.2, 0.7]"
    assert text(eventually(0, 0.3, Always(P)), samples=8) == "t1 in [0, 0.3]\nkeep x > 0 on [t1, 0.7]"
    assert text(Always(Eventually(P)), samples=8) == "keep x > 0 at 0.7"


# ---------------------------------------------------------------- simplification


@pytest.mark.parametrize("formula, expected", [
    (eventually(0, 5, P) & eventually(1, 2, P), "t1 in [1, 2]: reach x > 0"),
    (eventually(0, 3, P & eventually(0, 1, Q)) & eventually(0, 4, Q),
     "t1 in [0, 3]: reach x > 0\nt2 in [t1, t1 + 1]: reach y > 0"),
    (always(0, 5, P) & always(1, 2, P), "keep x > 0 on [0, 5]"),
    (always(0, 5, P & Q) & always(1, 2, P), "keep x > 0 & y > 0 on [0, 5]"),
    (always(0, 5, P) & eventually(2, 7, P), "keep x > 0 on [0, 5]"),
    (until(P, 0, 3, Q) & always(0, 3, P), "t1 in [0, 3]: reach y > 0\nkeep x > 0 on [0, 3]"),
    (eventually(0, 1, P & always(0, 1, P)), "t1 in [0, 1]\nkeep x > 0 on [t1, t1 + 1]"),
    (eventually(1, 1, P), "keep x > 0 at 1"),
    (P | (P & eventually(0, 1, Q)), "keep x > 0 at 0"),
    (eventually(0, 5, P) | eventually(1, 2, P), "t1 in [0, 5]: reach x > 0"),
    (eventually(0, 5, P) | always(1, 2, P), "t1 in [0, 5]: reach x > 0"),
    (eventually(0, 5, P) | Truth(True), "nothing to do"),
    (Or((Once(P, Window(0.1, 0.2)), Q)), "keep y > 0 at 0"),
    (always(3, 5, Q) & always(5, 7, Q), "keep y > 0 on [3, 7]"),
    (always(5, 7, Q) & always(1, 2, Q) & always(2.1, 4.9, Q), "keep y > 0 on [1, 7]"),
    (eventually(0, 1, P & always(0.1, 1, P)), "t1 in [0, 1]\nkeep x > 0 on [t1, t1 + 1]"),
    (until(P, 0, 2, Q) & always(0, 0.2, P), "t1 in [0, 2]: reach y > 0\nkeep x > 0 on [0, t1)\nkeep x > 0 on [0, 0.2]"),
    (always(0, 3, R | P) & always(0, 3, R), "keep z > 0 on [0, 3]"),
    (always(0, 3, (R | P | Q) & P) & always(1, 2, R | P), "keep (z > 0 | x > 0 | y > 0) & x > 0 on [0, 3]"),
    (eventually(0, 3, R) | always(0, 3, R), "t1 in [0, 3]: reach z > 0"),
    (always(0, 1, R | P) | always(0, 1, R), "keep z > 0 | x > 0 on [0, 1]"),
])
def test_what_cannot_decide_is_dropped(formula, expected):
    assert text(formula) == expected


@pytest.mark.parametrize("formula", [
    eventually(0, 2, P) & eventually(1, 3, P),  # neither window holds the other
    eventually(0, 2, P) & eventually(0, 2, Q),
    always(0, 2, P) & always(2.2, 3, P),
    always(0, 2, P | Q) & always(0, 2, P | R),
    always(0, 2, P) & always(0, 3, P | Q),
    eventually(0, 2, P & Q) | eventually(0, 2, P & R),
    always(0, 2, P) & eventually(0, 2, P & Q),
])
def test_what_can_decide_stays(formula):
    found = decompose(formula, 0.1)
    assert sum(len(a.reaches) + len(a.keeps) for a in found) == 2 and len(found.alternatives) == found.count


def test_an_interval_that_may_be_empty_reaches_nothing():
    found = decompose(until(P, 0, 2, Q) & eventually(0, 2, P), 0.1).single()
    assert {r.predicate for r in found.reaches} == {P, Q}


def test_alternatives_that_no_times_satisfy_are_removed():
    formula = eventually(0.3, 0.4, P) | always(0, 0.1, Q)
    assert decompose(formula, 0.1, samples=3).count == 1
    late = Once(eventually(0.3, 0.4, P), Window(0.1, 0.1)) | Q  # at time 0 there was no sample 0.1 s ago
    assert text(late) == "keep y > 0 at 0"
    found = decompose(until(P, 0, 0.4, eventually(0.3, 0.4, R)), 0.1, samples=5)
    assert str(found) == "t1 in [0, 0.1]\nt2 in [t1 + 0.3, t1 + 0.4]: reach z > 0\nkeep x > 0 on [0, t1)"


# ---------------------------------------------------------------- what can hold by more than 0

NEVER = equal(Signal("x"), 1)  # by 0 at most


@pytest.mark.parametrize("formula, expected", [
    ((P >> eventually(0, 1, Q)) & (~P >> eventually(0, 1, R)),  # P and not P at 0 is no way
     "t1 in [0, 1]: reach y > 0\nkeep x > 0 at 0\nor\nt1 in [0, 1]: reach z > 0\nkeep x <= 0 at 0\nor\n"
     "t1 in [0, 1]: reach y > 0\nt2 in [0, 1]: reach z > 0"),
    (always(0, 1, P & Q) & eventually(0.5, 0.5, ~P | ~Q) | R, "keep z > 0 at 0"),
    (always(0, 1, P | Q) & eventually(0, 0.7, always(0, 1, ~P & ~Q)) | R, "keep z > 0 at 0"),
    (eventually(0, 2, always(0, 1, P) & eventually(0.5, 1, ~P)), "nothing satisfies it"),
    (P & ~P & eventually(0, 1, Q), "nothing satisfies it"),
    (eventually(0, 1, P) | eventually(0, 1, NEVER), "t1 in [0, 1]: reach x > 0"),
    (eventually(0, 1, P) & always(0, 1, NEVER & Q), "nothing satisfies it"),
    (until(NEVER, 0, 1, Q), "keep y > 0 at 0"),  # with nothing to keep before it
    (always(0, 0.2, NEVER | eventually(0, 0.3, Q)), str(decompose(always(0, 0.2, eventually(0, 0.3, Q)), 0.1))),
])
def test_strict_is_without_what_never_holds_by_more_than_0(formula, expected):
    assert text(formula, strict=True) == expected != text(formula)


@pytest.mark.parametrize("formula", [
    eventually(0, 1, P) & eventually(0, 1, ~P),  # at two times
    until(P, 0, 1, ~P),
    always(0, 1, P) & eventually(0.5, 1.5, ~P),  # behind it
    always(0, 1, P) & always(1.1, 2, ~P),
    always(0, 1, P | Q) & eventually(0, 1, ~P),
    eventually(0, 1, always(0.2, 0.4, P) & Once(~P, Window(0, 0.1))),
    eventually(0, 1, NEVER | P),
])
def test_strict_is_the_same_where_all_can_hold(formula):
    assert decompose(formula, 0.1, strict=True).alternatives == decompose(formula, 0.1).alternatives


CLASHING = formulas(max_leaves=3, leaf=st.sampled_from([P, ~P, NEVER, Q]))


@settings(max_examples=examples(150), **MANY)
@given(CLASHING, CLASHING, seeds)
def test_strict_is_worth_the_robustness_where_that_is_positive(one, other, seed):
    formula = one & other
    try:
        found = decompose(formula, DT, strict=True)
        signals = noise(found.samples, seed, batch=20)
        values = value(found, signals) if found.count <= 64 and found.alternatives else np.full(20, -inf)
    except FormulaError:
        return
    if found.count <= 64:
        expected = np.array([Definition(samples(signals, n), 0).at(formula, 0) for n in range(20)])
        good = expected > 0
        assert values[good].tolist() == expected[good].tolist() and (values[~good] <= 0).all()


# ---------------------------------------------------------------- how many


def test_alternatives_are_counted_and_made_lazily():
    many = And(tuple(eventually(0, 1, Signal(f"a{i}") > 0) | always(0, 1, Signal(f"b{i}") > 0) for i in range(60)))
    found = decompose(many, 0.1)
    assert found.count == 2**60
    first = next(iter(found))
    assert (len(first.reaches), len(first.keeps)) == (60, 0)
    last = found.combination(2**60 - 1)
    assert (len(last.reaches), len(last.keeps)) == (0, 60)
    with pytest.raises(FormulaError, match=r"has about 10\^18 combinations of branches, more than the") as caught:
        _ = found.alternatives
    assert str(caught.value).endswith(
        ": F[0,1] (a0 > 0) | G[0,1] (b0 > 0) alone leaves 2; 60 independent choices multiply; "
        "combination(k) makes a single one")
    with pytest.raises(FormulaError, match="no combination -1"):
        found.combination(-1)


def test_the_search_for_what_cannot_decide_is_bounded(monkeypatch):
    """Without any trial the superfluous alternatives stay; there are never more trials than allowed."""
    formula = And(tuple(eventually(i, i + 1, P & eventually(0, 1, Q)) | until(P, i, i + 1, Q) for i in range(5)))
    fewest = decompose(formula, 0.1).alternatives
    made, real = [], simplify._dominates

    def counted(*args):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(simplify, "_dominates", counted)
    numbers = []
    for allowed in (0, 500, 10**6):
        made.clear()
        monkeypatch.setattr(simplify, "ALL_PLACEMENTS", allowed)
        found = decompose(formula, 0.1).alternatives
        assert sum(trials for _, trials in made) <= allowed and set(fewest) <= set(found)
        numbers.append(len(found))
    assert numbers[0] > numbers[1] > numbers[2] == len(fewest)


def test_the_widest_choice_is_named():
    wide = Or(tuple(eventually(0, 1, Signal(f"a{i}") > 0) for i in range(30)))
    formula = P & ~(Not(wide) | eventually(0, 1, Q)) & (P | eventually(0, 1, R))
    with pytest.raises(FormulaError, match="has 60 combinations") as caught:
        _ = decompose(formula, 0.1, limit=50).alternatives
    assert f": {wide} alone leaves 30; 2 independent choices" in str(caught.value)
    assert str(caught.value).endswith("; iterate over the decomposition to make them one by one, or raise the limit")


def test_numbers_of_any_length_are_shown():
    many = And(tuple(eventually(0, 0.1, Signal(f"a{i}") > 0) | (Signal(f"b{i}") > 0) for i in range(15)))
    found = decompose(many, 0.1)
    tree = found.tree
    for _ in range(3):
        tree = All(choices=tree.choices * 10)
    huge = Decomposition(many, 0.1, 2, tree, found.variables)
    assert huge.count == 2**15000
    with pytest.raises(FormulaError, match=r"has about 10\^4515 combinations"):
        _ = huge.alternatives
    with pytest.raises(NotDecomposable, match=r"it has about 10\^4515 alternatives"):
        huge.single()
    with pytest.raises(FormulaError, match=r"no combination about -10\^5000: there are about 10\^4515"):
        huge.combination(-(10**5000))


def test_a_normal_form_that_would_be_too_long_is_not_made():
    def chained(n):
        f = P
        for i in range(n):
            f = Iff(f, Signal(f"a{i}") > 0)
        return f

    assert decompose(chained(6), 0.1).count == 1
    with pytest.raises(NotDecomposable, match="would have 32,765 operators and predicates; at most 20,000") as caught:
        decompose(Q & chained(40), 0.1)
    assert caught.value.formula == chained(13)
    closed = P
    for _ in range(40):
        closed = until(closed, 0, 0.1, Q)
    with pytest.raises(NotDecomposable, match="a closed until"):
        decompose(closed, 0.1, semantics=Semantics(until="closed"))


def test_time_variables_have_a_limit():
    formula = always(0, 100, eventually(0, 0.1, P))
    with pytest.raises(NotDecomposable, match="more than 50 time variables"):
        decompose(formula, 0.1, limit=50)


# ---------------------------------------------------------------- what has none


@pytest.mark.parametrize("formula, named", [
    (always(0, 1, eventually(0, 2, P) | eventually(0, 1, Q)), "F[0,2] (x > 0) | F[0,1] (y > 0)"),
    (always(0, 1, eventually(0, 2, P) | always(0, 1, Q)), "F[0,2] (x > 0) | G[0,1] (y > 0)"),
    (always(0, 1, P >> until(P, 0, 1, Q)), "x > 0 -> (x > 0) U[0,1] (y > 0)"),
    (always(0, 1, R & (P >> release(P, 0, 1, Q))), "x > 0 -> (x > 0) R[0,1] (y > 0)"),
    (~eventually(0, 1, ~(eventually(0, 2, P) | eventually(0, 1, Q))), "F[0,2] (x > 0) | F[0,1] (y > 0)"),
    (~eventually(0, 1, always(0, 2, P) & always(0, 1, Q)), "!(G[0,2] (x > 0) & G[0,1] (y > 0))"),
    (always(0, 1, R | (P & until(P, 0, 1, Q))), "z > 0 | x > 0 & (x > 0) U[0,1] (y > 0)"),
    (until(eventually(0, 1, P) | Until(P, Q, Window(0, 1)), 0, 1, R), "F[0,1] (x > 0) | (x > 0) U[0,1] (y > 0)"),
])
def test_a_choice_at_each_sample_is_named(formula, named):
    with pytest.raises(NotDecomposable, match="each sample would need its own choice") as caught:
        decompose(formula, 0.1)
    assert str(caught.value).startswith(f"not decomposable: {named}: ")


def test_bad_input_is_named():
    with pytest.raises(FormulaError, match="0.25 s is no multiple of the sample period dt = 0.1 s"):
        decompose(always(0, 0.25, P) & always(0, 0.2, Q), 0.1)
    with pytest.raises(NotDecomposable, match=r"F \(x > 0\): its window has no end; give it one in seconds, or the"):
        decompose(always(0, 1, Eventually(P)), 0.1)
    with pytest.raises(NotDecomposable, match=r"!F \(x > 0\): its window has no end"):
        decompose(always(0, 1, ~Eventually(P)), 0.1)
    with pytest.raises(FormulaError, match="at least 1 sample, got samples = 0"):
        decompose(P, 0.1, samples=0)
    with pytest.raises(FormulaError, match="end must be 'clip', got 'weak'"):
        decompose(P, 0.1, samples=3, semantics=Semantics(end="weak"))


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize("formula, subgoals, invariants", [
    (eventually(1, 2, P), [Subgoal(0, P, (1, 2))], []),
    (eventually(0, 3, P & eventually(0, 2, Q & eventually(1, 2, R))),
     [Subgoal(0, P, (0, 3)), Subgoal(1, Q, (0, 2), after=0), Subgoal(2, R, (1, 2), after=1)], []),
    (eventually(1, 2, always(0.5, 2, P)), [Subgoal(0, P, (1.5, 2.5), hold=1.5)], []),
    (eventually(1, 2, P & always(0.5, 2, Q)), [Subgoal(0, P, (1, 2))], [Invariant(Q, 0.5, 2, after=0)]),
    (eventually(1, 2, always(0, 2, P) & eventually(0, 1, Q)),
     [Subgoal(0, P, (1, 2), hold=2), Subgoal(1, Q, (0, 1), after=0)], []),
    (always(7, 9, P | Q), [], [Invariant(P | Q, 7, 9)]),
    (always(0, 1, P & always(0, 2, Q)), [], [Invariant(P, 0, 1), Invariant(Q, 0, 3)]),
    (until(P, 1, 2, Q), [Subgoal(0, Q, (1, 2))], [Invariant(P, 0, 1.9, until=0)]),
    (until(P, 0, 2, Q & eventually(0, 1, R)),
     [Subgoal(0, Q, (0, 2)), Subgoal(1, R, (0, 1), after=0)], [Invariant(P, 0, 1.9, until=0)]),
    (eventually(0.1, 0.2, eventually(0.2, 0.3, P)), [Subgoal(0, P, (0.3, 0.5))], []),
    (~(always(0, 1, ~P) | eventually(0, 2, Q)), [Subgoal(0, P, (0, 1))], [Invariant(positive(~Q), 0, 2)]),
])
def test_plan(formula, subgoals, invariants):
    found = plan(decompose(formula, 0.1))
    assert (list(found.subgoals), list(found.invariants)) == (subgoals, invariants)


@pytest.mark.parametrize("formula, reason", [
    (eventually(0, 1, P) | always(0, 1, Q), "it has 2 alternatives; exactly one is needed"),
    (eventually(0, 1, Truth(False)), "it has 0 alternatives"),
    (always(0, 1, eventually(0, 0.5, P)), "the time of t4 is not a window"),
    (eventually(0, 1, eventually(0, 1, P) & eventually(0, 1, Q)), "the time of t2 is not a window"),
    (eventually(0, 1, eventually(1, 1, P) & eventually(0, 1, Q)), "the time of t2 is not a window"),
    (until(always(0, 1, P), 1, 2, Q), "nor right before a hit: x > 0"),
    (eventually(0, 1, always(0, 1, P) | until(P, 0, 1, Q)), "it has 2 alternatives"),
    (release(P, 0, 1, Q) & Truth(True), "it has 2 alternatives"),
])
def test_what_no_single_pass_can_follow(formula, reason):
    with pytest.raises(FormulaError, match=reason):
        plan(decompose(formula, 0.1))


def test_the_page_shows_what_happens(capsys):
    page = (Path(__file__).parents[4] / "docs" / "explanation/stl-decomposition.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", page, re.S).groups()
    exec(code, {})
    assert capsys.readouterr().out == shown
