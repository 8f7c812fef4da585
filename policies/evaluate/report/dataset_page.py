"""A dataset as one self-contained page: what is in it, figures and verdicts of each episode, signals, pictures.

The page stays below :data:`MOST_BYTES`: signals are thinned out, and where that does not do, some episodes have none.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.curation.robustness import Judgement
from temporeal.policies.data.curation.selection import returns
from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.evaluate.report.charts import histogram, interval
from temporeal.policies.evaluate.report.page import asset, embed, fill, navigated, panel
from temporeal.policies.evaluate.report.series import plottable, plotted
from temporeal.policies.evaluate.report.wording import percent
from temporeal.policies.evaluate.statistics import proportion
from temporeal.robots.atomic_files import write_whole

MOST_BYTES = 10_000_000
SERIES_BYTES, PICTURE_BYTES = 6_000_000, 2_000_000
BYTES_PER_NUMBER = 8 / 3  # int16 in base64
POINTS = (20, 200)  # of a signal over an episode: at least, at most
STRIP, HEIGHT = 6, 72  # pictures of an episode, and their height in pixels
OVERHEAD = 220  # bytes of JSON for a signal of an episode, besides its numbers


@dataclass(frozen=True)
class Judged:
    """A formula's text, and what it says of the episodes."""

    text: str
    found: Judgement


def write_dataset_page(path: Path, data: Dataset, judged: Judged | None = None) -> Path:
    """Write the page of ``data``."""
    earned, seconds = returns(data), (np.diff(data.starts) - 1) / data.interface.rate_hz
    shown = plotted_episodes(data)
    strips = picture_strips(data)
    rows = [row_of(data, e, earned[e], seconds[e], judged) for e in range(data.episodes)]
    episodes = [{"row": row, "dt": None, "series": [], **shown.get(e, {}), "strip": strips.get(e, [])}
                for e, row in enumerate(rows)]
    clauses = [] if judged is None else list(judged.found.texts)
    body = head(data) + navigated("\n".join([
        cards(data, judged), charts(earned, seconds, judged), "" if judged is None else clause_table(judged.found),
        table_markup(len(shown), len(strips), data.episodes, clauses)]))
    write_whole(path, fill("page.html", title=escape(f"Dataset {data.folder.name}"), style=asset("page.css"), body=body,
                           data=embed({"episodes": episodes, "clauses": clauses}), player=asset("dataset.js"),
                           signals=asset("signals.js")).encode())
    return path


def row_of(data: Dataset, e: int, earned: float, seconds: float, judged: Judged | None) -> dict[str, Any]:
    """The figures of an episode."""
    record = data.records[e]
    told = {"index": e, "seconds": round(float(seconds), 3), "success": record.success, "language": record.language,
            "return": rounded(earned), "ended": record.terminated, "source": str(record.info.get("source", ""))}
    if judged is None:
        return told
    found = judged.found
    return {**told, "robustness": rounded(found.robustness[e]), "verdict": int(found.verdicts[e]),
            "clauses": found.verdict[:, e].tolist()}


