"""Figures of columns, as LeRobot's ``stats.json`` and ``stats/...`` columns hold them, and their sum over episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from temporeal.robots.signals import SignalSpec

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
NAMES = ("min", "max", "mean", "std", *QUANTILES)
PICTURES, PIXELS = 32, 4096
"""Pictures of an episode, and pixels of each, that its figures are taken from."""

Figures = dict[str, np.ndarray]


def of_column(values: np.ndarray) -> Figures | None:
    """Figures over the rows of ``values`` [S, *shape] that are finite; None where there is none."""
    rows = values.reshape(len(values), -1).astype(np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return None
    ordered = np.sort(rows, axis=0)
    figures = {"min": ordered[0], "max": ordered[-1], "mean": rows.mean(axis=0), "std": rows.std(axis=0)}
    figures |= {name: quantile(ordered, share) for name, share in QUANTILES.items()}
    shape = values.shape[1:] or (1,)
    return {**{name: value.reshape(shape) for name, value in figures.items()}, "count": np.array([len(rows)])}


def quantile(ordered: np.ndarray, share: float) -> np.ndarray:
    """The quantile of sorted rows, interpolated linearly."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    between: np.ndarray = ordered[low] + (place - low) * (ordered[high] - ordered[low])
    return between


def of_pictures(pictures: np.ndarray, count: int) -> Figures:
    """Figures per channel, [3, 1, 1] in [0, 1], over some pixels of some pictures.

    Args:
        pictures: [P, H, W, 3] uint8.
        count: pictures of the episode.
    """
    pixels = pictures.reshape(len(pictures), -1, 3)
    step = max(1, pixels.shape[1] // PIXELS)
    figures = of_column(pixels[:, ::step].reshape(-1, 3) / 255.0)
    assert figures is not None, "bytes are finite"
    return {**{name: value.reshape(3, 1, 1) for name, value in figures.items() if name != "count"},
            "count": np.array([count])}


def chosen(count: int) -> np.ndarray:
    """Numbers of the pictures that figures are taken from, of ``count``."""
    return np.unique(np.linspace(0, count - 1, min(count, PICTURES)).round().astype(int))


def flat_row(figures: Mapping[str, Figures]) -> dict[str, Any]:
    """Figures of an episode by column, as cells of its row."""
    return {f"stats/{key}/{name}": value.tolist() for key, of in figures.items() for name, value in of.items()}


class Total:
    """Figures over episodes: exact but for the quantiles, which are weighted means of the episodes' (as LeRobot's)."""

    def __init__(self) -> None:
        self._sums: dict[str, Figures] = {}

    def add(self, figures: Mapping[str, Figures]) -> None:
        """Another episode's figures by column."""
        for key, new in figures.items():
            old = self._sums.get(key)
            self._sums[key] = new if old is None else merged(old, new)

    def to_json(self) -> dict[str, Any]:
        """What ``stats.json`` holds."""
        return {key: {name: value.tolist() for name, value in of.items()} for key, of in self._sums.items()}


def merged(a: Figures, b: Figures) -> Figures:
    """Figures of two samples together (Chan et al. 1979 for the variance)."""
    n, m = float(a["count"][0]), float(b["count"][0])
    share = m / (n + m)
    apart = b["mean"] - a["mean"]
    variance = (1 - share) * a["std"] ** 2 + share * b["std"] ** 2 + share * (1 - share) * apart**2
    out = {"min": np.minimum(a["min"], b["min"]), "max": np.maximum(a["max"], b["max"]),
           "mean": a["mean"] + share * apart, "std": np.sqrt(variance), "count": a["count"] + b["count"]}
    return out | {name: (1 - share) * a[name] + share * b[name] for name in QUANTILES}


def arrow_type(spec: SignalSpec, figure: str) -> Any:
    """The type of a figure's cells: nested lists of the figure's dimensions."""
    kind = pa.int64() if figure == "count" else pa.float64()
    dimensions = 1 if figure == "count" else max(1, len(spec.shape))
    for _ in range(dimensions):
        kind = pa.list_(kind)
    return kind


def of_row(row: Mapping[str, Any]) -> dict[str, Figures]:
    """The figures by column in a row of ``meta/episodes``."""
    episode: dict[str, Figures] = {}
    for name, value in row.items():
        if name.startswith("stats/") and value is not None:
            _, key, figure = name.split("/")
            episode.setdefault(key, {})[figure] = np.asarray(value)
    return {key: figures for key, figures in episode.items() if len(figures) == len(NAMES) + 1}
