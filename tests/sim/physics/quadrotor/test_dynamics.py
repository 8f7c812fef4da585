"""The physics function in float64 Python: analytic motions, conservation, order of convergence, mixer and rate loop."""

import math

import numpy as np
import pytest

from temporeal.robots.crazyflie.spec import ROTOR_SIGN_X, ROTOR_SIGN_Y, ROTOR_SIGN_YAW
from temporeal.sim.physics.quadrotor import dynamics as q

INERTIA = np.array([2e-5, 3e-5, 5e-5])
NOMINAL = (*INERTIA, 0.0, -0.0125, 0.1325, 0.0068, 0.03, 0.0325)
FULL = -0.0125 + 0.1325


def params(**fields):
    p = [0.0] * q.PARAM_SIZE
    p[q.INV_MASS] = 1 / 0.03
    p[q.JX : q.JZ + 1] = INERTIA
    p[q.INV_JX : q.INV_JZ + 1] = 1 / INERTIA
    p[q.REACTION], p[q.RATE_UP], p[q.RATE_DOWN], p[q.ARM_X], p[q.ARM_Y] = 0.0068, 1 / 0.1, 1 / 0.12, 0.03, 0.0325
    p[q.GAIN0 : q.GAIN3 + 1] = [1.0] * 4
    p[q.RATE_GAIN_X : q.RATE_GAIN_Z + 1] = [20.0, 20.0, 8.0]
    for name, value in fields.items():
        p[getattr(q, name)] = value
    return tuple(p)


THRUSTING = {"C1": -0.0125, "C2": 0.1325}


def state(**fields):
    s = [0.0] * q.STATE_SIZE
    s[q.QW] = 1.0
    for name, value in fields.items():
        s[getattr(q, name)] = value
    return tuple(s)


def run(s, p, steps, dt, u=(0.0,) * 4, dragged=False):
    for _ in range(steps):
        s = q.motor_step(s, *u, p, dt, dragged)
    return s


def rotation(s):
    w, x, y, z = s[q.QW : q.QZ + 1]
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def test_free_fall_is_a_parabola():
    s = run(state(PZ=10.0, VX=1.0, VZ=2.0), params(), 100, 0.01)
    assert np.allclose(s[:3], [1.0, 0.0, 10 + 2 - 9.81 / 2], atol=1e-12)
    assert np.allclose(s[q.VX : q.VZ + 1], [1.0, 0.0, 2 - 9.81], atol=1e-12)


