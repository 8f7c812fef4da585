"""From text to a checked formula: ``parse("G[0,10] (height > 0.3)", schema)``.

Every signal, component, shape, unit and window is checked, and an error points at its place in the text.

The text of a discrete-time rtamt specification is accepted as it is (Nickovic and Yamaguchi, "RTAMT: Online Robustness
Monitors from STL", ATVA 2020): declarations, named sub-formulas and units of windows are part of the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lark import Token, Tree

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.errors import TOO_DEEP, FormulaError
from temporeal.sim.stl.language.expression_builder import ExpressionBuilder, is_constant
from temporeal.sim.stl.language.grammar import syntax_tree, tokens
from temporeal.sim.stl.language.operations import shape_text
from temporeal.sim.stl.language.propositional import Constant, Expr, Formula, Signal, to_text
from temporeal.sim.stl.language.queries import check_depth, leaves_in
from temporeal.sim.stl.language.symbol_table import SymbolTable
from temporeal.sim.stl.language.text import WORDS
from temporeal.sim.stl.language.units import parse_unit

Constants = Mapping[str, float | Sequence[float]]
UNNAMED = "out"
"""The name of a formula without one, as in rtamt."""


def parse(
    text: str, schema: Mapping[str, SignalSpec] | None = None, constants: Constants | None = None
) -> Formula:
    """The formula of ``text`` over the signals of ``schema``; the last one if there are several.

    Without a ``schema`` the text declares its signals (``float x``): scalars of unknown unit. ``constants`` are numbers
    and vectors by name; they have no unit and match every unit. Raises :class:`FormulaError`.
    """
    return list(parse_specification(text, schema, constants).values())[-1]


def parse_specification(
    text: str, schema: Mapping[str, SignalSpec] | None = None, constants: Constants | None = None
) -> dict[str, Formula]:
    """Every formula of ``text`` by name, in order; an unnamed last one is called ``out``.

    A formula may use what was named before it, arithmetic included: ``error = x - y; G (error < 1)``.
    """
    values = {name: _constant(name, value) for name, value in (constants or {}).items()}
    both = sorted(set(values) & set(schema or ()))
    if both:
        raise FormulaError(f"{', '.join(both)}: a constant and a signal have the same name")
    try:
        return _Specification(SymbolTable(text, schema, values)).formulas(syntax_tree(text))
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def check(formula: Formula, schema: Mapping[str, SignalSpec]) -> Formula:
    """``formula``, built in Python or read from JSON, checked against ``schema``.

    A signal without a unit takes the schema's; another shape or unit than the schema's is an error.
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
    """Check shape and unit; an unknown name is left to the parser, whose error has its place."""
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
        raise FormulaError(f"constant {name!r}: a name is letters, digits and underscores, and not a keyword")
    return Constant(number, name)  # type: ignore[arg-type]


