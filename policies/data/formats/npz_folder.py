"""A folder with an NPZ file per episode, and ``interface.json``: our own layout for NumPy without anything else.

    interface.json          the interface, with its hash
    episode_000000.npz      observation.NAME [S, ...] per signal; action [T, U]; policy_action [T, A] and next.reward
                            [T] where they are known; terminated; success where somebody judged
    episode_000000.json     language, info
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import interface_file
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.episodes.layout import ACTION, OBSERVATION, POLICY_ACTION, REWARD
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.handed_over.files import MIB, read_text
from temporeal.robots.handed_over.texts import from_json

INTERFACE = "interface.json"
TERMINATED, SUCCESS = "terminated", "success"


def read(path: Path) -> Reading:
    """The episodes of a folder."""
    file = path / INTERFACE
    interface = interface_file.from_json(from_json(read_text(file, 16 * MIB, within=path), str(file)), str(file))
    files = sorted(path.glob("episode_*.npz"))
    if not files:
        raise DataError(f"{path} is empty: it has no episode_*.npz")
    return Reading(interface, episodes(path, files, interface))


def episodes(folder: Path, files: list[Path], interface: Interface) -> Iterator[Episode | Rejected]:
    """The episodes one by one."""
    for file in files:
        yield checks.attempted(str(file), partial(episode, folder, file, interface), interface)


def episode(folder: Path, file: Path, interface: Interface) -> Episode:
    """One episode."""
    arrays = read_npz(file, within=folder)
    beside = file.with_suffix(".json")
    told: Any = from_json(read_text(beside, 16 * MIB, within=folder), str(beside)) if beside.is_file() else {}
    if not isinstance(told, dict):
        raise DataError(f"{beside} is a JSON {type(told).__name__}; an object is needed")
    signals = {name: arrays[OBSERVATION + name] for name in interface.signals if OBSERVATION + name in arrays}
    success = arrays.get(SUCCESS)
    return Episode(signals, arrays[ACTION], arrays.get(POLICY_ACTION), arrays.get(REWARD),
                   bool(arrays.get(TERMINATED, False)), None if success is None else bool(success),
                   str(told.get("language", "")), dict(told.get("info", {})) | {"source": folder.name})


def write(path: Path, interface: Interface, found: Iterable[Episode]) -> int:
    """Write the folder ``path``; the number of episodes."""
    path.mkdir(parents=True)
    count = 0
    for count, each in enumerate(found, start=1):
        name = f"episode_{count - 1:06d}"
        members: dict[str, Any] = arrays_of(each)
        np.savez(path / f"{name}.npz", **members)
        write_whole(path / f"{name}.json", json.dumps(
            {"language": each.language, "info": dict(each.info)}).encode())
    write_whole(path / INTERFACE, json.dumps(interface_file.to_json(interface), indent=1).encode())
    return count


def arrays_of(episode: Episode) -> dict[str, np.ndarray]:
    """The members of an episode's file."""
    out = {OBSERVATION + name: np.asarray(values) for name, values in episode.signals.items()}
    out |= {ACTION: episode.action, TERMINATED: np.array(episode.terminated)}
    more = {POLICY_ACTION: episode.policy_action, REWARD: episode.reward,
            SUCCESS: None if episode.success is None else np.array(episode.success)}
    return out | {name: values for name, values in more.items() if values is not None}
