"""Findings of checks, and words for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal_bridge.transports.transport import Peer


@dataclass(frozen=True)
class Check:
    """One finding. ``status``: ``ok``, ``warn`` (works, or is not needed by all) or ``fail``."""

    name: str
    status: str
    found: str
    advice: str = ""


def guarded(examine: Callable[..., Iterator[Check]], *given: Any) -> Iterator[Check]:
    """A check that itself breaks is a finding, not the end of the others."""
    try:
        yield from examine(*given)
    except Exception as error:
        yield Check(examine.__name__, "fail", f"{type(error).__name__}: {error}", "please report this")


def names_of(peers: Sequence[Peer]) -> str:
    """Who they are."""
    return shown([peer.node or "a node without a name" for peer in peers])


def shown(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    return ", ".join(items[:KEPT]) + (f" and {len(items) - KEPT} more" if len(items) > KEPT else "")


def values_of(value: np.ndarray) -> str:
    """Numbers, short."""
    return "[" + ", ".join(f"{x:.3g}" for x in np.ravel(value)) + "]"


KEPT = 4  # items of a list that are shown
