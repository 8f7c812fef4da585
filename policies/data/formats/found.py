"""What a reader finds in a file of somebody else's: episodes, and those that it had to leave out.

Every reader of this room is ``read(path, ...) -> Reading``. The interface is known before the first episode is read;
the episodes come one by one, so that a file may be larger than memory. An episode that breaks a rule does not end the
reading: it comes as :class:`Rejected`, which says why, and the others are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface


@dataclass(frozen=True)
class Rejected:
    """An episode that is not imported: where it is (file, episode), and why, with signal and index."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class Reading(NamedTuple):
    """What a reader found. ``notes``: what the user should know, a sentence each."""

    interface: Interface
    episodes: Iterator[Episode | Rejected]
    notes: tuple[str, ...] = ()


def strict(found: Iterable[Episode | Rejected]) -> Iterator[Episode]:
    """The episodes; a rejected one is a :class:`DataError`."""
    for each in found:
        if isinstance(each, Rejected):
            raise DataError(str(each))
        yield each
