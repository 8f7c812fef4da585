"""The suite's comparison: our method against the best baseline of each system, and against the horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from temporeal.policies.evaluate.suite.averages import (
    DONE,
    NOT_SUPPORTED,
    Share,
    Trial,
    formula_share,
    is_scaling,
    of,
    shares,
    steps_of,
    system_share,
    system_tasks,
)
from temporeal.policies.evaluate.suite.catalog import BASELINES, OURS, SYSTEMS, is_for


def ran(trials: Sequence[Trial], method: str, system: str) -> bool:
    """Whether ``method`` ran on ``system``: it supports at least one of its formulas."""
    return any(t["status"] != NOT_SUPPORTED for t in of(trials, method=method, system=system)
               if not is_scaling(t["task"]))


def compared_systems(trials: Sequence[Trial], baselines: Sequence[str] = BASELINES) -> list[str]:
    """The systems on which ours and all applicable ``baselines`` ran on the same formulas: means over different ones
    cannot be compared."""
    def whole(method: str, system: str) -> bool:
        tasks = system_tasks(trials, system)
        return ran(trials, method, system) and len(shares(trials, method, tasks)) == len(tasks)

    return [system for system in SYSTEMS
            if all(whole(method, system) for method in (OURS, *baselines) if is_for(method, system))]


def best_baseline(
    trials: Sequence[Trial], system: str, baselines: Sequence[str] = BASELINES
) -> tuple[str, float] | None:
    """The one of ``baselines`` with the greatest mean success on ``system``, and that success."""
    found = {m: share.estimate for m in baselines if (share := system_share(trials, m, system)) is not None}
    return max(found.items(), key=lambda item: item[1]) if found else None


def margin(trials: Sequence[Trial], baselines: Sequence[str] = BASELINES) -> float | None:
    """Percentage points of TGPO* above the best of ``baselines``: mean over the systems on which all of them ran."""
    gaps = []
    for system in compared_systems(trials, baselines):
        ours, best = system_share(trials, OURS, system), best_baseline(trials, system, baselines)
        if ours is not None and best is not None:
            gaps.append(100.0 * (ours.estimate - best[1]))
    return fmean(gaps) if gaps else None


def margin_where_supported(trials: Sequence[Trial]) -> float | None:
    """The least margin of TGPO* over a baseline, each on the formulas that the baseline supports (see :func:`margin`).
    """
    gaps = []
    for system in compared_systems(trials):
        tasks = system_tasks(trials, system)
        ours, of_system = shares(trials, OURS, tasks), []
        for method in BASELINES:
            theirs = {t: s for t, s in shares(trials, method, tasks).items() if not s.not_supported and t in ours}
            if theirs:
                of_system.append(fmean(100.0 * (ours[t].estimate - s.estimate) for t, s in theirs.items()))
        gaps += [min(of_system)] if of_system else []
    return fmean(gaps) if gaps else None


def by_horizon(trials: Sequence[Trial], method: str) -> list[tuple[int, Share]]:
    """Control steps and success of the horizon study, ascending."""
    own = of(trials, method=method)
    lengths = sorted({steps for t in own if (steps := steps_of(t["task"])) is not None})
    found = [(steps, formula_share([t for t in own if steps_of(t["task"]) == steps])) for steps in lengths]
    return [(steps, share) for steps, share in found if share is not None and not share.not_supported]


def not_worse(ours: Share, theirs: Share) -> bool:
    """Whether the other estimate is not above our interval."""
    return theirs.estimate <= ours.high


def tried(study: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The remedies tried for the figure ``row`` of ``study`` if its target is missed; else empty."""
    return "" if row["ok"] is not False else study.get("tried", {}).get(row["name"], "nothing is noted yet")


def first_to_fail(trials: Sequence[Trial], method: str, task: str) -> dict[str, float]:
    """Share of all episodes in which each clause failed first, most frequent first."""
    done = of(trials, method=method, task=task, status=DONE)
    episodes = sum(t["episodes"] for t in done)
    counts: dict[str, int] = {}
    for trial in done:
        for clause, count in trial.get("first_to_fail", {}).items():
            counts[clause] = counts.get(clause, 0) + count
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return {clause: count / episodes for clause, count in ordered if count}
