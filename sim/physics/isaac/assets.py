"""A scene as Isaac Gym and Isaac Lab load it: one URDF per tree of bodies, drives per joint, where each signal is read.

    plan = plan_of(mjcf.build(scene, "joint_pos_cmd", dt=0.002))
    files = write(plan, folder)                # actor name -> URDF file
    plan.dofs[0].name, plan.links[3].name      # our order; the simulators' own order is looked up by these names

URDF, not MJCF: both importers take it whole, while their MJCF importers read defaults, classes, actuators and sites in
ways of their own. What is written is explicit: every link has its inertia, every shape is a box, a sphere, a cylinder
or a convex mesh (a capsule is a cylinder with a sphere at each end, the same solid), no name is left out.

What the simulators cannot express is refused here with an error: ball joints, two joints of one body, tendons and
equalities other than those of joints that move alike (a gripper's fingers), actuators with dynamics, height fields,
ellipsoids.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as xml

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Source
from temporeal.sim.physics.mujoco.mjcf import Array, Fields, Model
from temporeal.sim.physics.mujoco.robot_files import levers

FREE, BALL, SLIDE, HINGE = 0, 1, 2, 3  # mjtJoint
UNLIMITED = 1e4  # N m or N: an actuator without a force limit
FASTEST = 1e3  # rad/s or m/s: a joint whose speed nothing bounds
FILTER_BITS = 31  # pairs of links of one actor that can be kept from touching: bits of Isaac Gym's int32 filter
STILL = (1.0, 1e-2 * np.eye(3))  # kg, kg m^2: of a massless body that cannot move
STATIC = "world_static"  # the actor that holds the shapes of the world body


@dataclass(frozen=True)
class Shape:
    """One solid of a link: ``size`` as URDF has it (box: full sizes; sphere: radius; cylinder: radius, length)."""

    kind: str  # box, sphere, cylinder or mesh
    size: tuple[float, ...]
    pos: Array
    quat: Array
    geom: int
    touches: bool


@dataclass(frozen=True)
class Dof:
    """A hinge or slide and its drive.

    A position drive exerts ``stiffness (target - q) - damping qd``, an effort drive what it is told less
    ``damping qd``; both at most ``effort``. ``actuator``: that of the model, -1 without; q is MuJoCo's less ``ref``.
    """

    name: str
    joint: int
    kind: str  # revolute, continuous or prismatic
    axis: Array
    lower: float
    upper: float
    ref: float
    actuator: int
    lever: float  # of the actuator's force on this joint
    travel: float  # of the actuator's length per joint travel
    servo: bool  # position drive


@dataclass(frozen=True)
class Link:
    """One rigid body of an actor: the bodies of the model that are one solid with it, in the frame of its joint."""

    name: str
    actor: str
    parent: str | None
    pos: Array  # of the frame in the parent's; of a root in the world's, home
    quat: Array
    bodies: tuple[int, ...]  # empty: a base that the model has no body for
    frames: tuple[tuple[Array, Array], ...]  # of the bodies in the link: pos, quat
    shapes: tuple[Shape, ...]
    mass: float
    com: Array
    inertia: Array  # [3, 3] about com, axes of the link
    dof: Dof | None


@dataclass(frozen=True)
class Actor:
    """A tree of links: ``floating`` moves freely, else its root stands still; ``static``: nothing in it moves."""

    name: str
    links: tuple[Link, ...]
    floating: bool
    gravity: bool
    joint: int  # the free joint, or -1
    apart: tuple[tuple[str, str], ...]  # links that must not touch, beside parents and their children

    @property
    def dofs(self) -> tuple[Dof, ...]:
        """Its joints."""
        return tuple(link.dof for link in self.links if link.dof is not None)

    @property
    def static(self) -> bool:
        """Whether nothing in it moves."""
        return not self.floating and not self.dofs


@dataclass(frozen=True)
class Gather:
    """How one signal comes from links and joints.

    ``rows`` of dofs or links; ``pos``, ``quat``: a frame in the link. Of joints, ``pos`` is what to add to positions.
    """

    what: str
    rows: tuple[int, ...]
    shape: tuple[int, ...]
    pos: Array = field(default_factory=lambda: np.zeros(3))
    quat: Array = field(default_factory=lambda: np.array([1.0, 0, 0, 0]))


@dataclass(frozen=True)
class Plan:
    """A compiled scene cut into actors. ``floor``: friction of the ground, or None without one."""

    model: Model
    actors: tuple[Actor, ...]
    floor: float | None
    gathers: Mapping[str, Gather]

    @property
    def links(self) -> tuple[Link, ...]:
        """Links of all actors, one after the other."""
        return tuple(link for a in self.actors for link in a.links)

    @property
    def dofs(self) -> tuple[Dof, ...]:
        """Joints of all actors, one after the other."""
        return tuple(d for a in self.actors for d in a.dofs)

    @property
    def floating(self) -> tuple[Actor, ...]:
        """Actors that move freely: those that have a root state of their own."""
        return tuple(a for a in self.actors if a.floating)


def clean(name: str) -> str:
    """A name as URDF files and USD stages take it: what is neither letter, digit nor underscore becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _distinct(kind: str, names: list[str]) -> None:
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"{kind} whose names differ only in signs that Isaac does not take: {', '.join(twice)}")


