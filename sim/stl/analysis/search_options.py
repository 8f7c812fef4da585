"""How a falsification searches: method, budget, what it attacks, and when it ends."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

METHODS = ("cma", "random", "sobol", "lhs")
ATTACKS = ("formula", "scaled", "clauses")
RESTARTS = ("ipop", "bipop", "none")
NOISES = ("fixed", "fresh")
ON_FAILURE = ("record", "stop", "raise")
SEEDS = 2**63
ENOUGH = 8
"""Values from which on an interquartile range is meaningful."""
PACKAGES = {"cma": ("cma", "cma"), "sobol": ("scipy.stats", "scipy"), "lhs": ("scipy.stats", "scipy")}


@dataclass(frozen=True)
class SearchOptions:
    """Options of `falsify.falsify`.

    Args:
        method: ``cma``; ``random`` (independent, uniform); ``sobol`` or ``lhs`` (scipy's scrambled Sobol points and
            Latin hypercube: more even, but not independent, so that they give no bound).
        budget: rollouts judged at most.
        seed: of the search, and of the rollouts where ``noise`` is ``fixed``.
        batch: candidates per call of the rollout at most. The population of CMA-ES is 4 + 3 ln(dim), or its share of
            ``batch`` if that is larger, so that a simulator of many worlds is fully used. None: a population per call.
        attack: ``formula``, ``scaled`` or ``clauses``; see `falsify`.
        explore: share of the budget that ``cma`` spends on uniform samples before it starts, at the best of them.
        restarts: ``ipop``, ``bipop``, or ``none``: the search ends where CMA-ES has converged.
        stop_at_violation: stop at the first one; False spends the budget and looks for the worst.
        on_failure: ``record`` goes on, ``stop`` ends the search, ``raise`` raises the rollout's error.
        patience: end after so many evaluations without a smaller value (of any clause where each is attacked).
        noise: ``fixed``: every rollout gets the seed ``seed``, and differences are the parameters' alone. ``fresh``:
            each gets its own, and the search is over noise too.
        confidence: of the bound on the probability of a finding.
    """

    method: str = "cma"
    budget: int = 1000
    seed: int = 0
    batch: int | None = None
    attack: str = "formula"
    explore: float = 0.1
    restarts: str = "ipop"
    stop_at_violation: bool = True
    on_failure: str = "record"
    patience: int | None = None
    noise: str = "fixed"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, legal in (("method", METHODS), ("attack", ATTACKS), ("noise", NOISES), ("restarts", RESTARTS),
                            ("on_failure", ON_FAILURE)):
            if getattr(self, name) not in legal:
                raise ValueError(f"{name}={getattr(self, name)!r}; legal: {', '.join(legal)}")
        for name in ("budget", "batch", "patience"):
            number = getattr(self, name)
            if number is None and name != "budget":
                continue
            if not _is_whole(number) or number < 1:
                raise ValueError(f"{name} is at least 1, and a whole number, got {number!r}")
        if not _is_whole(self.seed) or not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is a whole number from 0 to 2^63 - 1, got {self.seed!r}")
        if not 0 <= self.explore <= 1 or not 0 < self.confidence < 1:
            raise ValueError(
                f"explore lies in [0, 1] and confidence in (0, 1), got {self.explore} and {self.confidence}")
        if self.method == "cma" and self.attack == "scaled" and self.uniform < ENOUGH:
            raise ValueError(f"attack='scaled' takes its scales from uniform samples: explore * budget is at least "
                             f"{ENOUGH}, got {self.uniform}")

    @property
    def uniform(self) -> int:
        """Rollouts at independent, uniform parameters, before any others."""
        return self.budget if self.method == "random" else round(self.explore * self.budget) * (self.method == "cma")


def check_method(method: str) -> None:
    """Raise a :class:`ModuleNotFoundError` that says what to install if the package of ``method`` is missing."""
    if method not in PACKAGES:
        return
    module, package = PACKAGES[method]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"method {method!r} needs the package {package}: pip install {package}, or method "
                                  "'random' (--method random), which needs none", name=package) from error


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
