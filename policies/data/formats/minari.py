"""Minari's folders (0.5.4): ``data/metadata.json`` and ``data/main_data.hdf5``, read and written.

    episode_K                       attributes id, total_steps, seed, and what its writer added
    episode_K/observations          [T + 1, ...], or a group with one for each part of the space
    episode_K/actions               [T, ...]; rewards, terminations, truncations: [T]
    episode_K/infos                 a group

What is Minari's, but no number of an environment (texts in observations), is refused. Minari says nothing about rates.
The Arrow layout of the same folders: :mod:`temporeal.policies.data.formats.minari_arrow`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import interface_file
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks, hdf5, minari_arrow
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.policies.data.formats.jpeg import pictures
from temporeal.policies.data.formats.minari_spaces import Contents, Leaf, components_of, listed, signals_of, spaces
from temporeal.policies.data.formats.robomimic import number
from temporeal.robots.handed_over.files import MIB, Refused, read_text
from temporeal.robots.handed_over.texts import DEPTH, too_deep
from temporeal.robots.signals import schema

METADATA, MAIN = "metadata.json", "main_data.hdf5"
VERSION = "0.5.4"
OURS = "temporeal"
"""Key of metadata.json with the interface, in folders that were written here."""


def read(path: Path, *, rate_hz: float | None = None, robot: str = "") -> Reading:
    """The episodes of a Minari set: its folder, or the folder ``data`` in it.

    Args:
        rate_hz: samples per second, which Minari's files do not say.
        robot: its name; "": that of the environment.
    """
    folder = folder_of(path)
    contents = contents_of(folder, rate_hz, robot)
    if contents.layout == "arrow":
        return Reading(contents.interface, minari_arrow.episodes(folder, contents))
    return Reading(contents.interface, episodes(folder, contents))


def folder_of(path: Path) -> Path:
    """The folder with metadata.json."""
    for folder in (path, path / "data", path.parent):
        if (folder / METADATA).is_file():
            return folder
    raise DataError(f"{path} is no Minari set: it has no {METADATA}, and no data/{METADATA}")


def contents_of(folder: Path, rate_hz: float | None, robot: str) -> Contents:
    """metadata.json."""
    file = folder / METADATA
    told = lenient_json(read_text(file, 64 * MIB, within=folder), str(file))
    layout = told.get("data_format", "hdf5")
    if layout not in ("hdf5", "arrow"):
        raise DataError(f"{file}: data_format {layout!r}; read are hdf5 and arrow")
    seen, acted = (listed(lenient_json(str(told.get(kind)), f"{file}: {kind}"), f"{file}: {kind}")
                   for kind in ("observation_space", "action_space"))
    found = signals_of(seen)
    leaves = {name: leaf for name, (leaf, _) in found.items()}
    if isinstance(ours := told.get(OURS), Mapping):
        interface = interface_file.from_json(ours, str(file))
        if missing := set(interface.signals) - set(leaves):
            raise DataError(f"{file}: the observation space lacks the signal {sorted(missing)[0]}")
    else:
        if rate_hz is None:
            raise DataError(f"{file}: Minari does not say how many samples a second has: give --rate HZ")
        interface = Interface(
            robot or environment_of(told), schema(*(spec for _, spec in found.values())),
            action_of(folder, acted, layout), float(rate_hz),
            about={"source": str(told.get("dataset_id", folder.name)), "format": f"minari {layout}"})
    return Contents(interface, leaves, acted, bool(told.get("jpeg_encoding", True)), layout)


def lenient_json(text: str, where: str) -> Any:
    """JSON with Python's Infinity and NaN in it, which Minari writes for limits; bounded in depth."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if too_deep(value, DEPTH):
        raise Refused(f"{where}: it is nested too deeply, more than {DEPTH} levels")
    if not isinstance(value, dict):
        raise DataError(f"{where} is a JSON {type(value).__name__}; an object is needed")
    return value


def environment_of(told: Mapping[str, Any]) -> str:
    """The name of the environment."""
    try:
        return str(lenient_json(str(told["env_spec"]), "env_spec")["id"])
    except (KeyError, DataError):
        return str(told.get("dataset_id", "?"))


def action_of(folder: Path, acted: Sequence[Leaf], layout: str) -> ActionSpec:
    """The command: limits of the space, or of the data where the space has none."""
    low, high = (tuple(x for leaf in acted for x in getattr(leaf, side)) for side in ("low", "high"))
    if not np.isfinite([*low, *high]).all() and layout == "hdf5":
        with hdf5.opened(folder / MAIN) as file:
            found = (numbers_or_none(hdf5.group(file, name), acted) for name in hdf5.names(file))
            low, high = checks.limits(found, len(low))
    elif not np.isfinite([*low, *high]).all():
        raise DataError(f"{folder}: the action space has no limits; of the arrow layout they are not looked for")
    return ActionSpec("action", low, high, components=components_of(acted))


