"""Plans by collective thrust and body rates: the backend's own flight, and a gradient that is that of differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.backends import quadrotor
from temporeal.sim.physics.quadrotor import adjoint as adjoint
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import vjp
from temporeal.sim.physics.quadrotor.parameters import controller_params

DT, SUBSTEPS = 0.005, 4
ROBOT = load_robot("crazyflie")
NOMINAL = controller_params(ROBOT)
DISTURBED = {"wind_w": (1.0, -2.0, 0.5), "motor_gain": (1.0, 0.99, 1.01, 1.0)}
PARAMS = adjoint.pack_params(adjoint.robot_params(ROBOT) | DISTURBED, 1)
FULL = float(NOMINAL[3:6].sum())  # N, of one rotor
FIELDS = {"base_pos_w": 3, "base_quat_w": 4, "base_vel_w": 3, "base_ang_vel_b": 3, "rotor_speed": 4}


def starts(worlds: int, seed: int = 0) -> np.ndarray:
    """In the air, turning."""
    rng = np.random.default_rng(seed)
    s = np.concatenate([rng.uniform(-1, 1, (worlds, 2)), rng.uniform(0.5, 1.5, (worlds, 1)),
                        rng.standard_normal((worlds, 4)) * 0.2 + [1, 0, 0, 0], rng.standard_normal((worlds, 3)),
                        rng.standard_normal((worlds, 3)), rng.uniform(0.3, 0.7, (worlds, 4))], 1)
    s[:, 3:7] /= np.linalg.norm(s[:, 3:7], axis=1, keepdims=True)
    return s.astype(np.float32)


def commands(steps: int, worlds: int, seed: int = 1) -> np.ndarray:
    """About hover, turning hard."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(0.1, 0.5, (steps, worlds, 1)), rng.uniform(-4, 4, (steps, worlds, 3))],
                          2).astype(np.float32)


def many(worlds: int) -> np.ndarray:
    return np.repeat(PARAMS, worlds, 0)


def differences(function, z: np.ndarray, size: float = 1e-6) -> np.ndarray:
    return np.array([(function(z + size * e) - function(z - size * e)) / (2 * size) for e in np.eye(len(z))])


MIXED = {
    "all rotors between their limits": (1.6 * FULL, 1e-4, -2e-4, 3e-5),
    "one rotor at its limit": (3.6 * FULL, 2e-3, 1e-3, 1e-4),
    "two rotors at zero": (0.3 * FULL, 4e-3, 1e-3, 1e-5),
    "yaw beyond its room": (2.0 * FULL, 5e-4, -4e-4, 9e-3),
    "yaw beyond it the other way": (2.0 * FULL, 5e-4, 4e-4, -9e-3),
    "yaw where a rotor is at its limit": (3.7 * FULL, 2e-3, -1e-3, -9e-3),
    "yaw without room": (0.3 * FULL, 4e-3, 1e-3, 9e-3),
    "more thrust than there is": (5.0 * FULL, 1e-3, 2e-3, 1e-4),
    "less than none": (-1.0, 1e-3, 2e-3, 1e-4),
}


