"""The data of an explanation: the chain of critical sub-formulas, clauses, deadlines, and every part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.stl.analysis.explanation_text import data, words
from temporeal.sim.stl.analysis.valuation import Numbers, Path
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Formula, Predicate
from temporeal.sim.stl.semantics.verdicts import UNDECIDED


@dataclass(frozen=True)
class Step:
    """One step of the chain: a critical sub-formula and its critical sample.

    Args:
        path, text, place: the sub-formula; ``place`` is (start, end) in :attr:`Explanation.formula`.
        negated: it is under an odd number of negations.
        sample, time_s: its critical sample; past the end of the trace in the strong, weak and partial views.
        value: its own robustness there, without the negations above it.
        verdict: of that value.
        how: why the next step is critical, in words.
    """

    path: Path
    text: str
    place: tuple[int, int]
    negated: bool
    sample: int
    time_s: float
    value: float
    verdict: str
    how: str


@dataclass(frozen=True)
class CriticalPredicate:
    """The end of a chain: the critical predicate, or what takes its place.

    Args:
        kind: ``predicate``; ``constant`` (true or false); ``empty`` (a window without a sample, no next or previous
            sample); ``unknown`` (a NaN) or ``end`` (a sample past the end of the trace).
        text, path, sample, time_s: the sub-formula and its critical sample.
        value, verdict: its robustness there, and whether it holds.
        left, right: the values of the predicate's two sides; ``unit`` is theirs and that of ``value``.
        signals: the values of the signals that it reads, by name.
    """

    kind: str
    text: str
    path: Path
    sample: int
    time_s: float
    value: float
    verdict: str
    left: float = nan
    right: float = nan
    unit: str = ""
    signals: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Obligation:
    """A deadline and how it was kept; `explain` defines the slack.

    Args:
        path, text: the sub-formula.
        asked_s: time at which it is evaluated.
        opens_s, due_s: its window, from the start of the trace; ``due_s`` is infinite without a deadline.
        met_s: first time at which it is met, NaN if never.
        slack_s: ``due_s - met_s``; NaN if never met, infinite without a deadline.
        state: ``met``, ``late``, ``never``, or ``open`` while it is undecided.
        covered: the trace reaches to the deadline.
    """

    path: Path
    text: str
    asked_s: float
    opens_s: float
    due_s: float
    met_s: float
    slack_s: float
    state: str
    covered: bool


@dataclass(frozen=True)
class Part:
    """One sub-formula.

    Args:
        path, text, place, formula: the sub-formula.
        robustness: [T] its own at every sample; NaN where it is unknown.
        verdicts: [T] 1 satisfied, -1 violated, 0 undecided.
        matters: first and last sample at which the formula's value at the first sample can depend on it; None: none.
        sample: the sample at which it matters; None: it does not.
        value, verdict: its own there.
        deciding: whether it is on the chain.
    """

    path: Path
    text: str
    place: tuple[int, int]
    formula: Formula
    robustness: Numbers
    verdicts: NDArray[np.int8]
    matters: tuple[int, int] | None
    sample: int | None
    value: float
    verdict: str
    deciding: bool


@dataclass(frozen=True)
class Clause:
    """A top-level conjunct at the first sample: its verdict and its critical predicate."""

    path: Path
    text: str
    robustness: float
    verdict: str
    decider: CriticalPredicate
    slack_s: float
    """Smallest slack of its obligations: -inf if one was never met, NaN if none with a deadline is decided."""


@dataclass(frozen=True)
class Explanation:
    """Why ``formula`` has its verdict at the first sample of a trace of ``samples`` samples every ``dt`` seconds.

    ``robustness`` is NaN if unknowns could change it; it lies between ``lower`` and ``upper`` in any case.
    """

    formula: str
    dt: float
    samples: int
    horizon_s: float
    semantics: Semantics
    partial: bool
    robustness: float
    lower: float
    upper: float
    verdict: str
    chain: tuple[Step, ...]
    decider: CriticalPredicate
    clauses: tuple[Clause, ...]
    obligations: tuple[Obligation, ...]
    parts: tuple[Part, ...]

    @property
    def times(self) -> Numbers:
        """[T] seconds since the first sample."""
        return np.asarray(np.arange(self.samples) * self.dt, dtype=np.float64)

    @property
    def predicates(self) -> tuple[Part, ...]:
        """The parts that are predicates."""
        return tuple(part for part in self.parts if isinstance(part.formula, Predicate))

    @property
    def decided_by(self) -> str | None:
        """Text of the critical predicate, None while the verdict is undecided."""
        return None if self.verdict == UNDECIDED else self.decider.text

    @property
    def at_s(self) -> float | None:
        """Time of the critical sample, seconds since the first sample; None while undecided."""
        return None if self.verdict == UNDECIDED else self.decider.time_s

    def part(self, path: Path) -> Part:
        """The part at ``path``."""
        return next(part for part in self.parts if part.path == path)

    def text(self, width: int = 100) -> str:
        """The explanation in words, lines of at most ``width`` characters where the formula allows it."""
        return "\n".join(words(self, width))

    def to_json(self, series: bool = False) -> dict[str, Any]:
        """JSON data without NaN: unknown is ``null``, infinite is ``"inf"`` or ``"-inf"``.

        ``series`` adds the robustness of every part at every sample.
        """
        return data(self, series)
