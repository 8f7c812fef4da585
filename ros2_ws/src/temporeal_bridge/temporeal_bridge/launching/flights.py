"""Real-time flights through the nodes: robot, guard, controller, monitor and recorder as processes on one private bus.

    report = fly(Path("artifact"), "crazyflie", flights=10, parallel=2, seed=0, out=Path("outputs/flights"))

Each robot has a namespace and its four processes (with action chunks five), which stay up over its flights; one
recorder records all. A flight: let go of the robot, reset it, wait until it is there, start the mission, wait for the
monitor's verdict. The true trajectory, which only the simulated robot knows, is judged by the same formula afterwards.

What the artifact's task adds to the robot (a goal, objects) is simulated as well; the file of its topics, which all
nodes read, is left in the folder of the flights: ``signals.yaml``.

A flight whose processes die or fall silent is a row with the verdict "failed" and the reason; its robot's processes are
started anew for the next one. What makes further flights pointless (no robot starts, the recorder ended, several
flights in a row failed) ends all at once: the rest are rows that say so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal_bridge.controller import mailbox
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.launching.preflight import check_mission
from temporeal_bridge.mission import NOT_RESET, check_numbers, mission_status
from temporeal_bridge.monitor.formula import judge_truth
from temporeal_bridge.process.children import END_S, Process, ask, end, how_ended, last_words, start
from temporeal_bridge.process.files import fresh
from temporeal_bridge.recording.recovery import rescue
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.cameras import cameras_of
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import QOS, Endpoint, Received, Transport, TransportError

READY_S = 30.0  # for the processes to start, on a busy machine
RESET_S = 5.0
AGAIN_S = 0.6  # a reset that the guard refused is said again: soon after a stop it hears none (RESET_AFTER_S there)
AFTER_S = 10.0  # beyond the mission's horizon, for its verdict
POLL_S = 0.05
SETTLE_S = 0.1  # between "the robot is there" and the start: several states of the new flight have arrived
DISCOVERY_S = 1.0  # for robots that are already on the bus to show
STALL_S = 1.0  # a wait this long is no wait: the machine was stopped, or had no time for us
LISTENERS = 2  # to the start of a mission: the controller and the recorder, which then hears all else, too
IN_A_ROW = 3  # failed flights after which no more is tried: each may cost a time-out
ENDED = ("finished", "stopped", "holding")  # modes of the guard after a flight
NAMES = {"quadrotor": "cf"}  # what a robot's namespace is called by; others by their kind: /arm1, /hand1
FAILED = "failed"  # verdict of a flight that was not flown to its end

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class FlightReport:
    """What K flights gave.

    Args:
        flights: one row each: ``seed``, ``robot`` (namespace), ``verdict`` and ``robustness_lower`` of the monitor,
            ``clauses``, ``lost`` samples, ``reason`` (of an early stop), ``latency_ms``, ``missed`` control steps,
            ``logs`` (folder), and ``truth``: verdict and robustness of the true trajectory. What is not known is None
            or missing. A flight that was not flown has the verdict "failed" and its reason.
        satisfied: number of flights with the verdict "satisfied".
        latency_ms: ``p50``, ``p99``, ``max`` from a state's arrival to the command's departure, over all flights.
        worst_lag_ms: how far a simulated robot was behind real time at worst; None: no robot left a summary.
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


@dataclass
class Pilot:
    """One robot with its processes, as the conductor of the flights sees it."""

    namespace: str
    reset: Endpoint
    start: Endpoint
    unlatch: Endpoint
    out: Path = Path()
    folder: Path | None = None  # where controller and worker meet, for a policy that gives chunks
    processes: list[Process] = field(default_factory=list)
    stage: str = "ended"
    until: float = 0.0
    settled: float = 0.0
    unlatched: float = 0.0  # when that was asked for last
    seed: int = -1
    fault: str = ""
    # what its nodes said last
    episode: int = -1
    recorded: bool = False  # whether the recorder listens
    mode: str = ""
    told: str = ""  # the guard's last reason since the start
    begun: bool = False  # whether the guard has flown this flight
    number: int = -1
    start_ns: int = 0
    result: dict[str, Any] = field(default_factory=dict)