# ---------------------------------------------------------------- rotations (wxyz)


def turn(quat: Array, vec: Array) -> Array:
    """``vec`` [3] turned by ``quat``."""
    out = np.empty(3)
    mujoco.mju_rotVecQuat(out, np.asarray(vec, float), np.asarray(quat, float))
    return out


def times(a: Array, b: Array) -> Array:
    """The product of two quaternions."""
    out = np.empty(4)
    mujoco.mju_mulQuat(out, np.asarray(a, float), np.asarray(b, float))
    return out


def matrix(quat: Array) -> Array:
    """The rotation matrix [3, 3] of ``quat``."""
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.asarray(quat, float))
    return out.reshape(3, 3)


def roll_pitch_yaw(quat: Array) -> tuple[float, float, float]:
    """URDF's angles [rad]: turns about the fixed x, y and z axes, in this order."""
    m = matrix(quat)
    across = np.hypot(m[0, 0], m[1, 0])
    if across < 1e-9:  # pitch is a right angle: roll and yaw turn about one axis
        return float(np.arctan2(-m[1, 2], m[1, 1])), float(np.arctan2(-m[2, 0], across)), 0.0
    return tuple(float(x) for x in (np.arctan2(m[2, 1], m[2, 2]), np.arctan2(-m[2, 0], across),
                                    np.arctan2(m[1, 0], m[0, 0])))  # type: ignore[return-value]


# ---------------------------------------------------------------- from the model to actors


def plan_of(model: Model) -> Plan:
    """The plan of a compiled scene; what Isaac cannot express is a ValueError that names it."""
    mj = model.mj
    if model.scene.robot.kind == "quadrotor":
        raise ValueError(f"robot {model.scene.robot.name!r}: Isaac has no rotors; quadrotors run on backends "
                         "quadrotor, mujoco and mujoco_warp")
    _refuse(mj)
    children = [i for i in range(1, mj.nbody) if mj.body_parentid[i] == 0]
    actors = [_actor(mj, root) for root in children]
    fixed = _shapes(mj, (0,), {0: (np.zeros(3), np.array([1.0, 0, 0, 0]))})
    if fixed:
        link = Link(STATIC, STATIC, None, np.zeros(3), np.array([1.0, 0, 0, 0]), (), (), fixed, 1.0, np.zeros(3),
                    STILL[1], None)
        actors.append(Actor(STATIC, (link,), False, True, -1, ()))
    plan = Plan(model, tuple(actors), _floor(mj), {})
    _distinct("bodies", [link.name for link in plan.links])
    _distinct("joints", [d.name for d in plan.dofs])
    return Plan(model, plan.actors, plan.floor, gathers(plan, model))


def _refuse(mj: mujoco.MjModel) -> None:
    for i in range(mj.nu):
        if mj.actuator_dyntype[i] != mujoco.mjtDyn.mjDYN_NONE:
            raise ValueError(f"actuator {mj.actuator(i).name!r} has a state of its own (it integrates, as one "
                             "that takes speeds, or lags); Isaac's drives have none: take mujoco or mujoco_warp")
    for i in range(mj.neq):
        if not _alike(mj, i):
            raise ValueError(f"equality {mj.eq(i).name!r}: Isaac has no such constraint; only joints that move alike "
                             "and have one actuator are taken")
    if mj.nmocap:
        raise ValueError("mocap bodies have no counterpart in Isaac")


def _alike(mj: mujoco.MjModel, i: int) -> bool:
    """Whether the equality says q1 = q2 of two joints, and one actuator moves them."""
    return _equal(mj, i) and any(int(mj.eq_obj1id[i]) in _levers(mj, a) for a in range(mj.nu))


