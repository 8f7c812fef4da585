"""Models of progress on held-out episodes: order of successes, failures against successes, agreement with the formula.

Each model learns from small sets of mixed quality (a third each of expert, medium and random episodes) from state, and
is judged by the fifth of the episodes that it held out: VOC until the task is done, AUC of last values, the share of
steps in which a value falls. Targets are asked of one model; the others stand beside it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from temporeal.policies.data.curation.robustness import judge, table_of
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.evaluate.progress_models import Summary, judged, summary
from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of
from temporeal.policies.runs.learners import algorithm
from temporeal.policies.runs.offline import task_of
from temporeal.policies.runs.progress import done_at
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.training.progress_models.moments import held_out
from temporeal_benchmarks.rows import Row, at_least

VOC, AUC = 0.9, 0.9  # targets
SETS = {"reach": ("task=reach", "severity=0.5"), "push": ("task=push", "severity=0.47")}
"""Words of the sets; the severity of their medium episodes is one that satisfies about half."""
EPISODES = {"reach": 240, "push": 120}
MODELS = ("vlac", "attribution", "gvl", "q_progress", "contrastive_goals")
"""Those that learn from state; vptr learns from pictures."""
JUDGE = "vlac"
"""The model of which the targets are asked: the one that pages name first."""


def rows(quick: bool, out: Path, seed: int = 1) -> list[Row]:
    """Figures of all models on all sets."""
    found = list[Row]()
    for name in SETS:
        judged_by = judged_set(name, 20 if quick else EPISODES[name], out, seed)
        for model in MODELS:
            figures, seconds = learned(model, *judged_by, out / f"{name}-{model}", 20 if quick else None, seed)
            found += judged_rows(f"vla.progress.{name}.{model}", figures, seconds, model == JUDGE and not quick)
    return found


def judged_set(name: str, episodes: int, out: Path, seed: int) -> tuple[Dataset, np.ndarray, np.ndarray | None]:
    """The set ``name``, that of an earlier run where it is there; robustness of its episodes, and the samples at which
    their tasks were done."""
    folder = out / f"{name}-{episodes}-{seed}"
    if not folder.exists():
        words = [*SETS[name], "quality=mixed", f"episodes={episodes}", f"seed={seed}", f"out={folder}"]
        generate(request_of(words))
    data = Dataset.open(folder)
    task = task_of(data)
    assert task is not None
    return data, judge(task.formula, table_of(data)).robustness, done_at(data, task)


def learned(
    name: str, data: Dataset, robust: np.ndarray, done: np.ndarray | None, out: Path, updates: int | None, seed: int
) -> tuple[Summary, float]:
    """Figures on the held-out episodes of a model of default settings, and s of the processor that it learned."""
    module, config = algorithm(compose([f"algo={name}"]))
    config = config if updates is None else replace(config, updates=updates, report_updates=updates)
    began = time.process_time()
    model = module.train(data, config, out=out, seed=seed, done=done).model
    seconds = time.process_time() - began
    episodes = held_out(data.episodes, config.hold_out).tolist()
    return summary(list(judged(model, data, episodes, robust, done))), seconds


def judged_rows(key: str, figures: Summary, seconds: float, counts: bool) -> list[Row]:
    """Rows of one model on one set; ``counts``: judged by the targets."""
    of = f"{figures.successes} successes, {figures.failures} failures, held out; {seconds:.0f} s of training"
    values = (("voc", figures.voc, VOC), ("auc", figures.auc, AUC))
    found = [at_least(f"{key}.{name}", value, "1", target, of) if counts else Row(f"{key}.{name}", value, "1", peer=of)
             for name, value, target in values]
    return [*found, Row(f"{key}.negative_rate", figures.negative_rate, "1", peer="of steps of successes"),
            Row(f"{key}.agreement", figures.agreement, "1", peer="rank correlation with the robustness")]
