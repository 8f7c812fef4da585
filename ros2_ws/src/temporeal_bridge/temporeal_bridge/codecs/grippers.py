"""control_msgs/GripperCommand as a command: one number opens and closes a gripper.

Options: ``scale`` and ``offset``: the driver's position is ``scale`` times ours plus ``offset`` (its gap is twice the
way of a finger); ``max_effort``: N, 0: the driver's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.robots.signals import is_number
from temporeal_bridge.codecs.codec import CodecError, Options, finite, number
from temporeal_bridge.transports import messages

COMMAND = "control_msgs/msg/GripperCommand"


def line(options: Options) -> tuple[float, float]:
    """Options ``scale`` and ``offset``."""
    scale, offset = options.get("scale", 1.0), options.get("offset", 0.0)
    if not (is_number(scale) and is_number(offset) and scale != 0):
        raise CodecError(f"options scale and offset are {scale!r} and {offset!r}; numbers are needed, scale not 0")
    return float(scale), float(offset)


def encode_gripper(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The gripper's position."""
    scale, offset = line(options)
    opening = finite(command, (1,), "the command").item()
    return messages.record(COMMAND)(
        position=scale * opening + offset, max_effort=number(options, "max_effort", 0.0, 1e6, or_low=True))


def decode_gripper(message: Any, options: Options) -> np.ndarray:
    """The opening [1]."""
    scale, offset = line(options)
    return (finite([message.position], (1,), "GripperCommand: position") - offset) / scale
