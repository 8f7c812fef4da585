"""rsl_rl's view: the contract of rsl-rl-lib 5, tensors without copies, and its runner."""

import math

import pytest
import torch

from temporeal.sim.adapters.worlds import recipe

SHORT = {"history": 2, "threads": 1}
MODEL = {"class_name": "MLPModel", "hidden_dims": [16, 16], "activation": "elu", "obs_normalization": True}


def make_vec_env(*args, **kwargs):
    """The adapter's environment; imported here, because rsl_rl takes seconds (torch's compiler)."""
    from temporeal.sim.adapters import rsl_rl

    return rsl_rl.make_vec_env(*args, **kwargs)


def runner_of(env, *args, **kwargs):
    """rsl_rl's runner."""
    from rsl_rl.runners import OnPolicyRunner

    return OnPolicyRunner(env, *args, **kwargs)


def settings(**changes):
    """Of the runner: small."""
    return {
        "num_steps_per_env": 8, "save_interval": 1000, "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2},
        "actor": {**MODEL, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": dict(MODEL), **changes}


def plan(steps, worlds, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (0.4 * torch.randn(steps, worlds, 4, generator=generator)).clamp(-1, 1)


def test_it_has_what_the_contract_names():
    from rsl_rl.env import VecEnv

    env = make_vec_env("hover", num_envs=3, seed=1, **SHORT)
    assert isinstance(env, VecEnv) and set(VecEnv.__annotations__) <= set(dir(env))
    assert (env.num_envs, env.num_actions, env.max_episode_length) == (3, 4, 500)
    assert env.device == torch.device("cpu") and env.episode_length_buf.tolist() == [0, 0, 0]
    assert env.cfg["task"]["name"] == "hover" and env.cfg["backend"]["name"] == "quadrotor"


def test_a_step_is_the_environments_own_and_nothing_is_copied():
    env = make_vec_env("hover", num_envs=4, seed=6, randomize="default", **SHORT)
    ours = recipe("hover", randomize="default", **SHORT).build(4, seed=6)
    first = ours.reset()
    assert torch.equal(env.get_observations()["policy"], first.actor)
    real, ended = env.worlds.step, 0
    made = []
    env.worlds.step = lambda action: made.append(real(action)) or made[-1]
    for action in plan(150, 4):
        obs, reward, dones, extras = env.step(action)
        step = ours.step(action)
        assert torch.equal(obs["policy"], step.obs.actor) and torch.equal(obs["critic"], step.obs.critic)
        assert obs.batch_size == (4,) and obs.device == env.device
        assert torch.equal(reward, step.reward) and torch.equal(dones, step.terminated | step.truncated)
        assert torch.equal(extras["time_outs"], step.truncated)
        assert obs["policy"].data_ptr() == made[-1].obs.actor.data_ptr() and reward is made[-1].reward
        assert ("log" in extras) == bool(dones.any())
        if "log" in extras:
            ended += int(dones.sum())
            assert extras["log"]["/return"] == pytest.approx(step.info["return"][dones].mean().item())
            assert extras["log"]["/length"] == step.info["length"][dones].float().mean()
    assert ended >= 4


@pytest.mark.parametrize(("fence", "clock"), [(1e4, True), (0.6, False)])
def test_a_time_out_is_the_clocks_and_a_crash_is_none(fence, clock):
    env = make_vec_env("hover", num_envs=4, seed=0, control_dt=0.02, constants={"fence": fence}, **SHORT)
    steps, length, ended = env.max_episode_length, torch.zeros(4), 0
    for _ in range(steps + 10):
        _, _, dones, extras = env.step(torch.full((4, 4), -0.5))
        length += 1
        assert torch.equal(extras["time_outs"], dones & clock) and bool(((length[dones] == steps) == clock).all())
        ended += int(dones.sum())
        length[dones] = 0
    assert ended >= 4


def test_episodes_that_count_as_older_are_cut_by_the_clock_and_keep_their_mission_time():
    env, free = (make_vec_env("track", num_envs=4, seed=0, threads=1) for _ in range(2))
    steps = env.max_episode_length
    env.episode_length_buf = torch.tensor([0, 5, steps - 10, steps - 1])
    assert env.episode_length_buf.tolist() == [0, 5, steps - 10, steps - 1]
    action, cuts = torch.zeros(4, 4), {}
    for k in range(12):
        obs, _, dones, extras = env.step(action)
        other, *_ = free.step(action)
        assert torch.equal(dones, extras["time_outs"])
        for i in dones.nonzero()[:, 0].tolist():
            cuts[i] = k + 1
            # its next episode, as `reset` would begin it: episode 1 of this world
            again = recipe("track", threads=1).build(4, 0)
            again.reset()
            assert torch.equal(obs["policy"][i], again.reset().actor[i])
        assert torch.equal(obs["policy"][:2], other["policy"][:2])
    assert cuts == {3: 1, 2: 10}
    assert env.episode_length_buf.tolist() == [12, 17, 2, 11]
    assert env.worlds.true_signals()["mission_time"].tolist() == pytest.approx([0.24, 0.24, 0.04, 0.22])


@pytest.mark.parametrize("ages", [torch.zeros(3), torch.tensor([0, 0, 0, 500]), torch.tensor([0, 0, -1, 0])])
def test_impossible_ages_are_refused(ages):
    env = make_vec_env("hover", num_envs=4, seed=0, **SHORT)
    with pytest.raises(ValueError, match="from 0 to 499"):
        env.episode_length_buf = ages


def test_the_runner_learns_a_few_iterations_and_the_environment_is_usable_afterwards():
    env = make_vec_env("hover", num_envs=16, seed=0, **SHORT)
    runner = runner_of(env, settings(), log_dir=None, device="cpu")
    before = [p.clone() for p in runner.alg.get_policy().parameters()]
    runner.learn(3, init_at_random_ep_len=True)
    assert runner.current_learning_iteration == 2
    assert any(not torch.equal(a, b) for a, b in zip(before, runner.alg.get_policy().parameters()))
    # rsl_rl steps in inference mode, whose tensors nothing may write to later
    obs, _ = env.reset()
    policy = runner.get_inference_policy()
    for _ in range(80):
        obs, *_ = env.step(policy(obs).detach())
    assert torch.isfinite(obs["policy"]).all()
    runner.learn(1)


def test_its_logger_gets_our_figures(tmp_path):
    env = make_vec_env("hover", num_envs=16, seed=0, **SHORT)
    runner = runner_of(env, settings(num_steps_per_env=40), log_dir=str(tmp_path), device="cpu")
    runner.learn(1)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert {"/success", "/return", "/length"} <= set(events.Tags()["scalars"])
    assert 1 <= events.Scalars("/length")[0].value <= 40


def test_a_seed_begins_its_episodes():
    env = make_vec_env("hover", num_envs=2, seed=0, **SHORT)
    env.step(torch.zeros(2, 4))
    assert env.seed(9) == 9
    assert torch.equal(env.get_observations()["policy"], recipe("hover", **SHORT).build(2, 9).reset().actor)
    assert env.seed() != env.seed()


def test_wrong_actions_are_refused():
    env = make_vec_env("hover", num_envs=2, seed=0, **SHORT)
    with pytest.raises(ValueError, match=r"actions are \[2, 4\]"):
        env.step(torch.zeros(4))
    with pytest.raises(ValueError, match=r"actions are a torch.Tensor \[2, 4\], got ndarray"):
        env.step(torch.zeros(2, 4).numpy())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_actions_that_are_not_finite_are_refused_by_world_and_nothing_is_flown(value):
    env = make_vec_env("hover", num_envs=3, seed=0, **SHORT)
    actions = torch.zeros(3, 4)
    actions[2, 1] = value
    with pytest.raises(ValueError, match=r"those of worlds \[2\] are not: the policy has diverged"):
        env.step(actions)
    assert not env.episode_length_buf.any()
    env.step(torch.zeros(3, 4))


def test_schedules_that_nobody_would_choose_are_not_shown():
    with pytest.raises(ValueError, match=r"task 'stl' .* algo=tgpo.*give view='terminal_robustness'"):
        make_vec_env("stl", num_envs=2, formula="F[0,2] (base_pos_w.x > 1)")


@pytest.mark.parametrize("version", ["2.3.3", "3.0.1", "4.1.0", "unknown"])
def test_other_contracts_are_refused_by_name(version):
    from temporeal.sim.adapters.rsl_rl import check_version

    with pytest.raises(ImportError, match=f"rsl-rl-lib 5 or newer.*installed is {version}"):
        check_version(version)
    assert check_version("5.5.1") == "5.5.1"
