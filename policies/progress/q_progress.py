"""Progress as the Q value of offline reinforcement learning, for filtering demonstrations (GR-RL: Li et al. 2025, arXiv
2512.01801).

The reward is sparse: the last chunk of an episode that succeeded is worth gamma^(T - t), all else nothing. Then Q is
the discounted chance of success from here on, which rises to 1 along a good episode and falls where something was
undone. Critics give a distribution on the support [0, 1] rather than its mean: a value that is bounded by construction
cannot be overestimated without end, which a regression is where there are few, sparse successes. The policy is TD3+BC's
(Fujimoto and Gu 2021, arXiv 2106.06860): it climbs Q and stays near the data's commands.

    Q(s_t, a_t) <- y            if the episode ends within k samples, at T: mass at gamma^(T - t) y
                <- gamma^k Q'(s_t+k, pi'(s_t+k))         else: of the two averaged critics the one with the lesser mean
    pi: maximize Q(s, pi(s)) - (1 / alpha) |pi(s) - a|^2

Progress of a moment is the mean of Q(s, pi(s)); samples in which it falls are what GR-RL leaves out when it clones.

B moments, Z atoms, U numbers of a command, C of a context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.learnable import require_numbers
from temporeal.policies.training import offline_learner
from temporeal.policies.training.chunks.learner import interface_of
from temporeal.policies.training.chunks.windows import tensor
from temporeal.policies.training.errors import require
from temporeal.policies.training.progress_models import learner
from temporeal.policies.training.progress_models.learner import Drawing, ProgressConfig, Result, encoder_of
from temporeal.policies.training.progress_models.moments import Source
from temporeal.policies.training.progress_models.network import ProgressNetwork, StillNetwork, head
from temporeal.robots.signals import SignalSpec


@dataclass(frozen=True)
class QProgressConfig(ProgressConfig):
    """Settings of the learner. ``configs/algo/q_progress.yaml`` has the same names.

    Args:
        lookahead: k, samples of a temporal difference: the chunk that a command begins.
        floor: the value that a successful episode of mean length begins with; gamma follows from it.
        atoms: Z, of the distribution.
        alpha: how much the policy climbs Q, which is at most 1: small clones.
    """

    lookahead: int = 16
    floor: float = 0.1
    atoms: int = 51
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, lookahead="[1, inf)", floor="(0, 1)", atoms="[2, inf)", alpha="[0, inf)")


class Chunks(NamedTuple):
    """Signals [2, B, *shape] at the beginning and the end of chunks, commands [B, U] in [-1, 1], gamma^k [B], whether
    the episode ends with the chunk [B], and its outcome [B]."""

    signals: dict[str, Tensor]
    action: Tensor
    discount: Tensor
    last: Tensor
    outcome: Tensor


def projected(chance: Tensor, support: Tensor) -> Tensor:
    """``chance`` [B, Z] of the values ``support`` [B, Z] in [0, 1], on Z atoms evenly from 0 to 1: each value's chance
    is shared by its two neighbours (Bellemare, Dabney and Munos 2017, arXiv 1707.06887, equation 7)."""
    atoms = chance.shape[1]
    place = support * (atoms - 1)
    near = (place[..., None] - torch.arange(atoms)).abs()  # [B, Z, Z]
    return ((1.0 - near).clamp(min=0.0) * chance[..., None]).sum(1)


class QProgress(StillNetwork):
    """Two critics and the policy, on one encoder, which the critics teach."""

    figures = ("loss", "critic_loss", "policy_loss")

    def __init__(self, specs: Sequence[SignalSpec], config: QProgressConfig, size: int) -> None:
        super().__init__(specs, encoder_of(specs, config))
        self.alpha = config.alpha
        self.critics = nn.ModuleList(head(config.context + size, config.context, config.atoms) for _ in range(2))
        self.policy = head(config.context, config.context, size)
        self.register_buffer("atoms", torch.linspace(0.0, 1.0, config.atoms))
        self.atoms: Tensor

    def logits(self, context: Tensor, action: Tensor) -> Tensor:
        """Of the atoms, [2, B, Z]."""
        return torch.stack([critic(torch.cat([context, action], -1)) for critic in self.critics])

    def act(self, context: Tensor) -> Tensor:
        """The policy's command [B, U] in [-1, 1]."""
        return torch.tanh(self.policy(context))

    def mean(self, logits: Tensor) -> Tensor:
        """Of the distribution."""
        return torch.softmax(logits, -1) @ self.atoms

    def value(self, context: Tensor) -> Tensor:
        """[N], the critics' mean."""
        return self.mean(self.logits(context, self.act(context))).mean(0)

    def loss(self, batch: Chunks, averaged: ProgressNetwork) -> Tensor:
        """The critics' cross-entropy with the target distribution, and the policy's loss with critics held fixed."""
        now, later = ({name: value[k] for name, value in batch.signals.items()} for k in (0, 1))
        assert isinstance(averaged, QProgress)
        with torch.no_grad():
            target = averaged.target(averaged.encoder(later), batch)
        context = self.encoder(now)
        critic = -(target * torch.log_softmax(self.logits(context, batch.action), -1)).sum(-1).mean()
        action, seen = self.act(context.detach()), context.detach()
        climbs = averaged.mean(averaged.logits(seen, action)).mean()  # whose weights do not learn
        policy = (action - batch.action).square().mean() - self.alpha * climbs
        return torch.stack([critic + policy, critic, policy])

    def target(self, context: Tensor, batch: Chunks) -> Tensor:
        """The distribution [B, Z] of what a chunk is worth."""
        logits = self.logits(context, self.act(context))
        lesser = self.mean(logits).argmin(0)
        chance = torch.softmax(logits, -1)[lesser, torch.arange(len(lesser))]
        known = batch.last[:, None]
        value = torch.where(known, batch.outcome[:, None], self.atoms)
        chance = torch.where(known, torch.full_like(chance, 1.0 / chance.shape[1]), chance)
        return projected(chance, batch.discount[:, None] * value)


