"""Explanations: the chain's last value is the robustness, and moving that one value moves the robustness."""

import json
import subprocess
import sys
from math import inf, isfinite, isinf, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, Definition, formulas, samples, traces, windows

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.explain import explain
from temporeal.sim.stl.analysis.explanation_text import describe, note, operator_text
from temporeal.sim.stl.language.constructors import (
    always,
    equal,
    eventually,
    historically,
    norm,
    once,
    previous_sample,
    release,
    since,
    until,
    weak_until,
)
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Apply, Iff, Not, Or, Predicate, Signal, Truth
from temporeal.sim.stl.language.queries import children
from temporeal.sim.stl.language.temporal import ALL_TIME, Always, Eventually, Next, Release, Until, WeakUntil
from temporeal.sim.stl.monitoring.monitor import Monitor
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

SEMANTICS = [Semantics(end, left) for end in ("clip", "strong", "weak") for left in ("half-open", "closed")]
H, P, X = Signal("height", (), "m"), Signal("p", (3,), "m"), Signal("x")


def one(signals):
    """The first world."""
    return {name: values[:, 0] for name, values in signals.items()}


def at(path, formula, signals, semantics, sample, kind=0):
    """The definition's value of the sub-formula at ``path``."""
    for index in path:
        formula = children(formula)[index]
    return Definition(samples(signals), kind, semantics).at(formula, sample)


# ---------------------------------------------------------------- the chain


@settings(max_examples=examples(150), deadline=None)
@given(formulas(unbounded=True), traces(batch=1), st.sampled_from(SEMANTICS))
def test_what_decides_has_the_robustness_as_its_value(formula, signals, semantics):
    e = explain(formula, one(signals), DT, semantics)
    assert e.robustness == at((), formula, signals, semantics, 0)
    assert (e.verdict == "satisfied") == at((), formula, signals, semantics, 0, kind=1)
    last = e.chain[-1]
    assert (-last.value if last.negated else last.value) == e.robustness
    assert (e.decider.path, e.decider.sample, e.decider.value) == (last.path, last.sample, last.value)
    assert [len(step.path) for step in e.chain] == list(range(len(e.chain)))
    assert all(a.path == b.path[:-1] for a, b in zip(e.chain, e.chain[1:]))
    if e.decider.kind == "predicate":
        margin = at(last.path, formula, signals, semantics, last.sample)
        true = at(last.path, formula, signals, semantics, last.sample, kind=1)
        assert (margin, "satisfied" if true else "violated") == (last.value, last.verdict)
    else:
        assert isinf(e.robustness)


@settings(max_examples=examples(80), deadline=None)
@given(formulas(unbounded=True), traces(batch=1), st.sampled_from(["half-open", "closed"]))
def test_every_part_has_its_values_and_its_verdicts_over_time(formula, signals, left):
    semantics = Semantics("clip", left)
    e = explain(formula, one(signals), DT, semantics)
    for part in e.parts:
        assert e.formula[slice(*part.place)] == part.text
        for t in range(e.samples):
            assert part.robustness[t] == at(part.path, formula, signals, semantics, t)
            assert part.verdicts[t] == (1 if at(part.path, formula, signals, semantics, t, kind=1) else -1)
        if part.sample is not None:
            assert part.value == part.robustness[part.sample]
    assert {step.path for step in e.chain} == {part.path for part in e.parts if part.deciding}
    assert all(e.part(step.path).sample == step.sample for step in e.chain)


