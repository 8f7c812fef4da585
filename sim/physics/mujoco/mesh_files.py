"""Mesh files of a URDF: found in ROS packages, and converted where MuJoCo does not read their format.

MuJoCo reads binary STL, OBJ and MSH. Other formats (Collada's .dae is the usual one) are converted to STL with trimesh;
units are those of the file, its up axis is not applied, as in RViz.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import mujoco

from temporeal.robots.model_files import parse
from temporeal.robots.spec import RobotSpec

PACKAGE = "package://"
READ = (".stl", ".obj", ".msh")


def parsed(robot: RobotSpec, path: Path) -> mujoco.MjSpec:
    """The file as MuJoCo reads it; in a URDF ``package://`` is resolved, and other formats of meshes are converted.

    MuJoCo drops what a URDF has only to be seen, unless ``<mujoco><compiler discardvisual="false"/></mujoco>`` in it.
    """
    if path.suffix.lower() != ".urdf":
        return mujoco.MjSpec.from_file(str(path))
    root = parse(path)
    compiler = {key: value for element in root.findall("mujoco/compiler") for key, value in element.attrib.items()}
    stripped = compiler.get("strippath") == "true"  # only the names of files count, in meshdir
    assets: dict[str, bytes] = {}
    changed = False
    for link, mesh in kept_meshes(root, compiler):
        name = mesh.get("filename", "")
        if name.startswith(PACKAGE) and not stripped:
            mesh.set("filename", name := str(in_package(robot.changes.packages, path, link, name)))
            changed = True
        source = path.parent / compiler.get("meshdir", "") / (
            Path(name).name if stripped else name.removeprefix("file://"))
        if source.is_file() and not is_readable(source):
            converted = f"{len(assets)}_{source.stem}.stl"
            assets[converted] = as_stl(source)
            warnings.warn(f"{source} was converted for MuJoCo, which reads binary {', '.join(READ)}: look at it with "
                          "`temporeal robot view`", stacklevel=2)
            mesh.set("filename", converted)
    if not (changed or assets):
        return mujoco.MjSpec.from_file(str(path))
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(root, encoding="unicode"), assets=assets)
    spec.modelfiledir = str(path.parent)
    return spec


def kept_meshes(root: ElementTree.Element, compiler: Mapping[str, str]) -> list[tuple[str, ElementTree.Element]]:
    """The <mesh> elements that MuJoCo keeps, with the names of their links."""
    kinds = ("collision", "visual") if compiler.get("discardvisual") == "false" else ("collision",)
    return [(link.get("name", ""), mesh) for link in root.findall("link") for kind in kinds
            for mesh in link.findall(f"{kind}/geometry/mesh")]


def in_package(packages: Mapping[str, Path], path: Path, link: str, name: str) -> Path:
    """The file that ``package://<package>/<file>`` means: in the folder that ``packages`` give, else in one of this
    name above ``path``."""
    package, _, rest = name.removeprefix(PACKAGE).partition("/")
    above = path.resolve().parents
    places = [packages[package]] if package in packages else [
        place for up in above for place in (up, up / package) if place.name == package and place.is_dir()]
    where, beside = f'<link name="{link}">: <mesh filename="{name}">', path.with_suffix(".robot.yaml").name
    if not places:
        raise ValueError(f"{where}: no folder {package!r} stands beside or above the file: say where it is in "
                         f"{beside}: packages: {{{package}: <folder>}}, or to `temporeal robot new` with --package "
                         f"{package}=FOLDER")
    found = next((place / rest for place in places if (place / rest).is_file()), None)
    if found is None:
        raise ValueError(f"{where}: there is no file {places[0] / rest}; packages: {{{package}: <folder>}} in {beside} "
                         "says where the package is")
    return found.resolve()


def is_readable(path: Path) -> bool:
    """Whether MuJoCo reads the mesh: of STL only the binary form, 80 bytes, the count of triangles, 50 bytes each."""
    if path.suffix.lower() != ".stl":
        return path.suffix.lower() in READ
    with open(path, "rb") as file:
        head = file.read(84)
    return len(head) == 84 and path.stat().st_size == 84 + 50 * int.from_bytes(head[80:], "little")


def as_stl(path: Path) -> bytes:
    """The mesh in ``path``, in metres, as binary STL."""
    if not path.is_file():
        raise ValueError(f"there is no mesh file {path}")
    try:
        import trimesh

        mesh = trimesh.load_scene(path).to_mesh()
    except ImportError as error:
        raise ValueError(f"{path}: MuJoCo reads {', '.join(READ)} only; `pip install trimesh pycollada` converts it "
                         f"({error})") from error
    except Exception as error:  # whatever a parser of meshes raises
        raise ValueError(f"{path}: it cannot be converted: {type(error).__name__}: {error}") from error
    if not len(mesh.faces):
        raise ValueError(f"{path}: it holds no triangle")
    mesh.apply_scale(metres(path))
    return bytes(mesh.export(file_type="stl"))


def metres(path: Path) -> float:
    """The length of a Collada file's unit, m; other formats have none."""
    if path.suffix.lower() != ".dae":
        return 1.0
    for _, element in ElementTree.iterparse(path, events=("start",)):
        if element.tag.rpartition("}")[2] == "unit":
            return float(element.get("meter", "1"))
        if element.tag.rpartition("}")[2].startswith("library_"):
            break
    return 1.0
