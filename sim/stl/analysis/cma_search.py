"""CMA-ES (package ``cma``) over the unit cube of a parameter space, with restarts."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, log
from typing import Any

import numpy as np

from temporeal.sim.stl.analysis.parameter_space import ParameterSpace

SIGMA = 0.3
"""Initial standard deviation in the unit cube: Hansen's tutorial advises 0.2 to 0.5 of the interval."""
RESOLUTION = 1e-5
"""Share of an interval at which a search has converged; the library's 1e-11 is for exact minima."""


def default_population(dim: int) -> int:
    """4 + 3 ln(dim), the library's own."""
    return int(4 + 3 * log(dim))


class CmaSearch:
    """An ask-and-tell search, restarted where it has converged.

    The library restarts inside its ``fmin``, which calls the objective; here populations of several searches share a
    batch. The schedules are the same. Coordinates with n values are stretched to [-0.5, n - 0.5], where the library
    rounds them. A space of one coordinate gets a second one without effect, as the library needs two.
    """

    def __init__(
        self, space: ParameterSpace, population: int, restarts: str, start: np.ndarray | None,
        state: np.random.RandomState,
    ) -> None:
        counts = np.append(space.counts, 0) if space.dim == 1 else space.counts
        self.counts, self.dim, self.restarts, self.state = counts, space.dim, restarts, state
        self.width, self.shift = np.maximum(counts, 1).astype(float), np.where(counts > 0, 0.5, 0.0)
        self.first = self.size = population
        self.large, self.spent = 0, {"small": 0, "large": 0}  # restarts with larger populations, evaluations of each
        self.kind, self.done = "small", False
        self._begin(np.full(len(counts), 0.5) if start is None else np.resize(start, len(counts)), 1.0, None)

    def _begin(self, start: np.ndarray, sigma: float, iterations: float | None) -> None:
        cma = importlib.import_module("cma")
        options: dict[str, Any] = {
            "bounds": [list(-self.shift), list(self.width - self.shift)], "popsize": self.size, "seed": np.nan,
            "CMA_stds": list(self.width), "integer_variables": [int(i) for i in np.flatnonzero(self.counts)],
            "tolx": RESOLUTION, "verbose": -10, "verb_log": 0, "verb_disp": 0}
        if iterations is not None:
            options["maxiter"] = iterations
        with self._random():
            self.es = cma.CMAEvolutionStrategy(start * self.width - self.shift, SIGMA * sigma, options)

    @property
    def evaluations(self) -> int:
        """Evaluations told so far."""
        return sum(self.spent.values())

    def ask(self) -> np.ndarray:
        """The next population, [size, dim] in the unit cube."""
        with self._random():
            self.asked = self.es.ask()
        return np.asarray(np.clip((np.array(self.asked) + self.shift) / self.width, 0, 1)[:, : self.dim])

    def tell(self, values: np.ndarray) -> None:
        """Take the values [size] of the population."""
        with self._random():
            self.es.tell(self.asked, list(_ranked(values)))
            stopped = bool(self.es.stop())
        self.spent[self.kind] += self.size
        if stopped:
            self._restart()

    def _restart(self) -> None:
        self.done = self.restarts == "none"
        if self.done:
            return
        sigma, iterations = 1.0, None
        small = self.restarts == "bipop" and self.large > 0 and self.spent["small"] < self.spent["large"]
        self.kind = "small" if small else "large"
        if small:
            sigma = 0.01 ** self.state.uniform()
            self.size = int(self.first * 2.0 ** (self.large * self.state.uniform() ** 2))
            iterations = max(1.0, 0.5 * self.spent["large"] / self.size)
        else:
            self.large += 1
            self.size = self.first * 2**self.large
        self._begin(self.state.uniform(size=len(self.counts)), sigma, iterations)

    @contextmanager
    def _random(self) -> Iterator[None]:
        """Inside, numpy's global generator, which the library uses, is this search's; afterwards the caller's again."""
        theirs = np.random.get_state()  # noqa: NPY002 (the library has no other)
        np.random.set_state(self.state.get_state())  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self.state.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(theirs)  # noqa: NPY002


def _ranked(values: np.ndarray) -> np.ndarray:
    """Finite numbers in the order of ``values``: -inf, then the finite ones unchanged, +inf, and NaN last."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    step = 1.0 + high - low
    out = np.where(np.isnan(values), high + 2 * step, values)
    return np.asarray(np.clip(out, low - step, np.where(np.isnan(values), inf, high + step)))
