"""The language: what a text means, what it costs to write it wrongly, and that errors point at the place."""

import json
import subprocess
import sys

import numpy as np
import pytest

from temporeal.robots.crazyflie.spec import SPEC
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.constructors import (
    always,
    angle,
    atan2,
    cos,
    dist,
    equal,
    eventually,
    exp,
    fall,
    historically,
    hypot,
    iff,
    maximum,
    minimum,
    next_sample,
    norm,
    once,
    previous_sample,
    release,
    rise,
    rotation_angle,
    sin,
    since,
    sqrt,
    unequal,
    until,
    weak_until,
    wrap,
    xor,
)
from temporeal.sim.stl.language.errors import WIDTH, FormulaError
from temporeal.sim.stl.language.parse import check, parse, parse_specification
from temporeal.sim.stl.language.propositional import (
    And,
    Apply,
    Component,
    Constant,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    to_text,
)
from temporeal.sim.stl.language.queries import clauses, constants_in, horizon
from temporeal.sim.stl.language.serialization import from_json, to_json
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

SCHEMA = {**SPEC.signals, "x": SignalSpec("x"), "y": SignalSpec("y"), "grid": SignalSpec("grid", (2, 3), "m"),
          "mission_time": SignalSpec("mission_time", (), "s")}
CONSTANTS = {"a": (1.2, 0.8, 1.3), "reach": 0.2, "pace": 1.5, "x_of": 0.5, "goal_quat": (1, 0, 0, 0)}
X, Y = Signal("x", (), "1"), Signal("y", (), "1")
P, Q = X > 0, Y > 0
POS = Signal("base_pos_w", (3,), "m")
HEIGHT = Signal("height", (), "m")
QUAT = Signal("base_quat_w", (4,), "wxyz")


def read(text):
    return parse(text, SCHEMA, CONSTANTS)


def test_the_formula_of_the_front_page():
    f = read("G[0,10] (height > 0.3) & F[0,4] (norm(base_pos_w - a) < 0.1)")
    a = Constant((1.2, 0.8, 1.3), "a")
    assert f == always(0, 10, HEIGHT > 0.3) & eventually(0, 4, norm(POS - a) < 0.1)
    assert to_text(f) == "G[0,10] (height > 0.3) & F[0,4] (norm(base_pos_w - a) < 0.1)"
    assert horizon(f) == 10
    assert [text for text, _ in clauses(f)] == ["G[0,10] (height > 0.3)", "F[0,4] (norm(base_pos_w - a) < 0.1)"]
    assert constants_in(f) == [(0.3,), (1.2, 0.8, 1.3), (0.1,)]


