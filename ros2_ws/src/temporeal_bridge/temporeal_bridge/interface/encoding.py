"""The messages of one command."""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.robots.motion.smooth_trajectory import SmoothTrajectory
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import CommandTopic
from temporeal_bridge.transports import messages


def encode_all(
    topic: CommandTopic, command: np.ndarray, stamp_ns: int, onward: SmoothTrajectory | None = None
) -> list[tuple[str, bytes]]:
    """(topic, CDR bytes) of a command's companions, in order, then of the command itself, all with one stamp.

    ``onward``: the way to rest after it. It replaces the command where the message can carry it.
    """
    return [(row.topic, messages.encode(row.type, message_of(row, command, stamp_ns, onward)))
            for row in (*topic.also, topic)]


def message_of(row: CommandTopic, command: np.ndarray, stamp_ns: int, onward: SmoothTrajectory | None) -> Any:
    """The message of one topic: its components of the command, or of the way to rest."""
    codec = COMMAND_CODECS[row.codec]
    if onward is None or codec.encode_smooth_trajectory is None:
        return codec.encode(row.part(command), row.options, stamp_ns)
    parts = (row.part(values) for values in (onward.positions, onward.speeds, onward.accelerations))
    return codec.encode_smooth_trajectory(SmoothTrajectory(onward.times, *parts), row.options)
