"""DPPO: PPO on every denoise step of the chunks that a flow or diffusion policy makes.

Ren et al. 2024, Diffusion Policy Policy Optimization (arXiv 2409.00588): the denoise steps of a decision are steps of
the decision process, each a Gaussian; all have the advantage of their decision, and PPO's ratio is clipped for each of
them. RL-100 (arXiv 2510.14830) takes the same objective offline and online. The steps are those of
:mod:`temporeal.policies.denoising_rl.chains`: Flow-SDE's, or DDIM's with noise.

``algo=flow_sde`` draws one random step a decision and costs one pass of the network; this one costs K of them, and also
tunes diffusion policies. The encoder is frozen. What is deployed has no noise. """

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from temporeal.policies.denoising_rl.chains import Chains
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.ppo import PPO, Critic, PPOConfig
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import require
from temporeal.policies.vla.protocol import ChunkedPolicy


@dataclass(frozen=True)
class DPPOConfig(PPOConfig):
    """Settings of the learner. ``configs/algo/dppo.yaml`` has the same names.

    Args:
        noise: of the denoise steps: a of a flow's, eta of a diffusion's.
        least: of the standard deviation of a diffusion's steps.
        fixed: share of the chunks that are drawn from the deployed noise.
    """

    target_kl: float = 0.02
    gamma: float = 0.9
    gae_lambda: float = 0.8
    noise: float = 0.3
    least: float = 0.05
    fixed: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, noise="(0, inf)", least="(0, inf)", fixed="[0, 1]")


def train(env: ChunkEnv, config: DPPOConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Tune the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    agent = Chains(tuning.copied(base), config.noise, config.least, config.execute, config.fixed)
    worlds = make_worlds(env, ChunkedPolicy(agent.policy), config, base)
    critic = tuning.seeded(seed, lambda: Critic(worlds.context_dim(), worlds.critic_dim, config))
    return tune(worlds, config, PPO(agent, config, critic), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The tuned policy of a run."""
    return tuning.load(run, DPPOConfig, device)
