"""Bags read and formulas judged a second time, by the documented rules and without a line of the project or of rosbags:
MCAP, SQLite, CDR and Signal Temporal Logic in plain Python, as slow as it is plain.

Sources: mcap.dev/spec; the schema of rosbag2_storage_sqlite3; the CDR encoding of OMG DDS-RTPS, little endian;
docs/reference/traces.md for the rules.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from temporeal_benchmarks.own_robot.bag_cases import DT, MAPS, Formula, reads

REFUSED, SATISFIED, VIOLATED, UNDECIDED = "refused", "satisfied", "violated", "undecided"
Message = tuple[str, int, bytes]
"""Topic, receipt [ns], CDR bytes."""
Series = dict[int, float | None]
"""Of one signal: message of its topic -> value; None: it is missing."""


class Refused(Exception):
    """The rules say that there is no verdict; the first argument is why."""


# ---------------------------------------------------------------- files


def messages(path: Path) -> list[Message]:
    """The messages of a bag in the order in which they were written."""
    if path.is_dir():
        path = next(file for file in path.iterdir() if file.suffix in (".mcap", ".db3"))
    return of_mcap(path.read_bytes()) if path.suffix == ".mcap" else of_sqlite(path)


def of_mcap(content: bytes) -> list[Message]:
    """Channels and messages, chunks unpacked; a file without its footer is truncated."""
    magic = b"\x89MCAP0\r\n"
    if len(content) < 16 or content[-8:] != magic:
        raise Refused("truncated")
    topics: dict[int, str] = {}
    out: list[Message] = []

    def records(data: bytes, at: int) -> None:
        while at + 9 <= len(data):
            op, size = data[at], struct.unpack_from("<Q", data, at + 1)[0]
            body, at = data[at + 9 : at + 9 + size], at + 9 + size
            if op == 0x04:  # channel: id, schema, topic
                channel, _, count = struct.unpack_from("<HHI", body)
                topics[channel] = body[8 : 8 + count].decode()
            elif op == 0x05:  # message: channel, sequence, log time, publish time
                channel, _, logged, _ = struct.unpack_from("<HIQQ", body)
                out.append((topics[channel], logged, body[22:]))
            elif op == 0x06:  # chunk
                records(unpacked(body), 0)
            elif op == 0x0F:  # end of data: what follows repeats it
                return

    records(content, 8)
    return out


def unpacked(body: bytes) -> bytes:
    """The records of a chunk."""
    count = struct.unpack_from("<I", body, 28)[0]
    kind, packed = body[32 : 32 + count], body[40 + count :]
    if kind == b"zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=struct.unpack_from("<Q", body, 16)[0])
    return packed


def of_sqlite(path: Path) -> list[Message]:
    """The table of messages by its key; a file shorter than its header says is truncated."""
    head = path.read_bytes()[:100]
    if len(head) < 100 or struct.unpack_from(">H", head, 16)[0] * struct.unpack_from(">I", head, 28)[0] > (
            path.stat().st_size):
        raise Refused("truncated")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
        rows = base.execute("SELECT name, timestamp, data FROM messages JOIN topics ON topics.id = topic_id "
                            "ORDER BY messages.id")
        return [(name, at, data) for name, at, data in rows]


# ---------------------------------------------------------------- messages


class Cdr:
    """Reads little-endian CDR from the front. Alignment counts from behind the four bytes of the encapsulation."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data[4:], 0

    def number(self, kind: str, size: int) -> Any:
        self.at += -self.at % size
        self.at += size
        return struct.unpack_from(f"<{kind}", self.data, self.at - size)[0]

    def text(self) -> str:
        count = self.number("I", 4)
        self.at += count
        return self.data[self.at - count : self.at - 1].decode()

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.number("I", 4))]

    def doubles(self, count: int | None = None) -> list[float]:
        return [self.number("d", 8) for _ in range(self.number("I", 4) if count is None else count)]

    def stamp(self) -> int:
        seconds, nanoseconds = self.number("i", 4), self.number("I", 4)
        self.text()  # the header's frame
        return int(seconds) * 10**9 + int(nanoseconds)


class NoSample(Exception):
    """The message is not about the joint."""


