"""MBRCSL: model-based return-conditioned supervised learning (Zhou, Zhu, Zhou, Cui, Gupta and Du, ICLR 2024,
arXiv 2310.19308, algorithm 1).

Supervised learning of "what did the data do when they went on to earn this much" never earns more than an episode did:
it does not stitch. Values do, but need networks that hold every value on the way (Bellman completeness). MBRCSL
stitches without values:

1. learn the behaviour mu(a | s) of the data, all its ways apart, and an ensemble of models of the dynamics
   (s, a) -> (s', r, end), by maximum likelihood;
2. roll mu out in the models, from first states of the data, and keep what earned more than the data's best episode;
3. learn the action of these rollouts given state and return, and ask for the best.

Where episodes cross, rollouts leave one for another; some happen to take the best of each. A deployed robot counts no
rewards: the return that is asked for is the whole rollout's, the same at each step.

B rows, N rollouts, H steps of the longest, O observation, A action, E members of the ensemble.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import BoundedActor
from temporeal.policies.nets.ensembles import Ensemble
from temporeal.policies.nets.mixture import MixtureActor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline.trajectory_weights import returns, weighted
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.policies.training.offline_learner import Result

LOG_STD = (-5.0, 1.0)  # of the models' predictions, in deviations of the data


@dataclass(frozen=True)
class MBRCSLConfig(OfflineRLConfig):
    """Settings. ``gamma`` and ``target_rate`` are not used.

    Args:
        model_share: of the updates that fit the behaviour and the models; the rest fit the policy.
        components: of the mixture that is the behaviour mu: how many ways it holds apart.
        members: E.
        rollouts: N.
        horizon: H; 0: the data's longest episode.
        surpass: quantile of the data's returns that a rollout must exceed to be kept; 1, as in the paper: the best.
        quantile: of the kept rollouts' returns, which the deployed policy is asked for.
    """

    model_share: float = 0.5
    components: int = 8
    members: int = 5
    rollouts: int = 2000
    horizon: int = 0
    surpass: float = 1.0
    quantile: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, model_share="(0, 1)", components="[1, inf)", members="[1, inf)", rollouts="[1, inf)",
                horizon="[0, inf)", surpass="[0, 1]", quantile="[0, 1]")


class Prediction(NamedTuple):
    """Of each of E models: change of the normalized observation and the reward (in its unit) beside each other,
    ``mean`` and ``log_std`` [E, B, O + 1], and the ``end``'s logit [E, B]."""

    mean: Tensor
    log_std: Tensor
    end: Tensor


