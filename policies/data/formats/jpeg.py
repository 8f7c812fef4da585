"""Pictures that a file keeps as JPEG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.video import THREADS


def pictures(packed: Sequence[np.ndarray], shape: tuple[int, ...], name: str) -> np.ndarray:
    """[T, *shape] uint8 of JPEG pictures; ``shape``: [H, W] or [H, W, 3]."""
    import av

    out = np.empty((len(packed), *shape), np.uint8)
    decoder = av.CodecContext.create("mjpeg", "r")
    for k, data in enumerate(packed):
        try:
            (frame,) = decoder.decode(av.Packet(data.tobytes()))
            picture = frame.to_ndarray(format="rgb24" if len(shape) == 3 else "gray", threads=THREADS)
        except (av.error.FFmpegError, ValueError) as error:
            raise DataError(f"{name}, index {k}: no JPEG picture: {error}") from error
        if picture.shape != shape:
            raise DataError(f"{name}, index {k}: the picture is {picture.shape}; {shape} is "
                            "needed")
        out[k] = picture
    return out
