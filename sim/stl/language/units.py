"""Units as products of powers, read from texts such as ``m/s^2``: enough to check that signals are compared rightly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

Powers = tuple[tuple[str, Fraction], ...]
Unit = Powers | str | None
"""Powers of base units, sorted; ``None``: unknown, matches every unit; :data:`NUMBER`: a literal, takes any unit."""

NUMBER = "number"
ONE: Powers = ()
RADIAN: Powers = (("rad", Fraction(1)),)
_FACTOR = re.compile(r"([A-Za-z]+)(?:\^(-?\d+))?$")


@lru_cache(maxsize=256)
def parse_unit(text: str) -> Unit:
    """The unit that ``text`` names. ``"1"`` and ``"wxyz"`` are dimensionless, ``""`` and mixed units unknown."""
    if text in ("", "?") or "," in text:
        return None
    if text in ("1", "wxyz"):
        return ONE
    powers: dict[str, Fraction] = {}
    for position, group in enumerate(text.split("/")):
        for factor in group.replace("*", " ").split():
            if factor == "1":
                continue
            found = _FACTOR.match(factor)
            if not found:
                return ((text, Fraction(1)),)  # another notation: equal to itself only
            power = Fraction(found[2] or 1) * (-1 if position else 1)
            powers[found[1]] = powers.get(found[1], Fraction(0)) + power
    return _sorted(powers)


def _sorted(powers: dict[str, Fraction]) -> Powers:
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def unit_text(unit: Unit) -> str:
    """A unit for messages."""
    if unit is None:
        return "unknown unit"
    if isinstance(unit, str):
        return "a number"
    above = " ".join(_power_text(name, power) for name, power in unit if power > 0)
    below = "".join("/" + _power_text(name, -power) for name, power in unit if power < 0)
    return (above or "1") + below


def _power_text(name: str, power: Fraction) -> str:
    return name if power == 1 else f"{name}^{power}"


def common(units: Sequence[Unit]) -> Unit:
    """The common unit of what is added or compared; a ``ValueError`` if two differ."""
    known = [u for u in units if isinstance(u, tuple)]
    if len(set(known)) > 1:
        raise ValueError(" and ".join(dict.fromkeys(unit_text(u) for u in known)))
    if known:
        return known[0]
    return None if None in units else NUMBER


def product(a: Unit, b: Unit, power: int = 1) -> Unit:
    """The unit of ``a * b**power``."""
    if a is None or b is None:
        return None
    if isinstance(a, str) and isinstance(b, str):
        return NUMBER
    left, right = (() if isinstance(u, str) else u for u in (a, b))
    powers = dict(left)
    for name, exponent in right:
        powers[name] = powers.get(name, Fraction(0)) + power * exponent
    return _sorted(powers)


def root(unit: Unit) -> Unit:
    """The unit of the square root."""
    return tuple((name, power / 2) for name, power in unit) if isinstance(unit, tuple) else unit


def power(unit: Unit, exponent: float | None) -> Unit:
    """The unit of a power; ``exponent`` None: not a constant. A ``ValueError`` where the power has no unit.

    Exponents are fractions with a denominator up to 100: the power 1/3 of ``m^3`` is ``m``.
    """
    if not isinstance(unit, tuple) or unit == ONE:
        return unit
    if exponent is None:
        raise ValueError(f"pow of {unit_text(unit)} takes a constant exponent")
    fraction = Fraction(exponent).limit_denominator(100)
    if abs(float(fraction) - exponent) > 1e-12:
        return None
    return _sorted({name: below * fraction for name, below in unit})


def operation_unit(op: str, units: Sequence[Unit], exponent: float | None = None) -> Unit:
    """The unit of ``op`` over arguments with ``units``; a ``ValueError`` with the rule if they do not fit.

    ``exponent`` is the second argument of ``pow`` if it is a constant.
    """
    if op in ("*", "/"):
        return product(units[0], units[1], 1 if op == "*" else -1)
    if op == "sqrt":
        return root(units[0])
    if op in ("exp", "pow"):
        if units[-1] not in (None, NUMBER, ONE):
            raise ValueError(f"{op} takes an exponent without unit, got {unit_text(units[-1])}")
        return power(units[0], exponent) if op == "pow" else NUMBER if units[0] == NUMBER else ONE
    if op in ("sin", "cos", "wrap"):
        if units[0] not in (None, NUMBER, ONE, RADIAN):
            raise ValueError(f"{op} takes an angle in rad, got {unit_text(units[0])}")
        return RADIAN if op == "wrap" else ONE
    if op == "angle":
        return RADIAN  # whatever the unit of the two vectors
    if op == "rotation_angle" and not set(units) <= {None, NUMBER, ONE}:
        found = " and ".join(map(unit_text, units))
        raise ValueError(f"rotation_angle takes quaternions, which have no unit, got {found}")
    try:
        unit = common(units)
    except ValueError as error:
        raise ValueError(f"{op} of different units: {error}") from None
    return RADIAN if op in ("atan2", "rotation_angle") else unit
