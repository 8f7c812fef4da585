"""Figures: meshes are MuJoCo's geoms, poses are MuJoCo's, what is followed is what the formula is about."""

from __future__ import annotations

from math import pi

import mujoco
import numpy as np
import pytest

from temporeal.policies.evaluate.scene_figure import (
    Mesh,
    box,
    capsule_outline,
    ellipsoid,
    hills,
    hull,
    mesh_of,
    sound,
    stage_of,
    turned,
)
from temporeal.sim.task import load_task


def volume(mesh: Mesh) -> float:
    """By the divergence theorem: right only for a closed surface whose corners run counter-clockwise."""
    a, b, c = (mesh.vertices[mesh.triangles()[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize(("mesh", "want"), [
    (box((0.1, 0.2, 0.3), 0.05), 8 * 0.006),
    (box((0.1, 0.2, 0.3), 9.0), 8 * 0.006),
    (ellipsoid((0.1, 0.2, 0.3), 96), 4 / 3 * pi * 0.006),
    (turned([(0.1, -0.3), (0.1, 0.3)], 96), pi * 0.01 * 0.6),
    (turned(capsule_outline(0.1, 0.3, 96), 96), pi * 0.01 * 0.6 + 4 / 3 * pi * 0.001),
])
def test_meshes_are_closed_and_face_outwards(mesh: Mesh, want: float) -> None:
    assert volume(mesh) == pytest.approx(want, rel=5e-3)
    edges = [pair for face in mesh.faces for pair in zip(face, face[1:] + face[:1])]
    at = [tuple(np.round(v, 9)) for v in mesh.vertices]  # the sides of a box have corners of their own
    ways = {(at[a], at[b]) for a, b in edges}
    assert ways == {(b, a) for a, b in ways}


def test_a_large_mesh_becomes_a_hull_that_nearly_fills_it() -> None:
    ball = ellipsoid((0.1, 0.1, 0.2), 64)
    simple = hull(ball.vertices, 100)
    assert len(simple.faces) <= 100
    assert 0.85 * volume(ball) < volume(simple) < volume(ball)


TERRAIN = """<mujoco><asset><hfield name="h" nrow="4" ncol="5" size="2 1 0.5 0.1"
  elevation="0 0 0 0 0  0 1 0 0 0  0 0 0 0 0  0 0 0 0 1"/>
  <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
  <worldbody><geom type="hfield" hfield="h"/><geom type="mesh" mesh="wedge" group="1"/>
  <geom type="plane" size="1 1 1" group="1"/></worldbody></mujoco>"""


def test_what_users_models_may_hold() -> None:
    mj = mujoco.MjModel.from_xml_string(TERRAIN)
    ground = mesh_of(mj, 0, 8, 0.1, None)
    assert ground is not None
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    inner = ground.vertices * [0.999, 0.999, 1]  # the rim itself is missed
    heights = [5 - mujoco.mj_ray(mj, data, np.array([x, y, 5.0]), np.array([0, 0, -1.0]), np.array([1, 0, 0, 0, 0, 0],
               np.uint8), True, -1, np.zeros(1, np.int32), None) for x, y, _ in inner]
    assert ground.vertices[:, 2].max() == pytest.approx(0.5) and len(inner) == 20
    np.testing.assert_allclose(heights, ground.vertices[:, 2], atol=2e-3)
    a, b, c = (ground.vertices[ground.triangles()[0, i]] for i in range(3))
    assert np.cross(b - a, c - a)[2] > 0
    assert len(hills(mj, 0, 4).faces) <= 6
    wedge = mesh_of(mj, 1, 8, 0.1, 500)
    assert wedge is not None and volume(wedge) == pytest.approx(1 / 6)
    assert mesh_of(mj, 2, 8, 0.1, None) is None


def test_parts_lie_where_mujoco_puts_their_geoms() -> None:
    figure = stage_of(load_task("lift"), corners=8).figure
    rng = np.random.default_rng(0)
    qpos = figure.model.home_qpos + 0.3 * rng.normal(size=(2, figure.model.mj.nq))
    pos, quat = figure.poses(qpos)
    data = mujoco.MjData(figure.model.mj)
    for k in range(2):
        data.qpos[:] = qpos[k]
        mujoco.mj_kinematics(figure.model.mj, data)
        cube = data.geom("cube.geom")
        part = next(p for p in figure.parts if p.name == "cube.geom")
        corners = part.mesh.moved(pos[k, part.body], quat[k, part.body]).vertices
        local = (corners - cube.xpos) @ cube.xmat.reshape(3, 3)
        np.testing.assert_allclose(np.abs(local).max(0), 0.02, atol=1e-9)
    assert figure.floors == (0.0,)


def test_positions_come_back_from_signals() -> None:
    figure = stage_of(load_task("lift"), corners=8).figure
    joints = np.linspace(-0.4, 0.4, 14).reshape(2, 7) + [0, -0.5, 0, -2, 0, 1.8, 0.7]
    cube = np.array([[0.5, 0.1, 0.2], [np.nan, 0, 0]])
    qpos = figure.qpos({"joint_pos": joints, "cube_pos_w": cube, "finger_pos": np.full((2, 2), 0.01),
                        "cube_quat_w": np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]), "grip_pos_w": np.zeros((2, 3))})
    reads = figure.model.reads
    np.testing.assert_allclose(qpos[:, reads["joint_pos"].columns], joints)
    np.testing.assert_allclose(qpos[:, reads["cube_pos_w"].columns], cube[[0, 0]])  # the sample before stands in
    np.testing.assert_allclose(qpos[:, reads["cube_quat_w"].columns], [[1, 0, 0, 0]] * 2)


def test_a_quadrotors_pose_is_its_position() -> None:
    figure = stage_of(load_task("hover"), corners=8).figure
    pose = {"base_pos_w": np.array([[0.1, 0.2, 0.3]]), "base_quat_w": np.array([[0.0, 1.0, 0.0, 0.0]])}
    pos, quat = figure.poses(figure.qpos(pose))
    np.testing.assert_allclose(pos[0, 0], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(quat[0, 0], [0, 1, 0, 0])


def test_rows_that_are_not_finite_are_those_before() -> None:
    given = np.array([[np.nan, 1.0], [2.0, 3.0], [np.inf, 4.0], [5.0, 6.0]])
    np.testing.assert_array_equal(sound(given), [[0, 0], [2, 3], [2, 3], [5, 6]])


@pytest.mark.parametrize(("task", "point", "attitude", "goals"), [
    ("reach", "grip_pos_w", "grip_quat_w", [("goal_pos_w", "goal_quat_w")]),
    ("lift", "cube_pos_w", "cube_quat_w", [("goal_pos_w", None)]),
    ("peg", "peg_pos_w", "peg_quat_w", []),
    ("drawer", "grip_pos_w", "grip_quat_w", []),
    ("cube_reorient", "cube_pos_w", "cube_quat_w", [(None, "goal_quat_w")]),
    ("ant", "base_pos_w", "base_quat_w", [("goal_pos_w", None)]),
    ("waypoints", "base_pos_w", "base_quat_w", []),
])
def test_what_is_followed_is_what_the_formula_is_about(
    task: str, point: str, attitude: str, goals: list[tuple[str, str | None]]
) -> None:
    stage = stage_of(load_task(task), corners=6)
    assert (stage.point, stage.attitude) == (point, attitude)
    assert [(g.place, g.attitude) for g in stage.goals] == goals


def test_a_ghost_is_of_the_free_object_that_a_goal_is_for() -> None:
    stage = stage_of(load_task("cube_reorient"), corners=6)
    (goal,) = stage.goals
    (part,) = stage.ghost(goal)
    assert part.name == "cube.geom" and np.abs(part.mesh.vertices).max() == pytest.approx(0.035)
    arm = stage_of(load_task("reach"), corners=6)  # the attitude of a gripper: no object of its own
    assert arm.thing is None and arm.ghost(arm.goals[0]) == ()


def test_what_stands_is_followed_where_the_formula_names_nothing_else() -> None:
    task = load_task("peg", formula="G[0,8] (hole_pos_w.z > 0 & hole_force < force)")
    stage = stage_of(task, corners=6)
    assert (stage.point, stage.attitude, stage.thing) == ("hole_pos_w", "hole_quat_w", None)
