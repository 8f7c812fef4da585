"""From MuJoCo's compiled model to actors: trees of links with one joint and one drive each.

What the simulators cannot express is a ValueError: ball joints, two joints of one body, tendons and equalities other
than those of joints that move alike (a gripper's fingers), actuators with dynamics, height fields, ellipsoids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mujoco
import numpy as np

from temporeal.sim.physics.isaac.gathers import gathers
from temporeal.sim.physics.isaac.plan import BALL, FREE, HINGE, SLIDE, Actor, Dof, Link, Plan, clean
from temporeal.sim.physics.isaac.rotations import times, turn
from temporeal.sim.physics.isaac.shapes import STILL, kept_apart, nominal, shapes_of, solid
from temporeal.sim.physics.mujoco.model import Array, Model
from temporeal.sim.physics.mujoco.robot_files import levers

STATIC = "world_static"  # the actor that holds the shapes of the world body


def _distinct(kind: str, names: list[str]) -> None:
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"{kind} whose names differ only in signs that Isaac does not take: {', '.join(twice)}")


def plan_of(model: Model) -> Plan:
    """The plan of a compiled scene; what Isaac cannot express is a ValueError that names it."""
    mj = model.mj
    if model.scene.robot.kind == "quadrotor":
        raise ValueError(f"robot {model.scene.robot.name!r}: Isaac has no rotors; quadrotors run on backends "
                         "quadrotor, mujoco and mujoco_warp")
    _refuse(mj)
    children = [i for i in range(1, mj.nbody) if mj.body_parentid[i] == 0]
    actors = [_actor(mj, root) for root in children]
    fixed = shapes_of(mj, (0,), {0: (np.zeros(3), np.array([1.0, 0, 0, 0]))})
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
    """Whether the equality is q1 = q2 of two joints, and one actuator moves them."""
    return _equal(mj, i) and any(int(mj.eq_obj1id[i]) in _levers(mj, a) for a in range(mj.nu))


def _equal(mj: mujoco.MjModel, i: int) -> bool:
    """Whether the equality is q1 = q2 of two joints."""
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
    return Actor(name, tuple(links), bool(free), gravity, int(free[0]) if free else -1, kept_apart(mj, links))


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
    shapes = shapes_of(mj, bodies, frames)
    return Link(clean(mj.body(body).name), actor, parent, pos, quat, bodies, places, shapes, mass, com, inertia, dof)


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
