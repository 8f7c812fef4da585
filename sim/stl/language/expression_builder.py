"""From chains of operands and operators to formulas and expressions, checked for shape and unit."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

import numpy as np
from lark import Token, Tree

from temporeal.sim.stl.language.constructors import fall, rise
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.grammar import INFIX, PREFIX
from temporeal.sim.stl.language.operations import FUNCTIONS, shape_text
from temporeal.sim.stl.language.propositional import (
    COMPARE_HINT,
    And,
    Apply,
    Component,
    Constant,
    Expr,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    component_names,
)
from temporeal.sim.stl.language.queries import leaves
from temporeal.sim.stl.language.symbol_table import Part, SymbolTable
from temporeal.sim.stl.language.temporal import (
    ALL_TIME,
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
    Window,
)
from temporeal.sim.stl.language.units import NUMBER, ONE, common, operation_unit
from temporeal.sim.stl.language.values import numpy_arrays, value

_WINDOWED: Mapping[str, type[Always] | type[Eventually] | type[Historically] | type[Once]] = {
    "ALWAYS": Always, "EVENTUALLY": Eventually, "HISTORICALLY": Historically, "ONCE": Once}
_BINARY: Mapping[str, type[Until] | type[Release] | type[WeakUntil] | type[Since]] = {
    "UNTIL": Until, "RELEASE": Release, "WEAK": WeakUntil, "SINCE": Since}
_ARITHMETIC = {"PLUS": "+", "MINUS": "-", "TIMES": "*", "OVER": "/"}
_EDGES = {"rise": rise, "fall": fall}
_CALLABLE = (*FUNCTIONS, *_EDGES)
# per second
_TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class ExpressionBuilder:
    """Makes a :class:`Part` of each chain in the syntax tree, by precedence climbing."""

    def __init__(self, names: SymbolTable) -> None:
        self.names = names

    def expression(self, tree: Tree[Token]) -> Part:
        items = tree.children
        return self.climb(items[::-1], 0) if len(items) > 1 else self.operand(items[0])

    def climb(self, rest: list[Any], least: int) -> Part:
        """The longest part at the end of ``rest``, a reversed chain, with operators that bind at least ``least``."""
        item = rest.pop()
        left = self.prefixed(item, rest) if isinstance(item, Token) and item.type in PREFIX else self.operand(item)
        while rest and INFIX[rest[-1].type] >= least:
            left = self.joined(left, rest)
        return left

    def operand(self, item: Any) -> Part:
        if isinstance(item, Token):
            if item.type == "REFERENCE":
                return self.reference(item)
            if item.type == "NUMBER":
                return self.number_token(item)
            return self.names.part(Truth(item.type == "TRUE"), None, item.start_pos or 0, item.end_pos or 0)
        children = item.children
        if item.data == "group":
            return self.expression(children[1])._replace(start=children[0].start_pos, end=children[-1].end_pos)
        if item.data == "call":
            return self.call(children)
        if item.data == "component":
            return self.component(self.operand(children[0]), str(children[2]), children[3].end_pos)
        rule = "the entries of a vector are numbers and scalar constants"
        entries = tuple(self.number(c, rule) for c in children[1:-1:2])
        return self.names.part(Constant(entries), None, children[0].start_pos, children[-1].end_pos)

    def prefixed(self, operator: Token, rest: list[Any]) -> Part:
        start, kind = operator.start_pos or 0, operator.type
        if kind == "MINUS":
            return self.minus(start, rest)
        window = self.window(rest)
        arg = self.formula(self.climb(rest, PREFIX[kind]))
        if kind in _WINDOWED:
            made: Formula = _WINDOWED[kind](arg.value, window)
        elif kind == "NOT":
            made = Not(arg.value)
        else:
            made = (Next if kind == "NEXT" else Previous)(arg.value, operator[0] == "s")
        return self.names.part(made, None, start, arg.end, (arg,))

    def minus(self, start: int, rest: list[Any]) -> Part:
        """The negation of the next operand; before a number it belongs to the number."""
        if isinstance(rest[-1], Token) and rest[-1].type == "NUMBER":
            return self.number_token(rest.pop(), -1.0)._replace(start=start)
        arg = self.climb(rest, PREFIX["MINUS"])
        return self.names.part(Apply("neg", (self.expr(arg, "-"),)), arg.unit, start, arg.end, (arg,))

    def joined(self, left: Part, rest: list[Any]) -> Part:
        """``left`` joined to its right operand by the operator at the end of ``rest``."""
        operator = rest.pop()
        kind = operator.type
        window = self.window(rest)
        right = self.climb(rest, INFIX[kind] + 1)
        if kind in _ARITHMETIC:
            return self.apply(_ARITHMETIC[kind], [left, right], left.start, right.end)
        if kind == "COMPARE":
            return self.comparison(left, operator, right, rest)
        a, b = parts = [self.formula(left), self.formula(right)]
        if kind in ("AND", "OR"):
            while rest and rest[-1].type == kind:
                rest.pop()
                parts.append(self.formula(self.climb(rest, INFIX[kind] + 1)))
            made: Formula = (And if kind == "AND" else Or)(tuple(p.value for p in parts))
        elif kind in _BINARY:
            made = _BINARY[kind](a.value, b.value, window)
        elif kind == "XOR":
            return self.names.part(Not(Iff(a.value, b.value)), None, a.start, b.end, parts, levels=2)
        else:
            made = (Implies if kind == "IMPLIES" else Iff)(a.value, b.value)
        return self.names.part(made, None, left.start, parts[-1].end, parts)

    def formula(self, part: Part) -> Part:
        """``part`` as a formula: arithmetic ``x`` alone means ``x > 0``, whose robustness is ``x``."""
        if isinstance(part.value, Formula):
            return part
        if part.value.shape:
            rule = f"a formula is a comparison of scalars; this is {shape_text(part.value.shape)}: {COMPARE_HINT}"
            raise self.names.error(rule, part.start, part.end)
        return self.names.part(Predicate(">", part.value, Constant(0.0)), None, part.start, part.end, (part,))

    def expr(self, part: Part, op: str) -> Expr:
        """``part`` as an argument of the arithmetic ``op``."""
        if isinstance(part.value, Expr):
            return part.value
        rule = f"{op} takes numbers; this is a formula, whose robustness cannot be used as a number"
        raise self.names.error(rule, part.start, part.end)

    def comparison(self, left: Part, operator: Token, right: Part, rest: list[Any]) -> Part:
        """``a < b``, or a chain ``a < b < c``: the conjunction of its pairs."""
        pairs, parts = [self.predicate(operator, left, right)], [left, right]
        while rest and rest[-1].type == "COMPARE":
            operator = rest.pop()
            parts.append(self.climb(rest, INFIX["COMPARE"] + 1))
            pairs.append(self.predicate(operator, *parts[-2:]))
        if len(pairs) == 1:
            return self.names.part(pairs[0], None, left.start, right.end, parts)
        return self.names.part(And(tuple(pairs)), None, left.start, parts[-1].end, parts, levels=2)

    def predicate(self, operator: str, left: Part, right: Part) -> Formula:
        op = "!=" if operator == "!==" else str(operator)
        a, b = self.expr(left, op), self.expr(right, op)
        for side, shape in ((left, a.shape), (right, b.shape)):
            if shape:
                rule = f"{op} compares scalars; this is {shape_text(shape)}: {COMPARE_HINT}"
                raise self.names.error(rule, side.start, side.end)
        try:
            common((left.unit, right.unit))
        except ValueError as error:
            raise self.names.error(f"{op} compares different units: {error}", left.start, right.end) from None
        return Predicate(op, a, b)

    def window(self, rest: list[Any]) -> Window:
        """The window at the end of ``rest``, or all time."""
        if not (isinstance(rest[-1], Tree) and rest[-1].data == "window"):
            return ALL_TIME
        children = rest.pop().children
        bounds: list[float] = []
        units: list[float | None] = []
        for child in children[1:-1]:
            if isinstance(child, Tree):
                bounds.append(self.bound(child))
                units.append(None)
            elif child.type == "REFERENCE":
                units[-1] = self.time_unit(child)
        if units[0] and not units[1]:
            rule = "give the end of the window a unit too; a single unit after the end is that of both bounds"
            raise self.names.error(rule, children[0].start_pos, children[-1].end_pos)
        low, high = units[0] or units[1] or 1.0, units[1] or 1.0
        try:
            return Window(bounds[0] / low, bounds[1] / high)
        except FormulaError as error:
            raise self.names.error(error.rule, children[0].start_pos, children[-1].end_pos) from None

    def time_unit(self, token: Token) -> float:
        if str(token) not in _TIME_UNITS:
            start = token.start_pos or 0
            legal = f"units: {', '.join(_TIME_UNITS)}"
            raise self.names.unknown("unit of time", str(token), start, start + len(token), (), legal)
        return _TIME_UNITS[str(token)]

    def bound(self, tree: Tree[Token]) -> float:
        """A window bound: arithmetic over numbers and constants, or ``inf``."""
        if tree.children == ["inf"] and not {"inf"} & {*self.names.constants, *self.names.named}:
            return inf
        return self.number(tree, "a window bound is a time in seconds: numbers and scalar constants only")

    def number_token(self, token: Token, sign: float = 1.0) -> Part:
        start, end = token.start_pos or 0, token.end_pos or 0
        number = sign * float(token)
        if not isfinite(number):
            raise self.names.error(f"{token!s} is not a finite number", start, end)
        return self.names.part(Constant(number), NUMBER, start, end)

    def call(self, children: list[Any]) -> Part:
        name, start, end = str(children[0]), children[0].start_pos, children[-1].end_pos
        if name not in _CALLABLE:
            legal = f"functions: {', '.join(_CALLABLE)}"
            raise self.names.unknown("function", name, start, start + len(name), _CALLABLE, legal)
        before = self.names.nodes
        args = [self.expression(c) for c in children[2:-1:2]]
        if name not in _EDGES:
            return self.apply(name, args, start, end)
        if len(args) != 1:
            raise self.names.error(f"{name} takes 1 argument, got {len(args)}", start, end)
        arg = self.formula(args[0])
        self.names.count(self.names.nodes - before, start, end)  # the argument occurs twice
        return self.names.part(_EDGES[name](arg.value), None, start, end, (arg,), levels=3)

    def apply(self, op: str, args: list[Part], start: int, end: int) -> Part:
        values = tuple([self.expr(a, op) for a in args])
        exponent = None
        if op == "pow" and len(args) == 2 and args[0].unit not in (None, NUMBER, ONE) and is_constant(args[1]):
            exponent = self.constant_value(args[1])
        try:
            expression = Apply(op, values)
            unit = operation_unit(op, [a.unit for a in args], exponent)
        except FormulaError as error:
            raise self.names.error(error.rule, start, end) from None
        except ValueError as error:
            raise self.names.error(str(error), start, end) from None
        return self.names.part(expression, unit, start, end, args)

    def number(self, tree: Tree[Token], rule: str) -> float:
        """The value of arithmetic over numbers and scalar constants."""
        part = self.expression(tree)
        if not is_constant(part):
            raise self.names.error(rule, part.start, part.end)
        return self.constant_value(part)

    def constant_value(self, part: Part) -> float:
        with np.errstate(all="ignore"):
            number = float(value(part.value, {}, numpy_arrays()))
        if not isfinite(number):
            raise self.names.error(f"this is not a finite number: {number}", part.start, part.end)
        return number

    def reference(self, token: Token) -> Part:
        start = token.start_pos or 0
        written, components = _written_name(token), []
        if len(written) < len(token):
            components = token[len(written) + 1 :].split(".")
        end = start + len(written)
        part = self.names.resolve(written.strip('"'), start, end)
        for component in components:
            end += 1 + len(component)
            part = self.component(part, component, end)
        return part

    def component(self, of: Part, name: str, end: int) -> Part:
        expression = self.expr(of, "a component")
        letters = component_names(expression)
        if name in tuple(letters):
            index = letters.index(name)
        elif name.isdecimal() and len(name) < 10:
            index = int(name)
        else:
            numbers = map(str, range(expression.shape[0] if expression.shape else 0))
            has = ", ".join(letters or numbers) or "none: it is a scalar"
            written = self.names.text[of.start:of.end]
            raise self.names.error(f"no component {name!r}; components of {written}: {has}", of.end, end)
        unit = None if of.unit == NUMBER else of.unit
        try:
            return self.names.part(Component(expression, index), unit, of.start, end, (of,))
        except FormulaError as error:
            raise self.names.error(error.rule, of.end, end) from None


def _written_name(token: Token) -> str:
    """The name at the start of a reference, with its quotes."""
    return token[: token.index('"', 1) + 1] if token[0] == '"' else token.split(".")[0]


def is_constant(part: Part) -> bool:
    """Whether ``part`` is arithmetic over numbers and scalar constants."""
    node = part.value
    return isinstance(node, Expr) and not node.shape and not any(isinstance(leaf, Signal) for leaf in leaves(node))
