"""Faults of real processes over DDS on loopback: robot, guard, controller, monitor and recorder, and an observer."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.rosbag2.errors import ReaderError

from temporeal.robots.artifact.manifest import ArtifactError, ChunkSpec, load_manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.command_oracle import ORDER_S
from temporeal_benchmarks.deployment.robot_processes import ALL_MODES, DEEP, START_S, Crew, hover, reach, rest, see
from temporeal_benchmarks.priority import load, ordinary
from temporeal_benchmarks.rows import Row
from temporeal_bridge.controller.mailbox import LOOK_S
from temporeal_bridge.guard_node import LOOK_S as GUARD_LOOK_S
from temporeal_bridge.guard_node import TICK_S
from temporeal_bridge.process.children import Process, how_ended, last_words, start
from temporeal_bridge.recorder import FLUSH_S, RecorderError, recover
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS

RATE_HZ, HAND_HZ = 50.0, 20.0
PAUSE_S = 0.5  # of a guard that is stopped and goes on
LEVELS = "Crazyflie levels after 500 ms"  # its firmware without setpoints (supervisor.c)
# What the observer adds to a stop: the way of what it does to the guard, of the event back, and its own turn. An
# operator's stop, which the guard looks for every 5 ms, was seen after 3.6 to 7 ms at the median
# (faults-processes.json, load 2.5 and 6.9): 1 to 4.5 ms of that; twice as much is allowed
OBSERVED_S = 0.01
FOUND_S = 0.05  # until DDS discovery has told of a publisher; chosen: some 10 ms were measured (faults-processes.json)
DISK_BYTES = 1_500_000  # at most, until a recorder's disk is full
RECORDED_S = 1.5  # of a mission, until a recorder that was started just before it has flushed some of it; chosen
STATE_S = 0.01  # the simulated robot says its state at 100 Hz
SUBSCRIBER = """
import sys
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS
bus = DdsTransport("slow", "/r", domain=sys.argv[1], loopback=True)
bus.subscribe(sys.argv[2], sys.argv[3], QOS["default"], lambda received: None)
print("up", flush=True)
while True:
    bus.wait(0.1)
