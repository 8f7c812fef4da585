"""Robustness while the trace is made, against that of the whole trace."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.stl.definition import DT, SCHEMA, X, defined, formulas

from temporeal.sim.compiler.vectorize import LANES, Kernel, Plain, table, views
from temporeal.sim.rewards.online_robustness import Online
from temporeal.sim.stl.language.constructors import always, eventually
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula, Truth
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.semantics.robustness import robustness


def noise(length: int, seed: int, worlds: int = 3) -> dict[str, torch.Tensor]:
    values = torch.randn(length, worlds, 5, generator=torch.Generator().manual_seed(seed))
    return {"x": values[..., 0], "y": values[..., 1], "p": values[..., 2:]}


def played(formula: Formula, signals, dt=DT):
    """The value at the start after each sample, and the value at each sample that is known, with their delays."""
    length, worlds = signals["x"].shape
    out = []
    for kind in (Online.at_start, Online.following):
        online = Online(dt)
        part = kind(online, formula)
        memory = online.begin({k: torch.zeros(worlds, *s) for k, s in online.carry.items()})
        values = []
        for t in range(length):
            sample = online.sample({k: v[t] for k, v in signals.items()}, torch.full((worlds,), float(t)), memory)
            values.append(part(sample))
            assert set(sample.after) == set(memory)
            memory = sample.after
        out.append((torch.stack(values), part.late))
    return out


def samples(formula: Formula, dt: float = DT) -> int:
    return round(horizon(formula, dt) / dt)


@settings(max_examples=examples(60), deadline=None)
@given(formulas(unbounded_past=True, max_leaves=4), st.integers(0, 2**31))
def test_any_formula_as_the_whole_trace_has_it(formula, seed):
    length = samples(formula) + 4
    signals = noise(length, seed, worlds=2)
    (start, known), (each, late) = played(formula, signals)
    means = torch.from_numpy(defined(formula, {k: v.double().numpy() for k, v in signals.items()}, 0)).float()
    assert known <= length - 4
    assert late <= length - 4
    for t in range(known, length):
        torch.testing.assert_close(start[t], means[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(each[late:], means[: length - late], rtol=1e-5, atol=1e-5)


LONG = (
    "F[0,30] (norm(p) < 0.6 & F[2,40] (y > 1.9)) & G[0,60] (x > -3)",
    "(x < 2.5) U[5,50] (y > 2 & x > 0.2)",
    "G[0,30] F[0,8] (y > 0.9) | F[3,20] G[0,2] (x > -0.2)",
    "G[0,20] ((x > 1) -> ((y > -1.5) U[1,12] (x < -0.4)))",
    "F[10,40] (x > 1 & (y < 2) W[3,9] (x < -1) & O[0,5] (y > 1) & (x > -2) S[2,20] (y > 0))",
)


@pytest.mark.parametrize("text", LONG)
def test_long_windows(text):
    formula = parse(text, SCHEMA)
    signals = noise(samples(formula, 0.5) + 9, 7, worlds=40)
    (start, known), (each, late) = played(formula, signals, 0.5)
    means = robustness(formula, signals, 0.5)
    torch.testing.assert_close(start[known], means[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(each[late:], means[: len(means) - late], rtol=1e-6, atol=1e-6)
    assert (start[known] > 0).any() and len(start[known].unique()) > 20


def test_a_window_of_predicates_costs_one_number_however_long():
    online = Online(0.1)
    online.at_start(parse("F[0,90] (x > 1) & G[3,60] (y < 2) & (x < 1) U[0,70] (y > 3)", SCHEMA))
    assert sum(int(np.prod(s)) for s in online.carry.values()) == 4


def test_equal_parts_share_their_memory():
    online = Online(0.1)
    online.following(parse("F[0,2] (x > 1) & (y > 0 | F[0,2] (x > 1))", SCHEMA))
    assert sorted(online.carry.values()) == [(20,), (20,)]  # the window, and y as late as it


def test_truth_values_have_infinite_robustness():
    signals = noise(4, 0)
    for formula, value in ((Truth(True), np.inf), (always(0, 0.2, Truth(False)), -np.inf),
                           (eventually(0, 0.2, Truth(True)) & always(0, 0.1, X > -100), None)):
        start, known = played(formula, signals)[0]
        assert (start[known] > 50).all() if value is None else (start[known] == value).all()


@pytest.mark.parametrize("text", ["F (x > 0)", "G[0,1] F (x > 0)", "(x > 0) U (y > 0)", "F (x > 0 & F[0,1] (y > 0))"])
def test_a_window_without_an_end_is_refused(text):
    with pytest.raises(FormulaError, match="no end"):
        Online(0.1).at_start(parse(text, SCHEMA))


@pytest.mark.parametrize("text", LONG[:3] + LONG[4:])
def test_compiled_is_as_it_is(text):
    """Over a whole episode (a norm sums its squares in another order)."""
    online, worlds = Online(1.0), LANES + 3
    formula = parse(text, SCHEMA)
    part, follow = online.at_start(formula), online.following(formula)
    signals = noise(samples(formula, 1.0) + 2, 5, worlds)
    columns = {"tick": (), **{f"m.{k}": v for k, v in online.carry.items()}, "value": (), "each": ()}

    def function(x):
        sample = online.sample(x, x["tick"], {k: x[f"m.{k}"] for k in online.carry})
        out = {"value": part(sample), "each": follow(sample), "tick": x["tick"] + 1.0}
        return {**out, **{f"m.{k}": v for k, v in sample.after.items()}}

    found = []
    for kind in (Kernel, Plain):
        inputs = ("tick", "x", "y", "p", *(f"m.{k}" for k in online.carry))
        run, memory = kind(function, columns, {"x": (), "y": (), "p": (3,)}, inputs), table(columns, worlds)
        column = views(memory, columns, worlds)
        for name, value in online.begin({k: column[f"m.{k}"] for k in online.carry}).items():
            column[f"m.{name}"].copy_(value)
        values = []
        for t in range(len(signals["x"])):
            run(memory, {k: v[t].clone() for k, v in signals.items()})
            values.append(torch.stack([column["value"], column["each"]]).clone())
        found.append(torch.stack(values))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[0][part.late, 0], robustness(formula, signals, 1.0)[0], rtol=1e-6, atol=1e-6)