def test_constant_force_and_torque_about_an_axis():
    p = params(FORCE_X=0.006, TORQUE_Z=1e-5)
    s = run(state(), p, 100, 0.01)
    assert math.isclose(s[q.PX], 0.5 * 0.006 / 0.03, rel_tol=1e-12)
    assert math.isclose(s[q.WZ], 1e-5 / 5e-5, rel_tol=1e-12)
    assert math.isclose(2 * math.atan2(s[q.QZ], s[q.QW]), 0.5 * 1e-5 / 5e-5, rel_tol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_spin_about_a_principal_axis_is_uniform(axis):
    rate = 7.0
    s = run(state(**{("WX", "WY", "WZ")[axis]: rate}), params(), 1000, 0.001)
    half = 0.5 * rate
    expected = np.zeros(4)
    expected[0], expected[1 + axis] = math.cos(half), math.sin(half)
    assert np.allclose(s[q.QW : q.QZ + 1], expected, atol=1e-9)
    assert np.allclose(np.delete(s[q.WX : q.WZ + 1], axis), 0)


def test_torque_free_motion_keeps_momentum_and_energy():
    start = state(WX=4.0, WY=-3.0, WZ=2.0, QW=0.5, QX=0.5, QY=-0.5, QZ=0.5)
    end = run(start, params(), 2000, 0.001)

    def momentum(s):
        return rotation(s) @ (INERTIA * np.array(s[q.WX : q.WZ + 1]))

    def energy(s):
        return 0.5 * float(INERTIA @ np.square(s[q.WX : q.WZ + 1]))

    # fourth order at dt = 1 ms and rates of 5 rad/s: relative error about (5e-3)^4 * 2000 / 120 = 1e-8
    assert np.allclose(momentum(end), momentum(start), rtol=1e-7, atol=1e-12)
    assert math.isclose(energy(end), energy(start), rel_tol=1e-8)
    assert not np.allclose(end[q.WX : q.WZ + 1], start[q.WX : q.WZ + 1], atol=0.1)  # it did tumble


def test_energy_balance_in_flight_without_drag():
    p = params()
    s = run(state(PZ=5.0, VX=1.0, VY=-2.0, VZ=3.0, WX=1.0), p, 500, 0.001)

    def energy(z, v):
        return 9.81 * z + 0.5 * float(np.square(v).sum())

    assert math.isclose(energy(s[q.PZ], s[q.VX : q.VZ + 1]), energy(5.0, (1, -2, 3)), rel_tol=1e-12)


@pytest.mark.parametrize("dragged", [False, True])
def test_integrator_is_of_fourth_order(dragged):
    p = params(**THRUSTING, DRAG_X=0.01, DRAG_Y=0.02, DRAG_Z=0.015, WIND_X=2.0, TORQUE_X=1e-6)
    start = state(VX=1.0, WX=3.0, WY=-2.0, WZ=4.0, N0=0.5, N1=0.4, N2=0.6, N3=0.55)
    u = (0.9, 0.7, 0.8, 0.75)

    def integrate(steps):
        s = start
        for _ in range(steps):
            s = q.rk4(s, *u, p, 0.2 / steps, dragged)
        return np.array(s)

    reference = integrate(640)
    errors = [np.abs(integrate(n) - reference)[: q.N0].max() for n in (10, 20, 40)]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(np.abs(orders - 4) < 0.25), orders


@pytest.mark.parametrize(("begin", "target", "tau"), [(0.2, 0.8, 0.1), (0.8, 0.2, 0.12)])
def test_motor_lag_is_exponential_with_its_own_constant_up_and_down(begin, target, tau):
    s = run(state(N0=begin, N1=begin, N2=begin, N3=begin), params(), 10, 0.01, (target,) * 4)
    expected = target + (begin - target) * math.exp(-0.1 / tau)
    assert np.allclose(s[q.N0 :], expected, atol=1e-6)  # (dt / tau)^5 / 120 per step


def test_setpoints_and_speeds_stay_between_zero_and_one():
    s = run(state(N0=0.5), params(), 300, 0.01, (7.0, -3.0, 1.0, 0.0))
    assert math.isclose(s[q.N0], 1.0, abs_tol=1e-9) and s[q.N0] <= 1.0
    assert s[q.N1] == 0.0


def test_hover_is_an_equilibrium():
    n = q.thrust_to_speed(0.03 * 9.81 / 4, NOMINAL)
    s = run(state(PZ=1.0, N0=n, N1=n, N2=n, N3=n), params(**THRUSTING), 100, 0.01, (n,) * 4)
    assert np.allclose(s[:3], [0, 0, 1], atol=1e-12)
    assert np.allclose(s[q.VX : q.WZ + 1], 0, atol=1e-12)


def test_each_rotor_pushes_where_the_robot_says():
    p = params(**THRUSTING)
    for i in range(4):
        n = [0.0] * 4
        n[i] = 1.0
        force, tx, ty, tz = q.wrench(*n, p)
        assert math.isclose(force, FULL)
        # torque = r x F for a rotor at (x, y) that pushes along z; the reaction opposes its spin
        assert math.isclose(tx, ROTOR_SIGN_Y[i] * 0.0325 * FULL)
        assert math.isclose(ty, -ROTOR_SIGN_X[i] * 0.03 * FULL)
        assert math.isclose(tz, ROTOR_SIGN_YAW[i] * 0.0068 * FULL)


def test_drag_gives_terminal_speed():
    p = params(DRAG_X=0.02, DRAG_Y=0.02, DRAG_Z=0.03)
    s = run(state(), p, 1000, 0.02, dragged=True)
    assert math.isclose(s[q.VZ], -0.03 * 9.81 / 0.03, rel_tol=1e-6)


def test_wind_carries_along():
    p = params(DRAG_X=0.02, DRAG_Y=0.02, DRAG_Z=0.02, WIND_X=1.5, WIND_Y=-0.5, FORCE_Z=0.03 * 9.81)
    s = run(state(QW=math.cos(0.4), QX=math.sin(0.4)), p, 2000, 0.01, dragged=True)
    assert np.allclose(s[q.VX : q.VZ + 1], [1.5, -0.5, 0.0], atol=1e-4)


def test_drag_acts_along_body_axes():
    # yawed by 90 degrees, body x is world y: motion along world y meets the coefficient of body x
    p = params(DRAG_X=0.05, DRAG_Y=0.01)
    d = q.derivative(state(QW=math.sqrt(0.5), QZ=math.sqrt(0.5), VY=2.0), 0, 0, 0, 0, p, True)
    assert math.isclose(d[q.VY], -0.05 * 2.0 / 0.03, rel_tol=1e-12)
    assert math.isclose(d[q.VX], 0.0, abs_tol=1e-12)


def test_ground_stops_without_bounce_and_lets_go():
    held = q.on_ground(state(PZ=-0.01, VX=1.0, VZ=-2.0, WX=3.0, N0=0.4))
    assert held[q.PZ] == 0.0
    assert held[q.VX : q.WZ + 1] == (0.0,) * 6
    assert held[q.N0] == 0.4
    leaving = state(PZ=0.0, VX=1.0, VZ=0.5)
    assert q.on_ground(leaving) == leaving
    flying = state(PZ=0.3, VX=1.0, VZ=-0.5)
    assert q.on_ground(flying) == flying


def test_mixer_is_the_inverse_of_the_wrench():
    p = params(**THRUSTING)
    wanted = (0.30, 4e-4, -3e-4, 5e-5)
    thrusts = q.mixer(*wanted, NOMINAL)
    speeds = [q.thrust_to_speed(t, NOMINAL) for t in thrusts]
    assert np.allclose(q.wrench(*speeds, p), wanted, rtol=1e-12)


def test_mixer_gives_up_yaw_first_and_keeps_roll_at_full_thrust():
    p = params(**THRUSTING)

    def achieved(*wanted):
        thrusts = q.mixer(*wanted, NOMINAL)
        assert all(-1e-15 <= t <= FULL + 1e-15 for t in thrusts)
        return q.wrench(*(q.thrust_to_speed(t, NOMINAL) for t in thrusts), p)

    force, tx, ty, tz = achieved(0.30, 2e-3, 1e-3, 5e-3)
    assert np.allclose([force, tx, ty], [0.30, 2e-3, 1e-3], rtol=1e-9) and 0 < tz < 5e-3
    force, tx, ty, _ = achieved(4 * FULL, 1e-3, -1e-3, 0.0)
    assert np.allclose([tx, ty], [1e-3, -1e-3], rtol=1e-9) and force < 4 * FULL
    assert math.isclose(achieved(9.0, 0.0, 0.0, 0.0)[0], 4 * FULL)
    assert achieved(-1.0, 0.0, 0.0, 0.0)[0] == pytest.approx(0.0, abs=1e-12)


def test_rate_loop_tracks_rates_and_thrust():
    p = params(**THRUSTING)
    n = q.thrust_to_speed(0.03 * 9.81 / 4, NOMINAL)
    s = state(PZ=10.0, N0=n, N1=n, N2=n, N3=n)
    command = (0.03 * 9.81, 1.0, -0.7, 0.4)
    for _ in range(1500):
        s = q.motor_step(s, *q.rate_loop(s, *command, p, NOMINAL), p, 0.001, False)
    assert np.allclose(s[q.WX : q.WZ + 1], command[1:], atol=5e-3)
    assert math.isclose(q.wrench(*s[q.N0 :], p)[0], command[0], rel_tol=1e-3)


def test_blend_switches_after_the_delay():
    dt = 0.002
    shares = [q.blend(i * dt, dt, 0.005, 1.0, 0.0) for i in range(4)]
    assert np.allclose(shares, [1.0, 1.0, 0.5, 0.0])
    assert q.blend(0.0, dt, 0.0, 1.0, 0.0) == 0.0
