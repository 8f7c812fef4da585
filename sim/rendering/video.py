"""Videos for browsers: WebM (VP9) and MP4 (H.264), and pictures for their frames.

    with Video("flight.webm", fps=25) as video:
        for images in ...:                                  # uint8 [K, H, W, 3]
            video.write(label(tile(images, columns=4, scale=4), f"t = {t:.2f} s"))

Both are 8 bit 4:2:0 with the colours of ITU-R BT.709, which every browser decodes. An MP4 begins with its index, so
that it plays while it loads. Encoders come with PyAV (``av``): libvpx (BSD) for WebM, libx264 (GPL) for MP4.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

try:
    import av
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"videos need {error.name}: pip install av", name=error.name) from error

# Encoder and its options by suffix. crf: constant quality, smaller is better; both give about 40 dB on our pictures
FORMATS: dict[str, tuple[str, str, dict[str, str], dict[str, str]]] = {
    ".webm": ("webm", "libvpx-vp9", {"crf": "24", "b:v": "0", "deadline": "good", "cpu-used": "5", "row-mt": "1"}, {}),
    ".mp4": ("mp4", "libx264", {"crf": "18", "preset": "veryfast"}, {"movflags": "faststart"}),
}
BT709, LIMITED = 1, 1  # ITU-T H.273: primaries, transfer and matrix; FFmpeg: 16 to 235


class Video:
    """Writes frames to ``path``; the suffix, ``.webm`` or ``.mp4``, is the format.

    The file appears when the video is closed; until then a hidden file is written. After an error in the ``with`` block
    the video is closed with the frames so far.

    Args:
        fps: frames per second of playback.
        size: (width, height) in pixels; by default that of the first frame. 4:2:0 needs even numbers: the last column
            or row of an odd picture is repeated.
    """

    def __init__(self, path: str | Path, fps: float | Fraction, size: tuple[int, int] | None = None) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in FORMATS:
            raise ValueError(f"a video is one of {', '.join(FORMATS)}; got {str(path)!r}")
        if isinstance(fps, bool) or not isinstance(fps, (int, float, Fraction)) or not 0 < fps <= 1000:
            raise ValueError(f"fps lies between 0 and 1000, got {fps!r}")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no folder {str(self.path.parent)!r} for the video {self.path.name!r}")
        self.fps = Fraction(fps).limit_denominator(100_000)
        self.size, self.frames = size, 0
        self._part = self.path.with_name(f".{self.path.name}.part")
        self._container: Any = None
        if size is not None:
            self._open(*size)

    def _open(self, width: int, height: int) -> None:
        if min(width, height) < 2 or max(width, height) > 8192:
            raise ValueError(f"a video is 2 to 8192 pixels wide and high, got {width} x {height}")
        name, codec, options, container_options = FORMATS[self.path.suffix.lower()]
        self.size = (width, height)
        self._container = av.open(str(self._part), "w", format=name, options=container_options)
        self._stream = self._container.add_stream(codec, rate=self.fps, options=options)
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"
        context = self._stream.codec_context
        context.color_primaries = context.color_trc = context.colorspace = BT709
        context.color_range = LIMITED
        context.thread_type = "AUTO"

    def write(self, frame: Any) -> None:
        """Add one frame, uint8 [H, W, 3] (numpy, or a tensor on any device)."""
        picture = as_numpy(frame)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ValueError(f"a frame is uint8 [H, W, 3], got {picture.dtype} {list(picture.shape)}")
        height, width = picture.shape[:2]
        if self._container is None:
            if self.frames:
                raise ValueError(f"the video {str(self.path)!r} is closed")
            self._open(width, height)
        if (width, height) != self.size:
            raise ValueError(f"the video is {self.size[0]} x {self.size[1]} pixels, the frame {width} x {height}")
        even = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        raw = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
        encoded = raw.reformat(format="yuv420p", dst_colorspace=BT709, dst_color_range=LIMITED, threads=1)
        encoded.pts, encoded.time_base = self.frames, 1 / self.fps
        self._container.mux(self._stream.encode(encoded))
        self.frames += 1

    def close(self) -> None:
        """Finish the file. A video without a frame is a ValueError and leaves no file."""
        if self._container is None:
            if not self.frames:
                raise ValueError(f"the video {str(self.path)!r} has no frame")
            return
        container, self._container = self._container, None
        if self.frames:
            container.mux(self._stream.encode(None))
        container.close()
        if not self.frames:
            self._part.unlink(missing_ok=True)  # it is created with the first frame
            raise ValueError(f"the video {str(self.path)!r} has no frame")
        os.replace(self._part, self.path)

    def __enter__(self) -> Video:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ValueError:
            if kind is None:
                raise


def read_video(path: str | Path) -> Iterator[np.ndarray]:
    """The frames of a video, uint8 [H, W, 3] each."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24", threads=1)


