"""Learners from data: resumption, budgets, batches, weights, and what is refused."""

import importlib
import typing
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import yaml

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.ensembles import Quality
from temporeal.policies.training import offline_learner
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.offline.flat_parameters import Adam, descend, held
from temporeal.policies.training.offline.trajectories import ahead, next_actions, returns_to_go
from temporeal.policies.training.offline.trajectory_weights import weighted
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.robots.registry import names

CORE = ("iql", "td3bc", "rebrac", "awac", "cql", "recap", "recoil", "mbrcsl")
OWN = {"cql": {"calibrated": True, "samples": 2}, "recoil": {"expert": "return"},
       "mbrcsl": {"model_share": 0.2, "rollouts": 16, "components": 2, "members": 2, "surpass": 0.0}}


def steps(count: int = 60, episodes: int = 3) -> Transitions:
    """Random steps in episodes of equal length."""
    g = torch.Generator().manual_seed(0)
    obs, each = torch.randn(count, 4, generator=g), count // episodes
    return Transitions(obs, torch.tanh(torch.randn(count, 2, generator=g)), torch.randn(count, generator=g),
                       obs.roll(-1, 0), torch.ones(count), torch.arange(count) // each,
                       torch.arange(0, count + 1, each))


def of(name: str, **settings):
    module = importlib.import_module(f"temporeal.policies.offline.{name}")
    small = {"updates": 12, "report_updates": 4, "hidden": (8, 8), "batch": 16, **settings}
    return module, typing.get_type_hints(module.train)["config"](**small)


@pytest.mark.parametrize("name", names("temporeal.policies.offline"))
def test_configuration_file_has_the_defaults(name: str) -> None:
    kind = typing.get_type_hints(importlib.import_module(f"temporeal.policies.offline.{name}").train)["config"]
    found = yaml.safe_load((Path(__file__).parents[3] / "configs" / "algo" / f"{name}.yaml").read_text())
    assert set(found) == {f.name for f in fields(kind)}
    assert kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}) == kind()


@pytest.mark.parametrize("name", CORE)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(name: str, tmp_path: Path) -> None:
    module, config = of(name, **OWN.get(name, {}), weighting="advantage")
    whole = module.train(steps(), config, out=tmp_path / "whole", seed=3)
    module.train(steps(), config, out=tmp_path / "parts", seed=3, on_iteration=lambda loop: loop.updates >= 4)
    resumed = module.train(steps(), config, out=tmp_path / "parts", seed=3, resume=True)
    for key, value in whole.actor.state_dict().items():
        assert torch.equal(value, resumed.actor.state_dict()[key]), key
    for a, b in zip(whole.history, resumed.history, strict=True):
        assert {k: a[k] for k in module_figures(a)} == {k: b[k] for k in module_figures(b)}
    actor, normalizer, read = module.load_policy(tmp_path / "parts")
    assert read == config
    shown = normalizer(steps().obs)
    assert torch.allclose(actor(shown), resumed.actor(shown), atol=1e-6)


def module_figures(row: dict[str, float]) -> list[str]:
    return [key for key in row if key not in ("seconds", "eta", "rate", "fraction")]


def test_other_data_settings_and_seeds_are_not_resumed(tmp_path: Path) -> None:
    module, config = of("iql")
    module.train(steps(), config, out=tmp_path, seed=1)
    other = replace(steps(), reward=steps().reward + 1.0)
    with pytest.raises(CheckpointError, match="the data differs"):
        module.train(other, config, out=tmp_path, seed=1, resume=True)
    with pytest.raises(CheckpointError, match="expectile 0.7 -> 0.9"):
        module.train(steps(), replace(config, expectile=0.9), out=tmp_path, seed=1, resume=True)
    with pytest.raises(CheckpointError, match="seed 1 -> 2"):
        module.train(steps(), config, out=tmp_path, seed=2, resume=True)


def test_numbers_that_are_none_stop_a_training(tmp_path: Path) -> None:
    module, config = of("iql")
    data = steps()
    data.reward[5] = float("inf")
    with pytest.raises(NonFiniteError, match="after 4 updates .*quality_loss is"):
        module.train(data, replace(config, batch=256), out=tmp_path)


@pytest.mark.parametrize("settings, said", [
    ({"gamma": 1.0}, "algo.gamma"), ({"weighting": "best"}, "none, data, return, advantage"),
    ({"batch": 0}, "algo.batch"), ({"reward": "mine"}, "data, formula, task"), ({"clock": "sun"}, "wall, cpu")])
