"""The language: what a text means, what it costs to write it wrongly, and that errors point at the place."""

import subprocess
import sys

import pytest

from robots.crazyflie.spec import SPEC
from robots.signals import SignalSpec
from sim.stl.parse import check, parse
from sim.stl.syntax import (
    Always,
    And,
    Apply,
    Component,
    Constant,
    Eventually,
    FormulaError,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    Until,
    Window,
    always,
    clauses,
    constants_in,
    dist,
    eventually,
    from_json,
    horizon,
    norm,
    to_json,
    to_text,
    until,
)

SCHEMA = {**SPEC.signals, "x": SignalSpec("x"), "y": SignalSpec("y"), "grid": SignalSpec("grid", (2, 3), "m"),
          "mission_time": SignalSpec("mission_time", (), "s")}
CONSTANTS = {"a": (1.2, 0.8, 1.3), "reach": 0.2, "pace": 1.5, "goal_quat": (1, 0, 0, 0)}
X, Y = Signal("x", (), "1"), Signal("y", (), "1")
P, Q = X > 0, Y > 0
POS = Signal("base_pos_w", (3,), "m")
HEIGHT = Signal("height", (), "m")


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
    # loosest to tightest: <->, ->, |, &, U, prefix
    ("x > 0 | y > 0 & x > 0", Or((P, And((Q, P))))),
    ("x > 0 & y > 0 U x > 0", And((P, Until(Q, P)))),
    ("x > 0 or y > 0 -> x > 0", Implies(Or((P, Q)), P)),
    ("x > 0 -> y > 0 -> x > 0", Implies(P, Implies(Q, P))),
    ("x > 0 implies y > 0 iff x > 0", Iff(Implies(P, Q), P)),
    ("x > 0 U y > 0 U x > 0", Until(P, Until(Q, P))),
    ("G[0,1] x > 0 & y > 0", And((Always(P, Window(0, 1)), Q))),
    ("G[0,1] x > 0 U y > 0", Until(Always(P, Window(0, 1)), Q)),
    ("(x > 0) & ((y)) > 0", And((P, Q))),
    ("true & !false", And((Truth(True), Not(Truth(False))))),
    ("0 < x < 1", And((Constant(0.0) < X, X < 1))),
    ("x > 0  # a comment\n & y > 0", And((P, Q))),
    # arithmetic
    ("x - y - 1 > 2 * x / y", Predicate(">", X - Y - 1, 2 * X / Y)),
    ("-x * y > 0", (-X) * Y > 0),
    ("x - (y - 1) >= -1.5e-3", X - (Y - 1) >= -0.0015),
    ("abs(x) + min(x, y, 1) <= max(x, y)", abs(X) + Apply("min", (X, Y, Constant(1))) <= Apply("max", (X, Y))),
    ("base_pos_w.z > 1", POS[2] > 1),
    ("base_pos_w.2 > 1", POS[2] > 1),
    ("base_pos_w[2] > 1", POS[2] > 1),
    ("(base_pos_w - a)[2] > 1", (POS - Constant((1.2, 0.8, 1.3), "a"))[2] > 1),
    ("grid.1.x > 1", Component(Component(Signal("grid", (2, 3), "m"), 1), 0) > 1),
    ("dist(base_pos_w, [0, -1, 2]) < reach", dist(POS, (0, -1, 2)) < Constant(0.2, "reach")),
    # a quaternion is stored scalar first
    ("base_quat_w.w > 0.9", Signal("base_quat_w", (4,), "wxyz")[0] > 0.9),
    ("base_quat_w.x > 0.9", Signal("base_quat_w", (4,), "wxyz")[1] > 0.9),
])
def test_meaning_and_round_trip(text, formula):
    assert read(text) == formula
    assert read(to_text(formula)) == formula
    assert from_json(to_json(formula)) == formula