@st.composite
def untied(draw):
    """A formula whose predicates read a signal component each, and a trace without two equal margins up to the sign."""
    holes = Predicate(">", X, X)
    shape = draw(formulas(unbounded=True, leaf=st.just(holes), max_leaves=6))
    count = 0

    def fill(f):
        nonlocal count
        if isinstance(f, Predicate):
            count += 1
            op = draw(st.sampled_from(["<", ">", "<=", ">="]))
            return Predicate(op, Signal("v", (40,))[count - 1], Signal("zero"))
        values = {k: fill(v) if hasattr(v, "__dataclass_fields__") and k != "window" else v for k, v in vars(f).items()}
        if "args" in values:
            values["args"] = tuple(fill(a) for a in f.args)
        return type(f)(**values)

    formula = fill(shape)
    length = draw(st.integers(1, 10))
    order = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    margins = order.permutation(np.arange(1, 40 * length + 1)) * order.choice([-1.0, 1.0], 40 * length)
    return formula, {"v": margins.reshape(length, 40), "zero": np.zeros(length)}


@settings(max_examples=examples(80), deadline=None)
@given(untied(), st.sampled_from(SEMANTICS), st.integers(0, 2**32 - 1))
def test_moving_the_deciding_value_moves_the_robustness_and_no_other_does(case, semantics, seed):
    formula, signals = case
    e = explain(formula, signals, DT, semantics)
    if e.decider.kind != "predicate":
        assert isinf(e.robustness)
        return
    column = e.part(e.decider.path).formula.left.index
    toward = 1.0 if e.part(e.decider.path).formula.op[0] == ">" else -1.0
    sign = -1.0 if e.chain[-1].negated else 1.0
    eps = 0.25  # values differ by at least 1

    def moved(row, column, by):
        v = signals["v"].copy()
        v[row, column] += by
        return by_definition(formula, {**signals, "v": v}, semantics)

    before = by_definition(formula, signals, semantics)
    assert before == e.robustness
    for by in (eps, -eps):
        assert moved(e.decider.sample, column, by) == before + sign * toward * by
    others = [(r, c) for r in range(e.samples) for c in range(sum(1 for _ in e.predicates))
              if (r, c) != (e.decider.sample, column)]
    for k in np.random.default_rng(seed).permutation(len(others))[:4]:
        assert moved(*others[k], eps) == moved(*others[k], -eps) == before


def by_definition(formula, signals, semantics):
    trace = [{"v": signals["v"][t], "zero": 0.0} for t in range(len(signals["v"]))]
    return Definition(trace, 0, semantics).at(formula, 0)


@settings(max_examples=examples(60), deadline=None)
@given(untied(), st.sampled_from(["half-open", "closed"]))
def test_samples_that_do_not_matter_do_not_matter(case, left):
    formula, signals = case
    e = explain(formula, signals, DT, Semantics("clip", left))
    v = signals["v"].copy()
    for part in e.predicates:
        outside = np.ones(e.samples, bool)
        if part.matters is not None:
            outside[part.matters[0] : part.matters[1] + 1] = False
        v[outside, part.formula.left.index] = np.nan
    again = explain(formula, {**signals, "v": v}, DT, Semantics("clip", left))
    assert again.robustness == e.robustness
    assert again.chain == e.chain


# ---------------------------------------------------------------- what is unknown


@settings(max_examples=examples(80), deadline=None)
@given(formulas(unbounded=True), traces(batch=1), st.data(), st.sampled_from(SEMANTICS))
def test_a_nan_is_bounded_by_whatever_the_value_was(formula, signals, data, semantics):
    whole = {name: values.astype(float) for name, values in signals.items()}
    holed = {name: values.copy() for name, values in whole.items()}
    for name in ("x", "y", "p"):
        lost = data.draw(st.lists(st.integers(0, len(whole["x"]) - 1), max_size=3))
        holed[name][lost] = np.nan
    e, truth = explain(formula, one(holed), DT, semantics), explain(formula, one(whole), DT, semantics)
    assert e.lower <= truth.robustness <= e.upper
    assert e.verdict in (truth.verdict, "undecided")
    assert isnan(e.robustness) or e.robustness == truth.robustness
    if e.verdict == "undecided":
        assert e.decider.kind == "unknown"
        assert e.decided_by is None
        assert e.at_s is None


