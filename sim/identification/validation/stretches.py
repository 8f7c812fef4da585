"""What is predicted and compared: stretches of a record, on a grid of steps of at least 10 ms.

A stretch begins at a measured state; what came before it is known, too (a network that remembers needs it). Everything
measured or predicted of a sample is one row of 16 numbers, in the order of :mod:`..shooting`: body rates, specific
force, velocity, quaternion, position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.identification.record import FlightRecord, Numbers, starts
from temporeal.sim.identification.residuals import turned
from temporeal.sim.identification.shooting import FORCE, POSITION, QUAT, RATES, SIZE, VELOCITY

COARSE_S = 0.01
"""A step of validation, at least; a log of 1 kHz is looked at every tenth sample."""
UNITS: Mapping[str, str] = {"position": "m", "velocity": "m/s", "attitude": "deg", "rates": "rad/s", "force": "m/s²"}


@dataclass(frozen=True)
class Stretches:
    """S stretches of L steps of ``stride`` samples of a record, from the samples ``begin`` [S] on."""

    record: FlightRecord
    begin: NDArray[np.int64]
    steps: int
    stride: int

    @property
    def dt(self) -> float:
        """Of a step, s."""
        return self.stride * self.record.step

    @property
    def at(self) -> NDArray[np.int64]:
        """[S, L + 1] samples of the start and of each step."""
        return self.begin[:, None] + self.stride * np.arange(self.steps + 1)

    def measured(self, before: int = 0) -> Numbers:
        """[S, before + L + 1, 16] from ``before`` steps before the start on; NaN where it is not logged."""
        at = self.begin[:, None] + self.stride * np.arange(-before, self.steps + 1)
        return rows(self.record)[at]

    def commands(self, before: int = 0, voltage: bool = False) -> Numbers:
        """[S, before + L, 4] the mean of what the motors were told in each step; or 5, and of the battery's voltage."""
        values = self.record.command
        if voltage:
            if self.record.voltage is None:
                raise ValueError(f"{self.record.name} has no voltage, and who predicts is told it")
            values = np.concatenate([values, self.record.voltage[:, None]], 1)
        at = self.begin[:, None] + self.stride * np.arange(-before, self.steps)
        sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, 0)])
        return np.asarray((sums[at + self.stride] - sums[at]) / self.stride)


@dataclass(frozen=True)
class Told:
    """What a model without physics is told beside motion and commands, as the simulator is or was fitted to.

    Args:
        force: specific force up to a stretch's start; along it, what it said itself. voltage: the battery's, along the
            stretch, too, where the simulator's commands follow it.
    """

    force: bool
    voltage: bool


def told_by(records: Sequence[FlightRecord]) -> Told:
    """What all ``records`` tell."""
    return Told(all(each.force is not None for each in records), all(each.voltage is not None for each in records))


def rows(record: FlightRecord) -> Numbers:
    """[T, 16] what was measured."""
    out = np.full((len(record.command), SIZE), np.nan)
    for where, values in ((RATES, record.rates), (FORCE, record.force), (VELOCITY, record.velocity),
                          (QUAT, record.quat), (POSITION, record.position)):
        if values is not None:
            out[:, where] = values
    return out


def stride_of(record: FlightRecord) -> int:
    """Samples in a step."""
    return max(int(np.ceil(COARSE_S / record.step - 0.01)), 1)


def stretches(record: FlightRecord, seconds: float, every_s: float | None = None) -> Stretches:
    """Stretches of ``seconds`` in which all is measured, one behind the other, or one ``every_s``."""
    stride = stride_of(record)
    steps = max(int(round(seconds / (stride * record.step))), 1)
    every = None if every_s is None else max(int(round(every_s / record.step)), 1)
    return Stretches(record, starts(record, steps * stride + 1, every), steps, stride)


Predictor = Callable[[Stretches], Numbers]
"""[S, L, 16] of the steps behind the start; NaN for what it does not predict."""


def errors(predicted: Numbers, measured: Numbers) -> dict[str, Numbers]:
    """Differences [S, L, 3] of what is both predicted and measured, [S, L, 16] each: m, m/s, degrees about body axes,
    rad/s, m/s^2. What is predicted to be no number is infinitely far."""
    found = {name: measured[..., where] - predicted[..., where] for name, where in (
        ("position", POSITION), ("velocity", VELOCITY), ("rates", RATES), ("force", FORCE))}
    found["attitude"] = np.degrees(turned(predicted[..., QUAT], measured[..., QUAT]))
    known = {"attitude": QUAT, "position": POSITION, "velocity": VELOCITY, "rates": RATES, "force": FORCE}
    return {name: np.where(np.isfinite(found[name]), found[name], np.inf) for name in UNITS
            if np.isfinite(measured[..., known[name]]).any() and np.isfinite(predicted[..., known[name]]).any()}


def sizes(error: Numbers) -> Numbers:
    """[S, L] of differences [S, L, 3]."""
    return np.linalg.norm(error, axis=-1)


def taken(out: Numbers, where: Stretches) -> Numbers:
    """Of what is predicted for all samples [P, T, 16] the steps of stretches, [P, S, L, 16]."""
    return np.asarray(out[:, where.at[:, 1:]])
