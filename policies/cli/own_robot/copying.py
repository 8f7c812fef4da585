"""A model and its files, copied into a robot's folder so that it names nothing outside it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from temporeal.policies.cli.own_robot.sources import NAMES, Source
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import label
from temporeal.sim.physics.mujoco.mesh_files import PACKAGE, READ, as_stl, in_package, is_readable, kept_meshes

FILES = "files"
"""The sub-folder of meshes, textures and height fields."""

DIRECTORIES = {"mesh": "meshdir", "texture": "texturedir", "hfield": "texturedir", "skin": "meshdir"}
TEXTURE_FILES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


class Copies:
    """The files that were copied to ``folder``, each once and under a name of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[Path, str] = {}
        self.notes: list[str] = []

    def take(self, path: Path, where: str, convert: bool = False) -> str:
        """Copy ``path``; its name relative to the model. ``convert``: a mesh that MuJoCo must be able to read."""
        path = path.resolve()
        if path not in self.places:
            if not path.is_file():
                raise BadInput(f"{where}: there is no file {path}")
            foreign = convert and not is_readable(path)
            self.places[path] = self._converted(path) if foreign else self._copied(path)
        return self.places[path]

    def _copied(self, path: Path) -> str:
        name = self._free(path.name)
        shutil.copyfile(path, self.folder / name)
        return name

    def _converted(self, path: Path) -> str:
        name = self._free(f"{path.stem}.stl")
        data = as_stl(path)
        (self.folder / name).write_bytes(data)
        self.notes.append(f"{path.name} was converted to {name} (MuJoCo reads binary {', '.join(READ)}); look at it "
                          "with `temporeal robot view`")
        return name

    def _free(self, name: str) -> str:
        """A name in the sub-folder that no other file has."""
        (self.folder / FILES).mkdir(exist_ok=True)
        stem, suffix = Path(name).stem, Path(name).suffix
        taken = {each.lower() for each in self.places.values()}
        for number in range(len(taken) + 1):
            found = f"{FILES}/{stem}{f'_{number}' if number else ''}{suffix}"
            if found.lower() not in taken:
                return found
        raise AssertionError("numbers do not end")


def copy_model(source: Source, folder: Path, packages: Mapping[str, Path]) -> tuple[Path, list[str]]:
    """Write the model and its files to ``folder``; the model's file there, and what was changed."""
    copies = Copies(folder)
    if source.is_urdf:
        copy_urdf(source, copies, packages)
    else:
        copy_mjcf(source, copies)
    target = folder / NAMES[source.root.tag]
    write_model(source, target)
    return target, copies.notes


def write_model(source: Source, target: Path) -> None:
    """Write the tree to ``target``."""
    ElementTree.indent(source.root)
    target.write_bytes(ElementTree.tostring(source.root, encoding="utf-8", xml_declaration=True) + b"\n")


def copy_urdf(source: Source, copies: Copies, packages: Mapping[str, Path]) -> None:
    """Copy the meshes of a URDF; what is only to be seen goes where its file is missing."""
    root = source.root
    compiler = {key: value for element in root.findall("mujoco/compiler") for key, value in element.attrib.items()}
    kept = [mesh for _, mesh in kept_meshes(root, compiler)]
    missing = 0
    for link in root.findall("link"):
        for part in [*link.findall("collision"), *link.findall("visual")]:
            mesh = part.find("geometry/mesh")
            if mesh is None:
                continue
            where = f"{source.path}: {label(link)}: <{part.tag}>"
            try:
                path = urdf_file(source.path, link.get("name", ""), mesh.get("filename", ""), compiler, packages)
                mesh.set("filename", copies.take(path, where, convert=mesh in kept))
            except (ValueError, OSError) as error:
                if part.tag == "collision" or mesh in kept:
                    raise BadInput(str(error)) from error
                link.remove(part)
                missing += 1
    if missing:
        copies.notes.append(f"{missing} <visual> meshes were left out: their files are missing, and MuJoCo drops them")
    for part in root.findall("mujoco/compiler"):
        for key in ("meshdir", "texturedir", "assetdir", "strippath"):
            part.attrib.pop(key, None)
    child(child(root, "mujoco"), "compiler").set("strippath", "false")
    for element in [element for tag in ("gazebo", "transmission", "ros2_control") for element in root.findall(tag)]:
        root.remove(element)  # of other programs; they name plugins and files


def child(element: ElementTree.Element, tag: str) -> ElementTree.Element:
    """The first child called ``tag``, a new one if there is none."""
    found = element.find(tag)
    return ElementTree.SubElement(element, tag) if found is None else found


def urdf_file(
    path: Path, link: str, name: str, compiler: Mapping[str, str], packages: Mapping[str, Path]
) -> Path:
    """The file that a URDF's mesh is."""
    if name.startswith(PACKAGE):
        return in_package(packages, path, link, name)
    plain = name.removeprefix("file://")
    if compiler.get("strippath", "true") == "true" and "meshdir" in compiler:
        plain = Path(plain).name
    return path.parent / compiler.get("meshdir", "") / plain


def copy_mjcf(source: Source, copies: Copies) -> None:
    """Copy the files of an MJCF."""
    root = source.root
    compiler = {key: value for element in root.iter("compiler") for key, value in element.attrib.items()}
    shared = compiler.get("assetdir", "")
    for tag, key in DIRECTORIES.items():
        for element in root.iter(tag):
            for attribute in TEXTURE_FILES:
                name = element.get(attribute)
                if not name:
                    continue
                plain = Path(name).name if compiler.get("strippath") == "true" else name
                place = source.path.parent / compiler.get(key, shared) / plain
                if tag != "texture" and element.get("name") is None:
                    element.set("name", Path(name).stem)  # the name that it has without one
                element.set(attribute, copies.take(place, f"{source.path}: {label(element)}", convert=tag == "mesh"))
    for element in root.iter("compiler"):
        for key in ("meshdir", "texturedir", "assetdir", "strippath"):
            element.attrib.pop(key, None)
