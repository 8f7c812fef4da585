"""The Shadow hand: the MJCF says what was published, agrees with Pinocchio, and its motors pull two joints as one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.robots import articulated

from temporeal.robots.shadow_hand import spec as shadow
from temporeal.robots.spec import load_robot

SPEC = load_robot("shadow_hand")
Y, X = (0, 1, 0), (1, 0, 0)
TILT = 0.9599  # of the little finger's metacarpal, rad
# shadow-robot/sr_common efa7d38, sr_description/hand/xacro: by joint its parent, origin (xyz m, rpy rad) and axis
PUBLISHED = {
    "WRJ2": ("", (0, -0.010, 0.21301), (0, 0, 0), Y), "WRJ1": ("WRJ2", (0, 0, 0.034), (0, 0, 0), X),
    **{f"{f}J4": ("WRJ1", (x, 0, z), (0, 0, 0), (0, side, 0))
       for f, x, z, side in (("FF", 0.033, 0.095, -1), ("MF", 0.011, 0.099, -1), ("RF", -0.011, 0.095, 1))},
    "LFJ5": ("WRJ1", (-0.033, 0, 0.02071), (0, -TILT, 0), X),
    "LFJ4": ("LFJ5", (0.05397275, 0, 0.03779463), (0, TILT, 0), Y),
    **{f"{f}J{i}": (f"{f}J{i + 1}", (0, 0, z), (0, 0, 0), X)
       for f in ("FF", "MF", "RF", "LF") for i, z in ((3, 0), (2, 0.045), (1, 0.025))},
    "THJ5": ("WRJ1", (0.034, -0.00858, 0.029), (-np.pi / 4, 0, -np.pi / 2), (0, 0, -1)),
    "THJ4": ("THJ5", (0, 0, 0), (0, 0, 0), Y), "THJ3": ("THJ4", (0, 0, 0.038), (0, 0, 0), Y),
    "THJ2": ("THJ3", (0, 0, 0), (0, 0, 0), X), "THJ1": ("THJ2", (0, 0, 0.032), (0, 0, 0), X),
}  # fmt: skip
TIPS = {"index": ("FFJ1", 0.026), "middle": ("MFJ1", 0.026), "ring": ("RFJ1", 0.026), "little": ("LFJ1", 0.026),
        "thumb": ("THJ1", 0.0275)}
FOREARM = np.array([-0.24701, 0.0, 0.19])  # so that the palm's frame is 0.2 m above the world's, as with other hands
TO_HAND = np.array([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])  # columns: the published axes in the hand frame


@cache
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(SPEC.model))


def compiled() -> mujoco.MjModel:
    """A model of its own, to be changed."""
    return mujoco.MjModel.from_xml_path(str(SPEC.model))


def at(model: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    """Data at ``qpos`` with the motors' setpoints there."""
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = qpos, shadow.actuator_angles(tuple(qpos))
    mujoco.mj_forward(model, data)
    return data


def run(model: mujoco.MjModel, data: mujoco.MjData, time: float) -> None:
    mujoco.mj_step(model, data, round(time / model.opt.timestep))


def turn(axis: tuple[float, ...], angle: float) -> np.ndarray:
    quat, matrix = np.empty(4), np.empty(9)
    mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, dtype=float), angle)
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)


