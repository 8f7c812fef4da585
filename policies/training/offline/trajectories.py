"""What a step of a dataset is worth by what came after it in its episode. M steps, E episodes."""

from __future__ import annotations

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions


def returns_to_go(data: Transitions, gamma: float) -> Tensor:
    """Discounted sum [M] of the rewards from each step to its episode's end."""
    first, last = data.starts[:-1], data.starts[1:]
    found, running = torch.zeros(data.steps), torch.zeros(len(first))
    for back in range(1, int((last - first).max()) + 1):  # all episodes together, from their last steps
        rows = last - back
        inside = rows >= first
        at = rows[inside]
        running[inside] = data.reward[at] + gamma * running[inside]
        found[at] = running[inside]
    return found


def next_actions(data: Transitions) -> tuple[Tensor, Tensor]:
    """The action [M, A] that followed each step in its episode, and whether [M] there was one (1 or 0)."""
    there = torch.ones(data.steps)
    there[(data.starts[1:] - 1)[data.starts[1:] > data.starts[:-1]]] = 0.0
    return data.action.roll(-1, 0) * there[:, None], there


def ahead(data: Transitions, steps: int) -> Tensor:
    """The row [M] ``steps`` later in the episode, or its last."""
    rows = torch.arange(data.steps)
    return torch.minimum(rows + steps, data.starts[1:][data.episode] - 1)
