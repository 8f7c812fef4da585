"""Latent-noise steering: the flow policy stays as it is, and a small network says which noise it begins with.

Wagenmaker et al. 2025, DSRL (arXiv 2506.15799). The noise w of a flow policy is the action of a new process, whose
world is the policy with its denoise steps and the simulator: soft actor-critic (Haarnoja et al. 2018) learns it there.

    Q(o, w) <- r + gamma (min Q'(o', w') - alpha log pi(w' | o'))         w' ~ pi(o')
    pi      <- max E[mean Q(o, w) - alpha log pi(w | o)]         of the ensemble, as in RLPD

Chunks stay near those that were demonstrated, as the noise is bounded: w = start + bound * tanh(u), which begins at the
policy's own noise (a network that began at random ones would first undo what was cloned). GR-RL (arXiv 2512.01801)
steers likewise. What is deployed is the mean. R decisions, D numbers of a noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import HALF_LOG_2PI, linear
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training import checkpoint
from temporeal.policies.training.chunk_rl import tuning
from temporeal.policies.training.chunk_rl.halves import Worlds
from temporeal.policies.training.chunk_rl.replay import Ring, Transitions, transitions
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout, Seen, flat
from temporeal.policies.training.chunk_rl.settings import TuningConfig
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
from temporeal.policies.training.chunks.policy import ChunkPolicy, Denoising
from temporeal.policies.training.errors import SettingsError, require, require_widths
from temporeal.policies.vla.protocol import FlowPolicy, as_flow
from temporeal.policies.vla.samplers import ode


@dataclass(frozen=True)
class DSRLConfig(TuningConfig):
    """Settings of the learner. ``configs/algo/dsrl.yaml`` has the same names.

    Args:
        rows: noises of a chunk, each for an equal part of its rows: 1: the same in all rows, 0: each row its own.
        bound: of a noise's distance from the policy's own; the policy was trained on normal noise.
        spread: standard deviation of u at first.
        hidden: widths of actor and critics.
        critics: in the ensemble, of which the least of two counts.
        rollout_steps: control steps of each world between updates; 0: as many as an episode has.
        updates_per_decision: gradient steps of the critics per decision that was made.
        warmup: decisions before the first update; critic_only: after which for so many updates only the critics learn.
        batch: decisions of a gradient step. size: decisions that are remembered.
        gamma: discount per decision. target_rate: how far target critics move at each update.
        learning_rate: of Adam, of actor and critics.
        temperature: alpha at first; it is learned so that the entropy per number is ``entropy``.
    """

    rows: int = 1
    bound: float = 1.5
    spread: float = 0.5
    hidden: Sequence[int] = (128, 128)
    critics: int = 4
    rollout_steps: int = 0
    updates_per_decision: float = 0.5
    warmup: int = 1000
    critic_only: int = 300
    batch: int = 256
    size: int = 200_000
    gamma: float = 0.97
    target_rate: float = 0.01
    learning_rate: float = 3e-4
    temperature: float = 0.01
    entropy: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, rows="[0, inf)", bound="(0, inf)", spread="(0, inf)", rollout_steps="[0, inf)", warmup="[0, inf)",
                updates_per_decision="(0, inf)", batch="[1, inf)", size="[1, inf)", critics="[2, inf)",
                critic_only="[0, inf)", gamma="[0, 1]", learning_rate="(0, inf)", target_rate="[0, 1]",
                temperature="(0, inf)")
        require_widths(self, "hidden")


class Steered(nn.Module):
    """The noise [N, H, U] of a context: the policy's own, moved by a network.

    Args:
        own: the noise that the policy began with.
        context: numbers of a context, or of each of its tokens.
    """

    def __init__(self, own: nn.Module, shape: tuple[int, int], context: int, config: DSRLConfig) -> None:
        super().__init__()
        self.own, self.bound, rows = own, config.bound, config.rows or shape[0]
        if shape[0] % rows:
            raise SettingsError(f"algo.rows={rows}: a chunk of {shape[0]} rows has no so many equal parts")
        self.shape, self.size = (rows, shape[0] // rows, shape[1]), rows * shape[1]
        self.net = network(context, config.hidden, 2 * self.size, 0.0)
        with torch.no_grad():
            cast("nn.Linear", self.net[-1]).bias[self.size :] = math.log(config.spread)

    def distribution(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation of u, [N, D] both."""
        mean, log_std = self.net(flat(context)).chunk(2, -1)
        return mean, log_std.clamp(-5.0, 1.0)

    def sample(self, context: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """tanh(u) [N, D] from standard normal ``noise`` [N, D], and its log-probability [N]."""
        mean, log_std = self.distribution(context)
        u = mean + log_std.exp() * noise
        squash = 2.0 * (math.log(2.0) - u - nn.functional.softplus(-2.0 * u))  # log(1 - tanh^2), without cancellation
        return torch.tanh(u), (-0.5 * noise.square() - log_std - HALF_LOG_2PI - squash).sum(-1)

    def start(self, context: Tensor, action: Tensor) -> Tensor:
        """The noise of an ``action`` [N, D] in [-1, 1]."""
        rows, repeat, size = self.shape
        moved = self.bound * action.reshape(-1, rows, 1, size).expand(-1, rows, repeat, size)
        return cast("Tensor", self.own(context)) + moved.flatten(1, 2)

    def forward(self, context: Tensor) -> Tensor:
        """The deployed noise."""
        return self.start(context, torch.tanh(self.distribution(context)[0]))


class Critics(nn.Module):
    """Values [E, B] of a noise by an ensemble, each with normalized layers (RLPD)."""

    def __init__(self, inputs: int, action: int, config: DSRLConfig) -> None:
        super().__init__()
        self.normalizer = Normalizer(inputs, limit=5.0)
        self.nets = nn.ModuleList(network(inputs + action, config.hidden, 1, 1.0) for _ in range(config.critics))

    def forward(self, seen: Seen, action: Tensor) -> Tensor:
        """One value per network."""
        rows = torch.cat([self.normalizer(inputs(seen)), action], -1)
        return torch.stack([net(rows)[:, 0] for net in self.nets])


def network(inputs: int, hidden: Sequence[int], outputs: int, last_gain: float) -> nn.Sequential:
    """Layers with LayerNorm between them."""
    layers = list[nn.Module]()
    for width in hidden:
        layers += [linear(inputs, width, math.sqrt(2.0)), nn.LayerNorm(width), nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers, linear(inputs, outputs, last_gain))


def inputs(seen: Seen) -> Tensor:
    """What critics see [B, C + P]."""
    return torch.cat([*seen.flat()], -1)


class DSRL:
    """A :class:`temporeal.policies.training.chunk_rl.tuning.Method`."""

    def __init__(self, policy: ChunkPolicy, critics: Critics, config: DSRLConfig) -> None:
        self.policy, self.config, self.critics = policy, config, critics
        self.flow = cast("FlowPolicy", as_flow(policy))
        self.start = cast("Steered", cast("Denoising", policy.decoder).start)
        self.targets = deepcopy(critics).requires_grad_(False)
        self.temperature = Temperature(config.temperature)
        self.ring = Ring(config.size)
        self.modules: dict[str, nn.Module] = {"policy": policy, "critics": critics, "targets": self.targets,
                                              "temperature": self.temperature}
        learned = {"actor": self.start.net, "critics": critics, "temperature": self.temperature}
        self.optimizers = {name: torch.optim.Adam(part.parameters(), config.learning_rate, foreach=True)
                           for name, part in learned.items()}
        self.memory: dict[str, Any] = {"ring": self.ring.memory, "updates": 0, "owed": 0.0,
                                       "rate": config.learning_rate}

    def soften(self) -> None:
        """Half the step size."""
        self.memory["rate"] *= 0.5

    def iterate(self, worlds: Worlds, generator: torch.Generator) -> dict[str, float]:
        """Fly, remember, learn."""
        rollout = worlds.rollout(self.draw, self.config.rollout_steps or worlds.env.task.steps, generator)
        self.ring.memory = self.memory["ring"]
        if self.ring.memory["count"] == 0:
            for part in (self.critics, self.targets):
                part.normalizer.update(moments(inputs(rollout.seen)))
        self.ring.add(transitions(rollout, rollout.drawn.kept["action"]))
        return {**rollout.figures(), **self.learn(rollout, generator)}

    def draw(self, context: Tensor, generator: torch.Generator) -> Drawn:
        """Chunks from noises of the actor."""
        action, chance = self.start.sample(context, torch.randn(len(context), self.start.size, generator=generator))
        chunk = ode(self.flow, context, self.start.start(context, action))
        return Drawn(chunk, chance, {"action": action})

    def learn(self, rollout: Rollout, generator: torch.Generator) -> dict[str, float]:
        """As many updates as the new decisions pay for."""
        config, figures = self.config, dict[str, float]()
        if int(self.ring.memory["count"]) < config.warmup:
            return figures
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.memory["rate"]
        self.memory["owed"] += config.updates_per_decision * rollout.rows
        while self.memory["owed"] >= 1.0:
            self.memory["owed"] -= 1.0
            figures = self.update(self.ring.draw(config.batch, generator), generator)
        return figures

    def update(self, batch: Transitions, generator: torch.Generator) -> dict[str, float]:
        """One step of the critics and, after a while, of the actor and the temperature."""
        loss = (self.critics(batch.seen, batch.action) - self.target(batch, generator)).square().mean()
        self.climb("critics", loss)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.targets.parameters()), list(self.critics.parameters()),
                                 self.config.target_rate)
        self.memory["updates"] += 1
        figures = {"critic_loss": float(loss.detach())}
        if self.memory["updates"] <= self.config.critic_only:
            return figures
        action, chance = self.start.sample(batch.seen.context, self.noise(len(batch.reward), generator))
        value = self.critics(batch.seen, action)
        self.climb("actor", (self.temperature().detach() * chance - value.mean(0)).mean())
        wanted = self.config.entropy * self.start.size
        self.climb("temperature", -(self.temperature.log * (chance.detach() + wanted)).mean())
        return {**figures, "value": float(value.detach().mean()), "temperature": float(self.temperature().detach()),
                "entropy": -float(chance.detach().mean()) / self.start.size}

    @torch.no_grad()
    def target(self, batch: Transitions, generator: torch.Generator) -> Tensor:
        """What the critics are to say [B]: of two of the targets the least."""
        action, chance = self.start.sample(batch.after.context, self.noise(len(batch.reward), generator))
        pair = torch.randperm(self.config.critics, generator=generator)[:2]
        value = self.targets(batch.after, action)[pair].amin(0) - self.temperature() * chance
        return batch.reward + self.config.gamma * torch.where(batch.goes_on, value, 0.0)

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Standard normal [rows, D]."""
        return torch.randn(rows, self.start.size, generator=generator)

    def climb(self, name: str, loss: Tensor) -> None:
        """A gradient step of one optimizer."""
        self.optimizers[name].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizers[name].step()


class Temperature(nn.Module):
    """alpha, by its logarithm."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(first)))

    def forward(self) -> Tensor:
        """alpha []."""
        return self.log.exp()


