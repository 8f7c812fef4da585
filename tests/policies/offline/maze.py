"""A point in a winding corridor, and data in which nobody went all the way: to arrive, episodes must be stitched.

Cells of size 1, coordinates [x, y]; ``#`` is wall. N points. Observation [x, y, goal x, goal y], action: velocity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions

HAIRPIN = (".....",
           "####.",
           ".....")
"""Straight at the goal is a wall: the way from one end to the other has 11 cells."""
ENDS = (0, 0), (0, 2)
NOISE = 0.3  # standard deviation of what is added to actions, in the data and in trials
SPEED = 0.7  # cells per step at action 1
REACHED = 0.5  # distance to the goal

Policy = Callable[[Tensor], Tensor]
Walk = tuple[np.ndarray, np.ndarray]
"""Places [T + 1, 2] and actions [T, 2]."""


class Maze:
    """Open cells and the ways between them."""

    def __init__(self, rows: tuple[str, ...] = HAIRPIN) -> None:
        self.open = np.array([[cell == "." for cell in row] for row in rows])  # [y, x]
        self.cells = [(int(x), int(y)) for y, x in zip(*np.nonzero(self.open))]

    def free(self, place: np.ndarray) -> np.ndarray:
        """Whether ``place`` [N, 2] lies in an open cell."""
        cell = np.floor(place).astype(int)
        inside = ((cell >= 0) & (cell < self.open.shape[::-1])).all(1)
        x, y = np.where(inside[:, None], cell, 0).T
        return inside & self.open[y, x]

    def move(self, place: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Next places [N, 2]: each axis moves unless a wall is in the way."""
        for axis in (0, 1):
            tried = place.copy()
            tried[:, axis] += SPEED * np.clip(action[:, axis], -1.0, 1.0)
            place = np.where(self.free(tried)[:, None], tried, place)
        return place

    def way(self, start: tuple[int, int], goal: tuple[int, int]) -> list[tuple[int, int]]:
        """Cells of the shortest way."""
        before: dict[tuple[int, int], tuple[int, int]] = {goal: goal}
        queue = deque([goal])
        while start not in before:
            x, y = queue.popleft()
            for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if cell in self.cells and cell not in before:
                    before[cell] = (x, y)
                    queue.append(cell)
        way = [start]
        while way[-1] != goal:
            way.append(before[way[-1]])
        return way

    def follow(self, way: list[tuple[int, int]], rng: np.random.Generator) -> Walk:
        """Along the cells of ``way``."""
        place = np.array([way[0]], float) + rng.uniform(0.3, 0.7, (1, 2))
        places, actions = [place[0]], []
        for cell in way[1:]:
            middle = np.array(cell) + rng.uniform(0.35, 0.65, 2)
            while np.abs(middle - place).max() > 0.25:
                action = np.clip((middle - place) / SPEED + NOISE * rng.normal(size=(1, 2)), -1.0, 1.0)
                place = self.move(place, action)
                places.append(place[0])
                actions.append(action[0])
        return np.array(places), np.array(actions)

    def pieces(self, episodes: int, cells: int, seed: int = 0, forward: float = 0.5) -> list[Walk]:
        """Walks along ``cells`` cells of the corridor at most, a share ``forward`` of them towards its last end."""
        rng, corridor, out = np.random.default_rng(seed), self.way(*self.ends()), list[Walk]()
        while len(out) < episodes:
            first = int(rng.integers(1 - cells, len(corridor) - 1))
            way = corridor[max(first, 0):first + cells + 1]
            if len(way) > 1:
                out.append(self.follow(way if rng.random() < forward else way[::-1], rng))
        return out

    def ends(self) -> list[tuple[int, int]]:
        """Cells with one neighbour."""
        return [(x, y) for x, y in self.cells
                if sum(near in self.cells for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1))) == 1]


def transitions(walks: list[Walk], goal: np.ndarray | None = None) -> Transitions:
    """Steps of ``walks``. ``goal`` [2]: reward 0 and an end there, -1 elsewhere; None: the goal slots are zero."""
    lengths = [len(actions) for _, actions in walks]
    asked = np.zeros(2) if goal is None else goal
    now, after = (torch.from_numpy(np.concatenate([
        np.concatenate((places[cut], np.broadcast_to(asked, places[cut].shape)), 1) for places, _ in walks])).float()
        for cut in (slice(None, -1), slice(1, None)))
    arrived = torch.zeros(len(now), dtype=torch.bool) if goal is None else \
        (after[:, :2] - after[:, 2:]).norm(dim=1) < REACHED
    return Transitions(
        now, torch.from_numpy(np.concatenate([actions for _, actions in walks])).float(), arrived.float() - 1.0,
        after, 1.0 - arrived.float(), torch.arange(len(walks)).repeat_interleave(torch.tensor(lengths)),
        torch.tensor([0, *np.cumsum(lengths)]), obs_names=("place.0", "place.1", "goal.0", "goal.1"))


def success(
    maze: Maze, policy: Policy, start: tuple[int, int], goal: tuple[int, int], runs: int = 50, steps: int = 150
) -> float:
    """How many of ``runs`` from ``start`` come to the middle of cell ``goal``."""
    rng = np.random.default_rng(7)
    place = np.array(start) + rng.uniform(0.3, 0.7, (runs, 2))
    asked = np.broadcast_to(np.array(goal) + 0.5, place.shape)
    arrived = np.zeros(runs, bool)
    for _ in range(steps):
        with torch.no_grad():
            action = policy(torch.from_numpy(np.concatenate((place, asked), 1)).float()).numpy()
        action = action + NOISE * rng.normal(size=action.shape)
        place = np.where(arrived[:, None], place, maze.move(place, action))
        arrived |= np.linalg.norm(place - asked, axis=1) < REACHED
    return float(arrived.mean())
