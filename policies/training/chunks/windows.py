"""Windows of a dataset: the signals at a sample, and the H commands from there on. M windows, B of a batch, U numbers.

Numbers are held in memory; pictures stay where the dataset has them (memory-mapped), and only a batch is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.learnable import ADVICE, require_numbers, unusable
from temporeal.policies.nets.encoders import is_picture, is_words

NARROW = 1e-4  # of its limits' range: a component that moved less than this is taken as constant


class Source(Protocol):
    """The required part of a dataset: see :class:`temporeal.policies.data.episodes.dataset.Dataset`."""

    @property
    def interface(self) -> Interface:
        """What its numbers mean."""

    @property
    def starts(self) -> np.ndarray:
        """[E + 1]: the samples of episode e are ``starts[e]`` to ``starts[e + 1]``."""

    def column(self, name: str) -> np.ndarray:
        """[samples, ...] of a column or signal."""


class Batch(NamedTuple):
    """Signals [B, *shape] by name, the commands [B, H, U] from there on, and which of them [B, H] were given; after an
    episode's last command it is repeated."""

    signals: dict[str, Tensor]
    command: Tensor
    given: Tensor


@dataclass(frozen=True)
class Windows:
    """All windows of a dataset.

    Args:
        interface: of the dataset, with the chosen signals.
        numbers: signals that are no pictures, [samples, *shape]; word numbers stay whole.
        pictures: [samples, H, W, colours] uint8.
        command: [samples, U] in its units.
        at: [M], the sample at which each window begins; each has a command.
        last: [M], the last sample of that episode that has one.
        horizon: H.
    """

    interface: Interface
    numbers: Mapping[str, Tensor]
    pictures: Mapping[str, np.ndarray]
    command: Tensor
    at: Tensor
    last: Tensor
    horizon: int

    def batch(self, which: Tensor) -> Batch:
        """The windows of the numbers ``which`` [B]."""
        at, ahead = self.at[which], torch.arange(self.horizon)
        steps = at[:, None] + ahead
        inside = steps <= self.last[which][:, None]
        rows, order = np.unique(at.numpy(), return_inverse=True)  # a memory-mapped file is read in order, once each
        seen = {name: torch.from_numpy(np.asarray(value[rows])[order]) for name, value in self.pictures.items()}
        return Batch({**{name: value[at] for name, value in self.numbers.items()}, **seen},
                     self.command[torch.minimum(steps, self.last[which][:, None])], inside)

    def span(self, relative: str) -> tuple[Tensor, Tensor]:
        """Smallest and largest command [H, U] of each row of all windows, less :func:`base`. A component that hardly
        moved has the span of its limits."""
        from_here = base(self.numbers[relative][self.at], self.command.shape[1]) if relative else 0.0
        low, high = [], []
        for k in range(self.horizon):
            row = self.command[torch.minimum(self.at + k, self.last)] - from_here
            low.append(row.amin(0))
            high.append(row.amax(0))
        least, most = torch.stack(low), torch.stack(high)
        limits = torch.tensor([self.interface.action.low, self.interface.action.high])
        wide = torch.where((limits[1] - limits[0]).isfinite(), limits[1] - limits[0], torch.ones_like(limits[0]))
        room = torch.where(most - least > NARROW * wide, torch.zeros_like(least), 0.5 * wide)
        return least - room, most + room


STILL = 0.1  # share of a command's own range over the set: what moves less until the episode's end rests


def without_rest(data: Windows, kept: int) -> Windows:
    """``data`` without the windows of a rest at an episode's end, but for the first ``kept`` of each: a demonstrator
    that is done stands still for as long as the episode lasts, and who learns mostly of that stands still too soon.
    """
    given, busy = data.command[data.at], torch.ones(len(data.at), dtype=torch.bool)
    room = STILL * (given.amax(0) - given.amin(0))
    for last in data.last.unique():
        rows = (data.last == last).nonzero()[:, 0]
        ahead = given[rows].flip(0)
        still = (ahead.cummax(0).values - ahead.cummin(0).values <= room).all(1).flip(0)
        first = len(rows) - int(still.sum())  # what rests at a moment rests at all later ones
        busy[rows[first + kept :]] = False
    return replace(data, at=data.at[busy], last=data.last[busy])


def base(signal: Tensor, size: int) -> Tensor:
    """What the commands [N, ``size``] are relative to: a ``signal`` [N, J] for the first J, 0 for the others."""
    return torch.nn.functional.pad(signal, (0, size - signal.shape[1]))


def chosen(interface: Interface, names: Sequence[str]) -> Interface:
    """``interface`` with the signals ``names`` only; without names, with all."""
    if missing := [name for name in names if name not in interface.signals]:
        raise DataError(f"signals {', '.join(missing)} are not in the dataset; it has: {', '.join(interface.signals)}")
    return replace(interface, signals={name: interface.signals[name] for name in names or interface.signals})


def windows(dataset: Source, names: Sequence[str], horizon: int) -> Windows:
    """The windows of ``dataset`` with the signals ``names`` (all if empty)."""
    interface = chosen(dataset.interface, names)
    starts = np.asarray(dataset.starts, dtype=np.int64)
    lengths = np.diff(starts)
    if not len(lengths):
        raise DataError("the dataset has no episodes")
    has = np.asarray(dataset.column("has_action"), dtype=bool)
    ends = np.repeat(starts[1:] - 1, lengths)
    last = ends - ~has[ends]  # the final state has no command
    at = np.flatnonzero(has)
    pictures = {name: dataset.column(name) for name, spec in interface.signals.items() if
                is_picture(spec)}
    numbers = {name: tensor(dataset.column(name), np.int32 if is_words(spec) else np.float32)
               for name, spec in interface.signals.items() if name not in pictures}
    command = tensor(dataset.column("action"))
    for name, values in numbers.items():
        require_numbers(values, name, "", starts)
    check(command[at], interface, ends[at], starts)
    return Windows(interface, numbers, pictures, command, torch.from_numpy(at), torch.from_numpy(last[at]), horizon)


def check(command: Tensor, interface: Interface, ends: np.ndarray, starts: np.ndarray) -> None:
    """Refuse commands that are not numbers, by episode."""
    bad = unusable(command, 1).nonzero()[:, 0].numpy()
    if len(bad):
        episode = int(np.searchsorted(starts, ends[bad[0]], side="right")) - 1
        raise DataError(f"episode {episode}: command {interface.action.name} is not finite at {len(bad)} samples, "
                        f"or huge; {ADVICE}")


def tensor(column: Any, dtype: Any = np.float32) -> Tensor:
    """A column in memory of its own."""
    return torch.from_numpy(np.array(column, dtype=dtype))
