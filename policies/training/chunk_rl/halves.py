"""Two halves of the worlds, flown at the same time by two threads: while one infers, the other renders or simulates.

Physics, rendering and networks leave Python's lock to the other thread while they compute. Both halves act by the same
weights, so that nothing that is learned of is older than an update; each has random numbers of its own, so that results
do not depend on who was faster. N worlds of a half.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

from temporeal.policies.training.chunk_rl.rollouts import Rollout, joined
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv, ChunkWorlds, Draw


class Worlds(Protocol):
    """What a learner collects from. ``env``: whose episodes can be chosen."""

    env: ChunkEnv

    @property
    def steps(self) -> int:
        """Control steps of all worlds so far."""

    @property
    def critic_dim(self) -> int:
        """P."""

    def context_dim(self) -> int:
        """Numbers of a context."""

    def rollout(self, draw: Draw, steps: int, generator: torch.Generator, *, once: bool = False) -> Rollout:
        """Play ``steps`` control steps of every world."""

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


class Halves:
    """Two sets of worlds as one: :class:`Worlds`. ``side_by_side``: false: one after the other, with the same results
    bit for bit, which is what that is for."""

    def __init__(self, first: ChunkWorlds, second: ChunkWorlds, side_by_side: bool = True) -> None:
        self.first, self.second, self.env = first, second, first.env
        self.pool = ThreadPoolExecutor(1 + side_by_side, thread_name_prefix="worlds",
                                       initializer=torch.set_num_threads, initargs=(1,))

    @property
    def steps(self) -> int:
        """Of both."""
        return self.first.steps + self.second.steps

    @property
    def critic_dim(self) -> int:
        """Of each."""
        return self.first.critic_dim

    def context_dim(self) -> int:
        """Of each."""
        return self.first.context_dim()

    def rollout(self, draw: Draw, steps: int, generator: torch.Generator, *, once: bool = False) -> Rollout:
        """Both, side by side."""
        seeds = torch.randint(2**62, (2,), generator=generator).tolist()
        running = [self.pool.submit(half.rollout, draw, steps, torch.Generator().manual_seed(seed), once=once)
                   for half, seed in zip((self.first, self.second), seeds)]
        return joined([each.result() for each in running])

    def state_dict(self) -> dict[str, Any]:
        """Of both."""
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of both."""
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])
