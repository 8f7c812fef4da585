"""Pictures as MP4: a frame per sample, encoded while they come, decoded from the key frame before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import av
import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.handed_over.files import Refused, check

LARGEST = 1 << 44  # bytes of a file, which is not read whole
THREADS = 1  # that convert colours: small pictures take longer to share, and libswscale's threads waited for ever once
KEY_FRAMES = 2
"""Frames from a key frame to the next, as LeRobot's: random access decodes two frames at most."""


@dataclass(frozen=True)
class Codec:
    """How pictures are compressed.

    Args:
        encoder: PyAV's name; ``name``: LeRobot's name of what it writes.
        pixels: format of the file; yuv420p is read everywhere and halves the resolution of colour.
        options: of the encoder.
        quick: colours are converted by OpenCV, where it is installed: a quarter of the time, and chroma is that of one
            pixel in four instead of their mean.
        threads: of the encoder. Fixed, for the bytes depend on it.
    """

    encoder: str
    name: str
    pixels: str
    options: tuple[tuple[str, str], ...]
    quick: bool = False
    threads: int = 1


CODECS = {
    # quality 18 is x264's own "visually lossless"; LeRobot's default (AV1 at 30) is smaller and 20 times slower
    "h264": Codec("libx264", "h264", "yuv420p", (("crf", "18"), ("preset", "veryfast"))),
    # for imports: a third of the time, files half as large again; a second thread would take a fifth more of it in all
    "h264-fast": Codec("libx264", "h264", "yuv420p", (("crf", "18"), ("preset", "ultrafast")), quick=True),
    "lossless": Codec("libx264rgb", "h264", "rgb24", (("qp", "0"), ("preset", "ultrafast"))),
    "av1": Codec("libsvtav1", "av1", "yuv420p", (("crf", "30"), ("preset", "10"))),
}


def pixels(codec: Codec, shape: tuple[int, ...]) -> str:
    """The format of a file: pictures with an odd side cannot halve the resolution of colour."""
    if codec.pixels != "yuv420p" or not (shape[0] % 2 or shape[1] % 2):
        return codec.pixels
    if codec.name == "av1":
        raise DataError(f"pictures of {shape[0]} x {shape[1]} cannot be kept as av1: both sides must be even; h264, "
                        "lossless and raw take any")
    return "yuv444p"


class VideoWriter:
    """One MP4, frame by frame.

    Args:
        shape: [H, W, 3] of a frame, uint8.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], rate_hz: float, codec: Codec) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.frames = path, 0
        os.environ.setdefault("SVT_LOG", "1")  # the encoder of AV1 prints its settings for each file otherwise
        self._container: Any = av.open(str(path), "w", format="mp4")
        rate = Fraction(rate_hz).limit_denominator(100_000)
        options = {**dict(codec.options), "g": str(KEY_FRAMES)}
        stream: Any = self._container.add_stream(codec.encoder, rate=rate, options=options)
        stream.height, stream.width, stream.pix_fmt = shape[0], shape[1], pixels(codec, shape)
        stream.thread_count = codec.threads
        self._stream = stream
        self._frame = quick_frame if codec.quick and opencv() is not None else frame_of

    def write(self, picture: np.ndarray) -> None:
        """One frame [H, W, 3] uint8."""
        frame = self._frame(np.ascontiguousarray(picture)).reformat(format=self._stream.pix_fmt, threads=THREADS)
        frame.pts = self.frames
        frame.time_base = 1 / self._stream.codec_context.framerate
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def close(self) -> None:
        """Write what is left, and the file's index."""
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def discard(self) -> None:
        """Close and remove the file."""
        self._container.close()
        self.path.unlink(missing_ok=True)


@cache
def opencv() -> Any:
    """The module cv2; None where it is not installed."""
    try:
        return import_module("cv2")
    except ModuleNotFoundError:
        return None


def frame_of(picture: np.ndarray) -> Any:
    """A frame, which the encoder converts to its colours."""
    return av.VideoFrame.from_ndarray(picture, format="rgb24")


def quick_frame(picture: np.ndarray) -> Any:
    """A frame in YUV 4:2:0 (BT.601, limited range, as FFmpeg's own), which is not copied."""
    return av.VideoFrame.from_numpy_buffer(opencv().cvtColor(picture, opencv().COLOR_RGB2YUV_I420), format="yuv420p")


def decoded(path: Path, first: int, count: int, shape: tuple[int, ...], rate_hz: float) -> Iterator[np.ndarray]:
    """Frames ``first`` to ``first + count`` of a file, [H, W, 3] uint8, in order.

    A frame's number is its time times the rate; one that is missing is a :class:`DataError` that names it.

    Args:
        shape: [H, W, 3] that the frames must have.
    """
    with opened(path) as container:
        yield from _decoded(container, path, first, count, shape, rate_hz)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A file, to decode; what is wrong with it is a :class:`DataError`."""
    try:
        container: Any
        with av.open(str(checked(path)), "r", format="mp4") as container:
            if not container.streams.video or container.streams.video[0].codec_context is None:
                raise DataError(f"{path} has no video in a codec that is known")
            container.streams.video[0].thread_count = 1
            yield container
    except (av.error.FFmpegError, OSError) as error:
        raise DataError(f"{path} cannot be decoded: {error.strerror or error}") from error


def _decoded(
    container: Any, path: Path, first: int, count: int, shape: tuple[int, ...], rate_hz: float
) -> Iterator[np.ndarray]:
    stream = container.streams.video[0]
    if (stream.height, stream.width, 3) != shape:  # before a frame is decoded: its memory is taken then
        raise DataError(f"{path} has frames of {stream.height} x {stream.width}; {shape[0]} x {shape[1]} is needed")
    container.seek(round(first / rate_hz / stream.time_base), stream=stream)
    wanted = first
    for frame in container.decode(stream):
        number = round(frame.pts * float(stream.time_base) * rate_hz) if frame.pts is not None else -1
        if number < wanted:
            continue
        if number > wanted or wanted >= first + count:
            break
        yield frame.to_ndarray(format="rgb24", threads=THREADS)
        wanted += 1
        if wanted == first + count:
            return
    if wanted < first + count:
        raise DataError(f"{path}: frame {wanted} is missing; {count} from {first} on are needed")


def frames_at(path: Path, numbers: Sequence[int], shape: tuple[int, ...], rate_hz: float) -> np.ndarray:
    """Frames of any order [len(numbers), H, W, 3]; those in a row are decoded in one go."""
    order = np.argsort(numbers, kind="stable")
    ordered = np.asarray(numbers)[order]
    unique, back = np.unique(ordered, return_inverse=True)
    runs = np.split(unique, np.flatnonzero(np.diff(unique) > KEY_FRAMES) + 1)
    pictures = []
    with opened(path) as container:
        for run in runs:
            stretch = list(_decoded(container, path, int(run[0]), int(run[-1] - run[0]) + 1, shape, rate_hz))
            pictures += [stretch[int(number - run[0])] for number in run]
    out = np.empty((len(order), *pictures[0].shape), np.uint8)
    out[order] = np.stack(pictures)[back]
    return out


def checked(path: Path) -> Path:
    """``path``, if it is a regular file."""
    try:
        return check(path, LARGEST)
    except Refused as error:
        raise DataError(str(error)) from error


def described(path: Path) -> tuple[int, float]:
    """Frames and rate [Hz] of a file, from its index."""
    with opened(path) as container:
        stream = container.streams.video[0]
        return int(stream.frames), float(stream.average_rate or 0)
