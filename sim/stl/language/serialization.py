"""Formulas and expressions as JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import inf, isfinite, isinf
from reprlib import repr as short
from typing import Any

from temporeal.sim.stl.language.errors import MAX_DEPTH, MAX_LEVELS, TOO_DEEP, FormulaError
from temporeal.sim.stl.language.propositional import (
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
)
from temporeal.sim.stl.language.queries import depth
from temporeal.sim.stl.language.temporal import (
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

_NODE_TYPES = (
    Signal, Constant, Component, Apply, Predicate, Truth, Not, And, Or, Implies, Iff, Always, Eventually, Until,
    Release, WeakUntil, Next, Historically, Once, Since, Previous)
_NODES: Mapping[str, type[Any]] = {cls.__name__.lower(): cls for cls in _NODE_TYPES}


def to_json(node: Formula | Expr) -> dict[str, Any]:
    """The node as JSON data: ``{"node": kind, field: value, ...}``; an unbounded window ends with ``null``."""
    try:
        return _data(node)
    except RecursionError:
        raise FormulaError(f"the formula is {TOO_DEEP}") from None


def _data(node: Formula | Expr) -> dict[str, Any]:
    out: dict[str, Any] = {"node": type(node).__name__.lower()}
    for field in fields(node):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        if isinstance(value, (Formula, Expr)):
            value = _data(value)
        elif isinstance(value, Window):
            value = [value.lo, None if isinf(value.hi) else value.hi]
        elif isinstance(value, tuple):
            value = [_data(v) if isinstance(v, (Formula, Expr)) else v for v in value]
        out[field.name] = value
    return out


def from_json(data: Any) -> Any:
    """The formula or expression that :func:`to_json` wrote. It carries its constants, shapes and units.

    Anything else is a :class:`FormulaError` that names the place, as in ``.args[1].window``.
    """
    node = _node(data, "", 1, (Formula, Expr))
    if depth(node)[1] > MAX_DEPTH:
        raise _json_error("", TOO_DEEP)
    return node


def _json_error(place: str, rule: str) -> FormulaError:
    return FormulaError(f"formula JSON, {place or 'top level'}: {rule}")


def _node(data: Any, place: str, level: int, kinds: tuple[type[Any], ...]) -> Any:
    """The node ``data``, an instance of one of ``kinds``, with all nodes below it."""
    if level > MAX_LEVELS:
        raise _json_error(f"...{place[-40:]}", TOO_DEEP)
    known = ", ".join(name for name, cls in _NODES.items() if issubclass(cls, kinds))
    if not isinstance(data, Mapping):
        raise _json_error(place, f"a node is an object with the field 'node', got {short(data)}; known: {known}")
    name = data.get("node")
    if not isinstance(name, str) or name not in _NODES or not issubclass(_NODES[name], kinds):
        raise _json_error(place, f"unknown node {short(name)}; known: {known}")
    cls = _NODES[name]
    names, found = [f.name for f in fields(cls)], sorted(short(key) for key in data if key != "node")
    if found != sorted(map(repr, names)):
        raise _json_error(place, f"node {name!r} has the fields {', '.join(names)}; got {', '.join(found)}")
    values = {}
    for key in names:  # few Python frames per level, or the deepest formula would overflow the stack
        values[key] = _field(cls, key, data[key], f"{place}.{key}", level)
    try:
        return cls(**values)
    except FormulaError as error:
        raise _json_error(place, error.rule) from None


def _field(cls: type[Any], name: str, data: Any, place: str, level: int) -> Any:
    """The field ``name`` of a node of class ``cls``."""
    if name in ("left", "right", "arg", "of"):
        return _node(data, place, level + 1, (Expr,) if cls in (Predicate, Component) else (Formula,))
    if name == "args":
        kinds = (Expr,) if cls is Apply else (Formula,)
        args = []
        for i, d in enumerate(_list(data, place)):
            args.append(_node(d, f"{place}[{i}]", level + 1, kinds))
        return tuple(args)
    if name == "window":
        return _json_window(data, place)
    if name == "dims":
        return tuple(_whole(d, f"{place}[{i}]", 1) for i, d in enumerate(_list(data, place)))
    if name == "index":
        return _whole(data, place, 0)
    if cls is Constant and name == "value":
        if isinstance(data, list):
            return tuple(_number(d, f"{place}[{i}]") for i, d in enumerate(data))
        return _number(data, place)
    kind = bool if name in ("strong", "value") else str
    if not isinstance(data, kind):
        raise _json_error(place, f"{'true or false' if kind is bool else 'a text'} expected, got {short(data)}")
    return data


def _json_window(data: Any, place: str) -> Window:
    bounds = _list(data, place)
    if len(bounds) != 2:
        raise _json_error(place, f"a window is [lo, hi] in seconds, hi null for no end, got {short(data)}")
    low = _number(bounds[0], f"{place}[0]")
    high = inf if bounds[1] is None else _number(bounds[1], f"{place}[1]")
    try:
        return Window(low, high)
    except FormulaError as error:
        raise _json_error(place, error.rule) from None


def _list(data: Any, place: str) -> Sequence[Any]:
    if not isinstance(data, (list, tuple)):
        raise _json_error(place, f"a list expected, got {short(data)}")
    return data


def _whole(data: Any, place: str, least: int) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or data < least:
        raise _json_error(place, f"a whole number, {least} or more, expected, got {short(data)}")
    return data


def _number(data: Any, place: str) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise _json_error(place, f"a number expected, got {short(data)}")
    try:
        number = float(data)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise _json_error(place, f"a finite number expected, got {short(data)}")
    return number
