"""Plot of an explanation: the formula as a tree with verdicts, and the robustness of each part over time.

matplotlib is imported when a plot is made. The same explanation gives the same bytes with one version of matplotlib.
Shape repeats what colour says: ``+`` in a circle holds, ``-`` in a square fails, ``?`` in a diamond is unknown.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.sim.stl.analysis.explanation import Explanation, Obligation, Part
from temporeal.sim.stl.analysis.explanation_text import describe, note, number, operator_text, seconds
from temporeal.sim.stl.analysis.robustness_unit import robustness_unit
from temporeal.sim.stl.analysis.valuation import Numbers
from temporeal.sim.stl.language.propositional import Predicate
from temporeal.sim.stl.semantics.verdicts import SATISFIED, UNDECIDED, VIOLATED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
# blue and vermilion differ for every kind of colour blindness (Okabe and Ito, "Color Universal Design", 2008)
COLOURS = {SATISFIED: "#0072b2", VIOLATED: "#d55e00", UNDECIDED: "#777777"}
SHAPES = {SATISFIED: "o", VIOLATED: "s", UNDECIDED: "D"}
SIGNS = {SATISFIED: "+", VIOLATED: "\N{MINUS SIGN}", UNDECIDED: "?"}

# inches
WIDTH, MARGIN, SPLIT, AXES_LEFT = 12.0, 0.25, 5.9, 6.5
TOP_LINE, LABEL_LINE, DETAIL_LINE, GAP, LEAST_ROW = 0.19, 0.18, 0.15, 0.16, 0.52
INDENT, GLYPH = 0.24, 0.16
MOST_LEVELS, MOST_PARTS = 14, 200  # indented levels, plotted parts
MOST_SHOWN = 1e100  # larger values lie on the edge: axes compute with their limits
FOOT = 0.95
FONT, SMALL = 9.0, 7.5  # points
ADVANCE = 0.602 / 72  # width of a character of the usual monospaced fonts, inches per point of size
STRETCHES = 300  # of a curve: more cannot be distinguished
# coordinates rounded to a hundredth of a point halve the file
_PATH, _LONG = re.compile(rb' d="[^"]*"'), re.compile(rb"(\.\d\d)\d+")


@dataclass(frozen=True)
class _Row:
    """A part of the formula as plotted: its lines, and its top and bottom in inches from the figure's top."""

    part: Part
    obligation: Obligation | None
    label: tuple[str, ...]
    details: tuple[str, ...]
    top: float
    bottom: float

    @property
    def x(self) -> float:
        """Left end of its mark."""
        return MARGIN + _indent(self.part)

    @property
    def y(self) -> float:
        """Middle of its first line."""
        return self.top + LABEL_LINE / 2


def _indent(part: Part) -> float:
    """Inches; the deepest levels share one."""
    return INDENT * min(len(part.path), MOST_LEVELS)


def plot(explanation: Explanation, path: Path | str) -> None:
    """Write the plot to ``path`` in the format of its suffix, one of :data:`FORMATS`.

    Raises a ``ValueError`` for another suffix, and for a formula of more than :data:`MOST_PARTS` parts.
    """
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(f"a plot is {', '.join(f'.{f}' for f in FORMATS)}, not {path.suffix or path.name!r}")
    nothing: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    made = io.BytesIO()
    with _style():
        figure(explanation).savefig(made, format=kind, metadata=nothing, dpi=110)
    content = made.getvalue()
    if kind == "svg":
        content = _PATH.sub(lambda found: _LONG.sub(rb"\1", found[0]), content)
    path.write_bytes(content)


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    fonts = ["DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono", "monospace"]
    with matplotlib.rc_context({
            "svg.hashsalt": "temporeal", "svg.fonttype": "none", "font.family": "monospace", "font.monospace": fonts,
            "font.size": FONT, "axes.linewidth": 0.6, "hatch.linewidth": 0.5, "hatch.color": COLOURS[VIOLATED],
            "path.simplify": False, "text.parse_math": False}):
        yield


