"""How good a plan is, by the truth alone: overlap of boxes, distance of trajectories, and one reward of both.

Boxes [..., 4] are first row, first column, last row, last column. A trajectory has P points [..., P, 3] m.
The reward is that of VLA-R1 (Ye et al. 2025): (GIoU + 1) / 2 of boxes, 1 less a normalized Frechet distance of
trajectories whose points differ by place, by direction and by length of the way to the next one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TURN, LENGTH = 0.25, 0.10  # weights of direction and of length beside those of places, as in VLA-R1
REACH = 0.3  # m: places so far apart count 1: about half of what an arm's tool has of a table
STILL = 1e-3  # m: shorter ways have no direction


def area(box: Tensor) -> Tensor:
    """[...]; 0 where a box ends before it begins."""
    return (box[..., 2:] - box[..., :2]).clamp(min=0.0).prod(-1)


def overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union, and the union, [...] each."""
    both = area(torch.cat([torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])], -1))
    union = area(a) + area(b) - both
    return both / union.clamp(min=1e-9), union


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union [...] in [0, 1]."""
    return overlap(a, b)[0]


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalized intersection over union [...] in [-1, 1]: less the share of the smallest box around both that neither
    has, so that boxes apart know which way to go (Rezatofighi et al. 2019, arXiv 1902.09630)."""
    share, union = overlap(a, b)
    around = area(torch.cat([torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:])], -1))
    return share - (around - union) / around.clamp(min=1e-9)


def coupled(cost: Tensor) -> Tensor:
    """Discrete Frechet distance [...] of two trajectories whose points differ by ``cost`` [..., P, Q]: the least, over
    ways to go along both without going back, of the most that is met (Eiter and Mannila 1994)."""
    rows = list[Tensor]()
    for i in range(cost.shape[-2]):
        row = list[Tensor]()
        for j in range(cost.shape[-1]):
            before = ([rows[i - 1][..., j]] if i else []) + ([row[j - 1]] if j else []) + (
                [rows[i - 1][..., j - 1]] if i and j else [])
            least = torch.stack(before).amin(0) if before else cost[..., i, j]
            row.append(torch.maximum(cost[..., i, j], least))
        rows.append(torch.stack(row, -1))
    return rows[-1][..., -1]


def apart(a: Tensor, b: Tensor) -> Tensor:
    """Distances [..., P, Q] of the points of ``a`` [..., P, D] and ``b`` [..., Q, D]."""
    found: Tensor = (a[..., :, None, :] - b[..., None, :, :]).norm(dim=-1)
    return found


def frechet(a: Tensor, b: Tensor) -> Tensor:
    """Discrete Frechet distance [...] m."""
    return coupled(apart(a, b))


def oriented(a: Tensor, b: Tensor) -> Tensor:
    """The same of points that have a direction, too, and without a unit: place / REACH + TURN angle / pi + LENGTH
    abs(log of the lengths' ratio); the way at the last point is that to it."""
    ways = [torch.cat([one.diff(dim=-2), one.diff(dim=-2)[..., -1:, :]], -2) for one in (a, b)]
    sizes = [way.norm(dim=-1) for way in ways]
    moves = (sizes[0][..., :, None] > STILL) & (sizes[1][..., None, :] > STILL)
    units = [way / size.clamp(min=STILL)[..., None] for way, size in zip(ways, sizes)]
    one, other = units[0][..., :, None, :], units[1][..., None, :, :]
    turn = 2.0 * torch.atan2((one - other).norm(dim=-1), (one + other).norm(dim=-1))  # of the same: 0, not about 0
    angle = torch.where(moves, turn / math.pi, torch.zeros_like(turn))
    logs = [size.clamp(min=STILL).log() for size in sizes]
    longer = (logs[0][..., :, None] - logs[1][..., None, :]).abs()
    return coupled(apart(a, b) / REACH + TURN * angle + LENGTH * longer)


def reward(boxes: Tensor, true_boxes: Tensor, seen: Tensor, path: Tensor, true_path: Tensor) -> Tensor:
    """The reward [N] in [0, 1] of plans: the mean of that of their boxes and of that of their trajectory.

    Args:
        boxes, true_boxes: [N, B, 4], of which those count that are ``seen`` [N, B]; without any, the trajectory alone.
        path, true_path: [N, P, 3] m.
    """
    count = seen.sum(-1)
    of_boxes = ((giou(boxes, true_boxes) + 1.0) / 2.0 * seen).sum(-1) / count.clamp(min=1.0)
    of_path = 1.0 - oriented(path, true_path).clamp(max=1.0)
    return torch.where(count > 0, 0.5 * (of_boxes + of_path), of_path)
