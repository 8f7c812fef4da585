"""The study of RLPD asks its target of the worst seed, with intervals, and says which seeds are missing."""

from __future__ import annotations

from temporeal_benchmarks.residual.rlpd_study import SEEDS, judged


def test_the_worst_seed_is_judged_and_missing_ones_are_said() -> None:
    trials = {f"lift-{seed}": {"successes": 512 - 10 * seed, "trials": 512, "low": 0.9, "high": 0.99,
                               "train_cpu_s": 100.0 * seed} for seed in SEEDS}
    row, = judged(trials)
    assert row.value == 482 / 512 and row.ok is False
    assert "482 of 512 [0.900, 0.990]" in str(row.peer) and "300 s of a core at most" in str(row.peer)
    missing, = judged({"lift-2": trials["lift-2"]})
    assert missing.value is None and missing.ok is False and "1 of 3 seeds" in str(missing.peer)
