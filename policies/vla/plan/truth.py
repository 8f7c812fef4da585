"""What a plan should be, of a dataset that says where things are: boxes in a picture, and the way of the tool.

A box is that of the eight corners of a cube around a thing's middle, projected through the camera as the dataset states
it. Nobody drew it, and what hides a thing is not asked. S samples, B = 2 boxes (target, place), P waypoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from temporeal.policies.data.episodes.interface import DIFFERS, SEEING, DataError, Interface
from temporeal.policies.nets.encoders import is_picture
from temporeal.policies.training.chunks.windows import Source, tensor
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.config import TOLD, VlaConfig
from temporeal.robots.spec import load_robot
from temporeal.sim.rendering.cameras import Camera, parse_cameras
from temporeal.sim.rendering.projection import CameraPoses, project
from temporeal.sim.rotations import rotation

BOXES, SEEN, PATH = "plan.boxes", "plan.seen", "plan.path"
"""Keys among the signals of a batch: [S, B, 4] shares of the picture's height and width; bool [S, B], which of them are
in the picture; [S, P, 3] m."""


def truth(data: Source, config: VlaConfig) -> dict[str, Tensor]:
    """Of all samples of ``data``."""
    camera, tool = stated(data.interface, config)
    places = torch.stack([tensor(data.column(name)) for name in TOLD], 1)
    boxes, seen = boxes_of(places, config.plan_sizes, camera)
    return {BOXES: boxes, SEEN: seen, PATH: path_of(tensor(data.column(tool)), data.starts, config)}


def stated(interface: Interface, config: VlaConfig) -> tuple[Camera, str]:
    """The plan's camera and the signal of the tool's place. A dataset that does not say where things are, and a camera
    whose pictures are not among those that ``config.signals`` reads, are refused."""
    tool = f"{load_robot(interface.robot).tool}_pos_w"
    if missing := [name for name in (*TOLD, tool) if name not in interface.signals]:
        raise DataError(f"algo.plan={config.plan}: plans are learned of where target, place and tool are, and the "
                        f"dataset has no signal {', '.join(missing)}")
    camera = camera_of(interface, config.plan_camera)
    if (wanted := f"{camera.name}_rgb") not in config.signals:
        read = [name for name in config.signals if name in interface.signals and is_picture(interface.signals[name])]
        raise SettingsError(f"algo.plan_camera={camera.name}: boxes are places in the pictures {wanted}, which the "
                            f"policy does not read; it reads: {', '.join(read) or 'no pictures'}")
    return camera, tool


def path_of(tool: Tensor, starts: np.ndarray, config: VlaConfig) -> Tensor:
    """Where the ``tool`` [S, 3] will be after each further ``config.plan_step`` steps; at an episode's end, there."""
    lengths = np.diff(starts)
    last = torch.from_numpy(np.repeat(np.asarray(starts)[1:] - 1, lengths))
    ahead = config.plan_step * torch.arange(1, config.plan + 1)
    return tool[torch.minimum(torch.arange(len(tool))[:, None] + ahead, last[:, None])]


def boxes_of(places: Tensor, sizes: Sequence[float], camera: Camera) -> tuple[Tensor, Tensor]:
    """Boxes [S, B, 4] of things at ``places`` [S, B, 3] m, cut off at the picture's border, and whether [S, B] the
    things' middles are in the picture. ``sizes`` [B]: half an edge of their cubes, m."""
    signs = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    corners = places[:, :, None] + torch.tensor(list(sizes))[:, None, None] * signs  # [S, B, 8, 3]
    poses = CameraPoses(torch.tensor(camera.pos).expand(len(places), 1, 3),
                        rotation(normalize(torch.tensor([camera.quat]), dim=-1)).expand(len(places), 1, 3, 3),
                        torch.tensor(camera.fovy_deg or 45.0).expand(len(places), 1))
    found = project(corners.flatten(1, 2), poses, (camera,))
    shares = found.pixel[:, 0].unflatten(1, corners.shape[1:3]) / torch.tensor([camera.height, camera.width])
    shares = shares.clamp(0.0, 1.0)
    return torch.cat([shares.amin(2), shares.amax(2)], -1), project(places, poses, (camera,)).inside[:, 0]


def camera_of(interface: Interface, name: str) -> Camera:
    """The camera ``name`` as the dataset states it; one whose place it does not state is refused."""
    settings: Any = interface.about.get("settings")
    differs = interface.about.get(DIFFERS)
    if several := [key for key in SEEING if isinstance(differs, Sequence) and key in differs]:
        raise DataError(f"algo.plan_camera={name}: the dataset was merged of sets that differ in {', '.join(several)}: "
                        "where the camera stood is not the same for all episodes; plan with one of these sets alone")
    listed = settings.get("cameras") if isinstance(settings, Mapping) else None
    if not isinstance(listed, Mapping) or name not in listed:
        known = ", ".join(listed) if isinstance(listed, Mapping) else ""
        raise DataError(f"algo.plan_camera={name}: the dataset does not state where such a camera was; it states: "
                        f"{known or 'none'}")
    (camera,) = parse_cameras({name: listed[name]})
    if camera.pos is None or camera.body != "world":
        raise SettingsError(f"algo.plan_camera={name}: boxes are seen by a camera that stands at a stated place in "
                            "the world (pos, quat); this one moves, or its model places it")
    changes = settings.get("randomize")
    looks = changes.get("appearance") if isinstance(changes, Mapping) else None
    if isinstance(looks, Mapping) and any(key.startswith(f"camera.{name}.") for key in looks):
        raise SettingsError(f"algo.plan_camera={name}: the dataset's camera stood elsewhere in each episode "
                            "(randomize), and it does not state where")
    return camera
