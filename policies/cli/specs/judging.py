"""A formula on a whole trace: check, explain and plot."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import print_json, say
from temporeal.policies.cli.specs.formulas import formula_on
from temporeal.policies.cli.specs.spec_file import Spec, semantics_of
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.cli.traces.table import Options, Table, Trace
    from temporeal.sim.stl.analysis.explanation import Explanation
    from temporeal.sim.stl.language.propositional import Formula


STATUS = {"satisfied": OK, "violated": FAILED, "undecided": BAD_INPUT}


def trace_options(options: Namespace, dt: float | None) -> Options:
    """How the trace's file is to be read."""
    from temporeal.policies.cli.traces.table import Options

    return Options(options.time, dt, options.resample or "", options.missing, options.repeated, stale(options.stale),
                   options.begin, options.end_s, tuple(options.maps), options.robot, options.interface,
                   options.namespace, renames(options.renames))


def stale(texts: Sequence[str]) -> dict[str, float]:
    """Topic (or "": every one) -> seconds of the ``--stale-after`` options."""
    out: dict[str, float] = {}
    for text in texts:
        topic, _, number = text.rpartition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = -1.0
        if not seconds >= 0 or (topic and not topic.startswith("/")):
            raise BadInput(f"--stale-after {text}: write seconds, or /topic=SECONDS; inf holds until the next sample")
        out[topic] = seconds
    return out


def renames(texts: Sequence[str]) -> dict[str, str]:
    """Column -> signal of the ``--rename`` options."""
    out: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.rpartition("=")
        if not equals or not old or not new.isidentifier():
            raise BadInput(f"--rename {text}: write COLUMN=SIGNAL, such as X=pos_x")
        if old in out:
            raise BadInput(f"--rename: column {old!r} is renamed twice")
        out[old] = new
    return out


def judge(action: str, spec: Spec, path: Path, options: Namespace) -> int:
    """Check, explain or plot: the verdict at the first sample of the trace."""
    formula, trace = formula_and_trace(spec, path, options)
    explanation = explained(formula, trace, spec, options.partial)
    if action == "plot":
        from temporeal.policies.runs import run_folders
        from temporeal.sim.stl.analysis.plot import plot

        run_folders.check_writable(options.out.parent, "-o")
        try:
            plot(explanation, options.out)
        except OSError as error:
            raise BadInput(f"cannot write {options.out}: {error.strerror}") from error
    if options.json:
        found = explanation.to_json(options.series)
        at = explanation.at_s
        found["at_t"] = None if at is None else trace.start_s + at
        found["notes"] = list(trace.notes)
        print_json(found if action != "check" or options.series else short(found))
    elif action == "explain":
        say("\n".join([explanation.text(), *noted(trace.notes)]))
    else:
        say("\n".join([*in_short(explanation), *noted(trace.notes)]))
        if action == "plot":
            say(str(options.out))
    return STATUS[explanation.verdict]


def formula_and_trace(spec: Spec, path: Path, options: Namespace) -> tuple[Formula, Trace]:
    """The formula over the signals of the trace, and the trace."""
    from temporeal.policies.cli.traces.episodes import read_episode
    from temporeal.policies.cli.traces.reader import open_tables, read_trace
    from temporeal.policies.cli.traces.table import schema_of, unread_of
    from temporeal.sim.stl.language.queries import signals_in

    if str(path) == "-":
        raise BadInput("- (stdin) is for monitor; check, explain and plot read a file")
    how = trace_options(options, spec.dt)
    tables: Sequence[Table] = (open_tables(path, how) if options.episode is None else
                               [read_episode(path, options.episode, how.time)])
    formula = formula_on(spec, schema_of(tables), [c for table in tables for c in table.columns], str(path),
                         unread_of(tables))
    trace = read_trace(tables, {name: signal.shape for name, signal in signals_in(formula).items()}, how)
    return formula, trace


def explained(formula: Formula, trace: Trace, spec: Spec, partial: bool) -> Explanation:
    """The explanation; a window that is no whole number of samples is bad input, with advice."""
    import numpy as np

    from temporeal.sim.stl.analysis.explain import explain
    from temporeal.sim.stl.language.errors import FormulaError

    # a formula without signals is as long as its trace
    signals = trace.signals or {"": np.zeros(trace.count)}
    try:
        return explain(formula, signals, trace.dt, semantics_of(spec), partial)
    except FormulaError as error:
        hint = "; --dt S --resample hold puts the trace on a grid that fits" if "multiple" in str(error) else ""
        raise BadInput(f"{spec.source}: {error}{hint}") from error


def short(found: dict[str, Any]) -> dict[str, Any]:
    """What `check` prints of an explanation."""
    kept = ("formula", "robustness", "lower", "upper", "verdict", "decided_by", "at_s", "at_t", "dt", "samples",
            "horizon_s", "semantics", "note", "notes")
    return {key: found[key] for key in kept}


def noted(notes: Sequence[str]) -> list[str]:
    """Lines that say what became of the samples."""
    return [f"note: {text}" for text in notes]


def in_short(e: Explanation) -> list[str]:
    """The verdict in a line or two."""
    from temporeal.sim.stl.analysis.explanation_text import describe, note, number

    unit = e.decider.unit
    known = e.robustness == e.robustness
    size = number(e.robustness, unit) if known else f"between {number(e.lower, unit)} and {number(e.upper, unit)}"
    verb = "waits for" if e.verdict == "undecided" else "decided by"
    hint = note(e)
    return [f"{e.verdict}: robustness {size}, {verb} {describe(e.decider)[0]}", *([f"note: {hint}"] if hint else [])]