@pytest.mark.parametrize("text, formula", [
    ("G[0,1] x > 0", Always(P, Window(0, 1))),
    ("always[0:1] (x > 0)", Always(P, Window(0, 1))),
    ("eventually [0.5, 1] x > 0", Eventually(P, Window(0.5, 1))),
    ("F[0,1]G[0,2]x>0", Eventually(Always(P, Window(0, 2)), Window(0, 1))),
    ("G x > 0", Always(P)),
    ("F[1,inf] x > 0", Eventually(P, Window(1))),
    ("F[0, 2 * reach] x > 0", Eventually(P, Window(0, 0.4))),
    ("x > 0 U[0,1] y > 0", Until(P, Q, Window(0, 1))),
    ("x > 0 until y > 0", Until(P, Q)),
    ("not x > 0 and y > 0", And((Not(P), Q))),
    ("!x > 0 && y > 0", And((Not(P), Q))),
    ("~(x > 0 & y > 0)", Not(And((P, Q)))),
    # loosest to tightest: xor, <->, ->, |, &, S, W, U and R, prefix; all to the left
    ("x > 0 | y > 0 & x > 0", Or((P, And((Q, P))))),
    ("x > 0 & y > 0 U x > 0", And((P, Until(Q, P)))),
    ("x > 0 or y > 0 -> x > 0", Implies(Or((P, Q)), P)),
    ("x > 0 -> y > 0 -> x > 0", Implies(Implies(P, Q), P)),
    ("x > 0 implies y > 0 iff x > 0", Iff(Implies(P, Q), P)),
    ("x > 0 U y > 0 U x > 0", Until(Until(P, Q), P)),
    ("x > 0 S y > 0 W x > 0 U y > 0", Since(P, WeakUntil(Q, Until(P, Q)))),
    ("x > 0 U y > 0 R x > 0", Release(Until(P, Q), P)),
    ("x > 0 & y > 0 S x > 0", And((P, Since(Q, P)))),
    ("x > 0 xor y > 0 <-> x > 0", Not(Iff(P, Iff(Q, P)))),
    ("x > 0 release[0,1] y > 0", Release(P, Q, Window(0, 1))),
    ("x > 0 weak_until y > 0", WeakUntil(P, Q)),
    ("x > 0 unless[1,2] y > 0", WeakUntil(P, Q, Window(1, 2))),
    ("x > 0 since[0:1] y > 0", Since(P, Q, Window(0, 1))),
    ("H[0,1] x > 0 & O y > 0", And((Historically(P, Window(0, 1)), Once(Q)))),
    ("historically once[1,2] x > 0", Historically(Once(P, Window(1, 2)))),
    ("next x > 0 & X X x > 0", And((Next(P), Next(Next(P))))),
    ("prev x > 0 & previous x > 0 & Y x > 0", And((Previous(P),) * 3)),
    ("s_next x > 0 | s_prev x > 0", Or((Next(P, True), Previous(P, True)))),
    ("sX x > 0 | sY x > 0", Or((Next(P, True), Previous(P, True)))),
    ("rise(x)", And((P, Not(Previous(P, True))))),
    ("fall(x > 0)", And((Previous(P), Not(P)))),
    ("G x & !y", And((Always(P), Not(Q)))),  # arithmetic by itself: > 0
    ("x - 1", X - 1 > 0),
    ("((x))", P),
    ("x == y & x != 1 & x !== 1", And((equal(X, Y), unequal(X, 1), unequal(X, 1)))),
    ("F[500ms, 2 s] x > 0", Eventually(P, Window(0.5, 2))),
    ("F[500:2000 ms] x > 0", Eventually(P, Window(0.5, 2))),
    ("F[1us:3000ns] x > 0", Eventually(P, Window(1e-6, 3e-6))),
    ("F[5100 ms, inf s] x > 0", Eventually(P, Window(5.1))),
    ("F[0, pace ms] x > 0", Eventually(P, Window(0, 0.0015))),
    ("G[0,1] x > 0 & y > 0", And((Always(P, Window(0, 1)), Q))),
    ("G[0,1] x > 0 U y > 0", Until(Always(P, Window(0, 1)), Q)),
    ("(x > 0) & ((y)) > 0", And((P, Q))),
    ("true & !false", And((Truth(True), Not(Truth(False))))),
    ("0 < x < 1", And((Constant(0.0) < X, X < 1))),
    ("x > 0  # a comment\n & y > 0", And((P, Q))),
    # arithmetic
    ("x - y - 1 > 2 * x / y", Predicate(">", X - Y - 1, 2 * X / Y)),
    ("-x * y > 0", (-X) * Y > 0),
    ("-2 * -x > -(2)", -2 * -X > Apply("neg", (Constant(2),))),
    ("pow(x, 2) + exp(-y) < 1", X**2 + exp(-Y) < 1),
    ("wrap(atan2(x, y)) < angle([1, 0], [x_of, 1])", wrap(atan2(X, Y)) < angle((1, 0), (0.5, 1))),
    ("rotation_angle(base_quat_w, goal_quat) < 0.1",
     rotation_angle(QUAT, Constant((1, 0, 0, 0), "goal_quat")) < 0.1),
    ("x - (y - 1) >= -1.5e-3", X - (Y - 1) >= -0.0015),
    ("abs(x) + min(x, y, 1) <= max(x, y)", abs(X) + Apply("min", (X, Y, Constant(1))) <= Apply("max", (X, Y))),
    ("base_pos_w.z > 1", POS[2] > 1),
    ("base_pos_w.2 > 1", POS[2] > 1),
    ("base_pos_w[2] > 1", POS[2] > 1),
    ("(base_pos_w - a)[2] > 1", (POS - Constant((1.2, 0.8, 1.3), "a"))[2] > 1),
    ("grid.1.x > 1", Component(Component(Signal("grid", (2, 3), "m"), 1), 0) > 1),
    ("dist(base_pos_w, [0, -1, 2]) < reach", dist(POS, (0, -1, 2)) < Constant(0.2, "reach")),
    # names for parts of the formula, which is the last one
    ("near = x < 1; G[0,1] near", Always(X < 1, Window(0, 1))),
    ("error = x - y  bound = 2 * error; abs(error) < bound", abs(X - Y) < 2 * (X - Y)),
    ("offset = base_pos_w - a; offset.z > 0", (POS - Constant((1.2, 0.8, 1.3), "a"))[2] > 0),
    ("const float k = -3 float x F[0, 1] x > k;", Eventually(X > -3, Window(0, 1))),
    # a quaternion is stored scalar first
    ("base_quat_w.w > 0.9", QUAT[0] > 0.9),
    ("base_quat_w.x > 0.9", QUAT[1] > 0.9),
])
def test_meaning_and_round_trip(text, formula):
    assert read(text) == formula
    assert read(to_text(formula)) == formula
    assert from_json(to_json(formula)) == formula


