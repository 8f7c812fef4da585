"""Explanations in words and as JSON data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, to_text
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Release,
    Since,
    Until,
    WeakUntil,
    window_text,
)
from temporeal.sim.stl.semantics.verdicts import SATISFIED, UNDECIDED, VIOLATED

if TYPE_CHECKING:
    from temporeal.sim.stl.analysis.explanation import Clause, CriticalPredicate, Explanation, Obligation, Part, Step


def number(x: float, unit: str = "") -> str:
    """``x`` to four digits, with its unit."""
    shown = "unknown" if x != x else "inf" if x == inf else "-inf" if x == -inf else f"{x:.4g}"
    return f"{shown} {unit}" if unit and isfinite(x) else shown


def seconds(x: float) -> str:
    """A time to the microsecond, without trailing zeros."""
    return f"{x:.6f}".rstrip("0").rstrip(".") + " s" if isfinite(x) else f"{number(x)} s"


def operator_text(f: Formula) -> str:
    """The operator of ``f`` alone: ``G[0,10]``, ``and``, ``U[0,2]``; the text of a predicate."""
    names = {Not: "not", And: "and", Or: "or", Implies: "implies", Iff: "iff", Always: "G", Eventually: "F",
             Until: "U", Release: "R", WeakUntil: "W", Historically: "H", Once: "O", Since: "S"}
    if isinstance(f, (Next, Previous)):
        letter = "X" if isinstance(f, Next) else "Y"
        return f"{letter} (strong)" if f.strong else letter
    if type(f) not in names:
        return to_text(f)
    return names[type(f)] + (window_text(f.window) if hasattr(f, "window") else "")


def describe(decider: CriticalPredicate) -> list[str]:
    """The critical predicate, in one or two lines."""
    where = f"at {seconds(decider.time_s)} (sample {decider.sample})"
    if decider.kind == "constant":
        return [f"{decider.text}, a constant"]
    if decider.kind == "empty":
        return [decider.text, f"asked for {where}: there is no such sample"]
    if decider.kind == "end":
        return [f"{decider.text} {where}", "past the end of the trace"]
    read = ", ".join(f"{name} = {_value_text(v)}" for name, v in decider.signals.items())
    if decider.kind == "unknown":
        lost = any(np.isnan(v).any() for v in decider.signals.values())
        why = "the margin is not a number" if lost else (
            "its arithmetic is undefined there, as the root of a negative number is")
        return [f"{decider.text} {where}", f"{read or 'its value'}: {why}"]
    sides = f"{number(decider.left, decider.unit)} against {number(decider.right, decider.unit)}"
    verb = "holds" if decider.verdict == SATISFIED else "fails"
    return [f"{decider.text} {where}",
            f"{read + ': ' if read else ''}{sides}, {verb} by {number(abs(decider.value), decider.unit)}"]


def describe_obligation(o: Obligation) -> str:
    """How a deadline was kept, in words."""
    due = "without a deadline" if o.due_s == inf else f"due at {seconds(o.due_s)}"
    asked = f"asked for at {seconds(o.asked_s)}, {due}"
    if o.state == "met":
        early = "" if o.due_s == inf else f", {seconds(o.slack_s)} before the deadline"
        return f"{asked}: met at {seconds(o.met_s)}{early}"
    if o.state == "open":
        return f"{asked}: open, not met so far"
    if o.state == "late":
        return f"{asked}: late, met at {seconds(o.met_s)}, {seconds(-o.slack_s)} after the deadline"
    return f"{asked}: never met in the trace{'' if o.covered else ', which ends before the deadline'}"


def note(e: Explanation) -> str:
    """What a trace that ends before the formula's horizon is taken to mean, else ``""``."""
    last = (e.samples - 1) * e.dt
    if not isfinite(e.horizon_s) or last >= e.horizon_s - 1e-6 * e.dt:
        return ""
    taken = {"clip": "windows are cut to the trace", "strong": "what is past its end counts as false",
             "weak": "what is past its end counts as true"}[e.semantics.end]
    taken = "what is past its end is unknown" if e.partial else taken
    return f"the trace ends at {seconds(last)}, the formula looks {seconds(e.horizon_s)} ahead: {taken}"


