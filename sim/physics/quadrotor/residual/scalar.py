"""Residual dynamics as scalar functions: accelerations that the physics lacks, for float64 and for SIMD lanes.

An ensemble of small networks (:mod:`.ensemble` is the reference in numpy, and says what the numbers are) gives body
accelerations [m/s^2] and angular accelerations [rad/s^2] of what a robot does beyond its physics. They act as force and
torque during one physics step. Plain arithmetic, as in :mod:`temporeal.sim.physics.quadrotor.dynamics`; what goes on
between the layers lies in a scratch array, through ``get`` and ``put``, which a target replaces.

``net`` is one flat array: mean [10], whitening [10, 10] (lower triangular), the squared distance at which fading
begins and 1 / (end - begin) of it, bound [6]; then of each member W1 [H, 10], b1 [H], W2 [H, H], b2 [H], W3 [6, H],
b3 [6]. H is even.
"""

from __future__ import annotations

import math

from temporeal.sim.physics.quadrotor.dynamics import (
    FORCE_X,
    FORCE_Y,
    FORCE_Z,
    INV_MASS,
    JX,
    JY,
    JZ,
    N0,
    N1,
    N2,
    N3,
    QW,
    QX,
    QY,
    QZ,
    RATE_GAIN_X,
    TORQUE_X,
    TORQUE_Y,
    TORQUE_Z,
    VX,
    VY,
    VZ,
    WIND_X,
    WIND_Y,
    WIND_Z,
    WX,
    WY,
    WZ,
)

INPUTS, OUTPUTS = 10, 6
WHITEN = INPUTS
FADE = WHITEN + INPUTS * INPUTS
BOUND = FADE + 2
MEMBERS = BOUND + OUTPUTS
"""Where the parts of ``net`` begin."""

ZERO = 0.0
ONE = 1.0
TWO = 2.0

SCALAR_FUNCTIONS = ("get", "put", "spread", "larger", "smaller", "squash", "rotation", "inputs", "layer", "distance",
                    "accelerations", "acting", "pushed")


def get(scratch, i):
    """The number ``i`` of the scratch array."""
    return scratch[i]


def put(scratch, i, value):
    """Write the number ``i`` of the scratch array."""
    scratch[i] = value


def spread(number):
    """``number`` as what the target computes with."""
    return number


def larger(a, b):
    """The larger of two numbers."""
    return a if a > b else b


def smaller(a, b):
    """The smaller of two numbers."""
    return a if a < b else b


def squash(x):
    """``x`` within (-1, 1): x / sqrt(1 + x^2)."""
    return x / math.sqrt(ONE + x * x)


def rotation(s):
    """The rotation matrix of the state ``s``, body to world, by rows."""
    w, x, y, z = s[QW], s[QX], s[QY], s[QZ]
    return (
        ONE - TWO * (y * y + z * z), TWO * (x * y - w * z), TWO * (x * z + w * y),
        TWO * (x * y + w * z), ONE - TWO * (x * x + z * z), TWO * (y * z - w * x),
        TWO * (x * z - w * y), TWO * (y * z + w * x), ONE - TWO * (x * x + y * y),
    )  # fmt: skip


def inputs(s, p, r, scratch):
    """Write velocity through the air (body axes), body rates and rotor speeds of the state ``s`` to scratch."""
    ax, ay, az = s[VX] - p[WIND_X], s[VY] - p[WIND_Y], s[VZ] - p[WIND_Z]
    put(scratch, 0, r[0] * ax + r[3] * ay + r[6] * az)
    put(scratch, 1, r[1] * ax + r[4] * ay + r[7] * az)
    put(scratch, 2, r[2] * ax + r[5] * ay + r[8] * az)
    put(scratch, 3, s[WX])
    put(scratch, 4, s[WY])
    put(scratch, 5, s[WZ])
    put(scratch, 6, s[N0])
    put(scratch, 7, s[N1])
    put(scratch, 8, s[N2])
    put(scratch, 9, s[N3])


def layer(scratch, at, size, to, count, net, first):
    """Write ``count`` squashed sums of the ``size`` numbers at ``at`` from ``to`` on; weights begin at ``net[first]``.

    Two at a time, which do not wait for each other; ``count`` is even. Returns where the weights end.
    """
    bias = first + count * size
    for k in range(0, count, 2):
        a, b = spread(net[bias + k]), spread(net[bias + k + 1])
        row = first + k * size
        for j in range(size):
            x = get(scratch, at + j)
            a = a + net[row + j] * x
            b = b + net[row + size + j] * x
        put(scratch, to + k, squash(a))
        put(scratch, to + k + 1, squash(b))
    return bias + count


def distance(scratch, net):
    """Whiten the inputs in place; their squared length, which tells how far from its data the ensemble is."""
    total = spread(ZERO)
    for k in range(INPUTS):
        put(scratch, k, get(scratch, k) - net[k])
    for k in range(INPUTS - 1, -1, -1):  # a row needs its own and those before it, which are written later
        value = spread(ZERO)
        for j in range(k + 1):
            value = value + net[WHITEN + k * INPUTS + j] * get(scratch, j)
        put(scratch, k, value)
        total = total + value * value
    return total


def accelerations(net, hidden, members, scratch):
    """Write the six accelerations of the inputs in scratch behind everything else there; returns where.

    ``scratch``: inputs [10], two layers [H] each, shares of the members [M], what a member says [6], the sum [6].
    """
    one, two = INPUTS, INPUTS + hidden
    share = two + hidden
    said = share + members
    total = said + OUTPUTS
    far = distance(scratch, net)
    for k in range(OUTPUTS):
        put(scratch, total + k, spread(ZERO))
    at = MEMBERS
    for m in range(members):
        at = layer(scratch, 0, INPUTS, one, hidden, net, at)
        at = layer(scratch, one, hidden, two, hidden, net, at)
        at = layer(scratch, two, hidden, said, OUTPUTS, net, at)
        for k in range(OUTPUTS):
            put(scratch, total + k, get(scratch, total + k) + get(scratch, share + m) * get(scratch, said + k))
    fade = larger(smaller((net[FADE] - far) * net[FADE + 1] + ONE, spread(ONE)), spread(ZERO))
    for k in range(OUTPUTS):
        put(scratch, total + k, get(scratch, total + k) * fade * net[BOUND + k])
    return total


def acting(p, r, x, y, z, around_x, around_y, around_z):
    """The parameters ``p`` with force and torque that accelerate so in body axes, at the rotation ``r``."""
    mass = ONE / p[INV_MASS]
    x, y, z = mass * x, mass * y, mass * z
    return p[:FORCE_X] + (
        p[FORCE_X] + r[0] * x + r[1] * y + r[2] * z,
        p[FORCE_Y] + r[3] * x + r[4] * y + r[5] * z,
        p[FORCE_Z] + r[6] * x + r[7] * y + r[8] * z,
        p[TORQUE_X] + p[JX] * around_x, p[TORQUE_Y] + p[JY] * around_y, p[TORQUE_Z] + p[JZ] * around_z,
    ) + p[RATE_GAIN_X:]  # fmt: skip


def pushed(s, p, net, hidden, members, scratch):
    """The parameters ``p`` with the force and torque by which the ensemble pushes the state ``s``.

    The shares of the members stand in scratch.
    """
    r = rotation(s)
    inputs(s, p, r, scratch)
    at = accelerations(net, hidden, members, scratch)
    return acting(p, r, get(scratch, at), get(scratch, at + 1), get(scratch, at + 2), get(scratch, at + 3),
                  get(scratch, at + 4), get(scratch, at + 5))
