"""The hand-written adjoint of a physics step against automatic differentiation and central differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.robots.crazyflie.spec import L2F_PARAMETERS
from temporeal.robots.spec import load_robot
from temporeal.sim.physics.quadrotor import adjoint as adjoint
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import flight, vjp
from temporeal.sim.physics.quadrotor.parameters import nominal_params, pack_params

DT = 0.01
ROBOT = load_robot("crazyflie")
PARAMS = adjoint.robot_params(ROBOT) | {
    "motor_gain": (1.0, 0.9, 1.1, 1.05), "tau_up": (0.05,), "tau_down": (0.15,), "thrust_curve": (0.002, 0.01, 0.1),
    "inertia": (16e-6, 12e-6, 29e-6), "arm": (0.028, 0.033),
    "wind_w": (1.0, -2.0, 0.5), "force_w": (0.01, -0.02, 0.005), "torque_b": (1e-5, 2e-5, -1e-5),
}  # fmt: skip


def states(worlds: int, seed: int = 0) -> np.ndarray:
    """States away from every corner of the physics."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((worlds, physics.STATE_SIZE))
    s[:, 2] += 20.0  # far above the ground
    s[:, 3:7] /= np.linalg.norm(s[:, 3:7], axis=1, keepdims=True)
    s[:, 13:] = rng.uniform(0.3, 0.7, (worlds, 4))
    return s.astype(np.float32)


