"""The maze where episodes must be stitched: those algorithms that claim it arrive, and cloning does not."""

import importlib
import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.offline.maze import Maze, success, transitions

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.offline.ssorl import SSORLConfig, labelled, windows

SMALL = {"hidden": (64, 64), "gamma": 0.95, "target_rate": 0.1, "batch": 128, "learning_rate": 1e-3}
FAR = [((0, 0), (0, 2)), ((0, 2), (0, 0))]
"""From end to end, ten cells, where no episode has more than three."""


def arrivals(name: str, data: Transitions, ways: list, out: Path, **settings: object) -> float:
    """Mean share of arrivals over ``ways``, after training ``name`` on ``data``."""
    module = importlib.import_module(f"temporeal.policies.offline.{name}")
    kind = typing.get_type_hints(module.train)["config"]
    result = module.train(data, kind(**{**SMALL, **settings}), out=out)
    return float(np.mean([success(Maze(), lambda obs: result.actor(result.normalizer(obs)), *way) for way in ways]))


def with_reward() -> Transitions:
    """-1 per step until the cell (0, 2) is reached."""
    return transitions(Maze().pieces(300, 3), np.array([0.5, 2.5]))


def without_reward() -> Transitions:
    """Walks to nowhere: goals are taken from them."""
    return transitions(Maze().pieces(300, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name, settings", [
    ("odice", {"updates": 1000, "forward": 0.7, "scale": 3.0}),
    ("fdvl", {"updates": 1000, "forward": 0.8}),
    ("fdvl", {"updates": 1500, "forward": 0.8, "divergence": "tv"}),
])
def test_distribution_correction_stitches_towards_a_reward(name: str, settings: dict, tmp_path: Path) -> None:
    ways = [((0, 0), (0, 2)), ((2, 0), (0, 2)), ((4, 1), (0, 2))]
    assert arrivals(name, with_reward(), ways, tmp_path, **settings) >= 0.9


@pytest.mark.slow
def test_cloning_does_not_know_where_the_reward_is(tmp_path: Path) -> None:
    ways = [((0, 0), (0, 2)), ((2, 0), (0, 2)), ((4, 1), (0, 2))]
    assert arrivals("iql", with_reward(), ways, tmp_path, updates=500, temperature=0.0) <= 0.4


EXPERTS = 3
"""Episodes of the expert, who began half-way; the others', 300, go its way at one turn in four."""
OFF = [((0, 0), (0, 2)), ((2, 0), (0, 2))]
"""From where the expert never was."""


def with_expert() -> Transitions:
    """Nobody says what is good but the expert's episodes, which are marked."""
    maze, rng = Maze(), np.random.default_rng(5)
    shown = [maze.follow(maze.way((4, 0), (0, 2)), rng) for _ in range(EXPERTS)]
    data = transitions(shown + maze.pieces(300, 3, forward=0.25), np.array([0.5, 2.5]))
    return replace(data, reward=torch.zeros(data.steps), success=(torch.arange(EXPERTS + 300) < EXPERTS).float())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"divergence": "tv", "forward": 0.8}])
def test_others_lead_to_where_the_expert_was(settings: dict, tmp_path: Path) -> None:
    assert arrivals("recoil", with_expert(), OFF, tmp_path, **settings, updates=600) >= 0.9


@pytest.mark.slow
def test_cloning_neither_the_expert_nor_all_nor_the_mixture_leads_there(tmp_path: Path) -> None:
    data = with_expert()
    clone = {"updates": 500, "temperature": 0.0}
    assert arrivals("iql", first(data, EXPERTS), OFF, tmp_path / "expert", **clone) <= 0.4
    assert arrivals("iql", data, OFF, tmp_path / "all", **clone) <= 0.4
    assert arrivals("recoil", data, OFF, tmp_path / "mixture", **clone) <= 0.4


GOALS = {"goal": ("goal",), "achieved": ("place",), "learning_rate": 3e-3}


@pytest.mark.slow
@pytest.mark.parametrize("name, settings", [
    ("hiql", {"updates": 2000, "subgoal_steps": 4}),
    ("ota", {"updates": 2000, "subgoal_steps": 4, "abstraction": 3, "option_gamma": 0.95}),
    ("hilp", {"updates": 2500, "dimensions": 8}),
    ("gcbc", {"updates": 1000, "stitch": 0.7}),
    ("smore", {"updates": 1500, "gamma": 0.98, "temperature": 10.0, "learning_rate": 1e-3}),
])
def test_learners_of_goals_stitch(name: str, settings: dict, tmp_path: Path) -> None:
    assert arrivals(name, without_reward(), FAR, tmp_path, **{**GOALS, **settings}) >= 0.9


@pytest.mark.slow
def test_cloning_reaches_no_goal_that_no_episode_led_to(tmp_path: Path) -> None:
    near = [((0, 0), (2, 0)), ((3, 2), (1, 2))]
    assert arrivals("gcbc", without_reward(), FAR, tmp_path / "far", **GOALS, updates=1000, stitch=0.0) <= 0.4
    assert arrivals("gcbc", without_reward(), near, tmp_path / "near", **GOALS, updates=1000, stitch=0.0) >= 0.9


TO_REWARD = [((0, 0), (0, 2)), ((2, 0), (0, 2)), ((4, 1), (0, 2))]
KNOWN = 9
"""Episodes of 300 that have actions."""


def first(data: Transitions, episodes: int) -> Transitions:
    """The first ``episodes`` alone."""
    steps = int(data.starts[episodes])
    columns = {name: getattr(data, name)[:steps] for name in ("obs", "action", "reward", "next_obs", "mask", "episode")}
    return replace(data, **columns, starts=data.starts[:episodes + 1])


@pytest.mark.slow
def test_episodes_without_actions_lead_where_those_with_actions_do_not(tmp_path: Path) -> None:
    data, same = with_reward(), {"updates": 3000, "expectile": 0.8, "learning_rate": 3e-3}
    unknown = replace(data, action=data.action.clone().index_fill_(
        0, torch.arange(int(data.starts[KNOWN]), data.steps), torch.nan))
    assert arrivals("ssorl", unknown, TO_REWARD, tmp_path / "all", **same, labelled=KNOWN / 300,
                    inverse_updates=500) >= 0.9
    assert arrivals("iql", first(data, KNOWN), TO_REWARD, tmp_path / "few", **same) <= 0.4


def test_actions_of_the_other_episodes_are_the_inverse_models_and_never_read() -> None:
    data = transitions(Maze().pieces(40, 3))
    known = int(data.starts[20])
    hidden = replace(data, action=torch.cat((data.action[:known], torch.full_like(data.action[known:], torch.nan))))
    config = SSORLConfig(labelled=0.5, inverse_updates=300, hidden=(32,), learning_rate=1e-2)
    found = labelled(hidden, config, seed=0)
    assert found.action[:known].equal(data.action[:known])
    away = (found.action[known:] - data.action[known:]).abs().mean()
    assert away < 0.5 * data.action[known:].abs().mean()


def test_the_inverse_model_sees_no_other_episode() -> None:
    data = transitions(Maze().pieces(3, 2))
    seen = windows(data, past=1)
    first = data.starts[:-1]
    assert seen[first, :4].equal(data.obs[first])
    assert seen[first + 1, :4].equal(data.obs[first])
    assert seen[:, -4:].equal(data.next_obs)
