"""Proximal policy optimization of decisions (Schulman et al. 2017), with a step size that holds the KL divergence.

An agent draws chunks with a log-probability and computes it anew by the weights as they are now; everything else is
here, written once for flows and tokens. What makes it steady, found on policies of a few hundred thousand weights:

* the first step size is small and follows the divergence: the log-probability of a chunk sums over its rows and
  numbers, so that a step which a Gaussian of seven numbers takes breaks a chunk of fifty
* the ratio of the first minibatch, before any step, is 1: that is checked in each rollout
* minibatches are large, and the critic learns first

R decisions of a rollout, B of a minibatch, P critic's signals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training.chunk_rl import rollouts
from temporeal.policies.training.chunk_rl.halves import Worlds
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout, Seen
from temporeal.policies.training.chunk_rl.settings import TuningConfig
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, choose, require, require_widths
from temporeal.policies.training.warm_starts.adapters import optimizer


class RatioError(RuntimeError):
    """Log-probabilities that are learned of are not those of the policy that drew."""


CRITICS = ("privileged", "context")
RATIO = 1e-5  # how far from 1 the mean ratio before the first step may be, besides ...
ROUNDING = 1e-3  # ... single rows, of which other sizes of a batch are summed in another order
SHARP = 120.0  # the sharpness from which on both grow with it: a trained policy's rows, drawn one by one, were off by
# up to 1.7e-6 times their sharpness, and their mean by a hundredth of that (0.7 million parameters, chunks of 8 by 8)
SHARPEST = 100 * SHARP  # what is asked at most: there rounding alone is half of what clipping allows


@dataclass(frozen=True)
class ClipConfig(TuningConfig):
    """Settings of a clipped policy gradient.

    Args:
        epochs: passes over a rollout.
        minibatch: decisions of a gradient step.
        clip: by how much the ratio may fall below 1 ...
        clip_high: ... and rise above it, before a decision no longer pulls.
        target_kl: nats between the policies before and after an update: the step size follows it.
        stop_kl: times the target, at which an update ends.
        learning_rate: of Adam, at first; it stays between ``learning_rate_low`` and ``learning_rate_high``.
        grad_norm: the gradient is scaled down to at most this length.
        entropy: weight of the entropy, where the agent learns its spread.
        adapters: rank of what is learned beside the policy's linear layers, which are then frozen; 0: all is learned.
        modulate: a scale of each output of its frozen layers is learned.
    """

    epochs: int = 3
    minibatch: int = 512
    clip: float = 0.2
    clip_high: float = 0.2
    target_kl: float = 0.01
    stop_kl: float = 3.0
    learning_rate: float = 2e-5
    learning_rate_low: float = 1e-6
    learning_rate_high: float = 1e-3
    grad_norm: float = 1.0
    entropy: float = 0.0
    adapters: int = 0
    modulate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, epochs="[1, inf)", minibatch="[1, inf)", clip="(0, inf)", clip_high="(0, inf)",
                target_kl="(0, inf)", stop_kl="(0, inf)", learning_rate_low="(0, inf)", grad_norm="(0, inf)",
                entropy="[0, inf)", adapters="[0, inf)")
        if not self.learning_rate_low <= self.learning_rate <= self.learning_rate_high:
            raise SettingsError(f"algo.learning_rate is from {self.learning_rate_low} (learning_rate_low) to "
                                f"{self.learning_rate_high} (learning_rate_high), got {self.learning_rate}")


@dataclass(frozen=True)
class PPOConfig(ClipConfig):
    """Settings of learners with a critic.

    Args:
        rollout_steps: control steps of each world between updates; 0: as many as an episode has.
        gamma: discount per decision. gae_lambda: 0: one-step advantages, 1: whole returns.
        critic: what it sees: context (of the policy, detached), or privileged (that, and what the task shows its
            critic).
        critic_hidden: widths of its layers. critic_learning_rate: of Adam.
        critic_epochs: passes of the critic over a rollout.
        critic_warmup: rollouts of which only the critic learns, before the policy does.
    """

    rollout_steps: int = 0
    gamma: float = 0.99
    gae_lambda: float = 0.95
    critic: str = "privileged"
    critic_hidden: Sequence[int] = (128, 128)
    critic_learning_rate: float = 1e-3
    critic_epochs: int = 6
    critic_warmup: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, rollout_steps="[0, inf)", gamma="[0, 1]", gae_lambda="[0, 1]", critic_learning_rate="(0, inf)",
                critic_epochs="[1, inf)", critic_warmup="[0, inf)")
        choose(self, critic=CRITICS)
        require_widths(self, "critic_hidden")


class Agent(Protocol):
    """A policy that draws chunks.

    Attributes:
        policy: what is deployed.
        learns: the modules that the gradient changes, by name; ``policy`` is one of them.
        sharpness: by how much errors of what its network says are enlarged in its log-probabilities: 1 over the
            standard deviation of independent numbers.
    """

    policy: ChunkPolicy
    sharpness: float

    @property
    def learns(self) -> Mapping[str, nn.Module]:
        """By name."""

    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks for contexts [K, ...], at random."""

    def log_prob(self, context: Tensor, kept: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probability [B] (or [B, T]) of what was drawn, by the weights as they are; and the entropy [], 0 where
        nothing of it is learned."""


class Critic(nn.Module):
    """Value of a decision from what was seen: the context as it is, no gradient goes back into it."""

    def __init__(self, context: int, told: int, config: PPOConfig) -> None:
        super().__init__()
        self.privileged = config.critic == "privileged"
        self.normalizer = Normalizer(context + told * self.privileged, limit=5.0)
        self.net = mlp(context + told * self.privileged, config.critic_hidden, 1, "silu", 0.01)

    def inputs(self, seen: Seen) -> Tensor:
        """[R, I], not normalized. Of a context with several tokens, their mean."""
        context, told = seen.flat()
        return torch.cat([context.detach(), told], -1) if self.privileged else context.detach()

    def forward(self, seen: Seen) -> Tensor:
        """[R]."""
        value: Tensor = self.net(self.normalizer(self.inputs(seen)))[:, 0]
        return value


class ClippedUpdate:
    """The gradient steps on an agent: the clipped objective, held at a KL divergence.

    Attributes:
        memory: the step size now, and the largest that it may have.
    """

    def __init__(self, agent: Agent, config: ClipConfig) -> None:
        self.agent, self.config = agent, config
        self.weights = [value for part in agent.learns.values() for value in part.parameters() if value.requires_grad]
        self.adam = optimizer(list(agent.learns.values()), self.weights, config.learning_rate, rank=config.adapters,
                              modulate=config.modulate)
        self.memory: dict[str, Any] = {"learning_rate": config.learning_rate, "largest": config.learning_rate_high}

    def soften(self) -> None:
        """Half the step size, now and at most."""
        now = max(0.5 * self.memory["learning_rate"], self.config.learning_rate_low)
        self.memory["learning_rate"] = self.memory["largest"] = now

    def __call__(self, rollout: Rollout, advantage: Tensor, generator: torch.Generator) -> dict[str, float]:
        """The epochs. ``advantage`` [R], standardized; rows where it is NaN do not count."""
        config, rows = self.config, (~advantage.isnan()).nonzero()[:, 0]
        figures, first = dict[str, float](), True
        for group in self.adam.param_groups:
            group["lr"] = self.memory["learning_rate"]
        for which in minibatches(rows, config.epochs, config.minibatch, generator):
            loss, found = self.loss(rollout, advantage, which)
            if first:
                require_ratio_of_one(found["ratio"], found["ratio_off"], self.agent.sharpness)
                first = False
            if found["kl"] > config.stop_kl * config.target_kl:
                break
            self.adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.weights, config.grad_norm)
            self.adam.step()
            figures = {"policy_loss": float(loss.detach()), "clipped": found["clipped"], "gradient_norm": float(norm)}
        kl = self.divergence(rollout, rows)
        self.adapt(kl)
        return {**figures, "kl": kl, "learning_rate": self.memory["learning_rate"]}

    def loss(self, rollout: Rollout, advantage: Tensor, which: Tensor) -> tuple[Tensor, dict[str, float]]:
        """What is minimized, and figures of the minibatch ``which`` [B]."""
        config = self.config
        seen, before, kept = rollouts.chosen(rollout, which)
        now, entropy = self.agent.log_prob(seen.context, kept)
        apart = now - before
        ratio, pull = apart.exp(), advantage[which].reshape(-1, *[1] * (apart.dim() - 1))
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip_high)
        loss = -torch.minimum(ratio * pull, clipped * pull).mean() - config.entropy * entropy
        with torch.no_grad():
            figures = {"ratio": float(ratio.mean()), "ratio_off": float((ratio - 1.0).abs().max()),
                       "kl": float(kl_of(apart)), "clipped": float((ratio != clipped).float().mean())}
        return loss, figures

    @torch.no_grad()
    def divergence(self, rollout: Rollout, rows: Tensor) -> float:
        """KL divergence, estimated on the rows [R]."""
        parts = []
        for which in torch.split(rows, 4 * self.config.minibatch):
            seen, before, kept = rollouts.chosen(rollout, which)
            parts.append(self.agent.log_prob(seen.context, kept)[0] - before)
        return float(kl_of(torch.cat(parts))) if parts else 0.0

    def adapt(self, kl: float) -> None:
        """Larger steps where the policy hardly moved, smaller ones where it moved too far."""
        config, now = self.config, self.memory["learning_rate"]
        if kl > 1.5 * config.target_kl:
            now /= 1.5
        elif kl < config.target_kl / 1.5:
            now *= 1.5
        self.memory["learning_rate"] = min(max(now, config.learning_rate_low), self.memory["largest"])


def kl_of(apart: Tensor) -> Tensor:
    """KL(before || now) [] from ``apart``, log-probabilities now less those before of what was drawn before: the
    estimator exp(x) - 1 - x, never negative (Schulman, Approximating KL Divergence). Of tokens, their sum."""
    each = apart.exp() - 1.0 - apart
    return each.mean() if each.dim() == 1 else each.sum(-1).mean()


def minibatches(rows: Tensor, epochs: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Shuffled parts of ``rows``, about ``size`` each, ``epochs`` times."""
    count = max(1, round(len(rows) / size))
    for _ in range(epochs if len(rows) else 0):
        yield from rows[torch.randperm(len(rows), generator=generator)].chunk(count)


def require_ratio_of_one(mean: float, most: float, sharpness: float = 1.0) -> None:
    """Refuse to learn of log-probabilities that are not those of the policy that drew: normalization, dropout, another
    step of the sampler or another mask between acting and learning show here first.

    A network of 32 bits rounds otherwise in batches of other sizes. What that makes of a ratio grows with the
    ``sharpness``, as does what any such mistake makes of it: the limits grow, too, and miss no more than before."""
    allowed = max(1.0, sharpness / SHARP)
    if abs(mean - 1.0) > RATIO * allowed or most > ROUNDING * allowed:
        raise RatioError(f"before the first step of an update the ratio of probabilities is {mean:.7f} on average and "
                         f"off 1 by up to {most:.1e}: the policy that learns is not the one that acted")


class PPO:
    """Collect a rollout, estimate advantages over decisions, climb: a
    :class:`temporeal.policies.training.chunk_rl.tuning.Method`."""

    def __init__(self, agent: Agent, config: PPOConfig, critic: Critic) -> None:
        self.agent, self.config, self.critic, self.policy = agent, config, critic, agent.policy
        self.step = ClippedUpdate(agent, config)
        self.value_adam = torch.optim.Adam(critic.parameters(), config.critic_learning_rate, foreach=True)
        self.modules = {**agent.learns, "critic": critic}
        self.optimizers: dict[str, Any] = {"policy": self.step.adam, "critic": self.value_adam}
        self.memory = self.step.memory
        self.memory["rollouts"] = 0
        self.soften = self.step.soften

    def iterate(self, worlds: Worlds, generator: torch.Generator) -> dict[str, float]:
        """A rollout and its updates."""
        return self.learn(self.collect(worlds, generator), generator)

    def collect(self, worlds: Worlds, generator: torch.Generator) -> Rollout:
        """A rollout."""
        steps: int = self.config.rollout_steps or worlds.env.task.steps
        return worlds.rollout(self.agent.draw, steps, generator)

    def learn(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """The updates on a rollout."""
        config = self.config
        if self.memory["rollouts"] == 0:
            self.critic.normalizer.update(moments(self.critic.inputs(rollout.seen)))
        self.memory["rollouts"] += 1
        with torch.no_grad():
            value = self.critic(rollout.seen)
            tail = self.critic(rollout.tail[1]) if rollout.tail is not None else value[:0]
        advantage = rollouts.advantages(rollout, value, tail, config.gamma, config.gae_lambda)
        target = value + advantage
        figures = {**rollout.figures(), "explained": explained(value, target),
                   "value_loss": self.learn_values(rollout, target, generator)}
        if self.memory["rollouts"] > config.critic_warmup:
            figures |= self.step(rollout, self.weighed(rollout, advantage), generator)
        return figures

    def weighed(self, rollout: Rollout, advantage: Tensor) -> Tensor:
        """The advantages [R] as the policy learns of them."""
        return rollouts.standardized(advantage)

    def learn_values(self, rollout: Rollout, target: Tensor, generator: torch.Generator) -> float:
        """The critic's epochs. Returns its last loss."""
        loss = target.new_zeros(())
        config = self.config
        for which in minibatches(torch.arange(rollout.rows), config.critic_epochs, config.minibatch, generator):
            loss = nn.functional.huber_loss(self.critic(rollout.seen.rows(which)), target[which])
            self.value_adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
            self.value_adam.step()
        return float(loss.detach())


def explained(value: Tensor, target: Tensor) -> float:
    """Share of the targets' variance that the critic foretold."""
    return float(1.0 - (target - value).var() / target.var().clamp(min=1e-12))

