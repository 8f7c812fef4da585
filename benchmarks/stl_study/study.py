"""The trials that a folder keeps: which of them hold, which are taken over, and what is written of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.evaluate.suite import averages, catalog
from temporeal.policies.evaluate.suite.averages import Trial
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.results import as_json, study_document
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_study.digests import besides, code_digest, settings_digest
from temporeal_benchmarks.stl_study.figures import TRIED, rows_of
from temporeal_benchmarks.stl_study.formula_files import flaw, formula_digest
from temporeal_benchmarks.stl_study.items import CPU_CLOCK, Item
from temporeal_benchmarks.stl_study.renamed import words_today

STUDY = "study.json"


@dataclass
class Study:
    """The trials in a folder that hold: made with these settings and this code, or taken over."""

    folder: Path
    tasks: Sequence[str]
    quick: bool

    def kept(self, item: Item) -> dict[str, Any] | None:
        """The trial, if it is there, holds, and did not fail."""
        found = self.holds(item)
        return None if found is None or found["status"] == averages.FAILED else found

    def holds(self, item: Item) -> dict[str, Any] | None:
        """The trial, if it is there and was made with the settings and the code of now, or taken over."""
        found = read(self.folder / f"{item.name}.json")
        if found is None or not self.suits(item, found):
            return None
        if not found.get("taken_over") and found.get("code") != code_digest(item):
            return None
        whole = found.get("status") != averages.DONE or found["episodes"] >= item.episodes or found.get("few_starts")
        return found if whole and "status" in found else None

    def suits(self, item: Item, found: Trial) -> bool:
        """Whether a trial is of the formula, the settings and the budget of ``item``: of all settings where it keeps
        them, however its command line put them, else
        (:func:`temporeal.policies.evaluate.suite.averages.unknown_settings`) of those that a command line names."""
        was = tuple(found.get(k) for k in ("formula_file", "budget_s", "quick"))
        if was != (formula_digest(item.task), item.budget_s, item.quick) or flaw(item.task):
            return False
        known, given = found.get("settings"), words_today(found.get("words") or [])
        if known is not None:
            return known == settings_digest(item) and besides(given) == besides(item.words)
        words = item.words
        if CPU_CLOCK in words and CPU_CLOCK not in given and found.get("cpu_s", 0.0) >= item.budget_s:
            words = [word for word in words if word != CPU_CLOCK]  # by the wall clock, with a core for itself: the same
        return given == words

    def take_over(self, file: str) -> int:
        """Put the trials of a study.json that suit, and are not here, into the folder; how many that are."""
        from temporeal.robots.atomic_files import write_whole

        study = read(Path(file))
        if study is None or not isinstance(study.get("trials"), list):
            raise BadInput(f"--reuse: {file} is no study.json of this benchmark: none can be read there")
        for number, trial in enumerate(study["trials"]):
            if missing := lacking(trial):
                raise BadInput(f"--reuse: {file} is damaged: trial {number} has no {missing}; a trial has "
                               f"{', '.join(MUST)}, and what is {averages.DONE} {', '.join(MUST_DONE)}")
        taken = 0
        for trial in study["trials"]:
            if trial.get("task") not in self.tasks or trial.get("method") not in METHODS:
                continue
            item = Item(trial["task"], trial["method"], trial["seed"], self.quick)
            if self.suits(item, trial) and trial["status"] != averages.FAILED and self.kept(item) is None:
                write_whole(self.folder / f"{item.name}.json",
                            (json.dumps({**trial, "taken_over": True}) + "\n").encode())
                taken += 1
        return taken

    def trials(self) -> tuple[list[dict[str, Any]], int]:
        """All that hold, and how many do not."""
        found, stale = [], 0
        for item in self.items():
            trial = self.holds(item)
            stale += trial is None
            found += [] if trial is None else [trial]
        return found, stale

    def items(self) -> Iterator[Item]:
        """What the files of the folder are named for."""
        for path in sorted(self.folder.glob("*.json")):
            name, _, seed = path.stem.rpartition("-")
            for method in METHODS if seed.isdigit() else ():
                if (task := name.removesuffix(f"-{method}")) != name and task in self.tasks:
                    yield Item(task, method, int(seed), self.quick)

    def write(self) -> list[Row]:
        """``study.json``, the page and its tables in Markdown; the rows."""
        from temporeal.policies.evaluate.suite.page import write_page
        from temporeal.policies.evaluate.suite.tables import write_tables
        from temporeal.robots.atomic_files import write_whole

        trials, stale = self.trials()
        rows = rows_of(trials, self.tasks, judged=not self.quick)
        whole = study_document(
            "stl-tasks", rows, trials, quick=self.quick, stale=stale,
            taken_over=sum(bool(t.get("taken_over")) for t in trials),
            unknown=len(averages.unknown_settings(averages.of(trials, status=averages.DONE))),
            seeds=sorted({t["seed"] for t in trials}), tasks=list(self.tasks), tried=dict(TRIED))
        write_page(self.folder / "index.html", whole)
        write_tables(self.folder / "tables.md", whole)
        write_whole(self.folder / STUDY, as_text(whole).encode())
        return rows


MUST: Mapping[str, type] = {"task": str, "method": str, "seed": int, "status": str, "system": str, "revision": str,
                            "words": list}
MUST_DONE: Mapping[str, type] = {"satisfied": int, "episodes": int}
"""What a trial of a study.json has at least, and one that is done besides."""


def lacking(trial: Any) -> str:
    """What ``trial`` lacks, or has of another kind; empty where it is one."""
    if not isinstance(trial, Mapping):
        return "entries"
    asked = {**MUST, **(MUST_DONE if trial.get("status") == averages.DONE else {})}
    return ", ".join(name for name, kind in asked.items() if not isinstance(trial.get(name), kind))


INLINE = ("curve", "paths", "heat", "shapes", "words", "machine", "success", "robustness", "slack_s", "first_to_fail")
"""What of a study is on a line of its own in its file."""
DRAWN = ("paths", "heat", "shapes")
"""What of a trial is for pictures only, and large."""
LEFT_OUT = ("run", "file", "terminated")
"""What of a trial says where it was made, on this machine only; and what early trials said wrongly: they counted
episodes' ends by the clock as early ones."""


def as_text(study: Mapping[str, Any]) -> str:
    """``study`` as JSON, without :data:`LEFT_OUT` and with few of its drawings (:func:`drawn_of`), which are
    rounded."""
    few = drawn_of(study["trials"])
    lean = [{key: rounded(value) if key in DRAWN else value for key, value in trial.items()
             if key not in (LEFT_OUT if number in few else (*LEFT_OUT, *DRAWN))}
            for number, trial in enumerate(study["trials"])]
    return as_json({**study, "trials": lean}, INLINE)


def drawn_of(trials: Sequence[Trial]) -> set[int]:
    """The numbers of the trials whose drawings are kept with the study: of TGPO*, on each formula the lowest seed that
    has any."""
    least: dict[str, int] = {}
    for number, trial in enumerate(trials):
        if trial["method"] == catalog.OURS and trial["status"] == averages.DONE and "paths" in trial:
            best = least.setdefault(trial["task"], number)
            least[trial["task"]] = number if trial["seed"] < trials[best]["seed"] else best
    return set(least.values())


def rounded(value: Any) -> Any:
    """``value`` with all numbers in it to 2 decimals, whole ones without any."""
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if not isinstance(value, float):
        return value
    near = round(value, 2)
    return int(near) if near.is_integer() else near


def read(file: Path) -> dict[str, Any] | None:
    """The JSON object in ``file``; None where there is none that is whole."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
