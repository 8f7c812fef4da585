"""The JSON form of a formula comes back equal; whatever else comes in is a FormulaError that names the place."""

import json
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import formulas

from temporeal.sim.stl.language.constructors import always, equal, eventually, norm, rise, until
from temporeal.sim.stl.language.errors import MAX_DEPTH, FormulaError
from temporeal.sim.stl.language.propositional import Signal
from temporeal.sim.stl.language.serialization import from_json, to_json

P, X = Signal("p", (3,), "m"), Signal("x", (), "m")
MISSION = always(0, 2, norm(P - (1, 0, 0)) < 0.5) & until(X > 0, 1, inf, eventually(0, 3, equal(X, 1))) & rise(X)
DATA = to_json(MISSION)


def changed(path, value):
    """The JSON of the mission with ``value`` at ``path``."""
    data = json.loads(json.dumps(DATA))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


def test_the_form():
    assert to_json(until(X > 1, 0.5, inf, X < 2)) == {
        "node": "until", "window": [0.5, None],
        "left": {"node": "predicate", "op": ">", "left": {"node": "signal", "name": "x", "dims": [], "unit": "m"},
                 "right": {"node": "constant", "value": 1.0, "name": ""}},
        "right": {"node": "predicate", "op": "<", "left": {"node": "signal", "name": "x", "dims": [], "unit": "m"},
                  "right": {"node": "constant", "value": 2.0, "name": ""}}}
    assert from_json(json.loads(json.dumps(DATA))) == MISSION
    assert from_json(to_json(norm(P) + 1)) == norm(P) + 1


LEFT = ["args", 0, "arg", "left"]  # the norm


