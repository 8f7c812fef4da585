"""The adjoint of the quadrotor's physics step, as scalar functions like the physics itself.

A *cotangent* is the derivative of a scalar objective with respect to a function's result; each ``*_vjp`` takes the
cotangent of the result and gives those of the arguments. Derived by hand from ``sim/physics/quadrotor/dynamics.py``,
term by term in the same order; ``test_adjoint.py`` and ``test_rollout.py`` in ``tests/sim/physics/quadrotor`` check it
with automatic and numerical differentiation. The rules of :mod:`temporeal.sim.compiler.scalar_functions` apply (scalars
and tuples, constants are module names); it is compiled with the compiled physics functions as replacements.

Where the physics is not smooth (limits of command and rotor speed, the switch between the two motor time constants) the
derivative is that of the value's side; at a limit, that of the inside; among equal largest or least values, that of the
first.
"""

from __future__ import annotations

import math

from temporeal.sim.physics.quadrotor.dynamics import (
    ARM_X,
    ARM_Y,
    C1,
    C2,
    DRAG_X,
    DRAG_Y,
    DRAG_Z,
    GAIN0,
    GAIN1,
    GAIN2,
    GAIN3,
    INV_JX,
    INV_JY,
    INV_JZ,
    INV_MASS,
    JX,
    JY,
    JZ,
    N0,
    N1,
    N2,
    N3,
    NOM_ARM_X,
    NOM_ARM_Y,
    NOM_C0,
    NOM_C1,
    NOM_C2,
    NOM_JX,
    NOM_JY,
    NOM_JZ,
    NOM_REACTION,
    PZ,
    QW,
    QX,
    QY,
    QZ,
    RATE_DOWN,
    RATE_GAIN_X,
    RATE_GAIN_Y,
    RATE_GAIN_Z,
    RATE_UP,
    REACTION,
    VX,
    VY,
    VZ,
    WIND_X,
    WIND_Y,
    WIND_Z,
    WX,
    WY,
    WZ,
    advance,
    clamp,
    derivative,
    larger,
    mixer,
    motor_step,
    on_ground,
    rate_loop,
    rk4,
    select,
    shares,
    smaller,
    wrench,
)

ZERO = 0.0
ONE = 1.0
TWO = 2.0
HALF = 0.5
QUARTER = 0.25
THIRD = 1.0 / 3.0
SIXTH = 1.0 / 6.0
FOUR = 4.0

SCALAR_FUNCTIONS = (
    "inside",
    "rotation",
    "rotation_vjp",
    "derivative_vjp",
    "plus",
    "scaled",
    "rk4_vjp",
    "tidy_vjp",
    "motor_step_vjp",
    "shared",
    "thrust_to_speed_vjp",
    "mixer_vjp",
    "rate_loop_vjp",
    "on_ground_vjp",
    "rates_step",
    "rates_step_vjp",
)


def inside(x, low, high):
    """Derivative of ``clamp(x, low, high)``: one within the limits, zero beyond."""
    return ONE if clamp(x, low, high) == x else ZERO


def rotation(qw, qx, qy, qz):
    """Rotation matrix body -> world of a unit quaternion, row by row, in the polynomial the physics uses."""
    return (
        ONE - TWO * (qy * qy + qz * qz), TWO * (qx * qy - qw * qz), TWO * (qx * qz + qw * qy),
        TWO * (qx * qy + qw * qz), ONE - TWO * (qx * qx + qz * qz), TWO * (qy * qz - qw * qx),
        TWO * (qx * qz - qw * qy), TWO * (qy * qz + qw * qx), ONE - TWO * (qx * qx + qy * qy),
    )  # fmt: skip


def rotation_vjp(qw, qx, qy, qz, g00, g01, g02, g10, g11, g12, g20, g21, g22):
    """Cotangent of the quaternion (w, x, y, z) from that of its rotation matrix ``g[row][column]``."""
    return (
        TWO * (qx * (g21 - g12) + qy * (g02 - g20) + qz * (g10 - g01)),
        TWO * (qw * (g21 - g12) + qy * (g01 + g10) + qz * (g02 + g20)) - FOUR * qx * (g11 + g22),
        TWO * (qw * (g02 - g20) + qx * (g01 + g10) + qz * (g12 + g21)) - FOUR * qy * (g00 + g22),
        TWO * (qw * (g10 - g01) + qx * (g02 + g20) + qy * (g12 + g21)) - FOUR * qz * (g00 + g11),
    )


