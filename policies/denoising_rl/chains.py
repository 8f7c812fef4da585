"""Chunks that are denoised at random, step by step, with the probability of each step: the denoising decision process.

Black et al. 2023 (DDPO, arXiv 2305.13301) and Ren et al. 2024 (DPPO, arXiv 2409.00588): each of the K denoise steps is
an action of its own, a Gaussian, and all of a chunk's steps share the chunk's advantage. RL-100 (arXiv 2510.14830)
takes PPO's ratio and its clipping per denoise step, as here: log-probabilities are [B, K].

    flows       Flow-SDE's step at level a (:func:`temporeal.policies.vla.samplers.flow_sde`)
    diffusion   DDIM (Song et al. 2021, eq. 12 and 16):  x' ~ N(sqrt(abar') a' + sqrt(1 - abar' - s^2) eps', s^2),
                s = a sqrt((1 - abar') / (1 - abar)) sqrt(1 - abar / abar')

with s at least ``least``: at DDIM's last step it would be 0, and no action. What is deployed has no noise. A share of
the chains begins at the noise that is deployed, the others at fresh noise. B rows, K steps, H rows of a chunk, U
numbers of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from temporeal.policies.training.chunk_rl.rollouts import Drawn
from temporeal.policies.training.chunks.flow_matching import FlowMatching
from temporeal.policies.training.chunks.policy import ChunkPolicy, Denoising
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import samplers
from temporeal.policies.vla.protocol import FlowPolicy, as_flow, require_statistics
from temporeal.policies.vla.samplers import Normal, log_prob

Move = Callable[[Tensor, Tensor, Tensor], Normal]
"""From contexts [B, ...], x [B, H, U] and the number of the step int64 [B] to where x goes."""


class Chains:
    """A denoising policy that draws chunks by K random steps: an
    :class:`temporeal.policies.training.chunk_rl.ppo.Agent`.

    Args:
        noise: a. least: of the standard deviation of a diffusion's steps.
        execute: rows of a chunk that are played: only they count.
        fixed: share of the chains that begin at the deployed noise.
    """

    def __init__(self, policy: ChunkPolicy, noise: float, least: float, execute: int, fixed: float) -> None:
        decoder = denoising(policy)
        require_statistics(policy)
        policy.requires_grad_(False)
        decoder.net.requires_grad_(True)
        self.policy, self.decoder, self.execute, self.fixed = policy, decoder, execute, fixed
        self.learns: dict[str, nn.Module] = {"policy": policy}
        self.mask = torch.ones(policy.interface.action.size, dtype=torch.bool)
        self.move, spread = (flow_steps(policy, noise) if isinstance(decoder, FlowMatching)
                             else ddim_steps(decoder, noise, least))
        self.sharpness = samplers.sharpness(spread)

    @torch.no_grad()
    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks, and all their denoise steps ``xs`` [B, K + 1, H, U]."""
        shape = (len(context), self.policy.horizon, len(self.mask))
        own = torch.rand(len(context), generator=generator) < self.fixed
        x = torch.where(own[:, None, None], self.decoder.start(context), torch.randn(shape, generator=generator))
        xs, chances = [x], []
        for k in range(self.decoder.steps):
            normal = self.move(context, x, torch.full((len(x),), k))
            x = normal.draw(torch.randn(shape, generator=generator))
            xs.append(x)
            chances.append(log_prob(x, normal, self.mask, self.execute))
        return Drawn(x, torch.stack(chances, 1), {"xs": torch.stack(xs, 1)})

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of each step [B, K]; the steps' spread is not learned, and has no entropy."""
        before, after = kept["xs"][:, :-1].flatten(0, 1), kept["xs"][:, 1:].flatten(0, 1)
        rows, steps = kept["xs"].shape[0], self.decoder.steps
        which = torch.arange(steps).repeat(rows)
        normal = self.move(context.repeat_interleave(steps, 0), before, which)
        found = log_prob(after, normal, self.mask, self.execute).unflatten(0, (rows, steps))
        return found, found.new_zeros(())


def denoising(policy: ChunkPolicy) -> Denoising:
    """The decoder of ``policy``, which must be one that denoises in steps."""
    decoder = policy.decoder
    if not isinstance(decoder, Denoising) or not isinstance(decoder, FlowMatching) and not hasattr(decoder, "kept"):
        raise SettingsError(f"a policy whose decoder is {type(decoder).__name__} is not denoised in steps that could "
                            "be random: learning through the denoise steps takes runs of algo=flow and "
                            "algo=diffusion, and what was tuned of them")
    return decoder


def flow_steps(policy: ChunkPolicy, noise: float) -> tuple[Move, float]:
    """Flow-SDE's steps, and their least standard deviation."""
    flow = cast("FlowPolicy", as_flow(policy))
    grid, step = samplers.grid(flow.steps), samplers.flow_sde(noise)

    def move(context: Tensor, x: Tensor, which: Tensor) -> Normal:
        t, to = grid[which], grid[which + 1]
        return step(context, samplers.ends(flow, context, x, t), t, to)

    return move, samplers.least_std(flow.steps, noise)


def ddim_steps(decoder: Denoising, noise: float, least: float) -> tuple[Move, float]:
    """DDIM's steps with eta = ``noise``, and their least standard deviation."""
    grid, shares = decoder.grid(decoder.steps), cast("Tensor", decoder.kept)
    kept, to = shares[grid[:-1]], shares[grid[1:]]
    own = noise * ((1.0 - to) / (1.0 - kept)).sqrt() * (1.0 - kept / to).clamp(min=0.0).sqrt()
    toward = (1.0 - to - own.square()).clamp(min=0.0).sqrt()  # of the noise that is left in x
    spread = own.clamp(min=least)

    def move(context: Tensor, x: Tensor, which: Tensor) -> Normal:
        clean = decoder.clean(x, grid[which], context)
        here, there, rest, std = (each[which][:, None, None] for each in (kept, to, toward, spread))
        left = (x - here.sqrt() * clean) / (1.0 - here).sqrt()
        mean = there.sqrt() * clean + rest * left
        return Normal(mean, std.expand_as(mean))

    return move, float(spread.min())
