"""The result of a falsification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, Literal

import numpy as np

from temporeal.sim.stl.analysis.counterexample import Counterexample, versions
from temporeal.sim.stl.analysis.parameter_space import ParameterSpace, Values
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Formula


@dataclass(frozen=True)
class Failure:
    """A rollout that raised (``message``: the error), or whose robustness is NaN (``message`` says so)."""

    parameters: Values
    seed: int
    message: str


@dataclass(frozen=True)
class Clause:
    """The findings on one conjunct, over all evaluations.

    ``robustness`` is the least value seen, at ``parameters``; ``spread`` the interquartile range of its values among
    the uniform samples (NaN with fewer than 8), so that ``robustness / spread`` compares clauses of different units.
    ``undecided``: it was never violated, but some traces ended before it was decided.
    """

    text: str
    formula: Formula
    robustness: float
    violated: bool
    parameters: Values
    seed: int
    spread: float
    undecided: bool = False


@dataclass(frozen=True)
class Sampled:
    """The evidence of the independent uniform samples alone: ``findings`` of ``samples``.

    A finding is a violation, a failure or a trace that ended undecided.

    If parameters are drawn as the space draws them (`ParameterSpace.sample`), the probability of a finding lies in
    [low, high] with at least ``confidence``. Without findings ``high = 1 - (1 - confidence)^(1/samples)``, about 3 /
    samples at 95 % (the rule of three), else Clopper and Pearson's interval (Biometrika 26, 1934). NaN if the search
    stopped at a finding, as the stop is not independent of it. With ``noise="fixed"`` it holds for that noise only. It
    says nothing about other distributions of the parameters, and nothing comes from the samples that CMA-ES chose: they
    are not independent.
    """

    samples: int
    findings: int
    low: float
    high: float
    confidence: float


Verdict = Literal["violated", "unconfirmed", "undecided", "failed", "none found"]


@dataclass(frozen=True)
class Falsification:
    """The result of a search.

    Args:
        verdict: ``violated``: a trace violates the formula, and did so again when simulated alone. ``unconfirmed``: one
            did in the search, but not again: the rollout is not a function of its arguments. ``undecided``: no
            violation, but a trace ended before the formula was decided; only some judges report that. ``failed``: no
            violation, but rollouts failed. ``none found``: this proves nothing.
        robustness: least robustness at time 0, of the trace ``signals`` [T, *shape] at ``parameters`` and ``seed``,
            simulated alone; ``searched`` is the search's value there (equal if batches do not change the bits).
        clause: text of the clause that decides it: of violated ones the first to be decided, where the judge says when,
            else the least. ``margin`` is its own value, ``at_s`` the time at which it was decided (NaN: unknown).
        clauses: per conjunct.
        history: evaluations made, and the least robustness by then, [B, 2] after each batch.
        evaluations: rollouts judged, of ``budget``; one more was made to confirm.
        method, attack, noise: as given in the options.
        stopped: why it ended: ``violation``, ``budget``, ``patience``, ``failure``, ``converged`` without restarts,
            ``broken`` (nothing but failures of one kind, from the first on), or ``interrupted``.
    """

    formula: Formula
    dt: float
    semantics: Semantics
    space: ParameterSpace
    verdict: Verdict
    robustness: float
    searched: float
    parameters: Values
    seed: int
    signals: Mapping[str, np.ndarray]
    clause: str
    clauses: tuple[Clause, ...]
    failures: tuple[Failure, ...]
    sampled: Sampled | None
    history: np.ndarray
    evaluations: int
    budget: int
    method: str
    attack: str
    noise: str
    stopped: str
    margin: float = float("nan")
    at_s: float = float("nan")

    def statement(self) -> str:
        """What this result shows and does not show, in words."""
        if self.verdict == "violated":
            when = f"; first at {self.at_s:.6g} s," if isfinite(self.at_s) else ","
            own = "" if self.margin == self.robustness or isnan(self.margin) else f", whose margin is {self.margin:.6g}"
            return (f"violated: robustness {self.robustness:.6g} after {self.evaluations} evaluations{when} by "
                    f"{self.clause}{own}")
        found = {
            "undecided": f"no violation found in {self.evaluations} evaluations, but traces that ended before the "
                         "formula was decided",
            "none found": f"no violation found in {self.evaluations} evaluations, which proves nothing",
            "failed": f"no violation found, but {len(self.failures)} of {self.evaluations} rollouts failed"
                      f"{', every one: the search was given up' if self.stopped == 'broken' else ''}: "
                      f"{self.failures[0].message if self.failures else ''}",
            "unconfirmed": f"a robustness of {self.searched:.6g} was seen, but {self.robustness:.6g} when simulated "
                           "again alone: the rollout does not repeat itself",
        }[self.verdict]
        least = "" if np.isnan(self.robustness) else f"; least robustness {self.robustness:.6g}, by {self.clause}"
        s = self.sampled
        bound = "" if s is None or s.findings or not s.samples else (
            f"; of {s.samples} independent samples none was one: with parameters drawn as this space draws them"
            f"{' and this noise' if self.noise == 'fixed' else ''}, the probability of one is at most {s.high:.2g} at "
            f"{s.confidence:.0%} confidence")
        return f"{'interrupted: ' if self.stopped == 'interrupted' else ''}{found}{least}{bound}"

    def counterexample(self, about: Mapping[str, Any] | None = None, revision: str = "") -> Counterexample:
        """The trace that was found, to save and to replay. ``about`` names the rollout, as JSON data."""
        if self.verdict == "failed" and self.failures:
            first = self.failures[0]
            return Counterexample(self.formula, self.dt, self.semantics, first.parameters, first.seed, {}, float("nan"),
                                  True, first.message, self.space, dict(about or {}), versions(), revision)
        return Counterexample(self.formula, self.dt, self.semantics, self.parameters, self.seed, self.signals,
                              self.robustness, self.verdict == "violated", "", self.space, dict(about or {}),
                              versions(), revision)
