"""The unit of a robustness."""

from __future__ import annotations

from temporeal.sim.stl.language.propositional import Apply, Component, Constant, Expr, Formula, Predicate, Signal
from temporeal.sim.stl.language.queries import predicates_in
from temporeal.sim.stl.language.units import NUMBER, ONE, Unit, common, operation_unit, parse_unit, unit_text


def robustness_unit(formula: Formula) -> str:
    """Unit of the robustness of ``formula``; ``""`` if it is unknown, dimensionless or differs between predicates."""
    units = {predicate_unit(predicate) for predicate in predicates_in(formula)}
    return units.pop() if len(units) == 1 else ""


def predicate_unit(predicate: Predicate) -> str:
    """Unit of the margin of ``predicate``; ``""`` if it is unknown or dimensionless."""
    try:
        unit = common([_expr_unit(predicate.left), _expr_unit(predicate.right)])
    except ValueError:
        return ""
    return "" if unit in (None, NUMBER, ONE) else unit_text(unit)


def _expr_unit(expression: Expr) -> Unit:
    match expression:
        case Signal():
            return parse_unit(expression.unit)
        case Constant(_, name):
            return None if name else NUMBER
        case Component(of, _):
            return _expr_unit(of)
        case Apply(op, args):
            return operation_unit(op, [_expr_unit(a) for a in args])
    raise TypeError(f"not an expression: {expression!r}")
