"""``temporeal bench deploy``: what controller and guard add to the bus that they live on."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.priority import PRIORITY, asked, load, ordinary
from temporeal_benchmarks.rows import Row

if TYPE_CHECKING:
    from temporeal_bridge.process.children import Process

HELP = (
    "real processes on one machine, over DDS on loopback: state in -> guarded command out of an arm at 500 Hz, against "
    "a bare DDS ping of messages of the same size that alternates with it in the same seconds, on the same core; the "
    "same with a camera beside it whose pictures are read; late cycles at 200 Hz; start to the first command; memory. "
    "A figure of latency is the median of rounds"
)
OPTIONS = {
    "minutes": "minutes of the flight whose memory is watched (default 10, quick 0.3)",
    "priority": PRIORITY,
    "core": "guard and controller have this core for themselves (deploy.core); all else here runs on the others",
    "awake": "true: that core never sleeps, and steps are rehearsed (deploy.awake); needs --core",
    "rounds": "rounds of latency, each of some seconds (default 5, quick 2)",
}
PERIOD = 0.002  # s, of 500 Hz
STATE, ARRAY = "sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray"
STAMP = struct.Struct("<iI")
SLOPE, CORNER = 1e-5, 400  # rad a state, states from corner to corner: a triangle that names each state
ATTEMPTS = 8
ENOUGH = 200  # commands and pings of a round that counts
REMEMBERED = 150  # states before a command among which its own is looked for
LOOK_UP_S = 20.0  # for what waits to be looked at after a round
LOOK_S = 0.0004  # for a look at a command
PICTURES_SHARE = 0.9  # of the pictures that are due, chosen: with fewer there is no camera beside it to speak of
CAMERA_S = 0.5  # for a camera to be on again
CHUNK_STEPS, CHUNK_DT_S = 15, 0.02  # of the policy that has a worker


def run(
    quick: bool, *, out: Path, minutes: list[str] | None, rounds: list[str] | None, priority: list[str] | None,
    core: list[str] | None = None, awake: list[str] | None = None,
) -> list[Row]:
    """All of it; takes as long as the flight whose memory is watched, and a few minutes."""
    from temporeal.robots.artifact.manifest import ChunkSpec
    from temporeal_benchmarks.deployment.robot_processes import echo, hover, rest
    from temporeal_bridge.process.scheduling import take_priority

    kind = asked(priority)
    own = [*kept_awake(awake, core, kind), *own_core(core)]
    take_priority(kind)  # before any process is started: they inherit it
    shutil.rmtree(out, ignore_errors=True)
    fast, slow = echo(out / "fast"), echo(out / "slow", 200.0)
    count, seconds = number("rounds", rounds, int, 2 if quick else 5), 3.0 if quick else 8.0
    flight_s = 60.0 * number("minutes", minutes, float, 0.3 if quick else 10.0)
    rows = flown(fast, out, count, seconds, flight_s, own)
    rows += against_rclpy(next((row.value for row in rows if row.name == "deploy.latency.p50"), None), count, seconds)
    rows += late(slow, out, 5.0 if quick else 60.0, own)
    rows += with_worker(rest(out / "chunks", ChunkSpec(CHUNK_STEPS, CHUNK_DT_S), 500.0), out, seconds, own)
    made, count = hover(out / "hover"), 2 if quick else 5
    return rows + started(made, out, count, own) + started(made, out, count, own, ("monitor_node", "recorder"))


def number(option: str, given: list[str] | None, kind: type, default: float) -> Any:
    """A positive number, or the default."""
    if given is None:
        return default
    with suppress(ValueError):
        if len(given) == 1 and 0 < (value := kind(given[0])) < np.inf:
            return value
    raise BadInput(f"--{option} is {','.join(given)}; legal: one positive {'whole ' if kind is int else ''}number")


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


class Round(NamedTuple):
    """Latencies [s] of the same seconds: from states to commands [M], of bare pings [N], and what of it commands were
    in controller and guard [M, 2], from the state's arrival on and from the proposal's."""

    found: np.ndarray
    bare: np.ndarray
    parts: np.ndarray


class Bench:
    """A robot's state at ``rate_hz`` and its commands, bare pings between them, and nothing else in this process."""

    def __init__(
        self, artifact: Path, rate_hz: float, out: Path, own: Sequence[str], thinks: Sequence[str] = (),
    ) -> None:
        from temporeal.robots.spec import load_robot
        from temporeal_benchmarks.deployment.command_oracle import Joined
        from temporeal_benchmarks.deployment.robot_processes import Crew
        from temporeal_bridge.codecs.table import STATE_CODECS
        from temporeal_bridge.transports import messages
        from temporeal_bridge.transports.transport import QOS

        self.crew = Crew(artifact, "franka", "forward_position", "joint_pos_cmd", rate_hz, out, self._on_command)
        self.own, self.thinks = own, thinks  # options of guard and controller, of the controller
        self.joined = Joined(self.crew.oracle)  # by the guard's own times: this process may be late itself
        self.period, self.messages = 1 / rate_hz, messages
        row = self.crew.facts.states[0]
        self.row, self.codec = row, STATE_CODECS[row.codec]
        bus = self.crew.bus
        self.states = bus.advertise(row.topic, row.type, QOS["default"])
        self.ping = bus.advertise("bare/ping", STATE, QOS["default"])
        bus.subscribe("bare/pong", ARRAY, QOS["deep"], self._on_pong)
        bus.subscribe("guard/command", ARRAY, QOS["deep"], self._on_told)
        self.home = np.array(load_robot("franka").home["joint_pos"])
        self.count = 0
        self.named, self.states_cdr = self._states()
        self.sent_at, self.sent = list[float](), list[float]()  # s; last joint: since it was last forgotten
        self.got, self.told = deque[tuple[float, bytes]](), deque[tuple[float, bytes]]()
        self.arrivals, self.found = list[float](), list[float]()  # of commands; s from the state that each names to it
        self.parts = list[tuple[float, float]]()  # s in the controller and in the guard, by the guard's word
        self.since, self.until = 0.0, np.inf  # what came in between counts
        self.pinged, self.bare = 0.0, list[float]()
        self.began = time.monotonic()
        self.helpers: list[Process] = []
        self.pings = False

    def helper(self, role: str, *options: str) -> Process:
        """A process of :mod:`temporeal_benchmarks.deployment.bus_peers`, with the priority that is in ``options``."""
        from temporeal_bridge.process.children import STARTED_BY, Process

        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), STARTED_BY: str(os.getpid())}
        command = [sys.executable, "-m", "temporeal_benchmarks.deployment.bus_peers", role, *self.crew.shared(), *options]
        made = Process(command, env=env, start_new_session=True)
        ordinary(made.pid)  # it takes the priority that it is told once it has loaded
        made.name = role
        self.helpers.append(made)
        return made

    def echo(self) -> Process:
        """The other end of the bare ping: where guard and controller are, at their priority, as awake as they are."""
        real = os.sched_getscheduler(0) == os.SCHED_FIFO
        return self.helper("echo", *self.own, *(["--priority", "realtime"] if real else []))

    def _on_command(self, received: Any) -> None:
        self.got.append((received.at, received.data))

    def _on_told(self, received: Any) -> None:
        self.told.append((received.at, received.data))

    def _on_pong(self, received: Any) -> None:
        self.bare.append(received.at - self.pinged)

    def _states(self) -> tuple[list[float], list[bytearray]]:
        """What the last joint says in each state of a round of the triangle, and the messages: encoded beforehand."""
        rng, named, data = np.random.default_rng(0), [], []
        for k in range(2 * CORNER):
            named.append(float(np.float32(self.home[6] + SLOPE * (k if k < CORNER else 2 * CORNER - k))))
            signals = {"joint_pos": np.append(self.home[:6], named[-1]), "joint_vel": 1e-3 * rng.normal(size=7),
                       "joint_torque": rng.normal(size=7)}
            message = self.codec.encode(signals, 0, ("world", "r"), self.row.options)
            data.append(bytearray(self.messages.encode(STATE, message)))
        return named, data

    def state(self) -> bytes:
        """The next state, stamped now."""
        k = self.count % (2 * CORNER)
        self.count += 1
        STAMP.pack_into(self.states_cdr[k], 4, *divmod(time.time_ns(), 10**9))  # the header comes first
        self.sent_at.append(time.monotonic())
        self.sent.append(self.named[k])
        return bytes(self.states_cdr[k])

    def run(self, seconds: float, until: Any = lambda: False) -> None:
        """Publish states on time, a ping half a period after each, and take in what comes. What a command says is
        looked at while there is time: a robot that pauses for that is one that has failed."""
        bus = self.crew.bus
        end, due, pinged = time.monotonic() + seconds, time.monotonic(), True
        while time.monotonic() < end and not until():
            now = time.monotonic()
            if now >= due:
                data = self.state()
                bus.publish(self.states, data)
                due, pinged = max(due + self.period, now), False
            half = due - 0.5 * self.period
            if self.pings and not pinged and now >= half:
                self.pinged, pinged = time.monotonic(), True
                bus.publish(self.ping, data)
            left = min(due, due if pinged or not self.pings else half) - time.monotonic()
            if (self.got or self.told) and left > LOOK_S:
                self._look()
                left -= LOOK_S
            bus.wait(max(left, 0.0))

    def start(self) -> None:
        """Guard and controller, then a mission."""
        self.crew.start_guarded(self.own, self.thinks)
        self.fly()

    def fly(self) -> None:
        """A mission, past its ramp. On a busy machine the guard may stop it: that counts, and another one begins."""
        for _ in range(ATTEMPTS):
            self.run(60.0, lambda: self.crew.mode in ("ready", "holding"))
            if self.crew.mode == "holding":
                self.crew.tell("mission/reset")
                self.run(60.0, lambda: self.crew.mode == "ready")
            self.run(0.5)
            self.crew.number += 1
            self.crew.tell("mission/start", self.crew.number)
            self.run(1.5)
            if self.crew.mode == "active":
                return
        raise RuntimeError(f"no mission lasts: {[event['reason'] for _, event in self.crew.events]}; {load()}")

    def _look(self) -> None:
        """One of the messages that wait: what was told of commands is as many as they are."""
        if len(self.told) > len(self.got):
            return self._part(*self.told.popleft())
        at, data = self.got.popleft()
        self.joined.command(at, data)
        del self.crew.oracle.trace[:-10]
        self._name(at, data)

    def _part(self, at: float, data: bytes) -> None:
        """What the guard tells of a command."""
        told = self.joined.told(data)
        if self.since <= at <= self.until and told.step >= 0:  # a command of the controller's, not the guard's own
            self.parts.append((told.age, told.left - told.since))

    def _name(self, at: float, data: bytes) -> None:
        """How long after the state that it names did a command come?"""
        value = float(self.messages.decode(ARRAY, data).data[6])
        end = bisect_right(self.sent_at, at)
        near = next((self.sent_at[i] for i in range(end - 1, max(end - REMEMBERED, 0) - 1, -1)
                     if abs(self.sent[i] - value) < 0.3 * SLOPE), None)
        if self.since <= at <= self.until:
            self.arrivals.append(at)
            self.found += [] if near is None else [at - near]

    def judge(self) -> Any:
        """All that came, to the end: the oracle that has read it."""
        while self.got or self.told:
            self._look()
        self.joined.end()
        return self.crew.oracle

    def forget(self) -> None:
        """Begin to measure: what came before does not count."""
        del self.sent_at[:-REMEMBERED], self.sent[:-REMEMBERED]
        self.since, self.until = time.monotonic(), np.inf
        self.arrivals, self.found, self.bare, self.parts = [], [], [], []

    def round(self, seconds: float) -> Round:
        """Some seconds of flight with pings. Without one of its helpers it would measure something else."""
        from temporeal_bridge.process.children import how_ended

        if ended := [how_ended(helper) for helper in self.helpers if helper.poll() is not None]:
            raise RuntimeError("; ".join(ended))
        if self.crew.mode != "active":
            self.fly()
        self.forget()
        self.pings = True
        self.run(seconds, lambda: self.crew.mode != "active")
        self.pings = False
        self.run(0.05)
        self.until = time.monotonic()
        self.run(LOOK_UP_S, lambda: len(self.got) + len(self.told) < 4 or self.crew.mode != "active")
        return Round(*map(np.array, (self.found, self.bare, self.parts)))

    def close(self) -> None:
        """End all."""
        for helper in self.helpers:
            helper.kill()
            helper.wait()
        self.crew.close()


