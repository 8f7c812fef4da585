"""One mission of real processes with one fault, and the rows of several."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf
from statistics import median

from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.faults.process_faults import Fault
from temporeal_benchmarks.priority import load
from temporeal_benchmarks.rows import Row, at_most, none_of, not_measured

# What the observer adds to a stop: the way to the guard, the way of the event back, and its own turn. An operator's
# stop, which the guard checks every 5 ms, was observed after 3.6 to 7 ms at the median (faults-processes.json, load 2.5
# and 6.9): 1 to 4.5 ms of that; twice as much is allowed
OBSERVED_S = 0.01
PATIENCE = 20  # missions in a row that end by themselves


@dataclass(frozen=True)
class Trial:
    """Time to the stop [s] and its code; ``gap``: the largest between commands after the fault [s]; ``quiet``: from the
    controller's last command to the stop, by the guard's clock [s]; ``early``: why missions ended before their fault,
    as they do on a machine that is too busy."""

    reaction: float | None
    code: str
    gap: float
    quiet: float = inf
    early: tuple[str, ...] = ()


def one(nodes: RobotProcesses, fault: Fault, after: float) -> Trial:
    """A mission with a fault ``after`` so many seconds."""
    early = list[str]()
    while True:
        nodes.fly()
        nodes.spin(after, lambda: nodes.mode != "active")
        if nodes.mode == "active":
            break
        early.append(nodes.events[-1][1]["reason"] if nodes.events else "no event says why")
        if len(early) == PATIENCE:
            raise RuntimeError(f"no mission lasts {after:.1f} s, {load()}: {'; '.join(early[-3:])}")
    known, struck = len(nodes.events), time.monotonic()
    fault.strike(nodes)
    nodes.bus.wait(0.0)  # what came while a helper was started is stamped now
    seen, begun = len(nodes.oracle.trace), time.monotonic()
    nodes.spin(2.0 if fault.code else 1.0, lambda: len(nodes.events) > known)
    at, event = nodes.events[known] if len(nodes.events) > known else (None, {"code": ""})
    times = [begun, *(t for t, _ in nodes.oracle.trace[seen:])]
    gap = max((b - a for a, b in zip(times, times[1:])), default=2.0)
    nodes.spin(0.3)
    flight, left = nodes.proposed
    quiet = event["t"] - left if at is not None and event["flight"] == flight else inf
    fault.mend(nodes)
    nodes.publish("mission/stop")
    nodes.spin(0.2)
    return Trial(None if at is None else at - struck, event["code"], gap, quiet, tuple(early))


def of_fault(name: str, fault: Fault, done: list[Trial]) -> list[Row]:
    """Rows of one fault."""
    name, trials = f"faults.processes.{name}", f"{len(done)} trials, {load()}"
    rows = stops_in_time if fault.code else missions_that_go_on
    return rows(name, fault, done, trials)


def missions_that_go_on(name: str, fault: Fault, done: list[Trial], trials: str) -> list[Row]:
    """Rows of a fault that must not stop the mission, or only by what it ``may``."""
    stops = [trial for trial in done if trial.code]
    by = f"{trials}, stopped by: {', '.join(sorted({trial.code for trial in stops})) or 'none'}"
    gap = Row(f"{name}: largest gap between commands", max(trial.gap for trial in done), "s")
    if not fault.may:
        return [none_of(f"{name}: missions stopped", len(stops), by), gap]
    wrong = sum(trial.quiet > fault.may.get(trial.code, -inf) for trial in stops)
    right = ", ".join(f"{code} {within:g} s after the controller's last command" if within < inf else code
                      for code, within in fault.may.items())
    return [Row(f"{name}: missions stopped", len(stops), "1", None, by),
            none_of(f"{name}: stops for a wrong reason, or late", wrong, f"right: {right}"), gap]


def stops_in_time(name: str, fault: Fault, done: list[Trial], trials: str) -> list[Row]:
    """Rows of a fault that must stop the mission."""
    right = [trial.reaction for trial in done if trial.reaction is not None and trial.code == fault.code]
    others = sorted({trial.code or "none" for trial in done} - {fault.code})
    stopped = none_of(f"{name}: missions without the right stop", len(done) - len(right),
                      f"{trials}{', stopped by: ' if others else ''}{', '.join(others)}")
    most = fault.stated_s + OBSERVED_S
    if not right:
        return [stopped, *(not_measured(f"{name}: {what}", "s", most, "no right stop") for what in ("p50", "max"))]
    late = sum(reaction > most for reaction in right)
    by = f"{fault.stated_s:g} s by docs/reference/faults.md, {OBSERVED_S:g} s for the observer"
    return [stopped, at_most(f"{name}: p50", median(right), "s", most, by),
            at_most(f"{name}: max", max(right), "s", most, f"{late} of {len(right)} were later; {fault.promise}")]
