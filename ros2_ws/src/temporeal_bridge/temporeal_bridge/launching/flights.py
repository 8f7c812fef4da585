"""Real-time flights through the nodes: robot, guard, controller, monitor and recorder as processes on a private bus.

    report = fly(Path("artifact"), FlightPlan("crazyflie", flights=10, parallel=2), Path("outputs/flights"))

Each robot has a namespace and its four processes (with action chunks five), which stay up over its flights
(:mod:`temporeal_bridge.launching.conductor`); one recorder records all. The true trajectory, which only the simulated
robot knows, is judged by the same formula afterwards. What the artifact's task adds to the robot (a goal, objects) is
simulated as well; the file of its topics, which all nodes read, is kept beside the flights: ``signals.yaml``.

A flight whose processes die or fall silent is a row with the verdict "failed" and the reason. What makes further
flights pointless (no robot starts, the recorder ended, several flights in a row failed) ends the series: the rest are
rows that say so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_bridge.controller import mailbox
from temporeal_bridge.instruction.sentences import formula_is_of_words, is_told, mission_of, one_form, require_words
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import interface_file, load_interface
from temporeal_bridge.launching.conductor import (
    COMPILE_S,
    FAILED,
    READY_S,
    RENDERER_S,
    Forecast,
    Pilot,
    Progress,
    conduct,
    join,
    refuse_taken,
)
from temporeal_bridge.launching.preflight import check_mission
from temporeal_bridge.mission import check_numbers
from temporeal_bridge.monitor.formula import judge_truth, untold
from temporeal_bridge.process.children import Process, end, how_ended, start
from temporeal_bridge.process.files import fresh
from temporeal_bridge.recording.recovery import rescue
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.camera_exposures import cameras_of
from temporeal_bridge.simulated_robot.hidden import hidden_settings
from temporeal_bridge.transports.selection import open_transport

NAMES = {"crazyflie": "cf"}  # prefix of a robot's namespace; other robots are named by their kind: /arm1, /hand1


@dataclass(frozen=True)
class FlightPlan:
    """Which flights to fly.

    Args:
        robot: its name.
        flights: number of missions, with seeds ``seed``, ``seed + 1``, ...; ``parallel``: robots at a time.
        interface: of the robot; None: its default.
        spread: share of the parameters' published ranges that the robots are drawn from.
        domain: DDS domain; None: one that is free on this machine. Traffic stays on this machine.
        signals: file of extra topics: cameras, for instance. Signals that the task adds need not be in it.
        instructions: sentences that the flights are told, in turn.
        require: least P(satisfied) of a formula; others are refused.
        hidden: how the robots differ from their spec (:mod:`temporeal_bridge.simulated_robot.hidden`); None: not.
    """

    robot: str
    flights: int = 1
    parallel: int = 1
    seed: int = 0
    interface: str | None = None
    spread: float = 0.0
    transport: str = "dds"
    domain: int | None = None
    signals: Path | None = None
    instructions: tuple[str, ...] = ()
    hidden: Path | None = None
    require: float = 0.0

    def __post_init__(self) -> None:
        if self.flights < 1 or self.parallel < 1:
            raise ValueError(f"flights and parallel are at least 1, got {self.flights} and {self.parallel}")
        check_numbers("the seed of the first flight, and its number,", self.seed, self.flights)


@dataclass(frozen=True)
class FlightReport:
    """The results of a series of flights.

    Args:
        flights: one row each: ``seed``, ``robot`` (namespace), ``verdict`` and ``robustness_lower`` of the monitor,
            ``clauses``, ``lost`` samples, ``reason`` (of an early stop), ``latency_ms``, ``missed`` control steps,
            ``logs`` (folder), and ``truth``: verdict and robustness of the true trajectory. What is unknown is None or
            missing. A flight that was not flown has the verdict "failed" and its reason.
        satisfied: number of flights with the verdict "satisfied".
        latency_ms: ``p50``, ``p99``, ``max`` from a state's arrival to the command's departure, over all flights.
        worst_lag_ms: largest lag of a simulated robot behind real time; None: no robot left a summary.
        bag: the recording.
        fault: why no more flights were tried, empty if all were.
    """

    flights: list[dict[str, Any]]
    satisfied: int
    latency_ms: dict[str, float | None]
    worst_lag_ms: float | None
    bag: Path
    nodes: list[dict[str, Any]] = field(default_factory=list)
    fault: str = ""

    @property
    def flown(self) -> int:
        """Number of flights that have a verdict of the monitor."""
        return sum(row["verdict"] != FAILED for row in self.flights)


def fly(
    artifact: Path, plan: FlightPlan, out: Path, progress: Progress | None = None, forecast: Forecast | None = None,
) -> FlightReport:
    """Fly the missions.

    Args:
        artifact: folder of the policy.
        out: folder for logs, summaries, true trajectories and the bag.
        progress: called with the row of each flight as it ends.
        forecast: called before each flight of a formula with its seed and what the controller says of it.
    """
    spec, manifest = load_robot(plan.robot), load_manifest(artifact)
    interface_file(spec)
    if manifest.robot != plan.robot:
        raise ArtifactError(f"the artifact is for robot {manifest.robot!r}, this robot is {plan.robot!r}")
    signals = task_topics.write(manifest, spec, out / "signals.yaml", plan.signals)
    interface = load_interface(spec, plan.interface, signals)
    check_mission(manifest, spec, interface, require_words(manifest, plan.instructions))
    cameras_of(interface)
    if plan.hidden is not None:
        hidden_settings(plan.hidden, spec, interface.simulation)
    domain = free_domain() if plan.domain is None else plan.domain
    out.mkdir(parents=True, exist_ok=True)
    bus = open_transport(plan.transport, "flights", "/", domain=domain, loopback=True)
    shared = ["--robot", plan.robot, "--transport", plan.transport, "--domain", str(domain), "--loopback"]
    shared += ["--interface", plan.interface] if plan.interface else []
    shared += ["--signals", str(signals)] if signals else []
    started: list[Process] = []
    pilots: list[Pilot] = []

    def launch(pilot: Pilot) -> None:
        pilot.out = fresh(out / pilot.namespace.strip("/"))
        pilot.processes = robot_processes(pilot, artifact, shared, plan, interface)
        started.extend(pilot.processes)

    try:
        pilots = [join(bus, f"/{NAMES.get(spec.name, spec.kind)}{i + 1}")
                  for i in range(min(plan.parallel, plan.flights))]
        if plan.domain is not None:
            refuse_taken(bus, pilots, plan.domain)
        for pilot in pilots:
            pilot.folder = None if manifest.chunk is None else mailbox.new_folder()
            pilot.dresses, pilot.forecast = formula_is_of_words(manifest), forecast
            pilot.ready_s += RENDERER_S if interface.pictures else 0.0
            pilot.ready_s += COMPILE_S if manifest.formulas is not None else 0.0
            launch(pilot)
        bag = fresh(out / "bag")
        names = [word for p in pilots for word in ("--of", p.namespace)]
        recorder = start("recorder", [*shared, "--bag", str(bag), *names, "--out", str(out)], out / "recorder.log")
        started.append(recorder)
        seeds = list(range(plan.seed, plan.seed + plan.flights))
        rows, fault = conduct(bus, pilots, recorder, seeds, manifest.horizon_s, launch, progress,
                              [one_form(manifest, text) for text in plan.instructions if is_told(manifest)])
    finally:
        end(started)
        for pilot in pilots:
            if pilot.folder is not None:
                shutil.rmtree(pilot.folder, ignore_errors=True)
        bus.close()
    if recorder.returncode:
        fault = (fault or how_ended(recorder)) + rescue(bag)
    return report(rows, fault, manifest, spec, interface, bag)


def free_domain() -> int:
    """A DDS domain that is free on this machine."""
    from temporeal_bridge.transports import dds  # needs Cyclone DDS, which a sourced ROS 2 may do without

    return dds.free_domain()


def robot_processes(
    pilot: Pilot, artifact: Path, shared: list[str], plan: FlightPlan, interface: Interface
) -> list[Process]:
    """Robot, guard, controller, monitor of one namespace, and the worker of a controller whose policy gives chunks.

    An autopilot that takes orders is armed by the guard: nobody else is there.
    """
    orders = None if interface.autopilot is None else interface.autopilot.orders
    own = [*shared, "--namespace", pilot.namespace, "--out", str(pilot.out)]
    drawn = ["--spread", str(plan.spread)] if plan.spread or plan.hidden is None else []  # else the file's
    hidden = [] if plan.hidden is None else ["--hidden", str(plan.hidden)]
    first = ["--priority", "auto"]  # robot and controller keep their time on a busy machine, where that is permitted
    options = {
        "robot_sim": [*first, "--artifact", str(artifact), *drawn, *hidden],
        "guard_node": [*first, "--artifact", str(artifact), *([] if orders is None else ["--arm", "ask"])],
        "policy_node": [*first, "--artifact", str(artifact), "--after", "silence", "--peer-timeout", str(READY_S),
                        *(["--require", str(plan.require)] if plan.require else [])],
        "monitor_node": ["--artifact", str(artifact)]}
    worker = []
    if pilot.folder is not None:
        words = worker_options(artifact, pilot.folder, pilot.out)
        worker = [start("worker_node", words, pilot.out / "worker_node.log")]
        options["policy_node"] += ["--worker", str(pilot.folder)]
    return worker + [start(name, [*own, *words], pilot.out / f"{name}.log") for name, words in options.items()]


def worker_options(artifact: Path, folder: Path, out: Path) -> list[str]:
    """Options of the inference worker, which is on no bus."""
    return ["--artifact", str(artifact), "--folder", str(folder), "--out", str(out)]


def report(
    rows: list[dict[str, Any]], fault: str, manifest: Manifest, robot: RobotSpec, interface: Interface, bag: Path
) -> FlightReport:
    """The flights' rows with the nodes' summaries and the true trajectories."""
    nodes = []
    for folder, namespace in sorted({(row["logs"], row["robot"]) for row in rows if row["logs"]}):
        nodes += [{**part, "robot": namespace} for name in ("policy.json", "guard.json", "robot_sim.json")
                  if (part := read_summary(Path(folder) / name))]
    figures: dict[tuple[str, int], dict[str, Any]] = {}
    for folder in {row["logs"] for row in rows if row["logs"]}:
        for name in ("policy.json", "guard.json"):  # figures that both have are the guard's: it sends the commands
            for flight in (read_summary(Path(folder) / name) or {"flights": []})["flights"]:
                figures.setdefault((folder, flight["flight"]), {}).update(flight)
    for row in rows:
        complete(row, figures.get((row["logs"], row["seed"]), {}), manifest, robot, interface)
    guards = [n for n in nodes if n["node"] == "guard_node"]
    latency = {key: worst([n["latency_ms"][key] for n in guards]) for key in ("p50", "p99", "max")}
    lag = worst([n["worst_lag_ms"] for n in nodes if n["node"] == "robot_sim"])
    return FlightReport(rows, sum(row["verdict"] == "satisfied" for row in rows), latency, lag, bag, nodes, fault)


def complete(
    row: dict[str, Any], flight: Mapping[str, Any], manifest: Manifest, robot: RobotSpec, interface: Interface
) -> None:
    """Add the controller's figures and the judgement of the true trajectory to a row. It is judged by what the flight
    was told."""
    if manifest.instruction is not None or manifest.formulas is not None:
        said = row.get("instruction", "")
        manifest = mission_of(manifest, robot, interface, said) if said else untold(manifest)
    row["robustness_lower"] = row.get("lower")
    row |= {key: flight.get(key) for key in ("latency_ms", "missed", "limited", "steps")}
    row |= {key: flight[key] for key in ("forecast", "formula_to_command_ms") if key in flight}
    if row["verdict"] == FAILED:
        return
    row["reason"] = flight.get("reason", "")
    truth, start_ns = Path(row["logs"]) / f"truth_{row['seed']}.npz", row.pop("start_ns")
    if truth.exists() and start_ns:
        reading = judge_truth(manifest, robot, interface, truth, start_ns)
        row["truth"] = {"verdict": reading.verdict, "robustness": reading.lower, "file": str(truth),
                        "start_ns": start_ns}


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary that a node left, None if it left none: it was killed."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def worst(values: list[float | None]) -> float | None:
    """The largest measured value: percentiles of several controllers are not averaged."""
    found = [v for v in values if v is not None]
    return max(found) if found else None