"""

OTHERWISE = """
import importlib, sys
from temporeal_bridge.transports.transport import QOS
module, profile, other = sys.argv[1:4]
QOS[profile] = QOS[other]
sys.exit(importlib.import_module("temporeal_bridge." + module).main(sys.argv[4:]))
"""
CAMERA = """
import signal, sys, time
import numpy as np
from temporeal_bridge.transports import messages
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS
domain, topic, name, rate, rows, columns = sys.argv[1:]
wrong, size = set(), (int(rows), int(columns), 3)
signal.signal(signal.SIGUSR1, lambda *_: wrong.add("late"))
signal.signal(signal.SIGUSR2, lambda *_: wrong.add("size"))
bus = DdsTransport("camera", "/r", domain=domain, loopback=True)
eye, rng = bus.advertise(topic, "sensor_msgs/msg/Image", QOS["default"]), np.random.default_rng(0)
while True:
    shape = (size[0] // 2, *size[1:]) if "size" in wrong else size
    stamp = bus.now() - (1_000_000_000 if "late" in wrong else 0)
    picture = STATE_CODECS["image"].encode({name: rng.integers(0, 256, shape, dtype=np.uint8)}, stamp, ("world", "camera"),
                                     {"signal": name, "encoding": "rgb8"})
    bus.publish(eye, messages.encode(eye.type, picture))
    time.sleep(1 / float(rate))
"""
EYE = SignalSpec("wrist_rgb", (48, 64, 3), "1", dtype="uint8")
EYE_HZ, EYE_S, EYE_TOPIC = 30.0, 0.2, "camera/color/image_raw"
SIGNALS = f"""
definitions: {{}}
signals:
  {EYE.name}: {{shape: {list(EYE.shape)}, dtype: uint8, unit: "1"}}
states: []
pictures:
  - {{topic: {EYE_TOPIC}, type: sensor_msgs/msg/Image, codec: image, rate_hz: {EYE_HZ:g}, qos: sensor,
     max_age_s: {EYE_S:g}, options: {{signal: {EYE.name}, encoding: rgb8}}}}
"""
CHUNK = ChunkSpec(15, 0.02)
CHUNK_S = CHUNK.steps * CHUNK.dt_s


@dataclass(frozen=True)
class Fault:
    """What is done to real processes.

    Args:
        strike: does it. mend: undoes it, before the next mission.
        code: of the stop that must follow; "": the mission goes on, and the largest gap between commands is measured.
        stated_s: from the fault to the stop, as docs/reference/faults.md says.
        promise: what somebody else promises.
        may: stops that may come where the mission should go on: code, and s at most since the controller's last
            command, by the guard's clock.
    """

    strike: Callable[[Crew], None]
    mend: Callable[[Crew], None]
    code: str
    stated_s: float = 0.0
    promise: str = LEVELS
    may: Mapping[str, float] = field(default_factory=dict)


def kill(module: str, number: int) -> Callable[[Crew], None]:
    """A signal to a node."""
    return lambda crew: crew.processes[module].send_signal(number)


def anew(module: str, *options: str) -> Callable[[Crew], None]:
    """The node is ended for good and started again."""
    def mend(crew: Crew) -> None:
        crew.processes[module].send_signal(signal.SIGCONT)
        crew.close([module])
        artifact = ["--artifact", str(crew.artifact)] if module != "robot_sim" else []
        crew.start(module, *artifact, *options)

    return mend


def record(crew: Crew) -> None:
    """A recorder, in a folder of its own; the bag of one that was killed, which has been read, is not wanted."""
    crew.close(["recorder"])
    shutil.rmtree(crew.out / "bag", ignore_errors=True)
    crew.start("recorder", "--bag", str(crew.out / "bag"))


def goes_on(module: str) -> Callable[[Crew], None]:
    """A node that was stopped."""
    return kill(module, signal.SIGCONT)


def nothing(crew: Crew) -> None:
    """Nothing to mend."""


RIVALS: list[DdsTransport] = []
HELPERS: list[subprocess.Popen[str]] = []


def rival(crew: Crew) -> None:
    """Somebody else publishes commands."""
    RIVALS.append(DdsTransport("rival", "/r", domain=crew.domain, loopback=True))
    RIVALS[-1].advertise(crew.topic.topic, crew.topic.type, QOS["command"])


def no_rival(crew: Crew) -> None:
    """He leaves; the guard looks twice a second."""
    RIVALS.pop().close()
    crew.watch(1.0)


def hog(crew: Crew) -> None:
    """A busy process for each core."""
    for _ in range(os.cpu_count() or 1):
        HELPERS.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], text=True))
        ordinary(HELPERS[-1].pid)


def slow_subscriber(crew: Crew) -> None:
    """A reliable subscriber to the commands that is stopped."""
    path = os.pathsep.join(sys.path)
    helper = subprocess.Popen([sys.executable, "-c", SUBSCRIBER, str(crew.domain), crew.topic.topic, crew.topic.type],
                              env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
    HELPERS.append(helper)
    assert helper.stdout is not None
    helper.stdout.readline()
    crew.watch(0.3)
    helper.send_signal(signal.SIGSTOP)


def no_helpers(crew: Crew) -> None:
    """They end."""
    while HELPERS:
        helper = HELPERS.pop()
        helper.kill()
        helper.wait()


def pause_guard(crew: Crew) -> None:
    """It is stopped and goes on."""
    kill("guard_node", signal.SIGSTOP)(crew)
    crew.watch(PAUSE_S)
    kill("guard_node", signal.SIGCONT)(crew)


def start_worker(crew: Crew) -> None:
    """The process of a policy that gives chunks; it is on no bus."""
    crew.close(["worker_node"])
    words = ["--artifact", str(crew.artifact), "--folder", str(crew.out / "worker")]
    crew.processes["worker_node"] = start("worker_node", words, crew.out / "logs" / "worker_node.log")
    ordinary(crew.processes["worker_node"].pid)


def start_camera(crew: Crew) -> None:
    """A camera's driver whose pictures are noise; told SIGUSR1 they come a second late, SIGUSR2 in another size."""
    crew.close(["camera"])
    start_script(crew, "camera", CAMERA, str(crew.domain), EYE_TOPIC, EYE.name, str(EYE_HZ), *map(str, EYE.shape[:2]))


def start_script(crew: Crew, name: str, script: str, *words: str) -> None:
    """A process of the crew that is no node of ours, or not as it is."""
    command = [sys.executable, "-c", script, *words]
    process = Process(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, start_new_session=True)
    process.name, crew.processes[name] = name, process


def start_otherwise(crew: Crew, module: str, profile: str, other: str, *options: str) -> None:
    """A node that takes one QoS ``profile`` for an ``other``."""
    crew.close([module])
    start_script(crew, module, OTHERWISE, module, profile, other, *crew.shared(), *options)


PATIENCE = 20  # missions in a row that end by themselves
SILENT_S, STALE_S = 0.1 + 1 / RATE_HZ + TICK_S, 0.1 + STATE_S + TICK_S
SERVO = "MoveIt Servo halts after 100 ms, Crazyflie levels after 500 ms"
CONTROLLER = anew("policy_node", "--peer-timeout", "60")
FAULTS: dict[str, Fault] = {
    "controller SIGKILL": Fault(kill("policy_node", signal.SIGKILL), CONTROLLER, "silent", SILENT_S, SERVO),
    "controller SIGTERM": Fault(kill("policy_node", signal.SIGTERM), CONTROLLER, "silent", SILENT_S, SERVO),
    "controller SIGSTOP": Fault(
        kill("policy_node", signal.SIGSTOP), goes_on("policy_node"), "silent", SILENT_S, SERVO),
    "driver SIGKILL": Fault(kill("robot_sim", signal.SIGKILL), anew("robot_sim"), "stale", STALE_S, SERVO),
    "driver SIGTERM": Fault(kill("robot_sim", signal.SIGTERM), anew("robot_sim"), "stale", STALE_S, SERVO),
    "driver SIGSTOP": Fault(kill("robot_sim", signal.SIGSTOP), goes_on("robot_sim"), "stale", STALE_S, SERVO),
    "second publisher": Fault(
        rival, no_rival, "publisher", GUARD_LOOK_S + FOUND_S, "unitree_rl_lab looks once, at the start"),
    "operator: stop": Fault(lambda crew: crew.tell("mission/stop"), nothing, "operator", TICK_S),
    "monitor SIGSTOP": Fault(kill("monitor_node", signal.SIGSTOP), goes_on("monitor_node"), ""),
    "subscriber of commands SIGSTOP": Fault(slow_subscriber, no_helpers, ""),
    # who got no turn is missed like one that is gone: within the time of a silent controller since its last command,
    # whatever is found first. A guard that stood still itself could not look: it says so when it can
    "CPU hog": Fault(hog, no_helpers, "", may={
        "silent": SILENT_S, "stale": SILENT_S, "stamps": SILENT_S, "guard": inf}),
}


WORKER_S = CHUNK_S + 0.12 + 1 / RATE_HZ + TICK_S  # until the chunk in force ends, and then the Franka's silent_after_s
NOBODY = "nobody promises this"
CHUNKED: dict[str, Fault] = {  # of a policy that gives chunks, and of an arm
    "worker SIGKILL": Fault(kill("worker_node", signal.SIGKILL), start_worker, "silent", WORKER_S, NOBODY),
    "worker SIGTERM": Fault(  # it may answer once more: it looks whether it was told to end every LOOK_S
        kill("worker_node", signal.SIGTERM), start_worker, "silent", WORKER_S + LOOK_S, NOBODY),
    "worker SIGSTOP": Fault(kill("worker_node", signal.SIGSTOP), goes_on("worker_node"), "silent", WORKER_S, NOBODY),
}
HANDLED_S = 0.15 + 1 / HAND_HZ + TICK_S  # the Allegro hand's silent_after_s
HANDS: dict[str, Fault] = {  # of a hand, whose commands are judged by the efforts that they ask for, too
    "controller of a hand SIGKILL": Fault(
        kill("policy_node", signal.SIGKILL), CONTROLLER, "silent", HANDLED_S, NOBODY),
    "guard of a hand SIGSTOP": Fault(pause_guard, nothing, "guard", PAUSE_S + TICK_S, NOBODY),
}
SEEN_S = EYE_S + 1 / RATE_HZ + TICK_S  # a picture's own age; it was fresh when it struck
SEEING: dict[str, Fault] = {  # of an arm whose policy looks at a picture
    name: Fault(strike, mend, "policy", SEEN_S, NOBODY) for name, strike, mend in (
        ("camera SIGKILL", kill("camera", signal.SIGKILL), start_camera),
        ("camera SIGSTOP", kill("camera", signal.SIGSTOP), goes_on("camera")),
        ("pictures a second late", kill("camera", signal.SIGUSR1), start_camera),
        ("pictures of another size", kill("camera", signal.SIGUSR2), start_camera))
}
ARM, HAND, EYES = " (arm)", " (hand)", " (camera)"  # in the names of their rows
# faults that are measured in another way
GUARD, MISMATCH, RECORDER, OTHERS = "guard", "QoS mismatch", "recorder SIGKILL", "artifacts and disk"
NAMES = (*FAULTS, *CHUNKED, *HANDS, *SEEING, GUARD, MISMATCH, RECORDER, OTHERS)


@contextmanager
def crew_of(out: Path) -> Any:
    """A Crazyflie with all its processes, hovering as far as it is asked to."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    crew = Crew(hover(out / "artifact"), "crazyflie", "odometry", "ctbr_cmd", RATE_HZ, out)
    try:
        crew.start("robot_sim")
        crew.start_guarded()
        crew.start("monitor_node", "--artifact", str(crew.artifact))
        record(crew)
        yield crew
    finally:
        no_helpers(crew)
        crew.close()


@contextmanager
def chunked_crew_of(out: Path) -> Any:
    """A Franka that keeps its home pose, with a policy that gives chunks of CHUNK_S."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "worker").mkdir(mode=0o700)
    crew = Crew(rest(out / "artifact", CHUNK), "franka", "forward_position", "joint_pos_cmd", RATE_HZ, out)
    try:
        crew.start("robot_sim")
        start_worker(crew)
        crew.start_guarded(thinks=["--worker", str(out / "worker")])
        yield crew
    finally:
        crew.close()


@contextmanager
def hand_crew_of(out: Path) -> Any:
    """An Allegro hand that closes as hard as it may."""
    shutil.rmtree(out, ignore_errors=True)
    crew = Crew(reach(out / "artifact", HAND_HZ), "allegro_hand", "allegro_hand_ros2", "joint_pos_cmd", HAND_HZ, out)
    try:
        crew.start("robot_sim")
        crew.start_guarded()
        yield crew
    finally:
        crew.close()


@contextmanager
def seeing_crew_of(out: Path) -> Any:
    """A Franka that keeps its home pose, with a policy that looks at what a camera shows."""
    shutil.rmtree(out, ignore_errors=True)
    crew = Crew(see(out / "artifact", EYE), "franka", "forward_position", "joint_pos_cmd", RATE_HZ, out)
    try:
        (out / "camera.yaml").write_text(SIGNALS, encoding="utf-8")
        crew.start("robot_sim")
        start_camera(crew)
        crew.start_guarded(own=["--signals", str(out / "camera.yaml")])
        yield crew
    finally:
        crew.close()


def rows(trials: int, clean_minutes: float, seed: int, out: Path, only: Sequence[str] = ()) -> list[Row]:
    """``trials`` of each fault, or of those of NAMES that are named, and a clean flight of so many minutes; 0: not
    measured."""
    made: list[Row] = []
    named, rng = only or NAMES, random.Random(seed)
    with crew_of(out / "processes") as crew:
        if clean_minutes:
            made += clean(crew, clean_minutes)
        if trials:
            made += struck(crew, FAULTS, trials, named, rng)
            if RECORDER in named:
                made += recorder_killed(crew, trials, rng)
            if GUARD in named:
                made += guard_killed(crew, trials, rng)
            if MISMATCH in named:
                made += mismatched(crew, trials, rng)
        made += judged(crew)
        artifact = crew.artifact
    for crew_for, faults, whose in ((chunked_crew_of, CHUNKED, ARM), (hand_crew_of, HANDS, HAND),
                                    (seeing_crew_of, SEEING, EYES)):
        if trials and any(name in faults for name in named):
            with crew_for(out / whose.strip(" ()")) as crew:
                made += struck(crew, faults, trials, named, rng, whose) + judged(crew, whose)
    if trials and OTHERS in named:
        made += refusals(artifact, out / "refused", trials, rng)
        with crew_of(out / "disk") as crew:
            made += [disk_full(crew, trials, rng), *judged(crew, " (disk)")]
    return made


def struck(
    crew: Crew, faults: Mapping[str, Fault], trials: int, named: Sequence[str], rng: random.Random, whose: str = ""
) -> list[Row]:
    """``trials`` of each of the ``faults`` that is ``named``."""
    made, early = list[Row](), list[str]()
    for name, fault in ((n, f) for n, f in faults.items() if n in named):
        done = [one(crew, fault, rng.uniform(0.3, 1.0)) for _ in range(trials)]
        made += of_fault(name, fault, done)
        early += [reason for trial in done for reason in trial.early]
    made.append(Row(f"faults.processes.missions that ended before their fault, and were flown again{whose}", len(early),
                    "1", None, "; ".join([*dict.fromkeys(early)][:3]) or load()))
    return made


def judged(crew: Crew, whose: str = "") -> list[Row]:
    """What the oracle says of every command of a crew."""
    if crew.joined is not None:
        crew.joined.end()
    crew.oracle.settle()
    read, outside, lost = crew.oracle.commands, crew.oracle.outside, crew.joined.lost if crew.joined else 0
    efforts = [] if crew.oracle.servos is None else [
        Row(f"faults.processes.commands_judged_by_effort{whose}", crew.oracle.efforts, "1", None,
            f"{crew.oracle.yielded} of them at the end of what servos may give")]
    return [*efforts, Row(f"faults.processes.commands_read{whose}", read, "1", None,
                          f"{lost} messages without their partner, {load()}"),
            Row(f"faults.processes.commands_outside_limits{whose}", outside, "1", 0,
                "; ".join(crew.oracle.wrong[:3]) or None, not outside if read else None)]  # of none nothing is said


@dataclass(frozen=True)
class Trial:
    """Time to the stop [s] and its code; the largest gap between commands [s] after the fault; s from the controller's
    last command to the stop, by the guard's clock; why missions before it ended by themselves, before there was a
    fault: on a machine that is too busy they do."""

    reaction: float | None
    code: str
    gap: float
    quiet: float = inf
    early: tuple[str, ...] = ()


def one(crew: Crew, fault: Fault, after: float) -> Trial:
    """A mission with a fault ``after`` so many seconds."""
    early = list[str]()
    while True:
        crew.fly()
        crew.watch(after, lambda: crew.mode != "active")
        if crew.mode == "active":
            break
        early.append(crew.events[-1][1]["reason"] if crew.events else "no event says why")
        if len(early) == PATIENCE:
            raise RuntimeError(f"no mission lasts {after:.1f} s, {load()}: {'; '.join(early[-3:])}")
    told, struck = len(crew.events), time.monotonic()
    fault.strike(crew)
    crew.bus.wait(0.0)  # what came while a helper was started is stamped now
    seen, begun = len(crew.oracle.trace), time.monotonic()
    crew.watch(2.0 if fault.code else 1.0, lambda: len(crew.events) > told)
    at, event = crew.events[told] if len(crew.events) > told else (None, {"code": ""})
    times = [begun, *(t for t, _ in crew.oracle.trace[seen:])]
    gap = max((b - a for a, b in zip(times, times[1:])), default=2.0)
    crew.watch(0.3)
    flight, left = crew.proposed
    quiet = event["t"] - left if at is not None and event["flight"] == flight else inf
    fault.mend(crew)
    crew.tell("mission/stop")
    crew.watch(0.2)
    return Trial(None if at is None else at - struck, event["code"], gap, quiet, tuple(early))


def of_fault(name: str, fault: Fault, done: list[Trial]) -> list[Row]:
    """Rows of one fault."""
    name, told = f"faults.processes.{name}", f"{len(done)} trials, {load()}"
    if not fault.code:
        stops = [trial for trial in done if trial.code]
        wrong = sum(trial.quiet > fault.may.get(trial.code, -inf) for trial in stops)
        codes = ", ".join(sorted({trial.code for trial in stops})) or "none"
        made = [Row(f"{name}: missions stopped ({codes})", len(stops), "1", None if fault.may else 0, told,
                    None if fault.may else not stops)]
        if fault.may:
            made.append(Row(f"{name}: stops for a wrong reason, or late", wrong, "1", 0, "right: " + ", ".join(
                f"{code} {within:g} s after the controller's last command" if within < inf else code
                for code, within in fault.may.items()), not wrong))
        return [*made, Row(f"{name}: largest gap between commands", max(trial.gap for trial in done), "s")]
    right = [trial.reaction for trial in done if trial.reaction is not None and trial.code == fault.code]
    wrong = len(done) - len(right)
    others = sorted({trial.code or "none" for trial in done} - {fault.code})
    made = [Row(f"{name}: missions without the right stop", wrong, "1", 0,
                f"{told}{', stopped by: ' if others else ''}{', '.join(others)}", not wrong)]
    if right:
        p50, top, most = median(right), max(right), fault.stated_s + OBSERVED_S
        late = sum(reaction > most for reaction in right)
        by = f"{fault.stated_s:g} s by docs/reference/faults.md, {OBSERVED_S:g} s for the observer"
        made += [Row(f"{name}: p50", p50, "s", most, by, p50 <= most),
                 Row(f"{name}: max", top, "s", most, f"{late} of {len(right)} were later; {fault.promise}", not late)]
    return made


def guard_killed(crew: Crew, trials: int, rng: random.Random) -> list[Row]:
    """A guard that is killed says nothing more: the robot's own watchdog acts. Stopped, and going on after a second,
    it must not go on with the mission as if nothing had been."""
    silent, late = [], 0
    for _ in range(trials):
        crew.fly()
        crew.watch(rng.uniform(0.3, 1.0))
        struck = time.monotonic()
        crew.processes["guard_node"].send_signal(signal.SIGKILL)
        crew.watch(0.5)
        silent.append(max(crew.oracle.trace[-1][0] - struck, 0.0))
        anew("guard_node")(crew)
        crew.modes.clear()
        crew.fly()
        crew.processes["guard_node"].send_signal(signal.SIGSTOP)
        crew.watch(1.0)
        told = len(crew.events)
        crew.processes["guard_node"].send_signal(signal.SIGCONT)
        late += not crew.watch(0.5, lambda told=told: len(crew.events) > told)
        crew.watch(0.3)
    return [Row("faults.processes.guard SIGKILL: last command after", max(silent), "s", 1 / RATE_HZ,
                f"{trials} trials, {load()}", max(silent) <= 1 / RATE_HZ),
            Row("faults.processes.guard SIGSTOP for 1 s: missions that went on", late, "1", 0, None, not late)]


@dataclass(frozen=True)
class Heard:
    """A message as the observer took it: by the clock of stamps [ns]."""

    at_ns: int
    topic: str
    data: bytes


@dataclass(frozen=True)
class Rest:
    """What a killed recorder has left: how many messages it must hold and does not, how many it must hold; s from its
    last message to the kill."""

    lost: int
    due: int
    before_s: float


def rest_of(bag: Path, heard: Sequence[Heard], killed_ns: int) -> Rest:
    """The bag of a recorder that was killed at ``killed_ns``, written anew with an index and compared with what the
    observer has ``heard`` since the recorder had that topic's first message, until its last flush.

    The last message in the bag came just before that flush. What the observer took later than ORDER_S before it, the
    recorder may have taken after it.
    """
    recover(bag)
    first, held, last = dict[str, int](), set[tuple[str, bytes]](), 0
    with AnyReader([bag], default_typestore=messages.store()) as reader:
        for connection, stamp, data in reader.messages():
            first.setdefault(connection.topic, stamp)
            held.add((connection.topic, bytes(data)))
            last = max(last, stamp)
    margin = round(1e9 * ORDER_S)
    due = [m for m in heard if first.get(m.topic, last) + margin < m.at_ns < last - margin]
    return Rest(sum((m.topic, m.data) not in held for m in due), len(due), 1e-9 * (killed_ns - last))


def recorder_killed(crew: Crew, trials: int, rng: random.Random) -> list[Row]:
    """The mission goes on, and the bag of the recorder holds all that the guard said up to its last flush."""
    heard, rests, unreadable = list[Heard](), list[Rest](), list[str]()
    for name, type, qos in (("guard/event", "std_msgs/msg/String", QOS["default"]),
                            ("mission", "std_msgs/msg/Header", ALL_MODES),
                            ("guard/command", "std_msgs/msg/Float64MultiArray", DEEP)):
        crew.bus.subscribe(name, type, qos, lambda r: heard.append(
            Heard(time.time_ns() - round(1e9 * (time.monotonic() - r.at)), r.topic, r.data)))
    killed_ns = 0

    def strike(crew: Crew) -> None:
        nonlocal killed_ns
        crew.processes["recorder"].kill()
        killed_ns = time.time_ns()

    def mend(crew: Crew) -> None:
        try:
            rests.append(rest_of(crew.out / "bag", heard, killed_ns))
        except (OSError, RecorderError, ReaderError, AnyReaderError) as error:
            unreadable.append(str(error))
        record(crew)
        heard.clear()

    done = [one(crew, Fault(strike, mend, ""), RECORDED_S + rng.uniform(0.0, FLUSH_S)) for _ in range(trials)]
    name, lost, due = f"faults.processes.{RECORDER}", sum(r.lost for r in rests), sum(r.due for r in rests)
    made = [*of_fault(RECORDER, Fault(strike, mend, ""), done),
            Row(f"{name}: bags that cannot be written anew", len(unreadable), "1", 0, "; ".join(unreadable[:3]) or None,
                not unreadable)]
    if rests:
        before = max(r.before_s for r in rests)
        made += [Row(f"{name}: events, modes and commands lost up to the last flush", lost, "1", 0,
                     f"{due} must be there", not lost if due else None),
                 Row(f"{name}: last message before the kill", before, "s", FLUSH_S + OBSERVED_S,
                     "a flush a second (docs/how-to/recording.md)", before <= FLUSH_S + OBSERVED_S)]
    return made


def mismatched(crew: Crew, trials: int, rng: random.Random) -> list[Row]:
    """A guard that asks for a reliable state, and a driver that is replaced in flight by one of best effort: a state
    that does not arrive is none, whoever is there. The guard stops, and does not get ready again."""
    start_otherwise(crew, "guard_node", "sensor", "default", "--artifact", str(crew.artifact))
    crew.modes.clear()
    topic = crew.facts.states[0]
    probe = crew.bus.subscribe(topic.topic, topic.type, QOS["default"], lambda received: None)
    done, ready, why = list[Trial](), 0, ""

    def replace_driver(crew: Crew) -> None:
        crew.processes["robot_sim"].kill()
        start_otherwise(crew, "robot_sim", "default", "sensor")

    def mend(crew: Crew) -> None:
        nonlocal ready, why
        crew.need("a driver whose QoS does not fit", START_S, lambda: crew.bus.incompatible(probe) != "")
        why = crew.bus.incompatible(probe)
        crew.need("a guard that waits", START_S, crew.again(1.0, "mission/reset", lambda: crew.mode == "waiting"))
        ready += crew.watch(1.0, lambda: crew.mode == "ready")
        anew("robot_sim")(crew)

    for _ in range(trials):
        done.append(one(crew, Fault(replace_driver, mend, "stale", STALE_S), rng.uniform(0.3, 1.0)))
    anew("guard_node")(crew)
    crew.modes.clear()
    return [*of_fault(MISMATCH, FAULTS["driver SIGKILL"], done),
            Row(f"faults.processes.{MISMATCH}: guards that got ready again", ready, "1", 0, why, not ready)]


def clean(crew: Crew, minutes: float) -> list[Row]:
    """A flight with no fault: stops that nobody asked for."""
    stops, why, flown, loads = 0, list[str](), 0.0, [os.getloadavg()[0]]
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        crew.fly()
        began = time.monotonic()
        while (left := until - time.monotonic()) > 0 and not crew.watch(min(left, 60.0), lambda: crew.mode != "active"):
            loads.append(os.getloadavg()[0])
        flown += time.monotonic() - began
        if crew.mode != "active":
            crew.watch(0.3)
            stops, why = stops + 1, [*why, crew.events[-1][1]["reason"] if crew.events else "no event says why"]
    crew.tell("mission/stop")
    crew.watch(0.3)
    return [Row("faults.clean.false_stops_per_hour", 3600 * stops / flown, "1/h", 0,
                f"{stops} in {flown / 60:.1f} min, {load()}{': ' if why else ''}{'; '.join(why[:3])}", not stops),
            Row("faults.clean.measured_over", flown / 60, "min"),
            Row("faults.clean.load_most", max(loads), "1", None, "processes that want a core, mean of a minute")]


def refusals(artifact: Path, out: Path, trials: int, rng: random.Random) -> list[Row]:
    """Artifacts that are not what they say, spoilt in another place each trial: no process may run with them. A process
    is started in the first trial; in the others what it loads with is called here."""
    shutil.rmtree(out, ignore_errors=True)
    made = []
    for name, (modules, robot, spoil) in SPOILED.items():
        paths = []
        for k in range(trials if spoil is not whole else 1):
            paths.append(out / f"{name} {k}")
            shutil.copytree(artifact, paths[-1])
            spoil(paths[-1], rng)
        for module in modules:
            made.append(refused(name, module, robot, paths[0], out))
            taken = [path for path in paths[1:] if loads(module, robot, path)]
            if paths[1:]:
                where = "; ".join([f"{len(paths) - 1} more, in other places", *map(str, taken[:3])])
                made.append(Row(
                    f"faults.processes.artifact {name}: {module} loads it", len(taken), "1", 0, where, not taken))
        for path in paths:
            shutil.rmtree(path)
    return made


def refused(name: str, module: str, robot: str, path: Path, out: Path) -> Row:
    """A process that is started with a spoilt artifact ends with status 2, and says nothing before."""
    crew = Crew(path, robot, *ROBOTS[robot], RATE_HZ, out / "run")
    try:
        process = crew.start(module, "--artifact", str(path))
        began = time.monotonic()
        crew.watch(30.0, lambda: process.poll() is not None)
        took, code, words = time.monotonic() - began, process.poll(), last_words(process).rpartition("\n")[2]
    finally:
        crew.close()
    return Row(f"faults.processes.artifact {name}: {module} refuses after", took, "s", None,
               words[:200], code == 2 and not crew.oracle.commands)


def loads(module: str, robot: str, path: Path) -> bool:
    """Whether a node would take an artifact."""
    try:
        if module == "guard_node":
            load_manifest(path)
        else:
            Artifact.load(path, load_robot(robot))
    except ArtifactError:
        return False
    return True


ROBOTS = {"crazyflie": ("odometry", "ctbr_cmd"), "franka": ("forward_position", "joint_pos_cmd")}


def flip(file: str) -> Callable[[Path, random.Random], None]:
    """One byte of a file, anywhere, is another one."""
    def spoil(path: Path, rng: random.Random) -> None:
        data = bytearray((path / file).read_bytes())
        data[rng.randrange(len(data))] ^= 1
        (path / file).write_bytes(data)

    return spoil


def truncate(path: Path, rng: random.Random) -> None:
    """The network's end is not there, from anywhere on."""
    data = (path / "policy.onnx").read_bytes()
    (path / "policy.onnx").write_bytes(data[: rng.randrange(len(data))])


def whole(path: Path, rng: random.Random) -> None:
    """It is as it was."""


BOTH, ONE = ("guard_node", "policy_node"), ("policy_node",)
# by name: which processes must refuse it (the guard reads the manifest only, and says which artifact it means by its
# digest), the robot that they are of, what is done to it
SPOILED: dict[str, tuple[tuple[str, ...], str, Callable[[Path, random.Random], None]]] = {
    "corrupt": (ONE, "crazyflie", flip("policy.onnx")), "manifest corrupt": (BOTH, "crazyflie", flip("manifest.json")),
    "truncated": (ONE, "crazyflie", truncate), "of another robot": (BOTH, "franka", whole)}


def disk_full(crew: Crew, trials: int, rng: random.Random) -> Row:
    """A recorder that may write no more, after another byte each trial: it ends with a clear error, the mission goes
    on, and what was flushed can be read."""
    noise = crew.bus.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
    data = messages.encode(noise.type, messages.diagnostics(0, "noise", "", 0, "x" * 20_000, {}))
    bag, kept, wrong = crew.out / "bag", list[int](), list[str]()
    file = bag / "bag.mcap"
    for _ in range(trials):
        record(crew)
        crew.fly()
        recorder, told = crew.processes["recorder"], len(crew.events)
        began = file.stat().st_size
        crew.need("a flush", START_S, lambda began=began: file.stat().st_size > began)
        most = file.stat().st_size + rng.randrange(DISK_BYTES)
        resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (most, most))
        until = time.monotonic() + 30.0
        while recorder.poll() is None and time.monotonic() < until:
            crew.bus.publish(noise, data)
            crew.watch(0.02)
        crew.watch(1.0)
        if len(crew.events) != told or crew.mode != "active":
            wrong.append(f"the mission was stopped: {crew.events[told:]}")
        if recorder.poll() in (None, 0):
            wrong.append(how_ended(recorder) if recorder.poll() == 0 else "the recorder went on")
        kept.append(count(bag) if (bag / "metadata.yaml").exists() else recover(bag))
        crew.tell("mission/stop")
        crew.watch(0.2)
    return Row("faults.processes.recorder's disk full: messages kept, at least", min(kept), "1", 1,
               f"{trials} trials; {'; '.join(wrong[:3]) or how_ended(recorder)[:160]}", min(kept) > 0 and not wrong)


def count(bag: Path) -> int:
    """Messages of a whole bag."""
    with AnyReader([bag], default_typestore=messages.store()) as reader:
        return int(reader.message_count)