def _equal(mj: mujoco.MjModel, i: int) -> bool:
    """Whether the equality says q1 = q2 of two joints."""
    return mj.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT and int(mj.eq_obj2id[i]) >= 0 and np.allclose(
        mj.eq_data[i, :5], (0, 1, 0, 0, 0))


def _moving_alike(mj: mujoco.MjModel, joints: Iterable[int]) -> set[int]:
    """The joints, and all that equalities tie to them."""
    out, before = set(joints), 0
    while len(out) > before:
        before = len(out)
        for i in range(mj.neq):
            pair = {int(mj.eq_obj1id[i]), int(mj.eq_obj2id[i])}
            if _equal(mj, i) and out & pair:
                out |= pair
    return out


def _levers(mj: mujoco.MjModel, actuator: int) -> dict[int, float]:
    """Joint -> lever of the actuator on it; empty if the actuator is neither on a joint nor on a fixed tendon.

    Joints that move alike share the force evenly, whichever of them the model lets the actuator pull.
    """
    pulled = _pulled(mj, actuator)
    group = _moving_alike(mj, pulled)
    if group == set(pulled) and len(group) < 2:
        return pulled
    return dict.fromkeys(sorted(group), sum(pulled.values()) / len(group))


def _pulled(mj: mujoco.MjModel, actuator: int) -> dict[int, float]:
    """Joint -> lever, as the model has it."""
    joints = levers(mj, actuator)
    if len(joints) > 1 and _moving_alike(mj, [min(joints)]) != set(joints):
        raise ValueError(f"actuator {mj.actuator(actuator).name!r} pulls a tendon over joints that are not tied to "
                         "move alike; Isaac's drives are each on one joint")
    return joints


def _floor(mj: mujoco.MjModel) -> float | None:
    planes = [i for i in range(mj.ngeom) if mj.geom_type[i] == mujoco.mjtGeom.mjGEOM_PLANE]
    for i in planes:
        up = turn(mj.geom_quat[i], np.array([0, 0, 1.0]))
        if mj.geom_bodyid[i] or abs(mj.geom_pos[i, 2]) > 1e-9 or not np.allclose(up, (0, 0, 1)):
            raise ValueError(f"plane {mj.geom(i).name!r}: Isaac's ground is z = 0 of the world")
    return float(mj.geom_friction[planes[0], 0]) if planes else None


def _actor(mj: mujoco.MjModel, root: int) -> Actor:
    name = clean(mj.body(root).name)
    tree = _tree(mj, root)
    joints = [j for b in tree for j in _joints_of(mj, b)]
    free = [j for j in joints if mj.jnt_type[j] == FREE]
    rigid = len(joints) == len(free)  # one solid: links of their own would need fixed joints
    owner: dict[int, int] = {}
    for body in tree:
        loose = body == root or bool(_joints_of(mj, body)) or (not rigid and mj.body_mass[body] > 0)
        owner[body] = body if loose else owner[int(mj.body_parentid[body])]
    links: list[Link] = []
    frames: dict[int, tuple[Array, Array]] = {}  # of each body in its link: pos, quat
    for body in tree:
        frames[body] = _frame(mj, body, owner, frames)
    heads = [b for b in tree if owner[b] == b]
    if _joints_of(mj, root) and not free:  # the root turns about the world: its base is a link that stands still
        links.append(Link(f"{name}_base", name, None, np.zeros(3), np.array([1.0, 0, 0, 0]), (), (), (), 1.0,
                          np.zeros(3), STILL[1], None))
    links += [_link(mj, b, root, tuple(x for x in tree if owner[x] == b), owner, frames, links, name) for b in heads]
    gravity = _gravity(mj, name, tree if free else [b for b in tree if mj.body_weldid[b]])
    return Actor(name, tuple(links), bool(free), gravity, int(free[0]) if free else -1, _apart(mj, links))


def _tree(mj: mujoco.MjModel, root: int) -> list[int]:
    inside = {root}
    for i in range(root + 1, mj.nbody):  # parents come first
        if int(mj.body_parentid[i]) in inside:
            inside.add(i)
    return sorted(inside)


def _joints_of(mj: mujoco.MjModel, body: int) -> list[int]:
    first, count = int(mj.body_jntadr[body]), int(mj.body_jntnum[body])
    if count > 1:
        raise ValueError(f"body {mj.body(body).name!r} has {count} joints; Isaac takes one joint per link: give each a "
                         "body of its own")
    if count and mj.jnt_type[first] == BALL:
        raise ValueError(f"joint {mj.joint(first).name!r} is a ball joint; Isaac takes hinges and slides")
    return [first] * count


