"""Faults between a robot's true state and its published messages: pure functions, selected by name.

A simulated robot reads a fault from its topic ``sim/fault`` (std_msgs/String, JSON; ``{}`` ends it)::

    {"name": "delayed", "by_s": 0.3}
    {"name": "nan", "signal": "joint_pos", "index": 2, "for_s": 0.5}
    {"name": "missing", "joint": "fr3_joint4", "topic": "joint_states"}

Besides its own options, every fault has ``topic`` (a name of ``ros.yaml``; "": all), ``for_s`` (duration; null: until
the next fault) and ``seed``. Three kinds change the sample that is published and its stamp (``SAMPLES``), the values of
signals (``SIGNALS``), or the message (``MESSAGES``). ``blocked`` alone acts on the machine.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from temporeal.robots.signals import is_number
from temporeal_bridge.transports import messages

Options = Mapping[str, Any]
Encode = Callable[[Mapping[str, np.ndarray]], Mapping[str, tuple[str, Any]]]
"""``encode(signals)``: type and message by topic."""


class FaultError(ValueError):
    """An unknown fault, or one with wrong options; the message says what is legal."""


@dataclass(frozen=True)
class Sample:
    """A measurement: signals by name and the stamp [ns]."""

    signals: Mapping[str, np.ndarray]
    stamp: int


Past = Sequence[Sample]
"""Samples since the fault began: the first, then the last ones that the fault needs, the newest last."""


# ---------------------------------------------------------------- which sample, with which stamp


def stopped(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """No message."""
    return None


def delayed(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """The sample of ``by_s`` ago with its own stamp; none before there is one so old."""
    count = bisect_right(past, past[-1].stamp - nanoseconds(options["by_s"]), key=lambda sample: sample.stamp)
    return past[count - 1] if count else None


def lost(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """A ``share`` of the messages is lost."""
    return None if rng.random() < options["share"] else past[-1]


def frozen(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """The same values for ever, with fresh stamps."""
    return Sample(past[0].signals, past[-1].stamp)


def repeated(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """The same message for ever, with the same stamp."""
    return past[0]


def stamped(past: Past, options: Options, rng: np.random.Generator) -> Sample | None:
    """Stamps that are off by ``by_s``: in the future, or, if negative, of a clock that was set back."""
    return Sample(past[-1].signals, past[-1].stamp + nanoseconds(options["by_s"]))


# ---------------------------------------------------------------- the numbers of a signal


def jump(signals: Mapping[str, np.ndarray], options: Options, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Multiply a component of a signal (``index``; null: all) by ``scale`` and add ``by``: a jump, or another unit
    (``"scale": 57.3, "by": 0``)."""
    return changed(signals, options, lambda value: options["scale"] * value + options["by"])