@settings(max_examples=examples(80), deadline=None)
@given(formulas(), traces(least=2, batch=1), st.data())
def test_a_partial_trace_is_bounded_by_every_continuation(formula, signals, data):
    whole = explain(formula, one(signals), DT, partial=True)
    known = data.draw(st.integers(1, whole.samples - 1))
    e = explain(formula, {name: values[:known] for name, values in one(signals).items()}, DT, partial=True)
    assert e.lower <= whole.lower <= whole.upper <= e.upper
    if whole.samples * DT > whole.horizon_s + 1e-9:
        assert whole.lower == whole.upper == explain(formula, one(signals), DT).robustness
    assert e.verdict in (whole.verdict, "undecided")
    if e.verdict == "undecided":
        assert e.decider.kind == "end"


@settings(max_examples=examples(40), deadline=None)
@given(formulas(), traces(batch=1), st.sampled_from(["half-open", "closed"]), st.data())
def test_the_monitor_knows_as_much_after_every_sample(formula, signals, left, data):
    trace, semantics = {name: values.astype(float) for name, values in one(signals).items()}, Semantics("clip", left)
    trace["x"][data.draw(st.lists(st.integers(0, len(trace["x"]) - 1), max_size=1))] = np.nan
    monitor = Monitor(formula, DT, semantics, compiled=False)
    for k in range(len(trace["x"])):
        reading = monitor.update({name: values[k] for name, values in trace.items()})
        e = explain(formula, {name: values[: k + 1] for name, values in trace.items()}, DT, semantics, partial=True)
        assert (e.lower, e.upper, e.verdict) == (reading.lower, reading.upper, reading.verdict)


def test_a_partial_trace_waits_for_its_end():
    e = explain(eventually(0, 4, X > 0), {"x": np.array([-1.0, -2.0])}, 1.0, partial=True)
    assert (e.verdict, e.lower, e.upper, e.decider.kind) == ("undecided", -1.0, inf, "end")
    assert "waits for  x > 0 at 2 s" in e.text()
    assert e.obligations[0].state == "open"
    assert "? F[0,4] (x > 0)\n      asked for at 0 s, due at 4 s: open, not met so far" in e.text()
    assert isnan(e.clauses[0].slack_s)
    assert "what is past its end is unknown" in note(e)
    assert explain(eventually(0, 4, X > 0), {"x": np.array([-1.0, 2.0])}, 1.0, partial=True).verdict == "satisfied"


# ---------------------------------------------------------------- deadlines


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from("FUGR"), formulas(max_leaves=2), formulas(max_leaves=2), windows(unbounded=True),
       traces(batch=1), st.sampled_from(["half-open", "closed"]))
def test_slack_is_that_of_its_definition(letter, left, right, window, signals, ends):
    obligation = {"F": Eventually(right, window), "U": Until(left, right, window),
                  "G": Not(Always(Not(right), window)), "R": Not(Release(Not(left), Not(right), window))}[letter]
    semantics = Semantics("clip", ends)
    e = explain(obligation, one(signals), DT, semantics)
    found = e.obligations[0]
    truth = Definition(samples(signals), 1, semantics)
    lo, hi = round(window.lo / DT), None if window.hi == inf else round(window.hi / DT)

    def goal(s):
        way = range(s + (ends == "closed")) if letter in "UR" else ()
        return truth.at(right, s) and all(truth.at(left, r) for r in way)

    met = next((s for s in range(lo, e.samples) if goal(s)), None)
    assert found.asked_s == 0
    assert (found.state == "met") == (e.verdict == "satisfied")
    if met is None:
        assert found.state == "never"
        assert isnan(found.slack_s)
    else:
        assert found.met_s == pytest.approx(met * DT)
        assert found.slack_s == (inf if hi is None else pytest.approx((hi - met) * DT, abs=1e-9))
        assert found.state == ("met" if hi is None or met <= hi else "late")


