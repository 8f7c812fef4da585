"""A log of a flight as one self-contained page: the verdict of each check, and plots of what was compared."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from temporeal.policies.data.flight_logs import clocks
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    GOOD,
    MARKED,
    RATES,
    SPECS,
    UNKNOWN,
    VELOCITY,
    WRONG,
    Finding,
    Marks,
    Numbers,
    letters,
)
from temporeal.policies.data.flight_logs.inspection import Inspection
from temporeal.policies.data.flight_logs.motion import Even, stretches
from temporeal.policies.data.flight_logs.physics import smoothed
from temporeal.policies.evaluate.report.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, opening, span, ticks
from temporeal.robots.atomic_files import write_whole

POINTS = 700
"""Of a line; of more samples, the lowest and the highest of each group are kept."""
EDGE = LEFT + 14
SIGNS = {GOOD: "✓", MARKED: "!", WRONG: "✗", UNKNOWN: "?"}
KINDS = {GOOD: "good", WRONG: "bad", MARKED: "bad", UNKNOWN: "muted"}
STYLE = """
svg .trace { fill: none; stroke-width: 1.2; stroke-linejoin: round; }
svg .second { stroke-dasharray: 5 3; }
svg .lost { fill: var(--bad); opacity: 0.22; }
svg circle { fill: var(--accent); }
"""


OPENING = ('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
           '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Log ')


def is_log_page(path: Path) -> bool:
    """Whether a file begins as such a page does."""
    with path.open("rb") as file:
        return file.read(len(OPENING)) == OPENING.encode()


def write_log_page(path: Path, found: Inspection) -> Path:
    """Write the page."""
    body = "\n".join([head(found), table(found.findings), comparisons(found), signals(found)])
    title = escape(found.log.name)
    # not by report/page.py, which imports what evaluates policies, and torch
    style = files("temporeal.policies.evaluate.report").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    write_whole(path, (
        f"{OPENING}{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>"
        "\n</body>\n</html>\n").encode())
    return path


def panel(title: str, content: str) -> str:
    """A titled box."""
    return f'<div class="panel"><h3>{title}</h3>{content}</div>'


# ---------------------------------------------------------------- words


def head(found: Inspection) -> str:
    """Title and facts."""
    log = found.log
    facts = {"kind": log.kind, "robot": log.robot or "not named", **{
        name: f"{len(stream.times)} samples, {1 / stream.period:.4g} Hz" for name, stream in log.streams.items()
        if stream.period > 0}}
    line = " · ".join(f"{escape(name)}: {escape(text)}" for name, text in facts.items())
    notes = "".join(f'<p class="muted small">{escape(note)}</p>' for note in log.notes)
    counts = ", ".join(f"{len(found.of(status))} {status}" for status in SIGNS if found.of(status))
    return (f'<div class="top" id="top"><div><h1>{escape(log.name)}</h1><p class="muted">{line}</p>{notes}</div>'
            f'</div><div class="cards"><div class="panel card"><div class="big {KINDS[found.verdict]}">{found.verdict}'
            f"</div>{counts}</div></div>")


def table(findings: Sequence[Finding]) -> str:
    """A row for each finding."""
    rows = "".join(f'<tr><td class="{KINDS[each.status]}">{SIGNS[each.status]} {each.status}</td><td>{each.check}</td>'
                   f"<td>{escape(each.subject)}</td><td>{escape(each.said)}</td></tr>" for each in findings)
    return ('<h2>Checks</h2><div class="panel scroll"><table><tr><th>verdict</th><th>check</th><th>of</th><th></th>'
            f"</tr>{rows}</table></div>")


# ---------------------------------------------------------------- what was compared


def comparisons(found: Inspection) -> str:
    """The gyro over the derivative of orientation, the accelerometer over motion, thrust over commands, the clocks."""
    even = found.even
    if even is None:
        return ""
    drawn = list[str]()
    if even.has(RATES, ATTITUDE):
        drawn += pairs(even, smoothed(even, even.values[RATES]), clocks.whole_rates(even), "rad/s",
                       "gyro", "derivative of the orientation")
    if even.has(ACCELERATION, ATTITUDE, VELOCITY):
        moved, measured = clocks.accelerations(even)
        drawn += pairs(even, measured, moved, "m/s²", "accelerometer", "motion and gravity")
    if even.has(ACCELERATION, COMMAND) and even.flying.any():
        drawn.append(panel("Vertical acceleration, and dashed the motors' command scaled to it, without what is slow",
                           of_thrust(even)))
    return (f'<h2>What was compared</h2><div class="grid">{"".join(drawn)}{shifts(even)}</div>') if drawn else ""


def of_thrust(even: Even) -> str:
    """Acceleration and command from the first to the last moment of flight: take-off and landing would hide it."""
    at = np.flatnonzero(even.flying)
    shown = slice(int(at[0]), int(at[-1]) + 1)
    thrust = clocks.quick(even, even.values[ACCELERATION][:, 2:])
    told = clocks.quick(even, even.values[COMMAND].sum(1, keepdims=True))
    told = told * (thrust[even.flying].std() / max(float(told[even.flying].std()), 1e-9))
    return chart(even.times[shown], np.concatenate([thrust, told], 1)[shown], "thrust", "m/s²", second=1)


def pairs(even: Even, measured: Numbers, other: Numbers, unit: str, name: str, against: str) -> list[str]:
    """A plot for each axis: what was measured, and, dashed, what it should be."""
    return [panel(f"{axis}: {escape(name)}, and dashed {escape(against)}",
                  chart(even.times, np.stack([measured[:, k], other[:, k]], 1), f"{name} {axis}", unit, second=1))
            for k, axis in enumerate("xyz")]


def shifts(even: Even) -> str:
    """How far motion capture was behind in each window, and the line through it."""
    if not even.has(RATES, ATTITUDE):
        return ""
    found = clocks.shift_of(even, clocks.whole_rates(even), smoothed(even, even.values[RATES]))
    if found is None:
        return ""
    line = found.offset_s + found.drift * (found.at - found.middle)
    return panel("Motion capture behind the gyro, by windows, and the line through them",
                 chart(found.at, 1e3 * np.stack([line, found.shifts], 1), "shift", "ms", dots=1))


# ---------------------------------------------------------------- all signals


def signals(found: Inspection) -> str:
    """Every signal as it was logged; what is marked is shaded."""
    drawn = list[str]()
    for stream in found.log.streams.values():
        for signal, values in stream.values.items():
            rows = values.reshape(len(values), -1)
            names = "" if values.ndim == 1 else ", ".join(letters(signal, rows.shape[1]))
            unit = SPECS[signal].unit if signal in SPECS else found.log.command.unit if found.log.command else ""
            drawn.append(panel(f"{escape(signal)} ({stream.name}) {names}",
                               chart(stream.times, rows, signal, unit, lost=~found.measured[stream.name])))
    return f'<h2>Signals</h2><p class="muted">Shaded: marked samples.</p><div class="grid">{"".join(drawn)}</div>'


# ---------------------------------------------------------------- plots


def chart(times: Numbers, rows: Numbers, title: str, unit: str, *, second: int = -1, dots: int = -1,
          lost: Marks | None = None) -> str:
    """Lines of ``rows`` [T, F] over ``times`` [T] s.

    Args:
        second: the column whose line is dashed. dots: the column that is drawn as dots. lost: [T] what is shaded.
    """
    known = np.isfinite(times)
    if known.sum() < 2 or not np.isfinite(rows[known]).any():
        return f'<p class="muted">{escape(title)}: no number.</p>'
    times, rows = times[known], rows[known]
    left, right = float(times.min()), float(times.max())
    low, high = span(np.quantile(rows[np.isfinite(rows)], [0.001, 0.999]))

    def x(at: float) -> float:
        return EDGE + (at - left) / max(right - left, 1e-9) * (WIDTH - EDGE - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (min(max(value, low), high) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [opening(title, f"{rows.shape[1]} lines over {right - left:.3g} s")]
    for value in ticks(low, high, 4):
        parts.append(f'<line class="axis" x1="{EDGE}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
                     f'<text x="{EDGE - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{value:g}</text>'
              for value in ticks(left, right)]
    for first, last in stretches(lost[known]) if lost is not None else ():
        begin, end = x(float(times[first])), x(float(times[last - 1]))
        parts.append(f'<rect class="lost" x="{begin:.1f}" y="{TOP}" width="{max(abs(end - begin), 1):.1f}" '
                     f'height="{HEIGHT - TOP - BOTTOM}"/>')
    for k, column in enumerate(rows.T):
        if k == dots:
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5"/>' for a, b in zip(times, column)
                      if np.isfinite(b)]
            continue
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in thinned(times, column))
        parts.append(f'<polyline class="trace c{k % 8}{" second" if k == second else ""}" points="{line}"/>')
    parts.append(f'<text x="{EDGE + 6}" y="{TOP - 3}">{escape(unit)}</text>'
                 f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">s</text>')
    return "".join(parts) + "</svg>"


def thinned(times: Numbers, values: Numbers) -> list[tuple[float, float]]:
    """The points of a line; of many samples the lowest and highest of each group, so that no spike is lost."""
    known = np.isfinite(values)
    times, values = times[known], values[known]
    if len(times) <= POINTS:
        return list(zip(times.tolist(), values.tolist()))
    out = list[int]()
    for group in np.array_split(np.arange(len(times)), POINTS // 2):
        out += sorted({int(group[np.argmin(values[group])]), int(group[np.argmax(values[group])])})
    return [(float(times[k]), float(values[k])) for k in out]