@pytest.mark.parametrize("wanted", MIXED.values(), ids=list(MIXED))
def test_the_mixer_s_adjoint_is_that_of_differences(wanted: tuple[float, ...]) -> None:
    nominal, g = tuple(map(float, NOMINAL)), np.random.default_rng(0).standard_normal(4)
    unit = np.array([FULL, 1e-3, 1e-3, 1e-3])  # N, N m: differences of like size
    got = vjp.mixer_vjp(*wanted, nominal, *g)
    found = differences(lambda z: float(g @ physics.mixer(*(z * unit), nominal)), np.array(wanted) / unit)
    np.testing.assert_allclose(np.array(got) * unit, found, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_a_physics_step_s_adjoint_is_that_of_differences(seed: int) -> None:
    s, u = starts(1, seed)[0].astype(float), commands(1, 1, seed)[0, 0].astype(float)
    if seed % 4 == 1:
        s[2], s[9] = 0.001, -1.0  # comes down within the step
    p, nominal = tuple(map(float, PARAMS[0])), tuple(map(float, NOMINAL))
    g = np.random.default_rng(seed + 100).standard_normal(physics.STATE_SIZE)
    got = vjp.rates_step_vjp(tuple(s), *u, p, nominal, DT, tuple(g))

    def after(z: np.ndarray) -> tuple[float, ...]:
        return vjp.rates_step(tuple(z[:17]), *z[17:], p, nominal, DT)

    found = differences(lambda z: float(g @ after(z)), np.array([*s, *u]))
    np.testing.assert_allclose(got, found, rtol=1e-5, atol=1e-6)
    assert (after(np.array([*s, *u]))[2] == 0.0) == (seed % 4 == 1)


def test_a_curve_without_a_root_has_no_gradient() -> None:
    nominal = tuple(float(x) for x in NOMINAL[:3]) + (0.1, 0.0, 0.1) + tuple(float(x) for x in NOMINAL[6:])
    assert vjp.thrust_to_speed_vjp(0.05, nominal, 1.0) == 0.0  # thrust below that of rotors at rest
    assert vjp.thrust_to_speed_vjp(0.15, nominal, 1.0) > 0.0


@pytest.mark.slow
def test_a_plan_flies_as_the_backend_does_onto_the_ground() -> None:
    n, steps = 21, 60
    s, u = starts(n), commands(steps, n)
    u[:, ::3, 0] = 0.0  # these fall
    s[1::3, 3:], u[:, 1::3] = (1, *[0] * 9, *[0.8] * 4), (0.5, 0, 0, 0)  # these rise
    backend = quadrotor.make(ROBOT, n, "ctbr_cmd", dt=DT, threads=1)
    named = DISTURBED | {"command_delay": (0.0,)}
    backend.set_params(torch.arange(n), {k: torch.tensor(v).expand(n, -1).squeeze(-1) for k, v in named.items()})
    ends = np.cumsum([0, *FIELDS.values()])
    backend.reset(torch.arange(n), {k: torch.from_numpy(s[:, a:b]) for k, a, b in zip(FIELDS, ends, ends[1:])})
    trace = adjoint.rollout(s, u, many(n), NOMINAL, DT, SUBSTEPS)
    for t in range(steps):
        backend.step(torch.from_numpy(u[t]), SUBSTEPS)
        row = np.concatenate([backend.signals()[k].numpy() for k in FIELDS], 1)
        np.testing.assert_allclose(trace[t + 1], row, rtol=2e-3, atol=2e-3)
    assert (trace[-1, ::3, 2] == 0.0).all() and (trace[-1, 1::3, 2] > s[1::3, 2]).all()


@pytest.mark.slow
def test_a_plan_s_adjoint_is_that_of_its_steps() -> None:
    """Over whole control steps, with cotangents at each: the scalar adjoint in float64, step after step."""
    n, steps = 3, 4
    s, u = starts(n), commands(steps, n)
    trace = adjoint.rollout(s, u, many(n), NOMINAL, DT, SUBSTEPS)
    g = np.random.default_rng(4).standard_normal(trace.shape).astype(np.float32)
    d_start, d_commands = adjoint.rollout_vjp(trace, u, many(n), NOMINAL, DT, SUBSTEPS, g)
    p, nominal = tuple(map(float, PARAMS[0])), tuple(map(float, NOMINAL))
    for w in range(n):
        total = g[-1, w].astype(float)
        for t in range(steps - 1, -1, -1):
            passed = [tuple(trace[t, w].astype(float))]
            for _ in range(SUBSTEPS - 1):
                passed.append(vjp.rates_step(passed[-1], *u[t, w].astype(float), p, nominal, DT))
            command = np.zeros(4)
            for state in reversed(passed):
                d = vjp.rates_step_vjp(state, *u[t, w].astype(float), p, nominal, DT, tuple(total))
                total, command = np.array(d[:17]), command + d[17:]
            np.testing.assert_allclose(d_commands[t, w], command, rtol=1e-3, atol=1e-4)
            total += g[t, w]
        np.testing.assert_allclose(d_start[w], total, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_free_fall_has_the_textbook_sensitivity() -> None:
    """Without thrust and drag, p(T) = p0 + v0 T + ...: dp/dp0 = 1 and dp/dv0 = T."""
    still = adjoint.robot_params(ROBOT) | {"thrust_curve": (0.0, 0.0, 0.0), "drag": (0.0, 0.0, 0.0)}
    start, steps = np.zeros((1, physics.STATE_SIZE), np.float32), 25
    start[0, physics.PZ], start[0, physics.QW] = 10.0, 1.0
    given = np.zeros((steps, 1, 4), np.float32), adjoint.pack_params(still, 1), NOMINAL, DT, SUBSTEPS
    trace = adjoint.rollout(start, *given)
    g = np.zeros_like(trace)
    g[-1, 0, physics.PZ] = 1
    d_start, _ = adjoint.rollout_vjp(trace, *given, g)
    time = steps * SUBSTEPS * DT
    assert d_start[0, physics.PZ] == pytest.approx(1)
    assert d_start[0, physics.VZ] == pytest.approx(time, rel=1e-5)
    assert trace[-1, 0, physics.PZ] == pytest.approx(10.0 - 0.5 * 9.81 * time**2, rel=1e-4)


@pytest.mark.slow
def test_a_place_is_no_number_from_where_a_command_is_none_and_a_height_that_is_none_stays_none() -> None:
    n, steps = 3, 6
    s, u = starts(n), commands(steps, n)
    s[2, physics.PZ], u[3, 1, 2] = np.nan, np.nan
    trace = adjoint.rollout(s, u, many(n), NOMINAL, DT, SUBSTEPS)
    assert np.isfinite(trace[:, 0]).all() and np.isfinite(trace[:4, 1]).all()
    assert np.isnan(trace[4:, 1, physics.PX]).all() and np.isnan(trace[:, 2, physics.PZ]).all()


@pytest.mark.slow
def test_torch_has_the_gradient_of_start_and_commands() -> None:
    n, steps = 5, 6
    trace = adjoint.rollout(starts(n), commands(steps, n), many(n), NOMINAL, DT, SUBSTEPS)
    d_start, d_commands = adjoint.rollout_vjp(trace, commands(steps, n), many(n), NOMINAL, DT, SUBSTEPS, 2 * trace)
    start, command = (torch.from_numpy(x).requires_grad_() for x in (starts(n), commands(steps, n)))
    states = adjoint.torch_rollout(start, command, torch.from_numpy(many(n)), torch.from_numpy(NOMINAL), DT, SUBSTEPS)
    states.square().sum().backward()
    assert torch.equal(states.detach(), torch.from_numpy(trace))
    np.testing.assert_allclose(start.grad, d_start, rtol=1e-5)
    np.testing.assert_allclose(command.grad, d_commands, rtol=1e-5)


@pytest.mark.parametrize(("changed", "told"), [
    ({"substeps": 0}, "substeps is 0"),
    ({"dt": 0.0}, "dt is 0.0 s"),
    ({"nominal": NOMINAL[:8]}, r"nominal has shape \(8,\), expected \(9,\)"),
    ({"start": starts(3)}, r"start has shape \(3, 17\), expected \(2, 17\)"),
    ({"commands": commands(4, 2)[0]}, r"commands have shape \(2, 4\), expected \[T, N, 4\]"),
    ({"params": np.where(np.arange(physics.PARAM_SIZE) == physics.RATE_GAIN_Y, 0, many(2))}, "rate_gain must be > 0"),
    ({"params": PARAMS}, r"params has shape \(1, 35\), expected \(2, 35\)"),
])  # fmt: skip
def test_bad_input_is_named(changed: dict, told: str) -> None:
    good = {"start": starts(2), "commands": commands(4, 2), "params": many(2), "nominal": NOMINAL, "dt": DT,
            "substeps": SUBSTEPS}
    with pytest.raises(ValueError, match=told):
        adjoint.rollout(**{**good, **changed})