def test_deadlines_met_late_and_never():
    p = np.array([0.0, 0, 0, 1, 1, 1])

    def only(formula):
        return explain(formula, {"x": p}, 0.5).obligations[0]

    met, late, never = (only(eventually(0, end, X > level)) for end, level in ((2, 0.5), (1, 0.5), (1, 5)))
    assert (met.state, met.met_s, met.slack_s) == ("met", 1.5, 0.5)
    assert (late.state, late.met_s, late.slack_s) == ("late", 1.5, -0.5)
    assert (never.state, never.covered) == ("never", True)
    assert not only(eventually(0, 9, X > 5)).covered
    assert only(until(X < 0.5, 0, 2, X > 0.5)).slack_s == 0.5
    assert only(until(X < -1, 0, 2, X > 0.5)).state == "never"
    nested = explain(eventually(0, 1, always(0, 1, X > 0.5)), {"x": p}, 0.5)
    assert nested.clauses[0].slack_s == -0.5
    assert explain(always(0, 1, X > -1), {"x": p}, 0.5).obligations == ()


# ---------------------------------------------------------------- examples, words, JSON


def mission():
    t = np.arange(11) * 0.5
    formula = And((always(0, 5, H > 0.3), eventually(0, 4, norm(P - (1, 0, 1)) < 0.15)))
    height = np.where(t == 3.0, 0.2, 1.0)
    p = np.stack([np.minimum(t / 3, 1), 0 * t, np.ones_like(t)], -1)
    return explain(formula, {"height": height, "p": p}, 0.5)


def test_a_mission_explained():
    e = mission()
    assert e.verdict == "violated"
    assert e.robustness == pytest.approx(-0.1)
    assert (e.decided_by, e.at_s, e.decider.sample) == ("height > 0.3", 3.0, 6)
    assert e.decider.signals == {"height": 0.2}
    assert (e.decider.left, e.decider.right, e.decider.unit) == (0.2, 0.3, "m")
    assert [step.text for step in e.chain] == [e.formula, "G[0,5] (height > 0.3)", "height > 0.3"]
    assert [(c.verdict, c.decider.text) for c in e.clauses] == [
        ("violated", "height > 0.3"), ("satisfied", "norm(p - [1, 0, 1]) < 0.15")]
    assert [p.text for p in e.predicates] == ["height > 0.3", "norm(p - [1, 0, 1]) < 0.15"]
    assert e.predicates[0].robustness.shape == (11,)
    assert e.predicates[0].verdicts.tolist() == [1, 1, 1, 1, 1, 1, -1, 1, 1, 1, 1]
    assert e.clauses[1].slack_s == 1.0
    text = e.text()
    assert text.startswith("violated: robustness -0.1 m\n")
    assert "height > 0.3 at 3 s (sample 6)\n  height = 0.2: 0.2 m against 0.3 m, fails by 0.1 m" in text
    assert "asked for at 0 s, due at 4 s: met at 3 s, 1 s before the deadline" in text
    assert all(len(line) <= 70 for line in e.text(70).splitlines())


@pytest.mark.parametrize(("formula", "verdict"), [
    (X <= 1, "satisfied"), (X < 1, "violated"), (equal(X, 1), "satisfied"), (~(X <= 1), "violated"),
    (~(X < 1), "satisfied"), (Iff(X < 1, X > 1), "satisfied"), (Iff(X <= 1, X > 1), "violated")])
def test_at_zero_the_comparison_decides(formula, verdict):
    e = explain(formula, {"x": np.array([1.0])}, 1.0)
    assert (e.robustness, e.verdict) == (0.0, verdict)
    assert (("holds" if e.decider.verdict == "satisfied" else "fails") + " by 0") in e.text()


