"""The study of progress models asks its targets of the worst seed, and says which seeds are missing."""

from __future__ import annotations

from temporeal_benchmarks.vla import progress_study
from temporeal_benchmarks.vla.progress_study import SEEDS, judged, name_of


def test_the_worst_seed_is_judged_and_missing_ones_are_said() -> None:
    trials = {name_of("reach", "vlac", seed): {"voc": 0.88 + 0.02 * seed, "auc": 0.85 + 0.02 * seed} for seed in SEEDS}
    trials[name_of("push", "vlac", 1)] = {"voc": 1.0, "auc": 1.0}
    rows = {row.name: row for row in judged(trials)}
    assert len(rows) == 2 * 2 * len(progress_study.progress.MODELS)
    assert rows["vla.progress.reach.vlac.seeds.voc"].value == 0.9 and rows["vla.progress.reach.vlac.seeds.voc"].ok
    assert rows["vla.progress.reach.vlac.seeds.auc"].ok is False
    assert "1 of 3 seeds" in str(rows["vla.progress.push.vlac.seeds.voc"].peer)
    assert rows["vla.progress.push.gvl.seeds.auc"].target is None
