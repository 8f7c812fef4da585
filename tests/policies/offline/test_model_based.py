"""MBRCSL where episodes cross: from the west they go south, from the north they go east; best is from west to east."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.offline.maze import Maze, success, transitions

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline import iql, mbrcsl
from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.offline.trajectory_weights import returns

CROSS = ("##.##",
         "##.##",
         ".....",
         "##.##",
         "##.##")
WEST, EAST, NORTH, SOUTH = (0, 2), (4, 2), (2, 0), (2, 4)
SMALL = {"hidden": (64, 64), "batch": 128, "learning_rate": 1e-3}
CONFIG = mbrcsl.MBRCSLConfig(**SMALL, updates=1300, model_share=0.75, rollouts=500, horizon=30)


def crossing() -> Transitions:
    """Each step earns the way that it went east: 2 cells in each episode, where 4 are possible. At the end it ends."""
    maze, rng = Maze(CROSS), np.random.default_rng(3)
    walks = [maze.follow(maze.way(*ends), rng) for ends in [(WEST, SOUTH)] * 90 + [(NORTH, EAST)] * 60]
    data = transitions(walks, np.array([4.5, 2.5]))
    mask = torch.ones(data.steps).index_fill_(0, data.starts[1:] - 1, 0.0)
    return replace(data, mask=mask, reward=(data.next_obs - data.obs)[:, 0])


def arrives(result: offline_learner.Result) -> float:
    """From west to east, which no episode went."""
    return success(Maze(CROSS), lambda obs: result.actor(result.normalizer(obs)), WEST, EAST)


@pytest.mark.slow
def test_rollouts_stitch_what_no_episode_did(tmp_path: Path) -> None:
    assert arrives(mbrcsl.train(crossing(), CONFIG, out=tmp_path)) >= 0.9


@pytest.mark.slow
def test_neither_cloning_nor_the_same_policy_of_the_data_alone_does(tmp_path: Path) -> None:
    data = crossing()
    clone = iql.IQLConfig(**SMALL, updates=500, temperature=0.0)
    assert arrives(iql.train(data, clone, out=tmp_path / "clone")) <= 0.4
    torch.manual_seed(0)
    alone = mbrcsl.Stitching(data, replace(CONFIG, model_share=1e-4), seed=0)
    normalized = replace(data, obs=alone.normalizer(data.obs), next_obs=alone.normalizer(data.next_obs))
    alone.of_rollouts = mbrcsl.earning(normalized, alone.learner.actor, CONFIG)
    assert arrives(offline_learner.learn(alone.learner, alone, alone.config, out=tmp_path / "alone", seed=0,
                                         generator=torch.Generator().manual_seed(0))) <= 0.4


def rollouts() -> mbrcsl.Rollouts:
    """Three of two steps; the second ends after the first, and its reward after the end is not earned."""
    reward, mask = torch.tensor([[1.0, 2.0, 0.0], [1.0, 9.0, 0.5]]), torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    obs = torch.arange(6.0).view(2, 3, 1)
    return mbrcsl.Rollouts(obs, -obs, obs + 3.0, reward, mask, torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]))


def test_what_earned_more_is_kept_as_episodes() -> None:
    found = mbrcsl.kept(rollouts(), 1.0, mbrcsl.MBRCSLConfig())
    assert found.obs[:, 0].tolist() == [0.0, 3.0, 1.0]
    assert found.next_obs[:, 0].tolist() == [3.0, 6.0, 4.0]
    assert found.starts.tolist() == [0, 2, 3]
    assert found.episode.tolist() == [0, 0, 1]
    assert found.mask.tolist() == [1.0, 1.0, 0.0]
    assert returns(found).tolist() == [2.0, 2.0]


def test_rollouts_that_stitch_nothing_are_refused() -> None:
    with pytest.raises(SettingsError, match="none of 3 rollouts of at most 2 steps earned more than 2, .*earned 2:"):
        mbrcsl.kept(rollouts(), 2.0, mbrcsl.MBRCSLConfig())


def test_rollouts_begin_where_episodes_did_and_go_on_until_the_end() -> None:
    torch.manual_seed(0)
    models = mbrcsl.Models({"obs_dim": 2, "action_dim": 1}, mbrcsl.MBRCSLConfig(hidden=(8,), members=3, components=2))
    first = torch.randn(40, 2)
    found = mbrcsl.roll_out(models, first, 12, torch.Generator().manual_seed(0))
    assert found.obs[0].equal(first)
    assert found.obs[1:].equal(found.next_obs[:-1])
    assert found.there[1:].equal(found.mask[:-1] * found.there[:-1])
    assert 0.0 < float(found.there[1].mean()) < 1.0  # untrained, about half of the steps end


def test_the_models_learn_rewards_of_any_unit_alike() -> None:
    found = []
    for unit in (1.0, 1000.0):
        torch.manual_seed(0)
        config = mbrcsl.MBRCSLConfig(hidden=(8,), members=2, components=2, batch=64)
        data = crossing()
        stitching = mbrcsl.Stitching(replace(data, reward=unit * data.reward), config, seed=0)
        [batch] = stitching.of_data.draw(torch.Generator().manual_seed(0), 1)
        loss = stitching.learner.models.update(batch)
        reward = stitching.learner.models.step(batch.obs, torch.Generator().manual_seed(1))[2]
        found.append((float(loss), reward / unit))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    assert torch.allclose(found[1][1], found[0][1], rtol=1e-3, atol=1e-4)