Launch = Callable[[Pilot], None]
"""Starts a robot's processes and says where they write: sets ``processes`` and ``out``."""
RESETTING = ("releasing", "resetting", "settling")
FLYING = (*RESETTING, "flying")


def fly(
    artifact: Path, robot: str, flights: int, parallel: int, seed: int, out: Path, *, interface: str | None = None,
    spread: float = 0.0, transport: str = "dds", domain: int | None = None, signals: Path | None = None,
    progress: Progress | None = None,
) -> FlightReport:
    """Fly ``flights`` missions, with seeds ``seed``, ``seed + 1``, ..., on ``parallel`` robots at a time.

    Args:
        artifact: folder of the policy.
        robot: its name.
        out: folder for logs, summaries, true trajectories and the bag.
        spread: share of the parameters' published ranges that the robots are drawn from.
        domain: DDS domain; None: one that is free on this machine. Traffic stays on this machine.
        signals: file of extra topics: cameras, for instance; what the task adds need not be in it.
        progress: called with the row of each flight as it ends.
    """
    if flights < 1 or parallel < 1:
        raise ValueError(f"flights and parallel are at least 1, got {flights} and {parallel}")
    check_numbers("the seed of the first flight, and its number,", seed, flights)
    spec, manifest = load_robot(robot), load_manifest(artifact)
    if manifest.robot != robot:
        raise ArtifactError(f"the artifact is for robot {manifest.robot!r}, this robot is {robot!r}")
    signals = task_topics.write(manifest, spec, out / "signals.yaml", signals)
    how = load_interface(spec, interface, signals)
    check_mission(manifest, spec, how)
    cameras_of(how)
    given = domain
    if domain is None:
        from temporeal_bridge.transports.dds import free_domain

        domain = free_domain()
    out.mkdir(parents=True, exist_ok=True)
    bus = open_transport(transport, "flights", "/", domain=domain, loopback=True)
    shared = ["--robot", robot, "--transport", transport, "--domain", str(domain), "--loopback"]
    shared += ["--interface", interface] if interface else []
    shared += ["--signals", str(signals)] if signals else []
    started: list[Process] = []
    pilots: list[Pilot] = []

    def launch(pilot: Pilot) -> None:
        pilot.out = fresh(out / pilot.namespace.strip("/"))
        pilot.processes = robot_processes(pilot, artifact, shared, spread, how)
        started.extend(pilot.processes)

    try:
        pilots = [join(bus, f"/{NAMES.get(spec.kind, spec.kind)}{i + 1}") for i in range(min(parallel, flights))]
        if given is not None:
            refuse_taken(bus, pilots, given)
        for pilot in pilots:
            pilot.folder = None if manifest.chunk is None else mailbox.new_folder()
            launch(pilot)
        bag = fresh(out / "bag")
        names = [word for p in pilots for word in ("--of", p.namespace)]
        recorder = start("recorder", [*shared, "--bag", str(bag), *names, "--out", str(out)], out / "recorder.log")
        started.append(recorder)
        seeds = list(range(seed, seed + flights))
        rows, fault = conduct(bus, pilots, recorder, seeds, manifest.horizon_s, launch, progress)
    finally:
        end(started)
        for pilot in pilots:
            if pilot.folder is not None:
                shutil.rmtree(pilot.folder, ignore_errors=True)
        bus.close()
    if recorder.returncode:
        fault = (fault or how_ended(recorder)) + rescue(bag)
    return report(rows, fault, manifest, spec, how, bag)