def as_numpy(image: Any) -> np.ndarray:
    """A numpy array of an image that may be a tensor."""
    return np.asarray(image.detach().cpu().numpy() if hasattr(image, "detach") else image)


# ---- pictures


def tile(images: Any, columns: int | None = None, scale: int = 1, gap: int = 0) -> np.ndarray:
    """Pictures uint8 [K, H, W, 3] side by side, row by row, as one [H', W', 3].

    Args:
        columns: by default a grid as square as possible. Empty places are black.
        scale: each pixel becomes ``scale`` x ``scale``.
        gap: black pixels between pictures.
    """
    pictures = as_numpy(images)
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or not len(pictures):
        raise ValueError(f"pictures are uint8 [K, H, W, 3] with K at least 1, got {pictures.dtype} "
                         f"{list(pictures.shape)}")
    for name, value, least in (("columns", columns, 1), ("scale", scale, 1), ("gap", gap, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"{name} is a whole number from {least}, got {value!r}")
    pictures = pictures.repeat(scale, axis=1).repeat(scale, axis=2)
    k, height, width = pictures.shape[:3]
    columns = columns or math.ceil(math.sqrt(k))
    rows = math.ceil(k / columns)
    out = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        top, left = i // columns * (height + gap), i % columns * (width + gap)
        out[top : top + height, left : left + width] = picture
    return out


def grey_depth(depth: Any, near: float, far: float) -> np.ndarray:
    """Depths [..., H, W], m, as pictures uint8 [..., H, W, 3]: white at ``near``, black at ``far`` and at 0."""
    if not 0 <= near < far:
        raise ValueError(f"needs 0 <= near < far, got {near} and {far}")
    values = as_numpy(depth).astype(np.float32)
    share = np.clip((far - values) / (far - near), 0, 1) * (values > 0)
    return np.repeat(np.rint(np.nan_to_num(share) * 255).astype(np.uint8)[..., None], 3, axis=-1)


OUTLINE = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))  # pixels around a letter's


def label(
    frame: Any, text: str | Sequence[str], *, color: tuple[int, int, int] = (255, 255, 255), corner: str = "top left"
) -> np.ndarray:
    """A copy of ``frame`` uint8 [H, W, 3] with a line or lines of text in a corner, outlined so that it reads anywhere.

    ``color``: red, green, blue. ``corner``: ``top`` or ``bottom``, ``left`` or ``right``.
    """
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("text in pictures needs cv2: pip install opencv-python-headless",
                                  name=error.name) from error
    words = corner.split()
    if len(words) != 2 or words[0] not in ("top", "bottom") or words[1] not in ("left", "right"):
        raise ValueError(f"corner is top or bottom, left or right; got {corner!r}")
    out = np.ascontiguousarray(as_numpy(frame)).copy()
    if out.dtype != np.uint8 or out.ndim != 3 or out.shape[2] != 3:
        raise ValueError(f"a frame is uint8 [H, W, 3], got {out.dtype} {list(out.shape)}")
    lines = [text] if isinstance(text, str) else list(text)
    size = max(0.35, out.shape[0] / 900)  # of the font; about a thirtieth of the picture's height
    font, thick = cv2.FONT_HERSHEY_SIMPLEX, max(1, round(size * 1.5))
    step = round(34 * size)
    for i, line in enumerate(lines):
        width = cv2.getTextSize(line, font, size, thick)[0][0]
        x = step // 3 if words[1] == "left" else out.shape[1] - width - step // 3
        y = step * (i + 1) if words[0] == "top" else out.shape[0] - step * (len(lines) - i) + step * 2 // 3
        for dx, dy in OUTLINE:  # not a thicker pen: in OpenCV 5 its letters are wider, too
            cv2.putText(out, line, (x + dx, y + dy), font, size, (0, 0, 0), thick, cv2.LINE_AA)
        cv2.putText(out, line, (x, y), font, size, color, thick, cv2.LINE_AA)
    return out
