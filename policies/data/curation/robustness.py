"""A formula on the episodes of a dataset, all at once: robustness and verdict of each episode and clause, from when a
verdict is certain, and weights by robustness.

The value is that at the episode's first sample, by :mod:`temporeal.sim.stl.semantics.robustness`. Episodes of about
equal length are evaluated together, padded to the longest of them. E episodes, C clauses, T samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.episodes.layout import is_picture
from temporeal.robots.signals import Schema, SignalSpec
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import clauses, horizon, signals_in
from temporeal.sim.stl.language.values import numpy_arrays, predicate_margin, predicate_truth
from temporeal.sim.stl.monitoring.batch_monitor import BatchMonitor
from temporeal.sim.stl.rewriting.lower import Leaf, lower
from temporeal.sim.stl.samples import missing
from temporeal.sim.stl.semantics.robustness import evaluate_leaves, robustness

Numbers = NDArray[np.float64]
TIME = SignalSpec("mission_time", (), "s", dtype="float64")
"""The time since the first sample: every evaluator of a formula supplies it."""
MOST_NUMBERS = 4_000_000
"""Numbers of a signal that are padded and evaluated together."""
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Table:
    """Episodes as rows of columns.

    Args:
        source: for messages.
        signals: what :attr:`column` gives.
        column: the values [S, *shape] of a signal in all samples.
        starts: [E + 1] int64: the samples of episode e are ``starts[e]`` to ``starts[e + 1]``.
        dt: seconds between samples.
    """

    source: str
    signals: Schema
    column: Callable[[str], np.ndarray]
    starts: NDArray[np.int64]
    dt: float

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[E] samples."""
        return np.diff(self.starts)


TRUE = "true_"
"""Before the name of a signal's true value, in sets of simulations whose sensors are not exact."""


def table_of(data: Dataset, truth: bool = False) -> Table:
    """The numbers of a dataset: its signals but for pictures; with ``truth`` the true ones, where it has both."""
    signals = {name: spec for name, spec in data.interface.signals.items() if not is_picture(spec)}

    def column(name: str) -> np.ndarray:
        return data.column(f"{TRUE}{name}" if truth and f"{TRUE}{name}" in signals else name)

    return Table(str(data.folder), signals, column, data.starts, 1.0 / data.interface.rate_hz)


def table_of_episodes(episodes: Sequence[Episode], interface: Interface, source: str) -> Table:
    """The numbers of episodes in memory, which have their signals by name."""
    signals = {name: spec for name, spec in interface.signals.items() if not is_picture(spec)}
    lengths = [episode.samples for episode in episodes]
    columns: dict[str, np.ndarray] = {}

    def column(name: str) -> np.ndarray:
        if name not in columns:
            columns[name] = np.concatenate([episode.signals[name] for episode in episodes])
        return columns[name]

    return Table(source, signals, column, np.cumsum([0, *lengths], dtype=np.int64), 1.0 / interface.rate_hz)


@dataclass(frozen=True)
class Judgement:
    """What a formula says of E episodes.

    Args:
        texts: [C] of the clauses, the formula's top-level conjuncts.
        low, high: [C, E] bounds on the robustness of each clause: equal unless samples are missing that it depends on.
        verdict: [C, E] int8: 1 satisfied, -1 violated, 0 undecided.
        decided_s: [C, E] s from the episode's start: from when every continuation agrees with the verdict, at the
            latest the episode's end; NaN where it is undecided; [C, 0] unless asked for.
        short: [E] bool: the episode ends before the formula's horizon.
    """

    texts: tuple[str, ...]
    low: Numbers
    high: Numbers
    verdict: NDArray[np.int8]
    decided_s: Numbers
    short: NDArray[np.bool_]

    @property
    def clauses(self) -> Numbers:
        """[C, E] robustness of each clause; NaN where it is not known."""
        return np.where(self.low == self.high, self.low, np.nan)

    @property
    def robustness(self) -> Numbers:
        """[E] of the whole formula, the least of its clauses'; NaN where it is not known."""
        low, high = self.low.min(0), self.high.min(0)
        return np.where(low == high, low, np.nan)

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """[E] of the whole formula: the least of its clauses'."""
        out: NDArray[np.int8] = self.verdict.min(0)
        return out

    @property
    def decided(self) -> Numbers:
        """[E] s: a formula is violated as soon as one clause is, and satisfied when all are."""
        violated = np.where(self.verdict < 0, self.decided_s, np.inf).min(0)
        return np.where(self.verdicts < 0, violated, self.decided_s.max(0))


