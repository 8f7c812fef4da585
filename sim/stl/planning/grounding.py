"""Groundings of an alternative: list, draw and check times for its variables, and the margin of a trace at them.

``times`` are integers [K, n] in samples; column v - 1 is variable v. numpy only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.planning.alternative import Alternative, Keep, Point
from temporeal.sim.stl.planning.decompose import Decomposition
from temporeal.sim.stl.planning.difference_constraints import Ints, enumerated, forest, order, sampled
from temporeal.sim.stl.semantics.robustness import margin
from temporeal.sim.stl.semantics.traces import is_tensor

Floats = NDArray[Any]
LIMIT = 1_000_000
"""Groundings that are listed at most, by default."""


def windows(alternative: Alternative) -> Ints:
    """(earliest, latest) sample [n, 2] of each variable; some grounding attains each."""
    d = alternative.bounds
    return np.stack([-d[1:, 0], d[0, 1:]], axis=1)


def precedence(alternative: Alternative) -> list[int]:
    """The variables 1 to n in an order in which none comes before one that is never later than it."""
    return order(alternative.bounds)


def feasible(alternative: Alternative, times: Any) -> NDArray[np.bool_]:
    """Which rows of ``times`` [K, n] satisfy every constraint: bool [K]."""
    full = _with_start(alternative, times)
    out = np.ones(len(full), dtype=bool)
    out &= ((full >= 0) & (full < alternative.samples)).all(1)
    for gap in alternative.gaps:
        apart = full[:, gap.after] - full[:, gap.before]
        out &= (apart >= gap.lo) & (apart <= gap.hi)
    return out


def groundings(alternative: Alternative, limit: int = LIMIT) -> Ints:
    """Every grounding, ``times`` [K, n]; a FormulaError if there are more than ``limit``."""
    found = enumerated(alternative.bounds, limit)
    if found is None:
        raise FormulaError(f"there are more than {limit} groundings (the limit); draw some with sample()")
    return found[:, 1:]


def sample(alternative: Alternative, count: int, rng: np.random.Generator, sweeps: int = 10) -> Ints:
    """``count`` groundings, ``times`` [K, n], drawn with replacement.

    Exactly uniform where the constraints between variables form a forest (sequences, nested eventuallies, chains), in
    O(n (T + count log T)). Otherwise sequential draws and then ``sweeps`` Gibbs sweeps, in O(sweeps n^2 count): each
    sweep brings them nearer to uniform, but a bias remains, the more so the tighter the variables are coupled.
    """
    tree = forest(alternative.variables, [(g.before, g.after) for g in alternative.gaps if g.before])
    return sampled(alternative.bounds, tree, count, rng, sweeps)[:, 1:]


def draw(
    decomposition: Decomposition, count: int, rng: np.random.Generator, sweeps: int = 10
) -> list[tuple[int, Ints]]:
    """``count`` draws across the alternatives: (index into ``decomposition.alternatives``, times [n]).

    Each alternative is as likely as every other, then times as in :func:`sample`. A FormulaError if there is none.
    """
    alternatives = decomposition.alternatives
    if not alternatives:
        raise FormulaError(f"there is nothing to draw: nothing satisfies {decomposition.formula}")
    chosen = rng.integers(len(alternatives), size=count)
    times = {int(k): iter(sample(alternatives[k], int((chosen == k).sum()), rng, sweeps)) for k in np.unique(chosen)}
    return [(int(k), next(times[int(k)])) for k in chosen]


# ---------------------------------------------------------------- margins of a trace


@dataclass(frozen=True)
class _Lowest:
    """Sparse table: minima of ``margins`` [T, *batch] over any interval in O(1), O(T log T) memory."""

    tables: tuple[Floats, ...]

    def over(self, first: Ints, last: Ints, world: Any = ()) -> Floats:
        """Minimum over [first, last], clipped to the trace, +inf where that is empty. Index arrays of one shape."""
        first, last = np.maximum(first, 0), np.minimum(last, len(self.tables[0]) - 1)
        length = last - first + 1
        some = length > 0
        level = np.log2(np.maximum(length, 1)).astype(np.int64)
        first, last = np.where(some, first, 0), np.where(some, last - (1 << level) + 1, 0)
        out = np.full(np.broadcast(first, *world).shape + self.tables[0].shape[1 + len(world):], inf)
        for k in np.unique(level):
            # the table of intervals of 2^k samples has fewer rows: index it only for intervals of that length
            at = np.nonzero(np.broadcast_to(some & (level == k), out.shape[: level.ndim]))
            worlds = tuple(np.broadcast_to(w, out.shape[: level.ndim])[at] for w in world)
            out[at] = np.minimum(self.tables[k][(first[at], *worlds)], self.tables[k][(last[at], *worlds)])
        return out


def _lowest(margins: Floats) -> _Lowest:
    tables = [margins]
    while 2 << (len(tables) - 1) <= len(margins):
        half = 1 << (len(tables) - 1)
        tables.append(np.minimum(tables[-1][:-half], tables[-1][half:]))
    return _Lowest(tuple(tables))


def _asked(alternative: Alternative) -> list[Keep]:
    """All requirements as invariants."""
    reached = [Keep(r.predicate, Point(r.variable), Point(r.variable)) for r in alternative.reaches]
    return [*reached, *alternative.keeps]


def _tables(keeps: Iterable[Keep], signals: Mapping[str, Any], samples: int) -> dict[Formula, _Lowest]:
    """Sparse tables of each predicate's margins over the first ``samples`` samples of a trace."""
    out: dict[Formula, _Lowest] = {}
    for keep in keeps:
        if keep.predicate not in out:
            used = {name: _numbers(signals[name]) for name in signals_in(keep.predicate) if name in signals}
            margins = np.asarray(margin(keep.predicate, used or signals), dtype=np.float64)
            if len(margins) < samples:
                raise SignalError(f"the trace has {len(margins)} samples; the decomposition needs {samples}")
            out[keep.predicate] = _lowest(margins[:samples])
    return out


