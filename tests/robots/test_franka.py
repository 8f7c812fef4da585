"""The FR3's MJCF says what was published, agrees with Pinocchio, stands, pushes as hard as the real one, and grips."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from mujoco.batch import Batch
from tests.robots import articulated

from temporeal.robots.franka import spec as franka
from temporeal.robots.franka.spec import SPEC

BODIES = (*(f"fr3_link{i}" for i in range(8)), "fr3_hand", "fr3_leftfinger", "fr3_rightfinger")
ARM = slice(0, 7)

# franka_description 14c5d63, robots/fr3/inertials.yaml, rounded to 9 decimals or 6 digits:
# COM (m), Ixx, Ixy, Ixz, Iyy, Iyz, Izz
PUBLISHED = {
    1: ((4.128e-7, -0.0181251324, -0.0386035970),
        (.023927316, 1.3318e-5, -1.14048e-4, .022482161, -.001995032, .006350098)),
    2: ((0.0031828864, -0.0743221644, 0.0088146084),
        (.041938946, 2.02573e-4, .004077784, .025145149, -.004225216, .061702145)),
    3: ((0.0407015686, -0.0048200565, -0.0289730823),
        (.024101425, .002404695, -.002856269, .019740533, -.002104213, .019044494)),
    4: ((-0.0459100965, 0.0630492960, -0.0085187868),
        (.034529983, .013225523, .010151430, .028881622, -9.76283e-4, .041254712)),
    5: ((-0.0016039605, 0.0292536262, -0.0972965990),
        (.051610278, -.005715173, -.003567317, .047877297, .010673985, .016423626)),
    6: ((0.0597131221, -0.0410294666, -0.0101692726),
        (.005412334, .006193456, .001421930, .014058330, -.001314075, .016080818)),
    7: ((0.0045225817, 0.0086261921, -0.0161633251),
        (2.10924e-4, -2.43330e-5, 4.56448e-5, 1.77186e-4, 8.74407e-5, 5.99319e-5)),
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(SPEC.model))


def at_home(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    return data


def dh_transform(a: float, d: float, alpha: float, theta: float) -> np.ndarray:
    """Modified (Craig) convention: turn alpha about x, move a along x, turn theta about z, move d along z."""
    ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
    return np.array([[ct, -st, 0, a], [st * ca, ct * ca, -sa, -d * sa], [st * sa, ct * sa, ca, d * ca], [0, 0, 0, 1]])


# ---------------------------------------------------------------- published numbers


def test_order_of_joints_bodies_and_actuators_is_the_documented_one(model):
    assert tuple(model.joint(i).name for i in range(model.njnt)) == franka.JOINTS + franka.FINGERS
    assert tuple(model.body(i).name for i in range(1, model.nbody)) == BODIES
    assert tuple(model.actuator(i).name for i in range(model.nu)) == (*franka.JOINTS, franka.GRIPPER)


def test_flange_and_grip_stand_where_the_published_denavit_hartenberg_parameters_say(model):
    data = mujoco.MjData(model)
    hand = dh_transform(0, 0, 0, -np.pi / 4)  # the hand is mounted turned by -45 degrees
    for q in articulated.configurations(model, 100):
        data.qpos = q
        mujoco.mj_kinematics(model, data)
        pose = np.eye(4)
        for (a, d, alpha), theta in zip(franka.DENAVIT_HARTENBERG, (*q[ARM], 0.0), strict=True):
            pose = pose @ dh_transform(a, d, alpha, theta)
        np.testing.assert_allclose(data.site("wrist").xpos, pose[:3, 3], rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.site("wrist").xmat.reshape(3, 3), pose[:3, :3], rtol=0, atol=1e-12)
        grip = pose @ hand @ dh_transform(0, 0.1034, 0, 0)
        np.testing.assert_allclose(data.site("grip").xpos, grip[:3, 3], rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.site("grip").xmat.reshape(3, 3), grip[:3, :3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("link", PUBLISHED)
def test_inertials_are_the_published_ones(model, link):
    (com, (xx, xy, xz, yy, yz, zz)), body = PUBLISHED[link], model.body(f"fr3_link{link}")
    assert body.ipos == pytest.approx(com, abs=1e-12)
    turn = pin.Quaternion(*body.iquat).toRotationMatrix()
    expected = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    np.testing.assert_allclose(turn @ np.diag(body.inertia) @ turn.T, expected, rtol=0, atol=1.1e-9)


def test_spec_and_model_agree(model):
    articulated.check_spec(SPEC, model)
    articulated.check_inertias(model)


def test_limits_of_spec_and_model_agree(model):
    assert model.jnt_range[ARM].T == pytest.approx(np.array([franka.LOW, franka.HIGH]), rel=1e-12)
    for i, joint in enumerate(franka.JOINTS):
        assert SPEC.limits[f"{joint}_torque"] == pytest.approx(tuple(model.jnt_actfrcrange[i]))
        assert SPEC.limits[f"{joint}_vel"] == (-franka.SPEED[i], franka.SPEED[i])
        for name in ("acc", "jerk", "torque_rate"):
            low, high = SPEC.limits[f"{joint}_{name}"]
            assert -low == high > 0


def test_servos_are_critically_damped_at_home(model):
    """kd = 2 sqrt(kp M_ii), to the rounding of the model file."""
    data = at_home(model)
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    assert franka.KD == pytest.approx(2 * np.sqrt(np.array(franka.KP) * np.diag(mass)[ARM]), abs=0.5)


# ---------------------------------------------------------------- against Pinocchio


def test_forward_kinematics_are_pinocchios(model):
    articulated.check_kinematics(model, sites=("grip", "wrist"))


def test_mass_matrix_gravity_and_coriolis_torques_are_pinocchios(model):
    articulated.check_dynamics(model)


def test_gravity_compensation_is_pinocchios_gravity_torque_and_comes_from_the_motors(model):
    peer = articulated.pinocchio_model(model)
    data, memory = mujoco.MjData(model), peer.createData()
    for q in articulated.configurations(model, 30):
        data.qpos, data.ctrl = q, [*q[ARM], q[7]]
        mujoco.mj_forward(model, data)
        torque = pin.computeGeneralizedGravity(peer, memory, q)
        assert np.abs(torque[ARM]).max() < 87
        np.testing.assert_allclose(data.qfrc_gravcomp, torque, rtol=0, atol=1e-9)
        bound = np.array([*franka.TORQUE, np.inf, np.inf])
        np.testing.assert_allclose(data.qfrc_actuator, np.clip(torque, -bound, bound), rtol=0, atol=1e-9)


# ---------------------------------------------------------------- it stands


def test_home_holds_for_five_seconds(model):
    data = at_home(model)
    start = data.qpos.copy()
    mujoco.mj_step(model, data, 2500)
    assert data.time == pytest.approx(5.0)
    assert np.abs(data.qpos - start).max() < 1e-6
    assert np.abs(data.qvel).max() < 1e-6


def test_without_gravity_compensation_it_sags_by_what_the_servo_stiffness_says(model):
    """kp (ctrl - q) = gravity torque at rest; no friction that would hold it elsewhere."""
    sagging = mujoco.MjModel.from_xml_path(str(SPEC.model))
    sagging.body_gravcomp[:], sagging.dof_frictionloss[:] = 0, 0
    data = at_home(sagging)
    mujoco.mj_step(sagging, data, 3000)
    peer = articulated.pinocchio_model(sagging)
    torque = pin.computeGeneralizedGravity(peer, peer.createData(), data.qpos.copy())[ARM]
    sag = (data.ctrl - data.qpos[:8])[ARM]
    np.testing.assert_allclose(sag, torque / np.array(franka.KP), rtol=0, atol=1e-7)
    assert 0.005 < np.abs(sag).max() < 0.02  # the elbow carries 22 N m at 2500 N m/rad


@pytest.mark.parametrize(("payload", "holds"), [(1.0, True), (12.0, False)])
def test_torque_limits_act(payload, holds):
    """Stretched out, joint 2 carries 87 N m and no more: servo and gravity compensation together."""
    spec = mujoco.MjSpec.from_file(str(SPEC.model))
    spec.body("fr3_hand").add_body(pos=[0, 0, 0.05], mass=payload, inertia=[0.01] * 3, explicitinertial=True)
    model = spec.compile()
    data, pose = mujoco.MjData(model), np.array([0, 1.2, 0, -0.5, 0, 1.7, 0.8])
    data.qpos[ARM], data.ctrl[ARM], peak = pose, pose, 0.0
    for _ in range(500):
        mujoco.mj_step(model, data)
        peak = max(peak, abs(data.qfrc_actuator[1]))
        assert (np.abs(data.qfrc_actuator[ARM]) <= np.array(franka.TORQUE) * (1 + 1e-12)).all()
    assert (np.abs(data.qpos[ARM] - pose).max() < 0.03) == holds
    assert (peak == pytest.approx(87.0)) == (not holds)


def test_only_links_that_can_touch_collide(model):
    """No contact between neighbours in the chain, anywhere; few among all the others."""
    data, touching = mujoco.MjData(model), 0
    for q in articulated.configurations(model, 500):
        data.qpos = q
        mujoco.mj_fwdPosition(model, data)
        pairs = {tuple(sorted(int(model.geom_bodyid[g]) for g in contact.geom)) for contact in data.contact}
        assert all(high - low > 2 for low, high in pairs), pairs
        touching += bool(pairs)
    assert 0 < touching < 50


# ---------------------------------------------------------------- gripper


def test_fingers_close_together_at_the_published_speed(model):
    data = at_home(model)
    data.ctrl[7] = 0.0
    mujoco.mj_step(model, data, 100)
    assert data.qvel[7:] == pytest.approx([-franka.FINGER_SPEED] * 2, rel=0.01)
    mujoco.mj_step(model, data, 900)
    assert data.qpos[7:] == pytest.approx([0.0, 0.0], abs=1e-4)


def test_a_push_on_one_finger_moves_both(model):
    data = at_home(model)
    data.ctrl[7], data.qpos[7:] = 0.02, 0.02
    data.qfrc_applied[8] = -150.0  # more than the motor gives
    mujoco.mj_step(model, data, 1000)
    assert data.qpos[7] < 0.015
    assert data.qpos[7] == pytest.approx(data.qpos[8], abs=2e-4)


def gripped(friction: float, mass: float = 0.5) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A 40 mm box between the fingers, gripped where it floats for two seconds, then given its weight."""
    spec = mujoco.MjSpec.from_file(str(SPEC.model))
    box = spec.worldbody.add_body(name="box")
    box.add_freejoint()
    box.add_geom(name="box", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.02] * 3, mass=mass)
    for side in ("left", "right"):
        spec.geom(f"fr3_{side}finger_pad").friction[0] = friction
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:9] = [*SPEC.home["joint_pos"], *SPEC.home["finger_pos"]]
    mujoco.mj_kinematics(model, data)
    data.qpos[9:12], data.qpos[12:16] = data.site("grip").xpos, [1, 0, 0, 0]
    data.ctrl[ARM], data.ctrl[7] = SPEC.home["joint_pos"], 0.0
    model.opt.gravity[2] = 0
    mujoco.mj_step(model, data, 1000)
    model.opt.gravity[2] = -9.81
    return model, data