def test_what_decides_without_a_predicate():
    x = {"x": np.array([1.0, 2.0])}
    empty = explain(eventually(5, 6, X > 0), x, 1.0)
    assert (empty.robustness, empty.decider.kind, empty.decided_by) == (-inf, "empty", "F[5,6] (x > 0)")
    assert "windows are cut to the trace" in empty.text()
    assert explain(Next(X > 0, True), {"x": np.array([1.0])}, 1.0).decider.kind == "empty"
    constant = explain(Or((Truth(True), X > 0)), x, 1.0)
    assert (constant.robustness, constant.decider.kind) == (inf, "constant")
    strong = explain(always(0, 5, X > 0), x, 1.0, Semantics("strong"))
    assert (strong.robustness, strong.decider.kind, strong.decider.sample) == (-inf, "end", 2)
    assert describe(strong.decider)[1] == "past the end of the trace"
    assert json.loads(json.dumps(strong.to_json(), allow_nan=False))["robustness"] == "-inf"


def test_a_nan_that_does_not_decide_is_named_where_it_does():
    x = {"x": np.array([1.0, np.nan, -3.0])}
    sure = explain(always(0, 2, X > 0), x, 1.0)
    assert (sure.verdict, sure.lower, sure.upper, isnan(sure.robustness)) == ("violated", -inf, -3.0, True)
    assert (sure.decided_by, sure.at_s) == ("x > 0", 2.0)
    open_ = explain(always(0, 1, X > 0), x, 1.0)
    assert (open_.verdict, open_.upper, open_.decider.kind, open_.decider.sample) == ("undecided", 1.0, "unknown", 1)
    assert "x = unknown: the margin is not a number" in open_.text()
    assert open_.to_json()["robustness"] is None
    # past its window a NaN changes nothing, also in an until
    assert explain(until(X > 0, 0, 0, X > 0), x, 1.0).robustness == 1.0


@settings(max_examples=examples(40), deadline=None)
@given(formulas(unbounded=True), traces(batch=1), st.sampled_from(SEMANTICS))
def test_words_and_json_of_anything(formula, signals, semantics):
    e = explain(formula, one(signals), DT, semantics)
    data = json.loads(json.dumps(e.to_json(series=True), allow_nan=False))
    assert {"robustness", "verdict", "decided_by", "at_s"} <= set(data)
    assert data["decided_by"] == e.decider.text
    assert float(data["robustness"]) == e.robustness
    assert len(data["parts"]) == len(e.parts)
    assert all(len(part["robustness"]) == e.samples for part in data["parts"])
    assert e.text().startswith(e.verdict)
    assert all(operator_text(part.formula) for part in e.parts)


def test_long_windows_and_every_operator_stay_quick():
    """10^5 samples and an unbounded weak until with a past operator: linear, or this would not come back."""
    n = 100_000
    formula = And((WeakUntil(once(0, 50, X > 0), X > 5, ALL_TIME), always(0, 500, eventually(0, 400, X > 0.9))))
    e = explain(formula, {"x": np.sin(np.arange(n) * 0.1)}, 0.01)
    assert isfinite(e.robustness)
    assert e.samples == n


@pytest.mark.parametrize(("signals", "told"), [
    ({"y": np.zeros(3)}, "missing"), ({"x": np.zeros(0)}, "at least one sample"),
    ({"x": np.zeros((3, 2))}, r"one trace has \[T\]")])
def test_wrong_signals_are_refused(signals, told):
    with pytest.raises(SignalError, match=told):
        explain(X > 0, signals, 0.1)


def test_lengths_must_agree():
    with pytest.raises(SignalError, match="differ in length"):
        explain(And((X > 0, H > 0)), {"x": np.zeros(3), "height": np.zeros(4)}, 0.1)


