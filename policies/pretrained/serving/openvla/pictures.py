"""Pictures as OpenVLA and OpenVLA-OFT get them, without TensorFlow.

The original (``experiments/robot/openvla_utils.py``) scales by TensorFlow as its datasets were: JPEG (quality 95) and
back, Lanczos with antialiasing, then the middle nine tenths of the area, bilinear. Pillow's Lanczos rounds otherwise:
see ``docs/how-to/pretrained-models.md``.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

from temporeal.policies.pretrained.serving.folders import json_of
from temporeal.robots.handed_over.files import Refused

FILE = "preprocessor_config.json"
CROP = 0.9  # of the area; ``center_crop_image``
QUALITY = 95  # of JPEG; TensorFlow's default


@dataclass(frozen=True)
class Normal:
    """How a picture becomes numbers.

    Args:
        pixels: of a side. ``mean``, ``std``: [6], of three colours for DINOv2 and for SigLIP.
    """

    pixels: int
    mean: np.ndarray
    std: np.ndarray

    def numbers(self, picture: np.ndarray) -> np.ndarray:
        """[6, pixels, pixels] float32 of ``picture`` [pixels, pixels, 3] uint8."""
        twice = np.concatenate([picture, picture], 2).astype(np.float32) / np.float32(255.0)
        return np.asarray(((twice - self.mean) / self.std).transpose(2, 0, 1), np.float32)


def normal_of(folder: Path) -> Normal:
    """What the picture processor of a checkpoint says."""
    given = json_of(folder, FILE)
    try:
        sizes = {tuple(size) for size in given["input_sizes"]}
        ((_, height, width),) = sizes
        mean, std = (np.asarray(given[key], np.float32).reshape(6) for key in ("means", "stds"))
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{folder / FILE} is not that of two vision towers of one size ({error}): input_sizes, means and "
                      "stds of two are needed") from error
    if height != width or type(height) is not int or not 0 < height <= 4096 or (std <= 0.0).any():
        raise Refused(f"{folder / FILE}: pictures of {height} by {width}, deviations {std.tolist()}; a square and "
                      "numbers above 0 are needed")
    if given.get("image_resize_strategy") != "resize-naive":
        raise Refused(f"{folder / FILE}: image_resize_strategy is {str(given.get('image_resize_strategy'))[:40]!r}; "
                      "served: resize-naive")
    return Normal(height, mean, std)


def prepared(picture: np.ndarray, pixels: int, crop: bool) -> np.ndarray:
    """``picture`` [H, W, 3] uint8 as [pixels, pixels, 3]."""
    if picture.shape[:2] != (pixels, pixels):
        picture = resized(picture, pixels)
    return center(picture, pixels) if crop else picture


def resized(picture: np.ndarray, pixels: int) -> np.ndarray:
    """``picture`` as a JPEG, read and scaled."""
    from PIL import Image  # of the model's environment

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return np.asarray(Image.open(file).resize((pixels, pixels), Image.Resampling.LANCZOS))


def center(picture: np.ndarray, pixels: int) -> np.ndarray:
    """The middle of ``picture`` [S, S, 3], :data:`CROP` of its area, bilinear (TensorFlow's ``crop_and_resize``)."""
    side, last = sqrt(CROP), len(picture) - 1
    places = np.linspace((1.0 - side) / 2.0 * last, (1.0 + side) / 2.0 * last, pixels)
    low = np.floor(places).astype(int)
    high, part = np.minimum(low + 1, last), (places - low).astype(np.float32)
    values = picture.astype(np.float32) / np.float32(255.0)
    rows = values[low] + part[:, None, None] * (values[high] - values[low])
    both = rows[:, low] + part[None, :, None] * (rows[:, high] - rows[:, low])
    return np.asarray(both.clip(0.0, 1.0) * np.float32(255.5)).astype(np.uint8)
