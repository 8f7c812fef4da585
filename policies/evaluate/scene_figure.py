"""A task's scene as bodies that move: meshes of its geoms, where they are in a sample, and what is worth following.

    stage = stage_of(task)
    stage.figure.parts                                    # meshes, each in the frame of its body
    pos, quat = stage.figure.poses(qpos)                  # [K, B, 3] m, [K, B, 4] wxyz, world frame
    stage.figure.qpos({"joint_pos": ..., "cube_pos_w": ...})      # from recorded signals, [K, ...] each

What is seen is what cameras see: geoms of MuJoCo's groups 0 to 2. Planes are no meshes: they are floors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, pi, sin
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.sim.physics.mujoco.model import Model, body_of, free_joint
from temporeal.sim.physics.mujoco.resets import reset_rows
from temporeal.sim.rendering.backend_pictures import drawn
from temporeal.sim.rendering.viewpoints import GROUPS
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.task import Task

Array = np.ndarray
Polygon = tuple[int, ...]
G = mujoco.mjtGeom
GREY = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour of a geom that was given none: the material's counts, if there is one


@dataclass(frozen=True)
class Mesh:
    """A closed surface of flat polygons, corners counter-clockwise seen from outside. ``vertices`` [V, 3] m."""

    vertices: Array
    faces: tuple[Polygon, ...]

    def triangles(self) -> Array:
        """The polygons cut into triangles, int [F, 3]."""
        return np.array([(f[0], f[i], f[i + 1]) for f in self.faces for i in range(1, len(f) - 1)], dtype=np.int64)

    def moved(self, pos: Array, quat: Array) -> Mesh:
        """As seen in the frame in which its own has this pose."""
        return Mesh(self.vertices @ rotation(quat).T + pos, self.faces)


@dataclass(frozen=True)
class Part:
    """A geom: ``mesh`` in the frame of moving body ``body`` (an index of :attr:`Figure.bodies`), -1: the world's."""

    name: str
    body: int
    mesh: Mesh
    rgba: tuple[float, float, float, float]


class Figure:
    """The geoms of ``model`` by the bodies that they move with.

    Args:
        corners: of a circle.
        most: triangles of a mesh; one with more is drawn as its hull. None: as it is.

    Attributes:
        bodies: ids of the bodies that move, each with all that is fixed to it.
        floors: heights [m] of horizontal planes that do not move.
    """

    def __init__(self, model: Model, *, corners: int = 24, most: int | None = None) -> None:
        self.model, self.data = model, mujoco.MjData(model.mj)
        mj = model.mj
        self.bodies = [int(b) for b in np.unique(mj.body_weldid) if b != 0]
        self.data.qpos[:] = model.home_qpos
        mujoco.mj_kinematics(mj, self.data)
        seen = [i for i in range(mj.ngeom) if mj.geom_group[i] in GROUPS and color(mj, i)[3] > 0]
        self.floors = tuple(float(self.data.geom_xpos[i][2]) for i in seen if is_floor(mj, self.data, i))
        cell = 0.2 * float(mj.stat.extent)
        self.parts = tuple(self._part(i, mesh) for i in seen
                           if (mesh := mesh_of(mj, i, corners, cell, most)) is not None)

    def _part(self, geom: int, mesh: Mesh) -> Part:
        mj, root = self.model.mj, int(self.model.mj.body_weldid[self.model.mj.geom_bodyid[geom]])
        mat, at = self.data.xmat[root].reshape(3, 3), self.data.xpos[root]
        inside = mat.T @ self.data.geom_xmat[geom].reshape(3, 3)
        vertices = mesh.vertices @ inside.T + mat.T @ (self.data.geom_xpos[geom] - at)
        name = mj.geom(geom).name or f"{mj.body(mj.geom_bodyid[geom]).name or 'body'}.{geom}"
        index = self.bodies.index(root) if root else -1
        return Part(name, index, Mesh(vertices, mesh.faces), color(mj, geom))

    def poses(self, qpos: Array) -> tuple[Array, Array]:
        """Positions [K, B, 3] m and attitudes [K, B, 4] wxyz of :attr:`bodies`, world frame, for qpos [K, nq]."""
        out = np.empty((len(qpos), len(self.bodies), 7))
        for row, values in zip(out, qpos):
            self.data.qpos[:] = values
            mujoco.mj_kinematics(self.model.mj, self.data)
            row[:, :3], row[:, 3:] = self.data.xpos[self.bodies], self.data.xquat[self.bodies]
        return out[..., :3], out[..., 3:]

    def qpos(self, signals: Mapping[str, Array]) -> Array:
        """qpos [K, nq] of samples of signals [K, ...]: home if no signal gives it, the sample before for one that is
        not finite."""
        robot = self.model.scene.robot
        if robot.kind == "quadrotor":
            pose = {n: np.asarray(signals[n], np.float64) for n in ("base_pos_w", "base_quat_w")}
            return sound(np.concatenate(list(pose.values()), -1))
        given = {n: sound(np.asarray(signals[n], np.float64)) for n in self.model.writes
                 if n in signals and self.model.writes[n].field == "qpos"}
        count = len(next(iter(signals.values())))
        for name, value in given.items():
            if self.model.scene.signals[name].unit == "wxyz":
                value[np.linalg.norm(value, axis=-1) < 1e-3] = (1.0, 0.0, 0.0, 0.0)
        return reset_rows(self.model, given, count)[0]

    def outline(self, qpos: Array) -> Array:
        """Corners [M, 3] m of what is seen of the worlds ``qpos`` [K, nq], floors left out; at least one point."""
        pos, quat = self.poses(qpos)
        found = [part.mesh.vertices for part in self.parts if part.body < 0]
        found += [part.mesh.moved(pos[k, part.body], quat[k, part.body]).vertices
                  for part in self.parts if part.body >= 0 for k in range(len(qpos))]
        return np.concatenate(found) if found else np.zeros((1, 3))


