"""Missions in words over the real nodes, in real time: typed sentence, controller, worker, guard, cameras, monitor.

Target of issue 48: of ten missions at least nine are satisfied by the monitor's verdict on the sentence's own formula.
The policy is the one by hand (:mod:`temporeal_benchmarks.vla.by_hand`), which understands every sentence of reach and
push and is told where things are: what is measured is the chain. A learned artifact is flown by
``python -m temporeal_benchmarks.vla.missions ARTIFACT``, and by ``temporeal demo vla``.

A machine that has no time for real time loses exposures and control steps: both are in the rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.cli.vla_demo.stages import INTERFACE
from temporeal.policies.cli.vla_demo.verb import REQUIRED, SENTENCES
from temporeal_benchmarks.rows import Row, at_least
from temporeal_bridge.launching.flights import FlightPlan, FlightReport, fly

MISSIONS, FEW = 10, 2
SEED = 1


def rows(quick: bool, out: Path) -> list[Row]:
    """Share of satisfied missions of the policy by hand, and how the machine kept up."""
    from temporeal_benchmarks.vla import by_hand

    by_hand.write(out / "artifact")
    report = flown(out / "artifact", out / "missions", FEW if quick else MISSIONS)
    return figures(report, out / "missions", "the policy by hand, which is told where things are")


def flown(artifact: Path, out: Path, count: int, sentences: Sequence[str] = SENTENCES) -> FlightReport:
    """``count`` missions of an arm, told the sentences in turn."""
    plan = FlightPlan("franka", count, seed=SEED, interface=INTERFACE, instructions=tuple(sentences))
    return fly(artifact, plan, out, lambda row: print(row["seed"], row.get("instruction"), row["verdict"],
                                                      row.get("why") or row.get("reason") or "", flush=True))


def figures(report: FlightReport, out: Path, whose: str) -> list[Row]:
    """The rows of a series of missions; ``whose``: the policy in words."""
    count, judged = len(report.flights), [row for row in report.flights if row.get("truth")]
    agree = sum(row["verdict"] == row["truth"]["verdict"] for row in judged)
    named = {node["node"]: node for node in report.nodes}
    worker, camera = summary(out, "worker.json"), summary(out, "camera_sim.json")
    failed = "; ".join(f"{row.get('instruction')}: {row.get('why') or row.get('reason')}"
                       for row in report.flights if row["verdict"] != "satisfied")
    pictures = camera.get("pictures") or {}
    return [
        at_least("vla.missions.satisfied", report.satisfied / count, "1", REQUIRED,
                 f"{report.satisfied} of {count} by the monitor; {whose}{'; ' + failed if failed else ''}"),
        Row("vla.missions.verdict_agrees_with_truth", agree / max(len(judged), 1), "1", peer=f"of {len(judged)}"),
        Row("vla.missions.chunk", (worker.get("inference_ms") or {}).get("p50"), "ms", peer="median, in the worker"),
        Row("vla.missions.render", camera.get("render_ms"), "ms", peer=f"a 64x64 picture, median of {pictures}; "
            f"{camera.get('lost')} exposures lost"),
        Row("vla.missions.lag", report.worst_lag_ms, "ms", peer="the simulated robot behind real time, at most"),
        Row("vla.missions.missed", sum(row.get("missed") or 0 for row in report.flights), "1",
            peer=f"control steps, of {sum(row.get('steps') or 0 for row in report.flights)}"),
        Row("vla.missions.state_to_command", report.latency_ms["p99"], "ms",
            peer=f"p99; p50 {report.latency_ms['p50']}; nodes {', '.join(sorted(named))}")]


def summary(out: Path, name: str) -> dict[str, Any]:
    """What a node of the arm left; nothing where it left nothing."""
    found = sorted(out.glob(f"arm*/{name}"))
    return json.loads(found[0].read_text()) if found else {}


def main(arguments: Sequence[str]) -> int:
    """Fly an artifact's missions: ARTIFACT [FOLDER]."""
    artifact, out = Path(arguments[0]), Path(arguments[1] if len(arguments) > 1 else "outputs/missions")
    report = flown(artifact, out, MISSIONS)
    for row in figures(report, out, str(artifact)):
        print(row)
    return 0 if report.satisfied >= REQUIRED * MISSIONS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
