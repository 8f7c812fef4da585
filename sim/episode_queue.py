"""The next episode of each world, drawn ahead.

A step ends few episodes, and drawing for few worlds costs as much as drawing for all: as soon as one start is missing,
all that are used up are drawn. Draws are keyed by episode, so when they are made does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.sim.compiler import vectorize
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.episodes import Draws, EpisodeDistribution, draw_episodes, draw_samples
from temporeal.sim.step_table import StepTable


class Start(NamedTuple):
    """How K worlds begin: [K, ...] each."""

    parameters: dict[str, Tensor]  # of the backend
    appearance: dict[str, Tensor]  # of the camera rig
    state: dict[str, Tensor]  # of the backend
    rows: Tensor  # [K, F] of the table, before the first observation
    mid_episode: Tensor  # bool


class EpisodeQueue:
    """A start for each of the N worlds of ``table``, where it is ``ready`` [N]."""

    def __init__(self, table: StepTable) -> None:
        self.table, n = table, table.num_worlds
        # one world after the other, because few are read at a time
        rows = torch.zeros(n, len(table.rows), device=table.device)
        self.ready = torch.zeros(n, dtype=torch.bool, device=table.device)
        self.starts = Start({}, {}, {}, rows, torch.zeros_like(self.ready))

    def forget(self) -> None:
        """Draw all starts anew that are there already: where they come from has changed."""
        self.ready[:] = False

    def draw(self, wanted: Tensor, distribution: EpisodeDistribution, keys: Tensor, episode: Tensor) -> None:
        """Draw the starts of the worlds that are ``wanted`` [N]: of the episodes that follow ``episode`` [N], by the
        worlds' ``keys`` [N]."""
        ids = wanted.nonzero()[:, 0]
        if len(ids):
            self.put(distribution, ids, draw_episodes(distribution, keys[ids], episode[ids] + 1))

    def take(self, ids: Tensor) -> Start:
        """The starts of the worlds ``ids`` [K], which are then used up, whatever comes of them."""
        self.ready.index_fill_(0, ids, False)
        groups = ({k: v.index_select(0, ids) for k, v in group.items()} for group in self.starts[:3])
        return Start(*groups, *(x.index_select(0, ids) for x in self.starts[3:]))

    def put(self, distribution: EpisodeDistribution, ids: Tensor, drawn: Draws) -> None:
        """The worlds ``ids`` [K] begin their next episodes as ``drawn``."""
        columns = self.table.columns
        extra = {f"extra.{k}": v for k, v in drawn.state.items() if f"extra.{k}" in columns}
        state = {k: v for k, v in drawn.state.items() if f"extra.{k}" not in columns}
        for group, values in zip(self.starts[:3], (drawn.parameters, drawn.appearance, state)):
            for name, value in values.items():
                if name not in group:
                    group[name] = value.new_zeros(self.table.num_worlds, *value.shape[1:])
                group[name][ids] = value
        rows = vectorize.table(columns, len(ids), self.table.device)
        self._write(distribution, drawn, vectorize.views(rows, columns, len(ids)), extra)
        self.starts.rows.index_copy_(0, ids, rows[:, : len(ids)].T)
        self.starts.mid_episode[ids] = drawn.mid_episode
        self.ready[ids] = True

    def _write(
        self, distribution: EpisodeDistribution, drawn: Draws, column: Mapping[str, Tensor], extra: Mapping[str, Tensor]
    ) -> None:
        """Fill the columns of a start."""
        for name, value in drawn.memory.items():
            for place in self._places(name, column):
                column[place].copy_(value)
        column["until"].copy_(last_step(distribution, drawn, column["count"], float(self.table.functions.task.steps)))
        for name, value in (*drawn.sensors.items(), *extra.items()):
            column[name].copy_(value)
        draw_samples(distribution, drawn.worlds, drawn.episode, column["count"].long(), column)

    def _places(self, name: str, column: Mapping[str, Tensor]) -> list[str]:
        """The columns that hold ``name`` of the memory of a start; ``tick`` is the count, too."""
        places = [place for place in (f"memory.{name}", f"progress.{name}") if place in column]
        if not places and name != "tick":
            f = self.table.functions
            known = sorted({*f.observe.memory, *f.objective.carry, "tick"})
            raise ValueError(f"a start of task {f.task.name!r} has memory {name!r}, which neither its maps nor its "
                             f"objective remember; known: {', '.join(known)}")
        return [*places, "count"] if name == "tick" else places


def last_step(distribution: EpisodeDistribution, drawn: Draws, count: Tensor, steps: float) -> Tensor:
    """The step [K] at which episodes that begin at step ``count`` [K] are cut off: ``steps``, or earlier where they
    begin in mid-episode and the distribution truncates such episodes.

    Their lengths are at least 1 and geometric. Were all equal, no episode would show what a policy comes to in more
    steps, and its values there would rest on nothing but each other.
    """
    whole = torch.full_like(count, steps)
    mean = distribution.truncate_after
    if mean is None:
        return whole
    u = uniform(distribution.seed, drawn.worlds, drawn.episode, stream("excerpt"), 1)[:, 0]
    scale = -1.0 / math.log1p(-1.0 / mean) if mean > 1 else 0.0
    length = 1.0 + torch.floor(-scale * torch.log1p(-u))
    return torch.where(drawn.mid_episode, torch.minimum(count + length, whole), whole)
