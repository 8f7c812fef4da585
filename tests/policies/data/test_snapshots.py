"""Starts at states of recorded episodes: the world goes on there as the recorded one did."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
import torch
from tests.policies.data.test_views import flown

from temporeal.policies.algos import sac
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.snapshots import begin_at_snapshots, snapshots_of
from temporeal.policies.training.off_policy.learner import choose_starts, start
from temporeal.sim.env import Env, make_env
from temporeal.sim.task import load_task

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """Three flights of ``hover``: the task, the set, what was seen and done, what was paid, and how long they are."""
    return flown(tmp_path_factory.mktemp("sets") / "hover")


def begun(dataset: Dataset, worlds: int) -> Env:
    env = make_env(load_task("hover"), num_worlds=worlds, seed=5, compiled=False)
    begin_at_snapshots(env, dataset)
    return env


def test_each_sample_before_the_last_is_a_start(flights: tuple) -> None:
    task, dataset, *_, length = flights
    found = snapshots_of(dataset, task, ())
    assert len(found.memory["tick"]) == int(length.sum())
    assert found.memory["tick"].tolist() == [float(k) for n in length.tolist() for k in range(n)]
    assert not found.resting  # all that this task's starts set is in the set, velocities among it


def test_an_episode_goes_on_where_it_began_as_the_recorded_one_did(flights: tuple) -> None:
    """The same observation, and after the same action the same reward and the same time; the rotors, which no signal
    shows, begin at hover speed, so what is seen next is only near."""
    _, dataset, seen, given, reward, _ = flights
    env = begun(dataset, 64)
    env.set_mid_episode_starts(1.0)
    obs, tick = env.reset().actor, env.count
    assert bool(env.mid_episode.all()) and len(tick.unique()) > 10
    rows = [(obs[i] - seen[int(tick[i])]).abs().amax(-1).argmin() for i in range(64)]  # which flight it was
    worlds = torch.stack(rows)
    assert torch.allclose(obs, seen[tick, worlds], atol=1e-5)
    step = env.step(given[tick, worlds])
    assert torch.equal(env.count[~step.truncated], tick[~step.truncated] + 1)
    near = (step.reward - reward[tick, worlds]).abs()
    assert float(near.median()) < 0.05 * float(reward.std()) and float(reward.std()) > 0.0


def test_a_share_of_episodes_begins_so_and_the_others_as_the_task_says(flights: tuple) -> None:
    env = begun(flights[1], 400)
    env.set_mid_episode_starts(0.25)
    env.reset()
    assert abs(float(env.mid_episode.float().mean()) - 0.25) < 0.11  # five standard deviations
    assert bool((env.count[~env.mid_episode] == 0).all())


def test_the_share_falls_over_the_steps(flights: tuple) -> None:
    learner = start(begun(flights[1], 4), sac.SACConfig(), sac.SAC, 0, None)
    learner.config = sac.SACConfig(snapshots=0.8, snapshot_steps=200, snapshot_length=7)
    for steps, share in ((0, 0.8), (100, 0.4), (300, 0.0)):
        learner.update = steps
        choose_starts(learner)
        assert learner.env.distribution.mid_episode_starts == pytest.approx(share)
    assert learner.env.distribution.truncate_after == 7


def test_failures_are_no_teacher_s(flights: tuple) -> None:
    task, dataset, *_, length = flights
    dataset = copy(dataset)
    dataset.records = [replace(record, success=told) for record, told in zip(dataset.records, (False, True, None))]
    assert len(snapshots_of(dataset, task, ()).memory["tick"]) == int(length[1:].sum())
    dataset.records = [replace(record, success=False) for record in dataset.records]
    with pytest.raises(DataError, match="no episode but failures"):
        snapshots_of(dataset, task, ())


def test_two_kinds_of_mid_episode_starts_and_missing_signals_are_refused(flights: tuple) -> None:
    env = begun(flights[1], 2)
    env.set_mid_episode_starts(0.5)
    with pytest.raises(DataError, match="task.mid_episode_starts=0.5 are the task's own"):
        begin_at_snapshots(env, flights[1])
    with pytest.raises(DataError, match="set by joint_pos.* which the dataset has not"):
        snapshots_of(flights[1], load_task("reach"), ())
