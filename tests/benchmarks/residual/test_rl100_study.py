"""The study of RL-100's pipeline asks its target of the last stage on the worst seed; missing seeds are said."""

from __future__ import annotations

from temporeal_benchmarks.residual.rl100_study import SEEDS, judged


def test_the_last_stage_of_the_worst_seed_is_judged_and_missing_seeds_are_said() -> None:
    trials = {f"reach-{seed}": {"stages": {"imitation": {"success": 0.2 * seed},
                                           "one_step": {"success": 1 - 0.02 * seed}},
                                "train_cpu_s": 100.0 * seed} for seed in SEEDS}
    reach, push = judged(trials)
    assert reach.value == 0.94 and reach.ok is False
    assert "imitation 0.200 to 0.600; 200 s of a core each" in str(reach.peer)
    assert push.value is None and "0 of 3 seeds" in str(push.peer)
