"""The formulas and signals that ``temporeal bench stl`` measures."""

from __future__ import annotations

import numpy as np

from temporeal.sim.stl.language.constructors import always, eventually, once, until
from temporeal.sim.stl.language.propositional import And, Formula, Implies, Signal

WORLDS, DT, SEED = 4096, 1.0, 0
LENGTHS = (100, 200, 500, 1000)
COMPARED = (100, 1000)  # lengths at which the peers are measured
WINDOW = 200  # samples, online

X, Y = Signal("x"), Signal("y")
Signals = dict[str, np.ndarray]
"""By name, values [T, N] or [T]."""


def formulas(length: int) -> dict[str, Formula]:
    """The measured formulas over traces of ``length`` samples."""
    x, y = X > 0.0, Y > 0.0
    parts = {"G": always(0, length - 1, x), "FG": eventually(0, length // 2, always(0, length // 4, y)),
             "Uw": until(x, 0, 50, y)}  # fmt: skip
    return {**parts, "ALL": And(tuple(parts.values()))}


def monitored(window: int = WINDOW) -> Formula:
    """The conjunction with windows of ``window`` samples."""
    x, y = X > 0.0, Y > 0.0
    return And((always(0, window, x), eventually(0, window // 2, always(0, window // 2, y)), until(x, 0, window, y)))


def nested_past(window: int = WINDOW) -> Formula:
    """A window of the past in one of the future, the dearest for bounds: ``G[0,5W] (x > 0 -> O[0,W] y > 0)``."""
    return always(0, 5 * window, Implies(X > 0.0, once(0, window, Y > 0.0)))


def mixed_horizons(window: int = WINDOW) -> Formula:
    """Conjuncts with different horizons."""
    return And((always(0, window, X > 0.0), eventually(0, window // 2, Y > 0.0)))


def random_signals(length: int, worlds: int = WORLDS) -> Signals:
    """Standard normal x and y [T, N], float32."""
    generator = np.random.default_rng(SEED + length)
    return {name: generator.standard_normal((length, worlds), np.float32) for name in ("x", "y")}


def walks(length: int) -> Signals:
    """Eight random walks x and y [T, 8], in which now one part of a formula decides and now another."""
    return {name: np.cumsum(values, axis=0) * np.float32(0.2) + np.float32(shift)
            for (name, values), shift in zip(random_signals(length, 8).items(), (0.5, -0.5))}


def of_worlds(data: Signals, count: int) -> list[dict[str, list[float]]]:
    """The first ``count`` worlds, each with its signals [T]."""
    return [{name: values[:, n].tolist() for name, values in data.items()} for n in range(count)]


def as_lists(data: Signals, count: int) -> dict[str, list[list[float]]]:
    """The signals [T, N] of the first ``count`` worlds."""
    return {name: values[:, :count].tolist() for name, values in data.items()}


def of_first_world(data: Signals, count: int) -> dict[str, list[float]]:
    """The first ``count`` samples [T] of the first world."""
    return {name: values[:count, 0].tolist() for name, values in data.items()}


def equal(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    """``AssertionError`` where values differ: nothing is timed that is not the same."""
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=f"the values differ: {what}")