def sound(values: Array) -> Array:
    """A copy of ``values`` [K, ...] where a row that is not finite is the one before it; 0 where there is none."""
    out = np.array(values, dtype=np.float64)
    good = np.isfinite(out.reshape(len(out), -1)).all(-1)
    last = np.maximum.accumulate(np.where(good, np.arange(len(out)), -1))
    out = out[np.maximum(last, 0)]
    out[last < 0] = 0.0
    return out


# ---------------------------------------------------------------- meshes of geoms


def color(mj: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """Red, green, blue and opacity, each 0 to 1."""
    own, material = tuple(float(x) for x in mj.geom_rgba[geom]), int(mj.geom_matid[geom])
    red, green, blue, alpha = (float(x) for x in mj.mat_rgba[material]) if own == GREY and material >= 0 else own
    return red, green, blue, alpha


def is_floor(mj: mujoco.MjModel, data: mujoco.MjData, geom: int) -> bool:
    """Whether it is a horizontal plane that does not move."""
    fixed = mj.body_weldid[mj.geom_bodyid[geom]] == 0
    return bool(fixed and mj.geom_type[geom] == G.mjGEOM_PLANE and data.geom_xmat[geom][8] > 0.999)


def mesh_of(mj: mujoco.MjModel, geom: int, corners: int, cell: float, most: int | None) -> Mesh | None:
    """The mesh of a geom in the geom's frame; None for a plane and for what has no surface of its own."""
    kind, size = G(int(mj.geom_type[geom])), mj.geom_size[geom]
    if kind == G.mjGEOM_BOX:
        return box(size, cell)
    if kind == G.mjGEOM_SPHERE:
        return ellipsoid((size[0],) * 3, corners)
    if kind == G.mjGEOM_ELLIPSOID:
        return ellipsoid(size, corners)
    if kind == G.mjGEOM_CAPSULE:
        return turned(capsule_outline(size[0], size[1], corners), corners)
    if kind == G.mjGEOM_CYLINDER:
        return turned([(size[0], -size[1]), (size[0], size[1])], corners)
    if kind in (G.mjGEOM_MESH, G.mjGEOM_SDF) and mj.geom_dataid[geom] >= 0:
        return own_mesh(mj, int(mj.geom_dataid[geom]), most)
    if kind == G.mjGEOM_HFIELD:
        return hills(mj, int(mj.geom_dataid[geom]), most)
    return None


def box(half: Sequence[float], cell: float) -> Mesh:
    """A box of half sizes ``half`` m, its sides cut into pieces of about ``cell`` m, at most 6 by 6."""
    vertices: list[Array] = []
    faces: list[Polygon] = []
    for axis in range(3):
        for sign in (1, -1):
            u, v = (axis + 1) % 3, (axis + 2) % 3
            u, v = (u, v) if sign > 0 else (v, u)
            n, m = (min(6, max(1, ceil(2 * float(half[i]) / cell))) for i in (u, v))
            first = len(vertices)
            for i in range(n + 1):
                for j in range(m + 1):
                    corner = np.zeros(3)
                    corner[axis], corner[u], corner[v] = sign, 2 * i / n - 1, 2 * j / m - 1
                    vertices.append(corner * half)
            faces += [tuple(first + a * (m + 1) + b for a, b in ((i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)))
                      for i in range(n) for j in range(m)]
    return Mesh(np.array(vertices), tuple(faces))


def ellipsoid(radii: Sequence[float], corners: int) -> Mesh:
    """An ellipsoid of half axes ``radii`` m."""
    ball = turned(capsule_outline(1.0, 0.0, corners), corners)
    return Mesh(ball.vertices * np.asarray(radii, float), ball.faces)


def capsule_outline(radius: float, half: float, corners: int) -> list[tuple[float, float]]:
    """(radius, z) m from the lower to the upper pole of a capsule."""
    steps = max(2, corners // 4)
    quarter = [0.5 * pi * i / steps for i in range(steps + 1)]
    upper = [(radius * cos(a), half + radius * sin(a)) for a in quarter]
    lower = [(r, -z) for r, z in reversed(upper)]
    return lower[:-1] + upper if half == 0 else lower + upper


def turned(outline: Sequence[tuple[float, float]], corners: int) -> Mesh:
    """The body that an outline of (radius, z) m, from below, sweeps about z; open ends are closed by flat discs."""
    rim = [(cos(2 * pi * i / corners), sin(2 * pi * i / corners)) for i in range(corners)]
    rings = [(r, z) for r, z in outline if r > 1e-9]
    vertices = [(r * x, r * y, z) for r, z in rings for x, y in rim]
    faces: list[Polygon] = []
    for k in range(len(rings) - 1):
        at, above = k * corners, (k + 1) * corners
        faces += [(at + i, at + (i + 1) % corners, above + (i + 1) % corners, above + i) for i in range(corners)]
    last = (len(rings) - 1) * corners
    for pole, (r, z), ring in ((0, outline[0], 0), (1, outline[-1], last)):
        around = list(range(ring, ring + corners))
        if r > 1e-9:  # a disc
            faces.append(tuple(around if pole else reversed(around)))
            continue
        vertices.append((0.0, 0.0, z))
        tip = len(vertices) - 1
        pairs = list(zip(around, around[1:] + around[:1]))
        faces += [(a, b, tip) if pole else (b, a, tip) for a, b in pairs]
    return Mesh(np.array(vertices, float), tuple(faces))


def own_mesh(mj: mujoco.MjModel, index: int, most: int | None) -> Mesh:
    """A mesh of the model; the hull of its outermost points if it has more than ``most`` triangles."""
    first, count = int(mj.mesh_vertadr[index]), int(mj.mesh_vertnum[index])
    vertices = mj.mesh_vert[first : first + count].astype(float)
    at = int(mj.mesh_faceadr[index])
    faces = mj.mesh_face[at : at + int(mj.mesh_facenum[index])]
    if most is None or len(faces) <= most:
        return Mesh(vertices, tuple(tuple(int(i) for i in face) for face in faces))
    return hull(vertices, most)


def hull(vertices: Array, most: int) -> Mesh:
    """The convex hull of the points that lie farthest out in evenly spread directions; at most ``most`` triangles."""
    from scipy.spatial import ConvexHull

    count = max(8, most // 2)  # a hull of n points has 2 n - 4 triangles at most
    k = np.arange(count) + 0.5
    polar, turn = np.arccos(1 - 2 * k / count), pi * (1 + 5**0.5) * k  # Fibonacci's sphere
    ways = np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)])
    points = vertices[np.unique((vertices @ ways).argmax(0))]
    found = ConvexHull(points)
    middle = points.mean(0)
    faces = []
    for a, b, c in found.simplices:
        outward = np.cross(points[b] - points[a], points[c] - points[a]) @ (points[a] - middle) > 0
        faces.append((int(a), int(b), int(c)) if outward else (int(a), int(c), int(b)))
    return Mesh(points, tuple(faces))