def test_names_may_begin_like_words():
    schema = {n: SignalSpec(n) for n in ("Goal", "Until_x", "notx", "trueish", "F1", "input", "const", "überall")}
    f = parse("G[0,1] (Goal > 0) & notx > 0 & trueish > 0 U Until_x > 0 & F1 > 0 & input > const & überall > 0", schema)
    assert to_text(f) == (
        "G[0,1] (Goal > 0) & notx > 0 & (trueish > 0) U (Until_x > 0) & F1 > 0 & input > const & überall > 0")


@pytest.mark.parametrize("text, marked, rule", [
    ("G[0,10] (heihgt > 0.3)", "heihgt", "unknown signal 'heihgt'; did you mean 'height'?"),
    ("G[0,10] (nrm(base_pos_w) > 0.3)", "nrm", "unknown function 'nrm'; did you mean 'norm'?"),
    ("base_pos_w > 3", "base_pos_w", "> compares scalars; this is a vector [3]"),
    ("x > 0 & height + base_pos_w > 1", "height + base_pos_w", "+ of a scalar and a vector [3]"),
    ("norm(height) > 1", "norm(height)", "norm takes a vector, got a scalar"),
    ("dist(base_pos_w, [1, 2]) > 1", "dist(base_pos_w, [1, 2])", "dist takes two vectors of one length"),
    ("height > base_ang_vel_b.x", "height > base_ang_vel_b.x", "> compares different units: m and rad/s"),
    ("height + mission_time > 0", "height + mission_time", "+ of different units: m and s"),
    ("sin(height) > 0", "sin(height)", "sin takes an angle in rad, got m"),
    ("height > x", "height > x", "> compares different units: m and 1"),
    ("x > 0 & G[3,1] height > 0", "[3,1]", "window [3,1] is reversed"),
    ("F[-1,1] height > 0", "[-1,1]", "window [-1,1] starts before now"),
    ("G[0,height] height > 1", "height", "a window bound is a time in seconds"),
    ("base_pos_w.q > 1", ".q", "no component 'q'; components of base_pos_w: x, y, z"),
    ("height.x > 1", ".x", "no component 'x'; components of height: none: it is a scalar"),
    ("base_pos_w.xyz > 0", ".xyz", "no component 'xyz'; components of base_pos_w: x, y, z"),
    ("base_pos_w.xy > 0", ".xy", "no component 'xy'; components of base_pos_w: x, y, z"),
    ("base_quat_w.wx > 0", ".wx", "no component 'wx'; components of base_quat_w: w, x, y, z"),
    (f"base_pos_w.{'1' * 5000} > 0", f".{'1' * 5000}", "no component '111"),
    ("goal_quat.w > 1", ".w", "no component 'w'; components of goal_quat: 0, 1, 2, 3"),
    ("base_pos_w[5] > 1", "[5]", "base_pos_w has components 0 to 2, not 5"),
    ("height = 3", "height", "'height' is a signal already; write == to compare"),
    ("reach = 3", "reach", "'reach' is a constant already"),
    ("p = x; p = y; p", "p", "'p' is given above already"),
    ("norm(base_pos_w) = 3", "=", "= gives a name to a formula"),
    ("x > 0 & (y = 3)", "=", "= gives a name to a formula"),
    ("x.y = 3", "x.y", "'x.y' is not a name"),
    ("x = 1", "x", "'x' is a signal already; write == to compare"),
    ("x = 3; x > 0", "x", "'x' is a signal already; write == to compare"),
    ('"x" = 3; x > 0', '"x"', "'x' is a signal already; write == to compare"),
    ("input float x x = y x > 0", "x", "'x' is an input, its values are from the trace; write == to compare"),
    ("float x x = 2 x > 1", "x", "the formula reads no signal"),
    ('x > "z"', '"z"', "unknown signal 'z'"),
    ('x > "', '"', "a name in quotes ends with a quote in its line"),
    ('"z" = x; x', '"z"', "'\"z\"' is not a name"),
    ("(x > 0) (y > 0)", "(", "unexpected '('; expected an operator or the end"),
    ("x > 0.3 m", "m", "unexpected 'm'; expected an operator or the end"),
    ("x > 0; y > 0", "x > 0", "only the last formula may be without a name"),
    ("x > 0)", ")", "unexpected ')'; expected an operator or the end"),
    ("(x > 0 ]", "]", "unexpected ']'; expected an operator or )"),
    ("G[0 1] x", "1", "unexpected '1'; expected an operator or , or :"),
    ("x > G", "G", "'G' is a keyword, not a name"),
    ("G > 0", "G", "'G' is a keyword, not a name"),
    ("x > S", "S", "'S' is a keyword, not a name"),
    ("float > 0", "float", "'float' is a keyword, not a name"),
    ("x > 0 and", "and", "'and' is a keyword, not a name, and needs a formula"),
    ("float z z > 0", "z", "unknown signal 'z'"),
    ("float base_pos_w x", "base_pos_w", "base_pos_w is declared as a scalar and is a vector [3]"),
    ("float x = 3 x > 0", "float x", "a signal has its values from the trace"),
    ("complex x x > 0", "complex", "a signal or constant of a formula is a real number"),
    ("from a.b import C x > 0", "from a.b import C", "a specification imports no Python"),
    ("base_pos_w", "base_pos_w", "a formula is a comparison of scalars; this is a vector [3]"),
    ("G base_pos_w & x", "base_pos_w", "a formula is a comparison of scalars; this is a vector [3]"),
    ("x > F y", "F y", "> takes numbers; this is a formula"),
    ("(x > 0) + 1 > 0", "(x > 0)", "+ takes numbers; this is a formula"),
    ("abs(x > 0)", "x > 0", "abs takes numbers; this is a formula"),
    ("(x > 0)[0] > 0", "(x > 0)", "a component takes numbers; this is a formula"),
    ("[1, x > 0][0] > 0", "x > 0", "the entries of a vector are numbers"),
    ("x > 1e999", "1e999", "1e999 is not a finite number"),
    ("F[0, 1/0] x", "1/0", "this is not a finite number: nan"),
    ("F[0, pow(-1, 0.5)] x", "pow(-1, 0.5)", "this is not a finite number: nan"),
    ("F[1, 2 h] x", "h", "unknown unit of time 'h'"),
    ("F[1 s, 2] x", "[1 s, 2]", "give the end of the window a unit too"),
    ("F[x > 0, 2] x", "x > 0", "a window bound is a time in seconds"),
    ("O[2,1] x", "[2,1]", "window [2,1] is reversed"),
    ("x S[-1,1] y", "[-1,1]", "window [-1,1] starts before now"),
    ("F[inf,inf] x", "[inf,inf]", "window [inf,inf]: the bounds must be numbers, the lower one finite"),
    ("rise(x, y)", "rise(x, y)", "rise takes 1 argument, got 2"),
    ("exp(height) > 1", "exp(height)", "exp takes an exponent without unit, got m"),
    ("pow(height, 2) > height", "pow(height, 2) > height", "> compares different units: m^2 and m"),
    ("pow(height, x) > 1", "pow(height, x)", "pow of m takes a constant exponent"),
    ("pow(2, height) > 1", "pow(2, height)", "pow takes an exponent without unit, got m"),
    ("wrap(height) > 1", "wrap(height)", "wrap takes an angle in rad, got m"),
    ("angle(base_pos_w, base_vel_w) > height", "angle(base_pos_w, base_vel_w) > height",
     "> compares different units: rad and m"),
    ("angle(base_pos_w, [1, 2]) > 1", "angle(base_pos_w, [1, 2])", "angle takes two vectors of one length"),
    ("rotation_angle(base_pos_w, a) > 1", "rotation_angle(base_pos_w, a)", "rotation_angle takes two quaternions"),
    ("x > $", "$", "unexpected character '$'"),
    ("min(x) > 0", "min(x)", "min takes 2 to 16 arguments, got 1"),
])
def test_errors_point_at_the_place(text, marked, rule):
    with pytest.raises(FormulaError) as caught:
        read(text)
    error = caught.value
    assert error.rule.startswith(rule)
    assert text[error.start : error.end] == marked
    lines = str(error).splitlines()
    if len(text) > WIDTH:
        return
    assert lines[1].endswith(text)
    assert lines[2].index("^") - lines[1].index(text) == error.start
    assert lines[2].count("^") == len(marked)


