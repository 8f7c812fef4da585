"""SAC and TD3: derivatives, fixed points, shares of demonstrations, exact resumption, and that they learn."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from temporeal.policies.algos import sac, td3
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import squashed
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import checkpoint
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.off_policy import checkpoints
from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.drawing import Batch, batch_of, batches
from temporeal.policies.training.off_policy.learner import Learner, start, step
from temporeal.policies.training.ranks import Ranks

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = importlib.util.spec_from_file_location("ppo_worlds", Path(__file__).parents[1] / "ppo_worlds.py")
assert SPEC is not None and SPEC.loader is not None
worlds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worlds)

SMALL: dict[str, Any] = {"total_steps": 96, "warmup": 32, "report_steps": 32, "batch": 8, "hidden": (8,),
                         "checkpoint_seconds": 0.0}
RATED = torch.zeros(2, 0)  # of a batch's actions: read where demonstrations are imitated
LEARNERS = {"sac": (sac, sac.SACConfig), "td3": (td3, td3.TD3Config)}


def small(name: str, **changes: Any) -> tuple[ModuleType, Any]:
    module, kind = LEARNERS[name]
    return module, kind(**{**SMALL, **changes})


# ---------------------------------------------------------------- what is learned


def test_the_policy_s_derivative_is_that_of_its_loss() -> None:
    torch.manual_seed(0)
    config = sac.SACConfig(hidden=(8,), critics=2, policy_rate=1e-9, temperature=0.3)
    algorithm = sac.SAC(Sizes(3, 4, 2), config, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for p in (*algorithm.actor.parameters(), *algorithm.critics.quality.parameters()):
            p += 0.5 * torch.randn(p.shape)
    obs, critic = torch.randn(6, 3), torch.randn(6, 4)
    batch = Batch(obs, critic, torch.zeros(6, 6), obs, critic, torch.zeros(6), torch.zeros(6))
    state = algorithm.generator.get_state()
    with torch.no_grad():
        algorithm.improve(batch, RATED)
    found = algorithm.policy_adam.gradient.clone()
    algorithm.generator.set_state(state)
    action, log_prob = squashed(algorithm.actor.net.plain(obs)[0], algorithm.noise(6))
    value = algorithm.critics.quality.net.plain(torch.cat([critic, action], -1))[..., 0].amin(0)
    algorithm.policy_adam.gradient.zero_()
    (0.3 * log_prob - value).mean().backward()
    assert torch.allclose(found, algorithm.policy_adam.gradient, atol=1e-6) and float(found.norm()) > 0.1


@pytest.mark.parametrize("restraint", [0.0, 0.7])
def test_td3_s_derivative_is_that_of_its_loss(restraint: float) -> None:
    torch.manual_seed(0)
    config = td3.TD3Config(hidden=(8,), policy_rate=1e-9, restraint=restraint)
    algorithm = td3.TD3(Sizes(3, 4, 2), config, torch.Generator())
    with torch.no_grad():
        for p in (*algorithm.actor.parameters(), *algorithm.critics.quality.parameters()):
            p += 0.5 * torch.randn(p.shape)
    obs, critic = torch.randn(6, 3), torch.randn(6, 4)
    batch = Batch(obs, critic, torch.zeros(6, 6), obs, critic, torch.zeros(6), torch.zeros(6))
    with torch.no_grad():
        algorithm.improve(batch, RATED)
    found = algorithm.policy_adam.gradient.clone()
    action = torch.tanh(algorithm.actor.net.plain(obs)[0])
    algorithm.policy_adam.gradient.zero_()
    value = algorithm.critics.quality.net.plain(torch.cat([critic, action], -1))[..., 0].amin(0)
    (restraint * action.square().sum(-1) - value).mean().backward()
    assert torch.allclose(found, algorithm.policy_adam.gradient, atol=1e-6) and float(found.norm()) > 0.01


def entropy_of(outputs: torch.Tensor) -> torch.Tensor:
    """Entropy [B] of squashed normal distributions of one action, by quadrature over their noise."""
    noise = torch.linspace(-8, 8, 4001)[:, None, None].expand(-1, len(outputs), 1)
    log_prob = squashed(outputs, noise)[1]
    weight = torch.softmax(-0.5 * noise[:, :1, 0].square(), 0)
    return -(weight * log_prob).sum(0)


@pytest.mark.parametrize("backup", [True, False])
def test_values_of_a_policy_are_the_solution_of_the_soft_bellman_equation(backup: bool) -> None:
    """Three states in a circle, one of which pays; the last is left by termination once in a while, or never: the
    policy is held, so that Q(s) = r(s) + gamma (Q(s') + alpha H(s')) is a linear system."""
    torch.manual_seed(0)
    gamma, alpha = 0.6, 0.5
    config = sac.SACConfig(hidden=(32,), learning_rate=3e-3, policy_every=10**9, temperature=alpha,
                           gamma=gamma, target_rate=0.05, backup_entropy=backup)
    algorithm = sac.SAC(Sizes(3, 3, 1), config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        algorithm.actor.net.weights[-1] += 0.5 * torch.randn(algorithm.actor.net.weights[-1].shape)
    states = torch.eye(3)
    reward, terminal = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 1.0])
    with torch.no_grad():
        entropy = entropy_of(algorithm.actor.net(states)[0]) if backup else torch.zeros(3)
    move = torch.eye(3).roll(1, 1)  # 0 to 1 to 2; from 2 it ends
    move = move * (1.0 - terminal)[:, None]
    solution = torch.linalg.solve(torch.eye(3) - gamma * move, reward + gamma * move @ (alpha * entropy))
    generator = torch.Generator().manual_seed(2)
    for _ in range(500):
        at = torch.randint(3, (64,), generator=generator)
        after = (at + 1) % 3
        action = torch.rand(64, 1, generator=generator) * 2 - 1
        pair = torch.cat([states[at], action], -1)
        algorithm.update(Batch(states[at], states[at], pair, states[after], states[after], reward[at],
                               gamma * (1 - terminal[at])))
    with torch.no_grad():
        actions = torch.linspace(-1, 1, 5)
        for s in range(3):
            value = algorithm.critics.quality(states[s].expand(5, 3), actions[:, None])
            assert torch.allclose(value, solution[s].expand(2, 5), atol=0.12), (s, value, solution)


@pytest.mark.parametrize("shown", [None, 0.0, 1.0, "half"])
def test_the_entropy_that_is_asked_for_is_that_of_replay_not_of_demonstrations(shown: Any) -> None:
    """The policy is sure where the number seen is 1 and nearly uniform where it is 0. The mean over both is less than
    what is asked for; the temperature must fall all the same where the first are demonstrated: else the policy would
    act at random for ever wherever it comes itself."""
    config = sac.SACConfig(hidden=(2,), temperature_rate=0.01, entropy=-0.5, policy_rate=1e-12)
    algorithm = sac.SAC(Sizes(1, 1, 1), config, torch.Generator().manual_seed(0))
    net = algorithm.policy.net
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.weights[0][..., 0], net.weights[-1][..., 0, 1] = 1.0, -4.0  # the first hidden number is what is seen
    obs = torch.tensor([1.0, 0.0]).repeat(64)[:, None]
    rows = shown if shown is None else obs[:, 0] if shown == "half" else torch.full((128,), shown)
    batch = Batch(obs, obs, torch.zeros(128, 2), obs, obs, torch.zeros(128), torch.zeros(128), shown=rows)
    state = algorithm.generator.get_state()
    with torch.no_grad():
        entropy = float(algorithm.improve(batch, RATED)[1])
        algorithm.generator.set_state(state)
        each = -algorithm.policy.sample(obs, algorithm.noise(128))[1]
    assert float(each[1::2].mean()) > -0.5 > float(each.mean())
    assert entropy == pytest.approx(float((each[1::2] if shown == "half" else each).mean()), abs=1e-5)
    assert (float(algorithm.temperature().detach()) < config.temperature) == (shown == "half")


def test_the_temperature_is_learned_until_the_entropy_is_there() -> None:
    torch.manual_seed(0)
    config = sac.SACConfig(hidden=(8,), entropy=-0.5, temperature_rate=0.01)
    algorithm = sac.SAC(Sizes(2, 2, 1), config, torch.Generator().manual_seed(0))
    obs = torch.randn(32, 2)
    batch = Batch(obs, obs, torch.zeros(32, 3), obs, obs, torch.zeros(32), torch.zeros(32))
    with torch.no_grad():
        entropy, before = float(algorithm.improve(batch, RATED)[1]), config.temperature
    assert entropy > -0.5 and float(algorithm.temperature().detach()) < before


# ---------------------------------------------------------------- what is remembered


def made(env: Any, config: Any, demonstrations: Transitions | None = None) -> Learner:
    return start(env, config, sac.SAC, 0, demonstrations)


def test_time_that_cuts_is_bootstrapped_from_the_true_successor() -> None:
    env = worlds.Chain(2, length=3, limit=4, ends=False)
    _, config = small("sac", n_step=1, gamma=0.5)
    learner = made(env, config)
    for _ in range(6):
        step(learner)
    told = learner.replay.take(torch.arange(12), 1, 0.5)
    # states are one-hot; the last holds until time cuts after four steps, and the next episode starts in state 0
    assert told.discount.tolist() == [0.5] * 12
    assert told.after[:, 2].sum() > 0 and (told.after[:, 0] == 0).all()  # never the first state of the next episode
    ended = made(worlds.Chain(2, length=3, limit=9, ends=True), config)
    for _ in range(6):
        step(ended)
    told = ended.replay.take(torch.arange(12), 1, 0.5)
    assert torch.equal(told.discount == 0.0, told.pair[:, 2] == 1.0)


def test_critics_see_what_they_alone_are_told() -> None:
    _, config = small("sac")
    env = worlds.Recall(4, steps=3)
    learner = made(env, config)
    before = learner.obs
    step(learner)
    drawn = learner.replay.take(torch.arange(4), 1, 0.9)
    batch = batch_of(learner.sizes, learner.shared, drawn)
    assert torch.equal(batch.obs, before.actor) and torch.equal(batch.critic, before.critic)
    assert torch.equal(batch.pair, torch.cat([batch.critic, drawn.pair[:, -1:]], -1))
    blind = made(env, replace(config, privileged=False))
    assert blind.shared and blind.replay.after.shape[-1] == 2


def demonstrated(steps: int = 6) -> Transitions:
    obs = 7.0 + torch.rand(steps, 2, generator=torch.Generator().manual_seed(0))
    return Transitions(obs, torch.zeros(steps, 1), torch.full((steps,), 99.0), obs, torch.ones(steps),
                       torch.zeros(steps, dtype=torch.int64), torch.tensor([0, steps]))


@pytest.mark.parametrize("share, rows", [(None, 4), (1.0, 8), (0.3, 2)])
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_so_many_rows_of_each_batch_are_demonstrated(share: float | None, rows: int, priority: float) -> None:
    _, config = small("sac", demonstrations=share, warmup=0, normalize_observations=False, priority=priority)
    learner = made(worlds.PointMass(4), config, demonstrated())
    for _ in range(5):
        step(learner)
    found = []
    for batch in batches(learner):
        learner.algorithm.error = batch.reward.abs()
        found.append(batch)
    assert len(found) == 20
    if priority:
        assert learner.demonstrations.error.max() > 98.0 and learner.demonstrations.greatest == 99.0
    for batch in found:
        assert int((batch.reward > 50).sum()) == rows and len(batch.reward) == 8
        assert torch.equal(batch.reward > 50, batch.obs[:, 0] > 5)


def test_demonstrations_in_one_pool_are_drawn_by_their_errors_and_the_bonus() -> None:
    """Twenty steps of replay with error 1 and six demonstrated ones with error 1 + 4: 30 of 50 draws are theirs."""
    _, config = small("sac", warmup=0, normalize_observations=False, priority=1.0, demonstration_bonus=4.0, batch=500)
    learner = made(worlds.PointMass(4), config, demonstrated())
    for _ in range(5):
        step(learner)
    drawn = batches(learner)
    batch = next(drawn)
    assert batch.shown is not None and batch.weight is not None and torch.equal(batch.shown > 0, batch.reward > 50)
    assert abs(float(batch.shown.mean()) - 0.6) < 0.11  # five standard deviations
    # importance corrects by the square root of the chances: 5 to 1
    theirs, others = (batch.weight[batch.shown == flag].unique() for flag in (1.0, 0.0))
    assert torch.allclose(theirs / others, torch.tensor([5.0**-0.5]), atol=1e-4)
    learner.algorithm.error = torch.where(batch.shown > 0, 3.0, 7.0)
    next(drawn)
    for replay, error in ((learner.demonstrations, 3.0), (learner.replay, 7.0)):
        assert set(replay.error[: replay.count].round(decimals=3).flatten().tolist()) == {error}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("filtered", [True, False])
def test_what_is_demonstrated_draws_the_policy_where_it_is_better(name: str, filtered: bool) -> None:
    torch.manual_seed(0)
    module, config = small(name, imitation=0.7, imitation_filter=filtered, policy_rate=1e-9)
    algorithm = (sac.SAC if name == "sac" else td3.TD3)(Sizes(3, 3, 2), config, torch.Generator().manual_seed(1))
    plain = (sac.SAC if name == "sac" else td3.TD3)(
        Sizes(3, 3, 2), replace(config, imitation=0.0), torch.Generator().manual_seed(1))
    plain.actor.load_state_dict(algorithm.actor.state_dict())
    for each in (algorithm, plain):
        with torch.no_grad():
            each.critics.quality.net.weights[-1].add_(torch.randn(2, 8, 1, generator=torch.Generator().manual_seed(3)))
        each.critics.quality.load_state_dict(algorithm.critics.quality.state_dict())
    obs, told = torch.randn(6, 3), torch.rand(6, 2) * 2 - 1
    shown = torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    batch = Batch(obs, obs, torch.cat([obs, told], -1), obs, obs, torch.zeros(6), torch.zeros(6), None, shown)
    rated = torch.stack([torch.tensor([9.0, 9.0, -9.0, 9.0, 9.0, -9.0])] * 2)
    state = algorithm.generator.get_state()
    with torch.no_grad():
        for each in (algorithm, plain):
            each.generator.set_state(state)
            each.improve(batch, rated)
    difference = algorithm.policy_adam.gradient - plain.policy_adam.gradient
    algorithm.generator.set_state(state)
    outputs = algorithm.actor.net.plain(obs)[0]
    action = squashed(outputs, algorithm.noise(6))[0] if name == "sac" else torch.tanh(outputs)
    value = algorithm.critics.quality.net.plain(torch.cat([obs, action], -1))[..., 0].amin(0).detach()
    rows = [1, 3] if filtered else [1, 2, 3, 5]
    likely = torch.tanh(outputs[:, :2])
    algorithm.policy_adam.gradient.zero_()
    (0.7 * value.abs().mean() * (likely - told)[rows].square().sum() / 4).backward()
    wanted = algorithm.policy_adam.gradient
    assert torch.allclose(difference, wanted, atol=1e-6) and float(wanted.norm()) > 0.01


def test_demonstrations_of_another_size_are_refused() -> None:
    _, config = small("sac")
    with pytest.raises(SettingsError, match="show 2 numbers and 1 of an action, the critics read 5 and 1"):
        made(worlds.Chain(2, 5, 7, False), config, demonstrated())


def test_demonstrations_of_no_use_and_those_that_are_missing_are_refused() -> None:
    env = worlds.PointMass(2)
    for share in (0.0, 0.04):
        with pytest.raises(SettingsError, match=rf"demonstrations={share:g} of algo.batch=8 are 0 rows.* least 0.125"):
            made(env, small("sac", demonstrations=share)[1], demonstrated())
    with pytest.raises(SettingsError, match=r"demonstrations=0.5 .* dataset=FOLDER, .* not given; .* algo=sac"):
        made(env, small("sac", demonstrations=0.5)[1])
    for name in ("imitation", "snapshots"):
        with pytest.raises(SettingsError, match=rf"{name}=0.1 is of what dataset=FOLDER demonstrates"):
            made(env, small("sac", **{name: 0.1})[1])
    assert made(env, small("sac", snapshots=0.1, demonstrations=0.0)[1], demonstrated()).demonstrations is not None
    assert made(env, small("sac", demonstrations=0.0)[1]).demonstrations is None


def test_updates_are_as_many_as_the_steps_pay_for(tmp_path: Path) -> None:
    module, config = small("sac", updates_per_step=0.75, total_steps=100)
    history = module.train(worlds.PointMass(4), config, out=tmp_path).history
    assert [row["steps"] for row in history] == [32, 64, 96, 100]
    assert [row["gradient_steps"] for row in history] == [0, 24, 48, 51]  # 0.75 of the steps after the warm-up


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("name", LEARNERS)
def test_a_training_that_stopped_goes_on_as_if_it_had_not(name: str, tmp_path: Path) -> None:
    module, config = small(name, n_step=3, size=72, critics=3, subset=2, updates_per_step=0.6, priority=0.5)
    whole = module.train(worlds.PointMass(4, seed=1), config, out=tmp_path / "whole", demonstrations=demonstrated())
    module.train(worlds.PointMass(4, seed=1), replace(config, total_steps=64), out=tmp_path / "parts",
                 demonstrations=demonstrated())  # an ended one goes on likewise, with more steps
    parts = module.train(worlds.PointMass(4, seed=9), replace(config, threads=2), out=tmp_path / "parts", resume=True,
                         demonstrations=demonstrated())
    a, b = whole.actor.state_dict(), parts.actor.state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    timed = ("seconds", "eta", "rate", "fraction")
    assert [{k: v for k, v in row.items() if k not in timed} for row in whole.history] == [
        {k: v for k, v in row.items() if k not in timed} for row in parts.history]
    actor, normalizer, read = module.load_policy(tmp_path / "parts")
    obs = torch.randn(5, 2)
    assert torch.allclose(actor(normalizer(obs)), whole.actor(whole.normalizer(obs)), atol=1e-6) and read.n_step == 3


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_run_from_before_there_were_these_settings_is_loaded_and_goes_on(name: str, tmp_path: Path) -> None:
    module, config = small(name, total_steps=64)
    module.train(worlds.PointMass(4, seed=1), config, out=tmp_path)
    path = checkpoints.latest(tmp_path)
    state = checkpoint.load(path)
    state["config"] = {key: value for key, value in state["config"].items() if key not in checkpoints.ABSENT_DEFAULTS}
    state["sizes"] = {key: state["sizes"][key] for key in ("obs_dim", "critic_dim", "action_dim")}
    del state["best"]
    state["obs"] = state["obs"][:2]
    checkpoint.save(path, state)
    assert module.load_policy(tmp_path)[2] == config
    more = module.train(worlds.PointMass(4), replace(config, total_steps=96), out=tmp_path, resume=True)
    assert more.history[-1]["steps"] == 96


@pytest.mark.parametrize("changed, said", [({"gamma": 0.5}, "gamma"), ({"demonstrations": 0.25}, "demonstrations")])
def test_another_run_is_not_resumed(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    module, config = small("sac", total_steps=36)
    module.train(worlds.PointMass(4), config, out=tmp_path, demonstrations=demonstrated())
    with pytest.raises(CheckpointError, match=said):
        module.train(worlds.PointMass(4), replace(config, **changed), out=tmp_path, resume=True,
                     demonstrations=demonstrated())
    with pytest.raises(CheckpointError, match="data"):
        module.train(worlds.PointMass(4), config, out=tmp_path, resume=True, demonstrations=demonstrated(5))


def test_a_run_that_diverges_says_so(tmp_path: Path) -> None:
    module, config = small("sac", normalize_observations=False)
    with pytest.raises(NonFiniteError, match="not finite"):
        module.train(worlds.PointMass(4, nan_after=10), config, out=tmp_path)


def test_several_processes_are_refused(tmp_path: Path) -> None:
    module, config = small("sac")
    with pytest.raises(SettingsError, match="one process, not in 2"):
        module.train(worlds.PointMass(4), config, out=tmp_path, ranks=Ranks(0, 2))


@pytest.mark.parametrize("name, settings, said", [
    ("sac", {"subset": 3}, "algo.subset is of the 2 critics, got 3"), ("sac", {"n_step": 0}, "algo.n_step is at least"),
    ("td3", {"policy_value": "most"}, "one of least, mean"), ("sac", {"demonstrations": 1.5}, r"lies in \[0, 1\]"),
    ("td3", {"precision": "half"}, "float32, bfloat16"), ("sac", {"hidden": ()}, "at least one"),
    ("sac", {"warmup": 96}, "no update .*algo.warmup=96 .*algo.total_steps=96"),
    ("td3", {"warmup": 90, "updates_per_step": 0.1}, "no update .*algo.updates_per_step=0.1"),
    ("sac", {"demonstration_bonus": 1.0}, "demonstration_bonus=1 is of errors .* algo.priority=0.6"),
    ("sac", {"demonstration_bonus": 1.0, "priority": 0.5, "demonstrations": 0.5}, "one of the two"),
    ("sac", {"evaluate_steps": 31}, "algo.evaluate_steps=31 is at least algo.report_steps=32")])
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        small(name, **settings)


def test_the_deterministic_policy_is_evaluated_when_it_is_due(tmp_path: Path) -> None:
    module, config = small("td3", evaluate_steps=40)
    seen: list[torch.Tensor] = []

    def evaluate(actor: torch.nn.Module, normalizer: Normalizer, episodes: int) -> dict[str, float]:
        seen.extend(actor(normalizer(torch.ones(1, 2))) for _ in range(2))
        return {"success": 0.5}

    history = module.train(worlds.PointMass(4), config, out=tmp_path, evaluate=evaluate).history
    assert [row["steps"] for row in history if "evaluated_success" in row] == [64, 96]
    assert torch.equal(seen[0], seen[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns_a_spring_and_a_damper(name: str, tmp_path: Path) -> None:
    """Returns: -161 without any force, -4.4 by spring and damper (tests/policies/algos/test_ppo.py)."""
    module, config = small(name, total_steps=4000, warmup=500, report_steps=500, batch=128, hidden=(32, 32),
                           learning_rate=1e-3, policy_rate=1e-3, gamma=0.97)
    result = module.train(worlds.PointMass(8, seed=1), config, out=tmp_path)
    assert worlds.mean_cost(result.actor, result.normalizer) > -15.0
