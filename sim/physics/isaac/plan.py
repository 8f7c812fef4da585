"""A scene as Isaac Gym and Isaac Lab load it: actors, links, joints and drives, and where each signal is read.

    plan = plan_of(mjcf.build(scene, "joint_pos_cmd", dt=0.002))      # temporeal.sim.physics.isaac.actors
    files = write(plan, folder)                # actor name -> URDF file; temporeal.sim.physics.isaac.urdf
    plan.dofs[0].name, plan.links[3].name      # our order; the simulators' own order is looked up by these names
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from temporeal.sim.physics.mujoco.model import Array, Model

FREE, BALL, SLIDE, HINGE = 0, 1, 2, 3  # mjtJoint


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

    A position drive exerts ``stiffness (target - q) - damping qd``, an effort drive its target less
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
