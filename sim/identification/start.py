"""Where a fit starts: regressions that are linear, over a few lags.

Specific force along z is the sum of the thrusts by the mass, which is linear in the thrust curve's two coefficients
once the lag is known; the lag is the one that explains it best. Everything else starts at its prior's middle.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.residuals import Problem

LAGS_S = (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.085, 0.1, 0.125, 0.15)
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
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
    force = np.concatenate([record.force[record.usable, 2] for record, _ in parts])
    columns = np.stack([speed.mean(1), (speed**2).mean(1)], 1)
    normal = columns.T @ columns / len(columns) + NUDGE**2 * np.eye(2)
    found = np.linalg.solve(normal, columns.T @ force / len(columns))
    return float(((force - columns @ found) ** 2).mean()), (float(found[0]), float(found[1]))


def speeds(record: FlightRecord, lag: float, exponent: float, reference_v: float) -> Numbers:
    """[T, 4] rotor speeds that follow the commands with ``lag`` [s]."""
    factor = 1.0 if record.voltage is None else (np.maximum(record.voltage, 0.1) / reference_v)[:, None] ** exponent
    given, share = record.command * factor, 1 - np.exp(-record.step / lag)
    return np.asarray(lfilter([0.0, share], [1.0, share - 1], given, axis=0, zi=(given[:1] * (1 - share)))[0])
