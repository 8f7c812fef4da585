"""The ratio before the first step, step sizes, collapses, checkpoints."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.policies.chunk_worlds import PointWorlds, base, half_way

from temporeal.policies.algos import flow_sde
from temporeal.policies.algos.flow_noise import FlowNoiseConfig
from temporeal.policies.algos.flow_sde import FlowSDEConfig, SDEAgent
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunk_rl import ppo, tuning
from temporeal.policies.training.chunk_rl.halves import Halves
from temporeal.policies.training.chunk_rl.ppo import ClippedUpdate, RatioError, require_ratio_of_one
from temporeal.policies.training.chunk_rl.rewards import Sparse
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout, Seen
from temporeal.policies.training.chunk_rl.worlds import ChunkWorlds
from temporeal.policies.training.errors import SettingsError

CONFIG = FlowSDEConfig(target_kl=0.01, execute=4, minibatch=64, learning_rate=1e-4, total_steps=2048, evaluate_steps=0)


@pytest.fixture(autouse=True)
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "copy_base", lambda run, to: None)


def drawn(agent: SDEAgent, rows: int = 200) -> Rollout:
    generator = torch.Generator().manual_seed(0)
    context = torch.randn(rows, 16, generator=generator)
    parts = [agent.draw(part, generator) for part in context.split(37)]
    found = Drawn(torch.empty(0), torch.cat([part.log_prob for part in parts]),
                  {name: torch.cat([part.kept[name] for part in parts]) for name in parts[0].kept})
    none = torch.zeros(rows, dtype=torch.bool)
    return Rollout(torch.arange(rows), [0, rows], Seen(context, torch.zeros(rows, 1)), found, torch.zeros(rows),
                   torch.ones(rows), ~none, none, None)


def test_the_ratio_is_one_before_the_first_step() -> None:
    agent = SDEAgent(half_way(), 0.5, 4)
    rollout = drawn(agent)
    now = agent.log_prob(rollout.seen.context, rollout.drawn.kept)[0].detach()
    assert float(((now - rollout.drawn.log_prob).exp() - 1).abs().max()) < 1e-5


def test_another_policy_than_that_which_acted_is_refused() -> None:
    agent = SDEAgent(half_way(), 0.5, 4)
    rollout = drawn(agent)
    with torch.no_grad():
        next(iter(agent.flow.expert.net.parameters())).add_(0.01)
    update = ClippedUpdate(agent, CONFIG)
    with pytest.raises(RatioError, match="not the one that acted"):
        update(rollout, torch.randn(rollout.rows), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("changed", [0.0, 0.01])
def test_small_noise_is_not_mistaken_for_another_policy(changed: float) -> None:
    agent = SDEAgent(half_way(), 0.003, 4, 1, 0.9)
    generator = torch.Generator().manual_seed(0)
    context = torch.randn(300, 16, generator=generator)
    parts = [agent.draw(part, generator) for part in context.split(1)]
    found, kept = torch.cat([part.log_prob for part in parts]), {
        name: torch.cat([part.kept[name] for part in parts]) for name in parts[0].kept}
    with torch.no_grad():
        next(iter(agent.flow.expert.net.parameters())).add_(changed)
    ratio = (agent.log_prob(context, kept)[0].detach() - found).exp()
    asked = float(ratio.mean()), float((ratio - 1.0).abs().max()), agent.sharpness
    if changed:
        with pytest.raises(RatioError):
            require_ratio_of_one(*asked)
    else:
        require_ratio_of_one(*asked)


def test_noise_that_rounding_drowns_is_refused() -> None:
    with pytest.raises(SettingsError, match="algo.noise is at least 0.000.* with algo.smooth=0.9 .* got 1e-05"):
        SDEAgent(half_way(), 1e-5, 4, 1, 0.9)
    with pytest.raises(SettingsError, match="algo.spread_low is at least 8.3e-05: .* got 1e-06"):
        FlowNoiseConfig(spread_low=1e-6)


def test_halves_side_by_side_learn_what_they_learn_one_after_the_other() -> None:
    found = []
    for side_by_side in (False, True):
        agent, parts = SDEAgent(half_way(), 0.5, 4), []
        for seed in (0, 1):
            env = PointWorlds(8, seed)
            parts.append(ChunkWorlds(env, agent.flow, env.true_signals, (), 4, Sparse(env)))
        worlds = Halves(*parts, side_by_side)
        torch.manual_seed(0)
        learner = ppo.PPO(agent, CONFIG, ppo.Critic(worlds.context_dim(), worlds.critic_dim, CONFIG))
        for _ in range(3):
            learner.iterate(worlds, torch.Generator().manual_seed(1))
        found.append([*agent.policy.parameters(), *learner.critic.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_step_size_follows_the_divergence() -> None:
    update = ClippedUpdate(SDEAgent(half_way(), 0.5, 4), CONFIG)
    for kl, factor in ((0.1, 1 / 1.5), (0.001, 1.0), (0.01, 1.0), (0.001, 1.5)):
        update.adapt(kl)
        assert update.memory["learning_rate"] == pytest.approx(factor * 1e-4)
    update.soften()
    update.adapt(0.0)
    assert update.memory["learning_rate"] == pytest.approx(0.75e-4)  # half of it, and never more again


def test_divergence_of_equal_policies_is_zero() -> None:
    assert float(ppo.kl_of(torch.zeros(8))) == 0.0
    assert float(ppo.kl_of(torch.tensor([0.1, -0.1]))) > 0.0


def test_rows_without_an_advantage_do_not_count() -> None:
    agent = SDEAgent(half_way(), 0.5, 4)
    rollout, nothing = drawn(agent), torch.full((200,), torch.nan)
    before = [value.clone() for value in agent.policy.parameters()]
    ClippedUpdate(agent, CONFIG)(rollout, nothing, torch.Generator().manual_seed(0))
    assert all(torch.equal(old, new) for old, new in zip(before, agent.policy.parameters()))


def test_a_collapse_is_rolled_back(tmp_path: Path) -> None:
    policy, told = half_way(), iter([0.5, 0.8, 0.2, 0.7, *20 * [0.8]])
    seen = []

    def judge(now, episodes):
        seen.append(tuning.digest(now))
        return {"success": next(told)}

    config = dataclasses.replace(CONFIG, evaluate_steps=512, learning_rate_high=1e-4)
    start, rates = dataclasses.replace(base(policy, tmp_path), evaluate=judge), []

    def note(it):
        rates.append(it.method.memory["learning_rate"])
        return it.iteration == 3

    result = flow_sde.train(PointWorlds(64), config, out=tmp_path, base=start, on_iteration=note)
    assert [row["collapses"] for row in result.history] == [0.0, 1.0, 1.0]
    assert tuning.digest(result.policy) == seen[1]  # the best one, of the second evaluation
    assert rates[1] == pytest.approx(0.5 * rates[0], rel=0.6) and rates[1] < rates[0]


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    policy, config = half_way(), dataclasses.replace(CONFIG, total_steps=1600)

    def run(out, **how):
        return flow_sde.train(PointWorlds(64), config, out=tmp_path / out, base=base(policy, tmp_path), **how)

    whole = run("whole")
    run("parts", on_iteration=lambda it: it.iteration == 2)
    again = run("parts", resume=True)
    assert tuning.digest(again.policy) == tuning.digest(whole.policy) != tuning.digest(policy)
    other = base(half_way(seed=1), tmp_path)
    with pytest.raises(CheckpointError, match="base"):
        flow_sde.train(PointWorlds(64), CONFIG, out=tmp_path / "parts", base=other, resume=True)


@pytest.mark.parametrize(("setting", "value"), [
    ("reward", "dense"), ("execute", 0), ("critic", "all"), ("learning_rate", 1.0), ("progress_model", "runs/vlac"),
    ("gamma", 1.5), ("noise", 0.0), ("critic_hidden", ())])
def test_settings_name_what_is_wrong(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"algo\.{setting}"):
        FlowSDEConfig(**{setting: value})


def test_no_more_of_a_chunk_is_played_than_it_has(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"algo\.execute is at most 4"):
        flow_sde.train(PointWorlds(2), FlowSDEConfig(execute=5), out=tmp_path, base=base(half_way(), tmp_path))
