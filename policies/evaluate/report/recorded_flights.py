"""The additional part of the page of a recorded run: how the nodes did, and whether the monitor agreed in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from temporeal.policies.evaluate.report.page import panel
from temporeal.policies.evaluate.report.wording import signed

Row = Mapping[str, Any]
AGREED = {True: '<span class="good">✓</span>', False: '<span class="bad">✗ differs</span>', None: "–"}


def markup(flights: Sequence[Row], notes: Sequence[str]) -> str:
    """HTML of ``flights``, each with ``flight``, ``began``, ``verdict``, ``lower``, ``upper``, ``lost``, ``recorded``
    (the monitor's word in flight, or none), ``agrees``, ``figures``, ``topics``, ``modes``, ``events``, ``drift``
    (what the monitor noticed of the machine) and ``stop`` (the event that stopped it, or none)."""
    notes_html = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return ((f'<div class="panel">{notes_html}</div>' if notes else "") + "<h2>Flights</h2>" + verdicts(flights)
            + '<div style="margin-top:14px">' + latencies(flights) + '</div><div style="margin-top:14px">'
            + counts(flights) + '</div><div style="margin-top:14px">' + events(flights)
            + drift(flights) + '</div><div style="margin-top:14px">' + topics(flights) + "</div>")


def verdicts(flights: Sequence[Row]) -> str:
    """The formula's verdict on each flight now, and the monitor's verdict then."""
    rows = []
    for i, f in enumerate(flights):
        kind = {"satisfied": "good", "violated": "bad"}.get(f["verdict"], "")
        recorded = f["recorded"]
        then = f'{escape(recorded["verdict"])} {bounds(recorded)}' if recorded else "nothing recorded"
        verdict = f'<span class="{kind}">{escape(f["verdict"])}</span>'
        rows.append([f"{f['flight']}", f"{i}", escape(f["began"]), verdict, bounds(f), then, AGREED[f["agrees"]],
                     f"{f['lost']}", escape(f["end"])])
    return panel("Verdicts", table(
        ("flight", "episode", "began (UTC)", "verdict", "robustness", "monitor in flight", "agrees", "lost samples",
         "ended"), rows, numbers=(0, 1, 7)))


def bounds(row: Row) -> str:
    """Robustness: a number, or the interval that it is known to be in."""
    low, high = (float("nan") if row.get(key) is None else float(row[key]) for key in ("lower", "upper"))
    return signed(low) if low == high else f"[{shown(low, '−∞')}, {shown(high, '∞')}]"


def shown(value: float, blank: str) -> str:
    """A bound; ``blank`` if there is none (JSON has no infinity)."""
    return signed(value) if isfinite(value) else blank


def latencies(flights: Sequence[Row]) -> str:
    """Percentiles, each by the clock of its node."""
    rows = []
    for f in flights:
        for node, title in (("controller", "state's arrival at the controller → proposal"),
                            ("guard", "proposal at the guard → command sent")):
            found = f["figures"]["latency_ms"][node]
            rows.append([f"{f['flight']}", title, *(number(found[key], 2) for key in ("p50", "p99", "max"))])
    return panel("Latency, ms", table(("flight", "from, to", "p50", "p99", "max"), rows, numbers=(0, 2, 3, 4)))


COUNTS = {
    "steps": ("steps", "of the controller"), "missed": ("missed", "control periods without a step of their own"),
    "late": ("late", "commands that came more than 1.5 periods after the last"),
    "sent": ("sent", "commands of the controller that the guard sent"),
    "limited": ("changed", "of those, sent otherwise than they were proposed"),
    "bridged": ("bridged", "commands of the guard's own while the controller was late"),
    "own": ("own", "all commands of the guard's own, its stop action included"),
    "dropped": ("unsent", "steps of which no command was sent"),
    "unrecorded": ("unrecorded", "steps that the bag lacks")}


def counts(flights: Sequence[Row]) -> str:
    """Numbers of commands of each kind."""
    rows = [[f"{f['flight']}", *(f"{f['figures'][key]:,}" for key in COUNTS)] for f in flights]
    names = ("flight", *(name for name, _ in COUNTS.values()))
    meaning = "; ".join(f"<b>{name}</b>: {escape(what)}" for name, what in COUNTS.values())
    return panel("Commands", table(names, rows, numbers=range(len(names))) + f'<p class="muted">{meaning}.</p>')


def events(flights: Sequence[Row]) -> str:
    """Modes and events of the guard, in order; what stopped the flight stands out."""
    rows = []
    for f in flights:
        found = [(at, f'<span class="muted">mode</span> {escape(mode)}', "") for at, mode in f["modes"]]
        for event in f["events"]:
            at, code, reason = event
            shown = escape(code) if event != f["stop"] else f'<span class="bad">{escape(code)}</span>'
            found.append((at, shown, escape(reason)))
        rows += [[f"{f['flight']}", f"{at:.3f}", what, why] for at, what, why in sorted(found, key=lambda row: row[0])]
    return panel("Guard", table(("flight", "time, s", "what", "why"), rows, numbers=(0, 1)))


def drift(flights: Sequence[Row]) -> str:
    """What the monitor said of the machine; nothing where it noticed nothing."""
    rows = [[f"{f['flight']}", f"{each['t']:.3f}", escape(each["kind"]), escape(each["text"])]
            for f in flights for each in f["drift"]]
    return '</div><div style="margin-top:14px">' + panel("The machine is no longer the one that was trained for", table(
        ("flight", "time, s", "kind", "noticed"), rows, numbers=(0, 1))) if rows else ""


def topics(flights: Sequence[Row]) -> str:
    """Rates and pauses of the state."""
    rows = [[f"{f['flight']}", f"<code>{escape(t['topic'])}</code>", f"{t['messages']:,}", number(t["rate_hz"], 1),
             number(t["nominal_hz"], 0), number(1e3 * t["longest_s"] if t["longest_s"] is not None else None, 1),
             number(t["longest_at_s"], 2), "–" if t["gaps"] is None else f"{t['gaps']}"]
            for f in flights for t in f["topics"]]
    return panel("State topics, in flight", table(
        ("flight", "topic", "messages", "rate, Hz", "nominal", "longest pause, ms", "at, s", "gaps (3 periods)"), rows,
        numbers=(0, 2, 3, 4, 5, 6, 7)))


def number(value: float | None, digits: int) -> str:
    """A figure, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Cells are HTML; columns of ``numbers`` are set to the right."""
    right = set(numbers)
    kind = [' class="num"' if i in right else "" for i in range(len(header))]
    top = "".join(f"<th{k}>{escape(name)}</th>" for k, name in zip(kind, header))
    body = "".join("<tr>" + "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kind, row)) + "</tr>" for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>'
            f"{body or '<tr><td>none</td></tr>'}</tbody></table></div>")
