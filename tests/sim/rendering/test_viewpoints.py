"""Cameras that stand at a viewpoint by their name, and fields of the model that are handed over with each picture."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.rendering.rig import Rig
from temporeal.sim.rendering.viewpoints import looking, placed, upright
from temporeal.sim.scene import View

SCENE = """<mujoco><worldbody><light pos="0 0 3"/><camera name="own" pos="0 0 2"/>
<body name="box" pos="0 0 0.1"><geom type="box" size="0.1 0.1 0.1" rgba="1 0 0 1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("pos", [(1.3, 0.0, 0.8), (-0.4, 2.0, 0.1), (0.0, 0.0, 3.0)])
def test_a_camera_looks_at_its_target_upright(pos: tuple[float, float, float]) -> None:
    matrix, target = np.zeros(9), (0.0, 0.0, 0.2)
    mujoco.mju_quat2Mat(matrix, np.array(looking(pos, target)))
    right, up, back = matrix.reshape(3, 3).T
    way = np.subtract(target, pos)
    np.testing.assert_allclose(-back, way / np.linalg.norm(way), atol=1e-9)
    assert abs(right[2]) < 1e-9 and up[2] >= -1e-9


def test_only_a_name_without_a_place_stands_at_a_viewpoint() -> None:
    model = mujoco.MjModel.from_xml_string(SCENE)
    views = {name: upright((1.0, 0.0, 1.0), (0.0, 0.0, 0.0), 30.0) for name in ("own", "front")}
    assert placed(model, Camera("front", 8, 8), views).pos == (1.0, 0.0, 1.0)
    assert placed(model, Camera("front", 8, 8, fovy_deg=50.0), views).fovy_deg == 50.0
    for kept in (Camera("own", 8, 8), Camera("front", 8, 8, pos=(0.0, 0.0, 1.0)), Camera("other", 8, 8)):
        assert placed(model, kept, views) is kept


def test_a_view_of_a_site_is_on_its_body() -> None:
    model = mujoco.MjModel.from_xml_string(SCENE.replace(
        "<geom", '<site name="tip" pos="0 0 0.2" euler="0 0 90"/><geom'))
    seen = placed(model, Camera("tip", 8, 8), {"tip": View((0.1, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), 60.0, "tip")})
    assert seen.body == "box" and seen.fovy_deg == 60.0
    np.testing.assert_allclose(seen.pos, (0.0, 0.1, 0.2), atol=1e-9)
    np.testing.assert_allclose(seen.quat, (0.5**0.5, 0.0, 0.0, 0.5**0.5), atol=1e-9)


def test_a_body_that_is_moved_in_the_model_is_seen_where_it_is() -> None:
    pytest.importorskip("mujoco.egl")
    model = mujoco.MjModel.from_xml_string(SCENE)
    with Rig(model, 2, (Camera("own", 16, 16, ("rgb",)),), renderer="gl", moved=("body_pos",)) as rig:
        places = torch.tensor(model.body_pos, dtype=torch.float32).repeat(2, 1, 1)
        places[1, 1, 0] = 5.0  # out of sight
        seen = rig.render(torch.zeros(2, 0), moved={"body_pos": places})["own_rgb"]
        assert seen[0].float().amax() > 100 and not seen[1].any()
        with pytest.raises(ValueError, match="is handed body_pos with each picture, got none"):
            rig.render(torch.zeros(2, 0))
        with pytest.raises(ValueError, match=r"body_pos has shape \[2, 2, 3\]"):
            rig.render(torch.zeros(2, 0), moved={"body_pos": places[:, :1]})
