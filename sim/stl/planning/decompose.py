"""A formula as alternatives of timed subgoals to reach and invariants to keep. numpy only.

An :class:`~temporeal.sim.stl.planning.alternative.Alternative` has integer *time variables* (samples), predicates to
reach at one of them or to keep between two, and difference constraints between them. A *grounding* picks a sample for
each variable (`grounding` lists, draws and evaluates them). The robustness of the formula at time 0 *is* the largest
value, over all alternatives and their groundings, of the smallest margin over everything they require:
docs/explanation/stl-decomposition.md has the rules and why each is exact. A formula without such a form raises
:class:`~temporeal.sim.stl.rewriting.normal.NotDecomposable`, which names the sub-formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isinf, log10

import numpy as np

from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import children, horizon
from temporeal.sim.stl.language.sampling import steps, window_steps
from temporeal.sim.stl.language.temporal import WindowedBinary, WindowedUnary
from temporeal.sim.stl.planning.alternative import All, Alternative, Choice, Gap, Keep, Point, Reach
from temporeal.sim.stl.planning.rules import Rules
from temporeal.sim.stl.planning.simplify import System, finished, simplified, undominated
from temporeal.sim.stl.rewriting.normal import NotDecomposable, positive
from temporeal.sim.stl.rewriting.satisfiability import mutually_exclusive, without_unsatisfiable

__all__ = ["Alternative", "Decomposition", "Gap", "Keep", "NotDecomposable", "Point", "Reach", "decompose"]

LIMIT = 1000
"""Alternatives that are listed at most, and time variables that a formula may have, by default."""


LISTED = 1_000_000
"""Combinations up to which an error suggests to iterate over them."""


@dataclass(frozen=True)
class Decomposition:
    """All alternatives of ``formula``: iterate to make them one by one, or take the tuple ``alternatives``.

    ``count`` is the number of combinations of branches, known without making any. There may be fewer alternatives, as
    those that no times satisfy are skipped. Times lie in the first ``samples`` samples of a trace. ``unsatisfiable``:
    the states that a strict decomposition leaves out.
    """

    formula: Formula
    dt: float
    samples: int
    tree: All = field(repr=False)
    variables: int
    limit: int = LIMIT
    strict: bool = False
    unsatisfiable: tuple[Formula, ...] = ()

    @property
    def count(self) -> int:
        """Number of combinations of branches."""
        return self.tree.count

    def combination(self, number: int) -> Alternative | None:
        """Combination ``number`` of ``count``, simplified; None if no times satisfy its constraints."""
        if not 0 <= number < self.count:
            raise FormulaError(
                f"there is no combination {_number(number)}: there are {_number(self.count)}, counted from 0")
        system = self._simplified(number)
        return None if system is None else finished(system, self.samples, self.dt)

    @cached_property
    def clashes(self) -> Mapping[Formula, set[Formula]]:
        """In a strict decomposition, for each required state those that exclude it."""
        return mutually_exclusive(_states(self.tree)) if self.strict else {}

    def _simplified(self, number: int) -> System | None:
        return simplified(_picked(self.tree, number), self.variables, self.samples, self.clashes)

    def __iter__(self) -> Iterator[Alternative]:
        for number in range(self.count):
            found = self.combination(number)
            if found is not None:
                yield found

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every alternative, without those that require all that another one does, or more."""
        if self.count > self.limit:
            raise FormulaError(self._too_many())
        made = map(self._simplified, range(self.count))
        systems = undominated([system for system in made if system is not None])
        return tuple(dict.fromkeys(finished(system, self.samples, self.dt) for system in systems))

    def _too_many(self) -> str:
        choice = _widest(self.tree)
        named = "" if choice.origin is None else f": {to_text(choice.origin)} alone leaves {_number(choice.count)}"
        many = sum(c.count > 1 for c in self.tree.choices)
        apart = "" if many < 2 else f"; {many} independent choices multiply"
        advice = ("iterate over the decomposition to make them one by one, or raise the limit"
                  if self.count <= LISTED else "combination(k) makes a single one")
        return (f"{to_text(self.formula)} has {_number(self.count)} combinations of branches, more than the limit of "
                f"{self.limit}{named}{apart}; {advice}")

    def single(self) -> Alternative:
        """The alternative, where there is exactly one."""
        if self.count <= self.limit and len(self.alternatives) == 1:
            return self.alternatives[0]
        found = len(self.alternatives) if self.count <= self.limit else self.count
        raise NotDecomposable(f"it has {_number(found)} alternatives; exactly one is needed here", self.formula)

    def __str__(self) -> str:
        return "\nor\n".join(map(str, self.alternatives)) or "nothing satisfies it"


