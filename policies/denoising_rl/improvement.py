"""One offline iteration of RL-100 (arXiv 2510.14830): critics from the data, then clipped updates through the denoise
steps, and a gate that lets a policy through or goes back.

    A(s, chunk) = min Q(s, chunk) - V(s)                     of chunks that the policy itself draws in the data's states
    loss = -mean min(r_k w(A) A, clip(r_k) w(A) A)           r_k: ratio of denoise step k
    w(A) = 2 omega where A > 0, 2 (1 - omega) else           Uni-O4 (arXiv 2311.03351), omega .7 there

A is standardized before. Every ``gate_rounds`` rounds the deterministic policy is compared with the last accepted one
by off-policy evaluation: accepted, it is the new one; refused, learning goes on from the last accepted, with half the
step size and no momentum. What the run gives is the last accepted policy. B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.denoising_rl.chains import Chains
from temporeal.policies.denoising_rl.critics import ChunkCritics, CriticSteps
from temporeal.policies.denoising_rl.decisions import REWARDS, Decisions
from temporeal.policies.training.chunk_rl.ppo import ClipConfig, ClippedUpdate
from temporeal.policies.training.chunk_rl.rollouts import Rollout, Seen, standardized
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, choose, require, require_widths
from temporeal.policies.training.offline_learner import OfflineConfig

Decide = Callable[[Tensor], Tensor]
"""From contexts [..., C] to the deterministic action [..., D]."""


class Verdict(Protocol):
    """What a gate says: see :class:`temporeal.policies.evaluate.ope.gate.Verdict`."""

    @property
    def accepted(self) -> bool: ...
    @property
    def difference(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def why(self) -> str: ...


Gate = Callable[[Transitions, Decide, Decide], Verdict]
"""Of the decisions as they are deployed, the candidate and its parent."""


@dataclass(frozen=True)
class OfflineRL100Config(OfflineConfig):
    """Settings of the learner. ``configs/algo/rl100_offline.yaml`` has the same names.

    Args:
        policy: folder of the run that is improved.
        updates: all of them: the first ``critic_updates`` are the critics', each later one is a round of the policy.
        batch: decisions of a critics' update. states: decisions of a round.
        execute: rows of a chunk that are played before the next decision.
        ensemble: of the evaluation only, see :class:`temporeal.policies.training.chunks.learner.CloningConfig`.
        reward: success (of the episode, at its end) or data (what the dataset says).
        gamma: discount per decision. expectile: of V. target_rate: of Q's slow copies. critic_learning_rate: of Adam.
        hidden: widths of the critics.
        omega: share of the weight that advantages above 0 have; those below have the rest. 0.5: all alike.
        noise: of the denoise steps: Flow-SDE's a, DDIM's eta. least: of the standard deviation of DDIM's steps.
        fixed: share of the chunks that are drawn from the deployed noise.
        epochs, minibatch, clip, target_kl, stop_kl, learning_rate, grad_norm: of a round, see
            :class:`temporeal.policies.training.chunk_rl.ppo.ClipConfig`.
        gate_rounds: rounds between comparisons with the last accepted policy.
        confidence: with which all comparisons of the run together hold.
        margin: of P(success), by which a policy may be worse at most, with that confidence.
        fqe_updates: of the off-policy evaluation's fit.
    """

    policy: str = ""
    updates: int = 3040
    report_updates: int = 20
    critic_updates: int = 3000
    states: int = 1024
    execute: int = 8
    ensemble: float | None = None
    reward: str = "success"
    gamma: float = 0.97
    expectile: float = 0.7
    target_rate: float = 0.005
    critic_learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    omega: float = 0.7
    noise: float = 0.3
    least: float = 0.05
    fixed: float = 0.5
    epochs: int = 2
    minibatch: int = 512
    clip: float = 0.2
    target_kl: float = 0.02
    stop_kl: float = 3.0
    learning_rate: float = 2e-5
    grad_norm: float = 1.0
    gate_rounds: int = 5
    confidence: float = 0.9
    margin: float = 0.05
    fqe_updates: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, critic_updates="[1, inf)", states="[1, inf)", execute="[1, inf)", ensemble="[0, inf)",
                gamma="[0, 1]", expectile="(0, 1)", target_rate="(0, 1]", critic_learning_rate="(0, inf)",
                omega="[0, 1]", noise="(0, inf)", least="(0, inf)", fixed="[0, 1]", gate_rounds="[1, inf)",
                confidence="(0, 1)", margin="[0, 1]", fqe_updates="[1, inf)")
        choose(self, reward=REWARDS)
        require_widths(self, "hidden")
        clipping(self)
        if self.updates <= self.critic_updates:
            raise SettingsError(f"algo.updates={self.updates} is all of the updates, of which the first "
                                f"critic_updates={self.critic_updates} are the critics': it must be larger, by the "
                                "rounds of the policy")

    @property
    def gates(self) -> int:
        """How often a policy is compared with the last accepted one."""
        return -(-(self.updates - self.critic_updates) // self.gate_rounds)


def clipping(config: OfflineRL100Config) -> ClipConfig:
    """The settings of a round."""
    low, high = min(1e-6, config.learning_rate), max(1e-3, config.learning_rate)
    return ClipConfig(epochs=config.epochs, minibatch=config.minibatch, clip=config.clip, clip_high=config.clip,
                      target_kl=config.target_kl, stop_kl=config.stop_kl, learning_rate=config.learning_rate,
                      learning_rate_low=low, learning_rate_high=high, grad_norm=config.grad_norm)


class Memory:
    """Plain values that a checkpoint keeps beside weights: as an optimizer, by ``state_dict``."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        """The values."""
        return dict(self.values)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        self.values.update(state)


class Rows:
    """Batches of decisions, by their numbers: :class:`temporeal.policies.training.offline_learner.Batches`."""

    def __init__(self, data: Decisions, batch: int, digest: str) -> None:
        self.data, self.batch, self.digest = data, batch, digest
        self.normalizer, self.sizes = nn.Identity(), dict[str, Any]()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Tensor]:
        """``count`` of them."""
        for _ in range(count):
            yield torch.randint(len(self.data.reward), (self.batch,), generator=generator)

    def fingerprint(self) -> str:
        """A hash of the data."""
        return self.digest


class Improvement:
    """The critics' updates, then the policy's rounds: :class:`temporeal.policies.training.offline_learner.Algorithm`.

    Attributes:
        actor: the last accepted policy.
        memory: the step size, how many policies were accepted and refused, and what the gate said of each.
    """

    figures = ("value_loss", "quality_loss", "advantage", "policy_loss", "kl", "accepted", "refused", "lower")

    def __init__(
        self, policy: ChunkPolicy, data: Decisions, config: OfflineRL100Config, generator: torch.Generator,
        gate: Gate | None = None,
    ) -> None:
        self.config, self.data, self.generator, self.gate, self.updates = config, data, generator, gate, 0
        self.policy, self.actor = policy, deepcopy(policy)
        self.agent = Chains(policy, config.noise, config.least, config.execute, config.fixed)
        self.step = ClippedUpdate(self.agent, clipping(config))
        self.critics = ChunkCritics(data.context.shape[1], data.action.shape[1], config.hidden)
        self.learn_critics = CriticSteps(
            self.critics, data, gamma=config.gamma, expectile=config.expectile, target_rate=config.target_rate,
            learning_rate=config.critic_learning_rate)
        self.memory = self.step.memory
        self.memory |= {"accepted": 0, "refused": 0, "lower": 0.0, "why": []}
        self.modules = {"policy": self.policy, "actor": self.actor, "critics": self.critics}
        self.optimizers: dict[str, Any] = {"policy": self.step.adam, "critics": self.learn_critics.adam,
                                           "memory": Memory(self.memory)}
        self.grid = data.as_deployed(config.execute)

    def update(self, batch: Tensor) -> Tensor:
        """A step of the critics, or a round of the policy. Returns its figures."""
        learning = self.updates < self.config.critic_updates
        self.updates += 1
        found = self.criticized(batch) if learning else self.round()
        told = {name: float(self.memory[name]) for name in ("accepted", "refused", "lower")}
        return torch.tensor([{**found, **told}.get(name, 0.0) for name in self.figures])

    def criticized(self, rows: Tensor) -> dict[str, float]:
        """A step of the critics."""
        value, quality = self.learn_critics(rows)
        return {"value_loss": float(value), "quality_loss": float(quality)}

    def round(self) -> dict[str, float]:
        """Chunks drawn in states of the data, judged by the critics, and the clipped updates on them."""
        config = self.config
        rows = torch.randint(len(self.data.reward), (config.states,), generator=self.generator)
        drawn = drawn_in(self.data.context[rows], self.agent, self.generator)
        played = drawn.drawn.kept["xs"][:, -1, :config.execute].flatten(1).clamp(-1.0, 1.0)
        advantage = self.critics.advantage(drawn.seen.context, played)
        found = self.step(drawn, weighed(standardized(advantage), config.omega), self.generator)
        done = self.updates - config.critic_updates
        if done % config.gate_rounds == 0 or self.updates == config.updates:
            self.judge()
        return {"advantage": float(advantage.mean()), **found}

    def judge(self) -> None:
        """Accept the policy, or go back to the last accepted one."""
        verdict = None if self.gate is None else self.gate(self.grid, self.decide(self.policy),
                                                           self.decide(self.actor))
        if verdict is not None:
            self.memory["lower"] = verdict.lower
            self.memory["why"] = [*self.memory["why"], verdict.why]
        if verdict is None or verdict.accepted:
            self.actor.load_state_dict(self.policy.state_dict())
            self.memory["accepted"] += 1
            return
        self.policy.load_state_dict(self.actor.state_dict())
        self.step.adam.state.clear()
        self.step.soften()
        self.memory["refused"] += 1

    def decide(self, policy: ChunkPolicy) -> Decide:
        """The deterministic action of ``policy`` as it is now."""
        decoder, execute = deepcopy(policy.decoder), self.config.execute

        @torch.no_grad()
        def act(context: Tensor) -> Tensor:
            rows = decoder(context.reshape(-1, context.shape[-1]))[:, :execute].flatten(1).clamp(-1.0, 1.0)
            return rows.reshape(*context.shape[:-1], -1)

        return act


def drawn_in(context: Tensor, agent: Chains, generator: torch.Generator) -> Rollout:
    """One decision of ``agent`` in each of the states, as a rollout that nobody played."""
    count = len(context)
    none = torch.zeros(count, dtype=torch.bool)
    return Rollout(torch.arange(count), [0, count], Seen(context, context[:, :0]), agent.draw(context, generator),
                   torch.zeros(count), torch.zeros(count, dtype=torch.int64), none, none, None)


def weighed(advantage: Tensor, omega: float) -> Tensor:
    """Advantages above 0 count 2 ``omega``, those below 2 (1 - ``omega``): both once where it is a half."""
    return 2.0 * torch.where(advantage > 0, omega, 1.0 - omega) * advantage
