"""The simulator flown along a record, from measured states, for many parameter vectors at once.

Multiple shooting (Bock, 1983): at the first sample of each stretch position, attitude, velocity and body rates are set
to what was measured; from there the simulator's own step (``sim/physics/quadrotor/dynamics.py``, here in float64) flies
the logged commands. Rotor speeds are measured by nobody and depend on commands alone: they run on through the record.

A motor's setpoint is its command, ``delay`` later, times (voltage / reference)^exponent and, where no voltage is known,
exp(-loss t). Of what commands of the four
differ in, about each axis, a ``share`` acts: 1, but for logs that sample commands more slowly than the loop that makes
them (:mod:`.parameters`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.physics.quadrotor import dynamics as physics

RATES, FORCE, VELOCITY, QUAT, POSITION = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 13), slice(13, 16)
SIZE = 16
"""Of what is predicted for a sample: body rates, specific force (body), velocity, quaternion, position."""

LONGEST_STEP_S = 0.005
"""Of the integrator: a twelfth of a small rotor's time constant."""

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
INNER: dict[str, Any] = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
plain = compiling.instantiate(physics, njit(**INNER), float)
_step, _derivative, _clamp = plain.motor_step, plain.derivative, plain.clamp
GRAVITY = physics.GRAVITY


@dataclass(frozen=True)
class Flown:
    """How a parameter vector meets a record, P vectors.

    Args:
        params: [P, PARAM_SIZE] of the simulator. delay: [P] s. exponent: [P] of the voltage. loss: [P] 1/s of speed.
        rate_bias: [P, 3] rad/s, of the gyro. share: [P, 3] of the logged differences between motors, about x, y, z.
    """

    params: Numbers
    delay: Numbers
    exponent: Numbers
    loss: Numbers
    rate_bias: Numbers
    share: Numbers


@njit(**INNER)
def _held(command: Any, at: Any, wide: Any, motor: Any) -> Any:
    """The mean of a motor's command from ``at`` to ``at + wide``, in samples, each held until the next."""
    last, first = len(command) - 1, int(np.floor(at))
    late = max(at + wide - (first + 1), 0.0) / wide
    a, b = min(max(first, 0), last), min(max(first + 1, 0), last)
    return (1.0 - late) * command[a, motor] + late * command[b, motor]


@njit(**INNER)
def _setpoints(command: Any, factor: Any, at: Any, wide: Any, share: Any) -> Any:
    """The four motors' setpoints in the step of ``wide`` samples whose commands were given at sample ``at``."""
    c0, c1 = _held(command, at, wide, 0), _held(command, at, wide, 1)
    c2, c3 = _held(command, at, wide, 2), _held(command, at, wide, 3)
    mean = 0.25 * (c0 + c1 + c2 + c3)
    roll, pitch = 0.25 * share[0] * (c2 + c3 - c0 - c1), 0.25 * share[1] * (c1 + c2 - c0 - c3)
    yaw = 0.25 * share[2] * (c1 + c3 - c0 - c2)
    return (
        _clamp(factor * (mean - roll - pitch - yaw), 0.0, 1.0), _clamp(factor * (mean - roll + pitch + yaw), 0.0, 1.0),
        _clamp(factor * (mean + roll + pitch - yaw), 0.0, 1.0), _clamp(factor * (mean + roll - pitch + yaw), 0.0, 1.0),
    )  # fmt: skip


@njit(**INNER)
def _write(out: Any, s: Any, d: Any) -> None:
    """What sensors would say of the state ``s`` whose derivative is ``d``."""
    w, x, y, z = s[3], s[4], s[5], s[6]
    ax, ay, az = d[7], d[8], d[9] + GRAVITY
    out[0], out[1], out[2] = s[10], s[11], s[12]
    out[3] = (1 - 2 * (y * y + z * z)) * ax + 2 * (x * y + w * z) * ay + 2 * (x * z - w * y) * az
    out[4] = 2 * (x * y - w * z) * ax + (1 - 2 * (x * x + z * z)) * ay + 2 * (y * z + w * x) * az
    out[5] = 2 * (x * z + w * y) * ax + 2 * (y * z - w * x) * ay + (1 - 2 * (x * x + y * y)) * az
    out[6], out[7], out[8] = s[7], s[8], s[9]
    out[9], out[10], out[11], out[12] = w, x, y, z
    out[13], out[14], out[15] = s[0], s[1], s[2]


