"""Critics of a chunk policy's decisions, from data alone: implicit Q-learning (Kostrikov et al. 2022, arXiv
2110.06169).

    V: expectile tau of min Q(s, a) over the data's chunks        eq. 5
    Q: r + gamma goes_on V(s')                                    eq. 6

No chunk that nobody played is asked about in training. The advantage of a drawn chunk is min Q(s, a) - V(s), as
RL-100 and Uni-O4 (arXiv 2311.03351) take it. M decisions, B of a batch, C numbers of a context, D of an action.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from temporeal.policies.denoising_rl.decisions import Decisions
from temporeal.policies.nets.members import Members
from temporeal.policies.nets.normalizer import Normalizer, moments

MEMBERS = 2  # the smaller of both is taken


class ChunkCritics(nn.Module):
    """Q of contexts [B, C] and actions [B, D], its slow copy, and V."""

    def __init__(self, context: int, action: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.normalizer = Normalizer(context, limit=5.0)
        self.quality = Members(MEMBERS, context + action, hidden, 1)
        self.value = Members(1, context, hidden, 1)
        self.slow = deepcopy(self.quality).requires_grad_(False)

    def least(self, context: Tensor, action: Tensor) -> Tensor:
        """The smaller Q [B] of the slow copies; ``context`` normalized."""
        found: Tensor = self.slow(torch.cat([context, action], -1))[..., 0].amin(0)
        return found

    @torch.no_grad()
    def advantage(self, context: Tensor, action: Tensor) -> Tensor:
        """[B], of raw contexts."""
        seen = self.normalizer(context)
        return self.least(seen, action) - self.value(seen)[0, :, 0]


class CriticSteps:
    """Gradient steps on the critics."""

    def __init__(
        self, critics: ChunkCritics, data: Decisions, *, gamma: float, expectile: float, target_rate: float,
        learning_rate: float,
    ) -> None:
        self.critics, self.data, self.gamma, self.expectile = critics, data, gamma, expectile
        self.target_rate = target_rate
        if not bool(critics.normalizer.count):
            critics.normalizer.update(moments(data.context))
        learned = [value for value in critics.parameters() if value.requires_grad]
        self.adam = torch.optim.Adam(learned, learning_rate, foreach=True)

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the decisions ``rows`` [B]. Returns both losses."""
        data, critics = self.data, self.critics
        now, after = critics.normalizer(data.context[rows]), critics.normalizer(data.after[rows])
        action = data.action[rows]
        with torch.no_grad():
            best = critics.least(now, action)
            ahead = critics.value(after)[0, :, 0]
            wanted = data.reward[rows] + self.gamma * data.goes_on[rows] * ahead
        apart = best - critics.value(now)[0, :, 0]
        value = (torch.where(apart > 0, self.expectile, 1.0 - self.expectile) * apart.square()).mean()
        quality = (critics.quality(torch.cat([now, action], -1))[..., 0] - wanted).square().mean(1).sum()
        self.adam.zero_grad()
        (value + quality).backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(critics.slow.parameters()), list(critics.quality.parameters()), self.target_rate)
        return value.detach(), quality.detach()
