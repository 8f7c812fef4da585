"""The analytic policy gradient: its gradient is that of the cost it says, it learns, and it repeats itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.algos import apg
from temporeal.policies.algos.apg import Actor, APGConfig, Critic, Window
from temporeal.policies.training.apg import flight as apg_flight
from temporeal.policies.training.apg.flight import Cost, Flight
from temporeal.policies.training.apg.networks import Adam, Mlp
from temporeal.policies.training.apg.worlds import Worlds

ROOT = Path(__file__).parents[3]
SMALL = APGConfig(worlds=16, window=12, updates=4, hidden=(8, 8), critic_hidden=(8,))
QUIET = Flight(noise_position=0, noise_rotation=0, noise_velocity=0, noise_rate=0, history=3)
CIRCLE = np.stack([np.cos(np.arange(200) * np.pi / 100), np.sin(np.arange(200) * np.pi / 100), np.zeros(200)], -1)


def objective(worlds: Worlds, window: Window, critic: Critic | None) -> float:
    """What :meth:`Window.gradient` says it differentiates, of the window just flown, in float64."""
    total = (window.decay[:-1] * worlds.alive[:-1] * worlds.cost).sum(dtype=np.float64)
    if critic:
        value, _ = critic.value(critic.target, worlds.features[-1])
        total += (window.decay[-1] * worlds.alive[-1] * value).sum(dtype=np.float64)
    return float(total)


@pytest.mark.parametrize("flight", [
    QUIET,
    dataclasses.replace(QUIET, history=0),
    dataclasses.replace(
        QUIET, reference=apg_flight.flat_reference(0.3 * CIRCLE, 0.01, cyclic=True), cyclic=True, preview=(5,)),
], ids=["hover", "no past actions", "moving reference"])  # fmt: skip
@pytest.mark.parametrize("with_critic", [False, True])
def test_gradient_equals_central_differences(flight: Flight, with_critic: bool) -> None:
    rng = np.random.default_rng(0)
    actor = Mlp.drawn((flight.obs_dim, *SMALL.hidden, 4), rng)
    worlds = Worlds(flight, SMALL, rng)
    window = Window(worlds, actor, SMALL)
    critic = Critic(flight, SMALL, rng) if with_critic else None
    window.fly()
    grad = window.gradient(critic)
    assert worlds.alive[-1].mean() > 0.5, "the window must not be trivial"
    directions = [grad / np.linalg.norm(grad)]
    directions += [d / np.linalg.norm(d) for d in rng.standard_normal((3, grad.size)) + 20 * directions[0]]
    start = actor.flat.copy()
    for d in directions:
        ends = []
        for sign in (1, -1):
            actor.flat[:] = start + sign * np.float32(1e-2) * d.astype(np.float32)
            window.fly()
            ends.append(objective(worlds, window, critic))
        numeric = (ends[0] - ends[1]) / 2e-2
        assert numeric == pytest.approx(float(grad @ d), rel=2e-2)


def test_no_gradient_from_beyond_the_fence() -> None:
    """A world that has left the fence has no more cost: the window's gradient does not see its steps."""
    flight = dataclasses.replace(QUIET, fence=0.3, start_velocity=3.0)
    rng = np.random.default_rng(1)
    worlds = Worlds(flight, SMALL, rng)
    window = Window(worlds, Mlp.drawn((flight.obs_dim, *SMALL.hidden, 4), rng), SMALL)
    window.fly()
    gone = worlds.alive[:-1] == 0
    assert gone.any() and not gone.all()
    before = window.gradient(None)
    worlds.cost[gone] = 1e9
    np.testing.assert_array_equal(window.gradient(None), before)


def test_returns_by_hand() -> None:
    config = dataclasses.replace(SMALL, discount=0.5, td_lambda=0.5, leave_cost=8.0)
    critic = Critic(QUIET, config, np.random.default_rng(0))
    cost = np.array([[1.0, 1.0], [2.0, 2.0]], np.float32)
    values = np.array([[9.0, 9.0], [4.0, 4.0], [6.0, 6.0]], np.float32)
    alive = np.array([[1, 1], [1, 1], [1, 0]], np.float32)
    # world 0: G1 = 2 + .5 * 6 = 5, G0 = 1 + .5 (.5 * 4 + .5 * 5) = 3.25; world 1 leaves: G1 = 2 + .5 * 8 = 6
    np.testing.assert_allclose(critic.returns(cost, alive, values), [[3.25, 3.5], [5.0, 6.0]])


