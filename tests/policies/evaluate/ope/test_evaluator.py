"""All estimators on one dataset: they agree with exact values, and their differences are paired."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.policies.tabular import random_mdp

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope import behaviour, fitted, model_based
from temporeal.policies.evaluate.ope.evaluator import ESTIMATORS, Evaluator, OPEConfig
from temporeal.policies.evaluate.ope.gate import gate
from temporeal.policies.evaluate.ope.members import Resamples

MDP = random_mdp(horizon=3)
FAST = OPEConfig(
    discount=MDP.discount, std=0.5, fqe=fitted.FQEConfig(members=3, updates=60, warm_up=30, hidden=(16,)),
    model=model_based.ModelConfig(members=3, updates=40, hidden=(16,)),
    behaviour=behaviour.BehaviourConfig(updates=40, hidden=(16,)))


def evaluator(log_density: np.ndarray | None = None) -> Evaluator:
    states, actions = MDP.sample(np.full((3, 2), 0.5), 60, np.random.default_rng(0))
    return Evaluator(MDP.transitions(states, actions), FAST, log_density)


def stays(obs: torch.Tensor) -> torch.Tensor:
    return obs[..., :1] * 0.0 - 1.0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_gives_a_finite_interval_that_the_parent_pairs_with(name: str) -> None:
    judge = evaluator()
    found = judge.estimate(stays, name)
    low, high = found.interval()
    assert np.isfinite([low, found.value, high]).all()
    assert low <= found.value <= high
    verdict = gate(found, judge.of_the_data(name))
    assert np.isfinite(verdict.lower)
    assert verdict.lower < verdict.difference


def test_the_data_are_worth_their_mean_return() -> None:
    judge = evaluator()
    assert judge.of_the_data().value == pytest.approx(judge.of_the_data("fqe").value, abs=0.1)
    assert judge.of_the_data("fqe").value == pytest.approx(judge.of_the_data().shares.mean(), abs=0.1)


def test_known_densities_are_used() -> None:
    """The data's own density, given: every ratio is 1."""
    judge = evaluator(behaviour.gaussian_log_density(
        torch.full((180, 1), -1.0), FAST.std, evaluator().plain.action).double().numpy())
    assert judge.estimate(stays, "is").value == pytest.approx(judge.of_the_data().value, rel=1e-5)


class Parabola(torch.nn.Module):
    """The exact Q of a bandit that pays 1 - a^2."""

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (1.0 - action.square()).sum(-1)[None]


def test_doubly_robust_estimates_are_of_the_policy_whose_ratios_they_have() -> None:
    """One step, exact ratios, exact Q: the noisy policy a ~ N(0, 0.35) earns 1 - 0.35, not what a = 0 does."""
    steps, std = 2000, 0.35 ** 0.5
    action = 0.8 * torch.randn(steps, 1, generator=torch.Generator().manual_seed(1))
    zeros = torch.zeros(steps)
    data = Transitions(zeros[:, None], action, 1.0 - action[:, 0].square(), zeros[:, None], zeros,
                       torch.arange(steps), torch.arange(steps + 1))
    known = behaviour.gaussian_log_density(torch.zeros(steps, 1), 0.8, action).double().numpy()
    judge = Evaluator(data, replace(FAST, discount=1.0, std=std), known)

    def policy(obs: torch.Tensor) -> torch.Tensor:
        return 0.0 * obs[..., :1]

    judge._fitted = policy, fitted.Fitted(Parabola(), policy, judge.data, Resamples(judge.data, 1, 0))
    for name in ("dr", "wdr"):
        assert judge.estimate(policy, name).value == pytest.approx(0.65, abs=0.02)


def test_unknown_estimators_are_refused() -> None:
    with pytest.raises(ValueError, match="legal: fqe, model, is"):
        evaluator().estimate(stays, "magic")