def robot_processes(
    pilot: Pilot, artifact: Path, shared: list[str], spread: float, interface: Interface
) -> list[Process]:
    """Robot, guard, controller, monitor of one namespace, and the worker of a controller whose policy gives chunks.

    What takes orders is armed by us: nobody else is there.
    """
    orders = None if interface.autopilot is None else interface.autopilot.orders
    own = [*shared, "--namespace", pilot.namespace, "--out", str(pilot.out)]
    first = ["--priority", "auto"]  # robot and controller keep their time on a busy machine, where that is permitted
    options = {
        "robot_sim": [*first, "--artifact", str(artifact), "--spread", str(spread)],
        "guard_node": [*first, "--artifact", str(artifact), *([] if orders is None else ["--arm", "ask"])],
        "policy_node": [*first, "--artifact", str(artifact), "--after", "silence", "--peer-timeout", str(READY_S)],
        "monitor_node": ["--artifact", str(artifact)]}
    worker = []
    if pilot.folder is not None:
        words = worker_options(artifact, pilot.folder, pilot.out)
        worker = [start("worker_node", words, pilot.out / "worker_node.log")]
        options["policy_node"] += ["--worker", str(pilot.folder)]
    return worker + [start(name, [*own, *words], pilot.out / f"{name}.log") for name, words in options.items()]


def worker_options(artifact: Path, folder: Path, out: Path) -> list[str]:
    """What the inference worker is told; it is on no bus."""
    return ["--artifact", str(artifact), "--folder", str(folder), "--out", str(out)]


def join(bus: Transport, namespace: str) -> Pilot:
    """The conductor's topics to the robot in ``namespace``."""
    number = "std_msgs/msg/UInt64"
    pilot = Pilot(namespace, bus.advertise(f"{namespace}/sim/reset", number, QOS["default"]),
                  bus.advertise(f"{namespace}/mission/start", number, QOS["default"]),
                  bus.advertise(f"{namespace}/mission/reset", "std_msgs/msg/Empty", QOS["default"]))

    def on_episode(received: Received) -> None:
        pilot.episode = int(messages.decode(received.type, received.data).data)

    def on_mission(received: Received) -> None:
        said = mission_status(received)
        if said is not None:
            pilot.mode, pilot.number, pilot.start_ns = said
            pilot.begun = pilot.begun or (said.mode == "active" and said.number == pilot.seed)

    def on_event(received: Received) -> None:
        pilot.told = json.loads(messages.decode(received.type, received.data).data)["reason"]

    def on_verdict(received: Received) -> None:
        pilot.result = json.loads(messages.decode(received.type, received.data).data)

    bus.subscribe(f"{namespace}/sim/episode", number, QOS["latched"], on_episode)
    bus.subscribe(f"{namespace}/mission", "std_msgs/msg/Header", QOS["latched"], on_mission)
    bus.subscribe(f"{namespace}/guard/event", "std_msgs/msg/String", QOS["default"], on_event)
    bus.subscribe(f"{namespace}/monitor/verdict", "std_msgs/msg/String", QOS["latched"], on_verdict)
    return pilot


def refuse_taken(bus: Transport, pilots: Sequence[Pilot], domain: int) -> None:
    """Before anything is started: no robot of these names may be on the bus."""
    until = bus.monotonic() + DISCOVERY_S
    while bus.monotonic() < until:
        bus.wait(POLL_S)
        for pilot in pilots:
            if pilot.episode >= 0 or pilot.mode or bus.matched(pilot.reset) or bus.matched(pilot.start):
                raise TransportError(f"another robot is already in namespace {pilot.namespace} on DDS domain {domain}: "
                                     "end its nodes, or choose another domain")


def conduct(
    bus: Transport, pilots: list[Pilot], recorder: Process, seeds: Sequence[int], horizon_s: float, launch: Launch,
    progress: Progress | None,
) -> tuple[list[dict[str, Any]], str]:
    """Give the seeds to the robots as they become free, until all are flown or nothing can be flown any more: a row for
    each seed, and why it ended early. The robots' processes are started before.
    """
    waiting, rows, in_a_row, fault = list(seeds), list[dict[str, Any]](), 0, ""
    for pilot in pilots:
        begin(bus, pilot)
    while len(rows) < len(seeds) and not fault:
        stall = wait(bus)
        for pilot in pilots:
            pilot.until += stall
            row = advance(bus, pilot, waiting, horizon_s, launch)
            if row:
                rows.append(row)
                in_a_row = in_a_row + 1 if row["verdict"] == FAILED else 0
                if progress:
                    progress(row)
        fault = hopeless(pilots, recorder, rows, in_a_row)
    if len(rows) < len(seeds):
        told = {row["seed"] for row in rows}
        where = {pilot.seed: pilot for pilot in pilots if pilot.stage in FLYING}
        rows += [failed(seed, where.get(seed), fault) for seed in seeds if seed not in told]
    return sorted(rows, key=lambda row: int(row["seed"])), fault


