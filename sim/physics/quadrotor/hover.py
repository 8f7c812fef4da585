"""The hover task of *Learning to Fly in Seconds* as scalar functions, for SIMD lanes and CUDA threads.

What :mod:`temporeal.sim.physics.quadrotor.fused` adds to the physics in a control step: reward, termination,
observation with sensor noise, the start of an episode. Written like :mod:`temporeal.sim.physics.quadrotor.dynamics`
(see :mod:`temporeal.sim.compiler.scalar_functions`). A world is a tuple of ``FIELDS`` numbers that begins with the
physical state; the task's figures are a tuple of ``TASK_SIZE``, in the order of
:class:`temporeal.sim.physics.quadrotor.fused.HoverTask`.
"""

from __future__ import annotations

import math

from temporeal.sim.compiler.threefry import coarse_normal_pair, normal_pair, threefry, turn, unit, word
from temporeal.sim.physics.quadrotor.dynamics import (  # fmt: skip
    FORCE_X,
    N0,
    PX,
    PY,
    PZ,
    QW,
    QX,
    QY,
    QZ,
    RATE_GAIN_X,
    STATE_SIZE,
    VX,
    VY,
    VZ,
    WX,
    WY,
    WZ,
    clamp,
    larger,
    motor_step,
    select,
)

# --- a world's values after its physical state
FORCE = STATE_SIZE  # [3] N, world, constant over the episode
TORQUE = FORCE + 3  # [3] N m, body
STEPS = TORQUE + 3  # control steps since the reset
EPISODE = STEPS + 1  # its number; exact up to 2^24
RETURN = EPISODE + 1  # sum of rewards since the reset
FIELDS = RETURN + 1

ROWS = 18  # of the observation without memory: position, rotation (row-major), velocity, body rates
PRIVILEGED = 28  # the same without noise, rotor speeds, scaled force and torque

# --- the task's figures
REWARD_CONSTANT, REWARD_SCALE, REWARD_POSITION, REWARD_ORIENTATION = range(4)
REWARD_VELOCITY, REWARD_RATE, REWARD_ACTION = range(4, 7)
HOVER_ACTION, FENCE, EPISODE_STEPS, CENTER, SCALE = range(7, 12)
NOISE_POSITION, NOISE_ROTATION, NOISE_VELOCITY, NOISE_RATE = range(12, 16)
FORCE_STD, TORQUE_STD, GUIDANCE, START_POSITION, START_VELOCITY, START_RATE, START_ROTOR = range(16, 23)
TASK_SIZE = 23

ZERO, HALF, ONE, TWO = 0.0, 0.5, 1.0, 2.0
MINUS_ONE = -1.0
FORCE_SCALE, TORQUE_SCALE = 10.0, 1000.0  # bring the disturbances near 1 for a critic
# angle of a rotation uniform on SO(3) below 90 degrees: theta - sin(theta) is uniform on [0, pi/2 - 1]. The root of
# theta - sin(theta) = t^3 / 6 as a series in t; its last term is 1e-4 at the largest t, what follows is below 2e-5
CUBE_RANGE = (6 * (math.pi / 2 - 1)) ** (1 / 3)
ROOT_3, ROOT_5, ROOT_7, ROOT_9 = 1 / 60, 1 / 1400, 1 / 25200, 43 / 17248000
PER_HALF_TURN = 1 / math.pi

CALLED = (
    "clamp", "coarse_normal_pair", "larger", "motor_step", "normal_pair", "select", "threefry", "turn", "unit",
    "word",
)  # fmt: skip
"""Functions of other modules that those below call."""
SCALAR_FUNCTIONS = (
    "clipped", "cost", "disturbed", "control_step", "true_rows", "hidden_rows", "noise_words", "joined", "noise",
    "noisy_rows", "episode_start",
)  # fmt: skip


def clipped(a):
    """The four actions ``a`` within [-1, 1]."""
    return (
        clamp(a[0], MINUS_ONE, ONE), clamp(a[1], MINUS_ONE, ONE), clamp(a[2], MINUS_ONE, ONE),
        clamp(a[3], MINUS_ONE, ONE),
    )  # fmt: skip


