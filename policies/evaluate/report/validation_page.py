"""How wrong a simulator is for a robot, as one self-contained page: the answer in words, then tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.evaluate.flight_candidates import HOLD, IDENTIFIED, LINEAR, LSTM, NOMINAL, RESIDUAL
from temporeal.policies.evaluate.flight_prediction import BELIEVED_M, HONEST, LONG_S
from temporeal.policies.evaluate.report.flight_log_page import STYLE, chart, panel
from temporeal.robots.atomic_files import write_whole

OPENING = ('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
           '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Simulator of ')
ABOVE = 3.0
"""Times the best one's error at the end, above which a line leaves its plot."""


def is_validation_page(path: Path) -> bool:
    """Whether a file begins as such a page does."""
    with path.open("rb") as file:
        return file.read(len(OPENING)) == OPENING.encode()


def write_validation_page(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of what ``temporeal validate`` found."""
    style = files("temporeal.policies.evaluate.report").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    body = "\n".join([head(result), answers(result), who(result), tables(result), curves(result), coverage(result),
                      manoeuvres(result), by_flight(result)])
    write_whole(path, (f"{OPENING}{escape(result['robot'])}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>"
                       f"\n{body}\n</main>\n</body>\n</html>\n").encode())
    return path


# ---------------------------------------------------------------- the answer


def best_of(result: Mapping[str, Any]) -> str:
    """The simulator that is judged: with all that is known of the robot."""
    return next(name for name in (RESIDUAL, IDENTIFIED, NOMINAL) if name in result["errors"])


def said(result: Mapping[str, Any]) -> list[str]:
    """How wrong the simulator is, in sentences."""
    name, steps = best_of(result), result["steps"]
    seconds, found = steps[-1] * result["step_s"], result["errors"]
    channel = "position" if "position" in found[name] else "rates"
    if channel not in found[name]:
        return [f"The simulator ({name}) predicts nothing that these logs measure."]
    unit, error = result["units"][channel], found[name][channel][steps[-1] - 1]
    out = [f"After {seconds:.2g} s of flight by commands alone, the simulator ({name}) is off by "
           f"{amount(error, unit)} in {channel} (root mean square)."]
    out += [ratio(name, other, words, error, found.get(other, {}).get(channel), steps[-1], unit)
            for other, words in ((NOMINAL, "the spec's nominal parameters"), (HOLD, "going on as it was"),
                                 (LINEAR, "a linear model"), (LSTM, "an LSTM"))
            if other != name and channel in found.get(other, {})]
    if (time := result["believed_s"].get(name)) is not None:
        out.append(f"Half of its predictions keep position within {100 * BELIEVED_M:.0f} cm for {time:.2g} s"
                   + (f" ({result['believed_s'][HOLD]:.2g} s going on as it was)." if HOLD in result["believed_s"]
                      else "."))
    return [*out, *honesty(result, name, steps[-1], seconds)]


def ratio(name: str, other: str, words: str, error: float | None, against: Sequence[float | None] | None, step: int,
          unit: str) -> str:
    """A sentence that compares two errors."""
    value = None if against is None else against[step - 1]
    if value is None or error is None:
        return f"With {words} ({other}) it is {amount(value, unit)}."
    more = value / error
    than = "as good" if 0.95 < more < 1.05 else f"{more:.1f} times as far off" if more > 1 else (
        f"the simulator is worse, {1 / more:.1f} times as far off")
    return f"With {words} it is {amount(value, unit)}: {than}."


def honesty(result: Mapping[str, Any], name: str, step: int, seconds: float) -> list[str]:
    """What its intervals are worth, by each channel: the worst one judges."""
    shares = result["coverage"].get(name)
    if not shares:
        return []
    last, flights = {channel: share[step - 1] for channel, share in shares.items()}, result["coverage_flights"][name]
    told = ", ".join(f"{100 * share:.0f} % of {channel} ({by_flights(flights[channel])})"
                     for channel, share in last.items())
    narrow, wide = ([channel for channel, share in last.items() if share < HONEST[0]],
                    [channel for channel, share in last.items() if share > HONEST[1]])
    verdicts = ([f"too narrow in {', '.join(narrow)}: the robot does more than the simulator holds possible"]
                if narrow else []) + ([f"wider than they need be in {', '.join(wide)}"] if wide else [])
    verdict = "they are " + ", and ".join(verdicts) if verdicts else "they say how uncertain it is"
    return [f"Its 90 % intervals hold {told} after {seconds:.2g} s; {verdict}."]


def by_flights(ends: Sequence[float]) -> str:
    """Least and most of flights."""
    return f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f} % by flight"


def amount(value: float | None, unit: str) -> str:
    """A number with its unit."""
    return "no number" if value is None else f"{value:.3g} {unit}"


# ---------------------------------------------------------------- the page


def head(result: Mapping[str, Any]) -> str:
    """Title and flights."""
    logs = "".join(f"<li>{escape(each['name'])}: {each['seconds']:.1f} s of flight"
                   + ("" if each["pose"] else ", without motion capture")
                   + (f' <b class="bad">was used for fitting: {escape(", ".join(each["fitted"]))}</b>'
                      if each["fitted"] else "") + "</li>" for each in result["logs"])
    return (f'<div class="top" id="top"><div><h1>How wrong is the simulator of {escape(result["robot"])}?</h1>'
            f'<p class="muted">Flights by which it is judged:</p><ul class="muted">{logs}</ul></div></div>')


def answers(result: Mapping[str, Any]) -> str:
    """The answer in words; first of all, whether it is one."""
    fitted = [each["name"] for each in result["logs"] if each["fitted"]]
    warning = (f'<p class="bad"><b>Something was fitted to {escape(", ".join(fitted))}: errors and intervals of such '
               "flights say nothing of others.</b></p>") if fitted else ""
    return f'<div class="panel">{warning}{"".join(f"<p>{escape(each)}</p>" for each in result["said"])}</div>'


def who(result: Mapping[str, Any]) -> str:
    """Who predicts, and who is left out."""
    rows = "".join(f"<tr><td>{escape(each['name'])}</td><td>{escape(each['words'])}</td></tr>"
                   for each in result["predictors"])
    rows += "".join(f'<tr class="muted"><td>{escape(name)}</td><td>left out: {escape(why)}</td></tr>'
                    for name, why in result["left_out"].items())
    return f'<h2>Who predicts</h2><div class="panel scroll"><table>{rows}</table></div>'


def tables(result: Mapping[str, Any]) -> str:
    """Errors by step, a table for each channel."""
    steps, out = result["steps"], []
    for channel, unit in result["units"].items():
        rows = [(name, [found[channel][k - 1] for k in steps]) for name, found in result["errors"].items()
                if channel in found]
        if rows:
            body = "".join(f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{cell(x)}</td>" for x in values) + "</tr>"
                           for name, values in rows)
            titles = "".join(f"<th>{k} ({k * result['step_s']:.2g} s)</th>" for k in steps)
            out.append(panel(f"{channel} [{unit}]", f"<table><tr><th>steps</th>{titles}</tr>{body}</table>"))
    return ('<h2>Errors of open-loop prediction</h2><p class="muted">Root mean squares over all starts; each begins at '
            f'a measured state.</p><div class="grid">{"".join(out)}</div>')


def cell(value: float | None) -> str:
    """A number of a table."""
    return "–" if value is None else f"{value:.3g}"


def curves(result: Mapping[str, Any]) -> str:
    """Errors as they grow."""
    out = []
    for channel, unit in result["units"].items():
        found = {name: np.array([np.nan if x is None else x for x in each[channel]])
                 for name, each in result["errors"].items() if channel in each}
        ends = [x[-1] for x in found.values() if np.isfinite(x[-1])]
        if ends:
            top = ABOVE * min(ends)
            lines = np.stack([np.where(x > top, np.nan, x) for x in found.values()], 1)
            times = result["step_s"] * np.arange(1, len(lines) + 1)
            out.append(panel(f"{channel}: {legend(list(found))}", chart(times, lines, channel, unit)))
    return f'<h2>How errors grow</h2><div class="grid">{"".join(out)}</div>'


def legend(names: Sequence[str]) -> str:
    """Names in their lines' colours."""
    return ", ".join(f'<span class="c{k % 8}">{escape(name)}</span>' for k, name in enumerate(names))


def coverage(result: Mapping[str, Any]) -> str:
    """How much of what was measured 90 % intervals hold."""
    steps, out = result["steps"], []
    for name, shares in result["coverage"].items():
        body = "".join(f"<tr><td>{channel}</td>" + "".join(f"<td>{100 * share[k - 1]:.0f} %</td>" for k in steps)
                       + "</tr>" for channel, share in shares.items())
        titles = "".join(f"<th>{k}</th>" for k in steps)
        out.append(panel(escape(name), f"<table><tr><th>steps</th>{titles}</tr>{body}</table>"))
    return (f'<h2>What 90 % intervals hold</h2><div class="grid">{"".join(out)}</div>') if out else ""


def manoeuvres(result: Mapping[str, Any]) -> str:
    """Long stretches, and whole ways from one hover to the next."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{cell(result['error_long_m'][name])} m</td><td>{cell(time)} s</td></tr>"
        for name, time in result["believed_s"].items())
    out = (f'<h2>Whole manoeuvres</h2><div class="panel scroll"><table><tr><th></th><th>error after {LONG_S:g} s</th>'
           f"<th>within {100 * BELIEVED_M:.0f} cm for (median)</th></tr>{rows}</table></div>") if rows else ""
    names = [each["name"] for each in result["predictors"]]
    ways = "".join(
        f"<tr><td>{escape(each['flight'])}, from {each['from_s']:.1f} s</td><td>{each['seconds']:.1f} s</td>"
        + "".join(f"<td>{cell(each['end_m'][name])} m, {cell(each['believed_s'][name])} s</td>" for name in names)
        + "</tr>" for each in result["manoeuvres"])
    titles = "".join(f"<th>{escape(name)}</th>" for name in names)
    return out + (f'<div class="panel scroll"><table><tr><th>from one hover to the next</th><th>lasts</th>{titles}</tr>'
                  f"{ways}</table><p class=\"muted\">Error of position at the end, and for how long it is within "
                  f"{100 * BELIEVED_M:.0f} cm. Gaps of a source of up to 0.15 s are bridged.</p></div>" if ways else "")


def by_flight(result: Mapping[str, Any]) -> str:
    """Errors of each flight after the last step."""
    step, out = str(result["steps"][-1]), []
    for channel, unit in result["units"].items():
        names = [each["name"] for each in result["predictors"]]
        rows = "".join(
            f"<tr><td>{escape(flight)}</td>" + "".join(
                f"<td>{cell(found.get(name, {}).get(channel, {}).get(step))}</td>" for name in names) + "</tr>"
            for flight, found in result["flights"].items())
        if channel in ("position", "attitude", "rates"):
            titles = "".join(f"<th>{escape(name)}</th>" for name in names)
            out.append(panel(f"{channel} [{unit}] after {step} steps",
                             f"<table><tr><th>flight</th>{titles}</tr>{rows}</table>"))
    return f'<h2>By flight</h2><div class="grid">{"".join(out)}</div>'
