"""ReCOIL: imitation from an expert and from others (Sikchi, Zheng, Zhang and Niekum, ICLR 2024, arXiv 2302.08560,
section 4).

A few episodes are the expert's (d^E), many are anybody's (d^S); there is no reward. To match the policy's visits d to
d^E, others need a discriminator, and data from wherever the expert was. ReCOIL matches two mixtures instead,
``beta d + (1 - beta) d^S`` and ``d_mix = beta d^E + (1 - beta) d^S``, whose ratio is finite wherever there are data.
The dual, with a score Q(s, a) and the residual ``e = gamma V(s') - Q(s, a)`` (equations are numbered here):

    min_Q  beta (1 - gamma) E_{d0, pi}[Q] + E_{d_mix}[f*(e)] - (1 - beta) E_{d^S}[e].                             (1)

With Pearson's chi-squared divergence, f*(e) = e + e^2 / 4, what is linear in d^S cancels, and with V(s') held fixed

    min_Q  beta ((1 - gamma) E_{s, pi}[Q] - E_{d^E}[Q]) + E_{d_mix}[(gamma V(s') - Q)^2] / 4                       (2)

remains, where any state may be the first: scores go up where the expert was, down where the policy goes, and agree with
what follows. V is the implicit maximum of Q over the actions of the data (f-DVL, the same paper), so that steps of
others that lead to the expert inherit its score. The policy regresses the data's actions with weights exp(A (Q - V)).
Scores have layer norm: without it they grew without bound where the task does not end.

B rows of d_mix, E episodes, M steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.ensembles import Quality, Value
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.offline.fdvl import LARGEST_WEIGHT, FDVLConfig, implicit_maximum
from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.offline import reinforcement
from temporeal.policies.training.offline.flat_parameters import Adam, Average, descend
from temporeal.policies.training.offline.reinforcement import bounded_actor
from temporeal.policies.training.offline.trajectory_weights import returns, weighted
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.policies.training.offline_learner import Result

EXPERTS = ("success", "return")


@dataclass(frozen=True)
class ReCOILConfig(FDVLConfig):
    """Settings. ``reward`` matters where ``expert`` is "return" only; ``weighting`` weighs the others' episodes.

    Args:
        expert: which episodes are the expert's: "success", those that the dataset marks as successful; or "return",
            the ``expert_share`` of them that earned most.
        expert_share: of the episodes, at least one; see ``expert``.
        mixture: beta, the share of the expert in d_mix.

    ``divergence`` and ``forward`` are of the implicit maximum, ``temperature`` is A.
    """

    expert: str = "success"
    expert_share: float = 0.05
    mixture: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self, expert=tuple(EXPERTS))
        require(self, expert_share="(0, 1)", mixture="(0, 1)")


class ReCOIL:
    """One gradient step of V, Q and the policy."""

    figures = ("value_loss", "quality_loss", "policy_loss", "expert_score", "other_score")

    def __init__(self, sizes: Mapping[str, int], config: ReCOILConfig, generator: torch.Generator) -> None:
        obs_dim, action_dim = sizes["obs_dim"], sizes["action_dim"]
        self.config, self.generator, self.updates = config, generator, 0
        self.value = Value(obs_dim, config.hidden, config.activation, layer_norm=True)
        self.quality, self.target = (Quality(obs_dim, action_dim, config.hidden, name=config.activation,
                                             layer_norm=True) for _ in range(2))
        self.actor = bounded_actor(sizes, config)
        self.adam = Adam(self.quality, self.value, rate=config.learning_rate)
        self.policy_adam = Adam(self.actor, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.modules = {"value": self.value, "quality": self.quality, "target": self.target, "actor": self.actor}
        self.optimizers = {"critics": self.adam, "policy": self.policy_adam}

    def update(self, batch: Any) -> Tensor:
        """V by the implicit maximum, Q by the dual, the policy by its advantage."""
        config, policy = self.config, self.actor.distribution(batch.obs)
        with torch.no_grad():
            best = self.target(batch.obs, batch.action).amin(0)
            # a final state is absorbing: the step that ended the task is repeated for ever
            following = torch.where(batch.mask > 0, self.value(batch.next_obs), best)
            acted = policy.sample(torch.randn(batch.action.shape, generator=self.generator)).clamp(-1.0, 1.0)
        value = self.value(batch.obs)
        value_loss = implicit_maximum(best, value, config.forward, config.divergence)
        score = self.quality(batch.obs, batch.action)  # [2, B]
        quality_loss = dual_loss(score, self.quality(batch.obs, acted), config.gamma * following, batch.expert,
                                 config.mixture * (1.0 - config.gamma)).sum()
        weight = (config.temperature * (best - value).detach()).exp().clamp(max=LARGEST_WEIGHT)
        policy_loss = -(weight * policy.log_prob(batch.action)).mean()
        descend(value_loss + quality_loss + policy_loss, self.adam, self.policy_adam)
        self.average.move(config.target_rate)
        scores = [(best * rows).sum() / rows.sum().clamp(min=1.0) for rows in (batch.expert, 1.0 - batch.expert)]
        return torch.stack((value_loss, quality_loss, policy_loss, *scores)).detach()


def dual_loss(score: Tensor, acted: Tensor, wanted: Tensor, expert: Tensor, push: float) -> Tensor:
    """Eq. 2 [2] of scores [2, B] of rows of d_mix, and of the policy's actions there [2, B]; ``wanted`` [B]: gamma V.

    A share beta of the rows is the ``expert``'s (1 or 0), so that the mean of ``expert * score`` is beta E_{d^E}[Q].
    """
    return push * acted.mean(1) - (expert * score).mean(1) + 0.25 * (wanted - score).square().mean(1)


def experts(data: Transitions, config: ReCOILConfig) -> Tensor:
    """Whether [E] each episode is the expert's. Some are and some are not, or a :class:`SettingsError`."""
    count, there = len(data.starts) - 1, data.starts.diff() > 0
    if config.expert == "success":
        found = torch.zeros(count, dtype=torch.bool) if data.success is None else data.success > 0.5
        rule = "the dataset marks as successful"
    else:
        best = returns(data).masked_fill(~there, -torch.inf).argsort(descending=True, stable=True)
        found = torch.zeros(count, dtype=torch.bool)
        found[best[:max(1, round(config.expert_share * int(there.sum())))]] = True
        rule = f"are the {config.expert_share:.0%} that earned most"
    chosen = int((found & there).sum())
    if not 0 < chosen < int(there.sum()):
        other = ", ".join(name for name in EXPERTS if name != config.expert)
        raise SettingsError(
            f"algo.expert={config.expert}: {chosen} of {int(there.sum())} episodes {rule}; recoil needs some of the "
            f"expert and some of others (temporeal data filter and data merge make such a set; or algo.expert={other})")
    return found


def mixed(data: Transitions, expert: Tensor, mixture: float) -> Transitions:
    """``data`` whose steps are drawn from d_mix: a share ``mixture`` from the ``expert`` episodes [E]."""
    weight = torch.ones(len(expert)) if data.weight is None else torch.where(expert, torch.ones(()), data.weight)
    steps = weight * data.starts.diff()
    share = torch.where(expert, mixture / steps[expert].sum(), (1.0 - mixture) / steps[~expert].sum())
    return replace(data, weight=weight * share * steps.sum())


def train(data: Transitions, config: ReCOILConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    expert = experts(data, config)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    data = mixed(weighted(data, config.weighting, config.weighting_temperature), expert, config.mixture)
    batches = TransitionBatches(data, config.batch, normalize=config.normalize_observations,
                                more={"expert": expert[data.episode].float()})
    return offline_learner.learn(ReCOIL(batches.sizes, config, generator), batches, config, out=out, seed=seed,
                                 generator=generator, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, ReCOILConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return reinforcement.load_policy(path, ReCOILConfig, bounded_actor, device)
