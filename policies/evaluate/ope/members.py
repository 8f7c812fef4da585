"""What fitted models share: K members, each of which learns from its own resample of the episodes.

The spread of their estimates is the error of the estimate (bootstrapping fitted Q evaluation: Hao et al., ICML 2021).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions


class Resamples:
    """The steps that each of ``members`` draws from: those of episodes that were drawn with replacement.

    Estimates of one ``seed`` on the same data resample alike, so that their differences are paired.
    """

    def __init__(self, data: Transitions, members: int, seed: int) -> None:
        episodes = len(data.starts) - 1
        rng = np.random.default_rng(seed)
        self.counts = torch.from_numpy(rng.multinomial(episodes, np.full(episodes, 1.0 / episodes), members))
        self._ends = self.counts[:, data.episode.cpu()].double().cumsum(1)  # [K, M]
        self._generator = torch.Generator().manual_seed(seed)
        self._steps = data.steps

    def draw(self, batch: int) -> Tensor:
        """Indices of steps [K, batch]."""
        drawn = torch.rand(len(self._ends), batch, generator=self._generator, dtype=torch.float64)
        return torch.searchsorted(self._ends, drawn * self._ends[:, -1:], right=True).clamp_(max=self._steps - 1)

    def averages(self, values: Tensor) -> np.ndarray:
        """Mean over its own episodes of what each member says of every episode [K, E]: [K]."""
        weights = self.counts.to(values.dtype)
        return ((values * weights).sum(1) / weights.sum(1)).double().numpy()
