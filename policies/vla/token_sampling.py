"""How a token policy draws chunks, with the log-probability of each token. N chunks, T tokens, V bins."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.policies.vla.protocol import TokenPolicy


class Written(NamedTuple):
    """A drawn chunk: its tokens int64 [N, T], and the log-probability [N, T] of each."""

    tokens: Tensor
    log_prob: Tensor


@torch.no_grad()
def write(
    policy: TokenPolicy, context: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Written:
    """Tokens drawn one after the other; ``temperature`` above 1: more evenly."""
    tokens, chances = torch.zeros((len(context), 0), dtype=torch.long), list[Tensor]()
    for _ in range(policy.tokens):
        log_chance = torch.log_softmax(policy.logits(context, tokens) / temperature, -1)
        drawn = torch.multinomial(log_chance.exp(), 1, generator=generator)
        chances.append(log_chance.gather(1, drawn))
        tokens = torch.cat([tokens, drawn], 1)
    return Written(tokens, torch.cat(chances, 1))


def token_log_prob(policy: TokenPolicy, context: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability [N, T] of each of ``tokens`` [N, T] by the weights as they are now: one pass."""
    log_chance = torch.log_softmax(policy.all_logits(context, tokens) / temperature, -1)
    return log_chance.gather(2, tokens[..., None])[..., 0]
