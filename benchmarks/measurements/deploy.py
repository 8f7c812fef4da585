"""``temporeal bench deploy``: what controller and guard add to the bus that they live on."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.deployment.artifacts import echo, hover, rest
from temporeal_benchmarks.deployment.camera_load import Camera
from temporeal_benchmarks.deployment.latency_flight import LatencyFlight, Round
from temporeal_benchmarks.deployment.latency_rows import beside_camera, compared, late_row
from temporeal_benchmarks.deployment.process_usage import cpu_s, memory_mb
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.machine import every_core
from temporeal_benchmarks.options import amount
from temporeal_benchmarks.options import count as whole_number
from temporeal_benchmarks.priority import PRIORITY, asked, load
from temporeal_benchmarks.rows import Row, at_most, none_of, not_measured

HELP = (
    "real processes on one machine, over DDS on loopback: state in -> guarded command out of an arm at 500 Hz, against "
    "a bare DDS ping of messages of the same size that alternates with it in the same seconds, on the same core; the "
    "same with a camera beside it whose pictures are read; late cycles at 200 Hz; start to the first command; memory. "
    "A figure of latency is the median of rounds"
)
OPTIONS = {
    "minutes": "minutes of the flight whose memory is measured (default 10, quick 0.3)",
    "priority": PRIORITY,
    "core": "guard and controller have this core for themselves (deploy.core); all else here runs on the others",
    "awake": "true: that core never sleeps, and steps are rehearsed (deploy.awake); needs --core",
    "rounds": "rounds of latency, each of some seconds (default 5, quick 2)",
}
CHUNK_STEPS, CHUNK_DT_S = 15, 0.02  # of the policy that has a worker


def run(
    quick: bool, *, out: Path, minutes: list[str] | None, rounds: list[str] | None, priority: list[str] | None,
    core: list[str] | None = None, awake: list[str] | None = None,
) -> list[Row]:
    """All of it; takes as long as the flight whose memory is measured, and a few minutes."""
    from temporeal.robots.artifact.manifest import ChunkSpec
    from temporeal_bridge.process.scheduling import take_priority

    kind = asked(priority)
    own = [*kept_awake(awake, core, kind), *own_core(core)]
    take_priority(kind)  # before any process is started: they inherit it
    shutil.rmtree(out, ignore_errors=True)
    fast, slow = echo(out / "fast"), echo(out / "slow", 200.0)
    count, seconds = whole_number("rounds", rounds, 2 if quick else 5), 3.0 if quick else 8.0
    flight_s = 60.0 * amount("minutes", minutes, 0.3 if quick else 10.0, positive=True)
    rows = flown(fast, out, count, seconds, flight_s, own)
    rows += against_rclpy(next((row.value for row in rows if row.name == "deploy.latency.p50"), None), count, seconds)
    rows += late(slow, out, 5.0 if quick else 60.0, own)
    rows += with_worker(rest(out / "chunks", ChunkSpec(CHUNK_STEPS, CHUNK_DT_S), 500.0), out, seconds, own)
    made, count = hover(out / "hover"), 2 if quick else 5
    return rows + started(made, out, count, own) + started(made, out, count, own, ("monitor_node", "recorder"))


def own_core(given: list[str] | None) -> list[str]:
    """The options of guard and controller for a core of their own, which this process and its other children leave."""
    if given is None:
        return []
    mine = os.sched_getaffinity(0)
    if len(given) != 1 or not given[0].isdecimal() or int(given[0]) not in mine or len(mine) < 2:
        raise BadInput(f"--core is {','.join(given)}; legal: one of {', '.join(map(str, sorted(mine)))}, where another "
                       "one is left")
    os.sched_setaffinity(0, mine - {int(given[0])})
    return ["--core", given[0]]


def kept_awake(given: list[str] | None, core: list[str] | None, priority: str) -> list[str]:
    """The option of guard and controller that keeps their core from sleeping."""
    may = core is not None and priority == "realtime"
    if given not in (None, ["true"], ["false"]) or (given == ["true"] and not may):
        raise BadInput(f"--awake is {','.join(given or [])}; legal: false; true with --core and --priority realtime")
    return ["--awake"] if given == ["true"] else []


def flown(artifact: Path, out: Path, rounds: int, seconds: float, flight_s: float, own: list[str]) -> list[Row]:
    """Latency without and with a camera, in turn, and memory, of one flight with monitor and recorder."""
    flight = LatencyFlight(artifact, 500.0, out / "run", own)
    try:
        flight.echo()
        camera = Camera(flight, out / "run" / "camera")
        flight.nodes.start("monitor_node", "--artifact", str(artifact))
        flight.nodes.start("recorder", "--bag", str(out / "run" / "bag"))
        flight.start()
        camera.begin()
        plain, with_camera, lasted = list[Round](), list[Round](), 0.0
        used = dict.fromkeys(flight.nodes.processes, 0.0)
        for _ in range(rounds):
            before, began = {name: cpu_s(p.pid) for name, p in flight.nodes.processes.items()}, time.monotonic()
            plain.append(flight.round(seconds))
            lasted += time.monotonic() - began
            for name, p in flight.nodes.processes.items():
                used[name] += cpu_s(p.pid) - before[name]
            with_camera.append(camera.round(seconds))
        rows = compared(plain, rounds, seconds) + beside_camera(plain, with_camera, *camera.end())
        rows += [Row(f"deploy.cpu_share.{name}", share / lasted, "1") for name, share in used.items()]
        return rows + memory_rows(flight, flight_s)
    finally:
        flight.close()


def against_rclpy(ours: float | None, rounds: int, seconds: float) -> list[Row]:
    """The ping of two plain rclpy nodes, with nothing beside them and on all cores, and our p50 [ms] over it."""
    name, over = "deploy.rclpy_ping.p50", "deploy.latency.p50 over that of the rclpy ping"
    if importlib.util.find_spec("rclpy") is None:
        why = "rclpy cannot be imported here: source a ROS 2"
        return [not_measured(name, "ms", None, why), not_measured(over, "1", 1.0, why)]
    from temporeal_bridge.transports.dds import free_domain

    env = {**os.environ, "ROS_DOMAIN_ID": str(free_domain()), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    command = [sys.executable, "-m", "temporeal_benchmarks.deployment.rclpy_ping"]
    with every_core():  # children inherit it
        echo = subprocess.Popen([*command, "echo"], env=env)
        try:
            found = [json.loads(subprocess.run([*command, "ping", str(seconds)], env=env, check=True, text=True,
                                               stdout=subprocess.PIPE).stdout) for _ in range(rounds)]
        finally:
            echo.kill()
            echo.wait()
    theirs = 1e3 * median(float(np.median(trips)) for trips in found)
    row = Row(name, theirs, "ms", None, f"{sum(map(len, found))} pings, {load()}")
    if ours is None:
        return [row, not_measured(over, "1", 1.0, "our latency was not measured")]
    return [row, at_most(over, ours / theirs, "1", 1.0)]


def memory_rows(flight: LatencyFlight, flight_s: float) -> list[Row]:
    """Memory after some seconds and at the end of the flight, of all processes of a policy without worker; no step may
    have been missed."""
    processes = flight.nodes.processes
    first = {name: memory_mb(p.pid) for name, p in processes.items()}
    began = time.monotonic()
    while time.monotonic() < began + flight_s:
        if flight.nodes.mode != "active":
            flight.fly()
        flight.forget()
        flight.run(min(10.0, max(began + flight_s - time.monotonic(), 0.01)), lambda: flight.nodes.mode != "active")
    last = {name: memory_mb(p.pid) for name, p in processes.items()}
    grown, own = (sum(last[name][k] - first[name][k] for name in last) for k in (0, 1))
    oracle, measured = flight.judge(), f"over {flight_s / 60:.1f} min at 500 Hz, {load()}"
    each = ", ".join(f"{name} {mine - first[name][1]:.2f}" for name, (_, mine) in last.items())
    stops = [event["reason"] for _, event in flight.nodes.events]
    return [
        memory_row("guard, controller, monitor and recorder", last),
        at_most("deploy.memory grown", grown, "MB", 5.0, measured),
        Row("deploy.memory grown, of no file", own, "MB", None, each),
        commands_row(oracle, flight.matched.lost),
        none_of("deploy.missions stopped", len(stops), "; ".join(stops[:2]) or measured),
    ]


def commands_row(oracle: Any, lost: int) -> Row:
    """How many commands were outside their limits."""
    name = "deploy.commands outside limits"
    if not oracle.commands:
        return not_measured(name, "1", 0, "no command was read")
    read = f"{oracle.commands} commands by the guard's own times, {lost} messages without their partner"
    return none_of(name, oracle.outside, "; ".join([*oracle.wrong[:2], read]))


def memory_row(whose: str, found: Mapping[str, tuple[float, float]]) -> Row:
    """What processes take together, each as :func:`memory_mb` says."""
    each = ", ".join(f"{name} {whole:.0f}" for name, (whole, _) in found.items())
    return at_most(f"deploy.memory of {whose} (PSS)", sum(whole for whole, _ in found.values()), "MB", 300, each)


def with_worker(artifact: Path, out: Path, seconds: float, own: list[str]) -> list[Row]:
    """Memory of all processes of a policy that gives chunks, in flight at 500 Hz. Its network is next to nothing."""
    from temporeal_benchmarks.faults.process_faults import start_worker

    folder = out / "chunked" / "worker"
    flight = LatencyFlight(artifact, 500.0, folder.parent, own, ["--worker", str(folder), "--no-awake"])
    try:
        folder.mkdir(mode=0o700)
        start_worker(flight.nodes)
        flight.nodes.start("monitor_node", "--artifact", str(artifact))
        flight.nodes.start("recorder", "--bag", str(folder.parent / "bag"))
        flight.start()
        flight.run(seconds)
        found = {name: memory_mb(p.pid) for name, p in flight.nodes.processes.items()}
        return [memory_row("guard, controller, worker, monitor and recorder", found)]
    finally:
        flight.close()


def late(artifact: Path, out: Path, seconds: float, own: list[str]) -> list[Row]:
    """Cycles at 200 Hz whose command came more than half a period late."""
    flight, segments, left = LatencyFlight(artifact, 200.0, out / "late", own), list[np.ndarray](), seconds
    try:
        flight.start()
        while left > 0:
            if flight.nodes.mode != "active":
                flight.fly()
            flight.forget()
            began = time.monotonic()
            flight.run(left, lambda: flight.nodes.mode != "active")
            ended = flight.settle()
            left -= ended - began
            segments.append(np.array([began, *flight.arrivals, ended]))
    finally:
        flight.close()
    return [late_row(segments, flight.period, seconds)]


def started(artifact: Path, out: Path, count: int, own: list[str], beside: Sequence[str] = ()) -> list[Row]:
    """From the start of guard and controller, and right after them of nodes ``beside``, while the robot is there, to
    the first command of a mission that is requested as soon as the guard is ready."""
    took = [start_s(artifact, out / f"start{len(beside)}-{number}", own, beside) for number in range(count)]
    whose = ", monitor and recorder started with them" if beside else " alone"
    return [at_most(f"deploy.start to active of guard and controller{whose}", median(took), "s", 1.5,
                    f"{count} starts, {load()}")]


def start_s(artifact: Path, out: Path, own: list[str], beside: Sequence[str]) -> float:
    """Seconds of one start."""
    from temporeal_bridge.transports.transport import QOS

    nodes = RobotProcesses(artifact, "crazyflie", "odometry", "ctbr_cmd", 50.0, out)
    try:
        nodes.start("robot_sim")
        state, states = nodes.facts.states[0], list[Any]()
        nodes.bus.subscribe(state.topic, state.type, QOS["sensor"], states.append)
        nodes.require("the robot", 60.0, lambda: bool(states))
        began, asked_at = time.monotonic(), 0.0
        nodes.start_guarded(own)
        for module in beside:
            nodes.start(module, *(["--bag", str(nodes.out / "bag")] if module == "recorder" else
                                  ["--artifact", str(artifact)]))

        def flies() -> bool:
            nonlocal asked_at
            if nodes.mode == "ready" and time.monotonic() > asked_at + 0.05:
                asked_at = time.monotonic()
                nodes.publish("mission/start", 1)
            return bool(nodes.oracle.trace)

        nodes.require("the first command", 30.0, flies)
        return nodes.oracle.trace[0][0] - began
    finally:
        nodes.close()
