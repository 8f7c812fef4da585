"""The joints of a robot as MuJoCo has them: which servo drives which, and inertia and bias along a record.

The model is the one that the backend ``mujoco`` simulates, built by the same code, so that what is found goes into it
as it is. Joints that the record does not have (fingers, a jaw) are taken to rest at home.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.joints.stepping import EULER, IMPLICIT
from temporeal.sim.identification.record import CannotTell, Marks, Numbers
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Model, body_of
from temporeal.sim.scene import Scene

Ids = NDArray[np.int64]
PLACE, COMMAND = "joint_pos", "joint_pos_cmd"
REACHES = 1e-9
"""kg m^2: joints that have less than this in common at no place that was looked at are of different chains."""


@dataclass(frozen=True)
class Mechanism:
    """Joints, in the order of the robot's signal ``joint_pos``.

    Args:
        names: [J]. dofs, places: [J] in qvel and qpos. servos: [J] actuators. chains: indices of joints that move
            together. tool: the body that carries the tool; -1: the robot has none. drawn: [2, V, V] inertia of all
            degrees of freedom where the model is drawn, armature included, and what one kg more on the tool's body adds
            to it.
    """

    robot: RobotSpec
    model: Model
    names: tuple[str, ...]
    dofs: Ids
    places: Ids
    servos: Ids
    chains: tuple[Ids, ...]
    tool: int
    drawn: Numbers

    @property
    def mj(self) -> mujoco.MjModel:
        """Compiled."""
        return self.model.mj

    @property
    def turns(self) -> Marks:
        """[J] joints that turn; others slide."""
        return np.asarray(self.mj.jnt_type[self.mj.dof_jntid[self.dofs]] == mujoco.mjtJoint.mjJNT_HINGE)

    @property
    def carries(self) -> bool:
        """Whether a load on the tool can be told: there is a body of matter for it."""
        return self.tool >= 0 and bool(self.mj.body_mass[self.tool] > 0)

    @property
    def integrator(self) -> int:
        """As :mod:`.stepping` calls it."""
        return EULER if self.mj.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER else IMPLICIT

    @property
    def dt(self) -> float:
        """Physics step [s]."""
        return float(self.mj.opt.timestep)

    @property
    def decay(self) -> Numbers:
        """[J] 1/s with which MuJoCo's friction takes speed away, where it can: B of its reference acceleration."""
        reference, impedance = self.mj.dof_solref[self.dofs], self.mj.dof_solimp[self.dofs]
        time = np.maximum(reference[:, 0], 2 * self.dt)
        scaled = np.where(reference[:, 0] > 0, 2 / time, -reference[:, 1])
        return np.asarray(scaled / impedance[:, 1])

    @property
    def most(self) -> Numbers:
        """[J] that all actuators together exert on a joint; infinite: no limit."""
        joints = self.mj.dof_jntid[self.dofs]
        limits = self.mj.jnt_actfrcrange[joints]
        return np.asarray(np.where(self.mj.jnt_actfrclimited[joints].astype(bool), np.abs(limits).min(1), np.inf))

    def softness(self, armature: Numbers, load: Numbers) -> Numbers:
        """[P, J] of the friction constraint, of armatures [P, J] and loads [P] kg: R = (1 - d) / d times the inverse
        inertia where the model is drawn."""
        many = self.drawn[0] + load[:, None, None] * self.drawn[1]
        many[:, self.dofs, self.dofs] += armature - self.mj.dof_armature[self.dofs]
        inverse = np.linalg.inv(many)[:, self.dofs, self.dofs]
        d = self.mj.dof_solimp[self.dofs, 0]
        return np.asarray((1 - d) / d * inverse)


@dataclass(frozen=True)
class Terms:
    """Along T samples: inertia [T, J, J] without the motors' armature; bias [T, J]: gravity, Coriolis and springs, less
    what the model compensates; own [T, J]: the part of that compensation which actuators exert; heavier
    [T, J, J + 2]: what one kg more on the tool's body adds to inertia, bias and own."""

    inertia: Numbers
    bias: Numbers
    own: Numbers
    heavier: Numbers


def mechanism(robot: RobotSpec, dt: float) -> Mechanism:
    """The joints of ``robot``, simulated in steps of ``dt`` s."""
    check(robot)
    model = mjcf.build(Scene(robot), COMMAND, dt)
    mj, names = model.mj, robot.sources[PLACE].names
    joints = np.array([mj.joint(name).id for name in names])
    driven = {int(mj.actuator_trnid[k, 0]): k for k in model.ctrl
              if mj.actuator_trntype[k] == mujoco.mjtTrn.mjTRN_JOINT and mj.actuator_gear[k, 0] == 1}
    for name, joint in zip(names, joints):
        if joint not in driven:
            raise CannotTell(f"robot {robot.name!r}: no servo of {COMMAND} drives joint {name} directly (it is moved "
                             "by a tendon, a gear or another joint): such joints are not identified")
    servos, dofs = np.array([driven[joint] for joint in joints]), mj.jnt_dofadr[joints].astype(np.int64)
    plain = (mj.actuator_gaintype[servos] == mujoco.mjtGain.mjGAIN_FIXED) & (
        mj.actuator_biastype[servos] == mujoco.mjtBias.mjBIAS_AFFINE)
    if not plain.all():
        raise CannotTell(f"robot {robot.name!r}: the actuators of {COMMAND} are no position servos")
    tool = carrier(mj, body_of(mj, robot.sources[f"{robot.tool}_pos_w"].names[0])) if robot.tool else -1
    none = np.zeros((2, mj.nv, mj.nv))
    alone = Mechanism(robot, model, names, dofs, mj.jnt_qposadr[joints].astype(np.int64), servos, (), tool, none)
    plain = where_drawn(mj)
    more = where_drawn(loaded_model(alone)) - plain if alone.carries else none[0]
    return replace(alone, chains=chains(alone), drawn=np.stack([plain, more]))


