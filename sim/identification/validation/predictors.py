"""Who predicts: the simulator with some parameters (and residual dynamics), going on as before, a linear model.

The linear model is an ARX (Ljung, System Identification, 1999, section 4.2) of velocity and gravity in body axes, body
rates and specific force over the last steps and of commands times the battery's voltage, by ridge least squares of the
next step, iterated. Attitude and position are integrated from what it says, so that only dynamics are learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal.robots import frames
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.shooting import FORCE, POSITION, QUAT, RATES, SIZE, VELOCITY, Flown
from temporeal.sim.identification.validation import flying
from temporeal.sim.identification.validation.stretches import Predictor, Stretches, Told, taken, told_by
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble

LAGS = 3
RIDGE = 1e-3
"""Of the variance of what it predicts from."""


def simulator(how: Flown, reference_v: float, ensemble: Ensemble | None = None) -> Predictor:
    """The simulator with one parameter vector, and residual dynamics (the mean of their members); of stretches that do
    not overlap."""

    def predict(where: Stretches) -> Numbers:
        if ensemble is not None and not where.record.has_pose:  # it needs to know how fast the robot is
            return np.full((len(where.begin), where.steps, SIZE), np.nan)
        out = flying.flown(how, where.record, where.begin, reference_v, flying.Beyond(ensemble))[0]
        out[..., RATES] += how.rate_bias[:, None]
        return taken(out, where)[0]

    return predict


def hold(where: Stretches) -> Numbers:
    """On at the measured velocity, attitude and rates as they were."""
    first = where.measured()[:, :1]
    out = np.repeat(first, where.steps, 1)
    times = where.dt * np.arange(1, where.steps + 1)[:, None]
    out[..., POSITION] += times * first[..., VELOCITY]
    out[..., 3:6] = np.nan
    return np.asarray(out)


def seen(measured: Numbers, force: bool = False) -> Numbers:
    """[..., 9] velocity in body axes, body rates, gravity's direction in body axes, of rows [..., 16]; or 12, and
    specific force."""
    quat = measured[..., QUAT]
    up = np.broadcast_to([0.0, 0.0, 1.0], (*quat.shape[:-1], 3))
    return np.concatenate([frames.rotate_inverse(quat, measured[..., VELOCITY]), measured[..., RATES],
                           frames.rotate_inverse(quat, up), *([measured[..., FORCE]] if force else [])], -1)


def linear(trained: Sequence[Stretches], given: Told | None = None) -> Predictor:
    """An ARX fitted to the flights of ``trained``; ``given``: what it is told, by default all that these tell."""
    given = given or told_by([each.record for each in trained])
    rows, wanted = [], []
    for each in trained:
        history = seen(each.measured(LAGS - 1), given.force)
        told = driven(each, given)
        for k in range(each.steps):
            rows.append(regressors(history[:, k : k + LAGS], told[:, k : k + LAGS]))
            wanted.append(history[:, k + LAGS] - history[:, k + LAGS - 1])
    x, y = np.concatenate(rows), np.concatenate(wanted)
    middle, mean, spread = x.mean(0), y.mean(0), x.std(0)
    scale = np.where(spread > 1e-9, spread, 1.0)  # what never changed says nothing
    unit = (x - middle) / scale
    normal = unit.T @ unit / len(x) + RIDGE * np.eye(x.shape[1])
    weight = np.linalg.solve(normal, unit.T @ (y - mean) / len(x)) / scale[:, None]
    constant = mean - middle @ weight

    def predict(where: Stretches) -> Numbers:
        history, told = seen(where.measured(LAGS - 1), given.force), driven(where, given)
        recent = [history[:, k] for k in range(LAGS)]
        state, out = where.measured()[:, 0], []
        for k in range(where.steps):
            step = recent[-1] + regressors(np.stack(recent, 1), told[:, k : k + LAGS]) @ weight + constant
            state = integrated(state, step, where.dt)
            recent = [*recent[1:], step]
            out.append(state)
        return np.stack(out, 1)

    return predict


def driven(where: Stretches, given: Told) -> Numbers:
    """[S, LAGS - 1 + L, 4] what the motors were told; with the voltage, the product of both, which no sum is."""
    told = where.commands(LAGS - 1, given.voltage)
    return told[..., :4] * told[..., 4:] if given.voltage else told


def regressors(history: Numbers, told: Numbers) -> Numbers:
    """[S, F] of the last states [S, LAGS, 9 or 12] and of what drives it [S, LAGS, 4]."""
    return np.concatenate([history.reshape(len(history), -1), told.reshape(len(history), -1)], 1)


def integrated(state: Numbers, step: Numbers, dt: float) -> Numbers:
    """The row [S, 16] behind ``state`` [S, 16] when velocity (body axes) and rates are then those of ``step``."""
    out = np.full((len(state), SIZE), np.nan)
    out[:, RATES] = step[:, 3:6]
    out[:, QUAT] = frames.multiply(
        state[:, QUAT], frames.from_rotation_vector(0.5 * dt * (state[:, RATES] + step[:, 3:6])))
    out[:, VELOCITY] = frames.rotate(out[:, QUAT], step[:, :3])
    out[:, POSITION] = state[:, POSITION] + 0.5 * dt * (state[:, VELOCITY] + out[:, VELOCITY])
    return out
