"""Formats by name: how each is recognized, read and written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.formats import (
    csv_folder,
    flat_npz,
    hdf5,
    lerobot_state,
    minari,
    npz_folder,
    robomimic,
    robosuite,
)
from temporeal.robots.handed_over.endings import truncated

ROSBAG = "rosbag2"
FORMATS = (ROSBAG, "robomimic", "robosuite", "minari", "npz", "npz-folder", "csv")
BAGS, HDF5 = (".mcap", ".db3"), (".hdf5", ".h5")
Writer = Callable[[Path, Interface, Iterable[Episode]], int]
WRITERS: Mapping[str, Writer] = {
    "robomimic": robomimic.write, "minari": minari.write, "npz": npz_folder.write, "lerobot-state": lerobot_state.write}
READERS = {"robomimic": robomimic.read, "robosuite": robosuite.read, "minari": minari.read, "npz": flat_npz.read,
           "npz-folder": npz_folder.read, "csv": csv_folder.read}
"""Of all formats but bags, which need a robot (:mod:`temporeal.policies.data.formats.rosbag`)."""


def kind_of(path: Path) -> str:
    """The format of a file or folder; one of :data:`FORMATS`."""
    if not path.exists():
        raise DataError(f"{path} is not there")
    found = of_folder(path) if path.is_dir() else of_file(path)
    if not found:
        raise DataError(f"{path} is of no format that is read: .mcap, .db3 or a bag's folder; .hdf5 or .h5 of "
                        "robomimic, robosuite or Minari; .npz; .csv; a folder of Minari, of episode_*.npz with "
                        "interface.json, or of .csv")
    return found


def of_folder(path: Path) -> str:
    """The format of a folder; "": none."""
    if (path / layout.INFO).exists():
        raise DataError(f"{path} is a dataset already (LeRobot v3): temporeal data merge copies it")
    if (path / minari.METADATA).exists() or (path / "data" / minari.METADATA).exists():
        if (main := minari.folder_of(path) / minari.MAIN).is_file():
            hdf5.tried(main)
        return "minari"
    if (path / npz_folder.INTERFACE).exists():
        return "npz-folder"
    if (path / "metadata.yaml").exists() or any(file.suffix in BAGS for file in path.iterdir()):
        return ROSBAG
    return "csv" if any(file.suffix == ".csv" for file in path.iterdir()) else ""


def of_file(path: Path) -> str:
    """The format of a file; "": none."""
    if path.suffix in BAGS:
        return ROSBAG
    if lacks := truncated(path):
        raise DataError(lacks)
    if path.suffix == ".npz":
        return "npz"
    if path.suffix == ".csv":
        return "csv"
    if path.suffix not in HDF5:
        return ""
    hdf5.tried(path)
    if (path.parent / minari.METADATA).exists() and path.name == minari.MAIN:
        return "minari"
    with hdf5.opened(path) as file:
        return "robomimic" if robomimic.is_robomimic(hdf5.group(file, "data")) else "robosuite"


def exported(kind: str, path: Path, interface: Interface, found: Iterable[Episode]) -> int:
    """Write ``found`` in the format ``kind``, all or nothing; the number of episodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
        count = WRITERS[kind](Path(beside) / path.name, interface, found)
        (Path(beside) / path.name).rename(path)
    return count
