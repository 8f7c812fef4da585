"""Bounded spaces of named parameters, and their map from and to the unit cube. numpy only.

    space = ParameterSpace((Real("start", (-1, -1), (1, 1)), Real("gust", 0.01, 1.0, "log"), Integer("delay", 0, 3)))
    space.from_unit(points)                 # name -> [B, *shape] of points [B, 4] in [0, 1]
    space.sample(rng, 100)                  # uniform points: what is drawn where
    space_from_json(space.to_json()) == space
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

Values = dict[str, np.ndarray]
"""Parameters by name: [B, *shape] of B candidates, [*shape] of one."""
Scale = Literal["linear", "log", "normal"]
SCALES = ("linear", "log", "normal")
REACH = 3.0
"""Standard deviations at which a normal scale ends."""
NORMAL = NormalDist()


class SpaceError(ValueError):
    """A parameter space, or a value for it, breaks a rule; the message names value, rule and legal choices."""


@dataclass(frozen=True)
class Real:
    """A number, or with tuples as bounds a vector, in [low, high].

    ``scale`` is its distribution under uniform points of the unit interval: ``linear``: uniform; ``log``: its logarithm
    is uniform; ``normal``: a normal distribution about the middle, cut at three standard deviations to each side.
    """

    name: str
    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    scale: Scale = "linear"

    def __post_init__(self) -> None:
        _check_bounds(self, float)
        if self.scale not in SCALES:
            raise SpaceError(f"parameter {self.name!r}: scale = {self.scale!r}; legal: {', '.join(SCALES)}")
        low, _ = _bounds(self)
        if self.scale == "log" and not (low > 0).all():
            raise SpaceError(f"parameter {self.name!r}: a logarithmic scale needs low > 0, got {self.low}")


@dataclass(frozen=True)
class Integer:
    """A whole number, or with tuples as bounds a vector of them, from ``low`` to ``high``, both included."""

    name: str
    low: int | tuple[int, ...]
    high: int | tuple[int, ...]

    def __post_init__(self) -> None:
        _check_bounds(self, int)


@dataclass(frozen=True)
class Choice:
    """One of ``options``: numbers, texts or flags, without an order."""

    name: str
    options: tuple[float | int | bool | str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "options", tuple(self.options))
        kinds = {"text" if isinstance(o, str) else "flag" if isinstance(o, bool) else "number" for o in self.options}
        if len(self.options) < 2 or len(set(self.options)) < len(self.options) or len(kinds) > 1:
            raise SpaceError(f"parameter {self.name!r}: choices are two or more different numbers, or texts, or true "
                             f"and false, got {list(self.options)}")


Parameter = Real | Integer | Choice


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool) and isfinite(value)


def number_hint(values: Iterable[Any]) -> str:
    """What to write if YAML read a number as text, as it does with 1e-30; empty if no number is meant."""
    for value in values:
        if isinstance(value, str):
            try:
                number = float(value)
            except ValueError:
                continue
            mantissa, _, exponent = value.strip().lower().partition("e")
            if exponent and isfinite(number):
                dotted = mantissa if "." in mantissa else f"{mantissa}.0"
                signed = exponent if exponent[0] in "+-" else f"+{exponent}"
                return f"; YAML reads {value} as a text: write {dotted}e{signed}"
            return f"; {value!r} is a text: write it without quotes"
    return ""


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or any(c.isspace() or c in "/\\" for c in name):
        raise SpaceError(f"parameter name {name!r}: a word without spaces and slashes")


def _check_bounds(p: Real | Integer, kind: type) -> None:
    """Check bounds: finite, of ``kind``, equal in length, ordered; store them as plain numbers."""
    _check_name(p.name)
    for side in ("low", "high"):
        value = getattr(p, side)
        items = list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value]
        for x in items:
            if not is_number(x) or (kind is int and x != int(x)):
                wanted = "whole numbers" if kind is int else "finite numbers"
                raise SpaceError(f"parameter {p.name!r}: {side} = {value!r}; bounds are {wanted}{number_hint(items)}")
        plain = tuple(kind(x) for x in items)
        object.__setattr__(p, side, plain if isinstance(value, (tuple, list, np.ndarray)) else plain[0])
    if isinstance(p.low, tuple) != isinstance(p.high, tuple) or np.shape(p.low) != np.shape(p.high) or p.low == ():
        raise SpaceError(f"parameter {p.name!r}: low = {p.low} and high = {p.high} differ in length, or are empty")
    low, high = _bounds(p)
    if (low > high).any() or (low == high).all():
        raise SpaceError(f"parameter {p.name!r}: low <= high in each component and low < high in one, got low = "
                         f"{p.low}, high = {p.high}; leave out what does not vary")


def _bounds(p: Real | Integer) -> tuple[np.ndarray, np.ndarray]:
    kind: type = np.float64 if isinstance(p, Real) else np.int64
    return np.atleast_1d(np.asarray(p.low, kind)), np.atleast_1d(np.asarray(p.high, kind))


def _shape(p: Parameter) -> tuple[int, ...]:
    return () if isinstance(p, Choice) else np.shape(p.low)


def _counts(p: Parameter) -> list[int]:
    """Number of values of each coordinate, 0 where it is continuous."""
    if isinstance(p, Choice):
        return [len(p.options)]
    low, high = _bounds(p)
    return [0] * len(low) if isinstance(p, Real) else [int(n) for n in high - low + 1]


def _from_unit(p: Parameter, u: np.ndarray) -> np.ndarray:
    """Values [B, *shape] of points ``u`` [B, coordinates] in the unit cube."""
    counts = np.array(_counts(p))
    index = np.minimum(np.floor(u * counts), counts - 1).astype(np.int64)
    if isinstance(p, Choice):
        return np.asarray(np.asarray(p.options)[index[:, 0]])
    low, high = _bounds(p)
    if isinstance(p, Integer):
        out = low + index
    else:
        u = _normal_quantile(u) if p.scale == "normal" else u
        a, b = (np.log(low), np.log(high)) if p.scale == "log" else (low, high)
        inside = (1 - u) * a + u * b
        out = np.clip(np.exp(inside) if p.scale == "log" else inside, low, high)
    return np.asarray(out).reshape(len(u), *_shape(p))


def _to_unit(p: Parameter, values: np.ndarray) -> np.ndarray:
    """The inverse of :func:`_from_unit`: [B, coordinates]; a discrete value is the middle of its interval."""
    if isinstance(p, Choice):
        index = np.argmax(np.asarray(p.options) == values.reshape(-1, 1), axis=1)[:, None]
        return np.asarray((index + 0.5) / len(p.options))
    low, high = _bounds(p)
    flat = values.reshape(len(values), -1)
    if isinstance(p, Integer):
        return np.asarray((flat - low + 0.5) / np.array(_counts(p)))
    a, b, x = (np.log(low), np.log(high), np.log(flat)) if p.scale == "log" else (low, high, flat)
    # a component that does not vary lies anywhere: in the middle
    u = np.where(b > a, (x - a) / np.where(b > a, b - a, 1.0), 0.5)
    return _normal_share(u) if p.scale == "normal" else u


def _normal_quantile(u: np.ndarray) -> np.ndarray:
    """The quantile ``u`` of the cut normal distribution, in [0, 1] over its six standard deviations."""
    tail = NORMAL.cdf(-REACH)
    z = np.array([NORMAL.inv_cdf(tail + x * (1 - 2 * tail)) for x in u.flat]).reshape(u.shape)
    return np.clip(0.5 + z / (2 * REACH), 0.0, 1.0)


def _normal_share(x: np.ndarray) -> np.ndarray:
    """The inverse of :func:`_normal_quantile`."""
    tail = NORMAL.cdf(-REACH)
    p = np.array([NORMAL.cdf((2 * v - 1) * REACH) for v in x.flat]).reshape(x.shape)
    return np.clip((p - tail) / (1 - 2 * tail), 0.0, 1.0)


@dataclass(frozen=True)
class ParameterSpace:
    """Named parameters with bounds: a box, and its map from and to the unit cube [0, 1]^dim."""

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parameters))
        if not self.parameters:
            raise SpaceError("a space has at least one parameter")
        if len(set(self.names)) < len(self.names):
            raise SpaceError(f"parameter names repeat: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(p.name for p in self.parameters)

    @property
    def counts(self) -> np.ndarray:
        """Number of values of each coordinate, int64 [dim]; 0 where it is continuous."""
        return np.array([n for p in self.parameters for n in _counts(p)], np.int64)

    @property
    def dim(self) -> int:
        """Coordinates of the unit cube."""
        return len(self.counts)

    def from_unit(self, points: np.ndarray) -> Values:
        """Values [B, *shape] by name of ``points`` [B, dim] in the unit cube; always within the bounds."""
        points = np.asarray(points, np.float64)
        if points.ndim != 2 or points.shape[1] != self.dim or not ((points >= 0) & (points <= 1)).all():
            raise SpaceError(f"points of the unit cube are [B, {self.dim}] in [0, 1], got {points.shape}")
        return {p.name: _from_unit(p, part) for p, part in zip(self.parameters, self._parts(points))}

    def to_unit(self, values: Mapping[str, Any]) -> np.ndarray:
        """Points [B, dim] of ``values`` [B, *shape] by name."""
        checked = self.checked(values)
        return np.concatenate([_to_unit(p, checked[p.name]) for p in self.parameters], 1)

    def checked(self, values: Mapping[str, Any]) -> Values:
        """``values`` [B, *shape] as arrays; an error if one is missing, unknown or out of bounds."""
        if set(values) != set(self.names):
            raise SpaceError(f"values for {', '.join(map(str, values))}; the space has {', '.join(self.names)}")
        out = {p.name: np.asarray(values[p.name]) for p in self.parameters}
        for p in self.parameters:
            x = out[p.name]
            if x.shape[1:] != _shape(p) or x.ndim == 0:
                raise SpaceError(f"parameter {p.name!r}: values have shape {x.shape}, expected [B, *{_shape(p)}]")
            if isinstance(p, Choice):
                good, legal = np.isin(x, np.asarray(p.options)), f"one of {list(p.options)}"
            else:
                low, high = (b.reshape(_shape(p)) for b in _bounds(p))
                good, legal = (x >= low) & (x <= high), f"from {p.low} to {p.high}"
                if isinstance(p, Integer):
                    good &= x == np.floor(x)
            if not good.all():
                raise SpaceError(f"parameter {p.name!r}: {x[~good.reshape(len(x), -1).all(1)][0]!r} is not {legal}")
        return out

    def sample(self, rng: np.random.Generator, count: int) -> Values:
        """``count`` independent values, uniform in the unit cube: distributed by each parameter's scale."""
        return self.from_unit(rng.random((count, self.dim)))

    def to_json(self) -> dict[str, Any]:
        """``{name: {"low": ..., "high": ...}}``, with ``"scale"``, ``"integer": true``, or ``"choices"`` alone."""
        return {p.name: _parameter_json(p) for p in self.parameters}

    def _parts(self, points: np.ndarray) -> list[np.ndarray]:
        return np.split(points, np.cumsum([len(_counts(p)) for p in self.parameters])[:-1], axis=1)


