"""A robot's folder names no file outside itself: its model, what that includes, and their meshes and textures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from temporeal.robots.handed_over.files import Refused, inside
from temporeal.robots.model_files import RobotFileError, label, parse

DIRECTORIES = ("meshdir", "texturedir", "assetdir")


def check_files(folder: Path, model: Path) -> None:
    """Check every file that ``model`` names, the included ones' too.

    Raises:
        Refused: one leads out of ``folder``.
        RobotFileError: a file is no XML.
    """
    waiting, seen = [model], set[Path]()
    while waiting:
        file = inside(folder, waiting.pop())
        if file in seen:
            continue
        seen.add(file)
        root = parse(file)
        for element in root.iter():
            for name in (element.get("file"), element.get("filename")):
                if name:
                    check_name(folder, model, file, element, name)
        waiting += [model.parent / name for tag in ("include", "model") for element in root.iter(tag)
                    if (name := element.get("file"))]
        for key in DIRECTORIES:
            for compiler in root.iter("compiler"):
                inside(folder, model.parent / compiler.get(key, ""))


def check_name(folder: Path, model: Path, file: Path, element: ElementTree.Element, name: str) -> None:
    """One name of a file: relative, and without a way up."""
    if "://" in name.replace("file://", "", 1):
        if not name.startswith("package://"):
            raise RobotFileError(f"{file}: {label(element)}: {name!r} is no file")
        name = name.removeprefix("package://")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise Refused(f"{file}: {label(element)}: {name!r} leads out of {folder}: a robot's folder names no file but "
                      "its own; `temporeal robot new` copies them in")
    inside(folder, model.parent / name)
