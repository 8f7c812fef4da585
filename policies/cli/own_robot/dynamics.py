"""What MuJoCo says about a robot at home: gravity, inertia, what touches; and the servos that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from temporeal.robots.model_files import parse
from temporeal.robots.motion.kinematics import SerialChain, serial_chain
from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.mujoco.robot_files import compiled, follow

SLOWEST, FASTEST = 15.0, 60.0  # rad/s: natural frequencies that servos get. Chosen
SAG = 0.01  # rad or m: how far gravity may pull a servo from its setpoint at home. Chosen
ROTOR = 20.0  # acceleration of a motor alone, in accelerations of the joint. Chosen: the FR3's measured ones have 22
HELD = 2.0  # efforts that no source gives, in the largest gravity torque. Chosen
POSES, TRIED, STEP = 2000, 100, np.pi / 8  # drawn for a home; tried in MuJoCo; angles are multiples of it
ALWAYS = 0.8  # share of poses: bodies that touch in more of them are housings that share a joint. Chosen
LIFTED = 0.15  # of the arm's reach: the least height of a tool at home, above the base. Chosen


@dataclass(frozen=True)
class Physics:
    """A robot alone in MuJoCo, its joints ``names`` in the order of what is asked."""

    robot: RobotSpec
    model: mujoco.MjModel
    data: mujoco.MjData
    names: tuple[str, ...]

    @property
    def at(self) -> np.ndarray:
        """Addresses of the joints in ``qpos``."""
        return np.array([self.model.joint(name).qposadr[0] for name in self.names], dtype=int)

    @property
    def dofs(self) -> np.ndarray:
        """Addresses of the joints in ``qvel``."""
        return np.array([self.model.joint(name).dofadr[0] for name in self.names], dtype=int)

    def place(self, positions: Sequence[float] | np.ndarray | None = None) -> None:
        """Put the robot at rest at home, or with its joints at ``positions``; kinematics and forces are up to date."""
        mujoco.mj_resetDataKeyframe(self.model, self.data, self.model.key("home").id)
        if positions is not None:
            self.data.qpos[self.at] = positions
            follow(self.model, self.data.qpos)
        mujoco.mj_forward(self.model, self.data)

    def gravity(self, positions: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
        """Torques or forces [J] that hold the robot at rest, N m or N; what followers need is their leaders'."""
        self.place(positions)
        force = self.data.qfrc_bias - self.data.qfrc_gravcomp - self.data.qfrc_passive
        return np.asarray(force[self.dofs])

    def inertia(self) -> np.ndarray:
        """For each joint the sum of the sizes of its row of the mass matrix at home [J], kg m^2 or kg."""
        self.place()
        full = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.data, full)
        return np.asarray(np.abs(full[np.ix_(self.dofs, self.dofs)]).sum(axis=1))

    def touching(self, positions: np.ndarray | None = None) -> list[tuple[str, str]]:
        """Pairs of the robot's bodies that touch each other, at home or with the joints at ``positions``."""
        self.place(positions)
        pairs = {tuple(sorted(int(self.model.geom_bodyid[geom]) for geom in contact.geom))
                 for contact in self.data.contact if contact.dist < 0}
        named = ((self.body(a), self.body(b)) for a, b in sorted(pairs))
        return [(a, b) for a, b in named if a and b and a != b]

    def body(self, index: int) -> str:
        """The name of a body as the robot's YAML calls it; MuJoCo makes a URDF's root link part of the world."""
        if index:
            return str(self.model.body(index).name)
        root = None if self.robot.model is None else parse(self.robot.model)
        if root is None or root.tag != "robot":
            return ""
        children = {child.get("link") for joint in root.findall("joint") for child in joint.findall("child")}
        return next((str(link.get("name")) for link in root.findall("link") if link.get("name") not in children), "")


def physics_of(robot: RobotSpec, joints: Sequence[str]) -> Physics:
    """``robot`` compiled, at home."""
    model = compiled(robot)
    found = Physics(robot, model, mujoco.MjData(model), tuple(joints))
    found.place()
    return found


# ---------------------------------------------------------------- proposals


def finger_gains(inertia: float, effort: float, stroke: float) -> tuple[float, float]:
    """kp and kd of a gripper's servo: its whole effort at a tenth of its stroke, damped critically."""
    kp = 10.0 * effort / stroke
    return kp, 2.0 * float(np.sqrt(kp * inertia))