def derivative_vjp(s, u0, u1, u2, u3, p, dragged, g):
    """Cotangents of state and setpoints from that of :func:`derivative`: 17 + 4 numbers."""
    qw, qx, qy, qz = s[QW], s[QX], s[QY], s[QZ]
    wx, wy, wz = s[WX], s[WY], s[WZ]
    mx, my, mz = p[INV_MASS] * g[VX], p[INV_MASS] * g[VY], p[INV_MASS] * g[VZ]
    kx, ky, kz = p[INV_JX] * g[WX], p[INV_JY] * g[WY], p[INV_JZ] * g[WZ]
    thrust = wrench(s[N0], s[N1], s[N2], s[N3], p)[0]

    # force: thrust along body z, and drag in body axes
    r00, r01, r02, r10, r11, r12, r20, r21, r22 = rotation(qw, qx, qy, qz)
    g_thrust = r02 * mx + r12 * my + r22 * mz
    if dragged:
        ax, ay, az = s[VX] - p[WIND_X], s[VY] - p[WIND_Y], s[VZ] - p[WIND_Z]
        bx = p[DRAG_X] * (r00 * ax + r10 * ay + r20 * az)
        by = p[DRAG_Y] * (r01 * ax + r11 * ay + r21 * az)
        bz = thrust - p[DRAG_Z] * (r02 * ax + r12 * ay + r22 * az)
        cx = -p[DRAG_X] * (r00 * mx + r10 * my + r20 * mz)
        cy = -p[DRAG_Y] * (r01 * mx + r11 * my + r21 * mz)
        cz = -p[DRAG_Z] * g_thrust
        dqw, dqx, dqy, dqz = rotation_vjp(
            qw, qx, qy, qz,
            cx * ax - bx * mx, cy * ax - by * mx, cz * ax + bz * mx,
            cx * ay - bx * my, cy * ay - by * my, cz * ay + bz * my,
            cx * az - bx * mz, cy * az - by * mz, cz * az + bz * mz,
        )  # fmt: skip
        dvx = r00 * cx + r01 * cy + r02 * cz
        dvy = r10 * cx + r11 * cy + r12 * cz
        dvz = r20 * cx + r21 * cy + r22 * cz
    else:
        fx, fy, fz = thrust * mx, thrust * my, thrust * mz
        dqw = TWO * (qy * fx - qx * fy)
        dqx = TWO * (qz * fx - qw * fy) - FOUR * qx * fz
        dqy = TWO * (qw * fx + qz * fy) - FOUR * qy * fz
        dqz = TWO * (qx * fx + qy * fy)
        dvx, dvy, dvz = ZERO, ZERO, ZERO

    # attitude kinematics
    hx, hy, hz = HALF * wx, HALF * wy, HALF * wz
    gw, gx, gy, gz = g[QW], g[QX], g[QY], g[QZ]
    dwx = HALF * (qw * gx - qx * gw + qz * gy - qy * gz)
    dwy = HALF * (qw * gy - qy * gw - qz * gx + qx * gz)
    dwz = HALF * (qw * gz - qz * gw + qy * gx - qx * gy)

    # rotors: thrust and torques by speed, and the lag
    roll, pitch, yaw = p[ARM_Y] * kx, p[ARM_X] * ky, p[REACTION] * kz
    k0 = p[RATE_UP] if u0 - s[N0] > ZERO else p[RATE_DOWN]
    k1 = p[RATE_UP] if u1 - s[N1] > ZERO else p[RATE_DOWN]
    k2 = p[RATE_UP] if u2 - s[N2] > ZERO else p[RATE_DOWN]
    k3 = p[RATE_UP] if u3 - s[N3] > ZERO else p[RATE_DOWN]
    e0, e1, e2, e3 = k0 * g[N0], k1 * g[N1], k2 * g[N2], k3 * g[N3]
    return (
        ZERO,
        ZERO,
        ZERO,
        dqw + gx * hx + gy * hy + gz * hz,
        dqx - gw * hx - gy * hz + gz * hy,
        dqy - gw * hy + gx * hz - gz * hx,
        dqz - gw * hz - gx * hy + gy * hx,
        dvx + g[0],
        dvy + g[1],
        dvz + g[2],
        dwx - (p[JX] - p[JZ]) * (wz * ky) - (p[JY] - p[JX]) * (wy * kz),
        dwy - (p[JZ] - p[JY]) * (wz * kx) - (p[JY] - p[JX]) * (wx * kz),
        dwz - (p[JZ] - p[JY]) * (wy * kx) - (p[JX] - p[JZ]) * (wx * ky),
        (g_thrust - roll - pitch - yaw) * p[GAIN0] * (p[C1] + TWO * p[C2] * s[N0]) - e0,
        (g_thrust - roll + pitch + yaw) * p[GAIN1] * (p[C1] + TWO * p[C2] * s[N1]) - e1,
        (g_thrust + roll + pitch - yaw) * p[GAIN2] * (p[C1] + TWO * p[C2] * s[N2]) - e2,
        (g_thrust + roll - pitch + yaw) * p[GAIN3] * (p[C1] + TWO * p[C2] * s[N3]) - e3,
        e0,
        e1,
        e2,
        e3,
    )