def nan(signals: Mapping[str, np.ndarray], options: Options, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Set a component of a signal to NaN."""
    return changed(signals, options, lambda value: np.full_like(value, np.nan))


def changed(
    signals: Mapping[str, np.ndarray], options: Options, change: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """The signals with the chosen component of one of them changed."""
    value = np.array(signals[options["signal"]], dtype=float)
    where = ... if options["index"] is None else options["index"]
    value[where] = change(value[where])
    return {**signals, options["signal"]: value}


# ---------------------------------------------------------------- the message

JOINT_FIELDS = ("position", "velocity", "effort")  # of sensor_msgs/JointState; one may be empty
ARRAYS = ("position", "values", "data")


def missing(message: Any, options: Options, rng: np.random.Generator) -> Any:
    """Leave ``joint`` ("": the first) out of a JointState."""
    names = list(message.name)
    joint = options["joint"] or names[0]
    if joint not in names:
        raise FaultError(f"fault 'missing': the message has no joint {joint!r}; it has: {', '.join(names)}")
    return picked(message, [i for i, name in enumerate(names) if name != joint])


def permuted(message: Any, options: Options, rng: np.random.Generator) -> Any:
    """Permute the joints of a JointState, names and values alike, anew in each message."""
    return picked(message, rng.permutation(len(message.name)).tolist())


def extra(message: Any, options: Options, rng: np.random.Generator) -> Any:
    """Put a joint that the robot does not have first in a JointState."""
    more = {name: np.concatenate([[0.0], getattr(message, name)])
            for name in JOINT_FIELDS if len(getattr(message, name)) == len(message.name)}
    return replace(message, name=["extra_joint", *message.name], **more)


def wrong_length(message: Any, options: Options, rng: np.random.Generator) -> Any:
    """Leave out the last value of an array: of the positions of a JointState, or of ``values`` or ``data``."""
    name = next(name for name in ARRAYS if hasattr(message, name))
    return replace(message, **{name: np.asarray(getattr(message, name))[:-1]})


def picked(message: Any, order: Sequence[int]) -> Any:
    """The JointState with the joints ``order``."""
    parts = {name: np.asarray(getattr(message, name))[list(order)]
             for name in JOINT_FIELDS if len(getattr(message, name)) == len(message.name)}
    return replace(message, name=[message.name[i] for i in order], **parts)


def has_joints(message: Any) -> bool:
    """Whether a message has names of joints."""
    return hasattr(message, "name") and hasattr(message, "position")


def has_array(message: Any) -> bool:
    """Whether a message has an array that :func:`wrong_length` shortens."""
    return any(hasattr(message, name) for name in ARRAYS)


# ---------------------------------------------------------------- by name

REQUIRED = object()
COMMON: Options = {"topic": "", "for_s": None, "seed": 0}
SAMPLES: dict[str, tuple[Callable[..., Sample | None], Options]] = {
    "stopped": (stopped, {}), "delayed": (delayed, {"by_s": REQUIRED}), "lost": (lost, {"share": REQUIRED}),
    "frozen": (frozen, {}), "repeated": (repeated, {}), "stamped": (stamped, {"by_s": REQUIRED})}
SIGNALS: dict[str, tuple[Callable[..., dict[str, np.ndarray]], Options]] = {
    "jump": (jump, {"signal": REQUIRED, "index": None, "by": 0.0, "scale": 1.0}),
    "nan": (nan, {"signal": REQUIRED, "index": None})}
MESSAGES: dict[str, tuple[Callable[..., Any], Options, Callable[[Any], bool]]] = {
    "missing": (missing, {"joint": ""}, has_joints), "permuted": (permuted, {}, has_joints),
    "extra": (extra, {}, has_joints), "wrong_length": (wrong_length, {}, has_array)}
MACHINE: dict[str, Options] = {"blocked": {"joints": REQUIRED}}
OWN: dict[str, Options] = {
    **{name: row[1] for name, row in SAMPLES.items()}, **{name: row[1] for name, row in SIGNALS.items()},
    **{name: row[1] for name, row in MESSAGES.items()}, **MACHINE}
"""The options of each fault besides the common ones, with their defaults."""


@dataclass(eq=False)
class Fault:
    """An active fault. ``begun`` and ``until``: s on the caller's clock."""

    name: str
    options: Options
    begun: float
    until: float
    rng: np.random.Generator
    past: list[Sample] = field(default_factory=list)

    def remember(self, sample: Sample) -> None:
        """Keep the newest sample, the first one, and those that ``delayed`` still needs."""
        self.past.append(sample)
        oldest = sample.stamp - nanoseconds(self.options["by_s"] if self.name == "delayed" else 0.0)
        while len(self.past) > 2 and self.past[2].stamp <= oldest:
            del self.past[1]

    def on(self, topic: str) -> bool:
        """Whether it acts on ``topic``."""
        return self.options["topic"] in ("", topic)

    def sample(self, topic: str) -> Sample | None:
        """The sample to publish on ``topic``; None: none."""
        newest = self.past[-1]
        if not self.on(topic):
            return newest
        if self.name in SAMPLES:
            return SAMPLES[self.name][0](self.past, self.options, self.rng)
        if self.name in SIGNALS:
            return replace(newest, signals=SIGNALS[self.name][0](newest.signals, self.options, self.rng))
        return newest

    def message(self, topic: str, message: Any) -> Any:
        """The message to publish on ``topic`` instead of ``message``."""
        if self.name not in MESSAGES or not self.on(topic):
            return message
        change, _, fits = MESSAGES[self.name]
        return change(message, self.options, self.rng) if fits(message) else message


def parse(text: str, at: float, signals: Mapping[str, np.ndarray], encode: Encode) -> Fault | None:
    """The fault that the JSON ``text`` describes, active from ``at`` [s]; None for ``{}``.

    Args:
        signals: of the robot now. ``encode``: gives the messages that it publishes of them.
    """
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise FaultError(f'a fault is JSON such as {{"name": "stopped"}}, got {text!r}: {error}') from error
    if not isinstance(given, dict):
        raise FaultError(f'a fault is a JSON object such as {{"name": "stopped"}}, got {text!r}')
    return make(given, at, signals, encode) if given else None


def make(given: Options, at: float, signals: Mapping[str, np.ndarray], encode: Encode) -> Fault:
    """The fault of the options ``given``, which are checked; other arguments as for :func:`parse`."""
    name = given.get("name")
    if name not in OWN:
        raise FaultError(f"no fault {name!r}; known: {', '.join(OWN)}")
    legal = {**OWN[name], **COMMON}
    if unknown := sorted(set(given) - {"name", *legal}):
        raise FaultError(f"fault {name!r}: unknown options {unknown}; legal: {', '.join(legal)}")
    options = {key: given.get(key, default) for key, default in legal.items()}
    if needed := [key for key, value in options.items() if value is REQUIRED]:
        raise FaultError(f"fault {name!r} needs the options {needed}")
    for key, (wanted, good) in RULES.items():
        if key in options and not good(options[key]):
            raise FaultError(f"fault {name!r}: {key} is {wanted}, got {options[key]!r}")
    check_there(name, options, signals, encode)
    length = inf if options["for_s"] is None else float(options["for_s"])
    return Fault(name, options, at, at + length, np.random.default_rng(options["seed"]))


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {  # option: the rule in words, and its check
    "by_s": ("a finite number of seconds", is_number),
    "by": ("a finite number", is_number),
    "scale": ("a finite number", is_number),
    "share": ("a share from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1),
    "for_s": ("a number of seconds above 0, or null", lambda v: v is None or (is_number(v) and v > 0)),
    "seed": ("a whole number, 0 or more", lambda v: is_number(v) and v >= 0 and v == int(v)),
    "topic": ("the name of a topic, or empty for all", lambda v: isinstance(v, str)),
    "joint": ("the name of a joint, or empty for the first", lambda v: isinstance(v, str)),
    "joints": ("a list of names", lambda v: isinstance(v, list) and all(isinstance(name, str) for name in v))}


def check_there(name: str, options: Options, signals: Mapping[str, np.ndarray], encode: Encode) -> None:
    """Raise a FaultError unless the named topic and signal exist and the fault changes a published message."""
    sent = encode(signals)
    if options["topic"] and options["topic"] not in sent:
        raise FaultError(f"fault {name!r}: no topic {options['topic']!r}; there are: {', '.join(sent)}")
    if name == "delayed" and options["by_s"] < 0:
        raise FaultError(f"fault 'delayed': by_s is 0 or more, got {options['by_s']!r}")
    mine = {topic: pair for topic, pair in sent.items() if options["topic"] in ("", topic)}
    where = ", ".join(mine)
    if name in SIGNALS:
        check_component(name, options["signal"], options["index"], signals)
        after = encode(SIGNALS[name][0](signals, {**options, "by": 1.0}, np.random.default_rng(0)))
        if all(messages.encode(*mine[topic]) == messages.encode(*after[topic]) for topic in mine):
            raise FaultError(f"fault {name!r}: {options['signal']} is not in the messages on {where}")
    if name in MESSAGES:
        change, _, fits = MESSAGES[name]
        fitting = [message for _, message in mine.values() if fits(message)]
        if not fitting:
            raise FaultError(f"fault {name!r} fits no message on {where}")
        for message in fitting:
            change(message, options, np.random.default_rng(0))


def check_component(name: str, signal: Any, index: Any, signals: Mapping[str, np.ndarray]) -> None:
    """Raise a FaultError unless the signal exists and has that component."""
    if signal not in signals:
        raise FaultError(f"fault {name!r}: no signal {signal!r}; there are: {', '.join(signals)}")
    shape = np.shape(signals[signal])
    if index is not None and not (isinstance(index, int) and len(shape) == 1 and 0 <= index < shape[0]):
        raise FaultError(
            f"fault {name!r}: index is null or a component of {signal}, whose shape is {shape}; got {index!r}")


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(1e9 * seconds)
