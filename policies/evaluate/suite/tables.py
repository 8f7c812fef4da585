"""The suite's comparison as Markdown tables, for a document or a paper's first draft.

    tables({"trials": [...], "rows": [...], ...})  # a study of `temporeal_benchmarks.measurements.stl_tasks`

Figures are rounded to three digits; the page (`temporeal.policies.evaluate.suite.page`) also has their intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.evaluate.suite import averages, catalog, comparison, timing
from temporeal.policies.evaluate.suite.averages import Share, Trial
from temporeal.policies.evaluate.suite.catalog import METHODS, SYSTEMS

Study = Mapping[str, Any]
MARK = {True: "reached", False: "missed", None: "not judged"}


def write_tables(path: Path, study: Study) -> None:
    """Write :func:`tables` of ``study``."""
    from temporeal.robots.atomic_files import write_whole

    write_whole(path, tables(study).encode())


def tables(study: Study) -> str:
    """All tables of ``study`` (see :func:`temporeal.policies.evaluate.suite.page.write_page`), each with its title."""
    trials = study["trials"]
    systems = averages.seen(trials, "system", SYSTEMS)
    parts = [("Targets", targets(study)),
             ("Means over the formulas of each system", by_system(study, systems)),
             *((f"Every formula: {system}", every_formula(trials, system)) for system in systems),
             ("One formula of linear over more and more control steps", horizons(trials)),
             ("Time", times(trials, systems)),
             ("What each was given", table(timing.GIVEN, timing.given(trials)))]
    sections = (f"## {title}\n\n{text}" for title, text in parts if text)
    return "\n".join(["# Temporal-logic tasks\n", head(study), *sections])


def head(study: Study) -> str:
    """How the tables were made, and how to read them."""
    quick = "**A quick run: it shows the form, its figures are not to be quoted.**\n\n" if study.get("quick") else ""
    revisions = ", ".join(study.get("revisions", [])) or "unknown"
    return (f"{quick}Made by `{study.get('command', '')}`, {len(study['trials'])} trials of revisions {revisions}.\n\n"
            "P(satisfied): of all fresh starts, mean over seeds and formulas, each with the same weight. (a to b): the "
            "least and the greatest seed. [a, b]: 95 % interval over trainings; three seeds each make it too narrow "
            f"rather than too wide. [n]: starts, where fewer than {catalog.STARTS} were planned in the time that there "
            "was. Blank: not tried. A formula that a method does not take counts as 0 in its mean.\n")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; empty without rows."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *lines, ""]) if lines else ""


def targets(study: Study) -> str:
    """The figures with a target, with the remedies tried if it is missed, and all margins."""
    shown = [r for r in study["rows"] if r["target"] is not None or r["name"].startswith("margin")]

    def of(row: Mapping[str, Any]) -> str:
        return ". Tried: ".join(text for text in (row["peer"], comparison.tried(study, row)) if text)

    return table(["figure", "value", "target", "", "of"], [
        [f"`{r['name']}`", number(r["value"], r["unit"]), number(r["target"], r["unit"]),
         "" if r["target"] is None else MARK[r["ok"]], of(r)] for r in shown])


def number(value: Any, unit: str) -> str:
    """A figure with its unit, or its text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.{3 if unit == '1' else 0 if unit == '' else 1}f}" + (
        "" if unit in ("", "1") else f" {unit}")


def by_system(study: Study, systems: Sequence[str]) -> str:
    """Means over the formulas of each system."""
    return table(["method", *systems], [
        [METHODS[method].title, *(mean(study, method, system) for system in systems)]
        for method in averages.seen(study["trials"], "method", METHODS)])


def mean(study: Study, method: str, system: str) -> str:
    """Mean over the formulas of ``system``, its interval over trainings if there is one, and what it leaves out."""
    share = averages.system_share(study["trials"], method, system)
    if share is None or share.not_supported == share.formulas:
        return missing(share)
    over = averages.training_interval(study["trials"], method, system)
    notes = averages.extent(share, averages.formulas_of(study, system))
    notes += [f"{share.not_supported} not taken"] if share.not_supported else []
    notes += [f"{share.failed} failed"] if share.failed else []
    interval = "" if over is None else f" [{over[0]:.3f}, {over[1]:.3f}]"
    return f"{share.estimate:.3f}{interval}" + (f" ({'; '.join(notes)})" if notes else "")


def missing(share: Share | None) -> str:
    """Placeholder for a missing share."""
    return "" if share is None else "not taken"


def every_formula(trials: Sequence[Trial], system: str) -> str:
    """Each formula of ``system`` with each method, and each method's range of seeds."""
    own = [t for t in averages.of(trials, system=system) if not averages.is_scaling(t["task"])]
    methods, tasks = averages.seen(own, "method", METHODS), sorted({t["task"] for t in own})
    found = {method: averages.shares(own, method, tasks) for method in methods}
    rows = [[f"`{task}`", *(cell(averages.of(own, task=task, method=method)) for method in methods)] for task in tasks]
    seeds = ["seeds", *(count([share.seeds for share in found[method].values()]) for method in methods)]
    return table(["", *(METHODS[method].title for method in methods)], [*rows, seeds]) if rows else ""


def cell(trials: Sequence[Trial]) -> str:
    """One method on one formula: mean, least and greatest seed if they differ; in brackets the number of starts if few.
    """
    share = averages.formula_share(trials)
    if share is None or share.not_supported:
        return missing(share)
    if share.failed and not share.episodes:
        return "failed"
    each = [t["satisfied"] / t["episodes"] for t in averages.of(trials, status=averages.DONE)]
    spread = f" ({min(each):.3f} to {max(each):.3f})" if f"{min(each):.3f}" != f"{max(each):.3f}" else ""
    few = f" [{count(share.starts)}]" if share.starts[0] < catalog.STARTS else ""
    return f"{share.estimate:.3f}{spread}{few}" + (f", {share.failed} failed" if share.failed else "")


def count(numbers: Iterable[int]) -> str:
    """A number, or the least and the greatest."""
    found = sorted(set(numbers))
    return "" if not found else str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def horizons(trials: Sequence[Trial]) -> str:
    """Success of one formula against its length."""
    own = [t for t in trials if averages.is_scaling(t["task"])]
    methods = averages.seen(own, "method", METHODS)
    steps = sorted({s for t in own if (s := averages.steps_of(t["task"])) is not None})
    rows = [[str(s), *(seeded([t for t in averages.of(own, method=m) if averages.steps_of(t["task"]) == s])
                       for m in methods)] for s in steps]
    return table(["steps", *(METHODS[method].title for method in methods)], rows)


def seeded(trials: Sequence[Trial]) -> str:
    """:func:`cell`, with the number of seeds if incomplete."""
    text, seeds = cell(trials), len(trials)
    return text if not 0 < seeds < catalog.SEEDS else f"{text}, {seeds} seed{'s' * (seeds != 1)}"


def times(trials: Sequence[Trial], systems: Sequence[str]) -> str:
    """Durations of trainings, and times to the thresholds."""
    rows = []
    for system in systems:
        for method in averages.seen(trials, "method", METHODS):
            if (found := timing.times(trials, method, system)) is not None:
                to = [timing.reached(found, threshold) for threshold in catalog.THRESHOLDS]
                rows.append([system, METHODS[method].title, str(found.trainings), f"{found.longest_s:.0f} s", *to])
    return table(["system", "method", "trainings", "longest, CPU time",
                  *(f"to {threshold:g}" for threshold in catalog.THRESHOLDS)], rows)
