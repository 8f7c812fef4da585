"""``temporeal bench stl-tasks``: methods that satisfy formulas, compared on the suite."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import complain
from temporeal.policies.cli.deployment.exclusive_folder import Lock, held
from temporeal.policies.evaluate.suite import averages, catalog
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.machine import short_revision
from temporeal_benchmarks.options import count, single
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_study.formula_files import check_files
from temporeal_benchmarks.stl_study.items import Item, selection, suite_tasks
from temporeal_benchmarks.stl_study.progress import QUICK_LIMIT, QUICK_TRIAL, Progress
from temporeal_benchmarks.stl_study.study import STUDY as STUDY_FILE
from temporeal_benchmarks.stl_study.study import Study, lacking, read
from temporeal_benchmarks.stl_study.work import work_off

HELP = (
    "the suite of formulas (configs/task/stl): TGPO, without its critic's guidance, without its starts in the "
    "middle of missions, and its baselines, each formula, method and seed a process of its own, on one core, with the "
    "same CPU time per system; judged on 1000 fresh starts (planners: as many as their time allows) by the formula's "
    "exact Boolean verdict, Clopper-Pearson intervals. Options: --systems, --methods, --tasks, --seeds, each a list "
    "such as linear,unicycle; --parallel. "
    "Everything takes days. It is cut into trials, which are kept in outputs/bench/stl-tasks while settings and code "
    "are the same: the same command goes on where it was; the page there, index.html, and tables.md are written anew "
    "after each. "
    "--quick: two formulas, short, within 10 minutes"
)
DAYS = True

SAME = ("the formula's file, the budget and the settings are the same (early trials keep no digest of all their "
        "settings: of these only the settings on the command line are compared)")
OPTIONS = {
    "systems": "robots of the suite, such as linear,unicycle (default: all)",
    "methods": f"of {','.join(METHODS)} (default: all; quick: without {catalog.HOME})",
    "tasks": "formulas, such as linear_reach,linear_seq (default: all of the systems)",
    "seeds": "whole numbers (default: 1,2,3; quick: 1)",
    "reuse": f"an earlier study.json: its trials are taken over where {SAME}, whatever the code was; the page says how "
             "many, and of how many not all settings are known",
    "judge": f"a folder of this benchmark: policies that were trained there are judged by today's code instead of "
             f"being trained anew where {SAME}; such a trial names both revisions",
    "parallel": "trials at once, each on a core of its own (default: as many as there are cores)",
}
NARROWING = ("systems", "methods", "tasks", "seeds")
STUDY = STUDY_FILE
NAME = "temporeal bench stl-tasks"
FOLDER = Path("outputs/bench/stl-tasks")
DYING = 1.0  # s, chosen: a folder whose study was killed is free as soon as its trials are gone, too
QUICK = "quick"  # folder of its trials


def run(
    quick: bool = False, *, out: Path = FOLDER, systems: list[str] | None = None, methods: list[str] | None = None,
    tasks: list[str] | None = None, seeds: list[str] | None = None, reuse: list[str] | None = None,
    judge: list[str] | None = None, parallel: list[str] | None = None,
) -> list[Row]:
    """Make the trials that are asked for and not there yet; rows and the page of all that are."""
    known = suite_tasks()
    items = selection(known, quick, systems, methods, tasks, seeds)
    at_once = count("parallel", parallel, len(os.sched_getaffinity(0)))
    check_files({item.task: None for item in items})
    study = Study(out / QUICK if quick else out, known, quick)
    # a trial has the descriptor, too: none of a study that is gone writes beside another's
    with ExitStack() as stack:
        lock = stack.enter_context(held(study.folder, NAME, DYING))
        if reuse is not None:
            taken = study.take_over(single("reuse", "file", reuse))
            complain(f"  {taken} trials of {reuse[0]} are taken over")
        before = None if judge is None else with_policies(Path(single("judge", "folder", judge)))
        if before is not None and not before.samefile(study.folder):  # no other study may train them anew meanwhile
            stack.enter_context(held(before, NAME, DYING))
        return go_on(study, items, at_once, before, lock)


def go_on(study: Study, items: Sequence[Item], at_once: int, judge: Path | None, lock: Lock) -> list[Row]:
    """Make those of ``items`` that are not there yet, ``judge``: the policies of a folder where they suit; the rows."""
    todo = [item for item in items if study.kept(item) is None]
    done = len(items) - len(todo)
    complain(f"  {len(items)} trials, {done} of them done already, in {study.folder}; {at_once} at once")
    progress = Progress(todo, at_once, time.monotonic() + QUICK_LIMIT if study.quick else None)
    before = {} if judge is None else policies_of(judge, study, todo)
    left = work_off(todo, study.folder, progress, study.write, before, lock)
    if left:
        complain(f"  {left} trials are left: the time of --quick is over, or one took longer than {QUICK_TRIAL:.0f} s, "
                 "as on a busy machine; the same command makes them")
    rows = study.write()
    complain(f"  page: {study.folder / 'index.html'}")
    return rows


TRAINED = ("wall_s", "cpu_s", "peak_memory_B", "settings")  # what a training says of itself, and its folder does not


def with_policies(folder: Path) -> Path:
    """``folder``, if it is one of this benchmark that has policies."""
    if not (folder / "runs").is_dir():
        raise BadInput(f"--judge: {folder} has no policies: a folder of this benchmark, with runs/ in it, such as "
                       f"{FOLDER}")
    return folder


def policies_of(folder: Path, study: Study, todo: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """By the names of trials: what an order says of the policy that ``folder`` has for them."""
    now, out = short_revision(), dict[str, dict[str, Any]]()
    for item in todo:
        found, run_folder = read(folder / f"{item.name}.json"), folder / "runs" / item.name
        if (found is not None and METHODS[item.method].kind == catalog.LEARNER and found.get("status") == averages.DONE
                and not lacking(found) and study.suits(item, found) and run_folder.is_dir()):
            out[item.name] = {"run": str(run_folder), "trained": {k: found.get(k) for k in TRAINED}, "taken_over": True,
                              "parallel": found.get("parallel"), "revision": found["revision"], "judged_by": now}
    complain(f"  {len(out)} policies of {folder} are judged again")
    return out
