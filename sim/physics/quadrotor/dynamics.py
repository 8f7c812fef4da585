"""The quadrotor's physics: one scalar function, for float64 Python, SIMD lanes and CUDA threads.

Plain arithmetic on scalars, no branch that a compiler could not turn into a select, no float literal (constants are
module names, see :mod:`temporeal.sim.compiler.scalar_functions`). A state is a tuple of ``STATE_SIZE`` scalars, a
parameter set a tuple of ``PARAM_SIZE`` scalars, both indexed by the constants below; SI units, world ENU with z up,
body FLU.

Model: rigid body; each rotor's normalized speed n follows its setpoint with a first-order lag (two time constants);
thrust = gain (c0 + c1 n + c2 n^2) along body z; reaction torque = torque_per_thrust * thrust about body z;
linear drag in body axes on the velocity relative to the wind; constant disturbance force and torque.
Rotors as on the Crazyflie (``robots/crazyflie/spec.py``): M1 front right, M2 rear right, M3 rear left, M4 front left;
M1 and M3 turn counter-clockwise seen from above.
"""

from __future__ import annotations

import math

# --- state: position_w [m], quaternion wxyz body->world, velocity_w [m/s], angular velocity_b [rad/s],
# --- normalized rotor speed [1]
PX, PY, PZ = 0, 1, 2
QW, QX, QY, QZ = 3, 4, 5, 6
VX, VY, VZ = 7, 8, 9
WX, WY, WZ = 10, 11, 12
N0, N1, N2, N3 = 13, 14, 15, 16
STATE_SIZE = 17

# --- parameters in the form the derivative uses (reciprocals are taken once, when they are set)
INV_MASS = 0  # 1/kg
JX, JY, JZ = 1, 2, 3  # kg m^2
INV_JX, INV_JY, INV_JZ = 4, 5, 6
C0, C1, C2 = 7, 8, 9  # N, thrust over normalized rotor speed
REACTION = 10  # m, reaction torque per thrust
RATE_UP, RATE_DOWN = 11, 12  # 1/s, reciprocal motor time constants
ARM_X, ARM_Y = 13, 14  # m
DRAG_X, DRAG_Y, DRAG_Z = 15, 16, 17  # N s/m, body axes
GAIN0, GAIN1, GAIN2, GAIN3 = 18, 19, 20, 21  # 1, factor on each rotor's thrust
WIND_X, WIND_Y, WIND_Z = 22, 23, 24  # m/s, world
FORCE_X, FORCE_Y, FORCE_Z = 25, 26, 27  # N, world
TORQUE_X, TORQUE_Y, TORQUE_Z = 28, 29, 30  # N m, body
RATE_GAIN_X, RATE_GAIN_Y, RATE_GAIN_Z = 31, 32, 33  # 1/s, inner rate loop
DELAY = 34  # s, the previous command stays applied so long
PARAM_SIZE = 35

# --- what the controller on the robot believes (it does not know the true parameters)
NOM_JX, NOM_JY, NOM_JZ, NOM_C0, NOM_C1, NOM_C2, NOM_REACTION, NOM_ARM_X, NOM_ARM_Y = 0, 1, 2, 3, 4, 5, 6, 7, 8
NOMINAL_SIZE = 9

ZERO = 0.0
ONE = 1.0
TWO = 2.0
HALF = 0.5
QUARTER = 0.25
SIXTH = 1.0 / 6.0
FOUR = 4.0
GRAVITY = 9.81  # m/s^2
TINY = 1e-12  # guards a division by a yaw torque of zero, N

SCALAR_FUNCTIONS = (
    "select",
    "larger",
    "smaller",
    "clamp",
    "wrench",
    "derivative",
    "advance",
    "rk4",
    "tidy",
    "motor_step",
    "on_ground",
    "thrust_to_speed",
    "shares",
    "mixer",
    "rate_loop",
    "blend",
)


def select(condition, a, b):
    """``a`` where the condition holds, else ``b``."""
    return a if condition else b


def larger(a, b):
    """The larger of two numbers (the built-in does not compile for every target)."""
    return a if a > b else b


def smaller(a, b):
    """The smaller of two numbers."""
    return a if a < b else b


