"""What a model of progress is: a number from 0, nothing is done, to 1, the task is done, for every moment.

T samples of an episode, N worlds. Signals are raw, by name, as a dataset holds them and an environment shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from temporeal.policies.data.episodes.interface import Interface


class ProgressModel(Protocol):
    """Progress from what is seen, in two forms: of a whole episode, and of many worlds moment by moment.

    Attributes:
        names: of the signals that it reads. ``interface``: robot, rate and these signals as it learned them; None: it
            fits whatever shows them.
    """

    names: tuple[str, ...]
    interface: Interface | None

    def values(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[T] in [0, 1] of one episode's signals [T, *shape]."""

    def start(self, n: int, every: int = 1) -> None:
        """Begin episodes in ``n`` worlds: the next :meth:`update` is shown their first samples, and each ``every``-th
        one from there on."""

    def update(self, signals: Mapping[str, Tensor], begins: Tensor | None = None) -> Tensor:
        """[N] in [0, 1] at the next samples [N, *shape]. ``begins``: bool [N], worlds in which this is the first sample
        of another episode. A reward is what the value gained since the last call, in the same episode."""