def figure(explanation: Explanation) -> Figure:
    """The plot as a matplotlib figure."""
    from matplotlib.figure import Figure

    if len(explanation.parts) > MOST_PARTS:
        raise ValueError(f"the formula has {len(explanation.parts)} parts; a plot shows at most {MOST_PARTS}: plot "
                         "its clauses one by one, or print the explanation")
    with _style():
        heading = _heading(explanation)
        rows = _rows(explanation, MARGIN + TOP_LINE * len(heading) + 0.25)
        height = rows[-1].bottom + FOOT
        fig = Figure(figsize=(WIDTH, height), facecolor="white")
        page = fig.add_axes((0, 0, 1, 1), zorder=-1)
        page.set_xlim(0, WIDTH)
        page.set_ylim(height, 0)
        page.axis("off")
        for k, (line, weight) in enumerate(heading):
            page.text(MARGIN, MARGIN + TOP_LINE * k, line, va="top", weight=weight)
        _tree(page, rows)
        for row in rows:
            box = (AXES_LEFT / WIDTH, 1 - row.bottom / height, 1 - (AXES_LEFT + MARGIN) / WIDTH,
                   (row.bottom - row.top) / height)
            _curve(fig.add_axes(box), explanation, row, last=row is rows[-1])
        _legend(page, height)
    return fig


def _columns(width: float, size: float = FONT) -> int:
    """Characters that fit ``width`` inches."""
    return max(12, int(width / (ADVANCE * size)))


def _wrap(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, break_long_words=True, break_on_hyphens=False) or [""]


def _heading(e: Explanation) -> list[tuple[str, str]]:
    """Lines above the tree, each with its weight."""
    unit = e.decider.unit
    found = number(e.robustness, unit)
    if e.robustness != e.robustness:
        found = f"between {number(e.lower, unit)} and {number(e.upper, unit)}"
    verb = "waits for" if e.verdict == UNDECIDED else "decided by"
    texts = [e.formula, f"{verb}  {'; '.join(describe(e.decider))}"]
    if told := note(e):
        texts.append(f"note: {told}")
    if any(len(part.path) > MOST_LEVELS for part in e.parts):
        texts.append(f"note: parts more than {MOST_LEVELS} levels deep are indented as those of level {MOST_LEVELS}")
    lines = [line for text in texts for line in _wrap(text, _columns(WIDTH - 2 * MARGIN))]
    return [(f"{e.verdict}, robustness {found}", "bold"), *((line, "normal") for line in lines)]


# ---------------------------------------------------------------- the tree


def _rows(e: Explanation, top: float) -> list[_Row]:
    obligations = {o.path: o for o in e.obligations}
    out: list[_Row] = []
    for part in e.parts:
        width = SPLIT - MARGIN - _indent(part) - 1.6 * GLYPH
        label = tuple(_wrap(operator_text(part.formula), _columns(width)))
        obligation = obligations.get(part.path)
        texts = _details(part, obligation, e.dt)
        details = tuple(line for text in texts for line in _wrap(text, _columns(width, SMALL)))
        height = max(LEAST_ROW, LABEL_LINE * len(label) + DETAIL_LINE * len(details) + 0.04)
        out.append(_Row(part, obligation, label, details, top, top + height))
        top += height + GAP
    return out


def _details(part: Part, obligation: Obligation | None, dt: float) -> list[str]:
    """Verdict, value and time at which the part matters, and how its deadline was kept."""
    if part.sample is None:
        return ["not asked for"]
    found = f" {number(part.value, robustness_unit(part.formula))}" if part.value == part.value else ""
    out = [f"{part.verdict}{found} at {seconds(part.sample * dt)}"]
    if obligation is not None and isfinite(obligation.due_s):
        o = obligation
        met = f"met at {seconds(o.met_s)}, slack {seconds(o.slack_s)}"
        kept = {"never": "never met", "open": "open"}.get(o.state, met)
        out.append(f"due at {seconds(o.due_s)}: {kept}")
    return out


