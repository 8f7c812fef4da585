"""Demonstrations on a small table seen from above: the tool goes straight to a square that lies somewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tests.policies.toy_demonstrations import InMemory, episodes

from temporeal.robots.signals import SignalSpec

SIZE = 16  # pixels of a side, of 2 m: the camera is 1 m over the table and sees 90 degrees
FRONT: dict[str, Any] = {"width": SIZE, "height": SIZE, "kinds": ["rgb"], "fovy_deg": 90.0, "pos": [0.0, 0.0, 1.0],
                         "quat": [1.0, 0.0, 0.0, 0.0]}


def place(name: str) -> SignalSpec:
    return SignalSpec(name, (3,), "m", "w")


def table(count: int = 48, steps: int = 8, seed: int = 0, **front: Any) -> InMemory:
    """The place is 0.25 m beside the target (+x). ``front``: other settings of the camera."""
    rng = np.random.default_rng(seed)
    target = np.concatenate([rng.uniform(-0.6, 0.6, (count, 2)), np.zeros((count, 1))], 1).astype(np.float32)
    picture = np.zeros((count, SIZE, SIZE, 3), np.uint8)
    for k, (x, y, _) in enumerate(target):
        row, column = int(8 - 8 * y), int(8 + 8 * x)
        picture[k, row - 1 : row + 2, column - 1 : column + 2] = 255
    share = (np.arange(steps + 1) / steps)[None, :, None].astype(np.float32)
    still = [value[:, None].repeat(steps + 1, 1) for value in (picture, target, target + np.float32([0.25, 0, 0]))]
    found = episodes(
        {"front_rgb": still[0], "target_pos_w": still[1], "place_pos_w": still[2], "grip_pos_w": share * still[1]},
        target[:, None, :2].repeat(steps, 1), SignalSpec("front_rgb", (SIZE, SIZE, 3), "1", "", "uint8"),
        place("target_pos_w"), place("place_pos_w"), place("grip_pos_w"))
    about = {"settings": {"cameras": {"front": {**FRONT, **front}}}}
    return replace(found, interface=replace(found.interface, robot="franka", about=about))
