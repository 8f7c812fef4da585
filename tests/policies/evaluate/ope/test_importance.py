"""Importance sampling against all trajectories of a Markov decision process, each with its exact probability."""

import numpy as np
import pytest
from tests.policies.tabular import greedy, random_mdp

from temporeal.policies.evaluate.ope.importance import (
    ESTIMATORS,
    Logged,
    doubly_robust,
    padded,
    per_decision,
    trajectory,
)

MDP = random_mdp()
BEHAVIOUR, JUDGED = greedy([0, 1, 0], 0.6), greedy([1, 1, 0], 0.8)


def logged_all(wrong_model: float = 0.0, wrong_behaviour: float = 0.0) -> tuple[Logged, np.ndarray]:
    """Every trajectory that the behaviour policy can make, and its probability."""
    states, actions, p = MDP.trajectories(BEHAVIOUR)
    behaviour = (1 - wrong_behaviour) * BEHAVIOUR + wrong_behaviour * 0.5
    ratio = np.log(JUDGED[states, actions]) - np.log(behaviour[states, actions])
    q = MDP.q(JUDGED) + wrong_model
    steps = np.arange(MDP.horizon)
    v = (JUDGED * q).sum(2)
    return Logged(ratio, MDP.reward[states, actions], MDP.discount, q[steps, states, actions], v[steps, states]), p


@pytest.mark.parametrize("name", ESTIMATORS)
def test_expectation_is_the_value(name: str) -> None:
    logged, p = logged_all(wrong_model=0.3)
    assert p.sum() == pytest.approx(1.0)
    assert p @ ESTIMATORS[name](logged, False).shares() == pytest.approx(MDP.value(JUDGED), abs=1e-10)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_self_normalized_estimate_of_all_trajectories_is_the_value(name: str) -> None:
    logged, p = logged_all(wrong_model=0.3)
    found = ESTIMATORS[name](logged, True)
    assert found.of_counts(p[None])[0] == pytest.approx(MDP.value(JUDGED), abs=1e-10)


def test_each_estimator_has_less_variance_than_the_one_before() -> None:
    logged, p = logged_all()

    def variance(shares: np.ndarray) -> float:
        return float(p @ shares**2 - (p @ shares) ** 2)

    whole, steps, robust = (variance(kind(logged).shares()) for kind in (trajectory, per_decision, doubly_robust))
    assert robust < steps < whole


def test_doubly_robust_needs_only_one_of_model_and_ratios() -> None:
    right_model, p = logged_all(wrong_behaviour=0.5)
    assert p @ doubly_robust(right_model).shares() == pytest.approx(MDP.value(JUDGED), abs=1e-10)
    assert abs(p @ per_decision(right_model).shares() - MDP.value(JUDGED)) > 0.01


def test_data_of_the_judged_policy_itself_is_its_mean_return() -> None:
    reward = np.random.default_rng(0).normal(size=(20, 5))
    for kind in (trajectory, per_decision):
        for normalized in (False, True):
            found = kind(Logged(np.zeros((20, 5)), reward), normalized).estimate()
            assert found.value == pytest.approx(reward.sum(1).mean())
            assert found.shares == pytest.approx(reward.sum(1))
            assert found.effective == pytest.approx(20)


def test_finished_episodes_keep_their_ratio_and_earn_nothing() -> None:
    starts = np.array([0, 2, 5])
    assert padded(np.arange(5.0), starts).tolist() == [[0, 1, 0], [2, 3, 4]]
    logged = Logged(padded(np.log([2.0, 2.0, 1.0, 1.0, 1.0]), starts), padded(np.ones(5), starts))
    assert logged.ratios() == pytest.approx(np.array([[2, 4, 4], [1, 1, 1]]))
    assert per_decision(logged).shares().tolist() == pytest.approx([6, 3])
    assert trajectory(logged).shares().tolist() == pytest.approx([8, 3])


def test_doubly_robust_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="fitted Q"):
        doubly_robust(Logged(np.zeros((2, 2)), np.zeros((2, 2))))


def test_ratios_that_underflow_leave_one_effective_episode() -> None:
    ratio = np.full((20, 3), -1000.0)
    ratio[4] += 10.0
    logged = Logged(ratio, np.arange(60.0).reshape(20, 3))
    assert per_decision(logged, normalized=True).estimate().effective == pytest.approx(1.0, abs=1e-3)
    assert per_decision(logged, normalized=True).estimate().value == pytest.approx(12 + 13 + 14, abs=0.05)
    assert per_decision(logged).estimate().effective == 0.0