def test_errors_list_the_legal_names_and_count_lines():
    with pytest.raises(FormulaError) as caught:
        read("G[0,1] (x > 0)\n  & F[0,1] (z > 0)")
    assert "  2:13 |   & F[0,1] (z > 0)" in str(caught.value)
    assert "base_pos_w[3] m" in str(caught.value) and "constants: a[3], reach" in str(caught.value)


@pytest.mark.parametrize("text, rule", [
    ("", "the formula is empty"), ("   \n", "the formula is empty"), ("# nothing", "the formula ends too early"),
    ("G[0,1] (x > 0", "the formula ends too early; expected an operator or \\)"),
    ("x >", "the formula ends too early; expected a name or a number or \\("),
    ("p = x", None), ("p =", "the formula ends too early"), ("float x", "the formula ends too early"),
    ("!" * 101 + "x", "nested too deeply"), ("!" * 5_000 + "x", "nested too deeply"),
    ("(" * 5_000 + "x" + ")" * 5_000, "nested too deeply"), ("x" + " + x" * 2_000, "nested too deeply"),
    ("x > 0" + " -> x > 0" * 2_000, "nested too deeply"), ("abs(" * 5_000 + "x" + ")" * 5_000, "nested too deeply"),
    ("".join(f"p{i + 1} = p{i} & p{i};" for i in range(40)).replace("p0", "x") + "p40", "too large"),
    ("rise(" * 30 + "x" + ")" * 30, "too large"),
])
def test_what_is_no_formula(text, rule):
    if rule is None:
        assert read(text) == P
        return
    with pytest.raises(FormulaError, match=rule):
        read(text)