def draw(drawing: Drawing, scale: Tensor) -> Chunks:
    """Chunks of episodes. One in eight is at the very end. ``scale``: [2, U], center and reach of the commands."""
    config, data = drawing.config, drawing.data
    episode = drawing.episodes(config.batch)
    share = torch.where(drawing.uniform(config.batch) < 0.125, torch.ones(config.batch), drawing.uniform(config.batch))
    now = data.at(episode, share)
    later, last = data.later(episode, now, config.lookahead)
    gamma = config.floor ** (1.0 / data.mean_length)
    action = ((data.command[now] - scale[0]) / scale[1]).clamp(-1.0, 1.0)
    return Chunks(drawing.signals(torch.stack([now, later])), action, gamma ** (later - now), last,
                  data.success[episode])


def scale_of(command: Tensor) -> Tensor:
    """Center and reach [2, U] of commands [S, U]: two standard deviations."""
    return torch.stack([command.mean(0), (2.0 * command.std(0, correction=0)).clamp(min=1e-6)])


def train(data: Source, config: QProgressConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the episodes of a dataset; ``rest``: see
    :func:`temporeal.policies.training.progress_models.learner.train`."""
    command = tensor(data.column("action"))
    require_numbers(command, "action", "", np.asarray(data.starts))
    scale = scale_of(command)
    return learner.train(data, config, partial(QProgress, size=scale.shape[1]), partial(draw, scale=scale), out=out,
                         seed=seed, **rest)


def load_progress(run: Path, device: str = "cpu") -> ProgressNetwork:
    """The model of a run."""
    content = offline_learner.read(Path(run))["sizes"]["interface"]
    size = interface_of(content).action.size
    return learner.load(run, QProgressConfig, partial(QProgress, size=size), device)