def wait(bus: Transport) -> float:
    """Let messages come in; how long this machine stood still meanwhile, s: nobody is late for that."""
    before = bus.monotonic()
    bus.wait(POLL_S)
    took = bus.monotonic() - before
    return took if took > STALL_S else 0.0


def hopeless(pilots: Sequence[Pilot], recorder: Process, rows: Sequence[Mapping[str, Any]], in_a_row: int) -> str:
    """Why no further flight should be tried, or nothing."""
    if recorder.poll() is not None:
        return how_ended(recorder)
    if all(pilot.stage == "ended" and pilot.fault for pilot in pilots):
        return pilots[0].fault
    return f"{in_a_row} flights in a row failed, the last one: {rows[-1]['reason']}" if in_a_row >= IN_A_ROW else ""


def begin(bus: Transport, pilot: Pilot) -> None:
    """Forget what was said before: the robot's processes have just been started."""
    pilot.episode = pilot.number = pilot.seed = -1
    pilot.mode, pilot.result, pilot.start_ns, pilot.fault = "", {}, 0, ""
    pilot.recorded = False
    pilot.stage, pilot.until = "starting", bus.monotonic() + READY_S


def advance(
    bus: Transport, pilot: Pilot, waiting: list[int], horizon_s: float, launch: Launch
) -> dict[str, Any] | None:
    """Move one robot on: starting -> free -> releasing -> resetting -> settling -> flying -> free; the row when a
    flight ends.

    With a fault: -> ending -> starting again if the fault was in a flight and others wait, else -> ended.
    """
    now = bus.monotonic()
    if pilot.stage == "ended":
        return None
    if pilot.stage == "ending":
        restart(bus, pilot, bool(waiting), launch)
        return None
    fault = fault_of(pilot, now)
    if fault:
        row = failed(pilot.seed, pilot, fault) if pilot.stage in FLYING else None
        pilot.fault = fault if row is None else ""
        ask(pilot.processes)
        pilot.stage, pilot.until = "ending", now + END_S
        return row
    row = step(bus, pilot, horizon_s)
    if pilot.stage == "free" and waiting:
        pilot.seed, pilot.episode = waiting.pop(0), -1  # a robot that has just started may be in this episode already
        pilot.stage, pilot.until = "releasing", now + RESET_S
        release(bus, pilot)
    return row


def step(bus: Transport, pilot: Pilot, horizon_s: float) -> dict[str, Any] | None:
    """Move a robot without a fault on by what its nodes have said; the row when its flight ended."""
    now = bus.monotonic()
    refused = pilot.stage in RESETTING and pilot.told.startswith(NOT_RESET)
    if refused and now >= pilot.unlatched + AGAIN_S:
        release(bus, pilot)
    if pilot.stage == "starting":
        pilot.recorded = bus.matched(pilot.start) >= LISTENERS
        if pilot.recorded and pilot.mode == "ready" and pilot.result and pilot.episode >= 0:
            pilot.stage = "free"
    elif pilot.stage == "releasing" and pilot.mode not in ("stopping", "holding"):  # else the guard would take it along
        pilot.stage = "resetting"
        send(bus, pilot.reset, pilot.seed)
    elif pilot.stage == "resetting" and pilot.episode == pilot.seed:
        pilot.stage, pilot.settled = "settling", now + SETTLE_S
    elif pilot.stage == "settling" and now >= pilot.settled and pilot.mode in ("ready", "finished"):
        pilot.told, pilot.begun = "", False
        send(bus, pilot.start, pilot.seed)
        pilot.stage, pilot.until = "flying", now + horizon_s + AFTER_S
    elif pilot.stage == "flying" and pilot.mode in ENDED and pilot.number == pilot.seed and done(pilot):
        pilot.stage = "free"
        return {"seed": pilot.seed, "robot": pilot.namespace, "logs": str(pilot.out), "start_ns": pilot.start_ns,
                **pilot.result}
    return None


