"""Figures of columns, as LeRobot's ``stats.json`` and ``stats/...`` columns hold them, and their sum over episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from temporeal.policies.data.episodes import layout
from temporeal.robots.signals import SignalSpec

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
LEFT_OUT = frozenset({layout.DONE, layout.HAS_ACTION, *layout.INDICES})
"""Columns that nobody normalizes."""
NAMES = ("min", "max", "mean", "std", *QUANTILES)
SHARES = np.array(list(QUANTILES.values()))
PICTURES, PIXELS = 32, 4096
"""Pictures of an episode, and pixels of each, that its figures are taken from."""

Figures = dict[str, np.ndarray]


def of_column(values: np.ndarray) -> Figures | None:
    """Figures over the rows of ``values`` [S, *shape] that are finite; None where there is none."""
    rows = values.reshape(len(values), -1).astype(np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not len(rows):
        return None
    ordered, mean = np.sort(rows, axis=0), rows.sum(axis=0) / len(rows)
    deviation = rows - mean
    figures = [ordered[0], ordered[-1], mean, np.sqrt(np.einsum("sd,sd->d", deviation, deviation) / len(rows)),
               *quantiles(ordered)]
    shape = values.shape[1:] or (1,)
    return {**{name: value.reshape(shape) for name, value in zip(NAMES, figures)}, "count": np.array([len(rows)])}


def quantiles(ordered: np.ndarray) -> np.ndarray:
    """The :data:`QUANTILES` [5, D] of sorted rows [S, D], interpolated linearly."""
    place = SHARES * (len(ordered) - 1)
    low = place.astype(int)
    high = np.minimum(low + 1, len(ordered) - 1)
    between: np.ndarray = ordered[low] + (place - low)[:, None] * (ordered[high] - ordered[low])
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

    def add(self, episodes: Sequence[Mapping[str, Figures]]) -> None:
        """More episodes' figures by column."""
        for key in {key: None for of in episodes for key in of}:
            parts = [of[key] for of in episodes if key in of]
            self._take(key, {name: np.stack([part[name] for part in parts]) for name in (*NAMES, "count")})

    def add_table(self, table: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """The figures of rows of ``meta/episodes``, of columns whose figures have these ``shapes``."""
        for key, shape in shapes.items():
            if f"stats/{key}/count" in table.column_names:
                rows = table.filter(pc.is_valid(table.column(f"stats/{key}/count")))
                of = {name: flattened(rows.column(f"stats/{key}/{name}"), shape if name != "count" else (1,))
                      for name in (*NAMES, "count")}
                if len(rows):
                    self._take(key, of)

    def _take(self, key: str, of: Figures) -> None:
        if key in self._sums:
            of = {name: np.concatenate([self._sums[key][name][None], values]) for name, values in of.items()}
        self._sums[key] = together(of)

    def to_json(self) -> dict[str, Any]:
        """What ``stats.json`` holds."""
        return {key: {name: value.tolist() for name, value in of.items()} for key, of in self._sums.items()}


def shape_of(key: str, spec: SignalSpec) -> tuple[int, ...]:
    """The shape of a column's figures."""
    return (3, 1, 1) if key.startswith(layout.PICTURES) else spec.shape or (1,)


def flattened(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A column of nested lists as [rows, *shape]."""
    array = column.combine_chunks()
    while pa.types.is_list(array.type):
        array = array.flatten()
    values: np.ndarray = array.to_numpy(zero_copy_only=False).reshape(-1, *shape)
    return values


def together(of: Figures) -> Figures:
    """Figures [P, ...] of P samples together: the variance is that within them and that between their means."""
    count = of["count"][:, 0]
    share = count / count.sum()

    def mean(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.tensordot(share, values, axes=1))

    middle = mean(of["mean"])
    return {"min": of["min"].min(axis=0), "max": of["max"].max(axis=0), "mean": middle,
            "std": np.sqrt(mean(of["std"] ** 2 + (of["mean"] - middle) ** 2)),
            **{name: mean(of[name]) for name in QUANTILES}, "count": np.array([count.sum()])}


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