def _frame(mj: mujoco.MjModel, body: int, owner: Mapping[int, int], frames: Mapping[int, tuple[Array, Array]]
           ) -> tuple[Array, Array]:
    """The body's frame in its link's, whose origin is the joint's anchor."""
    if owner[body] == body:
        hinge = [j for j in _joints_of(mj, body) if mj.jnt_type[j] == HINGE]
        return -mj.jnt_pos[hinge[0]] if hinge else np.zeros(3), np.array([1.0, 0, 0, 0])
    pos, quat = frames[int(mj.body_parentid[body])]
    return pos + turn(quat, mj.body_pos[body]), times(quat, mj.body_quat[body])


def _link(
    mj: mujoco.MjModel, body: int, root: int, bodies: tuple[int, ...], owner: Mapping[int, int],
    frames: Mapping[int, tuple[Array, Array]], before: list[Link], actor: str,
) -> Link:  # fmt: skip
    joint = next(iter(_joints_of(mj, body)), None)
    pos, quat = mj.body_pos[body].copy(), mj.body_quat[body].copy()
    pos = pos + turn(quat, -frames[body][0])
    parent = before[0].name if body == root and before else None
    if body != root:
        above = int(mj.body_parentid[body])
        offset, lean = frames[above]
        pos, quat = offset + turn(lean, pos), times(lean, quat)
        parent = clean(mj.body(owner[above]).name)
    places = tuple(frames[b] for b in bodies)
    masses, centres, inertias = solid(bodies, places, nominal(mj), mj)
    mass, com, inertia = float(masses[0]), centres[0], inertias[0]
    if mass <= 0:
        if joint is not None:
            raise ValueError(f"body {mj.body(body).name!r} moves and has no mass")
        mass, inertia = STILL  # never felt, but importers want an inertia
    dof = _dof(mj, joint) if joint is not None and mj.jnt_type[joint] != FREE else None
    shapes = _shapes(mj, bodies, frames)
    return Link(clean(mj.body(body).name), actor, parent, pos, quat, bodies, places, shapes, mass, com, inertia, dof)


def solid(bodies: Iterable[int], places: Iterable[tuple[Array, Array]], fields: Fields, mj: mujoco.MjModel
          ) -> tuple[Array, Array, Array]:
    """Mass [K], centre of mass [K, 3] and inertia [K, 3, 3] about it, link axes, of bodies that are one solid.

    Args:
        places: frame of each body in the link.
        fields: body_mass, body_ipos and body_inertia of K worlds.
    """
    count = len(fields["body_mass"])
    parts = []
    for b, (pos, quat) in zip(bodies, places):
        axes = matrix(times(quat, mj.body_iquat[b]))
        inertia = np.einsum("ij,kj,lj->kil", axes, fields["body_inertia"][:, b], axes)
        parts.append((fields["body_mass"][:, b], pos + fields["body_ipos"][:, b] @ matrix(quat).T, inertia))
    mass = sum((m for m, _, _ in parts), np.zeros(count))
    moment = sum((m[:, None] * c for m, c, _ in parts), np.zeros((count, 3)))
    com = np.divide(moment, mass[:, None], out=np.zeros((count, 3)), where=mass[:, None] > 0)
    total = np.zeros((count, 3, 3))
    for m, c, inertia in parts:
        d = c - com
        steiner = (d * d).sum(1)[:, None, None] * np.eye(3) - d[:, :, None] * d[:, None, :]
        total += inertia + m[:, None, None] * steiner
    return mass, com, total


def solids(plan: Plan, fields: Fields) -> tuple[Array, Array, Array]:
    """Mass [K, L], centre of mass [K, L, 3] and inertia [K, L, 3, 3] of all links in K worlds."""
    count, links = len(fields["body_mass"]), plan.links
    mass, com, inertia = (np.zeros((count, len(links), *shape)) for shape in ((), (3,), (3, 3)))
    for i, link in enumerate(links):
        mass[:, i], com[:, i], inertia[:, i] = solid(link.bodies, link.frames, fields, plan.model.mj)
        still = mass[:, i] <= 0
        mass[still, i], inertia[still, i] = STILL
    return mass, com, inertia


