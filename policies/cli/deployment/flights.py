"""What came of the flights: summaries of guard and monitor, verdicts and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.deployment.missions import shown

if TYPE_CHECKING:
    from temporeal_bridge.launching.flights import FlightReport
    from temporeal_bridge.process.children import Process


def shortfall(report: FlightReport) -> str:
    """How many of the flights were flown, and why not all."""
    return (f"{report.flown} of {len(report.flights)} flights were flown: "
            f"{report.fault or report.flights[0]['reason']}")


def flight_line(row: Mapping[str, Any]) -> str:
    """A flight that has just ended, in a line."""
    reason = f", {row['reason']}" if row.get("reason") else ""
    return f"flight {row['seed']}: {row['verdict']}{told(row)}{reason}"


def told(row: Mapping[str, Any]) -> str:
    """What the flight was told, and why it failed, where that is known."""
    why = f": {row['why']}" if row.get("why") else ""
    likely = "" if row.get("forecast") is None else f", P {row['forecast']:.2f}"
    return f" ({shown(str(row['instruction']))}{likely}){why}" if row.get("instruction") else ""


def flight_table(flights: Sequence[Mapping[str, Any]]) -> str:
    """A line per flight: the monitor's verdict, and the truth."""
    lines = [f"{'flight':>6}  {'monitor':10}  {'truth':10}  {'robustness':>10}  missed"]
    for row in flights:
        truth = row.get("truth") or {}
        margin = truth.get("robustness")
        shown = "" if margin is None else f"{margin:.3f}"
        missed = "" if row["missed"] is None else row["missed"]
        line = f"{row['seed']:6}  {row['verdict']:10}  {truth.get('verdict', '?'):10}  {shown:>10}  {missed:>6}"
        lines.append(f"{line}  {row['reason']}{told(row)}".rstrip())
    return "\n".join(lines)


def own_flights(
    judged: Sequence[Mapping[str, Any]], flown: Sequence[Mapping[str, Any]] | None, ended: Process | None
) -> list[Mapping[str, Any]]:
    """The monitor's flights that our guard flew: the monitor judges the flights of any guard in its namespace.

    ``flown``: the guard's own; None if it left no summary. A guard that ended first, by itself, flew none; of a killed
    one all flights count as its own.
    """
    from temporeal_bridge.mission import FLIGHTS

    if flown is None:
        return [] if ended is not None and ended.name == "guard_node" and ended.returncode > 0 else list(judged)
    ours = {(row["flight"], row["start_ns"]) for row in flown}
    oldest = flown[0]["start_ns"] if len(flown) == FLIGHTS else 0  # those before it the guard has forgotten
    return [row for row in judged if row["start_ns"] < oldest or (row["flight"], row["start_ns"]) in ours]


def unjudged_flights(
    flown: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The guard's flights that the monitor did not judge, by number and start time: a number may repeat, a start time
    does not."""
    seen = {(row["flight"], row["start_ns"]) for row in judged}
    return [row for row in flown if row["sent"] and (row["flight"], row["start_ns"]) not in seen]


def read_flights(path: Path) -> list[dict[str, Any]]:
    """The flights in the summary of a node; none if it left no summary."""
    if not path.is_file():
        return []
    flights: list[dict[str, Any]] = json.loads(path.read_text())["flights"]
    return flights
