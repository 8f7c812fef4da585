"""Messages of a topic as tables: signals that come with the same messages share their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.cli.traces.message_fields import MissingValue, NoSample
from temporeal.policies.cli.traces.table import Numbers, Table
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.samples.times import are_set

FAR_NS = 10**15
"""Stamps this far (11 days) from their receipt are of a clock of their own: a simulator's, or an old recording's."""

@dataclass(frozen=True)
class Completed:
    """A value that came in several messages: its stamp [ns] is the oldest of theirs, as in the nodes
    (:mod:`temporeal_bridge.codecs.joint_parts`), and not that of the message that completed it."""

    value: Numbers
    stamp: int


Found = Numbers | Completed | MissingValue | NoSample | BadInput
"""What one message has of one signal; a BadInput: no message can have it."""


@dataclass(frozen=True)
class Topic:
    """A topic and how its messages become signals.

    Args:
        name: of the topic.
        signals: that it may carry.
        decode: what a message, received at a time [ns], has of each.
        unit: ``unit(signal, message)``.
        stamp: of a message, ns; None: it has none.
        latched: a sample holds until the next one: it is published on change.
        lacks: why the bag does not have it.
    """

    name: str
    signals: tuple[str, ...]
    decode: Callable[[Any, int], Mapping[str, Found]]
    unit: Callable[[str, Any], str]
    stamp: Callable[[Any], int | None]
    latched: bool = False
    lacks: str = ""


@dataclass
class Samples:
    """The samples of one signal: the numbers of their messages, and their values; ``wrong``: why it cannot be read.

    ``stamps``: by number of the message, of those samples that have another one than it.
    """

    messages: list[int] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)
    values: list[Numbers | None] = field(default_factory=list)
    unit: str = ""
    wrong: str = ""

    def take(self, k: int, found: Found) -> None:
        """What message ``k`` has."""
        if isinstance(found, BadInput):
            self.wrong = str(found)
        elif isinstance(found, NoSample):
            self.wrong = self.wrong or str(found)
        else:
            if isinstance(found, Completed):
                self.stamps[k], found = found.stamp, found.value
            self.messages.append(k)
            self.values.append(None if isinstance(found, MissingValue) else found)
            self.wrong = str(found) if isinstance(found, MissingValue) else self.wrong

    def array(self) -> Numbers | str:
        """[T, *shape], NaN where a value is missing; in words, why it cannot be read."""
        shapes = sorted({value.shape for value in self.values if value is not None})
        if not shapes:
            return self.wrong or "no message has it"
        if len(shapes) > 1:
            return f"it changes its shape: {shapes}"
        blank = np.full(shapes[0], np.nan)
        return np.stack([blank if value is None else value for value in self.values])


@dataclass(frozen=True)
class Clock:
    """When the messages of a topic were: ``times_ns`` by their one clock, that of the receipt where ``received``;
    ``lag_ns``: how much later than that they were received."""

    times_ns: NDArray[np.int64]
    lag_ns: int
    received: bool
    note: str = ""

    @property
    def far(self) -> bool:
        """Whether it is not the recorder's clock at all."""
        return abs(self.lag_ns) > FAR_NS


def clock_of(stamps: NDArray[np.int64], received: NDArray[np.int64], stamped: bool) -> Clock:
    """The clock of a whole topic (:mod:`temporeal.sim.stl.samples.times`); ``stamped``: its type has a header."""
    if are_set(stamps):
        return Clock(stamps, int((received - stamps).min()), False)
    return Clock(received, 0, True, "no stamp is set: times are those of the receipt" if stamped else "")


def header_stamp(message: Any) -> int | None:
    """Nanoseconds of the header's stamp; None: the type has none."""
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    return None if stamp is None else int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def read_topic(topic: Topic, messages: Iterator[tuple[int, Any]]) -> tuple[Clock, dict[str, Samples]]:
    """The clock and the samples of ``messages``, (receipt [ns], message) in the order of receipt."""
    received, stamps, stamped = [], [], False
    samples = {name: Samples() for name in topic.signals}
    for k, (at, message) in enumerate(messages):
        stamp = topic.stamp(message)
        stamped |= stamp is not None
        received.append(at)
        stamps.append(stamp or 0)
        for name, found in topic.decode(message, at).items():
            samples[name].take(k, found)
            if k == 0 and isinstance(found, (np.ndarray, Completed)):
                samples[name].unit = topic.unit(name, message)
    return clock_of(np.array(stamps, np.int64), np.array(received, np.int64), stamped), samples


def tables(topic: Topic, clock: Clock, samples: Mapping[str, Samples], start_ns: int, source: str) -> list[Table]:
    """One table for each set of messages that signals come with; times in seconds since ``start_ns``."""
    arrays = {name: one.array() for name, one in samples.items()}
    unread = {name: f"{topic.name}: {found}" for name, found in arrays.items() if isinstance(found, str)}
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, one in samples.items():
        if name not in unread:
            groups.setdefault((tuple(one.messages), times_of(clock, one)), []).append(name)
    epoch = start_ns * 1e-9 if clock.far else 0.0
    notes = (f"{topic.name}: {clock.note}",) if clock.note else ()
    out = []
    for (rows, at), names in groups.items():
        mine = {name: found for name in names if not isinstance(found := arrays[name], str)}
        schema = {name: SignalSpec(name, a.shape[1:], samples[name].unit, dtype="float64") for name, a in mine.items()}
        times = (np.array(at, np.int64) - start_ns) / 1e9
        out.append(Table(source, times, schema, mine.__getitem__, placed(topic.name, rows),
                         [f"{name} ({topic.name})" for name in mine], epoch, lag_s=clock.lag_ns * 1e-9, notes=notes,
                         topic=topic.name, latched=topic.latched))
    return [*out, *([unread_table(source, unread)] if unread else [])]


def times_of(clock: Clock, samples: Samples) -> tuple[int, ...]:
    """When the samples were [ns]; by the clock of the receipt, when the message came that has or completes each."""
    own = {} if clock.received else samples.stamps
    return tuple(own.get(k, int(clock.times_ns[k])) for k in samples.messages)


def unread_table(source: str, unread: Mapping[str, str]) -> Table:
    """A table that has nothing but reasons."""
    nothing: dict[str, Numbers] = {}
    return Table(source, None, {}, nothing.__getitem__, lambda k, name: name, [], unread=unread)


def placed(topic: str, rows: tuple[int, ...]) -> Callable[[int, str], str]:
    """Where a sample stands: the number of its message, from 0."""
    return lambda k, _: f"{topic}, message {rows[k]}"
