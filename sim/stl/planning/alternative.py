"""The data of a decomposition: time variables, what to reach and keep at them, and the tree of choices. numpy only.

The rules that make it of a formula are in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import is_temporal
from temporeal.sim.stl.language.serialization import from_json as formula_of
from temporeal.sim.stl.language.serialization import to_json as formula_json
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED, Ints, closure


@dataclass(frozen=True)
class Point:
    """``offset`` samples after time ``variable`` (1 to n; 0 is the start of the trace)."""

    variable: int
    offset: int = 0


def later(point: Point, by: int) -> Point:
    """``by`` samples after ``point``."""
    return Point(point.variable, point.offset + by)


@dataclass(frozen=True)
class Reach:
    """``predicate``, a formula without temporal operators, at time ``variable``."""

    predicate: Formula
    variable: int


@dataclass(frozen=True)
class Keep:
    """``predicate`` at every sample from ``start`` to ``end`` (both included) that the trace has.

    Nothing where ``end`` is before ``start``.
    """

    predicate: Formula
    start: Point
    end: Point


@dataclass(frozen=True)
class Gap:
    """``lo <= tau_after - tau_before <= hi`` in samples; ``before`` 0 is the start of the trace."""

    before: int
    after: int
    lo: int
    hi: int


def bounds(variables: int, gaps: Iterable[Gap], samples: int) -> Ints:
    """[n+1, n+1]: the most samples by which variable j can be later than variable i, all within the trace."""
    gaps, numbers = list(gaps), range(1, variables + 1)
    found = closure(variables, [
        *((g.before, g.after, g.hi) for g in gaps), *((g.after, g.before, -g.lo) for g in gaps),
        *((0, v, samples - 1) for v in numbers), *((v, 0, 0) for v in numbers)])
    if found is None:
        raise FormulaError(f"no times satisfy the constraints {gaps}")
    return found


@dataclass(frozen=True)
class Alternative:
    """One way to satisfy the formula.

    Args:
        variables: number of time variables; they are numbered 1 to ``variables``. No variable is always before one with
            a lower number.
        reaches: by variable. A variable without one only bounds the interval of a ``Keep``.
        keeps: invariants.
        gaps: the fewest constraints that imply all others, each with its tightest bounds.
        samples: length of the trace; times lie in [0, samples - 1].
        dt: sample period, s.
    """

    variables: int
    reaches: tuple[Reach, ...]
    keeps: tuple[Keep, ...]
    gaps: tuple[Gap, ...]
    samples: int
    dt: float

    @cached_property
    def bounds(self) -> Ints:
        """[n+1, n+1]: ``bounds[i, j]`` is the most samples by which variable j can be later than variable i."""
        return bounds(self.variables, self.gaps, self.samples)

    def __str__(self) -> str:
        lines = [self._variable_text(v) for v in range(1, self.variables + 1)]
        lines += [f"keep {k.predicate} {self._interval_text(k.start, k.end)}" for k in self.keeps]
        return "\n".join(lines) or "nothing to do"

    def _variable_text(self, v: int) -> str:
        windows = [self._window_text(g) for g in self.gaps if g.after == v]
        reached = [str(r.predicate) for r in self.reaches if r.variable == v]
        if not windows:
            windows = [self._window_text(Gap(0, v, -int(self.bounds[v, 0]), int(self.bounds[0, v])))]
        within = " and ".join(windows)
        return f"t{v} in {within}" + (f": reach {' and '.join(reached)}" if reached else "")

    def _window_text(self, gap: Gap) -> str:
        return f"[{self._point_text(Point(gap.before, gap.lo))}, {self._point_text(Point(gap.before, gap.hi))}]"

    def _interval_text(self, start: Point, end: Point) -> str:
        if start == end:
            return f"at {self._point_text(start)}"
        first = f"(t{start.variable}" if start.variable and start.offset == 1 else f"[{self._point_text(start)}"
        last = f"t{end.variable})" if end.variable and end.offset == -1 else f"{self._point_text(end)}]"
        return f"on {first}, {last}"

    def _point_text(self, point: Point) -> str:
        if not point.variable:
            return self._seconds(point.offset)
        if not point.offset:
            return f"t{point.variable}"
        return f"t{point.variable} {'+' if point.offset > 0 else '-'} {self._seconds(abs(point.offset))}"

    def _seconds(self, samples: int) -> str:
        return number_text(seconds(samples, self.dt))


def to_json(alternative: Alternative) -> dict[str, Any]:
    """The alternative as JSON data: its fields, points as [variable, offset], predicates by `serialization.to_json`."""
    def point(p: Point) -> list[int]:
        return [p.variable, p.offset]

    a = alternative
    return {
        "variables": a.variables,
        "reaches": [{"predicate": formula_json(r.predicate), "variable": r.variable} for r in a.reaches],
        "keeps": [{"predicate": formula_json(k.predicate), "start": point(k.start), "end": point(k.end)}
                  for k in a.keeps],
        "gaps": [[int(x) for x in (g.before, g.after, g.lo, g.hi)] for g in a.gaps],
        "samples": a.samples, "dt": a.dt}


def from_json(data: Any) -> Alternative:
    """The alternative that :func:`to_json` wrote; a FormulaError for anything else."""
    try:
        found = Alternative(
            _whole(data["variables"], 0),
            tuple(Reach(_state(r["predicate"]), _whole(r["variable"], 1)) for r in data["reaches"]),
            tuple(Keep(_state(k["predicate"]), _point(k["start"]), _point(k["end"])) for k in data["keeps"]),
            tuple(Gap(*(_whole(x) for x in (before, after, lo, hi))) for before, after, lo, hi in data["gaps"]),
            _whole(data["samples"], 1), float(data["dt"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FormulaError(f"not the JSON of an alternative: {error!r}") from None
    used = [r.variable for r in found.reaches] + [v for g in found.gaps for v in (g.before, g.after)]
    used += [p.variable for k in found.keeps for p in (k.start, k.end)]
    if used and not 0 <= min(used) <= max(used) <= found.variables:
        raise FormulaError(
            f"not the JSON of an alternative: there are variables 0 to {found.variables}, got {sorted(set(used))}")
    return found


def _state(data: Any) -> Formula:
    found = formula_of(data)
    if not isinstance(found, Formula) or is_temporal(found):
        raise FormulaError(f"a formula without temporal operators is expected, got {found}")
    return found


def _point(data: Any) -> Point:
    variable, offset = data
    return Point(_whole(variable, 0), _whole(offset))


def _whole(data: Any, least: int = -UNBOUNDED) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or data < least:
        raise FormulaError(f"a whole number of at least {least} is expected, got {data!r}")
    return data


def seconds(samples: int, dt: float) -> float:
    """``samples`` in seconds, rounded to 1e-9 s: 3 samples of 0.1 s are 0.3 s."""
    return round(samples * dt, 9)


@dataclass(frozen=True)
class All:
    """The conjunction of ``constraints`` and ``choices``."""

    constraints: tuple[Gap | Keep, ...] = ()
    choices: tuple[Choice, ...] = ()

    @cached_property
    def count(self) -> int:
        """Number of combinations of branches."""
        out = 1
        for choice in self.choices:
            out *= choice.count
        return out


@dataclass(frozen=True)
class Choice:
    """The disjunction of ``branches``; ``origin`` is the user's sub-formula that leaves the choice."""

    branches: tuple[All, ...]
    origin: Formula | None = field(default=None, compare=False, repr=False)

    @cached_property
    def count(self) -> int:
        """Number of combinations of branches."""
        return sum(branch.count for branch in self.branches)
