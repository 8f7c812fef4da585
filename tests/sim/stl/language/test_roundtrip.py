"""Text, formula and JSON say the same: random formulas of every operator and function, there and back."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import SCHEMA, formulas, predicates

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.constructors import (
    always,
    angle,
    atan2,
    exp,
    hypot,
    maximum,
    minimum,
    norm,
    rotation_angle,
    sin,
    sqrt,
    wrap,
    xor,
)
from temporeal.sim.stl.language.errors import MAX_DEPTH, MAX_LEVELS, FormulaError
from temporeal.sim.stl.language.parse import check, parse
from temporeal.sim.stl.language.propositional import And, Apply, Constant, Not, Predicate, Signal, Truth, to_text
from temporeal.sim.stl.language.queries import check_depth, depth
from temporeal.sim.stl.language.serialization import from_json, to_json
from temporeal.sim.stl.semantics.robustness import robustness

SETTINGS = settings(max_examples=examples(100), deadline=None)
SIGNALS = {**SCHEMA, "q": SignalSpec("q", (4,), "wxyz"), "ratio": SignalSpec("ratio"),
           "grid": SignalSpec("grid", (2, 3), "m"),
           "X": SignalSpec("X"), "/odom/z": SignalSpec("odom")}
CONSTANTS = {"far": 2.5, "goal": (1.0, -0.5, 1e-7), "turned": (0.0, 1.0, 0.0, 0.0)}

LENGTHS = [Signal("x", (), "m"), Signal("y", (), "m"), Signal("grid", (2, 3), "m")[1][2], Constant(2.5, "far")]
VECTORS = [Signal("p", (3,), "m"), Constant((1.0, -0.5, 1e-7), "goal"), Signal("grid", (2, 3), "m")[0]]
QUATERNIONS = [Signal("q", (4,), "wxyz"), Constant((0.0, 1.0, 0.0, 0.0), "turned")]
numbers = st.floats(-1e9, 1e9).map(Constant)


@st.composite
def lengths(draw, depth=2):
    """A scalar in m."""
    kind = draw(st.integers(0, 9)) if depth else 9
    if kind == 9:
        length = draw(st.sampled_from(LENGTHS))
        return draw(st.one_of(st.just(length), numbers.map(lambda n: length - n)))
    if kind in (0, 1):
        return draw(st.sampled_from([norm, lambda v: v[1]]))(draw(vectors(depth - 1)))
    a, b = draw(lengths(depth - 1)), draw(lengths(depth - 1))
    ratio = draw(ratios(depth - 1)) if kind == 2 else None
    return {2: lambda: draw(st.sampled_from([ratio * a, a / ratio])), 3: lambda: -a, 4: lambda: abs(a),
            5: lambda: draw(st.sampled_from([a + b, a - b])), 6: lambda: hypot(a, b), 7: lambda: minimum(a, b, a),
            8: lambda: maximum(sqrt(a * b), b)}[kind]()


@st.composite
def vectors(draw, depth=2):
    """A vector of three in m."""
    v = draw(st.sampled_from(VECTORS))
    return draw(st.sampled_from([v, -v, v - draw(vectors(depth - 1)), draw(ratios(depth - 1)) * v])) if depth else v


@st.composite
def ratios(draw, depth=2):
    """A number without unit."""
    kind = draw(st.integers(0, 4)) if depth else 4
    if kind == 0:
        return draw(lengths(depth - 1)) / draw(lengths(depth - 1))
    if kind in (1, 2):
        return draw(st.sampled_from([exp, sin]))(draw(ratios(depth - 1)))
    if kind == 3:
        return draw(ratios(depth - 1)) ** draw(ratios(depth - 1))
    return draw(st.one_of(st.sampled_from([Signal(n, (), "1") for n in ("ratio", "X", "/odom/z")]), numbers))


@st.composite
def angles(draw):
    """An angle in rad."""
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return angle(draw(vectors()), draw(vectors()))
    if kind == 1:
        return rotation_angle(draw(st.sampled_from(QUATERNIONS)), draw(st.sampled_from(QUATERNIONS)))
    return wrap(atan2(draw(lengths()), draw(lengths())))


comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
leaf_formulas = st.one_of(
    *(st.builds(Predicate, comparisons, side, side) for side in (lengths(), ratios(), angles())),
    predicates, st.booleans().map(Truth))


@SETTINGS
@given(formulas(unbounded=True, leaf=leaf_formulas))
def test_text_and_json_come_back_equal(f):
    assert parse(to_text(f), SIGNALS, CONSTANTS) == f
    assert check(f, SIGNALS) == f
    assert from_json(json.loads(json.dumps(to_json(f)))) == f


WORDS = {"G": "always", "F": "eventually", "U": "until", "R": "release", "W": "unless", "X": "next", "Y": "prev",
         "H": "historically", "O": "once", "S": "since", "&": "and", "|": "or", "->": "implies", "<->": "iff",
         "!": "not"}


@SETTINGS
@given(formulas(unbounded=True, leaf=st.just(Predicate(">", LENGTHS[0], Constant(1)))))
def test_letters_and_words_say_the_same(f):
    text = to_text(f).replace("(", " ( ").replace("[", " [ ").replace("!", "! ").split()
    assert parse(" ".join(WORDS.get(token, token) for token in text), SIGNALS) == f


@SETTINGS
@given(formulas(unbounded=True), formulas(unbounded=True))
def test_names_for_parts_say_the_same_as_the_parts(f, g):
    text = f"first = {to_text(f)}; second = {to_text(g)}; G (first -> second xor first)"
    assert parse(text, SIGNALS) == parse(f"G (({to_text(f)}) -> ({to_text(g)}) xor ({to_text(f)}))", SIGNALS)


def test_operations_that_look_like_literals():
    two = Constant(2.0)
    vector = Constant((1.0, -2.0))
    for e in (Apply("neg", (two,)), Apply("neg", (Apply("neg", (two,)),)), -two, Apply("neg", (-two,)),
              Apply("neg", (vector,))[1], vector[0], Apply("neg", (Constant(0.5),)) * two):
        assert parse(to_text(e > LENGTHS[0]), SIGNALS) == (e > LENGTHS[0])


def test_the_deepest_formula_comes_back():
    f = Predicate(">", LENGTHS[0], Constant(0))
    for _ in range(MAX_DEPTH - 2):
        f = Not(f)
    assert parse(to_text(f), SIGNALS) == f and from_json(to_json(f)) == f
    g = Predicate(">", LENGTHS[0], Constant(0))
    for _ in range((MAX_DEPTH - 2) // 2):
        g = xor(g, Truth(True))
    assert parse(to_text(g), SIGNALS) == g and from_json(to_json(g)) == g


def test_the_deepest_formula_of_the_longest_sum_comes_back_and_has_its_value():
    x = Signal("x", (), "m")
    total = x
    for _ in range(MAX_LEVELS - MAX_DEPTH - 1):
        total = total + x
    f = total > 0
    for i in range(MAX_DEPTH - 1):
        f = always(0, 0, f) if i % 2 else Not(f)
    assert depth(f) == (MAX_LEVELS, MAX_DEPTH)
    assert parse(to_text(f), SIGNALS) == f == from_json(to_json(f)) == check(f, SIGNALS)
    assert pickle.loads(pickle.dumps(f)) == f
    values = {"x": np.array([[1.0, -2.0]])}
    assert (robustness(f, values, 1.0) == (1 if (MAX_DEPTH // 2) % 2 == 0 else -1) * 100 * values["x"]).all()
    deeper = Not(f)
    for refuses in (lambda: parse(to_text(deeper), SIGNALS), lambda: check(deeper, SIGNALS),
                    lambda: from_json(to_json(deeper))):
        with pytest.raises(FormulaError, match="nested too deeply"):
            refuses()


def test_sums_have_up_to_199_terms_and_python_is_told_of_more():
    terms = MAX_LEVELS - 1
    text = " + ".join(["x"] * terms) + " > 0"
    values = {"x": np.array([[2.0], [3.0]])}
    assert (robustness(parse(text, SIGNALS), values, 1.0) == terms * values["x"]).all()
    with pytest.raises(FormulaError, match="nested too deeply"):
        parse("x + " + text, SIGNALS)
    total = Signal("x", (), "m")
    for _ in range(3000):
        total = total + 1
    for refuses in (lambda: check(total > 0, SIGNALS), lambda: to_text(total > 0), lambda: to_json(total > 0),
                    lambda: check_depth(total)):
        with pytest.raises(FormulaError, match="nested too deeply"):
            refuses()


def test_the_depth_of_a_formula_that_shares_its_parts():
    f = Truth(True)
    for _ in range(60):
        f = And((f, f))
    assert depth(f) == (61, 61)
    check_depth(f)


PIECES = [
    *"xypGFHOXYURWS()[]&|!~<>=+-*/,:;.#@", "[0,1]", "[0:2 s]", "x > 0", "<->", "->", "==", "!=", "until", "s_prev",
    "not", "xor", "true", "1", "0.5", "1e9", "inf", "ms", "far", "goal", "q.w", "p.z", "grid", "[1, 2, 3]", "abs(",
    '"X"', '"/odom/z"', '"', "norm(p)", "rise(", "pow(x, 2)", "angle(p, goal)",
    "float", "input", "const float", "name = ", "name", "// y\n",
    "/*", "*/", "from a import b", "specification z", "\n", "\t", "\u00e9", "$"]


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.booleans())
def test_any_text_is_a_formula_or_an_error_with_a_place(pieces, spaced):
    text = (" " if spaced else "").join(pieces)
    try:
        found = parse(text, SIGNALS, CONSTANTS)
    except FormulaError as error:
        assert 0 <= error.start <= error.end <= len(text)
    else:
        assert parse(to_text(found), SIGNALS, CONSTANTS) == found
