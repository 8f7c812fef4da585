"""A recorder that is killed, and one whose disk is full."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.rosbag2.errors import ReaderError

from temporeal_benchmarks.deployment.command_oracle import ORDER_S
from temporeal_benchmarks.deployment.robot_processes import ALL_MODES, DEEP, START_S, RobotProcesses
from temporeal_benchmarks.faults.missions import OBSERVED_S, of_fault, one
from temporeal_benchmarks.faults.process_faults import Fault, record
from temporeal_benchmarks.rows import Row, at_most, none_of, not_measured
from temporeal_bridge.process.children import how_ended
from temporeal_bridge.recorder import FLUSH_S
from temporeal_bridge.recording.bag_writer import RecorderError
from temporeal_bridge.recording.recovery import recover
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS

DISK_BYTES = 1_500_000  # at most, until a recorder's disk is full
RECORDER = "recorder SIGKILL"
RECORDED_S = 1.5  # of a mission, until a recorder that was started just before it has flushed some of it; chosen


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


def recorder_killed(nodes: RobotProcesses, trials: int, rng: random.Random) -> list[Row]:
    """The mission goes on, and the bag of the recorder holds all that the guard said up to its last flush."""
    heard, rests, unreadable = list[Heard](), list[Rest](), list[str]()
    for name, type, qos in (("guard/event", "std_msgs/msg/String", QOS["default"]),
                            ("mission", "std_msgs/msg/Header", ALL_MODES),
                            ("guard/command", "std_msgs/msg/Float64MultiArray", DEEP)):
        nodes.bus.subscribe(name, type, qos, lambda r: heard.append(
            Heard(time.time_ns() - round(1e9 * (time.monotonic() - r.at)), r.topic, r.data)))
    killed_ns = 0

    def strike(nodes: RobotProcesses) -> None:
        nonlocal killed_ns
        nodes.processes["recorder"].kill()
        killed_ns = time.time_ns()

    def mend(nodes: RobotProcesses) -> None:
        try:
            rests.append(rest_of(nodes.out / "bag", heard, killed_ns))
        except (OSError, RecorderError, ReaderError, AnyReaderError) as error:
            unreadable.append(str(error))
        record(nodes)
        heard.clear()

    done = [one(nodes, Fault(strike, mend, ""), RECORDED_S + rng.uniform(0.0, FLUSH_S)) for _ in range(trials)]
    name, lost, due = f"faults.processes.{RECORDER}", sum(r.lost for r in rests), sum(r.due for r in rests)
    made = [*of_fault(RECORDER, Fault(strike, mend, ""), done),
            none_of(f"{name}: bags that cannot be written anew", len(unreadable), "; ".join(unreadable[:3]) or None)]
    losses, most = f"{name}: events, modes and commands lost up to the last flush", FLUSH_S + OBSERVED_S
    last = f"{name}: last message before the kill"
    if not due:
        why = "no bag has what was received before the last flush"
        return [*made, not_measured(losses, "1", 0, why), not_measured(last, "s", most, why)]
    return [*made, none_of(losses, lost, f"{due} must be there"),
            at_most(last, max(r.before_s for r in rests), "s", most, "a flush a second (docs/how-to/recording.md)")]


def disk_full(nodes: RobotProcesses, trials: int, rng: random.Random) -> Row:
    """A recorder that may write no more, after another byte each trial: it ends with a clear error, the mission goes
    on, and what was flushed can be read."""
    noise = nodes.bus.advertise("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", QOS["default"])
    data = messages.encode(noise.type, messages.diagnostics(0, "noise", "", 0, "x" * 20_000, {}))
    bag, kept, wrong = nodes.out / "bag", list[int](), list[str]()
    file = bag / "bag.mcap"
    for _ in range(trials):
        record(nodes)
        nodes.fly()
        recorder, known = nodes.processes["recorder"], len(nodes.events)
        began = file.stat().st_size
        nodes.require("a flush", START_S, lambda began=began: file.stat().st_size > began)
        most = file.stat().st_size + rng.randrange(DISK_BYTES)
        resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (most, most))
        until = time.monotonic() + 30.0
        while recorder.poll() is None and time.monotonic() < until:
            nodes.bus.publish(noise, data)
            nodes.spin(0.02)
        nodes.spin(1.0)
        if len(nodes.events) != known or nodes.mode != "active":
            wrong.append(f"the mission was stopped: {nodes.events[known:]}")
        if recorder.poll() in (None, 0):
            wrong.append(how_ended(recorder) if recorder.poll() == 0 else "the recorder went on")
        kept.append(count(bag) if (bag / "metadata.yaml").exists() else recover(bag))
        nodes.publish("mission/stop")
        nodes.spin(0.2)
    return Row("faults.processes.recorder's disk full: messages kept, at least", min(kept), "1", 1,
               f"{trials} trials; {'; '.join(wrong[:3]) or how_ended(recorder)[:160]}", min(kept) > 0 and not wrong)


def count(bag: Path) -> int:
    """Messages of a whole bag."""
    with AnyReader([bag], default_typestore=messages.store()) as reader:
        return int(reader.message_count)