class Camera:
    """A camera beside the robot, and a process that reads it and decodes each picture, as a detector's would: at the
    priority of who is not on the way from state to command. Off until :meth:`round`."""

    def __init__(self, bench: Bench, out: Path) -> None:
        from temporeal.robots.spec import load_robot
        from temporeal_bridge.interface.loading import load_interface

        declared = Path(load_robot("franka").ros).parent / "realsense.yaml"
        self.rate_hz = load_interface(load_robot("franka"), "forward_position", declared).pictures[0].rate_hz
        self.bench, self.out, self.windows = bench, out, list[tuple[float, float]]()
        out.mkdir(parents=True, exist_ok=True)
        signals = ("--signals", str(declared))
        self.reader = bench.helper("reader", *signals, "--out", str(out))
        self.camera = bench.helper("camera", *signals)

    def begin(self) -> None:
        """Wait until pictures are read, and switch it off."""
        from temporeal_benchmarks.deployment.bus_peers import FIRST, OFF

        self.bench.run(60.0, lambda: (self.out / FIRST).exists() or self.reader.poll() is not None)
        self._tell(OFF)

    def _tell(self, number: signal.Signals) -> None:
        self.camera.send_signal(number)
        self.bench.run(CAMERA_S)

    def round(self, seconds: float) -> Round:
        """Some seconds of flight with pings beside pictures."""
        from temporeal_benchmarks.deployment.bus_peers import OFF, ON

        self._tell(ON)
        began = time.monotonic()
        found = self.bench.round(seconds)
        self.windows.append((began, time.monotonic()))
        self._tell(OFF)
        return found

    def end(self) -> tuple[int, float]:
        """Pictures that the reader decoded during the rounds, and how many were due."""
        from temporeal_benchmarks.deployment.bus_peers import READ
        from temporeal_bridge.process.children import ask

        both = (self.reader, self.camera)
        ask(both)
        self.bench.run(10.0, lambda: all(p.poll() is not None for p in both))  # pages that they shared with the others
        told = self.out / READ  # count for these from now on
        at = json.loads(told.read_text())["at"] if told.exists() else []
        return (sum(began <= x <= ended for began, ended in self.windows for x in at),
                self.rate_hz * sum(ended - began for began, ended in self.windows))