def test_gripper_pushes_with_the_published_force():
    model, data = gripped(1.0)
    force, total = np.zeros(6), {"fr3_leftfinger_pad": 0.0, "fr3_rightfinger_pad": 0.0}
    for i in range(data.ncon):
        mujoco.mj_contactForce(model, data, i, force)
        total[next(n for n in (model.geom(g).name for g in data.contact[i].geom) if n in total)] += force[0]
    assert list(total.values()) == pytest.approx([franka.GRIP_FORCE] * 2, rel=0.01)


@pytest.mark.parametrize(("friction", "holds"), [(1.0, True), (0.02, False)])
def test_gripped_box_is_lifted_by_friction_alone(friction, holds):
    """2 x 70 N x friction against 0.5 kg: 140 N holds 4.9 N, 2.8 N does not."""
    model, data = gripped(friction)
    before = data.body("box").xpos.copy()
    for i in range(1000):
        data.ctrl[1] = SPEC.home["joint_pos"][1] - 0.3 * min(i / 500, 1)  # the shoulder leans back: the hand rises
        mujoco.mj_step(model, data)
    lifted = data.body("box").xpos[2] - before[2]
    away = np.linalg.norm(data.body("box").xpos - data.site("grip").xpos)
    assert (lifted > 0.05 and away < 1e-3) == holds
    assert (away > 0.5) == (not holds)


