"""A ten-minute MCAP bag of a 7-joint arm with a camera is imported: how many times faster than it was recorded."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.formats import importing, rosbag
from temporeal.policies.data.formats.bags.alignment import Alignment
from temporeal_benchmarks.data import recorded_arm
from temporeal_benchmarks.rows import Row, at_least, at_most

SECONDS, QUICK_SECONDS = 600.0, 20.0
RATE_HZ = 25.0
CAMERAS = {"240x320": (240, 320), "480x640": (480, 640)}
TARGETS = {"240x320": 20.0}
"""Times faster than real time (issue 47), of a camera whose pictures are about those of a policy."""


def rows(quick: bool, out: Path) -> list[Row]:
    """A bag for each camera, written and imported."""
    found = list[Row]()
    for name, shape in CAMERAS.items():
        found += measured(name, shape, QUICK_SECONDS if quick else SECONDS, out / name, judged=not quick)
    return found


def measured(name: str, shape: tuple[int, int], seconds: float, out: Path, judged: bool) -> list[Row]:
    """Figures of one bag."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    bag = recorded_arm.write(out / "bag", seconds, shape)
    robot, topics = recorded_arm.franka()
    source = rosbag.Source(robot, topics, Alignment(RATE_HZ), cameras={"rgb": recorded_arm.CAMERA})
    wall, spent = time.perf_counter(), time.process_time()
    importing.write(out / "set", [importing.File(bag, lambda: rosbag.read(bag, source), False)], importing.Options())
    wall, spent = time.perf_counter() - wall, time.process_time() - spent
    how = (f"{seconds:g} s: joints at {recorded_arm.STATES_HZ} Hz, commands at {recorded_arm.COMMANDS_HZ} Hz, JPEG "
           f"{name} at {recorded_arm.PICTURES_HZ} Hz, to {RATE_HZ:g} Hz and H.264; {os.cpu_count()} cores, "
           f"load {os.getloadavg()[0]:.1f}")
    factor, target = seconds / wall, TARGETS.get(name)
    name = f"data.import.{name}"
    sizes = [sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
             for folder in (bag, out / "set")]
    speed = (at_least(f"{name}.times_real_time", factor, "1", target, how) if target and judged else
             Row(f"{name}.times_real_time", factor, "1", target, how))
    return [speed, Row(f"{name}.times_real_time_per_core", seconds / spent, "1", peer="of processor time, all threads"),
            Row(f"{name}.bag", sizes[0], "MB"), Row(f"{name}.set", sizes[1], "MB"),
            at_most(f"{name}.position_error", error_of(out / "set"), "rad", 1e-5, "joints against what was recorded")]


def error_of(folder: Path) -> float:
    """Largest difference between the set's joint positions and those that were recorded."""
    found = Dataset.open(folder)  # by column: ten minutes of pictures at once are 14 GB
    begin = float(found.records[0].info["begin_s"]) + 1e-9 * recorded_arm.TRANSPORT_NS
    times = begin + np.arange(found.records[0].length) / RATE_HZ
    return float(np.abs(found.column("joint_pos") - recorded_arm.joints(times)).max())
