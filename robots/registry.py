"""The folder is the registry: ``resolve("temporeal.sim.tasks", "hover")`` imports ``sim/tasks/hover.py``.

Tasks and algorithms may also be files in the user's own folders (:mod:`temporeal.robots.search_path`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from types import ModuleType

from temporeal.robots.search_path import MODULES, VARIABLE, SearchPathError, own_modules, said

LISTED = 1000  # entries of a folder that are compared with a name, at most


class UnknownName(KeyError):
    """A name that no module of the package has; the message lists the known ones."""

    def __str__(self) -> str:
        return str(self.args[0])


def guess(word: object, known: Iterable[object]) -> str:
    """``did you mean 'x'? `` if one of the ``known`` is close to ``word``: what a message of an unknown name begins
    with, before its list."""
    close = difflib.get_close_matches(str(word), list(map(str, known)), 1)
    return f"did you mean {close[0]!r}? " if close else ""


def guess_file(path: Path) -> str:
    """As :func:`guess`, of the files and folders that lie where ``path`` would."""
    try:
        beside = [entry.name for entry in islice(os.scandir(path.parent), LISTED)
                  if not entry.name.startswith(".") and entry.name != path.name]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, beside, 1)
    return f"did you mean {str(path.with_name(close[0]))!r}? " if close and path.name else ""


def names(package: str) -> list[str]:
    """Names of the modules and sub-packages in ``package`` and of the user's own, private ones left out."""
    return sorted({*shipped(package), *own(package)})


def shipped(package: str) -> list[str]:
    """Names of the modules and sub-packages in ``package`` itself."""
    module = importlib.import_module(package)
    return [info.name for info in pkgutil.iter_modules(module.__path__) if not info.name.startswith("_")]


def own(package: str) -> dict[str, Path]:
    """Files of the user's own modules by name; a name that ``package`` has itself is refused."""
    found = own_modules(package)
    for name in set(found).intersection(shipped(package)) if found else ():
        raise SearchPathError(f"{found[name]}: {package} has {name!r} itself; choose another name for the file")
    return found


def resolve(package: str, name: str) -> ModuleType:
    """The module ``package.name``, or the user's own file of this name; an unknown name raises :class:`UnknownName`
    with the legal ones."""
    if file := own(package).get(name):
        return load_file(f"{package}.{name}", file)
    known = names(package)
    if name not in known:
        more = f"; files of your own are found in {VARIABLE} ({said()})" if package in MODULES else ""
        raise UnknownName(f"{package} has no {name!r}; {guess(name, known)}known: {', '.join(known)}{more}")
    return importlib.import_module(f"{package}.{name}")


def load_file(name: str, file: Path) -> ModuleType:
    """The module in ``file``, run once in a process and then known as ``name``."""
    there = sys.modules.get(name)
    if there is not None and there.__file__ == str(file):
        return there
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SearchPathError(f"{file}: Python cannot read it as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
