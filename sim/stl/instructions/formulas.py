"""Every instruction is a formula, and every such formula is an instruction.

A kind is a few clauses over the poses of tool, target and place. Written with an instruction's own names
(``red_cube_pos_w``, ``tray_pos_w``) they are what a monitor watches on the robot; written with ``target_pos_w`` and
``place_pos_w`` and joined by an implication for each kind, they are the formula of a suite whose worlds have different
instructions. Beside each clause stands the sentence that says how it failed.

Lengths are of objects of about 5 cm. The place below a stack is an object, all others are marked on the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.grammar import (
    FIXTURES,
    KINDS,
    OBJECTS,
    PLACES,
    Instruction,
    in_words,
    instructions,
)
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in

CONSTANTS: dict[str, float] = {
    "near": 0.055,  # m, from the tool to the middle of what is reached: over an object of 5 cm without touching it
    "inside": 0.04,  # m, from a target's middle to that of its place, along the table
    "raised": 0.12,  # m, of the middle of what was picked up
    "lifted": 0.07,  # m, of the middle of what left the table: 4 cm below it are free
    "low": 0.045,  # m, of the middle of what lies on the table
    "clear": 0.07,  # m, from the tool to what was let go
    "aligned": 0.025, "level": 0.05, "rest": 0.015,  # m, of a stack: along the table; the height between the middles
    "opening": 0.08,  # m, of the drawer
    "pressed": 0.008,  # m, of the button's way
    "floor": 0.005,  # m, of the tool over the table
}
HOLD_S = 0.5  # for how long a goal is kept
DEADLINE_S = {"reach": 4.0, "push": 8.0, "pick": 6.0, "place": 10.0, "stack": 10.0, "open": 8.0, "press": 5.0}
"""By when the goal of each kind is kept for :data:`HOLD_S`."""


@dataclass(frozen=True)
class Clause:
    """A conjunct of a kind's formula, and what is said where it fails; both with names to be filled in."""

    formula: str
    failure: str


OVER = "hypot({target}_pos_w.x - {place}_pos_w.x, {target}_pos_w.y - {place}_pos_w.y)"
FREE = "norm({tool}_pos_w - {target}_pos_w) > clear"
KEPT = "F[0,{until}] G[0,{hold}] "
SAFE = Clause("G[0,{end}] ({tool}_pos_w.z > floor)", "the tool touched the table")

CLAUSES: dict[str, tuple[Clause, ...]] = {
    "reach": (
        Clause(KEPT + "(norm({tool}_pos_w - {target}_pos_w) < near)",
               "the tool never stayed within {near} of {the_target} for {hold} s"), SAFE),
    "push": (
        Clause(KEPT + f"({OVER} < inside)", "{the_target} never stayed within {inside} of {the_place} for {hold} s"),
        Clause("G[0,{end}] ({target}_pos_w.z < lifted)", "{the_target} was lifted and not pushed"), SAFE),
    "pick": (
        Clause(KEPT + "({target}_pos_w.z > raised)", "{the_target} was never held {raised} high for {hold} s"), SAFE),
    "place": (
        Clause("F[0,{until}] ({target}_pos_w.z > lifted)", "{the_target} was never lifted"),
        Clause(KEPT + f"({OVER} < inside & {{target}}_pos_w.z < low & {FREE})",
               "{the_target} never lay free within {inside} of {the_place} for {hold} s"), SAFE),
    "stack": (
        Clause(KEPT + f"({OVER} < aligned & abs({{target}}_pos_w.z - {{place}}_pos_w.z - level) < rest & {FREE})",
               "{the_target} never lay free on {the_place} for {hold} s"), SAFE),
    "open": (
        Clause(KEPT + "(drawer_pos > opening)", "the drawer was never open by {opening} for {hold} s"), SAFE),
    "press": (
        Clause("F[0,{end}] (button_pos > pressed)", "the button was never pressed by {pressed}"), SAFE),
}


