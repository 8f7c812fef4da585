"""The compiled margin equals the interpreted one."""

import pytest
import torch

from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import margin
from temporeal.sim.stl.semantics.torch_ops import margin_function

SCHEMA = schema(SignalSpec("p", (3,), "m", "w"), SignalSpec("q", (4,), "wxyz", "w"), SignalSpec("h", (), "m"))
CONSTANTS = {"a": (0.1, -0.2, 0.3), "r": 0.5}
TEXTS = [
    "norm(p - a) < r", "hypot(p.x - a.x, p.y - a.y) > r & h < 2 * r", "!(h > 0) | p.z <= -r",
    "h > 0 -> norm(2 * p) < r", "h > 0 <-> p.x < p.y", "max(h, p.x, -p.y) >= min(r, h)",
    "sin(h / r) + cos(p.x / r) < sqrt(r / r)",
    "abs(h / r) < 1 & q.w > 0", "dist(p, a) / r < atan2(r, h)", "norm(p / r) > h - 1",
]


@pytest.mark.parametrize("text", TEXTS)
def test_equal_to_the_interpreted_margin(text):
    formula = parse(text, SCHEMA, CONSTANTS)
    gen = torch.Generator().manual_seed(1)
    signals = {"p": torch.randn(7, 5, 3, generator=gen), "q": torch.randn(7, 5, 4, generator=gen),
               "h": torch.randn(7, 5, generator=gen)}
    torch.testing.assert_close(margin_function(formula)(signals), margin(formula, signals))
    double = {k: v.double() for k, v in signals.items()}  # constants follow the signals' type
    assert margin_function(formula)(double).dtype == torch.float64


def test_temporal_formulas_are_refused():
    with pytest.raises(FormulaError, match="looks further"):
        margin_function(parse("G[0,1] (h > 0)", SCHEMA))
