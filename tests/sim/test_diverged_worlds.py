"""Worlds that go wrong in an environment: ended, counted once, kept in a file, replayed from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.examples import thinned

from temporeal.sim import diverged_worlds
from temporeal.sim.backends import mujoco, quadrotor
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

BACKENDS = {"quadrotor": quadrotor, "mujoco": mujoco}


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request):
    return request.param


def env_of(backend, folder, n=4, compiled=True, task=None, **other):
    env = make_env(task or load_task("hover"), backend=backend, num_worlds=n, seed=5, threads=1, compiled=compiled,
                   **other)
    if folder is not None:
        diverged_worlds.keep(env, folder)
    return env


def alone(env, num_worlds=1, command=None, dt=None):
    task = env.task
    return BACKENDS[env.backend.name].make(
        task.scene, num_worlds, command or task.command, dt=dt or env.backend.dt, threads=1)


def poison(env, world=2):
    """Three good steps, then one in which the command of ``world`` is not a number."""
    env.reset()
    for _ in range(3):
        env.step(torch.full((env.num_worlds, env.action_dim), 0.1))
    action = torch.full((env.num_worlds, env.action_dim), 0.1)
    action[world] = float("nan")
    return env.step(action)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_world_ends_is_counted_once_and_kept(backend, tmp_path, compiled):
    env = env_of(backend, tmp_path / "diverged", compiled=compiled)
    step = poison(env)
    assert step.terminated.tolist() == [False, False, True, False] and not step.truncated.any()
    assert step.info["finite"].tolist() == [True, True, False, True]
    assert step.reward[2] == 0 and torch.isfinite(step.reward).all()
    assert all(torch.isfinite(x).all() for x in (*step.obs[:2], *step.final_obs[:2]))
    assert env.diverged == 1
    for _ in range(3):  # the new episode is sound, and nothing is counted again
        step = env.step(torch.full((4, env.action_dim), 0.1))
        assert step.info["finite"].all()
    assert env.diverged == 1 and not env.backend.status().bad.any()
    assert [f.name for f in (tmp_path / "diverged").iterdir()] == ["hover-seed5-world2-episode0-step4.npz"]


def test_a_world_that_diverges_has_not_succeeded(compiled):
    """Whatever the objective says of it."""
    task = load_task("hover")
    always = {"success": lambda self, signals, carry: carry["settled"] >= 0}
    task.objective.__class__ = type("Always", (type(task.objective),), always)
    step = poison(env_of("quadrotor", None, compiled=compiled, task=task))
    assert step.terminated.tolist() == [False, False, True, False]
    assert step.info["success"].tolist() == [True, True, False, True]


def test_the_return_of_a_world_that_the_simulator_gave_up_is_without_its_last_reward(compiled):
    """Its signals may look sound, so that the reward of the step was entered before it is known."""
    env = env_of("quadrotor", None, compiled=compiled, n=16)
    env.reset()
    paid = torch.zeros(16)
    for _ in range(3):
        paid += env.step(torch.full((16, 4), 0.1)).reward
    step_worlds = env.backend.step

    def give_up(ctrl, substeps):
        step_worlds(ctrl, substeps)
        env.backend.bad[5] = True

    env.backend.step = give_up
    step = env.step(torch.full((16, 4), 0.1))
    assert step.reward[5] == 0 and (step.reward[torch.arange(16) != 5] != 0).all()
    assert step.terminated[5] and not step.truncated[5] and not step.info["finite"][5] and not step.info["success"][5]
    torch.testing.assert_close(step.info["return"], paid + step.reward)
    assert env.diverged == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_other_worlds_do_not_notice(backend, tmp_path, compiled):
    env, clean = (env_of(backend, tmp_path, compiled=compiled) for _ in range(2))
    poisoned = poison(env)
    clean.reset()
    for _ in range(4):
        step = clean.step(torch.full((4, env.action_dim), 0.1))
    others = [0, 1, 3]
    assert torch.equal(poisoned.obs.actor[others], step.obs.actor[others])
    assert torch.equal(poisoned.reward[others], step.reward[others])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_is_replayed_from_its_file(backend, tmp_path, compiled):
    env = env_of(backend, tmp_path, compiled=compiled, randomize={"mass": {"kind": "sources"}})
    env.reset()
    for _ in range(3):
        env.step(torch.full((4, env.action_dim), 0.1))
    before = {k: v[2].clone() for k, v in env.backend.signals().items()}
    action = torch.full((4, env.action_dim), 0.1)
    action[2, 1] = float("nan")
    env.step(action)
    kept = diverged_worlds.load(next(tmp_path.iterdir()))
    assert kept.about["backend"] == backend and (kept.about["world"], kept.about["step"]) == (2, 4)
    assert torch.isnan(kept.command).any() and kept.command.shape == (1, env.action_dim)
    assert "action" in kept.about["causes"] and ("simulator" in kept.about["causes"]) == (backend == "mujoco")
    sim = alone(env)
    sim.set_state(kept.state)
    assert all(torch.equal(v[0], before[k]) for k, v in sim.signals().items())
    assert sim.params()["mass"][0] == kept.state["param.mass"].flatten()[0].float()
    assert diverged_worlds.replay(kept, sim) is sim and sim.status().bad.all()


def test_a_sound_step_is_replayed_to_the_same_state(tmp_path):
    env = env_of("mujoco", tmp_path)
    env.reset()
    env.step(torch.full((4, env.action_dim), 0.1))
    env.step(torch.full((4, env.action_dim), -0.2))
    after = {k: v[1].clone() for k, v in env.backend.signals().items()}
    sim = diverged_worlds.replay(diverged_worlds.load(diverged_worlds.save(env, 1, tmp_path)), alone(env))
    assert all(torch.equal(v[0], after[k]) for k, v in sim.signals().items())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [5, 16])
def test_an_action_that_is_not_a_number_ends_its_world_in_an_arm_too(n, compiled):
    env = make_env(load_task("reach"), num_worlds=n, seed=5, threads=1, compiled=compiled)
    env.reset()
    action = torch.zeros(n, env.action_dim)
    action[1, 0], action[2, :], action[3, 1] = float("nan"), float("nan"), float("inf")
    step = env.step(action)
    assert step.info["finite"].tolist() == [i not in (1, 2, 3) for i in range(n)]
    assert torch.equal(step.terminated, ~step.info["finite"]) and env.diverged == 3
    assert env.command[1:3].isnan().any(1).all() and torch.isfinite(step.final_obs.critic).all()
    assert env.step(torch.zeros(n, env.action_dim)).info["finite"].all() and env.diverged == 3


def altered(task, *, reward=None, initial=None, observe=None):
    """``task`` with other functions: of the objective's reward, of the draws of the start, of the observation."""
    if reward is not None:
        task.objective.__class__ = type("Other", (type(task.objective),), {"step": reward(type(task.objective).step)})
    if observe is not None:
        task.observe.__class__ = type("Other", (type(task.observe),), {"forward": observe(type(task.observe).forward)})
    return task if initial is None else replace(task, initial=initial(task.initial))


