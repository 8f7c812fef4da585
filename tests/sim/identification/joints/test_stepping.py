"""The joint model makes MuJoCo's own steps, and what it adds to them acts as its source says."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.identification.joints import stepping
from temporeal.sim.identification.joints.mechanism import Mechanism, Terms, mechanism, terms
from temporeal.sim.identification.record import CannotTell

DT, STEPS = 0.002, 150


def nominal(m: Mechanism) -> np.ndarray:
    """[1, J, FIELDS] of the model."""
    mj, out = m.mj, np.zeros((1, len(m.dofs), len(stepping.FIELDS)))
    values = {
        stepping.ARMATURE: mj.dof_armature[m.dofs], stepping.DAMPING: mj.dof_damping[m.dofs],
        stepping.FRICTION: mj.dof_frictionloss[m.dofs], stepping.KP: mj.actuator_gainprm[m.servos, 0],
        stepping.KD: -mj.actuator_biasprm[m.servos, 2], stepping.STRENGTH: mj.actuator_forcerange[m.servos, 1],
        stepping.SOFTNESS: m.softness(mj.dof_armature[m.dofs][None], np.zeros(1))[0]}
    for field, value in values.items():
        out[0, :, field] = value
    return out


def setpoints(m: Mechanism, size: float) -> np.ndarray:
    """[T, J] sines about home, each joint's own."""
    at = np.arange(STEPS)[:, None] * DT
    home = np.array(m.robot.home["joint_pos"])
    return np.asarray(home + size * np.sin(2 * np.pi * (2 + 0.3 * np.arange(len(home))) * at))


def simulated(m: Mechanism, command: np.ndarray) -> np.ndarray:
    """[T, J, 3] places, speeds and the actuators' forces by MuJoCo."""
    m.mj.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    data, out = mujoco.MjData(m.mj), np.zeros((STEPS, len(m.dofs), 3))
    data.qpos[:], data.ctrl[:] = m.model.home_qpos, m.model.home_ctrl
    for k in range(STEPS):
        out[k, :, 0], out[k, :, 1] = data.qpos[m.places], data.qvel[m.dofs]
        data.ctrl[m.servos] = command[k]
        mujoco.mj_step(m.mj, data)
        out[k, :, 2] = data.qfrc_actuator[m.dofs]
    return out


def stepped(m: Mechanism, command: np.ndarray, true: np.ndarray, params: np.ndarray, along: Terms) -> np.ndarray:
    """[P, T, J, 3] by the joint model, along ``true``."""
    count, start = len(params), np.eye(1, STEPS, dtype=bool)[0]
    out = np.zeros((count, STEPS, len(m.dofs), 3))
    stepping.run(params, np.zeros(count), np.zeros(count), np.full(count, 0.1), command, along.inertia, along.bias,
                 along.own, along.heavier, true[..., 0].copy(), true[..., 1].copy(), start, m.decay, m.most, m.dt, 1,
                 m.integrator, out)
    return out


@pytest.mark.parametrize(("name", "size", "most"), [("leap_hand", 0.1, 1e-12), ("franka", 0.001, 1e-7)])
def test_it_makes_mujocos_steps(name: str, size: float, most: float) -> None:
    """Friction sticks and slips, a hand's servos saturate, an arm compensates gravity, and its fingers move a little:
    they are taken to rest."""
    m = mechanism(load_robot(name), DT)
    command = setpoints(m, size)
    true = simulated(m, command)
    found = stepped(m, command, true, nominal(m), terms(m, true[..., 0], true[..., 1]))[0]
    assert np.abs(true[:, :, 0] - true[0, :, 0]).max() > 0.3 * size
    np.testing.assert_allclose(found[..., 0], true[..., 0], atol=most)
    np.testing.assert_allclose(found[..., 2], true[..., 2], atol=1e4 * most)


def test_a_hands_fingers_are_chains_of_their_own() -> None:
    assert [chain.tolist() for chain in mechanism(load_robot("leap_hand"), DT).chains] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert [chain.tolist() for chain in mechanism(load_robot("franka"), DT).chains] == [list(range(7))]


def test_joints_that_tendons_move_are_refused_by_name() -> None:
    with pytest.raises(CannotTell, match="no joint_pos_cmd"):
        mechanism(load_robot("shadow_hand"), DT)
    with pytest.raises(CannotTell, match="no joint_pos_cmd"):
        mechanism(load_robot("ant"), DT)
