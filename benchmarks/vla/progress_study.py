"""Models of progress over three seeds: sets, models and held-out episodes of ``benchmarks/vla/progress.py``.

A seed is one set of each task, from generation on. Targets are asked of every seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.data.studies import Trial
from temporeal_benchmarks.rows import Row, at_least
from temporeal_benchmarks.vla import progress

SEEDS = (1, 2, 3)


def name_of(task: str, model: str, seed: int) -> str:
    """A trial's name."""
    return f"{task}.{model}.{seed}"


def study(out: Path) -> None:
    """The trials that are missing."""
    for seed in SEEDS:
        for task in progress.SETS:
            there = studies.read(out)
            if todo := [model for model in progress.MODELS if name_of(task, model, seed) not in there]:
                judged_set = progress.judged_set(task, progress.EPISODES[task], out, seed)
                for model in todo:
                    name = name_of(task, model, seed)
                    figures, seconds = progress.learned(model, *judged_set, out / name, None, seed)
                    studies.add(out, name, {**figures.to_json(), "seconds": seconds})


def judged(trials: Mapping[str, Trial]) -> list[Row]:
    """The least of the seeds, by set and model; targets are asked of the model that pages name first."""
    rows = list[Row]()
    for task in progress.SETS:
        for model in progress.MODELS:
            found = [trials[name] for seed in SEEDS if (name := name_of(task, model, seed)) in trials]
            rows += figures_of(task, model, found)
    return rows


def figures_of(task: str, model: str, found: list[Trial]) -> list[Row]:
    """Rows of one model on one set."""
    key, rows = f"vla.progress.{task}.{model}.seeds", list[Row]()
    for name, target in (("voc", progress.VOC), ("auc", progress.AUC)):
        asked = target if model == progress.JUDGE else None
        if len(found) < len(SEEDS):
            rows.append(studies.missing(f"{key}.{name}", "1", asked, "progress-study",
                                        f"{len(found)} of {len(SEEDS)} seeds are there", "vla"))
            continue
        least, all_of = min(one[name] for one in found), ", ".join(f"{one[name]:.2f}" for one in found)
        peer = f"the least of {len(found)} seeds: {all_of}"
        rows.append(Row(f"{key}.{name}", least, "1", peer=peer) if asked is None else
                    at_least(f"{key}.{name}", least, "1", asked, peer))
    return rows
