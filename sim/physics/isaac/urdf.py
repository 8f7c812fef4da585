"""Actors as URDF files, with their meshes as STL.

URDF, not MJCF: both importers take it whole, while their MJCF importers read defaults, classes, actuators and sites in
ways of their own. Everything is explicit: every link has its inertia, every shape is a box, a sphere, a cylinder or a
convex mesh (a capsule is a cylinder with a sphere at each end, the same solid), every element has a name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree as xml

import mujoco
import numpy as np

from temporeal.sim.physics.isaac.drives import drives
from temporeal.sim.physics.isaac.plan import Actor, Link, Plan, Shape
from temporeal.sim.physics.isaac.rotations import roll_pitch_yaw
from temporeal.sim.physics.isaac.shapes import nominal
from temporeal.sim.physics.mujoco.model import Array


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
