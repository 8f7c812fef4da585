"""robosuite's own demonstrations (robosuite/scripts/collect_human_demonstrations.py, 1.4.0): states and commands, no
observations.

    data                    attributes env, env_info (JSON), repository_version
    data/demo_K             attribute model_file: the MuJoCo model (in old files: the name of a file in ``models``)
    data/demo_K/states      [T, 1 + nq + nv]: time [s], positions, velocities
    data/demo_K/actions     [T, U]

The positions and velocities become the signals ``qpos`` and ``qvel``, in the units of MuJoCo's joints; the rate comes
from the times, which must increase evenly. The commands are those of the device: robosuite itself clips them to
``input_min`` and ``input_max`` (controllers/base_controller.py, scale_action).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks, hdf5, robomimic
from temporeal.policies.data.formats.even_times import check_times, rate_of
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.handed_over.files import Refused, member, read_text
from temporeal.robots.handed_over.texts import from_xml
from temporeal.robots.signals import SignalSpec, schema

SIZES = {"free": (7, 6), "ball": (4, 3), "hinge": (1, 1), "slide": (1, 1)}
"""Positions and velocities of each kind of joint (MuJoCo's XML reference)."""
LONGEST_MODEL = 16 << 20  # bytes


def read(path: Path, *, rate_hz: float | None = None, robot: str = "") -> Reading:
    """The demonstrations of a robosuite file.

    Args:
        rate_hz: samples per second; None: that of the times.
        robot: its name; "": the one of ``env_info``.
    """
    with hdf5.opened(path) as file:
        data = hdf5.group(file, "data")
        demos = robomimic.chosen(file, data, "")
        interface = interface_of(path, data, demos, rate_hz, robot)
    outside = max(abs(x) for x in (*interface.action.low, *interface.action.high)) > checks.CONVENTION
    notes = ("the device's commands go beyond [-1, 1], to which robosuite clips them; --clip does so here",) * outside
    return Reading(interface, episodes(path, interface, demos), notes)


def interface_of(path: Path, data: Any, demos: list[str], rate_hz: float | None, robot: str) -> Interface:
    """The interface that most demonstrations have."""
    found: Counter[tuple[int, int, int, float]] = Counter()
    wrong = ""
    for demo in demos:
        try:
            found[sizes_of(path, data, demo, rate_hz)] += 1
        except (DataError, Refused, OSError, KeyError, RuntimeError, ElementTree.ParseError) as error:
            wrong = wrong or str(error)
    if not found:
        raise DataError(f"{path}: no demonstration can be read. The first one: {wrong}")
    places, speeds, size, rate = found.most_common(1)[0][0]
    told = hdf5.json_attribute(data, "env_info") or hdf5.json_attribute(data, "env_args").get("env_kwargs", {})
    low, high = checks.limits((robomimic.actions_of(data, demo) for demo in demos), size)
    specs = [SignalSpec("qpos", (places,), "mujoco"), SignalSpec("qvel", (speeds,), "mujoco/s")]
    name = str(hdf5.attribute(data, "env", "?"))
    version = str(hdf5.attribute(data, "repository_version", ""))
    return Interface(
        robot or robomimic.robot_of({"env_kwargs": told, "env_name": name}), schema(*specs),
        ActionSpec("action", low, high), rate, simulator=f"robosuite {version}".strip(),
        about={"source": path.name, "format": "robosuite", "env": name, "env_info": told})


def sizes_of(path: Path, data: Any, demo: str, rate_hz: float | None) -> tuple[int, int, int, float]:
    """Numbers of positions, of velocities and of the command's components of a demonstration, and its rate."""
    group = hdf5.group(data, demo)
    states, action = hdf5.array(group, "states"), hdf5.shape(group, "actions")[0]
    if states.ndim != 2 or len(action) != 2 or len(states) < 2:
        raise DataError(f"{hdf5.place(group)}: states {states.shape}, actions {action}; rows of numbers are needed")
    places, speeds = joint_sizes(model_of(path, group))
    if states.shape[1] != 1 + places + speeds:
        raise DataError(f"{hdf5.place(group)}: states have {states.shape[1]} numbers, its model has a time, {places} "
                        f"positions and {speeds} velocities")
    return places, speeds, action[1], rate_hz or rate_of(states[:, 0], hdf5.place(group))


def model_of(path: Path, group: Any) -> bytes:
    """The demonstration's model: in the file, or in the folder ``models`` beside it."""
    text = str(hdf5.attribute(group, "model_file", ""))
    if text.lstrip().startswith("<"):
        return text.encode()
    folder = path.parent / "models"
    if not text or not folder.is_dir():
        raise DataError(f"{hdf5.place(group)} has no model: nothing says which of its states are positions")
    return read_text(member(folder, text), LONGEST_MODEL, within=folder).encode()


def joint_sizes(model: bytes) -> tuple[int, int]:
    """Numbers of positions and velocities of a MuJoCo model (flat: robosuite writes no defaults for joints' types)."""
    root = from_xml(model, "model_file")
    world = root.find("worldbody")
    kinds = [] if world is None else [joint.get("type", "hinge") for joint in world.iter("joint")]
    kinds += [] if world is None else ["free" for _ in world.iter("freejoint")]
    if unknown := set(kinds) - set(SIZES):
        raise DataError(f"model_file: a joint is of type {sorted(unknown)[0]!r}; legal: {', '.join(SIZES)}")
    return sum(SIZES[kind][0] for kind in kinds), sum(SIZES[kind][1] for kind in kinds)


def episodes(path: Path, interface: Interface, demos: list[str]) -> Iterator[Episode | Rejected]:
    """The demonstrations one by one."""
    with hdf5.opened(path) as file:
        data = hdf5.group(file, "data")
        for demo in demos:
            yield checks.attempted(f"{path}, {demo}", partial(episode, path, data, demo, interface), interface)


def episode(path: Path, data: Any, demo: str, interface: Interface) -> Episode:
    """One demonstration."""
    group = hdf5.group(data, demo)
    states, places = hdf5.array(group, "states"), interface.signals["qpos"].size
    if states.ndim != 2 or states.shape[1] != 1 + places + interface.signals["qvel"].size:
        raise DataError(f"states have shape {states.shape}; [samples, {1 + places} and the velocities] is needed")
    check_times(states[:, 0], 1.0 / interface.rate_hz)
    return Episode({"qpos": states[:, 1 : 1 + places], "qvel": states[:, 1 + places :]}, hdf5.array(group, "actions"),
                   info={"source": path.name, "episode": demo})
