"""What sensors said minus what the simulator says: [P, S, L, C] of P vectors, S stretches, L samples, C channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.identification import shooting
from temporeal.sim.identification.parameters import Quantity, flown
from temporeal.sim.identification.record import FlightRecord, Numbers, starts

GYRO = tuple(f"gyro_{a}" for a in "xyz")
ACCELEROMETER = tuple(f"accelerometer_{a}" for a in "xyz")
VELOCITY = tuple(f"velocity_{a}" for a in "xyz")
ATTITUDE = tuple(f"attitude_{a}" for a in "xyz")


@dataclass(frozen=True)
class Problem:
    """Records, and how they are cut into stretches.

    Args:
        length: samples of a stretch. begins: of each record, first samples of its stretches. reference_v: voltage at
            which a command is a setpoint.
    """

    asked: tuple[Quantity, ...]
    records: tuple[FlightRecord, ...]
    length: int
    begins: tuple[NDArray[np.int64], ...]
    reference_v: float
    threads: int = 1

    @property
    def channels(self) -> tuple[str, ...]:
        """What is compared."""
        pose = all(record.has_pose for record in self.records)
        felt = all(record.force is not None for record in self.records)
        return GYRO + (ACCELEROMETER if felt else ()) + (VELOCITY + ATTITUDE if pose else ())

    @property
    def times(self) -> Numbers:
        """[L - 1] s of a stretch's samples behind its start."""
        return np.asarray(np.arange(1, self.length) * self.records[0].step)

    @property
    def started(self) -> tuple[bool, ...]:
        """Of channels: whether it is integrated from a measured start."""
        return tuple(name not in ACCELEROMETER for name in self.channels)

    @property
    def prior(self) -> tuple[Numbers, Numbers]:
        """Means and standard deviations [Q]."""
        return np.array([each.mean for each in self.asked]), np.array([each.sd for each in self.asked])

    def residuals(self, theta: Numbers) -> Numbers:
        """:func:`residuals`."""
        return residuals(self, theta)


def residuals(problem: Problem, theta: Numbers) -> Numbers:
    """[P, S, L - 1, C] of vectors theta [P, Q]; a stretch's first sample is where it starts, and is no residual."""
    found = [of_record(problem, record, begin, theta) for record, begin in zip(problem.records, problem.begins)]
    return np.concatenate(found, 1)


def of_record(problem: Problem, record: FlightRecord, begin: NDArray[np.int64], theta: Numbers) -> Numbers:
    """Of one record."""
    out = shooting.predicted(flown(problem.asked, theta), record, begin, problem.reference_v, problem.threads)
    at = begin[:, None] + np.arange(1, problem.length)
    out = out[:, at]
    names = [each.name for each in problem.asked]

    def bias(sensor: str) -> Numbers:
        return np.asarray(theta[:, [names.index(f"{sensor}_bias_{a}") for a in "xyz"]][:, None, None])

    parts = [record.rates[at] - out[..., shooting.RATES] - bias("gyro")]
    if ACCELEROMETER[0] in problem.channels:
        assert record.force is not None
        parts.append(record.force[at] - out[..., shooting.FORCE] - bias("accelerometer"))
    if VELOCITY[0] in problem.channels:
        assert record.quat is not None and record.velocity is not None
        parts += [record.velocity[at] - out[..., shooting.VELOCITY],
                  turned(out[..., shooting.QUAT], record.quat[at])]
    return np.concatenate(parts, -1)


def turned(a: Numbers, b: Numbers) -> Numbers:
    """Rotation vector [..., 3] rad, in body axes, from attitude ``a`` to ``b`` nearby, [..., 4] each."""
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    w = aw * bw + ax * bx + ay * by + az * bz
    x = aw * bx - ax * bw - ay * bz + az * by
    y = aw * by + ax * bz - ay * bw - az * bx
    z = aw * bz - ax * by + ay * bx - az * bw
    return np.asarray(np.stack([x, y, z], -1) * (2 * np.sign(w))[..., None])


def problem_of(asked: Sequence[Quantity], records: Sequence[FlightRecord], stretch_s: float, reference_v: float,
               threads: int = 1) -> Problem:
    """Records cut into stretches of ``stretch_s`` seconds; all records have one step."""
    length = max(int(round(stretch_s / records[0].step)), 3) + 1
    return Problem(tuple(asked), tuple(records), length, tuple(starts(each, length) for each in records), reference_v,
                   threads)
