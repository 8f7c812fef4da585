"""Forward kinematics of an arm's tool in numpy, for the robot side.

    chain = serial_chain(load_robot("models/arm.urdf"))     # of any arm with a tool, from its model file
    position, quat, velocity = chain(joint_pos, joint_vel)

Poses are in the base frame. That is the world frame if the arm stands at its origin, as in the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import cos, sin
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temporeal.robots.frames import from_matrix
from temporeal.robots.model_tree import transform, turn_about, way_to
from temporeal.robots.registry import resolve
from temporeal.robots.spec import RobotSpec, shipped

Array = NDArray[np.float64]


class KinematicsError(ValueError):
    """The robot has no known kinematics, or the joints do not fit them."""


class Chain:
    """A serial arm by modified (Craig) Denavit-Hartenberg parameters.

    Args:
        rows: (a m, d m, alpha rad) of each joint, and of the flange, which does not turn.
        tool: (x, y, z, turn about z rad) of the tool centre point in the flange's frame.
    """

    def __init__(self, rows: Sequence[Sequence[float]], tool: Sequence[float]) -> None:
        # frame i - 1 to frame i at joint angle 0: a shift [3] m, and cosine and sine of a turn about x
        self.links = [(a, -sin(alpha) * d, cos(alpha) * d, cos(alpha), sin(alpha)) for a, d, alpha in rows]
        x, y, z, turn = tool
        self.end = np.array([[cos(turn), -sin(turn), 0.0], [sin(turn), cos(turn), 0.0], [0.0, 0.0, 1.0]])
        self.reach = np.array([x, y, z])
        self.joints = len(rows) - 1

    def __call__(self, angles: Any, speeds: Any = None) -> tuple[Array, Array, Array]:
        """Position [3] m, attitude [4] wxyz and velocity [3] m/s of the tool in the base frame, for joint ``angles``
        [J] rad and ``speeds`` [J] rad/s (None: at rest)."""
        v = np.zeros(self.joints) if speeds is None else np.asarray(speeds, dtype=np.float64)
        if v.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got speeds {v.shape}")
        tool, flange, axes, places = self._follow(angles)
        return tool, from_matrix(flange @ self.end), v @ np.cross(axes, tool - places)

    def position(self, angles: Any) -> Array:
        """The position [3] m alone, at half the cost."""
        return self._follow(angles)[0]

    def jacobians(self, angles: Any) -> Array:
        """Jacobians [N, 6, J] of the tool's velocity (m/s) and angular velocity (rad/s) in the base frame, at joint
        ``angles`` [N, J] rad."""
        q = np.asarray(angles, dtype=np.float64)
        if q.ndim != 2 or q.shape[1] != self.joints:
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape}")
        turn, place = np.broadcast_to(np.eye(3), (len(q), 3, 3)), np.zeros((len(q), 3))
        axes, places = [], []
        for i, (a, b, e, c, s) in enumerate(self.links):
            place = place + turn @ np.array([a, b, e])
            turn = turn @ np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
            if i < self.joints:
                u, v, zero, one = np.cos(q[:, i]), np.sin(q[:, i]), np.zeros(len(q)), np.ones(len(q))
                turn = turn @ np.stack([u, -v, zero, v, u, zero, zero, zero, one], axis=-1).reshape(-1, 3, 3)
                axes.append(turn[:, :, 2])
                places.append(place)
        tool = place + turn @ self.reach
        z, p = np.stack(axes, axis=1), np.stack(places, axis=1)
        return np.concatenate([np.cross(z, tool[:, None] - p), z], axis=-1).transpose(0, 2, 1)

    def _follow(self, angles: Any) -> tuple[Array, Array, Array, Array]:
        """The tool's position [3], the flange's rotation [3, 3], and the joints' axes and positions [J, 3]."""
        q = np.asarray(angles, dtype=np.float64)
        if q.shape != (self.joints,):
            raise KinematicsError(f"{self.joints} joints are needed, got angles {q.shape}")
        # plain numbers: seven joints of them take a fifth of the time that arrays of three need
        x, y, z, place = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0)  # axes: columns
        axes, places = [], []
        for (a, b, e, c, s), angle in zip(self.links, (*q.tolist(), 0.0)):  # the flange does not turn
            place = (place[0] + a * x[0] + b * y[0] + e * z[0], place[1] + a * x[1] + b * y[1] + e * z[1],
                     place[2] + a * x[2] + b * y[2] + e * z[2])
            y, z = ((c * y[0] + s * z[0], c * y[1] + s * z[1], c * y[2] + s * z[2]),
                    (c * z[0] - s * y[0], c * z[1] - s * y[1], c * z[2] - s * y[2]))
            u, v = cos(angle), sin(angle)
            x, y = ((u * x[0] + v * y[0], u * x[1] + v * y[1], u * x[2] + v * y[2]),
                    (u * y[0] - v * x[0], u * y[1] - v * x[1], u * y[2] - v * x[2]))
            axes.append(z)
            places.append(place)
        flange = np.array((x, y, z)).T
        return np.array(place) + flange @ self.reach, flange, np.array(axes[:-1]), np.array(places[:-1])


