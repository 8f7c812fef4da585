"""Plots as SVG text, coloured by the page's style sheet: small, sharp, and right in light and dark."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

import numpy as np

WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 14, 34


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About ``count`` round numbers (1, 2 or 5 times a power of ten apart) that lie in [low, high]."""
    raw = (high - low) / max(count, 1)
    power = 10.0 ** floor(log10(raw))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]


def span(values: np.ndarray, include: tuple[float, ...] = ()) -> tuple[float, float]:
    """A range around the finite ``values`` and the numbers to include; never empty."""
    finite = np.concatenate([np.asarray(values, float)[np.isfinite(values)], np.asarray(include, float)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    pad = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-3)
    return low - pad, high + pad


def histogram(
    values: np.ndarray, *, title: str, unit: str, bins: int = 40, split: bool = True, step: float = 0.0
) -> str:
    """Histogram of the finite ``values``: bars below zero in the colour of failure if ``split``; the median marked.

    ``step``: values are multiples of it, so that bars must be too, or some would cover more multiples than others.
    Values far below the rest are counted in a note, or they would press the rest into one bar.
    """
    finite = np.asarray(values, float)[np.isfinite(values)]
    if not len(finite):
        return f'<p class="muted">{escape(title)}: no finite value.</p>'
    everything, finite = finite, finite[finite >= outlier_limit(finite)]
    low, high = span(finite, (0.0,))
    width = (high - low) / bins
    width = step * max(round(width / step), 1) if step else width
    # zero is an edge, so that no bar is half failure, half success
    edges = np.arange(floor(low / width), ceil(high / width) + 1) * width - (step / 2)
    counts, _ = np.histogram(finite, edges)
    top = max(int(counts.max()), 1)

    def x(value: float) -> float:
        return LEFT + (value - float(edges[0])) / float(edges[-1] - edges[0]) * (WIDTH - LEFT - RIGHT)

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - count / top * (HEIGHT - TOP - BOTTOM)

    parts = [opening(title, f"{len(everything)} values from {everything.min():.3g} to {everything.max():.3g} {unit}")]
    if len(finite) < len(everything):
        parts.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">{len(everything) - len(finite)} further left, down to '
                     f"{everything.min():.3g}</text>")
    for count, left, right in zip(counts, edges[:-1], edges[1:]):
        if count:
            kind = ("bad" if right <= 1e-9 else "good") if split else "accent"
            parts.append(f'<rect class="{kind}" x="{x(left) + 0.5:.1f}" y="{y(count):.1f}" '
                         f'width="{max(x(right) - x(left) - 1, 1):.1f}" height="{y(0) - y(count):.1f}">'
                         f"<title>{left:.3g} to {right:.3g}: {count}</title></rect>")
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>')
    for value in ticks(float(edges[0]), float(edges[-1])):
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(unit)}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{y(top) + 4:.1f}" text-anchor="end">{top}</text>')
    parts.append(f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{y(0):.1f}"/>')
    median = float(np.median(everything))
    side, shift = ("end", -4) if x(median) > WIDTH / 2 else ("start", 4)
    parts.append(f'<line class="mark" x1="{x(median):.1f}" x2="{x(median):.1f}" y1="{TOP - 4}" y2="{y(0):.1f}"/>')
    parts.append(f'<text x="{x(median) + shift:.1f}" y="{TOP}" text-anchor="{side}">median {median:.3g}</text>')
    return "".join(parts) + "</svg>"


def outlier_limit(values: np.ndarray) -> float:
    """Three times the distance from the median to the 2 % quantile below the median; never within the bulk."""
    median, low = np.quantile(values, [0.5, 0.02])
    limit = float(median - 3 * (median - low))
    return limit if limit < low else float(values.min())


POINTS = 400  # of a curve: more are averaged


def curve(steps: np.ndarray, values: np.ndarray, *, title: str, across: str, unit: str = "") -> str:
    """A line through ``values`` [M] over ``steps`` [M], which grow. A ``share`` is shown between 0 and 1."""
    if len(steps) > POINTS:
        groups = np.array_split(np.arange(len(steps)), POINTS)
        steps, values = (np.array([x[group].mean() for group in groups]) for x in (steps, values))
    (left, right), (low, high) = (float(steps[0]), float(steps[-1])), span(
        values, (0.0, 1.0) if unit == "share" else ())
    right = right if right > left else left + 1.0

    def x(value: float) -> float:
        return LEFT + 14 + (value - left) / (right - left) * (WIDTH - LEFT - 14 - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [opening(title, f"from {values[0]:.3g} to {values[-1]:.3g} {unit} over {right:.3g} {across}")]
    for value in ticks(low, high, 4):
        parts.append(f'<line class="axis" x1="{x(left):.1f}" x2="{x(right):.1f}" y1="{y(value):.1f}" '
                     f'y2="{y(value):.1f}"/><text x="{x(left) - 6:.1f}" y="{y(value) + 4:.1f}" text-anchor="end">'
                     f"{value:g}</text>")
    for value in ticks(left, right):
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{thousands(value)}'
                     "</text>")
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(steps.tolist(), values.tolist()))
    parts.append(f'<polyline class="curve" points="{line}"/>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(across)}</text>')
    if unit:
        parts.append(f'<text x="{LEFT + 20}" y="{TOP - 3}">{escape(unit)}</text>')
    return "".join(parts) + "</svg>"


def thousands(value: float) -> str:
    """``value`` with k or M."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def interval(low: float, estimate: float, high: float, require: float | None = None, start: float = 0.0) -> str:
    """A probability and its interval on the axis from ``start`` to 1; a required value as a thin line."""
    def x(value: float) -> float:
        return 2 + 196 * (min(max(value, start), 1.0) - start) / (1 - start)

    kind = "accent" if require is None else ("good" if estimate >= require else "bad")
    text = f"{estimate:.4g}, interval {low:.4g} to {high:.4g}, axis from {start:g} to 1"
    parts = [f'<svg class="interval" viewBox="0 0 200 16" preserveAspectRatio="none" role="img" aria-label="{text}">',
             '<line class="axis" x1="2" x2="198" y1="8" y2="8"/>',
             f'<rect class="{kind}" opacity="0.35" x="{x(low):.1f}" y="3" width="{max(x(high) - x(low), 1.5):.1f}" '
             'height="10"/>',
             f'<rect class="{kind}" x="{x(estimate) - 1.5:.1f}" y="1" width="3" height="14"/>']
    if require is not None:
        parts.append(f'<line class="mark" x1="{x(require):.1f}" x2="{x(require):.1f}" y1="0" y2="16"/>')
    return "".join(parts) + "</svg>"


def opening(title: str, description: str) -> str:
    """The start of a plot that a screen reader can name."""
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}: {escape(description)}">'
            f"<title>{escape(title)}</title><desc>{escape(description)}</desc>")
