"""What stable-baselines3 and rsl_rl train becomes the same artifact, with the same commands; and both learn."""

import json

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DDPG, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecFrameStack, VecNormalize
from tests.examples import thinned
from tests.sim.adapters.test_rsl_rl_adapter import make_vec_env, runner_of, settings

import temporeal.sim.adapters.gymnasium
from temporeal.policies.export.external_policies import (
    NotExportable,
    export_rsl_rl,
    export_sb3,
    from_rsl_rl,
    from_sb3,
    load_sb3,
    origin,
)
from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.training.acting import graph_policy
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.adapters import stable_baselines3
from temporeal.sim.adapters.worlds import recipe

SHORT = {"history": 2, "threads": 1}
WILD = {**SHORT, "randomize": "default"}
NET = {"net_arch": [16, 16]}


def scrambled(model, scale=0.3):
    """The model with weights that give commands all over their range, as training would in time."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return model


@pytest.fixture(autouse=True)
def same_weights():
    """The networks of each test begin alike."""
    torch.manual_seed(0)


def normalized(env):
    """``env`` in a ``VecNormalize`` that has seen some flights."""
    env = VecNormalize(VecCheckNan(env))
    env.reset()
    for action in np.random.default_rng(0).uniform(-1, 1, (60, env.num_envs, 4)).astype(np.float32):
        env.step(action)
    return env


MODELS = {
    "ppo": lambda env: PPO("MlpPolicy", env, policy_kwargs=dict(NET), device="cpu"),
    "ppo, squashed gSDE": lambda env: PPO("MlpPolicy", env, use_sde=True, device="cpu",
                                          policy_kwargs={**NET, "squash_output": True}),
    "a2c, own networks": lambda env: A2C("MlpPolicy", env, device="cpu", policy_kwargs={
        "net_arch": {"pi": [8], "vf": [16]}, "activation_fn": torch.nn.ELU, "share_features_extractor": False}),
    "sac": lambda env: SAC("MlpPolicy", env, policy_kwargs=dict(NET), device="cpu"),
    "sac, gSDE": lambda env: SAC("MlpPolicy", env, use_sde=True, policy_kwargs=dict(NET), device="cpu"),
    "td3": lambda env: TD3("MlpPolicy", env, policy_kwargs=dict(NET), device="cpu"),
    "ddpg": lambda env: DDPG("MlpPolicy", env, policy_kwargs=dict(NET), device="cpu"),
}


@pytest.mark.parametrize("kind, statistics", thinned(
    [(kind, statistics) for kind in MODELS for statistics in (False, True)],
    keep=[("ppo", True), ("sac", False)]))
def test_the_artifact_commands_what_predict_does_in_our_environment(kind, statistics, tmp_path):
    env = stable_baselines3.make_vec_env("hover", 3, seed=0, **WILD)
    env = normalized(env) if statistics else env
    model = scrambled(MODELS[kind](env))
    artifact = export_sb3(model, tmp_path / "artifact", env)

    def predict(obs):
        seen = env.normalize_obs(obs.numpy()) if statistics else obs.numpy()
        return torch.from_numpy(model.predict(seen, deterministic=True)[0])

    # flown by SB3's own predict, noise and delays included: what it was shown, and what it commanded
    flown = record_golden(recipe("hover", **WILD).build(1, seed=77, compiled=False), predict)
    commands = flown["commands.motor_cmd"]
    assert len(commands) > 10 and (np.ptp(commands, axis=0) > 0.05).sum() >= 2
    memory, worst = artifact.initial_memory(1), 0.0
    for k, wanted in enumerate(commands):
        given, memory = artifact.act_batch({n: flown[f"signals.{n}"][k : k + 1] for n in artifact.schema}, memory)
        worst = max(worst, float(artifact.difference("motor_cmd", given["motor_cmd"][0], wanted).max()))
    assert worst <= 1e-5


def test_the_artifact_proves_itself_and_says_how_it_was_made(tmp_path):
    env = stable_baselines3.make_vec_env("hover", 2, seed=0, **WILD)
    model = scrambled(MODELS["ppo"](env))
    export_sb3(model, tmp_path / "artifact", seed=4, name="mine")
    artifact = Artifact.load(tmp_path / "artifact")
    assert artifact.self_test().max_error <= 1e-5
    manifest = artifact.manifest
    assert (manifest.name, manifest.robot, manifest.seed) == ("mine", "crazyflie", 4)
    assert manifest.training["task"] == {"name": "hover", "settings": {"history": 2}, "mid_episode_starts": 0.0}
    assert manifest.training["algo"]["name"] == "stable_baselines3.PPO"
    assert manifest.training["randomize"]["sensors"]["delay_steps"] == 1
    assert manifest.formula.startswith("F[0,2.5]")


def test_a_recipe_describes_the_options_of_its_backend():
    made = recipe("reach", options={"integrator": "rk4"})
    assert made.described()["backend"] == {"name": "mujoco", "integrator": "rk4"}
    assert made.build(1, compiled=False).about["integrator"] == "rk4"


def test_the_command_line_judges_such_an_artifact_in_the_worlds_it_was_trained_in(tmp_path, capsys):
    from temporeal.policies.cli.main import main

    env = stable_baselines3.make_vec_env("hover", 2, seed=0, **WILD)
    export_sb3(MODELS["ppo"](env), tmp_path / "artifact", env)
    assert main(["eval", str(tmp_path / "artifact"), "--episodes", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["quadrotor"]["episodes"] == 4


@pytest.mark.parametrize("kind", ["ppo", "a2c, own networks", "sac", "td3", "ddpg"])
def test_a_saved_model_and_saved_statistics_export_like_the_live_ones(kind, tmp_path):
    env = normalized(stable_baselines3.make_vec_env("hover", 3, seed=0, **SHORT))
    model = scrambled(MODELS[kind](env))
    model.save(tmp_path / "model")
    env.save(str(tmp_path / "statistics.pkl"))
    assert type(load_sb3(tmp_path / "model.zip")) is type(model)
    stored = from_sb3(load_sb3(tmp_path / "model.zip"), recipe("hover", **SHORT), normalize=tmp_path / "statistics.pkl")
    live = from_sb3(model)
    obs = torch.randn(5, 26, generator=torch.Generator().manual_seed(0))
    assert torch.equal(graph_policy(stored)(obs), graph_policy(live)(obs))
    assert not torch.allclose(graph_policy(from_sb3(model, recipe("hover", **SHORT)))(obs), live.actor(obs))
    bare = from_sb3(load_sb3(tmp_path / "model.zip"), recipe("hover", **SHORT), normalize=False)
    assert torch.equal(graph_policy(bare)(obs), live.actor(obs))


def learned(env):
    """A model that learned for a few steps in ``env``."""
    return PPO("MlpPolicy", env, n_steps=4, batch_size=8, n_epochs=1, policy_kwargs=dict(NET), device="cpu").learn(8)


def test_whether_observations_were_normalized_is_seen_or_must_be_said(tmp_path):
    plain = stable_baselines3.make_vec_env("hover", 2, seed=0, **SHORT)
    made, obs = recipe("hover", **SHORT), torch.randn(5, 26, generator=torch.Generator().manual_seed(0))
    learned(VecNormalize(plain)).save(tmp_path / "normalized")
    model = learned(plain)
    model.save(tmp_path / "plain")
    MODELS["ppo"](plain).save(tmp_path / "untrained")
    refused("was trained under VecNormalize.*normalize=FILE.*normalize=False", lambda: export_sb3(
        tmp_path / "normalized.zip", tmp_path / "a", made))
    refused("was trained under VecNormalize", lambda: from_sb3(PPO.load(tmp_path / "normalized", env=plain)))
    refused("does not say whether", lambda: export_sb3(tmp_path / "untrained.zip", tmp_path / "a", made))
    refused("normalize=3: a VecNormalize", lambda: from_sb3(model, normalize=3))
    assert not (tmp_path / "a").exists()
    stored = from_sb3(load_sb3(tmp_path / "plain.zip"), made)  # what it saw last was not kept in another form
    assert torch.equal(graph_policy(stored)(obs), graph_policy(from_sb3(model))(obs))
    assert export_sb3(tmp_path / "untrained.zip", tmp_path / "a", made, normalize=False).self_test().steps > 0


@pytest.mark.slow
def test_the_command_line_asks_whether_observations_were_normalized(tmp_path, capsys):
    from temporeal.policies.cli.main import main

    env = VecNormalize(stable_baselines3.make_vec_env("hover", 2, seed=0, **SHORT))
    learned(env).save(tmp_path / "model")
    words = ["export", str(tmp_path / "model.zip"), "task=hover", "task.settings.history=2"]
    assert main(words) == 2
    assert "--normalize FILE" in capsys.readouterr().err and not (tmp_path / "model").exists()
    assert main([*words, "--no-normalize", "--normalize", "x.pkl"]) == 2
    assert main(["export", str(tmp_path), "--no-normalize"]) == 2
    assert "--no-normalize: a run is exported as it was trained" in capsys.readouterr().err
    assert main([*words, "--no-normalize"]) == 0


def test_the_algorithm_of_a_saved_model_is_told_from_those_that_share_its_policy(tmp_path):
    env = stable_baselines3.make_vec_env("hover", 2, seed=0, **SHORT)
    for kind in (DDPG, TD3):
        kind("MlpPolicy", env, policy_kwargs=dict(NET), device="cpu").save(tmp_path / "model")
        artifact = export_sb3(tmp_path / "model.zip", tmp_path / kind.__name__, recipe("hover", **SHORT),
                              normalize=False)
        assert artifact.manifest.training["algo"]["name"] == f"stable_baselines3.{kind.__name__}"


def test_the_command_line_exports_a_saved_model(tmp_path, capsys):
    from temporeal.policies.cli.main import main

    env = normalized(stable_baselines3.make_vec_env("hover", 3, seed=0, randomize="default", **SHORT))
    model = scrambled(MODELS["sac"](env))
    model.save(tmp_path / "model")
    env.save(str(tmp_path / "statistics.pkl"))
    words = ["export", str(tmp_path / "model.zip"), "task=hover", "task.settings.history=2", "randomize=default",
             "--normalize", str(tmp_path / "statistics.pkl"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["artifact"] == str(tmp_path / "model")
    written, live = Artifact.load(tmp_path / "model"), export_sb3(model, tmp_path / "live", env, seed=1)
    assert all(np.array_equal(written.golden[k], v) for k, v in live.golden.items())
    assert written.manifest.training["randomize"]["sensors"] == live.manifest.training["randomize"]["sensors"]
    for wrong, told in [(words[:2], "name the task"), ([*words[:3], "--out", str(tmp_path / "b")], "shows 146"),
                        (["export", str(tmp_path), "task=hover"], "is exported as it was trained")]:
        assert main(wrong) == 2
        assert told in capsys.readouterr().err


def test_a_policy_that_follows_schedules_is_not_exported_without_who_chooses_them(tmp_path, capsys):
    from temporeal.policies.cli.main import main

    formula = "F[0,2] (base_pos_w.x > 1)"
    env = stable_baselines3.make_vec_env("stl", 2, formula=formula, view="terminal_robustness", threads=1)
    model = learned(env)
    assert export_sb3(model, tmp_path / "plain").self_test().steps > 0
    for timed in (recipe("stl", formula=formula), recipe("stl", formula=formula).build(1)):
        with pytest.raises(ValueError, match=r"task 'stl' .* algo=tgpo.*give view='terminal_robustness'"):
            export_sb3(model, tmp_path / "timed", timed, normalize=False)
    model.save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model.zip"), "task=stl/linear_reach", "--no-normalize"]) == 2
    assert "whose policy follows schedules" in capsys.readouterr().err and not (tmp_path / "timed").exists()


def test_a_model_trained_through_gymnasium_make_exports_too(tmp_path):
    assert temporeal.sim.adapters.gymnasium.register()
    model = PPO("MlpPolicy", gymnasium.make("temporeal/hover-v0", **SHORT), n_steps=32, batch_size=32, n_epochs=1,
                policy_kwargs=dict(NET), device="cpu").learn(32)
    assert export_sb3(model, tmp_path / "artifact").self_test().steps > 0


@pytest.mark.slow
def test_exporting_leaves_the_model_as_it_is():
    env = stable_baselines3.make_vec_env("hover", 2, seed=0, **SHORT)
    model = MODELS["ppo"](env).learn(2)
    graph = from_sb3(model)
    assert all(p.requires_grad for p in model.policy.parameters())
    model.policy.action_net.bias.data.add_(1.0)
    obs = torch.zeros(1, 26)
    now, _ = model.predict(obs.numpy(), deterministic=True)
    assert not np.allclose(graph_policy(graph)(obs).numpy(), now)


def refused(told, make):
    with pytest.raises(NotExportable, match=told):
        make()


def test_what_an_artifact_cannot_hold_is_refused_by_name(tmp_path):
    env = stable_baselines3.make_vec_env("hover", 2, seed=0, **SHORT)
    model = MODELS["ppo"](env)
    refused("VecFrameStack changes", lambda: from_sb3(model, VecFrameStack(env, 2)))
    refused("RescaleAction changes", lambda: from_sb3(model, DummyVecEnv(
        [lambda: gymnasium.wrappers.RescaleAction(gymnasium.make("temporeal/hover-v0", **SHORT), -2.0, 2.0)])))
    refused("no environment of temporeal.sim.adapters", lambda: origin(gymnasium.make("CartPole-v1").unwrapped))
    refused("reads 26 numbers and gives 4.*shows 30", lambda: from_sb3(model, recipe("hover", history=3)))
    refused("observation='actor'", lambda: from_sb3(PPO("MultiInputPolicy", stable_baselines3.make_vec_env(
        "hover", 1, observation="dict", **SHORT), device="cpu")))
    refused("golden trace", lambda: export_sb3(model, tmp_path / "a", recipe("hover", **SHORT).build(1)))
    model.save(tmp_path / "model.zip")
    refused("give env=", lambda: export_sb3(tmp_path / "model.zip", tmp_path / "a"))
    (tmp_path / "text.zip").write_text("no")
    refused("no model that stable-baselines3 saved", lambda: load_sb3(tmp_path / "text.zip"))
    refused("no file that VecNormalize.save", lambda: from_sb3(model, env, normalize=tmp_path / "none.pkl"))
    assert not (tmp_path / "a").exists()


# ---- rsl_rl


def test_rsl_rls_actor_with_its_normalization_commands_the_same_from_the_artifact(tmp_path):
    env = make_vec_env("hover", num_envs=8, seed=0, **WILD)
    runner = runner_of(env, settings(), log_dir=None, device="cpu")
    runner.learn(3)
    model = runner.get_inference_policy()
    assert float(model.obs_normalizer.count) > 0
    artifact = export_rsl_rl(runner, tmp_path / "artifact")

    def policy(obs):
        from tensordict import TensorDict

        return model(TensorDict({"policy": obs}, batch_size=[len(obs)])).detach()

    flown = record_golden(recipe("hover", **WILD).build(1, seed=78, compiled=False), policy)
    memory, worst = artifact.initial_memory(1), 0.0
    for k, wanted in enumerate(flown["commands.motor_cmd"]):
        given, memory = artifact.act_batch({n: flown[f"signals.{n}"][k : k + 1] for n in artifact.schema}, memory)
        worst = max(worst, float(artifact.difference("motor_cmd", given["motor_cmd"][0], wanted).max()))
    assert worst <= 1e-5 and artifact.manifest.training["algo"]["name"] == "rsl_rl.PPO"


def test_an_actor_of_rsl_rl_that_reads_privileged_groups_is_refused():
    env = make_vec_env("hover", num_envs=4, seed=0, **SHORT)
    groups = {"actor": ["critic"], "critic": ["critic"]}
    refused("groups \\['critic'\\]", lambda: from_rsl_rl(
        runner_of(env, settings(obs_groups=groups), log_dir=None, device="cpu"), env))


@pytest.mark.parametrize("kind,layers", [("gru", 1), ("lstm", 2)])
def test_a_recurrent_actor_of_rsl_rl_is_exported_with_its_memory(kind, layers, tmp_path):
    env = make_vec_env("hover", num_envs=4, seed=0, **SHORT)
    actor = {**settings()["actor"], "class_name": "RNNModel", "rnn_type": kind, "rnn_hidden_dim": 8,
             "rnn_num_layers": layers}
    runner = runner_of(env, settings(actor=actor), log_dir=None, device="cpu")
    graph, model = from_rsl_rl(runner, env), runner.alg.get_policy()
    model.reset()
    hidden = graph.initial_memory(4)["hidden"]
    for _ in range(3):
        obs = env.get_observations()
        with torch.inference_mode():
            wanted = model(obs)
        given, hidden = graph.actor(obs["policy"], hidden)
        torch.testing.assert_close(given, wanted, atol=1e-6, rtol=1e-5)
        env.step(wanted.clone())
    assert graph.memory["hidden"] == (8 * layers * (2 if kind == "lstm" else 1),)
    artifact = export_rsl_rl(runner, tmp_path / "artifact")  # replays its golden trace
    assert artifact.initial_memory(1)["hidden"].shape[-1] == graph.hidden_dim
