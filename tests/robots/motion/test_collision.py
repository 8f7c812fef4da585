"""How near links come: never more than the truth, and the truth where shapes are capsules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.motion.collision import Capsules, Link, Nearness, apart, capsules_of
from temporeal.robots.spec import load_robot

FR3, LEAP = load_robot("franka"), load_robot("leap_hand")


def of(robot, margin=0.02):
    return capsules_of(robot.model, robot.sources["joint_pos"].names, tuple(robot.home["joint_pos"]), margin)


POINT = st.tuples(*[st.floats(-1, 1, width=32)] * 3)


@given(st.lists(st.tuples(POINT, POINT, POINT, POINT), min_size=1, max_size=5))
@settings(max_examples=examples(200), deadline=None)
def test_the_distance_of_segments_is_the_least_of_all_their_points(rows):
    """No pair of points is nearer, and some pair on a fine grid is about as near."""
    points = np.array(rows, dtype=float)
    a, b = points[:, :2], points[:, 2:]
    found = apart(a, b)
    s = np.linspace(0, 1, 41)
    on_a = a[:, :1] + s[None, :, None] * (a[:, 1:] - a[:, :1])
    on_b = b[:, :1] + s[None, :, None] * (b[:, 1:] - b[:, :1])
    grid = np.linalg.norm(on_a[:, :, None] - on_b[:, None], axis=-1).min((1, 2))
    # shorter than a micrometre they are points
    assert (found <= grid + 2e-6).all() and (grid - found <= 0.1).all()


@pytest.mark.parametrize(("a", "b", "distance"), [
    ([[0, 0, 0], [1, 0, 0]], [[0, 1, 0], [1, 1, 0]], 1.0),  # parallel
    ([[0, 0, 0], [1, 0, 0]], [[2, 0, 0], [3, 0, 0]], 1.0),  # in one line
    ([[0, 0, 0], [1, 0, 0]], [[0.5, -1, 2], [0.5, 1, 2]], 2.0),  # crossing
    ([[0, 0, 0], [0, 0, 0]], [[3, 4, 0], [3, 4, 0]], 5.0),  # points
    ([[0, 0, 0], [0, 0, 0]], [[-1, 1, 0], [1, 1, 0]], 1.0),  # a point and a segment
    ([[-1, 1, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 0]], 1.0),
    ([[0, 0, 0], [1, 0, 0]], [[2, 1, 0], [2, 3, 0]], 2**0.5),  # ends
    ([[0, 0, 0], [1, 0, 0]], [[0.5, 0, 0], [0.5, 1, 0]], 0.0),  # touching
])
def test_segments_by_hand(a, b, distance):
    assert apart(np.array([a], float), np.array([b], float))[0] == pytest.approx(distance)


@pytest.mark.parametrize("robot", [FR3, LEAP], ids=["franka", "leap_hand"])
def test_no_distance_is_more_than_mujocos(robot):
    """MuJoCo measures the shapes themselves; capsules are around them."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    data, found = mujoco.MjData(model), of(robot)
    names, rng = robot.sources["joint_pos"].names, np.random.default_rng(0)
    joints = [model.joint(name) for name in names]
    shapes = [g for link in found.links for g in range(model.ngeom) if model.geom_bodyid[g] == model.body(link.name).id
              and (model.geom_contype[g] or model.geom_conaffinity[g])]
    assert len(shapes) == len(found.of) and len(found.first) > 100
    for _ in range(20):
        q = np.array([rng.uniform(*joint.range) for joint in joints])
        for joint, value in zip(joints, q):
            data.qpos[joint.qposadr[0]] = value
        mujoco.mj_kinematics(model, data)
        for ours, i, j in zip(found.clearances(q), found.first, found.second):
            true = mujoco.mj_geomDistance(model, data, shapes[i], shapes[j], 2.0, None)
            assert ours <= true + 1e-6, (i, j)