def flown(artifact: Path, out: Path, rounds: int, seconds: float, flight_s: float, own: list[str]) -> list[Row]:
    """Latency without and with a camera, in turn, and memory, of one flight with monitor and recorder."""
    bench = Bench(artifact, 500.0, out / "run", own)
    try:
        bench.echo()
        camera = Camera(bench, out / "run" / "camera")
        bench.crew.start("monitor_node", "--artifact", str(artifact))
        bench.crew.start("recorder", "--bag", str(out / "run" / "bag"))
        bench.start()
        camera.begin()
        plain, with_camera, lasted = list[Round](), list[Round](), 0.0
        used = dict.fromkeys(bench.crew.processes, 0.0)
        for _ in range(rounds):
            before, began = {name: cpu_s(p.pid) for name, p in bench.crew.processes.items()}, time.monotonic()
            plain.append(bench.round(seconds))
            lasted += time.monotonic() - began
            for name, p in bench.crew.processes.items():
                used[name] += cpu_s(p.pid) - before[name]
            with_camera.append(camera.round(seconds))
        rows = compared(plain, rounds, seconds) + beside_camera(plain, with_camera, *camera.end())
        rows += [Row(f"deploy.cpu_share.{name}", share / lasted, "1") for name, share in used.items()]
        return rows + remembered(bench, flight_s)
    finally:
        bench.close()


