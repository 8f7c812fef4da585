"""The world of an actor whose robot is behind ROS 2: it is a controller, and the guard stays between it and the robot.

    world = open_world(Path("outputs/artifact"), namespace="/cf1", domain=7)
    sample = world.reset()
    while not world.judged():
        sample = world.step(command(sample.signals))

Signals come over the robot's topics, through the bridge's codecs. A command is proposed to the guard over the local
socket that a controller has (:mod:`temporeal_bridge.link`), never published to the robot; what the guard sent instead
comes back as its record (``guard/command``), which is the sample's command. Whether an episode succeeded is what the
monitor says of the artifact's formula (:meth:`RosWorld.judged`). The guard, the monitor and the robot's driver run
beside this process, of the same artifact: the frozen base, whose limits and rate hold for whatever corrects it.

This is the only module of learning that knows of ROS; it is imported where such a world is opened. Time is that of the
robot: nothing here can make it faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor
from pathlib import Path

import numpy as np

from temporeal.policies.robot_learning.ros_world_resets import Reset, Simulated
from temporeal.policies.robot_learning.ros_world_topics import Heard
from temporeal.policies.robot_learning.world import LATE, Sample, WorldError
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import Manifest, identity
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.signals import Schema
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.controller.step_schedule import StepSchedule
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Answer, Proposal
from temporeal_bridge.link.ends import ControllerEnd
from temporeal_bridge.link.sockets import SocketController, default_path
from temporeal_bridge.mission import MISSION_TIME, check_fits
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import QOS, Transport

HELLO_S = 0.25  # between greetings to the guard outside episodes, as a controller's
AGAIN_S = 0.6  # between resets of the guard, which takes none soon after a stop
READY_S = 60.0  # for guard and robot to be there and in order, on a busy machine
SILENT_S = 2.0  # without a new state an episode cannot go on
VERDICT_S = 5.0  # from the last sample to the monitor's verdict, which waits for late samples
TURN_S = 0.002  # longest wait for messages at a time, so that the guard's answers are heard as well
RESTING = ("ready", "finished")  # modes of the guard in which an episode can begin


@dataclass(frozen=True)
class Episodes:
    """How episodes begin and end.

    Args:
        first: number of the first one; a simulated robot draws its start from it.
        after: what the guard does when an episode ends that went well: ``stop``, the robot's stop action, or
            ``silence``, for a simulated robot that is put back anyway.
    """

    first: int = 0
    after: str = "stop"

    def __post_init__(self) -> None:
        if self.after not in ("stop", "silence"):
            raise ValueError(f"after is {self.after!r}; legal: stop, silence")


class RosWorld:
    """See :class:`temporeal.policies.robot_learning.world.RobotWorld`.

    Args:
        manifest: of the artifact that guard and monitor run, too.
        link: to the guard. reset: how the robot gets to a start.

    Attributes:
        signals: all that the topics carry, pictures only as far as the artifact reads them, and the mission's time.
        number: of the episode. steps: its control steps so far. opened: whether its mission runs at the guard.
        heard: the guard's and the monitor's words, and the audit of all commands.
    """

    name = "ros2"

    def __init__(
        self, transport: Transport, manifest: Manifest, robot: RobotSpec, interface: Interface, link: ControllerEnd,
        reset: Callable[[Transport], Reset] = Simulated, episodes: Episodes = Episodes(),
    ) -> None:
        check_fits(manifest, robot, interface)
        if interface.autopilot is not None:
            raise WorldError(f"interface {interface.name!r} has an autopilot, which must be armed for each episode: "
                             "learning over it is not supported; choose an interface without one")
        self.transport, self.manifest, self.robot, self.link = transport, manifest, robot, link
        self.spec, self.identity = robot.command(manifest.commands[0].name), identity(manifest)
        self.after = episodes.after
        self.command, self.period_s = self.spec.name, 1.0 / manifest.rate_hz
        reads = {signal.name: signal for signal in manifest.signals}
        self.signals: Schema = {**interface.state, **reads, MISSION_TIME.name: MISSION_TIME}
        self.state = StateInput(transport, robot, interface, wanted=[*self.signals], pictures=[*reads])
        self.heard, self.resets = Heard(transport, self.spec), reset(transport)
        self.unlatch = transport.advertise("mission/reset", "std_msgs/msg/Empty", QOS["default"])
        self.schedule = StepSchedule(self.period_s, 1.0 / interface.states[0].rate_hz)
        self.number, self.steps, self.opened = episodes.first - 1, 0, False
        self.start_ns, self.seen, self.due, self.greeted = 0, 0.0, 0.0, -np.inf
        self.answer, self.executed = Answer("missing"), np.zeros(self.spec.size)

    # ---- the protocol

    def reset(self) -> Sample:
        """See :class:`RobotWorld`. The guard's reason is cleared, the robot brought to a start, and sampled."""
        self.hold()
        self.number, self.steps, self.start_ns = self.number + 1, 0, 0
        self._wait(lambda: self.state.complete, READY_S, lambda: f"the robot: no message on {self.state.missing}")
        self._release()
        self.resets.ask(self.number)
        self._wait(self.resets.done, self.resets.limit_s, lambda: self.resets.what)
        self._wait(self._ready, READY_S, lambda: f"guard and robot (guard: {self.heard.status.mode or 'silent'} "
                   f"{self.answer.reason or self.heard.event}; topics without a message: {self.state.missing})")
        return self._sample()

    def step(self, command: np.ndarray) -> Sample:
        """See :class:`RobotWorld`. The first one of an episode begins its mission."""
        values = np.asarray(command, dtype=np.float64).reshape(-1)
        if values.size != self.spec.size or not np.isfinite(values).all():
            raise WorldError(f"{self.command} is {self.spec.size} finite numbers, got {values.tolist()}")
        if self.steps == 0:
            self._begin()
        elif not self.opened:
            raise WorldError("this episode is over: reset first")
        now = self.transport.monotonic()
        late = max(0, floor((now - self.due) / self.period_s + LATE))
        missed = self.schedule.missed(now)
        self.steps += missed + 1
        self._send(datagrams.COMMAND, values)
        self.schedule.advance(missed, self.seen)
        failed = self._next()
        changed = self._executed(values)
        self.due = self.schedule.next
        if failed:
            self.opened = False
        return self._sample(self.executed, changed, failed, late)

    def hold(self) -> None:
        """See :class:`RobotWorld`: the mission is over, and the guard does with the robot what its profile says."""
        if self.opened:
            self._send(datagrams.END, text=self.after)
            self.opened = False

    def judged(self, wait_s: float = 0.0) -> str:
        """The monitor's verdict on this episode, ``satisfied`` or ``violated`` (or, where samples were lost, what it
        ends with); "": nothing is decided yet, after ``wait_s``."""
        until = self.transport.monotonic() + wait_s
        while not self.heard.judged(self.number, self.start_ns) and self.transport.monotonic() < until:
            self._turn(until)
        return self.heard.judged(self.number, self.start_ns)

    def close(self) -> None:
        """See :class:`RobotWorld`."""
        self.hold()
        self.link.close()
        self.transport.close()

    # ---- an episode

    @property
    def horizon(self) -> int:
        """Control steps of an episode: those that the formula looks at, and one to decide it."""
        return round(self.manifest.horizon_s * self.manifest.rate_hz) + 1

    def _begin(self) -> None:
        """Time zero is now. However long ago the first sample was, the robot rests as it did: the next state stands for
        it, so that a guard does not take the command for one of an old state."""
        self.schedule.restart(self.transport.monotonic())
        self._wait(lambda: self.state.paced.at > self.schedule.used, SILENT_S, lambda: "a new state of the robot")
        self.seen = self.schedule.next = self.due = self.state.paced.at
        self.start_ns, self.opened = self.transport.now(), True
        self.answer = Answer("active", self.number, self.start_ns)
        self.executed = np.zeros(self.spec.size)
        self._send(datagrams.BEGIN)

    def _next(self) -> str:
        """Wait for the next sampling time; why the episode cannot go on, or "". """
        since = self.state.paced.at
        while True:
            now = self.transport.monotonic()
            if failed := self._stopped():
                return failed
            if self.schedule.due(now, self.state.paced.at):
                break
            self._turn(self.schedule.deadline)
        silent = now - self.state.paced.at
        if self.state.paced.at == since and silent > SILENT_S:
            raise WorldError(f"no new state of the robot for {silent:.1f} s: is its driver running?")
        return self.state.overdue(now)

    def _stopped(self) -> str:
        """Why the guard ended this episode's mission; "": it did not."""
        ours = (self.answer.flight, self.answer.stamp_ns) == (self.number, self.start_ns)
        if not ours or self.answer.mode == "active":
            return ""
        return self.answer.reason or f"the guard is {self.answer.mode}"

    def _executed(self, proposed: np.ndarray) -> str:
        """Note what the guard sent for the last step; why that is not what was ``proposed``, or ""."""
        key, until = (self.number, self.steps - 1), self.transport.monotonic() + 0.25 * self.period_s
        while key not in self.heard.answered and self.opened and self.transport.monotonic() < until:
            self._turn(until)
        record = self.heard.answered.get(key)
        if record is not None:
            self.executed = np.array(record.sent, dtype=float)
            return self.heard.changed(record)
        last = self.heard.last
        if last is not None and last.flight == self.number:
            self.executed = np.array(last.sent, dtype=float)
        return "the guard sent a command of its own, or none, in place of a late or refused one"

    def _sample(
        self, command: np.ndarray | None = None, changed: str = "", failed: str = "", late: int = 0
    ) -> Sample:
        self.seen = self.state.paced.at
        newest = self.state.newest()
        time_s = np.asarray(self.steps * self.period_s, dtype=np.float32)
        signals = {**{name: newest[name] for name in self.signals if name in newest}, MISSION_TIME.name: time_s}
        return Sample(signals, command, changed, failed, late)

    # ---- between episodes

    def _release(self) -> None:
        """Clear the guard's reason, once it has stopped the robot."""
        asked = -np.inf

        def free() -> bool:
            nonlocal asked
            now, mode = self.transport.monotonic(), self.heard.status.mode
            if mode in ("stopping", "holding", "stopped") and now >= asked + AGAIN_S:
                asked = now
                self.transport.publish(self.unlatch, messages.empty())
            return mode not in ("stopping", "holding", "stopped", "active")

        self._wait(free, READY_S, lambda: f"the guard to be reset: {self.heard.event or self.heard.status.mode}")

    def _ready(self) -> bool:
        """Whether the guard lets a mission begin. It hears of us as long as the state is known."""
        now = self.transport.monotonic()
        if now >= self.greeted + HELLO_S and self.state.complete and not self.state.overdue(now):
            self.greeted = now
            self._send(datagrams.HELLO, text=self.identity)
        return self.answer.mode in RESTING and self.heard.status.mode in RESTING and self.state.complete

    def _wait(self, done: Callable[[], bool], limit_s: float, what: Callable[[], str]) -> None:
        """Let messages arrive until ``done``."""
        until = self.transport.monotonic() + limit_s
        while not done():
            if self.transport.monotonic() > until:
                raise WorldError(f"waited {limit_s:g} s for {what()}")
            self._turn(until)

    def _turn(self, until: float) -> None:
        """Messages of the bus and of the guard, for a moment."""
        self.transport.wait(min(max(until - self.transport.monotonic(), 0.0), TURN_S))
        for answer in self.link.receive():
            self.answer = answer

    def _send(self, kind: int, values: np.ndarray | tuple[()] = (), text: str = "") -> None:
        outside = kind == datagrams.HELLO
        taken = self.link.send(Proposal(
            kind, -1 if outside else self.number, self.steps - 1, 0 if outside else self.start_ns,
            self.seen if kind == datagrams.COMMAND else self.state.paced.at, self.transport.monotonic(), values, text,
            oldest=self.state.since))
        if not taken and kind in (datagrams.BEGIN, datagrams.COMMAND):
            raise WorldError("no guard takes the proposals: is guard_node running, in this namespace and domain?")


