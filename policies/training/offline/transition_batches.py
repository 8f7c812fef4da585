"""Batches of transitions: rows of one table, normalized once, drawn with a seeded generator. M steps, B rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.normalizer import Normalizer, moments


class TransitionBatches:
    """Batches of ``data``: ``obs`` [B, O], ``action`` [B, A], ``reward`` [B], ``next_obs`` [B, O], ``mask`` [B], which
    ``rows`` [B] these are, and what ``more`` holds by name, [M] or [M, K].

    A row is drawn with a chance proportional to its episode's weight, with replacement.

    Args:
        normalize: observations by their mean and standard deviation over all steps.
    """

    def __init__(
        self, data: Transitions, batch: int, *, normalize: bool = True, more: Mapping[str, Tensor] | None = None
    ) -> None:
        self.batch, self.steps = batch, data.steps
        self.normalizer = normalizer_of(data, normalize)
        self.sizes = {"obs_dim": data.obs.shape[1], "action_dim": data.action.shape[1]}
        columns = {"obs": self.normalizer(data.obs), "action": data.action, "reward": data.reward,
                   "next_obs": self.normalizer(data.next_obs), "mask": data.mask, **(more or {})}
        self.flat = {name for name, column in columns.items() if column.ndim == 1}
        self.widths = [1 if name in self.flat else column.shape[1] for name, column in columns.items()]
        self.names = list(columns)
        self.table = torch.cat([column.reshape(len(column), -1) for column in columns.values()], 1)
        self.chance = None if data.weight is None else chances(data)

    @lru_cache(maxsize=1)  # noqa: B019 (one per run)
    def fingerprint(self) -> str:
        """SHA-256 of all rows and chances: of the data that a run learns from."""
        found = hashlib.sha256(memoryview(self.table.numpy()).cast("B"))
        if self.chance is not None:
            found.update(memoryview(self.chance.numpy()).cast("B"))
        return found.hexdigest()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Any]:
        """``count`` batches. Each is valid until the next is taken."""
        rows = self.table.new_empty(self.batch, self.table.shape[1])
        batch = SimpleNamespace(**self.columns(rows))
        for chosen in self._chosen(generator, count):
            torch.index_select(self.table, 0, chosen, out=rows)
            batch.rows = chosen
            yield batch

    def columns(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the columns of ``rows`` [B, .] by name."""
        parts = zip(self.names, rows.split(self.widths, 1))
        return {name: part[:, 0] if name in self.flat else part for name, part in parts}

    def _chosen(self, generator: torch.Generator, count: int) -> Tensor:
        """Rows [count, B] that are drawn."""
        if self.chance is None:
            return torch.randint(self.steps, (count, self.batch), generator=generator)
        drawn = torch.rand(count, self.batch, generator=generator, dtype=torch.float64) * self.chance[-1]
        return torch.searchsorted(self.chance, drawn, right=True).clamp(max=self.steps - 1)


def normalizer_of(data: Transitions, normalize: bool = True) -> Normalizer:
    """By mean and standard deviation of all observations; nothing but its limit if not ``normalize``."""
    found = Normalizer(data.obs.shape[1])
    if normalize:
        found.update(moments(data.obs))
    return found


def chances(data: Transitions) -> Tensor:
    """Cumulative chance [M] (float64, not normalized) of the steps by their episodes' weights."""
    assert data.weight is not None
    weight = data.weight.double()
    if len(weight) != len(data.starts) - 1 or not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
        raise ValueError("weights of episodes are finite and not negative, one for each episode")
    each = weight[data.episode]
    if not float(each.sum()) > 0:
        raise ValueError("all episodes that have steps have weight 0: there is nothing to learn from")
    return each.cumsum(0)
