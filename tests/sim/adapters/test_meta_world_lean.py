"""Worlds without a dense reward, and scripts of many worlds at once, are the library's own."""

import numpy as np
import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

pytest.importorskip("metaworld", reason="pip install temporeal[foreign-tasks]")
pytest.importorskip("mujoco")

from temporeal.sim.adapters import meta_world
from temporeal.sim.adapters.meta_world_lean import GOALS, LeanSawyer
from temporeal.sim.adapters.meta_world_scripts import SCRIPTS

N = 3


@pytest.mark.parametrize("name", ["peg-hard", "soccer-v3"])
def test_lean_worlds_step_as_the_library_does_until_goals_are_reached(name):
    theirs, lean = meta_world.Sawyer(name, N, True), LeanSawyer(name, N)
    script, noise, reached = meta_world.scripted([name], N), np.random.default_rng(0), 0.0
    for seed in (0, 20):  # the second time from the remembered state
        first = [theirs.reset(world, seed + world)["state"] for world in range(N)]
        state = np.stack([lean.reset(world, seed + world)["state"] for world in range(N)])
        np.testing.assert_array_equal(state, np.stack(first))
        for _ in range(100):
            seen = {"state": torch.from_numpy(state).float()}
            np.testing.assert_allclose(SCRIPTS[name](seen), script(seen), rtol=1e-6, atol=1e-6)
            action = script(seen) + 0.1 * noise.standard_normal((N, 4))
            own, found = [theirs.step(world, action[world]) for world in range(N)], lean.steps(range(N), action)
            state = found["state"]
            np.testing.assert_allclose(state, np.stack([each["state"] for each in own]), atol=1e-9)
            np.testing.assert_array_equal(found["success"], np.stack([each["success"] for each in own]))
            reached += found["success"].sum()
    assert reached > 0


def test_hard_pegs_have_holes_at_the_far_end():
    worlds = LeanSawyer("peg-hard", 1)
    far = [worlds.reset(0, seed)["state"][37] for seed in range(40)]
    assert min(far) > 0.6 and max(far) < 0.7 and np.ptp(far) > 0.06
    easy = LeanSawyer("peg-insert-side-v3", 1)
    assert min(easy.reset(0, seed)["state"][37] for seed in range(40)) < 0.6


def test_all_lean_environments_are_known_and_told_apart_in_one_env():
    assert set(GOALS) <= set(meta_world.names()) and set(SCRIPTS) <= set(GOALS)
    env = make_env(load_task("metaworld", env="soccer-v3", reward="success"), num_worlds=2, seed=1)
    assert isinstance(env.backend.simulation.sawyers[0], LeanSawyer)
    dense = load_task("metaworld", env="soccer-v3").scene.simulate(1)
    assert not isinstance(dense.sawyers[0], LeanSawyer)


def test_motion_shows_velocities_and_differences():
    env = make_env(load_task("metaworld", env="soccer-v3", reward="success", see="motion"), num_worlds=2, seed=1)
    env.reset()
    step = env.step(torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, -1.0, 1.0]]))
    state, seen = env.true_signals()["state"], step.obs.actor
    assert seen.shape == (2, env.obs_dim) == (2, 38)
    torch.testing.assert_close(seen[:, 11:14], (state[:, :3] - state[:, 18:21]) / 0.0125)
    torch.testing.assert_close(seen[:, 29:], torch.cat(
        [state[:, :3] - state[:, 4:7], state[:, 4:7] - state[:, 36:], state[:, 36:]], -1))
    assert seen[0, 11] > 0.0 and seen[1, 12] > 0.0


def test_a_world_whose_action_is_not_finite_ends_alone():
    env = make_env(load_task("metaworld", env="soccer-v3", reward="success"), num_worlds=2, seed=1)
    env.reset()
    step = env.step(torch.tensor([[float("nan"), 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    assert step.info["finite"].tolist() == [False, True] and step.terminated.tolist() == [True, False]