def published(qpos: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By joint the world position and rotation of the published frame of its link."""
    angle, found = dict(zip(shadow.JOINTS, qpos, strict=True)), {"": (FOREARM, TO_HAND)}
    for joint, (parent, xyz, (roll, pitch, yaw), axis) in PUBLISHED.items():
        position, rotation = found[parent]
        rpy = turn((0, 0, 1), yaw) @ turn(Y, pitch) @ turn(X, roll)
        found[joint] = position + rotation @ np.array(xyz), rotation @ rpy @ turn(axis, angle[joint])
    return found


# ---------------------------------------------------------------- published numbers


def test_names_are_shadows_in_the_documented_order():
    assert tuple(model().joint(i).name for i in range(model().njnt)) == shadow.JOINTS and model().njnt == 24
    assert tuple(model().actuator(i).name for i in range(model().nu)) == shadow.MOTORS and model().nu == 20
    assert shadow.JOINTS[:6] == ("WRJ2", "WRJ1", "FFJ4", "FFJ3", "FFJ2", "FFJ1")
    assert shadow.JOINTS[14:20] == ("LFJ5", "LFJ4", "LFJ3", "LFJ2", "LFJ1", "THJ5")
    assert shadow.MOTORS[:5] == ("WRJ2", "WRJ1", "FFJ4", "FFJ3", "FFJ0") and shadow.MOTORS[14] == "LFJ0"
    assert set(PUBLISHED) == set(shadow.JOINTS)


def test_links_move_as_the_published_joint_frames_do():
    """Every body turns as the published link does about the same axes, and tips are where the URDF has them."""
    data = mujoco.MjData(model())
    zero, drawn = published(np.zeros(24)), at(model(), np.zeros(24))
    for q in (np.zeros(24), *articulated.configurations(model(), 30)):
        data.qpos[:] = q
        mujoco.mj_kinematics(model(), data)
        for joint, (position, rotation) in published(q).items():
            if not joint:
                continue
            body = model().jnt_bodyid[model().joint(joint).id]
            np.testing.assert_allclose(data.xpos[body], position, rtol=0, atol=1e-9, err_msg=joint)
            fixed = zero[joint][1].T @ drawn.xmat[body].reshape(3, 3)  # the bodies' axes in the published frame
            now = data.xmat[body].reshape(3, 3)
            np.testing.assert_allclose(now, rotation @ fixed, rtol=0, atol=1e-9, err_msg=joint)
        frames = published(q)
        for tip, (joint, z) in TIPS.items():
            position, rotation = frames[joint]
            np.testing.assert_allclose(
                data.site(f"{tip}_tip").xpos, position + rotation @ (0, 0, z), rtol=0, atol=1e-9, err_msg=tip)


def test_at_zero_the_fingers_lie_along_x_and_the_palm_is_up():
    data = at(model(), np.zeros(24))
    palm = data.body("palm")
    assert palm.xpos == pytest.approx([0, 0, 0.2]) and palm.xmat == pytest.approx(np.eye(3).ravel())
    y = [data.site(f"{tip}_tip").xpos[1] for tip in ("index", "middle", "ring", "little")]
    assert y == sorted(y) and data.ncon == 0
    closed = np.zeros(24)
    closed[shadow.JOINTS.index("MFJ3")] = 1.0
    assert at(model(), closed).site("middle_tip").xpos[2] > data.site("middle_tip").xpos[2] + 0.07


def test_ranges_are_those_of_the_manual():
    for i, joint in enumerate(shadow.JOINTS):
        assert np.degrees(model().jnt_range[i]) == pytest.approx(shadow.DEGREES[joint]), joint
    assert np.degrees(SPEC.commands["actuator_pos_cmd"].high)[4] == pytest.approx(180)


def test_masses_and_inertias_are_the_published_ones():
    """Fingertip: 12 g at 12 mm and the tip's 1 g at 26 mm; about their common centre, 13.08 mm from the joint."""
    distal = model().body("mfdistal")
    assert distal.mass[0] == pytest.approx(0.013) and distal.ipos == pytest.approx([0.170 / 13, 0, 0], abs=1e-9)
    about = 0.012 * (0.170 / 13 - 0.012) ** 2 + 0.001 * (0.026 - 0.170 / 13) ** 2
    assert distal.inertia == pytest.approx([5.3e-7, 9.4e-7 + about, 1.1e-6 + about], rel=1e-9)
    palm = model().body("palm")
    assert palm.mass[0] == 0.3 and palm.inertia == pytest.approx([0.000191, 0.0003581, 0.0005287])
    assert palm.ipos == pytest.approx([0.035, 0, 0])


def test_spec_and_model_agree():
    articulated.check_spec(SPEC, model())
    articulated.check_inertias(model())
    assert SPEC.home["actuator_pos"] == pytest.approx(model().key("home").ctrl)


def test_friction_is_that_of_the_shapes_that_touch():
    touching = [i for i in range(model().ngeom) if model().geom_contype[i]]
    assert SPEC.parameters["friction"].nominal == pytest.approx(model().geom_friction[touching, 0], rel=1e-12)
    tips = [i for i in touching if model().geom(i).name.endswith("_tip")]
    assert [touching.index(i) for i in tips] == list(shadow.TIP_SHAPES)
    look = model().geom_group == 2
    assert look.any() and not model().geom_contype[look].any() and not model().geom_conaffinity[look].any()
    assert mujoco.mj_getTotalmass(model()) == pytest.approx(sum(shadow.MASS), rel=1e-12)


def test_kinematics_and_dynamics_are_pinocchios():
    articulated.check_kinematics(model(), sites=("palm", *(f"{tip}_tip" for tip in shadow.TIPS)), count=20)
    articulated.check_dynamics(model(), count=20)


# ---------------------------------------------------------------- a motor of two joints


def angles(data: mujoco.MjData, *joints: str) -> list[float]:
    return [float(data.joint(joint).qpos[0]) for joint in joints]


def test_what_the_motors_control_is_measured_as_the_sum():
    q = np.linspace(0.01, 0.24, 24)
    found = dict(zip(shadow.MOTORS, at(model(), q).sensordata, strict=True))
    assert found["MFJ0"] == pytest.approx(q[8] + q[9]) and found["THJ1"] == pytest.approx(q[23])
    assert tuple(found.values()) == pytest.approx(shadow.actuator_angles(tuple(q)))


def test_the_sum_goes_where_it_is_told_and_joint_1_never_passes_joint_2():
    data = at(model(), model().key("home").qpos)
    motor = shadow.MOTORS.index("FFJ0")
    for degrees in (100, 170, 20):
        data.ctrl[motor] = np.radians(degrees)
        for _ in range(200):
            mujoco.mj_step(model(), data)
            middle, distal = angles(data, "FFJ2", "FFJ1")
            assert distal < middle + 0.02
        assert middle + distal == pytest.approx(np.radians(degrees), abs=0.02)


def test_what_one_joint_cannot_do_the_other_does():
    """The distal joint is stuck at 0.2 rad: told 1.5 rad in all, the middle one goes to 1.3."""
    stuck = compiled()
    stuck.dof_damping[stuck.joint("RFJ1").dofadr[0]] = 1e6
    data = at(stuck, stuck.key("home").qpos)
    data.ctrl[shadow.MOTORS.index("RFJ0")] = 1.5
    run(stuck, data, 2.0)
    assert angles(data, "RFJ2", "RFJ1") == pytest.approx([1.3, 0.2], abs=0.02)


def test_bending_joint_1_beyond_joint_2_takes_that_along():
    """By hand, motors off: the loopback tendon."""
    limp = compiled()
    limp.opt.gravity[:] = 0
    limp.actuator_gainprm[:, 0] = limp.actuator_biasprm[:, 1:3] = 0
    data = at(limp, limp.key("home").qpos)
    data.qfrc_applied[limp.joint("FFJ1").dofadr[0]] = 0.1
    run(limp, data, 2.0)
    middle, distal = angles(data, "FFJ2", "FFJ1")
    assert distal > 0.6 and middle > distal - 0.05
    untouched = angles(data, "MFJ2", "MFJ1")
    assert untouched == pytest.approx([0.4, 0.2], abs=0.01)


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("down", [(0, 0, -1), (0, 0, 1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)])
def test_home_is_held_in_every_attitude(down):
    """What the motors control sags by weight over stiffness. How J0 is shared may creep, as soft friction does."""
    held = compiled()
    held.opt.gravity[:] = 9.81 * np.array(down)
    data = at(held, held.key("home").qpos)
    joint = [shadow.JOINTS.index(shadow.COUPLED.get(motor, (motor,))[0]) for motor in shadow.MOTORS]
    allowed = (np.abs(data.qfrc_bias) + held.dof_frictionloss)[joint] / held.actuator_gainprm[:, 0] + 2e-3
    run(held, data, 2.0)
    assert (np.abs(data.actuator_length - data.ctrl) < allowed).all()
    assert np.abs(data.actuator_velocity).max() < 1e-3 and np.abs(data.qvel).max() < 0.005


def test_each_motor_reaches_its_ends():
    """From an open hand. A finger that turns aside takes its neighbours along: J4 of two of them is mirrored."""
    for i, motor in enumerate(shadow.MOTORS):
        for end in model().actuator_ctrlrange[i]:
            data = at(model(), np.zeros(24))
            if motor[1:] == "FJ4":
                for f in shadow.FINGERS:
                    same = (f in ("FF", "MF")) == (motor[:2] in ("FF", "MF"))
                    data.ctrl[shadow.MOTORS.index(f"{f}J4")] = end if same else -end
            data.ctrl[i] = end
            run(model(), data, 1.5)
            assert data.actuator_length[i] == pytest.approx(end, abs=0.06), motor


def test_force_limits_act():
    data = at(model(), model().key("home").qpos)
    data.ctrl[:] = model().actuator_ctrlrange[:, 1]
    mujoco.mj_forward(model(), data)
    far = (model().actuator_ctrlrange[:, 1] - model().key("home").ctrl) * shadow.KP > shadow.STRENGTH
    assert far.sum() >= 12 and data.actuator_force[far] == pytest.approx(np.array(shadow.STRENGTH)[far])


def test_wild_setpoints_neither_explode_nor_push_links_through_each_other():
    rng, data = np.random.default_rng(0), at(model(), model().key("home").qpos)
    deepest = 0.0
    for _ in range(20):
        data.ctrl[:] = rng.uniform(*model().actuator_ctrlrange.T)
        for _ in range(40):
            mujoco.mj_step(model(), data)
            deepest = min(deepest, data.contact.dist.min(initial=0.0))
            assert np.abs(data.qvel).max() < 60.0
    assert deepest > -0.008 and data.warning.number.sum() == 0  # m: blows of fingers against each other


@pytest.mark.slow
def test_one_step_is_that_of_mujoco_warp():
    """Warp's CPU device, float32: tendons, the sum's servo, what is measured of it."""
    mjwarp = pytest.importorskip("mujoco_warp")
    import warp

    data = at(model(), model().key("home").qpos)
    data.ctrl[shadow.MOTORS.index("FFJ0")] = 1.5
    run(model(), data, 0.1)
    with warp.ScopedDevice("cpu"):
        theirs = mjwarp.put_data(model(), data, nworld=1)
        mjwarp.step(mjwarp.put_model(model()), theirs)
    mujoco.mj_step(model(), data)
    for field in ("actuator_force", "qpos", "sensordata"):
        np.testing.assert_allclose(getattr(theirs, field).numpy()[0], getattr(data, field), rtol=0, atol=1e-4)


# ---------------------------------------------------------------- documentation


def test_the_tables_in_the_documentation_are_the_spec():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "robots" / "shadow_hand.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines()
            if line.startswith("| `")]
    stated = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    assert sorted(stated) == sorted(SPEC.parameters)
    for key, (*values, unit, source) in stated.items():
        parameter = SPEC.parameters[key]
        assert (unit, source) == (parameter.unit, parameter.source)
        for text, exact in zip(values, (parameter.nominal, parameter.low, parameter.high), strict=True):
            numbers = [float(x) for x in text.split(",")]
            assert np.broadcast_to(numbers, len(exact)) == pytest.approx(exact, rel=1e-4), key
    motors = {row[0].strip("`"): row[1:] for row in rows if len(row) == 5}
    assert tuple(motors) == shadow.MOTORS
    for i, (joints, low, high, home) in enumerate(motors.values()):
        motor = shadow.MOTORS[i]
        assert tuple(joints.replace("`", "").split(" + ")) == shadow.COUPLED.get(motor, (motor,))
        assert np.radians([float(low), float(high)]) == pytest.approx([shadow.LOW[i], shadow.HIGH[i]])
        assert float(home) == pytest.approx(SPEC.home["actuator_pos"][i])
