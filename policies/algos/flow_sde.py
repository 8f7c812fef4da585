"""Flow-SDE: PPO on one random denoise step of each chunk that a flow policy makes.

Chen et al. 2025, pi_RL (arXiv 2510.25889), section 4.2. A flow policy is deterministic given its noise and has no
log-probability that could be computed. So, of the K denoise steps of a decision, one (pi_RL: any, drawn at random; here
the last, unless told otherwise) is a step of a stochastic differential equation, whose marginals are those of the flow
where steps are short (:mod:`temporeal.policies.vla.samplers`), the others are Euler's. Its Gaussian is the policy of a
process of two layers, the denoise step in the control decision: PPO's ratio is that of the one transition, and an
update costs one pass of the expert.

    log pi(x' | x, t, o) = log N(x'; mu_theta(x, t, o), d sigma_t^2 C)
    sigma_t = a sqrt(t / (1 - t)),   C[i, j] = r^|i - j| of a chunk's rows

over the rows that are executed. The encoder is frozen: contexts are encoded once a decision and stored. What is
deployed is the ODE from the policy's own noise, as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.ppo import PPO, SHARPEST, Critic, PPOConfig
from temporeal.policies.training.chunk_rl.rollouts import Drawn
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.vla.protocol import FlowPolicy, as_flow
from temporeal.policies.vla.samplers import (
    Decision,
    correlated,
    decide,
    decision_log_prob,
    flow_sde,
    least_std,
    sharpness,
)


@dataclass(frozen=True)
class FlowSDEConfig(PPOConfig):
    """Settings of the learner. ``configs/algo/flow_sde.yaml`` has the same names.

    Args:
        noise: a, the level of the random step; in pi_RL 0.5.
        late: the random step is one of so many last ones; 0: of all, as in pi_RL. A policy that was cloned from few
            demonstrations takes nearly every noise to one chunk: what is random early is gone before it is played, and
            its row teaches nothing.
        smooth: r, the correlation of the noise of neighbouring rows of a chunk; 0: none, as in pi_RL. White noise
            averages out while a chunk is played, and its many numbers share the divergence that an update may spend.
            Nearer to 1 than .99 rounding spoils the probabilities, and with it in very small ``noise``
            (:func:`sharp_enough`).
    """

    target_kl: float = 0.02
    gamma: float = 0.9
    gae_lambda: float = 0.8
    noise: float = 0.3
    late: int = 1
    smooth: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, noise="(0, inf)", late="[0, inf)", smooth="[0, 0.99]")


class SDEAgent:
    """A flow policy that draws chunks with one random step: an :class:`temporeal.policies.training.chunk_rl.ppo.Agent`.
    """

    def __init__(
        self, policy: ChunkPolicy, noise: float, execute: int, late: int = 0, smooth: float = 0.0
    ) -> None:
        self.policy, self.flow, self.late = policy, tunable(policy), late
        if late > self.flow.steps:
            raise SettingsError(f"algo.late is at most {self.flow.steps}, the denoise steps of the policy, got {late}")
        self.learns: dict[str, nn.Module] = {"policy": policy}
        self.sharpness = sharp_enough(noise, smooth, least_std(self.flow.steps, noise, late))
        rows = correlated(self.flow.horizon, smooth) if smooth else None
        self.step, self.execute = flow_sde(noise, rows), execute

    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks, and the step of each that was random."""
        found = decide(self.flow, context, self.step, self.execute, generator, self.late)
        return Drawn(found.chunk, found.log_prob, {"x": found.x, "next": found.next, "step": found.step})

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of that step."""
        decision = Decision(kept["x"], kept["x"], kept["next"], kept["step"], kept["x"])
        found = decision_log_prob(self.flow, context, self.step, decision, self.execute)
        return found, found.new_zeros(())


def sharp_enough(noise: float, smooth: float, std: float) -> float:
    """The sharpness of steps whose least standard deviation is ``std``; refused where rounding would be taken for
    learning."""
    found = sharpness(std, smooth)
    if found > SHARPEST:
        raise SettingsError(f"algo.noise is at least {noise * found / SHARPEST:.2g} with algo.smooth={smooth} and this "
                            f"policy's denoise steps: below it rounding moves its probabilities; got {noise}")
    return found


def tunable(policy: ChunkPolicy) -> FlowPolicy:
    """``policy`` as a flow, of which the expert alone is trained."""
    flow = cast("FlowPolicy", as_flow(policy))
    policy.requires_grad_(False)
    flow.expert.requires_grad_(True)
    return flow


def train(
    env: ChunkEnv, config: FlowSDEConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any
) -> Result:
    """Tune the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    agent = SDEAgent(tuning.copied(base), config.noise, config.execute, config.late, config.smooth)
    worlds = make_worlds(env, agent.flow, config, base)
    critic = tuning.seeded(seed, lambda: Critic(worlds.context_dim(), worlds.critic_dim, config))
    return tune(worlds, config, PPO(agent, config, critic), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The tuned policy of a run."""
    return tuning.load(run, FlowSDEConfig, device)
