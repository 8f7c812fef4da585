"""The suite's comparison as one self-contained HTML page.

    write_page(path, {"trials": [...], "rows": [...], ...})  # a study of `temporeal_benchmarks.measurements.stl_tasks`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from temporeal.policies.evaluate.report.charts import interval
from temporeal.policies.evaluate.suite import averages, catalog, comparison, figures, timing
from temporeal.policies.evaluate.suite.averages import Share, Trial
from temporeal.policies.evaluate.suite.catalog import METHODS, SYSTEMS
from temporeal.policies.training.progress import clock

STYLE = """
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 14px 0; font-size: 13.5px; }
td.none { color: var(--muted); } td .interval { min-width: 90px; max-width: 180px; height: 12px; }
.chart { max-width: 820px; margin: 12px 0; }
.map { max-width: 360px; } figure { margin: 0; } figcaption { font-size: 13px; margin-top: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr)); gap: 14px; }
svg .goal { fill: var(--goal); fill-opacity: 0.28; stroke: var(--goal); }
svg .avoid { fill: var(--avoid); fill-opacity: 0.25; stroke: var(--avoid); }
svg .fence { fill: none; stroke: var(--line); }
svg .path { fill: none; stroke: var(--accent); stroke-width: 1.3; opacity: 0.85; }
svg .path.failed { stroke: var(--bad); stroke-dasharray: 4 3; }
svg .start { fill: var(--accent); }
svg .label { font-size: 10px; fill: var(--text); }
svg .line { fill: none; stroke-width: 1.8; } svg .whisker { stroke-width: 1.2; }
"""

Study = Mapping[str, Any]


def write_page(path: Path, study: Study) -> None:
    """Write the page of ``study``.

    Its keys: ``trials``; ``rows`` (figures with their targets); ``tasks`` (all formulas of the suite, tried or not);
    ``command``; ``quick``; ``stale`` (trials left out because of other code or settings); ``taken_over`` (trials of
    other code that were kept); ``unknown`` (trials without a record of all settings); ``revisions``; ``tried`` (by row:
    remedies tried for a missed target).
    """
    from temporeal.robots.atomic_files import write_whole

    write_whole(path, page(study).encode())


def page(study: Study) -> str:
    """The page's HTML."""
    body = "\n".join(f'<section id="{name}"><h2>{title}</h2>\n{make(study)}</section>'
                     for name, title, make in SECTIONS)
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in SECTIONS)
    style = files("temporeal.policies.evaluate.report").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    return ('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>Temporal-logic tasks</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
            f"<h1>Temporal-logic tasks</h1>\n{head(study)}\n<nav>{links}</nav>\n{body}\n</main>\n</body>\n</html>\n")


def head(study: Study) -> str:
    """What the study is, and its size."""
    trials = study["trials"]
    tasks, seeds = {t["task"] for t in trials}, {t["seed"] for t in trials}
    quick = "<p><strong>A quick run: it shows the form, its figures are not to be quoted.</strong></p>" if study.get(
        "quick") else ""
    stale = f" {study['stale']} trials of other code or settings are left out." if study.get("stale") else ""
    if study.get("taken_over"):
        stale += f" {study['taken_over']} trials were made with earlier code; study.json names the revision of each."
    if study.get("unknown"):
        stale += (f" Of {study['unknown']} trials only the formula and the settings on the command line are known to "
                  "be those of now: they keep no digest of all settings, and their method's defaults may have been "
                  "others.")
    return (f"{quick}<p>Trials: {len(trials)}; formulas: {len(tasks)}; methods: {len({t['method'] for t in trials})}; "
            f"seeds: {len(seeds)}.{stale} Made by <code>{escape(str(study.get('command', '')))}</code>, revision "
            f"{escape(', '.join(study.get('revisions', [])) or 'unknown')}, on {escape(timing.processors(trials))}. "
            "The formulas are of this suite: those of the paper are not public, so its figures are of other tasks.</p>")


# ---------------------------------------------------------------- tables


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table. Cells are HTML; one that begins with ``<td`` brings its own tag."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in row) + "</tr>\n"
                   for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n'


