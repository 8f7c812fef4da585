"""Gymnasium's view: its own checker, its own reference for vector environments, and our keys (seed, world, episode)."""

import importlib.util
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics, TransformReward

from temporeal.robots.registry import UnknownName, names
from temporeal.sim.adapters import gymnasium as adapter
from temporeal.sim.adapters.gymnasium import TaskEnv, TaskVectorEnv, make_env, make_vector_env
from temporeal.sim.adapters.worlds import MAX_SEED, recipe
from temporeal.sim.rendering.cameras import Camera

TASKS = names("temporeal.sim.tasks")
SHORT = {"history": 2, "threads": 1}
NEAR = "F[0,2] (hypot(base_pos_w.x - 1, base_pos_w.y) < 0.5)"
UNBOUNDED = ("minimum value is -infinity", "maximum value is infinity")


def load(name):
    """A module beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


with_camera = load("cameras").with_camera


def actions(steps, worlds=None, seed=0, size=4):
    shape = (steps, size) if worlds is None else (steps, worlds, size)
    return np.clip(0.4 * np.random.default_rng(seed).standard_normal(shape), -1, 1).astype(np.float32)


def episode_ends(env, plan):
    """Flown with ``plan``: observations, rewards and the infos of the steps that ended an episode."""
    ends = []
    for k, action in enumerate(plan):
        obs, reward, terminated, truncated, info = env.step(action)
        if np.any(terminated | truncated):
            ends.append((k, obs, reward, terminated, truncated, info))
    return ends


# ---- one world


@pytest.mark.parametrize(("task", "observation"), [
    ("hover", "actor"), ("hover", "dict"), ("reach", "actor"), *(
        pytest.param(name, "actor", marks=pytest.mark.slow) for name in TASKS if name not in ("hover", "reach"))])
def test_gymnasiums_checker_finds_only_that_signals_have_no_largest_value(task, observation):
    view = {"view": "terminal_robustness"} if task == "stl" else {}
    env = gymnasium.make(f"temporeal/{task}-v0", observation=observation, randomize="auto", **view)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    other = [str(w.message) for w in caught if not any(text in str(w.message) for text in UNBOUNDED)]
    assert not other


def test_every_task_is_registered_by_its_name():
    assert [f"temporeal/{name}-v0" for name in TASKS] == adapter.register()
    assert all(identifier in gymnasium.registry for identifier in adapter.register())


def test_episodes_are_those_of_world_0_of_the_environment_with_that_seed():
    env, worlds = make_env("hover", randomize="default", **SHORT), recipe("hover", randomize="default", **SHORT)
    ours = worlds.build(3, seed=11)
    first, info = env.reset(seed=11)
    obs = ours.reset()
    assert np.array_equal(first, obs.actor[0].numpy()) and np.array_equal(info["critic"], obs.critic[0].numpy())
    ended = 0
    for action in actions(400):
        seen, reward, terminated, truncated, info = env.step(action)
        step = ours.step(torch.from_numpy(np.stack([action] * 3)))
        np.testing.assert_allclose(seen, step.final_obs.actor[0].numpy(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(info["critic"], step.final_obs.critic[0].numpy(), rtol=0, atol=1e-5)
        assert reward == pytest.approx(step.reward[0].item(), abs=1e-5)
        assert (terminated, truncated) == (bool(step.terminated[0]), bool(step.truncated[0]))
        if terminated or truncated:
            ended += 1
            assert info["length"] == int(step.info["length"][0]) and info["is_success"] is False
            seen, _ = env.reset()
            np.testing.assert_allclose(seen, step.obs.actor[0].numpy(), rtol=0, atol=1e-6)
    assert ended >= 3


@pytest.mark.parametrize(("task", "settings"), [
    ("hover", SHORT), ("hover", {**SHORT, "backend": "mujoco", "substeps": 5}), ("reach", {"threads": 1})])
def test_a_seed_makes_the_same_episodes_again_and_another_seed_others(task, settings):
    env = make_env(task, **{"randomize": "auto", **settings})
    size = env.worlds.action_dim

    def flown(seed):
        seen = [env.reset(seed=seed)[0]]
        for action in actions(60, size=size):
            obs, reward, terminated, truncated, _ = env.step(action)
            seen += [obs, reward]
            if terminated or truncated:
                seen.append(env.reset()[0])
        return seen

    one, two, again = flown(1), flown(2), flown(1)
    assert len(one) == len(again) and all(np.array_equal(a, b) for a, b in zip(one, again))
    assert not np.array_equal(one[0], two[0])


def test_without_a_seed_episodes_differ_and_a_reset_in_flight_begins_the_next_one():
    two = [make_env("hover", **SHORT) for _ in range(2)]
    starts = [[env.reset()[0] for _ in range(8)] for env in two]  # a tenth of the episodes begin at home, alike
    assert not np.array_equal(*starts)
    env = make_env("hover", seed=5, **SHORT)
    zero, _ = env.reset()
    assert np.array_equal(zero, recipe("hover", **SHORT).build(1, 5).reset().actor[0].numpy())
    env.step(actions(1)[0])
    one, _ = env.reset()
    env.reset(seed=5)
    assert np.array_equal(env.reset()[0], one) and not np.array_equal(zero, one)


@pytest.mark.parametrize(("fence", "clock"), [(1e4, True), (0.6, False)])
def test_the_clock_truncates_a_crash_terminates_and_a_step_after_either_is_refused(fence, clock):
    env = make_env("hover", control_dt=0.02, constants={"fence": fence}, **SHORT)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.step(np.zeros(4))
    env.reset(seed=0)
    terminated = truncated = False
    steps = 0
    while not (terminated or truncated):
        _, _, terminated, truncated, info = env.step(np.full(4, -0.5))
        steps += 1
    assert (terminated, truncated) == (not clock, clock) and (steps == env.worlds.task.steps) is clock
    assert info["length"] == steps and type(info["is_success"]) is bool
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.step(np.zeros(4))


def test_what_a_learner_writes_into_its_observation_is_not_in_the_critics():
    env = make_env("stl", view="terminal_robustness", formula=NEAR)
    obs, info = env.reset(seed=1)
    before = info["critic"].copy()
    obs += 5.0
    assert np.array_equal(info["critic"], before) and len(before) == len(obs)


def test_schedules_that_nobody_would_choose_are_not_shown():
    with pytest.raises(ValueError, match=r"task 'stl' .* algo=tgpo.*give view='terminal_robustness'"):
        make_env("stl", formula=NEAR)
    with pytest.raises(ValueError, match=r"task 'stl' .* algo=tgpo.*give view='terminal_robustness'"):
        make_vector_env("stl", num_envs=2, formula=NEAR, view="scheduled")


def test_the_dictionary_holds_what_the_critic_sees_and_info_the_signals_asked_for():
    env = make_env("hover", observation="dict", signals=("base_pos_w", "rotor_speed"), **SHORT)
    obs, info = env.reset(seed=1)
    assert set(obs) == {"actor", "critic"} and obs in env.observation_space and "critic" not in info
    assert obs["critic"].shape == (env.worlds.critic_dim,)
    _, _, _, _, after = env.step(np.zeros(4))
    assert set(after["signals"]) == {"base_pos_w", "rotor_speed"}
    assert np.array_equal(after["signals"]["base_pos_w"], env.worlds.true_signals()["base_pos_w"][0].numpy())
    held = info["signals"]["base_pos_w"].copy()
    env.step(np.ones(4))
    assert np.array_equal(held, info["signals"]["base_pos_w"])


def test_spaces_are_float32_and_actions_are_the_nominal_range():
    env = make_env("waypoints", threads=1)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (env.worlds.obs_dim,), np.float32)
    assert env.metadata["render_fps"] == 50


@pytest.mark.parametrize(("change", "told"), [
    ({"observation": "state"}, "one of actor, dict"), ({"history": "long"}, "history is a whole number"),
    ({"speed": 3}, "its settings are: .*formula"), ({"backend": "bullet"}, "known: .*mujoco"),
    ({"randomize": "wild"}, "one of .*default.*none"), ({"signals": ("wind",)}, "wind.*base_pos_w"),
    ({"render_mode": "rgb_array"}, "draw=function"), ({"render_mode": "ansi"}, "rgb_array, or leave it out"),
    ({"seed": -1}, "whole number from 0"), ({"seed": 1.5}, "whole number from 0"),
])
def test_a_wrong_setting_is_told_the_legal_ones(change, told):
    with pytest.raises((ValueError, UnknownName), match=told):
        make_env("hover", **{**SHORT, **change})


def test_wrong_actions_seeds_and_options_are_refused():
    env = make_env("hover", **SHORT)
    for seed in (-1, [1], True, MAX_SEED + 1):
        with pytest.raises(ValueError, match="a seed is"):
            env.reset(seed=seed)
    with pytest.raises(ValueError, match="no options"):
        env.reset(options={"low": -1})
    env.reset(seed=0, options={})
    with pytest.raises(ValueError, match=r"shape \(4,\), got \(3,\)"):
        env.step(np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        env.step(np.array([0.0, np.nan, 0.0, 0.0]))
    with pytest.raises(ValueError, match="one world"):
        TaskEnv(recipe("hover", **SHORT).build(2))


def test_a_named_randomization_brings_its_sensors_and_what_is_given_besides_goes_first():
    named = recipe("hover", randomize="default")
    assert named.options["sensors"]["delay_steps"] == 1 and "mass" in named.options["randomize"]
    assert recipe("hover", randomize="default", sensors={"delay_steps": 3}).options["sensors"] == {"delay_steps": 3}
    assert recipe("hover", randomize="none").build(1).distribution.randomization == {}


# ---- pictures


def test_render_shows_what_the_hook_draws_the_environment_offers_or_the_camera_sees():
    drawn = make_env("hover", render_mode="rgb_array", draw=lambda env, i: np.full((4, 5, 3), i, np.uint8), **SHORT)
    drawn.reset(seed=0)
    assert drawn.render().shape == (4, 5, 3) and drawn.metadata["render_modes"] == ["rgb_array"]
    assert make_env("hover", **SHORT).render() is None
    offers = recipe("hover", **SHORT).build(2)
    offers.render = lambda world: np.full((2, 2, 3), 7 + world, np.uint8)
    frames = TaskVectorEnv(offers, render_mode="rgb_array").render()
    assert [int(frame.max()) for frame in frames] == [7, 8]
    filmed = TaskVectorEnv(with_camera(recipe("hover", **SHORT).build(2)), render_mode="rgb_array")
    filmed.reset(seed=0)
    before = filmed.render()[1]
    filmed.step(np.zeros((2, 4)))
    assert before.shape == (36, 36, 3) and (filmed.render()[1] == before + 1).all()


def test_camera_images_are_part_of_the_observation_and_stay_what_they_were():
    env = TaskEnv(with_camera(recipe("hover", **SHORT).build(1)))
    obs, _ = env.reset(seed=0)
    assert set(obs) == {"actor", "front", "front_depth"} and obs in env.observation_space
    assert env.observation_space["front"] == gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    assert env.observation_space["front_depth"].dtype == np.float32
    kept = obs["front"].copy()
    after = env.step(np.zeros(4))[0]
    assert np.array_equal(obs["front"], kept) and (after["front"] == kept + 1).all() and after in env.observation_space


# ---- N worlds


def test_infos_have_the_form_that_gymnasiums_own_vector_environment_gives_in_same_step_mode():
    ours = make_vector_env("hover", num_envs=3, seed=4, **SHORT)
    # world i of ours is not episode 0 of some other seed, so only the form is compared
    theirs = SyncVectorEnv([lambda: make_env("hover", **SHORT)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP is theirs.metadata["autoreset_mode"]
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space

    def form(env):
        env.reset(seed=4)
        while True:
            obs, reward, terminated, truncated, info = env.step(np.ones((3, 4), np.float32) * 0.2)
            done = terminated | truncated
            if done.any():
                assert np.array_equal(info["_final_obs"], done) and np.array_equal(info["_final_info"], done)
                assert [x is not None for x in info["final_obs"]] == list(done)
                assert all(np.array_equal(info["final_info"][f"_{k}"], done) for k in ("critic", "is_success"))
                shapes = {k: (v.shape, v.dtype.kind) for k, v in info["final_info"].items()}
                return obs.dtype, obs.shape, sorted(info), shapes, info["final_obs"].dtype

    assert form(ours) == form(theirs)


def test_vector_rows_are_worlds_and_final_observations_the_true_successors():
    env, same = (make_vector_env("hover", num_envs=5, seed=9, randomize="default", **SHORT) for _ in range(2))
    ours = recipe("hover", randomize="default", **SHORT).build(5, seed=9)
    seen, _ = env.reset()
    assert np.array_equal(seen, ours.reset().actor.numpy())
    same.reset()
    kept, ended = [], 0
    for action in actions(200, 5):
        obs, reward, terminated, truncated, info = env.step(action)
        step = ours.step(torch.from_numpy(action))
        assert np.array_equal(obs, step.obs.actor.numpy()) and np.array_equal(info["critic"], step.obs.critic.numpy())
        assert np.array_equal(reward, step.reward.numpy()) and np.array_equal(truncated, step.truncated.numpy())
        for i in np.flatnonzero(terminated | truncated):
            ended += 1
            assert np.array_equal(info["final_obs"][i], step.final_obs.actor[i].numpy())
            assert np.array_equal(info["final_info"]["critic"][i], step.final_obs.critic[i].numpy())
            assert not np.array_equal(info["final_obs"][i], obs[i])
        kept.append((obs, obs.copy()))
        assert data_equivalence(same.step(action)[0], obs, exact=True)
    assert ended >= 5
    assert all(np.array_equal(a, b) for a, b in kept), "an observation was overwritten by a later step"


def test_episode_statistics_of_gymnasium_are_the_sums_of_our_rewards():
    env = RecordEpisodeStatistics(make_vector_env("hover", num_envs=4, seed=2, **SHORT))
    env.reset(seed=2)
    total, length, checked = np.zeros(4), np.zeros(4, int), 0
    for action in actions(150, 4):
        _, reward, terminated, truncated, info = env.step(action)
        total, length, done = total + reward, length + 1, terminated | truncated
        if done.any():
            np.testing.assert_allclose(info["episode"]["r"][done], total[done])
            np.testing.assert_allclose(info["final_info"]["return"][done], total[done], rtol=1e-4, atol=1e-3)
            assert np.array_equal(info["episode"]["l"][done], length[done])
            assert np.array_equal(info["final_info"]["length"][done], length[done])
            checked += done.sum()
            total[done], length[done] = 0, 0
    assert checked == env.episode_count >= 4


def test_wrappers_of_gymnasium_see_what_they_expect_of_a_same_step_environment():
    """Its wrappers for observations refuse SAME_STEP themselves (1.4), whoever's environment it is."""
    env = make_vector_env("hover", num_envs=2, seed=0, **SHORT)
    wrapped = DictInfoToList(TransformReward(env, lambda r: 3 * r))
    plain = make_vector_env("hover", num_envs=2, seed=0, **SHORT)
    assert np.array_equal(wrapped.reset(seed=3)[0], plain.reset(seed=3)[0])
    ended = 0
    for action in actions(80, 2):
        obs, reward, terminated, truncated, infos = wrapped.step(action)
        raw, other, _, _, told = plain.step(action)
        assert np.array_equal(obs, raw) and np.array_equal(reward, 3 * other)
        for i in np.flatnonzero(terminated | truncated):
            ended += 1
            assert np.array_equal(infos[i]["final_obs"], told["final_obs"][i])
            assert infos[i]["final_info"]["return"] == told["final_info"]["return"][i]
    assert ended >= 2


