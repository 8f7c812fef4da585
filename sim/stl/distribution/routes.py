"""Ways around discs in the plane: straight where nothing is between, else along a visibility graph of their rings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CORNERS = 10
"""Of the ring around a disc. Its edges pass the disc outside."""
RING = 1.002 / float(np.cos(np.pi / CORNERS))
"""Radius of a ring per radius of its disc."""
TURNS = np.exp(2j * np.pi * np.arange(CORNERS) / CORNERS)


def route(start: Floats, goal: Floats, discs: Floats, low: Floats, high: Floats) -> Floats | None:
    """Corners [k, 2] of a way from ``start`` [2] to ``goal`` [2], both included; None where there is none.

    It keeps out of ``discs`` [m, 3] (x, y, radius), and its corners within ``low`` and ``high`` [2].
    """
    ends = np.stack([start, goal])
    if not len(discs) or clear(ends[:1], ends[1:], discs)[0]:
        return ends
    around = (RING * discs[:, 2, None] * TURNS)[..., None]
    ring = np.concatenate([around.real, around.imag], -1) + discs[:, None, :2]
    nodes = ring.reshape(-1, 2)
    free = ((nodes >= low) & (nodes <= high)).all(1)
    apart = np.hypot(nodes[:, None, 0] - discs[:, 0], nodes[:, None, 1] - discs[:, 1])
    nodes = np.concatenate([ends, nodes[free & (apart >= discs[:, 2]).all(1)]])
    one, other = np.triu_indices(len(nodes), 1)
    seen = clear(nodes[one], nodes[other], discs)
    one, other = one[seen], other[seen]
    length = np.full((len(nodes),) * 2, np.inf)
    length[one, other] = length[other, one] = np.hypot(*(nodes[one] - nodes[other]).T)
    return _shortest(nodes, length)


def clear(one: Floats, other: Floats, discs: Floats) -> NDArray[Any]:
    """Whether [K] the segments from ``one`` to ``other`` [K, 2] keep out of all ``discs`` [m, 3]."""
    along = other - one
    to = discs[:, :2] - one[:, None]
    square = np.maximum((along * along).sum(1), 1e-18)[:, None]
    share = np.clip((to * along[:, None]).sum(2) / square, 0.0, 1.0)
    off = to - share[..., None] * along[:, None]
    return np.asarray(((off * off).sum(2) >= discs[:, 2] ** 2 - 1e-9).all(1))


def _shortest(nodes: Floats, length: Floats) -> Floats | None:
    """The shortest way from node 0 to node 1 over edges of ``length`` [n, n]."""
    far = length[0].copy()
    before = np.zeros(len(nodes), np.int64)
    far[0] = 0.0
    for _ in range(len(nodes)):
        through = far[:, None] + length
        best = through.argmin(0)
        shorter = through[best, np.arange(len(nodes))] < far - 1e-12
        if not shorter.any():
            break
        far = np.where(shorter, through[best, np.arange(len(nodes))], far)
        before = np.where(shorter, best, before)
    if not np.isfinite(far[1]):
        return None
    way = [1]
    while way[-1]:
        way.append(int(before[way[-1]]))
    return nodes[way[::-1]]