def plus(a, b):
    """Sum of two tuples of 17 + 4 cotangents."""
    return (
        a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5], a[6] + b[6], a[7] + b[7],
        a[8] + b[8], a[9] + b[9], a[10] + b[10], a[11] + b[11], a[12] + b[12], a[13] + b[13], a[14] + b[14],
        a[15] + b[15], a[16] + b[16], a[17] + b[17], a[18] + b[18], a[19] + b[19], a[20] + b[20],
    )  # fmt: skip


def scaled(a, h):
    """``h * a`` for the 17 components of a state's cotangent."""
    return (
        h * a[0], h * a[1], h * a[2], h * a[3], h * a[4], h * a[5], h * a[6], h * a[7], h * a[8], h * a[9],
        h * a[10], h * a[11], h * a[12], h * a[13], h * a[14], h * a[15], h * a[16],
    )  # fmt: skip


def rk4_vjp(s, u0, u1, u2, u3, p, dt, dragged, g):
    """Cotangents of state and setpoints from that of :func:`rk4`: the stages are computed again, then undone."""
    half = HALF * dt
    a = derivative(s, u0, u1, u2, u3, p, dragged)
    s2 = advance(s, a, half)
    b = derivative(s2, u0, u1, u2, u3, p, dragged)
    s3 = advance(s, b, half)
    c = derivative(s3, u0, u1, u2, u3, p, dragged)
    s4 = advance(s, c, dt)
    outer, inner = scaled(g, SIXTH * dt), scaled(g, THIRD * dt)
    g4 = derivative_vjp(s4, u0, u1, u2, u3, p, dragged, outer)
    g3 = derivative_vjp(s3, u0, u1, u2, u3, p, dragged, advance(inner, g4, dt))
    g2 = derivative_vjp(s2, u0, u1, u2, u3, p, dragged, advance(inner, g3, half))
    g1 = derivative_vjp(s, u0, u1, u2, u3, p, dragged, advance(outer, g2, half))
    total = plus(plus(g1, g2), plus(g3, g4))
    return (*advance(g, total, ONE), total[17], total[18], total[19], total[20])


def tidy_vjp(s, g):
    """Cotangent of the state before :func:`tidy` from that after it."""
    qw, qx, qy, qz = s[QW], s[QX], s[QY], s[QZ]
    f = ONE / math.sqrt(qw * qw + qx * qx + qy * qy + qz * qz)
    along = f * f * (qw * g[QW] + qx * g[QX] + qy * g[QY] + qz * g[QZ])
    return (
        g[0], g[1], g[2],
        f * (g[QW] - along * qw), f * (g[QX] - along * qx), f * (g[QY] - along * qy), f * (g[QZ] - along * qz),
        g[7], g[8], g[9], g[10], g[11], g[12],
        g[N0] * inside(s[N0], ZERO, ONE), g[N1] * inside(s[N1], ZERO, ONE),
        g[N2] * inside(s[N2], ZERO, ONE), g[N3] * inside(s[N3], ZERO, ONE),
    )  # fmt: skip


