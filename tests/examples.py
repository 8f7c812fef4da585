"""What `make test` tries of many alike: a quarter of a property's examples, and representative cases of a sweep.

``make slow`` tries all: ``--hypothesis-profile full``, and the cases that :func:`thinned` marks slow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

FULL = 100
"""``max_examples`` of the profile in which tests get all that they ask for."""


def examples(count: int) -> int:
    """``max_examples`` of a test that asks for ``count``."""
    return max(1, count * settings.default.max_examples // FULL)


def thinned(cases: Iterable[Any], keep: Callable[[Any], bool] | Collection[Any]) -> list[Any]:
    """``cases`` of a parametrized test, of which `make test` runs those to ``keep``; the others are marked slow."""
    every = list(cases)
    kept = [keep(case) if callable(keep) else case in keep for case in every]
    assert any(kept) and (callable(keep) or sum(kept) == len(keep)), f"no such cases: {keep}"
    return [case if fast else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
            for case, fast in zip(every, kept, strict=True)]