class _Specification:
    """Reads the statements of one text in order: declarations, named formulas, and the last formula."""

    def __init__(self, names: SymbolTable) -> None:
        self.names, self.expressions = names, ExpressionBuilder(names)
        self.numbers: dict[str, tuple[int, int]] = {}  # names that the text gives to numbers, and their places
        self.outputs: set[str] = set()  # names that the text declares as signals and defines itself

    def formulas(self, tree: Tree[Token]) -> dict[str, Formula]:
        children: list[Any] = tree.children
        statements = [c.children for c in children if isinstance(c, Tree) and c.data == "statement"]
        targets = [next(tokens(s[0])) for s in statements if len(s) > 1]
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
        """Refuse a last formula without signals if the text gives a number the name of a signal that it declares: = was
        meant as ==."""
        meant = [place for name, place in self.numbers.items() if name in self.outputs and name != UNNAMED]
        if meant and not any(isinstance(leaf, Signal) for leaf in leaves_in(list(formulas.values())[-1])):
            raise self.names.error("the formula reads no signal; = names a number: write == to compare", *meant[0])

    def annotation(self, token: Token) -> None:
        """Refuse imports; titles and topics have no effect."""
        if token.type == "IMPORT":
            rule = "a specification imports no Python: name the fields of an object as signals of their own"
            raise self.names.error(rule, token.start_pos or 0, token.end_pos or 0)

    def check_unnamed(self, statement: Tree[Token], after: Any) -> None:
        """Refuse an unnamed formula before the last one."""
        if len(statement.children) > 1:
            return
        if isinstance(after, Tree):
            token = next(tokens(after))
            rule = f"unexpected {str(token)!r}; expected an operator or the end"
            raise self.names.error(rule, token.start_pos or 0, token.end_pos or 0)
        first, *_, last = 2 * list(tokens(statement))
        rule = "only the last formula may be without a name: join two with & or |, or name this one: p = ...;"
        raise self.names.error(rule, first.start_pos or 0, last.end_pos or 0)

    def declare_constant(self, children: list[Any]) -> None:
        type_, name, number = children[1], children[2], children[-1]
        self.check_type(type_)
        self.names.new_name(name, str(name))
        sign = -1.0 if any(isinstance(c, Token) and c.type == "MINUS" for c in children) else 1.0
        self.names.named[str(name)] = (self.expressions.number_token(number, sign), 1)

    def declare_signal(self, children: list[Any], assigned: Mapping[str, tuple[int, int]]) -> None:
        at = next(i for i, c in enumerate(children) if c.type == "TYPE")
        type_, name = children[at], children[at + 1]
        self.check_type(type_)
        if len(children) > at + 2:
            end = name.end_pos or 0
            rule = f"a signal has its values from the trace: write const {type_} {name} = ..., or {name} = ...; later"
            raise self.names.error(rule, type_.start_pos or 0, end)
        plain, start, end = name.strip('"'), name.start_pos or 0, name.end_pos or 0
        if name in assigned:
            if children[0] == "input":
                rule = f"{plain!r} is an input, its values are from the trace; write == to compare"
                raise self.names.error(rule, *assigned[name])
            self.names.schema.pop(plain, None)  # an output: the text defines it
            self.outputs.add(plain)
        elif not self.names.strict:
            self.names.new_name(name, plain)
            self.names.schema[plain] = SignalSpec(plain, (), "")
        elif plain not in self.names.schema:
            raise self.names.unknown("signal", plain, start, end, list(self.names.schema), self.names.legal())
        elif self.names.schema[plain].shape:
            found = shape_text(tuple(self.names.schema[plain].shape))
            raise self.names.error(f"{plain} is declared as a scalar and is {found}", start, end)

    def check_type(self, type_: Token) -> None:
        if type_ == "complex":
            rule = "a signal or constant of a formula is a real number: float or int"
            raise self.names.error(rule, type_.start_pos or 0, type_.end_pos or 0)

    def statement(self, children: list[Any], last: bool) -> dict[str, Formula]:
        """The formula of a statement by its name; none if it names a vector."""
        if len(children) == 1:
            part = self.expressions.expression(children[0])
            if UNNAMED in self.names.named:
                raise self.names.error(f"{UNNAMED!r} is given above: this formula needs a name", part.start, part.end)
            return {UNNAMED: self.expressions.formula(part).value}
        target, assign, body = children
        token = target.children[0]
        if len(target.children) > 1 or not isinstance(token, Token) or token.type != "REFERENCE":
            raise self.names.error("= gives a name to a formula; write == to compare", assign.start_pos, assign.end_pos)
        self.names.new_name(token, token.strip('"') if token.strip('"') in self.names.schema else str(token))
        before = self.names.nodes
        part = self.expressions.expression(body)
        self.names.named[str(token)] = (part, self.names.nodes - before)
        if is_constant(part):
            self.numbers[str(token)] = token.start_pos or 0, token.end_pos or 0
        vector = isinstance(part.value, Expr) and part.value.shape
        return {} if vector and not last else {str(token): self.expressions.formula(part).value}
