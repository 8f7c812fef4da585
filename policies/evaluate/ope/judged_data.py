"""What off-policy evaluation reads of a dataset: steps, what an episode earns, and the time left.

``satisfied`` turns "was the formula satisfied at the episode's end" into a reward: 1 in the last step of an episode
that satisfied it, nothing else, no discount. The value of a policy is then P(satisfied).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.transitions import Transitions


def satisfied(data: Transitions, flags: Tensor | None = None) -> Transitions:
    """``data`` whose return is 1 for an episode of ``flags`` [E] (``data.success`` where None), else 0.

    Every episode ends at its last step: what comes after is not judged.
    """
    flags = data.success if flags is None else flags
    if flags is None:
        raise DataError("no episode says whether it satisfied the formula (success), and no formula was given")
    if (unjudged := torch.isnan(flags).nonzero().flatten()).numel():
        raise DataError(f"episode {int(unjudged[0])}: nobody judged whether it satisfied the formula (and "
                        f"{len(unjudged) - 1} more): give a formula, or drop them")
    last = data.starts[1:] - 1
    reward = torch.zeros_like(data.reward)
    reward[last] = flags.to(reward.dtype)
    return closed(replace(data, reward=reward))


def closed(data: Transitions) -> Transitions:
    """``data`` in which each episode ends at its last step, as the value of a mission of fixed length has it."""
    mask = data.mask.clone()
    mask[data.starts[1:] - 1] = 0.0
    return replace(data, mask=mask)


def with_time(data: Transitions) -> Transitions:
    """``data`` that is shown the time since the episode's start, 1 at the end of the longest: the value of what ends at
    a set time depends on it."""
    lengths = data.starts.diff()
    passed = torch.arange(data.steps, device=data.obs.device) - data.starts[data.episode]
    scale = float(lengths.max())
    now, after = (((passed + k) / scale).to(data.obs.dtype)[:, None] for k in (0, 1))
    return replace(data, obs=torch.cat((data.obs, now), 1), next_obs=torch.cat((data.next_obs, after), 1))


def returns_to_go(data: Transitions, discount: float) -> np.ndarray:
    """Discounted return from each step to its episode's end [M], float64."""
    starts = data.starts.cpu().numpy()
    inside = np.arange(int(np.diff(starts).max())) < np.diff(starts)[:, None]
    earned = np.zeros(inside.shape)
    earned[inside] = data.reward.double().cpu().numpy()
    for t in range(earned.shape[1] - 2, -1, -1):
        earned[:, t] += discount * earned[:, t + 1]
    return earned[inside]


def returns(data: Transitions, discount: float) -> np.ndarray:
    """Discounted return of each episode [E], float64: what the policy that made the data is worth."""
    return returns_to_go(data, discount)[data.starts[:-1].cpu().numpy()]
