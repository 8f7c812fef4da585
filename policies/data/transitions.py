"""Steps of a dataset as tensors: what offline learners draw their batches from. M steps, E episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Transitions:
    """All steps, those of an episode in a row and in order of time. Float32 on one device.

    Args:
        obs, next_obs: [M, O], what the policy is shown, not normalized.
        action: [M, A] in [-1, 1].
        reward: [M].
        mask: [M], 0 where the step terminated its episode, else 1 (time that cuts is bootstrapped through).
        episode: [M] int64; ``starts``: [E + 1] int64, the steps of episode e are ``starts[e]`` to ``starts[e + 1]``.
        weight: [E], how often an episode is drawn, relative; None: all steps alike.
        success: [E], 1 or 0, NaN where nobody judged.
        obs_names: a name for each of the O numbers, for goals and plots; () where unknown.
        sample: [M] int64, number of the sample in the dataset that a step begins with; None where unknown.
        pictures: of the dataset, those that a learner reads, by name, uint8 [samples, H, W, 3], memory-mapped.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    mask: Tensor
    episode: Tensor
    starts: Tensor
    weight: Tensor | None = None
    success: Tensor | None = None
    obs_names: tuple[str, ...] = ()
    sample: Tensor | None = None
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """M."""
        return len(self.obs)
