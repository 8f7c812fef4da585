"""What distinguishes the qualities of demonstrations."""

import pytest
import torch

from temporeal.policies.data.demonstrators.qualities import LASTS, NOISY, Noise, Recipe, goals_of
from temporeal.sim.task import load_task
from temporeal.sim.types import Obs

TASK = load_task("reach")
NOTHING = Obs(torch.zeros(4, 1), torch.zeros(4, 1))


def generator():
    return torch.Generator().manual_seed(0)


def made(quality, expert, severity=0.5, **how):
    return Recipe(TASK, lambda worlds: expert, severity=severity, goal_s=2 * TASK.control_dt, **how).make(
        quality, 4, generator())


def steady(obs, signals, pace):
    return 0.5 * pace[:, None] * torch.ones(4, TASK.act.action_dim)


def test_noise_has_deviation_one_and_is_correlated_over_its_time():
    noise = Noise((2000, 1), 0.05, generator())
    values = torch.stack([noise() for _ in range(20)])[..., 0]
    assert values.std() == pytest.approx(1.0, abs=0.03)
    after = (values[0] * values[5]).mean()  # 0.25 s later
    assert after == pytest.approx(torch.tensor(-0.25 / LASTS).exp().item(), abs=0.07)


def test_expert_is_itself_and_noisy_stores_the_clean_action():
    clean = steady(None, None, torch.ones(4))
    assert torch.equal(made("expert", steady)(NOTHING, {}).action, clean)
    choices = [made("noisy", steady)(NOTHING, {}) for _ in range(1)]
    assert all(torch.equal(c.action, clean) for c in choices)
    off = torch.stack([c.executed - clean for c in choices])
    assert 0 < off.abs().max() < 5 * NOISY


def test_medium_is_slower_the_more_severe_and_each_episode_has_a_pace_of_its_own():
    paces = {}
    for severity in (0.6, 0.9):
        act = made("medium", steady, severity)
        actions = torch.stack([act(NOTHING, {}).action for _ in range(400)])
        paces[severity] = 2 * actions.mean((0, 2))
        assert (paces[severity] < 2 * (1 - 0.95 * severity) * 1.3).all() and paces[severity].std() > 0.02
    assert (paces[0.9] < paces[0.6]).all()


def test_medium_of_a_learned_policy_is_shaken():
    act = made("medium", steady, 1.0, paced=False)
    values = torch.stack([act(NOTHING, {}).action for _ in range(400)])
    assert values.std() > 0.4


def test_random_needs_no_expert():
    act = made("random", None)
    assert act(NOTHING, {}).action.abs().max() <= 1


def test_play_pursues_one_goal_after_another():
    asked = []

    def follow(obs, signals, pace):
        asked.append(signals["goal_pos_w"].clone())
        return torch.zeros(4, TASK.act.action_dim)

    act = made("play", follow)
    choices = [act(NOTHING, {"goal_pos_w": torch.zeros(4, 3)}) for _ in range(6)]
    assert torch.equal(asked[0], asked[1]) and not torch.equal(asked[1], asked[2]) and torch.equal(asked[2], asked[3])
    assert all(torch.equal(choice.goal["goal_pos_w"], goal) for choice, goal in zip(choices, asked))


def test_play_needs_goals_that_are_drawn():
    assert goals_of(TASK) == ("goal_pos_w", "goal_quat_w")
    with pytest.raises(ValueError, match="quality=play: task 'hover' has no goals .*reach, lift, push"):
        goals_of(load_task("hover"))