def clamp(x, low, high):
    """``x`` limited to [low, high]."""
    return smaller(larger(x, low), high)


def wrench(n0, n1, n2, n3, p):
    """Thrust [N] and torques about the body axes [N m] of the rotors at speeds ``n`` [1]."""
    t0 = p[GAIN0] * (p[C0] + n0 * (p[C1] + n0 * p[C2]))
    t1 = p[GAIN1] * (p[C0] + n1 * (p[C1] + n1 * p[C2]))
    t2 = p[GAIN2] * (p[C0] + n2 * (p[C1] + n2 * p[C2]))
    t3 = p[GAIN3] * (p[C0] + n3 * (p[C1] + n3 * p[C2]))
    right = t0 + t1
    left = t2 + t3
    return (
        right + left,
        p[ARM_Y] * (left - right),
        p[ARM_X] * ((t1 + t2) - (t0 + t3)),
        p[REACTION] * ((t1 + t3) - (t0 + t2)),
    )


def derivative(s, u0, u1, u2, u3, p, dragged):
    """Time derivative of the state ``s`` under rotor speed setpoints ``u`` [1]; ``dragged`` is a literal bool."""
    qw, qx, qy, qz = s[QW], s[QX], s[QY], s[QZ]
    wx, wy, wz = s[WX], s[WY], s[WZ]
    thrust, tx, ty, tz = wrench(s[N0], s[N1], s[N2], s[N3], p)

    # third column of the rotation: where body z points in the world
    r02 = TWO * (qx * qz + qw * qy)
    r12 = TWO * (qy * qz - qw * qx)
    r22 = ONE - TWO * (qx * qx + qy * qy)
    if dragged:
        r00 = ONE - TWO * (qy * qy + qz * qz)
        r10 = TWO * (qx * qy + qw * qz)
        r20 = TWO * (qx * qz - qw * qy)
        r01 = TWO * (qx * qy - qw * qz)
        r11 = ONE - TWO * (qx * qx + qz * qz)
        r21 = TWO * (qy * qz + qw * qx)
        ax, ay, az = s[VX] - p[WIND_X], s[VY] - p[WIND_Y], s[VZ] - p[WIND_Z]
        bx = p[DRAG_X] * (r00 * ax + r10 * ay + r20 * az)
        by = p[DRAG_Y] * (r01 * ax + r11 * ay + r21 * az)
        bz = thrust - p[DRAG_Z] * (r02 * ax + r12 * ay + r22 * az)
        fx = r02 * bz - r00 * bx - r01 * by
        fy = r12 * bz - r10 * bx - r11 * by
        fz = r22 * bz - r20 * bx - r21 * by
    else:
        fx, fy, fz = r02 * thrust, r12 * thrust, r22 * thrust

    hwx, hwy, hwz = HALF * wx, HALF * wy, HALF * wz
    e0, e1, e2, e3 = u0 - s[N0], u1 - s[N1], u2 - s[N2], u3 - s[N3]
    return (
        s[VX],
        s[VY],
        s[VZ],
        -qx * hwx - qy * hwy - qz * hwz,
        qw * hwx + qy * hwz - qz * hwy,
        qw * hwy + qz * hwx - qx * hwz,
        qw * hwz + qx * hwy - qy * hwx,
        p[INV_MASS] * (fx + p[FORCE_X]),
        p[INV_MASS] * (fy + p[FORCE_Y]),
        p[INV_MASS] * (fz + p[FORCE_Z]) - GRAVITY,
        p[INV_JX] * (tx + p[TORQUE_X] - (p[JZ] - p[JY]) * (wy * wz)),
        p[INV_JY] * (ty + p[TORQUE_Y] - (p[JX] - p[JZ]) * (wz * wx)),
        p[INV_JZ] * (tz + p[TORQUE_Z] - (p[JY] - p[JX]) * (wx * wy)),
        e0 * select(e0 > ZERO, p[RATE_UP], p[RATE_DOWN]),
        e1 * select(e1 > ZERO, p[RATE_UP], p[RATE_DOWN]),
        e2 * select(e2 > ZERO, p[RATE_UP], p[RATE_DOWN]),
        e3 * select(e3 > ZERO, p[RATE_UP], p[RATE_DOWN]),
    )


