"""Signals of many episodes over time, as a picture (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError

COLOURS = {True: "#0f7a5a", False: "#c2362b", None: "#5c6878"}  # of success, failure, and what nobody judged
OTHERS = {"action": layout.ACTION, "reward": layout.REWARD}
PANELS = 60  # at most: more cannot be read
FEW = 24  # components of a signal that is drawn without being named


def plot(path: Path, data: Dataset, names: Sequence[str] | None, episodes: Sequence[int]) -> int:
    """Draw ``names`` (None: all signals that are numbers) of ``episodes``, a panel for each component; how many."""
    from matplotlib.figure import Figure

    columns = {name: np.asarray(data.column(OTHERS.get(name, name))) for name in checked(data, names)}
    panels = [(name, k) for name, values in columns.items() for k in range(int(np.prod(values.shape[1:])))]
    if not panels or not episodes:
        raise DataError(f"{data.folder}: there is nothing to draw")
    if len(panels) > PANELS:
        raise DataError(f"{len(panels)} panels, one for each component; at most {PANELS}: name fewer signals")
    wide = min(3, len(panels))
    high = -(-len(panels) // wide)
    figure = Figure(figsize=(4.2 * wide, 2.2 * high), layout="constrained")
    for number, (name, k) in enumerate(panels):
        axes = figure.add_subplot(high, wide, number + 1)
        draw(axes, data, columns[name].reshape(len(columns[name]), -1)[:, k], episodes)
        unit = unit_of(data, name)
        part = "" if columns[name].ndim == 1 else f"[{k}]"
        axes.set_title(f"{name}{part}{f' ({unit})' if unit not in ('', '1') else ''}", fontsize=9)
        axes.tick_params(labelsize=7)
    figure.supxlabel("time (s)", fontsize=9)
    figure.savefig(path, dpi=110)
    return len(panels)


def draw(axes: Any, data: Dataset, values: np.ndarray, episodes: Sequence[int]) -> None:
    """One component of all ``episodes``."""
    for e in episodes:
        rows = values[data.starts[e] : data.starts[e + 1]]
        axes.plot(np.arange(len(rows)) / data.interface.rate_hz, rows, lw=0.8, color=COLOURS[data.records[e].success],
                  alpha=max(0.15, min(1.0, 8 / len(episodes))))


def checked(data: Dataset, names: Sequence[str] | None) -> list[str]:
    """The names of what is drawn: there, and numbers."""
    numbers = [name for name, spec in data.interface.signals.items() if not layout.is_picture(spec)]
    if names is None:
        return [name for name in numbers if data.interface.signals[name].size <= FEW]
    for name in names:
        if name not in numbers and name not in OTHERS:
            raise DataError(f"{data.folder}: {name!r} cannot be drawn; there are {', '.join((*numbers, *OTHERS))}")
    return list(names)


def unit_of(data: Dataset, name: str) -> str:
    """Its unit."""
    if name in data.interface.signals:
        return data.interface.signals[name].unit
    return data.interface.action.unit if name == "action" else ""
