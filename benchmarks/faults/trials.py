"""Trials in fake time: one mission with one fault, judged; and rounds of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from temporeal_benchmarks.faults.cases import ANY, CASES, GOES_ON, Case
from temporeal_benchmarks.faults.world import KINDS, World
from temporeal_bridge.guard.safety.profile import APART_RAD, APART_S, FINGERS_RAD


@dataclass(frozen=True)
class Result:
    """What a trial gave. ``reaction``, ``required``: s, None where the mission goes on; ``wrong``: all that was."""

    kind: str
    case: str
    seed: int
    reaction: float | None
    required: float | None
    cycles: int
    commands: int
    points: int
    outside: int
    closest: float
    wrong: tuple[str, ...]


def trial(kind: str, case: str, seed: int, folder: Path) -> Result:
    """One mission with one fault; all that is random follows from ``seed``."""
    rule = CASES[case]
    world, reaction, required, wrong = flown(kind, case, seed, folder, rule.strike)
    if rule.twin:
        twin = flown(kind, case, seed, folder, lambda world: None)[0]
        a, b = world.oracle.trace, twin.oracle.trace
        if len(a) != len(b) or any(s != t or not np.array_equal(x, y) for (s, x), (t, y) in zip(a, b)):
            wrong.append("its commands are not those of the same mission without the fault")
    oracle = world.oracle
    return Result(kind, case, seed, reaction, required, world.cycles, oracle.commands, oracle.points, oracle.outside,
                  oracle.closest, (*oracle.wrong, *wrong))


def flown(
    kind: str, case: str, seed: int, folder: Path, strike: Callable[[World], None]
) -> tuple[World, float | None, float | None, list[str]]:
    """The world after the mission, its reaction, the required one [s], and what was wrong."""
    rule, wrong = CASES[case], list[str]()
    world = World(KINDS[kind], [seed, sorted(CASES).index(case), sorted(KINDS).index(kind)], folder)
    rng = np.random.default_rng([seed, 7])
    try:
        if rule.before:
            strike(world)
        world.begin()
        world.run(1.0, lambda: world.oracle.mode not in ("ready", "waiting", ""))
        if not rule.before:
            world.run(float(rng.uniform(0.1, 2.5)))
        before = [event for event in world.events if event[1]["code"]]
        if not rule.before and (before or world.oracle.mode != "active"):
            wrong.append(f"before the fault: mode {world.oracle.mode}, {before}")
            return world, None, None, wrong
        struck = next((at for at, mode in world.modes if mode == "active"), 0.0) if rule.before else world.bus.seconds
        if not rule.before:
            strike(world)
        limit = None if rule.code in (GOES_ON, ANY) else rule.within(world)
        world.run(1.0 if limit is None else (5.0 if rule.code == "tracking" else limit + 0.1), lambda: stopped(world))
        reaction = judge(world, rule, struck, limit, wrong)
        world.run(float(rng.uniform(0.3, 1.5)))  # the stop action is read, too
        if rng.random() < 0.3:  # an order to go on, fault or not: nothing may move that must not
            world.publish("mission/reset")
            world.publish("mission/start", 99)
            world.run(0.5)
        return world, reaction, limit, wrong
    finally:
        world.close()


def stopped(world: World) -> bool:
    """Whether the guard has reported a stop."""
    return any(event["code"] for _, event in world.events)


def judge(world: World, rule: Case, struck: float, limit: float | None, wrong: list[str]) -> float | None:
    """The time to the stop [s]; adds what was wrong with it."""
    stop = next(((at, event) for at, event in world.events if event["code"]), None)
    if limit is None:
        if rule.code == GOES_ON and (stop or world.oracle.mode != "active"):
            wrong.append(f"it should have gone on: mode {world.oracle.mode}, {stop}")
        elif stop and rule.also and not (stop[1]["code"] in rule.also and leads_away(world, stop[0] - struck)):
            wrong.append(f"it should have gone on, or stopped by one of {', '.join(rule.also)}: {stop}")
        return None
    if stop is None:
        wrong.append(f"no stop within {limit:.3f} s, {rule.code!r} was due")
        return None
    at, event = stop
    reaction = at - (min(world.behind_at, at) if rule.code == "tracking" else struck)
    sooner = (rule.code, event["code"]) == ("frozen", "speeds") and leads_away(world, reaction)
    if event["code"] not in (rule.code, *rule.also) and not sooner:
        wrong.append(f"stopped by {event['code']!r} ({event['reason']}), {rule.code!r} was due")
    elif reaction > limit + 1e-4:
        wrong.append(f"stopped after {reaction:.4f} s, {limit:.4f} s is allowed")
    action = world.guard.config.profile.action(event["code"])
    if world.guard.flight.action != action:
        wrong.append(f"the stop action is {world.guard.flight.action!r}, {action!r} was due")
    return reaction


def leads_away(world: World, seconds: float) -> bool:
    """Whether a velocity that is frozen with its place, for so long, is seen not to be how that changes: a fast joint's
    is, before it is frozen for long enough. A fifth is left for what place and velocity were apart before."""
    speed = max((float(np.max(np.abs(world.published[rule.rate]))) for rule in world.guard.config.profile.moving
                 if rule.unit == "rad"), default=0.0)
    far = APART_RAD if world.guard.config.profile.effort is None else FINGERS_RAD
    return speed * APART_S * (1 - np.exp(-seconds / APART_S)) > 0.8 * far


def all_pairs() -> list[tuple[str, str]]:
    """Every kind with every case that fits it."""
    return [(kind, case) for case, rule in CASES.items() for kind in rule.kinds]


def fuzz(seeds: Callable[[int], bool], first: int, done: Callable[[Result], None]) -> None:
    """Rounds of one trial of each pair, seeds ``first`` and on, as long as ``seeds(round)`` says so."""
    with tempfile.TemporaryDirectory(prefix="temporeal-") as folder:
        number = 0
        while seeds(number):
            for kind, case in all_pairs():
                done(trial(kind, case, first + number, Path(folder)))
            number += 1
