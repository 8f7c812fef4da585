"""The sentence that says why an instruction was not done, from one recorded episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporeal.sim.stl.analysis.explain import explain
from temporeal.sim.stl.analysis.explanation import Clause
from temporeal.sim.stl.instructions.formulas import CONSTANTS, failures, formula_text, schema
from temporeal.sim.stl.instructions.grammar import Instruction
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.semantics.verdicts import VIOLATED


def why_failed(
    instruction: Instruction, signals: Mapping[str, Any], dt: float, tool: str = "grip",
    constants: Mapping[str, float] = CONSTANTS,
) -> str:
    """Why ``instruction`` was not done in one episode, ``signals`` [T, *shape] every ``dt`` s; empty: it was done.

    'the red cube never stayed within 4 cm of the tray for 0.5 s: 12.3 cm short, at 6.2 s'. An episode that is shorter
    than the formula's horizon is judged by what was seen of it. ``constants``: the formula's lengths, m.
    """
    asked = parse(formula_text(instruction, tool), schema(tool), constants)
    read = {name: signals[name] for name in signals_in(asked) if name in signals}
    found = explain(asked, read, dt)
    wrong = [(clause, text) for clause, text in zip(found.clauses, failures(instruction, constants), strict=True)
             if clause.verdict == VIOLATED]
    return "; ".join(text + _closest(clause) for clause, text in wrong)


def _closest(clause: Clause) -> str:
    """How far from done, where a distance says it, and when."""
    decider = clause.decider
    if decider.kind != "predicate" or decider.unit != "m":
        return ""
    short = f": {100 * abs(decider.value):.1f} cm short" if clause.text.startswith("F") else ""
    return f"{short}, at {decider.time_s:g} s"