def lasting(found: list[Round]) -> list[Round]:
    """The rounds with enough of both to count."""
    return [one for one in found if min(map(len, (one.found, one.bare))) >= ENOUGH]


def middle(quantile: float, found: list[Round]) -> tuple[float, float, float]:
    """Medians over the rounds [s] of a quantile: of commands, of bare pings, of the difference within a round."""
    pairs = [(float(np.quantile(one.found, quantile)), float(np.quantile(one.bare, quantile))) for one in found]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a - b for a, b in pairs)


def compared(plain: list[Round], rounds: int, seconds: float) -> list[Row]:
    """Rows of latency: medians over the rounds, each round against its own bare ping."""
    plain = lasting(plain)
    if not plain:
        return [Row("deploy.latency.p50 above the bare ping", None, "ms", 0.3,
                    f"not measured: no round lasted, the machine had no time for it; {load()}")]
    commands = sum(len(one.found) for one in plain)
    told = f"{len(plain)} of {rounds} rounds of {seconds:g} s, {commands} commands, {load()}"
    rows = []
    for name, quantile, most in (("p50", 0.5, 0.3), ("p99", 0.99, 1.0)):
        ours, bare, above = (1e3 * x for x in middle(quantile, plain))
        rows += [Row(f"deploy.latency.{name}", ours, "ms", None, told), Row(f"deploy.bare_ping.{name}", bare, "ms"),
                 Row(f"deploy.latency.{name} above the bare ping", above, "ms", most, None, above <= most)]
    for part, name in enumerate(("controller", "guard")):
        took = [float(np.median(one.parts[:, part])) for one in plain if len(one.parts)]
        rows.append(Row(f"deploy.latency.p50 in the {name}", 1e3 * median(took) if took else None, "ms"))
    return rows


