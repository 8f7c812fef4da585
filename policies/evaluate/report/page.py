"""The evaluation as a file: JSON for machines, and one HTML page that needs nothing but a browser.

The page holds its plots (SVG), its data and a 3-D replay; it opens from a folder without a network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.evaluate.evaluation import Evaluation, to_json
from temporeal.policies.evaluate.report.charts import histogram, interval
from temporeal.policies.evaluate.report.learning import learning_markup
from temporeal.policies.evaluate.report.replay import drawn_figure, pick_episodes, replay_episode
from temporeal.policies.evaluate.report.section import Context, Section
from temporeal.policies.evaluate.report.wording import figure, percent, signed
from temporeal.robots.artifact.manifest import plain
from temporeal.robots.atomic_files import write_whole

LISTED = 10  # rows of the table of worst episodes


def write_json(path: Path, sections: Sequence[Section], extra: Mapping[str, Any] | None = None) -> Path:
    """``{key: figures}`` of the sections, with ``extra`` beside them."""
    content = {section.key: to_json(section.evaluation) for section in sections}
    write_whole(path, (json.dumps({**dict(extra or {}), **content}, indent=2, allow_nan=False) + "\n").encode())
    return path


def write_page(path: Path, sections: Sequence[Section], context: Context, more: str = "") -> Path:
    """The HTML page; ``more``: HTML that stands after the replay. Robots without a stage and a place are not drawn."""
    shown = [pick_episodes(section.evaluation) if context.stage or "base_pos_w" in section.rollout.signals else []
             for section in sections]
    replay = [replay_episode(section, index, context)
              for section, chosen in zip(sections, shown) for index in chosen]
    starts = np.cumsum([0, *(len(chosen) for chosen in shown)])
    places = [{index: int(start) + i for i, index in enumerate(chosen)} for start, chosen in zip(starts, shown)]
    body = "\n".join([
        cards(sections, context), player_markup() if replay else "", more,
        *(section_markup(s, place, context) for s, place in zip(sections, places)),
        learning_markup(context.curves), reading(sections), settings_markup(context)])
    body = head(context) + navigated(body)
    data = {"scene": drawable(context.scene), "arm": context.arm_m, "plane": context.plane, "episodes": replay}
    if context.stage is not None:
        data["figure"] = drawn_figure(context.stage.figure)
    write_whole(path, fill("page.html", title=escape(context.title), style=asset("page.css"), body=body,
                           data=embed(data), player=asset("player.js"), signals=asset("signals.js")).encode())
    return path


HEADING = re.compile(r"<h2>(.*?)</h2>", re.S)


def navigated(body: str) -> str:
    """``body`` with a place to go to at each heading of a section, behind the links to these places."""
    names = HEADING.findall(body)
    numbers = iter(range(len(names)))
    body = HEADING.sub(lambda found: f'<h2 id="part{next(numbers)}">{found[1]}</h2>', body)
    links = "".join(f'<a href="#part{i}">{name}</a>' for i, name in enumerate(names))
    return f'<nav aria-label="Sections"><a href="#top">Result</a>{links}</nav>{body}'


def asset(name: str) -> str:
    """A file of this package as text."""
    return files("temporeal.policies.evaluate.report").joinpath(name).read_text(encoding="utf-8")


def fill(template: str, **parts: str) -> str:
    """The template with each ``{{name}}`` replaced once, in one pass: what is filled in is not searched again."""
    text = asset(template)
    for name in parts:
        before, after = text.split("{{" + name + "}}")
        text = before + f"\0{name}\0" + after
    for name, value in parts.items():
        text = text.replace(f"\0{name}\0", value.replace("\0", ""), 1)
    return text


def embed(data: object) -> str:
    """JSON that may stand inside a script element: no ``</`` can end it early."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def drawable(scene: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scene as plain JSON values."""
    return [{key: plain(value) for key, value in shape.items()} for shape in scene]


def head(context: Context) -> str:
    """Title, formula and facts."""
    facts = {"Robot": context.robot, **context.facts}
    line = " · ".join(f"{escape(k)}: {escape(v)}" for k, v in facts.items())
    constants = ", ".join(f"{k} = {compact(v)}" for k, v in context.constants.items())
    return (f'<div class="top" id="top"><div><h1>{escape(context.title)}</h1><p class="muted">{line}</p></div>'
            f'<button id="theme" type="button" aria-label="Switch between light and dark">◐</button></div>'
            f'<div class="panel"><h3>What was asked for</h3><pre>{escape(context.formula.strip())}</pre>'
            + (f'<p class="muted"><code>{escape(constants)}</code></p>' if constants else "") + "</div>")


