"""Words for findings: peers, lists and numbers, short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal_bridge.transports.transport import Peer

KEPT = 4  # items of a list that are shown


def names_of(peers: Sequence[Peer]) -> str:
    """Who they are."""
    return shown([peer.node or "a node without a name" for peer in peers])


def shown(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    return ", ".join(items[:KEPT]) + (f" and {len(items) - KEPT} more" if len(items) > KEPT else "")


def values_of(value: np.ndarray) -> str:
    """Numbers, short."""
    return "[" + ", ".join(f"{x:.3g}" for x in np.ravel(value)) + "]"
