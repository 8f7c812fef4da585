"""Physics inside the doubles of Isaac Gym and Isaac Lab: MuJoCo, one model and one data per env. Test support only.

Reads the URDFs that were written for Isaac, so that what is wrong in them shows. Quaternions here are wxyz. Orders of
joints and links differ from the files' on purpose: who takes them by position instead of by name is found out.
"""

from dataclasses import dataclass
from xml.etree import ElementTree as xml

import mujoco
import numpy as np


@dataclass
class ActorSpec:
    """One actor of an env: a URDF at a pose."""

    name: str
    urdf: str
    fixed: bool
    gravity: bool
    pos: tuple = (0.0, 0.0, 0.0)
    quat: tuple = (1.0, 0.0, 0.0, 0.0)
    filters: dict = None  # link -> bits: two links that share one do not touch


@dataclass
class Described:
    """Names in a URDF, in the double's own order; ``shapes``: collisions of each link."""

    links: list
    dofs: list
    shapes: dict
    parents: dict
    limits: dict


def describe(path):
    """What a URDF holds."""
    root = xml.parse(path).getroot()
    links = [x.get("name") for x in root.findall("link")]
    joints = root.findall("joint")
    parents = {j.find("child").get("link"): j.find("parent").get("link") for j in joints}
    top = next(x for x in links if x not in parents)
    moving = [j for j in joints if j.get("type") != "fixed"]
    for link in root.findall("link"):
        if link.find("inertial") is None:
            raise ValueError(f"link {link.get('name')} has no inertial: Isaac would make one up")
    return Described(
        [top, *sorted((x for x in links if x != top), reverse=True)],
        sorted((j.get("name") for j in moving), reverse=True),
        {x.get("name"): len(x.findall("collision")) for x in root.findall("link")}, parents,
        {j.get("name"): tuple(float(j.find("limit").get(k, "0")) for k in ("lower", "upper", "effort", "velocity"))
         for j in moving})