def share_cell(share: Share | None, require: float | None = None, *, of: int | None = 1) -> str:
    """A share with its interval; in small print what it leaves out and, if incomplete, its part of the study. ``of``:
    number of existing formulas; None: unknown."""
    if share is None:
        return '<td class="none">–</td>'
    if share.not_supported == share.formulas:
        return '<td class="none">not supported</td>'
    if share.failed and not share.episodes:
        return '<td class="bad">failed</td>'
    notes = averages.extent(share, of)
    notes += [f"{share.not_supported} of {share.formulas} not supported"] if share.not_supported else []
    notes += [f"{share.failed} failed"] if share.failed else []
    small = f'<div class="muted small">{"; ".join(notes)}</div>' if notes else ""
    return (f"<td>{share.estimate:.3f} <span class=\"muted\">[{share.low:.3f}, {share.high:.3f}]</span>"
            f"{interval(share.low, share.estimate, share.high, require)}{small}</td>")


def method_cell(method: str) -> str:
    """Name and description of a method."""
    return f'<strong>{METHODS[method].title}</strong><div class="muted small">{escape(METHODS[method].about)}</div>'


def nothing(text: str) -> str:
    """Placeholder for missing content."""
    return f'<p class="muted">{text}</p>'


# ---------------------------------------------------------------- sections


def targets(study: Study) -> str:
    """Figures against their targets."""
    mark = {True: '<td class="good">reached</td>', False: '<td class="bad">missed</td>',
            None: '<td class="none">not judged</td>'}
    rows = [[f"<code>{escape(r['name'])}</code>", number(r["value"]), escape(r["unit"]), number(r["target"]),
             mark[r["ok"]], escape(str(r["peer"] or "")) + tried(study, r)]
            for r in study["rows"] if r["target"] is not None]
    if not rows:
        return nothing("No trial has a target yet.")
    note = ("<p>A row is judged once all its formulas have at least three seeds; a margin below its target is missed "
            "so far. Success is the mean over the formulas of a system, each with the same weight.</p>")
    return note + table(["figure", "value", "unit", "target", "", "of"], rows)


def tried(study: Study, row: Mapping[str, Any]) -> str:
    """The remedies tried for a missed target."""
    text = comparison.tried(study, row)
    return f'<div class="small">Tried: {escape(text)}</div>' if text else ""


def number(value: Any) -> str:
    """A figure, or its text."""
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) else f"{value:.4g}"


def success(study: Study) -> str:
    """Success of methods by systems."""
    trials = study["trials"]
    systems = averages.seen(trials, "system", SYSTEMS)
    rows = []
    for method in averages.seen(trials, "method", METHODS):
        cells = [share_cell(averages.system_share(trials, method, system),
                            SYSTEMS[system].success if method == catalog.OURS else None,
                            of=averages.formulas_of(study, system)) for system in systems]
        rows.append([method_cell(method), *cells])
    if not rows:
        return nothing("No trial is done yet.")
    note = ("<p>Mean over the formulas of each system and all seeds, 95 % Clopper-Pearson intervals over all episodes. "
            "A formula that a method does not support counts as 0, as in the published comparisons; the second table "
            "is over those that each supports, so methods may stand on different formulas there. A failed training "
            "counts as 0. Seeds differ by more than the intervals tell: the third table has the least and the greatest "
            "mean of a single seed, and a 95 % interval over trainings (of each formula as many are drawn anew as "
            "there are: with three it is too narrow rather than too wide). Small print says of how many formulas and "
            "seeds a mean is where some are missing: such means are over different formulas, and not to be "
            "compared.</p>")
    return (note + table(["method", *systems], rows) + "<h3>Over the formulas that each supports</h3>"
            + table(["method", *systems], by_system(trials, systems, lambda m, s: share_cell(
                averages.system_share(trials, m, s, refused_as_zero=False), of=averages.formulas_of(study, s))))
            + "<h3>Least and greatest seed</h3>"
            + table(["method", *systems], by_system(trials, systems, lambda m, s: by_seed(trials, m, s))))


def by_seed(trials: Sequence[Trial], method: str, system: str) -> str:
    """Least and greatest mean of a seed, and the interval over trainings."""
    over = averages.training_interval(trials, method, system)
    small = "" if over is None else f'<div class="muted small">[{over[0]:.3f}, {over[1]:.3f}] over trainings</div>'
    return span(averages.seed_range(trials, method, system)) + small


def by_system(
    trials: Sequence[Trial], systems: Sequence[str], cell: Callable[[str, str], str]
) -> list[list[str]]:
    """A row for each method, a cell for each system."""
    return [[METHODS[method].title, *(cell(method, system) for system in systems)]
            for method in averages.seen(trials, "method", METHODS)]


def span(found: tuple[float, float] | None) -> str:
    """A range of two numbers."""
    return "–" if found is None else f"{found[0]:.3f} to {found[1]:.3f}"


