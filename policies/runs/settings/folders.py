"""Configuration groups and their option files: those of the package and of the user."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.values import hint
from temporeal.robots.search_path import own_configs

FOLDERS = "TEMPOREAL_CONFIGS"
"""Environment variable: folders of the user's configuration files by group, such as ``<folder>/randomize/lab.yaml``;
several are separated as in PATH."""

OTHER = ("formulas",)
"""Folders of settings that are no run's: of `temporeal spec draw`."""


def groups() -> dict[str, list[str]]:
    """Configuration groups and their options, read from the folders (without hydra: completion must be quick)."""
    found = options_in(Path(str(files("temporeal.configs"))))
    for folder in own_folders():
        for group, options in options_in(folder).items():
            if group in found:
                found[group] = sorted({*found[group], *options})
    return found


def options_in(root: Path) -> dict[str, list[str]]:
    """The groups below ``root`` and their options; a sub-folder's name is part of its options' names."""
    return {
        folder.name: sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
        for folder in sorted(root.iterdir() if root.is_dir() else ())
        if folder.is_dir() and not folder.name.startswith(("_", ".")) and folder.name not in OTHER
    }


def own_folders() -> list[Path]:
    """The user's folders of configuration files: see :data:`FOLDERS`, and ``configs`` in :mod:`the search path
    <temporeal.robots.search_path>`."""
    named = [Path(text).expanduser().absolute() for text in os.environ.get(FOLDERS, "").split(os.pathsep) if text]
    return list(dict.fromkeys([*named, *own_configs()]))


def file_of(group: str, option: str) -> Path | None:
    """The file of an option, the package's or the user's; None if there is none."""
    places = [Path(str(files("temporeal.configs"))), *own_folders()]
    return next((path for folder in places if (path := folder / group / f"{option}.yaml").is_file()), None)


def check_folders() -> None:
    """Check that the user's folders exist and hold nothing that would be ignored silently."""
    known = options_in(Path(str(files("temporeal.configs"))))
    for folder in own_folders():
        if not folder.is_dir():
            raise BadInput(f"{FOLDERS}: there is no folder {folder}")
        if loose := sorted(path.name for path in folder.glob("*.yaml")):
            raise BadInput(f"{folder / loose[0]}: a file of settings must be in the folder of its group; groups: "
                           f"{', '.join(known)}")
        for group, options in options_in(folder).items():
            if group not in known and options:
                raise BadInput(f"{folder / group}: there is no group {group!r}{hint(group, list(known))}; groups: "
                               f"{', '.join(known)}")
            if taken := [option for option in options if option in known.get(group, ())]:
                raise BadInput(f"{folder / group / taken[0]}.yaml: {group}={taken[0]} already exists; "
                               "choose another name")
            known.get(group, []).extend(options)
