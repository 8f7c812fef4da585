"""NanoBench: folds are measured once, and rows say what was measured of which flight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.evaluate.flight_candidates import HOLD, IDENTIFIED, LINEAR, LSTM, NOMINAL, RESIDUAL
from temporeal.sim.identification.record import FlightRecord
from temporeal_benchmarks.reality import nanobench


def fold(residual: float, other: float, share: float = 0.9, rates: float = 0.88) -> dict[str, Any]:
    """A fold with these errors of the residual and of an LSTM; the datasheet's is 1 m."""
    errors = {RESIDUAL: residual, IDENTIFIED: 0.5, NOMINAL: 1.0, HOLD: 0.4, LINEAR: 0.3, LSTM: other}
    return {"steps": [1, 50], "step_s": 0.01, "errors": {name: {"position": [0.0, each]} for name, each in
                                                        errors.items()},
            "coverage": {name: {"position": [0.0, share], "rates": [0.0, rates]} for name in (RESIDUAL, IDENTIFIED)},
            "believed_s": dict.fromkeys(errors, 0.5)}


def test_the_worst_flight_and_the_median_ratio_are_judged() -> None:
    folds = {"a_rep1": fold(0.1, 0.2), "b_rep1": fold(0.4, 0.4), "c_rep1": fold(0.6, 0.2)}
    found = [*nanobench.target_rows([folds], "; left out as wrong: d"), *nanobench.error_rows([folds])]
    rows = {row.name: row for row in found}
    assert np.isclose(rows[nanobench.NAMES[0]].value, 1 / 0.6) and rows[nanobench.NAMES[0]].ok is False
    assert "a 10.00" in rows[nanobench.NAMES[0]].peer and "left out as wrong: d" in rows[nanobench.NAMES[0]].peer
    assert rows[nanobench.NAMES[1]].value == 1.0 and rows[nanobench.NAMES[1]].ok
    assert rows["reality.nanobench.error_lstm"].value == 0.2
    assert rows[f"{nanobench.NAMES[0]}_without_residual"].ok is None


def test_the_median_seed_is_judged_and_the_worst_is_said() -> None:
    seeds = [{"a": fold(ratio * 0.2, 0.2), "b": fold(ratio * 0.4, 0.4), "c": fold(0.8, 0.2)}
             for ratio in (0.9, 1.2, 0.95)]
    rows = {row.name: row for row in [*nanobench.target_rows(seeds, ""), *nanobench.error_rows(seeds)]}
    of_lstm = rows[nanobench.NAMES[1]]
    assert np.isclose(of_lstm.value, 0.95) and of_lstm.ok and "the worst 1.200 (0.900, 1.200, 0.950)" in of_lstm.peer
    assert np.isclose(rows["reality.nanobench.error_identified_with_residual"].value, 0.38)
    seeds[0] = seeds[1]
    assert nanobench.target_rows(seeds, "")[1].ok is False


def test_seeds_share_what_has_none() -> None:
    first, second = fold(0.1, 0.2), fold(0.3, 0.4)
    kept = (RESIDUAL, LSTM)
    second = {key: {name: each[name] for name in each if name in kept} if isinstance(each, dict) else each
              for key, each in second.items()}
    empty = {key: {} for key in nanobench.BY_NAME}
    both = nanobench.joined({**empty, **first}, {**empty, **second})
    assert nanobench.last(both, RESIDUAL) == 0.3 and nanobench.last(both, NOMINAL) == 1.0


def test_coverage_is_judged_by_the_worst_channel() -> None:
    row, beside = nanobench.covered_rows([{"a": fold(0.1, 0.2, 0.90), "b": fold(0.1, 0.2, 0.98)}])
    assert np.isclose(row.value, 0.94) and row.ok and beside.ok is None
    assert "the worst channel, position" in row.peer and "(0.900 to 0.980)" in row.peer
    for position, rates, said in ((0.98, 0.83, 0.98), (0.9, 0.8, 0.8), (0.8, 0.96, 0.8)):  # means within the target
        row, _ = nanobench.covered_rows([{"a": fold(0.1, 0.2, position, rates)}])
        assert row.value == said and row.ok is False


def test_a_fold_is_measured_again_only_for_other_flights(tmp_path: Path) -> None:
    still = np.zeros((2, 3))
    a, b = (FlightRecord(name, name, 0.01, np.zeros((2, 4)), None, still, None, np.ones(2, bool)) for name in "ab")
    count = []

    def measure() -> dict[str, int]:
        count.append(1)
        return {"value": len(count)}

    found = [nanobench.kept(tmp_path / "x" / "a.json", records, measure, how)["value"]
             for records, how in (([a], (1, 2)), ([a], (1, 2)), ([a, b], (1, 2)), ([a, b], (1,)))]
    assert found == [1, 1, 2, 3]


def test_without_flights_targets_are_missed_and_said(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TEMPOREAL_FLIGHT_LOGS", str(tmp_path))
    rows = nanobench.rows(True, tmp_path)
    assert [row.name for row in rows] == list(nanobench.NAMES) and all(row.ok is False for row in rows)