def carrier(mj: mujoco.MjModel, tool: int) -> int:
    """The body that has most of the matter of what ``tool`` is fixed to, frames and links."""
    rigid = np.flatnonzero(mj.body_weldid == mj.body_weldid[tool])
    return int(rigid[np.argmax(mj.body_mass[rigid])])


def check(robot: RobotSpec) -> None:
    """Refuse robots whose joints are not set by position."""
    driven = robot.drives.get(COMMAND, "position")
    if PLACE not in robot.sources or COMMAND not in robot.commands or driven != "position":
        raise CannotTell(f"robot {robot.name!r} has no {COMMAND} that sets its {PLACE} by position servos: joints are "
                         "identified by such a command alone")
    if robot.commands[COMMAND].size != len(robot.sources[PLACE].names):
        raise CannotTell(f"robot {robot.name!r}: {COMMAND} has {robot.commands[COMMAND].size} components and {PLACE} "
                         f"{len(robot.sources[PLACE].names)}; as many are needed")


def chains(m: Mechanism) -> tuple[Ids, ...]:
    """Joints in groups that share no inertia wherever they are: fingers of a hand."""
    rng = np.random.default_rng(0)
    ranges = np.clip(m.mj.jnt_range[m.mj.dof_jntid[m.dofs]], -np.pi, np.pi)
    tried = rng.uniform(ranges[:, 0], np.maximum(ranges[:, 1], ranges[:, 0] + 1e-3), (8, len(m.dofs)))
    shared = np.abs(terms(m, tried, np.zeros_like(tried)).inertia).max(0) > REACHES
    found, left = list[Ids](), set(range(len(m.dofs)))
    while left:
        reached = {min(left)}
        while more := {int(k) for j in reached for k in np.flatnonzero(shared[j])} - reached:
            reached |= more
        found.append(np.array(sorted(reached)))
        left -= reached
    return tuple(found)


def terms(m: Mechanism, place: Numbers, speed: Numbers) -> Terms:
    """Inertia and bias at joint positions and speeds [T, J]."""
    inertia, bias, own = at(m, m.mj, place, speed)
    heavier = np.zeros((*bias.shape, bias.shape[1] + 2))
    if m.carries:
        loaded = loaded_model(m)
        for k, (more, less) in enumerate(zip(at(m, loaded, place, speed), (inertia, bias, own))):
            where = slice(0, bias.shape[1]) if k == 0 else bias.shape[1] + k - 1
            heavier[:, :, where] = more - less
    return Terms(inertia, bias, own, heavier)


def loaded_model(m: Mechanism) -> mujoco.MjModel:
    """The model with one kg more on the tool's body, as the backend's parameter ``mass`` puts it there."""
    out = copy.copy(m.mj)
    share = (out.body_mass[m.tool] + 1.0) / out.body_mass[m.tool]
    out.body_mass[m.tool] *= share
    out.body_inertia[m.tool] *= share
    mujoco.mj_setConst(out, mujoco.MjData(out))
    return out


def at(m: Mechanism, mj: mujoco.MjModel, place: Numbers, speed: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Inertia [T, J, J] without armature, bias [T, J] and own [T, J] of :class:`Terms`."""
    data, count = mujoco.MjData(mj), len(m.dofs)
    inertia = np.zeros((len(place), count, count))
    bias, own = np.zeros((2, len(place), count))
    data.qpos[:], data.qvel[:] = m.model.home_qpos, 0.0
    by_servo = mj.jnt_actgravcomp[mj.dof_jntid[m.dofs]].astype(bool)
    for k in range(len(place)):
        data.qpos[m.places], data.qvel[m.dofs] = place[k], speed[k]
        mujoco.mj_kinematics(mj, data)
        mujoco.mj_comPos(mj, data)
        mujoco.mj_crb(mj, data)
        mujoco.mj_comVel(mj, data)
        mujoco.mj_rne(mj, data, 0, data.qfrc_bias)
        mujoco.mj_passive(mj, data)
        inertia[k] = full(mj, data)[np.ix_(m.dofs, m.dofs)]
        bias[k] = (data.qfrc_bias - data.qfrc_gravcomp - data.qfrc_spring)[m.dofs]
        own[k] = np.where(by_servo, data.qfrc_gravcomp[m.dofs], 0.0)
    inertia[:, np.arange(count), np.arange(count)] -= mj.dof_armature[m.dofs]
    return inertia, bias, own


def where_drawn(mj: mujoco.MjModel) -> Numbers:
    """[V, V] inertia in the model's own posture."""
    data = mujoco.MjData(mj)
    mujoco.mj_kinematics(mj, data)
    mujoco.mj_comPos(mj, data)
    mujoco.mj_crb(mj, data)
    return full(mj, data)


def full(mj: mujoco.MjModel, data: mujoco.MjData) -> Numbers:
    """[V, V] inertia of all degrees of freedom."""
    out = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, data, out)
    return out
