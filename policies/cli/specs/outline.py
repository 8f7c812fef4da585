"""A formula without a trace: its text, horizon, history and signals."""

from __future__ import annotations

import math
from argparse import Namespace

from temporeal.policies.cli.console import print_json, say
from temporeal.policies.cli.specs.formulas import guessed_formula
from temporeal.policies.cli.specs.spec_file import Spec, semantics_of
from temporeal.policies.runs.errors import OK, BadInput


def outline(spec: Spec, options: Namespace) -> int:
    """The formula as it was understood: text, horizon, history, signals."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.propositional import to_text
    from temporeal.sim.stl.language.queries import history, horizon, signals_in

    semantics_of(spec)
    formula = guessed_formula(spec)
    try:
        ahead, back = horizon(formula, spec.dt), history(formula, spec.dt)
    except FormulaError as error:
        if spec.dt is not None:
            raise BadInput(f"{spec.source}: {error}") from error
        ahead = back = math.nan  # in samples: X and Y are as long as the period
    signals = signals_in(formula)
    guessed = [name for name in signals if name not in spec.signals and isinstance(spec.formula, str)]
    if options.json:
        rows = {n: {"shape": list(s.shape), "unit": s.unit, "assumed": n in guessed} for n, s in signals.items()}
        print_json({"formula": to_text(formula), "horizon_s": finite(ahead), "history_s": finite(back), "dt": spec.dt,
                    "signals": rows, "robustness": None, "verdict": None, "decided_by": None, "at_s": None})
        return OK
    say(to_text(formula))
    say(f"  looks ahead  {span(ahead)}\n  looks back   {span(back)}")
    for name, signal in signals.items():
        shape = f"[{', '.join(map(str, signal.shape))}]" if signal.shape else ""
        detail = " (shape assumed: no trace, not declared)" if name in guessed else ""
        say(f"  signal       {name}{shape} {signal.unit}{detail}")
    return OK


def finite(x: float) -> float | str | None:
    """A number as JSON can hold it."""
    return x if math.isfinite(x) else None if x != x else "inf" if x > 0 else "-inf"


def span(x: float) -> str:
    """A length of time in words."""
    if x != x:
        return "it depends on the period, which --dt S says"
    return f"{x:g} s" if math.isfinite(x) else "to the end of the trace"
