"""OGBench's tasks as tasks of ours, and play with its oracles."""

import numpy as np
import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

pytest.importorskip("ogbench", reason="pip install temporeal[foreign-tasks]")

from temporeal.sim.adapters import ogbench

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "size"), [("pointmaze-medium-v0", 2), ("cube-single-v0", 5), ("scene-v0", 5)])
def test_worlds_are_the_librarys_own_and_ask_for_its_goals(name, size):
    worlds = ogbench.Worlds(name, 2, "none")
    begun = [worlds.reset(world, 7 + world) for world in range(2)]
    actions = np.random.default_rng(0).uniform(-1, 1, (10, size)).astype(np.float32)
    found = [[worlds.step(world, action) for world in range(2)] for action in actions]
    for world, seed in enumerate((7, 8)):
        np.random.seed(seed)  # noqa: NPY002 (the library draws from it)
        env = ogbench.made(name)
        env.action_space.seed(seed)
        task = 1 + int(np.random.default_rng(seed).integers(ogbench.TASKS))
        _, info = env.reset(seed=seed, options={"task_id": task})
        np.testing.assert_allclose(begun[world]["goal"], info["goal"], atol=1e-6)
        for action, row in zip(actions, found):
            np.testing.assert_allclose(row[world]["state"], env.step(action)[0], atol=1e-6)


def test_play_moves_the_cube_to_one_target_after_another():
    task = load_task("ogbench", env="cube-single-v0", oracle="play", steps=120)
    env = make_env(task, num_worlds=1, seed=1)
    env.reset()
    act, states = ogbench.expert(task, 1), []
    for _ in range(task.steps - 1):
        env.step(act(env.true_signals(), torch.ones(1)))
        states.append(env.true_signals()["state"][0].clone())
    assert torch.stack(states).std(0).max() > 0.1


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="env=cube-v0: no such environment"):
        load_task("ogbench", env="cube-v0")
    with pytest.raises(ValueError, match="has oracles for quality=play alone"):
        ogbench.expert(load_task("ogbench", env="pointmaze-medium-v0"), 1)