def cost(s, a, task):
    """What state ``s`` and actions ``a`` take from the reward, before its scale."""
    h = task[HOVER_ACTION]
    e0, e1, e2, e3 = a[0] - h, a[1] - h, a[2] - h, a[3] - h
    return (
        task[REWARD_POSITION] * (s[PX] * s[PX] + s[PY] * s[PY] + s[PZ] * s[PZ])
        + task[REWARD_ORIENTATION] * (ONE - s[QW] * s[QW])
        + task[REWARD_VELOCITY] * (s[VX] * s[VX] + s[VY] * s[VY] + s[VZ] * s[VZ])
        + task[REWARD_RATE] * (s[WX] * s[WX] + s[WY] * s[WY] + s[WZ] * s[WZ])
        + task[REWARD_ACTION] * (e0 * e0 + e1 * e1 + e2 * e2 + e3 * e3)
    )


def disturbed(p, w):
    """The parameter set ``p`` with the force and torque of world ``w``."""
    return p[:FORCE_X] + w[FORCE:STEPS] + p[RATE_GAIN_X:]


def control_step(w, a, p, task, dt):
    """World ``w`` after one control step with actions ``a``, its reward, whether it terminated, whether time is up."""
    reward = task[REWARD_CONSTANT] - task[REWARD_SCALE] * cost(w, a, task)
    center, scale = task[CENTER], task[SCALE]
    u0, u1, u2, u3 = center + scale * a[0], center + scale * a[1], center + scale * a[2], center + scale * a[3]
    s = motor_step(w, u0, u1, u2, u3, disturbed(p, w), dt, False)
    x, y, z = larger(s[PX], -s[PX]), larger(s[PY], -s[PY]), larger(s[PZ], -s[PZ])
    inside = (x <= task[FENCE]) & (y <= task[FENCE]) & (z <= task[FENCE])  # false for a state that is not a number
    reward = select(inside, reward, ZERO)
    steps = w[STEPS] + ONE
    over = steps >= task[EPISODE_STEPS]
    after = s + w[FORCE:STEPS] + (steps, w[EPISODE], w[RETURN] + reward)
    return after, reward, inside ^ True, inside & over


def true_rows(w):
    """The 18 true numbers of world ``w``."""
    qw, qx, qy, qz = w[QW], w[QX], w[QY], w[QZ]
    return (
        w[PX], w[PY], w[PZ],
        ONE - TWO * (qy * qy + qz * qz), TWO * (qx * qy - qw * qz), TWO * (qx * qz + qw * qy),
        TWO * (qx * qy + qw * qz), ONE - TWO * (qx * qx + qz * qz), TWO * (qy * qz - qw * qx),
        TWO * (qx * qz - qw * qy), TWO * (qy * qz + qw * qx), ONE - TWO * (qx * qx + qy * qy),
        w[VX], w[VY], w[VZ], w[WX], w[WY], w[WZ],
    )  # fmt: skip


def hidden_rows(w):
    """What only a critic sees of world ``w``: 4 rotor speeds, 3 forces, 3 torques, scaled."""
    return w[N0:FORCE] + (
        FORCE_SCALE * w[FORCE], FORCE_SCALE * w[FORCE + 1], FORCE_SCALE * w[FORCE + 2],
        TORQUE_SCALE * w[TORQUE], TORQUE_SCALE * w[TORQUE + 1], TORQUE_SCALE * w[TORQUE + 2],
    )  # fmt: skip


def noise_words(k0, k1, stream, world, episode, step):
    """The eight random words of an observation's noise."""
    return threefry(k0, k1, stream, 0, world, episode, step, 0) + threefry(k0, k1, stream, 0, world, episode, step, 1)


def joined(rest, x):
    """The bits ``rest`` with the lowest four of ``x``, and place for four more."""
    return word((rest | (x & 15)) << 4)


