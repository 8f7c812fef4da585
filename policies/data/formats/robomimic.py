"""robomimic's HDF5 files: read and written. The layout is that of robomimic 0.3.0 (robomimic/utils/dataset.py):

    data                    attributes total, env_args (JSON: env_name, type, env_kwargs)
    data/demo_K             attributes num_samples, model_file
    data/demo_K/actions     [T, U]; rewards, dones: [T]
    data/demo_K/obs/NAME    [T, ...], and next_obs/NAME [T, ...]
    mask/NAME               names of demonstrations

Where there is ``next_obs``, its last row is the sample after the last command; else an episode has as many samples as
commands. The quaternions of robosuite (``type`` 1) are xyzw there, and stay so: unit "xyzw".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import interface_file
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks, hdf5
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.signals import SignalSpec, schema

OURS = "temporeal"
"""Attribute of ``data`` with the interface, in files that were written here."""
ROBOSUITE, GYM = 1, 2  # robomimic/envs/env_base.py, EnvType
Layout = tuple[tuple[str, tuple[int, ...], str], ...]
"""Name, shape of a sample and type of each observation."""


def read(path: Path, *, rate_hz: float | None = None, robot: str = "", mask: str = "") -> Reading:
    """The demonstrations of a robomimic file.

    Args:
        rate_hz: samples per second; None: ``control_freq`` of ``env_args``.
        robot: its name; "": the one of ``env_args``.
        mask: take the demonstrations of this list of ``mask`` alone.
    """
    with hdf5.opened(path) as file:
        data = hdf5.group(file, "data")
        demos, masks = chosen(file, data, mask), masks_of(file)
        interface, columns = interface_of(path, data, demos, rate_hz, robot)
    return Reading(interface, episodes(path, interface, columns, demos, masks))


def is_robomimic(data: Any) -> bool:
    """Whether the demonstrations have observations; robosuite's own have states alone."""
    demos = hdf5.names(data)
    return bool(demos) and "obs" in hdf5.group(data, demos[0])


def chosen(file: Any, data: Any, mask: str) -> list[str]:
    """Names of the demonstrations, in the order of their numbers."""
    demos = hdf5.names(data)
    if mask:
        known = hdf5.names(hdf5.group(file, "mask")) if "mask" in file else []
        if mask not in known:
            raise DataError(f"{hdf5.place(file)} has no mask {mask!r}; it has: {', '.join(known) or 'none'}")
        demos = hdf5.texts(hdf5.group(file, "mask"), mask)
    if not demos:
        raise DataError(f"{hdf5.place(data)} is empty: it has no demonstration")
    return sorted(demos, key=number)


def number(demo: str) -> tuple[int, str]:
    """``demo_12`` comes behind ``demo_2``."""
    digits = demo.rpartition("_")[2]
    return (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1, demo)


def masks_of(file: Any) -> dict[str, list[str]]:
    """The lists of ``mask`` that each demonstration is in."""
    out: dict[str, list[str]] = {}
    if "mask" in file:
        masks = hdf5.group(file, "mask")
        for name in hdf5.names(masks):
            for demo in hdf5.texts(masks, name):
                out.setdefault(demo, []).append(name)
    return out


def interface_of(
    path: Path, data: Any, demos: list[str], rate_hz: float | None, robot: str
) -> tuple[Interface, dict[str, str]]:
    """The interface, and the name in the file of each signal. In a file of ours it is the one that was written; else it
    is the layout that most demonstrations have: those of another are rejected one by one."""
    if told := hdf5.json_attribute(data, OURS):
        interface = interface_file.from_json(told, str(path))
        return interface, {name: name for name in interface.signals}
    environment = hdf5.json_attribute(data, "env_args")
    layout, size = usual_layout(data, demos)
    columns: dict[str, str] = {}
    specs = [spec_of(name, shape, dtype, environment, columns) for name, shape, dtype in layout]
    low, high = checks.limits((actions_of(data, demo) for demo in demos), size)
    return Interface(
        robot or robot_of(environment), schema(*specs), ActionSpec("action", low, high),
        rate_of(path, environment, rate_hz),
        simulator="robosuite" if environment.get("type") == ROBOSUITE else "",
        about={"source": path.name, "format": "robomimic", "env_args": environment}), columns


def usual_layout(data: Any, demos: list[str]) -> tuple[Layout, int]:
    """Observations and size of the command of most demonstrations."""
    found: Counter[tuple[Layout, int]] = Counter()
    for demo in demos:
        try:
            found[layout_of(data, demo)] += 1
        except (DataError, Refused, OSError, KeyError, RuntimeError):
            continue  # it says why when it is read
    if not found:
        layout_of(data, demos[0])  # raises why
    return found.most_common(1)[0][0]


def layout_of(data: Any, demo: str) -> tuple[Layout, int]:
    """Observations of one demonstration, and size of its command."""
    group = hdf5.group(data, demo)
    action, _ = hdf5.shape(group, "actions")
    if len(action) != 2 or not all(action):
        raise DataError(f"{hdf5.place(group)}/actions has shape {action}; [steps, size] is needed")
    obs = hdf5.group(group, "obs")
    rows = []
    for name in hdf5.names(obs):
        shape, dtype = hdf5.shape(obs, name)
        if not shape:
            raise DataError(f"{hdf5.place(obs)}/{name} is one number; a row for each sample is needed")
        rows.append((name, shape[1:], dtype))
    return tuple(rows), action[1]