def fault_of(pilot: Pilot, now: float) -> str:
    """What is wrong with a robot, or nothing: a process that ended, a stage that takes too long."""
    ended = [how_ended(process) for process in pilot.processes if process.poll() is not None]
    if ended:
        return f"{', '.join(ended)} (robot {pilot.namespace})"
    if pilot.stage == "flying" and not pilot.begun and pilot.told and pilot.mode in ("ready", *ENDED):
        return f"robot {pilot.namespace} did not begin: {pilot.told}"
    if pilot.stage == "free" or now <= pilot.until:
        return ""
    words = [f"{process.name}: {last}" for process in pilot.processes
             if (last := last_words(process).rpartition("\n")[2])]
    return "; ".join([
        f"robot {pilot.namespace} is still {pilot.stage} (guard: {pilot.mode or 'silent'}, monitor: "
        f"{pilot.result.get('verdict', 'silent')}, robot: {'there' if pilot.episode >= 0 else 'silent'}, "
        f"recorder: {'there' if pilot.recorded else 'silent'})", *words])


def restart(bus: Transport, pilot: Pilot, wanted: bool, launch: Launch) -> None:
    """Once the processes have ended, or have had their time to: start them anew, unless they could not even start."""
    if any(process.poll() is None for process in pilot.processes):
        if bus.monotonic() <= pilot.until:
            return
        for process in pilot.processes:
            process.kill()
    if pilot.fault or not wanted:
        pilot.stage = "ended"
        return
    launch(pilot)
    begin(bus, pilot)


def failed(seed: int, pilot: Pilot | None, reason: str) -> dict[str, Any]:
    """The row of a flight that was not flown to its end, or not begun (``pilot`` is None)."""
    logs = None if pilot is None else str(pilot.out)
    return {"seed": seed, "robot": pilot and pilot.namespace, "logs": logs, "verdict": FAILED,
            "reason": reason if pilot else f"not flown: {reason}"}


def done(pilot: Pilot) -> bool:
    """Whether the monitor has said its last word on this flight."""
    return pilot.result.get("flight") == pilot.seed and bool(pilot.result.get("final"))


def release(bus: Transport, pilot: Pilot) -> None:
    """Why the last flight was stopped is history."""
    pilot.told, pilot.unlatched = "", bus.monotonic()
    bus.publish(pilot.unlatch, messages.empty())


def send(bus: Transport, endpoint: Endpoint, number: int) -> None:
    """Publish a UInt64."""
    bus.publish(endpoint, messages.encode(endpoint.type, messages.record(endpoint.type)(data=number)))


def report(
    rows: list[dict[str, Any]], fault: str, manifest: Manifest, robot: RobotSpec, interface: Interface, bag: Path
) -> FlightReport:
    """The flights' rows with what the nodes' summaries and the true trajectories add."""
    nodes = []
    for folder, namespace in sorted({(row["logs"], row["robot"]) for row in rows if row["logs"]}):
        nodes += [{**part, "robot": namespace} for name in ("policy.json", "guard.json", "robot_sim.json")
                  if (part := read_summary(Path(folder) / name))]
    figures: dict[tuple[str, int], dict[str, Any]] = {}
    for folder in {row["logs"] for row in rows if row["logs"]}:
        for name in ("policy.json", "guard.json"):  # what both count is the guard's: it has the last word
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
    """Add the controller's figures and the judgement of the true trajectory to a row."""
    row["robustness_lower"] = row.get("lower")
    row |= {key: flight.get(key) for key in ("latency_ms", "missed", "limited", "steps")}
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
    """The largest of what was measured: percentiles of several controllers are not averaged."""
    found = [v for v in values if v is not None]
    return max(found) if found else None


__all__ = ["FAILED", "FlightReport", "TransportError", "fly"]