@cache
def chain(robot: str) -> Chain:
    """The kinematics of ``robot``: ``DENAVIT_HARTENBERG`` and ``TOOL`` of its ``spec.py``."""
    if robot not in shipped():
        raise KinematicsError(f"no robot {robot!r} to take the kinematics of; known: {', '.join(shipped())}")
    spec = resolve(f"temporeal.robots.{robot}", "spec")
    if not hasattr(spec, "DENAVIT_HARTENBERG") or not hasattr(spec, "TOOL"):
        raise KinematicsError(f"robots/{robot}/spec.py has no DENAVIT_HARTENBERG and TOOL")
    return Chain(spec.DENAVIT_HARTENBERG, spec.TOOL)


@dataclass(frozen=True, eq=False)
class SerialChain:
    """The joints between a robot's base and its tool. Poses are in the model's world frame.

    The tool's pose is ``fixed[0] M_0(q_0) fixed[1] ... M_{J-1}(q_{J-1}) fixed[J]``, where ``M_j`` turns about
    ``axes[j]`` by ``q_j`` rad (hinge) or shifts along it by ``q_j`` m (slide).

    Args:
        joints: names of the J joints, from the base on.
        columns: where each of them is in the robot's ``joint_pos``.
        kinds: ``"hinge"`` or ``"slide"``, [J].
        fixed: transforms [J+1, 4, 4], m.
        axes: unit vectors [J, 3], each in its joint's frame.
    """

    joints: tuple[str, ...]
    columns: tuple[int, ...]
    kinds: tuple[str, ...]
    fixed: Array
    axes: Array

    def __call__(self, angles: Any, speeds: Any = None) -> tuple[Array, Array, Array]:
        """Position [3] m, attitude [4] wxyz and velocity [3] m/s of the tool, for the positions ``angles`` [J] (rad or
        m) and ``speeds`` [J] of ``joints`` (None: at rest)."""
        frames = self._frames(angles)
        tool, quat = frames[-1][:3, 3], from_matrix(frames[-1][:3, :3])
        if speeds is None:
            return tool, quat, np.zeros(3)
        at = np.stack(frames[:-1])
        axes = (at[:, :3, :3] @ self.axes[:, :, None])[:, :, 0]
        x, y, z = axes.T
        px, py, pz = (tool - at[:, :3, 3]).T
        levers = np.stack([y * pz - z * py, z * px - x * pz, x * py - y * px], axis=1)
        return tool, quat, np.asarray(speeds, dtype=np.float64) @ np.where(self._slides[:, None], axes, levers)

    def forward(self, q: Any) -> Array:
        """The tool's pose [..., 4, 4] at ``q`` [..., J], the positions of ``joints`` in rad or m."""
        return self._frames(q)[-1]

    def jacobian(self, q: Any) -> Array:
        """Jacobian [..., 6, J] of the tool's velocity (m/s) and angular velocity (rad/s), world axes, at ``q``
        [..., J]."""
        *frames, tool = self._frames(q)
        columns = []
        for frame, axis, kind in zip(frames, self.axes, self.kinds):
            turn = frame[..., :3, :3] @ axis
            if kind == "slide":
                columns.append(np.concatenate([turn, np.zeros_like(turn)], axis=-1))
            else:
                columns.append(np.concatenate([np.cross(turn, tool[..., :3, 3] - frame[..., :3, 3]), turn], axis=-1))
        return np.stack(columns, axis=-1)

    def jacobians(self, angles: Any) -> Array:
        """Jacobians [N, 6, J] at ``angles`` [N, J] of ``joint_pos``, whose joints are all in the chain."""
        if sorted(self.columns) != list(range(np.shape(angles)[-1])):
            raise KinematicsError(f"only {', '.join(self.joints)} move the tool: the others have no part in it")
        q = np.asarray(angles, dtype=np.float64)[..., list(self.columns)]
        return self.jacobian(q)[..., np.argsort(self.columns)]

    def _frames(self, q: Any) -> list[Array]:
        """The frames of the joints, each moved by its own joint, and of the tool: J+1 of [..., 4, 4]."""
        angles = np.asarray(q, dtype=np.float64)
        if angles.shape[-1:] != (len(self.joints),):
            raise KinematicsError(f"{len(self.joints)} joints ({', '.join(self.joints)}) are needed, got "
                                  f"{angles.shape}")
        once, twice = self._generators
        sine = np.where(self._slides, angles, np.sin(angles))[..., None, None]
        moved = np.eye(4) + sine * once + (1.0 - np.cos(angles))[..., None, None] * twice
        at, out = self.fixed[0], []
        for j in range(len(self.joints)):
            out.append(at @ moved[..., j, :, :])
            at = out[-1] @ self.fixed[j + 1]
        return [*out, at]

    @cached_property
    def _slides(self) -> NDArray[np.bool_]:
        """Which joints slide, [J]."""
        return np.array([kind == "slide" for kind in self.kinds])

    @cached_property
    def _generators(self) -> tuple[Array, Array]:
        """The matrices [J, 4, 4] of Rodrigues' formula: of the sine, or of a slide's way, and of one minus the cosine,
        which is 0 for slides."""
        out = []
        for kind, (x, y, z) in zip(self.kinds, self.axes):
            once = np.zeros((4, 4))
            if kind == "slide":
                once[:3, 3] = x, y, z
            else:
                once[:3, :3] = [[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]
            out.append((once, np.zeros((4, 4)) if kind == "slide" else once @ once))
        first, second = zip(*out)
        return np.stack(first), np.stack(second)


def serial_chain(robot: RobotSpec) -> SerialChain:
    """The kinematics of the tool of ``robot``, read from its model file.

    Raises:
        KinematicsError: the robot names no tool, has no model file, or moves the tool by joints that are not in
            ``joint_pos``.
        RobotFileError: the model has no such place, or the tool hangs on a joint with several degrees of freedom.
    """
    source = robot.sources.get(f"{robot.tool}_pos_w")
    if not robot.tool or robot.model is None or source is None or "joint_pos" not in robot.sources:
        raise KinematicsError(f"robot {robot.name!r} (kind {robot.kind}) has no arm with a tool: its spec needs tool, "
                              "model and joints (in a robot's folder: tool: in spec.yaml)")
    return chain_to(robot.name, robot.model, source.names[0], robot.sources["joint_pos"].names)


def kinematics_of(robot: RobotSpec) -> Chain | SerialChain:
    """The tool's kinematics, the faster one where the robot has both."""
    try:
        return chain(robot.name)
    except KinematicsError:
        return serial_chain(robot)


@cache
def chain_to(robot: str, model: Path, place: str, known: tuple[str, ...]) -> SerialChain:
    """The joints out of ``known`` between the root of ``model`` and its body, link or site ``place``."""
    moves, end = way_to(model, place)
    for move in moves:
        if move.joint not in known:
            raise KinematicsError(f"robot {robot!r}: {place!r} moves with {move.joint!r}, which joint_pos has not: "
                                  f"{', '.join(known)}")
    if not moves:
        raise KinematicsError(f"robot {robot!r}: no joint moves {place!r}")
    fixed, back = [], np.eye(4)
    for move in moves:
        fixed.append(back @ move.before)
        back = transform(turn_about(move.axis, -move.rest)) if move.kind == "hinge" else transform(
            shift=-move.rest * move.axis)
    return SerialChain(tuple(move.joint for move in moves), tuple(known.index(move.joint) for move in moves),
                       tuple(move.kind for move in moves), np.stack([*fixed, back @ end]),
                       np.stack([move.axis for move in moves]))