def motor_step_vjp(s, u0, u1, u2, u3, p, dt, dragged, g):
    """Cotangents of state and setpoints (17 + 4) from that of :func:`motor_step`, at the state ``s`` before it."""
    c0, c1, c2, c3 = clamp(u0, ZERO, ONE), clamp(u1, ZERO, ONE), clamp(u2, ZERO, ONE), clamp(u3, ZERO, ONE)
    raw = rk4(s, c0, c1, c2, c3, p, dt, dragged)
    d = rk4_vjp(s, c0, c1, c2, c3, p, dt, dragged, tidy_vjp(raw, g))
    return (
        d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10], d[11], d[12], d[13], d[14], d[15], d[16],
        d[17] * inside(u0, ZERO, ONE), d[18] * inside(u1, ZERO, ONE),
        d[19] * inside(u2, ZERO, ONE), d[20] * inside(u3, ZERO, ONE),
    )  # fmt: skip


# ---------------------------------------------------------------- collective thrust and body rates, and the ground


def shared(g, a, b, c, d, chosen):
    """The cotangent ``g`` of ``chosen``, the largest or the least of four numbers, to the first that it is."""
    ga = select(a == chosen, g, ZERO)
    gb = select(b == chosen, g - ga, ZERO)
    gc = select(c == chosen, g - ga - gb, ZERO)
    return ga, gb, gc, g - ga - gb - gc


def thrust_to_speed_vjp(t, nominal, g):
    """Cotangent of the thrust from that of :func:`thrust_to_speed`; zero where the curve has no root."""
    c1, c2 = nominal[NOM_C1], nominal[NOM_C2]
    square = c1 * c1 + FOUR * c2 * (t - nominal[NOM_C0])
    root = math.sqrt(select(square > ZERO, square, ONE))
    speed = (root - c1) / (TWO * c2)
    return select(square > ZERO, g * inside(speed, ZERO, ONE) / root, ZERO)


def mixer_vjp(thrust, tx, ty, tz, nominal, g0, g1, g2, g3):
    """Cotangents of collective thrust and torques from those of the rotors' thrusts (:func:`mixer`)."""
    full, a0, a1, a2, a3, yaw = shares(thrust, tx, ty, tz, nominal)
    most = larger(larger(a0, a1), larger(a2, a3))
    excess = larger(most - full, ZERO)
    b0, b1, b2, b3 = a0 - excess, a1 - excess, a2 - excess, a3 - excess
    c0, c1, c2, c3 = clamp(b0, ZERO, full), clamp(b1, ZERO, full), clamp(b2, ZERO, full), clamp(b3, ZERO, full)
    e0, e1, e2, e3 = full - c0, full - c1, full - c2, full - c3
    up = smaller(smaller(e1, e3), smaller(c0, c2))
    down = smaller(smaller(e0, e2), smaller(c1, c3))

    g_yaw = (g1 + g3) - (g0 + g2)
    u1, u3, u0, u2 = shared(select(yaw > up, g_yaw, ZERO), e1, e3, c0, c2, up)
    d0, d2, d1, d3 = shared(select(yaw < -down, -g_yaw, ZERO), e0, e2, c1, c3, down)
    h0 = (g0 + u0 - d0) * inside(b0, ZERO, full)
    h1 = (g1 - u1 + d1) * inside(b1, ZERO, full)
    h2 = (g2 + u2 - d2) * inside(b2, ZERO, full)
    h3 = (g3 - u3 + d3) * inside(b3, ZERO, full)
    over = select(most > full, (h0 + h1) + (h2 + h3), ZERO)
    m0, m1, m2, m3 = shared(over, a0, a1, a2, a3, most)
    h0, h1, h2, h3 = h0 - m0, h1 - m1, h2 - m2, h3 - m3
    return (
        QUARTER * inside(thrust, ZERO, FOUR * full) * ((h0 + h1) + (h2 + h3)),
        QUARTER / nominal[NOM_ARM_Y] * ((h2 + h3) - (h0 + h1)),
        QUARTER / nominal[NOM_ARM_X] * ((h1 + h2) - (h0 + h3)),
        QUARTER / nominal[NOM_REACTION] * g_yaw * inside(yaw, -down, up),
    )