def compact(value: Any) -> str:
    """A constant as text."""
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(compact(v) for v in value) + ")"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def cards(sections: Sequence[Section], context: Context) -> str:
    """One card per section with the probability and its interval."""
    return '<div class="cards">' + "".join(card(s, context.require) for s in sections) + "</div>"


def card(section: Section, require: float | None) -> str:
    """The figures that matter most."""
    e, p = section.evaluation, section.evaluation.satisfied
    kind = "" if require is None else ("good" if p.estimate >= require else "bad")
    asked = "" if require is None else f'<dt>Asked for</dt><dd>{percent(require)} {"✓" if kind == "good" else "✗"}</dd>'
    start = 0.0 if p.low < 0.8 else 0.8
    rows = {
        f"{100 * p.confidence:g} % interval": f"{percent(p.low)} – {percent(p.high)}",
        "Episodes": f"{p.trials:,}", "Robustness, median": signed(e.robustness.median),
        "Robustness, worst 5 %": f"≤ {signed(e.robustness.quantiles[0.05])}",
        "Ended early": f"{e.terminated:,}",
    }
    if section.seconds is not None:
        rows["Computed in"] = f"{section.seconds:.1f} s"
    listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    return (f'<div class="panel card"><h3>{escape(section.title)}</h3>'
            f'<div class="big {kind}">{percent(p.estimate)}</div>'
            '<div class="muted">of episodes satisfy the formula</div>'
            f"{interval(p.low, p.estimate, p.high, require, start)}<dl>{asked}{listed}</dl></div>")


def player_markup() -> str:
    """The frame that player.js fills."""
    return """<h2>Replay</h2>
<section class="panel" id="replay" aria-label="3-D replay">
<div class="bar"><select data-ui="episode" aria-label="Episode"></select>
<span class="muted" data-ui="note"></span></div>
<div class="stage"><canvas tabindex="0" role="img" aria-label="3-D view. Space plays and pauses, arrow keys orbit,
 plus and minus zoom, comma and period step, N and P change the episode."></canvas>
<div class="hud"><div data-ui="clock">0.00 s</div><div data-ui="state" data-verdict="undecided"></div></div>
<div data-ui="signals" aria-label="Signals and commands over time"></div></div>
<div class="time"><svg data-ui="bounds" viewBox="0 0 100 40" preserveAspectRatio="none" role="img"
 aria-label="Interval in which the robustness can still end, over time"></svg>
<input data-ui="scrub" type="range" min="0" max="1000" step="20" value="0" aria-label="Time">
<div class="muted small" data-ui="range"></div></div>
<div class="bar"><button data-ui="play" type="button">▶ Play</button>
<label>Speed <select data-ui="speed"><option value="0.25">¼×</option><option value="0.5">½×</option>
<option value="1" selected>1×</option><option value="2">2×</option><option value="4">4×</option></select></label>
<label><input type="checkbox" data-ui="others" checked> other episodes</label>
<label><input type="checkbox" data-ui="follow"> follow</label>
<button data-ui="reset" type="button">Reset view</button>
<span class="muted">drag to orbit, wheel to zoom;
<kbd>Space</kbd> <kbd>←↑↓→</kbd> <kbd>+</kbd> <kbd>−</kbd> <kbd>,</kbd> <kbd>.</kbd> <kbd>N</kbd> <kbd>P</kbd></span>
</div></section>"""


def section_markup(section: Section, places: Mapping[int, int], context: Context) -> str:
    """Tables and plots of one section."""
    e, moved = section.evaluation, "Motion" if context.stage else "Flight"
    plots = [panel("Robustness", histogram(
        e.episodes.robustness, title="Robustness of each episode", unit="robustness (below 0: violated)"))]
    plots += [panel(f"Slack to the deadline: {escape(goal.label)}", histogram(
        e.episodes.slack_s[:, i], title=f"Deadline slack of {goal.label}", unit="s before the window ends",
        split=False, step=e.dt)
        + f'<p class="muted">Reached in time in {percent(goal.reached.estimate)} of the episodes; '
        f"slack median {figure(goal.slack_s.median, 's')}, smallest {figure(goal.slack_s.quantiles[0.0], 's')}.</p>")
        for i, goal in enumerate(e.subgoals)]
    return (f"<h2>{escape(section.title)}</h2>{clause_table(e)}"
            f'<div class="grid" style="margin-top:14px">{"".join(plots)}{panel(moved, flight_table(e))}'
            f'</div><div style="margin-top:14px">{panel("Lowest robustness", worst_table(e, places))}</div>')


