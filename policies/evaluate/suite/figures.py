"""SVG figures of `temporeal.policies.evaluate.suite.page`: charts of success, trajectories over regions, heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite, log10
from statistics import fmean
from typing import Any

from temporeal.policies.evaluate.report.charts import ticks
from temporeal.policies.evaluate.suite.averages import DONE, Share, Trial, of
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.evaluate.suite.timing import is_pooled

COLORS = ("#1f62c9", "#8aa9dd", "#2b3a67", "#c2362b", "#e08a2e", "#0f7a5a", "#7a4fbf", "#b0488f", "#6b7280", "#a28c1a")
WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 130, 12, 40
SIDE = 240.0  # px of a picture of regions
BINS = 30  # of the time of training, over which curves are averaged

Points = Sequence[tuple[float, float]]
Point = Sequence[float]


def color_of(title: str) -> str:
    """Colour of a method, the same in all figures."""
    titles = [method.title for method in METHODS.values()]
    return COLORS[(titles.index(title) if title in titles else len(title)) % len(COLORS)]


# ---------------------------------------------------------------- charts


def horizon_chart(found: Mapping[str, Sequence[tuple[int, Share]]]) -> str:
    """Success against control steps (logarithmic) by title of method, with intervals."""
    steps = sorted({x for points in found.values() for x, _ in points})
    low, high = log10(steps[0]), max(log10(steps[-1]), log10(steps[0]) + 1e-3)

    def x(value: float) -> float:
        return LEFT + (log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [opened("Success against horizon", WIDTH, HEIGHT), *frame([(x(s), str(s)) for s in steps], "control steps")]
    for row, (title, points) in enumerate(found.items()):
        color = color_of(title)
        parts += [f'<line class="whisker" stroke="{color}" x1="{x(s):.1f}" x2="{x(s):.1f}" y1="{at(share.low):.1f}" '
                  f'y2="{at(share.high):.1f}"/>' for s, share in points]
        parts.append(curve([(x(s), at(share.estimate)) for s, share in points], title, row))
    return "".join(parts) + "</svg>"


def learning_chart(trials: Sequence[Trial]) -> str:
    """Pooled success of the training's own episodes against its time, mean over formulas and seeds; empty without
    pooled curves."""
    trials = [t for t in trials if t.get("curve") and is_pooled(t)]
    longest = max((t["curve"][-1][0] for t in trials), default=0.0)
    if longest <= 0.0:
        return ""
    times = [longest * i / BINS for i in range(1, BINS + 1)]

    def x(value: float) -> float:
        return LEFT + value / longest * (WIDTH - LEFT - RIGHT)

    parts = [opened("Success while learning", WIDTH, HEIGHT),
             *frame([(x(s), f"{s:g}") for s in ticks(0.0, longest)], "s of learning, exploring policies")]
    row = 0
    for key, method in METHODS.items():
        curves = [t["curve"] for t in of(trials, method=key, status=DONE)]
        if curves:
            means = [fmean(last_before(c, s) for c in curves) for s in times]
            parts.append(curve([(x(s), at(y)) for s, y in zip(times, means)], method.title, row))
            row += 1
    return "".join(parts) + "</svg>"


def last_before(points: Sequence[Sequence[float]], seconds: float) -> float:
    """Success of a curve [[s, steps, success], ...] at a time: the last known value, 0 before the first."""
    return next((p[2] for p in reversed(points) if p[0] <= seconds), 0.0)


def at(share: float) -> float:
    """Vertical position of a share, px."""
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def frame(marks: Sequence[tuple[float, str]], unit: str) -> list[str]:
    """Axes of a chart of shares."""
    right = WIDTH - RIGHT
    out = [f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{at(y):.1f}" y2="{at(y):.1f}"/>'
           f'<text x="{LEFT - 6}" y="{at(y) + 4:.1f}" text-anchor="end">{y:g}</text>' for y in (0, 0.25, 0.5, 0.75, 1)]
    out += [f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>' for x, text in marks]
    return [*out, f'<text x="{right}" y="{HEIGHT - 6}" text-anchor="end">{escape(unit)}</text>']


def curve(points: Points, title: str, row: int) -> str:
    """A line with markers and its entry in the legend."""
    color, y = color_of(title), TOP + 8 + 18 * row
    text = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.2" fill="{color}"/>' for a, b in points)
    return (f'<polyline class="line" stroke="{color}" points="{text}"/>{dots}'
            f'<line class="line" stroke="{color}" x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 34}" y1="{y}" '
            f'y2="{y}"/><text x="{WIDTH - RIGHT + 40}" y="{y + 4}">{escape(title)}</text>')


def opened(title: str, width: float, height: float) -> str:
    """The opening tag of a figure, with a title for screen readers."""
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
            f"<title>{escape(title)}</title>")


# ---------------------------------------------------------------- trajectories


def scene(trial: Trial) -> str:
    """The regions of a trial's formula with its episodes; spatial robots from above and from the side."""
    shapes, paths = trial["shapes"], trial["paths"]
    views = [(0, 1)] if trial.get("planar", True) else [(0, 1), (0, 2)]
    return "".join(view(shapes, paths, axes, trial["task"]) for axes in views)


