"""What the nodes of one mission have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robots.signals import SignalSpec

MISSION_TIME = SignalSpec("mission_time", (), "s")


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the maximum in milliseconds; None where nothing was measured."""
    if not seconds:
        return {"p50": None, "p99": None, "max": None}
    p50, p99, top = np.percentile(seconds, [50, 99, 100]) * 1e3
    return {"p50": float(p50), "p99": float(p99), "max": float(top)}
