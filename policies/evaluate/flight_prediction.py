"""How wrong is a simulator of a robot: flights it was not fitted to, predicted open loop, beside simpler predictions.

Of each flight short stretches are predicted from measured states (1 to 50 steps), long ones of two seconds, and each
whole way from one hover to the next. Compared is what was measured; errors are root mean squares over all starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.validation import hovers
from temporeal.sim.identification.validation.stretches import (
    UNITS,
    Predictor,
    Stretches,
    errors,
    sizes,
    stretches,
)

STEPS = (1, 2, 5, 10, 20, 50)
"""Of at least 10 ms, at which errors are told."""
LONG_S, BELIEVED_M = 2.0, 0.1
"""Of a long stretch; and an error of position, up to which a prediction is of use near people and walls."""
HONEST = (0.85, 0.95)
"""Of 90 % intervals: shares of what was measured that they may hold, of each channel by itself: in a mean of channels
one that is too narrow hides behind one that is too wide."""


@dataclass(frozen=True)
class Candidate:
    """One who predicts.

    Args:
        name: short. words: what it is. predict: flights. covered: [S, L] share of components within its 90 %
            intervals, by channel; None: it has none.
    """

    name: str
    words: str
    predict: Predictor
    covered: Callable[[Stretches], Mapping[str, Numbers]] | None = None


@dataclass
class Sums:
    """Of one candidate over all flights: squared errors [S, L], and shares covered [S, L], by channel."""

    squares: dict[str, list[Numbers]] = field(default_factory=dict)
    covered: dict[str, list[Numbers]] = field(default_factory=dict)
    long: list[Numbers] = field(default_factory=list)


def compared(records: Sequence[FlightRecord], candidates: Sequence[Candidate],
             told: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """All errors, in numbers and texts alone: ``steps``, ``errors``, ``flights``, ``coverage``, least and most of it by
    flight after the last step (``coverage_flights``), ``believed_s``, ``manoeuvres``; what is no number is None."""
    sums = {each.name: Sums() for each in candidates}
    flights, manoeuvres = dict[str, Any](), list[dict[str, Any]]()
    for record in records:
        told(record.name)
        short = stretches(record, seconds(record))
        if not len(short.begin):
            raise ValueError(f"{record.name}: no stretch of {seconds(record):.3g} s in which all is measured")
        flights[record.name] = {each.name: of_flight(each, short, sums[each.name]) for each in candidates}
        if record.has_pose and record.position is not None:
            of_long(hovers.bridged(record), candidates, sums)
            manoeuvres += of_manoeuvres(hovers.bridged(record), candidates)
    steps = [k for k in STEPS if k <= short.steps]
    return {
        "steps": steps, "step_s": short.dt, "units": dict(UNITS), "flights": flights, "manoeuvres": manoeuvres,
        "errors": {name: {channel: root(np.concatenate(each)) for channel, each in found.squares.items()}
                   for name, found in sums.items()},
        "coverage": {name: {channel: number(np.concatenate(each).mean(0)) for channel, each in found.covered.items()}
                     for name, found in sums.items() if found.covered},
        "coverage_flights": {name: {channel: ends(each) for channel, each in found.covered.items()}
                             for name, found in sums.items() if found.covered},
        "believed_s": {name: believed(found.long, short.dt) for name, found in sums.items() if found.long},
        "error_long_m": {name: root(np.concatenate(found.long))[-1] for name, found in sums.items() if found.long}}


def worst(shares: Mapping[str, float]) -> tuple[str, float]:
    """The channel whose share of 90 % intervals is furthest from the middle of :data:`HONEST`, and that share."""
    return max(shares.items(), key=lambda each: abs(each[1] - sum(HONEST) / 2))


def ends(shares: Sequence[Numbers]) -> list[float | None]:
    """Least and greatest share [S, L] of a flight after the last step."""
    last = [each[:, -1].mean() for each in shares if len(each)]
    return number([min(last), max(last)])


def seconds(record: FlightRecord) -> float:
    """Of short stretches: :data:`STEPS` of at least 10 ms."""
    return STEPS[-1] * stretches(record, 0.01).dt


def of_flight(who: Candidate, where: Stretches, sums: Sums) -> dict[str, Any]:
    """Root mean squares of one flight by channel and step; added to ``sums``, too."""
    found = {}
    for channel, error in errors(who.predict(where), where.measured()[:, 1:]).items():
        size = sizes(error) ** 2
        sums.squares.setdefault(channel, []).append(size)
        found[channel] = {str(k): number(np.sqrt(size[:, k - 1].mean())) for k in STEPS if k <= where.steps}
    if who.covered is not None:
        for channel, share in who.covered(where).items():
            sums.covered.setdefault(channel, []).append(share)
    return found


def of_long(record: FlightRecord, candidates: Sequence[Candidate], sums: Mapping[str, Sums]) -> None:
    """Squared errors of position in long stretches, one behind the other."""
    where = stretches(record, LONG_S)
    if len(where.begin):
        for each in candidates:
            error = errors(each.predict(where), where.measured()[:, 1:]).get("position")
            if error is not None:
                sums[each.name].long.append(sizes(error) ** 2)


def of_manoeuvres(record: FlightRecord, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """From one hover to the next: how far off the position is at the end, and how long it is within reach."""
    out = []
    for where in hovers.between(record):
        far = {each.name: sizes(errors(each.predict(where), where.measured()[:, 1:])["position"])[0]
               for each in candidates}
        out.append({"flight": record.name, "from_s": number(where.begin[0] * record.step),
                    "seconds": number(where.steps * where.dt),
                    "end_m": {name: number(x[-1]) for name, x in far.items()},
                    "believed_s": {name: number(within(x[None], where.dt)[0]) for name, x in far.items()}})
    return out


def within(distance: Numbers, dt: float) -> Numbers:
    """[S] s until distances [S, L] are more than :data:`BELIEVED_M`; all of the stretch where they never are."""
    beyond = distance > BELIEVED_M
    first = np.where(beyond.any(1), beyond.argmax(1), distance.shape[1])
    return np.asarray(first * dt)


def believed(squares: Sequence[Numbers], dt: float) -> float | None:
    """Median time for which a prediction of position is within :data:`BELIEVED_M`."""
    return number(np.median(within(np.sqrt(np.concatenate(squares)), dt)))


def root(squares: Numbers) -> list[float | None]:
    """[L] root mean squares of [S, L]."""
    with np.errstate(over="ignore", invalid="ignore"):
        return number(np.sqrt(squares.mean(0)))


def number(value: Any) -> Any:
    """Numbers of five digits; None for what is none."""
    if np.ndim(value):
        return [number(each) for each in value]
    return float(f"{float(value):.5g}") if np.isfinite(value) else None