# ---------------------------------------------------------------- delay and camera


def test_each_world_of_a_batch_has_a_delay_of_its_own(model):
    """``Batch.expand("actuator_delay")``: controls come whole steps later, rounded up, at most the history's length."""
    delays, steps = np.array([0.0, 0.003, 0.01, 0.04, 0.042, 0.06]), [0, 2, 5, 20, 21, 21]
    batch = Batch(model, len(delays), nthread=1)
    batch.expand("actuator_delay")[:] = delays[:, None]
    batch.reset(keyframe=model.key("home").id)
    ctrl, qpos = batch.bind("ctrl"), batch.bind("qpos")
    moved = np.full(len(delays), -1)
    for _ in range(100):  # the history fills with the home pose
        batch.step()
    ctrl[:, 0] = 0.1
    for i in range(60):
        batch.step()
        moved[(moved < 0) & (qpos[:, 0] > 1e-4)] = i
    assert (moved - moved[0]).tolist() == steps


def test_wrist_camera_sees_the_fingertips(model):
    data = at_home(model)
    mujoco.mj_forward(model, data)
    camera, half = data.camera("wrist"), np.tan(np.radians(model.camera("wrist").fovy[0]) / 2)
    for name in ("fr3_leftfinger_pad", "fr3_rightfinger_pad"):
        x, y, z = camera.xmat.reshape(3, 3).T @ (data.geom(name).xpos - camera.xpos)
        assert z < 0 and abs(x / z) < half * 1.2 and abs(y / z) < half  # wide open, at the edge of a square picture
    x, y, z = camera.xmat.reshape(3, 3).T @ (data.site("grip").xpos - camera.xpos)
    assert z < 0 and abs(x / z) < 0.01 and abs(y / z) < half


# ---------------------------------------------------------------- documentation


def test_the_table_in_the_documentation_is_the_spec():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "robots" / "franka.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines() if line[:3] == "| `"]
    stated = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    assert sorted(stated) == sorted(SPEC.parameters)
    for name, (*values, unit, source) in stated.items():
        parameter = SPEC.parameters[name]
        assert (unit, source) == (parameter.unit, parameter.source)
        for text, exact in zip(values, (parameter.nominal, parameter.low, parameter.high), strict=True):
            assert [float(x) for x in text.split(",")] == pytest.approx(exact, rel=1e-3), name
