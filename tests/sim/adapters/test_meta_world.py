"""Meta-World's worlds, many in one environment of the library, are the library's own."""

import numpy as np
import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

pytest.importorskip("metaworld", reason="pip install temporeal[foreign-tasks]")
mujoco = pytest.importorskip("mujoco")

from temporeal.sim.adapters import meta_world  # noqa: E402 (the library must be there)
from temporeal.sim.adapters.meta_world_sentences import SENTENCES, VOCABULARY  # noqa: E402


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
    with pytest.raises(ValueError, match="reward is one of dense, success"):
        load_task("metaworld", reward="none")
    with pytest.raises(ValueError, match="take backend=auto"):
        make_env(load_task("metaworld"), num_worlds=1, backend="mujoco")


@pytest.mark.parametrize("renderer", ["gl", pytest.param("warp", marks=pytest.mark.slow)])
def test_pictures_of_worlds_equal_those_of_a_fresh_model(renderer):
    """The library moves the drawer by moving a body of its model, which differs between worlds here."""
    from temporeal.sim.rendering.cameras import Camera
    from temporeal.sim.rendering.rig import Rig

    pytest.importorskip("mujoco_warp" if renderer == "warp" else "mujoco.egl")
    task = load_task("metaworld", env="drawer-open-v3", see="hand")
    camera = Camera("right", 32, 24, ("rgb",))
    env = make_env(task, num_worlds=2, seed=3, cameras=[camera], renderer=renderer)
    first = env.reset()
    assert not torch.equal(first.images["right_rgb"][0], first.images["right_rgb"][1])
    for _ in range(3):
        step = env.step(torch.tensor([[1.0, 1.0, -1.0, 1.0], [-1.0, 0.5, 0.0, -1.0]]))
    assert not torch.equal(step.obs.images["right_rgb"], first.images["right_rgb"])
    placed = env.pictures.rig.cameras[0]
    sawyer = env.backend.simulation.sawyers[0]
    for world, moved in enumerate(sawyer.moved):
        fresh = meta_world.made("drawer-open-v3")
        fresh.model.body_pos[:], fresh.model.body_quat[:] = moved[0], moved[1]
        mujoco.mj_setState(fresh.model, fresh.data, sawyer.states[world], sawyer.spec)
        with Rig(fresh.model, 1, (placed,), renderer=renderer) as rig:
            alone = rig.render(*(torch.from_numpy(np.array(x[None], np.float32)) for x in (
                fresh.data.qpos, fresh.data.mocap_pos, fresh.data.mocap_quat)))
        assert torch.equal(alone["right_rgb"][0], step.obs.images["right_rgb"][world])


def test_what_cameras_need_not_find_is_shown_and_the_critic_is_told_the_state():
    for name, told in (("push-v3", True), ("door-open-v3", False)):
        env = make_env(load_task("metaworld", env=name, see="hand"), num_worlds=2, seed=1)
        obs, truth = env.reset(), env.true_signals()
        state = truth["state"]
        assert torch.equal(obs.actor[:, :4], state[:, :4])
        assert torch.equal(obs.actor[:, 4:], state[:, 36:39] if told else torch.zeros(2, 3))
        assert torch.equal(obs.critic[:, 7:46], state)
        assert torch.equal(truth["target_pos_w"], state[:, 4:7])
        assert VOCABULARY.decode(truth["instruction"][0].int().numpy()) == SENTENCES[name]


def test_worlds_of_a_library_that_nothing_here_draws_are_refused():
    from types import SimpleNamespace

    from temporeal.sim.adapters.foreign_worlds import ForeignWorlds

    worlds = ForeignWorlds.__new__(ForeignWorlds)
    worlds.simulation, worlds.name = SimpleNamespace(), "ogbench"
    with pytest.raises(ValueError, match="worlds of ogbench are not drawn"):
        _ = worlds.scenery


def test_worlds_of_several_tasks_are_told_and_drawn_as_their_own():
    from temporeal.sim.rendering.cameras import Camera

    pytest.importorskip("mujoco.egl")
    camera = [Camera("right", 16, 12, ("rgb",))]
    task = load_task("metaworld", env="drawer-close-v3,reach-v3", see="hand")
    env = make_env(task, num_worlds=6, seed=2, cameras=camera, renderer="gl")
    obs, act = env.reset(), meta_world.expert(task, 6)
    said = [VOCABULARY.decode(row.int().numpy()) for row in env.true_signals()["instruction"]]
    reaches = np.array([sentence == SENTENCES["reach-v3"] for sentence in said])
    assert 0 < reaches.sum() < 6
    assert np.array_equal(obs.actor[:, 4:].abs().sum(1).numpy() > 0, reaches)
    chosen = act(env.true_signals(), torch.ones(6))
    for name, own in (("drawer-close-v3", ~reaches), ("reach-v3", reaches)):
        alone = meta_world.expert(load_task("metaworld", env=name), int(own.sum()))
        seen = {key: value[torch.from_numpy(own)] for key, value in env.true_signals().items()}
        assert torch.equal(alone(seen, torch.ones(int(own.sum()))), chosen[torch.from_numpy(own)])
    drawer = obs.images["right_rgb"][torch.from_numpy(~reaches)].float().mean((1, 2))
    empty = obs.images["right_rgb"][torch.from_numpy(reaches)].float().mean((1, 2))
    green = drawer[:, 1] - drawer[:, 0]  # the drawer is
    assert green.min() > (empty[:, 1] - empty[:, 0]).max()
    some = torch.tensor([4, 1])
    assert torch.equal(env.render(some)["right_rgb"], obs.images["right_rgb"][some])