def test_long_is_not_deep():
    assert len(read(" & ".join(["x > 0"] * 1000)).args) == 1000
    assert read("!" * 98 + "x") is not None  # with the comparison and x itself 100 levels


@pytest.mark.slow
def test_what_is_too_long_is_told_so_at_once_and_shown_in_part():
    text = " & ".join(["x>0"] * 40_000)
    with pytest.raises(FormulaError, match="too large: more than 100000 nodes") as caught:
        read(text)
    message = str(caught.value)
    assert text[caught.value.start] in "x0" and len(message) < 2 * WIDTH + 200
    shown, carets = message.splitlines()[1:3]
    assert "| ..." in shown and shown.endswith("...") and shown[carets.index("^")] == text[caught.value.start]
    with pytest.raises(FormulaError, match="nested too deeply"):
        read("G " * 100_000 + "x>0")
    with pytest.raises(FormulaError, match="too large: 1000003 characters"):
        read(" " * 1_000_000 + "x>0")


def test_a_long_line_is_shown_around_the_place():
    for text in ("zz > 0" + " & x > 0" * 100, "x > 0 & " * 100 + "zz > 0", "x > 0 & " * 50 + "zz > 0" + " | x" * 99):
        with pytest.raises(FormulaError) as caught:
            read(text)
        shown, carets = str(caught.value).splitlines()[1:3]
        at = carets.index("^")
        assert shown[at : at + 2] == "zz" and carets.count("^") == 2 and len(shown) < WIDTH + 30
        assert ("| ..." in shown) != text.startswith("zz") and shown.endswith("...") != text.endswith("zz > 0")