def layers(study: Study) -> str:
    """Two-layer and multi-layer formulas separately."""
    trials = study["trials"]
    systems = averages.seen(trials, "system", SYSTEMS)
    columns = [(system, kind) for system in systems for kind in ("two", "multi")]
    rows = [[METHODS[method].title, *(share_cell(averages.system_share(trials, method, s, kind),
                                                of=averages.formulas_of(study, s, kind)) for s, kind in columns)]
            for method in averages.seen(trials, "method", METHODS)]
    note = ("<p>Two-layer: no temporal operator inside another. Multi-layer: at least one inside another. Formulas "
            "that are not supported count as 0.</p>")
    return note + table(["method", *(f"{s}, {kind}" for s, kind in columns)], rows) if rows else nothing("None yet.")


def formulas(study: Study) -> str:
    """Every formula with every method."""
    trials, out = study["trials"], []
    for system in averages.seen(trials, "system", SYSTEMS):
        own = averages.of(trials, system=system)
        methods = averages.seen(own, "method", METHODS)
        rows = [[f"<strong>{escape(task)}</strong>{formula_text(own, task)}",
                 *(share_cell(averages.formula_share(averages.of(own, task=task, method=m))) for m in methods)]
                for task in sorted({t["task"] for t in own})]
        out.append(f"<h3>{system}</h3>" + table(["formula", *(METHODS[m].title for m in methods)], rows))
    return "".join(out) or nothing("None yet.")


def formula_text(trials: Sequence[Trial], task: str) -> str:
    """The formula in small print, folded."""
    text = next((t["formula"] for t in trials if t["task"] == task and "formula" in t), "")
    return f'<details class="small"><summary class="muted">formula</summary><code>{escape(text)}</code></details>'


def horizons(study: Study) -> str:
    """Success on one formula against the length of its windows."""
    trials = study["trials"]
    found = {METHODS[m].title: points for m in METHODS if (points := comparison.by_horizon(trials, m))}
    if not found:
        return nothing("No trial of the study of horizons is done yet (linear_horizon_50 to linear_horizon_1000).")
    steps = sorted({x for points in found.values() for x, _ in points})
    rows = [[name, *(share_cell(dict(points).get(x)) for x in steps)] for name, points in found.items()]
    note = ("<p>One formula of system linear whose windows grow with the horizon, in control steps; with the same "
            "time of training.</p>")
    return (note + '<div class="panel chart">' + figures.horizon_chart(found) + "</div>"
            + table(["method", *(str(x) for x in steps)], rows))


def durations(study: Study) -> str:
    """Durations of trainings and plans."""
    trials, out = [t for t in study["trials"] if not averages.is_scaling(t["task"])], []
    note = ("<p>The study of horizons is left out. Training: CPU time from process start, median and longest; where "
            "trials ran at most two at once, also the longest wall time. To a threshold: seconds of learning from "
            f"which on such a share of the whole episodes was a success, exploring, over {timing.POOL} of them or some "
            "more and on the average of all that followed (TGPO: kept the drawn schedule, harder than the formula; of "
            "STL-NPC: of an update's missions, as its model predicts them); the median over the trainings that tell "
            "it, those that did not get there as infinite, so that there is none where half did not; in brackets how "
            "many got there. Trainings of before tell only the success of the episodes that ended in one iteration, "
            "often a single one, which is no measure: they are in no curve and no time to a threshold. Planners: "
            "seconds per start, simulation included; where their time (that of a training) was over before all "
            "starts, the number that was judged.</p>")
    for system in averages.seen(trials, "system", SYSTEMS):
        rows = [r for method in averages.seen(trials, "method", METHODS) if (r := time_row(trials, method, system))]
        if rows:
            curves = figures.learning_chart(averages.of(trials, system=system))
            header = ["method", "training", "longest", *(f"to {x:g}" for x in catalog.THRESHOLDS), "per plan", "starts"]
            out.append(f"<h3>{system}: {timing.budget(trials, system)} each</h3>" + table(header, rows)
                       + (f'<div class="panel chart">{curves}</div>' if curves else ""))
    rows = [[escape(cell) for cell in row] for row in timing.given(trials)]
    out += ["<h3>What each was given</h3><p>CPU time of the longest trial, of its training and of all its plans, "
            "without judging. A planner's batch that has begun is not cut off; CPU time is worth more on a faster "
            "processor.</p>" + table(timing.GIVEN, rows)] if out else []
    return note + "".join(out) if out else nothing("No trial is done yet.")