def rate_loop_vjp(s, thrust, rate_x, rate_y, rate_z, p, nominal, g0, g1, g2, g3):
    """Cotangents of the body rates of the state (3) and of the command (4) from those of :func:`rate_loop`."""
    wx, wy, wz = s[WX], s[WY], s[WZ]
    jx, jy, jz = nominal[NOM_JX], nominal[NOM_JY], nominal[NOM_JZ]
    kx, ky, kz = jx * p[RATE_GAIN_X], jy * p[RATE_GAIN_Y], jz * p[RATE_GAIN_Z]
    tx = kx * (rate_x - wx) + (jz - jy) * (wy * wz)
    ty = ky * (rate_y - wy) + (jx - jz) * (wz * wx)
    tz = kz * (rate_z - wz) + (jy - jx) * (wx * wy)
    t0, t1, t2, t3 = mixer(thrust, tx, ty, tz, nominal)
    g_thrust, gx, gy, gz = mixer_vjp(
        thrust, tx, ty, tz, nominal, thrust_to_speed_vjp(t0, nominal, g0), thrust_to_speed_vjp(t1, nominal, g1),
        thrust_to_speed_vjp(t2, nominal, g2), thrust_to_speed_vjp(t3, nominal, g3),
    )  # fmt: skip
    return (
        (jx - jz) * (wz * gy) + (jy - jx) * (wy * gz) - kx * gx,
        (jz - jy) * (wz * gx) + (jy - jx) * (wx * gz) - ky * gy,
        (jz - jy) * (wy * gx) + (jx - jz) * (wx * gy) - kz * gz,
        g_thrust,
        kx * gx,
        ky * gy,
        kz * gz,
    )


def on_ground_vjp(s, g):
    """Cotangent of the state before :func:`on_ground` from that after it."""
    held = (s[PZ] <= ZERO) & (s[VZ] <= ZERO)
    return (
        g[0], g[1], select(s[PZ] >= ZERO, g[2], ZERO), g[3], g[4], g[5], g[6],
        select(held, ZERO, g[7]), select(held, ZERO, g[8]), select(held, ZERO, g[9]),
        select(held, ZERO, g[10]), select(held, ZERO, g[11]), select(held, ZERO, g[12]),
        g[13], g[14], g[15], g[16],
    )  # fmt: skip


def rates_step(s, thrust, rate_x, rate_y, rate_z, p, nominal, dt):
    """One physics step of ``dt`` [s] with the rate loop in front and the ground below."""
    u0, u1, u2, u3 = rate_loop(s, thrust, rate_x, rate_y, rate_z, p, nominal)
    return on_ground(motor_step(s, u0, u1, u2, u3, p, dt, True))


def rates_step_vjp(s, thrust, rate_x, rate_y, rate_z, p, nominal, dt, g):
    """Cotangents of state and command (17 + 4) from that of :func:`rates_step`, at the state ``s`` before it."""
    u0, u1, u2, u3 = rate_loop(s, thrust, rate_x, rate_y, rate_z, p, nominal)
    landed = on_ground_vjp(motor_step(s, u0, u1, u2, u3, p, dt, True), g)
    d = motor_step_vjp(s, u0, u1, u2, u3, p, dt, True, landed)
    r = rate_loop_vjp(s, thrust, rate_x, rate_y, rate_z, p, nominal, d[17], d[18], d[19], d[20])
    return (
        d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10] + r[0], d[11] + r[1], d[12] + r[2],
        d[13], d[14], d[15], d[16], r[3], r[4], r[5], r[6],
    )  # fmt: skip
