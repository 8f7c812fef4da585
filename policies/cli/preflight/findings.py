"""Findings of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One finding. ``status``: ``ok``, ``warn`` (works, or is not needed by all) or ``fail``."""

    name: str
    status: str
    found: str
    advice: str = ""


def lines(check: Check) -> str:
    """A finding for people, its advice below it."""
    advice = f"\n{'':24}-> {check.advice}" if check.advice else ""
    return f"{check.status:4}  {check.name:16}  {check.found}{advice}"


def guarded(examine: Callable[..., Iterator[Check]], *given: Any) -> Iterator[Check]:
    """A check that itself breaks is a finding, not the end of the others."""
    try:
        yield from examine(*given)
    except Exception as error:
        yield Check(examine.__name__, "fail", f"{type(error).__name__}: {error}", "please report this")