def time_row(trials: Sequence[Trial], method: str, system: str) -> list[str]:
    """Times of one method on one system; empty without trials."""
    done = averages.of(trials, method=method, system=system, status=averages.DONE)
    if not done:
        return []
    found = timing.times(trials, method, system)
    to = [reached(found, threshold) for threshold in catalog.THRESHOLDS]
    took = [clock(found.cpu_s), clock(found.longest_s) + wall(found)] if found else ["–", "–"]
    plans = sorted(t["plan_s"] for t in done if "plan_s" in t)
    least, most = min(t["episodes"] for t in done), max(t["episodes"] for t in done)
    starts = str(least) if least == most else f"{least} to {most}"
    return [METHODS[method].title, *took, *to, f"{plans[len(plans) // 2]:.3g} s" if plans else "–", starts]


def wall(found: timing.Times) -> str:
    """The longest wall time, in small print, of the trainings that ran at most two at once."""
    count, longest = found.wall
    return "" if longest is None else f'<div class="muted small">wall time {clock(longest)} ({count})</div>'


def reached(found: timing.Times | None, threshold: float) -> str:
    """Median seconds to a threshold, how many of the trainings that record it reached it, and how many do not record
    it."""
    if found is None:
        return "–"
    missing = found.trainings - found.pooled if found.pooled else 0
    small = f'<div class="muted small">of {missing} not measured</div>' if missing else ""
    return timing.reached(found, threshold) + small


def trajectories(study: Study) -> str:
    """Sample episodes over the regions of each formula: ours, and its best baseline."""
    trials, tiles = study["trials"], []
    for task in sorted({t["task"] for t in trials}):
        for method in shown_methods(trials, task):
            done = averages.of(trials, task=task, method=method, status=averages.DONE)
            trial = next(t for t in done if t.get("paths"))
            share = averages.formula_share(averages.of(trials, task=task, method=method))
            caption = f"{escape(task)}, {METHODS[method].title}: {share.estimate:.3f}" if share else escape(task)
            tiles.append(f'<figure class="panel">{figures.scene(trial)}<figcaption>{caption}</figcaption>'
                         "</figure>")
    note = ("<p>Green: asked to be in; red: to keep out of. Episodes of one seed: blue satisfied, red and dashed not; "
            "the dot is the start. Of robots in space the view from above, below it from the side.</p>")
    done = averages.of(trials, status=averages.DONE)
    missing = not_kept("episodes", [t for t in done if not t.get("paths")], done, "trials")
    return (note + f'<div class="tiles">{"".join(tiles)}</div>' if tiles else "") + missing


def not_kept(what: str, without: Sequence[Trial], all_of: Sequence[Trial], kind: str) -> str:
    """How many trials have nothing to draw; empty if all have."""
    if not all_of:
        return nothing("No trial is done yet.")
    ours = METHODS[catalog.OURS].title
    left = f"Of {len(without)} of {len(all_of)} {kind} that are done no {what} are kept"
    none = [system for system in SYSTEMS if (own := averages.of(all_of, system=system))
            and len(averages.of(without, system=system)) == len(own)]
    left += f" (of {' and '.join(none)} none at all)" if none else ""
    return nothing(f"{left} to draw: they stay in the folder in which a trial was made, and of those that were taken "
                   f"over from a study.json there are at most the ones of one seed of {ours} for "
                   "each formula.") if without else ""


def shown_methods(trials: Sequence[Trial], task: str) -> list[str]:
    """TGPO* and the best baseline or reference on ``task`` among those with recorded episodes."""
    there = {t["method"] for t in averages.of(trials, task=task, status=averages.DONE) if t.get("paths")}
    found = {m: s.estimate for m in catalog.BASELINES if m in there
             and (s := averages.formula_share(averages.of(trials, task=task, method=m))) is not None}
    best = [max(found, key=lambda m: found[m])] if found else []
    ours = next(([m] for m in (catalog.OURS, catalog.UNIFORM) if m in there), [])
    return [*ours, *best]


def critic(study: Study) -> str:
    """The critic's value over two time variables."""
    tiles, done = [], averages.of(study["trials"], method=catalog.OURS, status=averages.DONE)
    for trial in sorted(done, key=lambda t: (t["task"], t["seed"])):
        if trial.get("heat") and not any(trial["task"] == name for name, _ in tiles):
            figure = figures.heat_map(trial["heat"])
            tiles.append((trial["task"], f'<figure class="panel">{figure}<figcaption>{escape(trial["task"])}, seed '
                                         f"{trial['seed']}</figcaption></figure>"))
    note = ("<p>The value that the critic gives to schedules at the starts of a mission, over the two time variables "
            "with the most room, the others as in the schedule that it likes best (the ring); mean over some starts. "
            "Times that the formula does not allow are blank.</p>")
    title = f"trials of {METHODS[catalog.OURS].title}"
    missing = not_kept("values", [t for t in done if "heat" not in t], done, title)
    if tiles:
        return note + f'<div class="tiles">{"".join(t for _, t in tiles)}</div>' + missing
    return missing or nothing(f"None of the {len(done)} {title} is on a formula with two time variables that have "
                               "room.")