class Models:
    """The behaviour and the dynamics of the data. ``unit``: the deviation of the data's rewards, which are predicted in
    it, as :data:`LOG_STD` is of deviations."""

    def __init__(self, sizes: Mapping[str, int], config: MBRCSLConfig, unit: float = 1.0) -> None:
        self.outputs, self.unit = sizes["obs_dim"] + 1, unit
        self.behaviour = MixtureActor(sizes["obs_dim"], sizes["action_dim"], config.hidden, config.activation,
                                      config.components)
        self.dynamics = Ensemble(config.members, sizes["obs_dim"] + sizes["action_dim"], config.hidden,
                                 2 * self.outputs + 1, name=config.activation, last_gain=0.1)
        self.adam = Adam(self.behaviour, self.dynamics, rate=config.learning_rate)

    def predict(self, obs: Tensor, action: Tensor) -> Prediction:
        """What each model expects of ``action`` [B, A] at the normalized ``obs`` [B, O]."""
        mean, log_std, end = self.dynamics(torch.cat((obs, action), -1)).split([self.outputs, self.outputs, 1], -1)
        return Prediction(mean, LOG_STD[0] + (LOG_STD[1] - LOG_STD[0]) * torch.sigmoid(log_std), end[..., 0])

    def update(self, batch: Any) -> Tensor:
        """One step of maximum likelihood (step 1). Returns its loss."""
        found = self.predict(batch.obs, batch.action)
        happened = torch.cat((batch.next_obs - batch.obs, batch.reward[:, None] / self.unit), -1)
        noise = (happened - found.mean) * torch.exp(-found.log_std)
        unlikely = (0.5 * noise.square() + found.log_std).sum(-1).mean(1).sum()
        ended = (1.0 - batch.mask).expand_as(found.end)
        ends = nn.functional.binary_cross_entropy_with_logits(found.end, ended, reduction="none").mean(1).sum()
        cloning = -self.behaviour.distribution(batch.obs).log_prob(batch.action).mean()
        loss = unlikely + ends + cloning
        descend(loss, self.adam)
        return loss.detach()

    def step(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Action of the behaviour [N, A], next ``obs`` [N, O], reward and end (1 or 0) [N]: each by one model."""
        action = self.behaviour.distribution(obs).sample(generator).clamp(-1.0, 1.0)
        found = self.predict(obs, action)
        member = torch.randint(len(found.end), (len(obs),), generator=generator)
        mean, log_std, end = (part[member, torch.arange(len(obs))] for part in found)
        happened = mean + log_std.exp() * torch.randn(mean.shape, generator=generator)
        ended = torch.rand(len(obs), generator=generator) < torch.sigmoid(end)
        return action, obs + happened[:, :-1], happened[:, -1] * self.unit, ended.float()


class Rollouts(NamedTuple):
    """``obs`` (normalized), ``next_obs`` [H, N, O], ``action`` [H, N, A], ``reward``, ``there`` (1 until the end, the
    last step too) and ``mask`` [H, N]."""

    obs: Tensor
    action: Tensor
    next_obs: Tensor
    reward: Tensor
    mask: Tensor
    there: Tensor

    def returns(self) -> Tensor:
        """Undiscounted [N]."""
        return (self.reward * self.there).sum(0)


@torch.no_grad()
def roll_out(models: Models, first: Tensor, horizon: int, generator: torch.Generator) -> Rollouts:
    """Rollouts of the behaviour in the models from ``first`` [N, O] (step 2)."""
    obs, there, steps = first, torch.ones(len(first)), []
    for _ in range(horizon):
        action, after, reward, ended = models.step(obs, generator)
        steps.append((obs, action, after, reward, 1.0 - ended, there))
        obs, there = after, there * (1.0 - ended)
    return Rollouts(*(torch.stack(column) for column in zip(*steps)))


def kept(found: Rollouts, least: float, config: MBRCSLConfig) -> Transitions:
    """Those that earned more than ``least``; a :class:`SettingsError` if there is none."""
    earned = found.returns()
    best = earned > least
    if not bool(best.any()):
        raise SettingsError(
            f"none of {len(earned)} rollouts of at most {len(found.reward)} steps earned more than {least:.4g}, the "
            f"quantile {config.surpass:g} of the data's returns; the best earned {float(earned.max()):.4g}: nothing is "
            f"stitched. Try more of them (algo.rollouts), longer ones (algo.horizon), models that learned longer "
            f"(algo.updates, algo.model_share), or keep lesser ones (algo.surpass)")
    there = found.there[:, best].T > 0  # [K, H]: rollouts one after the other
    columns = {name: getattr(found, name)[:, best].transpose(0, 1)[there] for name in found._fields if name != "there"}
    lengths = there.sum(1)
    return Transitions(**columns, episode=torch.arange(len(lengths)).repeat_interleave(lengths),
                       starts=torch.cat((lengths.new_zeros(1), lengths.cumsum(0))))


class ReturnActor(nn.Module):
    """A policy that is told the return of the whole episode, in deviations of the rollouts'. ``forward`` asks for
    ``wanted``."""

    hidden_dim = 0
    wanted: Tensor

    def __init__(self, sizes: Mapping[str, int], config: MBRCSLConfig) -> None:
        super().__init__()
        self.policy = BoundedActor(sizes["obs_dim"] + 1, sizes["action_dim"], config.hidden, name=config.activation)
        self.register_buffer("wanted", torch.zeros(()))

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic action [B, A]."""
        action: Tensor = self.policy(torch.cat((obs, torch.zeros_like(obs[..., :1]) + self.wanted), -1))
        return action

    def log_prob(self, obs: Tensor, action: Tensor, earned: Tensor) -> Tensor:
        """Log-density [B] of ``action`` in episodes that ``earned`` [B]."""
        found: Tensor = self.policy.distribution(torch.cat((obs, earned[:, None]), -1)).log_prob(action)
        return found


class MBRCSL:
    """One gradient step of the models, or later of the policy."""

    figures = ("model_loss", "policy_loss")

    def __init__(self, sizes: Mapping[str, int], config: MBRCSLConfig, unit: float = 1.0) -> None:
        self.updates, self.model_updates = 0, max(1, round(config.model_share * config.updates))
        self.models, self.actor = Models(sizes, config, unit), ReturnActor(sizes, config)
        self.adam = Adam(self.actor, rate=config.learning_rate)
        self.modules = {"behaviour": self.models.behaviour, "dynamics": self.models.dynamics, "actor": self.actor}
        self.optimizers = {"models": self.models.adam, "policy": self.adam}

    @property
    def learns_models(self) -> bool:
        """Whether the next update is of the models."""
        return self.updates < self.model_updates

    def update(self, batch: Any) -> Tensor:
        """A step of the phase that it is."""
        nothing, models = torch.zeros(()), self.learns_models
        self.updates += 1
        return torch.stack([self.models.update(batch), nothing] if models else [nothing, self.clone(batch)])

    def clone(self, batch: Any) -> Tensor:
        """Maximum likelihood of the rollouts' actions, given what each rollout earned (step 3)."""
        loss = -self.actor.log_prob(batch.obs, batch.action, batch.earned).mean()
        descend(loss, self.adam)
        return loss.detach()


class Stitching:
    """Batches of the data while ``learner`` learns the models, then of what they were rolled out to."""

    def __init__(self, data: Transitions, config: MBRCSLConfig, seed: int) -> None:
        self.data, self.config, self.seed = data, config, seed
        self.of_data = TransitionBatches(data, config.batch, normalize=config.normalize_observations)
        self.normalizer, self.sizes, self.fingerprint = (
            self.of_data.normalizer, self.of_data.sizes, self.of_data.fingerprint)
        spread = float(data.reward.std(correction=0))
        self.learner = MBRCSL(self.sizes, config, spread if spread > 0 else 1.0)
        self.of_rollouts: TransitionBatches | None = None

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Any]:
        """``count`` batches."""
        for _ in range(count):
            yield from (self.of_data if self.learner.learns_models else self.rolled_out()).draw(generator, 1)

    def rolled_out(self) -> TransitionBatches:
        """Batches of the kept rollouts; a resumed run rolls out anew, to the same bits."""
        if self.of_rollouts is None:
            self.of_rollouts = earning(self.stitched(), self.learner.actor, self.config)
        return self.of_rollouts

    def stitched(self) -> Transitions:
        """The kept rollouts as episodes of normalized observations (step 2)."""
        config, generator = self.config, torch.Generator().manual_seed(self.seed)
        lengths = self.data.starts.diff()
        begun = self.data.starts[:-1][lengths > 0]
        chosen = torch.randint(len(begun), (config.rollouts,), generator=generator)
        first = self.normalizer(self.data.obs[begun[chosen]])
        found = roll_out(self.learner.models, first, config.horizon or int(lengths.max()), generator)
        return kept(found, float(torch.quantile(returns(self.data), config.surpass)), config)


def earning(data: Transitions, actor: ReturnActor, config: MBRCSLConfig) -> TransitionBatches:
    """Batches of ``data``, normalized already, with what each episode ``earned`` in deviations; the ``actor`` is to ask
    for the best."""
    earned = returns(data)
    earned = (earned - earned.mean()) / earned.std(correction=0).clamp(min=1e-6)
    actor.wanted.copy_(torch.quantile(earned, config.quantile))
    return TransitionBatches(data, config.batch, normalize=False, more={"earned": earned[data.episode]})


def train(data: Transitions, config: MBRCSLConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    torch.manual_seed(seed)
    batches = Stitching(weighted(data, config.weighting, config.weighting_temperature), config, seed)
    return offline_learner.learn(batches.learner, batches, config, out=out, seed=seed,
                                 generator=torch.Generator().manual_seed(seed), **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, MBRCSLConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, MBRCSLConfig, ReturnActor, device)