def decompose(
    formula: Formula, dt: float, samples: int | None = None, limit: int = LIMIT, semantics: Semantics = RTAMT,
    strict: bool = False,
) -> Decomposition:
    """The decomposition of ``formula`` at time 0, on samples every ``dt`` seconds; windows are multiples of ``dt``.

    Args:
        formula: any formula; a ``NotDecomposable`` names a sub-formula without finite decomposition.
        samples: length of the traces, at whose last sample windows are clipped; needed for unbounded windows. By
            default the formula's horizon: the decomposition is then exact for every trace that is at least so long.
        limit: most alternatives that are listed, and most time variables.
        semantics: ``until`` is followed. An ``end`` other than ``clip`` makes a difference only with ``samples``, where
            it is refused.
        strict: only alternatives whose requirements can hold by more than 0: without states that the form shows to be
            unsatisfiable, and without alternatives that require two mutually exclusive states at one sample
            (`rewriting.satisfiability`). The best value is still the robustness where that is positive; elsewhere it is
            not positive.
    """
    _check_windows(formula, dt)
    origins: dict[Formula, Formula] = {}
    wanted = positive(formula, semantics.until, origins)
    if samples is None:
        if isinf(horizon(wanted, dt)):
            raise NotDecomposable("its window has no end; give it one in seconds, or the samples of a trace",
                                  _endless(wanted, origins, formula))
        samples = steps(horizon(wanted, dt), dt) + 1
    elif not isinstance(samples, (int, np.integer)) or isinstance(samples, bool) or samples < 1:
        raise FormulaError(f"a trace has a whole number of samples, at least 1 sample, got samples = {samples!r}")
    elif semantics.end != "clip":
        raise FormulaError(f"with samples the windows are clipped: semantics end must be 'clip', got {semantics.end!r}")
    samples = int(samples)
    wanted, never = without_unsatisfiable(wanted, origins) if strict else (wanted, ())
    rules = Rules(dt, samples - 1, limit, origins)
    tree = rules.at(wanted, Point(0))
    return Decomposition(formula, dt, samples, tree, len(rules.lowest) - 1, limit, strict, never)


def _check_windows(formula: Formula, dt: float) -> None:
    """Raise a :class:`FormulaError` if a window is not a whole number of samples."""
    if isinstance(formula, (WindowedUnary, WindowedBinary)):
        window_steps(formula.window, dt)
    for child in children(formula):
        _check_windows(child, dt)


def _endless(formula: Formula, origins: Mapping[Formula, Formula], outer: Formula) -> Formula:
    """The innermost of the user's sub-formulas around one with an unbounded window into the future."""
    outer = origins.get(formula, outer)
    for child in children(formula):
        if isinf(horizon(child, 1.0)):
            return _endless(child, origins, outer)
    return outer


def _widest(tree: All) -> Choice:
    """The choice with the most combinations, or one inside it with at least half of them."""
    widest = max(tree.choices, key=lambda c: c.count)
    branch = max(widest.branches, key=lambda b: b.count)
    inner = _widest(branch) if branch.choices else None
    return inner if inner and 2 * inner.count >= widest.count else widest


def _number(count: int) -> str:
    """``count`` with up to 15 digits, else its order of magnitude."""
    return str(count) if abs(count) < 10**15 else f"about {'-' if count < 0 else ''}10^{_log10(abs(count)):.0f}"


def _log10(count: int) -> float:
    """Logarithm of a positive whole number of any length: beyond 1e308 it has no float."""
    shift = max(count.bit_length() - 64, 0)
    return log10(count >> shift) + shift * log10(2)


def _states(tree: All) -> Iterator[Formula]:
    """The states that ``tree`` requires somewhere."""
    yield from (c.predicate for c in tree.constraints if isinstance(c, Keep))
    for choice in tree.choices:
        for branch in choice.branches:
            yield from _states(branch)


def _picked(tree: All, number: int) -> list[Gap | Keep]:
    """The constraints of combination ``number``."""
    out = list(tree.constraints)
    for choice in tree.choices:
        number, own = divmod(number, choice.count)
        for branch in choice.branches:
            if own < branch.count:
                out += _picked(branch, own)
                break
            own -= branch.count
    return out