def advance(s, d, h):
    """``s + h * d`` for each component."""
    return (
        s[0] + h * d[0], s[1] + h * d[1], s[2] + h * d[2], s[3] + h * d[3], s[4] + h * d[4], s[5] + h * d[5],
        s[6] + h * d[6], s[7] + h * d[7], s[8] + h * d[8], s[9] + h * d[9], s[10] + h * d[10], s[11] + h * d[11],
        s[12] + h * d[12], s[13] + h * d[13], s[14] + h * d[14], s[15] + h * d[15], s[16] + h * d[16],
    )  # fmt: skip


def weighted(a, b, c, d):
    """``a + 2 b + 2 c + d`` for each component: the Runge-Kutta sum of four derivatives."""
    return (
        a[0] + TWO * (b[0] + c[0]) + d[0], a[1] + TWO * (b[1] + c[1]) + d[1], a[2] + TWO * (b[2] + c[2]) + d[2],
        a[3] + TWO * (b[3] + c[3]) + d[3], a[4] + TWO * (b[4] + c[4]) + d[4], a[5] + TWO * (b[5] + c[5]) + d[5],
        a[6] + TWO * (b[6] + c[6]) + d[6], a[7] + TWO * (b[7] + c[7]) + d[7], a[8] + TWO * (b[8] + c[8]) + d[8],
        a[9] + TWO * (b[9] + c[9]) + d[9], a[10] + TWO * (b[10] + c[10]) + d[10],
        a[11] + TWO * (b[11] + c[11]) + d[11], a[12] + TWO * (b[12] + c[12]) + d[12],
        a[13] + TWO * (b[13] + c[13]) + d[13], a[14] + TWO * (b[14] + c[14]) + d[14],
        a[15] + TWO * (b[15] + c[15]) + d[15], a[16] + TWO * (b[16] + c[16]) + d[16],
    )  # fmt: skip


def rk4(s, u0, u1, u2, u3, p, dt, dragged):
    """One classical Runge-Kutta step of ``dt`` [s]; the quaternion is not yet normalized."""
    # the sum of the derivatives grows as they come: fewer values wait in registers than with all four at the end
    k = derivative(s, u0, u1, u2, u3, p, dragged)
    total = k
    k = derivative(advance(s, k, HALF * dt), u0, u1, u2, u3, p, dragged)
    total = advance(total, k, TWO)
    k = derivative(advance(s, k, HALF * dt), u0, u1, u2, u3, p, dragged)
    total = advance(total, k, TWO)
    k = derivative(advance(s, k, dt), u0, u1, u2, u3, p, dragged)
    return advance(s, advance(total, k, ONE), SIXTH * dt)


def tidy(s):
    """``s`` with a unit quaternion and rotor speeds in [0, 1]."""
    f = ONE / math.sqrt(s[QW] * s[QW] + s[QX] * s[QX] + s[QY] * s[QY] + s[QZ] * s[QZ])
    return (
        s[PX], s[PY], s[PZ], f * s[QW], f * s[QX], f * s[QY], f * s[QZ], s[VX], s[VY], s[VZ], s[WX], s[WY], s[WZ],
        clamp(s[N0], ZERO, ONE), clamp(s[N1], ZERO, ONE), clamp(s[N2], ZERO, ONE), clamp(s[N3], ZERO, ONE),
    )  # fmt: skip


def motor_step(s, u0, u1, u2, u3, p, dt, dragged):
    """One physics step under rotor speed setpoints ``u`` (limited to [0, 1]): Runge-Kutta, then :func:`tidy`."""
    return tidy(
        rk4(
            s, clamp(u0, ZERO, ONE), clamp(u1, ZERO, ONE), clamp(u2, ZERO, ONE), clamp(u3, ZERO, ONE), p, dt, dragged
        )
    )  # fmt: skip


