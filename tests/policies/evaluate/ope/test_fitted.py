"""FQE, the learned model and the cloned density against exact values."""

import math

import numpy as np
import pytest
import torch
from tests.policies.tabular import Tabular, greedy, random_mdp

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope import behaviour, fitted, judged_data, model_based

PREFERRED = [1, 0, 1]


def policy_of(preferred: list[int]) -> fitted.Policy:
    """The deterministic policy on one-hot observations, which may have time behind them."""
    table = torch.tensor(preferred).float()[:, None] * 2 - 1
    return lambda obs: obs[..., :len(preferred)] @ table


def sampled(mdp: Tabular, episodes: int, seed: int = 0) -> Transitions:
    return mdp.transitions(*mdp.sample(np.full((len(mdp.first), 2), 0.5), episodes, np.random.default_rng(seed)))


def test_fitted_q_evaluation_finds_the_exact_value() -> None:
    mdp = random_mdp(horizon=3)
    data = judged_data.with_time(sampled(mdp, 400))
    config = fitted.FQEConfig(members=4, updates=300, warm_up=50, hidden=(32,), learning_rate=5e-3, target_rate=0.1,
                              discount=mdp.discount)
    found = fitted.fit(data, policy_of(PREFERRED), config).estimate()
    true = mdp.value(greedy(PREFERRED))
    assert found.value == pytest.approx(true, abs=0.08)
    assert found.interval()[0] < true < found.interval()[1]


def test_learned_dynamics_find_the_value_of_a_deterministic_world() -> None:
    move = np.zeros((3, 2, 3))
    for state in range(3):  # a ring: action 1 goes on, action 0 stays
        move[state, 1, (state + 1) % 3] = move[state, 0, state] = 1.0
    mdp = Tabular(move, np.array([[0.0, 0.1], [1.0, 0.0], [0.2, 0.5]]), np.array([1.0, 0.0, 0.0]), 3)
    data = judged_data.with_time(sampled(mdp, 100))
    config = model_based.ModelConfig(members=3, updates=500, hidden=(64,), learning_rate=5e-3, discount=mdp.discount)
    model, resamples = model_based.fit(data, config)
    found = model_based.evaluate(model, resamples, data, policy_of([1, 1, 1]), config)
    assert found.value == pytest.approx(mdp.value(greedy([1, 1, 1])), abs=0.05)


def test_satisfaction_is_the_return() -> None:
    data = sampled(random_mdp(horizon=3), 4)
    judged = judged_data.satisfied(data, torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert judged_data.returns(judged, 1.0).tolist() == [1, 0, 0, 1]
    assert judged.mask[judged.starts[1:] - 1].tolist() == [0, 0, 0, 0]
    with pytest.raises(DataError, match="episode 2: nobody judged"):
        judged_data.satisfied(data, torch.tensor([1.0, 0.0, math.nan, 1.0]))
    with pytest.raises(DataError, match="no formula was given"):
        judged_data.satisfied(data)


def test_time_is_shown() -> None:
    shown = judged_data.with_time(sampled(random_mdp(horizon=4), 2))
    assert shown.obs[:, -1].tolist() == [0.0, 0.25, 0.5, 0.75] * 2
    assert shown.next_obs[:, -1].tolist() == [0.25, 0.5, 0.75, 1.0] * 2


def test_returns_are_discounted() -> None:
    mdp = random_mdp(horizon=2)
    states, actions = mdp.sample(greedy([0, 0, 0], 0.5), 3, np.random.default_rng(0))
    reward = mdp.reward[states[:, :-1], actions]
    expected = reward[:, 0] + 0.9 * reward[:, 1]
    assert judged_data.returns(mdp.transitions(states, actions), 0.9) == pytest.approx(expected, rel=1e-6)


def test_cloned_density_is_that_of_the_data() -> None:
    torch.manual_seed(0)
    obs = torch.rand(4000, 1) * 2 - 1
    action = 0.5 * obs + 0.2 * torch.randn(4000, 1)
    steps = torch.arange(0, 4001, 40)
    data = Transitions(obs, action, torch.zeros(4000), obs, torch.ones(4000), torch.arange(100).repeat_interleave(40),
                       steps)
    found = behaviour.clone(data, behaviour.BehaviourConfig(components=1, hidden=(32,), updates=300))
    exact = behaviour.gaussian_log_density(0.5 * obs, 0.2, action)
    assert float((found(obs, action).mean() - exact.mean()).detach()) == pytest.approx(0.0, abs=0.03)


@pytest.mark.slow
def test_intervals_of_fitted_q_evaluation_cover_the_value() -> None:
    mdp, covered = random_mdp(horizon=3), 0
    config = fitted.FQEConfig(members=8, updates=400, warm_up=50, hidden=(32,), learning_rate=5e-3, target_rate=0.1,
                              discount=mdp.discount)
    for seed in range(20):
        data = judged_data.with_time(sampled(mdp, 100, seed))
        low, high = fitted.fit(data, policy_of(PREFERRED), config, seed).estimate().interval(0.9)
        covered += low <= mdp.value(greedy(PREFERRED)) <= high
    assert covered >= 15  # 15 or fewer of 20 at true coverage 0.9 has probability 0.04
