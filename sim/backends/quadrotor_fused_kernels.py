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
from sim.backends import lanes, quadrotor_kernels
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
TRUE = 0  # [28] position, rotation (row-major), velocity, body rates, rotor speeds, scaled force and torque
NOISY = 28  # [22] the first 18 with noise, rotor speeds
REWARD = 50
DONE = 51  # 0 goes on, 1 terminated, 2 truncated
ACTION = 52  # [4] of this step
SCRATCH = 56
ROWS = 18  # of the observation without memory
PRIVILEGED = 28

# --- figures of the task in the array that the kernels take
REWARD_CONSTANT, REWARD_SCALE, REWARD_POSITION, REWARD_ORIENTATION = range(4)
REWARD_VELOCITY, REWARD_RATE, REWARD_ACTION = range(4, 7)
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
def load_task(a):
    """The task's figures as scalars, so that no store can be suspected of changing them."""
    return (
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
        a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22],
    )  # fmt: skip


@njit(forceinline=True, **OPTIONS)
def disturbed(p, fx, fy, fz, tx, ty, tz):
    """The parameter set ``p`` with another force and torque."""
    return (
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16],
        p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], fx, fy, fz, tx, ty, tz, p[31], p[32], p[33], p[34],
    )  # fmt: skip


@njit(forceinline=True, **OPTIONS)
def true_rows(tile, k):
    """The 18 true numbers of lane ``k``."""
    qw, qx, qy, qz = tile[QW * 16 + k], tile[QX * 16 + k], tile[QY * 16 + k], tile[QZ * 16 + k]
    return (
        tile[PX * 16 + k], tile[PY * 16 + k], tile[PZ * 16 + k],
        ONE - TWO * (qy * qy + qz * qz), TWO * (qx * qy - qw * qz), TWO * (qx * qz + qw * qy),
        TWO * (qx * qy + qw * qz), ONE - TWO * (qx * qx + qz * qz), TWO * (qy * qz - qw * qx),
        TWO * (qx * qz - qw * qy), TWO * (qy * qz + qw * qx), ONE - TWO * (qx * qx + qy * qy),
        tile[VX * 16 + k], tile[VY * 16 + k], tile[VZ * 16 + k],
        tile[WX * 16 + k], tile[WY * 16 + k], tile[WZ * 16 + k],
    )  # fmt: skip


@njit(forceinline=True, **OPTIONS)
def observe_hidden(tile, scratch, k):
    """What a critic sees of lane ``k``, and the rotor speeds among the actor's rows."""
    t = true_rows(tile, k)
    scratch[k] = t[0]
    scratch[16 + k] = t[1]
    scratch[32 + k] = t[2]
    scratch[48 + k] = t[3]
    scratch[64 + k] = t[4]
    scratch[80 + k] = t[5]
    scratch[96 + k] = t[6]
    scratch[112 + k] = t[7]
    scratch[128 + k] = t[8]
    scratch[144 + k] = t[9]
    scratch[160 + k] = t[10]
    scratch[176 + k] = t[11]
    scratch[192 + k] = t[12]
    scratch[208 + k] = t[13]
    scratch[224 + k] = t[14]
    scratch[240 + k] = t[15]
    scratch[256 + k] = t[16]
    scratch[272 + k] = t[17]
    scratch[288 + k] = tile[N0 * 16 + k]
    scratch[736 + k] = tile[N0 * 16 + k]
    scratch[304 + k] = tile[(N0 + 1) * 16 + k]
    scratch[752 + k] = tile[(N0 + 1) * 16 + k]
    scratch[320 + k] = tile[(N0 + 2) * 16 + k]
    scratch[768 + k] = tile[(N0 + 2) * 16 + k]
    scratch[336 + k] = tile[(N0 + 3) * 16 + k]
    scratch[784 + k] = tile[(N0 + 3) * 16 + k]
    scratch[352 + k] = FORCE_SCALE * tile[FORCE * 16 + k]
    scratch[400 + k] = TORQUE_SCALE * tile[TORQUE * 16 + k]
    scratch[368 + k] = FORCE_SCALE * tile[(FORCE + 1) * 16 + k]
    scratch[416 + k] = TORQUE_SCALE * tile[(TORQUE + 1) * 16 + k]
    scratch[384 + k] = FORCE_SCALE * tile[(FORCE + 2) * 16 + k]
    scratch[432 + k] = TORQUE_SCALE * tile[(TORQUE + 2) * 16 + k]


