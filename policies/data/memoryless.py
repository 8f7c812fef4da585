"""Observation maps without what they remember of the policy's own actions.

A policy that is cloned from data and shown its last action learns to repeat it: in the data that is nearly right, and
at a goal it stays beside it (the copycat problem: Wen et al., NeurIPS 2020, arXiv 2010.14876).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from temporeal.sim.maps import Memory, ObserveMap

if TYPE_CHECKING:
    from temporeal.sim.task import Task


class Memoryless(nn.Module):
    """``observe`` as it shows an episode's first sample, at each sample. Its memory goes on: action maps need it."""

    def __init__(self, observe: nn.Module) -> None:
        super().__init__()
        self.observe, of = observe, cast("ObserveMap", observe)
        self.signals, self.memory, self.obs_dim = of.signals, dict(of.memory), of.obs_dim

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the memory for the next control step."""
        nothing = {name: torch.zeros_like(value) for name, value in memory.items()}
        _, after = self.observe(signals, memory)
        obs, _ = self.observe(signals, nothing)
        return obs, after

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the chosen ``action`` [N, A] entered."""
        found: Memory = cast("ObserveMap", self.observe).record(memory, action)
        return found


def shown(task: Task, history: bool) -> Task:
    """``task`` as a policy sees it, with or without ``history``."""
    return task if history or not getattr(task.observe, "memory", None) else replace(
        task, observe=Memoryless(task.observe))