def steered(policy: ChunkPolicy, context: int, config: DSRLConfig) -> ChunkPolicy:
    """``policy`` with the start that is learned, and nothing else."""
    decoder, flow = cast("Denoising", policy.decoder), as_flow(policy)
    policy.requires_grad_(False)
    decoder.start = Steered(decoder.start, (flow.horizon, flow.interface.action.size), context, config)  # type: ignore
    return policy


def train(env: ChunkEnv, config: DSRLConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Steer the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    generator = torch.Generator().manual_seed(seed)
    policy = tuning.copied(base)
    worlds = make_worlds(env, as_flow(policy), config, base)
    width = worlds.context_dim()
    critics = tuning.seeded(seed, lambda: (steered(policy, width, config), Critics(
        width + worlds.critic_dim, cast("Steered", cast("Denoising", policy.decoder).start).size, config))[1])
    return tune(worlds, config, DSRL(policy, critics, config), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The steered policy of a run."""
    return tuning.load(run, DSRLConfig, device, shaped)


def shaped(policy: ChunkPolicy, config: DSRLConfig, weights: Mapping[str, Tensor]) -> ChunkPolicy:
    """``policy`` with a start of the size that ``weights`` have."""
    checkpoint.require_held("of the run", config.hidden, weights)
    return steered(policy, weights["decoder.start.net.0.weight"].shape[1], config)