def hills(mj: mujoco.MjModel, index: int, most: int | None) -> Mesh:
    """The upper surface of a height field, thinned out to about ``most`` squares."""
    rows, columns = int(mj.hfield_nrow[index]), int(mj.hfield_ncol[index])
    x, y, top, _ = mj.hfield_size[index]
    at = int(mj.hfield_adr[index])
    heights = mj.hfield_data[at : at + rows * columns].reshape(rows, columns) * top
    step = 1 if most is None else max(1, ceil(((rows - 1) * (columns - 1) / max(most, 1)) ** 0.5))
    i, j = (np.unique(np.append(np.arange(0, n, step), n - 1)) for n in (rows, columns))
    gx, gy = np.meshgrid(np.linspace(-x, x, columns)[j], np.linspace(-y, y, rows)[i])
    vertices = np.stack([gx, gy, heights[np.ix_(i, j)]], -1).reshape(-1, 3)
    n = len(j)
    faces = [(r * n + c, r * n + c + 1, (r + 1) * n + c + 1, (r + 1) * n + c)
             for r in range(len(i) - 1) for c in range(n - 1)]
    return Mesh(vertices, tuple(faces))


def rotation(quat: Array) -> Array:
    """The matrix [3, 3] of a quaternion wxyz."""
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.asarray(quat, dtype=np.float64))
    return out.reshape(3, 3)


# ---------------------------------------------------------------- what is worth following


