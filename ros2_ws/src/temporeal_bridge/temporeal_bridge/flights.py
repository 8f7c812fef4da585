"""Real-time flights through the nodes: robot, controller, monitor and recorder as processes on one private bus.

    report = fly(Path("artifact"), "crazyflie", flights=10, parallel=2, seed=0, out=Path("outputs/flights"))

Each robot has a namespace and its three processes, which stay up over its flights; one recorder records all. A
flight: reset the robot, wait until it is there, start the mission, wait for the monitor's verdict. The true
trajectory, which only the simulated robot knows, is judged by the same formula afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.export.manifest import ArtifactError, Manifest
from robots.spec import RobotSpec, load_robot
from temporeal_bridge import messages
from temporeal_bridge.monitor_node import judge_truth, load_manifest
from temporeal_bridge.transport import QOS, Endpoint, Received, Transport, TransportError, open_transport

READY_S = 30.0  # for the processes to start, on a busy machine
RESET_S = 5.0
AFTER_S = 10.0  # beyond the mission's horizon, for its verdict
POLL_S = 0.05
SETTLE_S = 0.1  # between "the robot is there" and the start: several states of the new flight have arrived
LOG_LINES = 15

Progress = Callable[[Mapping[str, Any]], None]


class FlightError(RuntimeError):
    """The flights could not be flown: a process ended or never became ready; the message quotes its last words."""


@dataclass(frozen=True)
class FlightReport:
    """What K flights gave.

    Args:
        flights: one row each: ``seed``, ``robot`` (namespace), ``verdict`` and ``robustness_lower`` of the monitor,
            ``clauses``, ``lost`` samples, ``reason`` (of an early stop), ``latency_ms``, ``missed`` control steps, and
            ``truth``: verdict and robustness of the true trajectory.
        satisfied: number of flights with the verdict "satisfied".
        latency_ms: ``p50``, ``p99``, ``max`` from a state's arrival to the command's departure, over all flights.
        worst_lag_ms: how far a simulated robot was behind real time at worst.
        bag: the recording.
    """

    flights: list[dict[str, Any]]
    satisfied: int
    latency_ms: dict[str, float | None]
    worst_lag_ms: float
    bag: Path
    nodes: list[dict[str, Any]] = field(default_factory=list)


class Process(subprocess.Popen[bytes]):
    """A node process: its module and where it logs."""

    name: str = ""
    log: Path = Path()


@dataclass
class Pilot:
    """One robot with its processes, as the conductor of the flights sees it."""

    namespace: str
    out: Path
    processes: list[Process]
    reset: Endpoint
    start: Endpoint
    episode: int = -1
    mode: str = ""
    number: int = -1
    result: dict[str, Any] = field(default_factory=dict)
    stage: str = "starting"
    until: float = 0.0
    settled: float = 0.0
    seed: int = -1


def fly(
    artifact: Path, robot: str, flights: int, parallel: int, seed: int, out: Path, *, interface: str | None = None,
    spread: float = 0.0, transport: str = "dds", domain: int | None = None, progress: Progress | None = None,
) -> FlightReport:
    """Fly ``flights`` missions, with seeds ``seed``, ``seed + 1``, ..., on ``parallel`` robots at a time.

    Args:
        artifact: folder of the policy.
        robot: its name.
        out: folder for logs, summaries, true trajectories and the bag.
        spread: share of the parameters' published ranges that the robots are drawn from.
        domain: DDS domain; None: one that is free on this machine. Traffic stays on this machine.
        progress: called with the row of each flight as it ends.
    """
    if flights < 1 or parallel < 1:
        raise ValueError(f"flights and parallel are at least 1, got {flights} and {parallel}")
    spec, manifest = load_robot(robot), load_manifest(artifact)
    if manifest.robot != robot:
        raise ArtifactError(f"the artifact is for robot {manifest.robot!r}, this robot is {robot!r}")
    if domain is None:
        from temporeal_bridge.dds import free_domain

        domain = free_domain()
    out.mkdir(parents=True, exist_ok=True)
    bus = open_transport(transport, "flights", "/", domain=domain, loopback=True)
    shared = ["--robot", robot, "--transport", transport, "--domain", str(domain), "--loopback"]
    shared += ["--interface", interface] if interface else []
    started: list[Process] = []
    try:
        pilots = [launch(bus, manifest, artifact, f"/cf{i + 1}", out, shared, spread, started)
                  for i in range(min(parallel, flights))]
        bag = fresh(out / "bag")
        names = [word for p in pilots for word in ("--of", p.namespace)]
        options = [*shared, "--bag", str(bag), *names, "--out", str(out)]
        recorder = start("recorder", options, out / "recorder.log", started)
        rows = conduct(bus, pilots, recorder, list(range(seed, seed + flights)), manifest, progress)
    finally:
        end(started)
        bus.close()
    return report(rows, pilots, manifest, spec, bag)


def fresh(path: Path) -> Path:
    """``path``, or the first of ``path-2``, ``path-3``, ... that is not there: recordings are never overwritten."""
    number, out = 1, path
    while out.exists():
        number += 1
        out = path.with_name(f"{path.name}-{number}")
    return out


def start(module: str, options: list[str], log: Path, started: list[Process]) -> Process:
    """A node process; what it prints goes to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = [str(Path(__file__).parents[1]), str(Path(sys.modules["robots"].__path__[0]).parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
           "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("wb") as file:
        process = Process(
            [sys.executable, "-m", f"temporeal_bridge.{module}", *options], stdout=file, stderr=file,
            stdin=subprocess.DEVNULL, env=env)
    process.name, process.log = module, log
    started.append(process)
    return process


def launch(
    bus: Transport, manifest: Manifest, artifact: Path, namespace: str, out: Path, shared: list[str], spread: float,
    started: list[Process],
) -> Pilot:
    """One robot's processes and the conductor's topics to them."""
    folder = out / namespace.strip("/")
    own = [*shared, "--namespace", namespace, "--out", str(folder)]
    first = ["--priority", "auto"]  # robot and controller keep their time on a busy machine, where that is permitted
    command = manifest.commands[0].name
    processes = [
        start("robot_sim", [*own, *first, "--command", command, "--spread", str(spread)],
              folder / "robot_sim.log", started),
        start("policy_node", [*own, *first, "--artifact", str(artifact), "--after", "silence",
                              "--peer-timeout", str(READY_S)], folder / "policy_node.log", started),
        start("monitor_node", [*own, "--artifact", str(artifact)], folder / "monitor_node.log", started)]
    number = "std_msgs/msg/UInt64"
    pilot = Pilot(namespace, folder, processes, bus.advertise(f"{namespace}/sim/reset", number, QOS["default"]),
                  bus.advertise(f"{namespace}/mission/start", number, QOS["default"]))

    def on_episode(received: Received) -> None:
        pilot.episode = int(messages.decode(received.type, received.data).data)

    def on_mission(received: Received) -> None:
        mode, _, flight = messages.decode(received.type, received.data).frame_id.partition(" ")
        pilot.mode, pilot.number = mode, int(flight)

    def on_verdict(received: Received) -> None:
        pilot.result = json.loads(messages.decode(received.type, received.data).data)

    bus.subscribe(f"{namespace}/sim/episode", number, QOS["latched"], on_episode)
    bus.subscribe(f"{namespace}/mission", "std_msgs/msg/Header", QOS["latched"], on_mission)
    bus.subscribe(f"{namespace}/monitor/verdict", "std_msgs/msg/String", QOS["latched"], on_verdict)
    return pilot


def conduct(
    bus: Transport, pilots: list[Pilot], recorder: Process, seeds: list[int], manifest: Manifest,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Give the seeds to the robots as they become free, until all are flown."""
    waiting, rows = list(seeds), list[dict[str, Any]]()
    for pilot in pilots:
        pilot.until = bus.monotonic() + READY_S
    while len(rows) < len(seeds):
        bus.wait(POLL_S)
        for pilot in pilots:
            for process in (*pilot.processes, recorder):
                if process.poll() is not None:
                    raise FlightError(
                        f"{process.name} ended with status {process.returncode}: {last_words(process)}")
            row = advance(bus, pilot, waiting, manifest.horizon_s)
            if row:
                rows.append(row)
                if progress:
                    progress(row)
    return sorted(rows, key=lambda row: int(row["seed"]))


def advance(bus: Transport, pilot: Pilot, waiting: list[int], horizon_s: float) -> dict[str, Any] | None:
    """Move one robot on: starting -> free -> resetting -> settling -> flying -> free; the row when a flight ends."""
    now, row = bus.monotonic(), None
    if pilot.stage == "starting" and pilot.mode == "ready" and pilot.result and pilot.episode >= 0:
        pilot.stage = "free"
    elif pilot.stage == "resetting" and pilot.episode == pilot.seed:
        pilot.stage, pilot.settled = "settling", now + SETTLE_S
    elif pilot.stage == "settling" and now >= pilot.settled:
        send(bus, pilot.start, pilot.seed)
        pilot.stage, pilot.until = "flying", now + horizon_s + AFTER_S
    elif pilot.stage == "flying" and pilot.mode == "finished" and pilot.number == pilot.seed and done(pilot):
        row = {"seed": pilot.seed, "robot": pilot.namespace, **pilot.result}
        pilot.stage = "free"
    elif pilot.stage != "free" and now > pilot.until:
        words = "; ".join(last_words(p) for p in pilot.processes if last_words(p))
        raise FlightError(
            f"robot {pilot.namespace} is still {pilot.stage} (controller: {pilot.mode or 'silent'}, monitor: "
            f"{pilot.result.get('verdict', 'silent')}, robot: {'there' if pilot.episode >= 0 else 'silent'}); {words}")
    if pilot.stage == "free" and waiting:
        pilot.seed = waiting.pop(0)
        pilot.stage, pilot.until = "resetting", now + RESET_S
        send(bus, pilot.reset, pilot.seed)
    return row


def done(pilot: Pilot) -> bool:
    """Whether the monitor has said its last word on this flight."""
    return pilot.result.get("flight") == pilot.seed and bool(pilot.result.get("final"))


def send(bus: Transport, endpoint: Endpoint, number: int) -> None:
    """Publish a UInt64."""
    bus.publish(endpoint, messages.encode(endpoint.type, messages.record(endpoint.type)(data=number)))


def end(processes: list[Process]) -> None:
    """Ask every process to stop, wait for their summaries, then insist."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_words(process: Process) -> str:
    """The end of what a process printed."""
    text = process.log.read_text(errors="replace").strip()
    return " | ".join(text.splitlines()[-LOG_LINES:])


def report(
    rows: list[dict[str, Any]], pilots: list[Pilot], manifest: Manifest, robot: RobotSpec, bag: Path
) -> FlightReport:
    """The flights' rows with what the nodes' summaries and the true trajectories add."""
    nodes = []
    for pilot in pilots:
        policy = read_summary(pilot, "policy.json")
        nodes += [{**part, "robot": pilot.namespace} for part in (policy, read_summary(pilot, "robot_sim.json"))]
        flown = {flight["flight"]: flight for flight in policy["flights"]}
        for row in rows:
            if row["robot"] == pilot.namespace:
                complete(row, flown[row["seed"]], pilot, manifest, robot)
    policies = [n for n in nodes if n["node"] == "policy_node"]
    latency = {key: worst([n["latency_ms"][key] for n in policies]) for key in ("p50", "p99", "max")}
    lag = max(n["worst_lag_ms"] for n in nodes if n["node"] == "robot_sim")
    return FlightReport(rows, sum(row["verdict"] == "satisfied" for row in rows), latency, lag, bag, nodes)


def complete(
    row: dict[str, Any], flight: Mapping[str, Any], pilot: Pilot, manifest: Manifest, robot: RobotSpec
) -> None:
    """Add the controller's figures and the judgement of the true trajectory to a row."""
    row["robustness_lower"] = row.get("lower")
    row |= {key: flight[key] for key in ("reason", "latency_ms", "missed", "clamped", "steps")}
    truth = pilot.out / f"truth_{row['seed']}.npz"
    if truth.exists() and flight["start_ns"]:
        reading = judge_truth(manifest, robot, truth, flight["start_ns"])
        row["truth"] = {"verdict": reading.verdict, "robustness": reading.lower, "file": str(truth),
                        "start_ns": flight["start_ns"]}


def read_summary(pilot: Pilot, file: str) -> dict[str, Any]:
    """The summary that a node left."""
    path = pilot.out / file
    if not path.exists():
        words = "; ".join(last_words(p) for p in pilot.processes if last_words(p))
        raise FlightError(f"robot {pilot.namespace}: no {path}; {words}")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def worst(values: list[float | None]) -> float | None:
    """The largest of what was measured: percentiles of several controllers are not averaged."""
    found = [v for v in values if v is not None]
    return max(found) if found else None


__all__ = ["FlightError", "FlightReport", "TransportError", "fly"]
