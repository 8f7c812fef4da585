"""The formula of a file over the signals of a trace, or over signals whose shapes are guessed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from temporeal.policies.cli.specs.spec_file import Spec, assigned_names, without_comments
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.language.propositional import Formula


SIZES = (2, 1, 4, 3, 5, 6, 7, 8)
"""Lengths of vectors to try where only their use tells."""


def formula_of(spec: Spec, schema: Mapping[str, SignalSpec]) -> Formula:
    """The formula, checked against ``schema`` and the file's own declarations, which take precedence."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.parse import check, parse
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.stl.language.queries import signals_in
    from temporeal.sim.stl.language.serialization import from_json

    known = {**schema, **spec.signals}
    try:
        if not isinstance(spec.formula, str):
            if spec.constants:
                raise BadInput(f"{spec.source}: constants are for a formula as text: its JSON form carries its own")
            formula = from_json(spec.formula)
            if not isinstance(formula, Formula):
                raise BadInput(f"{spec.source}: formula is an expression, {type(formula).__name__.lower()}: a formula "
                               "has a comparison")
            return check(formula, known)
        assigned = {name for name in assigned_names(spec.formula) if name not in spec.signals}
        formula = parse(spec.formula, {n: s for n, s in known.items() if n not in assigned}, spec.constants)
        if assigned & set(known) and not signals_in(formula):
            name = min(assigned & set(known))
            raise BadInput(f"{spec.source}: the formula reads no signal: {name} is a column, and = gives the name to a "
                           "number; write == to compare")
        return formula
    except FormulaError as error:
        raise BadInput(f"{spec.source}: {error}") from error
    except RecursionError:
        raise BadInput(f"{spec.source}: the formula is nested too deeply") from None


def formula_on(
    spec: Spec, schema: Mapping[str, SignalSpec], columns: Sequence[str], source: str,
    unread: Mapping[str, str] | None = None,
) -> Formula:
    """The formula over the signals of a trace; an error names the columns that the trace has, or why it cannot read the
    signal (``unread``)."""
    from temporeal.sim.stl.language.text import WORDS

    try:
        return formula_of(spec, schema)
    except BadInput as error:
        text = str(error)
        for name, reason in (unread or {}).items():
            if f"unknown signal {name!r}" in text:
                raise BadInput(f"{source}: {name} cannot be read: {reason}") from error
        if "unknown signal" in text and set(columns) - set(schema):
            text += f"\n{source} has the columns {', '.join(columns)}"
        words = {c.split(".")[0] for c in columns} & set(WORDS)
        word = next((w for w in sorted(words) if f"{w!r} is a keyword" in text), "")
        if word:
            text += f"\n{source} has a column {word}: --rename {word}=NAME calls it otherwise, for the formula too"
        raise BadInput(text) from error


def assumed(spec: Spec) -> dict[str, SignalSpec]:
    """Signals guessed from the formula alone: scalars, and vectors if a component or a length is taken of them."""
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.stl.language.operations import FUNCTIONS
    from temporeal.sim.stl.language.propositional import Signal
    from temporeal.sim.stl.language.queries import leaves_in
    from temporeal.sim.stl.language.serialization import from_json
    from temporeal.sim.stl.language.text import WORDS

    if not isinstance(spec.formula, str):
        read = [leaf for leaf in leaves_in(from_json(spec.formula)) if isinstance(leaf, Signal)]
        return {s.name: SignalSpec(s.name, s.shape, s.unit, dtype="float64") for s in read}
    text = without_comments(spec.formula)
    reserved = {*WORDS, *FUNCTIONS, *spec.constants, *spec.signals, *assigned_names(text), "inf", "rise", "fall"}
    shapes: dict[str, tuple[int, ...]] = {}
    for found in re.finditer(r"""(?<![\w."])(?:"([^"\n]+)"|([^\W\d]\w*))((?:\.\w+|\[\d+\])*)""", text):
        name = found[1] or found[2]
        if name in (reserved - set(WORDS) if found[1] else reserved):
            continue
        entries = re.findall(r"\w+", found[3])
        least = [int(e) + 1 if e.isdigit() else {"x": 3, "y": 3, "z": 3, "w": 4}.get(e, 1) for e in entries]
        sizes = itertools.zip_longest(least, shapes.get(name, ()), fillvalue=1)
        shapes[name] = tuple(max(pair) for pair in sizes)
    for call in re.finditer(r"\b(?:norm|dist|angle|rotation_angle)\s*\(([^()]*)\)", text):
        of = 4 if call[0].startswith("rotation") else 3
        for name in re.findall(r"(?<![\w.\[])([^\W\d]\w*)(?![\w.\[(])", call[1]):
            if shapes.get(name) == ():
                shapes[name] = (of,)
    return {n: SignalSpec(n, s, "wxyz" if s == (4,) else "", dtype="float64") for n, s in shapes.items()}


def guessed_formula(spec: Spec) -> Formula:
    """The formula over guessed signals: the first guess with which it is well-formed."""
    first = assumed(spec)
    if not isinstance(spec.formula, str):
        return formula_of(spec, first)
    free = [name for name, s in first.items() if s.shape in ((3,), (4,))
            and not re.search(rf"(?<![\w.]){name}\s*[.\[]", without_comments(spec.formula))]
    groups = [*([name] for name in free), free]
    guesses = [first, *({**first, **{n: replace(first[n], shape=(size,), unit="") for n in group}}
                        for group in groups for size in SIZES)]
    errors = []
    for guess in guesses:
        try:
            return formula_of(spec, guess)
        except BadInput as error:
            errors.append(error)
    wrong = errors[0]
    shapes = ", ".join(f"{n}{list(s.shape)}" for n, s in first.items() if s.shape and n not in spec.signals)
    if not shapes or len({str(error) for error in errors}) == 1 < len(errors):  # whatever the shapes
        raise wrong
    raise BadInput(f"{wrong}\nthe shapes were guessed: {shapes}; a trace or signals in YAML say them") from wrong
