"""How often a trajectory is drawn: weights by return or advantage (Hong et al. 2023, arXiv 2306.13085). E episodes.

A step is drawn with a chance proportional to the weight of its episode, so that a few good trajectories among many bad
ones count as if there were more of them. An option of every offline learner.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions

WEIGHTINGS = ("none", "data", "return", "advantage")
"""``none``: all steps alike. ``data``: the weights of the data, such as of robustness. ``return``: softmax of the
episodes' returns. ``advantage``: softmax of what they are above the return that is expected of their first state."""


def weighted(data: Transitions, weighting: str, temperature: float) -> Transitions:
    """``data`` with the episodes' weights."""
    if weighting == "none":
        return replace(data, weight=None)
    if weighting == "data":
        if data.weight is None:
            raise ValueError("algo.weighting=data: the data hold no weights of episodes; legal: none, return, "
                             "advantage")
        return data
    score = returns(data)
    if weighting == "advantage":
        score = score - expected(data, score)
    return replace(data, weight=softmax(score, temperature))


def returns(data: Transitions) -> Tensor:
    """Undiscounted returns [E]; 0 of an episode without steps."""
    count = len(data.starts) - 1
    return torch.zeros(count, dtype=torch.float64).index_add_(0, data.episode, data.reward.double()).float()


def softmax(score: Tensor, temperature: float) -> Tensor:
    """Weights [E] with mean 1: ``exp(score / temperature)`` of scores [E] that are scaled to [0, 1] (eq. 8)."""
    spread = score.max() - score.min()
    scaled = (score - score.min()) / spread if spread > 0 else torch.zeros_like(score)
    return torch.softmax(scaled / temperature, 0) * len(score)


def expected(data: Transitions, score: Tensor) -> Tensor:
    """The return [E] that a linear regression expects of the first observations (appendix A.3)."""
    first = data.obs[data.starts[:-1].clamp(max=data.steps - 1)].double()
    features = torch.cat([first, torch.ones(len(first), 1, dtype=torch.float64)], 1)
    solution = torch.linalg.lstsq(features, score.double()[:, None], driver="gelsd").solution
    return (features @ solution)[:, 0].float()
