"""Leads robots through their flights: let go of the robot, reset it, wait until it is there, start the mission, wait
for the monitor's verdict. Robots whose processes die or fall silent are restarted; hopeless series are ended early."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal_bridge.instruction.sentences import ASK, TEXT, TOLD, message
from temporeal_bridge.mission import NOT_RESET, mission_status
from temporeal_bridge.process.children import END_S, Process, ask, how_ended, last_words
from temporeal_bridge.recording import records
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Endpoint, Received, Transport, TransportError

READY_S = 30.0  # for the processes to start, on a busy machine
RENDERER_S = 60.0  # more for a renderer, whose kernels may be compiled first
COMPILE_S = 60.0  # more for what judges any formula, which may be compiled first
RESET_S = 5.0
AGAIN_S = 0.6  # interval between resets that the guard refused: soon after a stop it accepts none (RESET_AFTER_S there)
AFTER_S = 10.0  # beyond the mission's horizon, for its verdict
POLL_S = 0.05
SETTLE_S = 0.1  # between "the robot is there" and the start: several states of the new flight have arrived
DISCOVERY_S = 1.0  # for robots that are already on the bus to show
SEEN_S = 0.4  # from a scene's change until its pictures have arrived: a period of a slow camera and its rendering
STALL_S = 1.0  # a longer wait means that the machine was stopped, or had no time for us
LISTENERS = 2  # subscribers to the start of a mission: the controller, and the recorder, which then has all topics
IN_A_ROW = 3  # failed flights after which no more is tried: each may cost a time-out
ENDED = ("finished", "stopped", "holding")  # modes of the guard after a flight
FAILED = "failed"  # verdict of a flight that was not flown to its end

Progress = Callable[[Mapping[str, Any]], None]
Forecast = Callable[[int, Mapping[str, Any]], None]
"""Gets the seed of a flight, and the controller's answer to its formula."""


@dataclass
class Pilot:
    """One robot with its processes.

    Args:
        ready_s: time limit for the start of its processes.
        folder: where controller and worker meet, for a policy that gives chunks.
        instruct: topic of sentences; wanted: this flight's, empty: the policy takes none; told: the controller's last
            answer; dressed: the sentence that the simulated scene was made for; dresses: whether the task can do that;
            heard: whether all have it. answer: the controller's last one, whole; refusal: why it does not take this
            flight's instruction, or does not begin with it; forecast: gets the answer before the flight.
        unlatched: time of the last reset request to the guard.
        episode, mode, number, start_ns, result: last messages of its nodes.
        recorded: whether the recorder listens.
        reason: the guard's last reason since the start.
        begun: whether the guard has begun this flight.
    """

    namespace: str
    reset: Endpoint
    start: Endpoint
    unlatch: Endpoint
    instruct: Endpoint
    out: Path = Path()
    folder: Path | None = None
    ready_s: float = READY_S
    processes: list[Process] = field(default_factory=list)
    stage: str = "ended"
    until: float = 0.0
    settled: float = 0.0
    unlatched: float = 0.0
    seed: int = -1
    wanted: str = ""
    told: str = ""
    dressed: str = ""
    dresses: bool = False
    heard: bool = False
    answer: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    forecast: Forecast | None = None
    fault: str = ""
    episode: int = -1
    recorded: bool = False
    mode: str = ""
    reason: str = ""
    begun: bool = False
    number: int = -1
    start_ns: int = 0
    result: dict[str, Any] = field(default_factory=dict)


Launch = Callable[[Pilot], None]
"""Starts a robot's processes: sets ``processes`` and ``out``."""
RESETTING = ("releasing", "resetting", "settling")
FLYING = (*RESETTING, "flying")


