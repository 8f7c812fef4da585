"""Parameter spaces: bounds, maps from and to the unit cube, JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from temporeal.sim.stl.analysis.parameter_space import (
    SCALES,
    Choice,
    Integer,
    Parameter,
    ParameterSpace,
    Real,
    SpaceError,
    space_from_json,
)

SPACE = ParameterSpace((
    Real("start", (-1.0, 2.0, 0.5), (1.0, 2.0, 0.75)),
    Real("gust", 1e-3, 1e3, "log"), Real("bias", (-0.6, 1.0), (0.6, 7.0), "normal"), Integer("delay", -1, 3),
    Integer("counts", (0, 5), (1, 9)), Choice("surface", ("ice", "sand", "oil")), Choice("gain", (0.5, 2.0)),
    Choice("brake", (True, False))))


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Parameter:
    if draw(st.booleans()):
        low = draw(st.integers(-50, 50))
        return Integer(name, low, low + draw(st.integers(1, 60)))
    scale = draw(st.sampled_from(SCALES))
    low = draw(st.floats(1e-12 if scale == "log" else -1e12, 1e12))
    width = draw(st.floats(1, 1e9))
    return Real(name, low, low * (1.001 + width) if scale == "log" else low + abs(low) * 1e-3 + width, scale)


@given(st.data())
def test_values_lie_within_the_bounds_and_map_back(data: st.DataObject) -> None:
    space = ParameterSpace(tuple(data.draw(parameters(f"p{i}")) for i in range(data.draw(st.integers(1, 4)))))
    edge = st.sampled_from([0.0, 1.0, np.nextafter(1.0, 0.0), 5e-324])
    u = np.array(data.draw(st.lists(st.lists(st.floats(0, 1) | edge, min_size=space.dim, max_size=space.dim),
                                    min_size=1, max_size=5)))
    values = space.from_unit(u)
    space.checked(values)
    back = space.to_unit(values)
    assert ((back >= 0) & (back <= 1)).all()
    again = space.from_unit(back)
    for p in space.parameters:
        if isinstance(p, Integer):
            assert np.array_equal(again[p.name], values[p.name])
        else:
            np.testing.assert_allclose(again[p.name], values[p.name], rtol=1e-7, atol=1e-9 * abs(p.high - p.low))
    continuous = space.counts == 0
    np.testing.assert_allclose(back[:, continuous], u[:, continuous], atol=1e-6)


def test_shapes_and_types() -> None:
    values = SPACE.sample(np.random.default_rng(0), 7)
    assert SPACE.dim == 3 + 1 + 2 + 1 + 2 + 1 + 1 + 1
    assert {k: v.shape for k, v in values.items()} == {
        "start": (7, 3), "gust": (7,), "bias": (7, 2), "delay": (7,), "counts": (7, 2), "surface": (7,), "gain": (7,),
        "brake": (7,)}
    assert values["delay"].dtype == np.int64
    assert values["brake"].dtype == bool
    assert (values["start"][:, 1] == 2.0).all()


def test_scale_and_shares() -> None:
    """Uniform in the logarithm where the scale is that; every discrete value has the same share."""
    values = SPACE.sample(np.random.default_rng(1), 20000)
    assert np.mean(values["gust"] < 1.0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(values["start"][:, 0] < 0.5) == pytest.approx(0.75, abs=0.02)
    z = (values["bias"] - [0.0, 4.0]) / [0.2, 1.0]
    assert z.std(0) == pytest.approx([0.987, 0.987], abs=0.02), "cut at three standard deviations"
    assert np.mean(abs(z) < 1) == pytest.approx(0.6827 / 0.9973, abs=0.01)
    for name, count in (("delay", 5), ("surface", 3)):
        shares = np.unique(values[name], return_counts=True)[1] / 20000
        assert len(shares) == count
        assert shares == pytest.approx(np.full(count, 1 / count), abs=0.02)


def test_json_round_trip() -> None:
    assert space_from_json(json.loads(json.dumps(SPACE.to_json()))) == SPACE


def test_sample_is_that_of_the_seed() -> None:
    a, b = (SPACE.sample(np.random.default_rng(4), 5) for _ in range(2))
    assert all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(("make", "told"), [
    (lambda: Real("a", 1.0, 1.0), "low < high"), (lambda: Real("a", 2.0, 1.0), "low <= high"),
    (lambda: Real("a", (0.0, 0.0), (1.0,)), "differ in length"), (lambda: Real("a", (), ()), "empty"),
    (lambda: Real("a", 0.0, float("inf")), "finite numbers"), (lambda: Real("a", 0.0, 1.0, "log"), "low > 0"),
    (lambda: Real("a", 0.0, 1.0, "cubic"), "linear, log, normal"),  # type: ignore[arg-type]
    (lambda: Real("a", "x", 1.0), "finite numbers"), (lambda: Integer("a", 0.5, 2), "whole numbers"),  # type: ignore[arg-type]
    (lambda: Choice("a", ("one",)), "two or more"), (lambda: Choice("a", (1, "b")), "two or more"),
    (lambda: Choice("a", (1, 1)), "two or more"), (lambda: Real("a b", 0.0, 1.0), "parameter name"),
    (lambda: ParameterSpace(()), "at least one"),
    (lambda: ParameterSpace((Real("a", 0.0, 1.0), Integer("a", 0, 1))), "repeat"),
])  # fmt: skip
def test_bad_parameters(make: Any, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        make()


@pytest.mark.parametrize(("data", "told"), [
    ([1], "mapping"), ({"a": 3}, "low, high"), ({"a": {"low": 0}}, "low, high"), ({"a": {"choices": 5}}, "a list"),
    ({"a": {"low": 0, "high": 1, "scale": "cubic"}}, "linear, log"), ({"a": {"low": 0, "high": 1, "hihg": 2}}, "low"),
    ({"a": {"low": 1, "high": 2, "scale": "log", "integer": True}}, "whole number is linear"),
    ({"a": {"low": "zero", "high": 1}}, "finite numbers"), ({"a": {"choices": [1], "low": 0, "high": 1}}, "choices"),
])  # fmt: skip
def test_bad_json(data: Any, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        space_from_json(data)


def test_bad_values_name_the_bounds() -> None:
    space = ParameterSpace((Real("a", 0.0, 1.0), Choice("c", ("x", "y")), Integer("n", 0, 4)))
    good = {"a": [0.5], "c": ["x"], "n": [2]}
    space.checked(good)
    for name, value, told in (("a", [1.5], "from 0.0 to 1.0"), ("a", [np.nan], "from 0.0"), ("a", [[0.5]], "shape"),
                              ("c", ["z"], "one of"), ("n", [1.5], "from 0 to 4")):
        with pytest.raises(SpaceError, match=told):
            space.checked({**good, name: value})
    with pytest.raises(SpaceError, match="the space has a, c, n"):
        space.checked({"a": [0.5]})
    with pytest.raises(SpaceError, match="unit cube"):
        space.from_unit(np.full((1, 3), 1.5))


def test_number_that_yaml_read_as_a_text_is_told() -> None:
    with pytest.raises(SpaceError, match="YAML reads 1e-30 as a text: write 1.0e-30"):
        space_from_json({"x": {"low": "1e-30", "high": 1.0}})
    with pytest.raises(SpaceError, match="write 2.5e.3"):
        space_from_json({"x": {"low": [0.0, 0.0], "high": [1.0, "2.5e3"]}})
    with pytest.raises(SpaceError, match="without quotes"):
        space_from_json({"x": {"low": "0.5", "high": 1.0}})