def test_signals_with_names_of_words_stand_in_quotes():
    schema = {"X": SignalSpec("X"), "G": SignalSpec("G", (3,), "m"), "true": SignalSpec("true"),
              "/odom/pose x": SignalSpec("odom"), "Speed (m/s) // #1": SignalSpec("speed"),
              "height": SPEC.signals["height"]}
    pose, speed = Signal("/odom/pose x", (), "1"), Signal("Speed (m/s) // #1", (), "1")
    first = Signal("X", (), "1")
    grid = Signal("G", (3,), "m")
    for text, formula in {
            '"X" > 0': first > 0, 'X "X" > 0': Next(first > 0), '"G".x > 1': grid[0] > 1, '"G".1 > 1': grid[1] > 1,
            '"G"[2] > 1': grid[2] > 1, "G (\"true\" > 0)": Always(Signal("true", (), "1") > 0),
            '"height" > 1': HEIGHT > 1, '"/odom/pose x" > 0': pose > 0,
            'norm("G" - [1, 0, 1]) < 1': norm(grid - (1, 0, 1)) < 1,
            '"Speed (m/s) // #1" > 0 & "X" > 0': (speed > 0) & (first > 0),
            "q = \"X\" + 1; q > 2": first + 1 > 2}.items():
        assert parse(text, schema) == formula
        assert parse(to_text(formula), schema) == formula == check(formula, schema)
        assert from_json(to_json(formula)) == formula
    assert to_text(grid[0] > 1) == '"G".x > 1' and to_text(HEIGHT > 1) == "height > 1"
    assert parse('float "X" X "X" > 0') == Next(Signal("X") > 0)
    with pytest.raises(FormulaError, match="a signal of that name is written \"X\""):
        parse("X > 0", schema)
    with pytest.raises(FormulaError) as caught:
        parse("zz > 0", schema)
    assert caught.value.legal.startswith('signals: "X" 1, "G"[3] m, "true" 1, "/odom/pose x" 1')


def test_numbers_of_numpy_are_numbers():
    assert to_json(POS[np.int64(1)]) == to_json(POS[1]) and type(POS[np.int64(1)].index) is int
    goal = np.array([1, 0, 1])
    assert norm(POS - goal) == norm(POS - (1, 0, 1)) and norm(goal - POS) == norm(Constant((1, 0, 1)) - POS)
    assert np.float64(2) * X == 2 * X and (np.float32(0.5) < X) == (X > 0.5) and dist(POS, goal) == dist(POS, (1, 0, 1))
    json.dumps(to_json(norm(goal - POS) < np.float32(0.5)))
    for wrong in ("x", 1.0, slice(0, 2), None):
        with pytest.raises(FormulaError, match="a component is a whole number"):
            POS[wrong]
    for wrong in (np.array([True, False, True]), np.eye(3), np.array(["1", "2", "3"]), [None], True):
        with pytest.raises(FormulaError, match="must be a number or a list of numbers"):
            _ = POS - wrong


