"""CPU kernels of robots in the plane: the exact motion under a constant command, one row per world.

Rows are those of the signals, ``[N, 3]``, ``[N, 4]`` and ``[N, 3]``, so that nothing is copied to read them. Every
world goes through the same arithmetic in float32, whatever its neighbours hold and wherever a range of worlds ends, so
that its numbers depend neither on how many there are nor on the threads (:mod:`temporeal.sim.compiler.thread_pool`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import thread_pool

BLOCK = 16  # worlds of one item of a call: a world alone would be less work than fetching it
POINT, CART = range(2)  # what moves: by a velocity in the world's frame, or along its heading
WHAT, CONTROLS, COUNT, DURATION = range(thread_pool.JOB, thread_pool.JOB + 4)  # what the work loop takes from the queue
NANOSECONDS = 1e-9  # the queue holds whole numbers

FAR = np.float32(1e6)  # m: farther from the origin float32 has less than 6 cm left, and a world counts as lost
ZERO, ONE, TWO, HALF = (np.float32(x) for x in (0.0, 1.0, 2.0, 0.5))
SLIGHT = np.float32(1e-3)  # of a quaternion that is a turn about z: x and y against the norm; and the least norm
FITS, NO_WORLD, OFF_PLACE, OFF_TURN, OFF_SPEED = range(5)  # what `put` finds
# Taylor series in x^2 of sin(x) / x and cos(x): within 4e-8 for |x| <= 1.5, which is half of planar.TURNED
SINC = tuple(np.float32((-1) ** k / math.factorial(2 * k + 1)) for k in range(6))
COS = tuple(np.float32((-1) ** k / math.factorial(2 * k)) for k in range(7))

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
INNER: dict[str, Any] = OPTIONS | {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**INNER)
def limited(x, low, high):
    """``x`` limited to [low, high]; NaN where it is not finite."""
    return (low if x < low else high if x > high else x) + ZERO * x


@njit(**INNER)
def placed(x):
    """The coordinate ``x``; NaN where it is too far away, which stays so until a reset."""
    return x if abs(x) <= FAR else np.float32(np.nan)


@njit(**INNER)
def sinc_cos(x):
    """sin(x) / x and cos(x)."""
    y = x * x
    s = SINC[0] + y * (SINC[1] + y * (SINC[2] + y * (SINC[3] + y * (SINC[4] + y * SINC[5]))))
    c = COS[0] + y * (COS[1] + y * (COS[2] + y * (COS[3] + y * (COS[4] + y * (COS[5] + y * COS[6])))))
    return s, c


def _kernels(digest: str) -> tuple[Any, ...]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def step_point(pos, quat, vel, gain, turn, ctrl, bounds, time, first, last):
        """Straight on with the commanded velocity for ``time`` s."""
        _ = digest
        for i in range(first, last):
            x = gain[i] * limited(ctrl[2 * i], bounds[0], bounds[2])
            y = gain[i] * limited(ctrl[2 * i + 1], bounds[1], bounds[3])
            lost = ZERO * (x + y)
            pos[i, 0] = placed(pos[i, 0] + time * x + lost)
            pos[i, 1] = placed(pos[i, 1] + time * y + lost)
            vel[i, 0] = x
            vel[i, 1] = y

    @njit(cache=True, **OPTIONS)
    def step_cart(pos, quat, vel, gain, turn, ctrl, bounds, time, first, last):
        """An arc at the commanded speed and yaw rate for ``time`` s: the chord has the mean heading."""
        _ = digest
        for i in range(first, last):
            v = gain[i] * limited(ctrl[2 * i], bounds[0], bounds[2])
            half = HALF * time * turn[i] * limited(ctrl[2 * i + 1], bounds[1], bounds[3])
            w, z = quat[i, 0], quat[i, 3]
            s, c = sinc_cos(half)
            chord, s = time * v * s, half * s
            ahead, aside = w * w - z * z, TWO * w * z
            lost = ZERO * (v + half)
            pos[i, 0] = placed(pos[i, 0] + chord * (ahead * c - aside * s) + lost)
            pos[i, 1] = placed(pos[i, 1] + chord * (aside * c + ahead * s) + lost)
            w, z = w * c - z * s, z * c + w * s
            unit = ONE / math.sqrt(w * w + z * z)
            w, z = unit * w, unit * z
            quat[i, 0] = w
            quat[i, 3] = z
            vel[i, 0] = v * (w * w - z * z)
            vel[i, 1] = v * (TWO * w * z)

    @njit(cache=True, **OPTIONS)
    def put(ids, taken, pos, quat, vel, new_pos, new_quat, new_vel, turns):
        """Set the worlds ``ids`` [K] to the new rows [K, ...], unless one does not fit: what is wrong, and with which
        number of them. ``taken`` bool [N]: none, here and afterwards. ``turns``: whether there are quaternions."""
        _ = digest
        flaw, worst, count = FITS, 0, 0
        for k in range(len(ids)):
            world = ids[k]
            if world < 0 or world >= len(pos) or taken[world]:
                flaw, worst = NO_WORLD, k
                break
            taken[world] = True
            count += 1
        for k in range(count):
            taken[ids[k]] = False
        for k in range(count if flaw == FITS else 0):
            lost = ZERO * (new_pos[k, 0] + new_pos[k, 1] + new_pos[k, 2])
            if not lost == ZERO or new_pos[k, 2] != ZERO:
                flaw, worst = OFF_PLACE, k
            lost = ZERO * (new_vel[k, 0] + new_vel[k, 1] + new_vel[k, 2])
            if not lost == ZERO or new_vel[k, 2] != ZERO:
                flaw, worst = OFF_SPEED, k
            if turns:
                w, x, y, z = new_quat[k, 0], new_quat[k, 1], new_quat[k, 2], new_quat[k, 3]
                norm = math.sqrt(w * w + x * x + y * y + z * z)
                if not (norm > SLIGHT and norm <= FAR and abs(x) <= SLIGHT * norm and abs(y) <= SLIGHT * norm):
                    flaw, worst = OFF_TURN, k
        for k in range(count if flaw == FITS else 0):
            world = ids[k]
            for j in range(3):
                pos[world, j], vel[world, j] = new_pos[k, j], new_vel[k, j]
            if turns:
                w, z = new_quat[k, 0], new_quat[k, 3]
                norm = math.sqrt(w * w + z * z)
                quat[world, 0], quat[world, 1], quat[world, 2], quat[world, 3] = w / norm, ZERO, ZERO, z / norm
        return flaw, worst

    return step_point, step_cart, put


DIGEST = compiling.fingerprint(thread_pool)
step_point, step_cart, put = _kernels(DIGEST)


def _work_loop(digest: str) -> Any:
    @njit(cache=True, **OPTIONS)
    def work_loop(queue, worker, pos, quat, vel, gain, turn, bounds):
        """Both kernels, by the number ``WHAT``, for the threads of a
        :class:`temporeal.sim.compiler.thread_pool.ThreadPool`."""
        _ = digest
        call = thread_pool.next_call(queue, worker, 0)
        while call:
            what, size, worlds = queue[WHAT], BLOCK * queue[thread_pool.SIZE], len(pos)
            time = np.float32(queue[DURATION] * NANOSECONDS)
            ctrl = thread_pool.floats(queue[CONTROLS], queue[COUNT])
            chunk = thread_pool.claim(queue, call, worker)
            while chunk >= 0:
                first, last = chunk * size, min(chunk * size + size, worlds)
                if what == POINT:
                    step_point(pos, quat, vel, gain, turn, ctrl, bounds, time, first, last)
                else:
                    step_cart(pos, quat, vel, gain, turn, ctrl, bounds, time, first, last)
                thread_pool.finish(queue)
                chunk = thread_pool.claim(queue, call, worker)
            call = thread_pool.next_call(queue, worker, call)

    return work_loop


work_loop = _work_loop(DIGEST)