def test_critic_learns_the_value_of_a_constant_cost() -> None:
    """Cost 1 at every step for ever is worth 1 / (1 - discount)."""
    config = dataclasses.replace(SMALL, discount=0.5, critic_steps=20, critic_learning_rate=1e-2)
    rng = np.random.default_rng(0)
    worlds = Worlds(QUIET, config, rng)
    worlds.fly(lambda t: None, 0.01)
    worlds.cost[:], worlds.alive[:] = 1.0, 1.0
    critic = Critic(QUIET, config, rng)
    for _ in range(30):
        critic.fit(worlds, 1.0)
    value, _ = critic.value(critic.target, worlds.features[0])
    np.testing.assert_allclose(value, 2.0, atol=0.1)


def test_adam_equals_torch() -> None:
    rng = np.random.default_rng(0)
    value = rng.standard_normal(7).astype(np.float32)
    reference = torch.tensor(value, requires_grad=True)
    ours, theirs = Adam(7), torch.optim.Adam([reference], lr=0.01)
    for _ in range(5):
        grad = rng.standard_normal(7).astype(np.float32)
        ours.step(value, grad, 0.01)
        reference.grad = torch.from_numpy(grad)
        theirs.step()
    np.testing.assert_allclose(value, reference.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_worlds_start_as_described() -> None:
    config = dataclasses.replace(SMALL, worlds=4096)
    flight = Flight(spread={"mass": 0.1})
    worlds = Worlds(flight, config, np.random.default_rng(0))
    s = worlds.states[0].reshape(-1, 17, 16).swapaxes(1, 2).reshape(-1, 17)
    assert (s[:, 3:7] == [1, 0, 0, 0]).all(1).mean() == pytest.approx(0.1, abs=0.02)
    angle = 2 * np.arccos(np.abs(s[:, 3]).clip(0, 1))
    assert np.pi / 2 - 0.05 < angle.max() <= np.pi / 2 + 1e-3
    # mean of angle under (1 - cos) on [0, pi/2]: (pi^2/8 - (pi/2 - 1)) / (pi/2 - 1)
    away = angle[angle > 0]
    assert away.mean() == pytest.approx((np.pi**2 / 8 - np.pi / 2 + 1) / (np.pi / 2 - 1), abs=0.02)
    assert np.abs(s[:, :3]).max() <= 0.2 and np.abs(s[:, 7:13]).max() <= 1.0 and (s[:, 13:] == 0.5).all()
    p = worlds.params.reshape(-1, 35, 16).swapaxes(1, 2).reshape(-1, 35)
    mass = 1 / p[:, 0]
    assert 0.9 * 0.027 <= mass.min() < 0.0245 and 0.0295 < mass.max() <= 1.1 * 0.027 + 1e-6
    assert p[:, 25:28].std() == pytest.approx(0.027 * 9.81 / 20, rel=0.05)
    assert not worlds.obs[0, :, 18:].any()  # half rotor speed is action zero


def test_past_actions_are_seen_newest_first() -> None:
    rng = np.random.default_rng(0)
    worlds = Worlds(QUIET, SMALL, rng)
    given = rng.uniform(-1, 1, worlds.action.shape).astype(np.float32)
    worlds.fly(lambda t: worlds.action.__setitem__(t, given[t]), 0.01)
    seen = worlds.obs[5, :, 18:].reshape(16, 3, 4)
    np.testing.assert_array_equal(seen, np.stack([given[4], given[3], given[2]], 1))


def test_ended_episodes_start_anew_and_others_go_on() -> None:
    flight = dataclasses.replace(QUIET, fence=0.3, start_velocity=3.0)
    worlds = Worlds(flight, SMALL, np.random.default_rng(1))
    worlds.fly(lambda t: None, 0.01)
    gone, last = worlds.alive[-1] == 0, worlds.states[-1].reshape(17, 16).copy()
    assert gone.any() and not gone.all()
    worlds.carry()
    first = worlds.states[0].reshape(17, 16)
    np.testing.assert_array_equal(first[:, ~gone], last[:, ~gone])
    assert (np.abs(first[:3, gone]) <= 0.2).all() and (worlds.count == np.where(gone, 0, SMALL.window)).all()
    assert len(worlds.lengths) == gone.sum() and max(worlds.lengths) <= SMALL.window


@pytest.mark.parametrize("critic", [False, True])
def test_equal_seeds_give_equal_actors_and_others_do_not(critic: bool) -> None:
    config = dataclasses.replace(SMALL, critic=critic)
    first, again, other = (apg.train(QUIET, config, seed=s).actor.net.flat for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def mean_flight(actor: Actor) -> float:
    """Mean number of control steps, of 200, that 64 fresh worlds stay within the fence."""
    worlds = Worlds(Flight(), APGConfig(window=200), np.random.default_rng(100))
    worlds.fly(lambda t: worlds.action.__setitem__(t, actor.act(worlds.obs[t])), 0.01)
    return float(worlds.alive[1:].sum(0).mean())


@pytest.mark.slow
@pytest.mark.parametrize("critic", [False, True])
def test_a_short_training_learns_to_stay_in_the_air(critic: bool) -> None:
    config = APGConfig(updates=120, critic=critic)
    untrained = apg.train(Flight(), dataclasses.replace(config, updates=1), seed=0).actor
    trained = apg.train(Flight(), config, seed=0).actor
    assert mean_flight(untrained) < 80
    assert mean_flight(trained) > 150


def test_torch_actor_is_the_same_function_and_files_keep_it(tmp_path: Path) -> None:
    actor = Actor(Mlp.drawn((QUIET.obs_dim, 8, 8, 4), np.random.default_rng(0)))
    obs = np.random.default_rng(1).standard_normal((5, QUIET.obs_dim)).astype(np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(actor.to_actor()(torch.from_numpy(obs)).numpy(), actor.act(obs), atol=1e-6)
    apg.save(tmp_path / "a.npz", actor, {"seed": 0})
    np.testing.assert_array_equal(apg.load(tmp_path / "a.npz").act(obs), actor.act(obs))


def test_flat_reference_of_a_circle() -> None:
    """On a level circle of radius r at angular speed s the thrust axis leans inward by atan(r s^2 / g)."""
    rows = np.array(apg_flight.flat_reference(CIRCLE, 0.01, cyclic=True))  # once around in 2 s, radius 1 m
    speed = np.pi
    np.testing.assert_allclose(np.linalg.norm(rows[:, 7:10], axis=1), speed, rtol=1e-3)
    w, x, y, z = rows[:, 3:7].T
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], -1)
    lean = np.arctan(speed**2 / 9.81)
    np.testing.assert_allclose(axis[:, :2], -np.sin(lean) * CIRCLE[:, :2], atol=1e-3)
    np.testing.assert_allclose(axis[:, 2], np.cos(lean), atol=1e-3)
    # the rates turn the attitude of one row into that of the next
    dq = 0.005 * np.stack([-x * rows[:, 10] - y * rows[:, 11] - z * rows[:, 12],
                           w * rows[:, 10] + y * rows[:, 12] - z * rows[:, 11],
                           w * rows[:, 11] + z * rows[:, 10] - x * rows[:, 12],
                           w * rows[:, 12] + x * rows[:, 11] - y * rows[:, 10]], -1)  # fmt: skip
    np.testing.assert_allclose(np.roll(rows[:, 3:7], -1, 0), rows[:, 3:7] + dq, atol=1e-3)


@pytest.mark.parametrize(("make", "told"), [
    (lambda: APGConfig(worlds=20), "worlds is 20"),
    (lambda: APGConfig(window=0), "window is 0"),
    (lambda: APGConfig(discount=1.5), "discount is 1.5"),
    (lambda: Flight(reference=((0.0,) * 13,)), "unit length"),
    (lambda: Flight(reference=((0.0,) * 12,)), "reference has shape"),
    (lambda: Flight(preview=(0,)), "preview"),
    (lambda: Flight(fence=0.0), "fence is 0.0"),
    (lambda: Mlp.of((3, 2), np.zeros(4, np.float32)), "8 parameters"),
    (lambda: apg_flight.flat_reference(np.zeros((4, 2)), 0.01), "positions"),
])  # fmt: skip
def test_bad_input_is_named(make, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_cost_by_hand() -> None:
    cost = Cost(position=1, attitude=2, velocity=3, rate=4, action=5, hover=0.5, ceiling=1e6)
    flight = dataclasses.replace(QUIET, cost=cost, guidance=1.0, force_std=0.0, torque_std=0.0, start_rotor=0.5)
    worlds = Worlds(flight, SMALL, np.random.default_rng(0))
    worlds.fly(lambda t: worlds.action.__setitem__(t, 0.0), 0.01)  # rotors hold their speed: it falls straight
    speed, drop = -worlds.features[5, 0, 14], -worlds.features[5, 0, 2]
    assert speed > 0.1
    assert worlds.cost[4, 0] == pytest.approx(drop**2 + 3 * speed**2 + 5 * 4 * 0.25, rel=1e-4)


def test_command_writes_the_actor_and_its_past(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "actor.npz"
    small = ["--worlds", "16", "--window", "4", "--updates", "4", "--hidden", "8,8", "--critic", "false"]
    assert apg.main(["--out", str(out), "--seed", "2", "--every", "2", *small]) == 0
    with np.load(out) as data:
        np.testing.assert_array_equal(data["snapshot_update"], [2, 4])
        np.testing.assert_array_equal(data["snapshot_flat"][-1], apg.load(out).net.flat)
    with pytest.raises(SystemExit):
        apg.main(["--out", str(out), "--critic", "maybe"])
    assert "true or false" in capsys.readouterr().err