def decoded(topic: str, data: bytes) -> tuple[int | None, Callable[[str], float | None]]:
    """The stamp of a message (None: its type has none), and its values by the signal's field."""
    cdr = Cdr(data)
    if topic == "/goal":
        value = cdr.doubles(1)[0]
        return None, lambda field: value
    stamp = cdr.stamp()
    if topic == "/odom":
        cdr.text()
        numbers = cdr.doubles(7 + 36 + 6)
        return stamp, lambda field: numbers[2] if field.startswith("pose") else numbers[43]
    names, position, _, effort = cdr.texts(), cdr.doubles(), cdr.doubles(), cdr.doubles()

    def of_joint(field: str) -> float | None:
        joint = field.split("[")[1][:-1]
        row = position if field.startswith("position") else effort
        if joint not in names:
            raise NoSample(joint)
        return row[names.index(joint)] if names.count(joint) == 1 and len(row) == len(names) else None

    return stamp, of_joint


# ---------------------------------------------------------------- samples


class Samples:
    """The samples of one signal: times [s] and values (None: missing), and the clock of its topic."""

    def __init__(self, name: str, all_messages: list[Message]) -> None:
        self.topic, field = MAPS[name].split(":")
        written = [(at, data) for topic, at, data in all_messages if topic == self.topic]
        received = sorted(written, key=lambda row: row[0])
        found = [decoded(self.topic, data) for _, data in received]
        stamps = [stamp or 0 for stamp, _ in found]
        self.stamped = any(stamps)
        if not self.stamped and any(b[0] < a[0] for a, b in zip(written, written[1:])):
            raise Refused("the recorder's clock was set back")
        clock = stamps if self.stamped else [at for at, _ in received]
        series: Series = {}
        for k, (_, value) in enumerate(found):
            try:
                number = value(field)
            except NoSample:
                continue
            series[k] = None if number is None or math.isnan(number) else number
        # NaN is a number of a message, and an empty field is none: a signal needs one message that has it
        if not any(self.has(value, field) for k, (_, value) in enumerate(found) if k in series):
            raise Refused(f"no message has {name}")
        self.rows, self.ns = tuple(series), [clock[k] for k in series]
        self.values = list(series.values())
        self.lag = min(at - stamp for (at, _), stamp in zip(received, stamps)) if self.stamped else 0

    @staticmethod
    def has(value: Callable[[str], float | None], field: str) -> bool:
        """Whether a message has a number, NaN included."""
        return value(field) is not None

    @property
    def far(self) -> bool:
        """Whether its clock is not the recorder's at all."""
        return abs(self.lag) > 10**15

    def in_order(self, drop: bool) -> None:
        """Leave out what repeats a time or goes back, or refuse it."""
        newest, kept = -math.inf, []
        for k, ns in enumerate(self.ns):
            if ns > newest:
                newest = ns
                kept.append(k)
            elif not drop or newest - ns > 1e9:
                raise Refused("times do not increase")
        if any(max(self.ns[: k + 1]) - ns > 1e9 for k, ns in enumerate(self.ns)):
            raise Refused("a clock was set back")
        self.ns, self.values = [self.ns[k] for k in kept], [self.values[k] for k in kept]


def on_grid(signals: dict[str, Samples], words: list[str]) -> dict[str, list[float | None]]:
    """The signals on one grid of :data:`DT`."""
    unknown, drop, hold = "unknown" in words, "drop" in words, "hold" in words
    if len({(one.topic, one.rows) for one in signals.values()}) > 1 and not hold:
        raise Refused("several clocks")
    if hold:
        relate(list(signals.values()))
    for one in signals.values():
        one.in_order(drop)
    return held(signals, words, unknown) if hold else own(signals, unknown)


def relate(signals: list[Samples]) -> None:
    """Refuse clocks that nothing relates."""
    many = [one for one in signals if len(one.ns) > 1]
    if len({one.far for one in signals}) > 1:
        raise Refused("clocks differ")
    if many and not many[0].far and max(one.lag for one in many) - min(one.lag for one in many) > 1e9:
        raise Refused("clocks differ")


def own(signals: dict[str, Samples], unknown: bool) -> dict[str, list[float | None]]:
    """Samples that lie on the grid already."""
    ns = next(iter(signals.values())).ns
    if len(ns) < 2 and unknown:
        return {name: list(one.values) for name, one in signals.items()}
    places = [math.floor((t - ns[0]) * 1e-9 / DT + 0.5) if unknown else k for k, t in enumerate(ns)]
    off = [(t - ns[0]) * 1e-9 - k * DT for t, k in zip(ns, places)]
    middle = statistics.median(off)
    middle = middle if abs(middle) <= 0.05 * DT else 0.0
    if any(abs(x - middle) > 0.05 * DT for x in off) or any(b <= a for a, b in zip(places, places[1:])):
        raise Refused("off the grid")
    if places[-1] > 20_000_000:
        raise Refused("too long")
    out: dict[str, list[float | None]] = {}
    for name, one in signals.items():
        if not unknown and None in one.values:
            raise Refused("a value is missing")
        out[name] = [None] * (places[-1] + 1)
        for k, number in zip(places, one.values):
            out[name][k] = number
    return out


