"""A robot's folder names no file outside itself: its model, what that includes, and their meshes and textures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from temporeal.robots.handed_over.files import Refused, inside
from temporeal.robots.model_files import RobotFileError, label, parse

DIRECTORIES = ("meshdir", "texturedir", "assetdir")
PACKAGE = "package://"


def check_files(folder: Path, model: Path, packages: Mapping[str, Any]) -> None:
    """Check every file that ``model`` names, the included ones' too; ``packages`` as ``spec.yaml`` gives them.

    Raises:
        Refused: one leads out of ``folder``, links followed.
        RobotFileError: a file is no XML, or a name is no file's.
    """
    roots = included(folder, model)
    named = {model.parent / compiler.get(key, "") for root in roots.values() for compiler in root.iter("compiler")
             for key in DIRECTORIES}
    places = [inside(folder, place) for place in (model.parent, *sorted(named - {model.parent}))]
    for file, root in roots.items():
        for element in root.iter():
            for key, name in element.attrib.items():
                if key.startswith("file") and name:  # file, filename, and a cube texture's fileright, ...
                    check_name(f"{file}: {label(element)}: {name!r}", folder, places, packages, name)


def included(folder: Path, model: Path) -> dict[Path, ElementTree.Element]:
    """The roots of ``model`` and of all files that it includes or attaches, by file."""
    waiting, roots = [model], dict[Path, ElementTree.Element]()
    while waiting:
        file = inside(folder, waiting.pop())
        if file not in roots:
            roots[file] = parse(file)
            waiting += [model.parent / name for tag in ("include", "model") for element in roots[file].iter(tag)
                        if (name := element.get("file"))]
    return roots


def check_name(where: str, folder: Path, places: Sequence[Path], packages: Mapping[str, Any], name: str) -> None:
    """One name of a file: relative, without a way up, in each of the ``places`` where it may be looked for."""
    if name.startswith(PACKAGE):
        package, _, name = name.removeprefix(PACKAGE).partition("/")
        if package not in packages:
            raise Refused(f"{where} leads out of {folder}, to a ROS package: `temporeal robot new` copies its files; "
                          f"packages: {{{package}: <folder>}} in spec.yaml names a folder in it")
        places = [places[0] / str(packages[package])]
    name = name.removeprefix("file://")
    if "://" in name:
        raise RobotFileError(f"{where} is no file")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise Refused(f"{where} leads out of {folder}: a robot's folder names no file but its own; `temporeal robot "
                      "new` copies them in")
    for place in places:
        inside(folder, place / name)
