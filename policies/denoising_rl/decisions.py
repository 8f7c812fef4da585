"""A dataset as decisions of a chunk policy: what it saw, the rows of a chunk that were played, and what came after.

Contexts are those of the policy's encoder, which is frozen: they are encoded once. M decisions, E episodes, C numbers
of a context, D = execute x U numbers of an action in [-1, 1].

A decision may begin at any sample (what critics learn of), or every ``execute`` samples from an episode's start, as the
policy decides where it is deployed (what off-policy evaluation reads). All episodes end with their last step: what
comes after is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError, require_same
from temporeal.policies.data.episodes.layout import REWARD
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source, Windows, windows
from temporeal.policies.training.errors import SettingsError

ROWS = 1024  # windows that are encoded at once
REWARDS = ("success", "data")


class Judged(Source, Protocol):
    """Episodes of which somebody said whether they succeeded."""

    @property
    def records(self) -> Sequence[Any]:
        """Of each episode; ``success``: bool, None where nobody judged."""


@dataclass(frozen=True)
class Decisions:
    """All decisions of a dataset that begin at a sample with a command, in the order of time.

    Args:
        context, after: [M, C], where the decision begins and where it ends (its own where the episode ended).
        action: [M, D], rows that were played; after an episode's last command it is repeated.
        reward: [M]. ``goes_on``: [M] 1 where a decision follows in the episode, else 0.
        episode: int64 [M]. ``age``: int64 [M], samples since the episode's start.
        success: [E], 1 or 0.
    """

    context: Tensor
    action: Tensor
    reward: Tensor
    after: Tensor
    goes_on: Tensor
    episode: Tensor
    age: Tensor
    success: Tensor

    def as_deployed(self, execute: int) -> Transitions:
        """Those that begin every ``execute`` samples, as transitions."""
        rows = (self.age % execute == 0).nonzero()[:, 0]
        episode, counts = torch.unique_consecutive(self.episode[rows], return_inverse=True, return_counts=True)[1:]
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        success = self.success[torch.unique_consecutive(self.episode[rows])]
        return Transitions(self.context[rows], self.action[rows], self.reward[rows], self.after[rows],
                           self.goes_on[rows], episode, starts, success=success)


def decisions(data: Judged, policy: ChunkPolicy, execute: int, reward: str) -> Decisions:
    """The decisions of ``data`` as ``policy`` sees them.

    Args:
        reward: success (1 for the decision in which an episode ends that succeeded), or data (the sum of its rewards
            while the chunk is played).
    """
    seen = windows(data, policy.signals, policy.horizon)
    require_same(policy.interface, seen.interface, "the policy and the dataset")
    starts = torch.from_numpy(np.asarray(data.starts, dtype=np.int64))
    episode = torch.searchsorted(starts, seen.at, right=True) - 1
    success = flags(data)
    context, action = encoded(seen, policy, execute)
    number = torch.full((int(starts[-1]) + execute + 1,), -1)
    number[seen.at] = torch.arange(len(seen.at))
    ends = seen.at + execute > seen.last
    following = torch.where(ends, torch.arange(len(seen.at)), number[seen.at + execute])
    if bool((following < 0).any()):
        raise DataError(f"episode {int(episode[(following < 0).nonzero()[0, 0]])}: a sample inside it has no command")
    earned = success[episode] * ends if reward == "success" else summed(data, seen, execute)
    return Decisions(context, action, earned, context[following], (~ends).float(), episode, seen.at - starts[episode],
                     success)


def flags(data: Judged) -> Tensor:
    """Whether each episode succeeded, [E]."""
    unknown = [k for k, record in enumerate(data.records) if record.success is None]
    if unknown:
        raise DataError(f"episode {unknown[0]}: nobody judged whether it succeeded (and {len(unknown) - 1} more): "
                        "`temporeal data relabel` judges episodes by a formula")
    return torch.tensor([float(record.success) for record in data.records])


@torch.no_grad()
def encoded(seen: Windows, policy: ChunkPolicy, execute: int) -> tuple[Tensor, Tensor]:
    """Context [M, C] and the played rows [M, D] of all windows."""
    contexts, actions = [], []
    for which in torch.arange(len(seen.at)).split(ROWS):
        batch = seen.batch(which)
        context = policy.encoder(batch.signals)
        if context.dim() != 2:
            raise SettingsError(f"contexts of the policy are {list(context.shape[1:])}, several tokens: learning from "
                                "data through denoise steps takes encoders that give one vector (algo=flow, "
                                "algo=diffusion)")
        contexts.append(context)
        actions.append(policy.chunk(batch.command, batch.signals)[:, :execute].flatten(1).clamp(-1.0, 1.0))
    return torch.cat(contexts), torch.cat(actions)


def summed(data: Source, seen: Windows, execute: int) -> Tensor:
    """The data's rewards [M] while each chunk is played."""
    total = torch.from_numpy(np.asarray(data.column(REWARD), dtype=np.float64)).cumsum(0)
    total = torch.cat([total.new_zeros(1), total])
    return (total[torch.minimum(seen.at + execute, seen.last + 1)] - total[seen.at]).float()