def noise(words):
    """18 standard normal numbers from eight words.

    Two of them take 28 bits: the ninth pair's are the lowest four of seven words.
    """
    a, b, c, d, e, f, g, h = words
    rest = joined(joined(joined(joined(joined(joined(word(a << 4), b), c), d), e), f), g)
    return (
        coarse_normal_pair(a) + coarse_normal_pair(b) + coarse_normal_pair(c) + coarse_normal_pair(d)
        + coarse_normal_pair(e) + coarse_normal_pair(f) + coarse_normal_pair(g) + coarse_normal_pair(h)
        + coarse_normal_pair(rest)
    )  # fmt: skip


def noisy_rows(t, n, task):
    """The 18 numbers ``t`` as sensors with noise ``n`` give them."""
    p, r, v, w = task[NOISE_POSITION], task[NOISE_ROTATION], task[NOISE_VELOCITY], task[NOISE_RATE]
    return (
        t[0] + p * n[0], t[1] + p * n[1], t[2] + p * n[2],
        t[3] + r * n[3], t[4] + r * n[4], t[5] + r * n[5], t[6] + r * n[6], t[7] + r * n[7], t[8] + r * n[8],
        t[9] + r * n[9], t[10] + r * n[10], t[11] + r * n[11],
        t[12] + v * n[12], t[13] + v * n[13], t[14] + v * n[14],
        t[15] + w * n[15], t[16] + w * n[16], t[17] + w * n[17],
    )  # fmt: skip


def episode_start(episode, number, k0, k1, stream, world, task):
    """A world at the start of ``episode`` (``number``: the same as a float), drawn for (world, episode)."""
    a0, a1, a2, a3 = threefry(k0, k1, stream, 0, world, episode, 0, 0)
    b0, b1, b2, b3 = threefry(k0, k1, stream, 0, world, episode, 0, 1)
    c0, c1, c2, c3 = threefry(k0, k1, stream, 0, world, episode, 0, 2)
    d0, d1, d2, _d3 = threefry(k0, k1, stream, 0, world, episode, 0, 3)
    e0, e1, e2, e3 = threefry(k0, k1, stream, 0, world, episode, 0, 4)
    f0, f1, _f2, _f3 = threefry(k0, k1, stream, 0, world, episode, 0, 5)
    free = select(unit(a0) < task[GUIDANCE], ZERO, ONE)
    position, velocity, rate = free * task[START_POSITION], free * task[START_VELOCITY], free * task[START_RATE]

    # the largest of three uniform numbers is distributed as the cube root of one
    t = CUBE_RANGE * larger(unit(b0), larger(unit(b1), unit(b2)))
    z = t * t
    theta = free * t * (ONE + z * (ROOT_3 + z * (ROOT_5 + z * (ROOT_7 + z * ROOT_9))))
    cosine, sine = turn(word(0), theta * PER_HALF_TURN)  # of theta / 2
    up = TWO * unit(b3) - ONE
    around_x, around_y = turn(c0, unit(word(c0 << 2)) - HALF)
    flat = sine * math.sqrt(larger(ONE - up * up, ZERO))

    force_x, force_y = normal_pair(e0, e1)
    force_z, torque_x = normal_pair(e2, e3)
    torque_y, torque_z = normal_pair(f0, f1)
    force, torque = task[FORCE_STD], task[TORQUE_STD]
    rotor = free * ZERO + task[START_ROTOR]
    return (
        position * (TWO * unit(a1) - ONE), position * (TWO * unit(a2) - ONE), position * (TWO * unit(a3) - ONE),
        cosine, flat * around_x, flat * around_y, sine * up,
        velocity * (TWO * unit(c1) - ONE), velocity * (TWO * unit(c2) - ONE), velocity * (TWO * unit(c3) - ONE),
        rate * (TWO * unit(d0) - ONE), rate * (TWO * unit(d1) - ONE), rate * (TWO * unit(d2) - ONE),
        rotor, rotor, rotor, rotor,
        force * force_x, force * force_y, force * force_z, torque * torque_x, torque * torque_y, torque * torque_z,
        free * ZERO, number, free * ZERO,
    )  # fmt: skip
