"""One NPZ file with the rows of all episodes behind each other: D4RL's layout, and OGBench's.

    observations, actions       [N, ...]
    D4RL        rewards, terminals, timeouts: [N]; perhaps next_observations. A row is a step; an episode ends with a
                row whose terminal or timeout is set
    OGBench     terminals alone: an episode's last row is its final state, whose command nobody executed, and time ended
                it (ogbench/utils.py, load_dataset); qpos, qvel, button_states: the simulator's state

Other arrays of N rows become signals of their name. The file is read whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.signals import SignalSpec, schema

OBSERVATIONS, NEXT, ACTIONS, REWARDS, TERMINALS, TIMEOUTS = (
    "observations", "next_observations", "actions", "rewards", "terminals", "timeouts")
STEPS = (NEXT, ACTIONS, REWARDS, TERMINALS, TIMEOUTS)
"""Arrays that are no signals."""


def read(path: Path, *, rate_hz: float | None = None, robot: str = "") -> Reading:
    """The episodes of an NPZ file.

    Args:
        rate_hz: samples per second, which the file does not say.
        robot: its name; "": unknown.
    """
    arrays = read_npz(path)
    rows = rows_of(arrays, path)
    if rate_hz is None:
        raise DataError(f"{path} does not say how many samples a second has: give --rate HZ")
    names = {name: spec_of(name, values) for name, values in arrays.items()
             if name not in STEPS and values.ndim and len(values) == rows and values.dtype.kind in "biuf"}
    action = arrays[ACTIONS]
    low, high = checks.limits(iter([action]), action.shape[1])
    ogbench = REWARDS not in arrays and TIMEOUTS not in arrays
    interface = Interface(robot or checks.UNKNOWN_ROBOT, schema(*names.values()), ActionSpec("action", low, high),
                          float(rate_hz),
                          about={"source": path.name, "format": "ogbench npz" if ogbench else "d4rl npz"})
    left = [name for name in arrays if name not in (*names, *STEPS)]
    notes = (f"not read, for it has no row per sample: {', '.join(left)}",) if left else ()
    return Reading(interface, episodes(path, arrays, interface, ogbench), notes)


def rows_of(arrays: Mapping[str, np.ndarray], path: Path) -> int:
    """N, which the arrays that are needed agree on."""
    if missing := [name for name in (OBSERVATIONS, ACTIONS) if name not in arrays]:
        raise DataError(f"{path} has no array {missing[0]!r}; it has: {', '.join(arrays) or 'none'}")
    if TERMINALS not in arrays and TIMEOUTS not in arrays:
        raise DataError(f"{path} has neither terminals nor timeouts: nothing says where an episode ends")
    for name in (OBSERVATIONS, *(name for name in STEPS if name in arrays)):
        if arrays[name].dtype.kind not in "biuf":
            raise DataError(f"{path}: {name} is of {arrays[name].dtype}; numbers are needed")
    rows, action = len(arrays[OBSERVATIONS]), arrays[ACTIONS]
    if not rows:
        raise DataError(f"{path} is empty: it has no row")
    if action.ndim != 2:
        raise DataError(f"{path}: actions have shape {action.shape}; [rows, size] is needed")
    for name in STEPS:
        if name in arrays and (not arrays[name].ndim or len(arrays[name]) != rows):
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}, there are {rows} observations")
    return rows


def spec_of(name: str, values: np.ndarray) -> SignalSpec:
    """An array as a signal: ``observations`` is ``observation``."""
    dtype = "float32" if values.dtype.kind == "f" else str(values.dtype)
    return SignalSpec("observation" if name == OBSERVATIONS else name, values.shape[1:], dtype=dtype)


def ends_of(arrays: Mapping[str, np.ndarray], rows: int) -> list[int]:
    """The rows behind the last of each episode."""
    ends = np.zeros(rows, bool)
    for name in (TERMINALS, TIMEOUTS):
        if name in arrays:
            ends |= arrays[name].reshape(rows) > 0
    ends[-1] = True
    return [int(k) + 1 for k in np.flatnonzero(ends)]


def episodes(
    path: Path, arrays: Mapping[str, np.ndarray], interface: Interface, ogbench: bool
) -> Iterator[Episode | Rejected]:
    """The episodes one by one."""
    ends = ends_of(arrays, len(arrays[ACTIONS]))
    for k, (start, end) in enumerate(zip([0, *ends], ends)):
        yield checks.attempted(f"{path}, episode {k} (rows {start} to {end - 1})",
                               partial(episode, path, arrays, interface, slice(start, end), ogbench, k), interface)


def episode(
    path: Path, arrays: Mapping[str, np.ndarray], interface: Interface, rows: slice, ogbench: bool, number: int
) -> Episode:
    """One episode."""
    signals = {name: arrays[OBSERVATIONS if name == "observation" else name][rows] for name in interface.signals}
    info = {"source": path.name, "episode": number}
    if ogbench:
        return Episode(signals, arrays[ACTIONS][rows][:-1], info=info)
    if NEXT in arrays and set(signals) == {"observation"}:
        signals = {"observation": np.concatenate([signals["observation"], arrays[NEXT][rows][-1:]])}
    terminated = TERMINALS in arrays and bool(arrays[TERMINALS].reshape(-1)[rows][-1] > 0)
    reward = arrays[REWARDS].reshape(-1)[rows] if REWARDS in arrays else None
    return Episode(signals, arrays[ACTIONS][rows], None, reward, terminated, info=info)