@njit(forceinline=True, **OPTIONS)
def observe(tile, scratch, k, k0, k1, stream, world, episode, step, task):
    """The noisy observation of lane ``k``: two normal numbers from each of nine words."""
    t = true_rows(tile, k)
    a0, a1, a2, a3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(0))
    b0, b1, b2, b3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(1))
    c0, _c1, _c2, _c3 = _threefry(k0, k1, stream, U32(0), world, episode, step, U32(2))
    position, rotation, velocity, rate = (
        task[NOISE_POSITION], task[NOISE_ROTATION], task[NOISE_VELOCITY], task[NOISE_RATE]
    )  # fmt: skip
    x, y = _coarse_normal_pair(a0)
    scratch[448 + k] = t[0] + position * x
    scratch[464 + k] = t[1] + position * y
    x, y = _coarse_normal_pair(a1)
    scratch[480 + k] = t[2] + position * x
    scratch[496 + k] = t[3] + rotation * y
    x, y = _coarse_normal_pair(a2)
    scratch[512 + k] = t[4] + rotation * x
    scratch[528 + k] = t[5] + rotation * y
    x, y = _coarse_normal_pair(a3)
    scratch[544 + k] = t[6] + rotation * x
    scratch[560 + k] = t[7] + rotation * y
    x, y = _coarse_normal_pair(b0)
    scratch[576 + k] = t[8] + rotation * x
    scratch[592 + k] = t[9] + rotation * y
    x, y = _coarse_normal_pair(b1)
    scratch[608 + k] = t[10] + rotation * x
    scratch[624 + k] = t[11] + rotation * y
    x, y = _coarse_normal_pair(b2)
    scratch[640 + k] = t[12] + velocity * x
    scratch[656 + k] = t[13] + velocity * y
    x, y = _coarse_normal_pair(b3)
    scratch[672 + k] = t[14] + velocity * x
    scratch[688 + k] = t[15] + rate * y
    x, y = _coarse_normal_pair(c0)
    scratch[704 + k] = t[16] + rate * x
    scratch[720 + k] = t[17] + rate * y


@njit(forceinline=True, **OPTIONS)
def advance_lane(tile, scratch, k, p, task, dt):
    """Physics, reward and termination of lane ``k``."""
    a0 = min(max(scratch[ACTION * 16 + k], MINUS_ONE), ONE)
    a1 = min(max(scratch[ACTION * 16 + 16 + k], MINUS_ONE), ONE)
    a2 = min(max(scratch[ACTION * 16 + 32 + k], MINUS_ONE), ONE)
    a3 = min(max(scratch[ACTION * 16 + 48 + k], MINUS_ONE), ONE)
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


@njit(forceinline=True, **OPTIONS)
def rows_of_lanes(count):
    """``count`` rows of 16 floats from a cache line's start: else every move of a row would touch two lines."""
    space = np.empty(count * 16 + 15, np.float32)
    first = (64 - space.ctypes.data % 64) % 64 // 4
    return space[first : first + count * 16]


