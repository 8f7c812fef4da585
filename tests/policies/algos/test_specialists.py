"""Specialists beside a generalist: easy cases stay bit for bit, hard ones are taken over; several of them by region."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from temporeal.policies.algos import specialists
from temporeal.policies.algos.specialists import SpecialistsConfig
from temporeal.policies.nets.actor import FeedForwardActor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import checkpoint
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.warm_starts.ppo_start import WarmStart
from temporeal.sim.types import Obs, Step

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = SpecialistsConfig(updates=300, round_updates=100, members=3, hidden=(16,), checkpoint_seconds=0.0)


class Sides:
    """A place x in [-1, 1] and another number; an episode of two steps succeeds where the last action has the sign that
    is asked for: + where x < .3, - elsewhere."""

    obs_dim, action_dim = 2, 1

    def __init__(self, num_worlds: int = 128) -> None:
        self.num_worlds, self.task = num_worlds, SimpleNamespace(steps=2)
        self.generator, self.count = torch.Generator().manual_seed(0), 0
        self.obs = torch.zeros(num_worlds, 2)

    def reset(self) -> Obs:
        self.count, self.obs = 0, 2 * torch.rand(self.num_worlds, 2, generator=self.generator) - 1
        return Obs(self.obs, self.obs)

    def step(self, action: Tensor) -> Step:
        self.count += 1
        over = torch.full((self.num_worlds,), self.count == 2)
        success = (action[:, 0] > 0) == (self.obs[:, 0] < 0.3)
        shown = Obs(self.obs, self.obs)
        return Step(shown, action[:, 0], torch.zeros_like(over), over, shown, {"success": success})

    def state_dict(self) -> dict:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:
        self.generator.set_state(state["generator"])


def constant(value: float, run: str) -> WarmStart:
    """A policy whose action is about ``value`` everywhere."""
    actor = FeedForwardActor(2, 1, (8,), "silu", 0.5)
    with torch.no_grad():
        actor.net[-1].bias.fill_(value)
    return WarmStart(run, actor, Normalizer(2), PPOConfig(actor_hidden=(8,)), torch.tensor([0, 1]))


def trained(out: Path, *values: float, config: SpecialistsConfig = CONFIG, **rest: object):
    torch.manual_seed(0)
    policies = [constant(value, f"RUN{k}") for k, value in enumerate(values)]
    return policies, specialists.train(Sides(), config, out=out, policies=policies, **rest)


def test_easy_cases_are_untouched_and_hard_ones_are_taken_over(tmp_path: Path) -> None:
    (base, other), found = trained(tmp_path, 0.5, -0.5)
    obs = 2 * torch.rand(2000, 2) - 1
    x = obs[:, 0]
    with torch.no_grad():
        action, own, theirs = found.actor(obs), base.actor(base.normalizer(obs)), other.actor(other.normalizer(obs))
    assert torch.equal(action[x < 0.1], own[x < 0.1])  # bit for bit
    assert torch.equal(action[x > 0.5], theirs[x > 0.5])
    assert set(found.actor.who(obs).tolist()) == {0, 1}
    loaded, normalizer, _ = specialists.load_policy(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(normalizer(obs)), action)


def test_who_is_not_surely_better_never_acts(tmp_path: Path) -> None:
    (base, _), found = trained(tmp_path, 0.5, 0.5)  # the same action: it fails where the generalist fails
    obs = 2 * torch.rand(500, 2) - 1
    with torch.no_grad():
        assert torch.equal(found.actor(obs), base.actor(base.normalizer(obs)))


def test_of_several_the_one_that_fails_least_acts(tmp_path: Path) -> None:
    _, found = trained(tmp_path, 0.0, -0.5, 0.5, config=replace(CONFIG, updates=500))
    obs = 2 * torch.rand(2000, 2) - 1
    who = found.actor.who(obs)
    hard = (obs[:, 0] > 0.5) & (who != 0)
    assert not bool(((who == 2) & (obs[:, 0] > 0.5)).any()) and not bool(((who == 1) & (obs[:, 0] < 0.1)).any())
    assert bool(hard.any())


def test_it_resumes_bit_for_bit(tmp_path: Path) -> None:
    _, whole = trained(tmp_path / "whole", 0.5, -0.5)
    trained(tmp_path / "parts", 0.5, -0.5, on_iteration=lambda it: it.rounds >= 2)
    _, parts = trained(tmp_path / "parts", 0.5, -0.5, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.actor.parameters(), parts.actor.parameters()))


def test_a_run_of_before_resumes_with_the_defaults_of_what_it_lacks(tmp_path: Path) -> None:
    trained(tmp_path, 0.5, -0.5, on_iteration=lambda it: it.rounds >= 2)
    path = checkpoint.latest(tmp_path / "checkpoints", 0, 1)
    state = checkpoint.load(path)
    older = {k: v for k, v in state["config"].items() if k not in specialists.ABSENT}
    checkpoint.save(path, {**state, "config": older})
    trained(tmp_path, 0.5, -0.5, resume=True, on_iteration=lambda it: True)
    assert checkpoint.load(checkpoint.latest(tmp_path / "checkpoints", 0, 1))["rounds"] == state["rounds"] + 1


def test_what_cannot_take_over_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="takes a generalist, algo.adapt=RUN, and one specialist at least"):
        trained(tmp_path, 0.5)
