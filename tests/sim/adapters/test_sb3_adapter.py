"""stable-baselines3's view: what its learners read of a step, and that they bootstrap from the right value."""

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecCheckNan, VecMonitor, VecNormalize

from temporeal.sim.adapters.gymnasium import make_env
from temporeal.sim.adapters.stable_baselines3 import TaskVecEnv, make_vec_env
from temporeal.sim.adapters.worlds import recipe

SHORT = {"history": 2, "threads": 1}


def load(name):
    """A module beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


with_camera = load("cameras").with_camera


def actions(steps, worlds, seed=0):
    return np.clip(0.4 * np.random.default_rng(seed).standard_normal((steps, worlds, 4)), -1, 1).astype(np.float32)


def test_schedules_that_nobody_would_choose_are_not_shown():
    with pytest.raises(ValueError, match=r"task 'stl' .* algo=tgpo.*give view='terminal_robustness'"):
        make_vec_env("stl", 2, formula="F[0,2] (base_pos_w.x > 1)")


def test_rows_are_worlds_and_infos_tell_of_the_episodes_that_ended():
    env = make_vec_env("hover", 4, seed=6, randomize="default", **SHORT)
    ours = recipe("hover", randomize="default", **SHORT).build(4, seed=6)
    assert np.array_equal(env.reset(), ours.reset().actor.numpy())
    total, length, ended = np.zeros(4), np.zeros(4, int), 0
    for action in actions(200, 4):
        obs, reward, done, infos = env.step(action)
        step = ours.step(torch.from_numpy(action))
        assert obs.dtype == reward.dtype == np.float32 and done.dtype == bool
        assert np.array_equal(obs, step.obs.actor.numpy()) and np.array_equal(reward, step.reward.numpy())
        total, length = total + reward, length + 1
        for i, info in enumerate(infos):
            assert bool(info) == bool(done[i]) == bool(step.terminated[i] | step.truncated[i])
            if info:
                ended += 1
                assert np.array_equal(info["terminal_observation"], step.final_obs.actor[i].numpy())
                assert info["TimeLimit.truncated"] is bool(step.truncated[i])
                assert info["episode"]["r"] == pytest.approx(total[i], rel=1e-4, abs=1e-3)
                assert info["episode"]["l"] == length[i] and info["is_success"] is bool(step.info["success"][i])
        total[done], length[done] = 0, 0
    assert ended >= 8


@pytest.mark.parametrize(("fence", "clock"), [(1e4, True), (0.6, False)])
def test_the_clock_truncates_and_a_crash_does_not(fence, clock):
    env = make_vec_env("hover", 4, seed=0, control_dt=0.02, constants={"fence": fence}, **SHORT)
    env.reset()
    steps, ended = env.worlds.task.steps, 0
    for _ in range(steps + 10):
        _, _, done, infos = env.step(np.full((4, 4), -0.5, np.float32))
        for i in np.flatnonzero(done):
            ended += 1
            assert infos[i]["TimeLimit.truncated"] is clock and (infos[i]["episode"]["l"] == steps) is clock
    assert ended >= 4


def test_ppo_bootstraps_where_the_clock_ended_an_episode_and_nowhere_else():
    env = make_vec_env("hover", 6, seed=3, **SHORT)
    value, gamma = 7.0, 0.9
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, gamma=gamma, seed=0, device="cpu")
    with torch.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(value)
    raw, real = [], env.step_wait
    limit = env.worlds.task.steps

    def spied():
        obs, reward, done, infos = real()
        for i in np.flatnonzero(done)[:1]:  # of the ends of a step, call one that of the clock
            infos[i]["TimeLimit.truncated"] = True
        raw.append((reward.copy(), [bool(i.get("TimeLimit.truncated")) for i in infos], done))
        return obs, reward, done, infos

    env.step_wait = spied
    model._setup_learn(1)
    _, callback = model._setup_learn(1)
    model.collect_rollouts(env, callback, model.rollout_buffer, 64)
    reward = np.stack([r for r, _, _ in raw])
    cut = np.stack([c for _, c, _ in raw])
    done = np.stack([d for _, _, d in raw])
    assert 0 < cut.sum() < done.sum() and limit > 64
    np.testing.assert_allclose(model.rollout_buffer.rewards, reward + gamma * value * cut, rtol=1e-5, atol=1e-5)


def test_a_seed_keys_the_next_reset_and_only_that():
    env = make_vec_env("hover", 3, **SHORT)
    assert env.seed(8) == [8, 8, 8]
    one = env.reset()
    two = env.reset()
    env.seed(8)
    env.step(actions(1, 3)[0])
    assert np.array_equal(env.reset(), one) and np.array_equal(env.reset(), two)
    assert np.array_equal(one, recipe("hover", **SHORT).build(3, 8).reset().actor.numpy())
    assert env.seed(None)[0] != env.seed(None)[0]
    with pytest.raises(ValueError, match="a seed is"):
        env.seed(-3)


def test_wrappers_of_sb3_and_its_evaluation_work_without_a_warning():
    env = VecNormalize(VecCheckNan(make_vec_env("hover", 4, seed=0, **SHORT), raise_exception=True))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=64, n_epochs=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(256)
        env.training = False
        returns, lengths = evaluate_policy(model, env, n_eval_episodes=6, return_episode_rewards=True)
    assert len(returns) == 6 and all(0 < n <= 500 for n in lengths)
    assert model.ep_info_buffer and {"r", "l", "t"} == set(model.ep_info_buffer[0])
    with pytest.warns(UserWarning, match="already wrapped"):
        VecMonitor(make_vec_env("hover", 1, **SHORT))


def test_sb3s_checker_takes_the_single_environment():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env("hover", **SHORT))


def test_attributes_and_methods_are_of_the_one_environment():
    env = make_vec_env("hover", 3, seed=0, **SHORT)
    assert env.get_attr("num_worlds") == [3, 3, 3] and env.get_attr("num_worlds", indices=[1]) == [3]
    assert env.get_attr("render_mode") == [None] * 3 and env.has_attr("task") and not env.has_attr("wings")
    assert env.env_method("true_signals")[2]["base_pos_w"].shape == (3, 3)
    env.set_attr("command_override", None)
    assert env.worlds.command_override is None
    assert env.env_is_wrapped(Monitor) == [True] * 3 and env.env_is_wrapped(VecMonitor, 0) == [False]
    with pytest.raises(ValueError, match="one environment"):
        env.set_attr("command_override", None, indices=[0])
    with pytest.raises(ValueError, match="one environment"):
        env.env_method("true_signals", indices=1)
    with pytest.raises(AttributeError, match="wings"):
        env.get_attr("wings")
    with pytest.raises(IndexError, match="worlds 0 to 2"):
        env.get_attr("task", indices=[3])


def test_wrong_actions_order_and_options_are_refused():
    env = make_vec_env("hover", 2, seed=0, **SHORT)
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 4\)"):
        env.step(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"worlds \[0\]"):
        env.step(np.array([[np.nan] * 4, [0.0] * 4]))
    with pytest.raises(RuntimeError, match="step_async"):
        env.step_wait()
    env.set_options({"low": 1})
    with pytest.raises(ValueError, match="no options"):
        env.reset()


def test_what_was_returned_is_not_overwritten():
    env = make_vec_env("hover", 3, seed=0, **SHORT)
    kept = [(env.reset(),)]
    kept += [env.step(action)[:2] for action in actions(120, 3)]
    copies = [tuple(x.copy() for x in row) for row in kept]
    for action in actions(120, 3, seed=1):
        env.step(action)
    assert all(np.array_equal(a, b) for row, other in zip(kept, copies) for a, b in zip(row, other))


def test_images_reach_sb3s_convolutions_and_its_pictures():
    env = TaskVecEnv(with_camera(recipe("hover", **SHORT).build(2)), render_mode="rgb_array")
    model = PPO("MultiInputPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu",
                policy_kwargs={"net_arch": [8]})
    assert model.observation_space["front"].shape == (3, 36, 36)  # SB3's own transposition
    model.learn(16)
    assert env.get_images()[1].shape == (36, 36, 3) and env.render("rgb_array").shape == (36 * 2, 36, 3)