def _restart_kernel(digest: str) -> Any:
    """The kernel; ``digest`` puts the source of what it calls into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def restart(state, ended, count, k0, k1, noise, initial, figures, obs, critic):
        """A new episode in the worlds ``ended[:count]``; their columns of ``obs`` and ``critic`` are overwritten."""
        _ = digest
        task = load_task(figures)
        tile = rows_of_lanes(FIELDS)
        scratch = rows_of_lanes(SCRATCH)
        world = np.empty(16, np.uint32)
        episode = np.empty(16, np.uint32)
        hidden = len(critic) > 0 or len(obs) > 18
        for group in range(0, count, 16):
            for k in range(16):
                w = ended[min(group + k, count - 1)]
                e = state[(w // 16 * FIELDS + EPISODE) * 16 + w % 16] + ONE
                world[k] = w
                episode[k] = U32(e)
                tile[EPISODE * 16 + k] = e
            for k in range(16):
                start_lane(tile, k, k0, k1, initial, world[k], episode[k], task)
            if hidden:
                for k in range(16):
                    observe_hidden(tile, scratch, k)
            for k in range(16):
                observe(tile, scratch, k, k0, k1, noise, world[k], episode[k], U32(0), task)
            for k in range(min(16, count - group)):
                w = ended[group + k]
                base = w // 16 * FIELDS * 16 + w % 16
                for f in range(FIELDS):
                    state[base + f * 16] = tile[f * 16 + k]
                for f in range(len(obs)):
                    obs[f, w] = scratch[(NOISY + f) * 16 + k]
                for f in range(len(critic)):
                    critic[f, w] = scratch[f * 16 + k]

    return restart


restart = _restart_kernel(compiling.fingerprint(counter, lanes, physics, quadrotor_kernels))


def _step_kernel(digest: str) -> Any:
    """The kernel; ``digest`` puts the source of what it calls into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def hover_step(
        state, actions, params, figures, dt, k0, k1, noise, initial, worlds, obs, critic, final, final_critic,
        reward, terminated, truncated, length, total, ended, first, last,
    ):  # fmt: skip
        """One control step of the blocks ``first`` to ``last``; ``ended`` lists whose episode ended.

        ``final`` and ``final_critic``, [N, rows], get the last observation of those.

        Arguments as the fields of :class:`sim.backends.quadrotor_fused.FusedHover`; ``obs`` has 18 rows, or 22 with
        rotor speeds. Returns how many ended.
        """
        _ = digest
        p = load_params(params, 0, 1)
        task = load_task(figures)
        scratch = rows_of_lanes(SCRATCH)
        lane = np.arange(16).astype(np.uint32)
        width = obs.shape[1]
        hidden = len(critic) > 0 or len(obs) > 18
        mine = ended[first * 16 : last * 16]
        count = fresh = 0
        for b in range(first, last):
            tile = state[b * FIELDS * 16 : (b + 1) * FIELDS * 16]
            if 64 * b + 64 <= len(actions):
                lanes.columns(actions, 64 * b, scratch, ACTION * 16)
            else:
                for i in range(len(actions) - 64 * b):
                    scratch[(ACTION + i % 4) * 16 + i // 4] = actions[64 * b + i]
            for k in range(16):
                advance_lane(tile, scratch, k, p, task, dt)
            if hidden:
                for k in range(16):
                    observe_hidden(tile, scratch, k)
            for k in range(16):
                observe(
                    tile, scratch, k, k0, k1, noise, U32(b * 16) + lane[k], U32(tile[EPISODE * 16 + k]),
                    U32(tile[STEPS * 16 + k]), task,
                )  # fmt: skip
            c = b * 16
            for f in range(len(obs)):
                lanes.copy(scratch, (NOISY + f) * 16, obs, f * width + c)
            for f in range(len(critic)):
                lanes.copy(scratch, f * 16, critic, f * width + c)
            lanes.copy(scratch, REWARD * 16, reward, c)
            lanes.equal(scratch, DONE * 16, ONE, terminated, c)
            lanes.equal(scratch, DONE * 16, TWO, truncated, c)
            done = lanes.nonzero(scratch, DONE * 16)
            if done:
                while done:
                    k = lanes.lowest(done)
                    done &= done - 1
                    if c + k < worlds:
                        mine[count] = c + k
                        count += 1
                        length[c + k] = tile[STEPS * 16 + k]
                        total[c + k] = tile[RETURN * 16 + k]
                        for f in range(len(obs)):
                            final[c + k, f] = scratch[(NOISY + f) * 16 + k]
                        for f in range(len(critic)):
                            final_critic[c + k, f] = scratch[f * 16 + k]
                # while the blocks of these worlds are still in the cache
                if count - fresh >= 16:
                    restart(state, mine[fresh:], count - fresh, k0, k1, noise, initial, figures, obs, critic)
                    fresh = count
        restart(state, mine[fresh:], count - fresh, k0, k1, noise, initial, figures, obs, critic)
        return count

    return hover_step


hover_step = _step_kernel(compiling.fingerprint(counter, lanes, physics, quadrotor_kernels))
