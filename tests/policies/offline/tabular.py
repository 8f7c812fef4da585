"""A small decision process as a dataset, and its exact solutions. S states, one-hot; one action number."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from temporeal.policies.data.transitions import Transitions

STATES, GAMMA = 3, 0.6
# state, action, reward, next state (None: the task ended), how often
BOTH = [(0, -0.5, 0.0, 1, 2), (0, 0.5, 0.3, 2, 1), (1, -0.5, 0.1, 0, 1), (1, 0.5, 1.0, None, 1),
        (2, -0.5, 0.2, 1, 3), (2, 0.5, 0.0, 0, 1), (2, 0.5, -1.0, None, 1)]
ONE_EACH = [(0, -0.5, 0.2, 1, 2), (1, 0.5, 0.1, 2, 1), (1, 0.5, 1.0, None, 1), (2, 0.25, -0.3, 0, 2)]
"""One action in each state: the data's policy is the only one in them."""


def rows(table: list) -> Transitions:
    """The table as steps; each an episode of its own."""
    kept = [row for row in table for _ in range(row[4])]
    eye = torch.eye(STATES)
    return Transitions(
        obs=torch.stack([eye[s] for s, *_ in kept]), action=torch.tensor([[a] for _, a, *_ in kept]),
        reward=torch.tensor([r for _, _, r, *_ in kept]),
        next_obs=torch.stack([eye[s if n is None else n] for s, _, _, n, _ in kept]),
        mask=torch.tensor([0.0 if n is None else 1.0 for *_, n, _ in kept]),
        episode=torch.arange(len(kept)), starts=torch.arange(len(kept) + 1))


def whole(data: Transitions, **more: torch.Tensor) -> SimpleNamespace:
    """All steps as one batch: no noise of sampling."""
    return SimpleNamespace(obs=data.obs, action=data.action, reward=data.reward, next_obs=data.next_obs,
                           mask=data.mask, rows=torch.arange(data.steps), **more)


def expectile(values: np.ndarray, tau: float) -> float:
    """The ``tau`` expectile of ``values``."""
    found = values.mean()
    for _ in range(200):
        weight = np.where(values > found, tau, 1.0 - tau)
        found = (weight * values).sum() / weight.sum()
    return float(found)


def in_sample(data: Transitions, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Q [M] of each step's state and action, and V [S]: the expectile of Q over the data's actions; by iteration."""
    state, nxt = data.obs.argmax(1).numpy(), data.next_obs.argmax(1).numpy()
    reward, mask, action = data.reward.numpy(), data.mask.numpy(), data.action[:, 0].numpy()
    same = (state[:, None] == state) & (action[:, None] == action)
    value = np.zeros(STATES)
    for _ in range(100):
        quality = (same * (reward + GAMMA * mask * value[nxt])).sum(1) / same.sum(1)
        value = np.array([expectile(quality[state == s], tau) for s in range(STATES)])
    return quality, value


def of_policy(data: Transitions) -> np.ndarray:
    """V [S] of the data's policy by a linear solve: ``(I - gamma P) V = r``."""
    state, nxt = data.obs.argmax(1).numpy(), data.next_obs.argmax(1).numpy()
    chance, reward = np.zeros((STATES, STATES)), np.zeros(STATES)
    for s, n, r, m in zip(state, nxt, data.reward.numpy(), data.mask.numpy()):
        share = 1.0 / (state == s).sum()
        chance[s, n] += share * m
        reward[s] += share * r
    return np.linalg.solve(np.eye(STATES) - GAMMA * chance, reward)
