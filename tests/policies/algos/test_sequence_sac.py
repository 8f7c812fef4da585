"""SAC on sequences of actions: what is played, its derivative, the states in between, exact resumption, all rates."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from temporeal.policies.algos import sequence_sac
from temporeal.policies.algos.sequence_sac import SequenceSAC, SequenceSACConfig
from temporeal.policies.nets.bounded_actor import squashed
from temporeal.policies.nets.sequence_actor import Remembering, SequenceActor
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.learner import start, step

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = importlib.util.spec_from_file_location("ppo_worlds", Path(__file__).parents[1] / "ppo_worlds.py")
assert SPEC is not None and SPEC.loader is not None
worlds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worlds)

SMALL: dict[str, Any] = {"total_steps": 96, "warmup": 32, "report_steps": 32, "batch": 8, "hidden": (8,),
                         "checkpoint_seconds": 0.0, "sequence": 3, "decide_every": 2}


def algorithm_of(moved: float = 0.5, **changes: Any) -> SequenceSAC:
    """With parameters ``moved`` at random from those it begins with."""
    torch.manual_seed(0)
    config = SequenceSACConfig(**{**SMALL, "policy_rate": 1e-9, "temperature": 0.3, **changes})
    found = SequenceSAC(Sizes(3, 3, 2), config, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for p in (*found.actor.parameters(), *found.critics.quality.parameters(), *found.model.parameters()):
            p += moved * torch.randn(p.shape)
    return found


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_decision_is_played_until_the_next(every: int) -> None:
    actor = SequenceActor(3, 2, (8,), length=3, every=every)
    with torch.no_grad():
        actor.net.weights[-1] += 0.5 * torch.randn(actor.net.weights[-1].shape)
        actor.net.biases[-1] += 0.5 * torch.randn(actor.net.biases[-1].shape)  # no decision is 0, whatever is off
        seen, hidden, remembering = torch.randn(7, 4, 3), torch.zeros(4, actor.hidden_dim), Remembering(actor, every)
        for t in range(7):
            action, hidden = actor(seen[t], hidden)
            decided = actor.decided(seen[t - t % every]).unflatten(1, (3, 2))
            assert torch.allclose(action, decided[:, t % every]) and torch.equal(remembering(seen[t]), action)
    assert float(decided.abs().min()) > 0.0


def test_the_policy_s_derivative_is_that_of_its_loss_over_the_sequence() -> None:
    """Each action is rated in the state that the model says it is played in, and the derivative stops there."""
    algorithm = algorithm_of()
    obs = torch.randn(6, 3)
    batch = Batch(obs, obs, torch.zeros(6, 5), obs, obs, torch.zeros(6), torch.zeros(6))
    state = algorithm.generator.get_state()
    with torch.no_grad():
        algorithm.improve(batch)
    found = algorithm.policy_adam.gradient.clone()
    algorithm.generator.set_state(state)
    noise, seen, loss = algorithm.noise(6), obs, torch.zeros(())
    outputs = algorithm.actor.net.plain(obs)[0].unflatten(-1, (3, 4))
    for j in range(3):
        action, log_prob = squashed(outputs[:, j], noise[:, j])
        value = algorithm.critics.quality.net.plain(torch.cat([seen, action], -1))[..., 0].amin(0)
        loss = loss + (0.3 * log_prob - value).mean() / 3
        seen = (seen + algorithm.model.plain(torch.cat([seen, action], -1))[0]).detach()
    algorithm.policy_adam.gradient.zero_()
    loss.backward()
    assert torch.allclose(found, algorithm.policy_adam.gradient, atol=1e-6) and float(found.norm()) > 0.1


def test_values_go_on_with_the_first_action_of_a_sequence() -> None:
    algorithm = algorithm_of(backup_entropy=False, subset=2)
    algorithm.critics.average.move(1.0)
    obs = torch.randn(5, 3)
    batch = Batch(obs, obs, torch.zeros(5, 5), obs, obs, torch.ones(5), torch.full((5,), 0.5))
    state = algorithm.generator.get_state()
    with torch.no_grad():
        wanted = algorithm.wanted(batch)
        algorithm.generator.set_state(state)
        action = squashed(algorithm.actor.net.plain(obs)[0][:, :4], algorithm.noise(5)[:, 0])[0]
        value = algorithm.critics.quality.net.plain(torch.cat([obs, action], -1))[..., 0].amin(0)
    assert torch.allclose(wanted, 1.0 + 0.5 * value, atol=1e-6)


def test_the_model_learns_what_comes_next() -> None:
    algorithm = algorithm_of(0.0, model_rate=3e-3, hidden=(32,))
    generator, losses = torch.Generator().manual_seed(0), list[float]()
    for _ in range(300):
        obs, action = (torch.randn(64, n, generator=generator) for n in (3, 2))
        after = obs + 0.3 * torch.cat([obs[:, 1:], action[:, :1] - 0.5 * action[:, 1:]], -1)
        batch = Batch(obs, obs, torch.cat([obs, action], -1), after, after, torch.zeros(64), torch.zeros(64))
        with torch.no_grad():
            losses.append(float(algorithm.follow(batch)))
    assert losses[-1] < 0.01 < losses[0]


def test_exploration_plays_sequences_and_decides_anew_in_a_new_episode() -> None:
    env = worlds.Chain(2, length=3, limit=100, ends=True)  # worlds 0 and 1 end one step after another
    learner = start(env, SequenceSACConfig(**{**SMALL, "warmup": 0, "sequence": 9, "decide_every": 9}), SequenceSAC, 0,
                    None)
    ages = list[list[float]]()
    for _ in range(6):
        step(learner)
        ages.append(learner.algorithm.playing.hidden[:, 0].tolist())
    assert ages == [[1, 1], [2, 0], [0, 1], [1, 2], [2, 0], [0, 1]]


def test_a_training_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    config = SequenceSACConfig(**{**SMALL, "size": 72, "decide_every": 3})  # stopped in the middle of a sequence
    whole = sequence_sac.train(worlds.PointMass(4, seed=1), config, out=tmp_path / "whole")
    sequence_sac.train(worlds.PointMass(4, seed=1), replace(config, total_steps=64), out=tmp_path / "parts")
    parts = sequence_sac.train(worlds.PointMass(4, seed=9), config, out=tmp_path / "parts", resume=True)
    a, b = whole.actor.state_dict(), parts.actor.state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    actor, normalizer, read = sequence_sac.load_policy(tmp_path / "parts")
    obs, hidden = torch.randn(5, 2), torch.zeros(5, 4)
    for mine, theirs in zip(actor(normalizer(obs), hidden), parts.actor(parts.normalizer(obs), hidden)):
        assert torch.allclose(mine, theirs, atol=1e-6)
    assert read.decide_every == 3


def test_the_score_is_the_mean_over_all_rates(tmp_path: Path) -> None:
    config, seen = SequenceSACConfig(**SMALL, evaluate_steps=96), list[int]()

    def evaluate(actor: torch.nn.Module, normalizer: torch.nn.Module, episodes: int) -> dict[str, float]:
        assert isinstance(actor, Remembering) and actor(normalizer(torch.ones(3, 2))).shape == (3, 1)
        seen.append(actor.every)
        return {"success": actor.every / 10, "robustness": float(actor.every)}

    row = sequence_sac.train(worlds.PointMass(4), config, out=tmp_path, evaluate=evaluate).history[-1]
    assert seen == [1, 2, 3] and row["evaluated_frequency_averaged"] == pytest.approx(0.2)
    assert row["evaluated_success"] == 0.2 and row["evaluated_robustness"] == 2.0  # of what is deployed
    assert [row[f"evaluated_success_every_{every}"] for every in (1, 2, 3)] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("settings, said", [
    ({"decide_every": 4}, "decide_every=4: a decision is on algo.sequence=3"), ({"n_step": 2}, "algo.n_step=1"),
    ({"privileged": True}, "algo.privileged=false"), ({"sequence": 0}, "at least 1"),
    ({"imitation": 0.5}, "algo.imitation=0.5 is not of sequences.* algo=sac")])
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        SequenceSACConfig(**{**SMALL, **settings})


@pytest.mark.slow
def test_it_learns_a_spring_and_a_damper_that_it_looks_at_every_fourth_step(tmp_path: Path) -> None:
    """Returns: -161 without any force, -4.4 by spring and damper that look at each step."""
    config = SequenceSACConfig(total_steps=4000, warmup=500, report_steps=500, batch=128, hidden=(32, 32),
                               learning_rate=1e-3, policy_rate=1e-3, model_rate=1e-3, gamma=0.97, sequence=4,
                               decide_every=4)
    result = sequence_sac.train(worlds.PointMass(8, seed=1), config, out=tmp_path)
    acting = Remembering(result.actor, 4)
    assert worlds.mean_cost(acting, result.normalizer) > -20.0