def _numbers(signal: Any) -> Floats:
    return np.asarray(signal.detach().cpu() if is_tensor(signal) else signal)


def margins(alternative: Alternative, signals: Mapping[str, Any], times: Any) -> Floats:
    """Smallest margin [K] over all requirements of ``alternative`` at ``times`` [K, n].

    ``signals`` are one trace, [T, *shape], or K of them, [T, K, *shape]: then row k of ``times`` is for trace k. Only
    the first ``alternative.samples`` samples count. +inf without requirements, -inf for times off the trace or against
    the constraints, NaN if a required sample is NaN.
    """
    full = _with_start(alternative, times)
    keeps = _asked(alternative)
    tables = _tables(keeps, signals, alternative.samples)
    out = np.full(len(full), inf)
    for keep in keeps:
        table = tables[keep.predicate]
        batch = table.tables[0].shape[1:]
        if batch not in ((), (len(full),)):
            raise SignalError(f"{len(full)} rows of times need one trace or as many, got traces of shape {list(batch)}")
        world = (np.arange(len(full)),) if batch else ()
        first, last = (full[:, p.variable] + p.offset for p in (keep.start, keep.end))
        out = np.minimum(out, table.over(first, last, world))
    return np.where(feasible(alternative, times), out, -inf)


def _with_start(alternative: Alternative, times: Any) -> Ints:
    """[K, n+1]: a column of zeros, then ``times``."""
    given = np.asarray(times)
    if given.ndim != 2 or given.shape[1] != alternative.variables or given.dtype.kind not in "iu":
        raise FormulaError(f"times are integers [K, {alternative.variables}], got {given.dtype} {list(given.shape)}")
    return np.concatenate([np.zeros((len(given), 1), np.int64), given.astype(np.int64)], axis=1)


# ---------------------------------------------------------------- the best grounding


def best(alternative: Alternative, signals: Mapping[str, Any], limit: int = LIMIT) -> tuple[Floats, Ints]:
    """The grounding with the largest margin for each trace: margins [N] and times [N, n].

    ``signals`` [T, N, *shape], or [T, *shape] of one trace: then a margin [] and times [n]. Torch tensors are taken as
    numbers, without gradients. A NaN at a sample that some grounding requires makes the margin NaN.

    Where constraints and intervals connect the variables in a forest: dynamic programming, O(N T W) for each connected
    pair, W the range of its distance. Otherwise all K groundings are tried, O(K N); more than ``limit`` of them are a
    FormulaError.
    """
    keeps = _asked(alternative)
    tables = _tables(keeps, signals, alternative.samples)
    batch = _batch(tables, signals)
    if not batch:
        tables = {p: _Lowest(tuple(level[:, None] for level in t.tables)) for p, t in tables.items()}
    values, times = _best(alternative, keeps, tables, batch[0] if batch else 1, limit)
    return (values, times) if batch else (values[0], times[0])


