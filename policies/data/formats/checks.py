"""One episode of somebody else's: taken in the interface's types, or rejected with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.checked_episode import ROUNDING, fitting, within
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats.found import Rejected
from temporeal.robots.signals import SignalSpec

CONVENTION = 1.0
"""D4RL, OGBench, Minari, robomimic: commands are in [-1, 1], unless the data shows otherwise."""
UNKNOWN_ROBOT = "unknown"
"""Where neither a file nor the user names one: the same for all files, which then become one set."""
DAMAGED = (DataError, ValueError, OSError, KeyError, RuntimeError, TypeError)
"""What h5py, NumPy and our readers raise on content that cannot be read."""


def attempted(where: str, read: Callable[[], Episode], interface: Interface) -> Episode | Rejected:
    """The episode that ``read`` gives, in the interface's types; or why it cannot be taken."""
    try:
        return checked(read(), interface, where)
    except DAMAGED as error:
        return rejected(where, error)


def rejected(where: str, error: Exception) -> Rejected:
    """Why ``where`` is left out; the error may begin with that place itself."""
    where, why = (text.encode(errors="replace").decode() for text in (where, " ".join(str(error).split())))
    why = why or type(error).__name__
    told = (why.removeprefix(where + mark) for mark in (": ", ", ") if why.startswith(where + mark))
    return Rejected(where, next(told, why))


def checked(episode: Episode, interface: Interface, where: str) -> Episode:
    """``episode`` in the types of ``interface``; a :class:`DataError` names signal and index of what is wrong."""
    if missing := [name for name in interface.signals if name not in episode.signals]:
        raise DataError(f"{where}: signal {missing[0]} is missing; there are: {', '.join(episode.signals) or 'none'}")
    if not np.ndim(episode.action):
        raise DataError(f"{where}: the action is one number; a row for each step is needed")
    if episode.success not in (None, True, False) or not isinstance(episode.info, Mapping):
        raise DataError(f"{where}: success {episode.success!r} and info {str(episode.info)[:60]}; true, false or null, "
                        "and a mapping, are needed")
    samples, steps = episode.samples, episode.steps
    if not steps or steps not in (samples, samples - 1):
        raise DataError(f"{where}: {samples} samples and {steps} commands; as many commands as samples are needed, or "
                        "one less, and at least one")
    signals = {name: of_signal(episode.signals[name], spec, samples, where) for name, spec in interface.signals.items()}
    action = fitting(episode.action, SignalSpec("action", (interface.action.size,)), steps, where)
    within(action, interface.action, where)
    policy = of_steps("policy_action", episode.policy_action, steps, interface.task_action, where)
    if policy is not None and (bad := np.argwhere(np.abs(policy) > CONVENTION + ROUNDING)).size:
        value = policy[tuple(bad[0])]
        raise DataError(f"{where}, index {bad[0][0]}: policy_action is {value:g}; it must lie in -1 to 1")
    return replace(episode, signals=signals, action=action, policy_action=policy,
                   reward=of_steps("reward", episode.reward, steps, 0, where))


def of_signal(values: Any, spec: SignalSpec, samples: int, where: str) -> Any:
    """[S, *shape] in the declared type; pictures that are decoded one by one stay as they are."""
    if isinstance(values, np.ndarray) or tuple(values.shape) != (samples, *spec.shape):
        return fitting(values, spec, samples, where)
    return values


def of_steps(name: str, values: Any, steps: int, size: int, where: str) -> np.ndarray | None:
    """float32 of every step, [T] where ``size`` is 0, else [T, size]; None stays None."""
    if values is None:
        return None
    shape = (size,) if size else ()
    found = np.asarray(values)
    found = found.reshape(steps, *shape) if found.size == steps * max(size, 1) else found
    found = found.astype(np.float32) if found.dtype.kind in "biu" else found
    return fitting(found, SignalSpec(name, shape), steps, where)


def clipped(episode: Episode, spec: ActionSpec) -> Episode:
    """The episode with its commands within the limits of ``spec``."""
    return replace(episode, action=np.clip(episode.action, spec.low, spec.high).astype(np.float32))


def limits(actions: Iterator[np.ndarray], size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lowest and highest command: [-1, 1] where all of ``actions`` [T, size] lie within, else what occurs, per
    component. Numbers that are not finite are left out: their episode is refused."""
    low, high = np.full(size, -CONVENTION), np.full(size, CONVENTION)
    for action in actions:
        if action.ndim == 2 and action.shape[1] == size and len(rows := action[np.isfinite(action).all(1)]):
            low, high = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0))
    return tuple(map(float, low)), tuple(map(float, high))
