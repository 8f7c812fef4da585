"""What every node process does: read its command line, join the bus, run until told to stop, leave a summary."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from temporeal.robots.artifact.manifest import load_manifest
from temporeal.robots.spec import RobotSpec, load_robot, robot_names
from temporeal_bridge.launching.processes import orphaned
from temporeal_bridge.link import default_path
from temporeal_bridge.transports import ros_arguments
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import Transport

LONGEST_WAIT_S = 0.1  # so that a stop signal is seen
PRIORITIES = ("normal", "realtime", "auto")
FIFO_PRIORITY = 20  # below the kernel's own threads (50)
AHEAD = 5  # of that, the guard: what the controller proposes is judged before the controller goes on
REHEARSED_S = 0.0003  # before the next state: chosen, for what caches hold is soon lost, and a state may come early
MOST_REHEARSED = 0.4  # of a period, the time before that state included
FORGOTTEN = 0.99  # of the longest step, with each that is shorter: a policy with a reflex has one of two lengths


# a process that runs when no other wants its core, until the one that it is for has ended
WAKING = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # at once: who starts it may have real-time priority
while os.getppid() == int(sys.argv[1]):
    for _ in range(100_000):
        pass
"""


class Node(Protocol):
    """A node on a transport: :meth:`step` runs after messages were delivered, at the latest at :meth:`deadline`."""

    def step(self) -> None:
        """Do what is due now."""

    def deadline(self) -> float:
        """Monotonic time [s] at which :meth:`step` must run next, messages or not."""

    def summary(self) -> dict[str, Any]:
        """What happened so far, for the JSON file."""


def spin(node: Node, transport: Transport, stop: Callable[[], bool]) -> None:
    """Run ``node`` until ``stop()``; one that has ``may_end()`` is asked then, until it may.

    One that sets ``done`` ends by itself, too. A node that has ``wait(seconds)`` sleeps by it, and looks at the bus
    itself. One that has ``rescue(error)`` has a last word when it fails, before the error goes on: a robot may be in
    motion.
    """
    wait, may_end = getattr(node, "wait", transport.wait), getattr(node, "may_end", lambda: True)
    try:
        while not ((stop() or getattr(node, "done", False)) and may_end()):
            left = node.deadline() - transport.monotonic()
            wait(min(max(left, 0.0), LONGEST_WAIT_S))
            node.step()
    except Exception as error:
        getattr(node, "rescue", lambda _: None)(error)
        raise


class Rehearsal:
    """When to do the next step for nothing, shortly before its turn: code and numbers that it needs are in the
    processor's caches then, and memory that has slept for a period is slow. For a core that does nothing else.

    Args:
        period: of the steps [s]. wanted: else it is never due.
        most: no step is rehearsed that takes longer [s]. The guard's, which goes ahead of the controller's, must be
            over before the state comes.
    """

    def __init__(self, period: float, wanted: bool, most: float = math.inf) -> None:
        self.period, self.wanted, self.most, self.at, self.took = period, wanted, most, math.inf, 0.0
        self.expected, self.until = math.inf, -math.inf  # the next state [s]; until when to look for it without sleep

    def plan(self, seen: float, took: float) -> None:
        """The step for the state that came at ``seen`` [s] took so long [s]: the next one's rehearsal. None where that
        would take too much of the period."""
        self.took = max(took, FORGOTTEN * self.took)
        before = REHEARSED_S + self.took
        good = self.wanted and self.took <= self.most and before < MOST_REHEARSED * self.period
        self.expected, self.until = seen + self.period, -math.inf
        self.at = self.expected - before if good else math.inf

    def due(self, now: float) -> bool:
        """Whether it is time for it; it is told once. Not when it is so late that it would delay the step itself. The
        controller's mostly is late: the guard, which goes ahead of it, rehearses at that time, too."""
        if now < self.at:
            return False
        late, self.at = now - self.at, math.inf
        self.until = self.expected + REHEARSED_S if late < REHEARSED_S else -math.inf
        return late < REHEARSED_S

    def wait(self, transport: Transport, timeout_s: float) -> None:
        """Until something comes, for ``timeout_s`` at most. A state that was rehearsed for is about to come: to look
        for it again and again is sooner than to wake. Who does that gives way to the threads that take it in
        (:func:`give_way`)."""
        now = transport.monotonic()
        until = now + timeout_s
        while now < min(until, self.until):
            if transport.wait(0.0):
                return
            now = transport.monotonic()
        transport.wait(max(until - now, 0.0))