_SIGN = {SATISFIED: "+", VIOLATED: "-", UNDECIDED: "?"}


def _value_text(v: Any) -> str:
    return f"[{', '.join(map(_value_text, v))}]" if isinstance(v, list) else number(float(v))


def _short(text: str, width: int) -> str:
    """``text`` cut in its middle to at most ``width`` characters."""
    if len(text) <= width:
        return text
    tail = max(0, (width - 5) // 3)
    return f"{text[: width - 5 - tail]} ... {text[len(text) - tail :]}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def words(e: Explanation, width: int) -> list[str]:
    """Lines of at most ``width`` characters where the formula allows it."""
    unit = e.decider.unit
    found = f"robustness {number(e.robustness, unit)}"
    if e.robustness != e.robustness:
        found = f"robustness between {number(e.lower, unit)} and {number(e.upper, unit)}"
    out = [f"{e.verdict}: {found}", *_wrapped(e.formula, width, "  ")]
    if told := note(e):
        out += _wrapped(f"note: {told}", width, "")
    first, *rest = describe(e.decider)
    out += ["", f"{'decided by' if e.verdict != UNDECIDED else 'waits for'}  {first}", *(f"  {line}" for line in rest)]
    out += ["", "why", *_chain_words(e.chain, width)]
    if len(e.clauses) > 1:
        out += ["", "clauses", *(line for clause in e.clauses for line in _clause_words(clause, width))]
    if e.obligations:
        out += ["", "deadlines"]
        for o in e.obligations:
            sign = {"met": "+", "open": "?"}.get(o.state, "-")
            out += [f"  {sign} {_short(o.text, width - 4)}", *_wrapped(describe_obligation(o), width, "      ")]
    return out


def _chain_words(chain: Sequence[Step], width: int) -> list[str]:
    out = []
    for depth, step in enumerate(chain):
        head = f"  {seconds(step.time_s):>10} {_SIGN[step.verdict]} {number(step.value):>9}  {'  ' * depth}"
        out.append(f"{head}{_short(step.text, max(20, width - len(head)))}")
        if step.how:
            out.append(f"{' ' * len(head)}  {step.how}")
    return out


def _clause_words(clause: Clause, width: int) -> list[str]:
    first, *_ = describe(clause.decider)
    head = f"  {_SIGN[clause.verdict]} {number(clause.robustness, clause.decider.unit):>11}  "
    return [head + _short(clause.text, max(20, width - len(head))), f"{' ' * len(head)}  {first}"]


def data(e: Explanation, series: bool) -> dict[str, Any]:
    """JSON data without NaN; ``series``: with the robustness of every part at every sample."""
    out = {
        "formula": e.formula, "dt": e.dt, "samples": e.samples, "horizon_s": e.horizon_s,
        "semantics": {"end": "partial" if e.partial else e.semantics.end, "until": e.semantics.until},
        "robustness": e.robustness, "lower": e.lower, "upper": e.upper, "verdict": e.verdict,
        "decided_by": e.decided_by, "at_s": e.at_s, "note": note(e) or None,
        "decider": _fields(e.decider), "chain": [_fields(s) for s in e.chain],
        "clauses": [{**_fields(c), "decider": _fields(c.decider)} for c in e.clauses],
        "obligations": [_fields(o) for o in e.obligations],
        "parts": [_part_data(p, series) for p in e.parts],
    }
    return {key: _valid(item) for key, item in out.items()}


def _fields(record: Any) -> dict[str, Any]:
    return dict(vars(record))


def _part_data(part: Part, series: bool) -> dict[str, Any]:
    out = {**_fields(part), "formula": type(part.formula).__name__.lower()}
    out["operator"] = out.pop("formula")
    return out if series else {key: item for key, item in out.items() if key not in ("robustness", "verdicts")}


def _valid(item: Any) -> Any:
    """``item`` as JSON data: NaN is None, infinities are texts."""
    if isinstance(item, Mapping):
        return {key: _valid(v) for key, v in item.items()}
    if isinstance(item, np.ndarray):
        return _valid(item.tolist())
    if isinstance(item, (list, tuple)):
        return [_valid(v) for v in item]
    if isinstance(item, float) and not isfinite(item):
        return None if item != item else "inf" if item > 0 else "-inf"
    return item