def spec_of(
    name: str, shape: tuple[int, ...], dtype: str, environment: Mapping[str, Any], columns: dict[str, str]
) -> SignalSpec:
    """An observation as a signal; its name is noted in ``columns``."""
    signal = interface_file.unique(name, columns)
    columns[signal] = name
    quaternion = environment.get("type") == ROBOSUITE and shape == (4,) and "quat" in name
    return SignalSpec(signal, shape, "xyzw" if quaternion else "1", dtype=narrow(dtype))


def narrow(dtype: str) -> str:
    """float64 is kept as float32, which policies are shown."""
    return "float32" if dtype.startswith("float") else dtype


def robot_of(environment: Mapping[str, Any]) -> str:
    """robosuite's robots, else the environment's name."""
    options = environment.get("env_kwargs")
    robots = options.get("robots") if isinstance(options, Mapping) else None
    robots = [robots] if isinstance(robots, str) else robots
    return "+".join(map(str, robots)) if isinstance(robots, list) and robots else str(environment.get("env_name", "?"))


def rate_of(path: Path, environment: Mapping[str, Any], told: float | None) -> float:
    """Samples per second."""
    options = environment.get("env_kwargs")
    rate = told if told is not None else options.get("control_freq") if isinstance(options, Mapping) else None
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1e6:
        raise DataError(f"{path} does not say how many samples a second has (env_args has control_freq {rate!r}): give "
                        "--rate HZ")
    return float(rate)


def actions_of(data: Any, demo: str) -> np.ndarray:
    """The commands of a demonstration; none where they cannot be read."""
    try:
        return hdf5.array(hdf5.group(data, demo), "actions")
    except (DataError, Refused, OSError, KeyError, RuntimeError):
        return np.zeros((0, 0))


def episodes(
    path: Path, interface: Interface, columns: Mapping[str, str], demos: list[str], masks: Mapping[str, list[str]]
) -> Iterator[Episode | Rejected]:
    """The demonstrations one by one."""
    with hdf5.opened(path) as file:
        data = hdf5.group(file, "data")
        for demo in demos:
            info = {"source": path.name, "episode": demo} | ({"masks": masks[demo]} if demo in masks else {})
            yield checks.attempted(f"{path}, {demo}", partial(episode, data, demo, interface, columns, info), interface)


def episode(
    data: Any, demo: str, interface: Interface, columns: Mapping[str, str], info: dict[str, Any]
) -> Episode:
    """One demonstration."""
    group = hdf5.group(data, demo)
    signals = {name: observed(group, columns[name]) for name in interface.signals}
    done = hdf5.array(group, "dones") if "dones" in group else np.zeros(0)
    if told := hdf5.json_attribute(group, OURS):
        info = {**info, **told.get("info", {})}
    return Episode(
        signals, hdf5.array(group, "actions"),
        hdf5.array(group, "policy_actions") if interface.task_action and "policy_actions" in group else None,
        hdf5.array(group, "rewards") if "rewards" in group else None,
        bool(len(done) and done[-1]), told.get("success"), str(told.get("language", "")), info)


def observed(group: Any, name: str) -> np.ndarray:
    """The samples of one observation, with the one after the last command where the file has it."""
    rows = hdf5.array(hdf5.group(group, "obs"), name)
    if "next_obs" not in group:
        return rows
    after = hdf5.array(hdf5.group(group, "next_obs"), name)
    if after.shape != rows.shape:
        raise DataError(f"obs/{name} has shape {rows.shape}, next_obs/{name} has {after.shape}")
    return np.concatenate([rows, after[-1:]])


def write(path: Path, interface: Interface, found: Iterable[Episode]) -> int:
    """Write a robomimic file; the number of demonstrations. Rewards that are unknown are left out: robomimic takes them
    as zero."""
    import h5py

    total, count, masks = 0, 0, dict[str, list[str]]()
    with h5py.File(path, "x") as file:
        data = file.create_group("data")
        data.attrs[OURS] = json.dumps(interface_file.to_json(interface))
        data.attrs["env_args"] = json.dumps(interface.about.get("env_args") or {
            "env_name": interface.task or interface.robot, "type": GYM,
            "env_kwargs": {"control_freq": interface.rate_hz}})
        for count, each in enumerate(found, start=1):
            demo = f"demo_{count - 1}"
            write_demo(data.create_group(demo), each)
            total += each.steps
            for name in each.info.get("masks", ()):
                masks.setdefault(str(name), []).append(demo)
        data.attrs["total"] = total
        for name, members in masks.items():
            file.create_dataset(f"mask/{interface_file.unique(name, {})}", data=np.array(members, dtype="S"))
    return count


def write_demo(group: Any, episode: Episode) -> None:
    """One demonstration."""
    steps = episode.steps
    group.attrs["num_samples"] = steps
    group.attrs[OURS] = json.dumps({"language": episode.language, "success": episode.success,
                                    "info": dict(episode.info)})
    group["actions"] = episode.action
    if episode.policy_action is not None:
        group["policy_actions"] = episode.policy_action
    if episode.reward is not None:
        group["rewards"] = episode.reward
    group["dones"] = (np.arange(steps) == steps - 1).astype(np.int64) * int(episode.terminated)
    for name, values in episode.signals.items():
        values = np.asarray(values)
        packing = {"compression": "gzip", "compression_opts": 1} if values.dtype == np.uint8 else {}
        group.create_dataset(f"obs/{name}", data=values[:steps], **packing)
        if len(values) == steps + 1:
            group.create_dataset(f"next_obs/{name}", data=values[1:], **packing)
