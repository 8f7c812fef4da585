"""Files of somebody else's into one dataset: what is good is kept, what is not is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface, differences
from temporeal.policies.data.episodes.layout import INFO
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.found import Reading, Rejected

Progress = Callable[[str, int, int], None]
"""``progress(what, done, of)``: episodes of a file, or samples of an episode that takes long."""
OFTEN = 100  # samples between two words of it


@dataclass(frozen=True)
class File:
    """A file, and how it is read. ``limits_of_data``: nothing but its commands says between which limits they are."""

    path: Path
    read: Callable[[], Reading]
    limits_of_data: bool = True


@dataclass(frozen=True)
class Options:
    """How a set is written.

    Args:
        append: to the set that is there.
        pictures: see DatasetWriter.
        clip: bring commands within [-1, 1].
        language: the instruction of episodes that have none.
    """

    append: bool = False
    pictures: str = "h264-fast"
    clip: bool = False
    language: str = ""


@dataclass
class Result:
    """What came of it: episodes that were imported, those that were left out, and what the user should know."""

    episodes: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write(out: Path, files: list[File], options: Options, progress: Progress | None = None) -> Result:
    """Write the episodes of ``files`` to the dataset ``out``.

    Raises:
        DataError: not one episode is good, which says why, or ``out`` cannot be written.
    """
    target = Target(out, options, interface_before(out, files, options), progress)
    try:
        for file in files:
            target.take(file)
    finally:
        target.close()
    result = target.result
    if not result.episodes:
        raise DataError("no episode is imported: " + ("; ".join(map(str, result.rejected[:5])) or "there is none"))
    return result


def interface_before(out: Path, files: list[File], options: Options) -> Interface | None:
    """The interface of the set that is appended to; of several files whose limits are those of their data, one that
    takes them all; None: it is that of the first file."""
    if options.append and (out / INFO).exists():
        return Dataset.open(out).interface
    if len(files) < 2 or not all(file.limits_of_data for file in files):
        return None
    found = [reading.interface for file in files if isinstance(reading := attempted(file), Reading)]
    alike = [each for each in found if not unlike(found[0], each)]
    if not alike:
        return None
    low, high = (tuple(map(float, of([getattr(each.action, side) for each in alike], axis=0)))
                 for side, of in (("low", np.min), ("high", np.max)))
    return clipping(replace(found[0], action=replace(found[0].action, low=low, high=high)), options)


def attempted(file: File) -> Reading | Rejected:
    """The reading of a file, or why there is none."""
    try:
        return file.read()
    except checks.DAMAGED as error:
        return checks.rejected(str(file.path), error)


def unlike(wanted: Interface, found: Interface) -> str:
    """What differs besides the limits of the command, in words; "": nothing."""
    limits = replace(found.action, low=wanted.action.low, high=wanted.action.high)
    return "; ".join(differences(wanted, replace(found, action=limits) if found.action.size == wanted.action.size
                                 else found))


def clipping(interface: Interface, options: Options) -> Interface:
    """The interface with limits of [-1, 1], if commands are clipped."""
    if not options.clip:
        return interface
    size = interface.action.size
    return replace(interface, action=replace(
        interface.action, low=(-checks.CONVENTION,) * size, high=(checks.CONVENTION,) * size))


class Target:
    """The set that is written: begun with the first good episode."""

    def __init__(self, out: Path, options: Options, interface: Interface | None, progress: Progress | None) -> None:
        self.out, self.options, self.interface, self.progress = out, options, interface, progress
        self.result = Result()
        self.writer: DatasetWriter | None = None

    def take(self, file: File) -> None:
        """The episodes of one file."""
        reading = attempted(file)
        if isinstance(reading, Rejected):
            self.result.rejected.append(reading)
            return
        self.result.notes += [note for note in reading.notes if note not in self.result.notes]
        if self.interface is None:
            self.interface = clipping(reading.interface, self.options)
        if said := unlike(self.interface, reading.interface):
            self.result.rejected.append(Rejected(str(file.path), f"the interfaces differ: {said}"))
            return
        for lazy, episodes in groupby(self.good(file.path, reading.episodes, self.interface), key=is_lazy):
            before = self.result.episodes
            if lazy:
                for episode in episodes:
                    self.stream(file.path, episode)
            else:
                self.result.episodes = before + self.begun().add_many(self.counted(episodes, before))

    def good(
        self, path: Path, found: Iterable[Episode | Rejected], interface: Interface
    ) -> Iterator[Episode]:
        """The episodes that the set can take; the others are listed."""
        for each in found:
            if isinstance(each, Episode):
                each = replace(each, language=each.language or self.options.language)
                each = checks.clipped(each, interface.action) if self.options.clip else each
                where = f"{path}, episode {each.info['episode']}" if "episode" in each.info else str(path)
                each = checks.attempted(where, partial(replace, each), interface)
            if isinstance(each, Episode):
                yield each
            else:
                self.result.rejected.append(each)

    def counted(self, episodes: Iterable[Episode], before: int) -> Iterator[Episode]:
        """The episodes; progress is told."""
        for count, each in enumerate(episodes, start=before + 1):
            yield each
            if self.progress is not None:
                self.progress("episodes", count, count + 1)

    def begun(self) -> DatasetWriter:
        """The writer."""
        if self.writer is None:
            assert self.interface is not None
            self.writer = DatasetWriter(
                self.out, self.interface, append=self.options.append, pictures=self.options.pictures)
        return self.writer

    def stream(self, path: Path, episode: Episode) -> None:
        """Write an episode whose pictures are decoded one by one; where one cannot be, the episode is left out."""
        writer = self.begun()
        writer.begin(episode.language, episode.info)
        try:
            for number, sample in enumerate(samples_of(episode)):
                if self.progress is not None and number % OFTEN == 0:
                    self.progress(f"episode {self.result.episodes}, samples", number, episode.samples)
                if number < episode.steps:
                    writer.step(sample, episode.action[number])
                else:
                    writer.end(sample, episode.terminated, episode.success)
            if episode.samples == episode.steps:
                writer.end(None, episode.terminated, episode.success)
        except ValueError as error:  # a picture that cannot be decoded; a full disk is no fault of the episode
            writer.discard()
            self.result.rejected.append(Rejected(str(path), str(error)))
        else:
            self.result.episodes += 1

    def close(self) -> None:
        """End the set."""
        if self.writer is not None:
            self.writer.close()


def is_lazy(episode: Episode) -> bool:
    """Whether some of its pictures are not decoded yet."""
    return any(not isinstance(values, np.ndarray) for values in episode.signals.values())


def samples_of(episode: Episode) -> Iterator[dict[str, np.ndarray]]:
    """Its samples, one by one."""
    for values in zip(*episode.signals.values()):
        yield dict(zip(episode.signals, values))
