"""The folder of a dataset: LeRobotDataset v3's files and columns, and which of them holds what of an interface.

    meta/info.json          features (dtype, shape), fps, totals, the templates of the paths below
    meta/temporeal.json     our interface and its hash (LeRobot ignores it; a set without it is a foreign one)
    meta/tasks.parquet      instruction -> task_index
    meta/stats.json         figures per feature
    meta/episodes/chunk-000/file-000.parquet    a row per episode: its length, its files, its checksum
    data/chunk-000/file-000.parquet             a row per sample
    videos/KEY/chunk-000/file-000.mp4           a frame per sample

An episode exists once its row is in ``meta/episodes``: that file is replaced as a whole, after all others are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.robots.handed_over.files import member
from temporeal.robots.signals import SignalSpec

VERSION = "v3.0"
INFO, STATS, TASKS, OURS, EPISODES = (
    "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/temporeal.json", "meta/episodes")
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
CHUNK = 1000
"""Files of a folder ``chunk-...``, as LeRobot's ``DEFAULT_CHUNK_SIZE``."""

OBSERVATION, PICTURES = "observation.", "observation.images."
ACTION, POLICY_ACTION, REWARD, DONE, HAS_ACTION = "action", "policy_action", "next.reward", "next.done", "has_action"
INDICES: Mapping[str, str] = {
    "timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}
"""Columns that every LeRobot set has, and their types; timestamp in seconds from the episode's begin."""

FIELD = re.compile(r"\{(chunk_index|file_index|video_key)(?::0(\d)d)?\}")


def is_picture(spec: SignalSpec) -> bool:
    """Whether a signal is a picture: uint8 [H, W, 3]."""
    return spec.dtype == "uint8" and len(spec.shape) == 3 and spec.shape[-1] == 3


def key_of(spec: SignalSpec) -> str:
    """The column of a signal."""
    return (PICTURES if is_picture(spec) else OBSERVATION) + spec.name


def columns_of(interface: Interface) -> dict[str, SignalSpec]:
    """Columns of an interface's data besides :data:`INDICES`, and what each sample of them is."""
    columns = {key_of(spec): spec for spec in interface.signals.values()}
    columns[ACTION] = SignalSpec("action", (interface.action.size,), interface.action.unit)
    if interface.task_action:
        columns[POLICY_ACTION] = SignalSpec("policy_action", (interface.task_action,))
    columns[REWARD] = SignalSpec("reward")
    columns[DONE] = SignalSpec("done", dtype="bool")
    columns[HAS_ACTION] = SignalSpec("has_action", dtype="bool")
    return columns


def file_path(folder: Path, template: str, place: tuple[int, int], key: str = "") -> Path:
    """The file that ``template`` names for ``place`` (chunk and file index); never one outside the folder."""
    values: dict[str, int | str] = {"chunk_index": place[0], "file_index": place[1], "video_key": key}

    def value(match: re.Match[str]) -> str:
        found, width = values[match[1]], int(match[2] or 0)
        return str(found) if isinstance(found, str) else f"{found:0{width}d}"

    if "{" in FIELD.sub("", template) or "}" in FIELD.sub("", template):
        raise DataError(f"{folder}: the path {template!r} in info.json: its fields may be {{chunk_index:03d}}, "
                        "{file_index:03d} and {video_key}")
    return member(folder, FIELD.sub(value, template))


def after(place: tuple[int, int]) -> tuple[int, int]:
    """The place of the next file."""
    chunk, file = place
    return (chunk, file + 1) if file + 1 < CHUNK else (chunk + 1, 0)


def feature(spec: SignalSpec, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """A column as ``info.json`` describes it: a scalar has shape [1]."""
    return {"dtype": spec.dtype, "shape": list(spec.shape) or [1], "names": list(names) or None}


def video_feature(spec: SignalSpec, rate_hz: float, codec: str, pixels: str) -> dict[str, Any]:
    """A picture that is kept as video, as ``info.json`` describes it."""
    height, width, channels = spec.shape
    return {"dtype": "video", "shape": list(spec.shape), "names": ["height", "width", "channels"],
            "info": {"video.height": height, "video.width": width, "video.codec": codec, "video.pix_fmt": pixels,
                     "video.is_depth_map": False, "video.fps": plain_rate(rate_hz), "video.channels": channels,
                     "has_audio": False}}


def plain_rate(rate_hz: float) -> int | float:
    """A rate as LeRobot writes it: a whole number where it is one."""
    return int(rate_hz) if float(rate_hz).is_integer() else float(rate_hz)


def check_version(info: Mapping[str, Any], folder: Path) -> None:
    """A set of another version of the layout is refused."""
    found = info.get("codebase_version")
    if found != VERSION:
        raise DataError(f"{folder}: {INFO} says codebase_version {found!r}; {VERSION} is read (LeRobot's own "
                        "lerobot.datasets.v30.convert_dataset_v21_to_v30 converts v2.1)")
