"""Random formulas on random traces against rtamt and stlcg++, where their conventions are ours, and where they are not.

The peers run in processes of their own (``benchmarks/peers``); without them these tests fail: ``make peers``.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, traces, values, windows

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import (
    COMPARISONS,
    And,
    Apply,
    Constant,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
)
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.temporal import (
    ALL_TIME,
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
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.peers.translate import NotThere, to_rtamt, to_stlcgpp

PERIOD_MS = round(1000 * DT)
TEXTS = json.loads((Path(__file__).parents[1] / "rtamt_texts.json").read_text())


@pytest.fixture(scope="module")
def rtamt():
    with Peer("rtamt") as peer:
        yield peer


@pytest.fixture(scope="module")
def stlcgpp():
    with Peer("stlcgpp") as peer:
        yield peer


def theirs(rtamt, text, signals, period_ms=PERIOD_MS, declare=True):
    """rtamt's robustness [T, N] of ``text`` on the scalar signals."""
    scalar = {name: values.T.tolist() for name, values in signals.items() if values.ndim == 2}
    worlds = [dict(zip(scalar, values)) for values in zip(*scalar.values())]
    return np.array(rtamt.ask("evaluate", text=text, worlds=worlds, period_ms=period_ms, declare=declare)).T


# ---------------------------------------------------------------- what rtamt has too

# rtamt knows no units; signals without one match every unit here
SCHEMA = {name: SignalSpec(name) for name in ("x", "y")}
X, Y = Signal("x"), Signal("y")
scalars = st.one_of(
    st.sampled_from([X, Y, abs(X), -Y, X - Y, X + Y, X - 1, 2 * X, X / 4, Apply("exp", (X,)), Apply("sqrt", (abs(Y),)),
                     Apply("pow", (X, Constant(2.0)))]),
    values.map(lambda v: X + v))
predicates = st.builds(Predicate, st.sampled_from(COMPARISONS), scalars, st.one_of(scalars, values.map(Constant)))


def shared(max_leaves=5):
    """Formulas of every operator that rtamt has and that means the same there."""
    bounded = windows()
    w = st.one_of(bounded, bounded, st.just(ALL_TIME))
    strong = st.booleans()

    def grow(f):
        several = st.lists(f, min_size=2, max_size=3).map(tuple)
        unary = [st.builds(kind, f, w) for kind in (Always, Eventually, Historically, Once)]
        binary = [st.builds(Until, f, f, w), st.builds(Since, f, f, w), st.builds(WeakUntil, f, f, bounded)]
        return st.one_of(
            st.builds(Not, f), st.builds(And, several), st.builds(Or, several), st.builds(Implies, f, f),
            st.builds(Next, f, strong), st.builds(Previous, f, strong), *unary, *binary)

    return st.recursive(predicates, grow, max_leaves=max_leaves)


@settings(max_examples=examples(200), deadline=None)
@given(f=shared(), signals=traces(least=2))
def test_rtamt_has_the_same_robustness_at_every_sample(rtamt, f, signals):
    np.testing.assert_allclose(robustness(f, signals, DT), theirs(rtamt, to_rtamt(f), signals), rtol=0, atol=1e-9)


# ---------------------------------------------------------------- the same text

WORDS = {
    Not: ("!", "not"), And: ("&", "and"), Or: ("|", "or"), Implies: ("->", "implies"), Always: ("G", "always"),
    Eventually: ("F", "eventually"), Historically: ("H", "historically"), Once: ("O", "once"), Until: ("U", "until"),
    Since: ("S", "since"), WeakUntil: ("W", "unless"),
}  # fmt: skip
SHIFTS = {(Next, False): ("X", "next"), (Next, True): ("sX", "s_next"),
          (Previous, False): ("Y", "prev"), (Previous, True): ("sY", "s_prev")}  # fmt: skip
BINDING = {Implies: 1, Or: 2, And: 3, Since: 4, WeakUntil: 5, Until: 6, Not: 7, Predicate: 8}
PREFIX = BINDING[Not]


