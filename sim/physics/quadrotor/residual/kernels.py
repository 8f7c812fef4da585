"""CPU kernels of the quadrotor with residual dynamics, beside those without (:mod:`..kernels`), which stay as they are.

Before each physics step the ensemble (:mod:`.scalar`) is evaluated for a vector of worlds, and acts during the step.
All members are evaluated and added by each world's shares of them (one is 1, or all are 1 / M): gathering the weights
of another member for each lane would take longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import simd, thread_pool
from temporeal.sim.compiler.simd import BLOCK, WIDTH
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import kernels, layout
from temporeal.sim.physics.quadrotor.dynamics import DELAY, NOMINAL_SIZE, PARAM_SIZE, STATE_SIZE
from temporeal.sim.physics.quadrotor.kernels import CHUNK_SIZE, CONTROLS, COUNT, INNER, OPTIONS, SUBSTEPS, WHAT
from temporeal.sim.physics.quadrotor.layout import COMMAND, FIELDS
from temporeal.sim.physics.quadrotor.residual import scalar

_motor_step, _on_ground, _rate_loop = (
    kernels.vectorized.motor_step, kernels.vectorized.on_ground, kernels.vectorized.rate_loop)
_blended, _marked = kernels.blended, kernels.marked


@njit(**INNER)
def get(scratch, i):
    """The vector ``i`` of a scratch array."""
    return simd.load(scratch, i * BLOCK, 1)[0]


@njit(**INNER)
def put(scratch, i, value):
    """Write the vector ``i`` of a scratch array."""
    simd.store(scratch, i * BLOCK, BLOCK, (value,))


_pushed = compiling.instantiate(scalar, njit(**INNER), np.float32, get=get, put=put, spread=simd.spread,
                                larger=simd.larger, smaller=simd.smaller).pushed


def _kernels(digest: str) -> tuple[Any, Any]:
    @njit(cache=True, **OPTIONS)
    def step_motor(state, params, ctrl, dt, substeps, first, last, net, hidden, members, shares):
        """Rotor speed setpoints, as the kernel of the same name without a residual."""
        _ = digest
        simd.align_stack()
        scratch = np.empty((scalar.INPUTS + 2 * hidden + members + 2 * scalar.OUTPUTS) * BLOCK, np.float32)
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            for m in range(members):
                at = (c // BLOCK * members + m) * BLOCK + c % BLOCK
                put(scratch, scalar.INPUTS + 2 * hidden + m, simd.load(shares, at, 1)[0])
            p = simd.load(params, c // BLOCK * PARAM_SIZE * BLOCK + c % BLOCK, PARAM_SIZE)
            s, before = simd.load(state, i, STATE_SIZE), simd.load(state, i + COMMAND * BLOCK, 4)
            after = simd.columns(ctrl, 4 * c)
            for step in range(substeps):
                u = _blended(np.float32(step) * dt, dt, p[DELAY], before, after)
                q = _pushed(s, p, net, hidden, members, scratch)
                s = _on_ground(_motor_step(s, u[0], u[1], u[2], u[3], q, dt, True))
            simd.store(state, i, BLOCK, _marked(s, after) + after)

    @njit(cache=True, **OPTIONS)
    def step_ctbr(state, params, nominal, ctrl, dt, substeps, first, last, net, hidden, members, shares):
        """Collective thrust and body rates, as the kernel of the same name without a residual."""
        _ = digest
        simd.align_stack()
        believed = simd.scalars(nominal, NOMINAL_SIZE)
        scratch = np.empty((scalar.INPUTS + 2 * hidden + members + 2 * scalar.OUTPUTS) * BLOCK, np.float32)
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            for m in range(members):
                at = (c // BLOCK * members + m) * BLOCK + c % BLOCK
                put(scratch, scalar.INPUTS + 2 * hidden + m, simd.load(shares, at, 1)[0])
            p = simd.load(params, c // BLOCK * PARAM_SIZE * BLOCK + c % BLOCK, PARAM_SIZE)
            s, before = simd.load(state, i, STATE_SIZE), simd.load(state, i + COMMAND * BLOCK, 4)
            after = simd.columns(ctrl, 4 * c)
            for step in range(substeps):
                u = _blended(np.float32(step) * dt, dt, p[DELAY], before, after)
                u = _rate_loop(s, u[0], u[1], u[2], u[3], p, believed)
                q = _pushed(s, p, net, hidden, members, scratch)
                s = _on_ground(_motor_step(s, u[0], u[1], u[2], u[3], q, dt, True))
            simd.store(state, i, BLOCK, _marked(s, after) + after)

    return step_motor, step_ctbr


DIGEST = compiling.fingerprint(physics, layout, simd, thread_pool, kernels, scalar)
step_motor, step_ctbr = _kernels(DIGEST)


def _work_loop(digest: str) -> Any:
    @njit(cache=True, **OPTIONS)
    def work_loop(
        queue, worker, state, params, nominal, dt, net, hidden, members, shares, position, quaternion, velocity, rates,
        height, speed
    ):
        """The kernels above and ``read_state``, by the number ``WHAT``, for the threads of a
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
                if what == kernels.STEP_MOTOR:
                    step_motor(state, params, ctrl, dt, substeps, first, last, net, hidden, members, shares)
                elif what == kernels.STEP_CTBR:
                    step_ctbr(state, params, nominal, ctrl, dt, substeps, first, last, net, hidden, members, shares)
                else:
                    kernels.read_state(state, position, quaternion, velocity, rates, height, speed, first, last)
                thread_pool.finish(queue)
                chunk = thread_pool.claim(queue, call, worker)
            call = thread_pool.next_call(queue, worker, call)

    return work_loop


work_loop = _work_loop(DIGEST)
