"""PPO of policies that write a chunk as tokens, as a language model writes words.

VLA-RL (arXiv 2505.18719): trajectory PPO of an autoregressive action policy, whose critic learns before the policy does
(``critic_warmup``) and whose episodes are drawn by a curriculum of success: starts that succeed about every second time
come most often,

    P(start) ~ exp(-|1/2 - p| / tau)

VL-DAC (arXiv 2508.04280): the ratio is that of single tokens, the value that of a step: all tokens of a decision share
its advantage, and no gradient of the value reaches the policy. ``ratio=chunk`` takes the product over a decision's
tokens instead, as VLA-RL does.

    L = -E min(r_i A, clip(r_i) A),   r_i = pi(token_i | tokens before it, o) / pi_old(...),   A of the decision
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.groups import Starts
from temporeal.policies.training.chunk_rl.halves import Worlds
from temporeal.policies.training.chunk_rl.ppo import PPO, Critic, PPOConfig
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv, ChunkWorlds
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.vla.protocol import TokenPolicy, as_tokens
from temporeal.policies.vla.token_sampling import token_log_prob, write


@dataclass(frozen=True)
class TokenPPOConfig(PPOConfig):
    """Settings of the learner. ``configs/algo/token_ppo.yaml`` has the same names.

    Args:
        ratio: token, or chunk.
        temperature: of the tokens that are drawn; what is deployed is the likeliest.
        curriculum: tau; 0: no curriculum, starts come as the task draws them.
        starts: in the pool of the curriculum. tries: episodes after which a start makes room for another one.
    """

    critic_warmup: int = 3
    ratio: str = "token"
    temperature: float = 1.0
    curriculum: float = 0.2
    starts: int = 128
    tries: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self, ratio=("token", "chunk"))
        require(self, temperature="(0, inf)", curriculum="[0, inf)", starts="[1, inf)", tries="[1, inf)")
        if self.overlap and self.curriculum:
            raise SettingsError("algo.overlap=true: a curriculum chooses starts for one set of worlds; "
                                "algo.curriculum=0 or algo.overlap=false")


class TokenAgent:
    """A policy that draws tokens: an :class:`temporeal.policies.training.chunk_rl.ppo.Agent`."""

    def __init__(self, policy: ChunkPolicy, config: TokenPPOConfig) -> None:
        self.policy, self.writer, self.config = policy, cast("TokenPolicy", as_tokens(policy)), config
        policy.requires_grad_(False)
        self.writer.expert.requires_grad_(True)
        self.learns: dict[str, nn.Module] = {"policy": policy}
        self.sharpness = 1.0  # logits, as they are

    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks, and their tokens."""
        found = write(self.writer, context, self.config.temperature, generator)
        return Drawn(self.writer.chunk_of(found.tokens), self.ratios_of(found.log_prob), {"tokens": found.tokens})

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of the tokens."""
        found = token_log_prob(self.writer, context, kept["tokens"], self.config.temperature)
        return self.ratios_of(found), found.new_zeros(())

    def ratios_of(self, log_prob: Tensor) -> Tensor:
        """What the ratio is of: each token [N, T], or their product [N]."""
        return log_prob if self.config.ratio == "token" else log_prob.sum(-1)


class TokenPPO(PPO):
    """PPO whose episodes begin where there is most to learn."""

    def __init__(self, agent: TokenAgent, config: TokenPPOConfig, critic: Critic) -> None:
        super().__init__(agent, config, critic)
        self.settings, self.starts = config, Starts(config.starts, config.tries)
        self.memory.update(starts=self.starts.memory, success=0.5)

    def collect(self, worlds: Worlds, generator: torch.Generator) -> Rollout:
        """With a curriculum: one episode of every world."""
        if not self.settings.curriculum:
            return super().collect(worlds, generator)
        assert isinstance(worlds, ChunkWorlds)
        starts = self.starts
        starts.memory = self.memory["starts"]
        starts.refresh(0.02, 0.98)
        chances = starts.chances(min(max(self.memory["success"], 0.05), 0.95))
        weights, count = curriculum(chances, self.settings.curriculum), worlds.env.num_worlds
        drawn = torch.multinomial(weights, count, replacement=True, generator=generator)
        which, group = torch.unique(drawn, return_inverse=True)
        records = [worlds.env.record(starts.memory["key"][s], 0) for s in which.tolist()]
        worlds.begin(worlds.env.begin([records[g] for g in group.tolist()]))
        found = worlds.rollout(self.agent.draw, worlds.env.task.steps, generator, once=True)
        success = found.episodes["success"][found.episodes["world"].argsort()]
        starts.count(which.tolist(), success, group)
        self.memory["success"] = 0.9 * self.memory["success"] + 0.1 * float(success.float().mean())
        return found


def curriculum(chances: np.ndarray, temperature: float) -> Tensor:
    """How often [S] starts are drawn that succeed with these ``chances`` [S]."""
    return torch.softmax(-torch.from_numpy(np.abs(0.5 - chances)) / temperature, 0)


def train(env: ChunkEnv, config: TokenPPOConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Tune the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    agent = TokenAgent(tuning.copied(base), config)
    worlds = make_worlds(env, agent.writer, config, base)
    critic = tuning.seeded(seed, lambda: Critic(worlds.context_dim(), worlds.critic_dim, config))
    return tune(worlds, config, TokenPPO(agent, config, critic), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The tuned policy of a run."""
    return tuning.load(run, TokenPPOConfig, device)
