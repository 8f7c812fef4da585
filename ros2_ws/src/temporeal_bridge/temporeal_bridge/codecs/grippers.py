"""control_msgs/GripperCommand as a command, on a topic or as an action's goal: one number opens and closes a gripper.

Options: ``scale`` and ``offset``: the driver's position is ``scale`` times ours plus ``offset`` (its gap is twice the
way of a finger); ``max_effort``: N, 0: the driver's own. Of the action also ``min_change`` (our unit): another goal is
sent only for an opening that differs by so much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from temporeal.robots.signals import is_number
from temporeal_bridge.codecs.codec import CodecError, Options, finite, number
from temporeal_bridge.transports import messages

COMMAND, ACTION = "control_msgs/msg/GripperCommand", "control_msgs/action/GripperCommand"
GOAL_ID = 16  # bytes


def line(options: Options) -> tuple[float, float]:
    """Options ``scale`` and ``offset``."""
    scale, offset = options.get("scale", 1.0), options.get("offset", 0.0)
    if not (is_number(scale) and is_number(offset) and scale != 0):
        raise CodecError(f"options scale and offset are {scale!r} and {offset!r}; numbers are needed, scale not 0")
    return float(scale), float(offset)


def told(command: np.ndarray, options: Options) -> dict[str, float]:
    """What the gripper is told: position and largest effort."""
    scale, offset = line(options)
    opening = finite(command, (1,), "the command").item()
    return {"position": scale * opening + offset, "max_effort": number(options, "max_effort", 0.0, 1e6, or_low=True)}


def encode_gripper(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The message on a topic."""
    return messages.record(COMMAND)(**told(command, options))


def encode_goal(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The goal of the action; its id is the sending time, which no two goals share."""
    number(options, "min_change", 0.0, 1e3, or_low=True)
    return messages.record(ACTION)(
        goal_id=np.frombuffer(stamp_ns.to_bytes(GOAL_ID, "big"), dtype=np.uint8), **told(command, options))


def decode_gripper(message: Any, options: Options) -> np.ndarray:
    """The opening [1]."""
    scale, offset = line(options)
    return (finite([message.position], (1,), "GripperCommand: position") - offset) / scale