class Env:
    """One env: a compiled model of all its actors."""

    def __init__(self, actors, dt, gravity, floor):
        self.actors = actors
        self.described = {a.name: describe(a.urdf) for a in actors}
        spec = mujoco.MjSpec()
        spec.option.timestep, spec.option.gravity = dt, gravity
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        if floor is not None:
            spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05],
                                    friction=[floor, 0.005, 0.0001])
        for actor in actors:
            self.add(spec, actor)
        self.exclude(spec)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self.speed = np.full(self.model.nv, np.inf)
        self.targets, self.efforts = np.zeros(self.model.nu), np.zeros(self.model.nu)
        for actor in actors:
            if not actor.fixed:
                q = self.model.jnt_qposadr[self.free(actor.name)]
                self.data.qpos[q : q + 7] = *actor.pos, *actor.quat
        self.refresh()

    def add(self, spec, actor):
        child = mujoco.MjSpec.from_file(actor.urdf)
        child.compiler.fusestatic = False
        root = child.worldbody.first_body()
        if not actor.fixed:
            root.add_freejoint(name="free")
        for body in child.bodies:
            body.gravcomp = 0.0 if actor.gravity else 1.0
            body.simple = False  # masses and their centres may change
        for joint in child.joints:
            joint.damping, joint.frictionloss = [0.0] * 3, 0.0
            joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE
        for name in self.described[actor.name].dofs:
            child.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
                               biastype=mujoco.mjtBias.mjBIAS_AFFINE, gainprm=[1.0] + [0.0] * 9,
                               forcelimited=mujoco.mjtLimited.mjLIMITED_TRUE, forcerange=[-1e-6, 1e-6])
        frame = spec.worldbody.add_frame(pos=list(actor.pos), quat=list(actor.quat))
        spec.attach(child, prefix=f"{actor.name}/", frame=frame)

    def exclude(self, spec):
        """Parents and children of one articulation never touch; nor do links that share a bit of their filters."""
        for a in self.actors:
            for child, parent in self.described[a.name].parents.items():
                spec.add_exclude(bodyname1=f"{a.name}/{parent}", bodyname2=f"{a.name}/{child}")
        bits = [(f"{a.name}/{n}", b) for a in self.actors for n, b in (a.filters or {}).items()]
        for i, (one, mine) in enumerate(bits):
            for two, theirs in bits[i + 1 :]:
                if mine & theirs:
                    spec.add_exclude(bodyname1=one, bodyname2=two)

    # ---- ids

    def free(self, actor):
        return self.model.joint(f"{actor}/free").id

    def joint(self, actor, name):
        return self.model.joint(f"{actor}/{name}").id

    def body(self, actor, name):
        return self.model.body(f"{actor}/{name}").id

    def geom(self, actor, link, i):
        """Number of the i-th collision shape of a link."""
        return self.model.body_geomadr[self.body(actor, link)] + i

    # ---- state

    def root(self, actor):
        """Pose (wxyz) of the root link, velocity of its centre of mass, angular velocity: [13], world."""
        spec = next(a for a in self.actors if a.name == actor)
        return self.link(actor, self.described[spec.name].links[0])

    def link(self, actor, name, at_com=True):
        """Pose (wxyz) of a link's frame, velocity of its centre of mass or frame, angular velocity: [13]."""
        body, velocity = self.body(actor, name), np.zeros(6)
        kind = mujoco.mjtObj.mjOBJ_BODY if at_com else mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(self.model, self.data, kind, body, velocity, 0)
        return np.concatenate((self.data.xpos[body], self.data.xquat[body], velocity[3:], velocity[:3]))

    def set_root(self, actor, state, at_com=True):
        """Set what :meth:`root` gives."""
        joint = self.free(actor)
        q, v, body = self.model.jnt_qposadr[joint], self.model.jnt_dofadr[joint], self.model.jnt_bodyid[joint]
        self.data.qacc_warmstart[:] = 0  # MuJoCo's memory of the step before, which belongs to the state before
        turn = np.zeros(9)
        quat = state[3:7] / np.linalg.norm(state[3:7])
        mujoco.mju_quat2Mat(turn, quat)
        turn = turn.reshape(3, 3)
        linear = state[7:10] - np.cross(state[10:13], turn @ self.model.body_ipos[body]) if at_com else state[7:10]
        self.data.qpos[q : q + 7] = *state[:3], *quat
        self.data.qvel[v : v + 6] = *linear, *(turn.T @ state[10:13])

    def dof(self, actor, name):
        """Position and velocity."""
        joint = self.joint(actor, name)
        return self.data.qpos[self.model.jnt_qposadr[joint]], self.data.qvel[self.model.jnt_dofadr[joint]]

    def set_dof(self, actor, name, pos, vel):
        """Set what :meth:`dof` gives."""
        joint = self.joint(actor, name)
        self.data.qacc_warmstart[:] = 0
        self.data.qpos[self.model.jnt_qposadr[joint]], self.data.qvel[self.model.jnt_dofadr[joint]] = pos, vel

    def dof_force(self, actor, name):
        """Force of the drive."""
        return self.data.qfrc_actuator[self.model.jnt_dofadr[self.joint(actor, name)]]

    # ---- drives and properties

    def set_drive(self, actor, name, stiffness, damping, effort, velocity, armature, friction=0.0):
        a, joint = self.model.actuator(f"{actor}/{name}").id, self.joint(actor, name)
        v = self.model.jnt_dofadr[joint]
        self.model.actuator_biasprm[a, 1:3] = -stiffness, -damping
        self.model.actuator_forcerange[a] = -effort, effort
        self.model.dof_armature[v], self.model.dof_frictionloss[v], self.speed[v] = armature, friction, velocity

    def drive(self, actor, name, target, effort):
        """Position target and feed-forward effort."""
        a = self.model.actuator(f"{actor}/{name}").id
        self.targets[a], self.efforts[a] = target, effort

    def set_mass(self, actor, link, mass, com, inertia):
        body, quat = self.body(actor, link), np.zeros(4)
        values, axes = np.linalg.eigh(inertia)
        axes[:, 0] *= np.sign(np.linalg.det(axes))
        mujoco.mju_mat2Quat(quat, axes.flatten())
        self.model.body_mass[body], self.model.body_inertia[body] = mass, values
        self.model.body_ipos[body], self.model.body_iquat[body] = com, quat
        state = self.data.qpos.copy(), self.data.qvel.copy()
        mujoco.mj_setConst(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = state
        self.refresh()

    # ---- time

    def step(self, wrenches):
        """One step; ``wrenches``: (actor, link) -> force and torque [6] at the centre of mass, world frame."""
        self.data.xfrc_applied[:] = 0
        for (actor, link), value in wrenches.items():
            self.data.xfrc_applied[self.body(actor, link)] = value
        self.data.ctrl[:] = -self.model.actuator_biasprm[:, 1] * self.targets + self.efforts
        loud, silent = mujoco.MjLogConfig.get(), mujoco.MjLogConfig.get()
        silent.logto_console = silent.logto_file = False
        silent.set()
        try:
            mujoco.mj_step(self.model, self.data)
        finally:
            loud.set()
        self.data.qvel[:] = np.clip(self.data.qvel, -self.speed, self.speed)
        self.touch = self.contact_forces()
        self.refresh()

    def contact_forces(self):
        out, force = np.zeros((self.model.nbody, 3)), np.zeros(6)
        for i in range(self.data.ncon):
            contact = self.data.contact[i]
            mujoco.mj_contactForce(self.model, self.data, i, force)
            world = contact.frame.reshape(3, 3).T @ force[:3]
            out[self.model.geom_bodyid[contact.geom2]] += world
            out[self.model.geom_bodyid[contact.geom1]] -= world
        return out

    def refresh(self):
        """Derived quantities at the state."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_comVel(self.model, self.data)
        if not hasattr(self, "touch"):
            self.touch = np.zeros((self.model.nbody, 3))