def test_an_output_that_is_declared_may_have_the_name_of_a_column():
    schema = {"x": SignalSpec("x"), "out": SignalSpec("out")}
    assert parse("float x output float out out = always(x > 0)", schema) == Always(P)
    assert parse("float x float out out = always(x > 0)", schema) == Always(P)
    assert read("1 > 0") == Predicate(">", Constant(1), Constant(0)) and read("p = true; G p") == Always(Truth(True))


def test_a_text_declares_its_signals_where_no_schema_is_given():
    f = parse("input float a output float q const int T = 3 q = eventually[0, T s](a > T)")
    assert f == Eventually(Signal("a") > 3, Window(0, 3))
    with pytest.raises(FormulaError, match="unknown signal 'b'") as caught:
        parse("float a a > b")
    assert caught.value.legal == "signals: a; constants: none"
    with pytest.raises(FormulaError, match="'a' is a signal already"):
        parse("float a float a a > 0")
    with pytest.raises(FormulaError, match="'out' is given above"):
        parse("out = x > 0; y > 0", SCHEMA)


def test_every_formula_of_a_specification_by_its_name():
    text = "near = x < 1; error = base_pos_w - a; safe = G (x > 0); F[0,1] near"
    found = parse_specification(text, SCHEMA, CONSTANTS)
    assert found == {"near": X < 1, "safe": Always(P), "out": Eventually(X < 1, Window(0, 1))}
    assert list(found) == ["near", "safe", "out"]


def test_units_of_literals_constants_and_products():
    for text in ("height > 3", "height > reach", "sin(pace * mission_time) > 0", "2 * height > base_pos_w.x",
                 "base_vel_w.x * mission_time < height", "height / mission_time < norm(base_vel_w)",
                 "sqrt(height * height) < height", "atan2(base_pos_w.x, height) < 1",
                 "pow(height, 2) < height * height",
                 "pow(height, 1/2) < sqrt(height)", "pow(pow(height, 3), 1/3) < height", "pow(x, y) < x",
                 "exp(x) < exp(height / base_pos_w.x)", "pow(height, pace) < reach", "pow(2, x) < 3",
                 "angle(base_pos_w, base_vel_w) < wrap(atan2(height, height))",
                 "rotation_angle(base_quat_w, goal_quat) < angle(base_pos_w, a)", "height < pow(2, 0.5) * height",
                 "cos(wrap(mission_time * base_ang_vel_b.x)) > x"):
        read(text)
    with pytest.raises(FormulaError, match=r"m\^2 and m"):
        read("height * height < height")
    with pytest.raises(FormulaError, match="m/s and m"):
        read("2 * height / mission_time < height")


@pytest.mark.parametrize("constants, rule", [
    ({"height": 1.0}, "a constant and a signal have the same name"),
    ({"a": "1.0"}, "must be a number or a list of numbers"),
    ({"a": "101"}, "must be a number or a list of numbers, got '101'"),
    ({"a": b"101"}, "must be a number or a list of numbers"),
    ({"a": ["1", "2"]}, "must be a number or a list of numbers"),
    ({"a": True}, "must be a number or a list of numbers, got True"),
    ({"a": [1, True]}, "must be a number or a list of numbers"),
    ({"a": np.array([True])}, "must be a number or a list of numbers"),
    ({"a": {1: 2}}, "must be a number or a list of numbers"),
    ({"a": [[1.0]]}, "must be a number or a list of numbers"),
    ({"a": 10**400}, "must be a number or a list of numbers"),
    ({"a": [1.0, None]}, "must be a number or a list of numbers"),
    ({"a": float("nan")}, "is not finite"),
    ({"G": 1.0}, "not a keyword"),
    ({"a b": 1.0}, "not a keyword"),
])
def test_bad_constants(constants, rule):
    with pytest.raises(FormulaError, match=rule):
        parse("height > 0", SCHEMA, constants)


