"""Hands: the MJCF says what was published, agrees with Pinocchio, holds its pose and a cube, and knows its limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.robots import articulated

from temporeal.robots.allegro_hand import spec as allegro
from temporeal.robots.leap_hand import spec as leap
from temporeal.robots.spec import RobotSpec, load_robot

HANDS = ("leap_hand", "allegro_hand")
TIPS = ("index_tip", "middle_tip", "ring_tip", "thumb_tip")
PALM = np.array([0.0, 0.0, 0.2])  # where the hand frame stands in the world, m
QUARTER, FIVE = np.pi / 2, np.radians(5)

# origins (xyz m, rpy rad) of joints in their parents, outward from the palm
# LEAP_Hand_Sim, robot.urdf: all axes are (0, 0, -1)
LEAP_FRAMES = {
    **{finger: (((-0.0070952, y, -0.0187224), (QUARTER, QUARTER, 0)),
                ((-0.0122, 0.0381, 0.0145), (-QUARTER, 0, QUARTER)),
                ((0.015, 0.0143, -0.013), (QUARTER, -QUARTER, 0)),
                ((0, -0.0361, 0.0002), (0, 0, 0)))
       for finger, y in (("index", 0.0230578), ("middle", -0.0223922), ("ring", -0.0678422))},
    "thumb": (((-0.0693952, -0.0012422, -0.0216224), (0, QUARTER, 0)), ((0, 0.0143, -0.013), (QUARTER, -QUARTER, 0)),
              ((0, 0.0145, -0.017), (-QUARTER, 0, 0)), ((0, 0.0466, 0.0002), (0, 0, np.pi))),
}  # fmt: skip
# allegro_hand_description_right.xacro, with the axes of its joints and the frame of the fingertip
ALLEGRO_FRAMES = {
    **{finger: (((0, y, z), (roll, 0, 0), (0, 0, 1)), ((0, 0, 0.0164), (0, 0, 0), (0, 1, 0)),
                ((0, 0, 0.054), (0, 0, 0), (0, 1, 0)), ((0, 0, 0.0384), (0, 0, 0), (0, 1, 0)))
       for finger, y, z, roll in (("index", 0.0435, -0.001542, -FIVE), ("middle", 0, 0.0007, 0),
                                  ("ring", -0.0435, -0.001542, FIVE))},
    "thumb": (((-0.0182, 0.019333, -0.045987), (0, -QUARTER - FIVE, -QUARTER), (-1, 0, 0)),
              ((-0.027, 0.005, 0.0399), (0, 0, 0), (0, 0, 1)), ((0, 0, 0.0177), (0, 0, 0), (0, 1, 0)),
              ((0, 0, 0.0514), (0, 0, 0), (0, 1, 0))),
}  # fmt: skip
ALLEGRO_TIP = {"index": 0.0267, "middle": 0.0267, "ring": 0.0267, "thumb": 0.0423}
# columns: the published palm frame's axes in the hand frame
FROM_PUBLISHED = {"leap_hand": np.diag([1.0, -1.0, -1.0]),
                  "allegro_hand": np.array([[0, 0, 1.0], [0, -1, 0], [1, 0, 0]])}

# MuJoCo Menagerie, leap_hand/right_hand.xml, of an index finger and the thumb: centre of mass in the frames above,
# principal moments kg m^2. The thumb's first centre of mass is put where that file's shape is: see spec.py
LEAP_INERTIALS = {
    "index_base": ((-0.022516, 0.033882, 0.016359), (1.74972e-05, 1.61504e-05, 7.21342e-06)),
    "index_proximal": ((0.0075, -0.0002, -0.011), (4.8853e-06, 4.3733e-06, 3.0933e-06)),
    "index_medial": ((0.0054215, -0.029148, 0.015), (8.28004e-06, 8.1598e-06, 5.39516e-06)),
    "index_distal": ((-0.0008794, -0.027019, 0.014594), (3.71863e-06, 3.02396e-06, 1.6518e-06)),
    "thumb_base": ((-0.0075, -0.0002, -0.011), (4.8853e-06, 4.3733e-06, 3.0933e-06)),
    "thumb_bracket": ((0, 0, -0.0070806), (6.1932e-07, 5.351e-07, 2.1516e-07)),
    "thumb_proximal": ((-0.0020593, 0.015912, -0.013733), (9.87104e-06, 9.32653e-06, 4.36203e-06)),
    "thumb_distal": ((0.00096191, -0.024203, -0.014419), (2.08591e-05, 2.0402e-05, 4.71335e-06)),
}


@cache
def hand(name: str) -> tuple[RobotSpec, mujoco.MjModel]:
    spec = load_robot(name)
    return spec, mujoco.MjModel.from_xml_path(str(spec.model))


def compiled(name: str) -> mujoco.MjModel:
    """A model of its own, to be changed."""
    return mujoco.MjModel.from_xml_path(str(hand(name)[0].model))


def at(model: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    """Data at ``qpos`` with the servos' setpoints there."""
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = qpos, qpos
    mujoco.mj_forward(model, data)
    return data


