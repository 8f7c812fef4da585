"""The true trajectory of a simulated flight, for judging it afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal_bridge.process.files import whole

RATE_HZ = 100.0  # at most
KEPT_S = 600.0  # the last part: an arm that stands for a day must not fill the memory

Row = tuple[int, Mapping[str, np.ndarray], np.ndarray]
"""Stamp [ns], signals, setpoint [U]."""


class TrueTrajectory:
    """The last KEPT_S of one flight."""

    def __init__(self) -> None:
        self.rows: deque[Row] = deque(maxlen=round(KEPT_S * RATE_HZ))

    def append(self, stamp_ns: int, signals: Mapping[str, np.ndarray], setpoint: np.ndarray) -> None:
        """One state and the setpoint in force."""
        self.rows.append((stamp_ns, signals, setpoint))

    def write(self, path: Path) -> None:
        """As .npz: stamp_ns [T], signals [T, ...], command [T, U]; nothing where there was no flight."""
        if not self.rows:
            return
        arrays: dict[str, Any] = {name: np.stack([row[1][name] for row in self.rows]) for name in self.rows[0][1]}
        arrays["stamp_ns"] = np.array([row[0] for row in self.rows])
        arrays["command"] = np.stack([row[2] for row in self.rows])
        with whole(path) as part:
            np.savez(part, **arrays)