def rounded(value: float) -> float | None:
    """Four digits, as JSON can hold it."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


# ---------------------------------------------------------------- signals over time


def plotted_episodes(data: Dataset) -> dict[int, dict[str, Any]]:
    """By episode, its signals and its command over time, as many as there is room for: evenly spaced ones."""
    names = [name for name, spec in data.interface.signals.items()
             if not layout.is_picture(spec) and spec.size and plottable(np.zeros((1, *spec.shape)))]
    if not data.episodes or not names:
        return {}
    columns = {name: data.column(name) for name in names}
    units = {name: data.interface.signals[name].unit for name in names} | {layout.ACTION: data.interface.action.unit}
    if plottable(np.zeros((1, data.interface.action.size))):
        columns[layout.ACTION] = data.column(layout.ACTION)
    numbers = sum(int(np.prod(values.shape[1:])) for values in columns.values())
    each = lambda points: points * numbers * BYTES_PER_NUMBER + OVERHEAD * len(columns)  # noqa: E731
    room = SERIES_BYTES / data.episodes - OVERHEAD * len(columns)
    points = int(np.clip(room / (numbers * BYTES_PER_NUMBER), *POINTS))
    count = min(data.episodes, max(1, int(SERIES_BYTES / each(points))))
    return {int(e): series_of(data, int(e), columns, units, points)
            for e in np.unique(np.linspace(0, data.episodes - 1, count).astype(int))}


def series_of(
    data: Dataset, e: int, columns: dict[str, np.ndarray], units: dict[str, str], points: int
) -> dict[str, Any]:
    """One episode's, at most ``points`` samples evenly spaced."""
    begin, end = (int(k) for k in data.starts[e : e + 2])
    count = min(points, end - begin)
    steps = np.round(np.linspace(begin, end - 1, count)).astype(int)
    last = (end - begin - 1) / data.interface.rate_hz
    series = []
    for name, values in columns.items():
        chosen = values[steps]
        if plottable(chosen):
            row = plotted(data.interface.action.name if name == layout.ACTION else name, chosen, units[name], False)
            series.append({**row, "read": None} if name == layout.ACTION else row)
    return {"dt": last / max(count - 1, 1), "end": last, "series": series}


# ---------------------------------------------------------------- pictures


def picture_strips(data: Dataset) -> dict[int, list[str]]:
    """By episode, small pictures of its first camera as JPEG data URLs, as many episodes as there is room for."""
    cameras = [name for name, spec in data.interface.signals.items() if layout.is_picture(spec)]
    if not cameras or not data.episodes:
        return {}
    out, used = dict[int, list[str]](), 0
    for e in spread(data.episodes):
        begin, end = (int(k) for k in data.starts[e : e + 2])
        chosen = np.unique(np.linspace(begin, end - 1, STRIP).astype(int))
        out[e] = [f"data:image/jpeg;base64,{base64.b64encode(jpeg(small(p))).decode()}"
                  for p in data.frames(cameras[0], chosen)]
        used += sum(map(len, out[e]))
        if used > PICTURE_BYTES - used / len(out):
            break
    return out


def spread(count: int) -> Sequence[int]:
    """0 to ``count`` - 1, the first ones far apart: whatever number is taken is spread over all."""
    step = int(np.sqrt(count)) or 1
    return [k for begin in range(step) for k in range(begin, count, step)]


