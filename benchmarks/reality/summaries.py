"""What a flight shows in 71 numbers: regressions of what was measured on what was told, at many delays.

For a peer that learns posteriors from simulated flights (:mod:`temporeal_benchmarks.reality.sbi`): it needs a fixed
number of features. They hold what identification lives on: how thrust and turning answer to commands after 0 to 0.3 s,
how drag grows with velocity, means of sensors, and how commands differ between rotors.
"""

from __future__ import annotations

import numpy as np

from temporeal.robots import frames
from temporeal.sim.identification.parameters import SIGN_X, SIGN_Y, SIGN_YAW
from temporeal.sim.identification.record import FlightRecord, Numbers

LAGS = (0, 1, 2, 3, 4, 6, 8, 10, 14, 20, 30)
"""Samples between a command and its effect."""
RIDGE = 1e-3
"""Of a regressor's variance: neighbouring commands are much alike."""


def summary(record: FlightRecord) -> Numbers:
    """[X] of a flight with pose, accelerometer and voltage."""
    assert record.force is not None and record.quat is not None and record.velocity is not None
    assert record.voltage is not None
    command, volts = record.command, record.voltage[:, None] - record.voltage.mean()
    speed = frames.rotate_inverse(record.quat, record.velocity)
    mean = command.mean(1, keepdims=True)
    lift = np.hstack([delayed(mean), mean**2 - (mean**2).mean(), mean * volts, volts, speed[:, 2:]])
    found = [slopes(lift, record.force[:, 2])]
    turning = np.gradient(record.rates, record.step, axis=0)
    for axis, signs in enumerate((SIGN_Y, -SIGN_X, SIGN_YAW)):
        told = (command * signs).mean(1, keepdims=True)
        found.append(slopes(np.hstack([delayed(told), record.rates[:, axis : axis + 1]]), turning[:, axis]))
    found += [slopes(speed[:, axis : axis + 1], record.force[:, axis]) for axis in (0, 1)]
    turn = frames.multiply(frames.conjugate(record.quat[:-1]), record.quat[1:])
    found.append((record.rates[:-1] - 2 * np.sign(turn[:, :1]) * turn[:, 1:] / record.step).mean(0))
    found.append(np.array([(command * signs).mean() for signs in (SIGN_X, SIGN_Y, SIGN_YAW)]))
    return np.concatenate(found)


def delayed(told: Numbers) -> Numbers:
    """[T, L] of ``told`` [T, 1], each lag a column; before the beginning the first."""
    return np.hstack([np.concatenate([np.repeat(told[:1], lag, 0), told[: len(told) - lag]]) for lag in LAGS])


def slopes(of: Numbers, what: Numbers) -> Numbers:
    """[K + 2] coefficients of ``what`` [T] on ``of`` [T, K], its mean, and the logarithm of what is left."""
    centred = of - of.mean(0)
    size = centred.std(0) + 1e-9
    scaled = centred / size
    left = what - what.mean()
    found = np.linalg.solve(scaled.T @ scaled + RIDGE * len(what) * np.eye(of.shape[1]), scaled.T @ left)
    return np.concatenate([found / size, [what.mean(), np.log((left - scaled @ found).std())]])
