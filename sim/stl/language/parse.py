"""From text to a checked formula: ``parse("G[0,10] (height > 0.3)", schema)``.

Every signal, component, shape, unit and window is checked here, and an error points at its place in the text. The
grammar is in ``grammar.lark``; which operator binds tighter is in :data:`INFIX` and :data:`PREFIX`.

The text of a discrete-time specification of rtamt (Nickovic and Yamaguchi, "RTAMT: Online Robustness Monitors from
STL", ATVA 2020) is one here: declarations, named sub-formulas and units of windows are part of the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.syntax import (
    ALL_TIME,
    COMPARE_HINT,
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LEVELS,
    TOO_DEEP,
    WORDS,
    Always,
    And,
    Apply,
    Component,
    Constant,
    Eventually,
    Expr,
    Formula,
    FormulaError,
    Historically,
    Iff,
    Implies,
    Next,
    Not,
    Once,
    Or,
    Predicate,
    Previous,
    Release,
    Signal,
    Since,
    Truth,
    Until,
    WeakUntil,
    Window,
    check_depth,
    component_names,
    fall,
    leaves,
    leaves_in,
    name_text,
    rise,
    shape_text,
    to_text,
)
from temporeal.sim.stl.language.units import NUMBER, ONE, Unit, common, operation_unit, parse_unit
from temporeal.sim.stl.language.values import numpy_arrays, value

Constants = Mapping[str, float | Sequence[float]]

# what binds tighter has the higher number; operators of one number group to the left
INFIX: Mapping[str, int] = {
    "XOR": 1, "IFF": 2, "IMPLIES": 3, "OR": 4, "AND": 5, "SINCE": 6, "WEAK": 7, "RELEASE": 8, "UNTIL": 8,
    "COMPARE": 10, "PLUS": 11, "MINUS": 11, "TIMES": 12, "OVER": 12}
PREFIX: Mapping[str, int] = {
    "NOT": 9, "NEXT": 9, "PREVIOUS": 9, "ALWAYS": 9, "EVENTUALLY": 9, "HISTORICALLY": 9, "ONCE": 9, "MINUS": 13}

_WINDOWED: Mapping[str, type[Always] | type[Eventually] | type[Historically] | type[Once]] = {
    "ALWAYS": Always, "EVENTUALLY": Eventually, "HISTORICALLY": Historically, "ONCE": Once}
_BINARY: Mapping[str, type[Until] | type[Release] | type[WeakUntil] | type[Since]] = {
    "UNTIL": Until, "RELEASE": Release, "WEAK": WeakUntil, "SINCE": Since}
_ARITHMETIC = {"PLUS": "+", "MINUS": "-", "TIMES": "*", "OVER": "/"}
_EDGES = {"rise": rise, "fall": fall}
_CALLABLE = (*FUNCTIONS, *_EDGES)
# of one second
_TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
# nodes of a formula with its named sub-formulas written out: a text of 40 lines could have 2**40
MAX_NODES = 100_000
MAX_TEXT = 1_000_000
"""Characters of a text."""
UNNAMED = "out"
"""The name of a formula without one, as in rtamt."""


class _Part(NamedTuple):
    """A formula or an expression with its unit, its place in the text and how deeply it is nested (`syntax.depth`)."""

    value: Any
    unit: Unit
    start: int
    end: int
    levels: int
    formulas: int


def parse(
    text: str, schema: Mapping[str, SignalSpec] | None = None, constants: Constants | None = None
) -> Formula:
    """The formula that ``text`` says over the signals of ``schema``; of several formulas the last one.

    Without a ``schema`` the signals are those that the text declares (``float x``): scalars of unknown unit.
    ``constants`` are numbers and vectors that the text names; they have no unit and match every unit. Raises
    :class:`FormulaError`.
    """
    return list(parse_specification(text, schema, constants).values())[-1]


def parse_specification(
    text: str, schema: Mapping[str, SignalSpec] | None = None, constants: Constants | None = None
) -> dict[str, Formula]:
    """Every formula of ``text`` by its name, in order; the last one is ``out`` where it has no name.

    Later formulas may name earlier ones, and arithmetic that was given a name, as in ``error = x - y; G (error < 1)``.
    """
    values = {name: _constant(name, value) for name, value in (constants or {}).items()}
    both = sorted(set(values) & set(schema or ()))
    if both:
        raise FormulaError(f"{', '.join(both)}: names of constants and of signals at the same time")
    try:
        return _Builder(text, schema, values).specification(_tree(text))
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def check(formula: Formula, schema: Mapping[str, SignalSpec]) -> Formula:
    """``formula``, built in Python or read from JSON, checked against ``schema``, and with the units of ``schema``.

    A signal without a unit takes that of the schema; another shape or unit than the schema's is an error.
    """
    check_depth(formula)
    constants: dict[str, float | tuple[float, ...]] = {}
    for leaf in leaves_in(formula):
        if isinstance(leaf, Signal):
            _check_signal(leaf, schema)
        elif leaf.name and constants.setdefault(leaf.name, leaf.value) != leaf.value:
            raise FormulaError(f"constant {leaf.name!r} has two values: {constants[leaf.name]} and {leaf.value}")
    return parse(to_text(formula), schema, constants)


def _check_signal(signal: Signal, schema: Mapping[str, SignalSpec]) -> None:
    """Shape and unit only: the parser refuses an unknown name, and says where it is."""
    spec = schema.get(signal.name)
    if spec is None:
        return
    if tuple(spec.shape) != signal.shape:
        raise FormulaError(
            f"signal {signal.name!r} is {shape_text(signal.shape)} in the formula and {shape_text(tuple(spec.shape))} "
            "in the schema")
    here, there = parse_unit(signal.unit), parse_unit(spec.unit)
    # the order of a quaternion's components is part of its unit
    if None not in (here, there) and (here != there or (signal.unit == "wxyz") != (spec.unit == "wxyz")):
        raise FormulaError(
            f"signal {signal.name!r} is in {signal.unit!r} in the formula and in {spec.unit!r} in the schema")


def _constant(name: str, number: float | Sequence[float]) -> Constant:
    if not name.isidentifier() or name in WORDS:
        raise FormulaError(f"constant {name!r}: a name is letters, digits and underscores, and no word of the language")
    return Constant(number, name)  # type: ignore[arg-type]


# ---------------------------------------------------------------- from text to a tree


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    # the basic lexer: a word of the language is one wherever it stands
    return Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=False, lexer_callbacks={"REFERENCE": _word})


def _word(token: Token) -> Token:
    terminal = WORDS.get(token)
    return token if terminal is None else token.update(type=terminal)


def _tree(text: str) -> Tree[Token]:
    if not text.strip():
        raise FormulaError("the formula is empty")
    if len(text) > MAX_TEXT:
        raise FormulaError(f"the formula is too large: {len(text)} characters, and at most {MAX_TEXT} are read")
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None


# what may follow an operand besides an operator
_CLOSING = {"RPAR": ")", "RSQB": "]", "COMMA": ",", "COLON": ":", "$END": "the end"}
_OPENING = {"REFERENCE": "a name or a number", "LPAR": "(", "ASSIGN": "=", "TYPE": "float or int"}


def _syntax_error(text: str, error: UnexpectedInput) -> FormulaError:
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        if text[at] == '"':
            return FormulaError('a name in quotes ends with a quote in its line', text, at, at + 1)
        return FormulaError(f"unexpected character {text[at]!r}", text, at, at + 1)
    assert isinstance(error, UnexpectedToken)
    token, accepts = error.token, error.accepts
    early = token.type == "$END"
    at = len(text.rstrip()) if early else token.start_pos or 0
    before = re.search(r"(?<![\w.])(\w+)\s*$", text[:at])
    if before and before[1] in WORDS and "REFERENCE" in accepts and token.type in ("$END", "RPAR", *INFIX):
        rule = f"{before[1]!r} is a word of the language, no name, and needs a formula behind it; {_quoted(before[1])}"
        return FormulaError(rule, text, before.start(1), before.end(1))
    if early:
        return FormulaError(f"the formula ends too early; expected {_expected(accepts)}", text, at, at)
    rule = f"unexpected {str(token)!r}; expected {_expected(accepts)}"
    if str(token) in WORDS and "REFERENCE" in accepts:
        rule = f"{str(token)!r} is a word of the language, no name; {_quoted(token)}"
    elif token.type == "ASSIGN":
        rule = "= gives a name to a formula; write == to compare"
    return FormulaError(rule, text, at, at + len(token))


def _quoted(word: str) -> str:
    return f'a signal of that name is written "{word}"'


def _expected(accepts: Any) -> str:
    closing = [text for name, text in _CLOSING.items() if name in accepts]
    if "COLON" in accepts:  # the middle of a window
        closing = [",", ":"]
    if closing:
        return " or ".join(["an operator", *closing])
    return " or ".join(text for name, text in _OPENING.items() if name in accepts) or "something else"


# ---------------------------------------------------------------- from the tree to a formula


class _Builder:
    """Walks the syntax tree of one text."""

    def __init__(
        self, text: str, schema: Mapping[str, SignalSpec] | None, constants: Mapping[str, Constant]
    ) -> None:
        self.text, self.constants = text, constants
        self.strict = schema is not None
        self.schema = dict(schema or {})
        self.named: dict[str, tuple[_Part, int]] = {}
        self.nodes = 0
        self.numbers: list[tuple[int, int]] = []  # places of the names that the text gives to numbers

    def error(self, rule: str, start: int, end: int, legal: str = "") -> FormulaError:
        return FormulaError(rule, self.text, start, end, legal)

    def part(
        self, value: Formula | Expr, unit: Unit, start: int, end: int, of: Sequence[_Part] = (), levels: int = 1
    ) -> _Part:
        """``value``, ``levels`` nodes high above the parts ``of``."""
        below = formulas = 0
        for part in of:
            below, formulas = max(below, part.levels), max(formulas, part.formulas)
        if isinstance(value, Formula):
            formulas += levels
        self.count(levels, start, end)
        if below + levels > MAX_LEVELS or formulas > MAX_DEPTH:
            raise self.error(f"the formula is {TOO_DEEP}", start, end)
        return _Part(value, unit, start, end, below + levels, formulas)

    def count(self, nodes: int, start: int, end: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(f"the formula is too large: more than {MAX_NODES} nodes", start, end)

    # -------------------------------------------------------- statements

    def specification(self, tree: Tree[Token]) -> dict[str, Formula]:
        children: list[Any] = tree.children
        statements = [c.children for c in children if isinstance(c, Tree) and c.data == "statement"]
        targets = [next(_tokens(s[0])) for s in statements if len(s) > 1]
        assigned = {str(t): (t.start_pos or 0, t.end_pos or 0) for t in targets}
        formulas: dict[str, Formula] = {}
        for child, after in zip(children, [*children[1:], None]):
            if isinstance(child, Token):
                self.annotation(child)
            elif child.data == "constant":
                self.declare_constant(child.children)
            elif child.data == "declaration":
                self.declare_signal(child.children, assigned)
            elif child.children is statements[-1]:
                formulas.update(self.statement(child.children, True))
            else:
                self.check_unnamed(child, after)
                formulas.update(self.statement(child.children, False))
        self.check_reads(formulas)
        return formulas

    def check_reads(self, formulas: Mapping[str, Formula]) -> None:
        """Refuses a last formula that reads no signal where the text gives a number a name: = was meant as ==."""
        leaf = None
        for leaf in leaves_in(list(formulas.values())[-1]):
            if isinstance(leaf, Signal):
                return
        if leaf is not None and self.numbers:
            rule = "the formula reads no signal; = gives a name to a number: write == to compare"
            raise self.error(rule, *self.numbers[0])

    def annotation(self, token: Token) -> None:
        """Titles and topics name what a formula does not need."""
        if token.type == "IMPORT":
            rule = "a specification imports no Python: name the fields of an object as signals of their own"
            raise self.error(rule, token.start_pos or 0, token.end_pos or 0)

    def check_unnamed(self, statement: Tree[Token], after: Any) -> None:
        """Refuses a formula without a name before the last one."""
        if len(statement.children) > 1:
            return
        if isinstance(after, Tree):
            token = next(_tokens(after))
            rule = f"unexpected {str(token)!r}; expected an operator or the end"
            raise self.error(rule, token.start_pos or 0, token.end_pos or 0)
        first, *_, last = 2 * list(_tokens(statement))
        rule = "only the last formula may be without a name: join two with & or |, or name this one: p = ...;"
        raise self.error(rule, first.start_pos or 0, last.end_pos or 0)

    def declare_constant(self, children: list[Any]) -> None:
        type_, name, number = children[1], children[2], children[-1]
        self.check_type(type_)
        self.new_name(name, str(name))
        sign = -1.0 if any(isinstance(c, Token) and c.type == "MINUS" for c in children) else 1.0
        self.named[str(name)] = (self.number_token(number, sign), 1)

    def declare_signal(self, children: list[Any], assigned: Mapping[str, tuple[int, int]]) -> None:
        at = next(i for i, c in enumerate(children) if c.type == "TYPE")
        type_, name = children[at], children[at + 1]
        self.check_type(type_)
        if len(children) > at + 2:
            end = name.end_pos or 0
            rule = f"a signal has its values from the trace: write const {type_} {name} = ..., or {name} = ...; later"
            raise self.error(rule, type_.start_pos or 0, end)
        plain, start, end = name.strip('"'), name.start_pos or 0, name.end_pos or 0
        if name in assigned:
            if children[0] == "input":
                rule = f"{plain!r} is an input, its values are from the trace; write == to compare"
                raise self.error(rule, *assigned[name])
            self.schema.pop(plain, None)  # an output: what the text says of it holds
        elif not self.strict:
            self.new_name(name, plain)
            self.schema[plain] = SignalSpec(plain, (), "")
        elif plain not in self.schema:
            raise self.unknown("signal", plain, start, end, list(self.schema), self.legal())
        elif self.schema[plain].shape:
            found = shape_text(tuple(self.schema[plain].shape))
            raise self.error(f"{plain} is declared as a scalar and is {found}", start, end)

    def check_type(self, type_: Token) -> None:
        if type_ == "complex":
            rule = "a signal or constant of a formula is a real number: float or int"
            raise self.error(rule, type_.start_pos or 0, type_.end_pos or 0)

    def new_name(self, token: Token, name: str) -> None:
        start, end = token.start_pos or 0, token.end_pos or 0
        if not name.isidentifier():
            raise self.error(f"{name!r} is no name: letters, digits and underscores", start, end)
        for kind, known in (("a signal", self.schema), ("a constant", self.constants), ("given above", self.named)):
            if name in known:
                raise self.error(f"{name!r} is {kind} already; write == to compare", start, end)

    def statement(self, children: list[Any], last: bool) -> dict[str, Formula]:
        """The formula of a statement by its name; nothing where it names a vector."""
        if len(children) == 1:
            part = self.expression(children[0])
            if UNNAMED in self.named:
                raise self.error(f"{UNNAMED!r} is given above: this formula needs a name", part.start, part.end)
            return {UNNAMED: self.formula(part).value}
        target, assign, body = children
        token = target.children[0]
        if len(target.children) > 1 or not isinstance(token, Token) or token.type != "REFERENCE":
            raise self.error("= gives a name to a formula; write == to compare", assign.start_pos, assign.end_pos)
        self.new_name(token, token.strip('"') if token.strip('"') in self.schema else str(token))
        before = self.nodes
        part = self.expression(body)
        self.named[str(token)] = (part, self.nodes - before)
        if _is_constant(part):
            self.numbers.append((token.start_pos or 0, token.end_pos or 0))
        vector = isinstance(part.value, Expr) and part.value.shape
        return {} if vector and not last else {str(token): self.formula(part).value}

    # -------------------------------------------------------- chains of operators

    def expression(self, tree: Tree[Token]) -> _Part:
        items = tree.children
        return self.climb(items[::-1], 0) if len(items) > 1 else self.operand(items[0])

    def climb(self, rest: list[Any], least: int) -> _Part:
        """The longest part at the end of ``rest`` (a chain, reversed) whose operators bind at least so tightly."""
        item = rest.pop()
        left = self.prefixed(item, rest) if isinstance(item, Token) and item.type in PREFIX else self.operand(item)
        while rest and INFIX[rest[-1].type] >= least:
            left = self.joined(left, rest)
        return left

    def operand(self, item: Any) -> _Part:
        if isinstance(item, Token):
            if item.type == "REFERENCE":
                return self.reference(item)
            if item.type == "NUMBER":
                return self.number_token(item)
            return self.part(Truth(item.type == "TRUE"), None, item.start_pos or 0, item.end_pos or 0)
        children = item.children
        if item.data == "group":
            return self.expression(children[1])._replace(start=children[0].start_pos, end=children[-1].end_pos)
        if item.data == "call":
            return self.call(children)
        if item.data == "component":
            return self.component(self.operand(children[0]), str(children[2]), children[3].end_pos)
        rule = "the entries of a vector are numbers and scalar constants"
        entries = tuple(self.number(c, rule) for c in children[1:-1:2])
        return self.part(Constant(entries), None, children[0].start_pos, children[-1].end_pos)

    def prefixed(self, operator: Token, rest: list[Any]) -> _Part:
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
        return self.part(made, None, start, arg.end, (arg,))

    def minus(self, start: int, rest: list[Any]) -> _Part:
        """The negation of the next operand; before a number it belongs to the number."""
        if isinstance(rest[-1], Token) and rest[-1].type == "NUMBER":
            return self.number_token(rest.pop(), -1.0)._replace(start=start)
        arg = self.climb(rest, PREFIX["MINUS"])
        return self.part(Apply("neg", (self.expr(arg, "-"),)), arg.unit, start, arg.end, (arg,))

    def joined(self, left: _Part, rest: list[Any]) -> _Part:
        """``left``, the operator at the end of ``rest`` and what stands to the right of it."""
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
            return self.part(Not(Iff(a.value, b.value)), None, a.start, b.end, parts, levels=2)
        else:
            made = (Implies if kind == "IMPLIES" else Iff)(a.value, b.value)
        return self.part(made, None, left.start, parts[-1].end, parts)

    def formula(self, part: _Part) -> _Part:
        """``part`` as a formula: arithmetic ``x`` by itself says ``x > 0``, its robustness is its value."""
        if isinstance(part.value, Formula):
            return part
        if part.value.shape:
            rule = f"a formula is a comparison of scalars; this is {shape_text(part.value.shape)}: {COMPARE_HINT}"
            raise self.error(rule, part.start, part.end)
        return self.part(Predicate(">", part.value, Constant(0.0)), None, part.start, part.end, (part,))

    def expr(self, part: _Part, op: str) -> Expr:
        """``part`` as an argument of the arithmetic ``op``."""
        if isinstance(part.value, Expr):
            return part.value
        rule = f"{op} takes numbers; this is a formula, and its robustness is no number to go on with"
        raise self.error(rule, part.start, part.end)

    # -------------------------------------------------------- comparisons and windows

    def comparison(self, left: _Part, operator: Token, right: _Part, rest: list[Any]) -> _Part:
        """``a < b``, or a chain ``a < b < c``: the conjunction of its pairs."""
        pairs, parts = [self.predicate(operator, left, right)], [left, right]
        while rest and rest[-1].type == "COMPARE":
            operator = rest.pop()
            parts.append(self.climb(rest, INFIX["COMPARE"] + 1))
            pairs.append(self.predicate(operator, *parts[-2:]))
        if len(pairs) == 1:
            return self.part(pairs[0], None, left.start, right.end, parts)
        return self.part(And(tuple(pairs)), None, left.start, parts[-1].end, parts, levels=2)

    def predicate(self, operator: str, left: _Part, right: _Part) -> Formula:
        op = "!=" if operator == "!==" else str(operator)
        a, b = self.expr(left, op), self.expr(right, op)
        for side, shape in ((left, a.shape), (right, b.shape)):
            if shape:
                rule = f"{op} compares scalars; this is {shape_text(shape)}: {COMPARE_HINT}"
                raise self.error(rule, side.start, side.end)
        try:
            common((left.unit, right.unit))
        except ValueError as error:
            raise self.error(f"{op} compares different units: {error}", left.start, right.end) from None
        return Predicate(op, a, b)

    def window(self, rest: list[Any]) -> Window:
        """The window at the end of ``rest``, where one is."""
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
            rule = "give the end of the window a unit too; one unit behind the end is that of both bounds"
            raise self.error(rule, children[0].start_pos, children[-1].end_pos)
        low, high = units[0] or units[1] or 1.0, units[1] or 1.0
        try:
            return Window(bounds[0] / low, bounds[1] / high)
        except FormulaError as error:
            raise self.error(error.rule, children[0].start_pos, children[-1].end_pos) from None

    def time_unit(self, token: Token) -> float:
        if str(token) not in _TIME_UNITS:
            start = token.start_pos or 0
            legal = f"units: {', '.join(_TIME_UNITS)}"
            raise self.unknown("unit of time", str(token), start, start + len(token), (), legal)
        return _TIME_UNITS[str(token)]

    def bound(self, tree: Tree[Token]) -> float:
        """A time: arithmetic over numbers and constants, or ``inf``."""
        if tree.children == ["inf"] and not {"inf"} & {*self.constants, *self.named}:
            return inf
        return self.number(tree, "a window bound is a time in seconds: numbers and scalar constants only")

    # -------------------------------------------------------- expressions

    def number_token(self, token: Token, sign: float = 1.0) -> _Part:
        start, end = token.start_pos or 0, token.end_pos or 0
        number = sign * float(token)
        if not isfinite(number):
            raise self.error(f"{token!s} is no finite number", start, end)
        return self.part(Constant(number), NUMBER, start, end)

    def call(self, children: list[Any]) -> _Part:
        name, start, end = str(children[0]), children[0].start_pos, children[-1].end_pos
        if name not in _CALLABLE:
            legal = f"functions: {', '.join(_CALLABLE)}"
            raise self.unknown("function", name, start, start + len(name), _CALLABLE, legal)
        before = self.nodes
        args = [self.expression(c) for c in children[2:-1:2]]
        if name not in _EDGES:
            return self.apply(name, args, start, end)
        if len(args) != 1:
            raise self.error(f"{name} takes 1 argument, got {len(args)}", start, end)
        arg = self.formula(args[0])
        self.count(self.nodes - before, start, end)  # its argument stands there twice
        return self.part(_EDGES[name](arg.value), None, start, end, (arg,), levels=3)

    def apply(self, op: str, args: list[_Part], start: int, end: int) -> _Part:
        values = tuple([self.expr(a, op) for a in args])
        exponent = None
        if op == "pow" and len(args) == 2 and args[0].unit not in (None, NUMBER, ONE) and _is_constant(args[1]):
            exponent = self.constant_value(args[1])
        try:
            expression = Apply(op, values)
            unit = operation_unit(op, [a.unit for a in args], exponent)
        except FormulaError as error:
            raise self.error(error.rule, start, end) from None
        except ValueError as error:
            raise self.error(str(error), start, end) from None
        return self.part(expression, unit, start, end, args)

    def number(self, tree: Tree[Token], rule: str) -> float:
        """The value of arithmetic over numbers and scalar constants."""
        part = self.expression(tree)
        if not _is_constant(part):
            raise self.error(rule, part.start, part.end)
        return self.constant_value(part)

    def constant_value(self, part: _Part) -> float:
        with np.errstate(all="ignore"):
            number = float(value(part.value, {}, numpy_arrays()))
        if not isfinite(number):
            raise self.error(f"this is no finite number: {number}", part.start, part.end)
        return number

    # -------------------------------------------------------- names

    def reference(self, token: Token) -> _Part:
        start = token.start_pos or 0
        written, components = _written_name(token), []
        if len(written) < len(token):
            components = token[len(written) + 1 :].split(".")
        end = start + len(written)
        part = self.name(written.strip('"'), start, end)
        for component in components:
            end += 1 + len(component)
            part = self.component(part, component, end)
        return part

    def name(self, name: str, start: int, end: int) -> _Part:
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

    def component(self, of: _Part, name: str, end: int) -> _Part:
        expression = self.expr(of, "a component")
        letters = component_names(expression)
        if name in tuple(letters):
            index = letters.index(name)
        elif name.isdecimal() and len(name) < 10:
            index = int(name)
        else:
            numbers = map(str, range(expression.shape[0] if expression.shape else 0))
            has = ", ".join(letters or numbers) or "none: it is a scalar"
            raise self.error(f"no component {name!r}; components of {self.text[of.start:of.end]}: {has}", of.end, end)
        unit = None if of.unit == NUMBER else of.unit
        try:
            return self.part(Component(expression, index), unit, of.start, end, (of,))
        except FormulaError as error:
            raise self.error(error.rule, of.end, end) from None

    def unknown(self, kind: str, name: str, start: int, end: int, known: Sequence[str], legal: str) -> FormulaError:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return self.error(f"unknown {kind} {name!r}{hint}", start, end, legal)

    def legal(self) -> str:
        signals = [
            f"{name_text(n)}{list(s.shape) if s.shape else ''} {s.unit}".rstrip() for n, s in self.schema.items()]
        constants = [f"{n}{list(c.shape) if c.shape else ''}" for n, c in self.constants.items()]
        named = f"; named above: {', '.join(self.named)}" if self.named else ""
        return f"signals: {', '.join(signals) or 'none'}; constants: {', '.join(constants) or 'none'}{named}"


def _written_name(token: Token) -> str:
    """The name at the beginning of a reference, in quotes where it stands in quotes."""
    return token[: token.index('"', 1) + 1] if token[0] == '"' else token.split(".")[0]


def _tokens(tree: Tree[Token]) -> Iterator[Token]:
    """The tokens of a tree from left to right."""
    return tree.scan_values(lambda _: True)


def _is_constant(part: _Part) -> bool:
    """Whether ``part`` is arithmetic over numbers and scalar constants."""
    node = part.value
    return isinstance(node, Expr) and not node.shape and not any(isinstance(leaf, Signal) for leaf in leaves(node))