def _gravity(mj: mujoco.MjModel, name: str, bodies: list[int]) -> bool:
    shares = {float(mj.body_gravcomp[b]) for b in bodies if mj.body_mass[b] > 0} or {0.0}
    if shares not in ({0.0}, {1.0}):
        raise ValueError(f"{name!r}: gravity compensation {sorted(shares)}; Isaac turns gravity off for a whole actor "
                         "or leaves it on: 0 for all its bodies or 1 for all")
    return shares == {0.0}


def _dof(mj: mujoco.MjModel, joint: int) -> Dof:
    drives = [(a, lever) for a in range(mj.nu) for j, lever in _levers(mj, a).items() if j == joint]
    name = clean(mj.joint(joint).name)
    if len(drives) > 1:
        raise ValueError(f"joint {name!r} has {len(drives)} actuators; Isaac has one drive per joint")
    limited = bool(mj.jnt_limited[joint])
    ref = float(mj.qpos0[mj.jnt_qposadr[joint]])
    lower, upper = (mj.jnt_range[joint] - ref) if limited else (-1e6, 1e6)
    kind = "prismatic" if mj.jnt_type[joint] == SLIDE else "revolute" if limited else "continuous"
    actuator, lever = drives[0] if drives else (-1, 0.0)
    travel = sum(_pulled(mj, actuator).values()) if drives else 0.0
    servo = actuator < 0 or mj.actuator_biasprm[actuator, 1] != 0
    if actuator >= 0:
        _check_actuator(mj, actuator, joint)
    return Dof(name, joint, kind, mj.jnt_axis[joint].copy(), float(lower), float(upper), ref, actuator, lever, travel,
               bool(servo))


def _check_actuator(mj: mujoco.MjModel, actuator: int, joint: int) -> None:
    name = mj.actuator(actuator).name
    fixed = mj.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
    plain = mujoco.mjtBias(mj.actuator_biastype[actuator]) in (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE)
    if not (fixed and plain) or mj.actuator_biasprm[actuator, 0]:
        raise ValueError(f"actuator {name!r} is neither a motor nor a position or velocity servo")
    low, high = mj.actuator_forcerange[actuator]
    if mj.actuator_forcelimited[actuator] and not np.isclose(-low, high):
        raise ValueError(f"actuator {name!r}: force range [{low:g}, {high:g}]; Isaac's drives push and pull alike")
    if mj.jnt_stiffness[joint]:
        raise ValueError(f"joint {mj.joint(joint).name!r} has a spring and an actuator; Isaac has one drive per joint")


def _shapes(mj: mujoco.MjModel, bodies: Iterable[int], frames: Mapping[int, tuple[Array, Array]]) -> tuple[Shape, ...]:
    out: list[Shape] = []
    for b in bodies:
        for g in range(mj.body_geomadr[b], mj.body_geomadr[b] + mj.body_geomnum[b]):
            pos, quat = frames[b]
            out += _solids(mj, g, pos + turn(quat, mj.geom_pos[g]), times(quat, mj.geom_quat[g]))
    return tuple(out)


def _solids(mj: mujoco.MjModel, g: int, pos: Array, quat: Array) -> list[Shape]:
    types = mujoco.mjtGeom
    kind, size = types(mj.geom_type[g]), mj.geom_size[g]
    touches = bool(mj.geom_contype[g] | mj.geom_conaffinity[g])
    if kind == types.mjGEOM_PLANE:
        return []
    if kind == types.mjGEOM_BOX:
        return [Shape("box", tuple(2 * size), pos, quat, g, touches)]
    if kind == types.mjGEOM_SPHERE:
        return [Shape("sphere", (size[0],), pos, quat, g, touches)]
    if kind in (types.mjGEOM_CYLINDER, types.mjGEOM_CAPSULE):
        rod = Shape("cylinder", (size[0], 2 * size[1]), pos, quat, g, touches)
        ends = [Shape("sphere", (size[0],), pos + turn(quat, np.array([0, 0, z])), quat, g, touches)
                for z in (-size[1], size[1])]
        return [rod, *(ends if kind == types.mjGEOM_CAPSULE else [])]
    if kind == types.mjGEOM_MESH:
        return [Shape("mesh", (), pos, quat, g, touches)]
    raise ValueError(f"geom {mj.geom(g).name or g!r} is a {kind.name.removeprefix('mjGEOM_').lower()}; Isaac "
                     "takes boxes, spheres, capsules, cylinders and meshes")