def robot_of(args: argparse.Namespace) -> RobotSpec:
    """The robot that the command line names, else the one that its artifact is for."""
    artifact = getattr(args, "artifact", None)
    if args.robot is None and artifact is None:
        raise ValueError(f"--robot is needed, for no artifact names one; legal: {', '.join(robot_names())}")
    return load_robot(args.robot or load_manifest(artifact, getattr(args, "trust", None)).robot)


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that all nodes have. What follows ``--ros-args`` is ROS's own."""
    out = argparse.ArgumentParser(prog=name, description=description)
    out.add_argument("--robot", default=None, help="folder name below robots/ (default: the one the artifact is for)")
    out.add_argument("--interface", default=None, help="interface of the robot's ros.yaml (default: the one it names)")
    out.add_argument("--signals", type=Path, default=None, metavar="YAML",
                     help="topics of signals that the robot does not have: a goal, an object's pose, a camera")
    out.add_argument("--namespace", default="/", help="ROS namespace, for example /cf1")
    out.add_argument("--transport", default="auto", help="dds, rclpy, or auto: rclpy in a sourced ROS 2 (default)")
    out.add_argument("--domain", default=None, help="DDS domain 0..232 (default: $ROS_DOMAIN_ID, else 0)")
    out.add_argument("--loopback", action="store_true", help="talk to this machine only")
    out.add_argument("--priority", default="normal", choices=PRIORITIES,
                     help="realtime: ahead of ordinary processes; auto: where permitted (default: %(default)s)")
    out.add_argument("--core", type=int, default=None, metavar="N",
                     help="run on this core only: one that guard and controller have for themselves (isolcpus)")
    out.add_argument("--link", type=Path, default=None, metavar="SOCKET",
                     help="where controller and guard meet (default: one for each user, domain and namespace)")
    out.add_argument("--out", type=Path, default=None, help="folder for the summary and what else the node writes")
    return out


def add_awake(options: argparse.ArgumentParser, what: str) -> None:
    """The option of who is on the way from state to command, and ``what`` it does there."""
    options.add_argument("--awake", action=argparse.BooleanOptionalAction, default=False,
                         help=f"{what}: sooner, for the power of a busy core (needs --core and real-time priority)")


def add_artifact(options: argparse.ArgumentParser) -> None:
    """The options of a node that is given an artifact."""
    options.add_argument("--artifact", type=Path, required=True, help="folder that `temporeal export` wrote")
    options.add_argument("--trust", type=Path, default=None, metavar="PUB.pem",
                         help="public key: refuse an artifact that its owner did not sign")


@contextmanager
def told_to_stop() -> Iterator[list[int]]:
    """The signals that ask this process to end, as they come; what they did before is theirs again afterwards. One is
    that the terminal is gone: a robot in motion must not be left. Who said nohup has that ignored."""
    stopped: list[int] = []
    hang_up = [n for n in (getattr(signal, "SIGHUP", None),) if n is not None and signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: stopped.append(got))
              for number in (signal.SIGINT, signal.SIGTERM, *hang_up)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def link_path(args: argparse.Namespace, transport: Transport) -> Path:
    """Where controller and guard of this robot meet."""
    return Path(args.link) if args.link else default_path(args.domain, transport.namespace)


def run(
    parsed: argparse.ArgumentParser, arguments: Sequence[str] | None,
    make: Callable[[argparse.Namespace, Transport], Node], file: str, ahead: int = 0, wakes: bool = False,
) -> int:
    """The whole life of a node process; the exit status is 0, or 2 after a message about wrong input. ``ahead``: see
    :func:`take_priority`; ``wakes``: of those with ``--awake`` it is this one that keeps the core from sleeping."""
    with told_to_stop() as stopped:
        return live(parsed, sys.argv[1:] if arguments is None else arguments, make, file, stopped, ahead, wakes)


def live(
    parsed: argparse.ArgumentParser, arguments: Sequence[str], make: Callable[[argparse.Namespace, Transport], Node],
    file: str, stopped: Sequence[int], ahead: int = 0, wakes: bool = False,
) -> int:
    """From the command line to the summary; ends when ``stopped`` has something."""
    alone = orphaned()
    own, ros = ros_arguments.split(arguments)
    transport: Transport | None = None
    waking: subprocess.Popen[bytes] | None = None
    try:
        legal = [option for action in parsed._actions for option in action.option_strings]
        parameters = ros_arguments.parse(ros).parameters
        ros_arguments.misspelt(parameters, legal)
        args = parsed.parse_args([*ros_arguments.as_options(parameters, legal), *own])
        check_awake(getattr(args, "awake", False), args.core, args.priority)
        take_core(args.core)  # before the middleware starts its threads: they inherit it
        if wakes and args.awake:
            waking = keep_awake()
        take_priority(args.priority, ahead)
        if getattr(args, "awake", False) and os.sched_getscheduler(0) != os.SCHED_FIFO:
            raise RuntimeError(f"awake needs real-time priority, and with --priority {args.priority} this process has "
                               f"policy {os.sched_getscheduler(0)}: the process that keeps the core busy would have "
                               "half of it. Allow it (rtprio in /etc/security/limits.conf) or leave awake out")
        load_behind()
        transport = open_transport(
            args.transport, parsed.prog, args.namespace, domain=args.domain, loopback=args.loopback, ros_args=ros)
        if hasattr(transport, "declare"):
            transport.declare({**vars(args), "namespace": transport.namespace})  # a launch file says it by __ns
        node = make(args, transport)
        take_priority(args.priority, ahead)
        if getattr(args, "awake", False) and not wakes:
            give_way()
        gc.collect()
        gc.freeze()  # what is there now stays: a collection has only the little to look at that came since
        try:
            spin(node, transport, lambda: bool(stopped) or alone())
        finally:
            close = getattr(node, "close", None)
            if close is not None:
                close()
            if args.out is not None:
                write_json(args.out / file, node.summary())
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        print(f"{parsed.prog}: error: {error}", file=sys.stderr)
        return 2
    finally:
        if transport is not None:
            transport.close()
        if waking is not None:
            waking.kill()
            with suppress(subprocess.TimeoutExpired):  # one of real-time priority may have the core for itself
                waking.wait(1.0)
    return 0


