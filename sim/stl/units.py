"""Units, as far as a comparison of signals needs them: products of powers, read from texts such as ``m/s^2``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

Powers = tuple[tuple[str, Fraction], ...]
Unit = Powers | str | None
"""Powers of base units, sorted; ``None``: unknown, matches all; :data:`NUMBER`: a literal, takes the unit it meets."""

NUMBER = "number"
ONE: Powers = ()
_FACTOR = re.compile(r"([A-Za-z]+)(?:\^(-?\d+))?$")


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
                return ((text, Fraction(1)),)  # not in this notation: a unit of its own, equal to itself only
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
    """The one unit of things that are added or compared; a ``ValueError`` where two differ."""
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


def operation_unit(op: str, units: Sequence[Unit]) -> Unit:
    """The unit of ``op`` over arguments with ``units``; a ``ValueError`` with the rule where they do not fit."""
    if op in ("*", "/"):
        return product(units[0], units[1], 1 if op == "*" else -1)
    if op == "sqrt":
        return root(units[0])
    if op in ("sin", "cos"):
        if units[0] not in (None, NUMBER, ONE, parse_unit("rad")):
            raise ValueError(f"{op} takes an angle in rad, got {unit_text(units[0])}")
        return ONE
    try:
        unit = common(units)
    except ValueError as error:
        raise ValueError(f"{op} of different units: {error}") from None
    return parse_unit("rad") if op == "atan2" else unit
