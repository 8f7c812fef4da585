"""How much capacity a scene's contacts and constraints need on a GPU, where arrays have a fixed size.

MuJoCo Warp keeps the contacts of all worlds in one array, and the constraints of each world in one of its own; what
does not fit is left out (:attr:`temporeal.sim.types.Status.overflow`), and memory grows with the room. So the need is
measured: the scene is simulated in C with random commands, from home, from joints anywhere, and with the free objects
inside the robot, and the most that occurred is taken with a margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import mujoco
import numpy as np

from temporeal.sim.physics.mujoco.log import quiet
from temporeal.sim.physics.mujoco.model import JOINT_SIZE, Model, free_joint
from temporeal.sim.physics.mujoco.resets import holding_act, holding_ctrl

Array = np.ndarray

PLANE, SPHERE, CAPSULE, CYLINDER, BOX = (int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")) for kind in (
    "PLANE", "SPHERE", "CAPSULE", "CYLINDER", "BOX"))
# pairs of shapes whose contacts MuJoCo Warp computes in closed form, besides those with a plane
CLOSED = {(SPHERE, SPHERE), (SPHERE, CAPSULE), (SPHERE, CYLINDER), (SPHERE, BOX), (CAPSULE, CAPSULE), (CAPSULE, BOX),
          (BOX, BOX)}

PLAYS, STEPS, HELD = 24, 150, 30  # a third of the plays start at home; a command holds for 30 steps
NEAR = 0.02  # m, from the middle of a geom of the robot to that of an object put there
MARGIN, SPARE = 1.5, 8  # capacity = margin * most + spare
LEAST = 32, 16, 96  # contacts, convex, constraints: a grasped box on a table; 0.3 GB at 16384 worlds of ten joints


@dataclass(frozen=True)
class Capacity:
    """Sizes per world: ``contacts`` (and candidate pairs), those of them between shapes that need iterations
    (``convex``), ``constraints`` (rows)."""

    contacts: int
    convex: int
    constraints: int

    def given(self, contacts: int, constraints: int) -> Capacity:
        """With sizes of the user's where they are not 0; ``convex`` grows with the contacts, within them."""
        wanted = contacts or self.contacts
        convex = min(max(self.convex, ceil(self.convex * wanted / self.contacts)), wanted)
        return Capacity(wanted, convex, constraints or self.constraints)


@dataclass(frozen=True)
class Pairs:
    """Geoms [P] that may touch each other, and which pairs take GJK and EPA."""

    first: Array
    second: Array
    convex: Array


def measure(model: Model, seed: int = 0) -> Capacity:
    """The capacity for ``model``: 1.5 times the most contacts, candidate pairs and constraints met, and 8 more.

    At least :data:`LEAST`; about 0.3 s for an arm or a hand.
    """
    with quiet():  # plays may diverge, of which MuJoCo would write to stderr and a file
        most = met(model, np.random.default_rng(seed))
    contacts, convex, constraints = (max(ceil(MARGIN * x) + SPARE, least) for x, least in zip(most, LEAST))
    return Capacity(contacts, min(convex, contacts) if pairs_of(model.mj).convex.any() else 0, constraints)


def met(model: Model, rng: np.random.Generator) -> Array:
    """The most contacts or candidate pairs, those of them that need iterations, and constraints in all plays."""
    mj, data, pairs, most = model.mj, mujoco.MjData(model.mj), pairs_of(model.mj), np.zeros(3)
    for play in range(PLAYS):
        start(model, data, rng, kind=play % 3)
        for step in range(STEPS):
            if step % HELD == 0:
                data.ctrl[:] = command(model, data, rng)
            mujoco.mj_step(mj, data)
            if step % 8 == 0:
                near = candidates(mj, data, pairs)
                most[:2] = np.maximum(most[:2], (near.sum(), (near & pairs.convex).sum()))
            most[0], most[2] = max(most[0], data.ncon), max(most[2], data.nefc)
            if not (np.abs(data.qvel).max(initial=0.0) < 1e3):  # it flew apart: nothing to be learned from there
                break
    return most


HOME, ANYWHERE, INSIDE = range(3)


def start(model: Model, data: mujoco.MjData, rng: np.random.Generator, kind: int) -> None:
    """Home; joints anywhere and free bodies turned at random where they stand; or home with the objects inside it."""
    mj = model.mj
    mujoco.mj_resetData(mj, data)
    data.qpos[:] = model.home_qpos
    if kind == ANYWHERE:
        scatter(mj, data, rng)
    if kind == INSIDE and len(model.groups[0].geoms):
        mujoco.mj_kinematics(mj, data)
        for g in model.groups[1:]:
            if g.root is not None and free_joint(mj, g.root) is not None:
                first = mj.jnt_qposadr[mj.body_jntadr[g.root]]
                place = data.geom_xpos[rng.choice(model.groups[0].geoms)]
                data.qpos[first : first + 3] = place + NEAR * rng.normal(size=3)
    data.ctrl[:], data.act[:] = holding_ctrl(model, data.qpos[None])[0], holding_act(model, data.qpos[None])[0]