def view(
    shapes: Sequence[Mapping[str, Any]], paths: Sequence[Mapping[str, Any]], axes: tuple[int, int], title: str
) -> str:
    """One projection: coordinates ``axes`` to the right and up, at equal scale."""
    low, high = extent(shapes, paths, axes)
    scale = SIDE / max(high[0] - low[0], 1e-6)
    height = scale * (high[1] - low[1])

    def place(point: Point) -> tuple[float, float]:
        return scale * (point[axes[0]] - low[0]), height - scale * (point[axes[1]] - low[1])

    # what is large lies below what is small
    ordered = sorted(shapes, key=lambda s: s.get("role") != "fence")
    parts = [opened(f"{title}, {'xyz'[axes[0]]} and {'xyz'[axes[1]]}", SIDE, height)]
    parts += [region(shape, axes, place, scale) for shape in ordered]
    for path in paths:
        points = [place(p) for p in path["points"]]
        text = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline class="path{"" if path["satisfied"] else " failed"}" points="{text}"/>'
                     f'<circle class="start" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.5"/>')
    return "".join(parts) + "</svg>"


def extent(
    shapes: Sequence[Mapping[str, Any]], paths: Sequence[Mapping[str, Any]], axes: tuple[int, int]
) -> tuple[list[float], list[float]]:
    """Limits of a figure, m: the arena and all episodes, with a margin."""
    arena = [s for s in shapes if s.get("role") == "fence"] or shapes
    ends = [bounds(shape) for shape in arena]
    low, high = [], []
    for axis in axes:
        values = [e[side][axis] for e in ends for side in (0, 1)]
        values += [p[axis] for path in paths for p in path["points"]]
        values = [v for v in values if isfinite(v)] or [0.0, 1.0]
        pad = 0.03 * max(max(values) - min(values), 1e-3)
        low.append(min(values) - pad)
        high.append(max(values) + pad)
    return low, high


