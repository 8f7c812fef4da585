"""Typed formulas over the real nodes, in real time, one after another in the same processes: a simulated quadrotor.

    python -m temporeal_benchmarks.any_formula.typed_missions ARTIFACT [FOLDER]

Target of issue 51: of twenty at least eighteen are satisfied by the monitor's verdict. The formulas were written by
hand, before any policy had flown one: places in the room, two pillars on the straight ways between them, each mission
from near the middle. The artifact is that of a run of algo=generalist. Nothing is tried twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporeal_benchmarks.any_formula import targets
from temporeal_benchmarks.rows import Row, at_least, at_most
from temporeal_bridge.launching.flights import FlightPlan, FlightReport, fly

SEED = 51
PLACES: dict[str, Any] = {
    "a": [1.2, 0.8, 1.0], "b": [-1.2, 1.0, 1.4], "c": [-1.0, -1.2, 0.8], "d": [1.4, -1.0, 1.6], "home": [0.0, 0.0, 1.1],
    "r": 0.35, "p": [0.65, 0.45], "q": [-0.6, -0.7], "thick": 0.25}
PARTS = {**{f"at_{name}": f"norm(base_pos_w - {name}) < r" for name in ("a", "b", "c", "d", "home")},
         **{f"in_{name}": f"hypot(base_pos_w.x - {name}.x, base_pos_w.y - {name}.y) < thick" for name in ("p", "q")}}
FORMULAS = (
    "F[0,6] at_a",
    "F[0,6] at_b & G[0,6] (base_pos_w.z > 0.5)",
    "F[0,8] G[0,1] at_c",
    "F[0,6] (at_a & F[0,7] at_b)",
    "F[0,6] (at_b & F[0,6] (at_c & F[0,7] at_d))",
    "F[0,8] at_a & F[0,14] at_c & G[0,14] !in_q",
    "F[0,8] at_a & G[0,9] !in_p",
    "F[0,9] at_c & G[0,10] (!in_p & !in_q)",
    "F[0,6] at_a | F[0,6] at_b",
    "F[3,7] at_a",
    "!at_d U[0,8] at_a",
    "F[0,8] G[0,1.5] at_b & F[0,16] G[0,1] at_d",
    "F[0,9] at_c & G[0,10] (base_pos_w.z > 0.6)",
    "F[0,5] at_a & G[0,6] (at_a -> F[0,5] at_b)",
    "F[0,10] G[0,2] at_home",
    "F[0,6] at_b & F[0,12] at_d & G[0,12] (max(abs(base_pos_w.x), abs(base_pos_w.y)) < 1.6)",
    "F[0,7] (at_a & F[0,7] (at_home & F[0,7] at_c))",
    "(F[0,6] at_a & F[0,12] at_b) | (F[0,6] at_d & F[0,12] at_c)",
    "F[0,5] at_d & F[5,12] at_b & G[0,12] !in_p",
    "F[0,6] (at_d & F[0,8] G[0,1] at_a) & G[0,15] !in_p")


def texts(formulas: Sequence[str] = FORMULAS) -> tuple[str, ...]:
    """The missions, as their files have them: each with the names of its places and pillars."""
    named = "".join(f"{name} = {text}; " for name, text in PARTS.items())
    return tuple(json.dumps({"formula": named + formula, "constants": PLACES}) for formula in formulas)


def flown(artifact: Path, out: Path, formulas: Sequence[str] = FORMULAS) -> FlightReport:
    """Each formula once, in turn."""
    plan = FlightPlan("crazyflie", len(formulas), seed=SEED, instructions=texts(formulas))
    return fly(artifact, plan, out, lambda row: print(
        row["seed"], formulas[row["seed"] - SEED], row["verdict"], row.get("reason") or "", flush=True))


def figures(report: FlightReport) -> list[Row]:
    """The rows of a series."""
    count = len(report.flights)
    failed = "; ".join(f"{FORMULAS[row['seed'] - SEED]}: {row['verdict']}" for row in report.flights
                       if row["verdict"] != "satisfied")
    judged = [row for row in report.flights if row.get("truth")]
    agree = sum(row["verdict"] == row["truth"]["verdict"] for row in judged)
    took = [row["formula_to_command_ms"] for row in report.flights if "formula_to_command_ms" in row]
    forecasts = [row["forecast"] for row in report.flights if "forecast" in row]
    processes = len({row["logs"] for row in report.flights})
    return [
        at_least("any_formula.ros.satisfied", report.satisfied, "1", targets.TYPED_SATISFIED,
                 f"of {count} by the monitor, {processes - 1} restarts{'; ' + failed if failed else ''}"),
        Row("any_formula.ros.verdict_agrees_with_truth", agree / max(len(judged), 1), "1", peer=f"of {len(judged)}"),
        at_most("any_formula.ros.formula_to_command", max(took, default=float("inf")), "ms", targets.DECISION_MS,
                "wall time in the controller: reading, planning at the start, first control step"),
        Row("any_formula.ros.forecast", sum(forecasts) / len(forecasts) if forecasts else None, "1", peer="mean"),
        Row("any_formula.ros.missed", sum(row.get("missed") or 0 for row in report.flights), "1",
            peer=f"control steps, of {sum(row.get('steps') or 0 for row in report.flights)}"),
        Row("any_formula.ros.state_to_command", report.latency_ms["p99"], "ms", peer="p99")]


def of_run(run: Path, out: Path) -> dict[str, Any]:
    """Export the run in the folder ``run``, fly its artifact: the rows as a trial of a study."""
    from dataclasses import asdict

    from temporeal.policies.cli.main import main as temporeal

    artifact = out / "artifact"
    if not artifact.exists() and temporeal(["export", str(run), "--out", str(artifact)]) != 0:
        raise RuntimeError(f"{run} could not be exported")
    return {"rows": [asdict(row) for row in figures(flown(artifact, out / "flights"))]}


def main(arguments: Sequence[str]) -> int:
    """Fly an artifact's missions: ARTIFACT [FOLDER]."""
    artifact, out = Path(arguments[0]), Path(arguments[1] if len(arguments) > 1 else "outputs/typed-missions")
    report = flown(artifact, out)
    for row in figures(report):
        print(row)
    return 0 if report.satisfied >= targets.TYPED_SATISFIED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