def test_the_arm_at_home_is_clear_and_folded_it_is_not():
    found = of(FR3)
    assert found.distance(FR3.home["joint_pos"])[0] > 0.05
    folded = [0.0, 1.0, 0.0, -3.0, 0.0, 3.0, 0.0]
    least, who = found.distance(folded)
    assert least < 0.02 and " and " in who


def test_links_that_share_a_joint_are_no_pair():
    found = of(FR3)
    looked_at = {frozenset((found.links[found.of[i]].name, found.links[found.of[j]].name))
                 for i, j in zip(found.first, found.second)}
    for i in range(7):
        assert frozenset((f"fr3_link{i}", f"fr3_link{i + 1}")) not in looked_at
    assert frozenset(("fr3_link2", "fr3_hand")) in looked_at and frozenset(("fr3_link5", "fr3_link7")) not in looked_at


def test_joints_that_the_model_does_not_have_are_named():
    with pytest.raises(RobotFileError, match="no joints \\['elbow'\\]; it has: fr3_finger_joint1"):
        capsules_of(FR3.model, ("elbow",), (0.0,), 0.02)


def test_what_cannot_be_read_is_said(tmp_path):
    path = tmp_path / "mesh.xml"
    path.write_text('<mujoco><worldbody><body name="a"><geom type="mesh" mesh="m"/></body></worldbody></mujoco>')
    with pytest.raises(RobotFileError, match="shape 'mesh' is not read here; legal: sphere"):
        capsules_of(path, (), (), 0.0)
    path = tmp_path / "axes.xml"
    path.write_text('<mujoco><worldbody><body name="a" zaxis="0 0 1"/></worldbody></mujoco>')
    with pytest.raises(RobotFileError, match="zaxis is not read here"):
        capsules_of(path, (), (), 0.0)


@pytest.mark.parametrize("robot", [FR3, LEAP], ids=["franka", "leap_hand"])
def test_no_clearance_changes_by_more_than_the_reach_of_the_joints_that_turned(robot):
    """Of many joints, and of one alone, from anywhere."""
    found, rng = of(robot), np.random.default_rng(0)
    low, high = (np.array(getattr(robot.command("joint_pos_cmd"), end)) for end in ("low", "high"))
    assert np.isfinite(found.reach).all() and (found.reach > 0).all()
    for size in (1e-3, 0.03, 0.5):
        for alone in (True, False):
            for _ in range(50):
                place, turn = rng.uniform(low, high), size * rng.normal(size=len(low))
                turn = turn * (np.arange(len(low)) == rng.integers(len(low))) if alone else turn
                change = np.abs(found.clearances(place + turn) - found.clearances(place)).max()
                assert change <= np.abs(turn) @ found.reach + 1e-12


def test_reach_by_hand():
    """A bar of 1 m with a ball of 0.1 m at its end, turned at the bar's foot; the ball's own hinge is at its centre."""
    def chain(slides):
        links = [Link("bar", -1, np.zeros(3), np.eye(3), "shoulder"),
                 Link("ball", 0, np.array([1.0, 0, 0]), np.eye(3), "wrist", slides)]
        return Capsules(links, [1], np.zeros((1, 2, 3)), np.array([0.1]), ["wrist", "shoulder"], np.zeros(2), 0.0)

    assert chain(False).reach == pytest.approx([0.1, 1.1])
    assert chain(True).reach[0] == 1.0 and chain(True).reach[1] == np.inf  # it may slide out by any length


def test_what_is_told_clear_without_looking_is_clear():
    """Along a walk with small steps the answer is mostly known, and never wrong; what nobody knows is not clear."""
    found, rng = of(FR3), np.random.default_rng(1)
    near, place, known = Nearness(found, 0.02), np.array(FR3.home["joint_pos"]), 0
    assert not near.clear(place)
    for _ in range(2000):
        place = place + 2e-3 * rng.normal(size=7)
        least, _ = found.distance(place)
        if near.clear(place):
            known += 1
            assert least >= 0.02
        else:
            assert near.distance(place) == (least, found.distance(place)[1])
    assert known > 1500
    assert not near.clear(np.full(7, np.nan))