def on_ground(s):
    """The plane z = 0: no penetration, an inelastic stop, and friction that holds whatever touches it.

    A height that is no number stays none.
    """
    held = (s[PZ] <= ZERO) & (s[VZ] <= ZERO)
    return (
        s[PX], s[PY], larger(ZERO, s[PZ]), s[QW], s[QX], s[QY], s[QZ],
        select(held, ZERO, s[VX]), select(held, ZERO, s[VY]), select(held, ZERO, s[VZ]),
        select(held, ZERO, s[WX]), select(held, ZERO, s[WY]), select(held, ZERO, s[WZ]),
        s[N0], s[N1], s[N2], s[N3],
    )  # fmt: skip


def thrust_to_speed(t, nominal):
    """Rotor speed in [0, 1] that gives thrust ``t`` [N] on the nominal curve: its larger root."""
    c1, c2 = nominal[NOM_C1], nominal[NOM_C2]
    root = math.sqrt(larger(c1 * c1 + FOUR * c2 * (t - nominal[NOM_C0]), ZERO))
    return clamp((root - c1) / (TWO * c2), ZERO, ONE)


def shares(thrust, tx, ty, tz, nominal):
    """Full thrust of a rotor [N], the four's thrusts without yaw, before any limit but the collective's, and yaw's."""
    full = nominal[NOM_C0] + nominal[NOM_C1] + nominal[NOM_C2]
    lift = QUARTER * clamp(thrust, ZERO, FOUR * full)
    roll = QUARTER * tx / nominal[NOM_ARM_Y]
    pitch = QUARTER * ty / nominal[NOM_ARM_X]
    yaw = QUARTER * tz / nominal[NOM_REACTION]
    return full, lift - roll - pitch, lift - roll + pitch, lift + roll + pitch, lift + roll - pitch, yaw


def mixer(thrust, tx, ty, tz, nominal):
    """Rotor thrusts [N] for a collective ``thrust`` [N] and body torques [N m] on the nominal robot.

    Where they do not fit between zero and full thrust, yaw gives way first, then collective thrust (lowered until
    the strongest rotor fits), then roll and pitch (clipped at zero thrust).
    """
    full, t0, t1, t2, t3, yaw = shares(thrust, tx, ty, tz, nominal)
    excess = larger(larger(larger(t0, t1), larger(t2, t3)) - full, ZERO)
    t0 = clamp(t0 - excess, ZERO, full)
    t1 = clamp(t1 - excess, ZERO, full)
    t2 = clamp(t2 - excess, ZERO, full)
    t3 = clamp(t3 - excess, ZERO, full)
    # yaw adds to M2 and M4 and takes from M1 and M3, or the reverse: the room that all four have
    room_up = smaller(smaller(full - t1, full - t3), smaller(t0, t2))
    room_down = smaller(smaller(full - t0, full - t2), smaller(t1, t3))
    yaw = clamp(yaw, -room_down, room_up)
    return t0 - yaw, t1 + yaw, t2 - yaw, t3 + yaw


def rate_loop(s, thrust, rate_x, rate_y, rate_z, p, nominal):
    """Rotor speed setpoints [1] that track collective ``thrust`` [N] and body rates [rad/s].

    Proportional on the rate error, with the gyroscopic torque of the nominal inertia compensated.
    """
    wx, wy, wz = s[WX], s[WY], s[WZ]
    jx, jy, jz = nominal[NOM_JX], nominal[NOM_JY], nominal[NOM_JZ]
    tx = jx * p[RATE_GAIN_X] * (rate_x - wx) + (jz - jy) * (wy * wz)
    ty = jy * p[RATE_GAIN_Y] * (rate_y - wy) + (jx - jz) * (wz * wx)
    tz = jz * p[RATE_GAIN_Z] * (rate_z - wz) + (jy - jx) * (wx * wy)
    t0, t1, t2, t3 = mixer(thrust, tx, ty, tz, nominal)
    return (
        thrust_to_speed(t0, nominal),
        thrust_to_speed(t1, nominal),
        thrust_to_speed(t2, nominal),
        thrust_to_speed(t3, nominal),
    )


def blend(time, dt, delay, old, new):
    """The command of the physics step that begins ``time`` [s] after ``new`` was given: ``old`` for ``delay`` [s].

    In the step within which the delay ends it is their mean, weighted by the time each is applied.
    """
    share = clamp((delay - time) / dt, ZERO, ONE)
    return new + share * (old - new)
