"""The comparison as tables in Markdown: cells by hand, and the file beside the results is theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.policies.evaluate.suite.test_averages import trial

from temporeal.policies.evaluate.suite import tables as suite_tables
from temporeal.policies.evaluate.suite import timing
from temporeal.policies.evaluate.suite.averages import FAILED, NOT_SUPPORTED
from temporeal.policies.evaluate.suite.tables import cell, mean, tables

RESULTS = Path(__file__).parents[4] / "benchmarks/results"


def lines(text: str) -> list[list[str]]:
    """The cells of a table's rows, its head first."""
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if not line.startswith("|--")]


def test_a_cell_tells_the_mean_the_seeds_where_they_differ_and_how_few_starts() -> None:
    assert cell([trial(satisfied=900)]) == "0.900"
    assert cell([trial(satisfied=900), trial(seed=2, satisfied=700)]) == "0.800 (0.700 to 0.900)"
    assert cell([trial(satisfied=50, episodes=50)]) == "1.000 [50]"
    assert cell([trial(satisfied=1000, episodes=1000), trial(seed=2, satisfied=40, episodes=40)]) == (
        "1.000 [40 to 1000]")
    assert cell([trial(satisfied=800), trial(seed=2, status=FAILED)]) == "0.400, 1 failed"
    assert (cell([trial(status=FAILED)]), cell([trial(status=NOT_SUPPORTED)]), cell([])) == ("failed", "not taken", "")


def test_a_mean_says_what_is_missing_of_it() -> None:
    trials = [trial(satisfied=900), trial("linear_seq", satisfied=500), trial(method="ppo", satisfied=100)]
    study = {"trials": trials}
    assert mean(study, "tgpo", "linear") == "0.700 (2 of 2 formulas, 1 seed)"
    assert mean(study, "ppo", "linear") == "0.100 (1 of 2 formulas, 1 seed)"
    assert mean(study, "cem", "linear") == ""
    assert "(2 of 3 formulas, 1 seed)" in mean({**study, "tasks": ["linear_stay"]}, "tgpo", "linear")
    three = [trial(task, seed=seed) for task in ("linear_reach", "linear_seq") for seed in (1, 2, 3)]
    assert mean({"trials": three}, "tgpo", "linear") == "0.900 [0.900, 0.900]"
    few = [trial(seed=seed, satisfied=40, episodes=50) for seed in (1, 2, 3)]
    assert mean({"trials": few}, "tgpo", "linear") == "0.800 [0.800, 0.800] (50 starts)"
    refused = trial(method="milp", status=NOT_SUPPORTED)
    assert mean({"trials": [refused]}, "milp", "linear") == "not taken"
    part = mean({"trials": [refused, trial("linear_seq", "milp")]}, "milp", "linear")
    assert part == "0.450 (2 of 2 formulas, 1 seed; 1 not taken)"


def test_a_system_has_a_row_for_each_formula_and_a_column_for_each_method() -> None:
    trials = [*(trial(seed=seed) for seed in (1, 2, 3)), trial(method="ppo", satisfied=0),
              trial("linear_seq"), trial("linear_horizon_50")]
    assert lines(suite_tables.every_formula(trials, "linear")) == [
        ["", "TGPO*", "PPO"], ["`linear_reach`", "0.900", "0.000"], ["`linear_seq`", "0.900", ""],
        ["seeds", "1 to 3", "1"]]
    assert lines(suite_tables.horizons(trials)) == [["steps", "TGPO*"], ["50", "0.900, 1 seed"]]


def test_times_are_medians_with_how_many_got_there() -> None:
    curve = [[float(second), 10.0, 0.0 if second < 20 else 1.0] for second in range(10, 60, 2)]
    trials = [trial(seed=seed, cpu_s=151.0 + seed, curve=curve, pooled=timing.POOL) for seed in (1, 2)]
    trials.append(trial(method="ppo", cpu_s=150.0, curve=curve))
    shown = lines(suite_tables.times(trials, ["linear"]))
    assert shown[1:] == [["linear", "TGPO*", "2", "153 s", "20 s (2 of 2)", "20 s (2 of 2)"],
                         ["linear", "PPO", "1", "150 s", "not measured", "not measured"]]


def test_what_has_a_target_is_told_with_it_and_margins_always() -> None:
    def row(name: str, value: float, unit: str, target: Any, ok: bool | None) -> dict[str, Any]:
        return {"name": name, "value": value, "unit": unit, "target": target, "ok": ok, "peer": "a | b"}

    rows = [
        row("linear.tgpo.success", 0.99949, "1", 0.95, True), row("linear.ppo.success", 0.5, "1", None, None),
        row("margin.points", 4.73, "%", 32.0, False), row("margin.points.model_free", 29.25, "%", None, None)]
    shown = suite_tables.targets({"rows": rows, "tried": {"margin.points": "all"}})
    assert shown.splitlines()[2:] == [
        r"| `linear.tgpo.success` | 0.999 | 0.950 | reached | a \| b |",
        r"| `margin.points` | 4.7 % | 32.0 % | missed | a \| b. Tried: all |",
        r"| `margin.points.model_free` | 29.2 % |  |  | a \| b |"]


def test_a_study_of_nothing_has_no_tables_and_a_quick_one_says_what_it_is() -> None:
    assert "|" not in tables({"trials": [], "rows": []})
    shown = tables({"trials": [trial()], "rows": [], "quick": True, "command": "temporeal bench stl-tasks"})
    assert "not to be quoted" in shown and "Made by `temporeal bench stl-tasks`, 1 trials of revisions unknown" in shown


def test_the_tables_beside_the_results_are_theirs() -> None:
    study = json.loads((RESULTS / "stl-tasks.json").read_text())
    assert (RESULTS / "stl-tasks.md").read_text() == tables(study)
