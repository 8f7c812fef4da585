"""Functions written as arithmetic are as near to the true values as they say, over all of float32."""

import numpy as np
import pytest
import torch

from temporeal.sim.compiler.elementary import EXP, TANH
from temporeal.sim.compiler.vectorize import Kernel

ULPS = 1.5
FUNCTIONS = {"exp": (torch.exp, np.exp), "tanh": (torch.tanh, np.tanh)}
STEP = 1009  # a prime: every 1009th float32 there is


def computed(name, x):
    function = FUNCTIONS[name][0]
    kernel = Kernel(lambda r: {"y": function(r["x"])}, {}, {"x": (), "y": ()}, ("x",))
    rows = {"x": torch.from_numpy(x), "y": torch.empty(len(x))}
    kernel(None, rows)
    return rows["y"].numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_thousandth_number_is_within_one_and_a_half_units_in_the_last_place(name):
    x = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, *(np.linspace(*ends, 2**20, dtype=np.float32) for ends in ((-12, 12), (-110, 95)))])
    x = x[np.isfinite(x)]
    with np.errstate(over="ignore", under="ignore"):
        true = FUNCTIONS[name][1](x.astype(np.float64))
        nearest = true.astype(np.float32)
    found = computed(name, x)
    whole = np.isfinite(nearest)
    errors = np.abs(found[whole] - true[whole]) / np.spacing(np.abs(nearest[whole])).astype(np.float64)
    assert errors.max() <= ULPS, f"{errors.max()} at {x[whole][errors.argmax()]!r}"
    assert np.array_equal(found[~whole], nearest[~whole])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers_go_where_torch_lets_them_go(name):
    tiny = np.float32(1e-45)
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 88.72284, -103.97208, 1e30, -1e30, tiny, -tiny, 1, -1],
                 dtype=np.float32)
    found, wanted = computed(name, x), FUNCTIONS[name][0](torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=3e-7, atol=2e-45)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(wanted[:2]))


def test_constants_are_those_of_the_library():
    kernel = Kernel(lambda r: {"y": r["x"] + torch.tanh(torch.tensor([0.5])) * torch.exp(torch.tensor([1.5]))}, {},
                    {"x": (1,), "y": (1,)}, ("x",))
    rows = {"x": torch.zeros(3, 1), "y": torch.empty(3, 1)}
    kernel(None, rows)
    torch.testing.assert_close(rows["y"], torch.full((3, 1), float(np.tanh(0.5) * np.exp(1.5))))


def minimax(function, weight, low, high, size):
    """The polynomial of ``size`` coefficients whose largest weighted distance from ``function`` is least, and that
    distance as a function of coefficients: Lawson's iteratively reweighted least squares (his thesis, UCLA 1961)."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(4001) + 0.5) / 4001)
    powers, wanted, scale = np.vander(x, size, increasing=True), function(x), weight(x)
    share = np.full(len(x), 1 / len(x))
    for _ in range(400):
        root = np.sqrt(share) * scale
        found = np.linalg.lstsq(powers * root[:, None], wanted * root, rcond=None)[0]
        share *= np.abs((powers @ found - wanted) * scale)
        share /= share.sum()
    return found, lambda coefficients: np.abs((powers @ np.array(coefficients) - wanted) * scale).max()


FITTED = {  # what is approximated, of which argument, and what an error of it is worth relative to the result
    "exp": (EXP, lambda r: (np.exp(r) - 1 - r) / r**2, lambda r: r**2 / np.exp(r), -np.log(2) / 2, np.log(2) / 2),
    "tanh": (TANH, lambda s: (np.tanh(s**0.5) - s**0.5) / s**1.5, lambda s: s**1.5 / np.tanh(s**0.5), 1e-6, 0.625**2),
}


@pytest.mark.parametrize("name", FITTED)
def test_polynomials_are_those_of_the_least_largest_relative_error(name):
    coefficients, function, weight, low, high = FITTED[name]
    found, error = minimax(function, weight, low, high, len(coefficients))
    np.testing.assert_allclose(coefficients, found, rtol=3e-5)
    assert error(coefficients) < 2**-24 / 5 and error(found) < error(coefficients)  # rounded to float32 they are worse
