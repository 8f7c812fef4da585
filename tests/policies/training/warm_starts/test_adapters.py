"""Small changes of frozen layers: gradients by autograd, what stays, and a policy that begins as another one."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from temporeal.policies.algos import ppo
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.warm_starts import adapters, ppo_start
from temporeal.policies.training.warm_starts.ppo_start import WarmStart
from temporeal.sim.types import Obs, Step

pytestmark = pytest.mark.usefixtures("one_thread")
SPEC = importlib.util.spec_from_file_location("ppo_worlds", Path(__file__).parents[2] / "ppo_worlds.py")
assert SPEC is not None and SPEC.loader is not None
worlds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worlds)

SMALL = PPOConfig(threads=1, rollout_steps=10, actor_hidden=(16, 16), critic_hidden=(16,), minibatches=2, epochs=2,
                  total_steps=16 * 10 * 4, checkpoint_seconds=0.0)


class Goals(worlds.PointMass):
    """The point mass is to come to a goal, which is seen before what was seen before."""

    obs_dim = critic_dim = 3

    def shown(self, state: torch.Tensor) -> Obs:
        obs = torch.cat([torch.full((len(state), 1), 0.5), state], 1)
        return Obs(obs, obs)

    def reset(self) -> Obs:
        return self.shown(super().reset().actor)

    def step(self, action: torch.Tensor) -> Step:
        step = super().step(action)
        final = self.shown(step.final_obs.actor)
        reward = -((final.actor[:, 1] - 0.5).square() + 0.1 * final.actor[:, 2].square())
        return Step(self.shown(self.state), reward, step.terminated, step.truncated, final, step.info)


def test_the_small_parts_have_the_gradients_that_autograd_finds() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 4), torch.randn(7, 5)
    found = adapters.Adapter(layer, 2, True, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for value in found.parameters():
            value.add_(0.3 * torch.randn_like(value))
        found.merge()
    layer(x).square().sum().backward()
    found.take_gradients()
    up, down, scale = (value.detach().clone().requires_grad_() for value in (found.up, found.down, found.scale))
    weight, bias = (1 + scale)[:, None] * found.weight + up @ down, (1 + scale) * found.bias
    (x @ weight.T + bias).square().sum().backward()
    for mine, theirs in ((found.up, up), (found.down, down), (found.scale, scale)):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_it_begins_as_it_was_and_changes_in_no_more_directions_than_its_rank() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    before = [layer.weight.detach().clone() for layer in adapters.layers_of(net)]
    adam = adapters.optimizer([net], list(net.parameters()), 1e-2, rank=2, modulate=False)
    assert isinstance(adam, adapters.AdaptedAdam) and adam.learned == 2 * (6 + 8) + 2 * (8 + 3) + 8 + 3 - (8 + 3)
    for adapter in adam.adapters:
        adapter.merge()
    assert all(torch.equal(a, b.weight) for a, b in zip(before, adapters.layers_of(net)))
    for _ in range(5):
        adam.zero_grad()
        net(torch.randn(16, 6)).square().sum().backward()
        adam.step()
    for old, layer in zip(before, adapters.layers_of(net)):
        assert int(torch.linalg.matrix_rank(layer.weight.detach() - old, atol=1e-6)) == 2


def test_after_going_back_to_other_weights_it_goes_on_from_those() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    adam = adapters.optimizer([net], list(net.parameters()), 1e-3, rank=1, modulate=True)
    best = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(20):
        adam.zero_grad()
        net(torch.randn(8, 4)).square().sum().backward()
        adam.step()
    net.load_state_dict(best)
    adam.state.clear()
    adam.zero_grad()
    net(torch.randn(8, 4)).square().sum().backward()
    adam.step()  # one step from the best weights: of 1e-3 in the scales, and none in W by U D, whose U is 0
    for name, value in net.state_dict().items():
        assert float((value - best[name]).abs().max()) < 5e-3


def warm(tmp_path: Path) -> WarmStart:
    found = ppo.train(worlds.PointMass(16), SMALL, out=tmp_path / "base")
    return WarmStart("BASE", found.actor, found.normalizer, SMALL, torch.tensor([-1, 0, 1]))


@pytest.mark.parametrize("more", [{}, {"adapters": 2}, {"adapters": 1, "modulate": True}])
def test_a_policy_begins_as_the_other_bit_for_bit_whatever_is_new(more: dict, tmp_path: Path) -> None:
    base, config = warm(tmp_path), replace(SMALL, adapt="BASE", **more)
    learner = ppo.start(Goals(16), config, 0, Ranks())
    ppo_start.begin(learner, base)
    obs = torch.randn(64, 2)
    new = torch.cat([5 * torch.randn(64, 1), obs], 1)
    with torch.no_grad():
        assert torch.equal(learner.actor(learner.normalizer(new)), base.actor(base.normalizer(obs)))
    assert torch.equal(learner.actor.log_std, base.actor.log_std)
    result = ppo.train(Goals(16), config, out=tmp_path / "run", warm=base)
    assert torch.equal(result.normalizer.shift[1:], base.normalizer.shift)  # frozen
    changed = result.actor.state_dict()["net.2.weight"] - base.actor.state_dict()["net.2.weight"]
    assert float(changed.abs().max()) > 0
    if more == {"adapters": 2}:
        assert int(torch.linalg.matrix_rank(changed, atol=1e-6)) <= 2
    loaded = ppo.load_policy(tmp_path / "run")[0]  # plain layers, with the weights as they are
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), result.actor.parameters()))


def test_a_warm_start_resumes_bit_for_bit(tmp_path: Path) -> None:
    base, config = warm(tmp_path), replace(SMALL, adapt="BASE", adapters=2, modulate=True)
    whole = ppo.train(Goals(16), config, out=tmp_path / "whole", warm=base)
    ppo.train(Goals(16), config, out=tmp_path / "parts", warm=base, on_iteration=lambda it: it.iteration >= 2)
    parts = ppo.train(Goals(16), config, out=tmp_path / "parts", warm=base, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.actor.parameters(), parts.actor.parameters()))


def test_what_cannot_go_on_is_refused_by_what_differs(tmp_path: Path) -> None:
    base = warm(tmp_path)
    for change, match in (({"actor_hidden": (8, 8)}, r"algo.actor_hidden=\[8, 8\] here, \[16, 16\] there"),
                          ({"modulate": True}, "algo.modulate=true alone never reads what is new, and 1 numbers are"),
                          ({"memory": 4}, "its policy is a FeedForwardActor, this one is to be a RecurrentActor")):
        with pytest.raises(SettingsError, match=match):
            ppo.train(Goals(16), replace(SMALL, adapt="BASE", **change), out=tmp_path / "run", warm=base)
    with pytest.raises(SettingsError, match="algo.adapters and algo.modulate change the policy of a run"):
        ppo.train(Goals(16), replace(SMALL, adapters=2), out=tmp_path / "run")
    with pytest.raises(SettingsError, match="only `temporeal train algo=ppo` begins with another run's policy"):
        ppo.train(Goals(16), replace(SMALL, adapt="BASE"), out=tmp_path / "run")