def quotient(step):
    """The reward 0/0, clamped, where the first action is above a half."""
    def other(self, signals, action, memory):
        reward, ended, memory = step(self, signals, action, memory)
        zero = torch.where(action[:, 0] > 0.5, 0.0, 1.0)
        return (reward * zero / zero).clamp(-1.0, 1.0), ended, memory

    return other


def test_a_reward_that_is_not_a_number_stays_so_through_a_clamp(compiled):
    env = env_of("quadrotor", None, compiled=compiled, task=altered(load_task("hover"), reward=quotient))
    env.reset()
    action = torch.zeros(4, 4)
    action[3, 0] = 0.9
    step = env.step(action)
    assert step.info["finite"].tolist() == [True, True, True, False] and env.diverged == 1 and step.reward[3] == 0


def blind(forward):
    """Observations that are not numbers at the start of an episode."""
    def other(self, signals, before):
        obs, after = forward(self, signals, before)
        return torch.where((before["actions"] == 0).all(-1, keepdim=True), torch.nan, obs), after

    return other


@pytest.mark.parametrize("n", [4, 16])
def test_a_first_observation_that_is_not_finite_ends_the_world_in_its_first_step(n, compiled):
    env = env_of("quadrotor", None, n=n, compiled=compiled, task=altered(load_task("hover"), observe=blind))
    assert torch.isfinite(env.reset().critic).all()
    for count in (1, 2):  # the new episodes begin no better
        step = env.step(torch.full((n, 4), 0.1))
        assert step.terminated.all() and not step.info["finite"].any() and env.diverged == count * n
        assert all(torch.isfinite(x).all() for x in (*step.obs[:2], *step.final_obs[:2], step.reward))


