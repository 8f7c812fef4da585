"""Residual dynamics in the simulator's kernels: the numpy reference, drawn members, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.env import make_env
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.parameters import nominal_params
from temporeal.sim.physics.quadrotor.residual import ensemble as reference
from temporeal.sim.physics.quadrotor.residual import residual_file
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble
from temporeal.sim.physics.quadrotor.residual.residual_file import NEEDED, Residual, WrongResidual
from temporeal.sim.task import load_task

ROBOT = load_robot("crazyflie")


def made(members: int = 3, hidden: int = 6, far: float = 60.0) -> Residual:
    """Residual dynamics of random weights around hover."""
    rng = np.random.default_rng(3)
    shapes = ((hidden, 10), (hidden, hidden), (6, hidden))
    net = Ensemble(np.array([0.0] * 6 + [0.6] * 4), np.tril(0.2 * rng.normal(size=(10, 10)) + np.eye(10)), 5.0, far,
                   np.array([1.0, 2.0, 3.0, 10.0, 20.0, 5.0]),
                   tuple(rng.normal(size=(members, *shape)) for shape in shapes),
                   tuple(rng.normal(size=(members, shape[0])) for shape in shapes))
    under = {name: {key: [float(x) for x in value] for key in ("value", "low", "high")}
             for name, value in nominal_params(ROBOT).items() if name in NEEDED}
    return Residual(ROBOT.name, ({"name": "made", "sha256": "0" * 64, "seconds": 1.0},), False, under,
                    {name: dict.fromkeys(terms, 0.1) for name, terms in residual_file.OF_NOISE.items()},
                    dict.fromkeys(residual_file.OF_TRAINING, 1.0), net)


def saved(path: Path, residual: Residual) -> str:
    residual_file.write(path, residual, "none")
    return str(path)


def stepped(residual: Residual, state: tuple[float, ...], command: list[float], share: np.ndarray, dt: float,
            steps: int) -> tuple[float, ...]:
    """The reference: float64, one world, members weighed by ``share``."""
    p = np.zeros(physics.PARAM_SIZE)
    from temporeal.sim.physics.quadrotor.parameters import pack_params

    p[:] = pack_params({n: torch.tensor([v]) for n, v in nominal_params(ROBOT).items()})[0].double().numpy()
    for _ in range(steps):
        w, x, y, z = state[3:7]
        turn = np.array([[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                         [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                         [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]])
        told = np.concatenate([turn.T @ state[7:10], state[10:13], state[13:17]])
        push = share @ reference.accelerations(residual.ensemble, told[None])[:, 0]
        q = p.copy()
        q[physics.FORCE_X : physics.FORCE_Z + 1] += turn @ push[:3] / p[physics.INV_MASS]
        q[physics.TORQUE_X : physics.TORQUE_Z + 1] += push[3:] * p[physics.JX : physics.JZ + 1]
        state = physics.motor_step(state, *command, tuple(q), dt, True)
    return state


def states(count: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(1)
    quat = np.concatenate([np.ones((count, 1)), 0.2 * rng.normal(size=(count, 3))], 1)
    given = {"base_pos_w": rng.uniform(1, 2, (count, 3)), "base_vel_w": 0.7 * rng.normal(size=(count, 3)),
             "base_quat_w": quat / np.linalg.norm(quat, axis=1)[:, None],
             "base_ang_vel_b": rng.normal(size=(count, 3)), "rotor_speed": rng.uniform(0.5, 0.7, (count, 4))}
    return {name: torch.tensor(value).float() for name, value in given.items()}


@pytest.mark.parametrize("choice", ["drawn", "mean"])
def test_the_kernel_is_the_reference(tmp_path: Path, choice: str) -> None:
    count, residual = 19, made()
    backend = make(ROBOT, count, "motor_cmd", dt=0.002, threads=1, seed=5, residual_members=choice,
                   residual_dynamics=saved(tmp_path / "r.yaml", residual))
    begin = states(count)
    backend.reset(torch.arange(count), begin)
    member = backend.state()["residual.member"].numpy()
    assert choice == "mean" or len(set(member)) == 3
    command = [0.6, 0.62, 0.58, 0.61]
    backend.step(torch.tensor(command).expand(count, 4).contiguous(), 4)
    found = {name: value.double().numpy() for name, value in backend.signals().items()}
    plain = make(ROBOT, count, "motor_cmd", dt=0.002, threads=1)
    plain.reset(torch.arange(count), begin)
    plain.step(torch.tensor(command).expand(count, 4).contiguous(), 4)
    moved = np.abs(found["base_ang_vel_b"] - plain.signals()["base_ang_vel_b"].numpy()).max()
    assert moved > 0.02
    for k in range(count):
        first = tuple(float(x) for name in ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "rotor_speed")
                      for x in begin[name][k])
        share = np.eye(3)[member[k]] if choice == "drawn" else np.full(3, 1 / 3)
        out = stepped(residual, first, command, share, 0.002, 4)
        np.testing.assert_allclose(found["base_ang_vel_b"][k], out[10:13], atol=2e-5)
        np.testing.assert_allclose(found["base_vel_w"][k], out[7:10], atol=2e-5)


def test_body_rate_commands_are_flown_with_it_too(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.yaml", made())
    out = []
    for given in ("", path):
        backend = make(ROBOT, 3, "ctbr_cmd", dt=0.002, threads=1, residual_dynamics=given)
        backend.reset(torch.arange(3), states(3))
        backend.step(torch.tensor([[0.3, 0.0, 0.0, 0.0]] * 3), 5)
        out.append(backend.signals()["base_vel_w"].clone())
    assert (out[0] - out[1]).abs().max() > 1e-3


def test_far_from_its_data_it_is_silent() -> None:
    net = made().ensemble
    near, away = np.zeros((1, 10)) + net.mean, np.zeros((1, 10)) + net.mean + 30
    assert np.abs(reference.accelerations(net, near)).max() > 0
    assert not reference.accelerations(net, away).any()
    assert (np.abs(reference.accelerations(net, net.mean + np.random.default_rng(0).normal(size=(500, 10))))
            <= net.bound).all()


def test_another_member_flies_in_another_episode_and_a_state_brings_it_back(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.yaml", made(members=5))
    backend = make(ROBOT, 400, "motor_cmd", dt=0.002, threads=1, seed=7, residual_dynamics=path)
    every = torch.arange(400)
    first = backend.state()["residual.member"].clone()
    kept = backend.state()
    backend.reset(every, {})
    second = backend.state()["residual.member"].clone()
    assert 0.1 < (first == second).float().mean() < 0.3  # one in five
    assert torch.bincount(second, minlength=5).min() > 40
    backend.set_state(kept)
    backend.reset(every, {})
    assert torch.equal(second, backend.state()["residual.member"])


def test_a_world_taken_out_flies_on_as_it_did(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.yaml", made(members=5))
    many = make(ROBOT, 40, "motor_cmd", dt=0.002, threads=1, seed=7, residual_dynamics=path)
    many.reset(torch.arange(40), states(40))
    one = make(ROBOT, 1, "motor_cmd", dt=0.002, threads=1, residual_dynamics=path)
    one.set_state(many.extract(33))
    command = torch.full((40, 4), 0.6)
    many.step(command, 3)
    one.step(command[:1].clone(), 3)
    assert torch.equal(many.signals()["base_vel_w"][33], one.signals()["base_vel_w"][0])


def test_other_physics_under_it_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.yaml", made())
    backend = make(ROBOT, 2, "motor_cmd", dt=0.002, threads=1, residual_dynamics=path)
    backend.set_params(torch.arange(2), {"wind_w": torch.ones(2, 3)})
    with pytest.raises(WrongResidual, match="mass is 0.05"):
        backend.set_params(torch.arange(2), {"mass": torch.tensor([0.0319, 0.05])})
    was = {name: value.clone() for name, value in backend.params().items()}
    with pytest.raises(WrongResidual, match="drag"):  # and nothing of it is written
        backend.set_params(torch.arange(2), {"mass": 1.00001 * was["mass"], "drag": was["drag"] + 1})
    assert torch.equal(backend.params()["mass"], was["mass"])


def test_randomization_beyond_its_physics_is_refused_before_anything_flies(tmp_path: Path) -> None:
    task = load_task("hover")
    options = {"residual_dynamics": saved(tmp_path / "r.yaml", made())}
    drawn = {"mass": {"kind": "uniform", "low": 0.0319, "high": 0.04}}
    with pytest.raises(WrongResidual, match="mass is 0.04"):
        make_env(task, num_worlds=2, threads=1, options=options, randomize=drawn)
    grown = {"kind": "linear", "episodes": 9,
             "parameters": {"mass": {"as": "scale", "low": 0.9, "high": 1.2, "first": 1.0}}}
    with pytest.raises(WrongResidual, match="mass is"):  # at its end, not at its beginning
        make_env(task, num_worlds=2, threads=1, options=options, curriculum=grown)
    make_env(task, num_worlds=2, threads=1, options=options, randomize={"force_w": {"kind": "normal", "std": 0.1}})


@pytest.mark.parametrize(("change", "says"), [
    (lambda d: d.pop("logs"), "needed are"),
    (lambda d: d.update(version=2), "is read"),
    (lambda d: d.update(logs=[]), "logs"),
    (lambda d: d["logs"][0].update(sha256=3), "sha256"),
    (lambda d: d["physics"]["mass"].update(value=[-1.0], low=[-1.0]), "physics.mass"),
    (lambda d: d["physics"].pop("drag"), "physics"),
    (lambda d: d["physics"]["mass"].update(high=[0.03]), "between low and high"),
    (lambda d: d.update(noise={}), "noise has"),
    (lambda d: d["noise"]["turning"].pop("seconds"), "noise.turning"),
    (lambda d: d["noise"]["rates"].pop("y"), "noise.rates"),
    (lambda d: d["noise"]["attitude"].update(seconds=0), "noise.attitude.seconds"),
    (lambda d: d["ensemble"].update(whiten=[[0.0] * 10] * 10), "lower triangular"),
    (lambda d: d["ensemble"]["whiten"][2].__setitem__(7, 0.1), "lower triangular"),
    (lambda d: d["ensemble"]["whiten"][2].__setitem__(2, -1.0), "diagonal"),
    (lambda d: d["ensemble"].update(far=1e5), "4000"),
    (lambda d: d["ensemble"].update(hidden=4), "shape"),
    (lambda d: d["ensemble"].update(bound=[50.0] * 6), "no residual"),
    (lambda d: d["ensemble"].update(near=99.0, far=9.0), "near"),
    (lambda d: d["ensemble"]["members"][1].update(b1=[float("nan")] * 6), "finite"),
    (lambda d: d["ensemble"]["members"][1].update(b3=[1e9] * 6), "finite numbers"),
    (lambda d: d["ensemble"].update(members=[]), "members"),
    (lambda d: d.update(slow_commands="no"), "slow_commands"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, change, says: str) -> None:
    what = residual_file.content(made(), "none")
    change(what)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(what))
    with pytest.raises(WrongResidual, match=says):
        residual_file.read(tmp_path / "r.yaml")


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    wanted = made()
    found = residual_file.read(Path(saved(tmp_path / "r.yaml", wanted)))
    np.testing.assert_allclose(found.ensemble.packed(), wanted.ensemble.packed(), rtol=1e-8)
    assert (found.robot, found.logs, found.slow_commands) == (wanted.robot, wanted.logs, wanted.slow_commands)


def test_another_robot_shared_worlds_and_slow_commands_are_said(tmp_path: Path) -> None:
    other = saved(tmp_path / "other.yaml", replace(made(), robot="another"))
    with pytest.raises(WrongResidual, match="another"):
        make(ROBOT, 1, "motor_cmd", dt=0.002, residual_dynamics=other)
    path, light = saved(tmp_path / "r.yaml", made()), made()
    light.physics["mass"].update(dict.fromkeys(("value", "low", "high"), [0.001]))
    with pytest.raises(WrongResidual, match="physics.mass"):
        make(ROBOT, 1, "motor_cmd", dt=0.002, residual_dynamics=saved(tmp_path / "light.yaml", light))
    with pytest.raises(ValueError, match="shared"):
        make(ROBOT, 1, "motor_cmd", dt=0.002, shared=True, residual_dynamics=path)
    with pytest.raises(LookupError, match="residual_members"):
        make(ROBOT, 1, "motor_cmd", dt=0.002, residual_dynamics=path, residual_members="all")
    slow = saved(tmp_path / "slow.yaml", replace(made(), slow_commands=True))
    with pytest.warns(UserWarning, match="more slowly"):
        make(ROBOT, 1, "motor_cmd", dt=0.002, residual_dynamics=slow)
