"""Meta-World's worlds, many in one environment of the library, are the library's own."""

import numpy as np
import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

pytest.importorskip("metaworld", reason="pip install temporeal[foreign-tasks]")
mujoco = pytest.importorskip("mujoco")

from temporeal.sim.adapters import meta_world  # noqa: E402 (the library must be there)


def own_episode(name, seed, actions):
    """Observations and rewards of the library's own environment, new, in the episode of ``seed``."""
    env = meta_world.made(name)
    mujoco.mj_resetData(env.model, env.data)
    env.seed(seed)
    env._prev_obs = np.asarray(env.reset_model(), float)[:18].copy()
    return [env.step(action)[:2] for action in actions]


@pytest.mark.parametrize("name", ["door-open-v3", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    "push-v3", "basketball-v3", "peg-insert-side-v3", "drawer-open-v3"))])
def test_worlds_that_take_turns_are_the_librarys_own(name):
    worlds, actions = meta_world.Sawyer(name, 2), np.random.default_rng(0).uniform(-1, 1, (40, 4))
    for _ in range(2):  # the second time from the remembered state
        for world in range(2):
            worlds.reset(world, 5 + world)
    found = [[worlds.step(world, action) for world in range(2)] for action in actions]
    for world in range(2):
        for (obs, reward), mine in zip(own_episode(name, 5 + world, actions), (row[world] for row in found)):
            np.testing.assert_allclose(mine["state"], obs, atol=1e-9)
            assert mine["reward"] == pytest.approx(reward, rel=1e-5, abs=1e-5)


def test_a_scripted_policy_does_its_task_as_a_task_of_ours():
    task = load_task("metaworld", env="drawer-close-v3", steps=80)
    env = make_env(task, num_worlds=2, seed=1)
    obs, act = env.reset(), meta_world.expert(task, 2)
    assert obs.actor.shape == (2, 39) and env.action_dim == 4
    for _ in range(task.steps):
        step = env.step(act(env.true_signals(), torch.ones(2)))
    assert step.truncated.all() and step.info["success"].all()


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="env=door-opne-v3: no such environment; did you mean 'door-open-v3'"):
        load_task("metaworld", env="door-opne-v3")
    with pytest.raises(ValueError, match="reward is dense or success"):
        load_task("metaworld", reward="none")
    with pytest.raises(ValueError, match="take backend=auto"):
        make_env(load_task("metaworld"), num_worlds=1, backend="mujoco")
