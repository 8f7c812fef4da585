"""What distinguishes the qualities of demonstrations."""

import pytest
import torch

from temporeal.policies.data.demonstrators.qualities import LASTS, NOISY, SLOWEST, Noise, Recipe, goals_of
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
    twice = made("noisy", steady, noise=(2 * NOISY,))(NOTHING, {})
    assert off[0].abs().mean() < (twice.executed - clean).abs().mean()


def test_one_of_several_noises_is_drawn_for_each_episode():
    made = Recipe(TASK, lambda worlds: lambda obs, signals, pace: torch.zeros(worlds, TASK.act.action_dim),
                  noise=(0.0, 0.3), lasts_s=0.035).make("noisy", 64, generator())
    moved = torch.stack([made(NOTHING, {}).executed for _ in range(5)]).abs().amax((0, 2)) > 0
    assert 16 < int(moved.sum()) < 48  # the others are still, in every step


def acted(quality, expert, steps=400, worlds=4, **how):
    recipe = Recipe(TASK, lambda worlds: expert, goal_s=1.0, **how)
    act = recipe.make(quality, worlds, generator())
    return torch.stack([act(NOTHING, {}).action for _ in range(steps)])


def test_the_logarithm_of_a_pace_of_medium_is_uniform_down_to_the_slowest():
    def paced(obs, signals, pace):
        return 0.5 * pace[:, None] * torch.ones(2000, TASK.act.action_dim)

    for severity in (0.3, 0.9):
        paces = 2 * acted("medium", paced, steps=100, worlds=2000, severity=severity).mean((0, 2))
        share = paces.log() / (severity * torch.tensor(SLOWEST).log())
        assert share.quantile(0.25) == pytest.approx(0.25, abs=0.06)
        assert share.quantile(0.75) == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize("paced", [True, False])
def test_noise_of_medium_does_not_last(paced):
    """Else actions that are stored with it teach not to correct."""
    off = acted("medium", lambda obs, signals, pace: torch.full((4, TASK.act.action_dim), 0.3), paced=paced,
                severity=0.2, steps=2000)
    off = off - off.mean(0)
    assert off.std() > 0.05 and abs((off[1:] * off[:-1]).mean() / off.var()) < 0.05


def test_each_episode_of_medium_is_by_one_of_the_learned_policies():
    def constant(value):
        return lambda worlds: lambda obs, signals, pace: torch.full((300, TASK.act.action_dim), value)

    recipe = Recipe(TASK, constant(0.5), False, (constant(0.0), constant(-0.5)), severity=0.02)
    act = recipe.make("medium", 300, generator())
    mean = torch.stack([act(NOTHING, {}).action for _ in range(50)]).mean((0, 2))
    shares = [(mean - value).abs().lt(0.05).float().mean().item() for value in (0.5, 0.0, -0.5)]
    assert sum(shares) == pytest.approx(1.0) and all(share == pytest.approx(1 / 3, abs=0.1) for share in shares)
    expert = recipe.make("expert", 300, generator())(NOTHING, {})
    assert (expert.action == 0.5).all()  # the first one named


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
