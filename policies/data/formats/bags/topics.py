"""Topics of a bag as signals on a grid. Only the messages that a grid point needs are decoded, by the nodes' codecs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats.bags.alignment import HOLD, SLACK, Alignment, Places, interpolated, places
from temporeal.policies.data.formats.bags.rows import Bag, Clock, Rows, clock_of
from temporeal.sim.stl.samples.times import Times
from temporeal_bridge.codecs.codec import CodecError, header_stamp
from temporeal_bridge.codecs.joint_state import joint_state_options
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS, named
from temporeal_bridge.interface.interface import CommandTopic, StateTopic
from temporeal_bridge.interface.state_input import trimmed
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.joint_states import BODY, HEAD, LENGTH, LITTLE_ENDIAN, layout

PROBED = 5
"""Messages of a topic that are looked at to see which of its signals the driver fills."""
COMPARED = 4096
"""Messages whose bytes are laid side by side."""
Values = Mapping[str, np.ndarray]
COMMAND = "command"
"""Name of the values of a topic that carries a command, or a part of it."""
WRONG = (CodecError, messages.MessageError, ValueError, LookupError, TypeError)


@dataclass
class Topic:
    """A topic of which each message has some signals.

    Args:
        name: of the topic.
        clock: of its messages.
        decode: the values of message ``k``; raises :data:`WRONG` where it has none.
        latched: a sample holds until the next one.
        wrong: message -> why it was refused, of those that were needed.
    """

    name: str
    clock: Clock
    decode: Callable[[int], Values]
    latched: bool = False
    kept: dict[int, Values] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)

    def take(self, k: int) -> bool:
        """Whether message ``k`` can be read."""
        if k not in self.kept and k not in self.wrong:
            try:
                self.kept[k] = self.decode(k)
            except WRONG as error:
                self.wrong[k] = str(error)
        return k in self.kept

    @property
    def usable(self) -> np.ndarray:
        """Numbers of the messages that came in order and are not known to be wrong."""
        good = self.clock.good.copy()
        good[list(self.wrong)] = False
        return np.flatnonzero(good)


def on_grid(
    topic: Topic, grid: Times, rules: Mapping[str, str], alignment: Alignment
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The signals of ``rules`` at the times ``grid`` [G], each [G, *shape], and where they are lost [G].

    Messages that the codec refuses are no samples: those around them are taken, as far as the limit of gaps allows.
    """
    slack = SLACK * alignment.period
    while True:
        usable = topic.usable
        times = topic.clock.times[usable]
        limit = alignment.limit(times, topic.latched)
        found = {rule: places(grid, times, HOLD if topic.latched else rule, limit, slack) for rule in rules.values()}
        needed = np.unique(np.concatenate([usable[side[~at.lost]] for at in found.values() if len(usable)
                                           for side in (at.before, at.after)] or [usable[:0]]))
        taken = [topic.take(int(k)) for k in needed]
        if all(taken):
            break
    lost = np.any([at.lost for at in found.values()], axis=0)
    values = {name: values_at(topic, needed, usable, found[rule], name, rule) for name, rule in rules.items()
              if len(needed)}
    return values, lost


def values_at(
    topic: Topic, needed: np.ndarray, usable: np.ndarray, at: Places, name: str, rule: str
) -> np.ndarray:
    """The signal ``name`` at the places ``at``; of lost ones anything."""
    rows = np.stack([topic.kept[int(k)][name] for k in needed])
    before, after = (np.minimum(np.searchsorted(needed, usable[side]), len(needed) - 1)
                     for side in (at.before, at.after))
    return interpolated(rows[before], rows[after], at.share, rule)


def of_state(bag: Bag, rows: Rows, state: StateTopic, wanted: Sequence[str], receipt: bool) -> Topic:
    """A state topic of a robot, of which ``wanted`` signals are read."""
    codec, options = STATE_CODECS[state.codec], trimmed(state, wanted)
    latched = state.rate_hz == 0 or rows.latched
    if codec.parts is not None and not complete(rows, options):
        return in_parts(bag, rows, state, options, receipt, latched)
    return Topic(rows.topic, clock_of(bag, rows, codec.stamp, receipt),
                 lambda k: codec.decode(rows.decode(k), options), latched)


def complete(rows: Rows, options: Mapping[str, Any]) -> bool:
    """Whether each message has all joints: all call the same joints as the first one, which has them."""
    first = rows.decode(0)
    if not set(joint_state_options(options).told) <= set(first.name):
        return False
    return all(rows.decode(int(k)).name == first.name for k in np.flatnonzero(~alike(rows.data, first)))


