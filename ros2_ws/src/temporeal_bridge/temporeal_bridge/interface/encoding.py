"""The messages of one command."""

from __future__ import annotations

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
    made = [(row, COMMAND_CODECS[row.codec].encode(command, row.options, stamp_ns)) for row in topic.also]
    codec = COMMAND_CODECS[topic.codec]
    own = (codec.encode(command, topic.options, stamp_ns)
           if onward is None or codec.encode_smooth_trajectory is None else
           codec.encode_smooth_trajectory(onward, topic.options))
    return [(row.topic, messages.encode(row.type, message)) for row, message in (*made, (topic, own))]
