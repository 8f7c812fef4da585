"""Shapes and masses of links: which solids they are, what keeps them apart, what they weigh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import mujoco
import numpy as np

from temporeal.sim.physics.isaac.plan import Actor, Link, Plan, Shape
from temporeal.sim.physics.isaac.rotations import matrix, times, turn
from temporeal.sim.physics.mujoco.model import Array, Fields

FILTER_BITS = 31  # pairs of links of one actor that can be kept from touching: bits of Isaac Gym's int32 filter
STILL = (1.0, 1e-2 * np.eye(3))  # kg, kg m^2: of a massless body that cannot move


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


def shapes_of(
    mj: mujoco.MjModel, bodies: Iterable[int], frames: Mapping[int, tuple[Array, Array]]
) -> tuple[Shape, ...]:
    """Shapes of the bodies, by their frames in the link."""
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


def kept_apart(mj: mujoco.MjModel, links: list[Link]) -> tuple[tuple[str, str], ...]:
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


def nominal(mj: mujoco.MjModel) -> dict[str, Array]:
    """The model's own fields as those of one world [1, ...]."""
    names = ("dof_damping", "dof_armature", "dof_frictionloss", "actuator_gainprm", "actuator_biasprm",
             "actuator_forcerange", "actuator_delay", "body_mass", "body_inertia", "body_ipos", "geom_friction")
    return {name: np.array(getattr(mj, name), dtype=float)[None] for name in names}