def panel(title: str, content: str) -> str:
    """A titled box."""
    return f'<div class="panel"><h3>{title}</h3>{content}</div>'


def clause_table(e: Evaluation) -> str:
    """Each clause of the formula: how often it holds, how often it is the first to fail, and when."""
    start = 0.0 if min((c.satisfied.low for c in e.clauses), default=1.0) < 0.8 else 0.8
    rows = "".join(
        f"<tr><td><code>{escape(c.label)}</code></td><td class='num'>{percent(c.satisfied.estimate)}</td>"
        f"<td>{interval(c.satisfied.low, c.satisfied.estimate, c.satisfied.high, None, start)}</td>"
        f"<td class='num'>{signed(c.robustness.median)}</td><td class='num'>{signed(c.robustness.quantiles[0.0])}</td>"
        f"<td class='num'>{c.first_to_fail:,}</td><td class='num'>{figure(c.failed_at_s.median, 's')}</td></tr>"
        for c in e.clauses)
    return ('<div class="panel scroll"><table><thead><tr><th>Clause</th><th class="num">holds</th>'
            f'<th>interval, axis from {percent(start)}</th><th class="num">robustness, median</th>'
            '<th class="num">least</th>'
            '<th class="num">first to fail</th><th class="num">when (median)</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>")


def flight_table(e: Evaluation) -> str:
    """Tracking, slack, effort and length."""
    rows = []
    if e.tracking_m is not None:
        rows.append(("Distance from the reference, RMS", e.tracking_m, "m"))
    rows += [("Slack: later by as much, it would still be satisfied", e.delay_s, "s"),
             ("Control effort (mean squared action)", e.effort, ""),
             ("Change of action (mean square)", e.change, ""), ("Length", e.length_s, "s")]
    cells = "".join(
        f"<tr><td>{name}</td>" + "".join(
            f"<td class='num'>{figure(value, unit)}</td>" for value in (s.median, s.quantiles[0.05], s.quantiles[0.95]))
        + "</tr>" for name, s, unit in rows)
    return ('<div class="scroll"><table><thead><tr><th></th><th class="num">median</th><th class="num">5 %</th>'
            f'<th class="num">95 %</th></tr></thead><tbody>{cells}</tbody></table></div>')


def worst_table(e: Evaluation, places: Mapping[int, int]) -> str:
    """The episodes with the least robustness, linked to the replay where it has them."""
    rows = []
    for index in np.argsort(e.episodes.robustness, kind="stable")[:LISTED]:
        name = f"{index}"
        if int(index) in places:
            name = (f'<button class="link" type="button" data-episode="{places[int(index)]}" '
                    f'aria-label="Replay episode {index}">{index}</button>')
        rows.append(f"<tr><td class='num'>{name}</td><td class='num'>{signed(float(e.episodes.robustness[index]))}</td>"
                    f"<td>{outcome(e, int(index))}</td></tr>")
    return ('<div class="scroll"><table><thead><tr><th class="num">episode</th><th class="num">robustness</th>'
            f"<th>verdict</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>")


def outcome(e: Evaluation, index: int) -> str:
    """Verdict of one episode in words."""
    early = ", ended early" if e.episodes.terminated[index] else ""
    if e.episodes.satisfied[index]:
        return f'<span class="good">satisfied</span>{early}'
    label = escape(e.clauses[int(e.episodes.first_clause[index])].label)
    return f'<span class="bad">violated</span> at {e.episodes.failed_at_s[index]:.2f} s: <code>{label}</code>{early}'


def reading(sections: Sequence[Section]) -> str:
    """How the figures are meant."""
    confidence = sections[0].evaluation.satisfied.confidence if sections else 0.95
    return f"""<h2>How to read this</h2><div class="panel">
<p><b>Robustness</b> is the margin by which the formula holds (above 0) or fails (below 0), in the unit of its most
critical predicate: metres where that is a distance. <b>Interval</b>: Clopper-Pearson, {100 * confidence:g} %
confidence; it is exact and errs on the wide side. An episode that <b>ended early</b> counts as violated unless what was
seen had already decided the formula. <b>Slack</b> is the time left in a subgoal's window when it was reached. The curve
below the replay is the interval in which the robustness can still end, given what has been seen so far.</p></div>"""


def settings_markup(context: Context) -> str:
    """The configuration, folded."""
    if not context.settings:
        return ""
    text = escape(json.dumps(context.settings, indent=2, default=str))
    return ("<h2>Settings</h2><details class='panel'><summary>Configuration of this evaluation</summary>"
            f"<pre>{text}</pre></details>")