def _apart(mj: mujoco.MjModel, links: list[Link]) -> tuple[tuple[str, str], ...]:
    """Pairs of links that MuJoCo keeps from touching and PhysX, which spares parents and children only, would not."""
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in mj.exclude_signature}
    excluded |= {(b, a) for a, b in excluded}
    out = []
    for one, two in combinations([x for x in links if any(s.touches for s in x.shapes)], 2):
        if two.parent == one.name or one.parent == two.name:
            continue
        if not any(_meets(mj, s.geom, t.geom, excluded) for s in one.shapes for t in two.shapes):
            out.append((one.name, two.name))
    return tuple(out)


def _meets(mj: mujoco.MjModel, one: int, two: int, excluded: set[tuple[int, int]]) -> bool:
    a, b = int(mj.geom_bodyid[one]), int(mj.geom_bodyid[two])
    wa, wb = int(mj.body_weldid[a]), int(mj.body_weldid[b])
    up_a, up_b = (int(mj.body_weldid[mj.body_parentid[w]]) for w in (wa, wb))
    family = wa == wb or (wa and wb and (up_a == wb or up_b == wa))
    masks = (mj.geom_contype[one] & mj.geom_conaffinity[two]) | (mj.geom_contype[two] & mj.geom_conaffinity[one])
    return bool(masks) and not family and (a, b) not in excluded


def filters(actor: Actor) -> list[int]:
    """Isaac Gym's collision filter of each link: shapes that share a bit do not touch."""
    if len(actor.apart) > FILTER_BITS:
        raise ValueError(f"{actor.name!r}: {len(actor.apart)} pairs of links are kept from touching; Isaac Gym's "
                         f"filter has room for {FILTER_BITS}")
    bits = {link.name: 0 for link in actor.links}
    for i, pair in enumerate(actor.apart):
        for name in pair:
            bits[name] |= 1 << i
    return [bits[link.name] for link in actor.links]


# ---------------------------------------------------------------- drives

DRIVE = ("stiffness", "damping", "effort", "velocity", "armature", "friction")


def drives(plan: Plan, fields: Fields) -> dict[str, Array]:
    """Drive values [K, D] of K worlds by :data:`DRIVE`, from per-world model fields [K, ...] (mjModel's names).

    Damping of the joint itself is added to the servo's. MuJoCo bounds only the servo's force, PhysX the sum: so the
    speed at which the joint's own damping takes all the force is given as the joint's greatest.
    """
    mj, count = plan.model.mj, len(fields["dof_damping"])
    out = {name: np.zeros((count, len(plan.dofs))) for name in DRIVE}
    for i, dof in enumerate(plan.dofs):
        v, a = int(mj.jnt_dofadr[dof.joint]), dof.actuator
        passive = fields["dof_damping"][:, v]
        bias = fields["actuator_biasprm"][:, a] if a >= 0 else np.zeros((count, 3))
        lever = dof.lever * dof.travel
        out["stiffness"][:, i] = -lever * bias[:, 1] if a >= 0 else mj.jnt_stiffness[dof.joint]
        out["damping"][:, i] = passive - lever * bias[:, 2]
        out["effort"][:, i] = effort = _effort(mj, dof, fields)
        with np.errstate(divide="ignore"):
            bound = np.where(passive > 0, effort / passive, FASTEST) if a >= 0 else FASTEST
        out["velocity"][:, i] = np.minimum(bound, FASTEST)
        out["armature"][:, i] = fields["dof_armature"][:, v]
        out["friction"][:, i] = fields["dof_frictionloss"][:, v]
    return out


def _effort(mj: mujoco.MjModel, dof: Dof, fields: Fields) -> Array:
    out = np.full(len(fields["dof_damping"]), UNLIMITED)
    if dof.actuator >= 0 and mj.actuator_forcelimited[dof.actuator]:
        out = abs(dof.lever) * fields["actuator_forcerange"][:, dof.actuator, 1]
    if dof.actuator >= 0 and mj.jnt_actfrclimited[dof.joint]:
        out = np.minimum(out, mj.jnt_actfrcrange[dof.joint, 1])
    return np.asarray(out)


