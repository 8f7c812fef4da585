"""The judge of legs: how likely the policy is to hit a leg in time with nothing broken, and how long it takes.

It is learned from the deterministic policy's own episodes, after training, by maximum likelihood: of every leg that was
under way at some sample, whether it was hit. A planner multiplies it over the legs of an itinerary
(:mod:`temporeal.sim.stl.itineraries.planner`). It reads what the policy reads of the mission, in the world's frame, and
where the robot is; not how that moves, which nobody knows of legs that are still to come.

N worlds, R rows, D axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.nets.sets import SetNet
from temporeal.sim.rewards.follower import Follower
from temporeal.sim.rewards.itinerary_view import TOKENS, Lengths, as_it_is, seen, size, token_size

HIDDEN, ACTIVATION = (128, 128), "silu"
EPOCHS, BATCH, RATE = 10, 2048, 2e-3


class Judge(nn.Module):
    """Legs as they are about to be flown to the log-odds that they are hit and the logarithm of the samples until then.

    ``follower`` and ``unit`` are those of the task's observation.
    """

    def __init__(self, follower: Follower, unit: Lengths) -> None:
        super().__init__()
        self.follower, self.unit = follower, unit
        self.net = SetNet(unit.axes + size(unit.axes), (TOKENS, token_size(unit.axes)), 2, HIDDEN, ACTIVATION, 0.1)

    def rows(self, point: Tensor, program: Tensor, memory: Mapping[str, Tensor]) -> Tensor:
        """What it reads [R, .] of ``point`` [R, 3], ``program`` [R, SIZE] and the follower's memory."""
        found, _ = self.follower(point, program, memory)
        return torch.cat([point[:, : self.unit.axes] / self.unit.scale, seen(found, point, as_it_is, self.unit)], -1)

    def forward(self, programs: Tensor, points: Tensor, ticks: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        """Probability [R] and samples [R] of legs that begin at ``ticks`` [R] at ``points``, after ``hits`` [R, L]."""
        memory = {"tick": ticks, "hit": hits, "held": torch.zeros_like(ticks)}
        odds, length = self.net(self.rows(points, programs, memory)).unbind(-1)
        return torch.sigmoid(odds), (length.clamp(max=10.0).exp() - 1.0).clamp(min=0.0)

    @torch.no_grad()
    def of_arrays(self, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`forward` of arrays, for a planner."""
        chance, length = self(*map(torch.from_numpy, arrays))
        return chance.numpy(), length.numpy()


@dataclass(frozen=True)
class Experience:
    """Rows [R, .] that a judge reads, whether [R] the leg under way was hit, and samples [R] until then."""

    rows: Tensor
    hit: Tensor
    samples: Tensor


@torch.no_grad()
def experience(env: Any, act: Any, judge: Judge, position: str, steps: int, every: int = 3) -> Experience:
    """What ``steps`` of each world of ``env`` show, under ``act(obs) -> action``; rows of each ``every``-th sample."""
    obs, rows, when, counts, fates = env.reset(), [], [], [], []
    follower = tuple(judge.follower.memory)
    for step in range(steps):
        column = env.column
        counts.append((column["progress.hit"] > 0).sum(-1).cpu())
        if step % every == 0:
            memory = {name: column[f"progress.{name}"].cpu().clone() for name in follower}
            memory |= {"tick": memory["tick"] - 1.0, "held": (memory["held"] - 1.0).clamp(min=0.0)}
            truth = env.true_signals()
            rows.append(judge.rows(truth[position].cpu(), truth["mission"].cpu().contiguous(), memory))
            when.append(step)
        found = env.step(act(obs.actor))
        obs = found.obs
        ended = found.terminated | found.truncated
        # 1: all was done; 0: broken or late; -1: cut off, nobody knows; 2: it goes on
        fate = torch.where(found.info["success"], 1, torch.where(found.terminated, 0, -1))
        fates.append(torch.where(ended, fate, torch.full_like(fate, 2)).cpu())
    hit, length = outcomes(torch.stack(counts), torch.stack(fates))
    rows, hit, length = torch.cat(rows), hit[when].flatten(), length[when].flatten()
    known = hit >= 0
    return Experience(rows[known], hit[known].float(), length[known].float())


def outcomes(counts: Tensor, fates: Tensor) -> tuple[Tensor, Tensor]:
    """Whether [T, N] the leg under way was hit (1, 0; -1: nobody knows), and samples [T, N] until then, by the legs hit
    [T, N] before each step and what became [T, N] of the episode in it (:func:`experience`)."""
    hit, length = torch.full_like(counts, -1), torch.zeros_like(counts)
    after, togo = torch.full_like(counts[0], -1), torch.zeros_like(counts[0])
    for t in reversed(range(len(counts))):
        over = fates[t] != 2
        advanced = ~over & (counts[t + 1] > counts[t]) if t + 1 < len(counts) else torch.zeros_like(over)
        after = torch.where(over, fates[t], torch.where(advanced, 1, after))
        togo = torch.where(over | advanced, 1, togo + 1)
        hit[t], length[t] = after, togo
    return hit, length


def learn(judge: Judge, seen_: Experience, seed: int, epochs: int = EPOCHS) -> list[float]:
    """Maximum likelihood by Adam; the mean loss of each epoch."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(judge.net.parameters(), lr=RATE)
    batches = max(1, len(seen_.rows) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(seen_.rows), generator=generator).chunk(batches):
            odds, length = judge.net(seen_.rows[chosen]).unbind(-1)
            hit = seen_.hit[chosen]
            loss = nn.functional.binary_cross_entropy_with_logits(odds, hit)
            off = nn.functional.smooth_l1_loss(length, torch.log1p(seen_.samples[chosen]), reduction="none")
            loss = loss + 0.5 * (off * hit).sum() / hit.sum().clamp(min=1.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        losses.append(total / batches)
    return losses
