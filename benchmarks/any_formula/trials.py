"""Trials of a method on a set of formulas: a few formulas each, so that a study goes on where it was stopped.

A trial ``gradient/linear/validation/0020`` has the flights of the formulas 20 and on. It is made again where its
formulas or the method's identity are no longer the same, and is no part of a set's flights then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

from temporeal.policies.evaluate.statistics import Proportion
from temporeal.sim.stl.analysis.binomial import clopper_pearson
from temporeal.sim.stl.distribution.drawing import Drawn
from temporeal.sim.stl.distribution.settings import World
from temporeal_benchmarks.any_formula import sets
from temporeal_benchmarks.any_formula.flights import Flight, Method, fly
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row

WORST = -1e9  # in place of an infinite robustness, which JSON does not have


def measure(
    out: Path, name: str, method: Method, formulas: Sequence[Drawn], world: World, chunk: int,
    first: Method | None = None,
) -> None:
    """Fly what of ``formulas`` is missing among the trials in ``out``, ``chunk`` together, as trials ``name``/....
    ``first``: flies a formula before, so that what is loaded and compiled once is in no time."""
    from temporeal.policies.cli.console import plain

    for begin in range(0, len(formulas), chunk):
        part = formulas[begin : begin + chunk]
        trial, said = f"{name}/{begin:04d}", {"set": sets.digest(part), "method": plain(dict(method.identity))}
        there = studies.read(out).get(trial)
        if there is None or any(there[key] != value for key, value in said.items()):
            if first is not None:
                fly(first, part[:1], world)
                first = None
            flights = fly(method, part, world)
            added = studies.add(out, trial, {**said, "each": [packed(flight) for flight in flights]})
            print(trial, f"{sum(f.satisfied for f in flights)} of {len(added['each'])}", flush=True)


def packed(flight: Flight) -> list[float | None]:
    """As it is written: numbers to 4 digits, up to the last that there is."""
    each = [flight.number, *(None if x is None else float(f"{x:.4g}") if isfinite(x) else WORST for x in flight[1:])]
    while each[-1] is None:
        each.pop()
    return each


def flights_of(trials: Mapping[str, studies.Trial], name: str) -> list[Flight]:
    """All flights of the trials ``name``/..., by number. Of several identities that of the newest trial counts."""
    own = [trial for key, trial in trials.items() if key.rpartition("/")[0] == name]
    if not own:
        return []
    last = max(own, key=lambda trial: str(trial["date"]))
    found = [Flight(*each) for trial in own if trial["method"] == last["method"] for each in trial["each"]]
    return sorted({flight.number: flight for flight in found}.values())


def share(flights: Sequence[Flight], confidence: float = 0.95) -> Proportion:
    """Of them that are satisfied, with Clopper and Pearson's interval."""
    good = sum(flight.satisfied for flight in flights)
    return Proportion(good, len(flights), good / len(flights), *clopper_pearson(good, len(flights), confidence),
                      confidence)


def said(found: Proportion) -> str:
    """A share in words."""
    return f"{found.successes} of {found.trials} [{found.low:.3f}, {found.high:.3f}]"


def share_row(name: str, flights: Sequence[Flight], peer: str) -> Row:
    """The share that is satisfied, without a target."""
    found = share(flights)
    return Row(name, found.estimate, "1", peer=f"{said(found)}; {peer}")