def _best(
    alternative: Alternative, keeps: list[Keep], tables: Mapping[Formula, _Lowest], worlds: int, limit: int
) -> tuple[Floats, Ints]:
    pairs = {(g.before, g.after) for g in alternative.gaps if g.before}
    pairs |= {(k.start.variable, k.end.variable) for k in keeps
              if k.start.variable and k.end.variable and k.start.variable != k.end.variable}
    tree = forest(alternative.variables, {(min(pair), max(pair)) for pair in pairs})
    if tree is not None:
        return _by_tree(alternative, tree, keeps, tables, worlds)
    times = groundings(alternative, limit)
    full = _with_start(alternative, times)
    values = np.full((len(times), worlds), inf)
    for keep in keeps:
        first, last = (full[:, p.variable] + p.offset for p in (keep.start, keep.end))
        values = np.minimum(values, tables[keep.predicate].over(first, last))
    chosen = values.argmax(0)
    return values.max(0), times[chosen]


def _batch(tables: Mapping[Formula, _Lowest], signals: Mapping[str, Any]) -> tuple[int, ...]:
    """() for one trace, (N,) for N; from any signal if there are no requirements."""
    found = {table.tables[0].shape[1:] for table in tables.values()}
    if not found:
        if not signals:
            raise SignalError("there are no signals: the number of traces is unknown")
        return np.shape(_numbers(next(iter(signals.values()))))[1:2]
    if len(found) > 1 or len(min(found)) > 1:
        raise SignalError(f"traces are [T, *shape] or [T, N, *shape], all alike; got the dimensions {found} after time")
    return found.pop()


def _by_tree(
    alternative: Alternative, tree: list[tuple[int, int]], keeps: list[Keep], tables: Mapping[Formula, _Lowest],
    worlds: int,
) -> tuple[Floats, Ints]:
    d = alternative.bounds
    first, last = -d[:, 0], d[0]
    # value [window, N] of each time of a variable: its own requirements, and the best of its subtree
    value = {v: np.full((int(last[v] - first[v]) + 1, worlds), inf) for v in range(alternative.variables + 1)}
    choice: dict[int, Ints] = {}

    def asked(v: int, parent: int, own: Ints, above: Ints) -> Floats:
        """Requirements between times ``own`` of v and ``above`` of its parent, [*, N]."""
        at = {v: own, parent: above}
        parts = [tables[k.predicate].over(at[k.start.variable] + k.start.offset, at[k.end.variable] + k.end.offset)
                 for k in keeps if {k.start.variable, k.end.variable} == {v, parent}]
        return reduce(np.minimum, parts, np.full((len(own), worlds), inf))

    def alone(v: int) -> Floats:
        at = np.arange(first[v], last[v] + 1)
        parts = [asked(v, v, at, at), asked(v, 0, at, np.zeros_like(at))] if v else [asked(0, 0, at, at)]
        return reduce(np.minimum, parts, value[v])

    for v, parent in reversed(tree):
        value[v] = alone(v)
        above = np.arange(first[parent], last[parent] + 1)
        most = np.full((len(above), worlds), -inf)
        taken = np.full((len(above), worlds), -1, dtype=np.int64)
        lo, hi = (-int(d[v, parent]), int(d[parent, v])) if parent else (int(first[v]), int(last[v]))
        for apart in range(lo, hi + 1):
            own = above + apart
            inside = (own >= first[v]) & (own <= last[v])
            if not inside.any():
                continue
            here = value[v][(own - first[v])[inside]]
            if parent:
                here = np.minimum(here, asked(v, parent, own[inside], above[inside]))
            better = (here > most[inside]) | np.isnan(here) | (taken[inside] < 0)
            most[inside] = np.where(better, here, most[inside])
            taken[inside] = np.where(better, own[inside][:, None], taken[inside])
        choice[v] = taken
        value[parent] = np.minimum(value[parent], most)
    total = alone(0)[0]
    times = np.zeros((worlds, alternative.variables + 1), dtype=np.int64)
    for v, parent in tree:
        times[:, v] = choice[v][times[:, parent] - first[parent], np.arange(worlds)]
    return total, times[:, 1:]


def value(decomposition: Decomposition, signals: Mapping[str, Any], limit: int = LIMIT) -> Floats:
    """Robustness [N] at the first sample of traces [T, N, *shape]: the best grounding of the best alternative.

    [] for one trace [T, *shape]. NaN where an alternative requires a sample that is NaN; what simplification has
    removed never decides, and is not looked at.
    """
    found = [best(alternative, signals, limit)[0] for alternative in decomposition.alternatives]
    if found:
        return reduce(np.maximum, found)
    names = signals_in(decomposition.formula)
    read = {name: _numbers(signals[name]) for name in names if name in signals}
    shapes = [array.shape[1 : array.ndim - len(names[name].shape)] for name, array in read.items()]
    return np.full(shapes[0] if shapes else _batch({}, signals), -inf)
