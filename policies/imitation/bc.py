"""Behaviour cloning: a policy that gives what the demonstrations gave, by maximum likelihood.

    loss = - E log pi(a | o)      over all steps of the dataset, o the task's observation, a in [-1, 1]

head = gaussian: N(mean(o), std); its mean is what least squares gives, and where two ways are demonstrated, it is
between them. head = mixture: K Gaussians, weights, means and deviations of o (Bishop 1994; BC-GMM of Mandlekar et al.
2021, arXiv 2108.03298): it can hold the two apart, and the mean of the likeliest one is deployed. """

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import ACTIVATIONS, FeedForwardActor, Gaussian
from temporeal.policies.nets.mixture import MixtureActor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.policies.training.offline_learner import OfflineConfig, Result

HEADS = ("gaussian", "mixture")
Actor = FeedForwardActor | MixtureActor


@dataclass(frozen=True)
class BCConfig(OfflineConfig):
    """Settings of the learner. ``configs/algo/bc.yaml`` has the same names.

    Args:
        head: gaussian or mixture.
        components: K of a mixture.
        hidden: widths of the network's layers.
        noise: standard deviation of noise on normalized observations: what is learned is then not a look-up.
    """

    updates: int = 20_000
    head: str = "gaussian"
    components: int = 5
    hidden: Sequence[int] = (256, 256)
    activation: str = "silu"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    grad_norm: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, legal in (("head", HEADS), ("activation", tuple(ACTIVATIONS))):
            if getattr(self, name) not in legal:
                raise SettingsError(f"algo.{name}={getattr(self, name)}: one of {', '.join(legal)}")
        for name in ("components", "learning_rate", "grad_norm"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"algo.{name} must be positive, got {getattr(self, name)}")
        for name in ("weight_decay", "noise"):
            if not getattr(self, name) >= 0:
                raise SettingsError(f"algo.{name} must not be negative, got {getattr(self, name)}")
        if not self.hidden or min(self.hidden) < 1:
            raise SettingsError(f"algo.hidden: widths of at least one layer, all positive; got {list(self.hidden)}")


class BC:
    """The algorithm: gradient steps on the likelihood of batches."""

    figures = ("loss", "error", "gradient_norm")

    def __init__(self, actor: Actor, config: BCConfig, generator: torch.Generator) -> None:
        self.actor, self.config, self.generator = actor, config, generator
        self.modules, self.updates = {"actor": actor}, 0
        self.optimizers = {"actor": torch.optim.AdamW(
            actor.parameters(), config.learning_rate, weight_decay=config.weight_decay)}

    def update(self, batch: Any) -> Tensor:
        """One gradient step. Returns its figures [F]; ``error``: root mean square of the deployed action's."""
        obs = batch.obs
        if self.config.noise:
            obs = obs + self.config.noise * torch.randn(obs.shape, generator=self.generator)
        loss = -log_prob(self.actor, obs, batch.action).mean()
        optimizer = self.optimizers["actor"]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.actor.parameters(), self.config.grad_norm)
        optimizer.step()
        self.updates += 1
        with torch.no_grad():
            error = (self.actor(obs) - batch.action).square().mean().sqrt()
        return torch.stack([loss.detach(), error, norm])


def log_prob(actor: Actor, obs: Tensor, action: Tensor) -> Tensor:
    """Log-density [B] of ``action`` [B, A] at the normalized observation [B, O]."""
    if isinstance(actor, MixtureActor):
        return actor.distribution(obs).log_prob(action)
    return Gaussian(actor(obs), actor.log_std.clamp(min=LEAST_LOG_STD)).log_prob(action)


LEAST_LOG_STD = -4.0  # where demonstrations repeat themselves the likelihood would have no end


def train(data: Transitions, config: BCConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the steps of a dataset; ``rest``: see
    :func:`temporeal.policies.training.offline_learner.learn`."""
    generator = torch.Generator().manual_seed(seed)
    batches = TransitionBatches(data, config.batch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = make_actor(batches.sizes["obs_dim"], batches.sizes["action_dim"], config)
    return offline_learner.learn(BC(actor, config, generator), batches, config, out=out, seed=seed,
                                 generator=generator, **rest)


def make_actor(obs_dim: int, action_dim: int, config: BCConfig) -> Actor:
    """A new network."""
    if config.head == "mixture":
        return MixtureActor(obs_dim, action_dim, config.hidden, config.activation, config.components)
    return FeedForwardActor(obs_dim, action_dim, config.hidden, config.activation, 0.5)


def load_policy(run: Path, device: str = "cpu") -> tuple[Actor, Normalizer, BCConfig]:
    """Actor and normalizer of a checkpoint file, or of the last one of a run's folder, and the settings."""
    state = offline_learner.read(Path(run))
    config, weights = offline_learner.config_of(state, BCConfig), state["modules"]["actor"]
    return (*rebuilt(state["path"], config, state["sizes"], weights, state["normalizer"], device), config)


def rebuilt(
    path: str, config: BCConfig, sizes: Mapping[str, int], weights: Mapping[str, Any], statistics: Mapping[str, Any],
    device: str,
) -> tuple[Actor, Normalizer]:
    """The network and the statistics that a checkpoint holds."""
    layers = [sizes["obs_dim"], *config.hidden, sizes["action_dim"], config.components]
    checkpoint.require_held(path, layers, weights)
    actor, normalizer = make_actor(sizes["obs_dim"], sizes["action_dim"], config), Normalizer(sizes["obs_dim"])
    actor.load_state_dict(weights)
    normalizer.load_state_dict(statistics)
    return actor.to(device).eval(), normalizer.to(device).eval()
