"""From text to a checked formula: ``parse("G[0,10] (height > 0.3)", schema)``.

Every signal, component, shape, unit and window is checked here, and an error points at its place in the text.
The grammar is in ``grammar.lark``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from robots.signals import SignalSpec
from sim.stl.syntax import (
    ALL_TIME,
    COMPARE_HINT,
    FUNCTIONS,
    Always,
    And,
    Apply,
    Component,
    Constant,
    Eventually,
    Expr,
    Formula,
    FormulaError,
    Iff,
    Implies,
    Not,
    Or,
    Predicate,
    Signal,
    Truth,
    Until,
    Window,
    component_names,
    leaves,
    leaves_in,
    shape_text,
    to_text,
)
from sim.stl.units import NUMBER, Unit, common, operation_unit, parse_unit
from sim.stl.values import numpy_arrays, value

Constants = Mapping[str, float | Sequence[float]]

WORDS = ("G", "F", "U", "always", "eventually", "until", "not", "and", "or", "implies", "iff", "true", "false")
# words of operators to come: refused as names now, so that no text changes its meaning later
RESERVED = ("R", "W", "X", "H", "O", "S", "Y", "release", "next", "historically", "once", "since", "previous")

_OPERATOR = {"PLUS": "+", "MINUS": "-", "TIMES": "*", "OVER": "/"}
_EXPECTED = {
    "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "COMMA": ",", "COLON": ":", "NUMBER": "a number",
    "REFERENCE": "a name", "COMPARE": "< <= > >=", "_AND": "&", "_OR": "|", "_NOT": "!", "_IMPLIES": "->",
    "_IFF": "<->", "_UNTIL": "U", "_ALWAYS": "G", "_EVENTUALLY": "F", "TRUE": "true", "FALSE": "false",
    "$END": "the end", **_OPERATOR,
}


@dataclass(frozen=True)
class _Typed:
    """An expression with its unit and its place in the text."""

    expr: Expr
    unit: Unit
    start: int
    end: int


def parse(text: str, schema: Mapping[str, SignalSpec], constants: Constants | None = None) -> Formula:
    """The formula that ``text`` says over the signals of ``schema``.

    ``constants`` are numbers and vectors that the text names; they have no unit and match every unit. Raises
    :class:`FormulaError`.
    """
    values = {name: _constant(name, value) for name, value in (constants or {}).items()}
    both = sorted(set(values) & set(schema))
    if both:
        raise FormulaError(f"{', '.join(both)}: names of constants and of signals at the same time")
    try:
        return _Builder(text, schema, values).formula(_tree(text))
    except RecursionError:
        raise FormulaError("the formula is nested too deeply") from None


def check(formula: Formula, schema: Mapping[str, SignalSpec]) -> Formula:
    """``formula``, built in Python or read from JSON, checked against ``schema``; shapes and units are the schema's."""
    constants: dict[str, float | tuple[float, ...]] = {}
    for leaf in leaves_in(formula):
        if isinstance(leaf, Constant) and leaf.name and constants.setdefault(leaf.name, leaf.value) != leaf.value:
            raise FormulaError(f"constant {leaf.name!r} has two values: {constants[leaf.name]} and {leaf.value}")
    return parse(to_text(formula), schema, constants)


def _constant(name: str, number: float | Sequence[float]) -> Constant:
    if not name.isidentifier() or name in WORDS:
        raise FormulaError(f"constant {name!r}: a name is letters, digits and underscores, and no word of the language")
    try:
        tolist = getattr(number, "tolist", None)  # a numpy array or a tensor
        plain: Any = tolist() if tolist else number
        return Constant(tuple(float(x) for x in plain) if hasattr(plain, "__iter__") else float(plain), name)
    except (TypeError, ValueError) as error:
        if isinstance(error, FormulaError):
            raise
        raise FormulaError(f"constant {name!r} must be a number or a list of numbers, got {number!r}") from None


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    # the basic lexer: a word of the language is one wherever it stands
    return Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=True)


def _tree(text: str) -> Tree[Token]:
    if not text.strip():
        raise FormulaError("the formula is empty")
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None


