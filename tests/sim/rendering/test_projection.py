"""Where a point is in a picture, against the pictures themselves: a ball's pixels are around where its centre is."""

from __future__ import annotations

import math

import mujoco
import pytest
import torch

from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.rendering.projection import CameraPoses, project
from temporeal.sim.rendering.rig import Rig

BALL = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <camera name="above" pos="0.1 0 2" fovy="60"/>
    <body name="arm" pos="0 -1 1"><joint name="turn" axis="0 0 1"/><geom size="0.01" group="3"/>
      <camera name="wrist" pos="0 0.1 0" xyaxes="1 0 0 0 0 1"/></body>
    <body name="ball"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
      <joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.06" rgba="1 0 0 1"/></body>
  </worldbody>
</mujoco>
"""
EYES = (Camera("above", 96, 64), Camera("wrist", 64, 64),
        Camera("side", 80, 64, pos=(0.0, -2.5, 0.5), quat=(math.sqrt(0.5), math.sqrt(0.5), 0, 0), fovy_deg=50.0))


def middle(picture: torch.Tensor) -> torch.Tensor:
    """Row and column of the middle of what is red."""
    seen = (picture[..., 0] > 60).nonzero().float() + 0.5
    assert len(seen) > 4
    return seen.mean(0)


@pytest.mark.parametrize("renderer", [pytest.param("warp", marks=pytest.mark.slow), "gl"])
def test_a_ball_is_seen_where_its_centre_is_projected(renderer: str) -> None:
    rig = Rig(mujoco.MjModel.from_xml_string(BALL), 3, EYES, renderer=renderer)
    assert rig.poses().pos.isnan().all()
    qpos = torch.tensor([[0.0, 0.3, 0.2, 0.9], [0.3, -0.4, 0.35, 1.1], [-0.2, 0.1, -0.1, 1.0]])  # the arm's, the ball's
    images = rig.render(qpos)
    found = project(qpos[:, None, 1:], rig.poses(), rig.cameras)
    for i, camera in enumerate(EYES):
        for world in range(3):
            assert found.inside[world, i, 0]
            assert (middle(images[f"{camera.name}_rgb"][world]) - found.pixel[world, i, 0]).abs().max() < 0.7
    behind = project(torch.tensor([[[0.0, -9.0, 1.0]]] * 3), rig.poses(), rig.cameras)
    assert not behind.inside.any()
    before = rig.poses()
    rig.render(qpos[:1] + 0.5, ids=torch.tensor([2]))  # one world alone moves
    assert torch.equal(rig.poses().mat[:2], before.mat[:2]) and not torch.equal(rig.poses().mat[2], before.mat[2])
    rig.close()


def test_pixels_by_hand() -> None:
    poses = CameraPoses(torch.tensor([[[0.0, 0.0, 2.0]]]), torch.eye(3)[None, None], torch.tensor([[90.0]]))
    found = project(torch.tensor([[[0.0, 0.0, 0.0], [1.0, 0.5, 1.0], [3.0, 0.0, 0.0]]]), poses, (Camera("up", 40, 20),))
    assert torch.allclose(found.pixel[0, 0], torch.tensor([[10.0, 20.0], [5.0, 30.0], [10.0, 35.0]]), atol=1e-4)
    assert found.inside.all()  # the picture is twice as wide as high: 45 degrees up, more to the side
    assert not project(torch.tensor([[[5.0, 0.0, 0.0]]]), poses, (Camera("up", 40, 20),)).inside.any()
