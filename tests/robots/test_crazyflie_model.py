"""The Crazyflie's MJCF says the same as its spec, and its rotors push and turn the body the right way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from temporeal.robots.crazyflie import spec as crazyflie  # noqa: E402  (after the skip)
from temporeal.robots.crazyflie.spec import SPEC  # noqa: E402

ROTORS = ("rotor1", "rotor2", "rotor3", "rotor4")


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_path(str(SPEC.model))


def nominal(name):
    return SPEC.parameters[name].nominal


def test_it_is_one_free_body_with_four_rotors(model):
    assert (model.nq, model.nv, model.nu) == (7, 6, 4)
    assert [model.actuator(i).name for i in range(4)] == list(ROTORS)


def test_mass_and_inertia_are_those_of_the_spec(model):
    base = model.body("base")
    assert base.mass[0] == pytest.approx(nominal("mass")[0], rel=1e-12)
    assert base.inertia == pytest.approx(nominal("inertia"), rel=1e-12)
    assert mujoco.mj_getTotalmass(model) == pytest.approx(nominal("mass")[0], rel=1e-12)
    assert base.ipos == pytest.approx([0, 0, 0], abs=0) and base.iquat == pytest.approx([1, 0, 0, 0], abs=1e-12)


def test_rotors_stand_where_the_spec_says(model):
    arm_x, arm_y = nominal("arm")
    for i, name in enumerate(ROTORS):
        expected = (crazyflie.ROTOR_SIGN_X[i] * arm_x, crazyflie.ROTOR_SIGN_Y[i] * arm_y)
        assert model.site(name).pos[:2] == pytest.approx(expected, rel=1e-12)
        assert model.actuator(name).trnid[0] == model.site(name).id


def test_reaction_torque_and_full_thrust_are_those_of_the_spec(model):
    for i, name in enumerate(ROTORS):
        reaction = crazyflie.ROTOR_SIGN_YAW[i] * nominal("torque_per_thrust")[0]
        assert model.actuator(name).gear == pytest.approx([0, 0, 1, 0, 0, reaction], rel=1e-12)
    assert model.actuator_ctrlrange[:, 0] == pytest.approx(np.zeros(4), abs=0)
    assert model.actuator_ctrlrange[:, 1].sum() == pytest.approx(crazyflie.MAX_THRUST, rel=1e-12)
    assert sum(nominal("thrust_curve")) == pytest.approx(model.actuator_ctrlrange[0, 1], rel=1e-4)


def test_gravity_is_that_of_the_spec(model):
    assert model.opt.gravity == pytest.approx([0, 0, -crazyflie.GRAVITY], rel=1e-12)


# where each rotor alone tips the body: M1 front right gives roll left side down (-), nose up (-), and its clockwise
# reaction (-); the others by symmetry. Roll +x: left side up; pitch +y: nose down; yaw +z: counter-clockwise.
@pytest.mark.parametrize(
    ("rotor", "signs"),
    [(0, (-1, -1, -1)), (1, (-1, 1, 1)), (2, (1, 1, -1)), (3, (1, -1, 1))],
    ids=["M1", "M2", "M3", "M4"],
)
def test_one_rotor_alone_turns_the_body_the_expected_way(model, rotor, signs):
    data = mujoco.MjData(model)
    data.ctrl[rotor] = 0.1
    mujoco.mj_forward(model, data)
    arm_x, arm_y = nominal("arm")
    magnitude = 0.1 * np.array([arm_y, arm_x, nominal("torque_per_thrust")[0]])
    assert data.qfrc_actuator == pytest.approx([0, 0, 0.1, *(magnitude * signs)], rel=1e-9, abs=1e-15)
    assert np.sign(data.qacc[3:]).tolist() == list(signs)


def test_the_home_key_hovers(model):
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    assert data.qpos[:3] == pytest.approx(SPEC.home["base_pos_w"])
    assert np.abs(data.qacc).max() < 1e-9


def test_it_comes_to_rest_on_the_floor(model):
    data = mujoco.MjData(model)
    data.qpos[2] = 0.05
    mujoco.mj_step(model, data, 500)
    assert data.qpos[2] == pytest.approx(0.0145, abs=1e-3)  # half the height of the hull
    assert np.abs(data.qvel).max() < 1e-3


def test_the_table_in_the_documentation_is_the_spec():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "robots" / "crazyflie.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    stated = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    assert sorted(stated) == sorted(SPEC.parameters)
    for name, (*values, unit, source) in stated.items():
        parameter = SPEC.parameters[name]
        assert (unit, source) == (parameter.unit, parameter.source)
        for text, exact in zip(values, (parameter.nominal, parameter.low, parameter.high), strict=True):
            assert [float(x) for x in text.split(",")] == pytest.approx(exact, rel=1e-4), name
