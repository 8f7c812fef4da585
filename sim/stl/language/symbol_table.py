"""The parser's symbol table: the names that a text may use, errors that point into it, and limits of its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from lark import Token

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.errors import MAX_DEPTH, MAX_LEVELS, TOO_DEEP, FormulaError
from temporeal.sim.stl.language.propositional import Constant, Expr, Formula, Signal
from temporeal.sim.stl.language.text import name_text
from temporeal.sim.stl.language.units import Unit, parse_unit

MAX_NODES = 100_000
"""Nodes of a formula with its named sub-formulas expanded, at most: 40 lines of text could expand to 2**40."""


class Part(NamedTuple):
    """A formula or an expression, its unit, its place in the text (offsets) and its depth as by `queries.depth`."""

    value: Any
    unit: Unit
    start: int
    end: int
    levels: int
    formulas: int


class SymbolTable:
    """Names in scope while one text is read: signals (``schema``), ``constants``, and what the text itself ``named``.

    ``strict``: a schema was given, and the text may not declare further signals. ``nodes``: number of nodes so far.
    """

    def __init__(
        self, text: str, schema: Mapping[str, SignalSpec] | None, constants: Mapping[str, Constant]
    ) -> None:
        self.text, self.constants = text, constants
        self.strict = schema is not None
        self.schema = dict(schema or {})
        self.named: dict[str, tuple[Part, int]] = {}
        self.nodes = 0

    def error(self, rule: str, start: int, end: int, legal: str = "") -> FormulaError:
        return FormulaError(rule, self.text, start, end, legal)

    def part(
        self, value: Formula | Expr, unit: Unit, start: int, end: int, of: Sequence[Part] = (), levels: int = 1
    ) -> Part:
        """``value`` of ``levels`` nested nodes with the parts ``of`` below them; an error beyond the limits."""
        below = formulas = 0
        for part in of:
            below, formulas = max(below, part.levels), max(formulas, part.formulas)
        if isinstance(value, Formula):
            formulas += levels
        self.count(levels, start, end)
        if below + levels > MAX_LEVELS or formulas > MAX_DEPTH:
            raise self.error(f"the formula is {TOO_DEEP}", start, end)
        return Part(value, unit, start, end, below + levels, formulas)

    def count(self, nodes: int, start: int, end: int) -> None:
        """Count ``nodes`` more; an error beyond :data:`MAX_NODES`."""
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(f"the formula is too large: more than {MAX_NODES} nodes", start, end)

    def new_name(self, token: Token, name: str) -> None:
        """Refuse a name that is no identifier or already taken."""
        start, end = token.start_pos or 0, token.end_pos or 0
        if not name.isidentifier():
            raise self.error(f"{name!r} is not a name: use letters, digits and underscores", start, end)
        for kind, known in (("a signal", self.schema), ("a constant", self.constants), ("given above", self.named)):
            if name in known:
                raise self.error(f"{name!r} is {kind} already; write == to compare", start, end)

    def resolve(self, name: str, start: int, end: int) -> Part:
        """What ``name`` stands for."""
        if name in self.schema:
            spec = self.schema[name]
            return self.part(Signal(name, tuple(spec.shape), spec.unit), parse_unit(spec.unit), start, end)
        if name in self.constants:
            return self.part(self.constants[name], None, start, end)
        if name in self.named:
            part, nodes = self.named[name]
            self.count(nodes, start, end)
            return part._replace(start=start, end=end)
        raise self.unknown("signal", name, start, end, [*self.schema, *self.constants, *self.named], self.legal())

    def unknown(self, kind: str, name: str, start: int, end: int, known: Sequence[str], legal: str) -> FormulaError:
        """The error for an unknown name, with the closest of ``known``."""
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return self.error(f"unknown {kind} {name!r}{hint}", start, end, legal)

    def legal(self) -> str:
        """The names in scope, for an error."""
        signals = [
            f"{name_text(n)}{list(s.shape) if s.shape else ''} {s.unit}".rstrip() for n, s in self.schema.items()]
        constants = [f"{n}{list(c.shape) if c.shape else ''}" for n, c in self.constants.items()]
        named = f"; named above: {', '.join(self.named)}" if self.named else ""
        return f"signals: {', '.join(signals) or 'none'}; constants: {', '.join(constants) or 'none'}{named}"
