"""On tabular problems every algorithm's fixed point is the exact solution."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.policies.offline import tabular

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline import awac, cql, iql, rebrac, recap, td3bc

SIZES = {"obs_dim": tabular.STATES, "action_dim": 1}
QUICK = {"hidden": (32,), "learning_rate": 1e-2, "target_rate": 0.1, "gamma": tabular.GAMMA}


def settled(algorithm, batch, updates: int) -> None:
    for _ in range(updates):
        algorithm.update(batch)


def generator() -> torch.Generator:
    torch.manual_seed(0)
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("tau", [pytest.param(0.5, marks=pytest.mark.slow), 0.9])
def test_iql_finds_the_expectile_over_the_datas_actions(tau: float) -> None:
    data = tabular.rows(tabular.BOTH)
    config = iql.IQLConfig(**QUICK, expectile=tau, temperature=1.0, updates=400)
    algorithm = iql.IQL(SIZES, config, generator())
    settled(algorithm, tabular.whole(data), 400)
    quality, value = tabular.in_sample(data, tau)
    with torch.no_grad():
        assert np.allclose(algorithm.quality(data.obs, data.action), quality, atol=0.02)
        assert np.allclose(algorithm.value(torch.eye(tabular.STATES)), value, atol=0.02)
        action = algorithm.actor(torch.eye(tabular.STATES))[:, 0]
    state = data.obs.argmax(1).numpy()
    weight = np.exp(quality - value[state])
    for s in range(tabular.STATES):
        here = state == s
        wanted = np.average(data.action[here, 0], weights=weight[here])
        assert action[s] == pytest.approx(wanted, abs=0.03)


def test_iql_with_tau_near_one_is_the_best_of_the_data_and_with_half_the_datas_own() -> None:
    data = tabular.rows(tabular.BOTH)
    assert np.allclose(tabular.in_sample(data, 0.5)[1], tabular.of_policy(data), atol=1e-9)
    quality, value = tabular.in_sample(data, 1.0 - 1e-9)
    state = data.obs.argmax(1).numpy()
    assert np.allclose(value, [quality[state == s].max() for s in range(tabular.STATES)], atol=1e-5)


@pytest.mark.parametrize("module, kind, own", [
    (td3bc, td3bc.TD3BC, {"alpha": 0.0, "policy_noise": 0.0}),
    pytest.param(rebrac, rebrac.ReBRAC, {"actor_penalty": 1e4, "critic_penalty": 1.0, "policy_noise": 0.0},
                 marks=pytest.mark.slow),
    pytest.param(awac, awac.AWAC, {}, marks=pytest.mark.slow),
])
def test_critics_solve_the_linear_equations_of_the_datas_policy(module, kind, own) -> None:
    """The data have one action in each state, so that the policy that stays near them is theirs."""
    data = tabular.rows(tabular.ONE_EACH)
    config = {"td3bc": td3bc.TD3BCConfig, "rebrac": rebrac.ReBRACConfig, "awac": awac.AWACConfig}[
        module.__name__.rpartition(".")[2]](**QUICK, **own)
    algorithm = kind(SIZES, config, generator())
    with torch.no_grad():
        algorithm.actor.log_std.fill_(-5.0)
    eye = torch.eye(tabular.STATES)
    follow = {0: -0.5, 1: 0.5, 2: 0.25}
    more = {"next_action": torch.tensor([[follow[int(s)]] for s in data.next_obs.argmax(1)]), "has_next": data.mask}
    settled(algorithm, tabular.whole(data, **more), 400)
    with torch.no_grad():
        action = algorithm.actor(eye)
        assert np.allclose(action[:, 0], list(follow.values()), atol=0.03)
        found = algorithm.quality(eye, torch.tensor([[a] for a in follow.values()]))
    assert np.allclose(found, tabular.of_policy(data), atol=0.04)


def bandit(actions: torch.Tensor, reward: torch.Tensor) -> Transitions:
    """One state, one step."""
    obs = torch.ones(len(actions), tabular.STATES)
    count = torch.arange(len(actions))
    return Transitions(obs, actions[:, None], reward, obs, torch.zeros(len(actions)), count,
                       torch.arange(len(actions) + 1))


@pytest.mark.slow
def test_cql_pushes_values_to_the_solution_of_its_objective() -> None:
    """Actions even over [-1, 1]: setting the derivative of ``E (Q - r)^2 + alpha (log int e^Q - E Q)`` to 0 gives
    ``Q = r + alpha / 2 - alpha e^Q / int e^Q``."""
    actions = torch.linspace(-1.0, 1.0, 64)
    data = bandit(actions, -2.0 * actions.square())
    config = cql.CQLConfig(**QUICK, conservatism=1.0, samples=20, temperature=1.0, policy_rate=3e-3)
    algorithm = cql.CQL(SIZES, config, generator())
    settled(algorithm, tabular.whole(data), 500)
    reward, exact = data.reward.numpy().astype(float), np.zeros(64)
    for _ in range(500):
        exact = 0.5 * exact + 0.5 * (reward + 0.5 - np.exp(exact) / (2.0 * np.exp(exact).mean()))
    with torch.no_grad():
        found = algorithm.quality(data.obs, data.action).mean(0).numpy()
    assert np.abs(found - exact).max() < 0.15
    assert np.abs(found - reward).max() > 0.3  # it is pushed


def test_the_integral_over_actions_of_a_constant_is_the_ranges_length() -> None:
    data = bandit(torch.zeros(16), torch.zeros(16))
    algorithm = cql.CQL(SIZES, cql.CQLConfig(samples=400, hidden=(8,)), generator())
    for p in algorithm.quality.parameters():
        p.data.zero_()
    assert torch.allclose(algorithm.integral(tabular.whole(data)), torch.tensor(2.0).log(), atol=0.15)


def test_cal_ql_pushes_no_value_below_what_was_earned() -> None:
    data = bandit(torch.zeros(8), torch.full((8,), 3.0))
    algorithm = cql.CQL(SIZES, cql.CQLConfig(samples=50, hidden=(8,), calibrated=True), generator())
    for p in algorithm.quality.parameters():
        p.data.zero_()
    pushed = algorithm.integral(tabular.whole(data, earned=data.reward))
    pushed.sum().backward()
    # two thirds of the samples stand for e^3 each: the gradient reaches the chance actions alone
    assert float(pushed.detach().mean()) == pytest.approx(np.log((np.exp(3.0) * 2 + 1) / 3 * 2.0), abs=0.25)


def test_recap_asks_for_the_actions_that_earned_more_than_was_expected() -> None:
    actions = torch.tensor([-0.6, -0.6, 0.0, 0.0, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6])
    data = bandit(actions, actions)
    config = recap.RECAPConfig(**QUICK, updates=400, value_share=0.5, positive=0.6, bins=11, lookahead=0,
                               normalize_observations=False)
    algorithm = recap.RECAP(SIZES, config, generator(), data)
    settled(algorithm, tabular.whole(data), 400)
    assert torch.allclose(algorithm.advantages(), actions - actions.mean(), atol=0.03)
    assert torch.equal(algorithm.labels() > 0, actions > 0)
    obs = data.obs[:1]
    with torch.no_grad():
        assert float(algorithm.actor(obs)) == pytest.approx(0.6, abs=0.05)
        refused = algorithm.actor.distribution(obs, torch.tensor([-1.0])).mean
    assert float(refused) == pytest.approx(-0.3, abs=0.08)
    guided = recap.make_actor(SIZES, replace(config, guidance=1.5))
    guided.load_state_dict(algorithm.actor.state_dict())
    with torch.no_grad():
        assert float(guided(obs)) > float(algorithm.actor(obs))


@pytest.mark.parametrize("value", [0.0, -20.0, 3e4])
def test_returns_that_are_all_the_same_have_a_support(value: float) -> None:
    earned = torch.full((5,), value)
    support = recap.support_of(earned, 201)
    assert bool((support.diff() > 0).all())
    assert torch.allclose(recap.two_hot(earned, support) @ support, earned)


def test_two_hot_chances_have_the_values_mean() -> None:
    support = torch.linspace(-1.0, 2.0, 7)
    value = torch.tensor([-1.0, -0.3, 0.77, 2.0])
    chances = recap.two_hot(value, support)
    assert torch.allclose(chances.sum(1), torch.ones(4)) and torch.allclose(chances @ support, value, atol=1e-6)
