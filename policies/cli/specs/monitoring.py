"""A formula on a trace sample by sample: bounds, and the verdict as soon as it is certain."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import complain, print_json, say
from temporeal.policies.cli.specs.formulas import formula_on
from temporeal.policies.cli.specs.judging import (
    STATUS,
    explained,
    formula_and_trace,
    in_short,
    noted,
    short,
    trace_options,
)
from temporeal.policies.cli.specs.spec_file import Spec, semantics_of
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.stl.monitoring.monitor import Monitor, Reading


MOST_STEPS = 10_000_000
"""Samples of the longest window that is monitored sample by sample."""


def monitor(spec: Spec, source: str, options: Namespace) -> int:
    """Feed the samples one by one, and print what is known after each."""
    if semantics_of(spec).end != "clip":
        raise BadInput(f"{spec.source}: semantics end={spec.semantics['end']}: while a trace goes on, what lies past "
                       "its end is unknown; check and explain take it")
    printer = SamplePrinter(spec, options)
    if source == "-":
        samples = from_stdin(printer, spec, options)
    else:
        formula, trace = formula_and_trace(spec, Path(source), options)
        printer.begin(formula, trace.dt, trace.start_s)
        printer.notes = list(trace.notes)
        samples = ((k, {name: values[k] for name, values in trace.signals.items()}) for k in range(trace.count))
    try:
        for at, sample in samples:
            if printer.feed(at, sample):
                break
    except BadInput as error:
        if printer.decided_at_s is None:
            raise
        complain(f"temporeal: {error}\ntemporeal: the verdict was certain before that")
    return printer.end()


class SamplePrinter:
    """Feeds samples to a monitor and prints its readings as a table."""

    def __init__(self, spec: Spec, options: Namespace) -> None:
        self.spec, self.options = spec, options
        self.samples: list[Mapping[str, Any]] = []
        self.notes: list[str] = []
        self.lost = 0
        self.formula: Formula | None = None
        self.decided_at_s: float | None = None

    def begin(self, formula: Formula, dt: float, start_s: float) -> None:
        """Start with a known formula and period."""
        from temporeal.sim.stl.language.errors import FormulaError
        from temporeal.sim.stl.language.queries import history, horizon
        from temporeal.sim.stl.monitoring.monitor import Monitor

        self.formula, self.dt, self.start_s = formula, dt, start_s
        self.bounded = math.isfinite(horizon(formula, dt))
        self.monitor: Monitor | None = None
        self.decimals = max(3, min(12, 3 - math.floor(math.log10(dt))))
        self.width = max(10, len(self.clock(start_s + dt)))
        try:
            longest = max([0.0, *(s for s in (horizon(formula, dt), history(formula, dt)) if math.isfinite(s))])
            if longest / dt > MOST_STEPS:
                complain(f"temporeal: a window of {longest:.6g} s is {longest / dt:.6g} samples, too many to "
                         "monitor one by one: it is judged when the trace ends")
                self.head()
                return
            # compiling would take longer than most traces last
            self.monitor = Monitor(formula, dt, semantics_of(self.spec), compiled=False)
        except FormulaError:
            if self.bounded:
                raise
            complain("temporeal: a window without an end inside the formula: it is judged when the trace ends")
        self.head()

    def head(self) -> None:
        """Print the head of the table."""
        if not self.options.json:
            say(f"{'t [s]':>{self.width}} {'lower':>12} {'upper':>12}  verdict")

    def clock(self, t: float) -> str:
        """A time with enough digits to tell samples apart."""
        return f"{t:.{self.decimals}f}".rstrip("0").rstrip(".")

    def feed(self, at: int, values: Mapping[str, Any]) -> bool:
        """Take sample ``at``; samples skipped before it are lost. Whether to stop: nothing can change any more, or the
        verdict was all that was asked for."""
        gap = at - len(self.samples)
        if gap:
            from temporeal.policies.cli.traces.table import MAX_ROWS

            if at > MAX_ROWS:
                raise BadInput(f"{gap} samples were lost one after the other: a trace has at most {MAX_ROWS}")
            import numpy as np

            self.lost += gap
            self.samples += [{name: np.full_like(v, np.nan) for name, v in values.items()}] * gap
        self.samples.append(values)
        if self.monitor is None:
            return False
        reading: Reading = self.monitor.update(values, at=at * self.dt)
        if not self.options.json:
            time_s = self.clock(self.start_s + at * self.dt)
            say(f"{time_s:>{self.width}} {shown(reading.lower):>12} {shown(reading.upper):>12}  {reading.verdict}")
        if reading.verdict != "undecided" and self.decided_at_s is None:
            self.decided_at_s = at * self.dt
        return reading.final or (reading.verdict != "undecided" and bool(self.options.until_decided))

    def end(self) -> int:
        """The trace has ended, or is decided: print the result."""
        from temporeal.policies.cli.traces.table import Trace

        if self.formula is None or not self.samples:
            raise BadInput("the trace is empty: no sample came")
        import numpy as np

        signals = {name: np.stack([s[name] for s in self.samples]) for name in self.samples[0]}
        trace = Trace(signals, self.dt, self.start_s, len(self.samples), tuple(self.notes))
        # a formula without an end is judged by the whole trace, any other by what every continuation agrees on
        found = explained(self.formula, trace, self.spec, partial=self.bounded)
        if self.options.json:
            at = found.at_s
            print_json({**short({**found.to_json(), "at_t": None if at is None else self.start_s + at,
                                 "notes": self.notes}), "decided_at_s": self.decided_at_s, "lost": self.lost})
        else:
            lost = [f"note: {self.lost} sample{'s were' if self.lost > 1 else ' was'} lost"] if self.lost else []
            say("\n".join([*in_short(found), *lost, *noted(self.notes)]))
        return STATUS[found.verdict]


def shown(x: float) -> str:
    """A bound in a table."""
    return f"{x:.6g}"


def from_stdin(printer: SamplePrinter, spec: Spec, options: Namespace) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Samples of a CSV on stdin as they come, numbered from 0; the first two rows give the period unless it is given.
    With ``--missing unknown``, missing rows skip numbers."""
    from temporeal.policies.cli.traces.csv_files import live
    from temporeal.policies.cli.traces.grid import simplest_period
    from temporeal.policies.cli.traces.ordering import LiveOrder, clock
    from temporeal.policies.cli.traces.table import TOLERANCE
    from temporeal.sim.stl.language.queries import signals_in

    if options.resample or options.begin is not None or options.end_s is not None or options.maps or options.robot:
        raise BadInput("stdin is read as it comes: --resample, --from, --to, --map and --robot are for files")
    how = trace_options(options, spec.dt)
    stream = live(sys.stdin, how)
    formula = formula_on(spec, stream.schema, stream.columns, "stdin")
    names = signals_in(formula)
    for name, signal in names.items():
        if name not in stream.schema or stream.schema[name].shape != signal.shape:
            raise BadInput(f"stdin: no column for signal {name!r} of shape {list(signal.shape)}; "
                           f"columns: {', '.join(stream.columns)}")
    held: list[tuple[int, float | None, Mapping[str, Any]]] = []
    count, dt, first = 0, spec.dt, 0.0
    order = LiveOrder(how, printer.notes)
    for row in stream.rows(list(names)):
        number, time, _ = row
        if time is not None and order.drops(number, time):
            continue
        held.append(row)
        if dt is None:  # then there is a time column, or live() had refused
            if len(held) < 2:
                continue
            dt = period_of(held, simplest_period)
        if printer.formula is None:
            first = held[0][1] or 0.0
            printer.begin(formula, dt, first)
        for number, time, sample in held:
            if time is not None and math.isfinite(time) and options.missing == "unknown":
                count = max(count, math.floor((time - first) / dt + 0.5))
            if time is not None and not abs(time - first - count * dt) <= TOLERANCE * dt:
                says = "" if spec.dt else " by the first two rows: --dt S says another"
                raise BadInput(f"stdin: row {number}: t = {clock(time)}; {clock(first + count * dt)} is expected (the "
                               f"period is {dt:.6g} s{says}, tolerance {TOLERANCE:.0%} of it); time must increase "
                               "uniformly, but for rows that are lost with --missing unknown")
            yield count, sample
            count += 1
        held.clear()
    if held:
        raise BadInput("stdin: one sample has no period; --dt S says it")


def period_of(held: Sequence[tuple[int, float | None, Any]], simplest: Any) -> float:
    """The period of the first two rows."""
    import numpy as np

    (_, a, _), (number, b, _) = held[:2]
    if a is None or b is None or not b > a:
        raise BadInput(f"stdin: row {number}: t = {b} after {a}; time must increase")
    return float(simplest(np.array([a, b])))
