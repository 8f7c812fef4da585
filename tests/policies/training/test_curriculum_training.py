"""A curriculum in a training: told how episodes end, logged, and resumed as if the run had never stopped."""

import pytest
import torch
from tests.examples import thinned

from temporeal.policies.algos import ppo
from temporeal.policies.training import ppo_state
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

KINDS = {
    "adr": {"kind": "adr", "samples": 4, "boundary": 0.9},
    "alp_gmm": {"kind": "alp_gmm", "every": 20, "window": 40, "components": [2, 3]},
    "levels": {"kind": "levels", "levels": 5}}
SMALL = {"rollout_steps": 16, "minibatches": 2, "epochs": 1, "actor_hidden": (8,), "critic_hidden": (8,), "threads": 1}


def env_of(kind, **change):
    settings = {**KINDS[kind], **change, "outcome": "return", "return_range": [0.0, 5.0],
                "parameters": {"mass": {"as": "scale", "low": 0.8, "high": 1.3, "first": [1.0, 1.1]}}}
    return make_env(load_task("hover", history=2), num_worlds=32, seed=5, threads=1, curriculum=settings)


def train(kind, out, iterations, resume=False, **change):
    config = ppo_state.PPOConfig(total_steps=14 * 16 * 32, **SMALL)
    env = env_of(kind, **change)
    return ppo.train(env, config, out=out, seed=1, resume=resume,
                     on_iteration=lambda learner: learner.iteration >= iterations), env


@pytest.mark.parametrize("kind", thinned(KINDS, keep=["adr"]))
def test_a_resumed_training_goes_on_with_the_same_curriculum(kind, tmp_path):
    whole, env = train(kind, tmp_path / "whole", 14)
    train(kind, tmp_path / "parts", 8)
    parts, other = train(kind, tmp_path / "parts", 14, resume=True)
    for a, b in zip(whole.actor.parameters(), parts.actor.parameters()):
        assert torch.equal(a, b)
    mine, theirs = env.distribution.curriculum.metrics(), other.distribution.curriculum.metrics()
    assert mine == theirs and any(v != 0 for v in mine.values())
    logged = [figures for figures in whole.history if "curriculum/episodes" in figures]
    assert len(logged) == 14 and sum(f["curriculum/episodes"] for f in logged) > 30


@pytest.mark.parametrize(("kind", "change", "told"), [
    ("alp_gmm", {}, "cannot be resumed: .*curriculum.*alp_gmm"), ("adr", {"samples": 5}, "curriculum.*'samples': 5")])
def test_a_training_does_not_go_on_with_another_curriculum(kind, change, told, tmp_path):
    train("adr", tmp_path / "run", 2)
    with pytest.raises(CheckpointError, match=told):
        train(kind, tmp_path / "run", 4, resume=True, **change)


def test_rows_of_one_process_are_gathered_as_they_are():
    rows = torch.arange(6.0).reshape(3, 2)
    assert Ranks().gathered(rows) is rows


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_starts_in_the_middle_of_a_mission_are_no_outcomes(share):
    settings = {"kind": "uniform", "parameters": {"mass": {"as": "scale", "low": 0.9, "high": 1.1}}}
    env = make_env(
        load_task("waypoints"), num_worlds=16, seed=5, threads=1, curriculum=settings, mid_episode_starts=share
    )
    env.reset()
    for _ in range(60):
        ended = env.step(torch.ones(16, env.action_dim)).terminated  # full thrust: they leave the fence
    assert ended is not None and bool(env.distribution.curriculum.finished) == (share == 0.0)
