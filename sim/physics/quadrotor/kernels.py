"""CPU kernels of the quadrotor: the physics function over blocks of 16 worlds, one world per SIMD lane.

The state array is laid out in blocks (:mod:`temporeal.sim.physics.quadrotor.layout`). Kernels load a row of a block as
vectors (:mod:`temporeal.sim.compiler.simd`), release the interpreter lock and take a range of blocks, so that threads
share the work (:mod:`temporeal.sim.compiler.thread_pool`). Every lane does the same arithmetic whatever its neighbours
hold, and padding fills the last block: a world's numbers depend neither on the number of worlds nor on the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import simd, thread_pool
from temporeal.sim.compiler.simd import BLOCK, WIDTH
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import layout
from temporeal.sim.physics.quadrotor.dynamics import DELAY, N0, NOMINAL_SIZE, PARAM_SIZE, PX, PZ, QW, STATE_SIZE, VX, WX
from temporeal.sim.physics.quadrotor.layout import COMMAND, FIELDS

STEP_SHARED, STEP_MOTOR, STEP_CTBR, READ = range(4)  # what a call of the work loop does
CHUNK_SIZE = thread_pool.SIZE
WHAT, SUBSTEPS, CONTROLS, COUNT = range(thread_pool.JOB, thread_pool.JOB + 4)  # the numbers it takes from the queue

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": set(simd.FASTMATH)}
INNER: dict[str, Any] = OPTIONS | {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

vectorized = compiling.instantiate(physics, njit(**INNER), np.float32, **simd.TARGET)
_motor_step, _on_ground = vectorized.motor_step, vectorized.on_ground
_rate_loop, _blend = vectorized.rate_loop, vectorized.blend


@njit(**INNER)
def blended(time, dt, delay, before, after):
    """The command that applies in the physics step that begins ``time`` after ``after`` was given."""
    return (
        _blend(time, dt, delay, before[0], after[0]), _blend(time, dt, delay, before[1], after[1]),
        _blend(time, dt, delay, before[2], after[2]), _blend(time, dt, delay, before[3], after[3]),
    )  # fmt: skip


@njit(**INNER)
def marked(s, u):
    """The state ``s``, whose position is not finite where the command ``u`` is not: it stays so until a reset."""
    zero = np.float32(0.0)
    mark = s[PX] + (zero * u[0] + zero * u[1] + zero * u[2] + zero * u[3])
    return (mark,) + s[1:]


@njit(**INNER)
def shared_step(s, u, p, dt):
    """A physics step without drag."""
    return _on_ground(_motor_step(s, u[0], u[1], u[2], u[3], p, dt, False))


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
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache.

    A kernel takes the new commands ``ctrl`` (flat [N * 4]) and advances the blocks ``first`` to ``last``.
    """

    @njit(cache=True, **OPTIONS)
    def step_motor_shared(state, params, nominal, ctrl, dt, substeps, first, last):
        """Rotor speed setpoints, one drag-free parameter set for all worlds, no command delay."""
        _ = digest
        simd.align_stack()
        p = simd.scalars(params, PARAM_SIZE)
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            s, u = simd.load(state, i, STATE_SIZE), simd.columns(ctrl, 4 * c)
            if substeps == 1:  # by far the most frequent; as the first round of a loop it takes a quarter longer
                simd.store(state, i, BLOCK, marked(shared_step(s, u, p, dt), u) + u)
            else:
                for _ in range(substeps):
                    s = shared_step(s, u, p, dt)
                simd.store(state, i, BLOCK, marked(s, u) + u)

    @njit(cache=True, **OPTIONS)
    def step_motor(state, params, nominal, ctrl, dt, substeps, first, last):
        """Rotor speed setpoints, parameters per world."""
        _ = digest
        simd.align_stack()
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            p = simd.load(params, c // BLOCK * PARAM_SIZE * BLOCK + c % BLOCK, PARAM_SIZE)
            s, before = simd.load(state, i, STATE_SIZE), simd.load(state, i + COMMAND * BLOCK, 4)
            after = simd.columns(ctrl, 4 * c)
            for step in range(substeps):
                u = blended(np.float32(step) * dt, dt, p[DELAY], before, after)
                s = _on_ground(_motor_step(s, u[0], u[1], u[2], u[3], p, dt, True))
            simd.store(state, i, BLOCK, marked(s, after) + after)

    @njit(cache=True, **OPTIONS)
    def step_ctbr(state, params, nominal, ctrl, dt, substeps, first, last):
        """Collective thrust and body rates, parameters per world; the rate loop runs at every physics step."""
        _ = digest
        simd.align_stack()
        believed = simd.scalars(nominal, NOMINAL_SIZE)
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            p = simd.load(params, c // BLOCK * PARAM_SIZE * BLOCK + c % BLOCK, PARAM_SIZE)
            s, before = simd.load(state, i, STATE_SIZE), simd.load(state, i + COMMAND * BLOCK, 4)
            after = simd.columns(ctrl, 4 * c)
            for step in range(substeps):
                u = blended(np.float32(step) * dt, dt, p[DELAY], before, after)
                u = _rate_loop(s, u[0], u[1], u[2], u[3], p, believed)
                s = _on_ground(_motor_step(s, u[0], u[1], u[2], u[3], p, dt, True))
            simd.store(state, i, BLOCK, marked(s, after) + after)

    @njit(cache=True, **OPTIONS)
    def read_state(state, position, quaternion, velocity, rates, height, speed, first, last):
        """Copy the state of the blocks into arrays with one row per world."""
        _ = digest
        for w in range(first * BLOCK, min(last * BLOCK, len(height))):
            i = w // BLOCK * FIELDS * BLOCK + w % BLOCK
            height[w] = state[i + PZ * BLOCK]
            for j in range(3):
                position[w, j] = state[i + (PX + j) * BLOCK]
                velocity[w, j] = state[i + (VX + j) * BLOCK]
                rates[w, j] = state[i + (WX + j) * BLOCK]
            for j in range(4):
                quaternion[w, j] = state[i + (QW + j) * BLOCK]
                speed[w, j] = state[i + (N0 + j) * BLOCK]

    return step_motor_shared, step_motor, step_ctbr, read_state


DIGEST = compiling.fingerprint(physics, layout, simd, thread_pool)
step_motor_shared, step_motor, step_ctbr, read_state = _kernels(DIGEST)


def _work_loop(digest: str) -> Any:
    @njit(cache=True, **OPTIONS)
    def work_loop(
        queue, worker, state, params, shared, nominal, dt, position, quaternion, velocity, rates, height, speed
    ):
        """Every kernel above, by the number ``WHAT``, for the threads of a
        :class:`temporeal.sim.compiler.thread_pool.ThreadPool`."""
        _ = digest
        blocks = len(state) // (FIELDS * BLOCK)
        call = thread_pool.next_call(queue, worker, 0)
        while call:
            what, substeps, size = queue[WHAT], queue[SUBSTEPS], queue[CHUNK_SIZE]
            ctrl = thread_pool.floats(queue[CONTROLS], queue[COUNT])
            chunk = thread_pool.claim(queue, call, worker)
            while chunk >= 0:
                first, last = chunk * size, min(chunk * size + size, blocks)
                if what == STEP_SHARED:
                    step_motor_shared(state, shared, nominal, ctrl, dt, substeps, first, last)
                elif what == STEP_MOTOR:
                    step_motor(state, params, nominal, ctrl, dt, substeps, first, last)
                elif what == STEP_CTBR:
                    step_ctbr(state, params, nominal, ctrl, dt, substeps, first, last)
                else:
                    read_state(state, position, quaternion, velocity, rates, height, speed, first, last)
                thread_pool.finish(queue)
                chunk = thread_pool.claim(queue, call, worker)
            call = thread_pool.next_call(queue, worker, call)

    return work_loop


work_loop = _work_loop(DIGEST)