def seconds(model: mujoco.MjModel, time: float) -> int:
    return round(time / model.opt.timestep)


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    quat, matrix = np.empty(4), np.empty(9)
    mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, dtype=float), angle)
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)


def rpy(roll: float, pitch: float, yaw: float) -> np.ndarray:
    return turn([0, 0, 1], yaw) @ turn([0, 1, 0], pitch) @ turn([1, 0, 0], roll)


def published(name: str, finger: str, angles: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """World position and rotation of the published frames of a finger's joints at ``angles`` [4]."""
    rotation, position, out = FROM_PUBLISHED[name], PALM, []
    frames = LEAP_FRAMES if name == "leap_hand" else ALLEGRO_FRAMES
    for (xyz, angle, *axis), q in zip(frames[finger], angles, strict=True):
        position = position + rotation @ np.array(xyz)
        rotation = rotation @ rpy(*angle) @ turn(axis[0] if axis else [0, 0, -1], q)
        out.append((position, rotation))
    return out


# ---------------------------------------------------------------- published numbers


@pytest.mark.parametrize("name", HANDS)
def test_order_of_joints_bodies_and_actuators_is_the_documented_one(name):
    spec, model = hand(name)
    joints = spec.sources["joint_pos"].names
    assert tuple(model.joint(i).name for i in range(model.njnt)) == joints
    assert tuple(model.actuator(i).name for i in range(model.nu)) == joints == spec.actuators["joint_pos_cmd"]
    assert [j.partition("_")[0] for j in joints] == [f for f in ("index", "middle", "ring", "thumb") for _ in range(4)]
    assert model.body(1).name == "palm" and model.nbody == 18


def test_motor_ids_of_the_leap_hand_put_the_side_to_side_joint_first():
    assert sorted(leap.MOTOR_IDS) == list(range(16))
    by_motor = [leap.JOINTS[leap.MOTOR_IDS.index(i)] for i in range(16)]
    assert by_motor[:4] == ["index_rot", "index_mcp", "index_pip", "index_dip"]
    assert by_motor[9] == "ring_mcp" and by_motor[12:] == ["thumb_cmc", "thumb_axl", "thumb_mcp", "thumb_ipl"]


@pytest.mark.parametrize("name", HANDS)
@pytest.mark.parametrize("finger", ["index", "middle", "ring", "thumb"])
def test_fingers_move_as_the_published_joint_frames_do(name, finger):
    """Every body of the finger turns as the published link does, and the tip is a fixed point of the last link."""
    _, model = hand(name)
    part = slice(4 * leap.TIPS.index(finger), 4 * leap.TIPS.index(finger) + 4)
    bodies = [model.jnt_bodyid[i] for i in range(part.start, part.stop)]
    zero, data = published(name, finger, np.zeros(4)), at(model, np.zeros(16))
    fixed = [(r.T @ (data.xpos[b] - p), r.T @ data.xmat[b].reshape(3, 3)) for b, (p, r) in zip(bodies, zero)]
    tip = zero[3][1].T @ (data.site(f"{finger}_tip").xpos - zero[3][0])
    if name == "allegro_hand":
        assert tip == pytest.approx([0, 0, ALLEGRO_TIP[finger]], abs=1e-9)
    for q in articulated.configurations(model, 30):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        now = published(name, finger, q[part])
        for body, (p, r), (point, rotation) in zip(bodies, now, fixed):
            np.testing.assert_allclose(data.xpos[body], p + r @ point, rtol=0, atol=1e-9)
            np.testing.assert_allclose(data.xmat[body].reshape(3, 3), r @ rotation, rtol=0, atol=1e-9)
        np.testing.assert_allclose(data.site(f"{finger}_tip").xpos, now[3][0] + now[3][1] @ tip, rtol=0, atol=1e-9)


@pytest.mark.parametrize("body", LEAP_INERTIALS)
def test_inertials_of_the_leap_hand_are_the_published_ones(body):
    _, model = hand("leap_hand")
    com, moments = LEAP_INERTIALS[body]
    finger = body.partition("_")[0]
    place = model.body(body).id - model.body(f"{finger}_base").id
    position, rotation = published("leap_hand", finger, np.zeros(4))[place]
    data = at(model, np.zeros(16))
    assert data.body(body).xipos == pytest.approx(position + rotation @ np.array(com), abs=1e-5)
    assert sorted(model.body(body).inertia) == pytest.approx(sorted(moments), rel=1e-3)


def test_masses_of_the_allegro_hand_fill_their_boxes():
    _, model = hand("allegro_hand")
    width, depth, length, mass = 0.0275, 0.0196, 0.054, 0.065
    moments = mass / 12 * np.array([width**2 + depth**2, depth**2 + length**2, width**2 + length**2])
    assert sorted(model.body("index_proximal").inertia) == pytest.approx(sorted(moments), rel=1e-9)
    assert model.body("index_proximal").ipos == pytest.approx([length / 2, 0, 0], abs=1e-12)


def test_torque_limits_and_gains_of_the_allegro_hand_are_the_drivers():
    _, model = hand("allegro_hand")
    assert model.actuator("middle_mcp").forcerange == pytest.approx([-675 / 1200, 675 / 1200])
    assert model.actuator("thumb_ipl").forcerange == pytest.approx([-270 / 1200, 270 / 1200])
    assert model.actuator("index_dip").gainprm[0] == pytest.approx(4000 / 1200)
    assert -model.actuator("thumb_cmc").biasprm[2] == pytest.approx(300 / 1200)
    assert np.degrees(model.key("home").qpos) == pytest.approx(allegro.HOME_DEGREES)


@pytest.mark.parametrize("name", HANDS)
def test_spec_and_model_agree(name):
    spec, model = hand(name)
    articulated.check_spec(spec, model)
    articulated.check_inertias(model)
    assert model.jnt_range.T == pytest.approx(np.array([spec.commands["joint_pos_cmd"].low,
                                                        spec.commands["joint_pos_cmd"].high]), rel=1e-12)
    for joint, (low, high) in zip(spec.sources["joint_pos"].names, model.actuator_forcerange, strict=True):
        assert spec.limits.get(f"{joint}_torque", spec.limits.get("joint_torque")) == pytest.approx((low, high))


@pytest.mark.parametrize("name", HANDS)
def test_friction_is_that_of_the_shapes_that_touch(name):
    spec, model = hand(name)
    touching = [i for i in range(model.ngeom) if model.geom_contype[i]]
    assert spec.parameters["friction"].nominal == pytest.approx(model.geom_friction[touching, 0], rel=1e-12)
    tips = [i for i in touching if model.geom(i).name in TIPS]
    assert len(tips) == 4 and (model.geom_condim[tips] == 4).all()
    assert model.geom_friction[tips, 0].min() > np.delete(model.geom_friction[touching, 0], [
        touching.index(i) for i in tips]).max()


@pytest.mark.parametrize("name", HANDS)
def test_shapes_to_look_at_do_not_touch_and_weigh_nothing(name):
    _, model = hand(name)
    look = model.geom_group == 2
    assert look.any() and set(model.geom_group) == {2, 3}
    assert not model.geom_contype[look].any() and not model.geom_conaffinity[look].any()
    assert model.geom_contype[~look].all() and model.geom_conaffinity[~look].all()
    assert mujoco.mj_getTotalmass(model) == pytest.approx(sum(hand(name)[0].parameters["mass"].nominal), rel=1e-12)


# ---------------------------------------------------------------- against Pinocchio


@pytest.mark.parametrize("name", HANDS)
def test_forward_kinematics_are_pinocchios(name):
    articulated.check_kinematics(hand(name)[1], sites=("palm", *TIPS), count=30)


@pytest.mark.parametrize("name", HANDS)
def test_mass_matrix_and_gravity_torques_are_pinocchios(name):
    articulated.check_dynamics(hand(name)[1], count=30)


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("down", [(0, 0, -1), (0, 0, 1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)])
@pytest.mark.parametrize("name", HANDS)
def test_home_is_held_in_every_attitude(name, down):
    """Palm up and down, on either edge, fingers down and up: sags by weight over stiffness and stands still."""
    model = compiled(name)
    home = model.key("home").qpos.copy()
    model.opt.gravity[:] = 9.81 * np.array(down)
    data = at(model, home)
    weight = np.abs(data.qfrc_bias)
    mujoco.mj_step(model, data, seconds(model, 5.0))
    allowed = (weight + model.dof_frictionloss) / model.actuator_gainprm[:, 0] + 2e-3
    assert (np.abs(data.qpos - home) < allowed).all()
    assert np.abs(data.qvel).max() < 1e-3


@pytest.mark.parametrize("name", HANDS)
def test_torque_limits_act(name):
    """No setpoint makes a servo push harder; a load below the limit is held, one above it turns the joint."""
    spec, model = hand(name)
    strength = np.array(spec.parameters["strength"].nominal)
    home = model.key("home").qpos
    for sign, reach in ((1, model.actuator_ctrlrange[:, 1]), (-1, model.actuator_ctrlrange[:, 0])):
        data = at(model, home)
        data.ctrl[:] = reach
        mujoco.mj_forward(model, data)
        far = np.abs(reach - home) * model.actuator_gainprm[:, 0] > strength
        assert far.sum() >= 8
        assert data.actuator_force[far] == pytest.approx(sign * strength[far])
        assert np.abs(data.actuator_force).max() <= strength.max()
    joint = model.joint("middle_pip").id
    for load, moves in ((-0.7, False), (-1.4, True)):
        data = at(model, home)
        data.qfrc_applied[joint] = load * strength[joint]
        mujoco.mj_step(model, data, seconds(model, 2.0))
        low = model.jnt_range[joint, 0]
        assert (data.qpos[joint] < low + 0.05) == moves


def out_of_the_way(model: mujoco.MjModel, joint: str) -> np.ndarray:
    """A pose [16] in which ``joint`` can go from end to end: other fingers curled, or the thumb raised and turned."""
    qpos = np.zeros(16)
    for finger in ("index", "middle", "ring"):
        qpos[model.joint(f"{finger}_mcp").id] = 0.0 if joint.startswith((finger, "thumb")) else 1.6
    if joint in ("thumb_mcp", "thumb_ipl"):
        qpos[model.joint("thumb_cmc").id], qpos[model.joint("thumb_axl").id] = 1.2, 1.6
    return np.clip(qpos, *model.jnt_range.T)


@pytest.mark.parametrize("name", HANDS)
def test_each_joint_reaches_its_ends(name):
    spec, model = hand(name)
    for i, joint in enumerate(spec.sources["joint_pos"].names):
        for end in model.jnt_range[i]:
            data = at(model, out_of_the_way(model, joint))
            data.ctrl[i] = end
            mujoco.mj_step(model, data, seconds(model, 2.5))
            assert data.qpos[i] == pytest.approx(end, abs=0.04), joint
            assert np.abs(data.qvel).max() < 0.01, joint


@pytest.mark.parametrize("name", HANDS)
def test_wild_setpoints_neither_explode_nor_push_links_through_each_other(name):
    _, model = hand(name)
    rng, data = np.random.default_rng(0), at(model, model.key("home").qpos)
    deepest, fastest = 0.0, 0.0
    for _ in range(80):
        data.ctrl[:] = rng.uniform(*model.actuator_ctrlrange.T)
        for _ in range(seconds(model, 0.3)):
            mujoco.mj_step(model, data)
            deepest = min(deepest, data.contact.dist.min(initial=0.0))
            fastest = max(fastest, np.abs(data.qvel).max())
    assert deepest > -0.006  # m: blows of fingers against each other
    assert 2.0 < fastest < 20.0
    assert data.warning.number.sum() == 0


def test_the_thumb_of_the_allegro_hand_may_lie_at_the_rim_of_the_palm():
    """The pair that is left out would overlap by less than 2 mm in every posture, and only at the rim of the palm."""
    _, model = hand("allegro_hand")
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    palm, thumb = model.geom("palm"), model.geom("thumb_medial")
    deepest, rim, between = 0.0, 0.0565, np.zeros(6)
    for q in rng.uniform(*model.jnt_range.T, (1500, 16)):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        pairs = {frozenset(pair) for pair in data.contact.geom.tolist()}
        assert frozenset((palm.id, thumb.id)) not in pairs
        distance = mujoco.mj_geomDistance(model, data, palm.id, thumb.id, 0.01, between)
        if distance < 0:
            on_palm = between[:3] - data.body("palm").xpos
            assert rim - abs(on_palm[1]) < 0.004
        deepest = min(deepest, distance)
    assert -0.002 < deepest < -0.001


CUBE = """<mujoco><worldbody><body name="cube"><freejoint name="cube"/><geom type="box" size=".035 .035 .035"
  mass=".1" condim="4" friction=".3 .005 .0001"/></body></worldbody></mujoco>"""


@cache
def with_cube(name: str) -> mujoco.MjModel:
    """The hand and a cube of 7 cm and 0.1 kg."""
    spec = mujoco.MjSpec.from_file(str(hand(name)[0].model))
    for key in list(spec.keys):
        spec.delete(key)
    spec.attach(mujoco.MjSpec.from_string(CUBE), prefix="a_", frame=spec.worldbody.add_frame())
    return spec.compile()


@pytest.mark.parametrize("yaw", [0.0, 0.4, 0.8])
@pytest.mark.parametrize(("name", "x"), [("leap_hand", -0.01), ("leap_hand", 0.01), ("leap_hand", 0.03),
                                         ("allegro_hand", -0.02), ("allegro_hand", 0.0), ("allegro_hand", 0.02)])
def test_a_cube_dropped_on_the_palm_stays(name, x, yaw):
    model = with_cube(name)
    spec, data = hand(name)[0], mujoco.MjData(model)
    home = np.array(spec.home["joint_pos"])
    middle = 0.037 if name == "leap_hand" else 0.0  # y of the middle finger
    data.qpos[:16], data.ctrl[:] = home, home
    data.joint("a_cube").qpos[:] = [x, middle, 0.31, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]
    mujoco.mj_step(model, data, seconds(model, 5.0))
    cube = data.body("a_cube").xpos
    assert np.hypot(cube[0], cube[1] - middle) < 0.06 and 0.23 < cube[2] < 0.3
    assert np.abs(data.joint("a_cube").qvel[:3]).max() < 0.02
    assert data.ncon >= 3


@pytest.mark.parametrize("name", HANDS)
def test_there_is_room_for_the_longest_delay(name):
    """A delay shifts the answer to a setpoint by as many steps; without one the room for it changes nothing."""
    spec, model = hand(name)
    longest = spec.parameters["command_delay"].high[0]
    assert model.actuator_history[:, 0].min() * 0.002 >= longest  # down to steps of 2 ms
    delayed, plain = compiled(name), mujoco.MjSpec.from_file(str(spec.model))
    delayed.actuator_delay[:] = longest
    for actuator in plain.actuators:
        actuator.nsample = 0
    at_once, late, bare = (answer(m) for m in (model, delayed, plain.compile()))
    lag = seconds(model, longest)
    assert (at_once == bare).all()
    np.testing.assert_allclose(late[lag:], at_once[:-lag], rtol=0, atol=1e-3)
    assert np.abs(late - at_once).max() > 0.02


def answer(model: mujoco.MjModel) -> np.ndarray:
    """Positions of a joint, step by step, after a step of its setpoint at rest."""
    data, out = at(model, model.key("home").qpos), []
    mujoco.mj_step(model, data, seconds(model, 3.0))
    data.ctrl[:] += 0.2
    for _ in range(60):
        mujoco.mj_step(model, data)
        out.append(data.qpos[1])
    return np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", HANDS)
def test_one_step_is_that_of_mujoco_warp(name):
    """Warp's CPU device, float32, with the cube at rest in the hand: in a blow the two find other contact points."""
    mjwarp = pytest.importorskip("mujoco_warp")
    import warp

    model = with_cube(name)
    data = mujoco.MjData(model)
    data.qpos[:16] = data.ctrl[:] = hand(name)[0].home["joint_pos"]
    data.joint("a_cube").qpos[:3] = 0.0, 0.02, 0.28
    mujoco.mj_step(model, data, seconds(model, 4.0))
    with warp.ScopedDevice("cpu"):
        theirs = mjwarp.put_data(model, data, nworld=1)
        mjwarp.step(mjwarp.put_model(model), theirs)
    mujoco.mj_step(model, data)
    np.testing.assert_allclose(theirs.actuator_force.numpy()[0], data.actuator_force, rtol=0, atol=1e-4)
    np.testing.assert_allclose(theirs.qpos.numpy()[0], data.qpos, rtol=0, atol=1e-4)


# ---------------------------------------------------------------- documentation


@pytest.mark.parametrize("name", HANDS)
def test_the_tables_in_the_documentation_are_the_spec(name):
    spec, _ = hand(name)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "robots" / f"{name}.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines()
            if line.startswith("| `")]
    stated = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    assert sorted(stated) == sorted(spec.parameters)
    for key, (*values, unit, source) in stated.items():
        parameter = spec.parameters[key]
        assert (unit, source) == (parameter.unit, parameter.source)
        for text, exact in zip(values, (parameter.nominal, parameter.low, parameter.high), strict=True):
            numbers = [float(x) for x in text.split(",")]
            assert np.broadcast_to(numbers, len(exact)) == pytest.approx(exact, rel=1e-4), key
    joints = {row[0].strip("`"): row[1:] for row in rows if len(row) == 5}
    assert tuple(joints) == spec.sources["joint_pos"].names
    command = spec.commands["joint_pos_cmd"]
    for i, (driver, low, high, home) in enumerate(joints.values()):
        assert int(driver) == (leap.MOTOR_IDS[i] if name == "leap_hand" else i)
        assert (float(low), float(high)) == (command.low[i], command.high[i])
        assert float(home) == pytest.approx(spec.home["joint_pos"][i], abs=5e-4)
