"""Errors, latency, rates and losses of sensors as configuration files write them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any

Numbers = float | tuple[float, ...]
KEYS = ("noise", "bias", "scale", "drift", "quantum", "range", "stuck", "delay_steps", "groups")
GROUP_KEYS = ("signals", "delay_steps", "jitter_steps", "rate_hz", "dropout", "burst")
ATTITUDE = "quat_w"  # how the names of attitudes end
LONGEST_DELAY = 50  # control steps: each is a column per signal and more code to compile (8 s of a core for 50)


@dataclass(frozen=True)
class Drift:
    """An error that wanders: with ``time_s`` about zero with standard deviation ``std`` (Gauss-Markov), stationary from
    the start; without, a random walk from zero that has ``std`` after one second."""

    std: Numbers
    time_s: float | None = None


@dataclass(frozen=True)
class Stuck:
    """``chance`` per sample to freeze, for ``steps`` samples on average; for the rest of the episode if left out."""

    chance: float
    steps: float | None = None


@dataclass(frozen=True)
class Group:
    """Signals that come in one message, in control steps.

    ``delay_steps``: least and greatest latency; each episode draws its own. ``jitter_steps``: each sample is late by 0
    to this many more; a sample never overtakes a later one. ``rate_hz``: of the sensor; samples are held in between,
    the phase is drawn per episode. ``dropout``: share of the samples that are lost, in runs of ``burst`` on average
    (independent of each other if left out).
    """

    signals: tuple[str, ...]
    delay_steps: tuple[int, int] = (0, 0)
    jitter_steps: int = 0
    rate_hz: float | None = None
    dropout: float = 0.0
    burst: float | None = None


@dataclass(frozen=True)
class SensorConfig:
    """Errors by signal, each in the signal's own unit (attitude, ``*_quat_w``: rad of a small rotation).

    Args:
        noise: standard deviation of white noise, per sample.
        bias: standard deviation of an error that is constant over an episode.
        scale: standard deviation of a relative error, constant over an episode; of each component.
        drift: errors that wander.
        quantum: readings are whole multiples of it.
        range: least and greatest reading.
        stuck: readings that freeze.
        delay_steps: the greatest latency of the signals that are in no group, in control steps; each episode draws its
            own from 0..delay_steps.
        groups: of signals with a latency, rate and losses of their own, by name.
    """

    noise: Mapping[str, Numbers] = field(default_factory=dict)
    bias: Mapping[str, Numbers] = field(default_factory=dict)
    delay_steps: int = 0
    scale: Mapping[str, Numbers] = field(default_factory=dict)
    drift: Mapping[str, Drift] = field(default_factory=dict)
    quantum: Mapping[str, float] = field(default_factory=dict)
    range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    stuck: Mapping[str, Stuck] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)

    @staticmethod
    def parse(raw: Mapping[str, Any] | None, known: tuple[str, ...]) -> SensorConfig:
        """From configuration; an unknown signal or key is an error that lists the legal ones.

        Signals may be named by patterns (``joint_*``); a later entry replaces an earlier one, ``null`` removes it. What
        is a mapping (``{std: 0.01}``, a group) may have ``optional: true``: no error where there is no such signal.
        """
        raw = dict(raw or {})
        if unknown := sorted(map(str, set(raw) - set(KEYS))):
            raise ValueError(f"sensors: unknown keys {unknown}; legal: {', '.join(KEYS)}")
        parsers = {"noise": _std, "bias": _std, "scale": _std, "drift": _drift, "quantum": _quantum, "range": _range,
                   "stuck": _stuck}
        found: dict[str, dict[str, Any]] = {}
        for key, parser in parsers.items():
            given = _by_signal(f"sensors.{key}", raw.get(key), known)
            found[key] = {name: parser(f"sensors.{key}.{name}", value) for name, value in given.items()}
            if key in ("scale", "quantum", "range") and (bad := [n for n in found[key] if n.endswith(ATTITUDE)]):
                raise ValueError(f"sensors.{key}: {', '.join(bad)} is an attitude; legal for it: noise, bias, drift, "
                                 f"stuck")
        delay = _whole("sensors.delay_steps", raw.get("delay_steps", 0))
        _check_delay("sensors.delay_steps", delay)
        return SensorConfig(delay_steps=delay, groups=_groups(raw.get("groups"), known), **found)


def _by_signal(where: str, raw: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if raw is not None and not isinstance(raw, Mapping):
        raise ValueError(f"{where} is a mapping from signals to values, got {raw!r}")
    out: dict[str, Any] = {}
    for pattern, value in dict(raw or {}).items():
        value, optional = _optional(where, value)
        out |= dict.fromkeys(_matching(where, pattern, known, optional), value)
    return {name: value for name, value in out.items() if value is not None}


def _optional(where: str, value: Any) -> tuple[Any, bool]:
    """``value`` without its key ``optional``, and whether that is true."""
    if not isinstance(value, Mapping) or "optional" not in value:
        return value, False
    if not isinstance(value["optional"], bool):
        raise ValueError(f"{where}: optional is true or false, got {value['optional']!r}")
    return {k: v for k, v in value.items() if k != "optional"}, value["optional"]


def _matching(where: str, pattern: Any, known: tuple[str, ...], optional: bool = False) -> list[str]:
    found = [name for name in known if fnmatchcase(name, str(pattern))]
    if not found and not optional:
        raise ValueError(f"{where}: unknown signal {pattern!r}; legal: {', '.join(known)}")
    return found


def _number(where: str, value: Any, what: str, low: float, high: float = float("inf")) -> float:
    """``value``, a number in [low, high]; ``what`` is the rule in the error."""
    wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value)
    if wrong or not low <= value <= high:
        raise ValueError(f"{where}: {what}, got {value!r}")
    return float(value)


def _std(where: str, value: Any) -> Numbers:
    rule = "a standard deviation is >= 0"
    if isinstance(value, Mapping):
        value = _keys(where, value, ("std",), ("std",))["std"]
    if isinstance(value, (list, tuple)):
        return tuple(_number(where, v, rule, 0.0) for v in value)
    return _number(where, value, rule, 0.0)


def _keys(where: str, raw: Any, legal: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(raw, Mapping) or set(raw) - set(legal) or any(raw.get(k) is None for k in needed):
        raise ValueError(f"{where} is a mapping with {', '.join(needed)}; legal keys: {', '.join(legal)}; got {raw!r}")
    return {key: value for key, value in raw.items() if value is not None}


def _drift(where: str, raw: Any) -> Drift:
    given = _keys(where, raw, ("std", "time_s"), ("std",))
    time_s = given.get("time_s")
    if time_s is not None:
        time_s = _number(f"{where}.time_s", time_s, "a time constant is greater than 0 s", 1e-9)
    return Drift(_std(f"{where}.std", given["std"]), time_s)


def _quantum(where: str, value: Any) -> float:
    return _number(where, value, "the step between readings is >= 0", 0.0)


def _range(where: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{where} is [least, greatest], got {value!r}")
    low = _number(where, value[0], "the least reading is a number", -float("inf"))
    return low, _number(where, value[1], f"the greatest reading is at least the least, {low:g}", low)


def _stuck(where: str, raw: Any) -> Stuck:
    given = _keys(where, raw, ("chance", "steps"), ("chance",)) if isinstance(raw, Mapping) else {"chance": raw}
    chance = _number(f"{where}.chance", given["chance"], "a probability is 0 to 1", 0.0, 1.0)
    steps = given.get("steps")
    return Stuck(chance, None if steps is None else _number(f"{where}.steps", steps, "at least 1 sample", 1.0))


def _whole(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{where} is a whole number of control steps, got {value!r}")
    if value < 0:
        raise ValueError(f"{where} is >= 0, got {value}")
    return value


def _check_delay(where: str, steps: int) -> None:
    """So old a sample is kept."""
    if steps > LONGEST_DELAY:
        raise ValueError(f"{where}: a sample is at most {LONGEST_DELAY} control steps old, got {steps}: each step of "
                         f"delay is kept for each signal and world. A sensor with few samples has rate_hz instead")


def _groups(raw: Any, known: tuple[str, ...]) -> dict[str, Group]:
    if raw is not None and not isinstance(raw, Mapping):
        raise ValueError(f"sensors.groups is a mapping from names to groups, got {raw!r}")
    out, owner = {}, dict[str, str]()
    for name, spec in dict(raw or {}).items():
        if spec is None:
            continue
        spec, optional = _optional(f"sensors.groups.{name}", spec)
        out[name] = group = _group(f"sensors.groups.{name}", spec, known, optional)
        for signal in group.signals:
            if owner.setdefault(signal, name) != name:
                raise ValueError(f"sensors.groups: {signal!r} is in {owner[signal]!r} and in {name!r}; a signal is in "
                                 f"one group")
    return out


def _group(where: str, raw: Any, known: tuple[str, ...], optional: bool) -> Group:
    given = _keys(where, raw, GROUP_KEYS, ("signals",))
    patterns = given["signals"]
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(patterns, (list, tuple)) or not patterns:
        raise ValueError(f"{where}.signals is a list of signals, got {patterns!r}")
    signals = dict.fromkeys(s for p in patterns for s in _matching(f"{where}.signals", p, known, optional))
    delay = given.get("delay_steps", 0)
    low, high = delay if isinstance(delay, (list, tuple)) and len(delay) == 2 else (0, delay)
    low, high = (_whole(f"{where}.delay_steps", x) for x in (low, high))
    if low > high:
        raise ValueError(f"{where}.delay_steps is [least, greatest], got {delay!r}")
    rate, burst = given.get("rate_hz"), given.get("burst")
    if rate is not None:
        rate = _number(f"{where}.rate_hz", rate, "a rate is greater than 0 Hz", 1e-9)
    lost = _number(f"{where}.dropout", given.get("dropout", 0.0), "a share of samples is 0 to 0.999", 0.0, 0.999)
    if burst is not None:
        burst = _number(f"{where}.burst", burst, "runs of lost samples have at least 1", 1.0)
        if lost > burst * (1 - lost):
            raise ValueError(f"{where}: {lost:g} of all samples cannot be lost in runs of {burst:g}; longer runs, or "
                             f"at most {burst / (1 + burst):g}")
    jitter = _whole(f"{where}.jitter_steps", given.get("jitter_steps", 0))
    _check_delay(f"{where}: delay_steps and jitter_steps", high + jitter)
    return Group(tuple(signals), (low, high), jitter, rate, lost, burst)
