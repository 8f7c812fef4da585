"""A Markov decision process that is solved exactly, and data of it. S states, H steps, A = 2 actions (-1 and 1)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from temporeal.policies.data.transitions import Transitions


@dataclass(frozen=True)
class Tabular:
    """``move`` [S, 2, S] probabilities, ``reward`` [S, 2], ``first`` [S] probabilities; H steps, then it ends."""

    move: np.ndarray
    reward: np.ndarray
    first: np.ndarray
    horizon: int
    discount: float = 0.9

    def q(self, policy: np.ndarray) -> np.ndarray:
        """Q [H, S, 2] of ``policy`` [S, 2], by dynamic programming."""
        out, after = np.zeros((self.horizon, *self.reward.shape)), np.zeros(len(self.first))
        for t in reversed(range(self.horizon)):
            out[t] = self.reward + self.discount * self.move @ after
            after = (policy * out[t]).sum(1)
        return out

    def value(self, policy: np.ndarray) -> float:
        """Expected return."""
        return float(self.first @ (policy * self.q(policy)[0]).sum(1))

    def trajectories(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All that can happen: states [N, H], actions [N, H], probability [N]."""
        size = range(len(self.first))
        rows = list(itertools.product(*([size, range(2)] * self.horizon)))
        states, actions = np.array(rows)[:, 0::2], np.array(rows)[:, 1::2]
        p = self.first[states[:, 0]] * policy[states, actions].prod(1)
        p = p * self.move[states[:, :-1], actions[:, :-1], states[:, 1:]].prod(1)
        return states[p > 0], actions[p > 0], p[p > 0]

    def sample(self, policy: np.ndarray, episodes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """States [E, H + 1] and actions [E, H]."""
        states, actions = np.zeros((episodes, self.horizon + 1), int), np.zeros((episodes, self.horizon), int)
        states[:, 0] = rng.choice(len(self.first), episodes, p=self.first)
        for t in range(self.horizon):
            actions[:, t] = rng.random(episodes) < policy[states[:, t], 1]
            upto = self.move[states[:, t], actions[:, t]].cumsum(1)
            states[:, t + 1] = (rng.random((episodes, 1)) > upto).sum(1).clip(0, len(self.first) - 1)
        return states, actions

    def transitions(self, states: np.ndarray, actions: np.ndarray) -> Transitions:
        """The same as tensors: observations are one-hot, the last step ends."""
        episodes, one = len(states), torch.eye(len(self.first))
        mask = torch.ones(episodes, self.horizon)
        mask[:, -1] = 0.0
        return Transitions(
            one[states[:, :-1].reshape(-1)], torch.from_numpy(2.0 * actions.reshape(-1, 1) - 1.0).float(),
            torch.from_numpy(self.reward[states[:, :-1], actions].reshape(-1)).float(),
            one[states[:, 1:].reshape(-1)], mask.reshape(-1),
            torch.arange(episodes).repeat_interleave(self.horizon), torch.arange(episodes + 1) * self.horizon)


def random_mdp(states: int = 3, horizon: int = 4, seed: int = 0, discount: float = 0.9) -> Tabular:
    """Random transitions and rewards."""
    rng = np.random.default_rng(seed)
    return Tabular(rng.dirichlet(np.ones(states), (states, 2)), rng.uniform(0, 1, (states, 2)),
                   rng.dirichlet(np.ones(states)), horizon, discount)


def greedy(preferred: list[int], sharpness: float = 1.0) -> np.ndarray:
    """Policy [S, 2] that takes the preferred action with probability ``sharpness``."""
    out = np.full((len(preferred), 2), 1.0 - sharpness)
    out[np.arange(len(preferred)), preferred] = sharpness
    return out
