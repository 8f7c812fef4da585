"""The instruction of each sample of a dataset, and the words it is made of.

Sets of the tabletop suite and of Meta-World have it as a signal, in the words of their task. Of any other set of
LeRobotDataset v3 the sentence of each episode is taken, and the words are those of the set: they are kept in the
checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.nets.encoders import is_words
from temporeal.policies.training.chunks.windows import Source
from temporeal.robots.signals import SignalSpec
from temporeal.sim.adapters.vocabularies import vocabulary_of
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION, InstructionError, Vocabulary, words_of


@dataclass(frozen=True)
class Worded:
    """A dataset with the signal ``instruction``, of the sentences of its episodes."""

    data: Source
    vocabulary: Vocabulary
    sentences: Sequence[str]

    @property
    def interface(self) -> Interface:
        """With the instruction."""
        found = self.data.interface
        spec = SignalSpec(INSTRUCTION.name, (self.vocabulary.length,), INSTRUCTION.unit, "", INSTRUCTION.dtype)
        return replace(found, signals={**found.signals, spec.name: spec})

    @property
    def starts(self) -> np.ndarray:
        """As the dataset's."""
        return self.data.starts

    @property
    def records(self) -> Sequence[Any]:
        """As the dataset's: RECAP asks them whether an episode succeeded."""
        found: Sequence[Any] = getattr(self.data, "records", ())
        return found

    def column(self, name: str) -> np.ndarray:
        """A column or signal of all samples."""
        if name != INSTRUCTION.name:
            return self.data.column(name)
        rows = np.stack([self.vocabulary.encode(text) for text in self.sentences])
        return np.repeat(rows, np.diff(self.starts), axis=0)


def worded(data: Source, known: Vocabulary | None = None) -> tuple[Source, Vocabulary | None]:
    """``data`` with its instruction, and its words: those that are ``known`` already, if any are. None: it has one
    sentence or none, so that there is nothing to read."""
    if said := [spec for spec in data.interface.signals.values() if is_words(spec)]:
        try:
            vocabulary = vocabulary_of(data.interface.task)
        except InstructionError as error:
            raise DataError(str(error)) from error
        check_numbers(data, said[0], vocabulary)
        if known is not None and known != vocabulary:
            raise DataError("algo.policy: the run knows other words than the dataset's, in which its sentences are "
                            "written as numbers")
        return data, vocabulary
    sentences = [record.language for record in getattr(data, "records", ())]
    if known is None and len({text.strip() for text in sentences}) < 2:
        return data, None
    vocabulary = words_in(sentences) if known is None else known
    check_sentences(sentences, vocabulary)
    return Worded(data, vocabulary, sentences), vocabulary


def words_in(sentences: Sequence[str]) -> Vocabulary:
    """The words of ``sentences``; those without any have none."""
    said = [words_of(text) for text in sentences if text.strip()]
    return Vocabulary(tuple(sorted({word for words in said for word in words})),
                      max(INSTRUCTION.shape[0], *map(len, said)))


def check_sentences(sentences: Sequence[str], vocabulary: Vocabulary) -> None:
    """Refuse sentences, one an episode, that ``vocabulary`` cannot write."""
    for episode, text in enumerate(sentences):
        try:
            vocabulary.encode(text)
        except InstructionError as error:
            raise DataError(f"episode {episode}: {error}") from error


def check_numbers(data: Source, spec: SignalSpec, vocabulary: Vocabulary) -> None:
    """Refuse word numbers that are not of ``vocabulary``, by episode."""
    if spec.shape != (vocabulary.length,):
        raise DataError(f"signal {spec.name} has shape {spec.shape}; the sentences of task {data.interface.task} have "
                        f"({vocabulary.length},)")
    rows: Any = np.asarray(data.column(spec.name))
    bad = np.flatnonzero(((rows < 0) | (rows > len(vocabulary.words))).any(1))
    if len(bad):
        episode = int(np.searchsorted(data.starts, bad[0], side="right")) - 1
        raise DataError(f"episode {episode}: signal {spec.name} at sample {bad[0]} has the word numbers "
                        f"{rows[bad[0]].tolist()}; those of task {data.interface.task} are 1 to "
                        f"{len(vocabulary.words)}, and 0 is no word")
