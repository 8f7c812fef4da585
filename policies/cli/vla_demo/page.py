"""The page of ``temporeal demo vla``: what each mission was told, what the cameras saw, the chunks, the verdict."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.atomic_files import write_whole

SHOWN = 6  # pictures of a mission, from its first second to its last
HEIGHT = 96  # pixels
WIDTH, PLOT = 560, 150  # of a plot of chunks
COMPONENTS = 3  # of a command that are plotted: the first ones
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
color-scheme: light dark }
section { border-top: 1px solid #8886; margin-top: 1.5rem } h2 { font-size: 1.05rem } img { image-rendering: pixelated;
margin: 0 4px 4px 0 } .satisfied { color: #17823b } .violated, .failed { color: #c0261c } table { border-collapse:
collapse }
td, th { text-align: left; padding: .15rem .8rem .15rem 0 } svg { max-width: 100% } .muted { opacity: .65 }
"""


def write_page(out: Path, summary: Mapping[str, Any]) -> Path:
    """Write ``report.html`` of the demo in ``out``; the bag of its missions brings pictures and chunks."""
    flights = summary["stages"]["missions"].get("flights", [])
    parts = missions_of(out / "missions" / "bag", flights)
    body = "".join(section(row, parts.get((str(row.get("robot")), row["seed"]), {})) for row in flights)
    page = (f"<!doctype html><html lang=en><meta charset=utf-8><title>Missions in words</title><style>{STYLE}</style>"
            f"<h1>Missions in words: {summary['satisfied']} of {summary['missions']} satisfied</h1>"
            f"{stage_table(summary['stages'])}{body}</html>\n")
    path = out / "report.html"
    write_whole(path, page.encode())
    return path


def stage_table(stages: Mapping[str, Any]) -> str:
    """What the policies reached on fresh episodes, and what the artifact is."""
    rows = [(title, share(stages.get(name, {}))) for title, name in (
        ("after demonstrations", "judged-tuned"), ("after reinforcement", "judged-improved"))]
    told = stages.get("artifact", {})
    rows += [("artifact reads", ", ".join(map(str, told.get("signals", ()))))]
    if int8 := told.get("int8"):
        rows += [("int8: difference from float32", f"{int8['rms_difference']:.1e} rms, {int8['max_difference']:.1e} at "
                                                   "most, of a command's range")]
    cells = "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows)
    return f"<table>{cells}</table>"


def share(figures: Mapping[str, Any]) -> str:
    """P(satisfied) of an evaluation, with its interval, wherever its JSON has it."""
    if "p_satisfied" in figures:
        low, high = figures.get("ci95", (0.0, 1.0))
        return f"{figures['p_satisfied']:.3f} satisfied [{low:.3f}, {high:.3f}]"
    found = (share(value) for value in figures.values() if isinstance(value, Mapping))
    return next((text for text in found if text), "")


def section(row: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    """One mission."""
    verdict = str(row["verdict"])
    why = str(row.get("why") or row.get("reason") or "")
    lower = row.get("robustness_lower")
    margin = "" if lower is None else f", robustness {lower:.3f}"
    strips = "".join(f"<div>{''.join(map(picture, seen[name]))}<span class=muted>{escape(name)}</span></div>"
                     for name in sorted(seen) if name != "chunks")
    return (f"<section><h2>{row['seed']}: “{escape(str(row.get('instruction', '')))}” "
            f"<span class={verdict}>{verdict}</span>{margin}</h2><p>{escape(why)}</p>{strips}"
            f"{plot(seen.get('chunks', ()))}</section>")


def picture(image: np.ndarray) -> str:
    """A picture uint8 [H, W, 3] as an element of the page."""
    import cv2

    _, data = cv2.imencode(".png", cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR))
    return f'<img height={HEIGHT} src="data:image/png;base64,{base64.b64encode(data.tobytes()).decode()}">'


def plot(chunks: Sequence[Any]) -> str:
    """The first components of the chunks over mission time: each chunk a line from its observation on."""
    if not chunks:
        return ""
    ends = max(chunk.observed for chunk in chunks) + 1.0
    rows = np.concatenate([chunk.rows[:, :COMPONENTS] for chunk in chunks])
    low, high = float(rows.min()), float(rows.max())
    dt = chunk_dt(chunks)
    lines = []
    for k, chunk in enumerate(chunks):
        times = (chunk.observed + dt * np.arange(len(chunk.rows))) / ends * WIDTH
        for c in range(min(COMPONENTS, chunk.rows.shape[1])):
            heights = PLOT - (chunk.rows[:, c] - low) / max(high - low, 1e-9) * PLOT
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(times, heights))
            lines.append(f'<polyline points="{points}" fill=none stroke="hsl({120 * c},60%,{40 + 15 * (k % 2)}%)"/>')
    told = f"{len(chunks)} chunks, the first {COMPONENTS} components over {ends:.1f} s"
    return (f'<svg viewBox="0 0 {WIDTH} {PLOT + 14}" width={WIDTH}>{"".join(lines)}'
            f'<text x=0 y={PLOT + 12} font-size=11 fill=currentColor>{told}</text></svg>')


def chunk_dt(chunks: Sequence[Any]) -> float:
    """Seconds between rows: a chunk is asked for when half of the last one is used."""
    gaps = np.diff([chunk.observed for chunk in chunks])
    return float(np.median(gaps)) * 2 / len(chunks[0].rows) if len(gaps) else 0.05


def missions_of(bag: Path, flights: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """By robot and number of the mission: pictures of each camera by topic, and chunks. Nothing without a bag."""
    if not bag.exists():
        return {}
    from temporeal_bridge.recording import bags

    recording = bags.read(bag, lambda topic: topic.endswith(("/rgb", "/policy/chunk")))
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for row in flights:
        robot, start = str(row.get("robot")), (row.get("truth") or {}).get("start_ns", 0)
        found = chunks_of(recording, robot, row["seed"])
        if start:
            ends = start + round(1e9 * float(row.get("time_s") or 4.0))
            out[robot, row["seed"]] = {"chunks": found, **strips_of(recording, robot, start, ends)}
    return out


def chunks_of(recording: Any, robot: str, number: int) -> list[Any]:
    """The chunks of one mission."""
    from temporeal_bridge.mission import ChunkRecord

    made = [ChunkRecord.of(message.decode().data) for message in recording.of(f"{robot}/policy/chunk")]
    return [chunk for chunk in made if chunk.flight == number]


def strips_of(recording: Any, robot: str, start: int, end: int) -> dict[str, list[np.ndarray]]:
    """Pictures of each camera between two times [ns], evenly apart."""
    names, out = {message.topic for message in recording.messages}, {}
    topics = sorted(name for name in names if name.startswith(f"{robot}/") and name.endswith("/rgb"))
    for topic in topics:
        messages = [m for m in recording.of(topic) if start <= m.at <= end]
        chosen = [messages[round(k)] for k in np.linspace(0, len(messages) - 1, min(SHOWN, len(messages)))]
        out[topic.removeprefix(f"{robot}/")] = [image_of(message.decode()) for message in chosen]
    return out


def image_of(message: Any) -> np.ndarray:
    """The picture uint8 [H, W, 3] of an Image in rgb8."""
    return np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.width, 3)
