"""Durations of trials: learning curves, time to a threshold, CPU time and budgets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean, median

from temporeal.policies.evaluate.suite.averages import DONE, Trial, is_scaling, of, seen
from temporeal.policies.evaluate.suite.catalog import METHODS, SYSTEMS, THRESHOLDS

POOL = 100
"""Whole episodes that a share of success is told of while learning, at least: its standard deviation is then at most
0.05. In one iteration often a single one ends, and the first that is lucky is no threshold reached."""


def pooled(history: Sequence[Mapping[str, float]]) -> list[tuple[float, float, float]]:
    """Seconds, steps and success over the last :data:`POOL` or more whole episodes, through a training.

    Each episode counts once: an iteration in which none ended repeats the figures of the one before. The curve begins
    at :data:`POOL` episodes. A row without a number of ``episodes`` stands for itself: that of STL-NPC, whose figures
    are of the batch of an update, missions that its model predicts (256,
    :class:`temporeal.policies.algos.npc.NPCConfig`).
    """
    points, window, before = list[tuple[float, float, float]](), deque[tuple[float, float]](), None
    for row in (row for row in history if "success" in row):
        figures = tuple(row.get(name) for name in ("success", "episodes", "return"))
        if "episodes" in row and figures == before:
            continue
        before, count = figures, row.get("episodes", POOL)
        window.append((count, count * row["success"]))
        while sum(c for c, _ in window) - window[0][0] >= POOL:
            window.popleft()
        if (whole := sum(c for c, _ in window)) >= POOL:
            points.append((row["seconds"], row["steps"], sum(good for _, good in window) / whole))
    return points


SETTLED = 5
"""Points of a curve that a time to a threshold is told by, at least."""


def time_to(curve: Sequence[Sequence[float]], threshold: float) -> float | None:
    """Seconds of training after which success stays at least ``threshold``; None if it never does.

    The first point of the curve [[s, steps, success], ...] at or above it whose mean with all later points is, too. The
    first 100 episodes above the threshold alone mean little: the largest of thousands of such shares is well above the
    policy's success, and trainings that never reached 0.9 had one.
    """
    shares = [success for *_, success in curve]
    return next((curve[i][0] for i in range(len(curve) - SETTLED + 1)
                 if shares[i] >= threshold and fmean(shares[i:]) >= threshold), None)


def is_pooled(trial: Trial) -> bool:
    """Whether the trial's curve is of pooled episodes; in older trials it is of those that ended in one iteration."""
    return trial.get("pooled") == POOL


@dataclass(frozen=True)
class Times:
    """Durations of the trainings of one method on one system, from process start, without the horizon study.

    ``to``: by threshold, how many of the ``pooled`` ones (:func:`is_pooled`) reached it, and their median time [s],
    None if half of them did not. ``wall``: number and longest duration [s] of those that ran at most :data:`FEW` at
    once.
    """

    trainings: int
    cpu_s: float  # median
    longest_s: float  # of CPU time
    pooled: int
    to: Mapping[float, tuple[int, float | None]]
    wall: tuple[int, float | None] = (0, None)


FEW = 2  # trials at once: each has a core of its own on machines of two cores, where nothing else runs


def times(trials: Sequence[Trial], method: str, system: str) -> Times | None:
    """See :class:`Times`; a threshold that was not reached counts as infinite time."""
    own = [t for t in of(trials, method=method, system=system, status=DONE)
           if t.get("cpu_s") is not None and not is_scaling(t["task"])]
    if not own:
        return None
    to, points = {}, [t["curve"] for t in own if is_pooled(t)]
    for threshold in THRESHOLDS:
        seconds = [inf if (s := time_to(curve, threshold)) is None else s for curve in points]
        middle = median(seconds) if seconds else inf
        to[threshold] = (sum(map(isfinite, seconds)), middle if isfinite(middle) else None)
    took = [t["cpu_s"] for t in own]
    walls = [t["wall_s"] for t in own if "wall_s" in t and (t.get("parallel") or FEW + 1) <= FEW]
    return Times(len(own), median(took), max(took), len(points), to, (len(walls), max(walls, default=None)))


def spent_s(trial: Trial) -> float:
    """CPU time of a trial, s: its training, from process start and including work after the last update, and all its
    plans."""
    return float(trial.get("cpu_s") or 0.0) + float(trial.get("planning_s") or 0.0)


def processors(trials: Sequence[Trial]) -> str:
    """The processors that ``trials`` ran on, with counts if there are several."""
    found = Counter(str((t.get("machine") or {}).get("cpu", "unknown")) for t in trials)
    return ", ".join(name if len(found) == 1 else f"{name} ({n})" for name, n in sorted(found.items()))


GIVEN = ("system", "method", "budget, CPU time", "longest trial, training (from process start) and plans", "processor")
"""Columns of :func:`given`."""


def given(trials: Sequence[Trial]) -> list[tuple[str, str, str, str, str]]:
    """The resources of the methods on each system, as text: system, method, budget, :func:`spent_s` of the longest
    trial, and processors. CPU time is worth more on a faster processor, and a planner's last batch may exceed its
    budget."""
    rows = []
    methods = seen(trials, "method", METHODS)
    for system, method in ((s, m) for s in seen(trials, "system", SYSTEMS) for m in methods):
        if own := of(trials, system=system, method=method, status=DONE):
            longest = max(own, key=spent_s)
            rows.append((system, METHODS[method].title, budget(own, system),
                         f"{spent_s(longest):.0f} s ({longest['task']})", processors(own)))
    return rows


def budget(trials: Sequence[Trial], system: str) -> str:
    """The CPU time budget of the trials of ``system``."""
    seconds = sorted({t.get("budget_s", SYSTEMS[system].budget_s) for t in of(trials, system=system)})
    return " or ".join(f"{s:g} s" for s in seconds)


def reached(found: Times, threshold: float) -> str:
    """Median time to ``threshold``, and how many of the trainings that record it reached it."""
    if not found.pooled:
        return "not measured"
    got, seconds = found.to[threshold]
    return f"{'–' if seconds is None else f'{seconds:.0f} s'} ({got} of {found.pooled})"
