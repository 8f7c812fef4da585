"""Real-time chunking: the next chunk continues the one that is under way while it is inferred.

Black, Galliker and Levine 2025 (arXiv 2506.07339). A chunk that is inferred while the robot moves comes into force d
steps after its observation: its first d rows are played already. So the next chunk is *inpainted*: denoised from fresh
noise while the rows that overlap with the chunk under way, Y, pull at it with weights W (eq. 5):

    W_i = 1 for i < d;   c_i (exp(c_i) - 1) / (e - 1),  c_i = (M - i) / (M - d + 1)  for d <= i < M;   0 from M on

M: rows that the chunk under way has left. The pull is a gradient step on the clean chunk x0(x) = x - t v(x, t) that x
seems to lead to (Pseudo-inverse guidance: Pokle et al. 2023, arXiv 2310.04432; here eq. 2-4, with t = 1 - tau):

    v' = v - min(beta, t / ((1 - t) r^2)) (Y - x0)^T diag(W) dx0/dx,    r^2 = t^2 / (t^2 + (1 - t)^2)

In the end the first d rows are Y's: they were played. No command calls this; the inference worker fades. N robots, H
steps of a chunk, U numbers of a command.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from temporeal.policies.vla.protocol import FlowPolicy
from temporeal.policies.vla.samplers import column, levels

BETA = 5.0
"""Largest pull (the paper's appendix A.2)."""


def weights(steps: int, delay: int, left: int) -> Tensor:
    """W [H]: how much each row must be that of the chunk under way, of which ``left`` rows are left, where the next one
    is in force after ``delay`` of them."""
    if not 0 <= delay <= left <= steps:
        raise ValueError(f"a chunk of {steps} rows cannot continue {left} rows after {delay}: 0 <= delay <= left <= "
                         "rows is needed; a longer delay leaves the robot without commands")
    share = (left - torch.arange(steps)) / (left - delay + 1)
    soft = share * (share.exp() - 1.0) / (math.e - 1.0)
    ahead = torch.arange(steps)
    return torch.where(ahead < delay, torch.ones(()), torch.where(ahead < left, soft, torch.zeros(())))


def guided(
    policy: FlowPolicy, context: Tensor, noise: Tensor, wanted: Tensor, weight: Tensor, beta: float = BETA
) -> Tensor:
    """The chunk [N, H, U] that ``noise`` becomes while ``wanted`` [N, H, U] pulls with ``weight`` [H]."""
    x, weight = noise, weight[:, None]
    for t, to in levels(len(noise), policy.steps):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            velocity = policy.velocity(context, x, t)
            clean = x - column(t) * velocity
            apart = weight * (wanted - clean).detach()
            (pull,) = torch.autograd.grad((clean * apart).sum(), x)
        x = (x - column(t - to) * (velocity - column(strength(t, beta)) * pull)).detach()
    return x


def strength(t: Tensor, beta: float) -> Tensor:
    """min(beta, t / ((1 - t) r^2)) [N]; t = 1, where it is infinite, is beta's."""
    bound = (t.square() + (1.0 - t).square()) / (t * (1.0 - t)).clamp(min=1e-6)
    return bound.clamp(max=beta)


def continued(
    policy: FlowPolicy, signals: Mapping[str, Tensor], under_way: Tensor, delay: int, *, beta: float = BETA,
    noise: Tensor | None = None,
) -> Tensor:
    """Raw commands [N, H, U] that go on from those ``under_way``.

    Args:
        signals: that were just measured, [N, *shape] each.
        under_way: raw commands [N, M, U] that are left of the chunk in force, the one for now first, M <= H.
        delay: d, how many of them will be played before the result is in force.
        noise: [N, H, U] to begin with; None: that with which the policy is deployed.
    """
    left = under_way.shape[1]
    weight = weights(policy.horizon, delay, left)
    last = under_way[:, -1:].expand(-1, policy.horizon - left, -1)
    with torch.no_grad():
        context = policy.encode(signals)
        wanted = policy.chunk(torch.cat([under_way, last], 1), signals)
    x = guided(policy, context, policy.start(context) if noise is None else noise, wanted, weight, beta)
    return torch.cat([under_way[:, :delay], policy.commands(x, signals)[:, delay:]], 1)