def join(bus: Transport, namespace: str) -> Pilot:
    """The topics to and from the robot in ``namespace``."""
    number = "std_msgs/msg/UInt64"
    pilot = Pilot(namespace, bus.advertise(f"{namespace}/sim/reset", number, QOS["default"]),
                  bus.advertise(f"{namespace}/mission/start", number, QOS["default"]),
                  bus.advertise(f"{namespace}/mission/reset", "std_msgs/msg/Empty", QOS["default"]),
                  bus.advertise(f"{namespace}/{ASK}", TEXT, QOS["default"]))

    def on_episode(received: Received) -> None:
        pilot.episode = int(messages.decode(received.type, received.data).data)

    def on_mission(received: Received) -> None:
        status = mission_status(received)
        if status is not None:
            pilot.mode, pilot.number, pilot.start_ns = status
            pilot.begun = pilot.begun or (status.mode == "active" and status.number == pilot.seed)

    def on_event(received: Received) -> None:
        pilot.reason = json.loads(messages.decode(received.type, received.data).data)["reason"]

    def on_told(received: Received) -> None:
        pilot.told = records.read(TOLD, received)
        pilot.answer = json.loads(messages.decode(received.type, received.data).data)

    def on_refusal(received: Received) -> None:
        event = records.read("policy/event", received)
        if event.code == "instruction" or (event.code == "dropped" and event.flight == pilot.seed):
            pilot.refusal = event.reason

    def on_dressed(received: Received) -> None:
        pilot.dressed = messages.decode(received.type, received.data).data

    def on_verdict(received: Received) -> None:
        pilot.result = json.loads(messages.decode(received.type, received.data).data)

    bus.subscribe(f"{namespace}/sim/episode", number, QOS["latched"], on_episode)
    bus.subscribe(f"{namespace}/mission", "std_msgs/msg/Header", QOS["latched"], on_mission)
    bus.subscribe(f"{namespace}/guard/event", "std_msgs/msg/String", QOS["default"], on_event)
    bus.subscribe(f"{namespace}/{TOLD}", TEXT, QOS["latched"], on_told)
    bus.subscribe(f"{namespace}/policy/event", TEXT, QOS["default"], on_refusal)
    bus.subscribe(f"{namespace}/sim/instruction", TEXT, QOS["latched"], on_dressed)
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
    progress: Progress | None, instructions: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], str]:
    """Give the seeds to the robots as they become free, until all are flown or nothing can be flown any more: a row for
    each seed, and why it ended early. The robots' processes are started before. ``instructions``: what the flights
    are told, in turn.
    """
    waiting, rows, in_a_row, fault = list(seeds), list[dict[str, Any]](), 0, ""
    for pilot in pilots:
        begin(bus, pilot)
    while len(rows) < len(seeds) and not fault:
        stall = wait(bus)
        for pilot in pilots:
            pilot.until += stall
            row = advance(bus, pilot, waiting, horizon_s, launch, {
                seed: instructions[k % len(instructions)] for k, seed in enumerate(seeds) if instructions})
            if row:
                rows.append(row)
                in_a_row = in_a_row + 1 if row["verdict"] == FAILED and not row.get("refused") else 0
                if progress:
                    progress(row)
        fault = hopeless(pilots, recorder, rows, in_a_row)
    if len(rows) < len(seeds):
        done = {row["seed"] for row in rows}
        where = {pilot.seed: pilot for pilot in pilots if pilot.stage in FLYING}
        rows += [failed(seed, where.get(seed), fault) for seed in seeds if seed not in done]
    return sorted(rows, key=lambda row: int(row["seed"])), fault


def wait(bus: Transport) -> float:
    """Let messages arrive; how long this machine stood still meanwhile, s: deadlines are moved by that."""
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
    """Forget earlier messages: the robot's processes have just been started."""
    pilot.episode = pilot.number = pilot.seed = -1
    pilot.mode, pilot.result, pilot.start_ns, pilot.fault, pilot.told = "", {}, 0, "", ""
    pilot.dressed = ""
    pilot.recorded = False
    pilot.stage, pilot.until = "starting", bus.monotonic() + pilot.ready_s