def spelled(f, pick):
    """``f`` in one of the ways that rtamt's grammar has, with parentheses where needed and sometimes where not."""
    own = BINDING.get(type(f), PREFIX)

    def within(g, first=True):
        """Operators of one kind group to the left: the right operand must bind tighter, the left one as much."""
        text, inner = spelled(g, pick), BINDING.get(type(g), PREFIX)
        needed = inner < own or (inner == own != PREFIX and not first)
        return f"({text})" if needed or pick([False, False, True]) else text

    def window():
        if f.window == ALL_TIME:
            return ""
        lo, hi = number_text(f.window.lo), number_text(f.window.hi)
        return pick([f"[{lo},{hi}]", f"[{lo}:{hi}]", f"[ {lo} , {hi} ]", f"[{lo}s:{hi}s]",
                     f"[{round(1000 * f.window.lo)}ms,{round(1000 * f.window.hi)}ms]"])

    def spaced(word, arg):
        return f"{word} {arg}" if word[-1].isalnum() or word[-1] == "]" and pick([0, 1]) else f"{word}{arg}"

    match f:
        case Predicate():
            return to_rtamt(f)[1:-1]
        case And((first, *others)) | Or((first, *others)):
            return within(first) + "".join(f" {pick(WORDS[type(f)])} {within(other, False)}" for other in others)
        case Implies(left, right):
            return f"{within(left)} {pick(WORDS[Implies])} {within(right, False)}"
        case Until(left, right) | Since(left, right) | WeakUntil(left, right):
            return f"{within(left)} {pick(WORDS[type(f)])}{window()} {within(right, False)}"
        case Next(arg, strong) | Previous(arg, strong):
            return spaced(pick(SHIFTS[type(f), strong]), within(arg))
        case Not(arg):
            return spaced(pick(WORDS[Not]), within(arg))
    return spaced(pick(WORDS[type(f)]) + window(), within(f.arg))


@settings(max_examples=examples(150), deadline=None)
@given(f=shared(), random=st.randoms(use_true_random=False), signals=traces(least=2))
def test_one_text_means_the_same_in_rtamt_and_here(rtamt, f, random, signals):
    text = spelled(f, random.choice)
    ours = robustness(parse(text, SCHEMA), signals, DT)
    np.testing.assert_allclose(ours, theirs(rtamt, text, signals), rtol=0, atol=1e-9, err_msg=text)
    np.testing.assert_allclose(ours, robustness(f, signals, DT), rtol=0, atol=1e-9, err_msg=text)


NAMED = {name: SignalSpec(name) for name in TEXTS["signals"]}
GIVEN = dict(zip(NAMED, 3 * np.random.default_rng(0).standard_normal((4, 40, 4))))


def ids(entry):
    return entry["text"]