def held(signals: dict[str, Samples], words: list[str], unknown: bool) -> dict[str, list[float | None]]:
    """Samples held on a grid from where all are to the last one of any, each as long as it holds."""
    first = max(one.ns[0] for one in signals.values())
    ends = [one.ns[-1] for one in signals.values()]
    if min(ends) < first:
        raise Refused("no time in common")
    count = math.floor((max(ends) - first) * 1e-9 / DT + 1e-6) + 1
    if count > 20_000_000:
        raise Refused("too long")
    out: dict[str, list[float | None]] = {}
    for name, one in signals.items():
        steps = [b - a for a, b in zip(one.ns, one.ns[1:])]
        told = [float(word.split("=")[1]) for word in words if word.startswith(f"{one.topic}=")]
        limit = told[0] if told else 3 * statistics.median(steps) * 1e-9 if steps else 0.0
        row, k = [], 0
        for n in range(count):
            t = (first - one.ns[0]) * 1e-9 + n * DT
            while k + 1 < len(one.ns) and (one.ns[k + 1] - one.ns[0]) * 1e-9 <= t + 1e-6 * DT:
                k += 1
            number = one.values[k]
            gone = t - (one.ns[k] - one.ns[0]) * 1e-9 > limit + 1e-6 * DT
            if (gone or number is None) and not unknown:
                raise Refused("a value is missing")
            row.append(None if gone else number)
        out[name] = row
        if not unknown and None in one.values[used(one, first) : k + 1]:
            raise Refused("a value is missing")
    return out


def used(one: Samples, first: int) -> int:
    """The sample that is in force at the first time of the grid."""
    return max(k for k, ns in enumerate(one.ns) if (ns - first) * 1e-9 <= 1e-6 * DT)


# ---------------------------------------------------------------- formulas


def truth(f: Formula, signals: dict[str, list[float | None]], at: int, count: int) -> bool | None:
    """Whether ``f`` holds at a sample, None: unknown (Kleene); windows are cut to the ``count`` samples that exist."""
    match f:
        case ("pred", signal, op, number):
            return compared(operand(signal, signals, at), op, number)
        case ("not", a):
            inner = truth(a, signals, at, count)
            return None if inner is None else not inner
        case ("and" | "or" as op, a, b):
            parts = [truth(a, signals, at, count), truth(b, signals, at, count)]
            return some(parts) if op == "or" else every(parts)
        case ("G" | "F" as op, low, high, a):
            parts = [truth(a, signals, k, count) for k in range(at + low, min(at + high, count - 1) + 1)]
            return some(parts) if op == "F" else every(parts)
        case ("U", low, high, a, b):
            keep: list[bool | None] = []
            ways = []
            for k in range(at, min(at + high, count - 1) + 1):
                if k >= at + low:
                    ways.append(every([truth(b, signals, k, count), *keep]))
                keep.append(truth(a, signals, k, count))
            return some(ways)
    raise TypeError(f)


def operand(signal: Any, signals: dict[str, list[float | None]], at: int) -> float | None:
    """A signal's value, or a quotient's; a division by zero has none."""
    if isinstance(signal, str):
        return signals[signal][at]
    above, below = signals[signal[0]][at], signals[signal[1]][at]
    return None if above is None or not below else above / below


def compared(value: float | None, op: str, number: float) -> bool | None:
    """A comparison; None: unknown."""
    if value is None:
        return None
    return {">": value > number, "<": value < number, ">=": value >= number, "<=": value <= number}[op]


def every(parts: list[bool | None]) -> bool | None:
    """The conjunction."""
    return False if False in parts else None if None in parts else True


def some(parts: list[bool | None]) -> bool | None:
    """The disjunction."""
    return True if True in parts else None if None in parts else False


def verdict(path: Path, formula: Formula, words: list[str]) -> tuple[str, str]:
    """The verdict of a formula on a bag, and why there is none."""
    try:
        found = messages(path)
        signals = on_grid({name: Samples(name, found) for name in reads(formula)}, words)
    except Refused as error:
        return REFUSED, str(error)
    count = len(next(iter(signals.values())))
    return {True: SATISFIED, False: VIOLATED, None: UNDECIDED}[truth(formula, signals, 0, count)], ""
