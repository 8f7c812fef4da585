"""Learning to plan beside cloning, and how good plans are on episodes that were held out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training.chunks.learner import Cloning
from temporeal.policies.training.chunks.windows import Batch, Source, Windows
from temporeal.policies.vla.batches import AT_ONCE, shown
from temporeal.policies.vla.config import VlaConfig
from temporeal.policies.vla.encoder import PREFIX
from temporeal.policies.vla.plan import scores
from temporeal.policies.vla.plan.truth import BOXES, PATH, SEEN, truth

HELD_OUT = 16  # one of so many episodes says how good plans are


class Planning(Cloning):
    """Cloning that learns to plan beside. ``plan_weight``: of the plan's loss."""

    def __init__(self, *given: Any, plan_weight: float) -> None:
        super().__init__(*given)
        self.plan_weight = plan_weight
        self.figures = (*self.figures[:-2], "plan", *self.figures[-2:])

    def of_context(self, context: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """With the plan's loss."""
        found, figures = super().of_context(context, batch)
        planned = self.policy.encoder.plan.loss(context, batch.signals)
        return found + self.plan_weight * planned, torch.cat([figures, planned[None]])


def begin(algorithm: Cloning, seen: Windows, data: Source, config: VlaConfig) -> tuple[Windows, Windows]:
    """The windows to learn from and those of episodes that are held out, with true plans; new plan heads are given the
    statistics of the waypoints."""
    seen = replace(seen, numbers={**seen.numbers, **truth(data, config)})
    learned, held = divided(seen, data.starts)
    for policy in (algorithm.policy, algorithm.actor):
        normalizer = policy.encoder.plan.normalizer
        if not bool(normalizer.count):
            normalizer.update(moments(seen.numbers[PATH][learned.at].flatten(1)))
    return learned, held


def divided(seen: Windows, starts: np.ndarray) -> tuple[Windows, Windows]:
    """One of :data:`HELD_OUT` episodes apart."""
    episode = torch.from_numpy(np.searchsorted(starts, seen.at.numpy(), side="right") - 1)
    apart = episode % HELD_OUT == 0
    if bool(apart.all()):
        raise DataError("algo.plan: one episode is held out to judge plans by, and the dataset has no other")
    return (replace(seen, at=seen.at[~apart], last=seen.last[~apart]),
            replace(seen, at=seen.at[apart], last=seen.last[apart]))


@torch.no_grad()
def judged(policy: Any, held: Windows) -> dict[str, float]:
    """How good the plans of ``policy`` are on the windows ``held``: mean intersection over union of the boxes in the
    picture, mean Frechet distance [m], mean reward."""
    found = list[Tensor]()
    for rows in held.at.split(AT_ONCE):
        signals = shown(held, rows)
        tokens = signals[PREFIX] if PREFIX in signals else policy.encoder.prefix(signals)
        plans, seen = policy.encoder.plan(tokens), signals[SEEN].float()
        found.append(torch.stack([
            (scores.iou(plans.boxes, signals[BOXES]) * seen).sum(-1), seen.sum(-1),
            scores.frechet(plans.path, signals[PATH]),
            scores.reward(plans.boxes, signals[BOXES], seen, plans.path, signals[PATH])], -1))
    overlap, boxes, apart, reward = torch.cat(found).sum(0).tolist()
    return {"plan_iou": overlap / max(boxes, 1.0), "plan_frechet_m": apart / len(held.at),
            "plan_reward": reward / len(held.at)}
