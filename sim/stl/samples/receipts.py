"""Whether a recorder's clock was set back: messages are read by receipt, which then mixes those of before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from temporeal.sim.stl.samples.times import CLOCK_SET_S, newest_before


def written(storage: Any, topic: str) -> list[int]:
    """Receipts [ns] of a topic's messages in the order in which they were written, from a storage of rosbags."""
    mine = [c for c in storage.connections if c.topic == topic]
    if hasattr(storage, "messages_scan"):
        return [at for _, at, _ in storage.messages_scan(mine)] if mine else []
    rows = storage.dbconn.cursor().execute(
        "SELECT messages.timestamp FROM messages JOIN topics ON topics.id = messages.topic_id WHERE topics.name = ? "
        "ORDER BY messages.id", (topic,))
    return [at for at, in rows]


def storages(reader: Any) -> list[Any]:
    """The storages of a reader of rosbag2."""
    return list(getattr(reader.storage, "storages", [reader.storage]))


def went_back(received: Sequence[int]) -> tuple[int, float] | None:
    """The first of the receipts [ns], in the order of writing, before which a later one was written, and by how many
    seconds it is earlier; None: they never go back."""
    times = np.array([at - received[0] for at in received], dtype=np.float64)  # exact: since the epoch they are not
    back = times < newest_before(times)
    if not back.any():
        return None
    k = int(np.argmax(back))
    return k, float(times[:k].max() - times[k]) * 1e-9


def set_back_s(received: Sequence[int]) -> float:
    """By how much the recorder's clock was set back while it wrote [s]; 0: by no more than messages overtake."""
    found = went_back(received)
    return found[1] if found is not None and found[1] > CLOCK_SET_S else 0.0