def test_a_step_before_the_first_reset_is_refused():
    env = env_of("quadrotor", None)
    with pytest.raises(RuntimeError, match=r"step\(\) before the first reset"):
        env.step(torch.zeros(4, 4))
    fresh = env.state_dict()
    env.reset()
    env.step(torch.zeros(4, 4))
    env.load_state_dict(fresh)
    with pytest.raises(RuntimeError, match="before the first reset"):
        env.step(torch.zeros(4, 4))


def test_a_reset_that_the_simulator_refuses_changes_nothing():
    wrong = []

    def sometimes(initial):
        return lambda draw: {k: v.where(torch.tensor(not wrong), torch.nan) for k, v in initial(draw).items()}

    settings = {"randomize": {"mass": {"kind": "sources"}, "force_w": {"kind": "normal", "std": 0.01}},
                "disturbances": {"interval_s": 1.0, "duration_s": 0.1, "force_n": 0.1}}
    env = env_of("quadrotor", None, task=altered(load_task("hover"), initial=sometimes), **settings)
    other = env_of("quadrotor", None, **settings)
    wrong.append(True)
    with pytest.raises(ValueError, match="finite"):
        env.reset()
    assert (env.episode == -1).all()
    with pytest.raises(RuntimeError, match="before the first reset"):
        env.step(torch.zeros(4, 4))
    wrong.clear()
    assert torch.equal(env.reset().critic, other.reset().critic) and torch.equal(env.episode, other.episode)
    assert torch.equal(env.step(torch.zeros(4, 4)).obs.critic, other.step(torch.zeros(4, 4)).obs.critic)


FULL = {"randomize": {"mass": {"kind": "sources"}, "force_w": {"kind": "normal", "std": 0.01}},
        "disturbances": {"interval_s": 0.1, "duration_s": 0.06, "force_n": 0.1},
        "sensors": {"noise": {"base_pos_w": 0.01}, "bias": {"base_vel_w": 0.1}, "delay_steps": 2}}


def endless(record):
    """Observation maps that remember infinity after an action that ends above a half."""
    def other(self, memory, action):
        after = record(self, memory, action)
        return {k: torch.where(action[:, 3:] > 0.5, torch.inf, v) for k, v in after.items()}

    return other


@pytest.mark.parametrize("compiled", thinned([False, True], keep=[True]), ids=["plain", "compiled"])
def test_a_fault_says_what_was_not_sound_and_is_relived(tmp_path, compiled):
    task = altered(load_task("hover"), reward=quotient)
    task.observe.__class__ = type("Deep", (type(task.observe),), {"record": endless(type(task.observe).record)})
    env = env_of("quadrotor", tmp_path, n=16, compiled=compiled, task=task, **FULL)
    env.reset()
    for t in range(8):
        env.step(0.1 * torch.randn(16, 4, generator=torch.Generator().manual_seed(t)))
    action = torch.zeros(16, 4)
    action[3, 0], action[5, 3], action[7, 1] = 0.9, 0.9, float("nan")
    step = env.step(action)
    found = {f.about["world"]: f for f in map(diverged_worlds.load, tmp_path.iterdir())}
    assert set(found) == {3, 5, 7}
    assert found[3].about["causes"] == ["reward"] and {"observation"} == set(found[5].about["causes"])
    assert {"action", "signal base_pos_w"} < set(found[7].about["causes"])
    for world, kept in found.items():
        assert torch.equal(kept.action, action[world : world + 1]) or world == 7
        other = env_of("quadrotor", tmp_path / "again", n=1, compiled=compiled, task=task, **FULL)
        again = diverged_worlds.relive(kept, other)
        assert not again.info["finite"].any() and other.diverged == 1
        torch.testing.assert_close(again.final_obs.critic[0], step.final_obs.critic[world], rtol=0, atol=0)
        files = [diverged_worlds.load(f) for f in (tmp_path / "again").iterdir()]
        assert [f.about["causes"] for f in files if f.record == kept.record] == [kept.about["causes"]]
    with pytest.raises(ValueError, match="relived in one world, the environment has 2"):
        diverged_worlds.relive(found[3], env_of("quadrotor", None, n=2, task=task, **FULL))
    with pytest.raises(ValueError, match="sensors: it has .*delay_steps.*, here it is {}"):
        diverged_worlds.relive(found[3], env_of("quadrotor", None, n=1, task=task, **{**FULL, "sensors": {}}))


