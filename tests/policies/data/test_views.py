"""Datasets as transitions: what the task's policy would have seen and given."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.data import objective_rewards
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.data.memoryless import shown
from temporeal.policies.data.views import flat_view, task_view, transitions
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

FACE = Interface("arm", schema(SignalSpec("joint_pos", (2,), "rad"), SignalSpec("height", (), "m")),
                 ActionSpec("joint_vel", (-2.0, 0.0), (2.0, 4.0), "rad/s"), 10.0)


def episode(samples: int, steps: int, begin: float, **more) -> Episode:
    """An episode whose numbers count up from ``begin``."""
    count = begin + np.arange(samples, dtype=np.float32)
    return Episode({"joint_pos": np.stack([count, -count], 1), "height": count + 0.5},
                   np.tile(np.array([1.0, 3.0], np.float32), (steps, 1)), reward=count[:steps], **more)


def opened(folder: Path, *episodes: Episode, face: Interface = FACE) -> Dataset:
    with DatasetWriter(folder, face) as writer:
        for each in episodes:
            writer.add(each)
    return Dataset.open(folder)


def test_steps_stay_in_their_episode_and_end_as_they_did(tmp_path: Path) -> None:
    found = transitions(
        opened(tmp_path / "set", episode(4, 3, 0.0, terminated=True, success=True),  # ends the task, final state held
               episode(3, 3, 10.0),  # cut, its last step has no successor
               episode(2, 2, 20.0, terminated=True, success=False)),  # ends the task, without the state after it
        flat_view(["height", "joint_pos"]))
    assert found.reward.tolist() == [0, 1, 2, 10, 11, 20, 21]
    assert found.mask.tolist() == [1, 1, 0, 1, 1, 1, 0]
    assert found.starts.tolist() == [0, 3, 5, 7] and found.episode.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert found.obs[:, 0].tolist() == [0.5, 1.5, 2.5, 10.5, 11.5, 20.5, 21.5]
    assert found.next_obs[:5, 0].tolist() == [1.5, 2.5, 3.5, 11.5, 12.5]
    assert torch.equal(found.action, torch.tensor([[0.5, 0.5]]).expand(7, 2))
    assert found.obs_names == ("height", "joint_pos[0]", "joint_pos[1]")
    assert found.success is not None and found.success[:1].tolist() == [1.0] and bool(found.success[1].isnan())


def test_what_cannot_be_shown_is_refused_by_name(tmp_path: Path) -> None:
    data = opened(tmp_path / "set", replace(episode(3, 2, 0.0), reward=None))
    with pytest.raises(DataError, match="no signals \\['speed'\\]; it has: joint_pos, height"):
        transitions(data, flat_view(["speed"]))
    with pytest.raises(DataError, match="reward .* relabel"):
        transitions(data, flat_view(["height"]))
    with pytest.raises(DataError, match="robot: 'crazyflie' is needed, 'arm' is there.*signal base_pos_w is missing"):
        transitions(data, task_view(load_task("hover")))


def flown(folder: Path, worlds: int = 3, steps: int = 40):
    """Episodes of ``hover`` under random actions, what the environment showed, and their dataset."""
    task = load_task("hover")
    env = make_env(task, num_worlds=worlds, seed=1, compiled=False)
    obs, alive, generator = env.reset().actor, torch.ones(worlds, dtype=torch.bool), torch.Generator().manual_seed(0)
    names = [name for name in task.schema if name != "mission_time"]
    command = task.robot.command(task.command)
    face = Interface(task.robot.name, {n: task.schema[n] for n in names}, ActionSpec(
        command.name, tuple(map(float, command.low)), tuple(map(float, command.high)), command.unit),
        1.0 / task.control_dt, task.act.action_dim, task.name)
    signals, seen, given, sent, reward = [dict(env.true_signals())], [obs.clone()], [], [], []
    signals[0] = {n: signals[0][n].clone() for n in names}
    ended, length = torch.zeros(worlds, dtype=torch.bool), torch.zeros(worlds, dtype=torch.int64)
    for _ in range(steps):
        action = (0.5 * torch.randn(worlds, task.act.action_dim, generator=generator)).clamp(-1.0, 1.0)
        step = env.step(action)
        given.append(action), sent.append(env.command.clone()), reward.append(step.reward.clone())
        signals.append({n: step.info["signals"][n].clone() for n in names})
        length += alive
        ended |= alive & step.terminated
        alive &= ~(step.terminated | step.truncated)
        seen.append(step.obs.actor.clone())
    with DatasetWriter(folder, face) as writer:
        for w in range(worlds):
            n = int(length[w])
            writer.add(Episode({name: np.stack([s[name][w].numpy() for s in signals[: n + 1]]) for name in names},
                               torch.stack(sent)[:n, w].numpy(), torch.stack(given)[:n, w].numpy(),
                               torch.stack(reward)[:n, w].numpy(), bool(ended[w])))
    return task, Dataset.open(folder), torch.stack(seen), torch.stack(given), torch.stack(reward), length


def test_observations_actions_and_rewards_are_those_that_the_environment_gave(tmp_path: Path) -> None:
    task, data, seen, given, reward, length = flown(tmp_path / "set")
    found = transitions(data, task_view(task))
    for w, (begin, end) in enumerate(zip(found.starts, found.starts[1:])):
        assert end - begin == length[w]
        assert torch.allclose(found.obs[begin:end], seen[: length[w], w], atol=1e-5)
        assert torch.allclose(found.next_obs[begin : end - 1], seen[1 : length[w], w], atol=1e-5)
        assert torch.equal(found.action[begin:end], given[: length[w], w])
    again = transitions(data, task_view(task), reward=objective_rewards.by(task.objective))
    assert torch.allclose(again.reward, found.reward, atol=1e-5) and torch.equal(again.mask, found.mask)


def test_a_policy_without_history_is_shown_each_sample_as_an_episodes_first(tmp_path: Path) -> None:
    task, data, *_ = flown(tmp_path / "set")
    forgetful = shown(task, history=False)
    found, whole = transitions(data, task_view(forgetful)), transitions(data, task_view(task))
    first = whole.starts[:-1]
    assert torch.equal(found.obs[first], whole.obs[first]) and not torch.equal(found.obs, whole.obs)
    assert bool((found.obs[:, -task.act.action_dim :] == 0).all())  # of the last actions, which it no longer sees
    assert torch.equal(found.action, whole.action) and shown(task, history=True) is task


def test_without_the_policys_actions_commands_are_inverted(tmp_path: Path) -> None:
    task, data, *_ = flown(tmp_path / "set")
    bare = replace(data.interface, task_action=0)
    other = opened(tmp_path / "bare", *(replace(data.episode(e), policy_action=None) for e in range(3)), face=bare)
    a, b = (transitions(each, task_view(task)) for each in (data, other))
    assert torch.allclose(task.act(a.action, {}), task.act(b.action, {}), atol=1e-4)  # beyond a limit, the limit
    inside = (a.action - b.action).abs().amax(1) < 1e-4
    assert 0.2 < float(inside.float().mean()) < 1.0
