"""The rows of the study of policies for any formula: each target is one, of the worst seed, and missing until it is
measured. A run on fewer formulas, or of fewer seeds, is told and not judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from temporeal.sim.stl.distribution.settings import world
from temporeal_benchmarks.any_formula import forecast, sets, targets
from temporeal_benchmarks.any_formula.flights import Flight
from temporeal_benchmarks.any_formula.targets import SEEDS, TARGETS
from temporeal_benchmarks.any_formula.trials import flights_of, said, share
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row, not_measured

PART, TIMED = "policy-study", 100
"""Formulas that are flown by themselves, for the time of decisions."""
JUDGED = ("validation", "unseen")
Trials = Mapping[str, studies.Trial]
Seeds = Mapping[int, Sequence[Flight]]
TYPED_TRIAL = "typed/quadrotor/1"
ROS = "python -m temporeal_benchmarks.any_formula.policy_study OUT --robots quadrotor --seeds 1 --typed"


def rows_of(trials: Trials) -> list[Row]:
    """All rows."""
    found = list[Row]()
    for robot in TARGETS:
        flown = {family: seeds_of(trials, f"policy/{robot}/{family}") for family in sets.families_of(robot)}
        found += [satisfied(robot, flown["validation"]), unseen(robot, flown["validation"], flown["unseen"])]
        found += [other(robot, family, flown[family]) for family in flown if family not in ("validation", "unseen")]
        found += [beside_tgpo(robot, flown, trials), training(robot, trials)]
    alone = {robot: [f for seed in seeds_of(trials, f"alone/{robot}").values() for f in seed] for robot in TARGETS}
    return [*found, decision_time(alone), step_time(alone), *forecasts(trials),
            *typed(trials)]


def typed(trials: Trials) -> list[Row]:
    """The typed missions over the nodes."""
    if TYPED_TRIAL not in trials:
        return [not_measured("any_formula.ros.satisfied", "1", targets.TYPED_SATISFIED, ROS)]
    return [Row(**row) for row in trials[TYPED_TRIAL]["rows"]]


def seeds_of(trials: Trials, name: str) -> dict[int, list[Flight]]:
    """Flights by seed, of those that have some."""
    found = {seed: flights_of(trials, f"{name}/{seed}") for seed in SEEDS}
    return {seed: flights for seed, flights in found.items() if flights}


def whole(found: Seeds, family: str) -> bool:
    """Whether all seeds flew all formulas."""
    return len(found) == len(SEEDS) and all(len(flights) >= sets.COUNT[family] for flights in found.values())


def missing(row: str, unit: str, target: float | str | None, there: str = "not run") -> Row:
    """A row of which nothing is there."""
    return studies.missing(row, unit, target, PART, there, "any-formula")


def told(found: Seeds) -> str:
    """The shares of all seeds."""
    return ", ".join(f"seed {seed}: {said(share(flights))}" for seed, flights in found.items())


def of_share(found: Seeds) -> dict[int, float]:
    """The share of each seed."""
    return {seed: share(flights).estimate for seed, flights in found.items()}


# ---------------------------------------------------------------- shares


def satisfied(robot: str, found: Seeds) -> Row:
    """Held-out draws, one rollout each: the worst seed."""
    name, target = f"any_formula.{robot}.validation", TARGETS[robot].share
    if not found:
        return missing(name, "1", target)
    worst = min(of_share(found).values())
    return Row(name, worst, "1", target, f"worst of {len(found)} seeds; {told(found)}",
               bool(worst >= target) if whole(found, "validation") else None)


def unseen(robot: str, held_out: Seeds, found: Seeds) -> Row:
    """Unseen structures: the seed that loses most on them. The target is its share of held-out draws less 5 points."""
    name, both = f"any_formula.{robot}.unseen", sorted(set(held_out) & set(found))
    if not both:
        return missing(name, "1", f"validation less {targets.UNSEEN:g}")
    known, new = of_share(held_out), of_share(found)
    worst = max(both, key=lambda seed: known[seed] - new[seed])
    target = round(known[worst] - targets.UNSEEN, 4)
    judged = whole(held_out, "validation") and whole(found, "unseen")
    return Row(name, new[worst], "1", target, f"of the seed that loses most; {told(found)}",
               bool(new[worst] >= target) if judged else None)


def other(robot: str, family: str, found: Seeds) -> Row:
    """A family without a target."""
    name = f"any_formula.{robot}.{family}"
    if not found:
        return missing(name, "1", None)
    return Row(name, min(of_share(found).values()), "1", peer=f"worst of {len(found)} seeds; {told(found)}")


def beside_tgpo(robot: str, flown: Mapping[str, Seeds], trials: Trials) -> Row:
    """By how much TGPO, trained on each of some formulas, satisfies more of these: against the worst seed."""
    name, target = f"any_formula.{robot}.below_tgpo", targets.BELOW_TGPO
    outcomes: Sequence[Any] = trials.get(f"tgpo/{robot}", {}).get("outcomes", [])
    ours = {seed: {(family, f.number): f.satisfied for family in flown for f in flown[family].get(seed, ())}
            for seed in SEEDS}
    by_seed = {seed: [((family, index), done) for family, index, done in outcomes if (family, index) in own]
               for seed, own in ours.items()}
    by_seed = {seed: pairs for seed, pairs in by_seed.items() if pairs}
    if not by_seed:
        return missing(name, "1", target, f"TGPO was trained on {len(outcomes)} formulas")
    gaps = {seed: float(np.mean([done - ours[seed][key] for key, done in pairs])) for seed, pairs in by_seed.items()}
    texts = [f"seed {seed}: TGPO {sum(done for _, done in pairs)}, the policy {sum(ours[seed][k] for k, _ in pairs)} "
             f"of {len(pairs)}, TGPO alone {sum(done and not ours[seed][k] for k, done in pairs)}"
             for seed, pairs in by_seed.items()]
    enough = len(by_seed) == len(SEEDS) and all(len(pairs) >= targets.TRAINED for pairs in by_seed.values())
    worst = max(gaps.values())
    return Row(name, worst, "1", target, "; ".join(texts), bool(worst <= target) if enough else None)


def training(robot: str, trials: Trials) -> Row:
    """Minutes of two cores: processor time by two, of the longest training."""
    name, target = f"any_formula.{robot}.training", TARGETS[robot].minutes
    took = [trials[key]["cpu_s"] for seed in SEEDS if (key := f"training/{robot}/{seed}") in trials]
    if not took or None in took:
        return missing(name, "min", target, "not run" if not took else "seconds of a training are not known")
    worst = max(took) / 120
    return Row(name, worst, "min", target, f"of two cores; processor time of the longest of {len(took)} trainings",
               bool(worst <= target) if target is not None and len(took) == len(SEEDS) else None)


# ---------------------------------------------------------------- times


def decision_time(alone: Mapping[str, Sequence[Flight]]) -> Row:
    """From a formula's text to its first command, on one core: 99 of 100 formulas, the slowest robot."""
    times = {robot: [1000 * f.decision_s for f in flights if f.decision_s is not None]
             for robot, flights in alone.items()}
    return slowest("any_formula.decision_time", "ms", targets.DECISION_MS, times, 0.99,
                   "99 % of formulas, processor time of one core")


