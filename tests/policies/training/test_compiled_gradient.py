"""The compiled gradient of PPO's loss is the gradient that torch finds."""

from __future__ import annotations

import pytest
import torch

from temporeal.policies.algos import ppo
from temporeal.policies.nets.actor import ACTIVATIONS, Critic, Gaussian, make_actor
from temporeal.policies.training import ppo_state
from temporeal.policies.training.compiled_gradient import networks
from temporeal.policies.training.ppo_state import FIGURES, Replica, columns, compiled, flatten, replicate

CASES = [  # observation, privileged observation, hidden widths, actions, rows chosen
    (50, 83, (64, 64), 4, 100), (7, 9, (20,), 2, 47), (5, 3, (33, 16, 48), 1, 48), (16, 16, (128,), 16, 49),
    (3, 4, (8,), 3, 1),
]


def problem(
    obs: int, privileged: int, hidden: tuple[int, ...], actions: int, name: str
) -> tuple[Replica, torch.Tensor]:
    """Networks away from their start with the compiled gradient, and rows with ratios on both sides of the clip."""
    torch.manual_seed(1)
    actor, critic = make_actor(obs, actions, hidden, name=name, init_std=0.6), Critic(privileged, hidden, name)
    for parameter in (*actor.parameters(), *critic.parameters()):
        parameter.data += 0.1 * torch.randn_like(parameter)
    table = torch.randn(300, obs + privileged + 2 * actions + 5)
    batch = columns(table, obs, privileged, actions)
    with torch.no_grad():
        batch.mean.copy_(actor(batch.obs) + 0.1 * torch.randn(300, actions))
        batch.action.copy_(batch.mean + 0.5 * torch.randn(300, actions))
        batch.log_prob.copy_(Gaussian(batch.mean, torch.full((actions,), -0.6)).log_prob(batch.action))
    weights = flatten(actor, critic)
    replica = replicate(actor, critic, own=True)
    return compiled(replica, name, table.shape[1], weights), table


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES)
def test_gradient_and_figures_are_those_of_torch(case: tuple[int, int, tuple[int, ...], int, int], name: str) -> None:
    obs, privileged, hidden, actions, rows = case
    replica, table = problem(obs, privileged, hidden, actions, name)
    config = ppo_state.PPOConfig(entropy_coef=0.01, clip=0.1, value_coef=0.7, activation=name)
    old = torch.full((actions,), -0.6)
    chosen = torch.randperm(300)[:rows]
    found = replica.derivative(table, chosen, 120, old, config)
    gradient = replica.gradient[: -len(FIGURES)].clone()
    replica.gradient.zero_()
    batch = columns(table[chosen], obs, privileged, actions)
    expected = ppo.losses(replica.actor, replica.critic, batch, torch.zeros(0), old, config) * (rows / 120)
    expected[0].backward()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, replica.gradient[: -len(FIGURES)], rtol=1e-4, atol=1e-6)
    assert gradient.abs().max() > 10 * 1e-6


@pytest.mark.parametrize("column", range(5 + 6 + 2 + 2 + 3))
def test_what_is_not_a_number_shows_in_the_figures(column: int) -> None:
    replica, table = problem(5, 6, (16,), 2, "silu")
    table[3, column] = float("nan")
    assert not torch.isfinite(
        replica.derivative(table, torch.arange(9), 9, torch.full((2,), -0.6), ppo_state.PPOConfig())
    ).all()


def test_repeated_calls_forget_the_one_before() -> None:
    replica, table = problem(5, 6, (16,), 2, "silu")
    config, old = ppo_state.PPOConfig(), torch.full((2,), -0.6)
    first = replica.derivative(table, torch.arange(100), 100, old, config)
    gradient = replica.gradient.clone()
    replica.derivative(table, torch.arange(100, 300), 200, old, config)
    assert torch.equal(replica.derivative(table, torch.arange(100), 100, old, config), first)
    assert torch.equal(replica.gradient, gradient)


@pytest.mark.parametrize(("change", "served"), [
    ({}, True), ({"precision": "bfloat16"}, False), ({"value_clip": 0.2}, False), ({"compile": True}, False)])
def test_what_it_serves(change: dict[str, object], served: bool) -> None:
    actor, config = make_actor(4, 2, (8,)), ppo_state.PPOConfig(**change)
    assert networks.serves(actor, config, torch.device("cpu")) is served
    assert not networks.serves(make_actor(4, 2, (8,), hidden_dim=3), config, torch.device("cpu"))
    assert not networks.serves(actor, config, torch.device("cuda"))
    assert not networks.serves(make_actor(4, 17, (8,)), config, torch.device("cpu"))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES)
def test_forward_is_the_network(case: tuple[int, int, tuple[int, ...], int, int], name: str) -> None:
    obs, privileged, hidden, actions, rows = case
    replica, table = problem(obs, privileged, hidden, actions, name)
    for network, net, first in zip(replica.forward, (replica.actor.net, replica.critic.net), (0, obs)):
        x = table[:rows, first : first + net[0].in_features]  # rows that lie apart
        torch.testing.assert_close(network(x), net(x).detach(), rtol=1e-5, atol=1e-5)
        assert torch.equal(network(x.T.contiguous().T), network(x))  # any layout
        with torch.no_grad():
            net[0].weight.mul_(2.0)
        network.take()
        torch.testing.assert_close(network(x), net(x).detach(), rtol=1e-5, atol=1e-5)


def test_forward_refuses_other_tensors() -> None:
    replica, _ = problem(5, 6, (16,), 2, "silu")
    for wrong in (torch.zeros(3, 4), torch.zeros(3, 5, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"x must be float32 \[N, 5\], got"):
            replica.forward[0](wrong)
