"""Some of Meta-World's scripted policies for many worlds at once: the library's own, in one pass over all rows.

They give what the library's give (``tests/sim/adapters/test_meta_world_lean.py``), which are asked one world at a time.
N worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

GAIN = 25.0  # of the library's ``move``: per m of distance


def peg_insert_side(signals: Mapping[str, Tensor]) -> np.ndarray:
    """Over the peg, down, along the hole's axis, in (``SawyerPegInsertionSideV3Policy``): actions [N, 4]."""
    state = signals["state"].double().numpy()
    hand, peg, y = state[:, :3], state[:, 4:7], state[:, 37]
    hole = np.stack([np.full(len(y), -0.35), y, np.full(len(y), 0.16)], -1)  # where it is along x does not matter
    over = np.linalg.norm(hand[:, :2] - peg[:, :2], axis=1) > 0.04
    high = np.abs(hand[:, 2] - peg[:, 2])
    aside = np.linalg.norm(peg[:, 1:] - hole[:, 1:], axis=1) > 0.03
    wanted = np.select(
        [each[:, None] for each in (over, high > 0.025, aside)],
        [peg + (0.0, 0.0, 0.3), peg, hole + (0.4, 0.0, 0.0)], hole)
    return np.concatenate([GAIN * (wanted - hand), np.where(over | (high > 0.15), -1.0, 0.6)[:, None]], -1)


def soccer(signals: Mapping[str, Tensor]) -> np.ndarray:
    """Behind the ball, then through it (``SawyerSoccerV3Policy``): actions [N, 4]."""
    state = signals["state"].double().numpy()
    hand, ball, goal = state[:, :3], state[:, 4:7] + (0.0, 0.0, 0.03), state[:, 36:39]
    aside = ball[:, 0] - goal[:, 0]
    behind = ball + np.select([aside[:, None] < -0.05, aside[:, None] > 0.05], [(-0.03, 0.0, 0.0), (0.03, 0.0, 0.0)],
                              (0.0, -0.03, 0.0))
    behind[:, 2] = np.where(np.linalg.norm(hand[:, :2] - ball[:, :2], axis=1) < 0.02, 0.1, 0.03)
    there = np.linalg.norm(hand - behind, axis=1) > 0.01
    return np.concatenate([GAIN * (np.where(there[:, None], behind, ball) - hand), np.ones((len(hand), 1))], -1)


SCRIPTS: Mapping[str, Callable[[Mapping[str, Tensor]], np.ndarray]] = {
    "peg-insert-side-v3": peg_insert_side, "peg-hard": peg_insert_side, "soccer-v3": soccer}
"""By environment."""
