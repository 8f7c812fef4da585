"""A bag of a Franka with a camera, as its drivers write it: joint states at 1 kHz, commands at 25 Hz, JPEG at 30 Hz."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.joint_states import STAMP, layout

CAMERA = "/camera/image_raw/compressed"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
START_NS = 1_700_000_000_000_000_000
STATES_HZ, COMMANDS_HZ, PICTURES_HZ = 1000, 25, 30
PICTURES = 60  # different ones, shown again and again
TRANSPORT_NS = 1_000_000  # from a stamp to the receipt
COMMAND = "joint_pos_cmd"
Row = tuple[int, str, str, bytes]
"""Receipt [ns], topic, type, CDR bytes."""


def franka() -> tuple[Any, Interface]:
    """The robot, and its interface with a forward controller."""
    robot = load_robot("franka")
    return robot, load_interface(robot, "forward_position")


def joints(t: float | np.ndarray) -> np.ndarray:
    """Positions [..., 7] rad at a time [s], well within the limits."""
    return np.array([0.0, 0.0, 0.0, -1.5, 0.0, 1.5, 0.0]) + 0.3 * np.sin(np.asarray(t)[..., None] + np.arange(7))


def states(seconds: float, topics: Interface) -> Iterator[Row]:
    """The driver's joint states: one message, of which stamp and numbers are replaced."""
    row = topics.states[0]
    first = STATE_CODECS[row.codec].encode(
        {"joint_pos": joints(0.0), "joint_vel": np.zeros(7), "joint_torque": np.zeros(7)}, START_NS, ("w", "b"),
        {key: value for key, value in row.options.items() if key != "tool"})
    data = bytearray(messages.encode(row.type, first))
    position, velocity, _ = (at for at, _ in layout(bytes(data), first).places)
    times = np.arange(int(seconds * STATES_HZ)) / STATES_HZ
    places, rates = joints(times).astype("<f8"), (0.3 * np.cos(times[:, None] + np.arange(7))).astype("<f8")
    for k in range(len(times)):
        at = START_NS + k * (1_000_000_000 // STATES_HZ)
        STAMP.pack_into(data, 4, *divmod(at, 1_000_000_000))
        data[position : position + 56], data[velocity : velocity + 56] = places[k].tobytes(), rates[k].tobytes()
        yield at + TRANSPORT_NS, f"/{row.topic}", row.type, bytes(data)


def commands(seconds: float, topics: Interface) -> Iterator[Row]:
    """Where the joints are a tenth of a second later."""
    row = topics.commands[COMMAND]
    for k in range(int(seconds * COMMANDS_HZ)):
        data = messages.encode(row.type, COMMAND_CODECS[row.codec].encode(joints(k / COMMANDS_HZ + 0.1), row.options))
        yield START_NS + k * (1_000_000_000 // COMMANDS_HZ) + TRANSPORT_NS, f"/{row.topic}", row.type, data


def pictures(seconds: float, shape: tuple[int, int]) -> Iterator[Row]:
    """A camera with image_transport's JPEG (quality 95 is its default: here 85, as drivers set it)."""
    import cv2

    packed = [np.asarray(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]).reshape(-1)
              for picture in scene(shape)]
    for k in range(int(seconds * PICTURES_HZ)):
        at = START_NS + round(k * 1e9 / PICTURES_HZ)
        message = messages.record(COMPRESSED)(
            header=messages.header(at, "camera"), format="rgb8; jpeg compressed bgr8", data=packed[k % PICTURES])
        yield at + 5 * TRANSPORT_NS, CAMERA, COMPRESSED, messages.encode(COMPRESSED, message)


def scene(shape: tuple[int, int]) -> Iterator[np.ndarray]:
    """Pictures [H, W, 3] uint8: a coarse pattern that moves, a disc, and the noise of a sensor."""
    import cv2

    rng, (height, width) = np.random.default_rng(0), shape
    coarse = rng.integers(0, 255, (height // 16, width // 16, 3)).astype(np.uint8)
    ground = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    for k in range(PICTURES):
        picture = np.roll(ground, 3 * k, axis=1)
        place = int(width * (0.5 + 0.25 * np.sin(k / 10))), height // 2
        picture = cv2.circle(np.ascontiguousarray(picture), place, height // 8, (40, 40, 200), -1)
        yield np.clip(picture.astype(int) + rng.integers(-6, 7, picture.shape), 0, 255).astype(np.uint8)


def write(path: Path, seconds: float, shape: tuple[int, int]) -> Path:
    """The bag."""
    _, topics = franka()
    bag = Bag(path)
    for topic, type in ((f"/{topics.states[0].topic}", topics.states[0].type),
                        (f"/{topics.commands[COMMAND].topic}", topics.commands[COMMAND].type), (CAMERA, COMPRESSED)):
        bag.add(topic, type)
    rows = merge(states(seconds, topics), commands(seconds, topics), pictures(seconds, shape), key=lambda row: row[0])
    for at, topic, type, data in rows:
        bag.write(topic, type, at, data)
    bag.close()
    return path