@dataclass(frozen=True)
class Goal:
    """Signals that say where something should be: a place [3] or [2] (on the floor), an attitude wxyz, or both.

    ``radius``: the distance that counts as reached, m.
    """

    name: str
    place: str | None
    attitude: str | None
    radius: float


@dataclass(frozen=True)
class Stage:
    """What is drawn of a task. ``point``, ``attitude``: the signals of the formula's subject, if it has a place.

    ``thing``: the subject, if it is an object that moves freely: an index of :attr:`Figure.bodies`.
    """

    figure: Figure
    point: str | None
    attitude: str | None
    goals: tuple[Goal, ...]
    thing: int | None = None

    def ghost(self, goal: Goal) -> tuple[Part, ...]:
        """The geoms, in their body's frame, of what ``goal`` is an attitude for; none where that is no free object."""
        if goal.attitude is None or self.thing is None:
            return ()
        return tuple(part for part in self.figure.parts if part.body == self.thing)


def stage_of(task: Task, *, corners: int = 24, most: int | None = None) -> Stage:
    """The stage of ``task``; ``corners`` and ``most`` as in :class:`Figure`."""
    figure = Figure(drawn(task.scene), corners=corners, most=most)
    point, attitude = followed(task, figure.model)
    return Stage(figure, point, attitude, goals_of(task), free_thing(figure, attitude))


def goals_of(task: Task) -> tuple[Goal, ...]:
    """The goals among the task's own signals, named ``<name>_pos_w`` and ``<name>_quat_w``: those that the formula
    reads, all where it reads none."""
    extra = task.extra.signals if task.extra is not None else {}
    read = signals_in(task.formula)
    found = [(n, n.rpartition(ending)[0]) for n, ending, _ in placed(extra)]
    names = dict.fromkeys(name for n, name in found if n in read) or dict.fromkeys(name for _, name in found)
    reach = task.constants.get("reach")
    radius = float(reach) if isinstance(reach, (int, float)) else 0.02
    return tuple(Goal(name, *(f"{name}{e}" if f"{name}{e}" in extra else None for e in ("_pos_w", "_quat_w")), radius)
                 for name in names)


def placed(specs: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """The signals that are places or attitudes in the world: name, ending, spec."""
    legal = {"_pos_w": ((2,), (3,)), "_quat_w": ((4,),)}
    return [(n, e, s) for n, s in specs.items() for e, shapes in legal.items() if n.endswith(e) and s.shape in shapes]


def followed(task: Task, model: Model) -> tuple[str | None, str | None]:
    """The place that the formula is about, and its attitude.

    It is the first place that the formula names and that is no goal. Objects that stand (a block with a hole, a
    cabinet) are destinations: they come after what the robot moves. Places that no formula names come last.
    """
    own = task.extra.signals if task.extra is not None else {}
    places = [n for n, e, _ in placed({n: s for n, s in task.schema.items() if n not in own}) if e == "_pos_w"]
    read = signals_in(task.formula)

    def named(place: str) -> bool:
        return place in read or attitude_of(task, model, place) in read

    def where(place: str) -> int:
        found = re.search(rf"\b{re.escape(place.removesuffix('_pos_w'))}_(pos|quat)_w\b", task.formula_text)
        return found.start() if found else len(task.formula_text)

    if not places:
        return None, None
    point = min(places, key=lambda place: (not named(place), stands(model, place), where(place)))
    return point, attitude_of(task, model, point)


def attitude_of(task: Task, model: Model, place: str) -> str | None:
    """The attitude that goes with a place: by its name, else that of the body on which the place is."""
    own = place.removesuffix("_pos_w") + "_quat_w"
    if own in task.schema:
        return own
    sources, body = task.scene.sources, carrier(model, place)
    same = [n for n, s in sources.items() if s.what == "quat" and body is not None and carrier(model, n) == body]
    return same[0] if same else None


def carrier(model: Model, signal: str) -> int | None:
    """The body that carries a place or attitude of the scene; None if the model does not show it."""
    source = model.scene.sources.get(signal)
    if source is None or source.what not in ("pos", "quat"):
        return None
    try:
        return body_of(model.mj, source.names[0])
    except UnknownName:
        return None


def stands(model: Model, signal: str) -> bool:
    """Whether a signal belongs to an object that is not free to move."""
    return any(signal in thing.signals and free_joint(model.mj, f"{thing.name}.root") is None
               for thing in model.scene.objects)


def free_thing(figure: Figure, attitude: str | None) -> int | None:
    """The index in :attr:`Figure.bodies` of the object that moves freely with this attitude, if it is one's."""
    body = carrier(figure.model, attitude) if attitude else None
    objects = {f"{thing.name}.root" for thing in figure.model.scene.objects}
    if body is None or figure.model.mj.body(body).name not in objects or free_joint(figure.model.mj, body) is None:
        return None
    return figure.bodies.index(body)