def test_make_vec_takes_num_envs_or_num_worlds_and_a_seed_is_one_for_all():
    env = gymnasium.make_vec("temporeal/hover-v0", num_envs=3, **SHORT)
    assert (env.num_envs, env.observation_space.shape) == (3, (3, 26))
    assert gymnasium.make_vec("temporeal/hover-v0", num_worlds=7, **SHORT).num_envs == 7
    with pytest.raises(ValueError, match="one|for all worlds together"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match=r"worlds \[1\]"):
        env.step(np.array([[0.0] * 4, [np.inf] * 4, [0.0] * 4]))
    env.close()


@pytest.mark.parametrize("count", [1.5, 0, True, "4"])
def test_the_number_of_worlds_is_a_whole_number(count):
    with pytest.raises(ValueError, match=f"the number of worlds is a whole number from 1, got {count!r}"):
        gymnasium.make_vec("temporeal/hover-v0", num_envs=count, **SHORT)


# ---- cameras

CHASE = {"chase": {"width": 24, "height": 16}}


def test_cameras_are_given_as_configuration_has_them_or_as_objects():
    env = make_vector_env("hover", num_envs=2, seed=0, cameras=CHASE, renderer="gl", **SHORT)
    assert {name: space.shape for name, space in env.single_observation_space.spaces.items()} == {
        "actor": (26,), "chase_rgb": (16, 24, 3), "chase_depth": (16, 24)}
    obs, _ = env.reset(seed=0)
    same, _ = make_env("hover", cameras=[Camera("chase", 24, 16)], renderer="gl", **SHORT).reset(seed=0)
    assert np.array_equal(obs["chase_rgb"][0], same["chase_rgb"]) and same["chase_rgb"].any()
    env.close()
    with pytest.raises(ValueError, match="this rig is closed"):
        env.worlds.pictures.rig.render(torch.zeros(2, 7))
    assert make_vector_env("hover", num_envs=1, cameras={}, **SHORT).single_observation_space.shape == (26,)


