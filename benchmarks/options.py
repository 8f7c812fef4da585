"""Options of benchmarks: each is a list of words, ``--seeds 1,2,3``, checked here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf, nan

from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.machine import NO_GPU, has_gpu

PARTS = ("cpu", "gpu")
PARTS_HELP = f"{', '.join(PARTS)} (default: cpu, and gpu where there is one)"


def among(option: str, given: Sequence[str] | None, legal: Sequence[str]) -> Sequence[str]:
    """The words given to ``--option``, each one of ``legal``; all of these where none is given."""
    if unknown := sorted(set(given or ()) - set(legal)):
        raise BadInput(f"--{option}: there is no {unknown[0]!r}; legal: {', '.join(legal)}")
    return given or legal


def parts(given: Sequence[str] | None) -> Sequence[str]:
    """The parts of PARTS that are asked for; by default those that this machine can measure. A missing GPU is
    announced."""
    if given is not None or has_gpu():
        return among("parts", given, PARTS)
    print(f"left out: the part gpu, {NO_GPU}", file=sys.stderr)
    return PARTS[:1]


def single(option: str, kind: str, given: Sequence[str]) -> str:
    """The only word given to ``--option``."""
    if len(given) != 1:
        raise BadInput(f"--{option}: one {kind}, got {','.join(given) or 'none'}")
    return given[0]


def is_whole(word: str, least: int = 0) -> bool:
    """Whether ``word`` is a whole number from ``least``."""
    return word.isascii() and word.isdigit() and len(word) < 19 and int(word) >= least


def count(option: str, given: Sequence[str] | None, default: int) -> int:
    """One whole number from 1; the default where none is given."""
    if given is None:
        return default
    word = single(option, "whole number from 1", given)
    if not is_whole(word, 1):
        raise BadInput(f"--{option}: one whole number from 1, got {word}")
    return int(word)


def counts(option: str, given: Sequence[str] | None, default: Sequence[int]) -> Sequence[int]:
    """Whole numbers from 1; the default where none is given."""
    for word in given or ():
        if not is_whole(word, 1):
            raise BadInput(f"--{option}: whole numbers from 1, got {word!r}")
    return [int(word) for word in given] if given else default


def seeds(given: Sequence[str] | None, default: Sequence[int]) -> Sequence[int]:
    """Seeds of trainings, each once; the default where none is given."""
    from temporeal.policies.runs.learners import check_training_seed

    if given is None:
        return default
    if not given or not all(word.isascii() and word.isdigit() for word in given):
        raise BadInput(f"--seeds: whole numbers from 0, such as 1,2,3; got {','.join(given) or 'none'}")
    numbers = [int(word.lstrip("0")[:20] or 0) for word in given]  # int() fails on thousands of digits; 20 are too many
    for number in numbers:
        try:
            check_training_seed(number)
        except BadInput as error:
            raise BadInput(f"--seeds: {error}") from error
    return list(dict.fromkeys(numbers))


def amount(option: str, given: Sequence[str] | None, default: float, positive: bool = False) -> float:
    """One finite number from 0, or above 0 where it must be ``positive``; the default where none is given."""
    if not given:
        return default
    try:
        (value,) = map(float, given)
    except ValueError:
        value = nan
    if not 0 <= value < inf or (positive and not value):
        raise BadInput(f"--{option}: one number {'above' if positive else 'from'} 0, got {','.join(given)}")
    return value
