"""Flow-Noise: PPO on the whole chain of denoise steps, each with a spread that is learned.

Chen et al. 2025, pi_RL (arXiv 2510.25889), section 4.1, after ReinFlow (arXiv 2505.22094). In training every denoise
step of a flow policy is Gaussian around Euler's, and a small network says how wide, within bounds. The chain is then a
Markov process of one layer whose log-probability is exact:

    log pi(x_0 | o) = log N(x_1; 0, I) + sum_k log N(x_{k+1}; Euler(x_k), s_phi(o, t_k)^2),   s in [low, high]

An update costs K passes of the expert. What is deployed is the ODE: the spread network is of the training alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.algos.flow_sde import tunable
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.ppo import PPO, SHARPEST, Critic, PPOConfig
from temporeal.policies.training.chunk_rl.rollouts import Drawn
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.vla.protocol import FlowPolicy
from temporeal.policies.vla.samplers import LearnedNoise, chain_log_prob, flow_noise, grid, sample, sharpness


@dataclass(frozen=True)
class FlowNoiseConfig(PPOConfig):
    """Settings of the learner. ``configs/algo/flow_noise.yaml`` has the same names.

    Args:
        spread_low, spread_high: bounds of the standard deviation of a step, in units of the chunk.
        spread_hidden: width of the network that says it.
        average: the log-probability is the mean over the chain's K + 1 terms and not their sum, as in pi_RL's code: the
            ratio is then that of a tempered policy, and moves less.
        entropy: weight of the mean logarithm of the spread: it keeps exploring.
    """

    entropy: float = 0.005
    spread_low: float = 0.08
    spread_high: float = 0.16
    spread_hidden: int = 128
    average: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, spread_hidden="[1, inf)")
        if 0 < self.spread_low < 1.0 / SHARPEST:
            raise SettingsError(f"algo.spread_low is at least {1.0 / SHARPEST:.2g}: below it rounding moves the "
                                f"probabilities of chunks; got {self.spread_low}")
        if not 0 < self.spread_low < self.spread_high:
            raise SettingsError(f"algo.spread_low and algo.spread_high are positive, in this order; got "
                                f"{self.spread_low} and {self.spread_high}")


class NoiseAgent:
    """A flow policy of which every step is random: an :class:`temporeal.policies.training.chunk_rl.ppo.Agent`."""

    def __init__(self, policy: ChunkPolicy, flow: FlowPolicy, spread: LearnedNoise, config: FlowNoiseConfig) -> None:
        self.policy, self.flow, self.spread, self.config = policy, flow, spread, config
        self.learns: dict[str, nn.Module] = {"policy": policy, "spread": spread}
        self.step, self.sharpness = flow_noise(spread), sharpness(config.spread_low)
        self.terms = flow.steps + 1 if config.average else 1

    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks with their chains."""
        found = sample(self.flow, context, self.step, self.config.execute, generator)
        return Drawn(found.chunk, found.log_prob / self.terms, {"xs": found.xs.transpose(0, 1)})

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of the chain; and the mean logarithm of the spread, the entropy but for a constant."""
        found = chain_log_prob(self.flow, context, self.step, kept["xs"].transpose(0, 1), self.config.execute)
        if not self.config.entropy:
            return found / self.terms, found.new_zeros(())
        spreads = [self.spread(context, t.expand(len(context))).log().mean() for t in grid(self.flow.steps)[:-1]]
        return found / self.terms, torch.stack(spreads).mean()


def train(env: ChunkEnv, config: FlowNoiseConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Tune the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    policy = tuning.copied(base)
    flow = tunable(policy)
    worlds = make_worlds(env, flow, config, base)
    width, shape = worlds.context_dim(), (flow.horizon, flow.interface.action.size)
    spread, critic = tuning.seeded(seed, lambda: (
        LearnedNoise(width, shape, config.spread_hidden, config.spread_low, config.spread_high),
        Critic(width, worlds.critic_dim, config)))
    agent = NoiseAgent(policy, flow, spread, config)
    return tune(worlds, config, PPO(agent, config, critic), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The tuned policy of a run."""
    return tuning.load(run, FlowNoiseConfig, device)
