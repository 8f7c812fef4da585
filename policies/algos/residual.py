"""Residual: a frozen chunk policy, and a small correction of its chunks that PPO learns.

After Ankile et al. 2024, From Imitation to Refinement (ResiP, arXiv 2407.16677): the base keeps what was demonstrated,
and the correction has few numbers, so that its gradient is not lost in those of a whole chunk. There a correction is
made at each control step; here at each decision, of a part of the chunk's rows, so that an artifact, its worker and the
guard take the corrected policy as any other.

    chunk = base(o) + scale * clip(u, -1, 1),   u ~ N(mean(o, base(o)), std^2),   std learned, the same everywhere

What is deployed is the mean. At scale 0 it is the base, bit for bit. Any policy that gives chunks can be the base:
flows, diffusion, ACT, one step, tokens, and a policy that was tuned; from states, from pictures and a sentence. Rows
that are not played in training have the correction of the last part that is. U numbers of a command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI, mlp
from temporeal.policies.training import checkpoint
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.ppo import PPO, Critic, PPOConfig
from temporeal.policies.training.chunk_rl.rollouts import Drawn
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder
from temporeal.policies.training.errors import SettingsError, require, require_widths
from temporeal.policies.vla.protocol import ChunkedPolicy


@dataclass(frozen=True)
class ResidualConfig(PPOConfig):
    """Settings of the learner. ``configs/algo/residual.yaml`` has the same names.

    Args:
        scale: of the correction, in units of the chunk, whose commands fill -1 to 1; 0: the base, bit for bit.
        parts: corrections of a chunk, each for an equal part of its rows, as far as they are played; 1: the same in all
            rows.
        spread: std at first.
        hidden: widths of the correction's network.
    """

    epochs: int = 8
    target_kl: float = 0.02
    learning_rate: float = 3e-4
    gamma: float = 0.95
    gae_lambda: float = 0.9
    scale: float = 0.2
    parts: int = 1
    spread: float = 0.5
    hidden: Sequence[int] = (128, 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, scale="[0, inf)", parts="[1, inf)", spread="(0, inf)")
        require_widths(self, "hidden")


class Corrected(Decoder):
    """A frozen decoder and the correction of its chunks.

    Args:
        own: the frozen decoder.
        shape: H, U.
        context: numbers of a context, of all its tokens.

    Attributes:
        shape: G, U: corrections of the parts that are played.
    """

    def __init__(self, own: Decoder, shape: tuple[int, int], context: int, config: ResidualConfig) -> None:
        super().__init__()
        rows, size = shape
        if rows % config.parts:
            raise SettingsError(f"algo.parts={config.parts}: {rows} rows of a chunk cannot be divided into "
                                f"{config.parts} equal parts")
        self.own, self.scale, each = own.requires_grad_(False), config.scale, rows // config.parts
        self.shape = (math.ceil(config.execute / each), size)
        self.register_buffer("part", (torch.arange(rows) // each).clamp(max=self.shape[0] - 1), persistent=False)
        self.part: Tensor
        self.net = mlp(context + rows * size, config.hidden, math.prod(self.shape), "tanh", 0.0)
        self.log_std = nn.Parameter(torch.full((math.prod(self.shape),), math.log(config.spread)))

    def mean(self, context: Tensor, base: Tensor) -> Tensor:
        """Of u [N, G U], given the base's chunk [N, H, U]."""
        found: Tensor = self.net(torch.cat([context.flatten(1), base.flatten(1)], -1))
        return found

    def corrected(self, base: Tensor, u: Tensor) -> Tensor:
        """The chunk that is played."""
        return base + self.scale * u.clamp(-1.0, 1.0).unflatten(1, self.shape)[:, self.part]

    def forward(self, context: Tensor) -> Tensor:
        """The chunk that is deployed."""
        base: Tensor = self.own(context)
        return self.corrected(base, self.mean(context, base))


class ResidualAgent:
    """The base and a random correction: an :class:`temporeal.policies.training.chunk_rl.ppo.Agent`."""

    def __init__(self, policy: ChunkPolicy) -> None:
        self.policy, self.decoder = policy, cast("Corrected", policy.decoder)
        self.learns: dict[str, nn.Module] = {"policy": policy}
        self.sharpness = 1.0  # of corrections in units of their own scale

    @torch.no_grad()
    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks, and the corrections in them."""
        base = self.decoder.own(context)
        noise = torch.randn((len(context), len(self.decoder.log_std)), generator=generator)
        u = self.decoder.mean(context, base) + self.decoder.log_std.exp() * noise
        kept = {"u": u, "base": base}
        return Drawn(self.decoder.corrected(base, u), self.log_prob(context, kept)[0], kept)

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of the corrections; and the entropy per number, but for a constant."""
        log_std = self.decoder.log_std
        apart = (kept["u"] - self.decoder.mean(context, kept["base"])) / log_std.exp()
        return (-0.5 * apart.square() - log_std - HALF_LOG_2PI).sum(-1), log_std.mean()


def corrected(policy: ChunkPolicy, config: ResidualConfig) -> ChunkPolicy:
    """``policy`` with a correction that is 0 everywhere, and nothing else that learns."""
    policy.requires_grad_(False)
    shape = (policy.horizon, policy.interface.action.size)
    policy.decoder = Corrected(policy.decoder, shape, policy.encoder.size, config)
    return policy


def train(env: ChunkEnv, config: ResidualConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Correct the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    policy = tuning.seeded(seed, lambda: corrected(tuning.copied(base), config))
    worlds = make_worlds(env, ChunkedPolicy(policy), config, base)
    critic = tuning.seeded(seed, lambda: Critic(worlds.context_dim(), worlds.critic_dim, config))
    agent = ResidualAgent(policy)
    return tune(worlds, config, PPO(agent, config, critic), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The corrected policy of a run."""
    return tuning.load(run, ResidualConfig, device, shaped)


def shaped(policy: ChunkPolicy, config: ResidualConfig, weights: Mapping[str, Tensor]) -> ChunkPolicy:
    """``policy`` with a correction of the size that ``weights`` have."""
    checkpoint.require_held("of the run", config.hidden, weights)
    return corrected(policy, config)
