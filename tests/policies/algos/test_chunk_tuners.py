"""Each learner that tunes chunk policies improves one that goes part of the way only."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.policies.chunk_worlds import PointWorlds, base, flow, half_way, success, writer

from temporeal.policies.algos import dppo, dsrl, flow_grpo, flow_noise, flow_sde, residual, token_ppo
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.protocol import as_flow

SHARED = {"execute": 4, "evaluate_steps": 2000, "evaluate_episodes": 256}
CLIPPED = {**SHARED, "minibatch": 128, "learning_rate": 2e-4}
FAST = {
    "flow_sde": (flow_sde, flow_sde.FlowSDEConfig(total_steps=6000, **CLIPPED)),
    "flow_grpo": (flow_grpo, flow_grpo.FlowGRPOConfig(total_steps=8000, keep=64, **CLIPPED)),
    "residual": (residual, residual.ResidualConfig(total_steps=6000, **{**CLIPPED, "learning_rate": 1e-3})),
}
SLOW = {
    "dppo": (dppo, dppo.DPPOConfig(total_steps=8000, **CLIPPED)),
    "flow_noise": (flow_noise, flow_noise.FlowNoiseConfig(total_steps=16000, **CLIPPED)),
    "dsrl": (dsrl, dsrl.DSRLConfig(total_steps=15000, warmup=250, critic_only=50, batch=128, critics=2, hidden=(64, 64),
                                   **SHARED)),
    "token_ppo": (token_ppo, token_ppo.TokenPPOConfig(total_steps=20000, **CLIPPED)),
}


def decoder(name: str):
    return writer if name == "token_ppo" else flow


def improved(name: str, module: ModuleType, config, out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    monkeypatch.setattr(tuning, "copy_base", lambda run, to: None)
    policy = half_way(decoder(name))
    result = module.train(PointWorlds(64), config, out=out, base=base(policy, out))
    return success(policy), success(result.policy)


@pytest.mark.parametrize("name", FAST)
def test_it_improves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = improved(name, *FAST[name], tmp_path, monkeypatch)
    assert after > before + 0.15


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_it_improves_slowly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = improved(name, *SLOW[name], tmp_path, monkeypatch)
    assert after > before + 0.15


def test_adapters_change_a_policy_in_no_more_directions_than_their_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "copy_base", lambda run, to: None)
    policy = half_way()
    settings = {**CLIPPED, "evaluate_steps": 0, "critic_warmup": 0, "learning_rate": 1e-3}
    config = dppo.DPPOConfig(total_steps=1500, adapters=1, **settings)
    found = dppo.train(PointWorlds(32), config, out=tmp_path, base=base(policy, tmp_path)).policy
    before, after = policy.state_dict(), found.state_dict()
    apart = {name: after[name] - before[name] for name in before if name.startswith("decoder.net")}
    ranks = {name: int(torch.linalg.matrix_rank(value, atol=1e-6)) for name, value in apart.items() if value.dim() == 2}
    assert max(ranks.values()) == 1
    assert not any(bool(value.any()) for value in apart.values() if value.dim() == 1)  # biases stay


@pytest.mark.parametrize(("scale", "same"), [(0.0, True), (0.2, False)])
@torch.no_grad()
def test_a_residual_of_scale_0_is_the_policy_itself_bit_for_bit(scale: float, same: bool) -> None:
    policy, signals = half_way(), PointWorlds(8).true_signals()
    found = residual.corrected(half_way(), residual.ResidualConfig(scale=scale, parts=2))
    assert torch.equal(found.rows(signals), policy.rows(signals))  # it begins without a correction
    for value in found.decoder.net.parameters():
        value.normal_()
    assert torch.equal(found.rows(signals), policy.rows(signals)) == same
    context = found.encoder(signals)
    drawn = residual.ResidualAgent(found).draw(context, torch.Generator().manual_seed(0))
    apart = drawn.chunk - policy.decoder(context)
    assert bool((apart.abs() <= scale + 1e-6).all()) and torch.equal(drawn.chunk, policy.decoder(context)) == same
    torch.testing.assert_close(apart[:, 0], apart[:, 1])  # each half of a chunk has one correction


@torch.no_grad()
def test_what_is_not_played_has_no_share_in_a_residuals_probability() -> None:
    found = residual.corrected(half_way(), residual.ResidualConfig(parts=4, execute=2))
    context = found.encoder(PointWorlds(8).true_signals())
    drawn = residual.ResidualAgent(found).draw(context, torch.Generator().manual_seed(0))
    assert drawn.kept["u"].shape == (8, 2 * 2)  # of four rows two are played, of two numbers each
    apart = drawn.chunk - drawn.kept["base"]
    torch.testing.assert_close(apart[:, 1:2].expand(-1, 2, -1), apart[:, 2:])  # the rest goes on as the last one
    with pytest.raises(SettingsError, match="algo.parts=3: 4 rows of a chunk cannot be divided into 3 equal parts"):
        residual.corrected(half_way(), residual.ResidualConfig(parts=3))
    with pytest.raises(SettingsError, match="algo.hidden is a list of widths"):
        residual.ResidualConfig(hidden=())


@torch.no_grad()
def test_a_residuals_probability_is_that_of_its_gaussian() -> None:
    found = residual.corrected(half_way(), residual.ResidualConfig(spread=0.3))
    for value in found.decoder.net.parameters():
        value.normal_(std=0.3)
    agent, context = residual.ResidualAgent(found), found.encoder(PointWorlds(8).true_signals())
    drawn = agent.draw(context, torch.Generator().manual_seed(0))
    mean = found.decoder.mean(context, found.decoder.own(context))
    wanted = torch.distributions.Normal(mean, 0.3).log_prob(drawn.kept["u"]).sum(-1)
    torch.testing.assert_close(drawn.log_prob, wanted)
    torch.testing.assert_close(agent.log_prob(context, drawn.kept)[0], wanted)


def test_steering_begins_at_the_policy_itself() -> None:
    policy, signals = half_way(), PointWorlds(8).true_signals()
    steered = dsrl.steered(half_way(), 16, dsrl.DSRLConfig())
    assert torch.equal(steered.rows(signals), policy.rows(signals))
    context = steered.encoder(signals)
    noise = steered.decoder.start.start(context, torch.ones(8, 2))
    torch.testing.assert_close(noise - policy.decoder.start(context), torch.full((8, 4, 2), 1.5))


def test_steering_knows_the_chance_of_its_noise() -> None:
    start = dsrl.steered(half_way(), 16, dsrl.DSRLConfig()).decoder.start
    context, noise = torch.randn(3, 16), torch.randn(3, 2)
    action, chance = start.sample(context, noise)
    mean, log_std = start.distribution(context)
    u = torch.distributions.Normal(mean, log_std.exp())
    law = torch.distributions.TransformedDistribution(u, torch.distributions.TanhTransform())
    torch.testing.assert_close(chance, law.log_prob(action).sum(-1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("average", [False, True])
def test_the_ratio_of_a_chain_is_one_before_the_first_step(average: bool) -> None:
    policy, generator = half_way(), torch.Generator().manual_seed(0)
    config = flow_noise.FlowNoiseConfig(execute=4, average=average)
    spread = flow_noise.LearnedNoise(16, (4, 2))
    agent = flow_noise.NoiseAgent(policy, as_flow(policy), spread, config)
    context = torch.randn(50, 16, generator=generator)
    drawn = agent.draw(context, generator)
    now = agent.log_prob(context, drawn.kept)[0].detach()
    assert float(((now - drawn.log_prob).exp() - 1).abs().max()) < 1e-5


@pytest.mark.parametrize(("ratio", "shape"), [("token", (50, 2)), ("chunk", (50,))])
def test_the_ratio_of_tokens_is_one_before_the_first_step(ratio: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    agent = token_ppo.TokenAgent(half_way(writer), token_ppo.TokenPPOConfig(execute=4, ratio=ratio))
    context = torch.randn(50, 1, 16, generator=generator)
    drawn = agent.draw(context, generator)
    now = agent.log_prob(context, drawn.kept)[0].detach()
    assert now.shape == shape
    assert float(((now - drawn.log_prob).exp() - 1).abs().max()) < 1e-5


def test_a_curriculum_prefers_what_succeeds_every_second_time() -> None:
    often = token_ppo.curriculum(np.array([0.0, 0.5, 1.0]), 0.2)
    assert often[1] > 5 * often[0] and float(often.sum()) == pytest.approx(1.0)
