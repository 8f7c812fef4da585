"""The ensemble of critics Q(s, a) with its targets, in threads that share the members. E members, B rows, A action.

Derivatives are written out (:mod:`temporeal.policies.nets.ensembles`): an update is little but its products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from temporeal.policies.nets.ensembles import Quality, Scratch
from temporeal.policies.training.off_policy.settings import OffPolicyConfig
from temporeal.policies.training.offline.flat_parameters import Adam, Average

LAST_GAIN = 0.01  # the policy would first climb what critics say before they have learned anything
T = TypeVar("T")


class Sizes(NamedTuple):
    """Numbers that the actor sees, that the critics see, and of an action; shapes (H, W, 3) of the pictures that both
    see, by name, and how many numbers eyes find in them, F."""

    obs_dim: int
    critic_dim: int
    action_dim: int
    pictures: Mapping[str, Sequence[int]] = {}
    found: int = 0


class Critics:
    """The critics; a pair [B, C + F + A] is what they see, what was found in pictures, and the action.

    Attributes:
        by_found: after :meth:`fit`, the derivative [B, F] of the loss by what was found in pictures.
    """

    def __init__(self, sizes: Sizes, config: OffPolicyConfig, generator: torch.Generator) -> None:
        self.config, self.generator, self.seen = config, generator, sizes.critic_dim + sizes.found
        self.columns, self.by_found = slice(sizes.critic_dim, self.seen), torch.zeros(0)
        self.quality, self.target = (
            Quality(self.seen, sizes.action_dim, config.hidden, members=config.critics,
                    layer_norm=config.layer_norm, precision=config.precision, by_hand=True, last_gain=LAST_GAIN)
            for _ in range(2))
        self.adam = Adam(self.quality, rate=config.learning_rate)
        self.average = Average(self.quality, self.target)
        self.members = range(config.critics)
        self.scratches = [Scratch() for _ in range(min(config.threads, config.critics))]
        self.workers = ThreadPoolExecutor(max(1, len(self.scratches) - 1), "critics", _as_the_main_thread)

    def fit(self, pair: Tensor, wanted: Tensor, weight: Tensor | None = None) -> Tensor:
        """One step of all members to ``wanted`` [B], and of the targets after them. Returns Q [E, B] before.

        ``weight`` [B]: of the squared errors; None: 1.
        """
        wanted, slope = wanted[:, None], 2.0 / len(pair) if weight is None else 2.0 / len(pair) * weight[:, None]
        if self.columns.start == self.columns.stop:
            found = self._shared(lambda members, scratch: self.quality.net.there_and_back(
                pair, lambda q: (q - wanted).mul_(slope), scratch, members), self.members)
        else:
            both = self._shared(lambda members, scratch: self.quality.net.by_rows(
                pair, lambda q: (q - wanted).mul_(slope), scratch, self.columns, members, for_layers=True),
                self.members)
            found = [q for q, _ in both]
            self.by_found = torch.cat([by_rows for _, by_rows in both]).sum(0)
        self.adam.step()
        self.average.move(self.config.target_rate)
        return torch.cat(found)[..., 0]

    def least(self, pair: Tensor) -> Tensor:
        """The least [B] of a subset of the targets, drawn anew."""
        count, all_of_them = self.config.subset, self.config.critics
        chosen = (self.members if count == all_of_them
                  else torch.randperm(all_of_them, generator=self.generator)[:count].tolist())
        found = self._shared(lambda members, scratch: self.target.net.ahead(pair, scratch, members), chosen)
        return torch.cat(found)[..., 0].amin(0)

    def bounded(self, wanted: Tensor) -> Tensor:
        """Targets [B] within the range of returns that there are."""
        return wanted if self.config.value_range is None else wanted.clamp(*self.config.value_range)

    def slope(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy climbs, [B], and its derivative by the action, [B, A]."""
        columns = slice(self.seen, pair.shape[1])
        found = self._shared(lambda members, scratch: self.quality.net.by_rows(
            pair, torch.ones_like, scratch, columns, members), self.members)
        value, slope = torch.cat([q for q, _ in found])[..., 0], torch.cat([d for _, d in found])
        if self.config.policy_value == "mean":
            return value.mean(0), slope.mean(0)
        least = value.min(0)
        return least.values, slope.gather(0, least.indices[None, :, None].expand(1, *slope.shape[1:]))[0]

    def _shared(self, work: Callable[[Sequence[int], Scratch], T], members: Sequence[int]) -> list[T]:
        """``work`` on each thread's share of the ``members``, in its own memory. Members do not depend on each other:
        the result is the same for any number of threads."""
        threads = min(len(self.scratches), len(members))
        ends = [len(members) * i // threads for i in range(threads + 1)]
        shares = [members[begin:end] for begin, end in pairwise(ends)]
        others = [self.workers.submit(work, share, scratch) for share, scratch in zip(shares[1:], self.scratches[1:])]
        return [work(shares[0], self.scratches[0]), *(each.result() for each in others)]


def _as_the_main_thread() -> None:
    """One thread per operation, no graph of derivatives: both are said thread by thread."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
