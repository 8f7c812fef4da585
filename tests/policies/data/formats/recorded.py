"""Bags of a Franka with a camera that tests write: smooth joints, and commands that follow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.transports import messages

START_NS = 1_700_000_000_000_000_000
CAMERA, RAW = "/camera/image_raw/compressed", "/camera/image_raw"
Edit = Callable[[int, float, Any], Any]
"""``edit(number, time [s], message)`` -> the message, another one, or None: it is lost."""


@cache
def robot_and_topics(name: str = "forward_position") -> tuple[Any, Interface]:
    """The Franka and its interface with a forward controller."""
    robot = load_robot("franka")
    return robot, load_interface(robot, name)


def joints(t: float | np.ndarray) -> np.ndarray:
    """Positions [..., 7] rad at a time: within the limits, and easy to differentiate."""
    phase = np.asarray(t)[..., None] + np.arange(7)
    return np.array([0.0, 0.0, 0.0, -1.5, 0.0, 1.5, 0.0]) + 0.3 * np.sin(phase)


def joint_state(t: float) -> Any:
    """What the driver publishes."""
    _, topics = robot_and_topics()
    row = topics.states[0]
    options = {key: value for key, value in row.options.items() if key != "tool"}
    values = {"joint_pos": joints(t), "joint_vel": 0.3 * np.cos(t + np.arange(7)), "joint_torque": np.zeros(7)}
    return STATE_CODECS[row.codec].encode(values, START_NS + round(1e9 * t), ("w", "b"), options)


def command(t: float) -> Any:
    """The command that is sent at ``t``: where the joints are a tenth of a second later."""
    _, topics = robot_and_topics()
    row = topics.commands["joint_pos_cmd"]
    return COMMAND_CODECS[row.codec].encode(joints(t + 0.1), row.options)


def picture(number: int, shape: tuple[int, int] = (48, 64)) -> np.ndarray:
    """A picture with its number as its grey value (modulo 200)."""
    return np.full((*shape, 3), number % 200, np.uint8)


def compressed(number: int, t: float, shape: tuple[int, int] = (48, 64)) -> Any:
    """What the camera publishes."""
    return STATE_CODECS["compressed_image"].encode(
        {"rgb": picture(number, shape)}, START_NS + round(1e9 * t), ("w", "b"),
        {"signal": "rgb", "format": "jpeg", "encoding": "rgb8"})


def image(number: int, t: float, options: Mapping[str, str]) -> Any:
    """A raw picture: its number as red, 100 as green, 200 as blue."""
    picture = np.full((32, 48, 3), (number, 100, 200), np.uint8)
    return STATE_CODECS["image"].encode(
        {"rgb": picture}, START_NS + round(1e9 * t), ("w", "b"), {"signal": "rgb", **options})


def write(
    path: Path, seconds: float, rates: Mapping[str, float], edits: Mapping[str, Edit] | None = None,
    options: Mapping[str, str] | None = None, late_s: float = 0.001,
) -> Path:
    """Write a bag with ``states``, ``commands``, ``pictures``, ``raw`` at ``rates`` [Hz].

    Args:
        options: of raw pictures. late_s: from a stamp to the receipt.
    """
    _, topics = robot_and_topics()
    kinds = {
        "states": (f"/{topics.states[0].topic}", topics.states[0].type, lambda k, t: joint_state(t)),
        "commands": (f"/{topics.commands['joint_pos_cmd'].topic}", topics.commands["joint_pos_cmd"].type,
                     lambda k, t: command(t)),
        "pictures": (CAMERA, "sensor_msgs/msg/CompressedImage", compressed),
        "raw": (RAW, "sensor_msgs/msg/Image", lambda k, t: image(k, t, options or {}))}
    bag = Bag(path)
    rows = []
    for kind, rate in rates.items():
        topic, type, make = kinds[kind]
        bag.add(topic, type)
        edit = (edits or {}).get(kind, lambda number, t, message: message)
        for k in range(int(seconds * rate) + 1):
            if (found := edit(k, k / rate, make(k, k / rate))) is not None:
                rows.append((START_NS + round(1e9 * (k / rate + late_s)), topic, type, messages.encode(type, found)))
    for at, topic, type, data in sorted(rows, key=lambda row: row[0]):
        bag.write(topic, type, at, data)
    bag.close()
    return path