def step_time(alone: Mapping[str, Sequence[Flight]]) -> Row:
    """The slowest of all later steps, in control periods."""
    periods = {robot: world(robot).dt for robot, flights in alone.items() if flights}
    times = {robot: [f.slowest_s / dt for f in alone[robot] if f.slowest_s is not None]
             for robot, dt in periods.items()}
    return slowest("any_formula.step_time", "periods", 1.0, times, 1.0,
                   "the slowest of all steps after the first, processor time of one core")


def slowest(
    name: str, unit: str, target: float, times: Mapping[str, Sequence[float]], quantile: float, how: str
) -> Row:
    """The ``quantile`` of the robot whose is greatest; judged when all robots have enough."""
    there = {robot: float(np.quantile(values, quantile)) for robot, values in times.items() if values}
    if not there:
        return missing(name, unit, target)
    worst = max(there, key=lambda robot: there[robot])
    texts = ", ".join(f"{robot} {value:.3g} (median {np.median(times[robot]):.3g})" for robot, value in there.items())
    enough = len(there) == len(TARGETS) and all(len(times[robot]) >= TIMED for robot in there)
    return Row(name, there[worst], unit, target, f"{how}: {texts}", bool(there[worst] <= target) if enough else None)


# ---------------------------------------------------------------- forecasts


def forecasts(trials: Trials) -> list[Row]:
    """How far forecasts are off, and what is satisfied of what is not refused: the worst robot, family and seed. Those
    of unseen structures are judged, too: the calibration knows formulas like those of ``validation``."""
    error, kept = "any_formula.forecast.ece", "any_formula.forecast.refused"
    all_of = {(robot, family): seeds_of(trials, f"policy/{robot}/{family}") for robot in TARGETS for family in JUDGED}
    said_by = {f"{robot} {seed} {family}": forecast.told(flights) for (robot, family), seeds in all_of.items()
               for seed, flights in seeds.items()}
    said_by = {name: flights for name, flights in said_by.items() if flights}
    if not said_by:
        return [missing(error, "1", targets.ECE), missing(kept, "1", targets.FLOWN)]
    enough = all(whole(seeds, family) for (_, family), seeds in all_of.items()) and len(said_by) == len(all_of) * len(
        SEEDS)
    errors = {name: forecast.calibration(flights) for name, flights in said_by.items()}
    texts = ", ".join(f"{name}: {c.error:.3f} [{c.low:.3f}, {c.high:.3f}]" for name, c in errors.items())
    worst = max(c.error for c in errors.values())
    return [Row(error, worst, "1", targets.ECE, f"worst robot, seed and family; {texts}",
                bool(worst <= targets.ECE) if enough else None), refused(kept, said_by, enough)]


def refused(name: str, said_by: Mapping[str, Sequence[Flight]], enough: bool) -> Row:
    """What is satisfied of what is forecast at :data:`targets.REQUIRE` or more."""
    found = {who: forecast.flown(flights, targets.REQUIRE) for who, flights in said_by.items()}
    there = {who: each for who, each in found.items() if each is not None}
    texts = ", ".join(f"{who}: {said(each)} of {len(said_by[who])}" for who, each in there.items())
    if len(there) < len(found):
        return not_measured(name, "1", targets.FLOWN, "all formulas are refused of "
                            f"{', '.join(sorted(set(found) - set(there)))}")
    worst = min(each.estimate for each in there.values())
    return Row(name, worst, "1", targets.FLOWN, f"satisfied of those flown, worst robot, seed and family; {texts}",
               bool(worst >= targets.FLOWN) if enough else None)
