"""Batches of an update: rows of replay and of demonstrations, normalized, with their parts named.

Demonstrations have a share of their own in each batch (symmetric sampling: Ball et al. 2023, RLPD, arXiv 2302.02948),
or are drawn from one pool with replay, where each step counts by its last error and a demonstrated one by a bonus more
(Vecerik et al. 2017, DDPGfD, arXiv 1707.08817, section 4: epsilon_D; Hester et al. 2018, DQfD, arXiv 1704.03732).

O / C observation of actor / critics, A action, G updates at once, B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from temporeal.policies.training.off_policy.critics import Sizes
from temporeal.policies.training.off_policy.replay import Drawn, Replay, by_chance

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.learner import Learner


class Batch(NamedTuple):
    """B steps, normalized: for the actor [B, O] and for the critics [B, C] before and after up to n steps, what the
    critics saw beside the action [B, C + A], the summed rewards [B] and what the value after them counts [B];
    ``weight`` [B] in the critics' loss, None: 1; ``shown`` [B]: 1 where the step is demonstrated, None: none is;
    ``pictures`` and ``next_pictures``, uint8 [B, H, W, 3] by name."""

    obs: Tensor
    critic: Tensor
    pair: Tensor
    next_obs: Tensor
    next_critic: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor | None = None
    shown: Tensor | None = None
    pictures: Mapping[str, Tensor] = {}
    next_pictures: Mapping[str, Tensor] = {}


class Rows(NamedTuple):
    """G updates of B rows: what was drawn [G, B, ...], and of which memory each row is, int64 [G, B]."""

    drawn: Drawn
    memory: Tensor


def batches(learner: Learner) -> Iterator[Batch]:
    """The batches of all updates that are paid for, drawn at once. After each, the algorithm's errors are noted where
    they are what the next ones are drawn by."""
    count = int(learner.owed)
    learner.owed -= count
    if not count:
        return
    config, memories = learner.config, [learner.replay]
    if learner.demonstrations is not None:
        memories.append(learner.demonstrations)
    rows = drawn_of(learner, memories, count)
    for state in (rows.drawn.pair, rows.drawn.after):
        begin = 0
        for normalizer in learner.normalizers.values():
            normalizer.normalize_(state[..., begin : begin + len(normalizer.shift)])
            begin += len(normalizer.shift)
    for each, memory in zip((Drawn(*values) for values in zip(*rows.drawn)), rows.memory):
        batch = batch_of(learner.sizes, learner.shared, each)
        if len(memories) > 1:
            batch = batch._replace(shown=memory.float())
        if learner.replay.pictures is not None:
            before, after = seen(memories, each, memory)
            batch = batch._replace(pictures=before, next_pictures=after)
        if not config.priority:
            yield batch
            continue
        weight = each.chance.pow(-config.priority_correction)
        yield batch._replace(weight=weight / weight.max())
        for number, replay in enumerate(memories):
            of = memory == number
            if bool(of.any()):
                replay.note(each.chosen[of], learner.algorithm.error[of])


def drawn_of(learner: Learner, memories: Sequence[Replay], count: int) -> Rows:
    """The rows of ``count`` updates."""
    config, generator = learner.config, learner.generator
    if config.demonstration_bonus is not None and len(memories) > 1:
        drawn, memory = pooled(memories, count * config.batch, learner)
        return Rows(Drawn(*(value.unflatten(0, (count, -1)) for value in drawn)), memory.unflatten(0, (count, -1)))
    told = config.demonstrated if len(memories) > 1 else 0
    shares = [(number, rows) for number, rows in enumerate((config.batch - told, told)) if rows]
    parts = [memories[number].draw(count * rows, config.n_step, config.gamma, generator, config.priority)
             for number, rows in shares]
    memory = torch.cat([torch.full((count, rows), number) for number, rows in shares], 1)
    return Rows(Drawn(*(torch.cat([value.unflatten(0, (count, -1)) for value in same], 1) for same in zip(*parts))),
                memory)


def pooled(memories: Sequence[Replay], rows: int, learner: Learner) -> tuple[Drawn, Tensor]:
    """``rows`` steps of all ``memories`` as of one, and of which memory each is [rows]."""
    config = learner.config
    each = torch.cat([replay.priorities(config.priority) for replay in memories])
    chosen, chance = by_chance(each, rows, learner.generator)
    ends = torch.tensor([replay.steps for replay in memories]).cumsum(0)
    memory = torch.searchsorted(ends, chosen, right=True)
    parts, places = list[Drawn](), list[Tensor]()
    for number, replay in enumerate(memories):
        place = (memory == number).nonzero()[:, 0]
        own = chosen[place] - (ends[number] - replay.steps)
        parts.append(replay.take(own, config.n_step, config.gamma)._replace(chance=chance[place]))
        places.append(place)
    order = torch.cat(places).argsort()
    return Drawn(*(torch.cat(same)[order] for same in zip(*parts))), memory


def seen(
    memories: Sequence[Replay], drawn: Drawn, memory: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Pictures before the steps that were ``drawn`` and after the last of each, by name [B, H, W, 3]; ``memory`` [B]:
    of which of the ``memories`` each is."""
    places = [(memory == number).nonzero()[:, 0] for number in range(len(memories))]
    parts = [replay.seen(drawn.chosen[place], drawn.last[place]) for replay, place in zip(memories, places)]
    order = torch.cat(places).argsort()
    before, after = ({name: torch.cat([part[side][name] for part in parts])[order] for name in parts[0][side]}
                     for side in (0, 1))
    return before, after


def batch_of(sizes: Sizes, shared: bool, drawn: Drawn) -> Batch:
    """``drawn`` with its parts named."""
    seen = drawn.pair.shape[1] - sizes.action_dim
    begin = 0 if shared else sizes.obs_dim
    return Batch(drawn.pair[:, : sizes.obs_dim], drawn.pair[:, begin:seen], drawn.pair[:, begin:],
                 drawn.after[:, : sizes.obs_dim], drawn.after[:, begin:], drawn.reward, drawn.discount)
