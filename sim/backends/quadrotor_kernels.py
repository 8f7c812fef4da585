"""CPU kernels of the quadrotor: the physics function over blocks of 16 worlds, one world per vector lane.

Layout: an array of blocks, each a [FIELDS, 16] tile, flat (``AoSoA``): value f of world w lies at
``(w // 16 * FIELDS + f) * 16 + w % 16``. With the literal lane count the compiler turns the innermost loop into
vector instructions; arrays of structures and plain structures of arrays it does not. Kernels release the
interpreter lock and take a range of blocks, so that Python threads share the work; ``prange`` would lose the
vectorization. Every lane does the same arithmetic whatever its neighbours hold, and padding fills the last block, so
a world's numbers depend on neither the number of worlds nor that of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sim import compile as compiling
from sim.backends import quadrotor_physics as physics
from sim.backends.quadrotor_physics import DELAY, N0, PARAM_SIZE, PX, PZ, QW, STATE_SIZE, VX, WX

LANES = 16  # float32 in a 512-bit register
BEFORE = STATE_SIZE  # the previous command [4]
COMMAND = STATE_SIZE + 4  # the present one [4]
FIELDS = STATE_SIZE + 8  # of a world in the state array

# not "nnan", "ninf": a world that diverges must show it
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": FASTMATH}

_scalar = compiling.instantiate(physics, njit(forceinline=True, **OPTIONS), np.float32)
_motor_step, _on_ground = _scalar.motor_step, _scalar.on_ground
_rate_loop, _blend = _scalar.rate_loop, _scalar.blend


@njit(forceinline=True, **OPTIONS)
def load_state(a, i):
    """The state of the lane whose first value is ``a[i]``."""
    return (
        a[i], a[i + 16], a[i + 32], a[i + 48], a[i + 64], a[i + 80], a[i + 96], a[i + 112], a[i + 128], a[i + 144],
        a[i + 160], a[i + 176], a[i + 192], a[i + 208], a[i + 224], a[i + 240], a[i + 256],
    )  # fmt: skip


@njit(forceinline=True, **OPTIONS)
def store_state(a, i, s):
    """Write the state ``s`` where :func:`load_state` reads it."""
    a[i] = s[0]
    a[i + 16] = s[1]
    a[i + 32] = s[2]
    a[i + 48] = s[3]
    a[i + 64] = s[4]
    a[i + 80] = s[5]
    a[i + 96] = s[6]
    a[i + 112] = s[7]
    a[i + 128] = s[8]
    a[i + 144] = s[9]
    a[i + 160] = s[10]
    a[i + 176] = s[11]
    a[i + 192] = s[12]
    a[i + 208] = s[13]
    a[i + 224] = s[14]
    a[i + 240] = s[15]
    a[i + 256] = s[16]


@njit(forceinline=True, **OPTIONS)
def load_params(a, i, k):
    """Parameters at ``a[i]``, ``a[i + k]``, ...: ``k`` is the lane count, or 1 for a set shared by all worlds."""
    return (
        a[i], a[i + k], a[i + 2 * k], a[i + 3 * k], a[i + 4 * k], a[i + 5 * k], a[i + 6 * k], a[i + 7 * k],
        a[i + 8 * k], a[i + 9 * k], a[i + 10 * k], a[i + 11 * k], a[i + 12 * k], a[i + 13 * k], a[i + 14 * k],
        a[i + 15 * k], a[i + 16 * k], a[i + 17 * k], a[i + 18 * k], a[i + 19 * k], a[i + 20 * k], a[i + 21 * k],
        a[i + 22 * k], a[i + 23 * k], a[i + 24 * k], a[i + 25 * k], a[i + 26 * k], a[i + 27 * k], a[i + 28 * k],
        a[i + 29 * k], a[i + 30 * k], a[i + 31 * k], a[i + 32 * k], a[i + 33 * k], a[i + 34 * k],
    )  # fmt: skip


def _kernels(digest: str) -> tuple[Any, ...]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def take_command(state, ctrl, first, last):
        """The blocks' present command becomes the previous one, the rows of ``ctrl`` (flat [N * 4]) the present one."""
        _ = digest
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            rows = ctrl[b * 64 : (b + 1) * 64]
            for k in range(64):
                tile[BEFORE * 16 + k] = tile[COMMAND * 16 + k]
            if len(rows) == 64:
                for k in range(16):
                    tile[COMMAND * 16 + k] = rows[4 * k]
                    tile[COMMAND * 16 + 16 + k] = rows[4 * k + 1]
                    tile[COMMAND * 16 + 32 + k] = rows[4 * k + 2]
                    tile[COMMAND * 16 + 48 + k] = rows[4 * k + 3]
            else:
                for i in range(len(rows)):
                    tile[(COMMAND + i % 4) * 16 + i // 4] = rows[i]

    @njit(cache=True, **OPTIONS)
    def step_motor_shared(state, params, nominal, dt, substeps, first, last):
        """Rotor speed setpoints, one drag-free parameter set for all worlds, no command delay."""
        _ = digest
        p = load_params(params, 0, 1)
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            for _ in range(substeps):
                for k in range(16):
                    s = _motor_step(
                        load_state(tile, k), tile[k + COMMAND * 16], tile[k + COMMAND * 16 + 16],
                        tile[k + COMMAND * 16 + 32], tile[k + COMMAND * 16 + 48], p, dt, False,
                    )  # fmt: skip
                    store_state(tile, k, _on_ground(s))

    @njit(cache=True, **OPTIONS)
    def step_motor(state, params, nominal, dt, substeps, first, last):
        """Rotor speed setpoints, parameters per world."""
        _ = digest
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            own = params[b * PARAM_SIZE * 16 : (b + 1) * PARAM_SIZE * 16]
            for step in range(substeps):
                time = np.float32(step) * dt
                for k in range(16):
                    p = load_params(own, k, 16)
                    s = _motor_step(
                        load_state(tile, k),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16], tile[k + COMMAND * 16]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 16], tile[k + COMMAND * 16 + 16]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 32], tile[k + COMMAND * 16 + 32]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 48], tile[k + COMMAND * 16 + 48]),
                        p, dt, True,
                    )  # fmt: skip
                    store_state(tile, k, _on_ground(s))

    @njit(cache=True, **OPTIONS)
    def step_ctbr(state, params, nominal, dt, substeps, first, last):
        """Collective thrust and body rates, parameters per world; the rate loop runs at every physics step."""
        _ = digest
        believed = (
            nominal[0], nominal[1], nominal[2], nominal[3], nominal[4], nominal[5], nominal[6], nominal[7], nominal[8],
        )  # fmt: skip
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            own = params[b * PARAM_SIZE * 16 : (b + 1) * PARAM_SIZE * 16]
            for step in range(substeps):
                time = np.float32(step) * dt
                for k in range(16):
                    p = load_params(own, k, 16)
                    s = load_state(tile, k)
                    u0, u1, u2, u3 = _rate_loop(
                        s,
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16], tile[k + COMMAND * 16]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 16], tile[k + COMMAND * 16 + 16]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 32], tile[k + COMMAND * 16 + 32]),
                        _blend(time, dt, p[DELAY], tile[k + BEFORE * 16 + 48], tile[k + COMMAND * 16 + 48]),
                        p, believed,
                    )  # fmt: skip
                    store_state(tile, k, _on_ground(_motor_step(s, u0, u1, u2, u3, p, dt, True)))

    @njit(cache=True, **OPTIONS)
    def read_state(state, worlds, position, quaternion, velocity, rates, height, speed, first, last):
        """Copy the state of the blocks into arrays with one row per world."""
        _ = digest
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            for k in range(min(16, worlds - b * 16)):
                w = b * 16 + k
                height[w] = tile[PZ * 16 + k]
                for j in range(3):
                    position[w, j] = tile[(PX + j) * 16 + k]
                    velocity[w, j] = tile[(VX + j) * 16 + k]
                    rates[w, j] = tile[(WX + j) * 16 + k]
                for j in range(4):
                    quaternion[w, j] = tile[(QW + j) * 16 + k]
                    speed[w, j] = tile[(N0 + j) * 16 + k]

    return take_command, step_motor_shared, step_motor, step_ctbr, read_state


take_command, step_motor_shared, step_motor, step_ctbr, read_state = _kernels(
    compiling.fingerprint(physics)
)