def _syntax_error(text: str, error: UnexpectedInput) -> FormulaError:
    if isinstance(error, UnexpectedCharacters):
        at, found = error.pos_in_stream or 0, text[error.pos_in_stream or 0]
        if found == "=":
            return FormulaError("there is no equality: write abs(a - b) < tolerance", text, at, at + 1)
        return FormulaError(f"unexpected character {found!r}", text, at, at + 1)
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        token = error.token
        at = token.start_pos or 0
        if str(token) in WORDS and "REFERENCE" in error.accepts:
            rule = f"{str(token)!r} is a word of the language, no name"
        else:
            rule = f"unexpected {str(token)!r}; expected {_expected(error.accepts)}"
        return FormulaError(rule, text, at, at + len(token))
    accepts = error.accepts if isinstance(error, UnexpectedToken) else set(getattr(error, "expected", ()))
    end = len(text.rstrip())
    assert isinstance(error, (UnexpectedToken, UnexpectedEOF))
    return FormulaError(f"the formula ends too early; expected {_expected(accepts)}", text, end, end)


def _expected(accepts: Any) -> str:
    return " or ".join(_EXPECTED[name] for name in _EXPECTED if name in accepts) or "something else"


class _Builder:
    """Walks the syntax tree of one text."""

    def __init__(self, text: str, schema: Mapping[str, SignalSpec], constants: Mapping[str, Constant]) -> None:
        self.text, self.schema, self.constants = text, schema, constants

    def error(self, rule: str, start: int, end: int, legal: str = "") -> FormulaError:
        return FormulaError(rule, self.text, start, end, legal)

    # -------------------------------------------------------- formulas

    def formula(self, tree: Any) -> Formula:
        match tree.data, tree.children:
            case "iff", [left, right]:
                return Iff(self.formula(left), self.formula(right))
            case "implies", [left, right]:
                return Implies(self.formula(left), self.formula(right))
            case "disjunction", parts:
                return Or(tuple(self.formula(p) for p in parts))
            case "conjunction", parts:
                return And(tuple(self.formula(p) for p in parts))
            case "until", [left, window, right]:
                return Until(self.formula(left), self.formula(right), self.window(window))
            case "negation", [arg]:
                return Not(self.formula(arg))
            case "always", [window, arg]:
                return Always(self.formula(arg), self.window(window))
            case "eventually", [window, arg]:
                return Eventually(self.formula(arg), self.window(window))
            case "comparison", parts:
                return self.comparison(parts)
        return Truth(tree.data == "true")

    def comparison(self, parts: list[Any]) -> Formula:
        """``a < b``, or a chain ``a < b < c``: the conjunction of its pairs."""
        terms = [self.expr(p) for p in parts[::2]]
        pairs = [self.predicate(str(op), a, b) for a, op, b in zip(terms, parts[1::2], terms[1:])]
        return pairs[0] if len(pairs) == 1 else And(tuple(pairs))

    def predicate(self, op: str, left: _Typed, right: _Typed) -> Formula:
        for side in (left, right):
            if side.expr.shape:
                rule = f"{op} compares scalars; this is {shape_text(side.expr.shape)}: {COMPARE_HINT}"
                raise self.error(rule, side.start, side.end)
        try:
            common([left.unit, right.unit])
        except ValueError as error:
            raise self.error(f"{op} compares different units: {error}", left.start, right.end) from None
        return Predicate(op, left.expr, right.expr)

    def window(self, tree: Any) -> Window:
        if tree is None:
            return ALL_TIME
        bounds = [self.bound(child) for child in tree.children]
        try:
            return Window(*bounds)
        except FormulaError as error:
            raise self.error(error.rule, tree.meta.start_pos, tree.meta.end_pos) from None

    def bound(self, tree: Any) -> float:
        """A time in seconds: arithmetic over numbers and constants, or ``inf``."""
        if tree.data == "reference" and str(tree.children[0]) == "inf" and "inf" not in self.constants:
            return inf
        return self.number(tree, "a window bound is a time in seconds: numbers and scalar constants only")

    # -------------------------------------------------------- expressions

    def expr(self, tree: Any) -> _Typed:
        start, end = tree.meta.start_pos, tree.meta.end_pos
        match tree.data, tree.children:
            case "number", [token]:
                return _Typed(Constant(float(token)), NUMBER, start, end)
            case "vector", parts:
                rule = "the entries of a vector are numbers and scalar constants"
                return _Typed(Constant(tuple(self.number(p, rule) for p in parts)), None, start, end)
            case "reference", [token]:
                return self.reference(token)
            case "minus", [_, arg]:
                inner = self.expr(arg)
                return _Typed(-inner.expr, inner.unit, start, end)
            case "component", [of, token]:
                return self.component(self.expr(of), str(token), start, end)
            case "binary", [left, token, right]:
                return self.apply(_OPERATOR[token.type], [self.expr(left), self.expr(right)], start, end)
            case "call", [token, *args]:
                if str(token) not in FUNCTIONS:
                    legal = f"functions: {', '.join(FUNCTIONS)}"
                    raise self.unknown("function", str(token), token.start_pos or 0, FUNCTIONS, legal)
                return self.apply(str(token), [self.expr(a) for a in args], start, end)
        raise TypeError(f"unknown syntax node {tree.data}")

    def apply(self, op: str, args: list[_Typed], start: int, end: int) -> _Typed:
        try:
            expression = Apply(op, tuple(a.expr for a in args))
            return _Typed(expression, operation_unit(op, [a.unit for a in args]), start, end)
        except FormulaError as error:
            raise self.error(error.rule, start, end) from None
        except ValueError as error:
            raise self.error(str(error), start, end) from None

    def number(self, tree: Any, rule: str) -> float:
        """The value of arithmetic over numbers and scalar constants."""
        typed = self.expr(tree)
        if typed.expr.shape or any(isinstance(leaf, Signal) for leaf in leaves(typed.expr)):
            raise self.error(rule, typed.start, typed.end)
        return float(value(typed.expr, {}, numpy_arrays()))

    def reference(self, token: Token) -> _Typed:
        start = token.start_pos or 0
        name, *components = str(token).split(".")
        typed = self.name(name, start)
        end = start + len(name)
        for component in components:
            end += 1 + len(component)
            typed = self.component(typed, component, start, end)
        return typed

    def name(self, name: str, start: int) -> _Typed:
        end = start + len(name)
        if name in self.schema:
            spec = self.schema[name]
            return _Typed(Signal(name, tuple(spec.shape), spec.unit), parse_unit(spec.unit), start, end)
        if name in self.constants:
            return _Typed(self.constants[name], None, start, end)
        if name in RESERVED:
            raise self.error(f"{name!r} is reserved for an operator that is not there yet", start, end)
        raise self.unknown("signal", name, start, [*self.schema, *self.constants], self.legal())

    def component(self, of: _Typed, name: str, start: int, end: int) -> _Typed:
        letters = component_names(of.expr)
        if name in letters:
            index = letters.index(name)
        elif name.isdigit():
            index = int(name)
        else:
            numbers = map(str, range(of.expr.shape[0] if of.expr.shape else 0))
            has = ", ".join(letters or numbers) or "none: it is a scalar"
            raise self.error(f"no component {name!r}; components of {self.text[of.start:of.end]}: {has}", of.end, end)
        try:
            unit = None if of.unit == NUMBER else of.unit
            return _Typed(Component(of.expr, index), unit, start, end)
        except FormulaError as error:
            raise self.error(error.rule, of.end, end) from None

    def unknown(self, kind: str, name: str, start: int, known: Sequence[str], legal: str) -> FormulaError:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return self.error(f"unknown {kind} {name!r}{hint}", start, start + len(name), legal)

    def legal(self) -> str:
        signals = [f"{n}{list(s.shape) if s.shape else ''} {s.unit}" for n, s in self.schema.items()]
        constants = [f"{n}{list(c.shape) if c.shape else ''}" for n, c in self.constants.items()]
        return f"signals: {', '.join(signals) or 'none'}; constants: {', '.join(constants) or 'none'}"