def scatter(mj: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """Joints anywhere in their ranges, half a radian or metre around home without one; balls and free bodies turned."""
    for i in range(mj.njnt):
        first = mj.jnt_qposadr[i]
        size = JOINT_SIZE[int(mj.jnt_type[i])]
        if size == 1:
            low, high = mj.jnt_range[i] if mj.jnt_limited[i] else data.qpos[first] + np.array([-0.5, 0.5])
            data.qpos[first] = rng.uniform(low, high)
        else:
            turn = rng.normal(size=4)
            data.qpos[first + size - 4 : first + size] = turn / np.linalg.norm(turn)


def command(model: Model, data: mujoco.MjData, rng: np.random.Generator) -> Array:
    """Anywhere in the ranges of the actuators; those without one stay."""
    mj = model.mj
    low, high = mj.actuator_ctrlrange.T
    drawn = rng.uniform(low, np.maximum(low, high))
    return np.where(mj.actuator_ctrllimited.astype(bool), drawn, data.ctrl)


def pairs_of(mj: mujoco.MjModel) -> Pairs:
    """What MuJoCo's filters by body, bits and exclusions leave, and the pairs that the model names."""
    first, second = np.triu_indices(mj.ngeom, k=1)
    body = mj.geom_bodyid[first], mj.geom_bodyid[second]
    weld = tuple(mj.body_weldid[b] for b in body)
    parent = tuple(mj.body_weldid[mj.body_parentid[w]] for w in weld)
    filtered = not mj.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT
    related = filtered & (weld[0] != 0) & (weld[1] != 0) & ((weld[0] == parent[1]) | (weld[1] == parent[0]))
    fixed = (mj.body_dofnum[weld[0]] == 0) & (mj.body_dofnum[weld[1]] == 0)
    own, others = mj.geom_contype, mj.geom_conaffinity
    bits = (own[first] & others[second]) | (own[second] & others[first])
    excluded = np.isin((body[0] << 16) + body[1], mj.exclude_signature)
    named = np.isin(first * mj.ngeom + second, np.minimum(mj.pair_geom1, mj.pair_geom2) * mj.ngeom
                    + np.maximum(mj.pair_geom1, mj.pair_geom2))
    keep = named | ((bits != 0) & (weld[0] != weld[1]) & ~related & ~fixed & ~excluded)
    first, second = first[keep], second[keep]
    kinds = np.sort(np.stack((mj.geom_type[first], mj.geom_type[second]), -1), -1)
    convex = [kind[0] != PLANE and tuple(kind) not in CLOSED for kind in kinds.tolist()]
    return Pairs(first, second, np.array(convex, dtype=bool))


def candidates(mj: mujoco.MjModel, data: mujoco.MjData, pairs: Pairs) -> Array:
    """Pairs [P] that MuJoCo Warp's broad phase lets through: planes, then spheres, then oriented boxes."""
    gap = mj.geom_margin + mj.geom_gap
    reach = gap[pairs.first] + gap[pairs.second]
    x, turn = data.geom_xpos, data.geom_xmat.reshape(-1, 3, 3)
    size = mj.geom_rbound
    between = x[pairs.second] - x[pairs.first]
    plane1, plane2 = size[pairs.first] == 0, size[pairs.second] == 0
    above1 = np.einsum("pi,pi->p", between, turn[pairs.first][:, :, 2]) <= size[pairs.second] + reach
    above2 = -np.einsum("pi,pi->p", between, turn[pairs.second][:, :, 2]) <= size[pairs.first] + reach
    spheres = np.linalg.norm(between, axis=-1) <= size[pairs.first] + size[pairs.second] + reach
    near = np.where(plane1, above1, np.where(plane2, above2, spheres))
    rest = near & ~plane1 & ~plane2
    near[rest] = boxes_meet(mj, x, turn, pairs.first[rest], pairs.second[rest], reach[rest])
    return np.asarray(near)


def boxes_meet(mj: mujoco.MjModel, x: Array, turn: Array, first: Array, second: Array, reach: Array) -> Array:
    """Whether no face of either bounding box separates the two."""
    centre = x + np.einsum("gij,gj->gi", turn, mj.geom_aabb[:, :3])
    half = mj.geom_aabb[:, 3:]
    axes = np.concatenate((turn[first], turn[second]), -1)  # [P, 3, 6]
    apart = np.abs(np.einsum("pi,pia->pa", centre[second] - centre[first], axes))
    radius = sum(np.einsum("pj,pja->pa", half[g], np.abs(np.einsum("pij,pia->pja", turn[g], axes)))
                 for g in (first, second))
    return np.asarray((apart <= radius + reach[:, None]).all(-1))