def test_names_may_begin_like_words():
    schema = {n: SignalSpec(n) for n in ("Goal", "Until_x", "notx", "trueish", "F1")}
    f = parse("G[0,1] (Goal > 0) & notx > 0 & trueish > 0 U Until_x > 0 & F1 > 0", schema)
    assert to_text(f) == "G[0,1] (Goal > 0) & notx > 0 & (trueish > 0) U (Until_x > 0) & F1 > 0"


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
    ("goal_quat.w > 1", ".w", "no component 'w'; components of goal_quat: 0, 1, 2, 3"),
    ("base_pos_w[5] > 1", "[5]", "base_pos_w has components 0 to 2, not 5"),
    ("height = 3", "=", "there is no equality"),
    ("(x > 0) (y > 0)", "(", "unexpected '('; expected & or | or -> or <-> or U or the end"),
    ("x > G", "G", "'G' is a word of the language, no name"),
    ("x > S", "S", "'S' is reserved"),
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
    assert lines[1].endswith(text)
    assert lines[2].index("^") - lines[1].index(text) == error.start
    assert lines[2].count("^") == len(marked)


def test_errors_list_the_legal_names_and_count_lines():
    with pytest.raises(FormulaError) as caught:
        read("G[0,1] (x > 0)\n  & F[0,1] (z > 0)")
    assert "  2:13 |   & F[0,1] (z > 0)" in str(caught.value)
    assert "base_pos_w[3] m" in str(caught.value) and "constants: a[3], reach" in str(caught.value)


@pytest.mark.parametrize("text", ["", "   \n", "G[0,1] (x > 0", "x >", "x", "!" * 5000 + "x > 0"])
def test_what_is_no_formula(text):
    with pytest.raises(FormulaError):
        read(text)


def test_units_of_literals_constants_and_products():
    for text in ("height > 3", "height > reach", "sin(pace * mission_time) > 0", "2 * height > base_pos_w.x",
                 "base_vel_w.x * mission_time < height", "height / mission_time < norm(base_vel_w)",
                 "sqrt(height * height) < height", "atan2(base_pos_w.x, height) < 1"):
        read(text)
    with pytest.raises(FormulaError, match=r"m\^2 and m"):
        read("height * height < height")
    with pytest.raises(FormulaError, match="m/s and m"):
        read("2 * height / mission_time < height")


@pytest.mark.parametrize("constants, rule", [
    ({"height": 1.0}, "names of constants and of signals"),
    ({"a": "1.0"}, "must be a number or a list of numbers"),
    ({"a": [1.0, None]}, "must be a number or a list of numbers"),
    ({"a": float("nan")}, "is not finite"),
    ({"G": 1.0}, "no word of the language"),
    ({"a b": 1.0}, "no word of the language"),
])
def test_bad_constants(constants, rule):
    with pytest.raises(FormulaError, match=rule):
        parse("height > 0", SCHEMA, constants)


def test_python_construction_is_checked_against_the_schema():
    built = always(0, 1, Signal("height") > 0.3)
    assert check(built, SCHEMA) == always(0, 1, HEIGHT > 0.3)  # the schema's unit
    with pytest.raises(FormulaError, match="did you mean 'height'"):
        check(always(0, 1, Signal("heght") > 0.3), SCHEMA)
    with pytest.raises(FormulaError, match="constant 'c' has two values: 1.0 and 2.0"):
        check((X > Constant(1, "c")) & (X < Constant(2, "c")), SCHEMA)
    with pytest.raises(FormulaError, match="> compares scalars"):
        POS > 1  # noqa: B015
    with pytest.raises(TypeError, match="no truth value"):
        _ = 0 < X < 1
    assert until(P, 0, 1, Q) & P & Q == And((until(P, 0, 1, Q), P, Q))


def test_json_names_what_is_wrong():
    with pytest.raises(FormulaError, match="unknown node 'globally'; known: .*always"):
        from_json({"node": "globally"})
    with pytest.raises(FormulaError, match="has the fields"):
        from_json({"node": "not", "args": []})


def test_the_robot_side_imports_without_torch_and_numba():
    code = ("import sys; import sim.stl.parse, sim.stl.monitor, sim.stl.decompose, sim.stl.robustness\n"
            "found = {'torch', 'numba', 'mujoco'} & set(sys.modules)\n"
            "sys.exit(f'imported {found}' if found else 0)")
    subprocess.run([sys.executable, "-c", code], check=True)
