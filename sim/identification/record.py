"""What a flight is to identification: numbers of one quadrotor on one even grid, and the stretches that may be used.

Whoever reads logs makes these (``policies/data/flight_logs`` does for the kinds that the project reads); nothing here
knows of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from temporeal.robots import frames
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

Numbers = NDArray[np.float64]
Marks = NDArray[np.bool_]

WARM_S = 0.5
"""Before the first stretch: eight times a small rotor's time constant, after which nothing is left of how rotors turned
when the record began."""


class CannotTell(ValueError):
    """A record from which nothing can be identified, in words for the user."""


@dataclass(frozen=True)
class FlightRecord:
    """One flight of T samples.

    Args:
        name: for people. digest: SHA-256 of the log. step: of the grid [s].
        command: [T, 4] share of full command, 0 to 1, held until the next. voltage: [T] V; None: not logged.
        rates: [T, 3] rad/s body. force: [T, 3] m/s^2 specific force, body; None: no accelerometer, and pose is there.
        quat: [T, 4] wxyz body to world; velocity, position: [T, 3] world; None: not logged.
        usable: [T] in flight, and every source measured.
        rest_rates: [R, 3] the gyro while the robot stood still; None: it never did.
        begin: sample at which the flight begins, from which a battery empties; -1: the first that is usable.
    """

    name: str
    digest: str
    step: float
    command: Numbers
    voltage: Numbers | None
    rates: Numbers
    force: Numbers | None
    usable: Marks
    quat: Numbers | None = None
    velocity: Numbers | None = None
    position: Numbers | None = None
    rest_rates: Numbers | None = None
    begin: int = -1

    @property
    def has_pose(self) -> bool:
        """Whether attitude and velocity are known, so that drag and the accelerometer's bias can be."""
        return self.quat is not None and self.velocity is not None

    @property
    def lift(self) -> Numbers:
        """[T] m/s^2 specific force along body z: what the accelerometer says, or what the motion shows (noisier)."""
        if self.force is not None:
            return np.asarray(self.force[:, 2])
        assert self.quat is not None and self.velocity is not None
        free = np.gradient(self.velocity, self.step, axis=0) + [0.0, 0.0, GRAVITY]
        return np.asarray(frames.rotate_inverse(self.quat, free)[:, 2])

    @property
    def seconds(self) -> float:
        """Of usable flight."""
        return float(self.usable.sum()) * self.step

    def only(self, where: Marks) -> FlightRecord:
        """The record of which nothing but ``where`` [T] is usable; rotors and battery still know what came before."""
        return replace(self, usable=self.usable & where, begin=self.first)

    @property
    def first(self) -> int:
        """Sample at which the flight begins."""
        return self.begin if self.begin >= 0 else int(np.argmax(self.usable))

    def state(self) -> Numbers:
        """[T, 13] position, quaternion, velocity, body rates as measured; what is not logged is at rest and upright."""
        out = np.zeros((len(self.command), 13))
        out[:, 3] = 1.0
        for first, values in ((0, self.position), (3, self.quat), (7, self.velocity), (10, self.rates)):
            if values is not None:
                out[:, first : first + values.shape[1]] = values
        return out


def starts(record: FlightRecord, length: int, every: int | None = None) -> NDArray[np.int64]:
    """First samples of stretches of ``length`` samples in which all is usable, one ``every`` samples (default: one
    after the other)."""
    found, k = [], int(WARM_S / record.step)
    good = np.concatenate([[0], np.cumsum(record.usable)])
    while k + length <= len(record.usable):
        whole = good[k + length] - good[k] == length
        if whole:
            found.append(k)
        k += (every or length) if whole else 1
    return np.array(found, dtype=np.int64)


def check(records: Sequence[FlightRecord], shortest_s: float) -> None:
    """Refuse what nothing can be identified from."""
    for record in records:
        if record.seconds < shortest_s:
            raise CannotTell(f"{record.name}: {record.seconds:.2g} s of flight in which every source is measured; "
                             f"{shortest_s:g} s at least are needed")


def one_step(records: Sequence[FlightRecord], rest: str) -> None:
    """Refuse grids of different steps, with what to do instead."""
    if len({round(record.step, 6) for record in records}) > 1:
        raise CannotTell("the logs have grids of different steps: " + ", ".join(
            f"{record.name} {1000 * record.step:.3g} ms" for record in records) + f"; {rest}")
