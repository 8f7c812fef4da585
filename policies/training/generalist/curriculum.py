"""A curriculum over drawn formulas: those that the critic finds half-hard are flown more often.

A mission that succeeds with chance p, for something that is worth 1, has the value p, and what becomes of it is off by
E |return - value| = 2 p (1 - p): most where it is half-hard, nothing where it is sure either way. The mean absolute
advantage is therefore the score of a mission, as of a level in prioritized level replay (Jiang, Grefenstette and
Rocktaschel, ICML 2021, arXiv 2010.03934, sec. 3); a share of draws stays uniform, so that no score grows old.

T steps, N worlds, B missions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

MEMORY = 0.8  # of a score, at each rollout in which its mission is flown


class Curriculum:
    """Scores of ``count`` missions. ``share``: of draws that are in proportion to them; the rest are uniform."""

    def __init__(self, count: int, share: float) -> None:
        self.share, self.scores = share, torch.full((count,), torch.nan)

    def update(self, missions: Tensor, surprise: Tensor, ended: Tensor) -> None:
        """What a rollout shows: ``missions`` [N] under way at its end, absolute advantages ``surprise`` [T, N] and
        whether [T, N] an episode ended in a step. Steps of episodes before the last one of a world are left out."""
        own = (ended.flip(0).cumsum(0).flip(0) == 0).to(surprise)
        known = own.sum(0) > 0
        mean = ((surprise * own).sum(0) / own.sum(0).clamp(min=1.0))[known].cpu()
        flown, place = missions[known].long().cpu().unique(return_inverse=True)
        total, count = (torch.zeros(len(flown)).index_add(0, place, x) for x in (mean, torch.ones_like(mean)))
        new, old = total / count, self.scores[flown]
        self.scores[flown] = torch.where(old.isnan(), new, MEMORY * old + (1.0 - MEMORY) * new)

    def weights(self) -> Tensor | None:
        """How often [B] each mission is to be drawn, in proportion; a mission without a score as one of the mean.
        None: all alike."""
        mean = self.scores.nanmean()
        if not self.share or not mean > 0:
            return None
        return (1.0 - self.share) + self.share * (self.scores / mean).nan_to_num(1.0)

    def state_dict(self) -> dict[str, Tensor]:
        """All state."""
        return {"scores": self.scores.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.scores = state["scores"].clone()
