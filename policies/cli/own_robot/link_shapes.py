"""Capsules around a robot's links, for the guard, which has no simulator: from what MuJoCo makes of the model's shapes.

Each capsule holds all points of some of a link's triangles, so that all of them hold the link. Where that is too much
(capsules meet at poses at which the shapes are apart), the pair is not watched, and ``robot new`` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from temporeal.policies.cli.own_robot.dynamics import Physics, drawn_poses, inner_range
from temporeal.robots.frames import matrix
from temporeal.robots.motion.link_shapes import around
from temporeal.robots.ros_interface.joints import HULLS_APART_M
from temporeal.robots.spec import LinkShapes

Points = NDArray[np.float64]
PARTS, WORTH = 4, 0.75  # capsules of one shape at most; one more must save a quarter of the volume. Chosen
POSES, OFTEN, NEAR = 300, 0.005, 0.7  # drawn; share of false alarms from which on a pair is not watched; rad. Chosen
BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
ENDLESS = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
ROUND = 1e-4  # m: of numbers in the file


def link_shapes(physics: Physics, path: Path) -> LinkShapes | None:
    """The capsules of the robot in the model file ``path``; None where a body that touches has no name."""
    by_link: dict[str, list[tuple[float, ...]]] = {}
    for geom in range(physics.model.ngeom):
        if not (physics.model.geom_contype[geom] or physics.model.geom_conaffinity[geom]):
            continue
        name = physics.body(int(physics.model.geom_bodyid[geom]))
        if mujoco.mjtGeom(physics.model.geom_type[geom]) in ENDLESS:
            continue
        if not name:
            return None
        by_link.setdefault(name, []).extend(shape(physics.model, geom))
    found = LinkShapes(tuple((name, tuple(rows)) for name, rows in by_link.items()))
    return LinkShapes(found.capsules, false_alarms(physics, path, found)) if by_link else None


def entry(found: LinkShapes) -> dict[str, Any]:
    """As ``spec.yaml`` has it."""
    out: dict[str, Any] = {"links": {name: [list(row) for row in rows] for name, rows in found.capsules}}
    return {**out, "loose": [list(pair) for pair in found.loose]} if found.loose else out


# ---------------------------------------------------------------- shapes


def shape(model: mujoco.MjModel, geom: int) -> list[tuple[float, ...]]:
    """The capsules around a contact shape, in its body's frame."""
    kind, size = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    place, turn = model.geom_pos[geom], np.asarray(matrix(model.geom_quat[geom]))
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        return fitted(hull(model, int(model.geom_dataid[geom])) @ turn.T + place)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return [row(*capsule(BOX * size @ turn.T + place))]
    along, radius = np.zeros(3), float(size[0])
    if kind in (mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER):
        along[2] = size[1]
    elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        longest = int(np.argmax(size))
        along[longest], radius = size[longest], float(max(np.delete(size, longest)))
    return [row(place - turn @ along, place + turn @ along, radius)]


def hull(model: mujoco.MjModel, mesh: int) -> Points:
    """The triangles [F, 3, 3] of a mesh's convex hull, which is what touches in MuJoCo; of the mesh where it has none.

    ``mesh_graph``: counts of vertices and faces, then for each vertex two numbers, for each vertex and three times each
    face one, and at last the vertices of the faces (MuJoCo's reference, mjModel).
    """
    first, begin = int(model.mesh_vertadr[mesh]), int(model.mesh_graphadr[mesh])
    vertices = model.mesh_vert[first:first + int(model.mesh_vertnum[mesh])].astype(np.float64)
    if begin < 0:
        at = int(model.mesh_faceadr[mesh])
        return np.asarray(vertices[model.mesh_face[at:at + int(model.mesh_facenum[mesh])]])
    count, faces = (int(n) for n in model.mesh_graph[begin:begin + 2])
    at = begin + 2 + 3 * count + 3 * faces
    return np.asarray(vertices[model.mesh_graph[at:at + 3 * faces].reshape(-1, 3)])


def row(a: Points, b: Points, radius: float) -> tuple[float, ...]:
    """A capsule's numbers, its radius with room for their rounding."""
    return (*(round(float(x), 4) + 0.0 for x in (*a, *b)), round(radius + ROUND, 4))