def test_python_construction():
    assert P & Q == And((P, Q)) and P & Q & X == And((P, Q, P)) and X & P == And((P, P))
    assert P | Y == Or((P, Q)) and X | Q == Or((P, Q)) and P >> Y == Implies(P, Q) and X >> Q == Implies(P, Q)
    assert read("x xor y") == xor(X, Y) and read("x <-> y") == iff(X, Q)
    assert read("rise(x) & fall(y)") == And((rise(P), fall(Y)))
    assert read("x S[0,1] y") == since(X, 0, 1, Y) and read("x R[0,1] y") == release(P, 0, 1, Y)
    assert read("x W[0,1] y") == weak_until(X, 0, 1, Q) and read("H[0,1] O[0,1] x") == historically(0, 1, once(0, 1, X))
    assert read("X s_prev x") == next_sample(previous_sample(X, strong=True))
    assert read("hypot(sin(x), cos(y)) > sqrt(x)") == (hypot(sin(X), cos(Y)) > sqrt(X))
    assert read("min(x, y, 1) > max(2, x)") == (minimum(X, Y, 1) > maximum(2, X))
    assert read("pow(x, 2) > pow(2, x)") == (X**2 > 2**X)
    for wrong in (lambda: P & True, lambda: always(0, 1, "x > 0"), lambda: until(P, 0, 1, None)):
        with pytest.raises(FormulaError, match="is no formula"):
            wrong()
    with pytest.raises(FormulaError, match="> compares scalars"):
        always(0, 1, POS)
    for wrong in (lambda: Signal('x" > 0'), lambda: Signal("x\ny"), lambda: Constant(1.0, "a b"),
                  lambda: Signal("")):
        with pytest.raises(FormulaError, match="a name is letters"):
            wrong()


def test_python_construction_is_checked_against_the_schema():
    built = always(0, 1, Signal("height") > 0.3)
    assert check(built, SCHEMA) == always(0, 1, HEIGHT > 0.3)  # the schema's unit
    with pytest.raises(FormulaError, match="did you mean 'height'"):
        check(always(0, 1, Signal("heght") > 0.3), SCHEMA)
    with pytest.raises(FormulaError, match=r"signal 'base_pos_w' is a vector \[2\] in the formula and a vector \[3\]"):
        check(Signal("base_pos_w", (2,))[0] > 1, SCHEMA)
    with pytest.raises(FormulaError, match="signal 'height' is in 's' in the formula and in 'm' in the schema"):
        check(Signal("height", (), "s") > 1, SCHEMA)
    with pytest.raises(FormulaError, match="signal 'base_quat_w' is in '1' in the formula and in 'wxyz'"):
        check(Signal("base_quat_w", (4,), "1")[0] > 1, SCHEMA)
    deep = P
    for _ in range(3000):
        deep = Not(deep)
    with pytest.raises(FormulaError, match="nested too deeply"):
        check(deep, SCHEMA)
    with pytest.raises(FormulaError, match="constant 'c' has two values: 1.0 and 2.0"):
        check((X > Constant(1, "c")) & (X < Constant(2, "c")), SCHEMA)
    with pytest.raises(FormulaError, match="> compares scalars"):
        POS > 1  # noqa: B015
    with pytest.raises(TypeError, match="no truth value"):
        _ = 0 < X < 1
    assert until(P, 0, 1, Q) & P & Q == And((until(P, 0, 1, Q), P, Q))


def test_the_robot_side_imports_without_torch_and_numba():
    code = ("import sys; sys.modules['numba'] = None\n"  # as where it is not installed
            "import temporeal.sim.stl.language.parse, temporeal.sim.stl.monitoring.monitor\n"
            "import temporeal.sim.stl.planning.decompose, temporeal.sim.stl.semantics.robustness\n"
            "found = {'torch', 'mujoco'} & set(sys.modules)\n"
            "sys.exit(f'imported {found}' if found else 0)")
    subprocess.run([sys.executable, "-c", code], check=True)
