"""Listen to a robot for some seconds and keep what was received as frozen data. Nothing is advertised."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from temporeal.robots.signals import Schema, SignalError
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.guard.checks.stop_button import BOOL, TOPIC
from temporeal_bridge.interface.interface import CommandTopic, Interface, PictureTopic, StateTopic
from temporeal_bridge.interface.state_input import StateReader
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, Callback, Peer, Received, Transport, full_name, qos_named

DISCOVERY_S = 2.0  # for everybody to be found; discovery took 28 to 102 ms on one machine, a network may take a second
SLICE_S = 0.02
PICTURES = 10  # of a topic that are kept: each has a megabyte
DEPTH = 1000  # nothing may be lost here: what is missing is somebody else's loss


@dataclass(frozen=True)
class StateHeard:
    """One topic of state or camera.

    Attributes:
        topic: what the robot's ``ros.yaml`` says of it.
        name: its full name.
        arrivals: [K] s, this process's monotonic clock.
        walls, stamps: [M] ns, of the M messages that could be used: this machine's clock at their arrivals, and when
            they say that they were measured (0: they do not say).
        signals: values [M, *shape] by name; of pictures the last ones only.
        rejected: how often each reason to refuse a message was met.
        joints: names in the last message; None where its type names none.
        publishers: who publishes on the topic.
        unconnected: why a publisher is not heard; empty if all are.
    """

    topic: StateTopic
    name: str
    arrivals: np.ndarray
    walls: np.ndarray
    stamps: np.ndarray
    signals: Mapping[str, np.ndarray] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    joints: tuple[str, ...] | None = None
    publishers: tuple[Peer, ...] = ()
    unconnected: str = ""


@dataclass(frozen=True)
class CommandHeard:
    """One topic that commands go out on: what ``ros.yaml`` says of it, and who else is there."""

    topic: CommandTopic
    name: str
    publishers: tuple[Peer, ...] = ()
    subscribers: tuple[Peer, ...] = ()


@dataclass(frozen=True)
class Heard:
    """Everything that was heard.

    Attributes:
        begin, end: of the listening, s, monotonic clock.
        clock_step_s: how far this machine's wall clock moved against its monotonic clock, s.
        node: full name of the listener, which is among ``nodes``.
        nodes: full names of all nodes on the bus; one that two nodes bear is there twice.
        rivals: by full name, the robot's other topics for commands, and who publishes there.
        guards: who publishes on ``guard/command``, as a guard of ours does.
        buttons: who publishes on ``estop``. pressed: what it said last; None: nothing. What cannot be read is true.
    """

    begin: float
    end: float
    clock_step_s: float
    states: tuple[StateHeard, ...]
    commands: tuple[CommandHeard, ...]
    node: str
    namespace: str
    nodes: tuple[str, ...]
    buttons: tuple[Peer, ...] = ()
    pressed: bool | None = None
    rivals: Mapping[str, tuple[Peer, ...]] = field(default_factory=dict)
    guards: tuple[Peer, ...] = ()

    def newest(self) -> dict[str, np.ndarray]:
        """The last value of every signal."""
        return {name: values[-1] for state in self.states for name, values in state.signals.items()}


def listen(transport: Transport, interface: Interface, command: str, seconds: float) -> Heard:
    """Listen for ``seconds``, once every state topic has been received or ``DISCOVERY_S`` have passed."""
    taken: list[list[tuple[Received, int]]] = [[] for _ in interface.topics]
    endpoints = []
    for row, heard in zip(interface.topics, taken):
        qos = replace(qos_named(row.qos), depth=DEPTH)  # connects exactly where the controller's would
        endpoints.append(transport.subscribe(row.topic, row.type, qos, keeper(transport, heard)))
    stops = list[Received]()
    transport.subscribe(TOPIC, BOOL, QOS["best_effort"], stops.append)
    transport.nodes()  # opens the view of the graph
    until = transport.monotonic() + DISCOVERY_S
    while not all(taken) and transport.monotonic() < until:
        transport.wait(SLICE_S)
    begin = transport.monotonic()
    offset = transport.now() / 1e9 - begin
    step, latched = 0.0, False
    while transport.monotonic() < begin + seconds:
        if not latched and any(peer.qos.latched for peer in transport.publishers(TOPIC)):
            transport.subscribe(TOPIC, BOOL, QOS["latched"], stops.append)  # it may have been pressed before
            latched = True
        transport.wait(min(SLICE_S, begin + seconds - transport.monotonic()))
        moved = transport.now() / 1e9 - transport.monotonic() - offset
        step = max(step, moved, key=abs)
    end = transport.monotonic()
    states = tuple(
        decoded(row, endpoint.topic, [pair for pair in heard if pair[0].at >= begin or not row.rate_hz],
                interface.carried, tuple(transport.publishers(row.topic)), transport.incompatible(endpoint))
        for row, endpoint, heard in zip(interface.topics, endpoints, taken))
    rows = interface.command(command)
    commands = tuple(
        CommandHeard(row, transport.resolve(row.topic), tuple(transport.publishers(row.topic)),
                     tuple(transport.subscribers(row.topic)))
        for row in (rows, *getattr(rows, "also", ())))
    rivals = {transport.resolve(topic): tuple(transport.publishers(topic)) for topic in interface.rivals_of(command)}
    own = full_name(transport.namespace, transport.node)
    return Heard(begin, end, step, states, commands, own, transport.namespace, tuple(transport.nodes()),
                 tuple(transport.publishers(TOPIC)), pressed(stops), rivals,
                 tuple(transport.publishers("guard/command")))


def pressed(heard: Sequence[Received]) -> bool | None:
    """The last message of the operator's stop, as the guard reads it."""
    if not heard:
        return None
    with suppress(messages.MessageError):
        return bool(messages.decode(BOOL, heard[-1].data).data)
    return True