def numbers_or_none(group: Any, acted: Sequence[Leaf]) -> np.ndarray:
    """The commands of an episode; none where they cannot be read."""
    try:
        return commands(group, acted)
    except (DataError, Refused, OSError, KeyError, RuntimeError, ValueError):
        return np.zeros((0, 0))


def episodes(folder: Path, contents: Contents) -> Iterator[Episode | Rejected]:
    """The episodes one by one."""
    path = folder / MAIN
    with hdf5.opened(path) as file:
        names = sorted(hdf5.names(file), key=number)
        if not names:
            raise DataError(f"{path} is empty: it has no episode")
        for name in names:
            yield checks.attempted(f"{path}, {name}", partial(episode, file, name, contents), contents.interface)


def episode(file: Any, name: str, contents: Contents) -> Episode:
    """One episode."""
    group = hdf5.group(file, name)
    signals = {signal: leaf_of(group, "observations", contents.signals[signal], contents.jpeg)
               for signal in contents.interface.signals}
    signals |= {signal: values != 0 for signal, values in signals.items()  # Gymnasium has no box of flags
                if contents.interface.signals[signal].dtype == "bool"}
    ends = hdf5.array(group, "terminations")
    infos = hdf5.group(group, "infos") if "infos" in group else {}
    told = hdf5.json_attribute(group, OURS)
    success = told.get("success") if told else bool(hdf5.array(infos, "success").any()) if "success" in infos else None
    seed = hdf5.attribute(group, "seed")
    info = {"source": file.filename.rpartition("/")[2], "episode": name} | ({} if seed is None else {"seed": int(seed)})
    policy = hdf5.array(infos, "policy_action")[1:] if "policy_action" in infos else None
    return Episode(
        signals, commands(group, contents.action), policy if contents.interface.task_action else None,
        hdf5.array(group, "rewards") if told.get("reward", True) else None, bool(len(ends) and ends[-1]), success,
        str(told.get("language", "")), info | told.get("info", {}))


def leaf_of(group: Any, name: str, leaf: Leaf, jpeg: bool) -> np.ndarray:
    """The numbers of one part of a space."""
    for key in leaf.path:
        group, name = hdf5.group(group, name), key
    if jpeg and leaf.is_picture:
        return pictures(hdf5.blobs(group, name), leaf.shape, leaf.name or "observation")
    found = hdf5.array(group, name)
    return found.reshape(len(found), *leaf.shape)


def commands(group: Any, acted: Sequence[Leaf]) -> np.ndarray:
    """The command [T, U]: the parts of the action behind each other."""
    parts = [leaf_of(group, "actions", leaf, False) for leaf in acted]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def write(path: Path, interface: Interface, found: Iterable[Episode]) -> int:
    """Write the folder ``path`` with a Minari set; the number of episodes. Rewards that are unknown are zero there, as
    Minari needs some: an attribute says so."""
    import h5py

    folder = path / "data"
    folder.mkdir(parents=True)
    steps = count = 0
    with h5py.File(folder / MAIN, "x", track_order=True) as file:
        for count, each in enumerate(found, start=1):
            if each.samples != each.steps + 1:
                raise DataError(f"episode {count - 1} has as many commands as samples: Minari needs the sample after "
                                "the last command")
            write_episode(file.create_group(f"episode_{count - 1}"), count - 1, each)
            steps += each.steps
    seen, acted = spaces(interface)
    (folder / METADATA).write_text(json.dumps({
        "total_episodes": count, "total_steps": steps, "data_format": "hdf5", "jpeg_encoding": False,
        "observation_space": json.dumps(seen), "action_space": json.dumps(acted), "dataset_id": dataset_id(path.name),
        "minari_version": VERSION, OURS: interface_file.to_json(interface)}))
    return count


def dataset_id(name: str) -> str:
    """A legal name of a Minari set: letters, digits, ``_``, ``-``, and a version."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in name).strip("-") or "set"
    head, _, version = plain.rpartition("-v")
    return plain if head and version.isdigit() else f"{plain}-v0"


def write_episode(group: Any, number: int, episode: Episode) -> None:
    """One episode."""
    steps = episode.steps
    group.attrs["id"], group.attrs["total_steps"] = number, steps
    if isinstance(seed := episode.info.get("seed"), int):
        group.attrs["seed"] = seed
    group.attrs[OURS] = json.dumps({"language": episode.language, "success": episode.success,
                                    "reward": episode.reward is not None, "info": dict(episode.info)})
    for name, values in episode.signals.items():
        values = np.asarray(values)
        group[f"observations/{name}"] = values.astype(np.int8) if values.dtype == bool else values
    group["actions"] = episode.action
    group["rewards"] = np.zeros(steps) if episode.reward is None else episode.reward
    last = np.arange(steps) == steps - 1
    group["terminations"], group["truncations"] = last & episode.terminated, last & (not episode.terminated)
    group.create_group("infos")  # Minari's own reader expects one
    if episode.policy_action is not None:  # infos have a row for the reset as well
        group["infos/policy_action"] = np.concatenate([episode.policy_action[:1] * 0, episode.policy_action])
