"""Recording from the bus: the topics of a robot's interface, read by the nodes' own codecs, on a grid of one rate.

Somebody else commands the robot: a teleoperation driver, a leader arm's node, a policy's nodes. The command of a sample
is the newest one at the middle of the step that begins there, as in the import of bags
(:mod:`temporeal.policies.data.formats.rosbag`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.recording.controls import SESSION, Device
from temporeal.policies.data.recording.session import Session
from temporeal.robots.signals import schema
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import COMMAND_CODECS, named
from temporeal_bridge.interface.interface import CommandTopic
from temporeal_bridge.interface.interface import Interface as Topics
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Callback, Received, Transport, qos_named

SILENT_S = 0.5  # s without a command: chosen; a held command is one that a robot still follows
STALE = 3  # periods of a topic that a sample of it holds, as in temporeal.sim.stl.samples.times


class LiveCommand:
    """The newest command on the bus, put together from the topics that carry it; [U] in its units."""

    def __init__(self, transport: Transport, topic: CommandTopic, size: int) -> None:
        self.values, self.known = np.zeros(size, np.float32), np.zeros(size, dtype=bool)
        self.history: list[tuple[float, np.ndarray]] = []
        self.rejected, self.last_rejection = 0, ""
        for part in topic.parts:
            transport.subscribe(part.topic, part.type, qos_named("best_effort"), self._listener(part))

    def _listener(self, part: CommandTopic) -> Callback:
        codec = named(COMMAND_CODECS, part.codec)
        if codec.decode is None:
            raise DataError(f"{part.topic} carries no command: codec {part.codec!r} is of a companion")
        decode = codec.decode
        chosen = list(part.components) if part.components else slice(None)

        def take(received: Received) -> None:
            try:
                values = np.asarray(decode(messages.decode(received.type, received.data), part.options), np.float32)
                if values.shape != self.values[chosen].shape or not np.isfinite(values).all():
                    raise ValueError(f"{values.shape} numbers, {self.values[chosen].shape} finite ones are needed")
            except Exception as error:  # whatever bytes from anywhere make a codec raise
                self.rejected, self.last_rejection = self.rejected + 1, f"{received.topic}: {error}"
                return
            self.values[chosen], self.known[chosen] = values, True
            if self.known.all():
                self.history.append((received.at, self.values.copy()))

        return take

    def at(self, time_s: float) -> tuple[float, np.ndarray] | None:
        """Arrival and values of the newest command at ``time_s`` (monotonic), or of the first one after it; None: there
        is none. Older ones are forgotten."""
        before = [entry for entry in self.history if entry[0] <= time_s]
        if before:
            self.history = self.history[len(before) - 1 :]
        return self.history[0] if self.history else None


class LiveRobot:
    """A robot on the bus at a rate: its newest state, and the command of each step.

    Args:
        topics: its interface. ``command``: the name of the recorded one. ``signals``: recorded; (): all that the state
            topics carry.
    """

    def __init__(self, transport: Transport, robot: RobotSpec, topics: Topics, command: str, rate_hz: float,
                 signals: Sequence[str] = ()) -> None:
        self.transport, self.topics, self.period = transport, topics, 1.0 / rate_hz
        self.names = tuple(signals or topics.state)
        if unknown := [name for name in self.names if name not in topics.carried]:
            raise DataError(f"no topic of interface {topics.name!r} carries {unknown[0]!r}; it has: "
                            f"{', '.join(topics.carried)}")
        pictures = [name for name in self.names if name not in topics.state]
        self.state = StateInput(transport, robot, topics, qos="deep", wanted=self.names, pictures=pictures)
        spec = robot.command(command)
        self.command = LiveCommand(transport, topics.command(command), spec.size)
        action = ActionSpec(command, tuple(map(float, spec.low)), tuple(map(float, spec.high)), spec.unit)
        self.low, self.high = np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)
        self.interface = Interface(robot.name, schema(*(topics.carried[name] for name in self.names)), action, rate_hz,
                                   simulator="real", about={"interface": topics.name, "source": "live topics"})

    def until(self, time_s: float) -> float:
        """Take messages until ``time_s`` (monotonic); the time now."""
        while (left := time_s - self.transport.monotonic()) > 0:
            self.transport.wait(left)
        self.transport.wait(0.0)
        return self.transport.monotonic()

    def sample(self) -> dict[str, np.ndarray] | None:
        """The newest state; None before every topic has come."""
        if not self.state.complete:
            return None
        newest = self.state.newest()
        return {name: np.array(newest[name]) for name in self.names} if newest.keys() >= set(self.names) else None

    def silent(self, now: float) -> str:
        """Which topic of the state has been silent for too long, in words; "": none."""
        for source in self.state.sources:
            limit = STALE / source.topic.rate_hz if source.topic.rate_hz > 0 else inf
            if now - source.at > max(limit, self.period):
                return f"nothing on {source.topic.topic} for {now - source.at:.2f} s"
        return ""


def record(robot: LiveRobot, session: Session, keys: Device | None, *, seconds: float = inf, automatic: bool = False,
           stop: Callable[[], bool] = lambda: False) -> None:
    """Record until enough episodes are there, the operator quits, or ``stop()``.

    Args:
        keys: the operator's; None: there are none.
        seconds: the longest episode.
        automatic: episodes begin by themselves as soon as state and command come.
    """
    before: dict[str, np.ndarray] | None = None  # the sample whose command is not known yet
    tick = robot.transport.monotonic()
    while not session.over and not stop():
        tick += robot.period
        now = robot.until(tick)
        sample, command = robot.sample(), robot.command.at(tick - 0.5 * robot.period)
        ready = sample is not None and command is not None and now - command[0] < SILENT_S and not robot.silent(now)
        if session.open:
            before = follow(robot, session, before, sample, command, now)
            if session.open and session.steps * robot.period >= seconds:
                session.end(sample, None)
        events = [SESSION.events[key] for key in (keys.read().pressed if keys else ()) if key in SESSION.events]
        if automatic and not session.open and ready:
            events.insert(0, "begin")
        for event in events:
            if event == "begin" and not ready and not session.open:
                session.say(why_not(robot, sample, command, now))
                continue
            session.hear(event, session.begin, lambda last=sample: last or {}, lambda: None)  # type: ignore[misc]
        before = sample if session.open else None
    if session.open:
        session.discard("the recording was ended")


def follow(
    robot: LiveRobot, session: Session, before: dict[str, np.ndarray] | None, sample: dict[str, np.ndarray] | None,
    command: tuple[float, np.ndarray] | None, now: float,
) -> dict[str, np.ndarray] | None:
    """Record the step that ends now; where state or command are silent, the episode ends with what is known."""
    if before is not None and command is not None:
        session.step(before, np.clip(command[1], robot.low, robot.high))
    silent = robot.silent(now) or ("" if command is not None and now - command[0] < SILENT_S else "no command any more")
    if silent:
        session.say(silent)
        session.end(None, None)  # what came last is no sample of now
    return sample


def why_not(
    robot: LiveRobot, sample: Mapping[str, np.ndarray] | None, command: tuple[float, np.ndarray] | None, now: float
) -> str:
    """Why no episode can begin, in words."""
    if sample is None:
        return f"no episode can begin: nothing yet on {', '.join(robot.state.missing) or 'some topics'}"
    silent = robot.silent(now)
    return f"no episode can begin: {silent or 'nobody commands the robot'}"
