"""Where a fit starts: regressions that are linear, over a few lags.

Specific force along z is the sum of the thrusts by the mass, which is linear in the thrust curve's two coefficients
once the lag is known; the lag is the one that explains it best. With these, the change of body rates is linear in the
rotors' torques; both are compared between 1 and 8 Hz, below which a trim and above which noise is more than what turns
the robot. Everything else starts at its prior's middle. A fit that starts far off can end where its noise is large and
explains everything.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.signal import lfilter

from temporeal.sim.identification.parameters import SIGN_X, SIGN_Y, SIGN_YAW
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.residuals import Problem

LAGS_S = (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.1, 0.125, 0.15, 0.2)
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
SLOW_S, QUICK_S = 0.5, 0.06
"""Windows of the moving means between which turning is compared."""
SIDES = np.stack([SIGN_Y, -SIGN_X, SIGN_YAW], 1)
"""[4, 3] by which a rotor's thrust turns about x, y, z."""
NUDGE = 0.02
"""Of the prior, beside the regression: keeps two coefficients apart that the log cannot tell."""


def start(problem: Problem) -> Numbers:
    """A vector [Q] to fit from."""
    mean, _ = problem.prior
    out = mean.copy()
    names = [each.name for each in problem.asked]
    best = min(((*regression(problem, lag, exponent), lag, exponent) for lag in LAGS_S
                for exponent in (EXPONENTS if "voltage_exponent" in names else (0.0,))), key=lambda each: each[0])
    _, (linear, quadratic), lag, exponent = best
    found = {"tau_up": lag, "tau_down": lag, "thrust_to_mass": linear + quadratic,
             "curve_linear": linear / (linear + quadratic), "voltage_exponent": exponent}
    share = found["curve_linear"]
    found |= {f"torque_to_inertia_{axis}": value
              for axis, value in zip("xyz", turning(problem, lag, exponent, share))}
    for name, value in found.items():
        if name in names and (value > 0 or not problem.asked[names.index(name)].log):
            each = problem.asked[names.index(name)]
            at = float(np.log(value) if each.log else value)
            out[names.index(name)] = np.clip(at, each.mean - 3 * each.sd, each.mean + 3 * each.sd)
    return out


def regression(problem: Problem, lag: float, exponent: float) -> tuple[float, tuple[float, float]]:
    """Mean square that is left, and m/s^2 of all rotors at full speed, by the linear and the quadratic term."""
    parts = [(record, speeds(record, lag, exponent, problem.reference_v)) for record in problem.records]
    speed = np.concatenate([found[record.usable] for record, found in parts])
    force = np.concatenate([record.lift[record.usable] for record, _ in parts])
    columns = np.stack([speed.mean(1), (speed**2).mean(1)], 1)
    normal = columns.T @ columns / len(columns) + NUDGE**2 * np.eye(2)
    found = np.linalg.solve(normal, columns.T @ force / len(columns))
    return float(((force - columns @ found) ** 2).mean()), (float(found[0]), float(found[1]))


def turning(problem: Problem, lag: float, exponent: float, linear: float) -> Numbers:
    """[3] rad/s^2 about each axis of one rotor's full thrust; 0 where turning follows no command."""
    above, below = np.zeros(3), np.full(3, 1e-12)
    for record in problem.records:
        speed = speeds(record, lag, exponent, problem.reference_v)
        torque = between(record, (linear * speed + (1 - linear) * speed**2) @ SIDES)[record.usable]
        turned = between(record, np.gradient(record.rates, record.step, axis=0))[record.usable]
        above, below = above + (torque * turned).sum(0), below + (torque**2).sum(0)
    return np.asarray(np.maximum(above / below, 0.0))


def between(record: FlightRecord, values: Numbers) -> Numbers:
    """[T, F] what is quicker than :data:`SLOW_S` and slower than :data:`QUICK_S`."""
    sizes = [max(int(round(seconds / record.step)), 1) for seconds in (QUICK_S, SLOW_S)]
    quick, slow = (uniform_filter1d(values, size, axis=0) for size in sizes)
    return np.asarray(quick - slow)


def speeds(record: FlightRecord, lag: float, exponent: float, reference_v: float) -> Numbers:
    """[T, 4] rotor speeds that follow the commands with ``lag`` [s]."""
    factor = 1.0 if record.voltage is None else (np.maximum(record.voltage, 0.1) / reference_v)[:, None] ** exponent
    given, share = record.command * factor, 1 - np.exp(-record.step / lag)
    return np.asarray(lfilter([0.0, share], [1.0, share - 1], given, axis=0, zi=(given[:1] * (1 - share)))[0])