@pytest.mark.parametrize("entry", TEXTS["agree"], ids=ids)
def test_a_text_of_rtamt_has_its_robustness(rtamt, entry):
    ours = robustness(parse(entry["text"], NAMED), GIVEN, 1.0)
    np.testing.assert_allclose(ours, theirs(rtamt, entry["text"], GIVEN, 1000), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("entry", TEXTS["declaring"], ids=ids)
def test_a_text_that_declares_its_signals_has_its_robustness(rtamt, entry):
    ours = robustness(parse(entry["text"]), GIVEN, 1.0)
    np.testing.assert_allclose(ours, theirs(rtamt, entry["text"], GIVEN, 1000, declare=False), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("entry", TEXTS["semicolons"], ids=ids)
def test_the_released_rtamt_refuses_semicolons(rtamt, entry):
    with pytest.raises(PeerError, match="Syntax ERROR"):
        theirs(rtamt, entry["text"], GIVEN, 1000, declare="float " not in entry["text"])


@pytest.mark.parametrize("entry", TEXTS["differ"], ids=ids)
def test_what_is_said_to_differ_differs(rtamt, entry):
    ours = robustness(parse(entry["text"], NAMED), GIVEN, 1.0)
    if "refuses" in entry["why"] or "fails" in entry["why"]:
        with pytest.raises(PeerError):
            theirs(rtamt, entry["text"], GIVEN, 1000)
    else:
        assert not np.allclose(ours, theirs(rtamt, entry["text"], GIVEN, 1000))


# ---------------------------------------------------------------- where rtamt differs, on purpose or by a defect


@settings(max_examples=examples(50), deadline=None)
@given(left=shared(max_leaves=2), right=shared(max_leaves=2), signals=traces(least=2))
def test_rtamt_calls_an_iff_violated_by_the_distance_of_the_two_margins(rtamt, left, right, signals):
    """So that two true formulas of unequal margin are not equivalent there; here it is both implications."""
    a, b = robustness(left, signals, DT), robustness(right, signals, DT)
    with np.errstate(invalid="ignore"):
        distance = -np.abs(a - b)  # NaN of two infinities: rtamt too
    np.testing.assert_allclose(theirs(rtamt, to_rtamt(Iff(left, right)), signals), distance, rtol=0, atol=1e-9)
    both = np.minimum(np.maximum(-a, b), np.maximum(a, -b))
    np.testing.assert_array_equal(robustness(Iff(left, right), signals, DT), both)


def test_rtamt_lengthens_the_lists_of_its_caller(rtamt):
    """Where a window that is longer than the trace stands straight over a signal."""
    answer = rtamt.ask("raw", text="always[0,0.5] x", signals={"x": [1.0, 2.0, 3.0]}, period_ms=PERIOD_MS)
    assert answer == {"values": [1.0, 2.0, 3.0], "signals": {"x": [1.0, 2.0, 3.0, np.inf, np.inf, np.inf]}}
    signals = {"x": np.array([1.0, 2.0, 3.0])}
    np.testing.assert_array_equal(robustness(parse("always[0,0.5] x", SCHEMA), signals, DT), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(signals["x"], [1.0, 2.0, 3.0])


def test_rtamt_cannot_judge_a_trace_of_one_sample(rtamt):
    signals = {"x": np.array([[1.0]]), "y": np.array([[1.0]])}
    with pytest.raises(PeerError, match="UnboundLocalError"):
        theirs(rtamt, "x > 0", signals)
    np.testing.assert_array_equal(robustness(X > 0, signals, DT), [[1.0]])


def test_rtamt_reads_over_a_character_that_it_does_not_know(rtamt):
    signals = {"x": np.array([[1.0], [2.0]]), "y": np.zeros((2, 1))}
    np.testing.assert_array_equal(theirs(rtamt, "~(x > 0)", signals), [[1.0], [2.0]])
    np.testing.assert_array_equal(robustness(parse("~(x > 0)", SCHEMA), signals, DT), [[-1.0], [-2.0]])


def test_rtamt_breaks_off_at_a_reversed_window(rtamt):
    with pytest.raises(PeerError, match="ValueError"):
        theirs(rtamt, "always[0.2,0.1] (x > 0)", {"x": np.ones((4, 1)), "y": np.ones((4, 1))})
    with pytest.raises(FormulaError, match="reversed"):
        parse("always[0.2,0.1] (x > 0)", SCHEMA)


@pytest.mark.parametrize("formula", [
    Release(X > 0, Y > 0), WeakUntil(X > 0, Y > 0), Always(X > 0, Window(0.1)), Until(X > 0, Y > 0, Window(0.1)),
    And((X > 0, Truth(True)))])  # fmt: skip
def test_what_rtamt_does_not_have_is_not_translated(formula):
    with pytest.raises(NotThere, match="rtamt has no"):
        to_rtamt(formula)


# ---------------------------------------------------------------- stlcg++: within the horizon, until closed on the left


def common():
    """Formulas of what stlcg++ computes as we do."""
    leaf = st.builds(Predicate, st.just(">"), st.sampled_from([X, Y]), values.map(Constant))
    w = windows()

    def grow(f):
        several = st.lists(f, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            st.builds(And, several), st.builds(Always, f, w), st.builds(Eventually, f, w), st.builds(Until, f, f, w))

    return st.recursive(leaf, grow, max_leaves=4)


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", [False, True], ids=["masks", "recurrent"])
@settings(max_examples=examples(60), deadline=None)
@given(f=common(), signals=traces(least=12, most=20))
def test_stlcgpp_has_the_same_robustness_within_the_horizon(stlcgpp, recurrent, f, signals):
    known = len(signals["x"]) - round(horizon(f) / DT)  # beyond, stlcg++ takes -1e9 for every sample
    scalar = {name: signals[name].tolist() for name in ("x", "y")}
    peer = np.array(stlcgpp.ask("evaluate", tree=to_stlcgpp(f, DT), signals=scalar, recurrent=recurrent))
    ours = robustness(f, signals, DT, semantics=Semantics(until="closed"))
    np.testing.assert_array_equal(ours[: max(known, 0)], peer[: max(known, 0)])
