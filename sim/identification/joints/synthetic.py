"""Logs of simulated joints whose parameters are known: what identification must find again.

Robots are drawn from the prior and play an excitation (``excitation/joints.py``) in MuJoCo itself, with everything that
its model has. What MuJoCo's joints do not have is done to them from outside in each physics step: a setpoint that is
short of itself by the dead zone, and a bound of friction that follows the speed. Sensors have white noise.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.joints import parameters, stepping
from temporeal.sim.identification.joints.mechanism import Mechanism, mechanism
from temporeal.sim.identification.joints.record import JointRecord
from temporeal.sim.identification.parameters import Quantity, by_name
from temporeal.sim.identification.record import Numbers

NOISE = (2e-4, 0.01)
"""Standard deviations of places and speeds: rad and rad/s (m, m/s)."""
OF_EFFORT = 0.01
"""Of efforts: a share of what the servo exerts at most, or at a distance of 0.1."""


@dataclass(frozen=True)
class Runs:
    """asked: what is drawn. truth: [N, Q] of N robots. records: theirs."""

    mechanism: Mechanism
    asked: tuple[Quantity, ...]
    truth: Numbers
    records: tuple[JointRecord, ...]


def drawn(asked: Sequence[Quantity], count: int, rng: np.random.Generator) -> Numbers:
    """[N, Q] robots of the prior, whose commands are not early and whose shares are shares."""
    mean, sd = np.array([q.mean for q in asked]), np.array([q.sd for q in asked])
    out = mean + sd * rng.standard_normal((count, len(asked)))
    for k, each in enumerate(asked):
        if each.name == "command_delay":
            out[:, k] = np.abs(out[:, k])
        elif each.name.startswith("kd_share"):
            out[:, k] = np.clip(out[:, k], 0.0, 1.0)
    return out


def runs(robot: RobotSpec, place: Numbers, every_s: float, count: int, seed: int, *, step: float = 0.01, each: int = 5,
         effort: bool = False, fixed: Mapping[str, float] | None = None) -> Runs:
    """``count`` robots that play setpoints ``place`` [K, J], one each ``every_s`` seconds.

    Args:
        step: of samples [s]. each: physics steps in one. effort: whether efforts are logged. fixed: by kind of
            parameter (``kp``), the value in its unit that all robots have; 0 where it is none.
    """
    m, rng = mechanism(robot, step / each), np.random.default_rng(seed)
    asked = parameters.quantities(m)
    truth = drawn(asked, count, rng)
    values = {name: value.copy() for name, value in by_name(asked, truth).items()}
    for kind, value in (fixed or {}).items():
        for k, quantity in enumerate(asked):
            if quantity.name.partition("[")[0] == kind:
                values[quantity.name][:] = value
                truth[:, k] = np.log(max(value, 1e-12)) if quantity.log else value
    setpoints = np.repeat(place, int(round(every_s / m.dt)), 0)
    setpoints = setpoints[: len(setpoints) // each * each]
    records = tuple(played(m, asked, {name: float(value[k]) for name, value in values.items()}, setpoints, step, each,
                           effort, f"simulated {k}", rng) for k in range(count))
    return Runs(m, asked, truth, records)


def played(m: Mechanism, asked: Sequence[Quantity], values: Mapping[str, float], setpoints: Numbers, step: float,
           each: int, effort: bool, name: str, rng: np.random.Generator) -> JointRecord:
    """One robot's log of ``setpoints`` [T each, J]."""
    true = moved(m, asked, values, setpoints)[::each]
    size = np.where(m.mj.actuator_forcelimited[m.servos], m.mj.actuator_forcerange[m.servos, 1],
                    parameters.REACH * m.mj.actuator_gainprm[m.servos, 0])
    noise = (NOISE[0], NOISE[1], OF_EFFORT * size)
    seen = [true[:, :, k] + noise[k] * rng.standard_normal(true.shape[:2]) for k in range(3)]
    return JointRecord(name, "", step, each, setpoints, seen[0], seen[1], seen[2] if effort else None,
                       np.ones(len(true), bool))


def moved(m: Mechanism, asked: Sequence[Quantity], values: Mapping[str, float], setpoints: Numbers) -> Numbers:
    """[T, J, 3] places, speeds and efforts in each physics step of MuJoCo."""
    theta = np.array([[np.log(max(values[q.name], 1e-12)) if q.log else values[q.name] for q in asked]])
    p = parameters.stepped(m, asked, theta)[0]
    mj = changed(m, p, float(parameters.load(m, by_name(asked, theta), 1)[0]))
    data, out = mujoco.MjData(mj), np.zeros((len(setpoints), len(m.dofs), 3))
    data.qpos[:], data.ctrl[:] = m.model.home_qpos, m.model.home_ctrl
    data.qpos[m.places] = setpoints[0]
    half, slow, late = 0.5 * p[:, stepping.BACKLASH], values["stribeck_speed"], values["command_delay"] / m.dt
    for k in range(len(setpoints)):
        at, last = k - late, len(setpoints) - 1
        first, part = int(np.floor(at)), (k - late) % 1.0
        a, b = (setpoints[min(max(n, 0), last)] for n in (first, first + 1))
        place, speed = data.qpos[m.places], data.qvel[m.dofs]
        out[k, :, 0], out[k, :, 1] = place, speed
        off = (1 - part) * a + part * b - place
        data.ctrl[m.servos] = place + np.sign(off) * np.maximum(np.abs(off) - half, 0.0)
        mj.dof_frictionloss[m.dofs] = p[:, stepping.FRICTION] + p[:, stepping.STRIBECK] * np.exp(-((speed / slow) ** 2))
        mujoco.mj_step(mj, data)
        out[k, :, 2] = data.qfrc_actuator[m.dofs]
    return out


def changed(m: Mechanism, p: Numbers, load: float) -> mujoco.MjModel:
    """The model with a robot's parameters [J, FIELDS] and ``load`` kg more on the tool's body."""
    mj = copy.copy(m.mj)
    mj.dof_armature[m.dofs], mj.dof_damping[m.dofs] = p[:, stepping.ARMATURE], p[:, stepping.DAMPING]
    mj.actuator_gainprm[m.servos, 0], mj.actuator_biasprm[m.servos, 1] = p[:, stepping.KP], -p[:, stepping.KP]
    mj.actuator_biasprm[m.servos, 2] = -p[:, stepping.KD]
    mj.actuator_ctrllimited[m.servos] = 0  # a dead zone's setpoint may lie past an end
    bounded = np.isfinite(p[:, stepping.STRENGTH])
    mj.actuator_forcerange[m.servos[bounded]] = np.outer(p[bounded, stepping.STRENGTH], [-1.0, 1.0])
    if m.carries:
        share = 1 + load / mj.body_mass[m.tool]
        mj.body_mass[m.tool] *= share
        mj.body_inertia[m.tool] *= share
    mujoco.mj_setConst(mj, mujoco.MjData(mj))
    return mj