def judge(
    formula: Formula, table: Table, semantics: Semantics = RTAMT, *, partial: bool = False, unknown: bool = False,
    when: bool = False,
) -> Judgement:
    """``formula`` on every episode of ``table``.

    Args:
        partial: an episode that ends before the formula's horizon is undecided unless all continuations agree; else
            ``semantics`` says what lies past its end.
        unknown: a NaN that the formula reads is a sample that was lost; else a :class:`DataError`.
        when: also from when each verdict is certain: takes about as long as the rest, some times over.
    """
    parts, names = clauses(formula), signals_in(formula)
    require(table, names)
    count = len(table.lengths)
    low, high, decided_s = (np.full((len(parts), count), np.nan) for _ in range(3))
    verdict = np.zeros((len(parts), count), dtype=np.int8)
    views = [replace(semantics, end=end) for end in ("strong", "weak")] if partial else [semantics, semantics]
    for block in blocks(table.lengths):
        signals = {name: padded(table, name, block) for name in names}
        if not unknown:
            refuse_lost(table, signals, block)
        traces = Traces(signals, table.dt, table.lengths[block])
        for c, (_, part) in enumerate(parts):
            low[c, block], high[c, block], verdict[c, block] = bounds(part, traces, views)
        if when:
            decided_s[:, block] = decided(formula, traces, verdict[:, block])
    short = (table.lengths - 1) * table.dt < horizon_of(formula, table.dt) - 1e-9
    return Judgement(tuple(text for text, _ in parts), low, high, verdict, decided_s if when else decided_s[:, :0],
                     short)


@dataclass(frozen=True)
class Traces:
    """Signals [T, E, *shape] of episodes of about equal length, padded; ``lengths`` [E] samples of each."""

    signals: Mapping[str, np.ndarray]
    dt: float
    lengths: NDArray[np.int64]

    def chosen(self, episodes: np.ndarray) -> Traces:
        """Those of ``episodes``."""
        return Traces({name: values[:, episodes] for name, values in self.signals.items()}, self.dt,
                      self.lengths[episodes])


def bounds(
    part: Formula, traces: Traces, views: Sequence[Semantics]
) -> tuple[Numbers, Numbers, NDArray[np.int8]]:
    """Least and largest robustness [E] of one clause, and its verdict [E] int8.

    ``views``: what lies past the end of an episode, for the least and for the largest: the strong and the weak view
    where that is unknown (Eisner et al., CAV 2003).
    """
    ends = [np.asarray(robustness(part, traces.signals, traces.dt, traces.lengths, view)[0], dtype=np.float64)
            for view in dict.fromkeys(views)]
    low, high = ends[0].copy(), ends[-1].copy()
    sign = (low > 0).astype(np.int8) - (high < 0).astype(np.int8)
    # where samples are lost, or at zero, where the comparison decides: x <= 1 holds at 1
    fine = np.flatnonzero(np.isnan(low) | np.isnan(high) | (low == 0) | (high == 0))
    if fine.size:
        few = traces.chosen(fine)
        least, most = (extreme(part, few, view, worst) for view, worst in zip(views, (True, False)))
        sign[fine] = (least > 0).astype(np.int8) - (most < 0)
        low[fine], high[fine] = (np.where(np.abs(x) == TINY, 0.0, x) for x in (least, most))
    return low, high, sign


def extreme(part: Formula, traces: Traces, view: Semantics, worst: bool) -> Numbers:
    """The least (``worst``) or largest robustness [E] that a clause can have, whatever the samples that are NaN were.

    A margin of 0 is carried as the smallest number of the sign of its truth, as in
    :mod:`temporeal.sim.stl.monitoring.batch_monitor`.
    """
    arrays, shape = numpy_arrays(np.dtype(np.float64)), next(v.shape[:2] for v in traces.signals.values())

    def margins(leaf: Leaf) -> np.ndarray:
        margin = np.broadcast_to(predicate_margin(leaf.predicate, traces.signals, arrays), shape)
        holds = np.broadcast_to(predicate_truth(leaf.predicate, traces.signals, arrays), shape)
        margin = np.where(margin == 0, np.where(holds, TINY, -TINY), margin)
        return np.where(np.isnan(margin), -np.inf if worst else np.inf, -margin if leaf.negated else margin)

    with np.errstate(all="ignore"):
        return np.asarray(evaluate_leaves(lower(part, traces.dt, view), margins, shape, traces.lengths)[0])