def advance(
    bus: Transport, pilot: Pilot, waiting: list[int], horizon_s: float, launch: Launch,
    instructions: Mapping[int, str] | None = None,
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
        pilot.wanted, pilot.refusal, pilot.begun = (instructions or {}).get(pilot.seed, ""), "", False
        pilot.stage, pilot.until = "releasing", now + RESET_S
        release(bus, pilot)
    return row


def step(bus: Transport, pilot: Pilot, horizon_s: float) -> dict[str, Any] | None:
    """Move a robot without a fault on by its nodes' last messages; the row when its flight ended."""
    now = bus.monotonic()
    refused = pilot.stage in RESETTING and pilot.reason.startswith(NOT_RESET)
    if refused and now >= pilot.unlatched + AGAIN_S:
        release(bus, pilot)
    if pilot.wanted and pilot.refusal and not pilot.begun and pilot.stage in ("settling", "flying"):
        pilot.stage = "free"
        return failed(pilot.seed, pilot, pilot.refusal) | {"refused": True}
    if pilot.stage == "starting":
        pilot.recorded = bus.matched(pilot.start) >= LISTENERS
        if pilot.recorded and pilot.mode == "ready" and pilot.result and pilot.episode >= 0:
            pilot.stage = "free"
    elif pilot.stage == "releasing" and pilot.mode not in ("stopping", "holding"):  # else the guard would move it back
        pilot.stage = "resetting"
        send(bus, pilot.reset, pilot.seed)
    elif pilot.stage == "resetting" and pilot.episode == pilot.seed:
        pilot.stage, pilot.settled, pilot.heard = "settling", now + SETTLE_S, not pilot.wanted
        instruct(bus, pilot)
    elif pilot.stage == "settling" and told(pilot) and not pilot.heard:  # the new scene's pictures are on their way
        pilot.heard, pilot.settled = True, now + (SEEN_S if pilot.wanted else 0.0)
    elif pilot.stage == "settling" and pilot.heard and now >= pilot.settled and pilot.mode in ("ready", "finished"):
        pilot.reason, pilot.begun = "", False
        if pilot.forecast is not None and "forecast" in pilot.answer:
            pilot.forecast(pilot.seed, pilot.answer)
        send(bus, pilot.start, pilot.seed)
        pilot.stage, pilot.until = "flying", now + horizon_s + AFTER_S
    elif pilot.stage == "settling" and now >= pilot.settled + AGAIN_S:
        pilot.settled = now
        instruct(bus, pilot)
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
    if pilot.stage == "flying" and not pilot.begun and pilot.reason and pilot.mode in ("ready", *ENDED):
        return f"robot {pilot.namespace} did not begin: {pilot.reason}"
    if pilot.stage == "free" or now <= pilot.until:
        return ""
    words = [f"{process.name}: {last}" for process in pilot.processes
             if (last := last_words(process).rpartition("\n")[2])]
    return "; ".join([
        f"robot {pilot.namespace} is still {pilot.stage} (guard: {pilot.mode or 'silent'}, monitor: "
        f"{pilot.result.get('verdict', 'silent')}, robot: {'there' if pilot.episode >= 0 else 'silent'}, "
        f"recorder: {'there' if pilot.recorded else 'silent'})", *words])


def restart(bus: Transport, pilot: Pilot, wanted: bool, launch: Launch) -> None:
    """Once the processes have ended, or their time is over: start them again, unless they could not even start."""
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
    """Whether the monitor's result of this flight is final."""
    return pilot.result.get("flight") == pilot.seed and bool(pilot.result.get("final"))


def instruct(bus: Transport, pilot: Pilot) -> None:
    """Say what this flight is for, where the policy takes an instruction."""
    if pilot.wanted:
        bus.publish(pilot.instruct, message(pilot.wanted))


def told(pilot: Pilot) -> bool:
    """Whether controller, monitor and scene have this flight's instruction."""
    heard = pilot.wanted == pilot.told == pilot.result.get("instruction")
    return not pilot.wanted or (heard and (pilot.dressed == pilot.wanted or not pilot.dresses))


def release(bus: Transport, pilot: Pilot) -> None:
    """Ask the guard to clear the reason of the last stop."""
    pilot.reason, pilot.unlatched = "", bus.monotonic()
    bus.publish(pilot.unlatch, messages.empty())


def send(bus: Transport, endpoint: Endpoint, number: int) -> None:
    """Publish a UInt64."""
    bus.publish(endpoint, messages.encode(endpoint.type, messages.record(endpoint.type)(data=number)))