def targets(plan: Plan, fields: Fields, ctrl: Array) -> tuple[Array, Array]:
    """Position targets and feed-forward efforts [K, D] of controls ``ctrl`` [K, nu]."""
    mj = plan.model.mj
    limited = mj.actuator_ctrllimited.astype(bool)
    low, high = mj.actuator_ctrlrange.T
    ctrl = np.where(limited, np.clip(ctrl, low, high), ctrl)
    position, effort = np.zeros((len(ctrl), len(plan.dofs))), np.zeros((len(ctrl), len(plan.dofs)))
    bound = fields["actuator_forcerange"]
    for i, dof in enumerate(plan.dofs):
        a = dof.actuator
        if a < 0:
            position[:, i] = mj.qpos_spring[mj.jnt_qposadr[dof.joint]] - dof.ref
            continue
        force = fields["actuator_gainprm"][:, a, 0] * ctrl[:, a]
        if dof.servo:
            stiff = -fields["actuator_biasprm"][:, a, 1] * dof.travel
            position[:, i] = np.divide(force, stiff, out=np.zeros(len(ctrl)), where=stiff != 0) - dof.ref
        else:
            if mj.actuator_forcelimited[a]:
                force = np.clip(force, bound[:, a, 0], bound[:, a, 1])
            effort[:, i] = dof.lever * force
    return position, effort


# ---------------------------------------------------------------- signals


def gathers(plan: Plan, model: Model) -> dict[str, Gather]:
    """Where each signal of the scene comes from; one that Isaac does not give is a ValueError."""
    return {name: _gather(plan, model, name, source) for name, source in model.scene.sources.items()}


def _gather(plan: Plan, model: Model, name: str, source: Source) -> Gather:
    shape, what = model.scene.signals[name].shape, source.what
    if what == "sensor":
        raise ValueError(f"signal {name!r} reads the model's sensors {', '.join(source.names)}; Isaac has none of them")
    if what.startswith("joint_"):
        known = [model.mj.joint(d.joint).name for d in plan.dofs]
        rows = tuple(_index(known, "joint", n) for n in source.names)
        return Gather(what, rows, shape, np.array([plan.dofs[i].ref for i in rows]))
    if what == "contact_force":
        return Gather(what, tuple(_whole(plan, model.mj, n) for n in source.names), shape)
    row, pos, quat = place(plan, model.mj, source.names[0])
    return Gather(what, (row,), shape, pos, quat)


def _index(known: list[str], kind: str, name: str) -> int:
    if name not in known:
        raise UnknownName(f"the model has no {kind} {name!r}; it has: {', '.join(known)}")
    return known.index(name)


def _whole(plan: Plan, mj: mujoco.MjModel, name: str) -> int:
    """The link of the body ``name``."""
    known = [mj.body(link.bodies[0]).name if link.bodies else "" for link in plan.links]
    if name not in known:
        raise UnknownName(f"Isaac has no link {name!r} whose contact force could be read; links: "
                          f"{', '.join(filter(None, known))}")
    return known.index(name)


def place(plan: Plan, mj: mujoco.MjModel, name: str) -> tuple[int, Array, Array]:
    """Link row (-1: the world) and frame in it of the free body, site or body ``name``."""
    body = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_BODY, name)
    site = mujoco.mj_name2id(mj, mujoco.mjtObj.mjOBJ_SITE, name)
    pos, quat = np.zeros(3), np.array([1.0, 0, 0, 0])
    free = body >= 0 and mj.body_jntnum[body] and mj.jnt_type[mj.body_jntadr[body]] == FREE
    if site >= 0 and not free:
        body, pos, quat = int(mj.site_bodyid[site]), mj.site_pos[site].copy(), mj.site_quat[site].copy()
    if body < 0:
        raise UnknownName(f"the model has no site or body {name!r}")
    while body:
        for row, link in enumerate(plan.links):
            if link.bodies and link.bodies[0] == body:
                hinge = link.dof is not None and mj.jnt_type[link.dof.joint] == HINGE
                shift = mj.jnt_pos[link.dof.joint] if hinge else np.zeros(3)  # type: ignore[union-attr]
                return row, pos - shift, quat
        pos, quat = mj.body_pos[body] + turn(mj.body_quat[body], pos), times(mj.body_quat[body], quat)
        body = int(mj.body_parentid[body])
    return -1, pos, quat


# ---------------------------------------------------------------- files


def write(plan: Plan, folder: Path) -> dict[str, Path]:
    """Write the URDF of each actor (and its meshes) to ``folder``; actor -> file."""
    files = {}
    for actor in plan.actors:
        files[actor.name] = folder / f"{actor.name}.urdf"
        files[actor.name].write_text(urdf(plan, actor, folder))
    return files


