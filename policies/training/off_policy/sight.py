"""The eyes that policy and critics share, taught by the critics alone (Yarats et al. 2021, DrQ-v2, arXiv 2107.09645).

Pictures of a batch are moved at random, before and after the step apart (section 3.1); what the eyes then find stands
beside the numbers that policy and critics read. The policy's own derivative ends there. B rows, F numbers found.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import random_shift
from temporeal.policies.nets.seeing_policy import Eyes, SeeingPolicy
from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.settings import OffPolicyConfig
from temporeal.policies.training.offline.flat_parameters import Adam


class Sight:
    """Eyes with their optimizer."""

    def __init__(self, eyes: Eyes, config: OffPolicyConfig, generator: torch.Generator) -> None:
        self.eyes, self.shift, self.generator = eyes, config.shift, generator
        self.adam, self.found = Adam(eyes, rate=config.learning_rate), torch.zeros(0)

    @staticmethod
    def of(actor: nn.Module, config: OffPolicyConfig, generator: torch.Generator) -> Sight | None:
        """That of ``actor``, if it sees."""
        return Sight(actor.eyes, config, generator) if isinstance(actor, SeeingPolicy) else None

    @staticmethod
    def optimizers(sight: Sight | None) -> dict[str, Adam]:
        """By name, as they are saved."""
        return {} if sight is None else {"eyes": sight.adam}

    def shown(self, batch: Batch) -> Batch:
        """``batch`` with what is found in its pictures beside its numbers."""
        before, after = ({name: random_shift(pictures, self.shift, self.generator) for name, pictures in seen.items()}
                         for seen in (batch.pictures, batch.next_pictures))
        with torch.enable_grad():
            self.found = self.eyes(before)
        found = self.found.detach()
        with torch.no_grad():
            then = self.eyes(after)
        action = batch.pair[:, batch.critic.shape[1] :]
        return batch._replace(
            obs=torch.cat([batch.obs, found], -1), critic=torch.cat([batch.critic, found], -1),
            pair=torch.cat([batch.critic, found, action], -1), next_obs=torch.cat([batch.next_obs, then], -1),
            next_critic=torch.cat([batch.next_critic, then], -1))

    def learn(self, slope: Tensor) -> None:
        """One step down a loss whose derivative by what was found is ``slope`` [B, F]."""
        self.adam.gradient.zero_()
        self.found.backward(slope)
        self.adam.step()