@njit(**INNER)
def _params(a: Any) -> Any:
    """A packed parameter set as the physics takes it."""
    return (
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16],
        a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], a[28], a[29], a[30], a[31],
        a[32], a[33], a[34],
    )  # fmt: skip


def _kernel(digest: str) -> Any:
    """The kernel; ``digest`` puts the source of what it calls into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def fly(params: Any, delays: Any, factors: Any, bias: Any, shares: Any, command: Any, state: Any, start: Any,
            dt: Any, substeps: Any, out: Any) -> None:
        """params [P, PARAM_SIZE], factors [P, T], state [T, 13], start [T] -> out [P, T, SIZE]."""
        _ = digest
        for i in range(len(params)):
            p, factor = _params(params[i]), factors[i]
            late, wide = delays[i] / dt, 1.0 / substeps
            n0, n1, n2, n3 = _setpoints(command, factor[0], -late, wide, shares[i])
            s = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, n0, n1, n2, n3)
            for k in range(len(command)):
                if start[k]:
                    m = state[k]
                    s = (
                        m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9], m[10] - bias[i, 0],
                        m[11] - bias[i, 1], m[12] - bias[i, 2], s[13], s[14], s[15], s[16],
                    )  # fmt: skip
                _write(out[i, k], s, _derivative(s, n0, n1, n2, n3, p, True))  # setpoints matter to rotors alone
                for j in range(substeps):
                    u0, u1, u2, u3 = _setpoints(command, factor[k], k + j * wide - late, wide, shares[i])
                    s = _step(s, u0, u1, u2, u3, p, dt * wide, True)

    return fly


fly = _kernel(compiling.fingerprint(physics))


def prepared(flown: Flown, record: FlightRecord, reference_v: float) -> tuple[Numbers, Numbers, int]:
    """Parameters [P, PARAM_SIZE] that this record can be flown with, factors [P, T] of the battery on commands, and
    steps of the integrator in one of the record."""
    length = len(record.command)
    factors = np.exp(-flown.loss[:, None] * np.maximum(np.arange(length) - record.first, 0) * record.step)
    if record.voltage is not None:
        factors = factors * np.exp(flown.exponent[:, None] * np.log(np.maximum(record.voltage, 0.1) / reference_v))
    params = flown.params.copy()
    if not record.has_pose:  # nobody knows how fast it flies: what drag does is no matter of this record
        params[:, physics.DRAG_X : physics.DRAG_Z + 1] = 0.0
    # a lag below half a step would shake the integrator: it is one that this grid cannot show
    rates = params[:, physics.RATE_UP : physics.RATE_DOWN + 1]
    substeps = max(int(np.ceil(record.step / LONGEST_STEP_S - 1e-6)), 1)
    np.minimum(rates, 2.0 * substeps / record.step, out=rates)
    return params, factors, substeps


def predicted(flown: Flown, record: FlightRecord, begin: NDArray[np.int64], reference_v: float, threads: int = 1
              ) -> Numbers:
    """What sensors would say, [P, T, SIZE]; between stretches it is of no use.

    Args:
        begin: first samples of the stretches. reference_v: voltage at which a command is a setpoint.
    """
    count, length = len(flown.params), len(record.command)
    params, factors, substeps = prepared(flown, record, reference_v)
    start = np.zeros(length, dtype=np.bool_)
    start[begin] = True
    state, out = record.state(), np.empty((count, length, SIZE))

    def some(first: int, last: int) -> None:
        fly(params[first:last], flown.delay[first:last], factors[first:last], flown.rate_bias[first:last],
            flown.share[first:last], record.command, state, start, record.step, substeps, out[first:last])

    if threads == 1 or count == 1:
        some(0, count)
        return out
    edges = np.linspace(0, count, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(some, edges[:-1], edges[1:]):
            pass
    return out