def fitted(triangles: Points) -> list[tuple[float, ...]]:
    """Capsules that hold all ``triangles`` [F, 3, 3], each of them in one."""
    points = triangles.reshape(-1, 3)
    at = triangles.mean(axis=1) @ principal(points)[-1]
    best = [capsule(points)]
    least = sum(map(volume, best))
    for parts in range(2, PARTS + 1):
        number = np.minimum((parts * (at - at.min()) / max(float(np.ptp(at)), 1e-9)).astype(int), parts - 1)
        cut = [capsule(triangles[number == i].reshape(-1, 3)) for i in range(parts) if (number == i).any()]
        if (size := sum(map(volume, cut))) < WORTH * least:
            best, least = cut, size
    return [row(*each) for each in best]


def volume(found: tuple[Points, Points, float]) -> float:
    """Of a capsule, m^3."""
    a, b, r = found
    return float(np.pi * r * r * (np.linalg.norm(b - a) + 4 / 3 * r))


def capsule(points: Points) -> tuple[Points, Points, float]:
    """A small capsule that holds ``points`` [N, 3]: along one of their principal axes or of the frame's."""
    points = np.unique(points, axis=0)
    axes = np.vstack([principal(points), np.eye(3)])
    return min((along(points, axis) for axis in axes), key=volume)


def principal(points: Points) -> Points:
    """The principal axes [3, 3] of ``points`` [N, 3], the longest one last."""
    around_mean = points - points.mean(axis=0)
    return np.asarray(np.linalg.eigh(around_mean.T @ around_mean)[1].T)


def along(points: Points, axis: Points) -> tuple[Points, Points, float]:
    """The capsule along ``axis`` [3] that holds ``points``: its line runs through the middle of their shadow (Badoiu
    and Clarkson 2003), its ends reach as far as the points between line and surface need."""
    t = points @ axis
    shadow = points - t[:, None] * axis
    middle = shadow.mean(axis=0)
    for i in range(1, 100):
        middle = middle + (shadow[np.argmax(((shadow - middle) ** 2).sum(axis=1))] - middle) / (i + 1)
    aside = np.linalg.norm(shadow - middle, axis=1)
    radius = float(aside.max())
    room = np.sqrt(np.maximum(radius**2 - aside**2, 0.0))
    low, high = float((t + room).min()), float((t - room).max())
    if low > high:  # a ball holds them
        low = high = (low + high) / 2
    return middle + low * axis, middle + high * axis, radius


# ---------------------------------------------------------------- pairs


def false_alarms(physics: Physics, path: Path, found: LinkShapes) -> tuple[tuple[str, str], ...]:
    """Pairs of links whose capsules often meet where their shapes, in MuJoCo, are apart."""
    robot, home = physics.robot, home_of(physics)
    capsules = around(path, found, robot.changes.exclude, physics.names, home, HULLS_APART_M)
    names = [link.name for link in capsules.links]
    pairs = [tuple(sorted((names[capsules.of[i]], names[capsules.of[j]])))
             for i, j in zip(capsules.first, capsules.second)]
    false: Counter[tuple[str, ...]] = Counter()
    for pose in some_poses(physics, np.array(home)):
        near = set(touching(physics, pose))
        met = {pair for pair, room in zip(pairs, capsules.clearances(pose)) if room < HULLS_APART_M}
        false.update(met - near)
    return tuple((a, b) for (a, b), count in sorted(false.items()) if count > OFTEN * POSES)


def some_poses(physics: Physics, home: Points) -> Points:
    """Poses [:data:`POSES`, J]: half anywhere, half near home, where most of the work is."""
    rng = np.random.default_rng(0)
    low, high = inner_range(physics, np.pi)
    near = np.clip(home + rng.uniform(-NEAR, NEAR, (POSES // 2, len(home))), low, high)
    return np.vstack([drawn_poses(physics, rng, POSES // 2), near])


def home_of(physics: Physics) -> tuple[float, ...]:
    """Positions of the joints at home."""
    physics.place()
    return tuple(float(q) for q in physics.data.qpos[physics.at])


def touching(physics: Physics, pose: Points) -> Iterator[tuple[str, ...]]:
    """Pairs of bodies that are nearer than the margin at ``pose``."""
    before = physics.model.geom_margin.copy()
    physics.model.geom_margin[:] = HULLS_APART_M
    try:
        physics.place(pose)
        for contact in (each for each in physics.data.contact if each.dist < HULLS_APART_M):
            yield tuple(sorted(physics.body(int(physics.model.geom_bodyid[geom])) for geom in contact.geom))
    finally:
        physics.model.geom_margin[:] = before