def constants() -> dict[str, float]:
    """The named numbers of every formula here, m."""
    return dict(CONSTANTS)


def kind_text(kind: str, tool: str = "grip", target: str = "target", place: str = "place") -> str:
    """The formula of a kind over ``<tool>_pos_w``, ``<target>_pos_w`` and ``<place>_pos_w``."""
    end = DEADLINE_S[kind]
    slots = {"tool": tool, "target": target, "place": place, "end": f"{end:g}", "until": f"{end - HOLD_S:g}",
             "hold": f"{HOLD_S:g}"}
    return "\n& ".join(clause.formula.format(**slots) for clause in CLAUSES[kind])


def formula_text(instruction: Instruction, tool: str = "grip") -> str:
    """The formula of ``instruction`` over the signals of its own objects, for an arm with the tool ``tool``."""
    return kind_text(instruction.kind, tool, instruction.target, instruction.place)


def suite_text(kinds: Iterable[str] = KINDS, tool: str = "grip") -> str:
    """One formula for worlds of different instructions: an implication for each of ``kinds``.

    ``kind`` is the index in ``KINDS``. A premise is 500 away from changing: each world's robustness is its kind's own.
    """
    return "\n& ".join(f"(1000 * abs(kind - {KINDS.index(kind)}) < 500 -> ({kind_text(kind, tool)}))"
                       for kind in kinds)


def horizon_s(kinds: Iterable[str] = KINDS) -> float:
    """How long the longest of ``kinds`` takes."""
    return max(DEADLINE_S[kind] for kind in kinds)


def schema(tool: str = "grip") -> dict[str, SignalSpec]:
    """The signals that formulas of instructions read."""
    poses = [SignalSpec(f"{name}_pos_w", (3,), "m", "w") for name in (tool, *OBJECTS, *PLACES)]
    ways = [SignalSpec(f"{name}_pos", (), "m") for name in FIXTURES.values()]
    return {spec.name: spec for spec in (*poses, *ways)}


@cache
def formula(instruction: Instruction, tool: str = "grip") -> Formula:
    """The formula of ``instruction``, parsed."""
    return parse(formula_text(instruction, tool), schema(tool), CONSTANTS)


def instruction_of(text: str) -> Instruction:
    """The instruction whose formula ``text`` is, whatever its spaces; :class:`InstructionError`: it is of none.

    The signals say which instructions it can be; it is the one whose formula is equal.
    """
    tool = _tool_in(text)
    given = parse(text, schema(tool), CONSTANTS)
    read = set(signals_in(given))
    for instruction in instructions():
        names = [n for n in (instruction.target, instruction.place) if n in (*OBJECTS, *PLACES)]
        if read >= {f"{name}_pos_w" for name in names} and formula(instruction, tool) == given:
            return instruction
    raise InstructionError(f"no instruction has this formula: {text[:200]!r}. It reads {', '.join(sorted(read))}; "
                           f"formulas of instructions are those of {', '.join(KINDS)}")


def _tool_in(text: str) -> str:
    """The tool's name: of what is kept over the table."""
    found = re.search(r"(\w+)_pos_w\.z\s*>\s*floor", text)
    if found is None:
        raise InstructionError(f"the formula of an instruction keeps the tool over the table, as "
                               f"'G[0,4] (grip_pos_w.z > floor)'; got {text[:200]!r}")
    return found[1]


def failures(instruction: Instruction, constants: Mapping[str, float] = CONSTANTS) -> list[str]:
    """What is said of each clause of the formula, in its order, where it fails. ``constants``: its lengths, m."""
    lengths = {name: f"{100 * number:.3g} cm" for name, number in constants.items()}
    names = {"the_target": f"the {in_words(instruction.target)}", "the_place": f"the {in_words(instruction.place)}"}
    return [clause.failure.format(hold=f"{HOLD_S:g}", **lengths, **names) for clause in CLAUSES[instruction.kind]]
