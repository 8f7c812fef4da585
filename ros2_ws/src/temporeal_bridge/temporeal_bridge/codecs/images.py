"""Codecs of cameras: raw and compressed pictures as signals. Colours are always in the order red, green, blue."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalSpec
from temporeal_bridge.codecs.codec import CodecError, Frames, Options, Signals, choice
from temporeal_bridge.transports import messages

ENCODINGS: dict[str, tuple[str, int]] = {  # type of a channel, channels
    "rgb8": ("u1", 3), "bgr8": ("u1", 3), "mono8": ("u1", 1), "16UC1": ("u2", 1), "32FC1": ("f4", 1)}
MILLIMETRE = 0.001  # m: the unit of a 16UC1 depth picture (REP 118); of 32FC1 it is the metre
BIG = sys.byteorder == "big"


def check_picture(spec: SignalSpec, options: Options) -> None:
    """Raise a CodecError unless the signal fits the encoding: uint8 [H, W, 3] or [H, W] of unit 1, or float32 [H, W] in
    m."""
    encoding = choice(options, "encoding", tuple(ENCODINGS))
    depth, colours = encoding in ("16UC1", "32FC1"), ENCODINGS[encoding][1] == 3
    needed = ("float32" if depth else "uint8", "m" if depth else "1", "[H, W, 3]" if colours else "[H, W]")
    sized = len(spec.shape) == (3 if colours else 2) and all(type(n) is int and n > 0 for n in spec.shape)
    if (spec.dtype, spec.unit) != needed[:2] or not sized or (colours and spec.shape[2] != 3):
        raise CodecError(f"signal {spec.name!r} is {spec.dtype} {list(spec.shape)} in {spec.unit!r}; a picture in "
                         f"{encoding} is {needed[0]} {needed[2]} in {needed[1]!r}: rows, columns"
                         f"{', colours' if colours else ''}")


def opencv() -> Any:
    """The module cv2, which only compressed pictures need."""
    try:
        import cv2
    except ImportError as error:
        raise CodecError(
            "a compressed picture needs OpenCV: pip install opencv-python-headless (or use the raw topic)") from error
    return cv2


# sensor_msgs/Image. Options: signal; encoding: rgb8, bgr8, mono8: uint8 [H, W, 3] or [H, W]; 16UC1, 32FC1: depth in m,
# float32 [H, W], 0 where nothing was measured (REP 118 has 0 there in 16UC1, and NaN or infinity in 32FC1).


def decode_image(message: Any, options: Options) -> Signals:
    """The picture, without the padding of its rows."""
    encoding = choice(options, "encoding", tuple(ENCODINGS))
    if message.encoding != encoding:
        raise CodecError(f"Image is {message.encoding!r}, {encoding!r} is needed")
    kind, channels = ENCODINGS[encoding]
    type = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    height, width, step = int(message.height), int(message.width), int(message.step)
    row = width * channels * type.itemsize
    data = np.ascontiguousarray(message.data, dtype=np.uint8)
    if not height or not width or step < row or len(data) != height * step:
        raise CodecError(f"Image of {width} x {height} {encoding} needs rows of {row} bytes or more: step is {step}, "
                         f"there are {len(data)} bytes")
    pixels = np.ascontiguousarray(data.reshape(height, step)[:, :row]).view(type).astype(kind)
    picture = pixels.reshape((height, width, channels) if channels > 1 else (height, width))
    return {options["signal"]: meaning(picture, encoding)}


def meaning(picture: np.ndarray, encoding: str) -> np.ndarray:
    """The signal of the pixels of a message."""
    if encoding == "bgr8":
        return np.ascontiguousarray(picture[..., ::-1])
    if encoding == "16UC1":
        return (picture * MILLIMETRE).astype(np.float32)
    return np.where(np.isfinite(picture), picture, np.float32(0.0)) if encoding == "32FC1" else picture


def encode_image(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The message that a camera driver publishes."""
    encoding, value = choice(options, "encoding", tuple(ENCODINGS)), np.asarray(signals[options["signal"]])
    kind, channels = ENCODINGS[encoding]
    if value.ndim != (3 if channels > 1 else 2) or (channels > 1 and value.shape[2] != channels):
        raise CodecError(f"signal {options['signal']!r} has shape {value.shape}, which does not fit {encoding}")
    if encoding == "16UC1":
        value = np.clip(np.round(value / MILLIMETRE), 0, 65535)
    picture = np.ascontiguousarray(value[..., ::-1] if encoding == "bgr8" else value, dtype=kind)
    height, width = picture.shape[:2]
    return messages.record("sensor_msgs/msg/Image")(
        header=messages.header(stamp_ns, frames[1]), height=height, width=width, encoding=encoding, is_bigendian=BIG,
        step=width * channels * picture.itemsize, data=picture.reshape(-1).view(np.uint8))


# sensor_msgs/CompressedImage. Options: signal; format: jpeg or png; encoding: rgb8 or mono8. image_transport writes the
# format as "rgb8; jpeg compressed bgr8", drivers as "jpeg" or "jpg"; the picture's own bytes say the same.

STARTS = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}


def decode_compressed(message: Any, options: Options) -> Signals:
    """The picture, uint8: [H, W, 3] for rgb8, [H, W] for mono8."""
    form, encoding = choice(options, "format", tuple(STARTS)), choice(options, "encoding", ("rgb8", "mono8"))
    data = np.ascontiguousarray(message.data, dtype=np.uint8)
    if data[: len(STARTS[form])].tobytes() != STARTS[form]:
        raise CodecError(f"CompressedImage ({message.format!r}, {len(data)} bytes) does not begin as {form} does")
    cv2 = opencv()
    # decoded as red, green, blue where OpenCV can (4.11 and later): turning them round costs as much as decoding
    colours = getattr(cv2, "IMREAD_COLOR_RGB", None)
    picture = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE if encoding == "mono8" else
                           cv2.IMREAD_COLOR if colours is None else colours)
    if picture is None:
        raise CodecError(f"CompressedImage: its {len(data)} bytes are not a whole {form} picture")
    turn = encoding != "mono8" and colours is None
    return {options["signal"]: np.ascontiguousarray(picture[..., ::-1]) if turn else picture}


def encode_compressed(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The message that a camera driver publishes. JPEG is lossy, PNG lossless."""
    form, encoding = choice(options, "format", tuple(STARTS)), choice(options, "encoding", ("rgb8", "mono8"))
    value = np.asarray(signals[options["signal"]], dtype=np.uint8)
    if value.ndim != (3 if encoding == "rgb8" else 2):
        raise CodecError(f"signal {options['signal']!r} has shape {value.shape}, which does not fit {encoding}")
    good, data = opencv().imencode(f".{form}", value[..., ::-1] if encoding == "rgb8" else value)
    if not good:
        raise CodecError(f"a picture of shape {value.shape} cannot be written as {form}")
    return messages.record("sensor_msgs/msg/CompressedImage")(
        header=messages.header(stamp_ns, frames[1]), format=form, data=data.reshape(-1))