def servo_gains(inertia: np.ndarray, gravity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """kp and kd [J] of position servos that settle without overshoot and hold the robot's weight.

    kp = w^2 D and kd = 2 w D with D the row sums of the mass matrix's sizes at home (:meth:`Physics.inertia`). D - M is
    diagonally dominant, so x' D x >= x' M x for all x, and each mode of M x'' + 2 w D x' + w^2 D x = 0 has a damping
    ratio of sqrt(x' D x / x' M x) >= 1: none overshoots, linearized at home. w is the least from 15 to 60 rad/s at
    which gravity moves no joint by more than 0.01 rad or m.
    """
    needed = np.sqrt(np.max(np.abs(gravity) / (SAG * inertia), initial=0.0))
    w = float(np.clip(needed, SLOWEST, FASTEST))
    return w * w * inertia, 2 * w * inertia


def rotor_inertia(effort: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
    """Armature [J] of motors that a model leaves out, kg m^2 or kg: the effort moves the rotor alone at 20 times the
    joint's acceleration."""
    return np.asarray(effort / (ROTOR * acceleration))


def assumed_efforts(physics: Physics, acceleration: np.ndarray) -> np.ndarray:
    """Efforts [J] for joints that no source gives one for: twice the largest gravity torque of drawn poses, and what
    the joint's acceleration at home takes."""
    poses = drawn_poses(physics, np.random.default_rng(0), 64)
    most = np.max([np.abs(physics.gravity(pose)) for pose in poses], axis=0)
    return np.asarray(HELD * most + physics.inertia() * acceleration)


def drawn_poses(physics: Physics, rng: np.random.Generator, count: int) -> np.ndarray:
    """Positions [count, J] on a grid of multiples of 22.5 degrees within the joints' ranges; unlimited joints turn
    once."""
    low, high = inner_range(physics, np.pi)
    drawn = rng.uniform(low, high, (count, len(low)))
    return np.clip(np.round(drawn / STEP) * STEP, low, high)


def inner_range(physics: Physics, unlimited: float) -> tuple[np.ndarray, np.ndarray]:
    """The joints' ranges [J] without a tenth at each end; those without a range have ``unlimited``."""
    ids = [physics.model.joint(name).id for name in physics.names]
    low, high = physics.model.jnt_range[ids].T
    limited, edge = physics.model.jnt_limited[ids].astype(bool), 0.1 * (high - low)
    return np.where(limited, low + edge, -unlimited), np.where(limited, high - edge, unlimited)


def proposed_home(physics: Physics) -> np.ndarray | None:
    """A pose [J] for an arm to start from: far from singular poses, the tool lifted, nothing touching, little effort
    against gravity and, among such poses, with most joints near zero. None: no drawn pose is good."""
    chain = serial_chain(physics.robot)
    columns = list(chain.columns)
    poses = drawn_poses(physics, np.random.default_rng(0), POSES)
    zero = np.random.default_rng(1).random(poses.shape) < 0.4  # people's homes have many zeros
    poses = np.clip(np.where(zero, 0.0, poses), *inner_range(physics, np.pi))
    score = dexterity(chain, poses[:, columns]) - 0.05 * np.abs(poses).sum(axis=1) - 0.3 * np.abs(poses[:, columns[0]])
    tried = [index for index in np.argsort(-score)[:TRIED] if np.isfinite(score[index])]
    touching = {index: set(physics.touching(poses[index])) for index in tried}
    often = Counter(pair for pairs in touching.values() for pair in pairs)
    housings = {pair for pair, count in often.items() if count > ALWAYS * len(tried)}
    clear = [index for index in tried if touching[index] <= housings]
    if not clear:
        return None
    return np.asarray(poses[max(clear, key=lambda index: score[index] - gravity_share(physics, poses[index]))])


def dexterity(chain: SerialChain, q: np.ndarray) -> np.ndarray:
    """How far from singular each of the poses ``q`` [N, J] is, 0 to 1; minus infinity where the tool is too low.

    Yoshikawa's manipulability of the tool's velocity, for six joints or more of its angular velocity, too.
    """
    places = chain.forward(q)[:, :3, 3]
    reach = max(float(np.linalg.norm(places - places.mean(axis=0), axis=1).max()), 1e-9)
    jacobians = chain.jacobian(q)
    jacobians[:, :3] /= reach
    jacobians = jacobians[:, : 6 if q.shape[1] >= 6 else min(3, q.shape[1])]
    room = np.sqrt(np.maximum(np.linalg.det(jacobians @ jacobians.transpose(0, 2, 1)), 0.0))
    low = places[:, 2] < chain.fixed[0][2, 3] + LIFTED * reach
    return np.where(low, -np.inf, room / max(float(room.max()), 1e-12))


def gravity_share(physics: Physics, pose: np.ndarray) -> float:
    """The largest share of its effort that a joint needs to hold ``pose`` [J]."""
    motion = physics.robot.motion
    if motion is None or not motion.effort:
        return 0.0
    names = physics.robot.sources["joint_pos"].names
    most = dict(zip(names, motion.effort))
    torque = dict(zip(physics.names, np.abs(physics.gravity(pose))))
    return float(max(torque[name] / most[name] for name in names))