def small(picture: np.ndarray) -> np.ndarray:
    """Every k-th pixel, about :data:`HEIGHT` high; sizes are even, as JPEG with halved colours needs."""
    k = max(1, picture.shape[0] // HEIGHT)
    out = picture[::k, ::k]
    return np.ascontiguousarray(out[: out.shape[0] // 2 * 2, : out.shape[1] // 2 * 2])


def jpeg(picture: np.ndarray) -> bytes:
    """uint8 [H, W, 3] as JPEG."""
    import av

    from temporeal.policies.data.episodes.video import THREADS

    file = io.BytesIO()
    with av.open(file, "w", format="mjpeg") as container:
        stream = container.add_stream("mjpeg", rate=1, options={"qscale": "5"})
        stream.height, stream.width = picture.shape[:2]
        stream.pix_fmt = "yuvj420p"
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        container.mux(stream.encode(frame.reformat(format=stream.pix_fmt, threads=THREADS)))
        container.mux(stream.encode())
    return file.getvalue()


# ---------------------------------------------------------------- markup


def head(data: Dataset) -> str:
    """Title and facts."""
    face = data.interface
    facts = {"Robot": face.robot, "episodes": str(data.episodes), "samples": str(data.samples),
             "rate": f"{face.rate_hz:g} Hz", "action": f"{face.action.name} [{face.action.size}] {face.action.unit}",
             "simulator": face.simulator or "unknown", "hash": face.digest()[:12]}
    line = " · ".join(f"{escape(name)}: {escape(text)}" for name, text in facts.items())
    done = [str(text) for text in face.about.get("curation", ())]
    made = f'<p class="muted small">{escape(" → ".join(done))}</p>' if done else ""
    return (f'<div class="top" id="top"><div><h1>{escape(data.folder.name)}</h1><p class="muted">{line}</p>{made}</div>'
            '<button id="theme" type="button" aria-label="Switch between light and dark">◐</button></div>')


def cards(data: Dataset, judged: Judged | None) -> str:
    """Shares with their intervals."""
    flags = {"judged as success": [r.success for r in data.records if r.success is not None]}
    if judged is not None:
        flags["satisfy the formula"] = [v > 0 for v in judged.found.verdicts.tolist() if v]
    out = []
    for title, values in flags.items():
        if not values:
            out.append(f'<div class="panel card"><div class="big">–</div>nobody {title}</div>')
            continue
        p = proportion(np.array(values))
        out.append(f'<div class="panel card"><div class="big">{percent(p.estimate)}</div>{title}: {p.successes} of '
                   f"{p.trials}, 95 % interval {percent(p.low)} to {percent(p.high)}"
                   f"{interval(p.low, p.estimate, p.high)}</div>")
    asked = "" if judged is None else (
        f'<div class="panel"><h3>What was asked for</h3><pre>{escape(judged.text.strip())}</pre></div>')
    return f'{asked}<div class="cards">{"".join(out)}</div>'


def charts(earned: np.ndarray, seconds: np.ndarray, judged: Judged | None) -> str:
    """Histograms."""
    drawn = [panel("Duration", histogram(seconds, title="Duration", unit="s", split=False))]
    if np.isfinite(earned).any():
        drawn.append(panel("Return", histogram(earned, title="Return", unit="sum of rewards", split=False)))
    if judged is not None:
        drawn.append(panel("Robustness", histogram(judged.found.robustness, title="Robustness", unit="its unit")))
    return f'<h2>Distributions</h2><div class="grid">{"".join(drawn)}</div>'


def clause_table(found: Judgement) -> str:
    """How often each clause holds."""
    rows = []
    for text, verdicts in zip(found.texts, found.verdict):
        flags = verdicts[verdicts != 0] > 0
        share = "undecided" if not len(flags) else percent(proportion(flags).estimate)
        rows.append(f'<tr><td><code>{escape(text)}</code></td><td class="num">{share}</td>'
                    f'<td class="num">{int((verdicts < 0).sum())}</td></tr>')
    return ('<h2>Clauses</h2><div class="panel scroll"><table><tr><th>clause</th><th class="num">satisfied</th>'
            f'<th class="num">violated by</th></tr>{"".join(rows)}</table></div>')


def table_markup(plotted_count: int, pictured: int, episodes: int, clauses: Sequence[str]) -> str:
    """The frame of the episodes' table, which the script fills, and of the signals of the chosen one."""
    notes = [f"signals of {plotted_count} of {episodes} episodes are in this page"] * (plotted_count < episodes)
    notes += [f"pictures of {pictured} of {episodes} are"] * (0 < pictured < episodes)
    note = f'<p class="muted small">{"; ".join(notes)}</p>' if notes else ""
    return ('<h2>Episodes</h2><div class="panel"><p><input id="find" type="search" placeholder="instruction, source or '
            'number" aria-label="Find episodes"> <span class="muted small" id="count"></span></p>'
            f'<div class="scroll" id="episodes" style="max-height:420px;overflow:auto"></div>{note}</div>'
            '<h2>Signals of the chosen episode</h2><div class="panel" id="replay" style="padding:14px">'
            '<div id="strip" style="display:flex;gap:4px;overflow-x:auto"></div><p><span id="which"></span> '
            '<input id="moment" type="range" min="0" max="1000" value="0" style="flex:1" aria-label="Time"> '
            '<span id="clock"></span></p><div class="signals" data-ui="signals"></div></div>')