def check_awake(awake: bool, core: Any, priority: str) -> None:
    """Whether a core may be kept from sleeping: one that is ours alone, where the system has a way, by who goes ahead
    of the process that does it."""
    if awake and priority == "normal":
        raise ValueError("awake needs real-time priority (priority realtime, or auto): SCHED_IDLE gives way within one "
                         "session only, and the process that keeps the core busy has one of its own")
    if awake and core is None:
        raise ValueError("awake keeps a core from sleeping that guard and controller have for themselves: say which "
                         "one (core), or leave awake out")
    if awake and not hasattr(os, "SCHED_IDLE"):
        raise ValueError("awake: this system has no SCHED_IDLE, and a process that keeps a core busy would stand in "
                         "the others' way; leave awake out")


def keep_awake() -> subprocess.Popen[bytes]:
    """A process that keeps this one's core from sleeping: one that wakes is late, and its caches are cold. It is not in
    the way of who has real-time priority, hears no Ctrl-C, and ends with this one."""
    made = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAKING, str(os.getpid())], stdin=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        os.sched_setscheduler(made.pid, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        made.kill()
        made.wait()
        raise RuntimeError(f"awake: no process may run below all others here: {error}; leave awake out") from error
    return made


def take_core(number: int | None) -> None:
    """Run on one core only, if asked for."""
    check_core(number)
    if number is not None:
        try:
            os.sched_setaffinity(0, {number})
        except OSError as error:  # the core may be another container's
            raise RuntimeError(f"core {number}: this process may not run there: {error}") from error


def check_priority(kind: Any) -> None:
    """Whether there is such a priority."""
    if kind not in PRIORITIES:
        raise ValueError(f"priority {kind}; legal: {', '.join(PRIORITIES)}")


def check_core(number: Any) -> None:
    """Whether a core is one of this machine's; None is any. One that isolcpus has set aside is."""
    count = os.cpu_count() or 1
    if number is not None and (type(number) is not int or not 0 <= number < count):
        raise ValueError(f"core {number}: this machine has cores 0 to {count - 1}; leave it out for any")
    if number is not None and not hasattr(os, "sched_setaffinity"):
        raise ValueError(f"core {number}: this system does not let a process choose; leave it out")


def take_priority(kind: str, ahead: int = 0) -> None:
    """Schedule this process, with all of its threads, ahead of ordinary ones, if asked for, and of others of ours by
    ``ahead``; ``auto`` does without where that is not permitted."""
    if kind == "normal" or (kind == "auto" and not hasattr(os, "sched_setscheduler")):
        return
    try:
        schedule(os.SCHED_FIFO, FIFO_PRIORITY + ahead)
    except (PermissionError, OSError) as error:
        if kind == "realtime":
            raise RuntimeError(
                f"no real-time priority: {error}; allow it (rtprio in /etc/security/limits.conf) or leave --priority"
            ) from error


def load_behind() -> None:
    """Go behind those that have real-time priority until :func:`take_priority` is asked again: who imports and loads
    for seconds must not be in the way of another robot that flies. That it is permitted is known by now."""
    if hasattr(os, "SCHED_FIFO") and os.sched_getscheduler(0) == os.SCHED_FIFO:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def give_way() -> None:
    """Let other processes of ours go ahead of this one, where it has real-time priority, and its own threads, which
    the middleware has, too."""
    if hasattr(os, "SCHED_FIFO") and os.sched_getscheduler(0) == os.SCHED_FIFO:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_getparam(0).sched_priority - 1))


def schedule(policy: int, priority: int) -> None:
    """... of all threads that this process has; those that it starts later inherit it of the one that does."""
    tasks = Path("/proc/self/task")
    others = [int(entry.name) for entry in tasks.iterdir()] if tasks.is_dir() else []
    os.sched_setscheduler(0, policy, os.sched_param(priority))  # this one, whatever the list says
    for thread in others:
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


def plain(value: Any) -> Any:
    """``value`` as JSON has it: numpy numbers as numbers, infinities and NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    text = json.dumps(plain(content), indent=2, allow_nan=False) + "\n"
    with whole(path) as part:
        part.write_text(text)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write, which takes its name if that succeeds and vanishes if it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        part.unlink(missing_ok=True)
