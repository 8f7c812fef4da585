"""Averages of the suite's trials, with intervals.

A *trial* is one method on one formula with one seed: a mapping as `temporeal_benchmarks.stl_study.trial` writes it,
with ``status`` ``done``, ``not supported`` (the method refuses the formula or the system; ``reason`` says why) or
``failed`` (it ended with an error). Trials that were not run are in no average.

- One formula: the mean over its seeds, equally weighted. A planner that fails is slow and judged on fewer starts, so
  that one proportion over all starts would hide its failures. Interval: Clopper-Pearson over all episodes if every seed
  has as many, else the means of the seeds' lower and upper ends.
- Several formulas: the mean over formulas, equally weighted. Unsupported formulas count as 0, as in the published
  comparisons, and so do failed trainings; their numbers are shown beside the mean, as is the mean over the supported
  formulas.
- Its interval: if every formula has as many episodes, that of all of them as one proportion, which is conservative for
  a mean of different ones (Hoeffding, Annals of Mathematical Statistics 27, 1956); else the means of the formulas'
  lower and upper ends, which is wider still. It covers these policies only: seeds differ by more.
- Over trainings: :func:`training_interval`, the variation to expect from another seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from temporeal.policies.evaluate.suite.catalog import METHODS, PLANNER, SEEDS, STARTS

Trial = Mapping[str, Any]
DONE, NOT_SUPPORTED, FAILED = "done", "not supported", "failed"
STUDY_OF_HORIZONS = re.compile(r"linear_horizon_([1-9][0-9]*)")  # control steps; of other systems there is none


def system_of(task: str) -> str:
    """The system of a formula's file ``<system>_<name>``."""
    return task.partition("_")[0]


def steps_of(task: str) -> int | None:
    """Control steps of a formula of the horizon study; None for any other formula."""
    found = STUDY_OF_HORIZONS.fullmatch(task)
    return int(found[1]) if found else None


def is_scaling(task: str) -> bool:
    """Whether ``task`` belongs to the horizon study, which is in none of the averages over formulas."""
    return steps_of(task) is not None


def seen(trials: Sequence[Trial], key: str, known: Iterable[str]) -> list[str]:
    """The ``known`` names that have trials."""
    there = {t[key] for t in trials}
    return [name for name in known if name in there]


@dataclass(frozen=True)
class Share:
    """A probability with its interval, and the numbers behind it."""

    estimate: float
    low: float
    high: float
    episodes: int
    formulas: int = 1
    not_supported: int = 0
    failed: int = 0
    seeds: int = 1
    starts: tuple[int, int] = (0, 0)  # least and most that a trial was judged on
    unknown: int = 0  # trials of which nobody knows whether their settings were those of now


def of(trials: Iterable[Trial], **asked: Any) -> list[Trial]:
    """The trials with these entries."""
    return [trial for trial in trials if all(trial.get(key) == value for key, value in asked.items())]


def unknown_settings(trials: Iterable[Trial]) -> list[Trial]:
    """Trials without a digest of all their ``settings``, only the words of a command line: the settings files behind
    these may have been others than today's."""
    return [trial for trial in trials if trial.get("settings") is None]


def formula_share(trials: Sequence[Trial]) -> Share | None:
    """The share of one method on one formula; None without trials. See the head of this module."""
    if not trials:
        return None
    from temporeal.sim.stl.analysis.binomial import clopper_pearson

    done, failed = of(trials, status=DONE), len(of(trials, status=FAILED))
    if not done:
        refused = len(of(trials, status=NOT_SUPPORTED))
        return Share(0.0, 0.0, 0.0, 0, not_supported=bool(refused and not failed), failed=failed, seeds=len(trials))
    judged = [(t["satisfied"], t["episodes"]) for t in done]
    starts = [episodes for _, episodes in judged]
    ends = [clopper_pearson(*map(sum, zip(*judged)))] if len({*starts}) == 1 else [clopper_pearson(*t) for t in judged]
    low, high = map(fmean, zip(*ends))
    part, estimate = len(done) / (len(done) + failed), fmean(hits / episodes for hits, episodes in judged)
    return Share(part * estimate, part * low, part * high, sum(starts), failed=failed, seeds=len(trials),
                 starts=(min(starts), max(starts)), unknown=len(unknown_settings(done)))


def mean_share(shares: Sequence[Share], *, refused_as_zero: bool = True) -> Share | None:
    """The mean over formulas; None without any. See the head of this module."""
    from temporeal.sim.stl.analysis.binomial import clopper_pearson

    ran = [share for share in shares if not share.not_supported]
    counted = len(shares) if refused_as_zero else len(ran)
    if not counted:
        return None
    counts = {"episodes": sum(s.episodes for s in ran), "formulas": len(shares),
            "not_supported": len(shares) - len(ran), "failed": sum(s.failed for s in ran),
            "seeds": min(s.seeds for s in shares), "unknown": sum(s.unknown for s in ran)}
    judged = [s.starts for s in ran if s.episodes]
    starts = (min(least for least, _ in judged), max(most for _, most in judged)) if judged else (0, 0)
    scale = len(ran) / counted
    if not ran:
        return Share(0.0, 0.0, 0.0, **counts, starts=starts)
    estimate = scale * fmean(s.estimate for s in ran)
    if len({s.episodes for s in ran}) == 1 and not counts["failed"]:
        low, high = clopper_pearson(round(sum(s.estimate * s.episodes for s in ran)), counts["episodes"])
    else:
        low, high = fmean(s.low for s in ran), fmean(s.high for s in ran)
    return Share(estimate, scale * low, scale * high, **counts, starts=starts)


