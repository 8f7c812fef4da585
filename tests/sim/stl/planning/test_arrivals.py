"""A variable where something begins to be kept: the same traces satisfy it, and whoever follows it can be there."""

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.planning.arrivals import with_arrivals
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.grounding import best

PLACE = schema(SignalSpec("p", (2,), "m"))


def alternative(text):
    (found,) = decompose(parse(text, PLACE), 0.5).alternatives
    return found


@pytest.mark.parametrize(("text", "variables"), [
    ("F[0,2] p.x > 0 & F[3,4] p.y > 0 & G[2.5,4] (p.x < 1)", 3),
    ("G[1,2] p.x > 0 & G[2,3] p.y > 0 & G[1,3] p.x < 1", 2),
    ("F[0,2] (p.x > 0 & G[1,2] p.y > 0)", 2),
    ("F[0,2] (p.x > 0 & F[1.5,2] (p.y < 0 & G[0.5,1] p.x < 0)) & G[3,4] (p.y > -1)", 4),
    ("F[0,2] p.x > 0 & G[0,4] p.y > -1", 1),
    ("F[0,2] G[0,1] p.x > 0", 1),
    ("!(p.x > 1) U[1,3] p.y > 0", 1),
])  # fmt: skip
def test_the_same_traces_satisfy_it_by_as_much(text, variables):
    before = alternative(text)
    after = with_arrivals(before)
    assert after.variables == variables
    signals = {"p": np.random.default_rng(0).normal(0.0, 1.0, (before.samples, 300, 2))}
    np.testing.assert_array_equal(best(before, signals)[0], best(after, signals)[0])
    d = after.bounds
    assert not any(d[v][w] <= 0 and d[w][v] > 0 for v in range(1, variables + 1) for w in range(v + 1, variables + 1))
    assert with_arrivals(after).variables == variables


def test_what_begins_now_or_may_never_begin_has_none():
    for text in ("G[0,2] p.x > 0", "F[0,2] (p.x > 0 & G[0,1] p.y > 0)"):
        plain = alternative(text)
        assert with_arrivals(plain) is plain
    chain = with_arrivals(alternative("F[0,1] p.x > 0 & G[2,3] p.y > 0"))
    assert str(chain).splitlines()[1].startswith("t2 in [2, 2]: reach")
