"""The ant's MJCF says what was published, moves as Gymnasium's does, and comes to rest on its feet."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.robots import articulated

from temporeal.robots.ant import spec as ant
from temporeal.robots.ant.spec import SPEC

SIGNS = {"front_left": (1, 1), "back_left": (-1, 1), "back_right": (-1, -1), "front_right": (1, -1)}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    """The ant on a floor like the published one."""
    spec = mujoco.MjSpec.from_file(str(SPEC.model))
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[40, 40, 40], condim=3,
                            friction=[1, 0.5, 0.5], margin=0.01)
    return spec.compile()


def at_home(model: mujoco.MjModel, height: float | None = None) -> mujoco.MjData:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    data.qpos[2] = height or data.qpos[2]
    mujoco.mj_forward(model, data)
    return data


# ---------------------------------------------------------------- published numbers


def test_order_of_joints_bodies_and_actuators_is_the_documented_one(model):
    assert tuple(model.joint(i).name for i in range(model.njnt)) == ("root", *ant.JOINTS)
    assert tuple(model.actuator(i).name for i in range(model.nu)) == ant.JOINTS
    bodies = ("torso", *(f"{leg}_{part}" for leg in ant.LEGS for part in ("thigh", "shin")))
    assert tuple(model.body(i).name for i in range(1, model.nbody)) == bodies


@pytest.mark.parametrize("leg", ant.LEGS)
def test_legs_reach_as_far_as_published_and_bend_down(model, leg):
    """Stretched out, a foot is 0.8 m along both axes; bent by q, its last 0.4 √2 m point down by q."""
    data, (x, y) = mujoco.MjData(model), SIGNS[leg]
    data.qpos[:3] = 0.0
    mujoco.mj_kinematics(model, data)
    assert data.site(f"{leg}_foot").xpos == pytest.approx([0.8 * x, 0.8 * y, 0], abs=1e-12)
    for end in model.joint(f"{leg}_ankle").range:
        data.joint(f"{leg}_ankle").qpos[:] = end
        mujoco.mj_kinematics(model, data)
        along = 0.4 + 0.4 * np.cos(end)
        expected = [along * x, along * y, -0.4 * np.sqrt(2) * np.sin(abs(end))]
        assert data.site(f"{leg}_foot").xpos == pytest.approx(expected, abs=1e-9)
    data.qpos[3:] = [1, 0, 0, 0, *np.zeros(8)]
    data.joint(f"{leg}_hip").qpos[:] = 0.5
    mujoco.mj_kinematics(model, data)
    foot = data.site(f"{leg}_foot").xpos[:2] - 0.2 * np.array([x, y])
    turned = np.array([np.cos(0.5) * x - np.sin(0.5) * y, np.sin(0.5) * x + np.cos(0.5) * y])
    assert foot == pytest.approx(0.6 * turned, abs=1e-12)


def test_spec_and_model_agree(model):
    articulated.check_names(SPEC, model)
    articulated.check_inertias(model)
    values = {"mass": model.body_mass[1:], "damping": model.dof_damping[6:], "armature": model.dof_armature[6:],
              "frictionloss": model.dof_frictionloss[6:], "command_delay": model.actuator_delay[:1],
              "friction": model.geom_friction[(model.geom_contype > 0) & (model.geom_bodyid > 0), 0]}
    assert set(values) == set(SPEC.parameters)
    for name, value in values.items():
        assert SPEC.parameters[name].nominal == pytest.approx(value, rel=1e-12), name
    assert not model.dof_damping[:6].any() and not model.dof_armature[:6].any()


def test_limits_and_home_of_spec_and_model_agree(model):
    assert model.actuator_gear[:, 0] == pytest.approx(np.full(8, SPEC.limits["joint_torque"][1]))
    for joint in ant.JOINTS:
        assert SPEC.limits[f"{joint}_pos"] == pytest.approx(model.joint(joint).range, abs=1e-9)
    home = np.concatenate([SPEC.home[name] for name in ("base_pos_w", "base_quat_w", "joint_pos")])
    assert model.key("home").qpos == pytest.approx(home, abs=1e-12)
    low, high = model.jnt_range[1:].T
    assert ((low <= home[7:]) & (home[7:] <= high)).all()


def test_there_is_room_for_the_longest_delay(model):
    assert model.actuator_history[:, 0].min() * 0.005 >= SPEC.parameters["command_delay"].high[0]


def test_no_part_of_the_ant_touches_another(model):
    mine = (model.geom_contype > 0) & (model.geom_bodyid > 0)
    assert mine.sum() == 13 and not model.geom_conaffinity[mine].any()
    look = model.geom_group == 2
    assert look.sum() == 13 and not (model.geom_contype | model.geom_conaffinity)[look].any()


# ---------------------------------------------------------------- against Gymnasium


@pytest.fixture(scope="module")
def published():
    gymnasium = pytest.importorskip("gymnasium")
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml"
    return mujoco.MjModel.from_xml_path(str(path))


def test_it_weighs_what_gymnasiums_ant_weighs(model, published):
    assert mujoco.mj_getTotalmass(model) == pytest.approx(mujoco.mj_getTotalmass(published), rel=1e-12)


def test_it_moves_as_gymnasiums_ant_does(model, published):
    """One control step of 50 ms under random torques, from states of a motion with contacts."""
    rng, mine, theirs = np.random.default_rng(0), at_home(model), mujoco.MjData(published)
    assert model.opt.timestep == published.opt.timestep
    touched = 0
    for step in range(60):
        if step % 3 == 0:  # it is light, and full torques throw it up: land again
            mine = at_home(model, 0.58)
            mine.qvel[:] = rng.uniform(-1, 1, 14) - 2 * (np.arange(14) == 2)
        torque = rng.uniform(-1, 1, 8)
        theirs.qpos[:], theirs.qvel[:] = mine.qpos, mine.qvel
        theirs.qacc_warmstart[:] = mine.qacc_warmstart
        mine.ctrl[:], theirs.ctrl[:] = torque, torque[list(ant.GYMNASIUM_ACTION)]
        for _ in range(5):
            mujoco.mj_step(model, mine)
            mujoco.mj_step(published, theirs)
            touched += bool(mine.ncon)
        np.testing.assert_allclose(mine.qpos, theirs.qpos, rtol=0, atol=1e-5)
        np.testing.assert_allclose(mine.qvel, theirs.qvel, rtol=0, atol=1e-3)
    assert touched > 60  # of 300 steps


# ---------------------------------------------------------------- behaviour


def test_at_home_the_feet_touch_the_floor(model):
    data = at_home(model)
    assert data.ncon == 4
    assert (np.abs(data.contact.dist) < 5e-3).all()


def test_a_command_of_one_is_the_full_torque(model):
    data = at_home(model, 3.0)
    data.ctrl[:] = np.linspace(-2, 2, 8)
    mujoco.mj_forward(model, data)
    assert data.qfrc_actuator[6:] == pytest.approx(ant.GEAR * np.clip(np.linspace(-2, 2, 8), -1, 1))
    assert not data.qfrc_actuator[:6].any()


def test_dropped_it_comes_to_rest_on_its_feet(model):
    """Without torques the ankles give in to their upper ends, and nothing moves any more."""
    data = at_home(model, 1.0)
    mujoco.mj_step(model, data, 3000)
    at_rest = data.qpos.copy()
    assert data.ncon == 4 and np.abs(data.qvel).max() < 1e-6 and np.abs(data.qacc).max() < 1e-4
    assert np.abs(data.qpos[8::2]) == pytest.approx(np.full(4, ant.LEAST), abs=0.01)
    assert data.qpos[3] == pytest.approx(1.0, abs=1e-6)
    margins = 0.02  # of ant and floor: contacts begin at this distance
    assert at_rest[2] == pytest.approx(ant.LIMB + 0.4 * np.sqrt(2) * np.sin(ant.LEAST) + margins, abs=2e-3)
    mujoco.mj_step(model, data, 500)
    assert data.qpos == pytest.approx(at_rest, abs=1e-6)


def test_under_wild_torques_it_stays_above_the_floor(model):
    rng, data = np.random.default_rng(1), at_home(model)
    for _ in range(200):
        data.ctrl[:] = rng.choice([-1.0, 1.0], 8)
        mujoco.mj_step(model, data, 5)
        assert data.qpos[2] > 0.2 and np.abs(data.qvel).max() < 60
    assert data.warning.number.sum() == 0


# ---------------------------------------------------------------- documentation


def test_the_table_in_the_documentation_is_the_spec():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "robots" / "ant.md").read_text(encoding="utf-8")
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
