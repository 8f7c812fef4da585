"""Batches of windows for vision-language-action policies: what is done to them against shortcuts, and prefixes that are
computed once. B windows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from errno import EINVAL, EOPNOTSUPP
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.nets.encoders import is_words
from temporeal.policies.training.chunks.learner import WindowBatches
from temporeal.policies.training.chunks.windows import Batch, Windows
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.advantage import DROPOUT
from temporeal.policies.vla.config import SeeingConfig
from temporeal.policies.vla.encoder import FIRST, POSITIVE, PREFIX, Prefix, VlaEncoder

AT_ONCE = 256  # samples whose prefixes are computed together


class VlaBatches(WindowBatches):
    """Batches whose pictures are lit differently, whose words and numbers are hidden at times. ``held``: windows that
    are not learned from."""

    def __init__(self, data: Windows, config: Any, sizes: Mapping[str, Any], held: Windows | None = None) -> None:
        super().__init__(data, config, sizes)
        self.held = held
        self.seeing: SeeingConfig = config
        self.words = [name for name, spec in data.interface.signals.items() if is_words(spec)]
        unread = set(data.numbers) - set(sizes["interface"]["signals"])  # what is told must be true
        for name in (PREFIX, FIRST, POSITIVE, *unread):
            self.spread.pop(name, None)
        self.mean = {name: data.numbers[name][data.at].mean(0) for name in self.spread}

    def disturbed(self, batch: Batch, generator: torch.Generator) -> Batch:
        """``batch`` with noise, another light, and words, labels and numbers hidden."""
        batch = super().disturbed(batch, generator)
        signals, config = dict(batch.signals), self.seeing
        for name in self.data.pictures if config.light else ():
            signals[name] = relit(signals[name], config.light, generator)
        for name in self.words if config.word_dropout else ():
            kept = torch.rand(signals[name].shape, generator=generator) >= config.word_dropout
            signals[name] = signals[name] * kept
        if POSITIVE in signals:
            signals[POSITIVE] = signals[POSITIVE] * (torch.rand(len(batch.given), generator=generator) >= DROPOUT)
        if config.state_dropout:
            hidden = torch.rand(len(batch.given), generator=generator) < config.state_dropout
            for name, mean in self.mean.items():
                signals[name] = torch.where(hidden.view(-1, *[1] * mean.dim()), mean, signals[name])
        return batch._replace(signals=signals)


def relit(pictures: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """``pictures`` uint8 [B, H, W, colours] with brightness and contrast changed by the share ``most`` at most."""
    brighter, steeper = most * (2.0 * torch.rand(2, len(pictures), 1, 1, 1, generator=generator) - 1.0)
    found = (pictures.float() - 127.5) * (1.0 + steeper) + 127.5 * (1.0 + brighter)
    return found.clamp_(0.0, 255.0).to(torch.uint8)


@torch.no_grad()
def with_maps(data: Windows, prefix: Prefix, config: Any) -> Windows:
    """``data`` with the maps [samples, F] that a frozen network makes of each picture, computed once, in place of the
    pictures, where training looks at these as they are; in a file without a name, for a large set has gigabytes."""
    if config.image_encoder == "own" or config.light or config.shift:
        return data
    found = {}
    for name, pictures in data.pictures.items():
        net = prefix.eyes[name].stem.net
        width = net(torch.from_numpy(np.array(pictures[:1]))).shape[1]
        maps = nameless(len(pictures), width, f"algo.image_encoder={config.image_encoder}: the maps of {name}")
        for first in range(0, len(pictures), AT_ONCE):
            rows = torch.from_numpy(np.array(pictures[first : first + AT_ONCE]))
            maps[first : first + AT_ONCE] = net(rows).numpy()
        found[name] = maps
    return replace(data, pictures=found)


def nameless(rows: int, width: int, what: str) -> np.ndarray:
    """An array [rows, width] of float16 in a file without a name. Its place is taken at once: a write into a
    mapped hole of a full disk ends the process (SIGBUS) and says nothing."""
    file, size = TemporaryFile(), rows * width * np.dtype(np.float16).itemsize
    try:
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in (EINVAL, EOPNOTSUPP):  # this file system cannot
            return np.memmap(file, np.float16, "w+", shape=(rows, width))
        file.close()
        raise SettingsError(f"{what} need {size / 1e9:.3g} GB in {gettempdir()}: {error.strerror}. TMPDIR=FOLDER names "
                            "another folder") from error
    return np.memmap(file, np.float16, "r+", shape=(rows, width))


@torch.no_grad()
def with_prefixes(data: Windows, prefix: Prefix) -> Windows:
    """``data`` with the frozen ``prefix`` of each sample in place of its pictures."""
    found = [prefix(shown(data, rows)) for rows in torch.arange(data.command.shape[0]).split(AT_ONCE)]
    return replace(data, pictures={}, numbers={**data.numbers, PREFIX: torch.cat(found)})


@torch.no_grad()
def with_first_looks(data: Windows, encoder: VlaEncoder, starts: np.ndarray) -> Windows:
    """``data``, which has its prefixes, with the first look of each sample's episode. The samples of episode e are
    ``starts[e]`` to ``starts[e + 1]``."""
    first = {name: value[torch.from_numpy(starts[:-1])] for name, value in data.numbers.items()}
    looks = encoder.look(first[PREFIX], first)
    return replace(data, numbers={**data.numbers, FIRST: looks.repeat_interleave(torch.from_numpy(np.diff(starts)), 0)})


def shown(data: Windows, rows: Tensor) -> dict[str, Tensor]:
    """The signals of the samples ``rows`` [B]."""
    at = rows.numpy()
    return {**{name: value[rows] for name, value in data.numbers.items()},
            **{name: torch.from_numpy(np.ascontiguousarray(value[at])) for name, value in data.pictures.items()}}
