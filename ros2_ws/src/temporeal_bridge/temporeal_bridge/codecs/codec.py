"""What a codec is: pure functions between messages and signals or commands, driven by the rows of ``ros.yaml``.

Every codec goes both ways: the controller decodes states and encodes commands, the simulated robot does the opposite.
Numbers are converted to the signals' units and frames (SI, ENU, FLU, wxyz) and back. A codec neither filters nor
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, TypeVar

import numpy as np

from temporeal.robots.motion.smooth_trajectory import SmoothTrajectory
from temporeal.robots.signals import SignalSpec, all_finite, is_number
from temporeal_bridge.transports import messages

Signals = dict[str, np.ndarray]
Options = Mapping[str, Any]
Frames = tuple[str, str]
"""Names of the world frame and the body frame."""


class CodecError(ValueError):
    """A message or an option that the codec cannot accept; the message says what is legal."""


def header_stamp(message: Any) -> int:
    """Measurement time [ns since the epoch] of a message with a std_msgs/Header."""
    return messages.nanoseconds(message.header.stamp)


def unstamped(message: Any) -> int:
    """0 (unknown), for message types without a time stamp."""
    return 0


@dataclass(frozen=True)
class StateCodec:
    """A message type that carries signals.

    Args:
        type: the message type.
        signals: ``signals(options)``: names of the signals it carries.
        decode: ``decode(message, options)`` -> signals.
        encode: ``encode(signals, stamp_ns, frames, options)`` -> message.
        stamp: ``stamp(message)`` -> measurement time, ns since the epoch; a CodecError where it is unknown.
        picture: for cameras: ``picture(spec, options)`` raises a CodecError where that signal cannot be the picture.
        parts: for states that may come in several messages: ``parts(options, rate_hz)`` puts them together.
    """

    type: str | None
    signals: Callable[[Options], tuple[str, ...]]
    decode: Callable[[Any, Options], Signals]
    encode: Callable[[Mapping[str, np.ndarray], int, Frames, Options], Any]
    stamp: Callable[[Any], int] = header_stamp
    picture: Callable[[SignalSpec, Options], None] | None = None
    parts: Callable[[Options, float], Parts] | None = None


class Parts(Protocol):
    """Puts the messages of one topic together."""

    def take(self, message: Any, at: float) -> Any | None:
        """The message that is complete with ``message``, which arrived ``at`` [s]; None: more are needed."""


class Encode(Protocol):
    """Command -> message. ``stamp_ns``: sending time, ns since the epoch, for message types that carry one."""

    def __call__(self, command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any: ...


@dataclass(frozen=True)
class CommandCodec:
    """A message type that carries one command: ``encode(command, options, stamp_ns)``, ``decode(message, options)``.

    ``encode_smooth_trajectory(trajectory, options)`` exists if the message can also carry the way to rest after the
    command. A *companion* is published beside a command and carries none of it (a heartbeat): it has no ``decode``.
    """

    type: str
    encode: Encode
    decode: Callable[[Any, Options], np.ndarray] | None
    encode_smooth_trajectory: Callable[[SmoothTrajectory, Options], Any] | None = None


def check_type(codec: StateCodec | CommandCodec, name: str, type: str) -> None:
    """A codec reads one message type."""
    if codec.type is not None and codec.type != type:
        raise CodecError(f"codec {name!r} is for {codec.type}, not for {type}")


# Options


def choice(options: Options, key: str, legal: tuple[str, ...]) -> str:
    """An option that is one of the ``legal`` words."""
    if options.get(key) not in legal:
        raise CodecError(f"option {key} is {options.get(key)!r}; legal: {', '.join(legal)}")
    return str(options[key])


def number(options: Options, key: str, low: float, high: float, or_low: bool = False) -> float:
    """An option that is a number in (low, high], or in [low, high] with ``or_low``."""
    value = options[key]
    if not is_number(value) or not (low < value <= high or (or_low and value == low)):
        raise CodecError(f"option {key} is {value!r}; a number {'from' if or_low else 'above'} {low:g} and up to "
                         f"{high:g} is needed")
    return float(value)


WANTED = "wanted"
"""Option of the reader of a topic, in no file: the signals that somebody reads. Left out: all."""


def is_wanted(options: Options, *signals: str) -> bool:
    """Whether any of ``signals`` is read: what is wrong with the others refuses no message."""
    wanted = options.get(WANTED)
    return wanted is None or not wanted.isdisjoint(signals)


def one_signal(options: Options) -> tuple[str, ...]:
    """The name under option ``signal``."""
    return (options["signal"],)


T = TypeVar("T")


def per_options(parse: Callable[[Options], T]) -> Callable[[Options], T]:
    """``parse`` with its results cached by the identity of the options: they are read for every message and never
    change. Each entry keeps its options alive, so that no other object gets their identity."""
    cache: dict[int, tuple[Options, T]] = {}

    @wraps(parse)
    def cached(options: Options) -> T:
        found = cache.get(id(options))
        if found is None or found[0] is not options:
            found = cache[id(options)] = options, parse(options)
        return found[1]

    return cached


def finite(value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """``value`` as float64 of ``shape``, without NaN or infinity."""
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape:
        raise CodecError(f"{what} has shape {array.shape}, {shape} is needed")
    if not all_finite(array):
        raise CodecError(f"{what} is not finite: {array.tolist()}")
    return array