def keeper(transport: Transport, heard: list[tuple[Received, int]]) -> Callback:
    """A callback that stores messages with the wall clock; decoding them at once would delay the next."""
    return lambda received: heard.append((received, transport.now()))


def decoded(
    row: StateTopic, name: str, heard: Sequence[tuple[Received, int]], specs: Schema,
    publishers: tuple[Peer, ...] = (), unconnected: str = "",
) -> StateHeard:
    """The messages of one topic as numbers; rejected ones are counted by reason."""
    times, joints, rejected = list[tuple[int, int]](), None, Counter[str]()
    values: dict[str, deque[np.ndarray]] = {}
    kept = PICTURES if isinstance(row, PictureTopic) else None
    reader = StateReader(row, specs)
    for received, wall in heard:
        try:
            joints = names_in(messages.decode(received.type, received.data), joints)
            complete = reader.message(received.type, received.data, received.at)
            if complete is None:  # a part of a state that comes in several messages
                continue
            message, stamp = complete
            checked = reader.signals(message)
        except (SignalError, CodecError, messages.MessageError) as error:
            rejected[str(error)] += 1
            continue
        times.append((wall, stamp))
        for key, value in checked.items():
            values.setdefault(key, deque(maxlen=kept)).append(value)
    arrivals = np.array([received.at for received, _ in heard])
    walls, stamps = np.array(times, dtype=np.int64).reshape(-1, 2).T
    signals = {key: np.stack(rows) for key, rows in values.items()}
    return StateHeard(row, name, arrivals, walls, stamps, signals, dict(rejected), joints, publishers, unconnected)


def names_in(message: Any, before: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The joints that a message names (JointState, trajectories); ``before`` if its type names none."""
    for attribute in ("name", "joint_names"):
        found = getattr(message, attribute, None)
        if isinstance(found, (list, tuple)) and all(isinstance(item, str) for item in found):
            return tuple(found)
    return before