def decided(formula: Formula, traces: Traces, verdict: NDArray[np.int8]) -> Numbers:
    """[C, E] s from when the ``verdict`` of each clause is certain whatever follows; the end where only that decides.

    A formula that cannot be monitored (a window without an end inside another operator) is decided at the end.
    """
    lengths, dt = traces.lengths, traces.dt
    out = np.broadcast_to((lengths - 1) * dt, verdict.shape).copy()
    try:
        monitor = BatchMonitor(formula, dt, len(lengths), dtype=np.float64, compiled=False)
    except FormulaError:
        return np.where(verdict == 0, np.nan, out)
    waiting = verdict != 0
    for k in range(int(lengths.max())):
        over = k >= lengths
        now = monitor.update({name: np.where(over.reshape(-1, *[1] * (values.ndim - 2)), np.nan, values[k])
                              for name, values in traces.signals.items()})
        lower, upper = now.clause_lower, now.clause_upper
        known = waiting & ~over & ((lower > 0) | (upper < 0) | (lower == upper))
        out[known] = k * dt
        waiting &= ~known
        if not waiting.any():
            break
    return np.where(verdict == 0, np.nan, out)


def horizon_of(formula: Formula, dt: float) -> float:
    """Seconds that the formula looks ahead of an episode's first sample; 0 where it looks at all of it."""
    ahead = horizon(formula, dt)
    return ahead if np.isfinite(ahead) else 0.0


# ---------------------------------------------------------------- episodes as arrays


def blocks(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The numbers of all episodes in groups of about equal length, each of few enough samples when padded."""
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        size = 1
        while first + size < len(order) and fits(int(lengths[order[first]]), int(lengths[order[first + size]]), size):
            size += 1
        yield order[first : first + size]
        first += size


def fits(shortest: int, longest: int, count: int) -> bool:
    """Whether an episode of ``longest`` samples goes with ``count`` others: at most a third of it all is padding."""
    return longest * (count + 1) <= MOST_NUMBERS and longest <= 1.5 * shortest + 16


def padded(table: Table, name: str, episodes: NDArray[np.int64]) -> np.ndarray:
    """[T, E, *shape] of a signal in ``episodes`` [E]; past an episode's end stands its last sample."""
    lengths = table.lengths[episodes]
    at = np.minimum(np.arange(int(lengths.max()))[:, None], lengths - 1)
    if name == TIME.name and name not in table.signals:
        return np.asarray(at * table.dt, dtype=np.float64)
    return np.asarray(table.column(name)[at + table.starts[episodes]], dtype=np.float64)


def require(table: Table, names: Mapping[str, object]) -> None:
    """There is an episode, each has a sample, and the signals are there."""
    if not len(table.lengths):
        raise DataError(f"{table.source}: it has no episode")
    if (empty := np.flatnonzero(table.lengths < 1)).size:
        raise DataError(f"{table.source}: episode {empty[0]} has no sample")
    for name in names:
        if name not in table.signals and name != TIME.name:
            raise DataError(f"{table.source}: no signal {name!r}; signals: {', '.join(table.signals)}")


def refuse_lost(table: Table, signals: Mapping[str, np.ndarray], episodes: NDArray[np.int64]) -> None:
    """A :class:`DataError` that names episode and sample of the first NaN."""
    for name, values in signals.items():
        lost = missing.lost(values.reshape(-1, *values.shape[2:])).reshape(values.shape[:2])
        if lost.any():
            column = int(np.flatnonzero(lost.any(0))[0])
            raise DataError(f"{table.source}: episode {episodes[column]}, sample {int(np.argmax(lost[:, column]))}: "
                            f"{name} is NaN, and the formula reads it; --missing unknown takes such samples as lost")


# ---------------------------------------------------------------- weights


def scaled(values: np.ndarray) -> Numbers:
    """``values`` [E] from 0 to 1: the least and the largest finite one; all 0 where they are one. NaN is 0."""
    value = np.asarray(values, dtype=np.float64)
    finite = value[np.isfinite(value)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    out: Numbers = np.nan_to_num(value, nan=low, posinf=high, neginf=low) - low
    return out / (high - low) if high > low else np.zeros_like(out)


def weights(values: np.ndarray, alpha: float) -> Numbers:
    """How often each of E episodes is drawn, relative, with mean 1: softmax of ``alpha`` times its value.

    ``values`` [E] are robustness, or returns; ``alpha`` [1 / their unit] 0: all alike. What is not finite counts as the
    least or largest finite value, NaN as the least.
    """
    if not np.isfinite(alpha) or alpha < 0:
        raise DataError(f"alpha is a number from 0 on, got {alpha}")
    value = np.asarray(values, dtype=np.float64)
    finite = value[np.isfinite(value)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scaled = alpha * (np.nan_to_num(value, nan=low, posinf=high, neginf=low) - high)
    out: Numbers = np.exp(scaled)
    return out / out.mean()
