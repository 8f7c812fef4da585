"""Signals and commands over time, for the plots beside the replay: those that the formula reads come first."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.policies.evaluate.rollout import Rollout
from temporeal.robots.signals import CommandSpec, SignalSpec
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in

PLOTS = 9  # of an episode: a signal each
WIDEST = 24  # components of a signal that is plotted
INT16 = 32767
CLOCK = "mission_time"  # the axis
AXES = {"_quat_w": "wxyz", "_w": "xyz", "_b": "xyz"}  # by the ends of names of signals that have a frame


def series_of(
    rollout: Rollout, index: int, steps: np.ndarray, formula: Formula, command: CommandSpec | None = None,
    schema: Mapping[str, SignalSpec] | None = None,
) -> list[dict[str, Any]]:
    """The signals of an episode at ``steps`` [K], as the page plots them.

    Each is ``{name, unit, read, parts, low, high, data}``: ``data`` are base64 of int16, little-endian, [K, P], from
    ``low`` (-32767) to ``high`` (32767); -32768 is no number. ``read``: whether the formula reads it; the command's is
    None. Left out are pictures, what has no component, and what comes after the first :data:`PLOTS`.
    """
    specs, read = schema or {}, signals_in(formula)
    names = sorted(rollout.signals, key=lambda name: (name not in read, name.endswith("_quat_w")))
    chosen = [(name, rollout.signals[name][steps, index]) for name in names if name != CLOCK]
    out = [plotted(name, values, specs[name].unit if name in specs else "", name in read)
           for name, values in chosen if plottable(values)]
    given = rollout.commands
    if given is None or not len(given):
        return out[:PLOTS]
    sent = given[np.minimum(steps, len(given) - 1), index]
    shown = command or CommandSpec("command", (sent.shape[-1],), "", low=(0.0,) * sent.shape[-1],
                                   high=(1.0,) * sent.shape[-1])
    rest = [{**plotted(shown.name, sent, shown.unit, False), "read": None}] if plottable(sent) else []
    first = [row for row in out if row["read"]]
    return [*first, *rest, *(row for row in out if not row["read"])][:PLOTS]


def plottable(values: np.ndarray) -> bool:
    """Whether ``values`` [K, ...] are one number or few per sample, and any of them is one."""
    return values.ndim <= 2 and 0 < values[0].size <= WIDEST and bool(np.isfinite(values).any())


def plotted(name: str, values: np.ndarray, unit: str, read: bool) -> dict[str, Any]:
    """``values`` [K] or [K, P] for the page."""
    rows = np.asarray(values, np.float64).reshape(len(values), -1)
    known = np.isfinite(rows)
    low, high = float(rows[known].min()), float(rows[known].max())
    half = max(0.5 * (high - low), 1e-9 * max(abs(high), 1.0))
    scaled = np.where(known, np.clip((rows - 0.5 * (low + high)) / half, -1, 1) * INT16, -INT16 - 1)
    parts = rows.shape[1]
    labels = [""] if values.ndim == 1 else parts_of(name, parts)
    return {"name": name, "unit": unit, "read": read, "parts": labels, "low": 0.5 * (low + high) - half,
            "high": 0.5 * (low + high) + half,
            "data": base64.b64encode(np.rint(scaled).astype("<i2").tobytes()).decode()}


def parts_of(name: str, count: int) -> list[str]:
    """Names of the components: axes where the signal has a frame, else numbers, as a formula counts them."""
    axes = next((axes for end, axes in AXES.items() if name.endswith(end)), "")
    return list(axes[:count]) if count <= len(axes) else [f"{i}" for i in range(count)]
