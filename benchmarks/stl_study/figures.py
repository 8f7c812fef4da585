"""The figures of `temporeal bench stl-tasks`, and the targets that they are judged against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from temporeal.policies.evaluate.suite import averages, catalog, comparison, timing
from temporeal.policies.evaluate.suite.averages import Trial
from temporeal.policies.evaluate.suite.catalog import METHODS, SYSTEMS
from temporeal_benchmarks.rows import Row

TRIED: Mapping[str, str] = {
    "margin.points": "MILP is exact on the linear system, and STL-NPC, whose gradient goes through the system's "
    "equations and which plans anew where its network fails, satisfies more than 0.68 on each system that it has run "
    "on whole, so nothing can be 32 points above them. "
    "margin.points.model_free compares with those that are given samples only, as TGPO is."}
"""Where a target is missed: by the name of the row, what was tried."""


def rows_of(trials: Sequence[Trial], tasks: Sequence[str], judged: bool = True) -> list[Row]:
    """The figures, and the targets where there are any; not ``judged``: only whether trials failed is.

    ``tasks``: all formulas of the suite. A row whose trials are not all there is not judged either, and says so; but
    a margin below its target is missed so far.
    """
    rows = [*system_rows(trials, tasks), *horizon_rows(trials), *margin_rows(trials, tasks), *time_rows(trials, tasks)]
    rows = rows if judged else [Row(r.name, r.value, r.unit, r.target, r.peer, None) for r in rows]
    return [*rows, *count_rows(trials)]


def system_rows(trials: Sequence[Trial], tasks: Sequence[str]) -> Iterator[Row]:
    """Success of each method on each system."""
    for system, target in SYSTEMS.items():
        for method in METHODS:
            share = averages.system_share(trials, method, system)
            if share is None:
                continue
            ours, whole = method == catalog.OURS, complete(trials, [method], system, tasks)
            over = averages.training_interval(trials, method, system)
            yield Row(f"{system}.{method}.success", share.estimate, "1", target.success if ours else None,
                      described(share) + ("" if over is None else f", over trainings [{over[0]:.3f}, {over[1]:.3f}]")
                      + ("" if whole else ", incomplete"),
                      share.estimate >= target.success if ours and whole else None)


def complete(trials: Sequence[Trial], methods: Sequence[str], system: str, tasks: Sequence[str]) -> bool:
    """Whether all formulas of ``system``, the study of horizons left out, were tried with enough seeds."""
    own = [task for task in tasks if averages.system_of(task) == system and not averages.is_scaling(task)]
    return averages.is_complete(trials, methods, own)


def described(share: averages.Share) -> str:
    """Interval, and what the share is of."""
    parts = [f"[{share.low:.3f}, {share.high:.3f}]", *(f"{count} {noun}{'s' if count != 1 else ''}" for count, noun in (
        (share.formulas, "formula"), (share.seeds, "seed")))]
    parts += [f"{share.not_supported} not supported"] if share.not_supported else []
    parts += [f"{share.failed} failed"] if share.failed else []
    parts += [of_unknown(share.unknown)] if share.unknown else []
    return ", ".join(parts)


def of_unknown(count: int) -> str:
    """That not all settings of ``count`` trials are known."""
    return f"settings of {count} trials unknown but for their command line"


def horizon_rows(trials: Sequence[Trial]) -> Iterator[Row]:
    """The study of horizons: the longest, and the short ones against tau-MDP."""
    ours, theirs = (dict(comparison.by_horizon(trials, method)) for method in (catalog.OURS, catalog.HISTORY))
    for steps, share in ours.items():
        whole, name = share.seeds >= catalog.SEEDS, f"linear.horizon{steps}.{catalog.OURS}.success"
        remark = described(share) + ("" if whole else ", incomplete")
        if steps == catalog.LONG:
            yield Row(name, share.estimate, "1", catalog.LONG_SUCCESS, remark,
                      share.estimate >= catalog.LONG_SUCCESS if whole else None)
        elif steps in catalog.SHORT and steps in theirs:
            other = theirs[steps]
            both = whole and other.seeds >= catalog.SEEDS
            target = f"tau-MDP's {other.estimate:.3f} within the interval, or below"
            yield Row(name, share.estimate, "1", target, remark,
                      comparison.not_worse(share, other) if both else None)
        else:
            yield Row(name, share.estimate, "1", None, remark)


def margin_rows(trials: Sequence[Trial], tasks: Sequence[str]) -> Iterator[Row]:
    """Points above the best baseline: of all, of those without a model, and on what each of them supports."""
    def missing(baselines: Sequence[str]) -> str:
        compared = comparison.compared_systems(trials, baselines)
        methods = {system: [m for m in (catalog.OURS, *baselines) if catalog.is_for(m, system)] for system in compared}
        whole = all(complete(trials, methods[system], system, tasks) for system in compared)
        shares = [averages.system_share(trials, method, system) for system in compared for method in methods[system]]
        unknown = sum(share.unknown for share in shares if share is not None)
        return ("" if whole else ", incomplete") + (f", {of_unknown(unknown)}" if unknown else "")

    free = comparison.margin(trials, catalog.MODEL_FREE)
    if free is not None:
        yield Row("margin.points.model_free", free, "%", None, f"above the best of {', '.join(catalog.MODEL_FREE)}, "
                  f"which are given no model{missing(catalog.MODEL_FREE)}")
    value = comparison.margin(trials)
    if value is None:
        return
    systems = comparison.compared_systems(trials)
    left_out = missing(catalog.BASELINES)
    failed = any(t["status"] == averages.FAILED for t in trials if t["method"] in catalog.BASELINES)
    best = [(system, comparison.best_baseline(trials, system)) for system in systems]
    best_of_each = ", ".join(f"{system}: {found[0]} {found[1]:.3f}" for system, found in best if found)
    note = left_out + (", baselines failed: not judged" if failed else "")
    judged, reached = "incomplete" not in left_out and not failed, value >= catalog.MARGIN
    missed = not (reached or failed)  # so far, where seeds of baselines are missing
    yield Row("margin.points", value, "%", catalog.MARGIN, best_of_each + note, reached if judged or missed else None)
    yield Row("margin.points.where_supported", comparison.margin_where_supported(trials), "%", None,
              f"each baseline on the formulas that it supports, the least margin{left_out}")


def time_rows(trials: Sequence[Trial], tasks: Sequence[str]) -> Iterator[Row]:
    """Longest training, in CPU time from process start, and the median time of learning to each threshold."""
    for system, target in SYSTEMS.items():
        found = timing.times(trials, catalog.OURS, system)
        if found is None:
            continue
        own = [t for t in averages.of(trials, method=catalog.OURS, system=system) if not averages.is_scaling(t["task"])]
        failed = len(averages.of(own, status=averages.FAILED))
        whole = complete(trials, [catalog.OURS], system, tasks) and not failed
        unknown = len(averages.unknown_settings(averages.of(own, status=averages.DONE)))
        note = (f", {failed} failed" if failed else "") + ("" if whole else ", incomplete")
        note += f", {of_unknown(unknown)}" if unknown else ""
        yield Row(f"{system}.{catalog.OURS}.seconds.most", found.longest_s, "s", target.seconds,
                  f"CPU time from process start, of {found.trainings} trainings; {wall_time(found)}{note}",
                  found.longest_s <= target.seconds if target.seconds is not None and whole else None)
        for threshold, (_, seconds) in found.to.items():
            yield Row(f"{system}.{catalog.OURS}.seconds_to_{threshold}", seconds, "s", None,
                      f"{to_threshold(found, threshold)}{note}")


def to_threshold(found: timing.Times, threshold: float) -> str:
    """What a median time to ``threshold`` is of."""
    if not found.pooled:
        return (f"not measured: none of {found.trainings} trainings keeps its success over {timing.POOL} whole "
                "episodes; early ones keep it of one iteration, in which often a single episode ended")
    count, _ = found.to[threshold]
    return (f"median over {found.pooled} of {found.trainings} trainings, of the time of learning from which on "
            f"{threshold:g} of the whole episodes were successful, exploring, on the average of what followed; {count} "
            "of them got there, the others count as infinite")


def wall_time(found: timing.Times) -> str:
    """The longest training by the wall's clock, of those that had few beside them."""
    count, longest = found.wall
    return (f"no wall time: none ran at most {timing.FEW} at once" if longest is None else
            f"longest wall time {longest:.0f} s, of the {count} that ran at most {timing.FEW} at once")


def count_rows(trials: Sequence[Trial]) -> Iterator[Row]:
    """How many trials there are, by what became of them."""
    for status, target in ((averages.DONE, None), (averages.NOT_SUPPORTED, None), (averages.FAILED, 0)):
        count = len(averages.of(trials, status=status))
        yield Row(f"trials.{status.replace(' ', '_')}", float(count), "", target, None,
                  None if target is None else count <= target)

