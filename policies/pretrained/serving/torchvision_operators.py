"""Names of two operators, so that a torchvision that is compiled for another torch can be imported.

torchvision from PyPI is compiled for one torch. With another its compiled part is not loaded, and its import asks for
these two operators' names; nothing that is served calls them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

KEPT: list[Any] = []  # a library's names go with it


def define() -> None:
    """Define the names, where they are not; before transformers or LeRobot are imported."""
    library: Any = torch.library
    with suppress(RuntimeError):
        found = library.Library("torchvision", "DEF")
        found.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        found.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(found)
