"""A measured figure and how it is judged. What ``temporeal bench NAME --json`` prints is a list of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Value = float | str | None


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes:
        name: of its own within a benchmark.
        value: None where it could not be measured; ``peer`` then says why.
        target: what it should reach, as a number or as text; None where nothing is demanded.
        peer: what others reach, or how the figure was taken.
        ok: whether the target is met. A target whose figure could not be measured is not met: False. None where there
            is no target, and where the run is too short or not yet complete enough to be judged.
    """

    name: str
    value: float | None
    unit: str = ""
    target: float | str | None = None
    peer: float | str | None = None
    ok: bool | None = None


def at_least(name: str, value: float, unit: str, target: float, peer: float | str | None = None) -> Row:
    """A figure that meets its target at ``target`` and above."""
    return Row(name, value, unit, target, peer, bool(value >= target))


def at_most(name: str, value: float, unit: str, target: float, peer: float | str | None = None) -> Row:
    """A figure that meets its target at ``target`` and below."""
    return Row(name, value, unit, target, peer, bool(value <= target))


def none_of(name: str, count: int, peer: float | str | None = None) -> Row:
    """A count of what must not happen."""
    return Row(name, count, "1", 0, peer, not count)


def not_measured(name: str, unit: str, target: float | str | None, why: str) -> Row:
    """A figure that could not be measured. If it has a target, the target is not met."""
    return Row(name, None, unit, target, f"not measured: {why}", None if target is None else False)


def spread(
    name: str, values: Sequence[float], unit: str, target: float | None = None, peer: float | str | None = None
) -> list[Row]:
    """The median of the rounds, which meets its target at ``target`` and above; the least and the most beside it."""
    middle = median(values)
    judged = Row(name, middle, unit, peer=peer) if target is None else at_least(name, middle, unit, target, peer)
    of = f"of {len(values)} rounds"
    return [judged, Row(f"{name}.least", min(values), unit, peer=of), Row(f"{name}.most", max(values), unit, peer=of)]
