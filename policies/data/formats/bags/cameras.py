"""The cameras of a bag: topics of an interface, and image topics that a user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats.bags.alignment import SLACK, Alignment, places
from temporeal.policies.data.formats.bags.pictures import BagPictures
from temporeal.policies.data.formats.bags.rows import Bag, Clock, Rows, clock_of
from temporeal.robots.signals import SignalSpec
from temporeal_bridge.codecs.images import STARTS
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface as Topics
from temporeal_bridge.interface.interface import carried_by
from temporeal_bridge.recording.bags import full_name
from temporeal_bridge.transports import messages

IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"


@dataclass(frozen=True)
class Camera:
    """A camera: its topic (as the bag calls it: ``called``), its signal, and how a message becomes a picture."""

    topic: str
    called: str
    rows: Rows
    clock: Clock
    spec: SignalSpec
    decode: Callable[[bytes], np.ndarray]

    def numbers(self, grid: np.ndarray, rule: str, align: Alignment) -> tuple[np.ndarray, np.ndarray]:
        """[G] the message that each time of ``grid`` shows, and where there is none."""
        good = np.flatnonzero(self.clock.good)
        times = self.clock.times[good]
        at = places(grid, times, rule, align.limit(times, False), SLACK * align.period)
        return good[at.before], at.lost

    def shown(self, bag: Bag, numbers: np.ndarray) -> BagPictures:
        """The pictures of an episode."""
        return BagPictures(bag.path, self.called, self.rows, numbers, self.decode, self.spec.shape)


def found(
    bag: Bag, topics: Topics, named: Mapping[str, str], namespace: str, size: tuple[int, int] | None, receipt: bool
) -> list[Camera]:
    """The cameras of the interface that the bag has, and those that are ``named`` (signal -> topic)."""
    out = []
    for row in topics.pictures:
        topic = full_name(row.topic, namespace)
        if topic in bag.rows:
            name = carried_by(row)[0]
            out.append(camera(bag, topic, topics.carried[name], row.codec, row.options, size, receipt))
    for name, topic in named.items():
        if topic not in bag.rows:
            raise DataError(f"{bag.path} has no message on {topic}, which is camera {name!r}; topics: "
                            f"{', '.join(f'{each} ({kind})' for each, kind in bag.topics.items())}")
        codec, options = guessed(bag.rows[topic], name, topic)
        first = STATE_CODECS[codec].decode(bag.rows[topic].decode(0), options)[name]
        out.append(camera(bag, topic, SignalSpec(name, first.shape, dtype="uint8"), codec, options, size, receipt))
    return out


def guessed(rows: Rows, name: str, topic: str) -> tuple[str, dict[str, Any]]:
    """Codec and options of an image topic, by its first message."""
    message = rows.decode(0)
    if rows.type == IMAGE:
        if message.encoding not in ("rgb8", "bgr8"):
            raise DataError(f"{topic}, message 0: a picture in {message.encoding!r}; a camera is rgb8 or bgr8 (others "
                            "are pictures of an interface: --signals)")
        return "image", {"signal": name, "encoding": message.encoding}
    if rows.type != COMPRESSED:
        raise DataError(f"{topic} is of {rows.type}; a camera is of {IMAGE} or {COMPRESSED}")
    data = np.asarray(message.data, np.uint8)
    form = next((form for form, start in STARTS.items() if data[: len(start)].tobytes() == start), None)
    if form is None:
        raise DataError(f"{topic}, message 0: {message.format!r} is no picture in {' or '.join(STARTS)}")
    return "compressed_image", {"signal": name, "format": form, "encoding": "rgb8"}


def camera(
    bag: Bag, topic: str, spec: SignalSpec, codec: str, options: Mapping[str, Any], size: tuple[int, int] | None,
    receipt: bool,
) -> Camera:
    """The camera on ``topic``."""
    rows = bag.rows[topic]
    reduced = spec if size is None else replace(spec, shape=(*size, *spec.shape[2:]))
    return Camera(topic, bag.called.get(topic, topic), rows, clock_of(bag, rows, None, receipt), reduced,
                  partial(picture, rows.type, codec, options, spec, size))


def picture(
    type: str, codec: str, options: Mapping[str, Any], spec: SignalSpec, size: tuple[int, int] | None, data: bytes
) -> np.ndarray:
    """The picture in a message."""
    value = STATE_CODECS[codec].decode(messages.decode(type, data), options)[spec.name]
    if value.shape != spec.shape:
        raise DataError(f"the picture is {value.shape}; {spec.shape} is needed")
    if size is None or size == spec.shape[:2]:
        return value
    import cv2

    return np.asarray(cv2.resize(value, size[::-1], interpolation=cv2.INTER_AREA))
