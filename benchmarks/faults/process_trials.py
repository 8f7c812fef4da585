"""Faults of real processes over DDS on loopback: robot, guard, controller, monitor and recorder, and an observer."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporeal_benchmarks.deployment.robot_processes import START_S, RobotProcesses
from temporeal_benchmarks.faults.missions import Trial, of_fault, one
from temporeal_benchmarks.faults.process_faults import (
    CHUNKED,
    FAULTS,
    HANDS,
    RATE_HZ,
    SEEING,
    STALE_S,
    Fault,
    anew,
    start_otherwise,
)
from temporeal_benchmarks.faults.recorder_faults import RECORDER, disk_full, recorder_killed
from temporeal_benchmarks.faults.rigs import chunked_arm, closing_hand, flying_quadrotor, seeing_arm
from temporeal_benchmarks.faults.spoilt_artifacts import refusals
from temporeal_benchmarks.priority import load
from temporeal_benchmarks.rows import Row, at_most, none_of, not_measured
from temporeal_bridge.transports.transport import QOS

ARM, HAND, EYES, CLEAN = " (arm)", " (hand)", " (camera)", " (clean flight)"  # in the names of their rows
# faults that are measured in another way
GUARD, MISMATCH, OTHERS = "guard", "QoS mismatch", "artifacts and disk"
NAMES = (*FAULTS, *CHUNKED, *HANDS, *SEEING, GUARD, MISMATCH, RECORDER, OTHERS)


def rows(trials: int, clean_minutes: float, seed: int, out: Path, only: Sequence[str] = ()) -> list[Row]:
    """``trials`` of each fault, or of those of NAMES that are named, and a clean flight of so many minutes; 0: not
    measured."""
    made: list[Row] = []
    named, rng = only or NAMES, random.Random(seed)
    with flying_quadrotor(out / "processes") as nodes:
        if clean_minutes:
            made += clean(nodes, clean_minutes)
        if trials:
            made += struck(nodes, FAULTS, trials, named, rng)
            if RECORDER in named:
                made += recorder_killed(nodes, trials, rng)
            if GUARD in named:
                made += guard_killed(nodes, trials, rng)
            if MISMATCH in named:
                made += mismatched(nodes, trials, rng)
        made += judged(nodes, "" if trials else CLEAN)
        artifact = nodes.artifact
    for rig, faults, whose in ((chunked_arm, CHUNKED, ARM), (closing_hand, HANDS, HAND), (seeing_arm, SEEING, EYES)):
        if trials and any(name in faults for name in named):
            with rig(out / whose.strip(" ()")) as nodes:
                made += struck(nodes, faults, trials, named, rng, whose) + judged(nodes, whose)
    if trials and OTHERS in named:
        made += refusals(artifact, out / "refused", trials, rng)
        with flying_quadrotor(out / "disk") as nodes:
            made += [disk_full(nodes, trials, rng), *judged(nodes, " (disk)")]
    return made


def struck(
    nodes: RobotProcesses, faults: Mapping[str, Fault], trials: int, named: Sequence[str], rng: random.Random,
    whose: str = "",
) -> list[Row]:
    """``trials`` of each of the ``faults`` that is ``named``."""
    made, early = list[Row](), list[str]()
    for name, fault in ((n, f) for n, f in faults.items() if n in named):
        done = [one(nodes, fault, rng.uniform(0.3, 1.0)) for _ in range(trials)]
        made += of_fault(name, fault, done)
        early += [reason for trial in done for reason in trial.early]
    made.append(Row(f"faults.processes.missions that ended before their fault, and were flown again{whose}", len(early),
                    "1", None, "; ".join([*dict.fromkeys(early)][:3]) or load()))
    return made


def judged(nodes: RobotProcesses, whose: str = "") -> list[Row]:
    """What the oracle says of every command that was sent to one robot."""
    if nodes.matched is not None:
        nodes.matched.end()
    oracle, lost = nodes.oracle, nodes.matched.lost if nodes.matched else 0
    oracle.settle()
    efforts = [] if oracle.servos is None else [
        Row(f"faults.processes.commands_judged_by_effort{whose}", oracle.efforts, "1", None,
            f"{oracle.yielded} of them at the end of what servos may give")]
    read = Row(f"faults.processes.commands_read{whose}", oracle.commands, "1", None,
               f"{lost} messages without their partner, {load()}")
    outside = f"faults.processes.commands_outside_limits{whose}"
    if not oracle.commands:
        return [*efforts, read, not_measured(outside, "1", 0, "no command was read")]
    return [*efforts, read, none_of(outside, oracle.outside, "; ".join(oracle.wrong[:3]) or None)]


def guard_killed(nodes: RobotProcesses, trials: int, rng: random.Random) -> list[Row]:
    """A guard that is killed says nothing more: the robot's own watchdog acts. Stopped, and going on after a second,
    it must not go on with the mission as if nothing had been."""
    silent, late = [], 0
    for _ in range(trials):
        nodes.fly()
        nodes.spin(rng.uniform(0.3, 1.0))
        struck = time.monotonic()
        nodes.processes["guard_node"].send_signal(signal.SIGKILL)
        nodes.spin(0.5)
        silent.append(max(nodes.oracle.trace[-1][0] - struck, 0.0))
        anew("guard_node")(nodes)
        nodes.modes.clear()
        nodes.fly()
        nodes.processes["guard_node"].send_signal(signal.SIGSTOP)
        nodes.spin(1.0)
        known = len(nodes.events)
        nodes.processes["guard_node"].send_signal(signal.SIGCONT)
        late += not nodes.spin(0.5, lambda known=known: len(nodes.events) > known)
        nodes.spin(0.3)
    return [at_most("faults.processes.guard SIGKILL: last command after", max(silent), "s", 1 / RATE_HZ,
                    f"{trials} trials, {load()}"),
            none_of("faults.processes.guard SIGSTOP for 1 s: missions that went on", late)]


def mismatched(nodes: RobotProcesses, trials: int, rng: random.Random) -> list[Row]:
    """A guard that asks for a reliable state, and a driver that is replaced in flight by one of best effort: a state
    that does not arrive is no state. The guard stops, and does not get ready again."""
    start_otherwise(nodes, "guard_node", "sensor", "default", "--artifact", str(nodes.artifact))
    nodes.modes.clear()
    topic = nodes.facts.states[0]
    probe = nodes.bus.subscribe(topic.topic, topic.type, QOS["default"], lambda received: None)
    done, ready, why = list[Trial](), 0, ""

    def replace_driver(nodes: RobotProcesses) -> None:
        nodes.processes["robot_sim"].kill()
        start_otherwise(nodes, "robot_sim", "default", "sensor")

    def mend(nodes: RobotProcesses) -> None:
        nonlocal ready, why
        nodes.require("a driver whose QoS does not fit", START_S, lambda: nodes.bus.incompatible(probe) != "")
        why = nodes.bus.incompatible(probe)
        waits = nodes.asking(1.0, "mission/reset", lambda: nodes.mode == "waiting")
        nodes.require("a guard that waits", START_S, waits)
        ready += nodes.spin(1.0, lambda: nodes.mode == "ready")
        anew("robot_sim")(nodes)

    for _ in range(trials):
        done.append(one(nodes, Fault(replace_driver, mend, "stale", STALE_S), rng.uniform(0.3, 1.0)))
    anew("guard_node")(nodes)
    nodes.modes.clear()
    return [*of_fault(MISMATCH, FAULTS["driver SIGKILL"], done),
            none_of(f"faults.processes.{MISMATCH}: guards that got ready again", ready, why)]


def clean(nodes: RobotProcesses, minutes: float) -> list[Row]:
    """A flight with no fault: any stop is a false one."""
    stops, why, flown, loads = 0, list[str](), 0.0, [os.getloadavg()[0]]
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        nodes.fly()
        began = time.monotonic()
        while (left := until - time.monotonic()) > 0:
            if nodes.spin(min(left, 60.0), lambda: nodes.mode != "active"):
                break
            loads.append(os.getloadavg()[0])
        flown += time.monotonic() - began
        if nodes.mode != "active":
            nodes.spin(0.3)
            stops, why = stops + 1, [*why, nodes.events[-1][1]["reason"] if nodes.events else "no event says why"]
    nodes.publish("mission/stop")
    nodes.spin(0.3)
    return [Row("faults.clean.false_stops_per_hour", 3600 * stops / flown, "1/h", 0,
                f"{stops} in {flown / 60:.1f} min, {load()}{': ' if why else ''}{'; '.join(why[:3])}", not stops),
            Row("faults.clean.measured_over", flown / 60, "min"),
            Row("faults.clean.load_most", max(loads), "1", None, "processes that want a core, mean of a minute")]