def test_a_signal_that_is_not_finite_is_named(tmp_path, monkeypatch):
    env = env_of("quadrotor", tmp_path, n=16)
    env.reset()
    signals = env.backend.signals

    def poisoned():
        found = {k: v.clone() for k, v in signals().items()}
        found["base_vel_w"][4, 1] = torch.nan
        return found

    monkeypatch.setattr(env.backend, "signals", poisoned)
    env.step(torch.zeros(16, 4))
    assert diverged_worlds.load(next(tmp_path.iterdir())).about["causes"] == ["signal base_vel_w"]


def test_a_start_that_is_not_finite_is_named(tmp_path, compiled):
    env = env_of("quadrotor", tmp_path, compiled=compiled, task=altered(load_task("hover"), observe=blind))
    env.reset()
    env.step(torch.full((4, 4), 0.1))
    assert all(diverged_worlds.load(path).about["causes"] == ["start"] for path in tmp_path.iterdir())


def test_nothing_is_written_without_a_folder_or_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = env_of("quadrotor", None)
    poison(env)
    assert env.diverged == 1 and not list(tmp_path.iterdir())
    monkeypatch.setattr(diverged_worlds, "KEPT", 2)
    env = env_of("quadrotor", tmp_path / "kept")
    for _ in range(3):
        poison(env)
    assert env.diverged == 3 and len(list((tmp_path / "kept").iterdir())) == 2


def test_a_backend_that_does_not_fit_is_refused(tmp_path):
    env = env_of("quadrotor", tmp_path)
    poison(env)
    kept = diverged_worlds.load(next(tmp_path.iterdir()))
    with pytest.raises(ValueError, match="replayed in one world, the backend has 2"):
        diverged_worlds.replay(kept, alone(env, 2))
    other = "motor_cmd" if env.task.command == "ctbr_cmd" else "ctbr_cmd"
    with pytest.raises(ValueError, match=f"with command '{env.task.command}', this backend has '{other}'"):
        diverged_worlds.replay(kept, alone(env, command=other))
    with pytest.raises(ValueError, match=r"with dt .*, this backend has 0.001"):
        diverged_worlds.replay(kept, alone(env, dt=0.001))
    with pytest.raises(ValueError, match="with backend 'quadrotor', this backend has 'mujoco'"):
        diverged_worlds.replay(kept, mujoco.make(env.task.scene, 1, env.task.command, dt=env.backend.dt, threads=1))
    assert kept.record == replace(kept.record, world=2, episode=0)
    with pytest.raises(ValueError, match="keys"):
        diverged_worlds.replay(replace(kept, state={}), alone(env))


def test_a_file_that_holds_no_fault_is_refused(tmp_path):
    text, array, other = tmp_path / "a.npz", tmp_path / "b.npy", tmp_path / "c.npz"
    text.write_text("no archive")
    np.save(array, np.zeros(3))
    np.savez(other, x=np.zeros(3))
    for path in (text, array, other):
        with pytest.raises(ValueError, match=f"{path.name} holds no diverged world"):
            diverged_worlds.load(path)
    with pytest.raises(FileNotFoundError):
        diverged_worlds.load(tmp_path / "none.npz")