def test_it_needs_numpy_only():
    slow = ("torch", "numba", "matplotlib", "lark")
    code = f"import sys, temporeal.sim.stl.analysis.explain; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(("formula", "spans"), [
    (always(1, 3, X > 0), [(1, 3)]), (eventually(2, 99, X > 0), [(2, 9)]), (eventually(20, 30, X > 0), [None]),
    (always(1, 3, historically(0, 2, X > 0)), [(0, 3)]), (always(4, 5, once(1, 2, X > 0)), [(2, 4)]),
    (until(X > 0, 2, 4, X > 1), [(0, 3), (2, 4)]), (release(X > 0, 2, 4, X > 1), [(0, 3), (2, 4)]),
    (weak_until(X > 0, 2, 4, X > 1), [(0, 4), (2, 4)]), (Next(Next(X > 0)), [(2, 2)]),
    (always(6, 7, since(X > 0, 1, 3, X > 1)), [(4, 7), (3, 6)]), (always(3, 4, previous_sample(X > 0)), [(2, 3)]),
    (Iff(X > 0, always(0, 1, X > 1)), [(0, 0), (0, 1)])])
def test_samples_that_matter(formula, spans):
    e = explain(formula, {"x": np.arange(10.0)}, 1.0)
    assert [part.matters for part in e.predicates] == spans
    assert e.parts[0].matters == (0, 0)


# ---------------------------------------------------------------- what a review found


@settings(max_examples=examples(60), deadline=None)
@given(formulas(), traces(batch=1))
def test_of_float32_signals_it_says_what_satisfied_says(formula, signals):
    single = {name: (values * 0.1).astype(np.float32) for name, values in one(signals).items()}
    e = explain(formula, single, DT)
    assert (e.verdict == "satisfied") == satisfied(formula, single, DT)[0]
    assert e.robustness == pytest.approx(robustness(formula, single, DT)[0], abs=1e-5)


def test_a_constant_at_float32_is_that_of_the_signals():
    x = {"x": np.array([0.1], dtype=np.float32)}
    assert satisfied(X <= 0.1, x, 1.0)[0]
    e = explain(X <= 0.1, x, 1.0)
    assert (e.verdict, e.robustness) == ("satisfied", 0.0)
    assert explain(X <= 0.1, {"x": x["x"].astype(np.float64)}, 1.0).verdict == "violated"


def test_complex_signals_are_refused():
    with pytest.raises(SignalError, match="complex128: real numbers"):
        explain(X > 0, {"x": np.array([1j])}, 1.0)


def test_undefined_arithmetic_is_told_from_lost_samples():
    e = explain(Apply("sqrt", (X,)) > 0, {"x": np.array([-1.0])}, 1.0)
    assert e.verdict == "undecided"
    assert "its arithmetic is undefined there" in e.text()


@settings(max_examples=examples(80), deadline=None)
@given(formulas(unbounded=True), traces(batch=1), st.sampled_from([Semantics("strong"), Semantics("weak")]))
def test_windows_into_the_future_end_where_nothing_changes(formula, signals, semantics):
    """Longer bounded windows than the trace, around any formula: the views of the end by the engine."""
    n = len(one(signals)["x"])
    for long in (eventually(0, 3 * n * DT, formula), always(DT, 5 * n * DT, formula),
                 until(formula, 0, 4 * n * DT, Not(formula))):
        assert explain(long, one(signals), DT, semantics).robustness == robustness(
            long, one(signals), DT, semantics=semantics)[0]


def test_windows_far_longer_than_the_trace():
    x = {"x": np.array([1.0, 2.0])}
    e = explain(eventually(0, 2e9, X > 3), x, 1.0, partial=True)
    assert (e.verdict, e.lower, e.upper, e.decider.sample) == ("undecided", -1.0, inf, 2)
    assert explain(always(0, 2e9, X > 0), x, 1.0, Semantics("strong")).verdict == "violated"
    assert explain(always(0, 2e9, X > 0), x, 1.0, Semantics("weak")).robustness == 1.0
    assert explain(once(0, 2e9, X > 0), x, 1.0, partial=True).robustness == 1.0
    with pytest.raises(FormulaError, match="past the end of the trace"):
        explain(eventually(1e9, 2e9, X > 3), x, 1.0, partial=True)