def _parameter_json(p: Parameter) -> dict[str, Any]:
    if isinstance(p, Choice):
        return {"choices": list(p.options)}
    low, high = (list(b) if isinstance(b, tuple) else b for b in (p.low, p.high))
    extra: dict[str, Any] = {}
    if isinstance(p, Integer):
        extra = {"integer": True}
    elif p.scale != "linear":
        extra = {"scale": p.scale}
    return {"low": low, "high": high, **extra}


def space_from_json(data: Mapping[str, Any]) -> ParameterSpace:
    """The space that :meth:`ParameterSpace.to_json` wrote; a :class:`SpaceError` names what is wrong."""
    if not isinstance(data, Mapping):
        raise SpaceError(f"a space is a mapping name -> {{low: ..., high: ...}}, got {data!r}")
    return ParameterSpace(tuple(_parameter_from_json(name, spec) for name, spec in data.items()))


def _parameter_from_json(name: str, spec: Any) -> Parameter:
    legal = f"low, high, scale ({', '.join(SCALES)}), integer (true, false), or choices alone"
    if not isinstance(spec, Mapping) or not (set(spec) == {"choices"} or {"low", "high"} <= set(spec)):
        raise SpaceError(f"parameter {name!r}: {spec!r}; a parameter has {legal}")
    if "choices" in spec:
        options = spec["choices"]
        if not isinstance(options, (list, tuple)) or not all(isinstance(o, (str, int, float)) for o in options):
            raise SpaceError(f"parameter {name!r}: choices = {options!r}: a list of numbers or of texts")
        return Choice(name, tuple(options))
    unknown = set(spec) - {"low", "high", "scale", "integer"}
    scale, integer = spec.get("scale", "linear"), spec.get("integer", False)
    if unknown or scale not in SCALES or not isinstance(integer, bool) or (integer and scale != "linear"):
        raise SpaceError(f"parameter {name!r}: {dict(spec)!r}; a parameter has {legal}; a whole number is linear")
    low, high = (tuple(b) if isinstance(b, (list, tuple)) else b for b in (spec["low"], spec["high"]))
    return Integer(name, low, high) if integer else Real(name, low, high, scale)
