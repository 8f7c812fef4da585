"""Folders of the user's own robots, tasks, configurations and algorithms: the environment variable ``TEMPOREAL_PATH``.

    TEMPOREAL_PATH=~/mine:~/lab temporeal train task=reach robot=my_arm

In each folder: ``robots/<name>/`` or ``<name>/`` with a ``spec.yaml``, ``tasks/<name>.py``, ``algos/<name>.py``,
``configs/<group>/<name>.yaml``. The variable is the user's: nothing that was handed over (an artifact, a run, a robot's
folder) can set it or add to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "TEMPOREAL_PATH"
SPEC = "spec.yaml"
"""The file that makes a folder a robot."""

MODULES = {"temporeal.sim.tasks": "tasks", "temporeal.policies.algos": "algos"}
"""Registries whose modules may lie in the user's folders, and the folder of each."""


class SearchPathError(ValueError):
    """A folder of the search path is missing, or two of its entries have one name."""


def folders() -> list[Path]:
    """The folders of the variable, absolute, in its order."""
    found = [Path(text).expanduser().absolute() for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    for folder in found:
        if not folder.is_dir():
            raise SearchPathError(f"{VARIABLE}: there is no folder {folder}")
    return found


def own_robots() -> dict[str, Path]:
    """The folders of the user's own robots, by name."""
    places = [place for folder in folders() for place in (folder / "robots", folder)]
    return by_name("robot", (file.parent for place in places for file in sorted(place.glob(f"[!._]*/{SPEC}"))))


def own_modules(package: str) -> dict[str, Path]:
    """The user's own modules of the registry ``package``, by name; none of a registry that is not open to them."""
    if package not in MODULES:
        return {}
    return by_name(MODULES[package], (file for folder in folders()
                                      for file in sorted((folder / MODULES[package]).glob("[!._]*.py"))))


def own_configs() -> list[Path]:
    """The user's folders of configuration files by group."""
    return [place for folder in folders() if (place := folder / "configs").is_dir()]


def by_name(what: str, places: Iterable[Path]) -> dict[str, Path]:
    """``places`` by the names of their files or folders, each once."""
    found: dict[str, Path] = {}
    for place in places:
        other = found.setdefault(place.stem if place.suffix == ".py" else place.name, place)
        if other != place:
            raise SearchPathError(f"{VARIABLE}: two have the name {place.stem!r} ({what}): {other} and {place}; rename "
                                  "one")
    return found


def said() -> str:
    """What the variable says, for messages."""
    return f"now {os.environ[VARIABLE]}" if os.environ.get(VARIABLE) else "now not set"