@pytest.mark.parametrize("path, value, rule", [
    (["node"], "globally", r"top level: unknown node 'globally'; known: signal, .*always"),
    (["node"], ["and"], r"top level: unknown node \['and'\]"),
    (["node"], None, "top level: unknown node None"),
    (["args"], None, r"\.args: a list expected, got None"),
    (["args"], {}, r"\.args: a list expected, got \{\}"),
    (["args"], [], "top level: a conjunction has two or more parts, got 0"),
    (["args", 1], "x > 0", r"\.args\[1\]: a node is an object with the field 'node', got 'x > 0'"),
    (["args", 1], [[[[]]]], r"\.args\[1\]: a node is an object"),
    (["args", 1], {"node": "signal", "name": "x", "dims": [], "unit": ""},
     r"\.args\[1\]: unknown node 'signal'; known: predicate, truth"),
    (["args", 0, "extra"], 1, r"\.args\[0\]: node 'always' has the fields arg, window; got 'arg', 'extra', 'window'"),
    (["args", 0, "arg"], {"node": "not", "args": []}, r"\.args\[0\]\.arg: node 'not' has the fields arg; got 'args'"),
    (["args", 0, "window"], "[0, 1]", r"\.args\[0\]\.window: a list expected, got '\[0, 1\]'"),
    (["args", 0, "window"], [0, 1, 2], r"\.args\[0\]\.window: a window is \[lo, hi\] in seconds"),
    (["args", 0, "window"], [2, 1], r"\.args\[0\]\.window: window \[2,1\] is reversed"),
    (["args", 0, "window"], [-1, 1], r"\.args\[0\]\.window: window \[-1,1\] starts before now"),
    (["args", 0, "window"], [None, 1], r"\.args\[0\]\.window\[0\]: a number expected, got None"),
    (["args", 0, "window"], ["0", 1], r"\.args\[0\]\.window\[0\]: a number expected, got '0'"),
    (["args", 0, "window"], [0, nan], r"\.args\[0\]\.window\[1\]: a finite number expected, got nan"),
    (["args", 0, "window"], [0, inf], r"\.args\[0\]\.window\[1\]: a finite number expected, got inf"),
    (["args", 0, "window"], [False, True], r"\.args\[0\]\.window\[0\]: a number expected, got False"),
    (["args", 0, "arg", "op"], "=", r"\.args\[0\]\.arg: unknown comparison '='"),
    (["args", 0, "arg", "op"], 3, r"\.args\[0\]\.arg\.op: a text expected, got 3"),
    (["args", 0, "arg", "left"], to_json(P), r"\.args\[0\]\.arg: < compares scalars"),
    (["args", 0, "arg", "left"], DATA["args"][0]["arg"], r"\.args\[0\]\.arg\.left: unknown node 'predicate'"),
    (["args", 0, "arg", "right", "value"], 10**400, r"\.right\.value: a finite number expected"),
    (["args", 0, "arg", "right", "value"], nan, r"\.right\.value: a finite number expected, got nan"),
    (["args", 0, "arg", "right", "value"], "0.5", r"\.right\.value: a number expected, got '0.5'"),
    (["args", 0, "arg", "right", "value"], True, r"\.right\.value: a number expected, got True"),
    (["args", 0, "arg", "right", "value"], [1, "2"], r"\.right\.value\[1\]: a number expected, got '2'"),
    (["args", 0, "arg", "right", "value"], [], r"\.right: constant \[\] is an empty vector"),
    (["args", 0, "arg", "right", "name"], "x > 0 | y", r"\.right: constant 'x > 0 \| y': a name is letters"),
    ([*LEFT, "op"], "eval", r"\.left: unknown function 'eval'; known: "),
    ([*LEFT, "args"], [], r"\.left: norm takes 1 argument, got 0"),
    ([*LEFT, "args", 0, "args", 0, "name"], 7, r"\.args\[0\]\.name: a text expected, got 7"),
    ([*LEFT, "args", 0, "args", 0, "name"], "", r"\.args\[0\]: signal '': a name is letters"),
    ([*LEFT, "args", 0, "args", 0, "dims"], 3, r"\.dims: a list expected, got 3"),
    ([*LEFT, "args", 0, "args", 0, "dims"], [0], r"\.dims\[0\]: a whole number, 1 or more, expected, got 0"),
    ([*LEFT, "args", 0, "args", 0, "dims"], [3.0], r"\.dims\[0\]: a whole number"),
    ([*LEFT, "args", 0, "args", 0, "dims"], [4], r"\.args\[0\]: - of a vector \[4\] and a vector \[3\]"),
    ([*LEFT, "args", 0, "args", 0, "unit"], None, r"\.unit: a text expected, got None"),
    (["args", 2], {"node": "component", "of": to_json(P), "index": 0}, r"\.args\[2\]: unknown node 'component'"),
    (["args", 2], {"node": "truth", "value": 1}, r"\.args\[2\]\.value: true or false expected, got 1"),
    (["args", 2], {"node": "next", "arg": DATA["args"][2], "strong": 0}, r"\.strong: true or false expected, got 0"),
])
def test_what_is_wrong_is_told_with_its_place(path, value, rule):
    with pytest.raises(FormulaError, match=rule):
        from_json(changed(path, value))


@pytest.mark.parametrize("index", [-1, 3, 1.0, "0", True, None])
def test_components(index):
    with pytest.raises(FormulaError):
        from_json({"node": "component", "of": to_json(P), "index": index})


@pytest.mark.parametrize("data", [None, 3, "always", [], {}, {"node": {}}, {3: 4, "node": "truth"}, object(), b"x"])
def test_what_is_no_node(data):
    with pytest.raises(FormulaError, match="top level"):
        from_json(data)


def test_deep_nesting_is_an_error_and_no_crash():
    leaf = {"node": "truth", "value": True}
    for depth, data in ((MAX_DEPTH - 1, leaf), (100_000, leaf)):
        for _ in range(depth):
            data = {"node": "not", "arg": data}
        if depth < MAX_DEPTH:
            assert to_json(from_json(data)) == data
        else:
            with pytest.raises(FormulaError, match="nested too deeply"):
                from_json(data)


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["signal", ">"]))
json_values = st.recursive(
    plain,
    lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(st.sampled_from(["node", "arg", "value"]), v)),
    max_leaves=6)


@settings(max_examples=examples(200), deadline=None)
@given(formulas(unbounded=True), json_values, st.data())
def test_any_change_is_a_formula_or_an_error(f, value, data):
    """Anything in any place: a FormulaError, or a formula whose own JSON comes back equal."""
    whole = json.loads(json.dumps(to_json(f)))
    at = whole
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    at[key] = value
    try:
        found = from_json(whole)
    except FormulaError as error:
        assert error.rule.startswith("formula JSON, ")
    else:
        assert from_json(to_json(found)) == found
