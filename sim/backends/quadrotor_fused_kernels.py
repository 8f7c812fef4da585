"""CPU kernels of the fused hover step: dynamics, observation with sensor noise, reward, termination and reset.

Two passes over each block of 16 worlds (:mod:`sim.backends.quadrotor_kernels` says why blocks): one advances the
physics and judges it, one draws the noise. What ended is collected and reset 16 worlds at a time, so that drawing
initial states fills vector lanes too. Tensors for the learner are feature-major, [rows, worlds]: a block's 16 values
of a feature are then one store.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from sim import compile as compiling
from sim import counter
from sim.backends import quadrotor_kernels
from sim.backends import quadrotor_physics as physics
from sim.backends.quadrotor_kernels import OPTIONS, load_params, load_state, store_state
from sim.backends.quadrotor_physics import N0, PX, PY, PZ, QW, QX, QY, QZ, STATE_SIZE, VX, VY, VZ, WX, WY, WZ
from sim.random import scalar_functions

# --- a world's values in a tile
FORCE = STATE_SIZE  # [3] N, world, constant over the episode
TORQUE = FORCE + 3  # [3] N m, body
STEPS = TORQUE + 3  # control steps since the reset
EPISODE = STEPS + 1  # its number; exact up to 2^24
RETURN = EPISODE + 1  # sum of rewards since the reset
FIELDS = RETURN + 1

# --- what the passes leave per block for the copies
TRUE = 0  # [18] position, rotation (row-major), velocity, body rates
NOISY = 18  # [18]
REWARD = 36
DONE = 37  # 0 goes on, 1 terminated, 2 truncated
SCRATCH = 38
ROWS = 18  # of the observation without memory
PRIVILEGED = 28

# --- figures of the task in the array that the kernels take
REWARD_CONSTANT, REWARD_SCALE, REWARD_POSITION, REWARD_ORIENTATION, REWARD_VELOCITY, REWARD_RATE, REWARD_ACTION = range(7)
HOVER_ACTION, FENCE, EPISODE_STEPS, CENTER, SCALE = range(7, 12)
NOISE_POSITION, NOISE_ROTATION, NOISE_VELOCITY, NOISE_RATE = range(12, 16)
FORCE_STD, TORQUE_STD, GUIDANCE, START_POSITION, START_VELOCITY, START_RATE, START_ROTOR = range(16, 23)
TASK_SIZE = 23

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
FORCE_SCALE, TORQUE_SCALE = np.float32(10), np.float32(1000)  # bring the disturbances near 1 for a critic
MINUS_ONE = np.float32(-1)
# angle of a rotation uniform on SO(3) below 90 degrees: theta - sin(theta) is uniform on [0, pi/2 - 1]. The root of
# theta - sin(theta) = t^3 / 6 as a series in t; its last term is 1e-4 at the largest t, what follows is below 2e-5
CUBE_RANGE = np.float32((6 * (math.pi / 2 - 1)) ** (1 / 3))
ROOT_3, ROOT_5, ROOT_7, ROOT_9 = (np.float32(x) for x in (1 / 60, 1 / 1400, 1 / 25200, 43 / 17248000))
PER_HALF_TURN = np.float32(1 / math.pi)

_physics = compiling.instantiate(physics, njit(forceinline=True, **OPTIONS), np.float32)
_motor_step = _physics.motor_step
_random = scalar_functions(fastmath=quadrotor_kernels.FASTMATH)
_threefry, _unit, _normal_pair, _coarse_normal_pair = (
    _random.threefry, _random.unit, _random.normal_pair, _random.coarse_normal_pair
)  # fmt: skip
_turn = _random.turn
U32 = np.uint32


@njit(forceinline=True, **OPTIONS)
def disturbed(p, fx, fy, fz, tx, ty, tz):
    """The parameter set ``p`` with another force and torque."""
    return (
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16],
        p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], fx, fy, fz, tx, ty, tz, p[31], p[32], p[33], p[34],
    )  # fmt: skip


@njit(forceinline=True, **OPTIONS)
def observe(tile, scratch, k):
    """The true observation of lane ``k`` into ``scratch``."""
    qw, qx, qy, qz = tile[QW * 16 + k], tile[QX * 16 + k], tile[QY * 16 + k], tile[QZ * 16 + k]
    scratch[k] = tile[PX * 16 + k]
    scratch[16 + k] = tile[PY * 16 + k]
    scratch[32 + k] = tile[PZ * 16 + k]
    scratch[48 + k] = ONE - TWO * (qy * qy + qz * qz)
    scratch[64 + k] = TWO * (qx * qy - qw * qz)
    scratch[80 + k] = TWO * (qx * qz + qw * qy)
    scratch[96 + k] = TWO * (qx * qy + qw * qz)
    scratch[112 + k] = ONE - TWO * (qx * qx + qz * qz)
    scratch[128 + k] = TWO * (qy * qz - qw * qx)
    scratch[144 + k] = TWO * (qx * qz - qw * qy)
    scratch[160 + k] = TWO * (qy * qz + qw * qx)
    scratch[176 + k] = ONE - TWO * (qx * qx + qy * qy)
    scratch[192 + k] = tile[VX * 16 + k]
    scratch[208 + k] = tile[VY * 16 + k]
    scratch[224 + k] = tile[VZ * 16 + k]
    scratch[240 + k] = tile[WX * 16 + k]
    scratch[256 + k] = tile[WY * 16 + k]
    scratch[272 + k] = tile[WZ * 16 + k]


@njit(forceinline=True, **OPTIONS)
def add_noise(scratch, k, k0, k1, stream, world, episode, step, task):
    """The noisy observation of lane ``k`` from the true one: two normal numbers from each of nine words."""
    a0, a1, a2, a3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(0))
    b0, b1, b2, b3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(1))
    c0, _c1, _c2, _c3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(2))
    position, rotation, velocity, rate = (
        task[NOISE_POSITION], task[NOISE_ROTATION], task[NOISE_VELOCITY], task[NOISE_RATE]
    )  # fmt: skip
    x, y = _coarse_normal_pair(a0)
    scratch[288 + k] = scratch[k] + position * x
    scratch[304 + k] = scratch[16 + k] + position * y
    x, y = _coarse_normal_pair(a1)
    scratch[320 + k] = scratch[32 + k] + position * x
    scratch[336 + k] = scratch[48 + k] + rotation * y
    x, y = _coarse_normal_pair(a2)
    scratch[352 + k] = scratch[64 + k] + rotation * x
    scratch[368 + k] = scratch[80 + k] + rotation * y
    x, y = _coarse_normal_pair(a3)
    scratch[384 + k] = scratch[96 + k] + rotation * x
    scratch[400 + k] = scratch[112 + k] + rotation * y
    x, y = _coarse_normal_pair(b0)
    scratch[416 + k] = scratch[128 + k] + rotation * x
    scratch[432 + k] = scratch[144 + k] + rotation * y
    x, y = _coarse_normal_pair(b1)
    scratch[448 + k] = scratch[160 + k] + rotation * x
    scratch[464 + k] = scratch[176 + k] + rotation * y
    x, y = _coarse_normal_pair(b2)
    scratch[480 + k] = scratch[192 + k] + velocity * x
    scratch[496 + k] = scratch[208 + k] + velocity * y
    x, y = _coarse_normal_pair(b3)
    scratch[512 + k] = scratch[224 + k] + velocity * x
    scratch[528 + k] = scratch[240 + k] + rate * y
    x, y = _coarse_normal_pair(c0)
    scratch[544 + k] = scratch[256 + k] + rate * x
    scratch[560 + k] = scratch[272 + k] + rate * y


@njit(forceinline=True, **OPTIONS)
def advance_lane(tile, rows, scratch, k, p, task, dt):
    """Physics, reward, termination and true observation of lane ``k``."""
    a0 = min(max(rows[4 * k], MINUS_ONE), ONE)
    a1 = min(max(rows[4 * k + 1], MINUS_ONE), ONE)
    a2 = min(max(rows[4 * k + 2], MINUS_ONE), ONE)
    a3 = min(max(rows[4 * k + 3], MINUS_ONE), ONE)
    s = load_state(tile, k)
    h = task[HOVER_ACTION]
    cost = (
        task[REWARD_POSITION] * (s[PX] * s[PX] + s[PY] * s[PY] + s[PZ] * s[PZ])
        + task[REWARD_ORIENTATION] * (ONE - s[QW] * s[QW])
        + task[REWARD_VELOCITY] * (s[VX] * s[VX] + s[VY] * s[VY] + s[VZ] * s[VZ])
        + task[REWARD_RATE] * (s[WX] * s[WX] + s[WY] * s[WY] + s[WZ] * s[WZ])
        + task[REWARD_ACTION] * ((a0 - h) * (a0 - h) + (a1 - h) * (a1 - h) + (a2 - h) * (a2 - h) + (a3 - h) * (a3 - h))
    )
    center, scale = task[CENTER], task[SCALE]
    p = disturbed(
        p, tile[FORCE * 16 + k], tile[FORCE * 16 + 16 + k], tile[FORCE * 16 + 32 + k],
        tile[TORQUE * 16 + k], tile[TORQUE * 16 + 16 + k], tile[TORQUE * 16 + 32 + k],
    )  # fmt: skip
    s = _motor_step(s, center + scale * a0, center + scale * a1, center + scale * a2, center + scale * a3, p, dt, False)
    store_state(tile, k, s)
    far = max(abs(s[PX]), max(abs(s[PY]), abs(s[PZ])))
    inside = far <= task[FENCE]  # false for a state that is not a number
    steps = tile[STEPS * 16 + k] + ONE
    reward = task[REWARD_CONSTANT] - task[REWARD_SCALE] * cost
    reward = reward if inside else ZERO
    over = TWO if steps >= task[EPISODE_STEPS] else ZERO
    tile[STEPS * 16 + k] = steps
    tile[RETURN * 16 + k] = tile[RETURN * 16 + k] + reward
    scratch[REWARD * 16 + k] = reward
    scratch[DONE * 16 + k] = over if inside else ONE


@njit(forceinline=True, **OPTIONS)
def start_lane(tile, k, k0, k1, stream, world, episode, task):
    """A new episode in lane ``k``: initial state and disturbances drawn for (world, episode)."""
    a0, a1, a2, a3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(0))
    b0, b1, b2, b3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(1))
    c0, c1, c2, c3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(2))
    d0, d1, d2, _d3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(3))
    e0, e1, e2, e3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(4))
    f0, f1, _f2, _f3 = _threefry(k0, k1, stream, U32(0), world, episode, U32(0), U32(5))
    free = ZERO if _unit(a0) < task[GUIDANCE] else ONE
    position, velocity, rate = free * task[START_POSITION], free * task[START_VELOCITY], free * task[START_RATE]
    tile[PX * 16 + k] = position * (TWO * _unit(a1) - ONE)
    tile[PY * 16 + k] = position * (TWO * _unit(a2) - ONE)
    tile[PZ * 16 + k] = position * (TWO * _unit(a3) - ONE)

    # the largest of three uniform numbers is distributed as the cube root of one
    t = CUBE_RANGE * max(_unit(b0), max(_unit(b1), _unit(b2)))
    z = t * t
    theta = free * t * (ONE + z * (ROOT_3 + z * (ROOT_5 + z * (ROOT_7 + z * ROOT_9))))
    cosine, sine = _turn(U32(0), theta * PER_HALF_TURN)  # of theta / 2
    up = TWO * _unit(b3) - ONE
    around_x, around_y = _turn(c0, _unit(U32(c0 << 2)) - HALF)
    flat = sine * math.sqrt(max(ONE - up * up, ZERO))
    tile[QW * 16 + k] = cosine
    tile[QX * 16 + k] = flat * around_x
    tile[QY * 16 + k] = flat * around_y
    tile[QZ * 16 + k] = sine * up

    tile[VX * 16 + k] = velocity * (TWO * _unit(c1) - ONE)
    tile[VY * 16 + k] = velocity * (TWO * _unit(c2) - ONE)
    tile[VZ * 16 + k] = velocity * (TWO * _unit(c3) - ONE)
    tile[WX * 16 + k] = rate * (TWO * _unit(d0) - ONE)
    tile[WY * 16 + k] = rate * (TWO * _unit(d1) - ONE)
    tile[WZ * 16 + k] = rate * (TWO * _unit(d2) - ONE)
    tile[N0 * 16 + k] = task[START_ROTOR]
    tile[N0 * 16 + 16 + k] = task[START_ROTOR]
    tile[N0 * 16 + 32 + k] = task[START_ROTOR]
    tile[N0 * 16 + 48 + k] = task[START_ROTOR]
    x, y = _normal_pair(e0, e1)
    tile[FORCE * 16 + k] = task[FORCE_STD] * x
    tile[FORCE * 16 + 16 + k] = task[FORCE_STD] * y
    x, y = _normal_pair(e2, e3)
    tile[FORCE * 16 + 32 + k] = task[FORCE_STD] * x
    tile[TORQUE * 16 + k] = task[TORQUE_STD] * y
    x, y = _normal_pair(f0, f1)
    tile[TORQUE * 16 + 16 + k] = task[TORQUE_STD] * x
    tile[TORQUE * 16 + 32 + k] = task[TORQUE_STD] * y
    tile[STEPS * 16 + k] = ZERO
    tile[RETURN * 16 + k] = ZERO


def _kernels(digest: str) -> tuple[Any, Any]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def restart(state, ended, count, k0, k1, noise, initial, task, obs, critic, rotor, privileged):
        """A new episode in the worlds ``ended[:count]``; their columns of ``obs`` and ``critic`` are overwritten."""
        _ = digest
        tile = np.empty(FIELDS * 16, np.float32)
        scratch = np.empty(SCRATCH * 16, np.float32)
        world = np.empty(16, np.uint32)
        episode = np.empty(16, np.uint32)
        for group in range(0, count, 16):
            for k in range(16):
                w = ended[min(group + k, count - 1)]
                i = (w // 16 * FIELDS + EPISODE) * 16 + w % 16
                world[k] = w
                episode[k] = U32(state[i]) + U32(1)
                tile[EPISODE * 16 + k] = state[i] + ONE
            for k in range(16):
                start_lane(tile, k, k0, k1, initial, world[k], episode[k], task)
            for k in range(16):
                observe(tile, scratch, k)
            for k in range(16):
                add_noise(scratch, k, k0, k1, noise, world[k], episode[k], U32(0), task)
            for k in range(min(16, count - group)):
                w = ended[group + k]
                base = w // 16 * FIELDS * 16 + w % 16
                for f in range(FIELDS):
                    state[base + f * 16] = tile[f * 16 + k]
                for f in range(18):
                    obs[f, w] = scratch[(NOISY + f) * 16 + k]
                for f in range(4 * rotor):
                    obs[18 + f, w] = tile[(N0 + f) * 16 + k]
                for f in range(18 + 4 * rotor, obs.shape[0]):
                    obs[f, w] = (task[START_ROTOR] - task[CENTER]) / task[SCALE]
                if privileged:
                    for f in range(18):
                        critic[f, w] = scratch[f * 16 + k]
                    for f in range(4):
                        critic[18 + f, w] = tile[(N0 + f) * 16 + k]
                    for f in range(3):
                        critic[22 + f, w] = FORCE_SCALE * tile[(FORCE + f) * 16 + k]
                        critic[25 + f, w] = TORQUE_SCALE * tile[(TORQUE + f) * 16 + k]

    @njit(cache=True, **OPTIONS)
    def hover_step(
        state, actions, params, task, dt, k0, k1, noise, initial, worlds, rotor, privileged,
        old, obs, final, critic, final_critic, reward, terminated, truncated, length, total, first, last,
    ):  # fmt: skip
        """One control step of the blocks ``first`` to ``last``: see :class:`sim.backends.quadrotor_fused.FusedHover`."""
        p = load_params(params, 0, 1)
        scratch = np.empty(SCRATCH * 16, np.float32)
        lanes = np.empty(16, np.uint32)
        for k in range(16):
            lanes[k] = k
        ended = np.empty((last - first) * 16, np.int64)
        count = 0
        memory = 18 + 4 * rotor
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            rows = actions[b * 64 : (b + 1) * 64]
            if len(rows) < 64:
                padded = np.zeros(64, np.float32)
                padded[: len(rows)] = rows
                rows = padded
            for k in range(16):
                advance_lane(tile, rows, scratch, k, p, task, dt)
            for k in range(16):
                observe(tile, scratch, k)
            for k in range(16):
                add_noise(
                    scratch, k, k0, k1, noise, U32(b * 16) + lanes[k], U32(tile[EPISODE * 16 + k]),
                    U32(tile[STEPS * 16 + k]), task,
                )  # fmt: skip
            c = b * 16
            for f in range(18):
                now, then = obs[f, c : c + 16], final[f, c : c + 16]
                for k in range(16):
                    now[k] = scratch[(NOISY + f) * 16 + k]
                    then[k] = scratch[(NOISY + f) * 16 + k]
            for f in range(4 * rotor):
                now, then = obs[18 + f, c : c + 16], final[18 + f, c : c + 16]
                for k in range(16):
                    now[k] = tile[(N0 + f) * 16 + k]
                    then[k] = tile[(N0 + f) * 16 + k]
            if obs.shape[0] > memory:
                for f in range(4):
                    now, then = obs[memory + f, c : c + 16], final[memory + f, c : c + 16]
                    for k in range(16):
                        now[k] = min(max(rows[4 * k + f], MINUS_ONE), ONE)
                        then[k] = now[k]
                for f in range(memory + 4, obs.shape[0]):
                    now, then, past = obs[f, c : c + 16], final[f, c : c + 16], old[f - 4, c : c + 16]
                    for k in range(16):
                        now[k] = past[k]
                        then[k] = past[k]
            if privileged:
                for f in range(18):
                    now, then = critic[f, c : c + 16], final_critic[f, c : c + 16]
                    for k in range(16):
                        now[k] = scratch[f * 16 + k]
                        then[k] = scratch[f * 16 + k]
                for f in range(10):
                    now, then = critic[18 + f, c : c + 16], final_critic[18 + f, c : c + 16]
                    size = ONE if f < 4 else (FORCE_SCALE if f < 7 else TORQUE_SCALE)
                    for k in range(16):
                        now[k] = size * tile[(N0 + f) * 16 + k]
                        then[k] = size * tile[(N0 + f) * 16 + k]
            finished = ZERO
            gains = reward[c : c + 16]
            for k in range(16):
                gains[k] = scratch[REWARD * 16 + k]
                finished += scratch[DONE * 16 + k]
            out, late = terminated[c : c + 16], truncated[c : c + 16]
            for k in range(16):
                out[k] = scratch[DONE * 16 + k] == ONE
                late[k] = scratch[DONE * 16 + k] == TWO
            if finished > ZERO:
                for k in range(16):
                    if scratch[DONE * 16 + k] > ZERO and c + k < worlds:
                        ended[count] = c + k
                        count += 1
                        length[c + k] = tile[STEPS * 16 + k]
                        total[c + k] = tile[RETURN * 16 + k]
        restart(state, ended, count, k0, k1, noise, initial, task, obs, critic, rotor, privileged)

    return hover_step, restart


hover_step, restart = _kernels(compiling.fingerprint(counter, physics, quadrotor_kernels))