def _tree(page: Any, rows: list[_Row]) -> None:
    above = {row.part.path: row for row in rows}
    for row in rows:
        parent = above.get(row.part.path[:-1]) if row.part.path else None
        if parent is not None:
            heavy = row.part.deciding
            page.plot([parent.x + GLYPH / 2] * 2 + [row.x], [parent.y, row.y, row.y], zorder=2 if heavy else 1,
                      color="black" if heavy else "#999999", linewidth=2.0 if heavy else 0.8)
    for row in rows:
        asked = row.part.sample is not None
        verdict = row.part.verdict if asked else UNDECIDED
        page.scatter(row.x + GLYPH / 2, row.y, s=130, marker=SHAPES[verdict], zorder=3, edgecolors="black",
                     facecolors=COLOURS[verdict] if asked else "white", linewidths=1.6 if row.part.deciding else 0.5)
        page.text(row.x + GLYPH / 2, row.y, SIGNS[verdict] if asked else "", ha="center", va="center_baseline",
                  color="white", weight="bold", zorder=4)
        x = row.x + 1.6 * GLYPH
        for k, line in enumerate(row.label):
            page.text(x, row.top + LABEL_LINE * k, line, va="top", weight="bold" if row.part.deciding else "normal")
        for k, line in enumerate(row.details):
            page.text(x, row.top + LABEL_LINE * len(row.label) + DETAIL_LINE * k, line, va="top", size=SMALL,
                      color="#444444")


def _legend(page: Any, height: float) -> None:
    """The legend, in two lines at the foot."""
    y, columns = height - 0.32, (MARGIN, 2.5, 4.6, 7.3, 9.9)
    texts = ("holds", "fails", "unknown", "sample that decides", "sample asked for")
    for x, text, verdict in zip(columns, texts, (SATISFIED, VIOLATED, UNDECIDED)):
        page.scatter(x + 0.08, y, s=90, marker=SHAPES[verdict], color=COLOURS[verdict], edgecolors="black",
                     linewidths=0.5)
        page.text(x + 0.08, y, SIGNS[verdict], ha="center", va="center_baseline", color="white", weight="bold",
                  size=SMALL)
        page.text(x + 0.25, y, text, va="center_baseline", size=SMALL)
    for x, text, face in zip(columns[3:], texts[3:], ("black", "white")):
        page.scatter(x + 0.08, y, s=40, marker="o", facecolors=face, edgecolors="black")
        page.text(x + 0.25, y, text, va="center_baseline", size=SMALL)
    y += 0.2
    page.fill_between([MARGIN, MARGIN + 0.16], y - 0.06, y + 0.06, color="#bbbbbb", linewidth=0)
    page.text(MARGIN + 0.25, y, "samples that may matter", va="center_baseline", size=SMALL)
    page.scatter(columns[4] + 0.08, y, s=90, marker=SHAPES[UNDECIDED], facecolors="white", edgecolors="black",
                 linewidths=0.5)
    page.text(columns[4] + 0.25, y, "not asked for", va="center_baseline", size=SMALL)
    for x, marker, text in ((columns[2], "v", "deadline"), (columns[3], "^", "obligation met")):
        page.scatter(x + 0.08, y, s=30, marker=marker, color="black")
        page.text(x + 0.25, y, text, va="center_baseline", size=SMALL)


# ---------------------------------------------------------------- the curves