def shares(trials: Sequence[Trial], method: str, tasks: Sequence[str]) -> dict[str, Share]:
    """The share of ``method`` on each of ``tasks`` that it was tried on."""
    found = {task: formula_share(of(trials, method=method, task=task)) for task in tasks}
    return {task: share for task, share in found.items() if share is not None}


def system_tasks(trials: Sequence[Trial], system: str, layers: str | None = None) -> list[str]:
    """The tried formulas of ``system`` (with ``layers``), without the horizon study."""
    own = [t for t in of(trials, system=system) if not is_scaling(t["task"])]
    kinds = {t["task"]: layer_name(t) for t in own if "depth" in t}  # a failed trial does not tell
    return sorted({t["task"] for t in own if layers is None or kinds.get(t["task"]) == layers})


def layer_name(trial: Trial) -> str:
    """``two`` or ``multi`` layers; multi: temporal operators inside others."""
    return "two" if trial["depth"] <= 1 else "multi"


def system_share(
    trials: Sequence[Trial], method: str, system: str, layers: str | None = None, *, refused_as_zero: bool = True
) -> Share | None:
    """Mean over the formulas of ``system`` (with ``layers``)."""
    found = shares(trials, method, system_tasks(trials, system, layers))
    return mean_share(list(found.values()), refused_as_zero=refused_as_zero)


def seed_range(trials: Sequence[Trial], method: str, system: str) -> tuple[float, float] | None:
    """Least and greatest mean over the formulas of ``system`` among the seeds that cover all of them."""
    tasks, found = system_tasks(trials, system), []
    for seed in sorted({t["seed"] for t in of(trials, method=method, system=system)}):
        own = shares(of(trials, seed=seed), method, tasks)
        if len(own) == len(tasks):
            mean = mean_share(list(own.values()))
            found += [mean.estimate] if mean else []
    return (min(found), max(found)) if found else None


def formulas_of(study: Mapping[str, Any], system: str, layers: str | None = None) -> int | None:
    """Number of formulas of ``system`` (with ``layers``) in the suite, without the horizon study. None if unknown: the
    layers of untried formulas are."""
    tried = system_tasks(study["trials"], system)
    known = {t for t in study.get("tasks", ()) if system_of(t) == system and not is_scaling(t)} | {*tried}
    if layers is None:
        return len(known)
    sure = {kind: system_tasks(study["trials"], system, kind) for kind in ("two", "multi")}
    return len(sure[layers]) if len(known) == sum(map(len, sure.values())) else None


def extent(share: Share, of: int | None) -> list[str]:
    """The numbers of formulas and seeds of a share if incomplete, and of starts if few."""
    parts = []
    if share.formulas != of or share.seeds < SEEDS:
        formulas = f"{share.formulas}" + ("" if of is None else f" of {of}")
        formulas += " formula, " if (of or share.formulas) == 1 else " formulas, "
        seeds = f"{share.seeds} seed" + ("s" if share.seeds > 1 else "")
        parts.append(("" if share.formulas == of == 1 else formulas) + seeds)
    least, most = share.starts
    if 0 < least < STARTS:
        parts.append(f"{least} starts" if least == most else f"{least} to {most} starts")
    return parts


RESAMPLES = 10_000
"""Of a bootstrap: its 2.5 % quantile is then known to some 1.5 % of the interval's width."""


def training_interval(trials: Sequence[Trial], method: str, system: str) -> tuple[float, float] | None:
    """95 % interval of the mean over the formulas of ``system``, over trainings.

    Stratified bootstrap: for each formula as many trainings are drawn with replacement as there are (Agarwal et al.,
    NeurIPS 2021). None if a formula has only one training, and for planners, which do not train. With three trainings
    each it is too narrow rather than too wide.
    """
    if METHODS[method].kind == PLANNER:
        return None
    own = [of(trials, method=method, task=task) for task in system_tasks(trials, system)]
    own = [found for found in own if found]
    if not own or min(map(len, own)) < 2:
        return None
    rng, total = np.random.default_rng(0), np.zeros(RESAMPLES)
    for found in own:
        counts = np.array([t["satisfied"] / t["episodes"] if t["status"] == DONE else 0.0 for t in found])
        total += counts[rng.integers(len(found), size=(RESAMPLES, len(found)))].mean(1)  # as formula_share has it
    low, high = np.quantile(total / len(own), (0.025, 0.975))
    return float(low), float(high)


def is_complete(trials: Sequence[Trial], methods: Sequence[str], tasks: Sequence[str], seeds: int = SEEDS) -> bool:
    """Whether each of ``methods`` was tried on each of ``tasks`` with at least ``seeds`` seeds."""
    counted = {(m, t): {x["seed"] for x in of(trials, method=m, task=t)} for m in methods for t in tasks}
    return bool(tasks) and all(len(found) >= seeds for found in counted.values())