class ByMonitor:
    """The monitor beside the robot judges (:class:`temporeal.policies.robot_learning.success.Judge`): it saw each state
    that came, and is not the process that learns."""

    names: tuple[str, ...] = ()

    def __init__(self, world: RosWorld) -> None:
        self.world = world

    def begin(self) -> None:
        """The world knows which episode it is."""

    def update(self, signals: Mapping[str, np.ndarray]) -> bool | None:
        """What is known by now."""
        return {"satisfied": True, "violated": False}.get(self.world.judged())

    def finish(self) -> bool | None:
        """What the monitor says in the end; None: it does not know."""
        return {"satisfied": True, "violated": False}.get(self.world.judged(VERDICT_S))


def open_world(
    artifact: Path, namespace: str = "/", *, transport: str = "auto", domain: int | None = None, loopback: bool = False,
    interface: str | None = None, signals: Path | None = None, trust: Path | None = None, link: Path | None = None,
    reset: Callable[[Transport], Reset] = Simulated, episodes: Episodes = Episodes(),
) -> RosWorld:
    """Join the bus of a robot whose guard and monitor run ``artifact``; options as of the group ``deploy``.

    Args:
        trust: public key that must have signed it. link: socket of the guard; None: that of domain and namespace.
    """
    manifest = load_manifest(artifact, trust)
    robot = named_robot(manifest.robot)
    topics = load_interface(robot, interface, signals)
    bus = open_transport(transport, "actor", namespace, domain=domain, loopback=loopback)
    path = default_path(domain, namespace) if link is None else link
    return RosWorld(bus, manifest, robot, topics, SocketController(path), reset, episodes)