def bounds(shape: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Low and high corner of a region."""
    if shape["type"] == "box":
        return list(shape["low"]), list(shape["high"])
    c, r = shape["center"], shape["radius"]
    top = c[2] + shape["height"] if shape["type"] == "cylinder" else c[2] + r
    bottom = c[2] if shape["type"] == "cylinder" else c[2] - r
    return [c[0] - r, c[1] - r, bottom], [c[0] + r, c[1] + r, top]


def region(shape: Mapping[str, Any], axes: tuple[int, int], place: Any, scale: float) -> str:
    """A region in one projection: a circle where its section is round, else a rectangle."""
    role, name = shape.get("role", "avoid"), escape(str(shape.get("name", "")))
    low, high = bounds(shape)
    x, top = place(high)[0], place(high)[1]
    left, bottom = place(low)
    title = f"<title>{name}</title>"
    if shape["type"] == "sphere" or (shape["type"] == "cylinder" and axes == (0, 1)):
        cx, cy = place(shape["center"])
        drawn = f'<circle class="{role}" cx="{cx:.1f}" cy="{cy:.1f}" r="{scale * shape["radius"]:.1f}">{title}</circle>'
    else:
        cx, cy = (left + x) / 2, (top + bottom) / 2
        drawn = (f'<rect class="{role}" x="{left:.1f}" y="{top:.1f}" width="{x - left:.1f}" '
                 f'height="{max(bottom - top, 1.0):.1f}">{title}</rect>')
    text = "" if role == "fence" else (f'<text class="label" x="{cx:.1f}" y="{cy + 3:.1f}" text-anchor="middle">'
                                       f"{name}</text>")
    return drawn + text


# ---------------------------------------------------------------- heat maps


def heat_map(heat: Mapping[str, Any]) -> str:
    """Heat map of ``value`` [Y][X] (None: not allowed) over times ``x`` [X] and ``y`` [Y] s; ``best`` is marked."""
    xs, ys, rows = heat["x"], heat["y"], heat["value"]
    values = [v for row in rows for v in row if v is not None]
    if not values:
        return '<p class="muted">No legal times.</p>'
    low, high = min(values), max(values)
    left, top, width, height = 40.0, 8.0, 240.0, 240.0
    cell = width / len(xs), height / len(ys)
    parts = [opened("Value of schedules", 345, 270)]
    for j, row in enumerate(rows):
        for i, value in enumerate(row):
            if value is not None:
                share = (value - low) / max(high - low, 1e-9)
                parts.append(f'<rect x="{left + i * cell[0]:.1f}" y="{top + height - (j + 1) * cell[1]:.1f}" '
                             f'width="{cell[0] + 0.4:.1f}" height="{cell[1] + 0.4:.1f}" fill="{heat_color(share)}">'
                             f"<title>{xs[i]:g} s, {ys[j]:g} s: {value:g}</title></rect>")
    cx = left + width * (nearest(xs, heat["best"][0]) + 0.5) / len(xs)
    cy = top + height * (1.0 - (nearest(ys, heat["best"][1]) + 0.5) / len(ys))
    parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="6" fill="none" stroke="#ffffff" stroke-width="2"/>')
    for i in (0, len(xs) - 1):
        parts.append(f'<text x="{left + width * (i + 0.5) / len(xs):.1f}" y="{top + height + 14:.0f}" '
                     f'text-anchor="middle">{xs[i]:g}</text>')
    for j in (0, len(ys) - 1):
        parts.append(f'<text x="{left - 4:.0f}" y="{top + height * (1 - (j + 0.5) / len(ys)) + 4:.1f}" '
                     f'text-anchor="end">{ys[j]:g}</text>')
    for i in range(20):
        parts.append(f'<rect x="290" y="{top + height - (i + 1) * height / 20:.1f}" width="12" '
                     f'height="{height / 20 + 0.4:.1f}" fill="{heat_color(i / 19)}"/>')
    parts.append(f'<text x="305" y="{top + 10:.0f}">{high:.3g}</text><text x="305" y="{top + height:.0f}">{low:.3g}'
                 "</text></svg>")
    axes = f'<div class="small muted">right, s: {escape(heat["x_label"])}<br>up, s: {escape(heat["y_label"])}</div>'
    return "".join(parts) + axes


def nearest(values: Sequence[float], wanted: float) -> int:
    """Index of the value nearest to ``wanted``."""
    return min(range(len(values)), key=lambda i: abs(values[i] - wanted))


STOPS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Of the colour map viridis (matplotlib, CC0) at equal distances."""


def heat_color(share: float) -> str:
    """Colour of a share, dark at 0 to bright at 1."""
    place = min(max(share, 0.0), 1.0) * (len(STOPS) - 1)
    i = min(int(place), len(STOPS) - 2)
    mixed = (round(a + (b - a) * (place - i)) for a, b in zip(STOPS[i], STOPS[i + 1]))
    return "#" + "".join(f"{c:02x}" for c in mixed)
