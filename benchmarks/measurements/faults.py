"""``temporeal bench faults``: what goes wrong, how long the stop takes, and whether any command left the limits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from temporeal.policies.runs.environments import check_seed
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.faults.cases import CASES
from temporeal_benchmarks.faults.trials import Result, all_pairs, fuzz, trial
from temporeal_benchmarks.options import among, amount
from temporeal_benchmarks.priority import PRIORITY, asked
from temporeal_benchmarks.rows import Row, at_least, none_of

HELP = (
    "faults of states, policies, chunks, the line, people and machines, each at a random time of a mission, for five "
    "robots' interfaces: does the stop come for the right reason and in the stated time, and is every command that is "
    "sent (all points of trajectories) within its limits of place, speed, acceleration and jerk? In fake time with the "
    "real controller and guard, then with real processes over DDS on loopback; false stops of a clean run"
)
OPTIONS = {
    "trials": "trials of each fault: of real processes (default 4, quick 1), and of each robot in fake time",
    "seed": "seed of the first round in fake time (default 0); with --case KIND,FAULT only that trial, in full",
    "case": "one pair KIND,FAULT of the fuzz",
    "cycles": "cycles of the guard in fake time at least (default 1000000, quick 20000)",
    "clean-minutes": "minutes of a clean flight for the false stops (default 2, quick 0.2)",
    "parts": "fuzz, processes, clean (default: all)",
    "priority": f"of real processes: {PRIORITY}",
    "only": "of real processes only these faults, by their names (default: all)",
}
NARROWING = ("parts", "case", "only")
PARTS = ("fuzz", "processes", "clean")


def run(quick: bool, *, out: Path, **options: list[str] | None) -> list[Row]:
    """The parts that are asked for, or one trial of the fuzz."""
    given: Mapping[str, list[str] | None] = defaultdict(lambda: None, options)
    parts, seed, case = among("parts", given["parts"], PARTS), int(amount("seed", given["seed"], 0)), given["case"]
    check_seed("--seed", seed)
    if case:
        return one_trial((case[0], ", ".join(case[1:])), seed, out)
    trials = amount("trials", given["trials"], -1.0)
    rows: list[Row] = []
    if "fuzz" in parts:
        cycles = amount("cycles", given["cycles"], 20_000 if quick else 1_000_000)
        rows += fuzzed(seed, int(cycles), 1 if trials < 0 else int(trials))
    if "processes" in parts or "clean" in parts:
        count = int(trials) if trials >= 0 else 1 if quick else 4
        minutes = amount("clean-minutes", given["clean-minutes"], 0.2 if quick else 2.0)
        rows += of_processes(
            count if "processes" in parts else 0, minutes if "clean" in parts else 0.0, seed, out, given)
    return rows


def of_processes(
    trials: int, minutes: float, seed: int, out: Path, given: Mapping[str, list[str] | None]
) -> list[Row]:
    """Faults of real processes, and a clean flight."""
    from temporeal_benchmarks.faults import process_trials
    from temporeal_bridge.process.scheduling import take_priority

    kind, only = asked(given["priority"]), given["only"] or []
    if unknown := sorted(set(only) - set(process_trials.NAMES)):
        raise BadInput(f"--only: there is no fault {unknown[0]!r}; legal: {', '.join(process_trials.NAMES)}")
    take_priority(kind)  # before any process is started: they inherit it
    return process_trials.rows(trials, minutes, seed, out, only)


def one_trial(case: tuple[str, str], seed: int, out: Path) -> list[Row]:
    """The trial of one pair and one seed."""
    if case not in all_pairs():
        pairs = "; ".join(",".join(pair) for pair in all_pairs())
        raise BadInput(f"--case is {','.join(case)!r}; legal: {pairs}")
    out.mkdir(parents=True, exist_ok=True)
    got = trial(case[0], case[1], seed, out)
    wrong = "; ".join(got.wrong)
    return [Row(f"faults.{case[1]}.{case[0]}.seed_{seed}", got.reaction, "s", got.required, wrong or None, not wrong)]


def fuzzed(seed: int, cycles: int, trials: int) -> list[Row]:
    """Whole rounds of all pairs, until the guard has made so many cycles."""
    results: list[Result] = []
    began = time.process_time()
    fuzz(lambda number: number < trials or sum(r.cycles for r in results) < cycles, seed, results.append)
    took = time.process_time() - began
    failed = [f"{r.kind},{r.case} --seed {r.seed}: {r.wrong[0]}" for r in results if r.wrong]
    done, rounds = sum(r.cycles for r in results), len(results) // len(all_pairs())
    rows = [
        at_least("faults.fuzz.guard_cycles", done, "1", cycles, f"seeds {seed} to {seed + rounds - 1}"),
        Row("faults.fuzz.guard_cycles_per_cpu_second", done / took, "1/s"),
        Row("faults.fuzz.missions", len(results), "1"),
        Row("faults.fuzz.commands_read", sum(r.commands for r in results), "1"),
        Row("faults.fuzz.trajectory_points_read", sum(r.points for r in results), "1"),
        none_of("faults.fuzz.commands_outside_limits", sum(r.outside for r in results)),
        none_of("faults.fuzz.failed_missions", len(failed), "; ".join(failed[:5]) or None),
    ]
    by_case: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        by_case[r.case].append(r)
    return rows + [row for case, group in by_case.items() for row in of_case(case, group)]


def of_case(case: str, group: list[Result]) -> list[Row]:
    """The rows of one fault: p50 and largest of its reactions; the largest as a share of the time that is allowed."""
    good, name = not any(r.wrong for r in group), f"faults.fuzz.{case}"
    promise = CASES[case].promise
    timed = [(r.reaction, r.required) for r in group if r.reaction is not None and r.required]
    if not timed:
        return [Row(f"{name}: missions as they must be", sum(not r.wrong for r in group), "1", len(group), None, good)]
    share = max(a / b for a, b in timed)
    return [
        Row(f"{name}: p50", median(a for a, _ in timed), "s", None, f"{len(timed)} missions"),
        Row(f"{name}: max", max(a for a, _ in timed), "s", max(b for _, b in timed), promise or None, good),
        Row(f"{name}: max of allowed", share, "1", 1.0, None, share <= 1.0 + 1e-3),
    ]