def failures(study: Study) -> str:
    """The clauses that fail first."""
    trials, rows = study["trials"], []
    for task in sorted({t["task"] for t in trials}):
        for method in averages.seen(averages.of(trials, task=task), "method", METHODS):
            found = comparison.first_to_fail(trials, method, task)
            if found:
                text = "<br>".join(f"{share:.1%} <code>{escape(clause)}</code>" for clause, share in found.items())
                rows.append([escape(task), METHODS[method].title, text])
    note = "<p>Of all episodes, the share in which each clause of the formula was the first that failed.</p>"
    return note + table(["formula", "method", "first to fail"], rows) if rows else nothing("No episode has failed.")


def notes(study: Study) -> str:
    """Contents left out of the averages, and how trials are made."""
    trials = study["trials"]
    refused, failed = (averages.of(trials, status=s) for s in (averages.NOT_SUPPORTED, averages.FAILED))
    systems = averages.seen(trials, "system", SYSTEMS)
    budgets = ", ".join(f"{name} {timing.budget(trials, name)}" for name in systems) or "none yet"
    out = ["<ul><li>Every trial is a process of its own. Trainings of a system have the same CPU time (on a core that "
           f"has nothing else to do, that is wall time): {budgets}. "
           "Planners plan for as long, looking at the clock between batches of starts; STL-NPC for as long again after "
           "its training. Each runs on one thread, as many at once as its file says.</li>"
           "<li>STL-NPC, CEM and MILP are given the system's model, on most systems that of the simulator itself, and "
           "plan for each start; the policies of the others act at once. PPO, RNN, τ-MDP and F-MDP are given samples "
           "only, of episodes that start where the task's do. TGPO is given more: half of its training's worlds start "
           "in the middle of missions, at places that it chooses, and the system's pace and the signals that its model "
           "has of a start tell whether a mission can go on from there. On the ant only TGPO sees the slopes over its "
           "place of what is asked for, in the robot's frame, and is spared the rest of episodes whose robot is lost "
           "(it has fallen over). What the starts are worth: TGPO* from home has none of them.</li>"
           "<li>The settings of the learners that TGPO is compared with were chosen by looks at a few formulas, "
           "linear_reach before all; that observations are normalized with the arm, and that a softer minimum pays RNN "
           "and τ-MDP on the quadrotor and RNN with the arm, by trainings that are judged here. On other formulas "
           "other settings might do better. They keep algo.desired_kl 0.01 (on the ant 0.02), "
           "where TGPO's is 0.03.</li>"
           "<li>Learning curves are of the training's own episodes from their beginnings, exploring: of TGPO the share "
           "that kept the schedule that was drawn, which is less than the share that satisfied the formula.</li>"
           "<li>Judged are deterministic policies on starts of a seed that no training has, by the exact Boolean "
           "verdict of the formula on the simulated traces.</li>"
           f"<li>The margin is over the baselines {', '.join(METHODS[m].title for m in catalog.BASELINES)}, on systems "
           "where all of them run that are for it: MILP, which is exact, is for the linear system only.</li>"
           "<li>The study of horizons is in none of the averages over formulas.</li></ul>"]
    for title, found in (("Not supported", refused), ("Failed", failed)):
        rows = {(t["task"], t["method"]): t["reason"] for t in found}
        out.append(f"<h3>{title}: {len(rows)}</h3>" + (table(["formula", "method", "why"], [
            [escape(task), METHODS[method].title, escape(why[:400])] for (task, method), why in sorted(rows.items())])
            if rows else nothing("None.")))
    return "".join(out)


SECTIONS: tuple[tuple[str, str, Callable[[Study], str]], ...] = (
    ("targets", "Targets", targets), ("success", "Success by method and system", success),
    ("layers", "Two-layer and multi-layer formulas", layers), ("formulas", "Every formula", formulas),
    ("horizons", "Success against horizon", horizons), ("time", "Time to threshold", durations),
    ("trajectories", "Trajectories", trajectories), ("critic", "What the critic expects of schedules", critic),
    ("failures", "Which clause fails first", failures), ("notes", "How it was made, what is not supported", notes))