def commands(steps: int, worlds: int, seed: int = 1) -> np.ndarray:
    """Setpoints that are all well above or well below the rotor speeds of :func:`states`."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((steps, worlds, 4)) < 0.5, 0.1, 0.9).astype(np.float32)


# --- the same step in plain float64 torch, in matrix notation, written from the equations of motion -----------------


def torch_derivative(x: torch.Tensor, u: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
    q, v, w, n = x[:, 3:7], x[:, 7:10], x[:, 10:13], x[:, 13:]
    qw, qv = q[:, :1], q[:, 1:]
    skew = torch.zeros(len(x), 3, 3, dtype=x.dtype)
    skew[:, 2, 1], skew[:, 1, 2] = qv[:, 0], -qv[:, 0]
    skew[:, 0, 2], skew[:, 2, 0] = qv[:, 1], -qv[:, 1]
    skew[:, 1, 0], skew[:, 0, 1] = qv[:, 2], -qv[:, 2]
    turn = torch.eye(3, dtype=x.dtype) + 2 * qw[:, :, None] * skew + 2 * skew @ skew
    thrust = p["motor_gain"] * (p["thrust_curve"][0] + p["thrust_curve"][1] * n + p["thrust_curve"][2] * n**2)
    front, left = torch.tensor([1.0, -1, -1, 1]), torch.tensor([-1.0, -1, 1, 1])
    yaw = torch.tensor([-1.0, 1, -1, 1])
    torque = torch.stack([
        p["arm"][1] * (left * thrust).sum(1), -p["arm"][0] * (front * thrust).sum(1),
        p["torque_per_thrust"] * (yaw * thrust).sum(1),
    ], 1) + p["torque_b"]  # fmt: skip
    air = torch.einsum("nji,nj->ni", turn, v - p["wind_w"])
    force = torch.nn.functional.pad(thrust.sum(1, keepdim=True), (2, 0)) - p["drag"] * air
    acceleration = (torch.einsum("nij,nj->ni", turn, force) + p["force_w"]) / p["mass"]
    acceleration = acceleration - torch.tensor([0, 0, 9.81], dtype=x.dtype)
    spin = (torque - torch.linalg.cross(w, p["inertia"] * w)) / p["inertia"]
    dq = 0.5 * torch.cat([-(qv * w).sum(1, keepdim=True), qw * w + torch.linalg.cross(qv, w)], 1)
    lag = torch.where(u > n, p["tau_up"], p["tau_down"])
    return torch.cat([v, dq, acceleration, spin, (u - n) / lag], 1)


def torch_physics(x: torch.Tensor, u: torch.Tensor, params: dict) -> torch.Tensor:
    p = {name: torch.tensor(value, dtype=torch.float64) for name, value in params.items()}
    u = u.clamp(0, 1)
    a = torch_derivative(x, u, p)
    b = torch_derivative(x + DT / 2 * a, u, p)
    c = torch_derivative(x + DT / 2 * b, u, p)
    d = torch_derivative(x + DT * c, u, p)
    x = x + DT / 6 * (a + 2 * b + 2 * c + d)
    q = x[:, 3:7] / x[:, 3:7].norm(dim=1, keepdim=True)
    return torch.cat([x[:, :3], q, x[:, 7:13], x[:, 13:].clamp(0, 1)], 1)


@pytest.mark.parametrize("params", [PARAMS, L2F_PARAMETERS], ids=["drag and wind", "L2F"])
def test_step_and_adjoint_equal_torch(params: dict) -> None:
    params = {k: v for k, v in params.items() if k != "rate_gain"}
    full = {name: params.get(name, adjoint.OPTIONAL.get(name)) for name in (*adjoint.CHECKED, *adjoint.OPTIONAL)}
    n = 9
    s, u = states(n).astype(float), commands(1, n)[0].astype(float)
    u[:3] = 1.2  # beyond the limit: no gradient to the command
    g = np.random.default_rng(2).standard_normal(s.shape)
    p = tuple(map(float, adjoint.pack_params(full, 1)[0]))
    x, c = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (s, u))
    y = torch_physics(x, c, full)
    y.backward(torch.tensor(g, dtype=torch.float64))
    for w in range(n):
        after = physics.motor_step(tuple(s[w]), *u[w], p, DT, True)
        np.testing.assert_allclose(after, y[w].detach().numpy(), rtol=1e-5, atol=2e-6)
        d = vjp.motor_step_vjp(tuple(s[w]), *u[w], p, DT, True, tuple(g[w]))
        np.testing.assert_allclose(d[:17], x.grad[w].numpy(), rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(d[17:], c.grad[w].numpy(), rtol=1e-4, atol=2e-5)
        assert w >= 3 or not any(d[17:])


@pytest.mark.parametrize("dragged", [False, True])
def test_scalar_adjoint_equals_central_differences_in_float64(dragged: bool) -> None:
    p = tuple(map(float, adjoint.pack_params(PARAMS, 1)[0]))
    s, u = states(1)[0].astype(float), (0.9, 0.1, 0.9, 0.1)
    g = np.random.default_rng(3).standard_normal(physics.STATE_SIZE)
    got = vjp.motor_step_vjp(tuple(s), *u, p, DT, dragged, tuple(g))

    def objective(z: np.ndarray) -> float:
        return float(g @ physics.motor_step(tuple(z[:17]), *z[17:], p, DT, dragged))

    z = np.array([*s, *u])
    numeric = [(objective(z + 1e-6 * e) - objective(z - 1e-6 * e)) / 2e-6 for e in np.eye(21)]
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8)


def test_packed_parameters_equal_the_backends() -> None:
    values = {name: torch.tensor([value]) for name, value in nominal_params(ROBOT).items()}
    ours, theirs = adjoint.pack_params(adjoint.robot_params(ROBOT), 1)[0], pack_params(values)[0].numpy()
    np.testing.assert_allclose(ours[: physics.DELAY], theirs[: physics.DELAY], rtol=1e-6)


def test_blocks_and_rows_are_inverse() -> None:
    rows = np.arange(2 * 37 * 5, dtype=np.float32).reshape(2, 37, 5)
    blocks = adjoint.to_blocks(rows)
    assert blocks.shape == (2, 3, 5, 16)
    assert blocks[1, 2, 3, 4] == rows[1, 36, 3]
    np.testing.assert_array_equal(adjoint.from_blocks(blocks, 37), rows)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="mas.*missing"):
        adjoint.pack_params({"mas": 1.0}, 1)
    with pytest.raises(ValueError, match="mass must be > 0"):
        adjoint.pack_params(dict(L2F_PARAMETERS) | {"mass": (0.0,)}, 1)
    with pytest.raises(ValueError, match="finite"):
        adjoint.pack_params(dict(L2F_PARAMETERS) | {"drag": (np.nan, 0.0, 0.0)}, 1)


def test_flight_kernels_write_the_documented_observation() -> None:
    """Rotation of 90 degrees about z, a reference off the origin, one preview, two past actions."""
    reference = np.zeros((3, flight.REFERENCE), np.float32)
    reference[:, 0], reference[:, 3], reference[:, 8] = (1, 2, 4), 1, 0.5
    state = np.zeros((16, 17), np.float32)
    state[:, :3], state[:, 3], state[:, 6] = (1.5, 0, 3), 0.5**0.5, 0.5**0.5
    state[:, 7:13], state[:, 13:] = (1, 2, 3, 4, 5, 6), 0.75
    packed = adjoint.pack_params(L2F_PARAMETERS, 16)
    packed[:, physics.FORCE_X] = 0.2
    objective = np.zeros(flight.OBJECTIVE_SIZE, np.float32)
    objective[[flight.FORCE_SCALE, flight.TORQUE_SCALE]] = 10.0
    obs, features = np.full((16, 18 + 3 + 8), 7, np.float32), np.zeros((16, 18 + 10 + 3), np.float32)
    flight.observe(
        adjoint.to_blocks(state).reshape(-1), adjoint.to_blocks(packed).reshape(-1), objective, reference,
        np.zeros(16, np.int64), np.array([2]), np.zeros((16, 18), np.float32), obs, features,
    )  # fmt: skip
    sensed = [0.5, 0, 3, 0, -1, 0, 1, 0, 0, 0, 0, 1, 1, 1.5, 3, 4, 5, 6]
    np.testing.assert_allclose(obs[3], sensed + [3, 0, 0] + [7] * 8, atol=1e-6)
    np.testing.assert_allclose(features[3], sensed + [0.5] * 4 + [2, 0, 0, 0, 0, 0, 3, 0, 0], atol=1e-6)
