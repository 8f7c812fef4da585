"""Sequence networks that are deployed step by step: causal attention over a window, or a selective state space.

Both map a sequence [B, T, D] to a sequence [B, T, D], and a step [B, D] with its state [B, H] to a step and the next
state; stepping through a sequence gives what the whole sequence gave. B rows, T time, D features, S states of each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class SelectiveScan(nn.Module):
    """A diagonal state space whose step size, input and output matrices depend on the input (Mamba: Gu and Dao 2023,
    arXiv 2312.00752, algorithm 2): ``h_t = exp(dt_t A) h_t-1 + dt_t B_t x_t``, ``y_t = C_t h_t + D x_t``, gated.

    The state is as large at any time as at the first: what is remembered costs nothing per step.
    """

    def __init__(self, features: int, states: int = 8) -> None:
        super().__init__()
        self.features, self.states = features, states
        self.hidden_dim = features * states
        self.norm = nn.LayerNorm(features)
        self.enter = nn.Linear(features, 2 * features)  # what is scanned, and its gate
        self.select = nn.Linear(features, 2 * states)  # B and C
        self.rate = nn.Linear(features, features)  # of the step size
        self.leave = nn.Linear(features, features)
        # S4D-real's start: time constants 1, 1/2, ... 1/S; step sizes spread over two decades (Mamba, section 3.6)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, states + 1.0)).repeat(features, 1))
        self.skip = nn.Parameter(torch.ones(features))
        dt = torch.exp(torch.linspace(math.log(1e-3), math.log(1e-1), features))
        with torch.no_grad():
            self.rate.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus

    def step(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """One step: [B, D] and [B, D S] to the same."""
        scanned, gate, keep, add, read = self._parts(x)
        state = keep * hidden.unflatten(-1, (self.features, self.states)) + add
        return self._out(x, scanned, gate, (state * read).sum(-1)), state.flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """A whole sequence [B, T, D]."""
        scanned, gate, keep, add, read = self._parts(x)
        state, states = torch.zeros_like(add[:, 0]), []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + add[:, t]
            states.append(state)
        return self._out(x, scanned, gate, (torch.stack(states, 1) * read).sum(-1))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Input and gate [..., D]; decay and input of the states [..., D, S]; output weights [..., 1, S]."""
        scanned, gate = self.enter(self.norm(x)).chunk(2, -1)
        scanned = nn.functional.silu(scanned)
        dt = nn.functional.softplus(self.rate(scanned))[..., None]
        b, c = self.select(scanned).chunk(2, -1)
        keep, add = torch.exp(-dt * self.log_a.exp()), dt * b[..., None, :] * scanned[..., None]
        return scanned, gate, keep, add, c[..., None, :]

    def _out(self, x: Tensor, scanned: Tensor, gate: Tensor, read: Tensor) -> Tensor:
        found: Tensor = x + self.leave((read + self.skip * scanned) * nn.functional.silu(gate))
        return found


class WindowAttention(nn.Module):
    """One head of causal attention over the last ``window`` steps, with a learned bias by distance, and a feed-forward
    layer. The state holds the window's inputs."""

    def __init__(self, features: int, window: int) -> None:
        super().__init__()
        self.features, self.window = features, window
        self.hidden_dim = (window - 1) * (features + 1)  # inputs, and whether each is there
        self.norm, self.norm_out = nn.LayerNorm(features), nn.LayerNorm(features)
        self.keys = nn.Linear(features, 3 * features)
        self.distance = nn.Parameter(torch.zeros(window))
        self.leave = nn.Linear(features, features)
        self.mix = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, features))

    def step(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """One step: [B, D] and [B, H] to the same."""
        before = hidden.unflatten(-1, (self.window - 1, self.features + 1))
        there = torch.ones_like(x[:, :1])
        seen = torch.cat((before, torch.cat((x, there), -1)[:, None]), 1)  # [B, W, D + 1]
        query, key, value = self.keys(self.norm(seen[..., :-1])).chunk(3, -1)
        score = (key * query[:, -1:]).sum(-1) / math.sqrt(self.features) + self.distance.flip(0)
        weight = torch.softmax(score - 1e9 * (1.0 - seen[..., -1]), -1)
        return self._out(x, (weight[..., None] * value).sum(1)), seen[:, 1:].flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """A whole sequence [B, T, D]."""
        query, key, value = self.keys(self.norm(x)).chunk(3, -1)
        apart = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
        bias = self.distance[apart.clamp(0, self.window - 1)]
        score = query @ key.transpose(1, 2) / math.sqrt(self.features) + bias
        score = score.masked_fill((apart < 0) | (apart >= self.window), -1e9)
        return self._out(x, torch.softmax(score, -1) @ value)

    def _out(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.leave(attended)
        found: Tensor = x + self.mix(self.norm_out(x))
        return found
