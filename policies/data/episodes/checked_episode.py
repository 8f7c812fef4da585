"""An episode against its interface: what is written to disk went through here. The error names episode and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.robots.signals import SignalSpec

ROUNDING = 1e-5
"""Of the span of an action's limits: what float32 may lie outside."""


@dataclass(frozen=True)
class Where:
    """What messages call an episode, or one sample of it.

    Args:
        sample: its number, where only this one is looked at.
    """

    episode: str
    sample: int | None = None

    def __str__(self) -> str:
        return self.episode if self.sample is None else self.at(0)

    def at(self, row: int) -> str:
        """The sample in ``row`` of what is looked at."""
        return f"{self.episode}, index {(self.sample or 0) + row}"


def at(where: str | Where, row: int) -> str:
    """A row of ``where``, in words."""
    return (where if isinstance(where, Where) else Where(where)).at(row)


def columns(episode: Episode, interface: Interface, where: str | Where) -> dict[str, np.ndarray]:
    """The columns of an episode [S, *shape] besides LeRobot's indices, pictures included, in the declared types."""
    signals = interface.signals
    if said := unfit(episode.signals, signals):
        raise DataError(f"{where}: {said}")
    samples, steps = episode.samples, len(episode.action)
    if not samples or steps not in (samples, samples - 1):
        raise DataError(f"{where} has {samples} samples and {steps} actions; as many actions as samples, or one "
                        "fewer, are needed, one sample at least")
    out = {layout.key_of(spec): fitting(episode.signals[name], spec, samples, where)
           for name, spec in signals.items()}
    specs = layout.columns_of(interface)
    action = fitting(episode.action, specs[layout.ACTION], steps, where)
    within(action, interface.action, where)
    out[layout.ACTION] = lengthened(action, samples)
    if interface.task_action:
        out[layout.POLICY_ACTION] = policy_action(episode.policy_action, specs[layout.POLICY_ACTION], samples, steps,
                                                  where)
    reward = np.full(samples, np.nan, np.float32)
    if episode.reward is not None:
        reward[:] = 0.0  # of the final state, which has no step
        reward[:steps] = fitting(episode.reward, specs[layout.REWARD], steps, where)
    out[layout.REWARD] = reward
    out[layout.DONE] = np.arange(samples) == samples - 1
    out[layout.HAS_ACTION] = np.arange(samples) < steps
    return out


def unfit(given: Mapping[str, Any], wanted: Mapping[str, SignalSpec]) -> str:
    """What is wrong with an episode's signals; "": nothing."""
    if missing := [name for name in wanted if name not in given]:
        return f"signal {missing[0]!r} is missing; it has {', '.join(given) or 'none'}"
    if more := [name for name in given if name not in wanted]:
        return f"signal {more[0]!r} is not in the interface; it has {', '.join(wanted)}"
    return ""


def fitting(values: Any, spec: SignalSpec, rows: int, where: str | Where) -> np.ndarray:
    """``values`` as [rows, *shape] of the declared type, finite."""
    array = np.asarray(values)
    if array.shape != (rows, *spec.shape):
        raise DataError(f"{where}: {spec.name} has shape {array.shape}; {(rows, *spec.shape)} is needed")
    if array.dtype == np.dtype(spec.dtype):
        out = array
    elif np.can_cast(array.dtype, spec.dtype, "same_kind"):
        with np.errstate(over="ignore"):
            out = array.astype(spec.dtype)
        if out.dtype.kind in "iu" and not np.array_equal(out, array):
            raise DataError(f"{where}: {spec.name} has values that {spec.dtype} does not hold")
    else:
        raise DataError(f"{where}: {spec.name} has type {array.dtype}; {spec.dtype} is needed")
    if out.dtype.kind == "f" and not np.isfinite(out).all():
        row, value = first(~np.isfinite(out), out)
        raise DataError(f"{at(where, row)}: {spec.name} is {value}; finite numbers are needed")
    return out


def first(bad: np.ndarray, values: np.ndarray) -> tuple[int, Any]:
    """Row and value of the first one that is bad."""
    place = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return int(place[0]), values[place]


def within(action: np.ndarray, spec: ActionSpec, where: str | Where) -> None:
    """Refuse what lies outside the action's limits."""
    low, high = with_slack(spec)
    bad = (action < low) | (action > high)
    if bad.any():
        row, value = first(bad, action)
        column = int(np.argmax(bad[row]))
        name = spec.components[column] if spec.components else f"component {column}"
        raise DataError(f"{at(where, row)}: action {spec.name}, {name}, is {value:g}; its limits are "
                        f"{spec.low[column]:g} to {spec.high[column]:g} {spec.unit}")


@lru_cache(maxsize=8)
def with_slack(spec: ActionSpec) -> tuple[np.ndarray, np.ndarray]:
    """The limits [U] of an action, as far as float32 may lie outside."""
    low, high = np.asarray(spec.low), np.asarray(spec.high)
    with np.errstate(invalid="ignore"):
        slack = np.nan_to_num(ROUNDING * (high - low), nan=0.0, posinf=0.0)
    return low - slack, high + slack


def policy_action(
    given: np.ndarray | None, spec: SignalSpec, samples: int, steps: int, where: str | Where
) -> np.ndarray:
    """The column ``policy_action``; NaN where the episode has none."""
    if given is None:
        return np.full((samples, *spec.shape), np.nan, np.float32)
    values = fitting(given, spec, steps, where)
    if (bad := np.abs(values) > 1 + ROUNDING).any():
        row, value = first(bad, values)
        raise DataError(f"{at(where, row)}: policy_action is {value:g}; it must lie in -1 to 1")
    return lengthened(values, samples)


def lengthened(values: np.ndarray, samples: int) -> np.ndarray:
    """Rows for each sample: where the final state has none, the last one again (zeros, if there is none)."""
    if len(values) == samples:
        return values
    last = values[-1:] if len(values) else np.zeros((1, *values.shape[1:]), values.dtype)
    return np.concatenate([values, last])
