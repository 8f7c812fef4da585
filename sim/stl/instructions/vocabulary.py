"""Sentences as word numbers: the signal ``instruction``. numpy only: the robot encodes what an operator types.

A word that a policy never saw means nothing to it, so an unknown word is an error, never a number of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.signals import SignalSpec

LENGTH = 16
INSTRUCTION = SignalSpec("instruction", (LENGTH,), "token", "", "int32")
"""Word numbers of the sentence, 0: nothing."""

MARKS = str.maketrans(dict.fromkeys(".,!?;:\"'", " "))


class InstructionError(ValueError):
    """A sentence that is no instruction; the message names what would be one."""


def words_of(text: str) -> list[str]:
    """The words of ``text`` in lower case, without punctuation. :class:`InstructionError` where there are none."""
    if not isinstance(text, str):
        raise InstructionError(f"an instruction is a text, got {type(text).__name__}")
    words = text.lower().translate(MARKS).split()
    if not words:
        raise InstructionError("the instruction is empty: type a sentence, as 'pick up the red cube'")
    return words


@dataclass(frozen=True)
class Vocabulary:
    """The words that a policy knows. The number of a word is its place, counted from 1.

    Args:
        words: in lower case, each once.
        length: L, the most words of a sentence.
    """

    words: tuple[str, ...]
    length: int = LENGTH

    def __post_init__(self) -> None:
        if not self.words or self.length < 1:
            raise InstructionError(f"a vocabulary has words and a length of at least 1, got {len(self.words)} words "
                                   f"and a length of {self.length}")
        bad = [w for w in self.words if not isinstance(w, str) or words_of(w) != [w]]
        if bad or len(set(self.words)) != len(self.words):
            raise InstructionError(f"words of a vocabulary are single, in lower case and different; not so: "
                                   f"{bad or sorted(w for w in set(self.words) if self.words.count(w) > 1)}")

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: 1 + i for i, word in enumerate(self.words)}

    def encode(self, text: str) -> NDArray[np.int32]:
        """Word numbers int32 [L], 0 after the last word. :class:`InstructionError`: empty, too long, unknown word."""
        words = words_of(text)
        self._check_known(words)
        if len(words) > self.length:
            raise InstructionError(f"the instruction has {len(words)} words; at most {self.length} fit: {text!r}")
        tokens = np.zeros(self.length, np.int32)
        tokens[: len(words)] = [self.numbers[w] for w in words]
        return tokens

    def _check_known(self, words: Sequence[str]) -> None:
        unknown = list(dict.fromkeys(w for w in words if w not in self.numbers))
        if unknown:
            raise InstructionError("unknown word" + "s" * (len(unknown) > 1) + ": "
                                   + "; ".join(self._nearest(w) for w in unknown))

    def _nearest(self, word: str) -> str:
        near = get_close_matches(word, self.words, n=3, cutoff=0.5)
        known = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(self.words)}"
        return f"{word[:40]!r} ({known})"

    def decode(self, tokens: Sequence[int] | NDArray[np.int32]) -> str:
        """The sentence of word numbers [L]."""
        rows = np.asarray(tokens)
        if rows.ndim != 1 or len(rows) > self.length or rows.dtype.kind not in "iu":
            raise InstructionError(f"word numbers are at most {self.length} integers, got {rows.dtype} "
                                   f"{list(rows.shape)}")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) <= len(self.words):
            raise InstructionError(f"word numbers are 0 to {len(self.words)}, got {rows.tolist()}")
        used = np.flatnonzero(rows)
        if len(used) and used[-1] != len(used) - 1:
            raise InstructionError(f"a sentence has no gaps: 0 stands after the last word only, got {rows.tolist()}")
        return " ".join(self.words[int(i) - 1] for i in rows[rows > 0])

    def digest(self) -> str:
        """SHA-256 of the words in order and the length: equal numbers mean equal words."""
        return hashlib.sha256("\n".join((str(self.length), *self.words)).encode()).hexdigest()
