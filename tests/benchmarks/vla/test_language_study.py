"""What the study of language concludes from its trials."""

from __future__ import annotations

from temporeal_benchmarks.vla import language_study as study


def trial(successes: int) -> dict[str, int]:
    return {"successes": successes, "trials": 100}


def test_the_worst_seed_counts_and_missing_ones_are_said() -> None:
    trials = {f"{arm}/{seed}": trial(90 - seed) for arm in ("seen", "combinations", "wordings") for seed in (1, 2, 3)}
    trials |= {"swapped/1": trial(5), "swapped/2": trial(40), "swapped/3": trial(6)}
    trials |= {f"int8/{seed}": trial(89) for seed in (1, 2)}
    rows = {row.name: row for row in study.judged(trials)}
    assert rows["vla.language.seen"].value == 0.87 and rows["vla.language.seen"].ok
    assert rows["vla.language.swapped"].value == 0.4 and not rows["vla.language.swapped"].ok
    assert rows["vla.language.int8_loss"].value is None and "2 of 3 seeds" in rows["vla.language.int8_loss"].peer
    trials["int8/3"] = trial(84)
    rows = {row.name: row for row in study.judged(trials)}
    assert abs(rows["vla.language.int8_loss"].value - 0.03) < 1e-9  # seed 3: .87 seen, .84 in 8 bits
