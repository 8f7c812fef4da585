"""Commands scaled to [-1, 1] by their limits, and nothing else changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface


def of_interface(interface: Interface) -> Interface:
    """The interface with the command in [-1, 1]; its old limits are in ``about["unit_action"]``."""
    action = interface.action
    if not np.isfinite([*action.low, *action.high]).all():
        raise DataError(f"command {action.name!r} has no limits: it cannot be scaled to [-1, 1]")
    return replace(interface, action=replace(action, low=(-1.0,) * action.size, high=(1.0,) * action.size, unit="1"),
                   about={**interface.about, "unit_action": {"low": list(action.low), "high": list(action.high)}})


def scaled(found: Iterable[Episode], interface: Interface) -> Iterator[Episode]:
    """The episodes; ``interface``: that of their own commands."""
    low, high = np.array(interface.action.low), np.array(interface.action.high)
    for each in found:
        action = 2.0 * (each.action - low) / (high - low) - 1.0
        yield replace(each, action=np.clip(action, -1.0, 1.0).astype(np.float32))