def urdf(plan: Plan, actor: Actor, folder: Path) -> str:
    """The URDF text of an actor; meshes are written to ``folder``."""
    root = xml.Element("robot", name=actor.name)
    values = drives(plan, nominal(plan.model.mj))
    for link in actor.links:
        _write_link(plan.model.mj, root, link, folder)
    for link in actor.links:
        if link.parent is not None:
            row = plan.dofs.index(link.dof) if link.dof is not None else -1
            _write_joint(root, link, {k: float(v[0, row]) for k, v in values.items()} if row >= 0 else {})
    xml.indent(root)
    return xml.tostring(root, encoding="unicode")


def nominal(mj: mujoco.MjModel) -> dict[str, Array]:
    """The model's own fields as those of one world [1, ...]."""
    names = ("dof_damping", "dof_armature", "dof_frictionloss", "actuator_gainprm", "actuator_biasprm",
             "actuator_forcerange", "actuator_delay", "body_mass", "body_inertia", "body_ipos", "geom_friction")
    return {name: np.array(getattr(mj, name), dtype=float)[None] for name in names}


def _numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(x)) for x in values)


def _origin(parent: xml.Element, pos: Array, quat: Array) -> None:
    xml.SubElement(parent, "origin", xyz=_numbers(pos), rpy=_numbers(roll_pitch_yaw(quat)))


def _write_link(mj: mujoco.MjModel, root: xml.Element, link: Link, folder: Path) -> None:
    here = xml.SubElement(root, "link", name=link.name)
    inertial = xml.SubElement(here, "inertial")
    _origin(inertial, link.com, np.array([1.0, 0, 0, 0]))
    xml.SubElement(inertial, "mass", value=repr(link.mass))
    i = link.inertia
    xml.SubElement(inertial, "inertia", ixx=repr(float(i[0, 0])), ixy=repr(float(i[0, 1])), ixz=repr(float(i[0, 2])),
                   iyy=repr(float(i[1, 1])), iyz=repr(float(i[1, 2])), izz=repr(float(i[2, 2])))
    for shape in link.shapes:
        for tag in ("visual", "collision") if shape.touches else ("visual",):
            part = xml.SubElement(here, tag)
            _origin(part, shape.pos, shape.quat)
            _write_shape(mj, xml.SubElement(part, "geometry"), shape, folder)


def _write_shape(mj: mujoco.MjModel, geometry: xml.Element, shape: Shape, folder: Path) -> None:
    if shape.kind == "box":
        xml.SubElement(geometry, "box", size=_numbers(shape.size))
    elif shape.kind == "sphere":
        xml.SubElement(geometry, "sphere", radius=repr(float(shape.size[0])))
    elif shape.kind == "cylinder":
        xml.SubElement(geometry, "cylinder", radius=repr(float(shape.size[0])), length=repr(float(shape.size[1])))
    else:
        name = f"mesh_{int(mj.geom_dataid[shape.geom])}.stl"
        write_stl(mj, int(mj.geom_dataid[shape.geom]), folder / name)
        xml.SubElement(geometry, "mesh", filename=name)


def write_stl(mj: mujoco.MjModel, mesh: int, path: Path) -> None:
    """A mesh of the model as binary STL, in the model's (centred) frame."""
    if path.exists():
        return
    first, count = mj.mesh_vertadr[mesh], mj.mesh_vertnum[mesh]
    corners = mj.mesh_vert[first : first + count]
    faces = mj.mesh_face[mj.mesh_faceadr[mesh] : mj.mesh_faceadr[mesh] + mj.mesh_facenum[mesh]]
    records = np.zeros(len(faces), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("end", "<u2")])
    records["corners"] = corners[faces]
    path.write_bytes(b"\0" * 80 + struct.pack("<I", len(faces)) + records.tobytes())


def _write_joint(root: xml.Element, link: Link, drive: Mapping[str, float]) -> None:
    dof = link.dof
    joint = xml.SubElement(root, "joint", name=dof.name if dof else f"{link.name}_fixed",
                           type=dof.kind if dof else "fixed")
    xml.SubElement(joint, "parent", link=str(link.parent))
    xml.SubElement(joint, "child", link=link.name)
    _origin(joint, link.pos, link.quat)
    if dof is None:
        return
    xml.SubElement(joint, "axis", xyz=_numbers(dof.axis))
    limits = {} if dof.kind == "continuous" else {"lower": repr(dof.lower), "upper": repr(dof.upper)}
    xml.SubElement(joint, "limit", effort=repr(drive["effort"]), velocity=repr(drive["velocity"]), **limits)
    xml.SubElement(joint, "dynamics", damping=repr(drive["damping"]), friction="0.0")
