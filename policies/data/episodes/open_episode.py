"""An episode whose samples come one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import statistics
from temporeal.policies.data.episodes.video import VideoWriter

FIRST = 64  # rows of a buffer, which is doubled when it is full


class OpenEpisode:
    """What there is of an episode. Pictures that are kept as video are encoded at once; some stay, for their figures.

    Args:
        where: its name in messages.
        videos: by column, each a file that is being written.
    """

    def __init__(self, where: str, language: str, info: Mapping[str, Any], videos: Mapping[str, VideoWriter]) -> None:
        self.where, self.language, self.info, self.videos = where, language, info, videos
        self.samples = 0
        self.lacks = True, True  # of policy_action and reward, whether the steps have none
        self.some: dict[str, list[np.ndarray]] = {key: [] for key in videos}
        self._every: dict[str, int] = dict.fromkeys(videos, 1)
        self._buffers: dict[str, np.ndarray] = {}

    def take(self, row: dict[str, np.ndarray]) -> None:
        """A sample: each column [1, *shape]."""
        for key, writer in self.videos.items():
            picture = row.pop(key)
            writer.write(picture[0])
            self._keep_some(key, picture)
        for key, values in row.items():
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = self._buffers[key] = np.empty((FIRST, *values.shape[1:]), values.dtype)
            elif self.samples == len(buffer):
                buffer = self._buffers[key] = np.concatenate([buffer, np.empty_like(buffer)])
            buffer[self.samples] = values[0]
        self.samples += 1

    def columns(self) -> dict[str, np.ndarray]:
        """All so far, [samples, *shape] each."""
        return {key: buffer[: self.samples] for key, buffer in self._buffers.items()}

    def last(self, key: str) -> np.ndarray:
        """The newest row of a column [1, *shape]."""
        return self._buffers[key][self.samples - 1 : self.samples]

    def _keep_some(self, key: str, picture: np.ndarray) -> None:
        """Keep evenly spaced pictures, at most twice :data:`statistics.PICTURES`."""
        if self.samples % self._every[key] == 0:
            self.some[key].append(picture)
        if len(self.some[key]) > 2 * statistics.PICTURES:
            self.some[key], self._every[key] = self.some[key][::2], 2 * self._every[key]