def test_wrong_settings_are_refused(settings: dict, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        of("iql", **settings)


def test_derivatives_by_hand_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    network, plain = (Quality(3, 2, (7, 5), members=2) for _ in range(2))
    plain.load_state_dict(network.state_dict())
    flat = Adam(network, rate=0.0)
    obs, action = torch.randn(6, 3), torch.randn(6, 2, requires_grad=True)
    weight = torch.randn(2, 6)
    (network(obs, action) * weight).sum().backward()
    found, action.grad = action.grad, None
    (plain(obs, action) * weight).sum().backward()
    assert torch.allclose(found, action.grad, atol=1e-6)
    for mine, theirs in zip(network.parameters(), plain.parameters()):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(network(obs, action), plain(obs, action), atol=1e-6)
    before = flat.gradient.clone()
    actor = torch.nn.Linear(3, 2)
    with held(network):
        loss = -network(obs, actor(obs)).mean()
    descend(loss, Adam(actor, rate=0.1))
    assert torch.equal(flat.gradient, before)  # a loss of the policy leaves the critics alone


def test_bfloat16_rounds_products_and_nothing_else() -> None:
    torch.manual_seed(0)
    exact, rounded = (Quality(3, 2, (64, 64), members=2, precision=p) for p in ("float32", "bfloat16"))
    rounded.load_state_dict(exact.state_dict())
    flats, grads = [Adam(network, rate=0.0) for network in (exact, rounded)], []
    obs, action = torch.randn(32, 3), torch.randn(32, 2)
    for network in (exact, rounded):
        leaf = action.clone().requires_grad_(True)
        network(obs, leaf).square().mean().backward()
        grads.append(leaf.grad)
        assert network.net.weights[1].dtype == torch.float32
    a, b = (flat.gradient for flat in flats)
    assert 0.0 < float((a - b).norm() / a.norm()) < 0.02
    assert float((grads[0] - grads[1]).norm() / grads[0].norm()) < 0.15  # some units near zero switch


def test_returns_to_go_and_steps_ahead_stay_in_their_episode() -> None:
    data = replace(steps(6, 2), reward=torch.tensor([1.0, 2.0, 4.0, 1.0, 0.0, 8.0]))
    assert returns_to_go(data, 0.5).tolist() == [3.0, 4.0, 4.0, 3.0, 4.0, 8.0]
    assert ahead(data, 2).tolist() == [2, 2, 2, 5, 5, 5]
    action, there = next_actions(data)
    assert there.tolist() == [1, 1, 0, 1, 1, 0] and torch.equal(action[0], data.action[1])


def test_weights_of_trajectories_are_those_of_the_paper() -> None:
    data = replace(steps(6, 2), reward=torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 2.0]))
    assert weighted(data, "none", 0.1).weight is None
    weight = weighted(data, "return", 0.5).weight
    assert weight is not None and torch.allclose(weight[1] / weight[0], torch.tensor(2.0).exp())
    with pytest.raises(ValueError, match="hold no weights"):
        weighted(data, "data", 0.1)


def test_rows_are_drawn_as_often_as_their_episodes_weigh() -> None:
    data = replace(steps(), weight=torch.tensor([0.0, 1.0, 3.0]))
    batches = TransitionBatches(data, 1000)
    batch = next(batches.draw(torch.Generator().manual_seed(0), 1))
    share = torch.bincount(data.episode[batch.rows], minlength=3) / 1000
    assert share[0] == 0.0 and float(share[2]) == pytest.approx(0.75, abs=0.05)
    assert torch.equal(batch.reward, data.reward[batch.rows])
    assert torch.allclose(batch.obs, batches.normalizer(data.obs[batch.rows]))
    with pytest.raises(ValueError, match="nothing to learn"):
        TransitionBatches(replace(data, weight=torch.zeros(3)), 4)


def test_evaluations_are_due_at_multiples_and_at_the_end(tmp_path: Path) -> None:
    module, config = of("iql", updates=10, evaluate_updates=6, evaluate_episodes=5)
    asked: list[int] = []

    def evaluate(actor, normalizer, episodes: int) -> dict[str, float]:
        asked.append(episodes)
        return {"success": 0.5}

    result = module.train(steps(), config, out=tmp_path, evaluate=evaluate)
    assert asked == [5, 5] and [row["updates"] for row in result.history if "success" in row] == [8.0, 10.0]
    assert offline_learner.read(tmp_path)["updates"] == 10


def test_iqls_derivatives_are_those_of_its_losses() -> None:
    """Equations 5, 6 and 7, written with autograd."""
    module, config = of("iql", temperature=2.0)
    torch.manual_seed(0)
    algorithm, data = module.IQL({"obs_dim": 4, "action_dim": 2}, config, torch.Generator()), steps()
    algorithm.update(data)  # targets and networks differ
    with torch.no_grad():
        best = algorithm.target(data.obs, data.action).amin(0)
        wanted = data.reward + config.gamma * data.mask * algorithm.value(data.next_obs)
    advantage = best - algorithm.value(data.obs)
    value = (torch.where(advantage > 0, 0.7, 0.3) * advantage.square()).mean()
    quality = (algorithm.quality(data.obs, data.action) - wanted).square().mean(1).sum()
    weight = (2.0 * advantage.detach()).exp().clamp(max=100.0)
    policy = -(weight * algorithm.actor.distribution(data.obs).log_prob(data.action)).mean()
    groups = (algorithm.adam, algorithm.policy_adam)
    for group in groups:
        group.gradient.zero_()
    (value + quality + policy).backward()
    exact = [group.gradient.clone() for group in groups]
    with torch.no_grad():
        found = algorithm.differentiate(data)
    for group, gradient in zip(groups, exact):
        assert torch.allclose(group.gradient, gradient, atol=1e-6)
    assert torch.allclose(torch.stack(module.losses(found, config)), torch.stack([value, quality, policy]))
