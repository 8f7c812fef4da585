"""Where points of the world are in a rig's pictures: the pinhole model of each camera, as the renderers have it.

N worlds, C cameras, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from temporeal.sim.rendering.cameras import Camera


class CameraPoses(NamedTuple):
    """Where cameras are; NaN of worlds that no picture was made of yet."""

    pos: Tensor  # [N, C, 3] m, in the world
    mat: Tensor  # [N, C, 3, 3]: the columns are the camera's axes in the world: right, up, backwards
    fovy_deg: Tensor  # [N, C] vertical field of view; of an orthographic camera its height [m]


class Projection(NamedTuple):
    """Points in pictures."""

    pixel: Tensor  # [N, C, P, 2]: row and column, from the picture's upper left corner; a pixel's centre is at a half
    inside: Tensor  # [N, C, P] bool: before the camera and within the picture; what hides a point is not asked


def project(points: Tensor, poses: CameraPoses, cameras: Sequence[Camera], nearest: float = 0.01) -> Projection:
    """The ``points`` [N, P, 3] m, in the world, in the pictures of perspective cameras.

    Args:
        nearest: m before a camera from which on a point is seen.
    """
    size = torch.tensor([[c.height, c.width] for c in cameras], dtype=points.dtype, device=points.device)
    there = torch.einsum("ncji,ncpj->ncpi", poses.mat, points[:, None] - poses.pos[:, :, None])
    focal = 0.5 * size[:, 0] / torch.tan(0.5 * torch.deg2rad(poses.fovy_deg))  # [N, C] pixels, of square pixels
    depth = -there[..., 2]
    along = focal[:, :, None] / depth.clamp(min=nearest)
    pixel = 0.5 * size[None, :, None] + torch.stack((-there[..., 1] * along, there[..., 0] * along), -1)
    within = (pixel >= 0.0).all(-1) & (pixel < size[None, :, None]).all(-1)
    return Projection(pixel, (depth > nearest) & within)
