"""Dimensions of a curriculum: what a number that a teacher chooses does to an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.curriculum.checks import number, pair
from temporeal.sim.randomization.distributions import POSITIVE, is_signed

START = "start."
ACTIONS = ("value", "scale", "add")
KEYS = ("of", "as", "low", "high", "log", "first", "components")


@dataclass(frozen=True)
class Dimension:
    """One number of an episode.

    Args:
        of: a parameter's name, or ``start.<stream>``.
        action: ``value``: it is set; ``scale``: it multiplies, ``add``: it is added to, what the randomization drew
            (the nominal value where it drew nothing).
        low, high: over the whole curriculum. ``log``: its logarithm is what is spread evenly.
        first: range in which the curriculum begins (``uniform`` has the whole range from the start).
        components: of the parameter or stream that it acts on; all if empty.
    """

    name: str
    of: str
    action: str
    low: float
    high: float
    log: bool
    first: tuple[float, float]
    components: tuple[int, ...]

    def value(self, u: Tensor) -> Tensor:
        """The value at ``u`` [K] in [0, 1], float32."""
        if self.log:
            return torch.exp(log(self.low) + (log(self.high) - log(self.low)) * u.double()).float()
        return (self.low + (self.high - self.low) * u.double()).float()

    def unit(self, value: float) -> float:
        """The opposite of :meth:`value`."""
        if self.log:
            return (log(value) - log(self.low)) / (log(self.high) - log(self.low))
        return (value - self.low) / (self.high - self.low)


def parse_dimension(
    name: str, raw: Any, parameters: Mapping[str, Parameter], starts: Mapping[str, int], grows: bool = False
) -> Dimension:
    """One dimension, checked. ``grows``: it begins with ``first``, or where that is not given at what is nominal."""
    where = f"curriculum.parameters.{name}"
    if not isinstance(raw, Mapping) or set(raw) - set(KEYS) or not {"low", "high"} <= set(raw):
        raise ValueError(f"{where} is a mapping with low and high, legal keys: {', '.join(KEYS)}; "
                         f"got {raw!r}")
    of = str(raw.get("of") or name)
    low, high = (number(f"{where}.{key}", raw[key]) for key in ("low", "high"))
    if not low < high:
        raise ValueError(f"{where}: needs low < high, got {low:g} and {high:g}")
    if raw.get("log") not in (None, True, False) or (raw.get("log") and low <= 0):
        raise ValueError(f"{where}.log is true or false, and true needs low > 0; got {raw['log']!r}, low {low:g}")
    count, action = _target(where, of, raw.get("as", "value"), parameters, starts)
    _check_ends(where, of, action, low, high, parameters)
    components = _components(where, raw.get("components"), count)
    first = raw.get("first")
    if first is None and grows:
        first = _nominal(where, of, action, low, high, components, parameters)
    begin = (low, high) if first is None else pair(f"{where}.first", first)
    if not low <= begin[0] <= begin[1] <= high:
        raise ValueError(f"{where}.first lies from low to high, {low:g} to {high:g}; got {first!r}")
    return Dimension(name, of, action, low, high, bool(raw.get("log")), begin, components)


def _nominal(
    where: str, of: str, action: str, low: float, high: float, components: tuple[int, ...],
    parameters: Mapping[str, Parameter],
) -> float:
    """The value between ``low`` and ``high`` that changes nothing."""
    nominal = parameters[of].nominal if of in parameters else ()
    same = {float(action == "scale")} if action != "value" else {
        x for i, x in enumerate(nominal) if i in (components or range(len(nominal)))}
    if len(same) != 1 or not low <= (value := same.pop()) <= high:
        raise ValueError(f"{where} needs first, where the range begins: a number or [least, greatest] within {low:g} "
                         f"to {high:g}; what is nominal is not one number there")
    return value


def _target(
    where: str, of: str, action: Any, parameters: Mapping[str, Parameter], starts: Mapping[str, int]
) -> tuple[int, str]:
    """How many components ``of`` has, and what is done with it."""
    legal = (*parameters, *(f"{START}{name}" for name in starts))
    if of not in legal:
        raise ValueError(f"{where}: there is no {of!r}; legal: {', '.join(legal)}")
    if action not in ACTIONS:
        raise ValueError(f"{where}.as is {action!r}; legal: {', '.join(ACTIONS)}")
    if of.startswith(START) and action != "value":
        raise ValueError(f"{where}.as is {action!r}; a draw of the reset is set: value")
    return (starts[of.removeprefix(START)] if of not in parameters else len(parameters[of].nominal)), action


def _check_ends(
    where: str, of: str, action: str, low: float, high: float, parameters: Mapping[str, Parameter]
) -> None:
    """Neither end is a value that the parameter cannot have."""
    if of not in parameters:
        if low < 0 or high > 1:
            raise ValueError(f"{where}: a draw of the reset lies in [0, 1], got {low:g} to {high:g}")
        return
    p = parameters[of]
    reached = {"value": high, "scale": high * max(p.nominal), "add": max(p.nominal) + high}[action]
    if reached > p.most + 1e-9:  # of sums in float
        raise ValueError(f"{where}: {of} is at most {p.most:g} {p.unit} in this simulator, and high = {high:g} gives "
                         f"{reached:g}")
    if is_signed(of, p):
        return
    nominal = min(p.nominal)
    least = {"value": low, "scale": low, "add": nominal + low}[action]
    positive = of.rpartition(".")[2] in POSITIVE and nominal > 0
    if least < 0 or (positive and least == 0):
        raise ValueError(f"{where}: {of} is {'greater than' if positive else 'at least'} 0, and low = {low:g} gives "
                         f"{least:g}")


def _components(where: str, raw: Any, count: int) -> tuple[int, ...]:
    places = [] if raw is None else raw if isinstance(raw, (list, tuple)) else [raw]
    if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count for i in places):
        raise ValueError(f"{where}.components are places from 0 to {count - 1}, got {raw!r}")
    return tuple(places)
