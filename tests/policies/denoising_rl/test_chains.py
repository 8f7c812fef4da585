"""Chunks that are denoised at random: their probabilities, per denoise step."""

from __future__ import annotations

import math

import pytest
import torch
from tests.policies.chunk_worlds import PointWorlds, flow, half_way, writer

from temporeal.policies.denoising_rl.chains import Chains, ddim_steps
from temporeal.policies.imitation.diffusion import Diffusion, DiffusionConfig
from temporeal.policies.training.chunks.policy import Decoder
from temporeal.policies.training.errors import SettingsError


def diffusion(horizon: int) -> Decoder:
    return Diffusion(DiffusionConfig(horizon=horizon, execute=horizon, context=16, hidden=(32, 32), train_steps=20,
                                     denoise_steps=4), 2)


@torch.enable_grad()
def trained(make, updates: int = 20):
    """A little, so that its weights are not those that networks begin with."""
    return half_way(make, updates=updates)


@pytest.mark.parametrize(("make", "steps"), [(flow, 3), (diffusion, 4)])
@torch.no_grad()
def test_each_step_has_the_probability_that_it_was_drawn_with(make, steps: int) -> None:
    policy = trained(make)
    agent = Chains(policy, 0.4, 0.05, 2, 0.5)
    context = policy.encoder(PointWorlds(32).true_signals() | {"goal": torch.rand(32, 2)})
    drawn = agent.draw(context, torch.Generator().manual_seed(1))
    assert drawn.log_prob.shape == (32, steps) and drawn.kept["xs"].shape == (32, steps + 1, 4, 2)
    assert torch.equal(drawn.chunk, drawn.kept["xs"][:, -1])
    torch.testing.assert_close(agent.log_prob(context, drawn.kept)[0], drawn.log_prob, rtol=1e-4, atol=1e-4)
    # by hand, of the second step of a row: two rows of the chunk are played, two numbers each
    normal = agent.move(context, drawn.kept["xs"][:, 1], torch.ones(32, dtype=torch.int64))
    apart = (drawn.kept["xs"][:, 2] - normal.mean) / normal.std
    by_hand = (-0.5 * apart.square() - normal.std.log() - 0.5 * math.log(2 * math.pi))[:, :2].sum((1, 2))
    torch.testing.assert_close(by_hand, drawn.log_prob[:, 1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_share_of_the_chains_begins_at_the_deployed_noise() -> None:
    policy = trained(flow)
    context = policy.encoder(PointWorlds(64).true_signals())
    for share in (0.0, 0.5, 1.0):
        xs = Chains(policy, 0.4, 0.05, 4, share).draw(context, torch.Generator().manual_seed(1)).kept["xs"]
        own = (xs[:, 0] == policy.decoder.start(context)).all((1, 2)).float().mean()
        assert abs(float(own) - share) < 0.2 and (0.0 < share < 1.0 or float(own) == share)


@torch.no_grad()
def test_ddims_steps_have_the_policys_own_mean_where_noise_goes_to_0() -> None:
    policy = trained(diffusion)
    decoder, x = policy.decoder, torch.randn(16, 4, 2)
    context = policy.encoder(PointWorlds(16).true_signals())
    move, least = ddim_steps(decoder, 1e-6, 0.02)
    grid = decoder.grid(decoder.steps)
    assert least == pytest.approx(0.02)  # the floor
    for k in range(decoder.steps):
        here, there = grid[k].expand(16), grid[k + 1].expand(16)
        wanted = decoder.move(x, decoder.clean(x, here, context), here, there)
        torch.testing.assert_close(move(context, x, torch.full((16,), k)).mean, wanted, rtol=1e-4, atol=1e-4)
    # eta = 1: the posterior variance of DDPM (Song et al. 2021, eq. 16), at the first step
    kept, to = decoder.kept[grid[0]], decoder.kept[grid[1]]
    std = ddim_steps(decoder, 1.0, 1e-3)[0](context, x, torch.zeros(16, dtype=torch.int64)).std
    assert float(std[0, 0, 0]) == pytest.approx(float(((1 - to) / (1 - kept) * (1 - kept / to)).sqrt()), rel=1e-5)


def test_what_is_not_denoised_in_steps_is_refused() -> None:
    with pytest.raises(SettingsError, match="decoder is Writer is not denoised in steps.*algo=flow and algo=diffusion"):
        Chains(trained(writer, 0), 0.4, 0.05, 4, 0.5)