def alike(found: Sequence[bytes], first: Any) -> np.ndarray:
    """[T] whether each of the messages has the layout of the ``first`` one, and so its names; they are compared many at
    a time."""
    out = np.zeros(len(found), bool)
    if found[0][:2] != LITTLE_ENDIAN:
        return out
    size, laid = len(found[0]), layout(found[0], first)
    fixed = np.concatenate([np.arange(HEAD), np.arange(BODY, laid.start),
                            *(np.arange(at, at + LENGTH.size) for at, _ in laid.lengths)])
    long = np.flatnonzero(np.fromiter(map(len, found), int, len(found)) == size)
    wanted = np.frombuffer(found[0], np.uint8)[fixed]
    for some in np.array_split(long, len(long) // COMPARED + 1):
        rows = np.frombuffer(b"".join([found[k] for k in some]), np.uint8).reshape(-1, size)
        out[some] = (rows[:, fixed] == wanted).all(1)
    return out


def in_parts(
    bag: Bag, rows: Rows, state: StateTopic, options: Mapping[str, Any], receipt: bool, latched: bool
) -> Topic:
    """A topic whose states come in several messages: they are put together as the nodes do it."""
    codec = STATE_CODECS[state.codec]
    assert codec.parts is not None
    parts, whole, at = codec.parts(options, rate_of(rows, state)), list[Any](), list[int]()
    for k, received in enumerate(rows.received):
        try:
            found = parts.take(rows.decode(k), 1e-9 * received)
        except WRONG:
            continue
        if found is not None:
            whole.append(found)
            at.append(received)
    if not whole:
        raise DataError(f"{rows.topic}: no message, and no messages together, have all joints "
                        f"{', '.join(joint_state_options(options).told)}")
    joined = Rows(rows.topic, rows.type, False, rows.latched, at,
                  [messages.encode(rows.type, message) for message in whole])
    return Topic(rows.topic, clock_of(bag, joined, codec.stamp, receipt),
                 lambda k: codec.decode(whole[k], options), latched)


def rate_of(rows: Rows, state: StateTopic) -> float:
    """Messages per second by which parts wait for each other: as in ``ros.yaml``, or fewer, if the bag has fewer."""
    span = rows.received[-1] - rows.received[0]
    return min(state.rate_hz, 1e9 * (len(rows.received) - 1) / span) if span > 0 else state.rate_hz


def filled(rows: Rows, state: StateTopic) -> tuple[list[str], dict[str, str]]:
    """The signals that the first messages have, and why the others cannot be read."""
    codec = STATE_CODECS[state.codec]
    good, lacks = list[str](), dict[str, str]()
    for name in codec.signals(state.options):
        options = trimmed(state, [name])
        parts = codec.parts(options, rate_of(rows, state)) if codec.parts else None
        for k in range(min(len(rows.data), PROBED if parts is None else 10 * PROBED)):
            try:
                message = rows.decode(k)
                whole = message if parts is None else parts.take(message, 1e-9 * rows.received[k])
                if whole is not None:
                    codec.decode(whole, options)[name]
                    good.append(name)
                    break
            except WRONG as error:
                lacks.setdefault(name, str(error))
    return good, {name: lacks.get(name, "no message completes it") for name in codec.signals(state.options)
                  if name not in good}


def of_command(bag: Bag, rows: Rows, part: CommandTopic, receipt: bool) -> Topic:
    """A topic with a command, or a part of one."""
    codec = named(COMMAND_CODECS, part.codec)
    if codec.decode is None:
        raise DataError(f"{rows.topic} carries no command: codec {part.codec!r} is of a companion")
    decode = codec.decode
    return Topic(rows.topic, clock_of(bag, rows, header_stamp_or_none, receipt),
                 lambda k: {COMMAND: decode(rows.decode(k), part.options)}, rows.latched)


def header_stamp_or_none(message: Any) -> int:
    """The stamp of a message that has a header; else 0."""
    return header_stamp(message) if hasattr(message, "header") else 0


def of_guard(bag: Bag, rows: Rows) -> Topic:
    """``guard/command``: the commands that the guard has sent."""
    return Topic(rows.topic, clock_of(bag, rows, None, True),
                 lambda k: {COMMAND: CommandRecord.of(rows.decode(k).data).sent}, rows.latched)