def beside_camera(plain: list[Round], with_camera: list[Round], read: int, due: float) -> list[Row]:
    """Rows of the camera. Of ``due`` pictures its reader decoded ``read``: where that is too few there was none beside,
    and nothing is said of latency."""
    share = read / due if due else 0.0
    good, told = share >= PICTURES_SHARE, f"{read} of {due:.0f} pictures of 640x480 at 30 Hz; {load()}"
    rows = [Row("deploy.camera.pictures decoded by a reader beside", share, "1", PICTURES_SHARE, told, good)]
    name = "deploy.camera.p99 with a 640x480 camera at 30 Hz that is read, over p99 without"
    plain, with_camera = lasting(plain), lasting(with_camera)
    if not good or not plain or not with_camera:
        why = f"only {told}" if not good else f"no round lasted, the machine had no time for it; {load()}"
        return [*rows, Row(name, None, "1", 2.0, f"not measured: {why}", False)]
    ours, theirs = middle(0.99, plain)[0], middle(0.99, with_camera)[0]
    return [*rows, Row("deploy.camera.p99", 1e3 * theirs, "ms"),
            Row(name, theirs / ours, "1", 2.0, None, theirs / ours <= 2)]


def against_rclpy(ours: float | None, rounds: int, seconds: float) -> list[Row]:
    """The ping of two plain rclpy nodes, with nothing beside them and on all cores, and our p50 [ms] over it."""
    if importlib.util.find_spec("rclpy") is None:
        return [Row("deploy.rclpy_ping.p50", None, "ms", None, "not measured: rclpy cannot be imported here")]
    from temporeal_bridge.transports.dds import free_domain

    env = {**os.environ, "ROS_DOMAIN_ID": str(free_domain()), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    command, mine = [sys.executable, "-m", "temporeal_benchmarks.deployment.rclpy_ping"], os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # children inherit it
    echo = subprocess.Popen([*command, "echo"], env=env)
    try:
        found = [json.loads(subprocess.run([*command, "ping", str(seconds)], env=env, check=True, text=True,
                                           stdout=subprocess.PIPE).stdout) for _ in range(rounds)]
    finally:
        echo.kill()
        echo.wait()
        os.sched_setaffinity(0, mine)
    theirs = 1e3 * median(float(np.median(trips)) for trips in found)
    rows = [Row("deploy.rclpy_ping.p50", theirs, "ms", None, f"{sum(map(len, found))} pings, {load()}")]
    if ours is None:
        return rows
    share = ours / theirs
    return [*rows, Row("deploy.latency.p50 over that of the rclpy ping", share, "1", 1.0, None, share <= 1)]


def remembered(bench: Bench, flight_s: float) -> list[Row]:
    """Memory after some seconds and at the end of the flight, of all processes of a policy without worker; no step may
    have been missed."""
    processes = bench.crew.processes
    first = {name: memory_mb(p.pid) for name, p in processes.items()}
    began = time.monotonic()
    while time.monotonic() < began + flight_s:
        if bench.crew.mode != "active":
            bench.fly()
        bench.forget()
        bench.run(min(10.0, max(began + flight_s - time.monotonic(), 0.01)), lambda: bench.crew.mode != "active")
    last = {name: memory_mb(p.pid) for name, p in processes.items()}
    grown, own = (sum(last[name][k] - first[name][k] for name in last) for k in (0, 1))
    oracle, told = bench.judge(), f"over {flight_s / 60:.1f} min at 500 Hz, {load()}"
    more = ", ".join(f"{name} {mine - first[name][1]:.2f}" for name, (_, mine) in last.items())
    stops = [event["reason"] for _, event in bench.crew.events]
    return [
        memory("guard, controller, monitor and recorder", last),
        Row("deploy.memory grown", grown, "MB", 5.0, told, grown <= 5.0),
        Row("deploy.memory grown, of no file", own, "MB", None, more),
        Row("deploy.commands outside limits", oracle.outside, "1", 0,
            "; ".join([*oracle.wrong[:2], f"{oracle.commands} commands by the guard's own times, {bench.joined.lost} "
                       "messages without their partner"]), not oracle.outside if oracle.commands else None),
        Row("deploy.missions stopped", len(stops), "1", 0, "; ".join(stops[:2]) or told, not stops),
    ]


def memory(whose: str, found: Mapping[str, tuple[float, float]]) -> Row:
    """The row of what these processes take together, each as :func:`memory_mb` says."""
    total = sum(whole for whole, _ in found.values())
    each = ", ".join(f"{name} {whole:.0f}" for name, (whole, _) in found.items())
    return Row(f"deploy.memory of {whose} (PSS)", total, "MB", 300, each, total <= 300)


def with_worker(artifact: Path, out: Path, seconds: float, own: list[str]) -> list[Row]:
    """Memory of all processes of a policy that gives chunks, in flight at 500 Hz. Its network is next to nothing."""
    from temporeal_benchmarks.faults.process_trials import start_worker

    folder = out / "chunked" / "worker"
    bench = Bench(artifact, 500.0, folder.parent, own, ["--worker", str(folder), "--no-awake"])
    try:
        folder.mkdir(mode=0o700)
        start_worker(bench.crew)
        bench.crew.start("monitor_node", "--artifact", str(artifact))
        bench.crew.start("recorder", "--bag", str(folder.parent / "bag"))
        bench.start()
        bench.run(seconds)
        found = {name: memory_mb(p.pid) for name, p in bench.crew.processes.items()}
        return [memory("guard, controller, worker, monitor and recorder", found)]
    finally:
        bench.close()


def late(artifact: Path, out: Path, seconds: float, own: list[str]) -> list[Row]:
    """Cycles at 200 Hz whose command came more than a period and a half after the last one."""
    bench = Bench(artifact, 200.0, out / "late", own)
    try:
        bench.start()
        gaps, left = np.zeros(0), seconds
        while left > 0:
            if bench.crew.mode != "active":
                bench.fly()
            bench.forget()
            began = time.monotonic()
            bench.run(left, lambda: bench.crew.mode != "active")
            left -= time.monotonic() - began
            gaps = np.concatenate([gaps, np.diff(bench.arrivals)])
    finally:
        bench.close()
    share = float((gaps > 1.5 / 200.0).sum() / max(round(seconds * 200), 1))
    return [Row("deploy.late cycles at 200 Hz", share, "1", 0.001, f"{len(gaps)} commands in {seconds:g} s, {load()}; "
                "the target is for an idle machine", share <= 0.001)]


def started(artifact: Path, out: Path, count: int, own: list[str], beside: Sequence[str] = ()) -> list[Row]:
    """From the start of guard and controller, and right after them of nodes ``beside``, the robot being there, to the
    first command of a mission that is asked for as soon as the guard is ready."""
    from temporeal_benchmarks.deployment.robot_processes import Crew

    took = list[float]()
    for number in range(count):
        crew = Crew(artifact, "crazyflie", "odometry", "ctbr_cmd", 50.0, out / f"start{len(beside)}-{number}")
        try:
            crew.start("robot_sim")
            here: list[Any] = []
            state = crew.facts.states[0]
            from temporeal_bridge.transports.transport import QOS

            crew.bus.subscribe(state.topic, state.type, QOS["sensor"], here.append)
            crew.need("the robot", 60.0, lambda here=here: bool(here))
            began, asked = time.monotonic(), 0.0
            crew.start_guarded(own)
            for module in beside:
                crew.start(module, *(["--bag", str(crew.out / "bag")] if module == "recorder" else
                                     ["--artifact", str(artifact)]))

            def flies(crew: Crew = crew) -> bool:
                nonlocal asked
                if crew.mode == "ready" and time.monotonic() > asked + 0.05:
                    asked = time.monotonic()
                    crew.tell("mission/start", 1)
                return bool(crew.oracle.trace)

            crew.need("the first command", 30.0, flies)
            took.append(crew.oracle.trace[0][0] - began)
        finally:
            crew.close()
    usual, whose = median(took), ", monitor and recorder started with them" if beside else " alone"
    return [Row(f"deploy.start to active of guard and controller{whose}", usual, "s", 1.5,
                f"{count} starts, {load()}", usual <= 1.5)]


def cpu_s(pid: int) -> float:
    """CPU time [s] that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> tuple[float, float]:
    """Memory [MB] of a process and its children, shared pages divided among those that share them (Linux): all of it,
    and what of it is of no file. That of files grows, too, when somebody else who shares it ends."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    size = {words[0]: float(words[1]) / 1024 for words in lines if words[0].startswith("Pss")}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    every = [(size["Pss:"], size["Pss:"] - size["Pss_File:"]), *(memory_mb(int(child)) for child in children)]
    return sum(whole for whole, _ in every), sum(own for _, own in every)
