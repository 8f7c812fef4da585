"""Pictures as signals: colours in order, rows without padding, and sizes that agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.transports import messages

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "ros2_messages.json").read_text())["messages"]
FRAMES = ("world", "cam")
IMAGE = STATE_CODECS["image"]


def options(encoding):
    return {"signal": "rgb", "encoding": encoding}


def picture(encoding):
    rng = np.random.default_rng(1)
    if encoding in ("rgb8", "bgr8"):
        return rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    if encoding == "mono8":
        return rng.integers(0, 256, (4, 6), dtype=np.uint8)
    return (rng.integers(0, 65536, (4, 6)) * 0.001).astype(np.float32)


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "mono8", "16UC1", "32FC1"])
def test_pictures_survive_the_wire_bit_for_bit(encoding):
    value = picture(encoding)
    data = messages.encode("sensor_msgs/msg/Image", IMAGE.encode({"rgb": value}, 3, FRAMES, options(encoding)))
    again = IMAGE.decode(messages.decode("sensor_msgs/msg/Image", data), options(encoding))["rgb"]
    assert again.dtype == value.dtype and again.shape == value.shape and (again == value).all()


def test_golden_image():
    (row,) = [row for row in GOLDEN if row["type"] == "sensor_msgs/msg/Image"]
    value = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    message = IMAGE.encode({"rgb": value}, 1_000_000_002, FRAMES, options("rgb8"))
    assert messages.encode(row["type"], message).hex() == row["cdr_hex"]


def image(encoding="rgb8", height=2, width=2, step=None, data=None, big=0):
    size = {"rgb8": 3, "bgr8": 3, "mono8": 1, "16UC1": 2, "32FC1": 4}.get(encoding, 1)
    step = width * size if step is None else step
    data = np.arange(height * step, dtype=np.uint8) if data is None else data
    return messages.record("sensor_msgs/msg/Image")(
        header=messages.header(0, "cam"), height=height, width=width, encoding=encoding, is_bigendian=big, step=step,
        data=data)


def test_blue_first_is_turned_round():
    assert IMAGE.decode(image("bgr8"), options("bgr8"))["rgb"][0, 0].tolist() == [2, 1, 0]


def test_padding_at_the_ends_of_rows_is_left_out():
    assert IMAGE.decode(image("mono8", step=5), options("mono8"))["rgb"].tolist() == [[0, 1], [5, 6]]


def test_depth_in_millimetres_of_either_byte_order():
    data = np.array([0x01, 0x00], dtype=np.uint8)
    for big, metres in ((0, 0.001), (1, 0.256)):
        message = image("16UC1", 1, 1, data=data, big=big)
        assert IMAGE.decode(message, options("16UC1"))["rgb"][0, 0] == np.float32(metres)


def test_depth_that_was_not_measured_is_zero():
    data = np.array([np.nan, np.inf, -np.inf, 1.5], dtype="<f4").view(np.uint8)
    assert IMAGE.decode(image("32FC1", data=data), options("32FC1"))["rgb"].tolist() == [[0, 0], [0, 1.5]]


@pytest.mark.parametrize(("message", "words"), [
    (image("bgr8"), "is 'bgr8', 'rgb8' is needed"), (image(step=5), "rows of 6 bytes or more: step is 5"),
    (image(data=np.zeros(11, dtype=np.uint8)), "there are 11 bytes"), (image(height=0), "of 2 x 0 rgb8 needs"),
    (image(data=np.zeros(13, dtype=np.uint8)), "there are 13 bytes"),
])
def test_what_is_no_picture_of_its_size(message, words):
    with pytest.raises(CodecError, match=words):
        IMAGE.decode(message, options("rgb8"))


def test_unknown_encodings_list_the_known():
    with pytest.raises(CodecError, match="legal: rgb8, bgr8, mono8, 16UC1, 32FC1"):
        IMAGE.decode(image(), options("yuv422"))
    with pytest.raises(CodecError, match="does not fit rgb8"):
        IMAGE.encode({"rgb": np.zeros((2, 2))}, 0, FRAMES, options("rgb8"))


COMPRESSED = STATE_CODECS["compressed_image"]


def compressed(form, encoding="rgb8"):
    return {"signal": "rgb", "format": form, "encoding": encoding}


def test_compressed_pictures():
    ramp = np.stack(np.broadcast_arrays(np.arange(16) * 16, np.arange(16)[:, None] * 8, 40), -1).astype(np.uint8)
    exact = COMPRESSED.encode({"rgb": ramp}, 0, FRAMES, compressed("png"))
    assert (COMPRESSED.decode(exact, compressed("png"))["rgb"] == ramp).all()
    close = COMPRESSED.encode({"rgb": ramp}, 0, FRAMES, compressed("jpeg"))
    error = np.abs(COMPRESSED.decode(close, compressed("jpeg"))["rgb"].astype(int) - ramp)
    assert error.mean() < 4 and close.format == "jpeg"
    grey = COMPRESSED.encode({"rgb": ramp[..., 0]}, 0, FRAMES, compressed("png", "mono8"))
    assert (COMPRESSED.decode(grey, compressed("png", "mono8"))["rgb"] == ramp[..., 0]).all()


def test_what_is_no_compressed_picture():
    whole = COMPRESSED.encode({"rgb": np.zeros((8, 8, 3), dtype=np.uint8)}, 0, FRAMES, compressed("png"))
    with pytest.raises(CodecError, match="does not begin as jpeg does"):
        COMPRESSED.decode(whole, compressed("jpeg"))
    whole.data = whole.data[:20]
    with pytest.raises(CodecError, match="not a whole png picture"):
        COMPRESSED.decode(whole, compressed("png"))
    whole.data = np.zeros(0, dtype=np.uint8)
    with pytest.raises(CodecError, match="does not begin"):
        COMPRESSED.decode(whole, compressed("png"))


def test_without_opencv_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(CodecError, match="pip install opencv-python-headless"):
        COMPRESSED.encode({"rgb": np.zeros((2, 2, 3), dtype=np.uint8)}, 0, FRAMES, compressed("png"))
