"""Rewards of recorded samples are those of the environment; a formula alone pays what its definition says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.policies.data.curation.constructed import DT, FLIGHT, climb

from temporeal.policies.data.curation.relabeling import (
    hindsight,
    hit_shares,
    objective_of,
    read_by,
    relabeled,
    rewarded,
    run,
    state_signal,
)
from temporeal.policies.data.curation.robustness import TIME, table_of_episodes
from temporeal.policies.data.episodes.interface import DataError
from temporeal.sim.backend_factory import BackendConfig, make_backend
from temporeal.sim.env import Env
from temporeal.sim.env_config import EnvConfig
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import load_task

SEQUENCE = "F[0,1] (height > 0.5 & F[0,2] (height > 1.0)) & G[0,3] (height < 1.8)"


def parsed(text):
    return parse(text, {**FLIGHT.signals, TIME.name: TIME})


def table(episodes):
    return table_of_episodes(episodes, FLIGHT, "set")


def paid(text, episodes, kind="progress", **weights):
    """What the formula's reward says of each episode."""
    of = table(episodes)
    objective = objective_of(parsed(text), DT, int(of.lengths.max()) - 1, FLIGHT.signals, kind, weights)
    found = dict(rewarded(objective, of, [e.action for e in episodes], read_by(parsed(text), FLIGHT.signals), True))
    return [found[k] for k in range(len(episodes))], objective


def test_a_tasks_rewards_over_recorded_samples_are_the_environments():
    task = load_task("waypoints")
    env = Env(task, make_backend(task, BackendConfig(num_worlds=3)), EnvConfig(seed=4, compiled=False))
    env.reset()
    generator = torch.Generator().manual_seed(0)
    trace, rewards, actions, over = [env.true_signals()], [], [], torch.zeros(3, dtype=torch.bool)
    trace = [{name: value.clone() for name, value in trace[0].items()}]
    for _ in range(25):
        action = 0.5 * (2 * torch.rand(3, 4, generator=generator) - 1)
        step = env.step(action)
        actions.append(action), rewards.append(torch.where(over, 0.0, step.reward))
        trace.append({name: value.clone() for name, value in step.info["signals"].items()})
        over |= step.terminated | step.truncated
    signals = {name: torch.stack([sample[name] for sample in trace]) for name in trace[0]}
    found = run(task.objective, signals, torch.stack(actions), np.full(3, 26), "set")
    for world, each in enumerate(found):
        wanted = torch.stack(rewards)[: len(each.reward), world]
        np.testing.assert_allclose(each.reward, wanted, atol=1e-5)
        assert each.terminated == bool(over[world])


def test_progress_pays_hits_the_way_completion_and_breaking():
    high, low, over = climb(1.4), climb(0.8), climb(2.0)
    found, _ = paid(SEQUENCE, [high, low, over], hit=2.0, progress=1.0, done=5.0, broken=5.0, scale=1.0)
    # at the start the first subgoal is 0.5 m away: potential -0.5; done: two hits, nothing short
    assert found[0].reward.sum() == pytest.approx(0.5 + 2 * 2.0 + 5.0, abs=1e-5) and found[0].success
    # 0.8 m after 2 s is 0.4 m after 1 s: no hit, and 0.3 m of the way to 0.5 m are missing no more: at 0.8 m none is
    assert found[1].reward.sum() == pytest.approx(0.5, abs=1e-5) and not found[1].success
    # 2 m is above 1.8 m; but all was done before, at 1 m, so that nothing is paid or broken any more
    assert found[2].reward.sum() == pytest.approx(0.5 + 4.0 + 5.0, abs=1e-5) and not found[2].terminated


def test_an_episode_ends_where_what_must_be_kept_is_broken():
    fast = climb(4.0, 11)  # 0.4 m a step: above 1.8 m at sample 5, above 0.5 m at sample 2
    found, _ = paid("G[0,1] (height < 1.8) & F[0,1] (height > 3)", [fast], broken=7.0)
    assert found[0].terminated and len(found[0].reward) == 5
    assert found[0].reward[-1] < -6.0
    cut = relabeled(fast, found[0], satisfied=False)
    assert cut.samples == 6 and cut.steps == 5 and cut.terminated and cut.success is False


def test_padding_changes_nothing():
    episodes = [climb(1.4, 15), climb(1.4, 40), climb(0.3, 22)]
    together, _ = paid(SEQUENCE, episodes)
    for episode, found in zip(episodes, together):
        (alone,), _ = paid(SEQUENCE, [episode])
        np.testing.assert_allclose(found.reward, alone.reward, atol=1e-6)
        np.testing.assert_allclose(found.state, alone.state, atol=1e-6)


def test_rewards_of_the_baselines_and_a_formula_that_is_no_sequence():
    episodes, either = [climb(1.4)], "F[0,1] (height > 2) | F[0,2] (height > 1.2)"
    found, _ = paid(either, episodes, "terminal_robustness")
    assert found[0].reward.sum() == pytest.approx(0.2, abs=1e-5)  # 1.4 m - 1.2 m, once
    assert np.count_nonzero(found[0].reward) == 1
    with pytest.raises(DataError, match="rewards that take other formulas: terminal_robustness"):
        paid("G[0,1] F[0,1] (height > 2)", episodes)
    with pytest.raises(DataError, match="no reward 'sparse'; known: progress"):
        paid(SEQUENCE, episodes, "sparse")


def test_the_state_makes_the_reward_a_function_of_what_is_seen():
    (found,), objective = paid(SEQUENCE, [climb(1.4)])
    spec = state_signal(objective, "formula_state")
    assert found.state.shape == (21, spec.size) and found.state.min() >= 0 and found.state.max() <= 1
    hits = found.state[:, :2]
    assert (np.diff(hits, axis=0) >= 0).all() and hits[0].sum() == 0 and hits[-1].sum() == 2
    assert hits[:, 0].argmax() == 8  # 0.56 m at sample 8 is the first above 0.5 m
    with pytest.raises(DataError, match="the other rewards' is not kept"):
        state_signal(paid(SEQUENCE, [climb(1.4, 40)], "terminal_robustness")[1], "x")


def test_hindsight_makes_what_was_reached_the_goal():
    episode = hindsight(climb(0.7), "goal_pos_w", "base_pos_w")
    np.testing.assert_allclose(episode.signals["goal_pos_w"], np.tile([0.0, 0.07, 0.7], (21, 1)), atol=1e-6)
    text = "F[0,2] (norm(base_pos_w - goal_pos_w) < 0.05)"
    found, _ = paid(text, [climb(0.7), episode])
    assert not found[0].success and found[1].success
    with pytest.raises(DataError, match="no signal 'cube_pos_w'"):
        hindsight(episode, "goal_pos_w", "cube_pos_w")
    with pytest.raises(DataError, match=r"has shape \[3\]"):
        hindsight(episode, "goal_pos_w", "height")


def test_the_share_of_subgoals_that_were_hit():
    np.testing.assert_allclose(hit_shares(parsed(SEQUENCE), table([climb(0.4), climb(1.02, 11), climb(1.4)])),
                               [0.0, 1.0, 1.0])
    with pytest.raises(DataError, match="no timed subgoal"):
        hit_shares(parsed("G[0,1] (height < 2)"), table([climb(1.0)]))


def test_a_signal_that_the_reward_needs_and_the_log_lacks_is_named():
    of = table([climb(1.0)])
    with pytest.raises(DataError, match="set: the reward reads the signal 'cube_pos_w'"):
        list(rewarded(load_task("lift").objective, of, [climb(1.0).action], read_by(None, of.signals)))