def _curve(ax: Any, e: Explanation, row: _Row, last: bool) -> None:
    """Robustness of one part over time."""
    from matplotlib.ticker import MaxNLocator

    times, values = _thinned(e.times, row.part.robustness)
    finite = np.clip(values[np.isfinite(values)], -MOST_SHOWN, MOST_SHOWN)
    low, high = (min(0.0, float(finite.min())), max(0.0, float(finite.max()))) if len(finite) else (0.0, 0.0)
    pad = 0.18 * (high - low) or 0.5
    low, high = low - pad, high + pad
    shown = np.clip(values, low, high)  # an infinite value lies on the edge
    end = _end(e)
    if row.part.matters is not None:
        first, final = row.part.matters
        half = e.dt / 2
        ax.axvspan(first * e.dt - half, final * e.dt + half, color="#bbbbbb", alpha=0.45, linewidth=0)
    ax.axhline(0, color="black", linewidth=0.6)
    style = {"linewidth": 0, "interpolate": True}
    ax.fill_between(times, 0, shown, where=shown >= 0, facecolor=COLOURS[SATISFIED], alpha=0.35, **style)
    ax.fill_between(times, 0, shown, where=shown <= 0, facecolor="#fbe3d4", hatch="////",
                    edgecolor=COLOURS[VIOLATED], **style)
    ax.plot(times, shown, color="black", linewidth=1.1, marker="." if len(times) < 40 else None, markersize=3)
    _marks(ax, e, row, (low, high))
    ax.set_xlim(-0.01 * end, end * 1.01)
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    ax.tick_params(labelsize=SMALL - 0.5, length=2, pad=1.5, labelbottom=last)
    ax.grid(axis="x", color="#dddddd", linewidth=0.5)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    unit = robustness_unit(row.part.formula)
    if unit and isinstance(row.part.formula, Predicate):
        ax.text(1.003, 0.5, unit, transform=ax.transAxes, va="center", size=SMALL - 0.5)
    if not len(finite):
        said = {1: "true (inf) throughout", -1: "false (-inf) throughout"}.get(_constant(row.part), "no finite value")
        ax.text(0.5, 0.75, said, transform=ax.transAxes, ha="center", va="center", size=SMALL)
    if last:
        ax.set_xlabel("s since the first sample", size=SMALL)


def _constant(part: Part) -> int:
    verdicts = set(part.verdicts.tolist())
    return int(verdicts.pop()) if len(verdicts) == 1 else 0


def _marks(ax: Any, e: Explanation, row: _Row, limits: tuple[float, float]) -> None:
    """The sample that matters, the deadline, and when it was met."""
    part, o = row.part, row.obligation
    if o is not None and isfinite(o.due_s):
        ax.axvline(o.due_s, color="black", linestyle=(0, (4, 2)), linewidth=1.0)
        ax.plot([o.due_s], [limits[1]], marker="v", color="black", markersize=6, clip_on=False)
    if o is not None and isfinite(o.met_s):
        ax.plot([o.met_s], [limits[0]], marker="^", color="black", markersize=6, clip_on=False)
    if part.sample is None:
        return
    if part.deciding:
        ax.axvline(part.sample * e.dt, color="black", linewidth=0.9)
    value = part.value if part.value == part.value else 0.0
    ax.plot([part.sample * e.dt], [min(max(value, limits[0]), limits[1])], marker="o", markersize=5, color="black",
            markerfacecolor="black" if part.deciding else "white", clip_on=False, zorder=5)


def _end(e: Explanation) -> float:
    """Right end of the time axis: the trace's, or that of deadlines not far beyond it."""
    last = (e.samples - 1) * e.dt
    dues = [o.due_s for o in e.obligations if isfinite(o.due_s) and o.due_s <= 1.5 * last]
    asked = [p.sample * e.dt for p in e.parts if p.sample is not None]
    return max([last, *dues, *asked]) or e.dt


def _thinned(times: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """Some hundred points that look the same: the least and greatest of every stretch."""
    if len(times) <= 2 * STRETCHES:
        return times, values
    kept: list[int] = [0, len(times) - 1]
    for part in np.array_split(np.arange(len(times)), STRETCHES):
        stretch = np.where(np.isnan(values[part]), 0.0, values[part])
        kept += [int(part[0] + stretch.argmin()), int(part[0] + stretch.argmax())]
    chosen = np.unique(kept)
    return times[chosen], values[chosen]
