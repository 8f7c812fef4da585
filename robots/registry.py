"""The folder is the registry: ``resolve("temporeal.sim.tasks", "hover")`` imports ``sim/tasks/hover.py``."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


class UnknownName(KeyError):
    """A name that no module of the package has; the message lists the known ones."""

    def __str__(self) -> str:
        return str(self.args[0])


def names(package: str) -> list[str]:
    """Names of the modules and sub-packages in ``package``, private ones left out."""
    module = importlib.import_module(package)
    return sorted(
        info.name for info in pkgutil.iter_modules(module.__path__) if not info.name.startswith("_")
    )


def resolve(package: str, name: str) -> ModuleType:
    """The module ``package.name``; an unknown name raises :class:`UnknownName` with the legal ones."""
    known = names(package)
    if name not in known:
        raise UnknownName(f"{package} has no {name!r}; known: {', '.join(known)}")
    return importlib.import_module(f"{package}.{name}")
