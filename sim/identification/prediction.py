"""What an identified robot is worth: flown along logs that it was not identified from."""

from __future__ import annotations

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification import shooting
from temporeal.sim.identification.parameters import NEEDED, Quantity, flown, packed
from temporeal.sim.identification.record import FlightRecord, Marks, Numbers, starts
from temporeal.sim.identification.shooting import Flown


def identified(asked: tuple[Quantity, ...], theta: Numbers) -> Flown:
    """A vector theta [Q], or several [P, Q], as the simulator flies it."""
    return flown(asked, np.atleast_2d(theta))


def datasheet(robot: RobotSpec) -> Flown:
    """The spec's nominal parameters: a full command is full speed whatever the battery, nothing is late or biased."""
    values = {name: np.array(robot.parameters[name].nominal)[None] for name in NEEDED}
    none = np.zeros(1)
    return Flown(packed(values), none, none, none, np.zeros((1, 3)), np.ones((1, 3)))


def open_loop(how: Flown, record: FlightRecord, horizon_s: float, reference_v: float) -> tuple[Numbers, Numbers]:
    """Flights of ``horizon_s`` from measured states, one behind the other: predicted and measured positions [S, H, 3]
    at the H samples behind each start."""
    if record.position is None or not record.has_pose:
        raise ValueError(f"{record.name} has no position and velocity to start from and to compare with")
    length = int(round(horizon_s / record.step)) + 1
    begin = starts(record, length)
    out = shooting.predicted(how, record, begin, reference_v)[0]
    at = begin[:, None] + np.arange(1, length)
    return out[at][..., shooting.POSITION], record.position[at]


def position_error(how: Flown, record: FlightRecord, horizon_s: float, reference_v: float) -> Numbers:
    """[S] m at the end of each flight of ``horizon_s``; what is no number is infinitely far."""
    predicted, measured = open_loop(how, record, horizon_s, reference_v)
    error = np.linalg.norm(predicted[:, -1] - measured[:, -1], axis=-1)
    return np.asarray(np.where(np.isfinite(error), error, np.inf))


def vertical(how: Flown, bias: float, record: FlightRecord, reference_v: float) -> Numbers:
    """[T] m/s^2 along body z that an accelerometer with ``bias`` says, by commands alone: no state is set."""
    out = shooting.predicted(how, record, np.array([], dtype=np.int64), reference_v)
    return np.asarray(out[0, :, shooting.FORCE.start + 2] + bias)


def explained(predicted: Numbers, measured: Numbers, where: Marks) -> float:
    """R^2 of what was measured [T] ``where`` it counts: 1 - residual over total variance about its own mean."""
    error, spread = predicted[where] - measured[where], measured[where] - measured[where].mean()
    return float(1 - (error**2).sum() / (spread**2).sum())