@pytest.mark.parametrize(("cameras", "told"), [
    ("chase", "cameras are given by name.*temporeal.sim.rendering.cameras.Camera; got 'chase'"),
    (["chase"], "by name.*got .'chase'.$"),
    ({"chase": 64}, "cameras.chase is a mapping with width and height, got 64"),
    ({"front": {"width": 8, "height": 8}}, "no camera 'front'; known: .*chase; or place one"),
])  # fmt: skip
def test_wrong_cameras_are_refused_by_name(cameras, told):
    with pytest.raises((ValueError, UnknownName), match=told):
        make_env("hover", cameras=cameras, renderer="gl", **SHORT)


@pytest.mark.slow
def test_what_the_cameras_see_goes_on_after_a_resume():
    made = {"cameras": CHASE, "renderer": "gl", "appearance": {"camera.chase.pos": {"kind": "sources"}}, **SHORT}
    env, plan = make_vector_env("hover", num_envs=3, seed=4, **made), torch.from_numpy(actions(40, 3))
    env.reset()
    for action in plan[:25]:
        env.step(action.numpy())
    state, images = env.worlds.state_dict(), {k: v.clone() for k, v in env.worlds.images.items()}
    wanted = [env.step(action.numpy()) for action in plan[25:]]
    again = make_vector_env("hover", num_envs=3, seed=4, **made)
    again.worlds.load_state_dict(state)
    assert all(torch.equal(image, images[name]) for name, image in again.worlds.images.items())
    found = [again.step(action.numpy()) for action in plan[25:]]
    assert any((terminated | truncated).any() for _, _, terminated, truncated, _ in wanted)
    for (obs, reward, *_), (same, equal, *_) in zip(wanted, found, strict=True):
        assert all(np.array_equal(obs[name], same[name]) for name in obs) and np.array_equal(reward, equal)


def test_the_vector_dictionary_has_the_same_keys_in_final_observations():
    env = make_vector_env("hover", num_envs=2, seed=0, observation="dict", signals=("base_pos_w",), **SHORT)
    obs, info = env.reset(seed=0)
    assert obs in env.observation_space and "critic" not in info and info["signals"]["base_pos_w"].shape == (2, 3)
    (_, obs, _, terminated, _, info), *_ = episode_ends(env, actions(80, 2))
    i = int(np.flatnonzero(terminated)[0])
    assert set(info["final_obs"][i]) == {"actor", "critic"}
    home = np.array([0.0, 0.0, 1.0])
    # before the reset the world had left the fence of 0.6 m, after it is within 0.2 m of home
    assert np.abs(info["final_info"]["signals"]["base_pos_w"][i] - home).max() > 0.6
    assert np.abs(info["signals"]["base_pos_w"][i] - home).max() <= 0.2 + 1e-6
