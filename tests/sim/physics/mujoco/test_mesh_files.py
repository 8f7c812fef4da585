"""Meshes of URDFs in formats that MuJoCo does not read are converted; a format that nobody reads is named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.physics.mujoco.mesh_files import as_stl, is_readable, metres
from temporeal.sim.physics.mujoco.robot_files import compiled

URDF = """<robot name="r"><link name="w"/><link name="l"><inertial><mass value="1"/>
  <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
  <collision><geometry><mesh filename="{}"/></geometry></collision></link>
  <joint name="j" type="continuous"><parent link="w"/><child link="l"/><axis xyz="0 0 1"/></joint></robot>"""
CORNERS = ((0, 0, 0), (0.1, 0, 0), (0, 0.2, 0), (0, 0, 0.3))
FACES = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
ASCII = "solid s\n" + "".join(
    "facet normal 0 0 0\nouter loop\n" + "".join("vertex {} {} {}\n".format(*CORNERS[i]) for i in face)
    + "endloop\nendfacet\n" for face in FACES) + "endsolid s\n"
DAE = """<?xml version="1.0"?><COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
<asset><unit name="cm" meter="0.01"/><up_axis>Y_UP</up_axis></asset><library_geometries><geometry id="g"><mesh>
<source id="p"><float_array id="a" count="12">0 0 0 10 0 0 0 20 0 0 0 30</float_array><technique_common>
<accessor source="#a" count="4" stride="3"><param name="X" type="float"/><param name="Y" type="float"/>
<param name="Z" type="float"/></accessor></technique_common></source><vertices id="v">
<input semantic="POSITION" source="#p"/></vertices><triangles count="4">
<input semantic="VERTEX" source="#v" offset="0"/><p>0 2 1 0 1 3 0 3 2 1 2 3</p></triangles></mesh></geometry>
</library_geometries><library_visual_scenes>
<visual_scene id="s"><node id="n"><instance_geometry url="#g"/></node></visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene></COLLADA>"""


def extent(folder: Path, name: str) -> np.ndarray:
    """The sizes [3] m of the mesh ``name`` as a URDF's collision shape in MuJoCo."""
    (folder / "r.urdf").write_text(URDF.format(name))
    vertices = compiled(load_robot(folder / "r.urdf")).mesh_vert
    return np.sort(np.linalg.norm(vertices[:, None] - vertices[None], axis=-1).max(axis=1))


def test_an_ascii_stl_is_converted(tmp_path):
    pytest.importorskip("trimesh")
    (tmp_path / "m.stl").write_text(ASCII)
    assert not is_readable(tmp_path / "m.stl")
    assert extent(tmp_path, "m.stl")[-1] == pytest.approx(np.hypot(0.2, 0.3), rel=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("collada") is None, reason="pycollada is not installed")
def test_a_collada_file_is_converted_in_its_unit(tmp_path):
    (tmp_path / "m.dae").write_text(DAE)
    assert extent(tmp_path, "m.dae")[-1] == pytest.approx(np.hypot(0.2, 0.3), rel=1e-5)


def test_units_of_collada_files(tmp_path):
    (tmp_path / "m.dae").write_text(DAE)
    assert metres(tmp_path / "m.dae") == 0.01 and metres(tmp_path / "m.obj") == 1.0
    (tmp_path / "m.dae").write_text(DAE.replace('<unit name="cm" meter="0.01"/>', ""))
    assert metres(tmp_path / "m.dae") == 1.0


def test_without_a_converter_the_error_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "m.dae").write_text(DAE)
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(ValueError, match="m.dae: MuJoCo reads .*pip install trimesh pycollada"):
        as_stl(tmp_path / "m.dae")
    with pytest.raises(ValueError, match="no mesh file"):
        as_stl(tmp_path / "gone.dae")
