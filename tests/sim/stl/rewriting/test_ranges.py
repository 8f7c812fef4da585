"""What margins can be at all: bounds by hand, and no sample that leaves them."""

from __future__ import annotations

import re
from math import inf, pi

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.rewriting.ranges import margin_range, margin_upper_bound
from temporeal.sim.stl.semantics.robustness import robustness

SIGNALS = schema(SignalSpec("p", (3,), ""), SignalSpec("v", (3,), ""), SignalSpec("q", (4,), "wxyz"))
CONSTANTS = {"a": [1.0, 2.0, 0.0], "r": 0.6}


def parsed(text: str) -> Formula:
    named = {name: value for name, value in CONSTANTS.items() if re.search(rf"\b{name}\b", text)}
    return parse(text, SIGNALS, named)


@pytest.mark.parametrize(("text", "most"), [
    ("norm(p - a) < r", 0.6), ("r > norm(p - a)", 0.6), ("norm(v) <= 0.05", 0.05), ("dist(p, a) - r < 0", 0.6),
    ("abs(p.x - a.x) < 0.2", 0.2), ("hypot(p.x - a.x, p.y - a.y) < r", 0.6), ("2 * r - norm(v) > 1", 0.2),
    ("norm(p) + abs(v.x) < 1", 1.0), ("max(abs(p.x), abs(p.y)) < 5", 5.0), ("min(norm(p), abs(v.x)) < 0.3", 0.3),
    ("min(r - norm(p), 1 - norm(v)) > 0", 0.6), ("2 * norm(p) < 1", 1.0), ("norm(p) / 2 < 0.1", 0.1),
    ("pow(p.x - a.x, 2) + p.y * p.y < 0.04", 0.04), ("q.w > 0.99", 0.01), ("sin(p.x) > 0.9", 0.1),
    ("angle(p, v) < 0.1", 0.1), ("norm(p) == r", 0.0), ("p.x == 1", 0.0), ("!(norm(p) > r)", 0.6),
    ("norm(p) < r & p.x > 0", 0.6), ("norm(p) < r | norm(v) < 1", 1.0), ("norm(v) < 0", 0.0),
    ("norm(p) > r", inf), ("p.x < 3", inf), ("norm(p) < r | p.x > 0", inf), ("norm(p) < norm(v)", inf),
    ("norm(p) * p.x < 1", inf), ("norm(p) != r", inf), ("wrap(p.x) < 1", 1 + pi)])
def test_the_greatest_margin_is_what_the_form_tells(text: str, most: float) -> None:
    assert margin_upper_bound(parsed(text)) == pytest.approx(most)


@pytest.mark.parametrize("text", [
    "norm(p - a) < r", "abs(p.x) * abs(v.x) < 1", "-2 * norm(p) + sin(v.x) > -3", "exp(p.x) < 1", "p.x == 1",
    "p.x / -2 < sqrt(abs(v.y))", "norm(p) != r", "atan2(p.x, p.y) < 1 -> abs(wrap(v.x)) < 1", "abs(p.x - 3) > abs(p.y)",
    "max(p.x, norm(v)) < 2 <-> min(p.y, 1) > 0"])
def test_no_sample_leaves_the_range(text: str) -> None:
    formula = parsed(text)
    low, high = margin_range(formula)
    traces = {name: np.random.default_rng(0).normal(size=(1, 4000, 3)) * 3 for name in ("p", "v")}
    margins = robustness(formula, traces, 0.1)[0]
    assert low <= margins.min() and margins.max() <= high
