"""Small sets of which everything is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema

DT = 0.1  # s
FLIGHT = Interface(
    "crazyflie", schema(SignalSpec("base_pos_w", (3,), "m", "w"), SignalSpec("base_quat_w", (4,), "wxyz", "w"),
                        SignalSpec("height", (), "m", "w"), SignalSpec("goal_pos_w", (3,), "m", "w")),
    ActionSpec("ctbr_cmd", (0.0, -6.3, -6.3, -3.2), (0.5, 6.3, 6.3, 3.2), "N,rad/s"), 1 / DT, simulator="test")


def climb(top: float, samples: int = 21, *, language: str = "", reward: bool = True, **info) -> Episode:
    """From the floor to ``top`` m in a straight line; the goal is at 1 m; each step is paid what it climbed."""
    height = np.linspace(0.0, top, samples).astype(np.float32)
    pos = np.stack([0 * height, 0.1 * height, height], -1)
    signals = {"base_pos_w": pos, "base_quat_w": np.tile(np.float32([0.8, 0.6, 0.0, 0.0]), (samples, 1)),
               "height": height, "goal_pos_w": np.tile(np.float32([0.0, 0.0, 1.0]), (samples, 1))}
    action = np.tile(np.float32([0.3, 1.0, 2.0, -0.5]), (samples - 1, 1))
    return Episode(signals, action, reward=np.diff(height) if reward else None, success=top >= 1.0, language=language,
                   info=info)


def climbs(folder: Path, tops=(0.5, 1.0, 1.5, 2.0), **options) -> Dataset:
    """A set of climbs."""
    with DatasetWriter(folder, FLIGHT) as writer:
        for k, top in enumerate(tops):
            writer.add(climb(top, 21 + 2 * k, **options))
    return Dataset.open(folder)
