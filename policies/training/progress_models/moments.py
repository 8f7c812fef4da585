"""The moments of a dataset as models of progress learn from them: which sample of which episode, and how that ended.

S samples, E episodes. Numbers are held in memory; pictures stay where the dataset has them (memory-mapped).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.learnable import require_numbers
from temporeal.policies.nets.encoders import is_picture
from temporeal.policies.training.chunks.windows import chosen, tensor


class Source(Protocol):
    """The required part of a dataset: see :class:`temporeal.policies.data.episodes.dataset.Dataset`."""

    @property
    def interface(self) -> Interface:
        """What its numbers mean."""

    @property
    def starts(self) -> np.ndarray:
        """[E + 1]: the samples of episode e are ``starts[e]`` to ``starts[e + 1]``."""

    @property
    def records(self) -> Sequence[Any]:
        """[E], each with ``success``: True, False, or None where nobody judged."""

    def column(self, name: str) -> np.ndarray:
        """[samples, ...] of a column or signal."""


@dataclass(frozen=True)
class Moments:
    """All moments of a dataset.

    Args:
        interface: of the dataset, with the chosen signals.
        numbers: signals that are no pictures, [S, *shape].
        pictures: [S, H, W, colours] uint8.
        command: [S, U] in its units.
        starts: [E + 1] int64.
        success: [E] float: 1, or 0 where the episode was judged a failure. What nobody judged is a demonstration.
        done: [E] int64, the sample at which a demonstration had done its task; after it there is only rest. That of a
            failure is its last one.
    """

    interface: Interface
    numbers: Mapping[str, Tensor]
    pictures: Mapping[str, np.ndarray]
    command: Tensor
    starts: Tensor
    success: Tensor
    done: Tensor

    @property
    def lengths(self) -> Tensor:
        """[E] samples."""
        return self.starts.diff()

    @property
    def mean_length(self) -> float:
        """Mean samples until demonstrations had done their tasks."""
        return float((self.done - self.starts[:-1])[self.success > 0].float().mean())

    def signals(self, at: Tensor) -> dict[str, Tensor]:
        """The signals [..., *shape] of the samples ``at`` [...]."""
        rows, order = np.unique(at.numpy().ravel(), return_inverse=True)  # a mapped file is read in order, once each
        seen = {name: torch.from_numpy(np.asarray(value[rows])[order]).reshape(*at.shape, *value.shape[1:])
                for name, value in self.pictures.items()}
        return {**{name: value[at] for name, value in self.numbers.items()}, **seen}

    def at(self, episode: Tensor, share: Tensor) -> Tensor:
        """The samples [...] at a ``share`` [...] of the way through ``episode`` [...], 0 the first and 1 the last."""
        return self.starts[episode] + (share * (self.lengths[episode] - 1)).round().long()

    def progress(self, episode: Tensor, sample: Tensor) -> Tensor:
        """What is taught of samples [...]: the share [...] of the time until the task was done; 0 in failures."""
        first = self.starts[episode]
        return ((sample - first) / (self.done[episode] - first)).clamp(max=1.0) * self.success[episode]

    def later(self, episode: Tensor, sample: Tensor, steps: Tensor | int) -> tuple[Tensor, Tensor]:
        """The samples [B] so many ``steps`` after ``sample`` [B] and not after the task was done, and whether [B] it
        was by then."""
        end = torch.maximum(self.done[episode], sample)
        found = torch.minimum(sample + steps, end)
        return found, found == end

    def fingerprint(self) -> str:
        """SHA-256 of the interface, the numbers, the commands and the verdicts."""
        found = hashlib.sha256(self.interface.digest().encode())
        for value in (self.starts, self.success, self.command, *self.numbers.values()):
            found.update(value.numpy().tobytes())
        return found.hexdigest()


def moments(data: Source, names: Sequence[str], done: np.ndarray | None = None) -> Moments:
    """The moments of ``data`` with the signals ``names`` (all if empty). Bad data: :class:`DataError`.

    Args:
        done: [E], counted from each episode's start, the sample at which its task was done; None: the last ones.
    """
    interface = chosen(data.interface, names)
    starts = np.asarray(data.starts, dtype=np.int64)
    if not len(data.records):
        raise DataError("the dataset has no episodes")
    if (short := np.flatnonzero(np.diff(starts) < 2)).size:
        raise DataError(f"episode {short[0]} has {int(np.diff(starts)[short[0]])} samples; progress needs at least 2")
    pictures = {name: data.column(name) for name, spec in interface.signals.items() if is_picture(spec)}
    numbers = {name: tensor(data.column(name)) for name in interface.signals if name not in pictures}
    for name, values in numbers.items():
        require_numbers(values, name, "", starts)
    success = torch.tensor([float(record.success is not False) for record in data.records])
    last = np.diff(starts) - 1
    done = starts[:-1] + np.where(success.numpy() > 0, last if done is None else np.clip(done, 1, last), last)
    return Moments(interface, numbers, pictures, tensor(data.column("action")), torch.from_numpy(starts), success,
                   torch.from_numpy(done))


def held_out(count: int, every: int) -> Tensor:
    """Numbers of the episodes, of ``count``, that are not learned from: each ``every``-th one; none where that is 0."""
    return torch.arange(min(every - 1, count), count, every) if every else torch.arange(0)


def learned_from(count: int, every: int) -> Tensor:
    """Numbers of the others."""
    out = set(held_out(count, every).tolist())
    return torch.tensor([k for k in range(count) if k not in out])
